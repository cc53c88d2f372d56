//! Kinds of jobs.

use crate::GeneratedRows;
use crate::job::JsonText;
use crate::task::RunTask;
use ids::JobId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Work of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    MapReduce(MapReduce),
    /// A DAG of tasks that a registered kind makes.
    Tasks {
        kind: TasksKind,
    },
}

/// Road of the records of a MapReduce job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum MapReduce {
    /// Maps, a shuffle, reduces.
    Shuffled {
        /// Rows that are generated in place of input; `JobSpec::inputs` is empty then.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        generate: Option<GeneratedRows>,
    },
    /// The output of the mappers is the output of the job.
    MapOnly {
        /// As for a shuffled job.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        generate: Option<GeneratedRows>,
    },
    /// The kept I-files of this job are read in place of running maps.
    ReduceAgain { source: JobId },
}

/// A registered kind of a job of tasks, with its specification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TasksKind {
    /// One task: a program runs once.
    Program(Box<RunTask>),
    /// Steps, each a job of its own, that a kind of the server's list plans.
    Steps(SteppedKind),
}

/// A kind of job with steps, and the specification of the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SteppedKind {
    /// Name of the kind.
    pub kind: String,
    /// Specification, whose form the kind defines.
    #[schema(value_type = Object)]
    pub spec: JsonText,
}

impl Default for JobKind {
    fn default() -> Self {
        Self::MapReduce(MapReduce::Shuffled { generate: None })
    }
}

impl From<MapReduce> for JobKind {
    fn from(kind: MapReduce) -> Self {
        Self::MapReduce(kind)
    }
}

impl JobKind {
    /// Returns the program of a job of one task.
    pub fn program(&self) -> Option<&RunTask> {
        match self {
            Self::Tasks { kind: TasksKind::Program(task) } => Some(task),
            Self::Tasks { kind: TasksKind::Steps(_) } | Self::MapReduce(_) => None,
        }
    }

    /// Returns the kind of a job with steps.
    pub fn steps(&self) -> Option<&SteppedKind> {
        match self {
            Self::Tasks { kind: TasksKind::Steps(steps) } => Some(steps),
            Self::Tasks { kind: TasksKind::Program(_) } | Self::MapReduce(_) => None,
        }
    }

    /// Returns the kind of a job with steps, to be changed.
    pub fn steps_mut(&mut self) -> Option<&mut SteppedKind> {
        match self {
            Self::Tasks { kind: TasksKind::Steps(steps) } => Some(steps),
            Self::Tasks { kind: TasksKind::Program(_) } | Self::MapReduce(_) => None,
        }
    }

    /// Returns the program of a job of one task, to be changed.
    pub fn program_mut(&mut self) -> Option<&mut RunTask> {
        match self {
            Self::Tasks { kind: TasksKind::Program(task) } => Some(task),
            Self::Tasks { kind: TasksKind::Steps(_) } | Self::MapReduce(_) => None,
        }
    }

    /// Returns whether records go through I-files, so that there are reduce tasks.
    pub fn has_shuffle(&self) -> bool {
        matches!(self, Self::MapReduce(MapReduce::Shuffled { .. } | MapReduce::ReduceAgain { .. }))
    }

    /// Returns the job whose kept I-files are reduced again.
    pub fn source(&self) -> Option<JobId> {
        match self {
            Self::MapReduce(MapReduce::ReduceAgain { source }) => Some(*source),
            _ => None,
        }
    }

    /// Returns the rows that are generated in place of input.
    pub fn generated(&self) -> Option<GeneratedRows> {
        match self {
            Self::MapReduce(MapReduce::Shuffled { generate } | MapReduce::MapOnly { generate }) => *generate,
            Self::MapReduce(MapReduce::ReduceAgain { .. }) | Self::Tasks { .. } => None,
        }
    }
}
