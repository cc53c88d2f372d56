//! Messages between the polling task and the threads of the node.

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

/// A message of the server other than attempts and keys.
#[derive(Clone, Debug, PartialEq)]
pub enum ServerMessage {
    Order(NodeOrder),
    /// The server does not know this node any more: everything is removed, and no slot gets work again.
    Expelled,
}

/// Messages from slots to the polling task.
pub(crate) enum Up {
    Free {
        slot: u32,
        finished: Option<Box<AttemptEnd>>,
    },
    Report(Box<NodeReport>),
    /// No slot asks any more.
    Close,
}
