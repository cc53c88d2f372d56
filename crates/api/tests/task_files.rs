//! Declared files of programs.

use api::job::pipeline::PipelineEdge;
use api::task::{PIPELINE_PROGRAMS_MAX, RunTask, TASK_FILES_MAX, TASK_STREAMS_MAX, TaskFile};

fn file(name: &str, path: &str) -> TaskFile {
    TaskFile { name: name.into(), path: path.into(), ..TaskFile::default() }
}

#[test]
fn declared_files_have_places_of_their_own() {
    let error = |files: &[&str], inputs: &[TaskFile], outputs: &[TaskFile]| {
        let task = RunTask {
            words: vec!["true".into()],
            files: files.iter().map(Into::into).collect(),
            inputs: inputs.to_vec(),
            outputs: outputs.to_vec(),
            ..RunTask::default()
        };
        task.check_files().err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(error(&["/z/c"], &[file("a", "/x")], &[file("d/b", "/y"), file("d/e", "/z")]), "");
    assert!(error(&[], &[file("a", "/x")], &[file("a", "/y")]).contains("\"a\" is declared twice"));
    assert!(error(&["/z/c"], &[file("c", "/x")], &[]).contains("\"c\""));
    // A link to a directory of the job would lead out of its own one.
    assert!(error(&["/z/c"], &[file("c/d/e", "/x")], &[]).contains("\"c/d/e\""));
    assert!(error(&[], &[file("a", "/x"), file("a/b", "/y")], &[]).contains("\"a/b\""));
    assert!(error(&[], &[], &[file("a", "/x"), file("b", "/x")]).contains("path \"/x\""));
    assert!(error(&[], &[file("../a", "/x")], &[]).contains("\"../a\""));
    assert!(error(&[], &[], &[file("a", "y")]).contains("absolute path"));
    let many: Vec<TaskFile> = (0..=TASK_FILES_MAX).map(|each| file(&format!("{each}"), "/x")).collect();
    assert!(error(&[], &many, &[]).contains("at most 10000"));
    let idle = RunTask { outputs: vec![file("a", "/x")], ..RunTask::default() };
    assert!(idle.check_files().is_err());
}

/// Returns a program of a pipeline with files whose names are their paths.
fn program(inputs: &[&str], outputs: &[&str]) -> RunTask {
    let files = |paths: &[&str]| paths.iter().map(|path| file(&path[1..], path)).collect();
    RunTask {
        words: vec!["cat".into()],
        inputs: files(inputs),
        outputs: files(outputs),
        ..RunTask::default()
    }
}

fn stdin(program: RunTask, name: &str) -> RunTask {
    RunTask { stdin: Some(name.into()), ..program }
}

fn stdout(program: RunTask, name: &str) -> RunTask {
    RunTask { stdout: Some(name.into()), ..program }
}

#[test]
fn edges_of_a_pipeline_stream_between_standard_streams() {
    let first = stdout(program(&["/text"], &["/words", "/log"]), "words");
    let second = stdin(program(&["/words"], &["/counts"]), "words");
    let third = program(&["/words", "/log"], &[]);
    let task = RunTask { pipeline: vec![second, third], cores: 3, ..first };
    assert_eq!(task.check_files(), Ok(()));
    assert_eq!(task.slots(), 5);
    let edge = |output, reader, input, streams| PipelineEdge { writer: 0, output, reader, input, streams };
    assert_eq!(task.edges(), [edge(0, 1, 0, true), edge(0, 2, 0, false), edge(1, 2, 1, false)]);
    assert_eq!(stdout(program(&["/a"], &["/b"]), "b").edges(), []);
}

/// Marks files with these names as streams.
fn streams(mut program: RunTask, names: &[&str]) -> RunTask {
    for file in program.inputs.iter_mut().chain(&mut program.outputs) {
        file.stream = names.iter().any(|name| file.name.as_os_str() == *name);
    }
    program
}

#[test]
fn files_stream_where_both_ends_do() {
    let writer = || streams(stdout(program(&[], &["/a", "/b", "/c"]), "a"), &["b"]);
    let reader = |names: &[&str]| streams(program(&["/a", "/b", "/c"], &[]), names);
    let streaming = |first: RunTask, others: Vec<RunTask>| -> Vec<bool> {
        let task = RunTask { pipeline: others, ..first };
        assert_eq!(task.check_files(), Ok(()));
        task.edges().iter().map(|edge| edge.streams).collect()
    };
    assert_eq!(streaming(writer(), vec![reader(&["a", "b", "c"])]), [true, true, false]);
    assert_eq!(streaming(writer(), vec![reader(&[])]), [false; 3]);
    assert_eq!(streaming(writer(), vec![stdin(reader(&["a"]), "b")]), [true, true, false]);
    let later = RunTask { phase: 1, ..reader(&["a", "b"]) };
    assert_eq!(streaming(writer(), vec![later.clone()]), [false; 3]);
    // A reader of the finished file beside one of the stream: no pipe may have its name.
    let beside = vec![reader(&["a", "b"]), reader(&["a"])];
    assert_eq!(streaming(writer(), beside), [true, false, false, true, false, false]);
    let after = vec![reader(&["a", "b"]), RunTask { phase: 1, ..reader(&["a"]) }];
    assert_eq!(streaming(writer(), after), [true, true, false, false, false, false]);
}

#[test]
fn streams_by_name_are_plain_declared_files() {
    let error =
        |program: RunTask| program.check_files().err().map(|error| error.to_string()).unwrap_or_default();
    let named = || streams(program(&["/a"], &["/b"]), &["a", "b"]);
    assert_eq!(error(named()), "");
    assert!(error(stdin(named(), "a")).contains("\"a\" cannot be a stream: it is the standard input"));
    assert!(error(stdout(named(), "b")).contains("streams anyway; leave it out"));
    assert!(error(RunTask { in_place: true, ..named() }).contains("in place"));
    let mut view = named();
    (view.inputs[0].path, view.inputs[0].view) = ("files:a".into(), true);
    assert!(error(view).contains("a view"));
    let paths: Vec<String> = (0..=TASK_STREAMS_MAX).map(|each| format!("/{each}")).collect();
    let mut many = program(&paths.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
    many.inputs.iter_mut().for_each(|input| input.stream = true);
    assert!(error(many.clone()).contains("at most 64"));
    many.inputs.truncate(TASK_STREAMS_MAX);
    let many = RunTask { pipeline: vec![many.clone(); 4], ..many };
    assert!(error(many).contains("320 files are streams: give at most 256"));
}

#[test]
fn phases_share_slots_and_memory() {
    let first = RunTask { cores: 2, memory_bytes: 9, ..stdout(program(&[], &["/a"]), "a") };
    let reader = |phase| RunTask { phase, ..stdin(program(&["/a"], &["/b"]), "a") };
    let task = |others: Vec<RunTask>| RunTask { pipeline: others, file_memory_bytes: 9, ..first.clone() };
    let phased = task(vec![reader(1)]);
    assert_eq!((phased.check_files(), phased.slots(), phased.phases()), (Ok(()), 2, vec![0..1, 1..2]));
    assert!(!phased.edges()[0].streams, "the reader starts later");
    let together = task(vec![reader(0)]);
    assert_eq!((together.slots(), together.phases().len(), together.phases()[0].clone()), (3, 1, 0..2));
    let error = |task: RunTask| task.check_files().err().map(|error| error.to_string()).unwrap_or_default();
    assert!(error(task(vec![reader(2)])).contains("do not count from 0"));
    assert!(error(RunTask { phase: 1, ..phased.clone() }).contains("do not count from 0"));
    assert!(error(RunTask { file_memory_bytes: 10, ..phased }).contains("10 bytes of memory"));
    assert!(error(RunTask { phase: 1, ..first.clone() }).contains("no pipeline"));
    let late = RunTask { phase: 1, ..program(&["/c"], &["/d"]) };
    let early = RunTask { inputs: program(&["/d"], &[]).inputs, ..task(vec![late]) };
    assert!(error(early).contains("wait for each other"));
}

#[test]
fn bad_pipelines_get_a_sentence() {
    let error = |first: RunTask, others: Vec<RunTask>| {
        let task = RunTask { pipeline: others, ..first };
        task.check_files().err().map(|error| error.to_string()).unwrap_or_default()
    };
    let good = || program(&["/b"], &["/c"]);
    assert_eq!(error(program(&["/a"], &["/b"]), vec![good()]), "");
    assert!(error(program(&["/c"], &["/b"]), vec![good()]).contains("wait for each other"));
    assert!(error(program(&[], &["/c"]), vec![good()]).contains("two outputs have the path \"/c\""));
    assert!(error(stdin(program(&["/a"], &[]), "b"), vec![]).contains("standard input \"b\""));
    assert!(error(program(&[], &[]), vec![stdout(good(), "b")]).contains("standard output \"b\""));
    let nested = RunTask { pipeline: vec![good()], ..program(&[], &["/d"]) };
    assert!(error(program(&[], &[]), vec![nested]).contains("a pipeline of its own"));
    let claims = RunTask { memory_bytes: 1, ..good() };
    assert!(error(program(&[], &[]), vec![claims]).contains("\"cat\" of a pipeline has a memory claim"));
    let many = vec![program(&[], &[]); PIPELINE_PROGRAMS_MAX];
    assert!(error(program(&[], &[]), many).contains("at most 256"));
    assert!(error(RunTask::default(), vec![good()]).contains("has no words"));
}
