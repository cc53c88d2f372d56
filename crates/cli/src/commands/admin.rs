//! Commands for those who run a cluster, and for files that they keep there.

pub mod gc;
pub mod intermediate_files;
pub mod tokens;
