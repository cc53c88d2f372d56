//! The questions of the planner to the front end.

use std::path::Path;

/// A front end: it knows this machine or the server of a cluster, and can warn its user.
pub trait FrontEnd {
    /// Returns memory and slots of a job, given the requested ones. Fails if there is less, or if no cluster answers.
    fn resources(&self, memory_bytes: Option<u64>, slots: Option<u32>) -> anyhow::Result<(u64, u32)>;

    /// Returns an error if an existing output directory holds files that no job wrote.
    fn check_replaced(&self, output: &Path) -> anyhow::Result<()>;

    /// Warns the user of a likely mistake.
    fn warn(&self, warning: &str);
}
