//! Decisions about all tasks of a stage at once, by the nodes that have their inputs: which node runs which task
//! ([`place`], [`plan`]), and which node fetches a shared input from which other node ([`fetch_trees`], [`FetchTree`]).
//!
//! A scheduler that offers each asking node a task with a replica there, or else any task, has few local tasks left at
//! the end: the nodes that ask last find only tasks whose replicas lie on busy nodes. A global view avoids that (Yahoo,
//! TeraSort 2009, item 11).

mod augment;
mod choices;
pub(crate) mod far_waits;
mod fetch_tree;
mod greedy;
mod plan;
mod tree;

pub use fetch_tree::FetchTree;
pub use greedy::{InputPlace, NodeRoom, PlacedTask, Proximity, Reach, place};
pub use plan::plan;
pub use tree::{Fetch, NodeOfRack, SERVES_MAX, fetch_trees};
