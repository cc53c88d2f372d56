//! Intermediate files of users that lie on this node.

pub(crate) mod file_keeper;
pub(crate) mod user_files;
