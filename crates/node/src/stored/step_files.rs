//! Stored files that programs of jobs write: the interface to the files of this machine, or of the cluster.

use api::{Blame, StoredContent, TaskFailure};
use ids::JobId;
use std::fmt::Debug;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// Kind of the error of a part of a stored file without a replica in reach.
pub(crate) const NO_REPLICA: ErrorKind = ErrorKind::HostUnreachable;

/// A job whose program writes stored files, with the rights of its user.
pub struct StoringJob<'a> {
    pub job: JobId,
    pub name: &'a str,
    /// The user to whom the files belong, on a server that asks for no tokens.
    pub user: &'a str,
    /// Socket of the node for programs of the job; None on one machine.
    pub socket: Option<&'a Path>,
    /// True when the job is stopped.
    pub cancelled: &'a AtomicBool,
}

/// A new version of a stored file.
pub struct NewVersion {
    /// Name with `files:`.
    pub path: PathBuf,
    pub file: File,
}

/// The stored files that programs of jobs write. Names have `files:`.
pub trait StepFiles: Send + Sync + Debug {
    /// Stores new versions: all are written before the first one gets its name. A version that an earlier attempt of the
    /// job has stored stays, in place of the new one. Returns the contents in order.
    fn store(
        &self,
        of: &StoringJob<'_>,
        versions: Vec<NewVersion>,
    ) -> Result<Vec<StoredContent>, TaskFailure>;

    /// Returns the present contents of names; None for a name without a file, and for a file that cannot be read.
    fn contents(
        &self,
        of: &StoringJob<'_>,
        names: &[&Path],
    ) -> Result<Vec<Option<StoredContent>>, TaskFailure>;

    /// Removes files. A name without a file is no error.
    fn remove(&self, of: &StoringJob<'_>, names: &[&Path]) -> Result<(), TaskFailure>;
}

/// Returns the files, or the failure of a job whose node has none.
pub(crate) fn of_node<'a>(
    files: Option<&'a dyn StepFiles>,
    path: &Path,
) -> Result<&'a dyn StepFiles, TaskFailure> {
    files.ok_or_else(|| {
        TaskFailure::new(
            Blame::Engine,
            format!("this process has no stored files, and not {}", path.display()),
        )
    })
}
