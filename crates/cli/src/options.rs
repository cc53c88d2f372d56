//! The groups of options that several commands share. Options of a single command are in its file.

pub mod connect;
pub mod keys;
pub mod run;
