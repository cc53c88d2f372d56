use super::{Plan, plan};
use crate::front_end::{FrontEnd, StoredInputs, StoredShape, StoredUse};
use crate::options::{FunctionText, JobOptions};
use api::{Codec, Function, InputFile, Partitioning, StoredContent};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// A machine with 128 MiB for a job and two cores.
struct Quiet;

impl FrontEnd for Quiet {
    fn resources(&self, memory_bytes: Option<u64>, slots: Option<u32>) -> anyhow::Result<(u64, u32)> {
        Ok((memory_bytes.unwrap_or(128 << 20), slots.unwrap_or(2)))
    }

    fn check_replaced(&self, _output: &Path) -> anyhow::Result<()> {
        Ok(())
    }

    /// The programs `bin/map.py` and `words` are stored, in version 7.
    fn stored_inputs(&self, _: &Path, name: &str, wanted: StoredUse) -> anyhow::Result<StoredInputs> {
        let path = match name {
            "files:bin/map.py" | "files:words" => format!("{name}@7"),
            "files:bin/map.py@3" => name.to_string(),
            _ => anyhow::bail!("{name} is stored nowhere"),
        };
        anyhow::ensure!(wanted == StoredUse::OneFile, "{name} is no input");
        let file = InputFile {
            path: path.into(),
            size_bytes: 0,
            mtime_ns: 0,
            compression: None,
            named: 0,
            object: None,
            stage_file: None,
            stored: Some(StoredContent::default()),
            content: None,
            seen: None,
        };
        Ok(StoredInputs { files: vec![file], pin: Some(Box::new(())) })
    }

    fn seen_inputs(&self, path: &str) -> anyhow::Result<crate::SeenInputs> {
        anyhow::bail!("no node sees {path}")
    }

    fn stored_output(&self, _: &Path, name: &str, _: StoredShape) -> anyhow::Result<Option<PathBuf>> {
        anyhow::bail!("{name} cannot be stored")
    }

    fn warn(&self, _warning: &str) {}
}

/// Makes a directory with an input, an executable and a file that is not executable.
fn place() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("in/sub")).unwrap();
    fs::write(root.path().join("in/a.txt"), "one two\n").unwrap();
    fs::write(root.path().join("tool"), "#!/bin/sh\ncat\n").unwrap();
    fs::set_permissions(root.path().join("tool"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(root.path().join("plain"), "text").unwrap();
    root
}

fn options(root: &Path) -> JobOptions {
    JobOptions {
        start_dir: root.to_path_buf(),
        input: vec![root.join("in").to_str().unwrap().to_string()],
        output: Some("out".into()),
        state: Some(root.join("state")),
        memory: Some("64M".into()),
        slots: Some(2),
        ..JobOptions::default()
    }
}

fn function(root: &Path, text: &str) -> Option<FunctionText> {
    Some(FunctionText { text: text.to_string(), dir: root.to_path_buf() })
}

fn check(change: impl FnOnce(&Path, &mut JobOptions)) -> Plan {
    let root = place();
    let mut options = options(root.path());
    change(root.path(), &mut options);
    plan(options, &Quiet).unwrap()
}

fn check_refused(expected: &str, change: impl FnOnce(&Path, &mut JobOptions)) {
    let root = place();
    let mut options = options(root.path());
    change(root.path(), &mut options);
    let error = format!("{:#}", plan(options, &Quiet).unwrap_err());
    assert!(error.contains(expected), "expected {expected:?}, got {error:?}");
}

#[test]
fn defaults_are_filled_in() {
    let plan = check(|_, _| {});
    let spec = &plan.spec;
    assert_eq!((spec.name.as_str(), spec.slots, spec.memory_bytes), ("out", 2, 64 << 20));
    assert_eq!((spec.partitioning, spec.codec, spec.sync), (Partitioning::Hash, Codec::Lz4, true));
    assert_eq!(spec.disks, [plan.state_dir.join("disk")]);
    assert_eq!((spec.inputs.len(), plan.splits.len()), (1, 1));
    assert!(spec.output.is_absolute() && spec.output.ends_with("out"));
    assert_eq!(spec.layout.combine_window_bytes, 0);
    assert!(!plan.state_dir.exists(), "checking creates nothing");
}

#[test]
fn choices_are_taken() {
    let plan = check(|root, options| {
        options.reducer = function(root, "builtin:sum");
        options.total_order = true;
        options.no_sync = true;
        options.disk = vec!["in".into(), root.join("in/sub").to_str().unwrap().into()];
        options.file = vec!["plain".into()];
        options.slots = None;
        options.memory = None;
    });
    let spec = &plan.spec;
    assert_eq!((spec.partitioning, spec.sync), (Partitioning::Range, false));
    assert!(spec.layout.combine_window_bytes > 0, "a built-in reducer combines by itself");
    assert!(spec.disks.len() == 2 && spec.disks.iter().all(|disk| disk.is_absolute()));
    assert!(spec.files[0].ends_with("plain") && spec.files[0].is_absolute());
    assert!(spec.slots >= 1 && spec.memory_bytes >= 64 << 20);
}

#[test]
fn programs_count_from_where_they_are_written() {
    let words = |plan: Plan| match plan.spec.mapper {
        Some(Function::Command { words }) => words,
        other => panic!("{other:?}"),
    };
    let from_path = words(check(|root, options| options.mapper = function(root, "cat -")));
    assert_eq!(from_path, ["cat", "-"]);
    let relative = words(check(|root, options| options.mapper = function(root, "./tool 'a b'")));
    assert!(Path::new(&relative[0]).is_absolute() && relative[1] == "a b", "{relative:?}");
    let shipped = words(check(|root, options| {
        options.file = vec!["tool".into()];
        options.mapper = function(root, "./tool");
    }));
    assert_eq!(shipped, ["./tool"]);
}

#[test]
fn stored_programs_are_pinned() {
    let plan = check(|root, options| {
        options.in_cluster = true;
        options.mapper = function(root, "files:bin/map.py -w files:words");
        options.reducer = function(root, "python3 words");
        options.file = vec!["tool".into(), "files:words".into()];
    });
    let spec = &plan.spec;
    let command = |words: &[&str]| {
        Some(Function::Command { words: words.iter().map(|word| word.to_string()).collect() })
    };
    assert_eq!(spec.mapper, command(&["files:bin/map.py@7", "-w", "files:words@7"]));
    assert_eq!(spec.reducer, command(&["python3", "words"]));
    assert!(spec.files[0].is_absolute() && spec.files[1] == Path::new("files:words@7"));
    let pinned: Vec<&Path> = spec.pinned.iter().map(|file| file.path.as_path()).collect();
    assert_eq!(pinned, [Path::new("files:bin/map.py@7"), Path::new("files:words@7")]);
    assert_eq!(plan.held.stored_pins.len(), 2);
    // By its name beside the other files, and an older version.
    let plan = check(|root, options| {
        options.mapper = function(root, "./map.py");
        options.file = vec!["files:bin/map.py@3".into()];
    });
    assert_eq!(plan.spec.mapper, command(&["./map.py"]));
    assert_eq!(plan.spec.files, [Path::new("files:bin/map.py@3")]);
    check_refused("--reducer files:x: files:x is stored nowhere", |root, each| {
        each.reducer = function(root, "sh files:x")
    });
    check_refused("--file files:y: files:y is stored nowhere", |_, each| each.file = vec!["files:y".into()]);
    check_refused("that name already", |_, each| {
        each.file = vec!["files:bin/map.py".into(), "files:lib/map.py@2".into()]
    });
}

#[test]
fn bad_functions_are_refused() {
    let mapper = |expected, text| check_refused(expected, |root, each| each.mapper = function(root, text));
    let reducer = |expected, text| check_refused(expected, |root, each| each.reducer = function(root, text));
    mapper("--mapper", "builtin:nothing");
    mapper("regular expression", "builtin:grep:(");
    mapper("not found", "no-such-program-anywhere");
    mapper("not executable", "./plain");
    mapper("cannot be split", "cat 'x");
    reducer("--reducer", "builtin:words");
    reducer("empty", " ");
    check_refused("--combiner", |root, each| {
        each.combiner = function(root, "builtin:nothing");
        each.reducer = function(root, "builtin:sum");
    });
}

#[test]
fn conflicts_are_refused() {
    check_refused("no input", |_, each| each.input.clear());
    check_refused("no output", |_, each| each.output = None);
    check_refused("--total-order has no meaning", |_, each| (each.map_only, each.total_order) = (true, true));
    check_refused("--reducer has no meaning", |root, each| {
        each.map_only = true;
        each.reducer = function(root, "builtin:sum");
    });
    check_refused("--combiner has no meaning", |root, each| {
        each.map_only = true;
        each.combiner = function(root, "builtin:sum");
    });
    check_refused("without --reducer", |root, each| each.combiner = function(root, "builtin:sum"));
    check_refused("--memory", |_, each| each.memory = Some("63M".into()));
    check_refused("not a size", |_, each| each.memory = Some("lots".into()));
    check_refused("--slots 0", |_, each| each.slots = Some(0));
    check_refused("--slots 1025", |_, each| each.slots = Some(1025));
    check_refused("--env", |_, each| each.env = vec![(String::new(), "x".into())]);
}

#[test]
fn bad_paths_are_refused() {
    check_refused("does not exist", |root, each| {
        each.input = vec![root.join("absent").display().to_string()]
    });
    check_refused("no input matches", |root, each| {
        each.input = vec![root.join("*.csv").display().to_string()]
    });
    check_refused("cannot be used", |_, each| each.output = Some("absent/../out".into()));
    check_refused("is not a directory", |_, each| each.output = Some("plain/out".into()));
    check_refused("already: choose another or add --overwrite", |root, each| {
        fs::create_dir(root.join("out")).unwrap();
        each.overwrite = false;
    });
    check_refused("not a directory", |_, each| {
        each.output = Some("plain".into());
        each.overwrite = true;
    });
    check_refused("symbolic link", |root, each| {
        symlink("in", root.join("link")).unwrap();
        each.output = Some("link".into());
        each.overwrite = true;
    });
    check_refused("of its own", |_, each| each.output = Some("in/..".into()));
    check_refused("lies inside --input", |_, each| each.output = Some("in/out".into()));
    check_refused("lies inside --input", |_, each| each.output = Some("in/sub/out".into()));
    check_refused("lies inside --output", |root, each| {
        each.input = vec![root.join("in/a.txt").display().to_string()];
        each.output = Some("in".into());
        each.overwrite = true;
    });
    check_refused("--disk absent/disk", |_, each| each.disk = vec!["absent/disk".into()]);
    check_refused("not a directory", |_, each| each.disk = vec!["plain".into()]);
    check_refused("given twice", |_, each| each.disk = vec!["in".into(), "./in".into()]);
    check_refused("--file absent", |_, each| each.file = vec!["absent".into()]);
    check_refused("that name already", |_, each| each.file = vec!["plain".into(), "./plain".into()]);
}
