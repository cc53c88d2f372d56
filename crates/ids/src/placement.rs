use crate::NodeId;

/// Nodes on which a task may run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    #[default]
    Anywhere,
    /// Only this node has the data of the task.
    On(NodeId),
    /// Preferably one of these nodes; any other after the locality delay of the scheduler.
    Near(Vec<NodeId>),
}
