//! Messages between the task that polls and the threads of the node.

use api::Task;
use api::control::{AttemptEnd, NodeOrder};
use api::machine::NodeReport;
use ids::AttemptKey;

/// An attempt to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    pub attempt: AttemptKey,
    pub task: Task,
}

/// A message of the server besides attempts and keys.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    Order(NodeOrder),
    /// The server does not know this node any more: everything goes, and no slot gets anything again.
    Expelled,
}

/// From slots to the task that polls.
pub(crate) enum Up {
    Free {
        slot: u32,
        finished: Option<Box<AttemptEnd>>,
    },
    Report(Box<NodeReport>),
    /// No slot asks any more.
    Close,
}
