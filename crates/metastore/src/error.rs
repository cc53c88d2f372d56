//! What can be wrong with the store, by what its reader should do about it.

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot write to the state directory {path}: {reason}; choose another with --state",
        path = path.display())]
    StateDirUnwritable { path: PathBuf, reason: String },
}
