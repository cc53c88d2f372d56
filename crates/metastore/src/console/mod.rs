//! SQL for people: one statement, read-only, limited in rows and time, without secrets.
//!
//! Three walls stand one behind the other, so that a hole in one is not a way in: the text is one statement of a
//! reading kind that calls no function but those listed; the database is asked as somebody who may only read what
//! people may see; and the answer is cut off in rows and time.

mod postgres;
mod sqlite;
mod statement;
#[cfg(test)]
mod tests;

use crate::open::Place;
use crate::{Metastore, StoreError};
use api::history::Table;
use std::time::Duration;

pub(crate) use postgres::reader_role;
pub use sqlite::query_read_only;

/// What a statement may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryLimits {
    /// Rows beyond this many are left off, and [`Table::truncated`] says so.
    pub rows_max: usize,
    /// PostgreSQL cannot remove old versions of rows while somebody may still see them: keep it short there.
    pub time_max: Duration,
}

impl Default for QueryLimits {
    fn default() -> Self {
        Self { rows_max: 100_000, time_max: Duration::from_secs(30) }
    }
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
    #[error("{what} cannot be used here")]
    NotAllowed { what: String },
    #[error("the statement took longer than {seconds} seconds and was stopped")]
    TooLong { seconds: u64 },
    #[error("{message}")]
    Statement { message: String },
    #[error("a value of column {column} cannot be shown: {reason}")]
    Value { column: String, reason: String },
    #[error(
        "nobody may be asked: the database has no role sailfish_reader, and this user cannot make it ({reason})"
    )]
    NoReader { reason: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Metastore {
    /// Asks one read-only statement, on a connection of its own that cannot write.
    pub async fn query(&self, statement: &str, limits: QueryLimits) -> Result<Table, QueryError> {
        match &self.place {
            Place::Sqlite { state_dir, .. } => query_read_only(state_dir, statement, limits).await,
            Place::Postgres { path, options } => {
                // It is never closed.
                let _turn = self.consoles.acquire().await.ok();
                postgres::query_read_only(path, options, statement, limits).await
            }
        }
    }
}
