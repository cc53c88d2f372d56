//! The commands, each in a file with its options.

pub mod admin;
pub mod bench;
pub mod cluster;
pub mod drill;
pub mod files;
pub mod inspect;
pub mod mount;
pub mod run;
pub mod tera;
pub mod workflow;
