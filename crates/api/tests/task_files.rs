//! Declared files of programs.

use api::task::{RunTask, TASK_FILES_MAX, TaskFile};

fn file(name: &str, path: &str) -> TaskFile {
    TaskFile { name: name.into(), path: path.into() }
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
