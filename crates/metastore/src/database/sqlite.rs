//! SQLite in the calling thread. The server's loop waits for its transaction anyway, and passing each statement to a
//! thread of the driver costs more than most statements.

use crate::StoreError;
use crate::database::{Rows, STATEMENTS_MAX, Value};
use crate::error::BUSY_SECONDS_MAX;
use rusqlite::types::{FromSql, ToSqlOutput, Value as Stored, ValueRef};
use rusqlite::{Connection, Statement, ToSql};
use sqlx::error::{DatabaseError, ErrorKind};
use std::borrow::Cow;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of rows in one statement. Fewer rows are padded to a power of two, so that few statements are
/// prepared.
const ROWS_MAX: usize = 128;
/// Pages of 4 KiB: the log is checkpointed every 32 MiB, and the cache holds 16 MiB.
const SETTINGS: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; \
     PRAGMA wal_autocheckpoint = 8000; PRAGMA cache_size = -16384;";

/// Opens a migrated database.
pub(crate) fn connect(path: &Path) -> Result<Connection, StoreError> {
    let opened = Connection::open(path).and_then(|connection| {
        connection.busy_timeout(Duration::from_secs(BUSY_SECONDS_MAX))?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        connection.execute_batch(SETTINGS)?;
        Ok(connection)
    });
    opened.map_err(|error| StoreError::from_driver(path, driver_error(error)))
}

pub(crate) fn close(connection: Connection) -> Result<(), sqlx::Error> {
    connection.close().map_err(|(_, error)| driver_error(error))
}

/// A row of an answer.
pub(crate) struct SqliteRow {
    columns: Arc<[String]>,
    values: Vec<Stored>,
}

impl SqliteRow {
    pub fn get<T: FromSql>(&self, column: &str) -> Result<T, sqlx::Error> {
        let index = self.columns.iter().position(|name| name == column);
        let index = index.ok_or_else(|| sqlx::Error::ColumnNotFound(column.to_string()))?;
        let read = T::column_result(ValueRef::from(&self.values[index]));
        read.map_err(|source| sqlx::Error::ColumnDecode {
            index: column.to_string(),
            source: Box::new(source),
        })
    }
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Integer(value) => ToSqlOutput::Owned(value.map_or(Stored::Null, Stored::Integer)),
            Self::Text(Some(value)) => ToSqlOutput::Borrowed(ValueRef::Text(value.as_bytes())),
            Self::Bytes(Some(value)) => ToSqlOutput::Borrowed(ValueRef::Blob(value)),
            Self::Text(None) | Self::Bytes(None) => ToSqlOutput::Owned(Stored::Null),
        })
    }
}

/// Runs a statement. Returns the number of changed rows.
pub(crate) fn execute(
    db: &Connection,
    statement: &str,
    values: impl IntoIterator<Item = Value>,
) -> Result<u64, sqlx::Error> {
    let changed = db.prepare_cached(statement).and_then(|mut statement| {
        bind(&mut statement, values)?;
        statement.raw_execute()
    });
    changed.map(|count| count as u64).map_err(driver_error)
}

/// Runs a statement that returns rows.
pub(crate) fn fetch(
    db: &Connection,
    statement: &str,
    values: impl IntoIterator<Item = Value>,
) -> Result<Vec<SqliteRow>, sqlx::Error> {
    let fetched = db.prepare_cached(statement).and_then(|mut statement| {
        let columns: Arc<[String]> = statement.column_names().into_iter().map(str::to_string).collect();
        bind(&mut statement, values)?;
        let (mut rows, mut all) = (statement.raw_query(), Vec::new());
        while let Some(row) = rows.next()? {
            let values = (0..columns.len()).map(|index| row.get(index)).collect::<Result<_, _>>()?;
            all.push(SqliteRow { columns: Arc::clone(&columns), values });
        }
        Ok(all)
    });
    fetched.map_err(driver_error)
}

/// Binds values to `$1` and so on, which SQLite numbers by first use, or to `?` in their order.
fn bind(statement: &mut Statement<'_>, values: impl IntoIterator<Item = Value>) -> rusqlite::Result<()> {
    let is_named = statement.parameter_name(1).is_some();
    for (index, value) in values.into_iter().enumerate() {
        let place = match is_named {
            true => statement.parameter_index(&format!("${}", index + 1))?,
            false => Some(index + 1),
        };
        // A value that the statement does not use has no position.
        if let Some(place) = place {
            statement.raw_bind_parameter(place, value)?;
        }
    }
    Ok(())
}

/// Runs a statement over rows; `text` makes it from the text of the rows.
pub(crate) fn bulk(db: &Connection, rows: Rows, text: impl Fn(&str) -> String) -> Result<(), sqlx::Error> {
    let (width, values) = rows.into_parts();
    let mut left = values.len() / width;
    let mut values = values.into_iter();
    while left > 0 {
        let count = left.min(ROWS_MAX);
        // Padding rows are NULL and filtered out.
        let places = count.next_power_of_two();
        let one = format!("({})", vec!["?"; width].join(","));
        let all = vec![one.as_str(); places].join(",");
        let statement = text(&format!("SELECT * FROM (VALUES {all}) WHERE column1 IS NOT NULL"));
        let filling = std::iter::repeat_n(Value::Integer(None), (places - count) * width);
        execute(db, &statement, values.by_ref().take(count * width).chain(filling))?;
        left -= count;
    }
    Ok(())
}

/// Runs `BEGIN IMMEDIATE`, `COMMIT` or `ROLLBACK`.
pub(crate) fn control(db: &Connection, statement: &str) -> Result<(), sqlx::Error> {
    execute(db, statement, []).map(|_| ())
}

/// An error of SQLite in the form of the other driver, so that errors are classified in one place.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct SqliteFailure {
    code: i32,
    message: String,
}

impl DatabaseError for SqliteFailure {
    fn message(&self) -> &str {
        &self.message
    }

    fn code(&self) -> Option<Cow<'_, str>> {
        Some(self.code.to_string().into())
    }

    fn as_error(&self) -> &(dyn Error + Send + Sync + 'static) {
        self
    }

    fn as_error_mut(&mut self) -> &mut (dyn Error + Send + Sync + 'static) {
        self
    }

    fn into_error(self: Box<Self>) -> Box<dyn Error + Send + Sync + 'static> {
        self
    }

    fn kind(&self) -> ErrorKind {
        ErrorKind::Other
    }
}

fn driver_error(error: rusqlite::Error) -> sqlx::Error {
    match error {
        rusqlite::Error::SqliteFailure(failure, message) => {
            let message = message.unwrap_or_else(|| failure.to_string());
            sqlx::Error::Database(Box::new(SqliteFailure { code: failure.extended_code, message }))
        }
        other => sqlx::Error::Decode(Box::new(other)),
    }
}
