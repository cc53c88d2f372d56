//! Workers that run the attempts of a case: step by step in a given order, or all at once.

use crate::plan::Case;
use api::SourceCommit;
use iappender::{AppendError, ChunkService, IAppender, WorkerSlabs};
use ids::{AttemptNumber, Source, TaskIndex};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

/// Attempts of a task after which a test gives up: the line is not that bad.
const ATTEMPTS_MAX: u32 = 60;

/// One attempt to run.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    pub source: Source,
    /// Records after which it is killed; None lets it finish.
    pub killed_after: Option<usize>,
}

/// Result of the attempts: the winners, and how many gave up.
#[derive(Default)]
pub struct Outcome {
    /// The first attempt that finished, with what it committed.
    pub winners: BTreeMap<TaskIndex, (AttemptNumber, Vec<SourceCommit>)>,
    pub attempts_given_up: u64,
}

impl Outcome {
    fn take(&mut self, attempt: Attempt, end: End) {
        match end {
            End::Finished(commits) => {
                self.winners.entry(attempt.source.map_task).or_insert((attempt.source.attempt, commits));
            }
            End::GaveUp => self.attempts_given_up += 1,
            End::Killed => {}
        }
    }
}

enum End {
    Finished(Vec<SourceCommit>),
    Killed,
    GaveUp,
}

/// Every attempt of the plan: first attempts first, as a scheduler would hand them out.
fn planned(case: &Case) -> Vec<Attempt> {
    let most = case.tasks.iter().map(|task| task.attempts.len()).max().unwrap_or(0);
    let mut attempts = Vec::new();
    for number in 0..most {
        for (index, task) in case.tasks.iter().enumerate() {
            let Some(share) = task.attempts.get(number) else { continue };
            let source = Source { map_task: TaskIndex(index as u32), attempt: AttemptNumber(number as u32) };
            let killed_after = (*share < 255).then(|| task.records.len() * usize::from(*share) / 255);
            attempts.push(Attempt { source, killed_after });
        }
    }
    attempts
}

/// One attempt at work.
struct Working<'a> {
    case: &'a Case,
    attempt: Attempt,
    appender: Option<IAppender<'a>>,
    next: usize,
}

impl<'a> Working<'a> {
    fn start(
        case: &'a Case,
        service: &'a dyn ChunkService,
        slabs: &'a mut WorkerSlabs,
        attempt: Attempt,
    ) -> Self {
        let appender = IAppender::new(service, slabs, attempt.source, case.key_shape(), case.ifile_count);
        Self { case, attempt, appender: Some(appender), next: 0 }
    }

    /// Appends up to `count` records; Some when the attempt has ended.
    fn step(&mut self, count: usize) -> Option<End> {
        let Source { map_task, attempt } = self.attempt.source;
        let total = self.case.tasks[map_task.0 as usize].records.len();
        let end = self.attempt.killed_after.unwrap_or(total);
        for _ in 0..count {
            if self.next == end {
                return Some(self.end());
            }
            let pair = self.case.pair(map_task, attempt, self.next);
            self.next += 1;
            let ifile = self.case.ifile(map_task, &pair.key);
            let partition_key_bytes = self.case.partition_key_bytes(&pair.key);
            let appender = self.appender.as_mut().expect("an attempt steps until it ends");
            if let Err(error) = appender.append(ifile, &pair.key, &pair.value, partition_key_bytes) {
                self.appender = None;
                return Some(gave_up(error));
            }
        }
        None
    }

    fn end(&mut self) -> End {
        let appender = self.appender.take().expect("an attempt ends once");
        if self.attempt.killed_after.is_some() {
            return End::Killed;
        }
        appender.finish().map_or_else(gave_up, |appended| End::Finished(appended.commits))
    }
}

fn gave_up(error: AppendError) -> End {
    assert!(matches!(error, AppendError::GaveUp { .. }), "only lost answers end an attempt: {error}");
    End::GaveUp
}

/// Runs attempts until every task has a winner: those of the plan, then more for tasks that have none.
fn until_all_won(case: &Case, mut run: impl FnMut(&[Attempt], &mut Outcome)) -> Outcome {
    let mut outcome = Outcome::default();
    run(&planned(case), &mut outcome);
    let first_extra = case.tasks.iter().map(|task| task.attempts.len() as u32).max().unwrap_or(0);
    for number in first_extra..ATTEMPTS_MAX {
        let missing: Vec<Attempt> = (0..case.tasks.len() as u32)
            .map(TaskIndex)
            .filter(|task| !outcome.winners.contains_key(task))
            .map(|map_task| Attempt {
                source: Source { map_task, attempt: AttemptNumber(number) },
                killed_after: None,
            })
            .collect();
        if missing.is_empty() {
            return outcome;
        }
        run(&missing, &mut outcome);
    }
    panic!("some task never finished");
}

/// One step at a time, in the order of the plan: workers are threads only because an appender borrows its slabs.
pub fn run_in_lockstep(case: &Case, service: &dyn ChunkService) -> Outcome {
    std::thread::scope(|scope| {
        let workers: Vec<(SyncSender<Command>, Receiver<Option<End>>)> = (0..case.workers)
            .map(|_| {
                let (commands, inbox) = sync_channel(0);
                let (outbox, replies) = sync_channel(0);
                scope.spawn(move || obey(case, service, &inbox, &outbox));
                (commands, replies)
            })
            .collect();
        let mut steps = case.steps.iter().copied();
        let mut turn = 0;
        until_all_won(case, |attempts, outcome| {
            let mut waiting = attempts.iter().copied();
            let mut working: Vec<Option<Attempt>> = vec![None; workers.len()];
            loop {
                for (worker, slot) in working.iter_mut().enumerate().filter(|(_, slot)| slot.is_none()) {
                    if let Some(attempt) = waiting.next() {
                        let sent = workers[worker].0.send(Command::Start(attempt));
                        sent.expect("workers stay until all is done");
                        *slot = Some(attempt);
                    }
                }
                let busy: Vec<usize> =
                    (0..working.len()).filter(|worker| working[*worker].is_some()).collect();
                if busy.is_empty() {
                    return;
                }
                turn += 1;
                let (pick, count) = steps.next().unwrap_or((turn, 40));
                let worker = busy[pick % busy.len()];
                workers[worker].0.send(Command::Step(count)).expect("workers stay until all is done");
                let end = workers[worker].1.recv().expect("a worker answers each step");
                if let (Some(end), Some(attempt)) = (end, working[worker]) {
                    outcome.take(attempt, end);
                    working[worker] = None;
                }
            }
        })
    })
}

enum Command {
    Start(Attempt),
    Step(usize),
}

fn obey(
    case: &Case,
    service: &dyn ChunkService,
    inbox: &Receiver<Command>,
    outbox: &SyncSender<Option<End>>,
) {
    let mut slabs = WorkerSlabs::default();
    while let Ok(command) = inbox.recv() {
        let Command::Start(attempt) = command else { unreachable!("an attempt starts before it steps") };
        let mut working = Working::start(case, service, &mut slabs, attempt);
        while let Ok(Command::Step(count)) = inbox.recv() {
            let end = working.step(count);
            let ended = end.is_some();
            if outbox.send(end).is_err() || ended {
                break;
            }
        }
    }
}

/// All workers at once, each taking the next attempt when it is free.
pub fn run_concurrently(case: &Case, service: &dyn ChunkService) -> Outcome {
    until_all_won(case, |attempts, outcome| {
        let next = AtomicUsize::new(0);
        let shared = Mutex::new(outcome);
        std::thread::scope(|scope| {
            for _ in 0..case.workers.max(2) {
                scope.spawn(|| {
                    let mut slabs = WorkerSlabs::default();
                    while let Some(attempt) = attempts.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let mut working = Working::start(case, service, &mut slabs, *attempt);
                        let end = loop {
                            if let Some(end) = working.step(64) {
                                break end;
                            }
                        };
                        drop(working);
                        shared.lock().unwrap_or_else(PoisonError::into_inner).take(*attempt, end);
                    }
                });
            }
        });
    })
}
