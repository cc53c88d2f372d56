//! Inputs and outputs on an object store: a real server of its protocol, the real binary.

use blackbox::{
    CLUSTER_MEMORY, Cluster, Finished, ObjectServer, Questions, Running, Sandbox, Verdict, corpus, gzip,
    sorted_lines,
};
use std::path::Path;
use std::process::Command;

const WORDS: &[&str] = &["--mapper", "builtin:words", "--reducer", "builtin:sum"];
/// Several splits of an input of some megabytes.
const SIZES: &[&str] = &["--memory", "64M", "--slots", "2"];

/// A server with a bucket `lake`, and a sandbox whose processes know it.
fn world() -> (ObjectServer, Sandbox) {
    let server = ObjectServer::start("lake");
    let sandbox = Sandbox::with_environment(server.environment());
    (server, sandbox)
}

/// Some text as two objects, and as two files.
fn write_text(server: &ObjectServer, sandbox: &Sandbox) {
    let text = corpus(3 << 20);
    let (first, second) = text.split_at(text.len() / 3);
    for (name, bytes) in [("a.txt", first), ("b.txt", second)] {
        server.write(&format!("lake/in/{name}"), bytes);
        sandbox.write(&format!("in/{name}"), bytes);
    }
    // Never data.
    server.write("lake/in/_SUCCESS", "not a word of this");
}

/// `sailfish run` of a word count.
fn count(sandbox: &Sandbox, input: &str, output: &str, more: &[&str]) -> Command {
    sandbox.job(&[&["--input", input, "--output", output], WORDS, SIZES, more].concat())
}

#[track_caller]
fn run(mut command: Command) -> Finished {
    Running::start(&mut command).wait()
}

/// The parts of an output, by name.
fn parts(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let names = entries.map(|entry| entry.expect("an output can be listed").file_name());
    let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.retain(|name| name.starts_with("part-"));
    names.sort();
    let read = |name: String| {
        let bytes = std::fs::read(dir.join(&name)).expect("a part can be read");
        (name, bytes)
    };
    names.into_iter().map(read).collect()
}

/// A whole output lies there and nothing else: no record, no open upload.
#[track_caller]
fn assert_whole(server: &ObjectServer, output: &str, expected: &[(String, Vec<u8>)]) {
    let prefix = format!("lake/{output}/");
    let names: Vec<String> =
        server.objects(&format!("lake/{output}")).iter().map(|name| name.replace(&prefix, "")).collect();
    let parts_expected = expected.iter().map(|(name, _)| name.as_str());
    let names_expected: Vec<&str> = ["_SUCCESS", "_report.json"].into_iter().chain(parts_expected).collect();
    assert_eq!(names, names_expected);
    assert!(parts(&server.path(&format!("lake/{output}"))) == expected, "the parts differ");
    assert_eq!(server.open_uploads(), 0);
}

#[track_caller]
fn assert_nothing(server: &ObjectServer, output: &str) {
    assert_eq!(server.objects(&format!("lake/{output}")), [""; 0]);
    assert_eq!(server.open_uploads(), 0);
}

#[test]
fn jobs_on_objects_give_the_output_of_files() {
    let (server, sandbox) = world();
    write_text(&server, &sandbox);
    run(count(&sandbox, "in", "local", &[])).expect_success();
    let expected = parts(&sandbox.path("local"));
    assert!(!expected.is_empty());
    let told = run(count(&sandbox, "s3://lake/in", "s3://lake/out", &[])).expect_success();
    assert!(told.stderr.contains("s3://lake/out"), "{}", told.story());
    assert_whole(&server, "out", &expected);
    sandbox.assert_no_leftovers();
    sandbox.sailfish_with(&["verify", "s3://lake/out"]).expect_success();
    // One object, a pattern, a slash at the end; to files again.
    run(count(&sandbox, "s3://lake/in/*.txt", "by-pattern", &[])).expect_success();
    assert!(parts(&sandbox.path("by-pattern")) == expected, "the parts differ");
    run(count(&sandbox, "in/a.txt", "one-local", &[])).expect_success();
    run(count(&sandbox, "s3a://lake/in/a.txt", "s3://lake/deep/er/one/", &["--no-sync"])).expect_success();
    assert_whole(&server, "deep/er/one", &parts(&sandbox.path("one-local")));
    // The output of one job is the input of the next: neither report nor mark is data.
    run(count(&sandbox, "local", "again-local", &[])).expect_success();
    run(count(&sandbox, "s3://lake/out/", "s3://lake/again", &[])).expect_success();
    assert_whole(&server, "again", &parts(&sandbox.path("again-local")));
    let first = expected[0].0.as_str();
    server.write(&format!("lake/out/{first}"), "changed");
    server.write("lake/out/stranger", "new");
    let differs = sandbox.sailfish_with(&["verify", "s3://lake/out"]);
    differs.expect_failure(1, &[first, "stranger is not in the report"]);
}

#[test]
fn objects_may_be_compressed_and_so_may_outputs() {
    let (server, sandbox) = world();
    let text = corpus(1 << 20);
    sandbox.write("plain.txt", &text);
    server.write("lake/in/text", gzip(&text));
    run(count(&sandbox, "plain.txt", "local", &["--compress", "zstd"])).expect_success();
    run(count(&sandbox, "s3://lake/in", "s3://lake/out", &["--compress", "zstd"])).expect_success();
    assert_whole(&server, "out", &parts(&sandbox.path("local")));
    server.write("lake/cut/text.gz", &gzip(&text)[..1000]);
    let cut = run(count(&sandbox, "s3://lake/cut", "s3://lake/none", &[]));
    cut.expect_failure(2, &["s3://lake/cut/text.gz is truncated"]);
    assert_nothing(&server, "none");
}

#[test]
fn rows_are_sorted_in_pieces_of_several_uploads() {
    let (server, sandbox) = world();
    let tera = |words: &[&str]| {
        let mut command = sandbox.sailfish();
        command.arg("tera").args(words).args(SIZES);
        command.arg("--state").arg(sandbox.state()).arg("--disk").arg(sandbox.disk());
        run(command).expect_success()
    };
    // One part of more than the least that a piece may have.
    tera(&["gen", "--layout", "modern", "--rows", "150k", "--output", "s3://lake/rows"]);
    tera(&["sort", "--input", "s3://lake/rows", "--output", "s3://lake/sorted"]);
    let rows = tera(&["sum", "s3://lake/rows"]).text();
    let sorted = tera(&["validate", "s3://lake/sorted"]).text();
    let checksum = rows.lines().find(|line| line.contains("hecksum")).expect("a sum has a checksum");
    assert!(sorted.contains(checksum), "{rows}\n{sorted}");
    assert_eq!(server.open_uploads(), 0);
}

#[test]
fn streaming_command_lines_name_objects() {
    let (server, sandbox) = world();
    server.write("lake/in/x", "b\na\nb\n");
    let mut command = sandbox.sailfish();
    command.args(["streaming", "-input", "s3a://lake/in", "-output", "s3a://lake/out", "-mapper", "cat"]);
    command.args(["-reducer", "uniq -c", "-numReduceTasks", "1", "--state"]).arg(sandbox.state());
    run(command).expect_success();
    let part = std::fs::read_to_string(server.path("lake/out/part-00000")).expect("there is a part");
    let words: Vec<&str> = part.split_whitespace().collect();
    assert_eq!(words, ["1", "a", "2", "b"]);
}

#[test]
fn unusable_object_stores_are_named() {
    let (server, sandbox) = world();
    write_text(&server, &sandbox);
    let refused = |input: &str, output: &str, texts: &[&str]| {
        run(count(&sandbox, input, output, &[])).expect_failure(2, texts);
    };
    refused("s3://lake/no/such", "out", &["s3://lake/no/such does not exist"]);
    refused("s3://lake/in/*.csv", "out", &["no input matches"]);
    refused("s3://nobody/in", "out", &["the bucket of s3://nobody/in does not exist", "AWS_ENDPOINT_URL"]);
    refused("s3://lake//in", "out", &["s3://lake//in is not the URL of an object", "empty part"]);
    refused("gs://lake/in", "out", &["gs://lake/in", "not supported"]);
    refused("s3://lake/in", "s3://nobody/out", &["s3://nobody/out"]);
    refused("s3://lake/in", "s3://lake/in/out", &["lies inside --input"]);
    refused("s3://lake/in/a.txt", "s3://lake/in", &["lies inside --output"]);
    let denied = |name: &str, value: &str, texts: &[&str]| {
        let mut command = count(&sandbox, "s3://lake/in", "out", &[]);
        command.env(name, value);
        let told = run(command).expect_failure(2, texts);
        assert!(!told.stderr.contains(value) || name == "AWS_ENDPOINT_URL", "{}", told.story());
    };
    denied(
        "AWS_SECRET_ACCESS_KEY",
        "another-secret",
        &["s3://lake/in", "access denied", "AWS_SECRET_ACCESS_KEY"],
    );
    denied("AWS_ALLOW_HTTP", "false", &["AWS_ALLOW_HTTP=true"]);
    denied("AWS_MAX_ATTEMPTS", "a few", &["AWS_MAX_ATTEMPTS is not a number"]);
    assert_eq!(server.open_uploads(), 0);
}

#[test]
fn an_output_that_exists_is_kept_unless_told() {
    let (server, sandbox) = world();
    write_text(&server, &sandbox);
    server.write("lake/out/part-00000", "old");
    server.write("lake/out/part-77777", "old");
    server.write("lake/out/_SUCCESS", "");
    server.write("lake/outer/other", "not of this output");
    run(count(&sandbox, "s3://lake/in", "s3://lake/out", &[]))
        .expect_failure(2, &["s3://lake/out exists already", "--overwrite"]);
    // What no report lists is not of an output: somebody else put it there.
    let overwrite = || run(count(&sandbox, "s3://lake/in", "s3://lake/out", &["--overwrite"]));
    overwrite().expect_failure(2, &["s3://lake/out", "which no job wrote there"]);
    let report = "{\"parts\": [{\"name\": \"part-00000\"}, {\"name\": \"part-77777\"}]}";
    server.write("lake/out/_report.json", report);
    server.write("lake/out/sub/more", "of somebody else");
    overwrite().expect_failure(2, &["s3://lake/out", "sub/more"]);
    assert_eq!(server.objects("lake/out").len(), 5);
    std::fs::remove_dir_all(server.path("lake/out/sub")).expect("a directory of the test");
    run(count(&sandbox, "in", "local", &[])).expect_success();
    run(count(&sandbox, "s3://lake/in", "s3://lake/out", &["--overwrite"])).expect_success();
    assert_whole(&server, "out", &parts(&sandbox.path("local")));
    assert_eq!(server.objects("lake/outer"), ["lake/outer/other"]);
}

/// The engine does not touch an object that appears in the output while a job runs.
#[test]
fn an_output_that_appears_meanwhile_is_left_alone() {
    let (server, sandbox) = world();
    server.write("lake/in/x", "a\nb\n");
    let mapper = sandbox.script("map.sh", "#!/bin/sh\ncat\necho > \"$APPEARS\"\n");
    let appears = server.path("lake/out/stranger");
    std::fs::create_dir_all(appears.parent().expect("it lies in a directory")).expect("made");
    let variable = format!("APPEARS={}", appears.display());
    let mapper = mapper.to_str().expect("a plain path");
    let args =
        ["--input", "s3://lake/in", "--output", "s3://lake/out", "--mapper", mapper, "--env", &variable];
    sandbox.run_job(&args).expect_failure(2, &["s3://lake/out appeared while the job ran"]);
    assert_eq!(server.objects("lake/out"), ["lake/out/stranger"]);
    assert_eq!(server.open_uploads(), 0);
}

/// For objects that programs read by themselves, the engine only asks the store whether they are still the same.
#[test]
fn stretches_of_objects_are_told_by_their_urls() {
    let (server, sandbox) = world();
    let size = 1000;
    server.write("lake/in/b.txt", vec![b'b'; size]);
    let stretches = ["--input", "s3://lake/in/b.txt", "--input-format", "stretches", "--overwrite"];
    let job = || sandbox.job(&[&stretches[..], &["--mapper", "cat", "--map-only"]].concat());
    run(job()).expect_success();
    let line = format!("{{\"path\":\"s3://lake/in/b.txt\",\"offset\":0,\"length\":{size},\"size\":{size}}}");
    assert_eq!(sandbox.output_lines(&sandbox.out()), [line]);
    let path = server.path("lake/in/b.txt");
    server.watch(move |method, target| {
        if method == "HEAD" && target.starts_with("/lake/in/b.txt") {
            std::fs::write(&path, vec![b'x'; size]).expect("it can be written");
        }
        Verdict::Pass
    });
    run(job()).expect_failure(2, &["s3://lake/in/b.txt: object changed during the run"]);
}

/// An object that is written anew after it was listed is an error that names it; no byte of it is used.
#[test]
fn an_object_that_changes_is_an_error() {
    let (server, sandbox) = world();
    write_text(&server, &sandbox);
    let path = server.path("lake/in/b.txt");
    let mut reads = 0;
    server.watch(move |method, target| {
        reads += u32::from(method == "GET" && target.starts_with("/lake/in/b.txt"));
        if reads == 3 {
            let size = std::fs::metadata(&path).expect("it is there").len() as usize;
            std::fs::write(&path, vec![b'x'; size]).expect("it can be written");
        }
        Verdict::Pass
    });
    let told = run(count(&sandbox, "s3://lake/in", "s3://lake/out", &[]));
    told.expect_failure(2, &["s3://lake/in/b.txt: object changed during the run"]);
    assert_nothing(&server, "out");
    std::fs::remove_file(server.path("lake/in/b.txt")).expect("it was there");
}

/// A server that has too much to do is asked again.
#[test]
fn requests_are_sent_again() {
    let (server, sandbox) = world();
    write_text(&server, &sandbox);
    run(count(&sandbox, "in", "local", &[])).expect_success();
    let mut requests = 0;
    server.watch(move |_, _| {
        requests += 1;
        if requests % 5 == 0 { Verdict::Busy } else { Verdict::Pass }
    });
    run(count(&sandbox, "s3://lake/in", "s3://lake/out", &[])).expect_success();
    assert_whole(&server, "out", &parts(&sandbox.path("local")));
}

/// A store that stays away is an error of the machine that names what was wanted, after a bounded time.
#[test]
fn a_store_that_is_away_fails_the_job() {
    let (server, sandbox) = world();
    server.write("lake/in/x", "a\n");
    server.watch(|method, _| if method == "PUT" { Verdict::Busy } else { Verdict::Pass });
    let mut command = count(&sandbox, "s3://lake/in", "s3://lake/out", &[]);
    command.env("AWS_MAX_ATTEMPTS", "2");
    run(command).expect_failure(1, &["cannot write s3://lake/out/", "503"]);
    assert_nothing(&server, "out");
}

#[test]
fn a_job_that_fails_leaves_nothing() {
    let (server, sandbox) = world();
    write_text(&server, &sandbox);
    // The first part is whole when the second attempt of its reducer fails for good.
    let reducer = ["--reducer", "sh -c 'cat; test $SAILFISH_TASK = 0'", "--partitions", "3"];
    let args = [
        &["--input", "s3://lake/in", "--output", "s3://lake/out", "--mapper", "builtin:words"],
        SIZES,
        &reducer,
    ]
    .concat();
    sandbox.run_job(&args).expect_failure(1, &["ended with exit code 1"]);
    assert_nothing(&server, "out");
    sandbox.assert_no_leftovers();
}

/// A process that dies at any step of a commit leaves an output that is not whole, and the next one with that state
/// completes it where it was decided, or takes all of it back.
#[test]
fn a_crash_is_cleaned_by_the_next_process() {
    let (server, sandbox) = world();
    write_text(&server, &sandbox);
    run(count(&sandbox, "in", "local", &[])).expect_success();
    let expected = parts(&sandbox.path("local"));
    let points = [
        ("part-before-sync", false),
        ("part-after-sync", false),
        ("commit-before-part-rename", false),
        ("commit-after-part-rename", true),
        ("commit-report-written", true),
        ("commit-before-sync", true),
        ("commit-after-sync", true),
        ("cleanup-before-remove", true),
    ];
    for (number, (point, decided)) in points.into_iter().enumerate() {
        let output = format!("out-{number}");
        let url = format!("s3://lake/{output}");
        let mut command = count(&sandbox, "s3://lake/in", &url, &[]);
        command.env("SAILFISH_CRASH_AT", point);
        let crashed = run(command);
        assert!(crashed.signal().is_some(), "should have crashed:\n{}", crashed.story());
        let is_marked =
            server.objects(&format!("lake/{output}")).contains(&format!("lake/{output}/_SUCCESS"));
        assert!(!is_marked || decided, "{point}: it looks whole too early");
        // Any command that starts the engine with this state.
        run(count(&sandbox, "in/a.txt", &format!("other-{number}"), &[])).expect_success();
        match decided {
            true => assert_whole(&server, &output, &expected),
            false => assert_nothing(&server, &output),
        }
        let state = if decided { "succeeded" } else { "interrupted" };
        assert_eq!(sandbox.jobs().with_output(&url).states(), [state], "{point}");
    }
    sandbox.assert_no_leftovers();
}

/// Neither programs, nor the store, nor the report, nor a log have the secret.
#[test]
fn secrets_stay_with_the_process() {
    let (server, sandbox) = world();
    server.write("lake/in/x", "a\n");
    let args = ["--input", "s3://lake/in", "--output", "s3://lake/out", "--mapper", "env", "--map-only"];
    let mut command = sandbox.job(&args);
    command.env("SAILFISH_LOG", "trace");
    let told = run(command);
    assert!(told.status.success(), "{}", told.story());
    let secret = server.secret();
    assert!(!told.stderr.contains(secret), "a log has the secret");
    let seen = std::fs::read_to_string(server.path("lake/out/part-00000")).expect("there is a part");
    assert!(seen.contains("PATH=") && !seen.contains("AWS_") && !seen.contains("OBJECTS"), "{seen}");
    for entry in std::fs::read_dir(sandbox.state()).expect("there is a state directory") {
        let path = entry.expect("it can be listed").path();
        if path.is_file() {
            let bytes = std::fs::read(&path).expect("a file can be read");
            let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!found, "{} has the secret", path.display());
        }
    }
    // The same from a file, and nothing in the environment.
    let lines: Vec<String> =
        server.environment().iter().map(|(name, value)| format!("{name}={value}\n")).collect();
    let file = sandbox.write("objects.conf", lines.concat());
    let mut command = sandbox.sailfish();
    server.environment().iter().for_each(|(name, _)| {
        command.env_remove(name);
    });
    command.arg("--objects-config").arg(&file).args([
        "run",
        "--input",
        "s3://lake/in",
        "--output",
        "s3://lake/by-file",
    ]);
    command.arg("--state").arg(sandbox.state());
    run(command).expect_success();
    assert_eq!(server.objects("lake/by-file").len(), 3);
}

#[test]
fn cluster_gives_the_objects_of_one_machine() {
    let server = ObjectServer::start("lake");
    let cluster = Cluster::builder().nodes(2).environment(server.environment()).start();
    write_text(&server, &cluster.sandbox);
    let own = ["--memory", CLUSTER_MEMORY, "--slots", "2"];
    let local = [&["--input", "in", "--output", "local"], WORDS, &own].concat();
    cluster.sandbox.run_job(&local).expect_success();
    let expected = parts(&cluster.sandbox.path("local"));
    let args = [&["--input", "s3://lake/in", "--output", "s3://lake/out"], WORDS].concat();
    run(cluster.job(&args)).expect_success();
    assert_whole(&server, "out", &expected);
    run(cluster.job(&args)).expect_failure(2, &["s3://lake/out exists already"]);
    run(cluster.job(&[&args[..], &["--overwrite"]].concat())).expect_success();
    assert_whole(&server, "out", &expected);
    let failing =
        ["--input", "s3://lake/in", "--output", "s3://lake/none", "--mapper", "false", "--map-only"];
    run(cluster.job(&failing)).expect_failure(1, &["exit code 1"]);
    assert_nothing(&server, "none");
}

/// The node that runs the commit dies in it; another one goes on from where it was.
#[test]
fn a_commit_survives_its_node() {
    let server = ObjectServer::start("lake");
    let mut environment = server.environment();
    environment.push(("SAILFISH_CRASH_AT".to_string(), "commit-report-written".to_string()));
    let mut cluster = Cluster::builder().nodes(1).environment(environment).start();
    write_text(&server, &cluster.sandbox);
    let mut local = cluster.sandbox.job(&[&["--input", "in", "--output", "local"], WORDS, SIZES].concat());
    local.env_remove("SAILFISH_CRASH_AT");
    run(local).expect_success();
    let mut job = cluster.job(&[&["--input", "s3://lake/in", "--output", "s3://lake/out"], WORDS].concat());
    let job = Running::start(job.env_remove("SAILFISH_CRASH_AT"));
    cluster.wait_for_crash(0);
    assert!(!server.objects("lake/out").contains(&"lake/out/_SUCCESS".to_string()));
    cluster.add_changed_node(|command| {
        command.env_remove("SAILFISH_CRASH_AT");
    });
    job.wait().expect_success();
    let whole = server.objects("lake/out");
    assert!(whole.contains(&"lake/out/_SUCCESS".to_string()), "{whole:?}");
    assert_eq!(server.open_uploads(), 0);
    let merged = |dir: &Path| {
        let bytes: Vec<u8> = parts(dir).into_iter().flat_map(|(_, bytes)| bytes).collect();
        sorted_lines(&bytes)
    };
    assert!(merged(&server.path("lake/out")) == merged(&cluster.sandbox.path("local")), "the output differs");
}
