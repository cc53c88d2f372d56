//! Bytes of messages and streams between nodes, as in `docs/protocol-data.md`, and the headers of requests.

pub(crate) mod data_scope;
pub mod growing;
pub mod messages;
pub mod scan;
pub mod stage;
pub(crate) mod stage_name;
pub mod stored;
pub(crate) mod token;

/// The header with the incarnation of the addressed node.
pub const INCARNATION_HEADER: &str = "sailfish-incarnation";
/// The header with the attempt for which runs are scanned, as `STAGE-TASK-ATTEMPT`: if a disk fails, its node can
/// report which attempts have read everything. A scan without it is served too.
pub const ATTEMPT_HEADER: &str = "sailfish-attempt";
