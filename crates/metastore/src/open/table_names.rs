//! Stores of version 12, before tables got other names.

use super::{DATABASE_NAME, Metastore, POSTGRES_MIGRATIONS, SQLITE_MIGRATIONS, migrator, reader_role};
use crate::{Cell, QueryLimits, query_read_only};
use private_postgres::PrivatePostgres;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, PgConnection};
use std::path::Path;

const VERSION: usize = 12;

/// A row in each table that gets another name, and rows that these need.
const ROWS: &[&str] = &[
    "INSERT INTO jobs (job, owner, priority, name, state, output, staging, disk_dirs, created_ns) \
     VALUES (1, 'cluster', 0, 'a', 'running', '/out', '', '[]', 1)",
    "INSERT INTO ifiles (job, ifile) VALUES (1, 0)",
    "INSERT INTO sources (job, ifile, chunk, map_task, attempt, records, bytes, hash_sum) \
     VALUES (1, 0, 2, 3, 0, 71, 9, '0123456789abcdef')",
    "INSERT INTO replicas (job, run, node, state, chunks, bytes, single_ns, sending_ns) \
     VALUES (1, 5, 2, 'complete', '[2]', 72, 0, 0)",
    "INSERT INTO intermediate_replicas (file, node, bytes, single_ns) VALUES (4, 2, 73, 0)",
    "INSERT INTO samples VALUES (2, 9, 0, 74, 0, 0, 0, 0, 0, 0)",
    "INSERT INTO leads (owner, started_ns, applied) VALUES ('one', 1, 75)",
    "INSERT INTO results (job, stage, task, attempt, result) VALUES (1, 0, 3, 0, 'a result')",
];

/// Each name of before and each name since, with the column that holds 71 and so on.
const QUESTIONS: &[(&str, &str, &str, i64)] = &[
    ("sources", "source_sums", "records", 71),
    ("replicas", "run_replicas", "bytes", 72),
    ("intermediate_replicas", "intermediate_file_replicas", "bytes", 73),
    ("samples", "machine_samples", "memory_used_bytes", 74),
    ("leads", "leaderships", "applied", 75),
];

async fn check_migrated(store: &Metastore) {
    for (before, after, column, expected) in QUESTIONS {
        for table in [before, after] {
            let statement = format!("select {column} from {table}");
            let answer = store.query(&statement, QueryLimits::default()).await.unwrap();
            assert_eq!(answer.rows, [[Cell::Integer(*expected)]], "{table}");
        }
    }
    let results = store.rows("SELECT result FROM task_results", []).await.unwrap();
    assert_eq!(results.len(), 1);
    assert_eq!(results[0].get::<String>("result").unwrap(), "a result");
}

/// Fails where an index or a constraint has a name of a table of before.
fn check_names(names: &[String]) {
    assert!(names.iter().any(|name| name == "machine_samples_by_time"), "{names:?}");
    for before in ["sources", "replicas", "intermediate_replicas", "samples", "leads", "results"] {
        let of_before = |name: &&String| name.starts_with(&format!("{before}_"));
        assert_eq!(names.iter().find(of_before), None);
    }
}

async fn sqlite(state_dir: &Path) -> sqlx::SqliteConnection {
    let options = SqliteConnectOptions::new().filename(state_dir.join(DATABASE_NAME)).create_if_missing(true);
    options.foreign_keys(false).connect().await.unwrap()
}

#[tokio::test]
async fn sqlite_of_version_12_keeps_its_rows() {
    let dir = tempfile::tempdir().unwrap();
    let mut connection = sqlite(dir.path()).await;
    migrator(&SQLITE_MIGRATIONS[..VERSION]).run(&mut connection).await.unwrap();
    for statement in ROWS {
        sqlx::query(*statement).execute(&mut connection).await.unwrap();
    }
    connection.close().await.unwrap();
    // People may ask before a server or a job opens the store.
    for (before, after, column, expected) in QUESTIONS {
        for table in [before, after] {
            let statement = format!("select {column} from {table}");
            let answer = query_read_only(dir.path(), &statement, QueryLimits::default()).await.unwrap();
            assert_eq!(answer.rows, [[Cell::Integer(*expected)]], "{table}");
        }
    }
    let store = Metastore::open(dir.path()).await.unwrap();
    check_migrated(&store).await;
    store.close().await.unwrap();
    let mut connection = sqlite(dir.path()).await;
    let names =
        sqlx::query_scalar("SELECT name FROM sqlite_master").fetch_all(&mut connection).await.unwrap();
    check_names(&names);
    let broken = sqlx::query("PRAGMA foreign_key_check").fetch_all(&mut connection).await.unwrap();
    assert!(broken.is_empty());
}

#[tokio::test]
async fn postgres_of_version_12_keeps_its_rows() {
    let what = "a PostgreSQL store of version 12";
    let Some(postgres) = PrivatePostgres::start_or_say(what, &["fsync = off"]) else { return };
    let url = postgres.url("postgres");
    let mut connection = PgConnection::connect(&url).await.unwrap();
    migrator(&POSTGRES_MIGRATIONS[..VERSION]).run(&mut connection).await.unwrap();
    reader_role(&mut connection, Path::new("postgres")).await.unwrap();
    for statement in ROWS {
        sqlx::query(*statement).execute(&mut connection).await.unwrap();
    }
    let store = Metastore::connect(&url).await.unwrap();
    check_migrated(&store).await;
    let names = "SELECT relname::text FROM pg_class UNION ALL SELECT conname::text FROM pg_constraint \
                 WHERE connamespace = 'public'::regnamespace";
    let names: Vec<String> = sqlx::query_scalar(names).fetch_all(&mut connection).await.unwrap();
    check_names(&names);
    // The numbers of leaderships go on.
    assert!(store.try_lead("two").await.unwrap());
    let question = "select max(lead) from leaderships where owner = 'two'";
    let answer = store.query(question, QueryLimits::default()).await.unwrap();
    assert_eq!(answer.rows, [[Cell::Integer(2)]]);
}
