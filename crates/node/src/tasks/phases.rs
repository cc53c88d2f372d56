//! The phases of a pipeline, one after the other. The files of a phase that outgrow memory are written again, to a disk.

use crate::tasks::declared_files::StoreVersions;
use crate::tasks::finished_runs::{self, Reading};
use crate::tasks::growing_input::NodeStreams;
use crate::tasks::members::{Member, is_of_one_user};
use crate::tasks::pipeline_wiring::{Wired, Wiring};
use crate::tasks::program::{Shares, link, reading};
use api::task::{AttemptUsage, FinishedRun, RunTask};
use api::{Blame, TaskFailure};
use program::PipelineProgram;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// The programs of an attempt while they run.
pub(super) struct Phases<'a> {
    shares: &'a Shares<'a>,
    task: &'a RunTask,
    members: Vec<Member<'a>>,
    wiring: Wiring<'a>,
    spill_dir: Option<&'a Path>,
    /// Records of the runs of the phases that have finished, by program.
    finished: Vec<Option<FinishedRun>>,
}

impl<'a> Phases<'a> {
    pub fn new(
        shares: &'a Shares<'a>,
        task: &'a RunTask,
        members: Vec<Member<'a>>,
        others: NodeStreams,
        spill_dir: Option<&'a Path>,
    ) -> Self {
        Self { shares, task, members, wiring: Wiring::new(task, others), spill_dir, finished: Vec::new() }
    }

    /// Returns the programs with their directories.
    pub fn into_members(self) -> Vec<Member<'a>> {
        self.members
    }

    /// Runs all programs. `on_output` gets the standard output that is shown.
    pub fn run(&mut self, mut on_output: impl FnMut(&[u8])) -> Result<(), TaskFailure> {
        let phases = self.task.phases();
        for (index, phase) in phases.iter().enumerate() {
            if index > 0 {
                // Processes that earlier programs left behind could still write to their files.
                self.end_attempt();
            }
            let runs = self.run_phase(phase, &mut on_output)?;
            self.finished.extend(runs);
        }
        Ok(())
    }

    /// Runs the programs of a phase, and once more if their files did not fit in memory.
    fn run_phase(
        &mut self,
        phase: &Range<usize>,
        on_output: &mut impl FnMut(&[u8]),
    ) -> Result<Vec<Option<FinishedRun>>, TaskFailure> {
        let outcome = self.try_phase(phase, on_output);
        let outgrew = |member: &Member<'_>| member.file_memory().is_some_and(|memory| memory.is_outgrown());
        match outcome {
            Err(failure)
                if failure.blame != Blame::Cancelled && self.members[phase.clone()].iter().any(outgrew) =>
            {
                let attempt = self.shares.assignment.attempt;
                tracing::info!(%attempt, "the files of a pipeline outgrew memory: its programs write them to a disk");
                self.end_attempt();
                self.members[phase.clone()].iter_mut().for_each(Member::begins_again_on_disk);
                self.try_phase(phase, on_output)
            }
            outcome => outcome,
        }
    }

    fn try_phase(
        &mut self,
        phase: &Range<usize>,
        on_output: &mut impl FnMut(&[u8]),
    ) -> Result<Vec<Option<FinishedRun>>, TaskFailure> {
        let Self { shares, members, wiring, .. } = self;
        let work_dir = |position: usize| members[position].work_dir();
        wiring.begin(phase, &shares.assignment.job.paths, work_dir)?;
        let read_bytes = wiring.input_bytes(phase);
        let usage = AttemptUsage { read_bytes, ..AttemptUsage::default() };
        shares.shared.meters.add_used(shares.assignment.attempt, usage);
        let those = &members[phase.clone()];
        for member in those.iter().filter(|member| member.task.has_own_directory()) {
            link(&member.task.files, member.work_dir())?;
        }
        let Wired { streams, carried } = wiring.wire(phase, self.spill_dir)?;
        let reading = reading(shares.shared, shares.assignment);
        let begun: Vec<Option<FinishedRun>> = those.iter().map(|member| begin(member, reading)).collect();
        let programs = phase.clone().zip(those);
        let programs = programs
            .map(|(position, member)| shares.program(member, wiring.edges(phase, position, work_dir)));
        let programs: Vec<PipelineProgram> = programs.collect::<Result<_, _>>()?;
        let start = Instant::now();
        let before_start = |position: usize| wiring.before_start(phase.start + position);
        program::run_pipeline(programs, streams, carried, before_start, on_output)?;
        wiring.end_phase()?;
        // A stream of another node has begun the first phase before its bytes were there.
        let waited = if phase.start == 0 { wiring.streamed_here().1 } else { Duration::ZERO };
        let ran_ms = start.elapsed().saturating_sub(waited).as_millis() as u64;
        let ended = begun.into_iter().map(|run| run.map(|run| FinishedRun { ran_ms, ..run }));
        Ok(ended.collect())
    }

    /// Ends the processes that programs left behind, which could still write to their outputs.
    pub fn end_attempt(&self) {
        self.shares.shared.options.programs.end_attempt();
    }

    /// Publishes the outputs of all programs, which have succeeded. Returns their runs.
    pub fn take_outputs(
        &mut self,
        store: &StoreVersions<'_>,
    ) -> Result<Vec<Option<FinishedRun>>, TaskFailure> {
        if !self.members.iter().any(|member| member.task.has_own_directory() || member.task.in_place) {
            return Ok(Vec::new());
        }
        let stored_bytes = self.wiring.output_bytes();
        let Shares { shared, assignment, .. } = *self.shares;
        let (attempt, reading) = (assignment.attempt, reading(shared, assignment));
        let runs = self.wiring.take_outputs(attempt, std::mem::take(&mut self.finished), reading, store)?;
        let (streamed_bytes, _) = self.wiring.streamed_here();
        let (read_bytes, moved_bytes) = (streamed_bytes, streamed_bytes);
        let used = AttemptUsage { stored_bytes, read_bytes, moved_bytes, ..AttemptUsage::default() };
        shared.meters.add_used(attempt, used);
        Ok(runs)
    }

    /// Publishes the outputs of finished phases after a failure, so that their programs need not run again. Returns the
    /// runs to be remembered; none if that is not possible.
    pub fn take_finished(
        &mut self,
        failure: &TaskFailure,
        store: &StoreVersions<'_>,
    ) -> Vec<Option<FinishedRun>> {
        // On a cluster, another attempt may have taken the place of one that was stopped.
        let may_publish = failure.blame != Blame::Cancelled || is_of_one_user(self.shares.shared);
        if self.finished.is_empty() || !may_publish {
            return Vec::new();
        }
        let is_stopped = AtomicBool::new(false);
        let Shares { shared, assignment, .. } = *self.shares;
        let (attempt, reading) = (assignment.attempt, reading(shared, assignment));
        let reading = Reading { cancelled: &is_stopped, ..reading };
        let finished = std::mem::take(&mut self.finished);
        let unchanged = self.shares.check_unchanged();
        let taken = unchanged.and_then(|()| self.wiring.take_finished(attempt, finished, reading, store));
        taken.unwrap_or_else(|error| {
            tracing::warn!(%attempt, error = error.message, "finished programs of a pipeline run again");
            Vec::new()
        })
    }
}

/// Begins the record of the run of a program that is remembered.
fn begin(member: &Member<'_>, reading: Reading<'_>) -> Option<FinishedRun> {
    member.task.is_recorded().then(|| finished_runs::begin(member.task, reading)).flatten()
}
