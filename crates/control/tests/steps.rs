//! Random jobs with steps, over random ends of steps, restarts and cancels. The test is the shell: slots pull, and the
//! changes are the rows that a restarted server finds.

use api::control::JobOutcome;
use api::data_access::DataKeys;
use api::history::{JobState, StepOf};
use api::task::RunResult;
use api::{Blame, JobSpec, SteppedKind, TaskFailure, TaskResult};
use control::{
    Asker, Control, ControlError, Finished as Ended, Moment, NewSteppedJob, Now, Outbox, PullRequest,
    RecoveredSteps, Service, SlotOrder,
};
use ids::{AttemptKey, JobId, NodeId, StepNumber};
use jobkind::{FinishedSteps, Step, StepPlan, StepWork};
use proptest::prelude::*;
use rows::{Change, StepRow};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const JOB: JobId = JobId(1);
const SLOTS: u32 = 3;

/// Steps, each of which needs the ones at these positions.
struct Dag(Vec<Vec<u32>>);

impl Dag {
    fn ready(&self, finished: impl Fn(u32) -> bool) -> Vec<Step> {
        let is_ready = |step: &u32| self.0[*step as usize].iter().all(|before| finished(*before));
        let step = |number: u32| Step {
            number: StepNumber(number),
            name: format!("s{number}").into(),
            work: StepWork::Program(Arc::default()),
        };
        (0..self.0.len() as u32).filter(is_ready).map(step).collect()
    }
}

impl StepPlan for Dag {
    fn first(&self) -> Vec<Step> {
        self.ready(|_| false)
    }

    fn next(&self, finished: &FinishedSteps<'_>) -> Vec<Step> {
        let ready = self.ready(|step| finished.has(StepNumber(step)));
        ready.into_iter().filter(|step| !finished.has(step.number)).collect()
    }
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
    cancel_asked: Option<String>,
}

impl World {
    fn new(dag: Vec<Vec<u32>>) -> Self {
        let mut world = Self {
            dag: Arc::new(Dag(dag)),
            control: Control::new(Service::Embedded, Now::default()),
            outbox: outbox(),
            orders: Orders::default(),
            running: BTreeMap::new(),
            jobs: BTreeMap::new(),
            next_job: 2,
            cancel_asked: None,
        };
        let new = NewSteppedJob {
            job: JOB,
            spec: Arc::new(spec()),
            plan: Arc::clone(&world.dag) as Arc<dyn StepPlan>,
            user: String::new(),
            priority: 0,
            quota: None,
            server: "me".to_string(),
            file_hold: None,
        };
        world.control.begin_stepped(&mut world.outbox, new);
        world.settle();
        (0..SLOTS).for_each(|slot| world.pull(slot, None));
        world
    }

    fn pull(&mut self, slot: u32, finished: Option<Ended>) {
        let request = PullRequest { node: NodeId(0), slot, finished };
        let caller = Box::new(Caller { slot, orders: Arc::clone(&self.orders) });
        self.control.pull(&mut self.outbox, request, caller);
        self.settle();
    }

    /// Ends a round as the server does: begins steps, stores the changes, sends the answers.
    fn settle(&mut self) {
        while let Some(new) = self.control.next_steps() {
            let first = JobId(self.next_job);
            self.next_job += new.steps.len() as i64;
            self.control.begin_steps(&mut self.outbox, new, first, "me");
        }
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
        self.outbox.send_answers();
        self.running.extend(self.orders.lock().expect("no panic").drain(..));
        self.control.check_invariants();
    }

    fn end(&mut self, slot: u32, succeeds: bool) {
        let Some(attempt) = self.running.remove(&slot) else { return };
        let outcome = match succeeds {
            true => Ok(TaskResult::Run(RunResult::default())),
            false => Err(TaskFailure::new(Blame::UserProgram, "made to fail")),
        };
        self.pull(slot, Some(Ended { attempt, outcome, started_ns: 1, ended_ns: 2 }));
    }

    /// Another server begins with the rows. No job outlived the one before.
    fn restart(&mut self) {
        if self.state() != JobState::Running {
            return;
        }
        self.control = Control::new(Service::Embedded, Now::default());
        (self.outbox, self.orders) = (outbox(), Orders::default());
        self.running.clear();
        let row = |(job, (step_of, state)): (&JobId, &(Option<StepOf>, JobState))| {
            let step = (*step_of)?.step;
            let name = format!("s{}", step.0);
            Some(StepRow { job: *job, step, name, state: *state, exit_code: None })
        };
        let recovered = RecoveredSteps {
            job: JOB,
            spec: spec(),
            plan: Ok(Arc::clone(&self.dag) as Arc<dyn StepPlan>),
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
        (0..SLOTS).for_each(|slot| self.pull(slot, None));
    }

    fn state(&self) -> JobState {
        self.jobs[&JOB].1
    }

    /// Returns the steps whose jobs have this state, in the order of these jobs.
    fn steps(&self, wanted: JobState) -> Vec<u32> {
        let steps = self.jobs.values().filter(|(_, state)| *state == wanted);
        steps.filter_map(|(step_of, _)| Some((*step_of)?.step.0)).collect()
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
            prop_assert!(before.iter().all(|before| done.contains(before)), "{} before {:?}", step, before);
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
    let steps = SteppedKind { kind: "dag".to_string(), spec: serde_json::Value::Null };
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
        1 => Just(Event::Cancel),
    ]
}

proptest! {
    #[test]
    fn steps_run_once_and_in_order(dag in any_dag(), events in prop::collection::vec(any_event(), 0..40)) {
        let mut world = World::new(dag);
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

    let mut world = World::new(vec![Vec::new(), vec![0]]);
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
