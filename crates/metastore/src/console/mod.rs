//! SQL for users: one statement, read-only, limited in rows and time, without secrets.
//!
//! There are three barriers, so that a hole in one is no way in: the text is one reading statement that calls only
//! listed functions; the database session has the rights of a user who may only read public data; and the answer is
//! limited in rows and time.

mod postgres;
mod sqlite;
mod statement;
#[cfg(test)]
mod tests;

use crate::open::{Place, postgres_options};
use crate::{Metastore, StoreError};
use api::console::{ANSWER_BYTES_MAX, ConsoleDatabase, ConsoleQuestion};
use api::history::{Cell, Table};
use std::time::Duration;

pub use sqlite::query_read_only;

/// Limits on the cost of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryLimits {
    /// Maximum number of rows; further rows are left off, and [`Table::truncated`] says so.
    pub rows_max: usize,
    /// Longest time. PostgreSQL cannot remove old versions of rows while a statement may still see them: keep it short
    /// there.
    pub time_max: Duration,
    /// Maximum bytes of the answer; further rows are left off.
    pub bytes_max: usize,
}

impl Default for QueryLimits {
    fn default() -> Self {
        Self { rows_max: 100_000, time_max: Duration::from_secs(30), bytes_max: ANSWER_BYTES_MAX }
    }
}

/// The reason why a statement has no answer.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    #[error("there is no statement")]
    Empty,
    #[error("only one statement at a time: there is text after the first semicolon")]
    MoreThanOne,
    #[error("only select, with, values and explain are allowed here, not {keyword}")]
    NotReadOnly { keyword: String },
    #[error("{what} cannot be used here")]
    NotAllowed { what: String },
    #[error("the statement took longer than {seconds} seconds and was stopped")]
    TooLong { seconds: u64 },
    #[error("{message}")]
    Statement { message: String },
    #[error("a value of column {column} cannot be shown: {reason}")]
    Value { column: String, reason: String },
    #[error("the first row of the answer has more than {bytes_max} bytes: ask for less of it")]
    LargeRow { bytes_max: usize },
    #[error(
        "the console is disabled: the database has no role sailfish_reader, and this user cannot create it ({reason})"
    )]
    NoReader { reason: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The rows of an answer, within its limits.
struct Answer {
    table: Table,
    limits: QueryLimits,
    bytes: usize,
}

impl Answer {
    fn new(columns: Vec<String>, limits: QueryLimits) -> Self {
        Self { table: Table { columns, rows: Vec::new(), truncated: false }, limits, bytes: 0 }
    }

    /// Returns whether the next row fits.
    fn has_room(&mut self) -> bool {
        self.table.truncated |= self.table.rows.len() == self.limits.rows_max;
        !self.table.truncated
    }

    fn push(&mut self, row: Vec<Cell>) -> Result<(), QueryError> {
        self.bytes += written_bytes(&row);
        let bytes_max = self.limits.bytes_max;
        match self.bytes > bytes_max {
            true if self.table.rows.is_empty() => return Err(QueryError::LargeRow { bytes_max }),
            true => self.table.truncated = true,
            false => self.table.rows.push(row),
        }
        Ok(())
    }
}

/// Returns the bytes of a row in JSON. A row that cannot be written counts 0 here and fails the answer later.
fn written_bytes(row: &[Cell]) -> usize {
    serde_json::to_vec(row).map_or(0, |written| written.len() + 1)
}

/// Runs a statement for another process, in this one.
pub async fn answer_question(question: &ConsoleQuestion) -> Result<Table, QueryError> {
    let time_max = Duration::from_millis(question.time_max_ms);
    let limits = QueryLimits { rows_max: question.rows_max, time_max, ..QueryLimits::default() };
    match &question.database {
        ConsoleDatabase::Sqlite { state_dir } => {
            query_read_only(state_dir, &question.statement, limits).await
        }
        ConsoleDatabase::Postgres { url } => {
            let (path, options) = postgres_options(&url.0)?;
            postgres::query_read_only(&path, &options, &question.statement, limits).await
        }
    }
}

impl Metastore {
    /// Returns the database address for another process.
    pub fn console_database(&self) -> ConsoleDatabase {
        match &self.place {
            Place::Sqlite { state_dir, .. } => ConsoleDatabase::Sqlite { state_dir: state_dir.clone() },
            Place::Postgres { url, .. } => ConsoleDatabase::Postgres { url: url.clone() },
        }
    }

    /// Runs a read-only statement on a separate connection that cannot write.
    pub async fn query(&self, statement: &str, limits: QueryLimits) -> Result<Table, QueryError> {
        match &self.place {
            Place::Sqlite { state_dir, .. } => query_read_only(state_dir, statement, limits).await,
            Place::Postgres { path, options, .. } => {
                postgres::query_read_only(path, options, statement, limits).await
            }
        }
    }
}
