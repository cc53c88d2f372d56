//! Records of steps that are MapReduce jobs: which facts of a job count, and which do not.

use api::job::workflow::{WorkflowSpec, WorkflowStep};
use api::task::{FileContent, FinishedRun, RecordedRun, RunTask, TaskFile};
use api::{Codec, ContentHash, Function, JobSpec, JsonText, ShippedFile};
use ids::{JobId, StepNumber};
use jobkind::{Kinds, KnownRuns, RanIn, StepWork};
use std::path::PathBuf;
use workflow::Workflow;

const PARTS: [&str; 2] = ["/w/out/part-00000", "/w/out/part-00001"];

fn function(text: &str) -> Option<Function> {
    Function::parse(text).ok()
}

fn job() -> JobSpec {
    JobSpec { mapper: function("builtin:words"), output: "/w/out".into(), ..JobSpec::named("") }
}

fn step(job: JobSpec) -> WorkflowStep {
    let file = |path: &str| TaskFile {
        name: path.trim_start_matches("/w/").into(),
        path: path.into(),
        ..TaskFile::default()
    };
    let program = RunTask {
        directory: "/w".into(),
        inputs: vec![file("/w/text")],
        outputs: PARTS.map(file).to_vec(),
        caching: Some(Box::default()),
        ..RunTask::default()
    };
    WorkflowStep { name: "count".to_string(), program, after: Vec::new(), job: Some(Box::new(job)) }
}

/// Returns the record of a run of a job that wrote these parts, and whether its commit was asked for it.
fn recorded(job: JobSpec, parts: &[&str]) -> (Option<RecordedRun>, bool) {
    let content = |path: &str| FileContent {
        path: path.into(),
        real_path: None,
        sha256: Some(ContentHash([1; 32])),
        bytes: 1,
        stamp: None,
        made_by: None,
        stored: None,
        compression: None,
    };
    let environment = job.own_files().map(|file| content(file.to_str().expect("a text"))).collect();
    let run = FinishedRun {
        environment,
        inputs: vec![content("/w/text")],
        outputs: parts.iter().map(|part| content(part)).collect(),
        ..FinishedRun::default()
    };
    let spec = JsonText::of(&WorkflowSpec { steps: vec![step(job)], only_judges: false });
    let spec = spec.expect("a specification can be written");
    let plan = Kinds::default().with::<Workflow>().read("workflow", &spec).expect("it can run");
    let StepWork::MapReduce(planned) = plan.first(jobkind::NodeSize::default())[0].work.clone() else {
        panic!("the step is a job")
    };
    let memory = plan.memory().expect("workflows remember runs");
    (
        memory.recorded(StepNumber(0), run, RanIn { known: &KnownRuns::default(), job: JobId(7) }),
        planned.recording.is_some(),
    )
}

fn key(change: impl FnOnce(&mut JobSpec)) -> (ContentHash, ContentHash) {
    let mut job = job();
    change(&mut job);
    let (recorded, is_asked) = recorded(job, &PARTS);
    let recorded = recorded.expect("its files are those of the step");
    assert!(is_asked);
    (recorded.words, recorded.env)
}

fn shipped(byte: u8) -> Vec<ShippedFile> {
    let path = PathBuf::from("/w/map.sh");
    vec![ShippedFile { path, sha256: ContentHash([byte; 32]), bytes: 1, executable: true }]
}

#[test]
fn sizes_of_jobs_do_not_count() {
    let same = key(|_| ());
    assert_eq!(key(|job| (job.memory_bytes, job.slots) = (1 << 30, 7)), same);
    assert_eq!(key(|job| job.codec = Codec::Lz4), same);
    assert_eq!(key(|job| job.layout.split_bytes = 99), same);
    assert_eq!(key(|job| job.speculation = false), same);
}

#[test]
fn functions_and_files_of_jobs_count() {
    let changes: [fn(&mut JobSpec); 8] = [
        |_| (),
        |job| job.mapper = function("sh -c cat"),
        |job| job.reducer = function("builtin:sum"),
        |job| job.combiner = function("builtin:sum"),
        |job| job.files = vec!["/w/words".into()],
        |job| job.shipped = shipped(1),
        |job| job.shipped = shipped(2),
        |job| job.env = vec![("A".to_string(), "1".to_string())],
    ];
    let keys: Vec<_> = changes.into_iter().map(key).collect();
    for (index, one) in keys.iter().enumerate() {
        assert!(!keys[..index].contains(one), "change {index}");
    }
}

#[test]
fn runs_with_other_files_are_not_recorded() {
    assert_eq!(recorded(job(), &PARTS[..1]).0, None);
    // Nobody compares the contents of an environment file.
    let with_env_file = JobSpec { env_file: Some("/w/env".into()), ..job() };
    assert!(!recorded(with_env_file, &PARTS).1);
}
