//! SQL for people: one statement, read-only, limited in rows and time.

use crate::StoreError;
use crate::error::BUSY_SECONDS_MAX;
use crate::open::DATABASE_NAME;
use futures_util::TryStreamExt;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, Column, ConnectOptions, Executor, Row, SqlSafeStr, TypeInfo, ValueRef};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What a statement may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryLimits {
    /// Rows beyond this many are left off, and [`Table::truncated`] says so.
    pub rows_max: usize,
    pub time_max: Duration,
}

impl Default for QueryLimits {
    fn default() -> Self {
        Self { rows_max: 100_000, time_max: Duration::from_secs(30) }
    }
}

/// The answer to a statement.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Cell>>,
    /// There were more rows than the limit.
    pub truncated: bool,
}

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Null,
    Integer(i64),
    Real(f64),
    Text(String),
    Blob(Vec<u8>),
}

/// Why a statement has no answer.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    #[error("there is no statement")]
    Empty,
    #[error("only one statement at a time: there is text after the first semicolon")]
    MoreThanOne,
    #[error("only select, with, values and explain are allowed here, not {keyword}")]
    NotReadOnly { keyword: String },
    #[error("the statement took longer than {seconds} seconds and was stopped")]
    TooLong { seconds: u64 },
    #[error("{message}")]
    Statement { message: String },
    #[error("a value of column {column} cannot be shown: {reason}")]
    Value { column: String, reason: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Instructions of SQLite's virtual machine between two looks at the clock: well under a millisecond.
const INSTRUCTIONS_PER_LOOK: i32 = 10_000;

/// Asks the store of a state directory one read-only statement, on a connection of its own that cannot write.
pub async fn query_read_only(
    state_dir: &Path,
    statement: &str,
    limits: QueryLimits,
) -> Result<Table, QueryError> {
    let statement = single_statement(statement)?;
    let path = state_dir.join(DATABASE_NAME);
    let options = SqliteConnectOptions::new()
        .filename(&path)
        .read_only(true)
        .pragma("query_only", "ON")
        .busy_timeout(Duration::from_secs(BUSY_SECONDS_MAX))
        .disable_statement_logging();
    let mut connection = options.connect().await.map_err(|error| StoreError::from_driver(&path, error))?;
    let timed_out = stop_after(&mut connection, &path, limits.time_max).await?;
    let answer = ask(&mut connection, &path, statement, limits.rows_max).await;
    if answer.is_err() && timed_out.load(Ordering::Relaxed) {
        return Err(QueryError::TooLong { seconds: limits.time_max.as_secs() });
    }
    answer
}

/// Lets SQLite look at the clock while it works, and give up in time.
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

async fn ask(
    connection: &mut SqliteConnection,
    path: &Path,
    statement: &str,
    rows_max: usize,
) -> Result<Table, QueryError> {
    let wrong = |error: sqlx::Error| match StoreError::from_driver(path, error) {
        // What is left is about the statement itself, unless a reader has to wait or the file is bad.
        StoreError::Database { source: sqlx::Error::Database(error), .. } => {
            QueryError::Statement { message: error.message().to_string() }
        }
        StoreError::StateDirUnwritable { reason, .. } => QueryError::Statement { message: reason },
        other => QueryError::Store(other),
    };
    let text = AssertSqlSafe(statement.to_string()).into_sql_str();
    // Prepared first, so that an answer without rows has its columns too.
    let prepared = connection.prepare(text).await.map_err(wrong)?;
    let columns = sqlx::Statement::columns(&prepared).iter().map(|each| each.name().to_string()).collect();
    let mut table = Table { columns, rows: Vec::new(), truncated: false };
    let mut rows = sqlx::Statement::query(&prepared).fetch(&mut *connection);
    while let Some(row) = rows.try_next().await.map_err(wrong)? {
        if table.rows.len() == rows_max {
            table.truncated = true;
            break;
        }
        let cells: Result<Vec<Cell>, QueryError> = (0..row.len()).map(|index| cell(&row, index)).collect();
        table.rows.push(cells?);
    }
    Ok(table)
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
        "BLOB" => Cell::Blob(row.try_get_unchecked(index).map_err(wrong)?),
        _ => {
            let bytes: Vec<u8> = row.try_get_unchecked(index).map_err(wrong)?;
            Cell::Text(String::from_utf8_lossy(&bytes).into_owned())
        }
    })
}

/// The one statement of a text, without its semicolon. The driver would run several one after the other.
fn single_statement(text: &str) -> Result<&str, QueryError> {
    let end = end_of_statement(text);
    let statement = &text[..end];
    let after = text[end..].strip_prefix(';').unwrap_or_default();
    if !without_comments(after).is_empty() {
        return Err(QueryError::MoreThanOne);
    }
    let start = without_comments(statement);
    if start.is_empty() {
        return Err(QueryError::Empty);
    }
    let keyword: String = start.chars().take_while(char::is_ascii_alphabetic).collect();
    match keyword.to_ascii_lowercase().as_str() {
        "select" | "with" | "values" | "explain" => Ok(statement),
        _ => Err(QueryError::NotReadOnly {
            keyword: start.split_whitespace().next().unwrap_or_default().chars().take(40).collect(),
        }),
    }
}

/// The text without the spaces and comments it begins with.
fn without_comments(text: &str) -> &str {
    let mut rest = text.trim_start();
    loop {
        if let Some(comment) = rest.strip_prefix("--") {
            rest = comment.split_once('\n').map_or("", |(_, after)| after).trim_start();
        } else if let Some(comment) = rest.strip_prefix("/*") {
            rest = comment.split_once("*/").map_or("", |(_, after)| after).trim_start();
        } else {
            return rest;
        }
    }
}

/// Where the first semicolon outside of quotes and comments is, or the end.
fn end_of_statement(text: &str) -> usize {
    let bytes = text.as_bytes();
    let find =
        |from: usize, what: &str| text[from..].find(what).map_or(bytes.len(), |at| from + at + what.len());
    let mut position = 0;
    while position < bytes.len() {
        position = match bytes[position] {
            b';' => return position,
            b'\'' => find(position + 1, "'"),
            b'"' => find(position + 1, "\""),
            b'`' => find(position + 1, "`"),
            b'[' => find(position + 1, "]"),
            b'-' if bytes.get(position + 1) == Some(&b'-') => find(position + 2, "\n"),
            b'/' if bytes.get(position + 1) == Some(&b'*') => find(position + 2, "*/"),
            _ => position + 1,
        };
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::{Cell, QueryError, QueryLimits, query_read_only, single_statement};
    use crate::Metastore;
    use std::time::Duration;

    #[test]
    fn one_statement_and_no_other() {
        let accepted = |text: &str| single_statement(text).is_ok();
        assert!(accepted("select 1"));
        assert!(accepted("  -- why\n /* x */ SELECT ';', \"a;b\", 'it''s;';  -- done\n"));
        assert!(accepted("with x as (select 1) select * from x;"));
        assert!(matches!(single_statement("select 1; select 2"), Err(QueryError::MoreThanOne)));
        assert!(matches!(single_statement("select 1;;"), Err(QueryError::MoreThanOne)));
        assert!(matches!(single_statement(" -- nothing"), Err(QueryError::Empty)));
        assert!(matches!(single_statement(""), Err(QueryError::Empty)));
        for text in ["drop table jobs", "pragma query_only=0", "attach 'x' as y", "(select 1)", "é"] {
            assert!(matches!(single_statement(text), Err(QueryError::NotReadOnly { .. })), "{text}");
        }
    }

    async fn store() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        Metastore::open(dir.path()).await.unwrap().close().await.unwrap();
        dir
    }

    #[tokio::test]
    async fn values_come_back_as_they_are() {
        let dir = store().await;
        let text = "select 1 as a, 2.5 as b, 'x' as c, x'00ff' as d, null as e";
        let table = query_read_only(dir.path(), text, QueryLimits::default()).await.unwrap();
        assert_eq!(table.columns, ["a", "b", "c", "d", "e"]);
        let row = [
            Cell::Integer(1),
            Cell::Real(2.5),
            Cell::Text("x".to_string()),
            Cell::Blob(vec![0, 255]),
            Cell::Null,
        ];
        assert_eq!(table.rows, [row]);
        let empty = query_read_only(dir.path(), "select job, name from jobs", QueryLimits::default()).await;
        assert_eq!(empty.unwrap().columns, ["job", "name"]);
    }

    #[tokio::test]
    async fn writes_are_refused_even_behind_with() {
        let dir = store().await;
        let text = "with x as (select 1) delete from sequences";
        let refused = query_read_only(dir.path(), text, QueryLimits::default()).await;
        assert!(matches!(refused, Err(QueryError::Statement { .. })), "{refused:?}");
        let wrong = query_read_only(dir.path(), "select * from nowhere", QueryLimits::default()).await;
        assert!(matches!(wrong, Err(QueryError::Statement { message }) if message.contains("nowhere")));
    }

    #[tokio::test]
    async fn rows_and_time_are_limited() {
        const ENDLESS: &str = "with recursive n(i) as (select 1 union all select i + 1 from n) ";
        let dir = store().await;
        let limits = QueryLimits { rows_max: 3, time_max: Duration::from_secs(30) };
        let table = query_read_only(dir.path(), &format!("{ENDLESS} select i from n"), limits).await.unwrap();
        assert_eq!((table.rows.len(), table.truncated), (3, true));
        let limits = QueryLimits { rows_max: 3, time_max: Duration::from_millis(50) };
        let slow = query_read_only(dir.path(), &format!("{ENDLESS} select count(*) from n"), limits).await;
        assert!(matches!(slow, Err(QueryError::TooLong { .. })), "{slow:?}");
    }
}
