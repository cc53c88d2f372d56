//! What the scheduler knows.

use crate::{Slot, UnixNanos};
use ids::{AttemptKey, AttemptNumber, JobId, StageIndex, TaskIndex, TaskKey};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Jobs that are not over, or whose attempts still run, and the slots that wait for work.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub(crate) jobs: BTreeMap<JobId, Job>,
    /// In the order in which they asked.
    pub(crate) free_slots: VecDeque<Slot>,
}

#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub stages: Vec<Stage>,
    /// The stage that runs.
    pub current: StageIndex,
    pub phase: Phase,
    /// Attempts that were started and have not ended, over all stages.
    pub running: BTreeMap<AttemptKey, Running>,
    /// Attempts declared lost that have not been heard of since.
    pub lost: BTreeSet<AttemptKey>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Running {
    pub slot: Slot,
    pub started: UnixNanos,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Waits for the tasks of the current stage.
    Expanding,
    Running,
    /// Cancelled; starts nothing more. If the last stage completes all the same, the job has succeeded:
    /// what it published cannot be taken back.
    Cancelling,
    /// The end has been announced; waits for attempts that still run.
    Over,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Stage {
    pub name: &'static str,
    pub expanded: bool,
    pub tasks: Vec<Task>,
    /// Tasks that go again, before all fresh ones, the latest first.
    pub again: VecDeque<TaskIndex>,
    /// The first task that never ran.
    pub fresh: u32,
    pub done: u32,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Task {
    pub attempts_started: u32,
    pub failures: u32,
    /// Attempts running now.
    pub running: u32,
    pub winner: Option<AttemptNumber>,
}

/// How far a stage is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageCounts {
    pub name: &'static str,
    pub expanded: bool,
    pub tasks: u32,
    pub done: u32,
    pub running: u32,
}

impl Job {
    pub fn stage(&mut self, stage: StageIndex) -> &mut Stage {
        &mut self.stages[usize::from(stage.0)]
    }

    /// The task, where the job has it.
    pub fn task(&mut self, key: TaskKey) -> Option<&mut Task> {
        self.stages.get_mut(usize::from(key.stage.0))?.tasks.get_mut(key.task.0 as usize)
    }

    pub fn in_last_stage(&self) -> bool {
        usize::from(self.current.0) + 1 == self.stages.len()
    }
}

impl Stage {
    pub fn task_count(&self) -> u32 {
        u32::try_from(self.tasks.len()).expect("StageExpanded carries the count as u32")
    }

    pub fn complete(&self) -> bool {
        self.expanded && self.done == self.task_count()
    }

    /// Takes the task that goes next.
    pub fn take_ready(&mut self) -> Option<TaskIndex> {
        while let Some(task) = self.again.pop_front() {
            // A lost attempt may have won while its task waited to go again.
            if self.tasks[task.0 as usize].winner.is_none() {
                return Some(task);
            }
        }
        if self.fresh < self.task_count() {
            self.fresh += 1;
            return Some(TaskIndex(self.fresh - 1));
        }
        None
    }
}

/// Whether any job is not over or has attempts running.
pub fn has_jobs(state: &State) -> bool {
    !state.jobs.is_empty()
}

/// How far the stages of a job are; None for a job that is gone.
pub fn stage_counts(state: &State, job: JobId) -> Option<Vec<StageCounts>> {
    let job = state.jobs.get(&job)?;
    let count = |(index, stage): (usize, &Stage)| StageCounts {
        name: stage.name,
        expanded: stage.expanded,
        tasks: stage.task_count(),
        done: stage.done,
        running: job.running.keys().filter(|key| usize::from(key.task.stage.0) == index).count() as u32,
    };
    Some(job.stages.iter().enumerate().map(count).collect())
}
