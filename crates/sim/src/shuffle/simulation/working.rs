//! The work of processes: polls, attempts, sorting, replicas.

use super::{Happening, MILLISECOND_NS, POLL_AGAIN_NS, POLL_WITHIN_NS, Simulation, TICK_NS};
use crate::shuffle::data_plane::{Between, DataPlane, ReadError};
use crate::shuffle::lane::SenderId;
use crate::shuffle::node::{Here, MapWork, Reading, Running, Step, Work, environment, step};
use crate::shuffle::parts::FetchWork;
use crate::shuffle::plan::{PlannedRecord, RecordName};
use crate::shuffle::process::Process;
use crate::shuffle::server::{Message, locked};
use crate::shuffle::world::{FAILED_BY_CHANCE, Situation};
use api::control::{NodeOrder, NumberedOrder};
use api::machine::{AttemptProgress, ReplicatedPart, Unreached, UnreachedNode};
use api::task::{CommitTask, ReduceResult};
use api::{Blame, InputFile, Task, TaskFailure, TaskResult};
use iappender::IAppender;
use ids::{AttemptKey, JobId, NodeId, RunId, Source, TaskIndex};
use ifile::KeyShape;
use std::sync::Arc;

/// Maximum factor by which the steps of a slow attempt take longer.
const SLOWER_MAX: u64 = 12;
/// An attempt checks whether it must stop in one of this many steps.
const STEPS_PER_LOOK: u32 = 2;
const STEP_NS_MAX: u64 = 120 * MILLISECOND_NS;

impl<'a> Simulation<'a> {
    pub(super) fn poll(&mut self, number: u64) {
        let now_ns = self.now_ns;
        let Some(process) = self.processes.get_mut(&number) else { return };
        let Some(node) = process.node else {
            let (address, slots) = (process.address, process.slots);
            self.after(2 * POLL_WITHIN_NS, Happening::Polls { process: number });
            return self.send(Message::Join { process: number, address, slots });
        };
        if let Some(polled_ns) = process.polled_ns().filter(|polled_ns| now_ns < polled_ns + POLL_WITHIN_NS) {
            let wait_ns = polled_ns + POLL_WITHIN_NS - now_ns;
            return self.after(wait_ns.max(1), Happening::Polls { process: number });
        }
        let of_maps = process.running.iter().filter_map(|(attempt, running)| match &running.work {
            Some(Work::Map(map)) => Some(AttemptProgress {
                attempt: *attempt,
                done_bytes: map.next as u64,
                total_bytes: map.records.len() as u64,
                read_ns: 0,
                program_ns: 1,
                append_ns: 0,
                read_from: None,
                append_to: None,
            }),
            _ => None,
        });
        let progress = of_maps.collect();
        let mut poll = process.next_poll(now_ns, progress);
        let poll_number = process.poll_number();
        locked(&self.connections).polls(number, poll_number);
        let mut plane = self.plane();
        let is_cut_off = plane.cut_off.contains(&node);
        let unreached = plane.unreached.iter().filter(|(by, _)| *by == node);
        let unreached = unreached.map(|(_, node)| UnreachedNode { node: *node, how: Unreached::TimedOut });
        poll.report.unreached = unreached.collect();
        plane.unreached.retain(|(by, _)| *by != node);
        drop(plane);
        if !is_cut_off {
            self.send(Message::Poll { node, process: number, number: poll_number, poll: Box::new(poll) });
        }
        self.after(POLL_WITHIN_NS, Happening::Polls { process: number });
    }

    pub(super) fn orders(&mut self, number: u64, poll: u64, orders: Vec<NumberedOrder>, peers: Vec<NodeId>) {
        let Some(process) = self.processes.get_mut(&number) else { return };
        let is_cut_off = {
            let plane = self.plane.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            process.node.is_some_and(|node| plane.cut_off.contains(&node))
        };
        if is_cut_off {
            return;
        }
        let Some(fresh) = process.answered(poll, orders) else { return };
        // A poll that was replaced by another one is answered with nothing.
        if !peers.is_empty() {
            process.peers = peers;
        }
        fresh.into_iter().for_each(|order| self.obey(number, order));
        self.after(POLL_AGAIN_NS, Happening::Polls { process: number });
    }

    fn obey(&mut self, number: u64, order: NodeOrder) {
        let Some(process) = self.processes.get_mut(&number) else { return };
        match order {
            NodeOrder::Start { attempt, slot, task } => {
                process.waiting.push((attempt, slot, task));
                self.begin_waiting(number);
            }
            NodeOrder::StopAttempt { attempt } => {
                // A running attempt checks this from time to time.
                if let Some(running) = process.running.get_mut(&attempt) {
                    running.is_told_to_stop = true;
                }
                let waits = process.waiting.iter().any(|(waiting, ..)| *waiting == attempt);
                process.waiting.retain(|(waiting, ..)| *waiting != attempt);
                if waits {
                    let failure = TaskFailure::new(Blame::Cancelled, "the attempt was cancelled");
                    self.end(number, attempt, Err(failure));
                }
            }
            NodeOrder::Stop { job } => self.stop_all(number, job),
            NodeOrder::Replicate { job } => {
                process.replicating.insert(job);
            }
            NodeOrder::ReplicateAgain { job, runs } => {
                process.again.insert(job, runs);
            }
            NodeOrder::Forget { job } => {
                process.replicating.remove(&job);
                process.again.remove(&job);
                let node = process.node;
                self.stop_all(number, job);
                let mut plane = self.plane();
                if let Some(host) = node.and_then(|node| plane.hosts.get_mut(&node)) {
                    host.jobs.remove(&job);
                    host.forgotten.insert(job);
                }
            }
            // Nothing is kept or drained here, and no range is split.
            _ => {}
        }
    }

    fn stop_all(&mut self, number: u64, job: JobId) {
        let Some(process) = self.processes.get(&number) else { return };
        let stale = process.running.keys().chain(process.waiting.iter().map(|(key, ..)| key));
        let stale: Vec<AttemptKey> = stale.filter(|key| key.task.job == job).copied().collect();
        stale.into_iter().for_each(|attempt| self.obey(number, NodeOrder::StopAttempt { attempt }));
    }

    /// Starts waiting attempts whose slots are free.
    fn begin_waiting(&mut self, number: u64) {
        let Some(process) = self.processes.get_mut(&number) else { return };
        let waiting = std::mem::take(&mut process.waiting);
        for (attempt, slot, task) in waiting {
            let Some(process) = self.processes.get_mut(&number) else { return };
            if process.is_free(slot) {
                self.begin(number, (attempt, slot), *task);
            } else {
                process.waiting.push((attempt, slot, task));
            }
        }
    }

    fn begin(&mut self, number: u64, (attempt, slot): (AttemptKey, u32), task: Task) {
        let inputs: Arc<[InputFile]> = self.inputs.get(&attempt.task.job).cloned().unwrap_or_default();
        let work = match task {
            Task::Map(map) if inputs.is_empty() => {
                let plan = self.plans.get(&attempt.task.job);
                let records = plan.map(|plan| plan.records(attempt.task.task, attempt.attempt.0));
                self.begin_map(number, attempt, map.again, records.unwrap_or_default())
            }
            Task::Map(map) => Some(Work::Fetch(Box::new(FetchWork::new(map, inputs)))),
            Task::Seal(task) => Some(Work::Seal(task)),
            Task::Merge(task) => Some(Work::Merge(task, Reading::default())),
            Task::Reduce(task) => Some(Work::Reduce(Box::new(task), Reading::default())),
            Task::Commit(task) => Some(Work::Commit(Box::new(task))),
            Task::Adopt(_) | Task::Run(_) => None,
        };
        let is_slow = self.plane().chance(self.faults.attempt_slow);
        let slower = if is_slow { self.random.u64(2..SLOWER_MAX) } else { 1 };
        let sender = matches!(work, Some(Work::Map(_))).then_some(self.senders);
        let started_ns = self.now_ns;
        let Some(process) = self.processes.get_mut(&number) else { return };
        process
            .running
            .insert(attempt, Running { slot, started_ns, work, sender, slower, is_told_to_stop: false });
        self.works_again(number, attempt);
    }

    fn begin_map(
        &mut self,
        number: u64,
        attempt: AttemptKey,
        again: Option<api::task::MapAgain>,
        records: Vec<PlannedRecord>,
    ) -> Option<Work<'a>> {
        let process = self.processes.get(&number)?;
        let (here, job) = (process.node?, attempt.task.job);
        let mut candidates = process.peers.clone();
        candidates.push(here);
        candidates.sort_unstable();
        candidates.dedup();
        let plan = self.plans.get(&job)?;
        let source = Source { map_task: attempt.task.task, attempt: attempt.attempt };
        self.senders += 1;
        let sender: SenderId = self.senders;
        let (port, slabs) = (self.ports.next(), self.slabs.next());
        let (port, slabs) = port.zip(slabs).expect("a world has fewer map attempts");
        port.take(sender, here, job, candidates);
        let mut appender = IAppender::new(port, slabs, source, KeyShape::Whole, plan.ifiles);
        if let Some(again) = again {
            appender = appender.only_to(again.ifiles);
        }
        Some(Work::Map(Box::new(MapWork { appender, records, next: 0 })))
    }

    fn works_again(&mut self, number: u64, attempt: AttemptKey) {
        let running = self.processes.get(&number).and_then(|process| process.running.get(&attempt));
        let slower = running.map_or(1, |running| running.slower);
        let wait_ns = self.random.u64(MILLISECOND_NS..STEP_NS_MAX) * slower;
        self.after(wait_ns, Happening::Works { process: number, attempt });
    }

    /// Performs a step of an attempt.
    pub(super) fn work(&mut self, number: u64, attempt: AttemptKey) {
        let fails = self.plane().chance(self.faults.attempt_fails);
        let Some(process) = self.processes.get_mut(&number) else { return };
        let (Some(node), Some(running)) = (process.node, process.running.get_mut(&attempt)) else { return };
        if running.is_told_to_stop && self.random.u32(..STEPS_PER_LOOK) == 0 {
            let failure = TaskFailure::new(Blame::Cancelled, "the attempt was cancelled");
            return self.end(number, attempt, Err(failure));
        }
        let Some(work) = running.work.take().filter(|_| !fails) else {
            return self.end(number, attempt, Err(environment(FAILED_BY_CHANCE)));
        };
        let Some(plan) = self.plans.get(&attempt.task.job) else { return };
        let made = match work {
            Work::Map(map) => map.step(self.random.usize(1..5)),
            other => {
                let mut plane = self.plane.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                step(&mut plane, &Here { node, job: attempt.task.job, attempt, plan }, other)
            }
        };
        self.now_ns = self.now_ns.max(self.plane().now_ns);
        let next = match made {
            Step::GoesOn(work) => Some(work),
            Step::Maps(fetched) => self.map_what_was_read(number, attempt, *fetched),
            Step::WritesPart(result, output) => Some(self.write_part(number, attempt, result, output)),
            Step::SyncsPart(result) => {
                self.parts.sync(&result.part.attempt_name);
                self.end(number, attempt, Ok(TaskResult::Reduce(*result)));
                None
            }
            Step::Publishes(task) => self.publish(number, attempt, &task),
            Step::SyncsOutput => {
                let name = attempt.task.job.to_string();
                // The machine that had written it may have lost it since this attempt found it.
                let outcome = match self.outputs.read(&name) {
                    Some(_) => Ok(TaskResult::Commit(Default::default())),
                    None => Err(environment("the output is not there any more")),
                };
                self.outputs.sync(&name);
                self.end(number, attempt, outcome);
                None
            }
            Step::Ends(outcome) => {
                let outcome = *outcome;
                self.end(number, attempt, outcome);
                None
            }
        };
        let running = self.processes.get_mut(&number).and_then(|process| process.running.get_mut(&attempt));
        if let (Some(running), Some(next)) = (running, next) {
            running.work = Some(next);
            self.works_again(number, attempt);
        }
    }

    /// Continues a map attempt that has read its parts.
    fn map_what_was_read(
        &mut self,
        number: u64,
        attempt: AttemptKey,
        fetched: FetchWork,
    ) -> Option<Work<'a>> {
        let plan = self.plans.get(&attempt.task.job)?;
        let records = plan.records_of(&fetched.records, attempt.attempt.0);
        let work = self.begin_map(number, attempt, fetched.task.again, records);
        let sender = self.senders;
        let running = self.processes.get_mut(&number).and_then(|process| process.running.get_mut(&attempt));
        running.into_iter().for_each(|running| running.sender = Some(sender));
        work
    }

    fn write_part(
        &mut self,
        number: u64,
        attempt: AttemptKey,
        result: Box<ReduceResult>,
        output: Vec<RecordName>,
    ) -> Work<'a> {
        let name = &result.part.attempt_name;
        match result.part.node {
            None => self.parts.write(number, name, output),
            Some(node) => {
                if let Some(data) = self.plane().job_data(node, attempt.task.job) {
                    data.parts.insert(name.clone(), output.into());
                }
            }
        }
        Work::Sync(result)
    }

    /// Publishes the parts as the output, all by one rename. Returns None if that is not possible.
    fn publish(&mut self, number: u64, attempt: AttemptKey, task: &CommitTask) -> Option<Work<'a>> {
        let name = attempt.task.job.to_string();
        if self.outputs.read(&name).is_some() {
            self.saw(Situation::CommitRanTwice);
            return Some(Work::SyncOutput);
        }
        let mut output: Vec<RecordName> = Vec::new();
        for part in &task.parts {
            match self.parts.read(&part.attempt_name) {
                Some(records) => output.extend(records),
                None => {
                    self.breaks(format!("{} was told and is not there", part.attempt_name));
                    return None;
                }
            }
        }
        if let Some(what) = self.plans.get(&attempt.task.job).and_then(|plan| plan.problem_of(&output)) {
            self.breaks(format!("job {name} publishes what it must not: {what}"));
        }
        self.outputs.write(number, &name, output);
        Some(Work::SyncOutput)
    }

    fn end(&mut self, number: u64, attempt: AttemptKey, outcome: Result<TaskResult, TaskFailure>) {
        if let Err(failure) = &outcome
            && failure.blame == Blame::Engine
        {
            self.breaks(format!("{attempt}: {}", failure.message));
        }
        if let Some(process) = self.processes.get_mut(&number) {
            let unreachable = outcome.as_ref().err().and_then(|failure| failure.unreachable);
            if let Some(pair) = process.node.zip(unreachable) {
                self.plane.lock().unwrap_or_else(std::sync::PoisonError::into_inner).unreached.insert(pair);
            }
            let sender = process.running.get(&attempt).and_then(|running| running.sender);
            process.end(attempt, outcome, self.now_ns);
            // Sent messages may arrive; nothing is sent again.
            sender.map(|sender| self.plane().senders.remove(&sender));
            self.begin_waiting(number);
        }
    }

    /// Sorts closed chunks in the background.
    pub(super) fn sort(&mut self, number: u64) {
        let Some(process) = self.processes.get(&number) else { return };
        if let Some(node) = process.node {
            let mut plane = self.plane();
            let jobs: Vec<JobId> =
                plane.hosts.get(&node).into_iter().flat_map(|host| host.jobs.keys().copied()).collect();
            for job in jobs {
                plane.sort_some(node, job);
            }
        }
        let wait_ns = self.random.u64(MILLISECOND_NS..TICK_NS);
        self.after(wait_ns, Happening::Sorts { process: number });
    }

    /// Copies one run of each job to a second node, if the job asks for it.
    pub(super) fn replicate(&mut self, number: u64) {
        let Some(process) = self.processes.get_mut(&number) else { return };
        let Some(here) = process.node else {
            return self.after(TICK_NS, Happening::Replicates { process: number });
        };
        let peers: Vec<NodeId> = process.peers.iter().copied().filter(|peer| *peer != here).collect();
        // Runs whose replica was on a lost node get another one.
        process.replicas.retain(|_, node| peers.contains(node));
        let mut plane = self.plane.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for job in process.replicating.iter().copied().collect::<Vec<JobId>>() {
            let runs: Vec<RunId> =
                plane.job_data(here, job).into_iter().flat_map(|data| data.runs.keys().copied()).collect();
            let single = runs.into_iter().find(|run| !process.replicas.contains_key(&(job, *run)));
            let again = process.again.get(&job).and_then(|again| again.first()).copied();
            let Some(run) = single.or(again) else { continue };
            // The maker may be alive, but has lost the run.
            let takers: Vec<NodeId> = peers.iter().copied().filter(|peer| *peer != run.node()).collect();
            if takers.is_empty() {
                continue;
            }
            let to = takers[plane.random.usize(..takers.len())];
            let read: Result<_, ReadError> = plane.read(Between { here, there: here }, job, run);
            if let (Ok(read), true) = (read, plane.connects(here, to))
                && let Some(there) = plane.job_data(to, job)
            {
                let chunks = read.chunks();
                there.copies.insert(run, Arc::clone(&read));
                process.has_replica(job, run, to, chunks);
            }
        }
        replicate_parts(process, &mut plane, here, &peers);
        drop(plane);
        let wait_ns = self.random.u64(MILLISECOND_NS..TICK_NS);
        self.after(wait_ns, Happening::Replicates { process: number });
    }
}

/// Copies one part of each job to a second node, if the job asks for it.
fn replicate_parts(process: &mut Process<'_>, plane: &mut DataPlane, here: NodeId, peers: &[NodeId]) {
    process.part_replicas.retain(|_, node| peers.contains(node));
    if peers.is_empty() {
        return;
    }
    for job in process.replicating.iter().copied().collect::<Vec<JobId>>() {
        let parts = plane.job_data(here, job).into_iter().flat_map(|data| data.parts.clone());
        let single =
            parts.into_iter().find(|(name, _)| !process.part_replicas.contains_key(&(job, name.clone())));
        let Some((name, part)) = single else { continue };
        let to = peers[plane.random.usize(..peers.len())];
        let task = name.strip_prefix("part-").and_then(|rest| rest.split('.').next()?.parse().ok());
        if let (Some(task), true) = (task, plane.connects(here, to))
            && let Some(there) = plane.job_data(to, job)
        {
            there.part_copies.insert(name.clone(), part);
            let (task, bytes) = (TaskIndex(task), 0);
            let told = ReplicatedPart { job, task, name, to, bytes, single_ns: 0, sending_ns: 0 };
            process.has_part_replica(told);
        }
    }
}
