//! Jobs with steps.

use crate::world::{Behaviour, Place, failure, honest, join, node, until_cancelled};
use api::history::JobsQuestion;
use api::{Blame, JobSpec, JsonText, SteppedKind};
use ids::JobId;
use metastore::{JobRow, JobState};
use serde_json::{Value, json};
use server::{History, JobOutcome};
use std::sync::{Arc, Mutex, mpsc};

/// Returns a workflow: the name of each step, and the positions of those before it.
fn workflow(steps: &[(&str, &[u32])]) -> JobSpec {
    let step = |(name, after): &(&str, &[u32])| json!({ "name": name, "program": {}, "after": after });
    of_kind("workflow", json!({ "steps": steps.iter().map(step).collect::<Vec<Value>>() }))
}

fn of_kind(kind: &str, spec: Value) -> JobSpec {
    JobSpec::of_steps(
        "flow".to_string(),
        SteppedKind { kind: kind.to_string(), spec: JsonText::of(&spec).unwrap() },
    )
}

fn rows(place: &Place, job: JobId) -> (JobRow, Vec<JobRow>) {
    let history = History::open(&place.path("state")).unwrap();
    let row = history.read(async |store| store.job(job).await).unwrap().unwrap();
    let question = JobsQuestion { steps_of: Some(job), ..JobsQuestion::default() };
    let mut steps = history.read(async |store| store.list_jobs(&question).await).unwrap().jobs;
    steps.reverse();
    (row, steps)
}

const DIAMOND: &[(&str, &[u32])] = &[("last", &[1, 3]), ("left", &[2]), ("first", &[]), ("right", &[2])];

#[test]
fn steps_run_after_those_before() {
    let place = Place::new();
    let server = place.open();
    let order = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&order);
    let behaviour: Arc<Behaviour> = Arc::new(move |assignment| {
        told.lock().unwrap().push(assignment.job.spec.name.clone());
        None
    });
    let job = server.submit(workflow(DIAMOND), Vec::new()).unwrap().job;
    join(node(&server, 3, behaviour));
    assert_eq!(server.wait(job).unwrap(), JobOutcome::Done);
    let order = order.lock().unwrap().clone();
    let mut middle = order[1..3].to_vec();
    middle.sort();
    assert_eq!(
        (order[0].as_str(), middle, order[3].as_str(), order.len()),
        ("first", vec!["left".to_string(), "right".to_string()], "last", 4)
    );
    let (row, steps) = rows(&place, job);
    assert_eq!((row.state, row.step_of, row.cleaned_ns.is_some()), (JobState::Succeeded, None, true));
    assert!(steps.iter().all(
        |step| step.state == JobState::Succeeded && step.step_of.as_ref().is_some_and(|of| of.job == job)
    ));
    let numbers: Vec<u32> =
        steps.iter().filter_map(|step| step.step_of.as_ref()).map(|of| of.step.0).collect();
    assert_eq!((numbers[0], numbers[3], numbers.len()), (2, 0, 4));
    // Lists of jobs have no steps.
    let history = History::open(&place.path("state")).unwrap();
    let list = history.read(async |store| store.list_jobs(&JobsQuestion::default()).await).unwrap();
    assert_eq!(list.jobs.iter().map(|row| row.job).collect::<Vec<_>>(), [job]);
}

#[test]
fn failed_step_ends_its_job() {
    let place = Place::new();
    let server = place.open();
    let (running, started) = mpsc::sync_channel(1);
    let started = Mutex::new(started);
    let behaviour: Arc<Behaviour> = Arc::new(move |assignment| match assignment.job.spec.name.as_str() {
        "left" => {
            running.send(()).unwrap();
            Some(until_cancelled(assignment))
        }
        "right" => {
            started.lock().unwrap().recv().unwrap();
            Some(Err(failure(Blame::UserProgram)))
        }
        _ => None,
    });
    let job = server.submit(workflow(DIAMOND), Vec::new()).unwrap().job;
    join(node(&server, 2, behaviour));
    let JobOutcome::Failed { failure, .. } = server.wait(job).unwrap() else { panic!("no failure") };
    let (row, steps) = rows(&place, job);
    let state = |name: &str| steps.iter().find(|step| step.name == name).map(|step| step.state);
    assert_eq!((state("left"), state("right")), (Some(JobState::Cancelled), Some(JobState::Failed)));
    assert_eq!((state("first"), state("last")), (Some(JobState::Succeeded), None));
    let failed = steps.iter().find(|step| step.name == "right").unwrap().job;
    // The message of the program is told by the job of the step only.
    assert_eq!(failure.message, format!("the step \"right\" failed: `sailfish show {failed}`"));
    assert_eq!((row.state, row.error), (JobState::Failed, Some(failure.message)));
}

#[test]
fn cancelled_job_stops_its_steps() {
    let place = Place::new();
    let server = place.open();
    let (running, started) = mpsc::sync_channel(2);
    let behaviour: Arc<Behaviour> = Arc::new(move |assignment| {
        running.send(()).unwrap();
        Some(until_cancelled(assignment))
    });
    let job = server.submit(workflow(&[("a", &[]), ("b", &[]), ("c", &[0])]), Vec::new()).unwrap().job;
    let slots = node(&server, 2, behaviour);
    (0..2).for_each(|_| started.recv().unwrap());
    server.cancel(job, "stopped by a test");
    let reason = "stopped by a test".to_string();
    assert_eq!(server.wait(job).unwrap(), JobOutcome::Cancelled { reason });
    join(slots);
    let (row, steps) = rows(&place, job);
    assert_eq!((row.state, row.exit_code), (JobState::Cancelled, Some(130)));
    assert_eq!(steps.iter().map(|step| step.state).collect::<Vec<_>>(), [JobState::Cancelled; 2]);
}

#[test]
fn server_that_ends_interrupts_job_and_steps() {
    let place = Place::new();
    let server = place.open();
    let job = server.submit(workflow(DIAMOND), Vec::new()).unwrap().job;
    server.shutdown();
    let (row, steps) = rows(&place, job);
    assert_eq!((row.state, steps.len()), (JobState::Interrupted, 1));
    assert_eq!(steps[0].state, JobState::Interrupted);
}

#[test]
fn bad_specifications_are_refused_with_the_reason() {
    let place = Place::new();
    let server = place.open();
    let refused = |spec: JobSpec| server.submit(spec, Vec::new()).unwrap_err().to_string();
    let cyclic = refused(workflow(&[("a", &[1]), ("b", &[0])]));
    assert!(cyclic.contains("steps wait for each other: \"a\" after \"b\" after \"a\""), "{cyclic}");
    let unknown = refused(of_kind("workflows", json!({})));
    assert!(unknown.contains("there is no kind of job \"workflows\": the kinds are workflow"), "{unknown}");
    let misspelt = refused(of_kind("workflow", json!({ "step": [] })));
    assert!(misspelt.contains("unknown field `step`"), "{misspelt}");
    let with_more = JobSpec { output: place.path("out"), ..workflow(DIAMOND) };
    assert!(refused(with_more).contains("a name, a kind, shipped and pinned files only"));
    // A step is checked before it begins, and its job fails.
    let long = json!({ "steps": [{ "name": "a", "program": { "words": ["true", "x".repeat(200_000)] } }] });
    let job = server.submit(of_kind("workflow", long), Vec::new()).unwrap().job;
    join(node(&server, 1, honest()));
    let JobOutcome::Failed { failure, .. } = server.wait(job).unwrap() else { panic!("no failure") };
    assert!(failure.message.starts_with("the step \"a\" cannot begin: an argument"), "{}", failure.message);
}
