//! # What it does
//! Typed identifiers, nothing else: mixing a chunk with a run does not compile.
//!
//! # Where it sits
//! Below every other crate.
//!
//! # Invariants
//! Ids are plain numbers and `Copy`; their order is their numeric order.
//!
//! # Deliberately absent
//! No allocation of ids (their owners count), no parsing of user text, no domain logic.
//!
//! # How it is tested
//! By a unit test, and by the doc test below, which must not compile:
//!
//! ```compile_fail
//! fn wants_a_chunk(_: ids::ChunkId) {}
//! wants_a_chunk(ids::RunId(1));
//! ```

mod placement;
mod stage;
mod words;

pub use placement::{InputNodes, Placement};
pub use stage::StageKind;

use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(
    /// A submitted job, unique within one store; counts from 1. Shown to users as a bare number.
    JobId(i64), ""
);
id!(
    /// The position of a stage within its job; counts from 0.
    StageIndex(u16), "stage-"
);
id!(
    /// The position of a task within its stage; counts from 0. For map tasks it is also the input order.
    TaskIndex(u32), "task-"
);
id!(
    /// One try of a task; counts from 0 within the task.
    AttemptNumber(u32), "attempt-"
);
id!(
    /// A step of a job, a job of its own; numbered by the kind of the job, unique within it.
    StepNumber(u32), "step-"
);
id!(
    /// The position of an I-file within its job; counts from 0.
    IfileIndex(u32), "ifile-"
);
id!(
    /// A chunk, unique within its job: the number of its node above [`NUMBER_BITS`], and below it a number that counts
    /// from 0 within the node.
    ChunkId(u64), "chunk-"
);
id!(
    /// A sorted run, unique within its job; numbered like chunks.
    RunId(u64), "run-"
);
id!(
    /// A directory given with `--disk`, by its position; counts from 0.
    DiskIndex(u16), "disk-"
);
id!(
    /// A node that runs tasks; the embedded node is 0.
    NodeId(u32), "node-"
);
id!(
    /// An intermediate file of a user, unique within one store; counts from 1, and numbers are never reused. Shown as a
    /// bare number.
    IntermediateId(i64), ""
);
id!(
    /// A change of the tree of files, unique within one store; counts from 1. A name with a version means the tree as it
    /// was after that change. Shown as a bare number.
    FileVersion(i64), ""
);
id!(
    /// A put of files, or another change that makes files or directories; counts from 1, and numbers are never reused.
    PutId(i64), "put-"
);
id!(
    /// A directory of the tree of files, unique within one store; the root is 0.
    DirectoryId(i64), "directory-"
);
id!(
    /// The bytes of a version of a logical file; copies of the file share it.
    ContentId(i64), "content-"
);
id!(
    /// A file on a disk that is a part of a logical file (Clustera, section 3.4).
    ConcreteId(i64), "concrete-"
);
id!(
    /// A disk of a node with concrete files, unique within one store; it keeps its number when its node joins again.
    DiskId(i64), "file-disk-"
);
id!(
    /// A version of the reduce plan; the first is 1.
    PlanVersion(u32), "plan-"
);
id!(
    /// A version of the range boundaries; the first is 1.
    BoundariesVersion(u32), "boundaries-"
);

/// Bits of a [`ChunkId`] or [`RunId`] that number chunks or runs within a node.
pub const NUMBER_BITS: u32 = 40;
/// Upper bound of node numbers, so that an id fits the signed numbers of a store.
pub const NODES_MAX: u32 = 1 << (63 - NUMBER_BITS);

macro_rules! lies_on_a_node {
    ($name:ident) => {
        impl $name {
            /// Makes the id of `number` on a node. Panics if either is out of range, which counting never reaches.
            pub fn on(node: NodeId, number: u64) -> Self {
                assert!(node.0 < NODES_MAX && number < 1 << NUMBER_BITS, "{node} numbers {number}");
                Self(u64::from(node.0) << NUMBER_BITS | number)
            }

            /// Returns the node that assigned the number.
            pub fn node(self) -> NodeId {
                NodeId((self.0 >> NUMBER_BITS) as u32)
            }

            /// Returns the number within the node.
            pub fn number(self) -> u64 {
                self.0 & ((1 << NUMBER_BITS) - 1)
            }
        }
    };
}

/// Bits of a [`DirectoryId`], [`ContentId`] or [`ConcreteId`] that number items within a put.
pub const ITEM_BITS: u32 = 24;
/// Maximum number of directories and concrete files of one put.
pub const ITEMS_MAX: u32 = 1 << ITEM_BITS;
/// Upper bound of the numbers of puts, so that an id of an item fits the signed numbers of a store.
const PUTS_MAX: i64 = 1 << (63 - ITEM_BITS);

macro_rules! made_by_a_put {
    ($name:ident) => {
        impl $name {
            /// Makes the id of item `number` of a put; None if either is out of range.
            pub fn of(put: PutId, number: u32) -> Option<Self> {
                let fits = (0..PUTS_MAX).contains(&put.0) && number < ITEMS_MAX;
                fits.then(|| Self(put.0 << ITEM_BITS | i64::from(number)))
            }

            /// Returns the put that made it.
            pub fn put(self) -> PutId {
                PutId(self.0 >> ITEM_BITS)
            }

            /// Returns its number within the put.
            pub fn number(self) -> u32 {
                (self.0 & i64::from(ITEMS_MAX - 1)) as u32
            }
        }
    };
}

made_by_a_put!(DirectoryId);
made_by_a_put!(ContentId);
made_by_a_put!(ConcreteId);

lies_on_a_node!(ChunkId);
lies_on_a_node!(RunId);

/// A task within a store: (job, stage, task).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
pub struct TaskKey {
    pub job: JobId,
    pub stage: StageIndex,
    pub task: TaskIndex,
}

/// One try of a task within a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
pub struct AttemptKey {
    pub task: TaskKey,
    pub attempt: AttemptNumber,
}

/// Source of a record of an I-file: (map task, attempt). Records of one key are ordered by it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
pub struct Source {
    pub map_task: TaskIndex,
    pub attempt: AttemptNumber,
}

impl fmt::Display for TaskKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {} {} {}", self.job, self.stage, self.task)
    }
}

impl fmt::Display for AttemptKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.task, self.attempt)
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "map {} attempt {}", self.map_task.0, self.attempt.0)
    }
}

#[cfg(test)]
mod tests {
    use super::{ChunkId, NODES_MAX, NUMBER_BITS, NodeId, RunId};

    #[test]
    fn chunks_and_runs_name_their_node() {
        assert_eq!(ChunkId::on(NodeId(0), 7), ChunkId(7));
        let last = (1 << NUMBER_BITS) - 1;
        let far = RunId::on(NodeId(NODES_MAX - 1), last);
        assert_eq!((far.node(), far.number()), (NodeId(NODES_MAX - 1), last));
        assert!(i64::try_from(far.0).is_ok());
        assert!(ChunkId::on(NodeId(1), 0) > ChunkId::on(NodeId(0), last));
    }
}
