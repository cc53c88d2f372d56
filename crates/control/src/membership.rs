//! Which nodes there are.

mod presence;

pub use presence::{LEASE, Presence};
