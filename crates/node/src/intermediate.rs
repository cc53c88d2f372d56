//! Intermediate files of users on this node.

pub(crate) mod file_keeper;
pub(crate) mod intermediate_files;
