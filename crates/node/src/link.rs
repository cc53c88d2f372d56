//! The link of a node to its server: its messages, and the threads that act on them.

pub(crate) mod data_access;
pub(crate) mod drill;
mod growing_stream;
mod machine;
pub(crate) mod messages;
mod newest_keys;
pub(crate) mod node_link;
mod order_prefetch;
mod pause;
mod pending_report;
mod poller;
pub(crate) mod remote;
pub(crate) mod sampler;
mod seen;
mod unanswered;
