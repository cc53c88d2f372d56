//! A process dies at a crash point; the next server removes what it left and says so.

use crate::world::{Behaviour, Place, honest, join, node, open, publish, spec, splits};
use api::{KeyBytes, Task};
use faults::CrashPoint;
use ids::JobId;
use metastore::JobState;
use server::History;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

/// Set for the child: the directory to work in.
const CHILD_DIR: &str = "SAILFISH_TEST_CHILD_DIR";
/// Set for the child that dies right after it published its output.
const CHILD_DIES_PUBLISHED: &str = "SAILFISH_TEST_CHILD_DIES_PUBLISHED";

/// Not a test of its own: the process that the others kill.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return };
    let server = open(Path::new(&dir));
    let job = server.submit(spec(Path::new(&dir), "out"), splits(2)).unwrap().job;
    server.propose_boundaries(job, vec![KeyBytes(b"m".to_vec())]).unwrap();
    let dies_published = std::env::var_os(CHILD_DIES_PUBLISHED).is_some();
    let dying: Arc<Behaviour> = Arc::new(|assignment| match &assignment.task {
        Task::Commit(task) => {
            publish(assignment, task);
            std::process::abort();
        }
        _ => None,
    });
    join(node(&server, 2, if dies_published { dying } else { honest() }));
    server.wait(job).unwrap();
}

fn run_child(place: &Place, variable: &str, value: &str) {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "dead_owners::child", "--nocapture"])
        .env(CHILD_DIR, place.dir.path())
        .env(variable, value)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(!status.success(), "the child must die at {value}");
}

/// The state of the child's job after the next server has opened; None where no row was written.
fn state_after_sweep(place: &Place) -> Option<JobState> {
    let server = place.open();
    let owners = std::fs::read_dir(place.path("state/owners")).unwrap().count();
    assert_eq!(owners, 1, "only the lock of the new owner is left");
    drop(server);
    let history = History::open(&place.path("state")).unwrap();
    let row = history.read(async |store| store.job(JobId(1)).await).unwrap()?;
    assert!(row.cleaned_ns.is_some(), "{row:?}");
    let attempts = history.read(async |store| store.attempts(JobId(1)).await).unwrap();
    assert!(attempts.iter().all(|attempt| attempt.state != metastore::AttemptState::Running));
    Some(row.state)
}

fn check_crash(point: CrashPoint, passing: u32, expected: Option<JobState>) {
    let place = Place::new();
    run_child(&place, "SAILFISH_CRASH_AT", &format!("{}:{passing}", point.name()));
    assert_eq!(state_after_sweep(&place), expected, "{} {passing}", point.name());
    let published = expected == Some(JobState::Succeeded);
    assert_eq!(place.left(), if published { vec!["out"] } else { vec![] }, "{}", point.name());
    // The same job then runs as if nothing had been.
    let server = place.open();
    let job = server.submit(spec(place.dir.path(), "again"), splits(2)).unwrap().job;
    join(node(&server, 2, honest()));
    assert!(matches!(server.wait(job).unwrap(), server::JobOutcome::Succeeded(_)));
}

#[test]
fn death_before_the_job_is_stored_leaves_nothing() {
    check_crash(CrashPoint::OwnerLockTaken, 1, None);
    check_crash(CrashPoint::SubmitBeforeTransaction, 1, None);
}

#[test]
fn death_on_the_way_interrupts_the_job() {
    let interrupted = Some(JobState::Interrupted);
    check_crash(CrashPoint::SubmitAfterTransaction, 1, interrupted);
    check_crash(CrashPoint::StagingCreated, 1, interrupted);
    check_crash(CrashPoint::BoundariesBeforeTransaction, 1, interrupted);
    check_crash(CrashPoint::BoundariesAfterTransaction, 1, interrupted);
    check_crash(CrashPoint::ResultBeforeTransaction, 1, interrupted);
    check_crash(CrashPoint::ResultAfterTransaction, 2, interrupted);
}

#[test]
fn death_after_commit_leaves_a_succeeded_job() {
    let succeeded = Some(JobState::Succeeded);
    check_crash(CrashPoint::CleanupBeforeRemove, 1, succeeded);
    check_crash(CrashPoint::CleanupAfterRemove, 1, succeeded);
}

#[test]
fn an_output_that_was_published_before_death_counts() {
    let place = Place::new();
    run_child(&place, CHILD_DIES_PUBLISHED, "1");
    assert_eq!(state_after_sweep(&place), Some(JobState::Succeeded));
    assert_eq!(place.left(), ["out"]);
}

#[test]
fn death_while_sweeping_is_swept_as_well() {
    let place = Place::new();
    run_child(&place, "SAILFISH_CRASH_AT", CrashPoint::StagingCreated.name());
    // This child dies while it cleans up after the first one.
    run_child(&place, "SAILFISH_CRASH_AT", CrashPoint::CleanupBeforeRemove.name());
    assert_eq!(state_after_sweep(&place), Some(JobState::Interrupted));
    assert_eq!(place.left(), Vec::<String>::new());
}

#[test]
fn an_output_of_another_job_does_not_count() {
    let place = Place::new();
    run_child(&place, CHILD_DIES_PUBLISHED, "1");
    let report = place.path("out/_report.json");
    let text = std::fs::read_to_string(&report).unwrap();
    std::fs::write(&report, text.replacen("\"job\":1", "\"job\":2", 1)).unwrap();
    assert_eq!(state_after_sweep(&place), Some(JobState::Interrupted));
    // Whatever it is, it is not ours to remove.
    assert_eq!(place.left(), ["out"]);
}
