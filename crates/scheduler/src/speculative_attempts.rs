//! Speculative attempts ("copies") beside slow ones: the reported progress of attempts, and the resulting orders.
//!
//! Idle slots are lent to copies. At most one runs beside an attempt; the first success of the two wins, and the other
//! is told to stop. The cost of copies that did not win is limited to a share of the job.

use crate::dispatch::{choose, start};
use crate::speculation::{Judged, Label, Observed, Waits, Where, WhyLeft, judge};
use crate::state::{Job, Phase, Running, State};
use crate::{Action, Outbox, Slot, UnixNanos};
use ids::{AttemptKey, AttemptNumber, JobId, NodeId, Placement, StageIndex, TaskKey};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Maximum number of running copies of a job per task of its stage, but at least [`COPIES_MIN`], because slow nodes
/// have more than one slot.
pub const COPIES_PER_TASK: f64 = 0.1;
pub const COPIES_MIN: f64 = 2.0;
/// Maximum number of running attempts of a task: an attempt and its copy.
const LIVE_MAX: usize = 2;
/// Maximum cost of the copies that did not win, as a share of the time of all attempts of a job; beyond it the job gets
/// no more copies.
pub const WASTE_PER_TASK_TIME: f64 = 0.03;
/// Time for which a slow node gets no copies.
pub const SLOW_NODE_NS: u64 = 120_000_000_000;
/// Number of ended attempts with which others are compared: the last ones.
const ENDED_MAX: usize = 256;

/// Progress of the attempts of a job, and its running copies.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    /// Stages whose tasks may run twice at the same time.
    stages: BTreeSet<StageIndex>,
    progress: BTreeMap<AttemptKey, Progress>,
    /// The last ended attempts of one stage, with their progress.
    ended: VecDeque<Observed>,
    /// Running copies, with the attempts that they race.
    copies: BTreeMap<AttemptKey, Original>,
    /// Attempts that have had their copy.
    copied: BTreeSet<AttemptKey>,
    /// Running attempts, with the labels under which they were reported as slow.
    told: BTreeSet<(AttemptKey, Label)>,
    /// Time of all ended attempts, and of the copies among them that did not win.
    spent_ns: u64,
    wasted_ns: u64,
    /// True if progress was reported since the attempts were last judged.
    has_news: bool,
    /// The stage whose ranges may be split, and the time of the last request to each of its attempts.
    pub(crate) splits: Option<StageIndex>,
    pub(crate) asked: BTreeMap<AttemptKey, UnixNanos>,
}

#[derive(Clone, Copy, Debug)]
struct Original {
    node: NodeId,
    label: Label,
}

/// Progress that an attempt has reported.
#[derive(Clone, Copy, Debug)]
struct Progress {
    /// Time from which it is measured, with its units and waits at that time.
    since: UnixNanos,
    first_done: u64,
    first_waits: Waits,
    until: UnixNanos,
    done: u64,
    total: u64,
    waits: Option<Waits>,
    grew: UnixNanos,
    longest_gap_ns: u64,
    largest_step: u64,
}

/// Speed of an attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub attempt: AttemptKey,
    /// Time from the start of the measurement to the last report, and the units done in that time.
    pub took_ns: u64,
    pub did: u64,
    /// Units done since its start, and remaining units.
    pub done: u64,
    pub left: u64,
}

/// An attempt that has been removed.
#[derive(Debug, Default)]
pub(crate) struct Left {
    progress: Option<Progress>,
    node: NodeId,
    ran_ns: u64,
    /// The attempt that it raced, if it was a copy.
    original: Option<Original>,
}

impl Progress {
    fn begin(running: &Running, now: UnixNanos, done: u64, total: u64, waits: Option<Waits>) -> Self {
        // The progress that the previous server saw is unknown.
        let (since, first_done, first_waits) = match running.is_taken_over {
            true => (now, done, waits.unwrap_or_default()),
            false => (running.started, 0, Waits::default()),
        };
        let grew = if done > first_done { now } else { since };
        let longest_gap_ns = grew.0.saturating_sub(since.0);
        let largest_step = done - first_done;
        let until = now;
        Self { since, first_done, first_waits, until, done, total, waits, grew, longest_gap_ns, largest_step }
    }

    fn go_on(&mut self, now: UnixNanos, done: u64, total: u64, waits: Option<Waits>) {
        self.until = now;
        self.total = total;
        if done > self.done {
            self.longest_gap_ns = self.longest_gap_ns.max(now.0.saturating_sub(self.grew.0));
            self.largest_step = self.largest_step.max(done - self.done);
            (self.done, self.grew) = (done, now);
        }
        self.waits = waits.or(self.waits);
    }

    fn observed(&self, attempt: AttemptKey, node: NodeId) -> Observed {
        let first = self.first_waits;
        let waits = self.waits.map(|waits| Waits {
            read_ns: waits.read_ns.saturating_sub(first.read_ns),
            program_ns: waits.program_ns.saturating_sub(first.program_ns),
            append_ns: waits.append_ns.saturating_sub(first.append_ns),
            ..waits
        });
        Observed {
            attempt,
            node,
            since: self.since,
            until: self.until,
            done: self.done - self.first_done,
            total: self.total,
            left: self.total.saturating_sub(self.done),
            waits,
            grew: self.grew,
            longest_gap_ns: self.longest_gap_ns,
            largest_step: self.largest_step,
            has_ended: false,
            may_be_judged: false,
            near: Vec::new(),
        }
    }
}

impl Watch {
    /// Allows copies for the tasks of these stages.
    pub fn allow(&mut self, stages: Vec<StageIndex>) {
        self.stages.extend(stages);
    }

    /// Allows splits of the ranges of this stage.
    pub fn allow_splits(&mut self, stage: StageIndex) {
        self.splits = Some(stage);
    }

    /// Returns whether the progress of the attempts of a stage is needed.
    fn listens_to(&self, stage: StageIndex) -> bool {
        self.stages.contains(&stage) || self.splits == Some(stage)
    }

    /// Returns the attempts of a stage that have reported progress: start of their measurement, units done since then,
    /// and units left.
    pub fn paces(&self, stage: StageIndex) -> impl Iterator<Item = Pace> {
        let of_stage = self.progress.iter().filter(move |(attempt, _)| attempt.task.stage == stage);
        of_stage.map(|(attempt, said)| Pace {
            attempt: *attempt,
            took_ns: said.until.0.saturating_sub(said.since.0),
            did: said.done - said.first_done,
            done: said.done,
            left: said.total.saturating_sub(said.done),
        })
    }

    /// Removes an ended attempt; [`Self::won`] follows if it won.
    pub fn leave(&mut self, attempt: AttemptKey, running: &Running, now: UnixNanos) -> Left {
        let ran_ns = now.0.saturating_sub(running.started.0);
        let original = self.copies.remove(&attempt);
        self.spent_ns = self.spent_ns.saturating_add(ran_ns);
        if original.is_some() {
            self.wasted_ns = self.wasted_ns.saturating_add(ran_ns);
        }
        self.copied.remove(&attempt);
        self.asked.remove(&attempt);
        self.told.retain(|(told, _)| *told != attempt);
        Left { progress: self.progress.remove(&attempt), node: running.slot.node, ran_ns, original }
    }

    /// Records that the removed attempt has won. Returns a node that a copy has proved slow.
    pub fn won(&mut self, attempt: AttemptKey, left: Left, now: UnixNanos) -> Option<NodeId> {
        if self.ended.front().is_some_and(|ended| ended.attempt.task.stage != attempt.task.stage) {
            self.ended.clear();
        }
        if let Some(mut progress) = left.progress {
            let last_gap_ns = now.0.saturating_sub(progress.grew.0);
            progress.until = now;
            progress.longest_gap_ns = progress.longest_gap_ns.max(last_gap_ns);
            let mut ended = progress.observed(attempt, left.node);
            (ended.has_ended, ended.left) = (true, 0);
            self.ended.push_back(ended);
            if self.ended.len() > ENDED_MAX {
                self.ended.pop_front();
            }
        }
        let original = left.original?;
        self.wasted_ns = self.wasted_ns.saturating_sub(left.ran_ns);
        matches!(original.label, Label::SlowProgram | Label::SlowNode).then_some(original.node)
    }

    /// Returns whether an attempt is a copy of another one.
    pub fn is_copy(&self, attempt: AttemptKey) -> bool {
        self.copies.contains_key(&attempt)
    }

    /// Returns the attempts in the records; all of them run.
    pub fn attempts(&self) -> impl Iterator<Item = AttemptKey> {
        let copied = self.copied.iter().chain(self.asked.keys()).copied();
        self.progress.keys().copied().chain(self.copies.keys().copied()).chain(copied)
    }
}

impl Job {
    /// Returns the running attempts of a task that were not told to stop.
    pub fn live(&self, task: TaskKey) -> impl Iterator<Item = (AttemptKey, Slot)> {
        let (first, last) = (AttemptNumber(0), AttemptNumber(u32::MAX));
        let all = AttemptKey { task, attempt: first }..=AttemptKey { task, attempt: last };
        let live = self.running.range(all).filter(|(_, running)| !running.is_told_to_stop);
        live.map(|(attempt, running)| (*attempt, running.slot))
    }

    /// Tells the other attempts of a task to stop: it has a winner, or only `kept` has the current range.
    pub fn stop_others(&mut self, outbox: &mut impl Outbox, task: TaskKey, kept: Option<AttemptKey>) {
        let live: Vec<(AttemptKey, Slot)> = self.live(task).collect();
        for (attempt, slot) in live.into_iter().filter(|(attempt, _)| Some(*attempt) != kept) {
            self.stop(outbox, attempt, slot);
        }
    }

    /// Stops the older of two attempts that cannot be copies of each other. The previous server had told them to stop,
    /// and no row shows it.
    pub fn stop_surplus(&mut self, outbox: &mut impl Outbox, task: TaskKey) {
        let mut live: Vec<(AttemptKey, Slot)> = self.live(task).collect();
        live.reverse();
        let mut kept: Vec<NodeId> = Vec::with_capacity(LIVE_MAX);
        for (attempt, slot) in live {
            match kept.len() < LIVE_MAX && !kept.contains(&slot.node) {
                true => kept.push(slot.node),
                false => self.stop(outbox, attempt, slot),
            }
        }
    }

    fn stop(&mut self, outbox: &mut impl Outbox, attempt: AttemptKey, slot: Slot) {
        if let Some(running) = self.running.get_mut(&attempt) {
            running.is_told_to_stop = true;
            outbox.push(Action::StopAttempt { attempt, slot });
        }
        self.task(attempt.task).expect("a running attempt has its task").running -= 1;
    }

    /// Returns the attempts of the current stage, as far as they have reported progress.
    fn observed(&self) -> Vec<Observed> {
        let mut all: Vec<Observed> = self.watch.ended.iter().cloned().collect();
        all.retain(|ended| ended.attempt.task.stage == self.current);
        let of_stage = |attempt: &AttemptKey| attempt.task.stage == self.current;
        for (attempt, progress) in self.watch.progress.iter().filter(|(attempt, _)| of_stage(attempt)) {
            let Some(running) = self.running.get(attempt).filter(|running| !running.is_told_to_stop) else {
                continue;
            };
            let mut observed = progress.observed(*attempt, running.slot.node);
            let task = &self.stages[usize::from(self.current.0)].tasks[attempt.task.task.0 as usize];
            let is_alone = self.live(attempt.task).count() == 1 && !task.queued && task.winner.is_none();
            let is_bound = matches!(task.placement, Placement::On(_));
            observed.may_be_judged = is_alone && !is_bound && !self.watch.copied.contains(attempt);
            observed.near = task.placement.near().to_vec();
            all.push(observed);
        }
        all
    }

    /// Returns an error with the reason if the job may have no further copy. The budget does not bind copies of attempts
    /// without progress: the job may not end without them.
    fn may_copy(&self, now: UnixNanos, label: Label) -> Result<(), WhyLeft> {
        let tasks = self.stages[usize::from(self.current.0)].tasks.len();
        let most = (tasks as f64 * COPIES_PER_TASK).max(COPIES_MIN);
        if self.watch.copies.len() as f64 + 1.0 > most {
            return Err(WhyLeft::EnoughCopies);
        }
        if label == Label::NoProgress {
            return Ok(());
        }
        let runs_ns = self.running.values().map(|running| now.0.saturating_sub(running.started.0));
        let all_ns = runs_ns.sum::<u64>().saturating_add(self.watch.spent_ns);
        match self.watch.wasted_ns as f64 > all_ns as f64 * WASTE_PER_TASK_TIME {
            true => Err(WhyLeft::BudgetSpent),
            false => Ok(()),
        }
    }
}

/// Handles the progress of an attempt.
pub(crate) fn on_progress(
    state: &mut State,
    now: UnixNanos,
    attempt: AttemptKey,
    done: u64,
    total: u64,
    waits: Option<Waits>,
) {
    let Some(job) = state.jobs.get_mut(&attempt.task.job) else { return };
    let Some(running) = job.running.get(&attempt) else { return };
    if total == 0 || !job.watch.listens_to(attempt.task.stage) {
        return;
    }
    let done = done.min(total);
    let said = job.watch.progress.entry(attempt);
    said.and_modify(|progress| progress.go_on(now, done, total, waits))
        .or_insert_with(|| Progress::begin(running, now, done, total, waits));
    job.watch.has_news = true;
    state.has_progress.insert(attempt.task.job);
}

/// Looks for slow attempts, and lends idle slots to copies of them.
pub(crate) fn speculate(state: &mut State, outbox: &mut impl Outbox, now: UnixNanos) {
    state.slow_nodes.retain(|_, until| *until > now);
    for id in std::mem::take(&mut state.has_progress) {
        let Some(job) = state.jobs.get_mut(&id) else { continue };
        let is_current = job.phase == Phase::Running && job.watch.stages.contains(&job.current);
        // They use the memory of their job.
        let needs_nothing_more = job.claim.needs.everywhere || job.claim.needs.is_nothing();
        if !std::mem::take(&mut job.watch.has_news) || !is_current || !needs_nothing_more {
            continue;
        }
        let observed = job.observed();
        let slow_nodes: BTreeSet<NodeId> = state.slow_nodes.keys().copied().collect();
        for judged in judge(&observed, &slow_nodes) {
            if judged.node_is_slow {
                let until = UnixNanos(now.0.saturating_add(SLOW_NODE_NS));
                state.slow_nodes.insert(judged.inputs.node, until);
            }
            act(state, outbox, now, id, judged);
        }
    }
}

/// Starts a copy if that is advised and there is a slot, and reports the decision.
fn act(state: &mut State, outbox: &mut impl Outbox, now: UnixNanos, id: JobId, judged: Judged) {
    let Judged { attempt, label, inputs, advice, .. } = judged;
    let place = advice.and_then(|place| {
        state.jobs[&id].may_copy(now, label)?;
        find_slot(state, now, attempt, &place).ok_or(WhyLeft::NoSlot)
    });
    let node = inputs.node;
    match place {
        Ok(slot) => {
            let job = state.jobs.get_mut(&id).expect("its attempt was judged a moment ago");
            let task = job.task(attempt.task).expect("a running attempt has its task");
            let copy = AttemptKey { attempt: AttemptNumber(task.attempts_started), ..attempt };
            job.watch.copied.insert(attempt);
            job.watch.copies.insert(copy, Original { node, label });
            outbox.push(Action::Speculated { attempt: copy, of: attempt, label, inputs });
            start(state, outbox, id, attempt.task.task, slot, now);
        }
        Err(left) => {
            let job = state.jobs.get_mut(&id).expect("its attempt was judged a moment ago");
            if job.watch.told.insert((attempt, label)) {
                outbox.push(Action::SlowTask { attempt, label, left, inputs });
            }
        }
    }
}

/// Returns an idle slot for a copy, near its data if there is one.
fn find_slot(state: &mut State, now: UnixNanos, of: AttemptKey, place: &Where) -> Option<Slot> {
    // Tasks that wait for a slot near their data would soon take any slot.
    if !state.far_due.is_empty() {
        return None;
    }
    let job = &state.jobs[&of.task.job];
    let busy: BTreeSet<NodeId> = job.live(of.task).map(|(_, slot)| slot.node).collect();
    let task = &job.stages[usize::from(of.task.stage.0)].tasks[of.task.task.0 as usize];
    let is_near = |node: &NodeId| task.placement.near().contains(node);
    let reserved = state.node_kept_for_wide();
    let may_run = |node: &NodeId| {
        !(busy.contains(node) || place.avoid.contains(node) || state.slow_nodes.contains_key(node))
            && place.only.as_ref().is_none_or(|only| only.contains(node))
            && (is_near(node) || !task.placement.is_bound())
            && state.shares(*node)
            && reserved != Some(*node)
    };
    let mut nodes: Vec<NodeId> = state.free_slots.nodes().filter(may_run).collect();
    nodes.sort_by_key(|node| !is_near(node));
    let node = nodes.into_iter().find(|node| choose(state, *node, now).is_none())?;
    state.free_slots.first_of(node)
}
