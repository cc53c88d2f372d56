//! The two databases behind one interface: values, rows, statements for one row and for many.
//!
//! Statements are written once, in SQL that both understand, with `$1` for parameters. A statement over many rows names
//! them `v.column1`, `v.column2`, ...: SQLite gets them as `VALUES`, PostgreSQL as one array per column, so that its
//! text, and its prepared plan, is the same for any number of rows.

pub(crate) mod sqlite;

use crate::convert::stored;
use sqlite::SqliteRow;
use sqlx::postgres::{PgArguments, PgConnection, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Connection as _, Postgres, Row as _};
use std::fmt::Write;

/// Maximum number of rows in one statement for PostgreSQL: bounds the memory of a message.
const POSTGRES_ROWS_MAX: usize = 8192;

/// Maximum number of prepared statements of a connection: all our statements, in every number of rows that SQLite gets.
pub(crate) const STATEMENTS_MAX: usize = 512;

/// An open connection.
pub(crate) enum Connection {
    Sqlite(rusqlite::Connection),
    Postgres(PgConnection),
}

/// A connection, or a transaction on it, for some statements.
pub(crate) enum Session<'a> {
    Sqlite(&'a mut rusqlite::Connection),
    Postgres(&'a mut PgConnection),
}

/// A value of a column; absent for NULL.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Integer(Option<i64>),
    Text(Option<String>),
    Bytes(Option<Vec<u8>>),
}

/// A row of an answer.
pub(crate) enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

/// A type that a column of either database can be read as.
pub(crate) trait Readable<'r>:
    rusqlite::types::FromSql + sqlx::Decode<'r, Postgres> + sqlx::Type<Postgres>
{
}

impl<'r, T> Readable<'r> for T where
    T: rusqlite::types::FromSql + sqlx::Decode<'r, Postgres> + sqlx::Type<Postgres>
{
}

impl Row {
    pub fn get<'r, T: Readable<'r>>(&'r self, column: &str) -> Result<T, sqlx::Error> {
        match self {
            Self::Sqlite(row) => row.get(column),
            Self::Postgres(row) => row.try_get(column),
        }
    }
}

macro_rules! value_from {
    ($variant:ident, $($kind:ty => |$value:ident| $made:expr),* $(,)?) => {
        $(
            impl From<$kind> for Value {
                fn from($value: $kind) -> Self {
                    Self::$variant(Some($made))
                }
            }

            impl From<Option<$kind>> for Value {
                fn from(value: Option<$kind>) -> Self {
                    Self::$variant(value.map(|$value| $made))
                }
            }
        )*
    };
}

value_from!(Integer,
    i64 => |value| value,
    u64 => |value| stored(value),
    u32 => |value| i64::from(value),
    u16 => |value| i64::from(value),
    i32 => |value| i64::from(value),
    bool => |value| i64::from(value),
);
value_from!(Text, String => |value| value, &str => |value| value.to_string());
value_from!(Bytes, Vec<u8> => |value| value, &[u8] => |value| value.to_vec());

/// Rows for one statement, all of the same width. The first value of each is not NULL.
#[derive(Default)]
pub(crate) struct Rows {
    width: usize,
    values: Vec<Value>,
}

impl Rows {
    pub fn push<const N: usize>(&mut self, row: [Value; N]) {
        assert!(self.width == 0 || self.width == N, "rows of one statement have one width");
        self.width = N;
        self.values.extend(row);
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns the number of values in a row, and all values.
    pub fn into_parts(self) -> (usize, Vec<Value>) {
        (self.width, self.values)
    }
}

impl<const N: usize> FromIterator<[Value; N]> for Rows {
    fn from_iter<I: IntoIterator<Item = [Value; N]>>(rows: I) -> Self {
        let mut all = Self::default();
        rows.into_iter().for_each(|row| all.push(row));
        all
    }
}

impl Connection {
    pub fn session(&mut self) -> Session<'_> {
        match self {
            Self::Sqlite(connection) => Session::Sqlite(connection),
            Self::Postgres(connection) => Session::Postgres(connection),
        }
    }

    /// Reads rows, on another thread if a read would block this one. Returns the connection too if it is still usable.
    pub async fn read(
        mut self,
        statement: &'static str,
        values: Vec<Value>,
    ) -> (Option<Self>, Result<Vec<Row>, sqlx::Error>) {
        match self {
            Self::Sqlite(connection) => {
                let reading = tokio::task::spawn_blocking(move || {
                    let done = sqlite::fetch(&connection, statement, values);
                    (connection, done.map(|rows| rows.into_iter().map(Row::Sqlite).collect()))
                });
                match reading.await {
                    Ok((connection, done)) => (Some(Self::Sqlite(connection)), done),
                    Err(_) => (None, Err(sqlx::Error::WorkerCrashed)),
                }
            }
            Self::Postgres(_) => {
                let done = self.session().fetch(statement, values).await;
                (Some(self), done)
            }
        }
    }

    pub async fn close(self) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(connection) => sqlite::close(connection),
            Self::Postgres(connection) => connection.close().await,
        }
    }

    /// Checks that the database still answers.
    pub async fn ping(&mut self) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(connection) => sqlite::fetch(connection, "SELECT 1", []).map(|_| ()),
            Self::Postgres(connection) => connection.ping().await,
        }
    }
}

impl Session<'_> {
    /// Runs a statement. Returns the number of changed rows.
    pub async fn execute(
        &mut self,
        statement: &'static str,
        values: impl IntoIterator<Item = Value>,
    ) -> Result<u64, sqlx::Error> {
        match self {
            Self::Sqlite(db) => sqlite::execute(db, statement, values),
            Self::Postgres(db) => {
                let query = values.into_iter().fold(sqlx::query(statement), bind_postgres);
                Ok(query.execute(&mut **db).await?.rows_affected())
            }
        }
    }

    /// Runs a statement that returns rows.
    pub async fn fetch(
        &mut self,
        statement: &'static str,
        values: impl IntoIterator<Item = Value>,
    ) -> Result<Vec<Row>, sqlx::Error> {
        match self {
            Self::Sqlite(db) => {
                Ok(sqlite::fetch(db, statement, values)?.into_iter().map(Row::Sqlite).collect())
            }
            Self::Postgres(db) => {
                let query = values.into_iter().fold(sqlx::query(statement), bind_postgres);
                Ok(query.fetch_all(&mut **db).await?.into_iter().map(Row::Postgres).collect())
            }
        }
    }

    /// Inserts rows. `after` is the rest of the statement, such as `ON CONFLICT ...`, or empty.
    pub async fn insert(
        &mut self,
        table: &'static str,
        columns: &'static str,
        after: &'static str,
        rows: Rows,
    ) -> Result<(), sqlx::Error> {
        let text = match self {
            Self::Sqlite(_) => |source: &str, table: &str, columns: &str, after: &str| {
                format!("INSERT INTO {table} ({columns}) {source} {after}")
            },
            Self::Postgres(_) => |source: &str, table: &str, columns: &str, after: &str| {
                format!("INSERT INTO {table} ({columns}) SELECT * FROM {source} {after}")
            },
        };
        self.bulk(rows, |source| text(source, table, columns, after)).await
    }

    /// Updates many rows at once: `head` is `UPDATE ... SET ...`, `tail` is `WHERE ...`, both over `v.column1` and so
    /// on.
    pub async fn update(
        &mut self,
        head: &'static str,
        tail: &'static str,
        rows: Rows,
    ) -> Result<(), sqlx::Error> {
        let sqlite = matches!(self, Self::Sqlite(_));
        let text = |source: &str| match sqlite {
            true => format!("{head} FROM ({source}) AS v {tail}"),
            false => format!("{head} FROM {source} {tail}"),
        };
        self.bulk(rows, text).await
    }

    /// Runs a statement over many rows at once: `head` ends where a table can stand, such as `DELETE FROM t WHERE a IN
    /// (SELECT v.column1 FROM`, and `tail` follows it; the rows are `v.column1` and so on.
    pub async fn over(
        &mut self,
        head: &'static str,
        tail: &'static str,
        rows: Rows,
    ) -> Result<(), sqlx::Error> {
        let sqlite = matches!(self, Self::Sqlite(_));
        let text = |source: &str| match sqlite {
            true => format!("{head} ({source}) AS v {tail}"),
            false => format!("{head} {source} {tail}"),
        };
        self.bulk(rows, text).await
    }

    /// Deletes the rows of some jobs; each given row has the number of a job.
    pub async fn delete_of_jobs(&mut self, table: &'static str, jobs: Rows) -> Result<(), sqlx::Error> {
        let sqlite = matches!(self, Self::Sqlite(_));
        let text = |source: &str| match sqlite {
            true => format!("DELETE FROM {table} WHERE job IN ({source})"),
            false => format!("DELETE FROM {table} USING {source} WHERE {table}.job = v.column1"),
        };
        self.bulk(jobs, text).await
    }

    async fn bulk(&mut self, rows: Rows, text: impl Fn(&str) -> String) -> Result<(), sqlx::Error> {
        if rows.is_empty() {
            return Ok(());
        }
        match self {
            Self::Sqlite(db) => sqlite::bulk(db, rows, text),
            Self::Postgres(db) => bulk_postgres(db, rows, text).await,
        }
    }
}

async fn bulk_postgres(
    db: &mut PgConnection,
    rows: Rows,
    text: impl Fn(&str) -> String,
) -> Result<(), sqlx::Error> {
    let width = rows.width;
    let mut arrays = String::new();
    let mut names = String::new();
    for (index, value) in rows.values[..width].iter().enumerate() {
        let kind = match value {
            Value::Integer(_) => "bigint",
            Value::Text(_) => "text",
            Value::Bytes(_) => "bytea",
        };
        let comma = if index == 0 { "" } else { ", " };
        let number = index + 1;
        let _ = write!(arrays, "{comma}${number}::{kind}[]");
        let _ = write!(names, "{comma}column{number}");
    }
    let statement = text(&format!("unnest({arrays}) AS v({names})"));
    for part in rows.values.chunks(POSTGRES_ROWS_MAX * width) {
        let mut query = sqlx::query(AssertSqlSafe(statement.clone()));
        for column in 0..width {
            query = bind_column(query, part[column..].iter().step_by(width));
        }
        query.execute(&mut *db).await?;
    }
    Ok(())
}

type PostgresQuery<'q> = Query<'q, Postgres, PgArguments>;

fn bind_column<'q, 'v>(
    query: PostgresQuery<'q>,
    values: impl Iterator<Item = &'v Value> + Clone,
) -> PostgresQuery<'q> {
    match values.clone().next() {
        Some(Value::Integer(_)) => query.bind(values.map(integer).collect::<Vec<Option<i64>>>()),
        Some(Value::Text(_)) => query.bind(values.map(text).collect::<Vec<Option<String>>>()),
        Some(Value::Bytes(_)) => query.bind(values.map(bytes).collect::<Vec<Option<Vec<u8>>>>()),
        None => unreachable!("a statement over rows has rows"),
    }
}

fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Integer(value) => *value,
        other => unreachable!("{other:?} stands in a column of integers"),
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::Text(value) => value.as_deref().map(without_nul),
        other => unreachable!("{other:?} stands in a column of text"),
    }
}

fn bytes(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::Bytes(value) => value.clone(),
        other => unreachable!("{other:?} stands in a column of bytes"),
    }
}

/// Replaces NUL, which PostgreSQL cannot store and programs may write.
fn without_nul(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

fn bind_postgres(query: PostgresQuery<'_>, value: Value) -> PostgresQuery<'_> {
    match value {
        Value::Integer(value) => query.bind(value),
        Value::Text(value) => query.bind(value.as_deref().map(without_nul)),
        Value::Bytes(value) => query.bind(value),
    }
}
