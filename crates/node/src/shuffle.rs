//! Data between attempts: runs on this and other nodes, spools, stage files, and their replicas.

pub(crate) mod local;
pub(crate) mod merge_gate;
pub(crate) mod remote;
pub(crate) mod replicate;
pub(crate) mod serve;
pub(crate) mod spool;
pub(crate) mod stage_files;
