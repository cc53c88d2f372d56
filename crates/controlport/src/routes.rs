//! The routes: each reads a message, asks the server, and answers.

mod console;
pub(crate) mod drills;
pub(crate) mod files;
pub(crate) mod groups;
pub(crate) mod history;
pub(crate) mod intermediates;
pub(crate) mod jobs;
pub(crate) mod nodes;
mod of_others;
pub(crate) mod seen;
pub(crate) mod status;
pub(crate) mod stored_files;
pub(crate) mod tokens;
pub(crate) mod usage;

pub(crate) use console::Console;
pub use console::ConsoleProgram;
pub(crate) use files::Passages;
pub(crate) use stored_files::StoredFiles;
