//! Opening of the state database: creation, migration, and error reports.

mod reader_role;
#[cfg(test)]
mod table_names;

use crate::database::{Connection, STATEMENTS_MAX, sqlite};
use crate::error::{BUSY_SECONDS_MAX, StoreError};
use crate::writer::Writer;
use api::data_access::SecretText;
use faults::{IoCall, io_call};
use reader_role::reader_role;
use sqlx::migrate::{Migration, MigrationType, Migrator};
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection as _, SqlSafeStr as _};
use std::fs::{DirBuilder, File, Permissions, TryLockError};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::LazyLock;
use std::time::Duration;
use tokio::sync::Mutex;

/// Name of the database within the state directory.
pub const DATABASE_NAME: &str = "sailfish.db";

/// Version, description, text and SHA-384 of a migration.
type Embedded = (i64, &'static str, &'static str, &'static [u8]);

// SQLITE_MIGRATIONS and POSTGRES_MIGRATIONS, as the directory `migrations` has them.
include!(concat!(env!("OUT_DIR"), "/migrations.rs"));

static SQLITE_MIGRATOR: LazyLock<Migrator> = LazyLock::new(|| migrator(SQLITE_MIGRATIONS));
static POSTGRES_MIGRATOR: LazyLock<Migrator> = LazyLock::new(|| migrator(POSTGRES_MIGRATIONS));

fn migrator(migrations: &[Embedded]) -> Migrator {
    let migration = |&(version, description, text, checksum): &Embedded| Migration {
        version,
        description: description.into(),
        migration_type: MigrationType::Simple,
        sql: text.into_sql_str(),
        checksum: checksum.into(),
        no_tx: false,
    };
    Migrator::with_migrations(migrations.iter().map(migration).collect())
}

/// URL parameters that the driver knows. It ignores others, so a misspelt `sslmode` would disable encryption.
const URL_PARAMETERS: [&str; 18] = [
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "statement-cache-capacity",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
];
/// Longest wait for a new connection.
const CONNECT_SECONDS_MAX: u64 = 10;

/// Our statements find rows by their keys, whatever the planner estimates: one fixed plan, and never a scan of the
/// history.
const PLANNER: [(&str, &str); 5] = [
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("idle_in_transaction_session_timeout", "60s"),
];

/// The store. One connection writes, because the server writes one transaction at a time anyway; another one reads.
pub struct Metastore {
    /// The file, or the address without its password, for messages.
    pub(crate) path: PathBuf,
    pub(crate) place: Place,
    pub(crate) writer: Mutex<Writer>,
    /// Opened by the first read.
    pub(crate) reader: Mutex<Option<Connection>>,
}

/// Location of the rows: a database file or a PostgreSQL server.
#[derive(Clone)]
pub(crate) enum Place {
    Sqlite {
        path: PathBuf,
        state_dir: PathBuf,
    },
    /// Contains the address as given.
    Postgres {
        path: PathBuf,
        options: Box<PgConnectOptions>,
        url: SecretText,
    },
}

impl Place {
    pub fn path(&self) -> &Path {
        match self {
            Self::Sqlite { path, .. } | Self::Postgres { path, .. } => path,
        }
    }

    pub async fn connect_writer(&self) -> Result<Connection, StoreError> {
        match self {
            Self::Sqlite { path, .. } => sqlite::connect(path).map(Connection::Sqlite),
            Self::Postgres { path, options, .. } => {
                let options = options.as_ref().clone().options(PLANNER);
                connect_postgres(path, options.options([("synchronous_commit", "on")])).await
            }
        }
    }

    pub async fn connect_reader(&self) -> Result<Connection, StoreError> {
        match self {
            Self::Sqlite { path, .. } => sqlite::connect(path).map(Connection::Sqlite),
            Self::Postgres { path, options, .. } => {
                let settings =
                    [("default_transaction_read_only", "on"), ("idle_in_transaction_session_timeout", "60s")];
                connect_postgres(path, options.as_ref().clone().options(settings)).await
            }
        }
    }
}

pub(crate) async fn connect_postgres(
    path: &Path,
    options: PgConnectOptions,
) -> Result<Connection, StoreError> {
    let unreachable = |reason: String| StoreError::Unreachable { path: path.to_path_buf(), reason };
    let connecting = tokio::time::timeout(Duration::from_secs(CONNECT_SECONDS_MAX), options.connect());
    match connecting.await {
        Ok(Ok(connection)) => Ok(Connection::Postgres(connection)),
        Ok(Err(error)) => Err(match StoreError::from_driver(path, error) {
            StoreError::ConnectionLost { reason, .. } => unreachable(reason),
            StoreError::Database { source, .. } => unreachable(source.to_string()),
            other => other,
        }),
        Err(_) => Err(unreachable(format!("no answer within {CONNECT_SECONDS_MAX} seconds"))),
    }
}

/// Creates the file if it is missing, and removes the read permission of others. SQLite gives its journals the same
/// mode.
fn make_private(path: &Path) -> std::io::Result<()> {
    let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(path)?;
    if file.metadata()?.mode() & 0o077 != 0
        && let Err(error) = file.set_permissions(Permissions::from_mode(0o600))
    {
        // The file belongs to another user, who lets us write.
        tracing::debug!(%error, "cannot change the mode of the database");
    }
    Ok(())
}

impl Metastore {
    /// Opens the store of a state directory, and creates both if they are missing.
    pub async fn open(state_dir: &Path) -> Result<Metastore, StoreError> {
        let unwritable = |error: std::io::Error| StoreError::StateDirUnwritable {
            path: state_dir.to_path_buf(),
            reason: error.to_string(),
        };
        let asked = io_call(IoCall::Create, state_dir);
        // The store contains the environment of programs of jobs, which nobody else may read.
        let mut private = DirBuilder::new();
        private.recursive(true).mode(0o700);
        asked.and_then(|()| private.create(state_dir)).map_err(unwritable)?;
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(state_dir.join("open.lock"))
            .map_err(unwritable)?;
        let path = state_dir.join(DATABASE_NAME);
        // Two processes must not migrate at the same time: the driver takes no lock for it with SQLite.
        lock_within_limit(&lock, &path).await?;
        make_private(&path).map_err(|error| {
            let named = format!("{DATABASE_NAME}: {error}");
            unwritable(std::io::Error::new(error.kind(), named))
        })?;
        // A migration that replaces a table drops the old one, which foreign keys would prevent.
        let options = SqliteConnectOptions::new()
            .filename(&path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(false)
            .busy_timeout(Duration::from_secs(BUSY_SECONDS_MAX))
            .disable_statement_logging();
        let wrong = |error| StoreError::from_driver(&path, error);
        let mut connection = options.connect().await.map_err(wrong)?;
        SQLITE_MIGRATOR
            .run(&mut connection)
            .await
            .map_err(|error| StoreError::from_migration(&path, error))?;
        connection.close().await.map_err(wrong)?;
        let connection = sqlite::connect(&path)?;
        let writer = Writer { connection: Some(Connection::Sqlite(connection)), lead: None };
        Ok(Self::new(Place::Sqlite { path, state_dir: state_dir.to_path_buf() }, writer))
    }

    /// Opens the store in a PostgreSQL database, `postgres://user:password@host:5432/name`, and creates missing tables.
    /// The database must exist, in version 14 or later. The parameters `sslmode` and `sslrootcert` control encryption
    /// and trust, as in libpq; `PGPASSFILE` and `PGPASSWORD` give a password if the URL has none.
    pub async fn connect(url: &str) -> Result<Metastore, StoreError> {
        let (path, options) = postgres_options(url)?;
        let place = Place::Postgres { path, options: Box::new(options), url: SecretText(url.to_string()) };
        let mut connection = place.connect_writer().await?;
        if let Connection::Postgres(connection) = &mut connection {
            let migrated = POSTGRES_MIGRATOR.run(&mut *connection).await;
            migrated.map_err(|error| StoreError::from_migration(place.path(), error))?;
            reader_role(connection, place.path()).await?;
        }
        Ok(Self::new(place, Writer { connection: Some(connection), lead: None }))
    }

    fn new(place: Place, writer: Writer) -> Self {
        Self { path: place.path().to_path_buf(), place, writer: Mutex::new(writer), reader: Mutex::new(None) }
    }

    /// Returns the database file, or the address of the database without its password.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Closes the connections properly, so that SQLite checkpoints its write-ahead log.
    pub async fn close(self) -> Result<(), StoreError> {
        let reader = self.reader.into_inner();
        for connection in reader.into_iter().chain(self.writer.into_inner().connection) {
            connection.close().await.map_err(|error| StoreError::from_driver(&self.path, error))?;
        }
        Ok(())
    }

    pub(crate) fn driver_error(&self, error: sqlx::Error) -> StoreError {
        StoreError::from_driver(&self.path, error)
    }
}

/// Returns the address for messages, and the connection options.
pub(crate) fn postgres_options(url: &str) -> Result<(PathBuf, PgConnectOptions), StoreError> {
    let wrong = |reason: String| StoreError::BadUrl { url: without_password(url), reason };
    if !["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme)) {
        return Err(wrong("it names no PostgreSQL".to_string()));
    }
    if let Some(unknown) = parameters(url).find(|name| !is_parameter(name)) {
        return Err(wrong(format!("it has an unknown parameter {unknown:?}")));
    }
    let options = PgConnectOptions::from_str(url).map_err(|error| wrong(error.to_string()))?;
    let options = options
        .application_name("sailfish")
        .statement_cache_capacity(STATEMENTS_MAX)
        .disable_statement_logging();
    Ok((PathBuf::from(without_password(url)), options))
}

/// Returns the names of the URL parameters.
fn parameters(url: &str) -> impl Iterator<Item = &str> {
    let parameters = url.split_once('?').map_or("", |(_, parameters)| parameters);
    let parameters = parameters.split('&').filter(|parameter| !parameter.is_empty());
    parameters.map(|parameter| parameter.split_once('=').map_or(parameter, |(name, _)| name))
}

fn is_parameter(name: &str) -> bool {
    URL_PARAMETERS.contains(&name) || name.starts_with("options[") || name.starts_with("options%5B")
}

/// Returns an address for messages and logs: only the user is left between `//` and `@`, and no parameters.
fn without_password(url: &str) -> String {
    let url = url.split_once('?').map_or(url, |(address, _)| address);
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_string() };
    match rest.rsplit_once('@') {
        Some((login, host)) => {
            let user = login.split_once(':').map_or(login, |(user, _)| user);
            format!("{scheme}://{user}@{host}")
        }
        None => url.to_string(),
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
    use super::{DATABASE_NAME, Metastore, POSTGRES_MIGRATOR, SQLITE_MIGRATOR};
    use crate::{AttemptState, JobState, KeptFiles, StoreError};
    use sqlx::migrate::Migration;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    #[test]
    fn embedded_checksums_are_those_of_the_driver() {
        for migrator in [&*SQLITE_MIGRATOR, &*POSTGRES_MIGRATOR] {
            assert!(migrator.iter().count() >= 10);
            for each in migrator.iter() {
                let (description, sql) = (each.description.clone(), each.sql.clone());
                let made = Migration::new(each.version, description, each.migration_type, sql, each.no_tx);
                assert_eq!(each.checksum, made.checksum, "{}", each.version);
            }
        }
    }

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
        .execute(&mut raw(&store).await)
        .await
        .unwrap();
        store.close().await.unwrap();
        match Metastore::open(dir.path()).await.err() {
            Some(StoreError::FromNewerVersion { version: 9999, .. }) => {}
            other => panic!("expected a newer version, got {other:?}"),
        }
    }

    #[tokio::test]
    async fn state_is_readable_by_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("a/b");
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        let store = Metastore::open(&state).await.unwrap();
        let database = state.join(DATABASE_NAME);
        assert_eq!((mode(&state), mode(&database)), (0o700, 0o600));
        assert_eq!(mode(&database.with_extension("db-wal")), 0o600);
        store.close().await.unwrap();
        // Earlier versions left this mode.
        std::fs::set_permissions(&database, Permissions::from_mode(0o644)).unwrap();
        let store = Metastore::open(&state).await.unwrap();
        assert_eq!(mode(&database), 0o600);
        store.close().await.unwrap();
    }

    /// Opens another connection beside those of the store.
    async fn raw(store: &Metastore) -> sqlx::SqliteConnection {
        use sqlx::ConnectOptions;
        sqlx::sqlite::SqliteConnectOptions::new().filename(store.path()).connect().await.unwrap()
    }

    #[test]
    fn passwords_are_not_shown() {
        let check = |url, shown| assert_eq!(super::without_password(url), shown);
        check("postgres://me:se@cret@host:1/db?password=x", "postgres://me@host:1/db");
        check("postgres://host/db", "postgres://host/db");
        check("postgres:///db?host=/run", "postgres:///db");
    }

    /// Migrates a database of the version before the fourth migration, with four jobs: the first keeps its I-files, the
    /// second failed, the third reduced the first again, and the process of the fourth was killed.
    #[tokio::test]
    async fn database_with_wide_rows_is_migrated() {
        let dir = tempfile::tempdir().unwrap();
        let old = "test_data/v3/sailfish.db";
        std::fs::copy(old, dir.path().join(DATABASE_NAME)).unwrap();
        let store = Metastore::open(dir.path()).await.unwrap();
        let jobs = store.jobs(10).await.unwrap();
        let seen: Vec<_> = jobs.iter().map(|row| (row.job.0, row.state, row.cleaned_ns.is_some())).collect();
        let expected = [
            (4, JobState::Running, false),
            (3, JobState::Succeeded, true),
            (2, JobState::Failed, true),
            (1, JobState::Succeeded, true),
        ];
        assert_eq!(seen, expected);
        assert_eq!((jobs[3].kept_files, jobs[1].reduce_again), (Some(KeptFiles::Kept), Some(jobs[3].job)));
        assert_eq!((&jobs[0].user, jobs[0].priority), (&None, 0));
        assert_eq!(store.job_spec(jobs[0].job).await.unwrap().unwrap().name, "out4");
        let report = store.job_report(jobs[3].job).await.unwrap().unwrap();
        assert_eq!(report.job, jobs[3].job);
        let tasks = store.tasks(jobs[0].job).await.unwrap();
        assert_eq!((tasks[0].state.word(), tasks[0].winner), ("running", None));
        let attempts = store.attempts(jobs[2].job).await.unwrap();
        assert_eq!(attempts.iter().filter(|row| row.state == AttemptState::Failed).count(), 3);
        assert_eq!(store.jobs_to_clean("nobody").await.unwrap().len(), 1);
        assert!(!store.winning_commits(jobs[3].job).await.unwrap().is_empty());
        assert_eq!(store.reserve_job_id().await.unwrap().0, 5);
        // No foreign key refers to a row that a migration lost when it recreated the table.
        let broken = sqlx::query("PRAGMA foreign_key_check").fetch_all(&mut raw(&store).await).await;
        assert!(broken.unwrap().is_empty());
    }

    /// Migrates a database of the version before the third migration, with three jobs.
    #[tokio::test]
    async fn database_of_the_previous_version_is_migrated() {
        let dir = tempfile::tempdir().unwrap();
        let old = "test_data/v2/sailfish.db";
        std::fs::copy(old, dir.path().join(DATABASE_NAME)).unwrap();
        let store = Metastore::open(dir.path()).await.unwrap();
        let jobs = store.jobs(10).await.unwrap();
        let kept: Vec<_> = jobs.iter().map(|row| (row.job.0, row.kept_files, row.keep_until_ns)).collect();
        assert_eq!(kept, [(3, None, None), (2, None, None), (1, Some(KeptFiles::Kept), None)]);
        let job = jobs[2].job;
        let spec = store.job_spec(job).await.unwrap().unwrap();
        assert!(spec.keep_ifiles && spec.kind.source().is_none());
        let attempts = store.attempts(job).await.unwrap();
        assert!(attempts.len() > 3 && attempts.iter().all(|row| row.opened_ns.is_none() && row.slot < 2));
        assert!(!store.winning_commits(job).await.unwrap().is_empty());
        store.close().await.unwrap();
        // A second migration has nothing to do.
        assert_eq!(Metastore::open(dir.path()).await.unwrap().jobs(10).await.unwrap(), jobs);
    }

    #[tokio::test]
    async fn state_directory_that_is_a_file_is_unwritable() {
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
