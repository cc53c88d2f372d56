//! Membership: the nodes of a cluster, their reports, and their orders.

pub(crate) mod departure;
pub(crate) mod draining;
mod fleet;
mod grace_period;
pub(crate) mod joining;
pub(crate) mod local_slots;
mod node;
pub(crate) mod polling;
mod presence;
mod reports;
mod resource_requests;
mod telemetry;

pub(crate) use departure::lose_node;
pub(crate) use draining::{begin_drain, drained_before, end_drains};
pub(crate) use fleet::Fleet;
pub(crate) use grace_period::{give_up_away, miss};
pub use joining::Joining;
pub(crate) use node::{Away, Drain, Node, NodeProcess};
pub use presence::{LEASE, Presence};
pub(crate) use reports::{let_nodes_rest, output_so_far, write_telemetry};
pub(crate) use resource_requests::{check_fits, needs_of, node_came, waits_for};
pub(crate) use telemetry::{OutputTail, Telemetry, hear};
