//! Flows of two stages as the server knows them: what `crates/server/src/{flows,recovery}.rs` do between scheduler, results and
//! store. The questions and answers about parts are those of `mapreduce`.

use super::job::{COMMIT, Job, Loss, REDUCE, RunAgain};
use super::plan::JobPlan;
use super::rows::{JobRows, Rows};
use super::server::{Order, Server};
use super::world::{Situation, Sometimes};
use api::task::MapTask;
use api::{LostInput, StageFile, StageFilePlace, Task, TaskResult};
use ids::{AttemptKey, JobId, NodeId, StageIndex, TaskIndex};
use mapreduce::Gone;
use scheduler::{Event, Placement, Standing};
use std::collections::{BTreeMap, BTreeSet};

/// A part that a node has sent to another one: (job, task, name, where it is now).
pub(crate) type SentPart = (JobId, TaskIndex, String, NodeId);

impl Server {
    fn readers(&self, id: JobId) -> Vec<JobId> {
        self.jobs.values().filter(|job| job.plan.reads == Some(id)).map(|job| job.id).collect()
    }

    fn is_over(&self, id: JobId) -> bool {
        self.jobs.get(&id).is_none_or(|job| job.succeeded.is_some())
    }

    /// Whether the first stage of a job waits for another. Where that is done its inputs are put together.
    pub fn waits_for_inputs(&mut self, id: JobId) -> bool {
        let Some(job) = self.jobs.get(&id).filter(|job| job.waits()) else { return false };
        let Some(before) = job.plan.reads.and_then(|read| self.jobs.get(&read)).filter(|before| before.rests)
        else {
            return true;
        };
        let inputs = before.results.as_inputs(&before.spec);
        let before = before.id;
        let (spec, splits) = mapreduce::with_inputs(&job.spec, inputs).expect("a job has memory and slots");
        if let Some((job, rows)) = self.jobs.get_mut(&id).zip(self.rows.jobs.get_mut(&id)) {
            job.take_inputs(spec.inputs.clone(), splits.clone());
            rows.inputs = Some((spec.inputs, splits));
        }
        self.is_read(before);
        false
    }

    fn is_read(&mut self, id: JobId) {
        if let Some(before) = self.jobs.get_mut(&id) {
            before.is_read = true;
        }
    }

    /// All parts of a stage that feeds another are there and the proof agrees: it rests, and who waits for it may begin.
    pub fn rests(&mut self, id: JobId, stage: StageIndex) -> Vec<Event> {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.rests = true;
            self.flows_hurt = true;
        }
        let readers = self.readers(id);
        if !self.is_recovering && readers.iter().all(|reader| self.is_over(*reader)) {
            return self.let_end(id, stage).into_iter().collect();
        }
        let mut events = vec![Event::JobRests { job: id }];
        for reader in readers {
            let begins = |reader: &Job| reader.succeeded.is_none() && reader.waits() && reader.is_asked;
            if self.jobs.get(&reader).is_some_and(begins) {
                events.extend(self.expand(reader, StageIndex(0)));
            }
        }
        events
    }

    fn let_end(&mut self, id: JobId, stage: StageIndex) -> Option<Event> {
        let (job, rows) = self.jobs.get_mut(&id).zip(self.rows.jobs.get_mut(&id))?;
        job.rests = false;
        match job.expand_stage(stage, rows) {
            Ok(_) => Some(Event::StageExpanded { job: id, stage, tasks: Vec::new() }),
            Err(error) => {
                self.broken.push(format!("job {id} had rested: {error}"));
                Some(Event::StageRefused { job: id, stage })
            }
        }
    }

    /// A job of a flow is over. With one that did not succeed the other ends; after one that did, what it read may go.
    pub fn flow_goes_on(&mut self, id: JobId) -> Vec<Event> {
        let Some(job) = self.jobs.get(&id) else { return Vec::new() };
        let (succeeded, reads) = (job.succeeded == Some(true), job.plan.reads);
        if succeeded {
            return reads.and_then(|read| self.may_end(read)).into_iter().collect();
        }
        let others = reads.into_iter().chain(self.readers(id));
        let others = others.filter(|other| !self.is_over(*other));
        others.map(|other| Event::JobCancelled { job: other }).collect()
    }

    fn may_end(&mut self, id: JobId) -> Option<Event> {
        let job = self.jobs.get(&id).filter(|job| job.rests && job.succeeded.is_none())?;
        let stage = StageIndex(job.tasks.len() as u16);
        let all_over = self.readers(id).into_iter().all(|reader| self.is_over(reader));
        if all_over { self.let_end(id, stage) } else { None }
    }

    /// A task as it is given to a node, with what is known now of where its inputs lie.
    pub fn with_stage_files(&self, id: JobId, task: Task) -> Task {
        let Task::Map(mut map) = task else { return task };
        map.places = self.stage_file_places(id, &map);
        Task::Map(map)
    }

    fn stage_file_places(&self, id: JobId, map: &MapTask) -> Vec<StageFilePlace> {
        let Some(job) = self.jobs.get(&id).filter(|job| job.plan.reads.is_some()) else { return Vec::new() };
        let files: BTreeSet<u32> = map.split.segments.iter().map(|segment| segment.file_index).collect();
        let place = |index: u32| {
            let file = job.spec.inputs.get(index as usize)?.stage_file?;
            let before = self.jobs.get(&file.job)?;
            let mut place = before.results.part_place(file.task, index);
            place.node = place.node.filter(|node| !self.has_left(*node));
            Some(place)
        };
        files.into_iter().filter_map(place).collect()
    }

    /// Map tasks run best where what they read lies.
    pub fn near_stage_files(&self, id: JobId, placements: &mut [Placement]) {
        let Some(job) = self.jobs.get(&id).filter(|job| job.plan.reads.is_some()) else { return };
        let maps = job.tasks.first().into_iter().flatten();
        for (task, placement) in maps.zip(placements) {
            let Task::Map(map) = task else { continue };
            let places = self.stage_file_places(id, map);
            let nodes = places.iter().flat_map(|place| place.node.into_iter().chain(place.replica));
            let nodes: BTreeSet<NodeId> = nodes.collect();
            if !nodes.is_empty() {
                *placement = Placement::Near(nodes.into_iter().collect());
            }
        }
    }

    fn has_left(&self, node: NodeId) -> bool {
        !self.members.contains_key(&node)
    }

    /// Parts that lay on a node which is gone.
    pub fn parts_gone(&mut self, node: NodeId) {
        let reads = |job: &Job| job.plan.reads.is_some() && !job.waits() && job.succeeded.is_none();
        if self.jobs.values().any(reads) {
            self.sometimes.saw(Situation::NodeLostUnderReader);
        }
        for job in self.jobs.values_mut().filter(|job| job.plan.feeds && job.succeeded.is_none()) {
            job.results.parts_gone(node, None);
        }
    }

    /// A node tells that a part of it lies on another one as well.
    pub fn part_replicated(&mut self, from: NodeId, (id, task, name, to): SentPart) {
        let is_there = self.members.contains_key(&to);
        let Some((job, rows)) = self.jobs.get_mut(&id).zip(self.rows.jobs.get_mut(&id)) else { return };
        if job.succeeded.is_some() || !is_there {
            return;
        }
        match job.results.part(task).map(|part| part.attempt_name.clone()) {
            Some(winner) if winner != name => {}
            Some(_) => job.has_part_replica(task, from, to, rows),
            None => drop(job.early_replicas.insert((task, name), (from, to))),
        }
    }

    /// The task of a part is done, whose replica may have been told of before.
    pub fn part_is_there(&mut self, attempt: AttemptKey) {
        let (id, task) = (attempt.task.job, attempt.task.task);
        let Some((job, rows)) = self.jobs.get_mut(&id).zip(self.rows.jobs.get_mut(&id)) else { return };
        let name = job.results.part(task).filter(|_| job.plan.feeds).map(|part| part.attempt_name.clone());
        if let Some((from, to)) = name.and_then(|name| job.early_replicas.remove(&(task, name))) {
            job.has_part_replica(task, from, to, rows);
        }
    }

    /// Here programs give the same each time, so what is made again must be what readers were told.
    pub fn check_same_part(&mut self, attempt: AttemptKey, result: &TaskResult) {
        let TaskResult::Reduce(reduce) = result else { return };
        let id = attempt.task.job;
        if !self.jobs.get(&id).is_some_and(|job| job.is_read) {
            return;
        }
        let told = self.readers(id).into_iter().filter_map(|reader| self.jobs.get(&reader));
        let differs = told.flat_map(|reader| &reader.spec.inputs).any(|input| {
            let of_it = |file: &StageFile| file.job == id && file.task == attempt.task.task;
            let is_other =
                |file: StageFile| (file.crc32c, input.size_bytes) != (reduce.part.crc32c, reduce.part.bytes);
            input.stage_file.filter(of_it).is_some_and(is_other)
        });
        if differs {
            self.broken.push(format!("{attempt} made a part again, and it is another one"));
        }
    }

    /// An attempt could not read a part. That is none of its faults.
    pub fn input_lost(&mut self, attempt: AttemptKey, lost: &LostInput) {
        if let Some(before) = self.jobs.get_mut(&lost.file.job).filter(|job| job.succeeded.is_none()) {
            let is_current =
                before.results.part(lost.file.task).is_some_and(|part| part.attempt_name == lost.name);
            for node in lost.nodes.iter().filter(|_| is_current) {
                before.results.parts_gone(*node, Some(lost.file.task));
            }
        }
        self.attempt_over(attempt, false);
        self.feed(Event::AttemptLost { attempt });
        self.feed(Event::AttemptFailed { attempt, retryable: true, of_node: false });
        self.mend_flows();
    }

    /// Parts that lie nowhere any more, and that somebody has yet to read, are made again.
    pub fn mend_flows(&mut self) {
        let jobs: Vec<JobId> =
            self.jobs.values().filter(|job| job.plan.reads.is_some()).map(|job| job.id).collect();
        for id in jobs.into_iter().rev() {
            let mut wanted: BTreeMap<JobId, BTreeSet<TaskIndex>> = BTreeMap::new();
            for file in self.files_to_read(id) {
                wanted.entry(file.job).or_default().insert(file.task);
            }
            for (before, wanted) in wanted {
                let Some(job) = self.jobs.get(&before).filter(|job| job.succeeded.is_none()) else {
                    continue;
                };
                let lost = job.results.parts_lost(|node| self.has_left(node));
                let again: Vec<TaskIndex> = lost.intersection(&wanted).copied().collect();
                if !again.is_empty() {
                    self.make_parts_again(before, &again);
                }
            }
        }
    }

    /// The parts that a job has yet to read: where it has not begun, all that there are.
    fn files_to_read(&self, id: JobId) -> BTreeSet<StageFile> {
        let Some(job) = self.jobs.get(&id).filter(|job| job.succeeded.is_none()) else {
            return BTreeSet::new();
        };
        if !job.waits() {
            return job.results.files_to_read(&job.spec);
        }
        let before = job.plan.reads.and_then(|read| self.jobs.get(&read));
        let parts = before.into_iter().flat_map(|before| {
            let file = |(task, part): (TaskIndex, &api::task::Part)| StageFile {
                job: before.id,
                task,
                crc32c: part.crc32c,
            };
            before.results.parts().map(file)
        });
        parts.collect()
    }

    fn make_parts_again(&mut self, id: JobId, tasks: &[TaskIndex]) {
        let (members, sometimes) = (&self.members, &mut self.sometimes);
        let has_left = |node: NodeId| !members.contains_key(&node);
        let Some((job, rows)) = self.jobs.get_mut(&id).zip(self.rows.jobs.get_mut(&id)) else { return };
        let (rested, stage) = (job.rests, StageIndex(job.tasks.len() as u16));
        let made = job.make_parts_again(tasks, has_left, rows, sometimes);
        job.rests = rested && made.is_none();
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
        let reading = self.jobs.values().filter(|job| job.plan.reads.is_some());
        let reading: Vec<(JobId, JobId, bool)> =
            reading.filter_map(|job| Some((job.id, job.plan.reads?, job.waits()))).collect();
        for (_, before, _) in reading.iter().filter(|(_, _, waits)| !waits) {
            self.is_read(*before);
        }
        for (id, before, _) in reading {
            if self.is_over(before) && !self.is_over(id) {
                self.feed(Event::JobCancelled { job: id });
            }
        }
        self.mend_flows();
        let feeding: Vec<JobId> = self.jobs.values().filter(|job| job.plan.feeds).map(|job| job.id).collect();
        for id in feeding {
            let event = self.may_end(id);
            event.into_iter().for_each(|event| self.feed(event));
        }
    }
}

impl Job {
    /// Whether the stage that it reads is not done, so that nobody knows its inputs.
    pub fn waits(&self) -> bool {
        self.plan.reads.is_some() && !self.has_inputs
    }

    pub fn take_inputs(&mut self, inputs: Vec<api::InputFile>, splits: Vec<api::Split>) {
        self.spec.inputs = inputs;
        self.results.splits = splits;
        self.has_inputs = true;
    }

    /// Proves what a stage that feeds another has put out.
    pub fn prove_parts(&mut self) -> Result<(), mapreduce::ExpandError> {
        mapreduce::expand("commit", &self.spec, &mut self.results).map(drop)
    }

    fn has_part_replica(&mut self, task: TaskIndex, from: NodeId, to: NodeId, rows: &mut JobRows) {
        if self.results.add_part_replica(task, from, to) {
            rows.part_replicas.insert(task, to);
        }
    }

    /// Where parts lie by now: what was on nodes that are gone is read at its replica.
    pub fn restore_parts(&mut self, rows: &JobRows, lives: impl Fn(NodeId) -> bool) {
        for (task, node) in rows.part_replicas.iter().filter(|(_, node)| lives(**node)) {
            if let Some(home) = self.results.part(*task).and_then(|part| part.node) {
                self.results.add_part_replica(*task, home, *node);
            }
        }
        let homes: BTreeSet<NodeId> = self.results.parts().filter_map(|(_, part)| part.node).collect();
        for node in homes.into_iter().filter(|node| !lives(*node)) {
            self.results.parts_gone(node, None);
        }
    }

    /// The tasks of these parts run again, and what that takes. None where their stage will be made anyhow.
    fn make_parts_again(
        &mut self,
        tasks: &[TaskIndex],
        has_left: impl Fn(NodeId) -> bool,
        rows: &mut JobRows,
        sometimes: &mut Sometimes,
    ) -> Option<RunAgain> {
        if self.tasks.len() <= usize::from(REDUCE.0) || self.tasks.len() > usize::from(COMMIT.0) {
            return None;
        }
        sometimes.saw(Situation::PartMadeAgain);
        self.results.forget_parts(tasks);
        rows.part_replicas.retain(|task, _| !tasks.contains(task));
        // What the tasks read may be gone as well.
        let gone = Gone::runs(&self.results.runs_left_behind(&has_left));
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
