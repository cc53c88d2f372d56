//! Random jobs with steps, over random ends of steps, restarts and cancels. Steps run alone or as pipelines, which take
//! several slots. The test is the shell: slots pull, and the changes are the rows that a restarted server finds.

use api::control::JobOutcome;
use api::data_access::DataKeys;
use api::history::{JobState, StepOf};
use api::task::{AttemptUsage, RunResult, RunTask};
use api::{Blame, JobSpec, JsonText, SteppedKind, TaskFailure, TaskResult};
use control::{
    Asker, Control, ControlError, Finished as Ended, Moment, NewSteppedJob, Now, Outbox, PullRequest,
    RecoveredSteps, Service, SlotOrder,
};
use ids::{AttemptKey, JobId, NodeId, StepNumber};
use jobkind::{FinishedSteps, KnownRuns, NodeSize, Step, StepPlan, StepWork};
use proptest::prelude::*;
use rows::{Change, StepRow};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const JOB: JobId = JobId(1);
const SLOTS: u32 = 3;

/// Steps, each of which needs the ones at these positions.
struct Dag(Vec<Vec<u32>>);

impl Dag {
    /// Returns the steps that may begin, each with later steps that need only it and finished ones.
    fn ready(&self, finished: &FinishedSteps<'_>, size: NodeSize) -> Vec<Step> {
        let mut taken = finished.begun.clone();
        let count = self.0.len() as u32;
        let is_ready = |step: u32, with: &[StepNumber]| {
            let mut before = self.0[step as usize].iter().map(|before| StepNumber(*before));
            before.all(|before| finished.has(before) || with.contains(&before))
        };
        let mut steps = Vec::new();
        for first in (0..count).filter(|step| is_ready(*step, &[])) {
            if !taken.insert(StepNumber(first)) {
                continue;
            }
            let mut members = vec![StepNumber(first)];
            for step in first + 1..count {
                let fits = members.len() < size.slots as usize && is_ready(step, &members);
                // Some may run with others, and do not.
                if fits && (step + first) % 3 != 0 && taken.insert(StepNumber(step)) {
                    members.push(StepNumber(step));
                }
            }
            let beside = members.split_off(1);
            let words = vec!["true".to_string()];
            let pipeline = vec![RunTask { words: words.clone(), ..RunTask::default() }; beside.len()];
            let work = StepWork::Program(Arc::new(RunTask { words, pipeline, ..RunTask::default() }));
            steps.push(Step { number: StepNumber(first), name: format!("s{first}").into(), work, beside });
        }
        steps
    }
}

impl StepPlan for Dag {
    fn first(&self, size: NodeSize) -> Vec<Step> {
        let none = BTreeSet::new();
        self.ready(&FinishedSteps { all: &none, last: &[], begun: &none }, size)
    }

    fn next(&self, finished: &FinishedSteps<'_>, size: NodeSize) -> Vec<Step> {
        self.ready(finished, size)
    }

    fn ranks(&self, _: &KnownRuns) -> Vec<u64> {
        (0..self.0.len() as u32).map(rank).collect()
    }
}

/// Returns the rank of a step: some have the same one, and none follows from their order.
fn rank(step: u32) -> u64 {
    u64::from(step * 5 % 7)
}

type Orders = Arc<Mutex<Vec<(u32, AttemptKey)>>>;

struct Caller {
    slot: u32,
    orders: Orders,
}

impl Asker<SlotOrder> for Caller {
    fn is_gone(&self) -> bool {
        false
    }

    fn answer(self: Box<Self>, answer: Result<SlotOrder, ControlError>) {
        if let Ok(SlotOrder::Run { attempt, .. }) = answer {
            self.orders.lock().expect("no panic").push((self.slot, attempt));
        }
    }
}

#[derive(Clone, Debug)]
enum Event {
    /// The attempt of one of the busy slots ends.
    End {
        slot: usize,
        succeeds: bool,
    },
    Restart,
    /// Pipelines must fit on a node of this size from now on.
    Resize(u32),
    Cancel,
}

struct World {
    dag: Arc<Dag>,
    control: Control,
    outbox: Outbox,
    orders: Orders,
    /// The attempt of each busy slot.
    running: BTreeMap<u32, AttemptKey>,
    jobs: BTreeMap<JobId, (Option<StepOf>, JobState)>,
    next_job: i64,
    slots: u32,
    /// Threads beyond the slots, which get work only when no slot asks. Their numbers follow the largest of a slot.
    places: u32,
    cancel_asked: Option<String>,
}

impl World {
    fn new(dag: Vec<Vec<u32>>, slots: u32, places: u32) -> Self {
        let mut world = Self {
            dag: Arc::new(Dag(dag)),
            control: Control::new(Service::Embedded, Now::default()),
            outbox: outbox(),
            orders: Orders::default(),
            running: BTreeMap::new(),
            jobs: BTreeMap::new(),
            next_job: 2,
            slots,
            places,
            cancel_asked: None,
        };
        let new = NewSteppedJob {
            job: JOB,
            spec: Arc::new(spec()),
            plan: Arc::clone(&world.dag) as Arc<dyn StepPlan>,
            recorded: BTreeMap::new(),
            user: String::new(),
            priority: 0,
            quota: None,
            server: "me".to_string(),
            file_hold: None,
            part_nodes: Arc::default(),
        };
        world.control.local_node_has(&mut world.outbox, slots);
        world.control.begin_stepped(&mut world.outbox, new);
        world.settle();
        world.all_pull();
        world
    }

    fn all_pull(&mut self) {
        (0..self.slots).chain(SLOTS..SLOTS + self.places).for_each(|number| self.pull(number, None));
    }

    fn pull(&mut self, slot: u32, finished: Option<Ended>) {
        let mut waiting = self.waiting();
        waiting.retain(|job| finished.as_ref().is_none_or(|ended| ended.attempt.task.job != *job));
        let is_place = slot >= SLOTS;
        let request = PullRequest { node: NodeId(0), slot, is_place, finished };
        let caller = Box::new(Caller { slot, orders: Arc::clone(&self.orders) });
        self.control.pull(&mut self.outbox, request, caller);
        self.take_orders(waiting);
        self.settle();
    }

    /// Returns the jobs that wait for a slot.
    fn waiting(&self) -> BTreeSet<JobId> {
        let runs = |job: &JobId| self.running.values().any(|attempt| attempt.task.job == *job);
        let waits = |(job, (of, state)): &(&JobId, &(Option<StepOf>, JobState))| {
            of.is_some() && *state == JobState::Running && !runs(job)
        };
        self.jobs.iter().filter(waits).map(|(job, _)| *job).collect()
    }

    /// Takes the attempts that began. Each had the highest rank of the waiting jobs that take no more slots.
    fn take_orders(&mut self, mut waiting: BTreeSet<JobId>) {
        self.outbox.send_answers();
        for (slot, attempt) in std::mem::take(&mut *self.orders.lock().expect("no panic")) {
            let (rank, slots) = self.rank_and_slots(attempt.task.job);
            for other in waiting.iter().copied().filter(|job| *job != attempt.task.job) {
                let (other_rank, other_slots) = self.rank_and_slots(other);
                let is_first = (Reverse(rank), attempt.task.job) < (Reverse(other_rank), other);
                assert!(is_first || other_slots > slots, "{attempt} passes {other}, {other_rank} > {rank}");
            }
            waiting.remove(&attempt.task.job);
            self.running.insert(slot, attempt);
        }
    }

    /// Returns the rank of a pipeline, and the number of its slots.
    fn rank_and_slots(&self, job: JobId) -> (u64, usize) {
        let of = self.jobs.get(&job).and_then(|(of, _)| of.as_ref()).expect("it is a step");
        let ranks = std::iter::once(of.step).chain(of.beside.iter().copied()).map(|step| rank(step.0));
        (ranks.max().unwrap_or(0), 1 + of.beside.len())
    }

    /// Ends a round as the server does: begins steps, stores the changes, sends the answers.
    fn settle(&mut self) {
        while let Some(new) = self.control.next_steps() {
            let first = JobId(self.next_job);
            self.next_job += new.steps.len() as i64;
            self.control.begin_steps(&mut self.outbox, new, first, "me");
            self.take_changes();
            self.take_orders(self.waiting());
        }
        self.take_changes();
        self.take_orders(self.waiting());
        self.control.check_invariants();
    }

    fn take_changes(&mut self) {
        for change in self.outbox.take_changes() {
            match change {
                Change::JobSubmitted { job, step_of, .. } => {
                    self.jobs.insert(job, (step_of, JobState::Running));
                }
                Change::JobEnded { job, state, .. } => self.jobs.get_mut(&job).expect("a row").1 = state,
                Change::Note {
                    job: Some(JOB),
                    kind: api::history::EventKind::JobCancelAsked,
                    detail,
                    ..
                } => {
                    self.cancel_asked = Some(detail);
                }
                _ => {}
            }
        }
    }

    fn end(&mut self, slot: u32, succeeds: bool) {
        let Some(attempt) = self.running.remove(&slot) else { return };
        let outcome = match succeeds {
            true => Ok(TaskResult::Run(RunResult::default())),
            false => Err(TaskFailure::new(Blame::UserProgram, "made to fail")),
        };
        self.pull(
            slot,
            Some(Ended { attempt, outcome, started_ns: 1, ended_ns: 2, usage: AttemptUsage::default() }),
        );
    }

    /// Another server begins with the rows. No job outlived the one before.
    fn restart(&mut self) {
        if self.state() != JobState::Running {
            return;
        }
        self.control = Control::new(Service::Embedded, Now::default());
        (self.outbox, self.orders) = (outbox(), Orders::default());
        // The next node may be smaller.
        self.slots = 1 + (self.next_job as u32 % SLOTS);
        self.control.local_node_has(&mut self.outbox, self.slots);
        self.running.clear();
        let row = |(job, (step_of, state)): (&JobId, &(Option<StepOf>, JobState))| {
            let StepOf { step, beside, .. } = step_of.clone()?;
            let name = format!("s{}", step.0);
            Some(StepRow { job: *job, step, beside, name, state: *state, exit_code: None })
        };
        let recovered = RecoveredSteps {
            job: JOB,
            spec: spec(),
            plan: Ok(Arc::clone(&self.dag) as Arc<dyn StepPlan>),
            recorded: BTreeMap::new(),
            user: String::new(),
            priority: 0,
            cancel_asked: self.cancel_asked.clone(),
            steps: self.jobs.iter().filter_map(row).collect(),
            file_hold: None,
        };
        self.jobs.values_mut().filter(|(step_of, _)| step_of.is_some()).for_each(|(_, state)| {
            if *state == JobState::Running {
                *state = JobState::Interrupted;
            }
        });
        self.control.recover_stepped(vec![recovered]);
        let recovering = self.control.recover(&mut self.outbox, Vec::new(), Vec::new(), &DataKeys::default());
        self.control.recovered(&mut self.outbox, recovering, Vec::new());
        self.settle();
        self.all_pull();
    }

    fn state(&self) -> JobState {
        self.jobs[&JOB].1
    }

    /// Returns the steps whose jobs have this state, in the order of these jobs.
    fn steps(&self, wanted: JobState) -> Vec<u32> {
        let steps = self.jobs.values().filter(|(_, state)| *state == wanted);
        let numbers = |of: &StepOf| -> Vec<u32> {
            std::iter::once(of.step).chain(of.beside.iter().copied()).map(|step| step.0).collect()
        };
        steps.filter_map(|(step_of, _)| step_of.as_ref().map(numbers)).flatten().collect()
    }

    /// Returns the steps that run, or ran, in one job with this one.
    fn pipeline_of(&self, step: u32) -> Vec<u32> {
        let all = self.jobs.values().filter(|(_, state)| *state != JobState::Interrupted);
        let numbers = all.filter_map(|(of, _)| of.as_ref()).map(|of| {
            std::iter::once(of.step).chain(of.beside.iter().copied()).map(|step| step.0).collect::<Vec<_>>()
        });
        numbers.into_iter().find(|steps| steps.contains(&step)).unwrap_or_default()
    }

    fn happens(&mut self, event: &Event) {
        match event {
            Event::End { slot, succeeds } => {
                let busy: Vec<u32> = self.running.keys().copied().collect();
                if !busy.is_empty() {
                    self.end(busy[slot % busy.len()], *succeeds);
                }
            }
            Event::Restart => self.restart(),
            Event::Resize(slots) => {
                let slots = (*slots).min(self.slots);
                self.control.local_node_has(&mut self.outbox, slots);
                self.settle();
            }
            Event::Cancel => {
                self.control.cancel(&mut self.outbox, JOB, "stopped by a test".to_string());
                self.settle();
            }
        }
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let done = self.steps(JobState::Succeeded);
        let mut once = done.clone();
        once.sort_unstable();
        once.dedup();
        prop_assert_eq!(once.len(), done.len(), "a finished step ran again: {:?}", done);
        for step in done.iter().chain(&self.steps(JobState::Running)) {
            let before = &self.dag.0[*step as usize];
            let with = |before: &u32| self.pipeline_of(*step).contains(before);
            let may = before.iter().all(|before| done.contains(before) || with(before));
            prop_assert!(may, "{} before {:?}", step, before);
        }
        if self.state().over() {
            prop_assert_eq!(self.steps(JobState::Running), Vec::<u32>::new());
        }
        Ok(())
    }
}

/// Returns an outbox for events of one moment.
fn outbox() -> Outbox {
    let mut outbox = Outbox::default();
    outbox.set_now(Now { moment: Moment(Duration::from_secs(1)), unix_ns: 1 });
    outbox
}

fn spec() -> JobSpec {
    let steps = SteppedKind { kind: "dag".to_string(), spec: JsonText::hidden() };
    JobSpec::of_steps("job".to_string(), steps)
}

fn any_dag() -> impl Strategy<Value = Vec<Vec<u32>>> {
    let step = prop::collection::vec(any::<prop::sample::Index>(), 0..3);
    prop::collection::vec(step, 1..12).prop_map(|steps| {
        let before = |(index, before): (usize, &Vec<prop::sample::Index>)| -> Vec<u32> {
            if index == 0 { Vec::new() } else { before.iter().map(|each| each.index(index) as u32).collect() }
        };
        steps.iter().enumerate().map(before).collect()
    })
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        20 => (any::<usize>(), prop::bool::weighted(0.95))
            .prop_map(|(slot, succeeds)| Event::End { slot, succeeds }),
        4 => Just(Event::Restart),
        3 => (1..=SLOTS).prop_map(Event::Resize),
        1 => Just(Event::Cancel),
    ]
}

proptest! {
    #[test]
    fn steps_run_once_and_in_order(
        dag in any_dag(),
        places in 0..3_u32,
        events in prop::collection::vec(any_event(), 0..40),
    ) {
        let mut world = World::new(dag, SLOTS, places);
        for event in &events {
            world.happens(event);
            world.check()?;
        }
        // The rest succeeds.
        for _ in 0..1_000 {
            world.happens(&Event::End { slot: 0, succeeds: true });
            world.check()?;
        }
        let failed = !world.steps(JobState::Failed).is_empty();
        let expected = match (world.cancel_asked.is_some(), failed) {
            (false, false) => vec![JobState::Succeeded],
            (true, false) => vec![JobState::Cancelled, JobState::Succeeded],
            (false, true) => vec![JobState::Failed],
            (true, true) => vec![JobState::Cancelled, JobState::Failed],
        };
        prop_assert!(expected.contains(&world.state()), "{:?}, expected {:?}", world.state(), expected);
        if world.state() == JobState::Succeeded {
            prop_assert_eq!(world.steps(JobState::Succeeded).len(), world.dag.0.len());
        }
    }
}

#[test]
fn end_is_told_to_callers() {
    struct Waiter(Arc<Mutex<Option<JobOutcome>>>);

    impl Asker<JobOutcome> for Waiter {
        fn is_gone(&self) -> bool {
            false
        }

        fn answer(self: Box<Self>, answer: Result<JobOutcome, ControlError>) {
            *self.0.lock().expect("no panic") = answer.ok();
        }
    }

    let mut world = World::new(vec![Vec::new(), vec![0]], 1, 0);
    let told = Arc::new(Mutex::new(None));
    world.control.wait(JOB, Box::new(Waiter(Arc::clone(&told))));
    for _ in 0..2 {
        assert_eq!(*told.lock().expect("no panic"), None);
        let progress = world.control.progress(JOB).expect("it is not over").stages.remove(0);
        assert_eq!((progress.running, progress.tasks), (1, progress.done + 1));
        world.happens(&Event::End { slot: 0, succeeds: true });
        world.control.answer_waiters(&mut world.outbox);
        world.outbox.send_answers();
    }
    assert_eq!(*told.lock().expect("no panic"), Some(JobOutcome::Done));
    assert_eq!(world.control.progress(JOB), None);
}
