//! Opening the state database: create, migrate, say what is wrong.

use crate::error::{BUSY_SECONDS_MAX, StoreError};
use sqlx::migrate::Migrator;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection};
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::Mutex;

/// Name of the database within the state directory.
pub const DATABASE_NAME: &str = "sailfish.db";

static MIGRATOR: Migrator = sqlx::migrate!("migrations/sqlite");

/// The store. One connection: the server writes one transaction at a time anyway, and other processes have
/// their own.
pub struct Metastore {
    pub(crate) path: PathBuf,
    pub(crate) connection: Mutex<SqliteConnection>,
}

impl Metastore {
    /// Opens the store of a state directory and creates both where they are missing.
    pub async fn open(state_dir: &Path) -> Result<Metastore, StoreError> {
        let unwritable = |error: std::io::Error| StoreError::StateDirUnwritable {
            path: state_dir.to_path_buf(),
            reason: error.to_string(),
        };
        std::fs::create_dir_all(state_dir).map_err(unwritable)?;
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(state_dir.join("open.lock"))
            .map_err(unwritable)?;
        let path = state_dir.join(DATABASE_NAME);
        // Two processes must not migrate at the same time: the driver takes no lock for it with SQLite.
        lock_within_limit(&lock, &path).await?;
        let options = SqliteConnectOptions::new()
            .filename(&path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(Duration::from_secs(BUSY_SECONDS_MAX))
            .disable_statement_logging();
        let mut connection =
            options.connect().await.map_err(|error| StoreError::from_driver(&path, error))?;
        MIGRATOR.run(&mut connection).await.map_err(|error| StoreError::from_migration(&path, error))?;
        Ok(Metastore { path, connection: Mutex::new(connection) })
    }

    /// The database file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Ends the connection in good order, so that the write-ahead log is folded into the database.
    pub async fn close(self) -> Result<(), StoreError> {
        let path = self.path;
        self.connection.into_inner().close().await.map_err(|error| StoreError::from_driver(&path, error))
    }

    pub(crate) fn driver_error(&self, error: sqlx::Error) -> StoreError {
        StoreError::from_driver(&self.path, error)
    }
}

async fn lock_within_limit(lock: &File, path: &Path) -> Result<(), StoreError> {
    const PAUSE: Duration = Duration::from_millis(20);
    let tries = BUSY_SECONDS_MAX * 1000 / PAUSE.as_millis() as u64;
    for _ in 0..tries {
        match lock.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => tokio::time::sleep(PAUSE).await,
            Err(TryLockError::Error(error)) => {
                return Err(StoreError::StateDirUnwritable {
                    path: path.to_path_buf(),
                    reason: error.to_string(),
                });
            }
        }
    }
    Err(StoreError::LockedTooLong { path: path.to_path_buf(), seconds: BUSY_SECONDS_MAX })
}

#[cfg(test)]
mod tests {
    use super::{DATABASE_NAME, Metastore};
    use crate::{KeptFiles, StoreError};

    #[tokio::test]
    async fn a_foreign_file_is_named_as_damaged() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(DATABASE_NAME), vec![b'x'; 8192]).unwrap();
        match Metastore::open(dir.path()).await.err() {
            Some(StoreError::Corrupt { path, .. }) => assert!(path.ends_with(DATABASE_NAME)),
            other => panic!("expected a damaged database, got {other:?}"),
        }
    }

    #[tokio::test]
    async fn a_newer_database_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let store = Metastore::open(dir.path()).await.unwrap();
        sqlx::query(
            "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
             VALUES (9999, 'from the future', 1, x'00', 0)",
        )
        .execute(&mut *store.connection.lock().await)
        .await
        .unwrap();
        store.close().await.unwrap();
        match Metastore::open(dir.path()).await.err() {
            Some(StoreError::FromNewerVersion { version: 9999, .. }) => {}
            other => panic!("expected a newer version, got {other:?}"),
        }
    }

    /// The database that the version before the third migration left after three jobs.
    #[tokio::test]
    async fn a_database_of_the_version_before_is_brought_up_to_date() {
        let dir = tempfile::tempdir().unwrap();
        let old = concat!(env!("CARGO_MANIFEST_DIR"), "/test_data/v2/sailfish.db");
        std::fs::copy(old, dir.path().join(DATABASE_NAME)).unwrap();
        let store = Metastore::open(dir.path()).await.unwrap();
        let jobs = store.jobs(10).await.unwrap();
        let kept: Vec<_> = jobs.iter().map(|row| (row.job.0, row.kept_files, row.keep_until_ns)).collect();
        assert_eq!(kept, [(3, None, None), (2, None, None), (1, Some(KeptFiles::Kept), None)]);
        let job = jobs[2].job;
        let spec = store.job_spec(job).await.unwrap().unwrap();
        assert!(spec.keep_ifiles && spec.reduce_again.is_none());
        let attempts = store.attempts(job).await.unwrap();
        assert!(attempts.len() > 3 && attempts.iter().all(|row| row.opened_ns.is_none() && row.slot < 2));
        assert!(!store.winning_commits(job).await.unwrap().is_empty());
        store.close().await.unwrap();
        // And once more: nothing is left to do.
        assert_eq!(Metastore::open(dir.path()).await.unwrap().jobs(10).await.unwrap(), jobs);
    }

    #[tokio::test]
    async fn a_state_directory_that_is_a_file_is_unwritable() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        match Metastore::open(&file).await.err() {
            Some(StoreError::StateDirUnwritable { .. }) => {}
            other => panic!("expected an unwritable directory, got {other:?}"),
        }
    }

    #[tokio::test]
    async fn two_open_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = tokio::join!(Metastore::open(dir.path()), Metastore::open(dir.path()));
        assert!(first.is_ok() && second.is_ok());
    }
}
