//! What can be wrong with the store, by what its reader should do about it.

use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot write to the state directory {path}: {reason}; choose another with --state",
        path = path.display())]
    StateDirUnwritable { path: PathBuf, reason: String },
    #[error("the state database {path} is damaged ({reason}); move it away together with its -wal and -shm \
        files and run again: a new one is made, the history of old jobs goes with the old one",
        path = path.display())]
    Corrupt { path: PathBuf, reason: String },
    #[error("the state database {path} was written by a newer version of sailfish (it has migration {version}, \
        which this one does not know); use that version, or another directory with --state",
        path = path.display())]
    FromNewerVersion { path: PathBuf, version: i64 },
    #[error("the state database {path} stayed locked by another process for more than {seconds} seconds",
        path = path.display())]
    LockedTooLong { path: PathBuf, seconds: u64 },
    #[error("the disk that holds the state database {path} is full", path = path.display())]
    DiskFull { path: PathBuf },
    #[error("the state database {path} holds a value in {column} that cannot be read: {value:?}",
        path = path.display())]
    DamagedValue { path: PathBuf, column: &'static str, value: String },
    #[error("the state database {path} does not do what it is asked: {source}", path = path.display())]
    Database { path: PathBuf, source: sqlx::Error },
    #[error("the state database {path} cannot be brought to this version: {source}", path = path.display())]
    Migration { path: PathBuf, source: sqlx::migrate::MigrateError },
    #[error("the path {path} is not UTF-8 and cannot be stored", path = path.display())]
    PathNotText { path: PathBuf },
    #[error("a message cannot be written as JSON: {0}")]
    Json(serde_json::Error),
}

/// How long a process waits for another one's transaction.
pub(crate) const BUSY_SECONDS_MAX: u64 = 30;

impl StoreError {
    /// Sorts an error of the driver by SQLite's result codes (sqlite.org/rescode.html; the low byte of an
    /// extended code is the primary one).
    pub(crate) fn from_driver(path: &Path, source: sqlx::Error) -> Self {
        let path = path.to_path_buf();
        let code = match &source {
            sqlx::Error::Database(error) => {
                error.code().and_then(|code| code.parse::<u32>().ok()).map(|code| code & 0xff)
            }
            _ => None,
        };
        let reason = match &source {
            sqlx::Error::Database(error) => error.message().to_string(),
            other => other.to_string(),
        };
        match code {
            Some(5 | 6) => Self::LockedTooLong { path, seconds: BUSY_SECONDS_MAX },
            Some(3 | 8 | 10 | 14 | 23) => Self::StateDirUnwritable { path, reason },
            Some(11 | 26) => Self::Corrupt { path, reason },
            Some(13) => Self::DiskFull { path },
            _ => Self::Database { path, source },
        }
    }

    pub(crate) fn from_migration(path: &Path, source: sqlx::migrate::MigrateError) -> Self {
        use sqlx::migrate::MigrateError;
        match source {
            MigrateError::VersionMissing(version) => {
                Self::FromNewerVersion { path: path.to_path_buf(), version }
            }
            MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => {
                Self::from_driver(path, error)
            }
            other => Self::Migration { path: path.to_path_buf(), source: other },
        }
    }
}
