//! Requests to data ports of other nodes; and readers of runs and stage files on any node.

pub(crate) mod any_run;
pub(crate) mod append;
pub(crate) mod client;
pub(crate) mod copy;
pub(crate) mod failover;
mod growing;
mod intermediate;
pub(crate) mod scan;
pub(crate) mod stage;
pub(crate) mod stored;
