//! The groups of options that several commands share. The options of one command stand beside it.

pub mod connect;
pub mod keys;
pub mod run;
