//! The questions to the front end while a job is planned.

use std::path::Path;

/// A front end: it knows this machine, the server of a cluster, and how to tell its user something.
pub trait FrontEnd {
    /// Returns memory and slots of a job, of which the given ones were asked for. Error: there is not as much, or no cluster answers.
    fn resources(&self, memory_bytes: Option<u64>, slots: Option<u32>) -> anyhow::Result<(u64, u32)>;

    /// Refuses an existing output directory that holds files of others.
    fn check_replaced(&self, output: &Path) -> anyhow::Result<()>;

    /// Tells the user of something that is probably a mistake.
    fn warn(&self, warning: &str);
}
