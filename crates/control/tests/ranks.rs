//! The order of steps by rank, within one job and between jobs, also after a restart. The test is the shell and one slot.

use api::data_access::DataKeys;
use api::history::{JobRow, JobState, StageRow, StageState, StepOf};
use api::task::{AttemptUsage, RunResult, RunTask};
use api::{JobSpec, JsonText, SteppedKind, Task, TaskResult};
use control::{
    Asker, Control, ControlError, Finished, Moment, NewBatch, NewSteppedJob, Now, Outbox, PullRequest,
    RecoveredSteps, RecoveredWork, Service, SlotOrder,
};
use ids::{AttemptKey, JobId, NodeId, StageIndex, StageKind, StepNumber, TaskIndex, TaskKey};
use jobkind::{FinishedSteps, KnownRuns, NodeSize, Step, StepPlan, StepWork};
use rows::{Change, RecoveredJob, StepRow, TaskRow, TaskState, WinningCommits};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Steps with these ranks, which need nothing; and one more after each of them, with the rank 1.
struct Ranked(Vec<u64>);

fn program() -> RunTask {
    RunTask { words: vec!["true".to_string()], ..RunTask::default() }
}

fn step(number: usize) -> Step {
    let (number, work) = (StepNumber(number as u32), StepWork::Program(Arc::new(program())));
    Step { number, name: "step".into(), work, beside: Vec::new() }
}

impl StepPlan for Ranked {
    fn first(&self, _: NodeSize) -> Vec<Step> {
        (0..self.0.len()).map(step).collect()
    }

    fn next(&self, finished: &FinishedSteps<'_>, _: NodeSize) -> Vec<Step> {
        let count = self.0.len();
        let first = |last: &&StepNumber| (last.0 as usize) < count;
        finished.last.iter().filter(first).map(|last| step(last.0 as usize + count)).collect()
    }

    fn ranks(&self, _: &KnownRuns) -> Vec<u64> {
        self.0.iter().copied().chain(self.0.iter().map(|_| 1)).collect()
    }
}

struct Caller(Arc<Mutex<Vec<AttemptKey>>>);

impl Asker<SlotOrder> for Caller {
    fn is_gone(&self) -> bool {
        false
    }

    fn answer(self: Box<Self>, answer: Result<SlotOrder, ControlError>) {
        if let Ok(SlotOrder::Run { attempt, .. }) = answer {
            self.0.lock().expect("no panic").push(attempt);
        }
    }
}

struct World {
    control: Control,
    outbox: Outbox,
    orders: Arc<Mutex<Vec<AttemptKey>>>,
    step_of: BTreeMap<JobId, StepOf>,
    next_job: i64,
}

impl World {
    fn new() -> Self {
        let mut outbox = Outbox::default();
        outbox.set_now(Now { moment: Moment(Duration::from_secs(1)), unix_ns: 1 });
        let control = Control::new(Service::Embedded, Now::default());
        let mut world =
            Self { control, outbox, orders: Arc::default(), step_of: BTreeMap::new(), next_job: 1 };
        world.control.local_node_has(&mut world.outbox, 1);
        world
    }

    fn submit(&mut self, ranks: &[u64]) {
        let new = NewSteppedJob {
            job: self.next_number(),
            spec: Arc::new(stepped_spec()),
            plan: Arc::new(Ranked(ranks.to_vec())),
            recorded: BTreeMap::new(),
            user: String::new(),
            priority: 0,
            quota: None,
            server: "me".to_string(),
            file_hold: None,
            part_nodes: Arc::default(),
        };
        self.control.begin_stepped(&mut self.outbox, new);
        self.settle();
    }

    fn submit_program(&mut self) {
        let batch = api::control::JobBatch { tasks: vec![program()], ..api::control::JobBatch::default() };
        let first = self.next_number();
        let new = NewBatch { first, batch, server: "me".to_string(), file_hold: None };
        self.control.begin_batch(&mut self.outbox, new);
        self.settle();
    }

    fn next_number(&mut self) -> JobId {
        self.next_job += 1;
        JobId(self.next_job - 1)
    }

    fn settle(&mut self) {
        while let Some(new) = self.control.next_steps() {
            let first = JobId(self.next_job);
            self.next_job += new.steps.len() as i64;
            self.control.begin_steps(&mut self.outbox, new, first, "me");
        }
        while let Some(queued) = self.control.next_waiting() {
            let spec = Arc::new(JobSpec::of_one_task("step".to_string(), program()));
            self.control.admit_waiting(&mut self.outbox, queued, Some(spec));
        }
        for change in self.outbox.take_changes() {
            if let Change::JobSubmitted { job, step_of: Some(of), .. } = change {
                self.step_of.insert(job, of);
            }
        }
        self.outbox.send_answers();
    }

    /// Ends the attempts one by one. Returns the job and the number of each step in the order of their starts, and the
    /// number of each plain job.
    fn order(&mut self) -> Vec<(i64, Option<u32>)> {
        let (mut order, mut finished) = (Vec::new(), None);
        loop {
            let caller = Box::new(Caller(Arc::clone(&self.orders)));
            let request = PullRequest { node: NodeId(0), slot: 0, is_place: false, finished };
            self.control.pull(&mut self.outbox, request, caller);
            self.settle();
            let Some(attempt) = self.orders.lock().expect("no panic").pop() else { return order };
            let job = attempt.task.job;
            let of = self.step_of.get(&job);
            order.push(of.map_or((job.0, None), |of| (of.job.0, Some(of.step.0))));
            let outcome = Ok(TaskResult::Run(RunResult::default()));
            finished = Some(Finished {
                attempt,
                outcome,
                started_ns: 1,
                ended_ns: 2,
                usage: AttemptUsage::default(),
            });
        }
    }
}

fn stepped_spec() -> JobSpec {
    let steps = SteppedKind { kind: "ranked".to_string(), spec: JsonText::hidden() };
    JobSpec::of_steps("job".to_string(), steps)
}

#[test]
fn highest_rank_of_a_job_begins_first() {
    let mut world = World::new();
    world.submit(&[2, 9, 5]);
    let numbers: Vec<Option<u32>> = world.order().into_iter().map(|(_, step)| step).collect();
    assert_eq!(numbers, [1, 2, 0, 4, 5, 3].map(Some));
}

/// The first job goes first with all its steps, also those that begin after the other jobs came.
#[test]
fn older_jobs_go_before_higher_ranks() {
    let mut world = World::new();
    world.submit(&[2, 3]);
    world.submit_program();
    let plain = world.next_job - 1;
    world.submit(&[8, 9]);
    let younger = plain + 1;
    let first = [1, 0, 3, 2].map(|step| (1, Some(step)));
    let last = [1, 0, 3, 2].map(|step| (younger, Some(step)));
    let all: Vec<_> = first.into_iter().chain([(plain, None)]).chain(last).collect();
    assert_eq!(world.order(), all);
}

/// Steps that a previous server has begun get their ranks from the plan: those that its scheduler had, and those that
/// waited for it.
#[test]
fn open_steps_keep_their_ranks_after_a_restart() {
    let (mut world, stepped) = (World::new(), JobId(1));
    let of = |job: i64| StepOf { job: stepped, step: StepNumber(job as u32 - 2), beside: Vec::new() };
    world.step_of = (2..6).map(|job| (JobId(job), of(job))).collect();
    world.next_job = 6;
    let row = |job: i64| StepRow {
        job: JobId(job),
        step: of(job).step,
        beside: Vec::new(),
        name: "step".to_string(),
        state: JobState::Running,
        exit_code: None,
    };
    world.control.recover_stepped(vec![RecoveredSteps {
        job: stepped,
        spec: stepped_spec(),
        plan: Ok(Arc::new(Ranked(vec![2, 9, 5, 7]))),
        recorded: BTreeMap::new(),
        user: String::new(),
        priority: 0,
        cancel_asked: None,
        steps: (2..6).map(row).collect(),
        file_hold: None,
    }]);
    let work =
        |job| RecoveredWork { job: admitted(job, of(job)), commits: WinningCommits::new(), file_hold: None };
    let jobs = (2..4).map(work).collect();
    let recovering = world.control.recover(&mut world.outbox, Vec::new(), jobs, &DataKeys::default());
    for job in 4..6 {
        let spec = JobSpec::of_one_task("step".to_string(), program());
        world.control.waits_again(JobId(job), String::new(), 0, spec, None);
    }
    world.control.recovered(&mut world.outbox, recovering, Vec::new());
    world.settle();
    let first: Vec<Option<u32>> = world.order().into_iter().map(|(_, step)| step).take(4).collect();
    assert_eq!(first, [1, 3, 2, 0].map(Some));
}

/// Returns the rows of a step that the scheduler of the previous server had, and no slot.
fn admitted(job: i64, of: StepOf) -> RecoveredJob {
    let job = JobId(job);
    let row = serde_json::json!({
        "job": job, "owner": "me", "user": null, "priority": 0, "name": "step", "state": JobState::Running,
        "output": "", "staging": "", "disk_dirs": [], "exit_code": null, "error": null, "created_ns": 1,
        "started_ns": null, "ended_ns": null, "cleaned_ns": null, "reduce_again": null, "kept_files": null,
        "keep_until_ns": null, "step_of": of,
    });
    let row: JobRow = serde_json::from_value(row).expect("it is a row");
    let mut recovered = RecoveredJob::new(row, JobSpec::of_one_task("step".to_string(), program()));
    recovered.stages = vec![StageRow {
        stage: StageIndex(0),
        kind: StageKind::Run,
        state: StageState::Running,
        task_count: Some(1),
        tasks_done: 0,
        expanded_ns: Some(1),
        ended_ns: None,
    }];
    recovered.tasks = vec![TaskRow {
        task: TaskKey { job, stage: StageIndex(0), task: TaskIndex(0) },
        state: TaskState::Waiting,
        payload: Task::Run(Box::new(program())),
        winner: None,
    }];
    recovered
}
