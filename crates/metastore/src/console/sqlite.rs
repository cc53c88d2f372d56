//! The console of SQLite: a separate connection that cannot write, with an authorizer that lets statements read the
//! public tables and call known functions, and returns secrets as empty.

use super::statement::{Dialect, FUNCTIONS, single_statement};
use super::{Answer, QueryError, QueryLimits};
use crate::StoreError;
use crate::error::BUSY_SECONDS_MAX;
use crate::open::DATABASE_NAME;
use api::KeyBytes;
use api::console::ANSWER_BYTES_MAX;
use api::history::{Cell, Table};
use futures_util::TryStreamExt;
use libsqlite3_sys as ffi;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteRow};
use sqlx::{
    AssertSqlSafe, Column, ConnectOptions, Connection as _, Executor, Row, SqlSafeStr, TypeInfo, ValueRef,
};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Instructions of SQLite's virtual machine between two checks of the clock: well under a millisecond.
const INSTRUCTIONS_PER_LOOK: i32 = 10_000;

/// Runs a read-only statement on the store of a state directory, on a separate connection that cannot write.
pub async fn query_read_only(
    state_dir: &Path,
    statement: &str,
    limits: QueryLimits,
) -> Result<Table, QueryError> {
    let statement = single_statement(statement, Dialect::Sqlite)?;
    let path = state_dir.join(DATABASE_NAME);
    let options = SqliteConnectOptions::new()
        .filename(&path)
        .read_only(true)
        // Sorts of a statement count as its memory, and use no disk.
        .pragma("temp_store", "MEMORY")
        .busy_timeout(Duration::from_secs(BUSY_SECONDS_MAX))
        .disable_statement_logging();
    let mut connection = options.connect().await.map_err(|error| StoreError::from_driver(&path, error))?;
    let wrong = |error| StoreError::from_driver(&path, error);
    both_names(&mut connection).await.map_err(wrong)?;
    let hidden = Hidden::make(&mut connection).await.map_err(wrong)?;
    let timed_out = stop_after(&mut connection, &path, limits.time_max).await?;
    let mut handle = connection.lock_handle().await.map_err(|error| StoreError::from_driver(&path, error))?;
    wall_in(handle.as_raw_handle().as_ptr(), &hidden);
    drop(handle);
    let answer = ask(&mut connection, &path, statement, limits).await;
    // The authorizer reads `hidden` until here.
    let closed = connection.close().await;
    drop(hidden);
    if answer.is_err() && timed_out.load(Ordering::Relaxed) {
        return Err(QueryError::TooLong { seconds: limits.time_max.as_secs() });
    }
    closed.map_err(|error| StoreError::from_driver(&path, error))?;
    answer
}

/// Tables by the name that they had until migration 13, and by the name that they have. People may ask by either; in PostgreSQL by views
/// that the migration makes.
pub(super) const RENAMED: &[(&str, &str)] = &[
    ("intermediate_replicas", "intermediate_file_replicas"),
    ("leads", "leaderships"),
    ("replicas", "run_replicas"),
    ("samples", "machine_samples"),
    ("sources", "source_sums"),
];

/// Makes a view of the other name of each renamed table. A state directory that no build since the renaming has opened has the tables
/// under their names of before.
async fn both_names(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    for (before, after) in RENAMED {
        let is_there =
            sqlx::query_scalar("SELECT count(*) FROM main.sqlite_master WHERE name = $1").bind(*after);
        let renamed: i64 = is_there.fetch_one(&mut *connection).await?;
        let (view, table) = if renamed > 0 { (before, after) } else { (after, before) };
        let statement = format!("CREATE TEMP VIEW {view} AS SELECT * FROM main.{table}");
        connection.execute(AssertSqlSafe(statement)).await?;
    }
    Ok(())
}

/// Columns with words, environment or output of programs, which only their user may see. Each entry has a table, its
/// column, and the expression shown instead.
const HIDDEN: &[(&str, &str, &str)] = &[
    ("tasks", "payload", "NULL"),
    ("finished_runs", "run", "NULL"),
    ("reports", "report", "json_remove(report, '$.mapper', '$.combiner', '$.reducer')"),
    (
        "attempts",
        "failure",
        "CASE WHEN failure LIKE '{\"blame\":\"user_program\"%' \
           THEN json_object('blame', 'user_program', 'exit_code', json_extract(failure, '$.exit_code'), \
                            'signal', json_extract(failure, '$.signal')) \
           ELSE json_remove(failure, '$.stderr_tail', '$.said') END",
    ),
    (
        "events",
        "detail",
        "CASE WHEN kind IN ('standard output', 'standard error', 'status') THEN NULL \
           WHEN kind = 'attempt failed' AND EXISTS (SELECT 1 FROM main.attempts u WHERE u.job = events.job \
             AND u.stage = events.stage AND u.task = events.task AND u.attempt = events.attempt \
             AND u.failure LIKE '{\"blame\":\"user_program\"%') THEN NULL \
           WHEN kind = 'job failed' AND EXISTS (SELECT 1 FROM main.attempts u WHERE u.job = events.job \
             AND u.failure LIKE '{\"blame\":\"user_program\"%' \
             AND instr(events.detail, json_extract(u.failure, '$.message')) > 0) THEN NULL \
           ELSE detail END",
    ),
    (
        "jobs",
        "error",
        "CASE WHEN error IS NOT NULL AND EXISTS (SELECT 1 FROM main.attempts u WHERE u.job = jobs.job \
           AND u.failure LIKE '{\"blame\":\"user_program\"%' \
           AND instr(jobs.error, json_extract(u.failure, '$.message')) > 0) THEN NULL ELSE error END",
    ),
];

/// Views that replace tables with such columns. SQLite tells the authorizer the name of the view through which a column
/// is read, and a part of a statement may have any name. So the views that may read the columns have secret names,
/// different in each connection.
struct Hidden {
    prefix: String,
}

impl Hidden {
    async fn make(connection: &mut SqliteConnection) -> Result<Box<Self>, sqlx::Error> {
        let random: String =
            sqlx::query_scalar("SELECT lower(hex(randomblob(16)))").fetch_one(&mut *connection).await?;
        let prefix = format!("of_{random}_");
        for (table, hidden, shown) in HIDDEN {
            let names = sqlx::query_scalar("SELECT name FROM pragma_table_info($1, 'main')").bind(*table);
            let names: Vec<String> = names.fetch_all(&mut *connection).await?;
            if names.is_empty() {
                // An earlier version wrote the store, without this table.
                continue;
            }
            let column = |name: &String| match name == hidden {
                true => format!("{shown} AS \"{name}\""),
                false => format!("\"{name}\""),
            };
            let columns: Vec<String> = names.iter().map(column).collect();
            let inner = format!(
                "CREATE TEMP VIEW {prefix}{table} AS SELECT {} FROM main.{table}",
                columns.join(", ")
            );
            let outer = format!("CREATE TEMP VIEW {table} AS SELECT * FROM {prefix}{table}");
            for statement in [inner, outer] {
                connection.execute(AssertSqlSafe(statement)).await?;
            }
        }
        connection.execute("PRAGMA query_only = ON").await?;
        Ok(Box::new(Self { prefix }))
    }

    /// Returns whether a column reads as empty within this view, or outside of views.
    fn hides(&self, (database, table): (&str, &str), column: &str, within: &str) -> bool {
        let is_hidden = HIDDEN.iter().any(|(of, hidden, _)| (*of, *hidden) == (table, column));
        // The view of that name has the public form of the column.
        is_hidden && database == "main" && !within.starts_with(&self.prefix)
    }
}

/// Makes SQLite check the clock while it works, and stop at the limit.
async fn stop_after(
    connection: &mut SqliteConnection,
    path: &Path,
    time_max: Duration,
) -> Result<Arc<AtomicBool>, StoreError> {
    let timed_out = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&timed_out);
    let deadline = Instant::now() + time_max;
    let mut handle = connection.lock_handle().await.map_err(|error| StoreError::from_driver(path, error))?;
    handle.set_progress_handler(INSTRUCTIONS_PER_LOOK, move || {
        let go_on = Instant::now() < deadline;
        if !go_on {
            seen.store(true, Ordering::Relaxed);
        }
        go_on
    });
    Ok(timed_out)
}

/// Longest value, and longest text of a statement: otherwise SQLite would build a value of a gigabyte on request.
const VALUE_BYTES_MAX: c_int = ANSWER_BYTES_MAX as c_int;
const STATEMENT_BYTES_MAX: c_int = 1 << 20;

/// Sets the authorizer and the limits of a connection. From here on it accepts only public statements.
fn wall_in(connection: *mut ffi::sqlite3, hidden: &Hidden) {
    let state = std::ptr::from_ref(hidden).cast_mut().cast();
    // SAFETY: the connection is open and locked by the caller, and is closed before `hidden` is dropped; the authorizer
    // only reads `hidden`, and cannot unwind.
    unsafe {
        ffi::sqlite3_set_authorizer(connection, Some(authorize), state);
        ffi::sqlite3_limit(connection, ffi::SQLITE_LIMIT_LENGTH, VALUE_BYTES_MAX);
        ffi::sqlite3_limit(connection, ffi::SQLITE_LIMIT_SQL_LENGTH, STATEMENT_BYTES_MAX);
        ffi::sqlite3_limit(connection, ffi::SQLITE_LIMIT_ATTACHED, 0);
    }
}

/// Tables that users may read.
const TABLES: &[&str] = &[
    "attempts",
    "audit",
    "boundaries",
    "chunks",
    "concrete_files",
    "concrete_replicas",
    "counters",
    "disks",
    "events",
    "file_commits",
    "file_disks",
    "file_names",
    "file_put_files",
    "file_puts",
    "foreign_file_puts",
    "ifiles",
    "intermediate_file_replicas",
    "intermediate_files",
    "jobs",
    "kept_dirs",
    "leaderships",
    "machine_samples",
    "nodes",
    "owners",
    "part_replicas",
    "parts",
    "pipelines",
    "placements",
    "plan_tasks",
    "plans",
    "proofs",
    "racks",
    "reports",
    "roles",
    "run_chunks",
    "run_replicas",
    "runs",
    "sequences",
    "source_sums",
    "stages",
    "tasks",
    "tokens",
    "users",
    "json_each",
    "json_tree",
    "sqlite_master",
    "sqlite_schema",
];

fn is_readable(table: &str) -> bool {
    TABLES.contains(&table) || RENAMED.iter().any(|(before, _)| *before == table)
}

/// Columns that read as empty.
const SECRETS: &[(&str, &str)] =
    &[("tokens", "hash"), ("nodes", "secret_hash"), ("file_disks", "secret_hash")];
/// Functions of SQLite besides those of both databases.
const MORE_FUNCTIONS: &[&str] = &[
    "char",
    "date",
    "datetime",
    "format",
    "glob",
    "group_concat",
    "hex",
    "iif",
    "ifnull",
    "instr",
    "json",
    "json_array",
    "json_array_length",
    "json_extract",
    "json_object",
    "json_quote",
    "json_remove",
    "json_type",
    "json_valid",
    "json_group_array",
    "json_group_object",
    "julianday",
    "like",
    "printf",
    "quote",
    "strftime",
    "time",
    "total",
    "typeof",
    "unhex",
    "unicode",
    "unixepoch",
    "->",
    "->>",
    "if",
];

/// Authorizes each action of a statement; SQLite calls it while it prepares the statement.
unsafe extern "C" fn authorize(
    state: *mut c_void,
    action: c_int,
    first: *const c_char,
    second: *const c_char,
    database: *const c_char,
    within: *const c_char,
) -> c_int {
    // SAFETY: SQLite gives texts that end with NUL and live during the call, or null, and the state that it was given,
    // which lives as long as the connection.
    let (first, second, hidden) = unsafe { (text(first), text(second), &*state.cast::<Hidden>()) };
    // SAFETY: as above.
    let (database, within) = unsafe { (text(database), text(within)) };
    let allowed = match action {
        ffi::SQLITE_SELECT | ffi::SQLITE_RECURSIVE => true,
        ffi::SQLITE_READ
            if SECRETS.contains(&(first, second)) || hidden.hides((database, first), second, within) =>
        {
            return ffi::SQLITE_IGNORE;
        }
        // Without a column, rows are counted. The name may be one that the statement gave to its own table.
        ffi::SQLITE_READ => second.is_empty() || is_readable(first) || first.starts_with(&hidden.prefix),
        ffi::SQLITE_FUNCTION => {
            let name = second.to_ascii_lowercase();
            FUNCTIONS.contains(&name.as_str()) || MORE_FUNCTIONS.contains(&name.as_str())
        }
        _ => false,
    };
    if allowed { ffi::SQLITE_OK } else { ffi::SQLITE_DENY }
}

/// # Safety
/// The pointer is null, or to a text that ends with NUL and outlives the answer.
unsafe fn text<'a>(pointer: *const c_char) -> &'a str {
    if pointer.is_null() {
        return "";
    }
    // SAFETY: promised by the caller.
    unsafe { CStr::from_ptr(pointer) }.to_str().unwrap_or_default()
}

async fn ask(
    connection: &mut SqliteConnection,
    path: &Path,
    statement: &str,
    limits: QueryLimits,
) -> Result<Table, QueryError> {
    let wrong = |error: sqlx::Error| match StoreError::from_driver(path, error) {
        // All other errors concern the statement itself, unless a reader has to wait or the file is bad.
        StoreError::Database { source: sqlx::Error::Database(error), .. } => {
            QueryError::Statement { message: error.message().to_string() }
        }
        StoreError::StateDirUnwritable { reason, .. } => QueryError::Statement { message: reason },
        other => QueryError::Store(other),
    };
    let text = AssertSqlSafe(statement.to_string()).into_sql_str();
    // Prepared first, so that an answer without rows also has its columns.
    let prepared = connection.prepare(text).await.map_err(wrong)?;
    let columns = sqlx::Statement::columns(&prepared).iter().map(|each| each.name().to_string()).collect();
    let mut answer = Answer::new(columns, limits);
    let mut rows = sqlx::Statement::query(&prepared).fetch(&mut *connection);
    while let Some(row) = rows.try_next().await.map_err(wrong)? {
        if !answer.has_room() {
            break;
        }
        let cells: Result<Vec<Cell>, QueryError> = (0..row.len()).map(|index| cell(&row, index)).collect();
        answer.push(cells?)?;
    }
    Ok(answer.table)
}

fn cell(row: &SqliteRow, index: usize) -> Result<Cell, QueryError> {
    let wrong = |error: sqlx::Error| QueryError::Value {
        column: row.column(index).name().to_string(),
        reason: error.to_string(),
    };
    let value = row.try_get_raw(index).map_err(wrong)?;
    if value.is_null() {
        return Ok(Cell::Null);
    }
    // SQLite's types belong to values, not to columns.
    let kind = value.type_info().name().to_string();
    Ok(match kind.as_str() {
        "INTEGER" | "BOOLEAN" => Cell::Integer(row.try_get_unchecked(index).map_err(wrong)?),
        "REAL" => Cell::Real(row.try_get_unchecked(index).map_err(wrong)?),
        "BLOB" => Cell::Blob(KeyBytes(row.try_get_unchecked(index).map_err(wrong)?)),
        _ => {
            let bytes: Vec<u8> = row.try_get_unchecked(index).map_err(wrong)?;
            Cell::Text(String::from_utf8_lossy(&bytes).into_owned())
        }
    })
}
