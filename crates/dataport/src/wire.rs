//! Bytes of messages and streams between nodes, as `docs/protocol-data.md` has them, and what a request shows.

pub(crate) mod data_scope;
pub mod messages;
pub mod scan;
pub mod stage;
pub(crate) mod stage_name;
pub(crate) mod token;

/// The header that names the incarnation of the node that is meant.
pub const INCARNATION_HEADER: &str = "sailfish-incarnation";
/// The header that names the attempt for which runs are scanned, as `STAGE-TASK-ATTEMPT`: should a disk fail, its node can tell who has
/// read all. A scan without it is served all the same.
pub const ATTEMPT_HEADER: &str = "sailfish-attempt";
