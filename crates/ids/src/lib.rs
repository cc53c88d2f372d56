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
//! By the doc test below, which must not compile:
//!
//! ```compile_fail
//! fn wants_a_chunk(_: ids::ChunkId) {}
//! wants_a_chunk(ids::RunId(1));
//! ```

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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
    /// The position of an I-file within its job; counts from 0.
    IfileIndex(u32), "ifile-"
);
id!(
    /// A chunk, unique within its job; counts from 0.
    ChunkId(u64), "chunk-"
);
id!(
    /// A sorted run, unique within its job; counts from 0.
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
    /// A version of the reduce plan; the first is 1.
    PlanVersion(u32), "plan-"
);
id!(
    /// A version of the range boundaries; the first is 1.
    BoundariesVersion(u32), "boundaries-"
);

/// A task within a store: (job, stage, task).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskKey {
    pub job: JobId,
    pub stage: StageIndex,
    pub task: TaskIndex,
}

/// One try of a task within a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct AttemptKey {
    pub task: TaskKey,
    pub attempt: AttemptNumber,
}

/// Where a record of an I-file came from: (map task, attempt). Records of one key are ordered by it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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
