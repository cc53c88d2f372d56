//! Requests to data ports of other nodes, and runs and stage files as readers see them, wherever they lie.

pub(crate) mod any_run;
pub(crate) mod append;
pub(crate) mod client;
pub(crate) mod copy;
pub(crate) mod failover;
mod intermediate;
pub(crate) mod scan;
pub(crate) mod stage;
