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
    /// Preferably the planned node, else one with the input; any other after a wait of its own, unless only these can run
    /// it.
    Planned(InputNodes),
}

/// The nodes that have the input of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InputNodes {
    pub nodes: Vec<NodeId>,
    /// The one of these nodes that is to run the task; None if all their slots are planned for other tasks.
    pub planned: Option<NodeId>,
    /// Nanoseconds for which the task waits for one of these nodes.
    pub wait_ns: u64,
    /// True if no other node can run the task: it waits for one of these nodes as long as it takes.
    pub only_there: bool,
}

impl Placement {
    /// Returns the preferred nodes of a task that may also run elsewhere.
    pub fn near(&self) -> &[NodeId] {
        match self {
            Self::Near(nodes) => nodes,
            Self::Planned(input) => &input.nodes,
            Self::Anywhere | Self::On(_) => &[],
        }
    }

    /// Returns whether only some nodes can run the task, however long it waits.
    pub fn is_bound(&self) -> bool {
        match self {
            Self::On(_) => true,
            Self::Planned(input) => input.only_there,
            Self::Anywhere | Self::Near(_) => false,
        }
    }

    /// Returns whether this node alone can run the task.
    pub fn is_only_on(&self, node: NodeId) -> bool {
        match self {
            Self::On(only) => *only == node,
            Self::Planned(input) => input.only_there && input.nodes == [node],
            Self::Anywhere | Self::Near(_) => false,
        }
    }
}
