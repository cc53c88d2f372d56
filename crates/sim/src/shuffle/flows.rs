//! Flows of two stages as the server knows them: the work of `crates/server/src/{flows,recovery}.rs` between scheduler, results and
//! store. `mapreduce::flow` decides the consequences for both.

use super::job::{Job, Loss, REDUCE, RunAgain};
use super::plan::JobPlan;
use super::rows::{JobRows, Rows};
use super::server::{Order, Server};
use super::world::{Planted, Situation, Sometimes};
use api::machine::ReplicatedPart;
use api::{LostInput, Task, TaskResult};
use ids::{AttemptKey, JobId, NodeId, StageIndex, TaskIndex};
use mapreduce::flow::{self, AfterEnd, AtRest, Flows, Inputs, PartsAgain, Stage};
use scheduler::{Event, Placement, Standing};
use std::collections::BTreeSet;

impl Flows for Server {
    fn stage(&self, job: JobId) -> Option<Stage<'_>> {
        let job = self.jobs.get(&job)?;
        let (spec, results, state) = (&job.spec, &job.results, job.in_flow);
        let is_forgotten = self.planted == Some(Planted::RestsForNobody) && job.waits();
        Some(Stage { spec, results, state, is_over: job.succeeded.is_some() || is_forgotten })
    }

    fn of_flow(&self, flow: JobId) -> Vec<JobId> {
        let is_of_it = |job: &&Job| job.spec.stage.as_ref().is_some_and(|stage| stage.flow == flow);
        self.jobs.values().filter(is_of_it).map(|job| job.id).collect()
    }

    fn of_all_flows(&self) -> BTreeSet<JobId> {
        self.jobs.values().filter(|job| job.plan.is_stage()).map(|job| job.id).collect()
    }

    fn has_left(&self, node: NodeId) -> bool {
        !self.members.contains_key(&node)
    }
}

impl Server {
    /// Whether the first stage of a job waits for another. If the other one is done, the inputs are put together.
    pub fn waits_for_inputs(&mut self, id: JobId) -> bool {
        let (spec, splits) = match flow::inputs(self, id).expect("a job has memory and slots") {
            Inputs::Known => return false,
            Inputs::NotYet => return true,
            Inputs::Are(planned) => *planned,
        };
        if let Some((job, rows)) = self.jobs.get_mut(&id).zip(self.rows.jobs.get_mut(&id)) {
            job.take_inputs(spec.inputs.clone(), splits.clone());
            rows.inputs = Some((spec.inputs, splits));
        }
        self.tells_those_it_reads(id);
        false
    }

    fn tells_those_it_reads(&mut self, id: JobId) {
        let reads = self.jobs.get(&id).filter(|job| job.in_flow.has_inputs).and_then(|job| job.plan.reads);
        if let Some(before) = reads.and_then(|read| self.jobs.get_mut(&read)) {
            before.in_flow.is_read = true;
        }
    }

    /// Lets a stage that feeds another rest: all its parts are there and the proof agrees, so that readers may begin.
    pub fn rests(&mut self, id: JobId) -> Vec<Event> {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.in_flow.rests = true;
            self.flows_hurt = true;
        }
        let begin = match flow::at_rest(self, id, self.is_recovering) {
            AtRest::Ends => return self.let_end(id).into_iter().collect(),
            AtRest::Begin(begin) => begin,
        };
        let mut events = vec![Event::JobRests { job: id }];
        for reader in begin {
            events.extend(self.expand(reader, StageIndex(0)));
        }
        events
    }

    fn let_end(&mut self, id: JobId) -> Option<Event> {
        let (job, rows) = self.jobs.get_mut(&id).zip(self.rows.jobs.get_mut(&id))?;
        let stage = StageIndex(job.tasks.len() as u16);
        job.in_flow.rests = false;
        match job.expand_stage(stage, rows) {
            Ok(_) => Some(Event::StageExpanded { job: id, stage, tasks: Vec::new() }),
            Err(error) => {
                self.broken.push(format!("job {id} had rested: {error}"));
                Some(Event::StageRefused { job: id, stage })
            }
        }
    }

    /// Handles the end of a job of a flow. If it did not succeed, the other job ends too; if it did, the parts that it read may go.
    pub fn flow_goes_on(&mut self, id: JobId) -> Vec<Event> {
        let succeeded = self.jobs.get(&id).is_some_and(|job| job.succeeded == Some(true));
        match flow::after_end(self, id, succeeded) {
            AfterEnd::LetEnd(rested) => rested.into_iter().filter_map(|read| self.let_end(read)).collect(),
            AfterEnd::Stop(others) => {
                others.into_iter().map(|other| Event::JobCancelled { job: other }).collect()
            }
        }
    }

    /// A task as it is given to a node, with what is known now of where its inputs lie.
    pub fn with_stage_files(&self, id: JobId, task: Task) -> Task {
        let Task::Map(mut map) = task else { return task };
        map.places = flow::places(self, id, &map);
        Task::Map(map)
    }

    /// Map tasks run best where what they read lies.
    pub fn near_stage_files(&self, id: JobId, placements: &mut [Placement]) {
        let maps = self.jobs.get(&id).and_then(|job| job.tasks.first());
        let near = maps.map(|maps| flow::near(self, id, maps)).unwrap_or_default();
        for (nodes, placement) in near.into_iter().zip(placements).filter(|(nodes, _)| !nodes.is_empty()) {
            *placement = Placement::Near(nodes);
        }
    }

    /// Parts that lay on a node which is gone.
    pub fn parts_gone(&mut self, node: NodeId) {
        let reads = |job: &Job| job.in_flow.has_inputs && job.succeeded.is_none();
        if self.jobs.values().any(reads) {
            self.sometimes.saw(Situation::NodeLostUnderReader);
        }
        for job in self.jobs.values_mut().filter(|job| job.plan.feeds && job.succeeded.is_none()) {
            job.results.parts_gone(node, None);
        }
    }

    /// A node tells that a part of it lies on another one as well.
    pub fn part_replicated(&mut self, from: NodeId, told: ReplicatedPart) {
        let is_there = self.members.contains_key(&told.to);
        let Some((job, rows)) = self.jobs.get_mut(&told.job).zip(self.rows.jobs.get_mut(&told.job)) else {
            return;
        };
        if job.succeeded.is_none() && is_there {
            let counts = job.results.take_part_replica(from, told);
            rows.part_replicas.extend(counts.map(|told| (told.task, told.to)));
        }
    }

    /// The task of a part is done, whose replica may have been told of before.
    pub fn part_is_there(&mut self, attempt: AttemptKey) {
        let id = attempt.task.job;
        if let Some((job, rows)) = self.jobs.get_mut(&id).zip(self.rows.jobs.get_mut(&id)) {
            let early = job.results.take_early_part_replica(attempt.task.task);
            rows.part_replicas.extend(early.map(|told| (told.task, told.to)));
        }
    }

    /// Here programs give the same each time, so what is made again must be what readers were told.
    pub fn check_same_part(&mut self, attempt: AttemptKey, result: &TaskResult) {
        if flow::differs_from_told(self, attempt, result) {
            self.broken.push(format!("{attempt} made a part again, and it is another one"));
        }
    }

    /// An attempt could not read a part. That is none of its faults.
    pub fn input_lost(&mut self, attempt: AttemptKey, lost: &LostInput) {
        if let Some(before) = self.jobs.get_mut(&lost.file.job).filter(|job| job.succeeded.is_none()) {
            before.results.part_not_found(lost);
        }
        self.attempt_over(attempt, false);
        self.feed(Event::AttemptLost { attempt });
        self.feed(Event::AttemptFailed { attempt, retryable: true, of_node: false });
        self.mend_flows();
    }

    /// Parts that lie nowhere any more, and that somebody has yet to read, are made again.
    pub fn mend_flows(&mut self) {
        for id in flow::last_first(self) {
            for (before, again) in flow::lacks(self, id) {
                self.make_parts_again(before, &again);
            }
        }
    }

    fn make_parts_again(&mut self, id: JobId, tasks: &[TaskIndex]) {
        let (members, sometimes) = (&self.members, &mut self.sometimes);
        let has_left = |node: NodeId| !members.contains_key(&node);
        let Some((job, rows)) = self.jobs.get_mut(&id).zip(self.rows.jobs.get_mut(&id)) else { return };
        let (rested, stage) = (job.in_flow.rests, StageIndex(job.tasks.len() as u16));
        let made = job.make_parts_again(tasks, has_left, rows, sometimes);
        job.in_flow.rests = rested && made.is_none();
        match (made, rested) {
            (None, _) => {}
            (Some(RunAgain { stage: to, tasks, stands }), true) => {
                self.feed(Event::StageSentBack { job: id, stage, to, tasks, stands });
            }
            (Some(again), false) => self.run_again(id, again),
        }
    }

    /// The jobs as the store has them, in order, and what follows for flows.
    pub fn take_up_all(&mut self, rows: Rows) {
        self.is_recovering = true;
        for (id, job_rows) in rows.jobs {
            match job_rows.succeeded {
                None if job_rows.expanded > 0 => self.take_up(id, &job_rows),
                None if job_rows.plan.reads.is_some() => self.begin(id, job_rows.plan),
                _ => self.order_all(&Order::Forget { job: id }),
            }
        }
        self.is_recovering = false;
        self.mend_recovered_flows();
    }

    fn mend_recovered_flows(&mut self) {
        let jobs = self.of_all_flows();
        for id in &jobs {
            self.tells_those_it_reads(*id);
        }
        for id in jobs {
            if flow::is_cut_off(self, id) {
                // The end of a stage and those of its readers are one transaction.
                self.broken.push(format!("job {id} is there, and what it reads is over"));
                self.feed(Event::JobCancelled { job: id });
            }
        }
        self.mend_flows();
        for id in self.of_all_flows() {
            let event = if flow::may_end(self, id) { self.let_end(id) } else { None };
            event.into_iter().for_each(|event| self.feed(event));
        }
    }
}

impl Job {
    /// Whether the stage that it reads is not done, so that nobody knows its inputs.
    pub fn waits(&self) -> bool {
        self.in_flow.waits(&self.spec)
    }

    pub fn take_inputs(&mut self, inputs: Vec<api::InputFile>, splits: Vec<api::Split>) {
        self.spec.inputs = inputs;
        self.results.splits = splits;
        self.in_flow.has_inputs = true;
    }

    /// Proves what a stage that feeds another has put out.
    pub fn prove_parts(&mut self) -> Result<(), mapreduce::ExpandError> {
        mapreduce::expand("commit", &self.spec, &mut self.results).map(drop)
    }

    /// The tasks of these parts run again, and what that takes. None where their stage will be made anyhow.
    fn make_parts_again(
        &mut self,
        tasks: &[TaskIndex],
        has_left: impl Fn(NodeId) -> bool,
        rows: &mut JobRows,
        sometimes: &mut Sometimes,
    ) -> Option<RunAgain> {
        let gone = match self.results.parts_again(&self.spec, self.tasks.len(), tasks, &has_left) {
            PartsAgain::Anyhow => return None,
            PartsAgain::ByReduces(gone) => gone,
            never @ (PartsAgain::TooOften | PartsAgain::ByMaps) => unreachable!("no such jobs: {never:?}"),
        };
        sometimes.saw(Situation::PartMadeAgain);
        rows.part_replicas.retain(|task, _| !tasks.contains(task));
        self.reopen_reduces(tasks, rows);
        Some(match self.lose(&gone, has_left, rows, sometimes) {
            None | Some(Loss::FellBack) => {
                self.results.regenerations += 1;
                RunAgain { stage: REDUCE, tasks: tasks.to_vec(), stands: None }
            }
            Some(Loss::Again(RunAgain { stage, tasks: maps, .. })) => {
                let stands = Some(Standing { stage: REDUCE, stops: Vec::new(), redo: tasks.to_vec() });
                RunAgain { stage, tasks: maps, stands }
            }
        })
    }

    fn reopen_reduces(&mut self, tasks: &[TaskIndex], rows: &mut JobRows) {
        let Some(planned) = self.tasks.get_mut(usize::from(REDUCE.0)) else { return };
        let mut payloads = Vec::with_capacity(tasks.len());
        for index in tasks {
            let again = self.results.plan.get(index.0 as usize).cloned().map(Task::Reduce);
            if let Some((place, again)) = planned.get_mut(index.0 as usize).zip(again) {
                *place = again;
                payloads.push((*index, place.clone()));
            }
        }
        rows.stage_reopened(REDUCE, &payloads, None);
    }
}

impl JobPlan {
    /// Whether it is a stage of a flow.
    pub fn is_stage(&self) -> bool {
        self.feeds || self.reads.is_some()
    }
}
