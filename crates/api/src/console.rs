//! Messages between a server and the process that runs SQL statements of the console on its database.

use crate::data_access::SecretText;
use crate::history::Table;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Maximum bytes of the rows of an answer; further rows are left off.
pub const ANSWER_BYTES_MAX: usize = 16 << 20;

/// A statement for a database.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsoleQuestion {
    pub database: ConsoleDatabase,
    /// A single statement.
    pub statement: String,
    /// Maximum number of rows; further rows are left off.
    pub rows_max: usize,
    pub time_max_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ConsoleDatabase {
    Sqlite {
        state_dir: PathBuf,
    },
    /// Its address, including the password if it has one.
    Postgres {
        url: SecretText,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ConsoleAnswer {
    Table(Table),
    /// The statement is refused, or fails.
    Refused {
        message: String,
    },
    /// The database cannot be reached.
    Failed {
        message: String,
    },
}
