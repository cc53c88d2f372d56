//! Errors of the store, distinguished by the action that the reader should take.

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
    #[error("the state database {path} failed: {source}", path = path.display())]
    Database { path: PathBuf, source: sqlx::Error },
    #[error("the state database {path} cannot be migrated to this version: {source}", path = path.display())]
    Migration { path: PathBuf, source: sqlx::migrate::MigrateError },
    #[error("the path {path} is not UTF-8 and cannot be stored", path = path.display())]
    PathNotText { path: PathBuf },
    /// The statement in progress may or may not have been executed; reads can be retried.
    #[error("the connection to the database {path} was lost: {reason}", path = path.display())]
    ConnectionLost { path: PathBuf, reason: String },
    #[error("the database {path} cannot be reached: {reason}", path = path.display())]
    Unreachable { path: PathBuf, reason: String },
    /// The transaction conflicted with another one and was rolled back.
    #[error("the database {path} rolled back a transaction because of another one: {reason}", path = path.display())]
    Serialization { path: PathBuf, reason: String },
    #[error("the database {path} does not allow this: {reason}", path = path.display())]
    Denied { path: PathBuf, reason: String },
    #[error(
        "{url:?} is not the address of a database ({reason}); it looks like postgres://user@host:5432/name"
    )]
    BadUrl { url: String, reason: String },
    /// The process must stop at once: another server works on the same jobs.
    #[error("another server has taken the lead of the database {path}", path = path.display())]
    LeadLost { path: PathBuf },
    #[error("a message cannot be written as JSON: {0}")]
    Json(serde_json::Error),
}

/// Timeout of a process that waits for another one's transaction.
pub(crate) const BUSY_SECONDS_MAX: u64 = 30;

impl StoreError {
    /// Returns whether a retry may succeed, with a new connection if this one is lost. After a lost connection a write
    /// may have been committed: check before repeating it.
    pub fn retryable(&self) -> bool {
        matches!(
            self,
            Self::ConnectionLost { .. }
                | Self::Unreachable { .. }
                | Self::Serialization { .. }
                | Self::LockedTooLong { .. }
        )
    }

    /// Classifies an error of either driver.
    pub(crate) fn from_driver(path: &Path, source: sqlx::Error) -> Self {
        let postgres = match &source {
            sqlx::Error::Database(error) => {
                error.try_downcast_ref::<sqlx::postgres::PgDatabaseError>().is_some()
            }
            sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => {
                let (path, reason) = (path.to_path_buf(), source.to_string());
                return Self::ConnectionLost { path, reason };
            }
            _ => false,
        };
        if postgres { Self::from_postgres(path, source) } else { Self::from_sqlite(path, source) }
    }

    /// Classifies by PostgreSQL's error codes (postgresql.org/docs/current/errcodes-appendix.html): the first two
    /// characters are the class.
    fn from_postgres(path: &Path, source: sqlx::Error) -> Self {
        let path = path.to_path_buf();
        let (code, reason) = match &source {
            sqlx::Error::Database(error) => {
                (error.code().unwrap_or_default().into_owned(), error.message().to_string())
            }
            other => (String::new(), other.to_string()),
        };
        match (code.get(..2).unwrap_or_default(), code.as_str()) {
            // A shutdown, a crash of another session, a start, or an idle transaction that was ended.
            ("08", _) | (_, "57P01" | "57P02" | "57P03" | "57P05" | "25P03") => {
                Self::ConnectionLost { path, reason }
            }
            (_, "40001" | "40P01" | "55P03") => Self::Serialization { path, reason },
            (_, "53100") => Self::DiskFull { path },
            (_, "53200" | "53300") => Self::Unreachable { path, reason },
            ("28", _) | (_, "42501" | "25006" | "3D000") => Self::Denied { path, reason },
            (_, "XX001" | "XX002") => Self::Corrupt { path, reason },
            _ => Self::Database { path, source },
        }
    }

    /// Classifies by SQLite's result codes (sqlite.org/rescode.html; the low byte of an extended code is the primary
    /// one).
    fn from_sqlite(path: &Path, source: sqlx::Error) -> Self {
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
