//! Commands for operators of a cluster, and for their files in it.

pub mod gc;
pub mod groups;
pub mod intermediate_files;
pub mod tokens;
