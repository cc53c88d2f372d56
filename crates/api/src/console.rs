//! Messages between a server and the process that asks its database a question of the console.

use crate::data_access::SecretText;
use crate::history::Table;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Most bytes of the rows of an answer; those beyond are left off.
pub const ANSWER_BYTES_MAX: usize = 16 << 20;

/// A question to a database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsoleQuestion {
    pub database: ConsoleDatabase,
    /// One statement.
    pub statement: String,
    /// Rows beyond this many are left off.
    pub rows_max: usize,
    pub time_max_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ConsoleDatabase {
    Sqlite {
        state_dir: PathBuf,
    },
    /// Its address, with a password where it has one.
    Postgres {
        url: SecretText,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ConsoleAnswer {
    Table(Table),
    /// The statement is refused, or cannot be answered.
    Refused {
        message: String,
    },
    /// The database cannot be asked.
    Failed {
        message: String,
    },
}
