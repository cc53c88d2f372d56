//! The link of a node to its server: what goes up, what comes down, and who acts on it.

pub(crate) mod data_access;
pub(crate) mod drill;
mod machine;
pub(crate) mod messages;
pub(crate) mod node_link;
mod order_prefetch;
mod pause;
mod pending_report;
mod poller;
pub(crate) mod remote;
pub(crate) mod sampler;
mod told_keys;
mod unanswered;
