use super::Roots;
use api::task::{RunTask, TaskFile};
use api::{
    ContentHash, FileLink, FlowStage, Function, InputFile, JobKind, JobSpec, MapReduce, ObjectPin,
    PinnedFile, ShippedFile, StageFile, Streaming,
};
use ids::{JobId, TaskIndex};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// `data/` is a root, `other/` is not; links lead from the one to the other.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { dir: tempfile::tempdir().unwrap() };
        for name in ["data/in", "data/own", "other"] {
            std::fs::create_dir_all(place.path(name)).unwrap();
        }
        for name in ["data/in/text", "data/own/text", "other/text"] {
            std::fs::write(place.path(name), "text").unwrap();
        }
        symlink(place.path("other"), place.path("data/out-there")).unwrap();
        symlink("../../other/text", place.path("data/in/link")).unwrap();
        symlink("text", place.path("data/in/near")).unwrap();
        symlink(place.path("other/later"), place.path("data/nowhere")).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn roots(&self) -> Roots {
        let texts = [self.path("data").display().to_string(), "s3://logs/2026".to_string()];
        Roots::of_operator(&texts).unwrap()
    }
}

fn file(path: PathBuf, object: Option<ObjectPin>) -> InputFile {
    let compression = None;
    InputFile {
        path,
        size_bytes: 1,
        mtime_ns: 1,
        compression,
        named: 0,
        object,
        stage_file: None,
        stored: None,
        content: None,
        seen: None,
    }
}

fn command(word: &str) -> Option<Function> {
    Some(Function::Command { words: vec![word.to_string(), "/etc/passwd".to_string()] })
}

fn pinned(name: &str) -> PinnedFile {
    PinnedFile { path: name.into(), ..PinnedFile::default() }
}

fn shipped(path: &Path) -> ShippedFile {
    ShippedFile { path: path.to_path_buf(), sha256: ContentHash([0; 32]), bytes: 1, executable: true }
}

#[test]
fn paths_are_followed_to_where_they_lead() {
    let place = Place::new();
    let roots = place.roots();
    for (name, inside) in [
        ("data", true),
        ("data/in/text", true),
        ("data/in/near", true),
        ("data/not/there/yet", true),
        ("data/in/../in/text", true),
        ("other/text", false),
        ("data/../other/text", false),
        ("data/in/link", false),
        ("data/out-there", false),
        ("data/out-there/text", false),
        ("data/out-there/not/there", false),
        ("data/nowhere", false),
        ("data/nowhere/x", false),
        ("data/not/../there", false),
        ("database", false),
    ] {
        let checked = roots.check_path("input", &place.path(name));
        assert_eq!(checked.is_ok(), inside, "{name}: {checked:?}");
    }
    let error = roots.check_path("input", &place.path("data/in/link")).unwrap_err().to_string();
    for part in ["input", "data/in/link", "which leads to", "other/text", "s3://logs/2026", "--allow-root"] {
        assert!(error.contains(part), "{error}");
    }
    let error = roots.check_path("input", Path::new("data/in/text")).unwrap_err().to_string();
    assert!(error.contains("not an absolute path"), "{error}");
}

#[test]
fn nothing_is_named_where_there_is_no_root() {
    let place = Place::new();
    let roots = Roots::default();
    let error = roots.check_path("input", &place.path("data/in/text")).unwrap_err().to_string();
    assert!(error.contains("no root for jobs is given"), "{error}");
    assert!(roots.check_output(Path::new("s3://logs/out")).is_err());
    let task = |words: &[&str]| RunTask {
        words: words.iter().map(|word| word.to_string()).collect(),
        directory: place.path("data"),
        files: vec![place.path("data/in/text")],
        shipped: vec![shipped(&place.path("data/in/text"))],
        ..RunTask::default()
    };
    // All that such a job needs has travelled, or is looked up on the node.
    roots.check_tasks(&[task(&["true"]), task(&["./text"]), task(&[])]).unwrap();
    assert!(roots.check_task(&task(&["/bin/true"])).is_err());
    assert!(roots.check_task(&RunTask { files: Vec::new(), ..task(&["true"]) }).is_err());
}

#[test]
fn files_of_the_server_are_closed_to_jobs() {
    let place = Place::new();
    let roots = place.roots().without(&[place.path("data/own")]);
    roots.check_path("input", &place.path("data/in/text")).unwrap();
    let error = roots.check_path("input", &place.path("data/own/text")).unwrap_err().to_string();
    assert!(error.contains("belongs to the server"), "{error}");
    assert!(roots.check_output(&place.path("data/own")).is_err());
    assert!(roots.check_output(&place.path("data/own/out")).is_err());
    roots.check_output(&place.path("data/out")).unwrap();
}

#[test]
fn outputs_lie_below_a_root_with_their_neighbours() {
    let place = Place::new();
    let roots = place.roots();
    for (output, inside) in [
        (place.path("data/out"), true),
        (place.path("data/a/b/out"), true),
        // The staging directory would lie beside it, outside.
        (place.path("data"), false),
        (place.path("other/out"), false),
        (place.path("data/out-there/out"), false),
        ("s3://logs/2026/out".into(), true),
        ("s3://logs/2026".into(), true),
        ("s3://logs/2025/out".into(), false),
        ("s3://logs/20261".into(), false),
        ("s3://other/2026".into(), false),
        ("/".into(), false),
    ] {
        let checked = roots.check_output(&output);
        assert_eq!(checked.is_ok(), inside, "{}: {checked:?}", output.display());
    }
}

#[test]
fn everything_that_a_job_names_is_looked_at() {
    let place = Place::new();
    let roots = place.roots();
    let (inside, outside) = (place.path("data/in/text"), place.path("other/text"));
    let good = JobSpec {
        inputs: vec![file(inside.clone(), None), file("s3://logs/2026/a".into(), Some(ObjectPin::default()))],
        output: place.path("data/out"),
        mapper: command("cat"),
        ..JobSpec::named("job")
    };
    let check = |what: &str, spec: JobSpec, expected: bool| {
        let checked = roots.check_job(&spec);
        assert_eq!(checked.is_ok(), expected, "{what}: {checked:?}");
    };
    let word = outside.display().to_string();
    check("good", good.clone(), true);
    check("input", JobSpec { inputs: vec![file(outside.clone(), None)], ..good.clone() }, false);
    // A URL that is opened as a file is one.
    check("url", JobSpec { inputs: vec![file("s3://logs/2026/a".into(), None)], ..good.clone() }, false);
    let object = vec![file("s3://logs/2027/a".into(), Some(ObjectPin::default()))];
    check("object", JobSpec { inputs: object, ..good.clone() }, false);
    check("output", JobSpec { output: place.path("other/out"), ..good.clone() }, false);
    check("file", JobSpec { files: vec![outside.clone()], ..good.clone() }, false);
    check("program", JobSpec { mapper: command(&word), ..good.clone() }, false);
    check("combiner", JobSpec { combiner: command(&word), ..good.clone() }, false);
    check("reducer", JobSpec { reducer: command(&word), ..good.clone() }, false);
    check("relative", JobSpec { reducer: command("../other/text"), ..good.clone() }, false);
    // Between stages nothing has a place on a file system.
    let feeds = Some(FlowStage { feeds: true, ..FlowStage::default() });
    let between = StageFile { job: JobId(1), task: TaskIndex(0), crc32c: 0 };
    let part = InputFile { stage_file: Some(between), ..file("stage".into(), None) };
    let stage = JobSpec { inputs: vec![part], output: PathBuf::new(), stage: feeds, ..good.clone() };
    check("stage", stage.clone(), true);
    check("input of a stage", JobSpec { inputs: vec![file(outside.clone(), None)], ..stage }, false);
    let link = |name: &str| FileLink { name: name.to_string(), path: outside.clone() };
    let streaming = Some(Streaming { links: vec![link("run")], ..Streaming::default() });
    check("link", JobSpec { streaming: streaming.clone(), ..good.clone() }, false);
    // What travelled is not opened there.
    let travelled = JobSpec {
        inputs: vec![file(outside.clone(), None)],
        files: vec![outside.clone()],
        mapper: command(&word),
        reducer: command("./run"),
        streaming,
        shipped: vec![shipped(&outside)],
        ..good
    };
    check("travelled", travelled, true);
}

#[test]
fn stored_files_are_in_another_place() {
    let place = Place::new();
    let roots = place.roots();
    let check = |what: &str, spec: JobSpec, expected: bool| {
        let checked = roots.check_job(&spec);
        assert_eq!(checked.is_ok(), expected, "{what}: {checked:?}");
    };
    let stored = JobSpec {
        files: vec!["files:bin/run@3".into()],
        mapper: command("files:bin/map@3"),
        reducer: command("./run"),
        pinned: vec![pinned("files:bin/run@3"), pinned("files:bin/map@3")],
        output: place.path("data/out"),
        ..JobSpec::named("job")
    };
    check("stored", stored.clone(), true);
    // Only those that the server has checked.
    check("other file", JobSpec { pinned: vec![pinned("files:bin/map@3")], ..stored.clone() }, false);
    check("other program", JobSpec { pinned: vec![pinned("files:bin/run@3")], ..stored.clone() }, false);
    // A mapper that runs no more need not be there.
    let again = JobKind::from(MapReduce::ReduceAgain { source: JobId(1) });
    check("reduces", JobSpec { kind: again, pinned: vec![pinned("files:bin/run@3")], ..stored }, true);
    let task = |pinned| RunTask {
        words: vec!["files:bin/run@3".to_string()],
        files: vec!["files:bin/run@3".into()],
        pinned,
        ..RunTask::default()
    };
    roots.check_tasks(&[task(vec![pinned("files:bin/run@3")])]).unwrap();
    assert!(roots.check_tasks(&[task(vec![pinned("files:bin/run@3")]), task(Vec::new())]).is_err());
}

#[test]
fn job_of_one_task_runs_below_roots() {
    let place = Place::new();
    let roots = place.roots();
    let task = |word: &str, directory: &str| RunTask {
        words: vec![word.to_string()],
        directory: place.path(directory),
        ..RunTask::default()
    };
    for (word, directory, inside) in [
        ("true", "data", true),
        ("in/text", "data", true),
        ("true", "other", false),
        ("true", "data/out-there", false),
        ("../other/text", "data", false),
        ("/bin/true", "data", false),
        ("./out-there/text", "data", false),
    ] {
        let checked = roots.check_tasks(&[task("true", "data"), task(word, directory)]);
        assert_eq!(checked.is_ok(), inside, "{word} in {directory}: {checked:?}");
        let spec = JobSpec::of_one_task("job".to_string(), task(word, directory));
        assert_eq!(roots.check_job(&spec).is_ok(), inside, "{word} in {directory}");
    }
}

#[test]
fn declared_files_lie_below_roots() {
    let place = Place::new();
    let roots = place.roots();
    let file = |name: &str| TaskFile { name: "x".into(), path: place.path(name), ..TaskFile::default() };
    for (input, output, inside) in [
        ("data/in/text", "data/new/dir/out", true),
        ("data/in/text", "data/in/text", true),
        ("other/text", "data/out", false),
        ("data/in/link", "data/out", false),
        ("data/in/text", "other/out", false),
        ("data/in/text", "data/out-there/out", false),
        ("data/in/text", "data/nowhere/out", false),
    ] {
        // Such a program runs in a directory of its own.
        let task = RunTask {
            words: vec!["true".to_string()],
            directory: place.path("other"),
            inputs: vec![file(input)],
            outputs: vec![file(output)],
            ..RunTask::default()
        };
        let checked = roots.check_tasks(&[task]);
        assert_eq!(checked.is_ok(), inside, "{input} to {output}: {checked:?}");
    }
}

#[test]
fn roots_are_directories_or_prefixes() {
    let place = Place::new();
    let refused = |root: &str, part: &str| {
        let error = Roots::of_operator(&[root.to_string()]).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    refused("data", "not an absolute path");
    refused(&place.path("none").display().to_string(), "cannot be used");
    refused(&place.path("other/text").display().to_string(), "not a directory");
    refused("gs://bucket/x", "gs:");
    // On another machine the server's directory may be missing.
    let roots = Roots::of_server(&["/not/on/this/machine".to_string(), "s3://b".to_string()]);
    assert!(roots.check_path("input", Path::new("/not/on/this/machine/x")).is_err());
    roots.check_output(Path::new("s3://b/out")).unwrap();
    // A root may be a link itself.
    let linked = Roots::of_operator(&[place.path("data/out-there").display().to_string()]).unwrap();
    linked.check_path("input", &place.path("other/text")).unwrap();
}

#[test]
fn root_of_one_user_is_closed_to_others() {
    let place = Place::new();
    let dir = place.dir.path().join("lake/dt=2026");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("text"), "text").unwrap();
    let own = format!("ann={}", place.path("other").display());
    let texts = [own.clone(), dir.display().to_string(), "bob=s3://logs/bob".to_string()];
    let roots = Roots::of_operator(&texts).unwrap();
    assert_eq!(roots.texts(), texts);
    for (user, path, expected) in [
        ("ann", place.path("other/text"), true),
        ("bob", place.path("other/text"), false),
        ("", place.path("other/text"), false),
        ("bob", dir.join("text"), true),
        ("", dir.join("text"), true),
    ] {
        for roots in [&roots, &Roots::of_server(&texts)] {
            assert_eq!(roots.for_user(user).check_path("file", &path).is_ok(), expected, "{user} {path:?}");
        }
    }
    let object = Path::new("s3://logs/bob/x");
    assert!(roots.for_user("bob").check_output(object).is_ok());
    let refused = roots.for_user("eve").check_output(object).unwrap_err().to_string();
    assert!(!refused.contains("ann") && !refused.contains("bob="), "{refused}");
    assert!(Roots::of_operator(&["ann=data".to_string()]).is_err());
    assert!(Roots::of_operator(&["=/tmp".to_string()]).is_err());
}
