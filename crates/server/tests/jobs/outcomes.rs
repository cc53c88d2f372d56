//! How jobs end, and what the store says about it.

use crate::world::{
    Behaviour, IFILES, Place, failure, honest, join, node, publish, reduce_honestly, splits, until_cancelled,
};
use api::history::StageState;
use api::history::usage::UsageQuestion;
use api::{Blame, KeyBytes, MapReduce, Task, TaskResult};
use metastore::{AttemptState, JobState};
use server::{ControlError, History, JobOutcome, ServerError};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

#[test]
fn a_job_runs_to_its_report() {
    let place = Place::new();
    let server = place.open();
    let slots = node(&server, 3, honest());
    let submitted = server.submit(place.spec(), splits(5)).unwrap();
    assert!(submitted.staging.ends_with(".out.sailfish-1"));
    let JobOutcome::Succeeded(report) = server.wait(submitted.job).unwrap() else { panic!("no success") };
    join(slots);
    assert!(report.proof.agrees);
    assert_eq!((report.map.tasks, report.proof.records, report.input.splits), (5, 5 * u64::from(IFILES), 5));
    assert_eq!(report.counters["maps"], 5);
    assert_eq!(place.left(), ["out"]);
    let progress = server.progress(submitted.job).unwrap();
    assert!(progress.over && progress.stages.iter().all(|stage| stage.done == stage.tasks));
    assert_eq!(progress.stages[0].done, 5);
    assert_eq!(server.wait(submitted.job).unwrap(), JobOutcome::Succeeded(report.clone()));

    let history = History::open(&place.path("state")).unwrap();
    let job = submitted.job;
    let row = history.read(async |store| store.job(job).await).unwrap().unwrap();
    assert_eq!((row.state, row.exit_code), (JobState::Succeeded, Some(0)));
    assert!(row.cleaned_ns.is_some() && row.started_ns.is_some());
    let stored = history.read(async |store| store.job_report(job).await).unwrap();
    assert_eq!(stored.as_ref(), Some(report.as_ref()));
    let proofs = history.read(async |store| store.proofs(job).await).unwrap();
    assert_eq!(proofs.len(), IFILES as usize);
    assert!(proofs.iter().all(|proof| proof.committed == proof.merged));
    let stages = history.read(async |store| store.stages(job).await).unwrap();
    assert!(stages.iter().all(|stage| stage.state == StageState::Done), "{stages:?}");
    let table = history.query("select count(*) from source_sums", Default::default()).unwrap();
    assert_eq!(table.rows, [[metastore::Cell::Integer(5 * i64::from(IFILES))]]);
}

#[test]
fn jobs_without_input_and_map_only_jobs_succeed() {
    let place = Place::new();
    let server = place.open();
    let empty = server.submit(place.spec(), splits(0)).unwrap();
    let mut spec = crate::world::spec(place.dir.path(), "mapped");
    spec.kind = MapReduce::MapOnly { generate: None }.into();
    let map_only = server.submit(spec, splits(3)).unwrap();
    join(node(&server, 2, honest()));
    assert!(matches!(server.wait(empty.job).unwrap(), JobOutcome::Succeeded(_)));
    let JobOutcome::Succeeded(report) = server.wait(map_only.job).unwrap() else { panic!("no success") };
    assert_eq!(report.parts.len(), 3);
    assert_eq!(place.left(), ["mapped", "out"]);
}

#[test]
fn a_task_that_fails_twice_goes_again() {
    let place = Place::new();
    let server = place.open();
    let behaviour: Arc<Behaviour> = Arc::new(|assignment| {
        let fails = matches!(assignment.task, Task::Map(_)) && assignment.attempt.attempt.0 < 2;
        fails.then(|| Err(failure(Blame::UserProgram)))
    });
    let job = server.submit(place.spec(), splits(2)).unwrap().job;
    join(node(&server, 2, behaviour));
    let JobOutcome::Succeeded(report) = server.wait(job).unwrap() else { panic!("no success") };
    assert_eq!((report.map.tasks, report.map.attempts), (2, 6));
    assert!(report.waste_slot_seconds > 0.0);
    let history = History::open(&place.path("state")).unwrap();
    let attempts = history.read(async |store| store.attempts(job).await).unwrap();
    let failed = attempts.iter().filter(|row| row.state == AttemptState::Failed).count();
    assert_eq!(failed, 4);
    let usage = history.read(async |store| store.usage(&UsageQuestion::default()).await).unwrap();
    let [row] = &usage.rows[..] else { panic!("{usage:?}") };
    assert_eq!((row.attempts, row.cpu_ms), (attempts.len() as u64, attempts.len() as u64));
}

/// As where it appends to a node that has given the job up, because the server had given up the node.
#[test]
fn a_task_that_nobody_stopped_goes_again() {
    let place = Place::new();
    let server = place.open();
    let behaviour: Arc<Behaviour> = Arc::new(|assignment| {
        let stops = matches!(assignment.task, Task::Map(_)) && assignment.attempt.attempt.0 < 2;
        stops.then(|| Err(failure(Blame::Cancelled)))
    });
    let job = server.submit(place.spec(), splits(2)).unwrap().job;
    join(node(&server, 2, behaviour));
    let JobOutcome::Succeeded(report) = server.wait(job).unwrap() else { panic!("no success") };
    assert_eq!(report.map.attempts, 6);
}

/// One of two map tasks answers with the failure each time; the other one waits to be stopped.
fn check_failure(blame: Blame, exit_code: Option<i32>, expected_exit_code: i32, expected_attempts: usize) {
    let place = Place::new();
    let server = place.open();
    let other_runs = AtomicBool::new(false);
    let behaviour: Arc<Behaviour> = Arc::new(move |assignment| {
        if assignment.attempt.task.task.0 == 1 {
            other_runs.store(true, Ordering::Relaxed);
            return Some(until_cancelled(assignment));
        }
        // A failure that ends the job before the other slot has pulled would leave nothing to stop.
        while !other_runs.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        let mut failure = failure(blame);
        failure.exit_code = exit_code;
        Some(Err(failure))
    });
    let job = server.submit(place.spec(), splits(2)).unwrap().job;
    join(node(&server, 2, behaviour));
    let outcome = server.wait(job).unwrap();
    let JobOutcome::Failed { failure, attempt: Some(attempt), exit_code } = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!((failure.blame, exit_code), (blame, expected_exit_code));
    assert_eq!(attempt.attempt.0 as usize + 1, expected_attempts);
    assert_eq!(place.left(), Vec::<String>::new());
    let history = History::open(&place.path("state")).unwrap();
    let row = history.read(async |store| store.job(job).await).unwrap().unwrap();
    assert_eq!((row.state, row.error.as_deref()), (JobState::Failed, Some("made to fail")));
    let attempts = history.read(async |store| store.attempts(job).await).unwrap();
    assert_eq!(attempts.len(), expected_attempts + 1);
    assert!(attempts.iter().any(|row| row.state == AttemptState::Cancelled));
}

#[test]
fn the_third_failure_is_the_jobs() {
    check_failure(Blame::UserProgram, Some(3), 3, 3);
    check_failure(Blame::Environment, None, 1, 3);
}

#[test]
fn bad_data_is_not_tried_again() {
    check_failure(Blame::UserData, None, 2, 1);
    check_failure(Blame::Engine, None, 1, 1);
}

#[test]
fn a_cancelled_job_leaves_nothing() {
    let place = Place::new();
    let server = place.open();
    let (running, started) = mpsc::sync_channel(1);
    let behaviour: Arc<Behaviour> = Arc::new(move |assignment| {
        running.send(()).unwrap();
        Some(until_cancelled(assignment))
    });
    let job = server.submit(place.spec(), splits(1)).unwrap().job;
    let slots = node(&server, 1, behaviour);
    started.recv().unwrap();
    server.cancel(job, "interrupted from the keyboard");
    server.cancel(job, "again");
    let reason = "interrupted from the keyboard".to_string();
    assert_eq!(server.wait(job).unwrap(), JobOutcome::Cancelled { reason });
    join(slots);
    assert_eq!(place.left(), Vec::<String>::new());
    server.cancel(job, "too late");
    assert!(matches!(server.wait(job), Ok(JobOutcome::Cancelled { .. })));
}

#[test]
fn a_cancel_after_the_rename_is_too_late() {
    let place = Place::new();
    let server = place.open();
    let canceller = Arc::downgrade(&server);
    let behaviour: Arc<Behaviour> = Arc::new(move |assignment| match &assignment.task {
        Task::Commit(task) => {
            let result = publish(assignment, task);
            canceller.upgrade().unwrap().cancel(assignment.attempt.task.job, "late");
            Some(Ok(TaskResult::Commit(result)))
        }
        _ => None,
    });
    let job = server.submit(place.spec(), splits(1)).unwrap().job;
    join(node(&server, 1, behaviour));
    assert!(matches!(server.wait(job).unwrap(), JobOutcome::Succeeded(_)));
    assert_eq!(place.left(), ["out"]);
}

#[test]
fn a_proof_that_disagrees_stops_the_output() {
    let place = Place::new();
    let server = place.open();
    let behaviour: Arc<Behaviour> = Arc::new(|assignment| match &assignment.task {
        Task::Reduce(task) if task.part_index == 0 => {
            let mut result = reduce_honestly(task, assignment.attempt.attempt);
            result.merged[0].1.hash_sum ^= 1;
            Some(Ok(TaskResult::Reduce(result)))
        }
        _ => None,
    });
    let job = server.submit(place.spec(), splits(2)).unwrap().job;
    join(node(&server, 2, behaviour));
    let JobOutcome::Failed { failure, attempt: None, exit_code: 1 } = server.wait(job).unwrap() else {
        panic!("the proof must fail the job");
    };
    assert!(failure.message.contains("in ifile-0 the maps committed 2 records"), "{}", failure.message);
    assert_eq!(place.left(), Vec::<String>::new());
    let history = History::open(&place.path("state")).unwrap();
    let table = history.query("select ifile from proofs where agrees = 0", Default::default()).unwrap();
    assert_eq!(table.rows, [[metastore::Cell::Integer(0)]]);
}

#[test]
fn a_result_of_another_kind_is_not_believed() {
    let place = Place::new();
    let server = place.open();
    let behaviour: Arc<Behaviour> = Arc::new(|assignment| match &assignment.task {
        Task::Seal(_) => Some(Ok(TaskResult::Commit(Default::default()))),
        _ => None,
    });
    let job = server.submit(place.spec(), splits(1)).unwrap().job;
    join(node(&server, 1, behaviour));
    let JobOutcome::Failed { failure, .. } = server.wait(job).unwrap() else { panic!("no failure") };
    assert_eq!(failure.blame, Blame::Engine);
    assert!(failure.message.contains("a result of another kind of task"), "{}", failure.message);
}

/// An attempt whose result says that it gave up the end of its range, of which nobody had heard: the rest is a task of its own. Its
/// first attempt says that it ended before it began, which is no result of that task.
#[test]
fn surrendered_range_becomes_a_task() {
    let place = Place::new();
    let server = place.open();
    let key = |text: &str| Some(KeyBytes(text.as_bytes().to_vec()));
    let behaviour: Arc<Behaviour> = Arc::new(move |assignment| {
        let Task::Reduce(task) = &assignment.task else { return None };
        let mut result = reduce_honestly(task, assignment.attempt.attempt);
        match (&task.lower_key, task.part_index) {
            (None, 1) => result.upper_key = key("k5"),
            (None, _) => {}
            (Some(_), _) => {
                assert_eq!((task.part_index, &task.lower_key, &task.upper_key), (IFILES, &key("k5"), &None));
                result.merged.clear();
                result.upper_key = if assignment.attempt.attempt.0 == 0 { key("a") } else { None };
            }
        }
        Some(Ok(TaskResult::Reduce(result)))
    });
    let job = server.submit(place.spec(), splits(2)).unwrap().job;
    join(node(&server, 2, behaviour));
    let JobOutcome::Succeeded(report) = server.wait(job).unwrap() else { panic!("no success") };
    assert!(report.proof.agrees);
    let names: Vec<&str> = report.parts.iter().map(|part| part.name.as_str()).collect();
    assert_eq!(names, ["part-00000", "part-00001", "part-00002", "part-00003", "part-00004"]);
    let history = History::open(&place.path("state")).unwrap();
    // The task that came last has its part behind the one from which it was cut.
    let parts = history.read(async |store| store.parts(job).await).unwrap();
    let tasks: Vec<u32> = parts.iter().map(|part| part.attempt.task.task.0).collect();
    assert_eq!(tasks, [0, 1, 4, 2, 3]);
    assert_eq!(parts[2].name, "part-00002");
    let attempts = history.read(async |store| store.attempts(job).await).unwrap();
    let of_tail = attempts.iter().filter(|row| row.attempt.task.task.0 == IFILES);
    let states: Vec<AttemptState> = of_tail.map(|row| row.state).collect();
    assert_eq!(states, [AttemptState::Discarded, AttemptState::Succeeded]);
    let stages = history.read(async |store| store.stages(job).await).unwrap();
    assert_eq!(stages[3].task_count, Some(5));
}

#[test]
fn the_first_boundaries_stand() {
    let place = Place::new();
    let server = place.open();
    let job = server.submit(place.spec(), splits(1)).unwrap().job;
    let keys = |text: &str| vec![KeyBytes(text.as_bytes().to_vec())];
    let first = server.propose_boundaries(job, keys("m")).unwrap();
    let second = server.propose_boundaries(job, keys("x")).unwrap();
    assert_eq!((first.keys.clone(), &first), (keys("m"), &second));
    let history = History::open(&place.path("state")).unwrap();
    assert_eq!(history.read(async |store| store.boundaries(job).await).unwrap(), Some(first));
    let unknown = server.propose_boundaries(ids::JobId(99), keys("a"));
    assert!(matches!(unknown, Err(ServerError::Control(ControlError::UnknownJob { .. }))));
}

#[test]
fn kept_intermediate_data_stays() {
    let place = Place::new();
    let server = place.open();
    let mut spec = place.spec();
    spec.keep_ifiles = true;
    let submitted = server.submit(spec, splits(1)).unwrap();
    join(node(&server, 1, honest()));
    assert!(matches!(server.wait(submitted.job).unwrap(), JobOutcome::Succeeded(_)));
    assert!(submitted.disk_dirs[0].is_dir());
    drop(server);
    // It is not a leftover for the next one either.
    place.open();
    assert!(submitted.disk_dirs[0].is_dir());
}
