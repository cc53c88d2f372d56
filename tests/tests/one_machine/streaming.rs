//! Hadoop Streaming: the command lines of the corpus with what Hadoop itself gave, and what else scripts rely on.

use blackbox::{Cluster, Finished, Running, Sandbox, package_path, sailfish_binary, sorted_lines};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

const REFUSED: i32 = 2;
/// Cases whose command names a class that we do not have; the error must name it.
const REFUSED_CASES: &[(&str, &str)] = &[("27-field-selection", "FieldSelectionMapReduce")];

fn corpus() -> PathBuf {
    package_path("test_data/streaming")
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("directories are made");
    for entry in fs::read_dir(from).expect("the corpus can be listed") {
        let entry = entry.expect("the corpus can be listed");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("an entry has a type").is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("a file can be copied");
        }
    }
}

/// Types a command line behind `sailfish streaming`, in a directory of the sandbox, into a shell.
fn typed(sandbox: &Sandbox, dir: &str, line: &str) -> Finished {
    let state = sandbox.state();
    typed_with(
        sandbox,
        dir,
        line,
        &format!("--state {} --disk {}", state.display(), sandbox.disk().display()),
    )
}

/// The same with these options of ours.
fn typed_with(sandbox: &Sandbox, dir: &str, line: &str, own: &str) -> Finished {
    let text = format!("exec \"$SAILFISH\" streaming {} {own} --no-sync --memory 64M --slots 2", line.trim());
    let mut command = std::process::Command::new("sh");
    sandbox.clean(&mut command);
    // What `wc` calls a word depends on it.
    command.env("LANG", "C.UTF-8");
    command.args(["-c", &text]).env("SAILFISH", sailfish_binary()).current_dir(sandbox.path(dir));
    Running::start(&mut command).wait()
}

/// The parts of an output, unpacked, by name without extension.
fn parts(output: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut parts = BTreeMap::new();
    for entry in fs::read_dir(output).expect("an output can be listed") {
        let path = entry.expect("an output can be listed").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !name.starts_with("part-") {
            continue;
        }
        let mut bytes = fs::read(&path).expect("a part can be read");
        if name.ends_with(".gz") {
            let mut unpacked = Vec::new();
            let read = flate2::read::MultiGzDecoder::new(&bytes[..]).read_to_end(&mut unpacked);
            read.expect("a part can be unpacked");
            bytes = unpacked;
        }
        parts.insert(name.trim_end_matches(".gz").to_string(), bytes);
    }
    parts
}

fn names(output: &Path) -> String {
    let entries = fs::read_dir(output).expect("an output can be listed");
    let names = entries.map(|entry| entry.expect("an output can be listed").file_name());
    let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.retain(|name| name != "_report.json");
    names.sort();
    names.join("\n")
}

/// Lists the differences from Hadoop in a case; empty if all is the same.
fn differences(case: &Path, sandbox: &Sandbox, dir: &str) -> Vec<String> {
    let mut differences = Vec::new();
    let output = sandbox.path(dir).join("output");
    let text = |name: &str| fs::read_to_string(case.join(name)).ok();
    if let Some(expected) = text("expected.names")
        && expected.trim() != names(&output)
    {
        differences.push(format!("names: {:?} instead of {:?}", names(&output), expected.trim()));
    }
    let parts = parts(&output);
    if case.join("expected").is_dir() {
        for entry in fs::read_dir(case.join("expected")).expect("the corpus can be listed") {
            let path = entry.expect("the corpus can be listed").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if parts.get(&name) != Some(&fs::read(&path).expect("the corpus can be read")) {
                differences.push(format!("{name} differs"));
            }
        }
    }
    if let Ok(expected) = fs::read(case.join("expected.sorted")) {
        let all: Vec<u8> = parts.values().flatten().copied().collect();
        if sorted_lines(&all) != sorted_lines(&expected) {
            differences.push("the lines differ".to_string());
        }
    }
    if let Some(expected) = text("expected.counters") {
        let report = sandbox.report(&output);
        let counters = report["counters"].as_object().expect("counters are an object");
        let mut got: Vec<String> = counters.iter().map(|(name, value)| format!("{name}={value}")).collect();
        got.sort();
        if got != expected.lines().collect::<Vec<_>>() {
            differences.push(format!("counters: {got:?} instead of {expected:?}"));
        }
    }
    differences
}

fn cases() -> Vec<PathBuf> {
    let mut cases: Vec<PathBuf> = fs::read_dir(corpus())
        .expect("the corpus can be listed")
        .map(|entry| entry.expect("the corpus can be listed").path())
        .filter(|path| path.is_dir())
        .collect();
    cases.sort();
    assert!(cases.len() >= 14, "{cases:?}");
    cases
}

#[test]
fn corpus_gives_the_results_of_hadoop() {
    let mut failures = Vec::new();
    let cases = cases();
    for case in &cases {
        let name = case.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let sandbox = Sandbox::new();
        copy_tree(case, &sandbox.path("case"));
        let line = fs::read_to_string(case.join("command")).expect("a case has a command");
        let finished = typed(&sandbox, "case", &line);
        if let Some((_, class)) = REFUSED_CASES.iter().find(|(each, _)| *each == name) {
            finished.expect_failure(REFUSED, &[class, "not supported"]);
            continue;
        }
        if !finished.status.success() {
            failures.push(format!("{name}: {}", finished.story()));
            continue;
        }
        failures.extend(
            differences(case, &sandbox, "case").iter().map(|difference| format!("{name}: {difference}")),
        );
        sandbox.assert_no_leftovers();
    }
    assert!(failures.is_empty(), "{} of {} cases:\n{}", failures.len(), cases.len(), failures.join("\n"));
}

/// The same command lines on a server and two nodes, with what they ship.
#[test]
fn the_corpus_gives_the_same_in_a_cluster() {
    let cluster = Cluster::builder().nodes(2).start();
    let own = format!("--server {}", cluster.url);
    let mut failures = Vec::new();
    for case in &cases() {
        let name = case.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if REFUSED_CASES.iter().any(|(each, _)| *each == name) {
            continue;
        }
        let dir = format!("cases/{name}");
        copy_tree(case, &cluster.sandbox.path(&dir));
        let line = fs::read_to_string(case.join("command")).expect("a case has a command");
        let finished = typed_with(&cluster.sandbox, &dir, &line, &own);
        match finished.status.success() {
            false => failures.push(format!("{name}: {}", finished.story())),
            true => {
                let found = differences(case, &cluster.sandbox, &dir);
                failures.extend(found.iter().map(|difference| format!("{name}: {difference}")));
            }
        }
    }
    assert!(failures.is_empty(), "{} differences:\n{}", failures.len(), failures.join("\n"));
    let job = "-input in -output o -mapper cat";
    cluster.sandbox.write("in", "a\n");
    let both = format!("{own} --state x");
    typed_with(&cluster.sandbox, "", job, &both).expect_failure(REFUSED, &["--state", "--server"]);
    typed_with(&cluster.sandbox, "", job, "--token-file x").expect_failure(REFUSED, &["--token-file"]);
}

#[test]
fn unsupported_options_are_refused_by_name() {
    let sandbox = Sandbox::new();
    sandbox.write("in", "b\na\n");
    let check = |line: &str, texts: &[&str]| {
        let finished = typed(&sandbox, "", line).expect_failure(REFUSED, texts);
        assert!(!sandbox.path("o").exists(), "{}", finished.story());
    };
    let job = "-input in -output o -mapper cat";
    check(&format!("{job} -numReducers 3"), &["-numReducers"]);
    check(
        &format!("{job} -numReduceTasks 3 -D mapreduce.job.reduces=2"),
        &["-numReduceTasks 3", "reduces=2"],
    );
    check(&format!("{job} -reducer NONE -numReduceTasks 2"), &["-reducer NONE"]);
    check(&format!("{job} -combiner cat -numReduceTasks 0"), &["-combiner"]);
    check(&format!("{job} -reducer cat -partitioner com.example.Mine"), &["com.example.Mine"]);
    check(&format!("{job} -inputformat SequenceFileInputFormat"), &["SequenceFileInputFormat"]);
    check(&format!("{job} -D stream.map.input=typedbytes"), &["stream.map.input=typedbytes"]);
    check(&format!("{job} -background"), &["-background"]);
    check(&format!("{job} -libjars x.jar"), &["-libjars"]);
    check("-input in -mapper cat", &["-output is missing"]);
    check("-output o -mapper cat", &["-input is missing"]);
    check("-input in -output o -mapper 'cat | sort'", &["without a shell"]);
    check("-input in -output o -mapper no-such-program", &["no-such-program"]);
    check("-input absent -output o -mapper cat", &["absent"]);
    check(&format!("{job} -file absent.py"), &["-file absent.py"]);
    check(&format!("{job} stray"), &["stray"]);
    check("-input in -output in -mapper cat", &["in"]);
}

#[test]
fn help_lists_the_supported_options() {
    let sandbox = Sandbox::new();
    for option in ["--help", "-help", "-info"] {
        let text = sandbox.sailfish_with(&["streaming", option]).expect_success().text();
        for expected in ["-numReduceTasks", "KeyFieldBasedPartitioner", "stream.map.output.field.separator"] {
            assert!(text.contains(expected), "no {expected:?} with {option}:\n{text}");
        }
    }
}

#[test]
fn programs_find_files_and_environment_of_hadoop() {
    let sandbox = Sandbox::new();
    sandbox.write("in/a.txt", "one\n");
    // Not executable, under another name, and beside it a file under a name of its own.
    sandbox.write("tools/show.sh", "#!/bin/sh\ncat >/dev/null\nenv\necho \"words $(cat words)\"\n");
    sandbox.write("tools/list.txt", "w1 w2\n");
    let line = "-D my.own-property=x -D mapred.job.name='two words' -input in -output o -mapper show.sh \
                -files tools/show.sh,tools/list.txt#words -cmdenv A=1=2 -numReduceTasks 0";
    typed(&sandbox, "", line).expect_success();
    let lines: Vec<String> = sandbox
        .output_lines(&sandbox.path("o"))
        .iter()
        .map(|line| line.trim_end_matches('\t').to_string())
        .collect();
    let root = sandbox.path("").canonicalize().expect("the sandbox is there").display().to_string();
    let input = format!("file:{root}/in/a.txt");
    let job = "sailfish_0001";
    let expected = [
        ("my_own_property", "x"),
        ("mapreduce_job_name", "two words"),
        ("mapreduce_job_reduces", "0"),
        ("mapreduce_map_input_file", &input),
        ("map_input_file", &input),
        ("mapreduce_map_input_start", "0"),
        ("mapreduce_map_input_length", "4"),
        ("mapreduce_job_id", &format!("job_{job}")),
        ("mapreduce_task_id", &format!("task_{job}_m_000000")),
        ("mapred_task_id", &format!("attempt_{job}_m_000000_0")),
        ("mapreduce_task_partition", "0"),
        ("mapreduce_task_ismap", "true"),
        ("A", "1=2"),
    ];
    for (name, value) in expected {
        let line = format!("{name}={value}");
        assert!(lines.contains(&line), "no {line} in\n{}", lines.join("\n"));
    }
    assert!(lines.contains(&"words w1 w2".to_string()), "{lines:?}");
    sandbox.assert_no_leftovers();
}

#[test]
fn counters_and_status_are_kept() {
    let sandbox = Sandbox::new();
    sandbox.write("in", "a\nb\na\n");
    sandbox.script(
        "count.sh",
        "#!/bin/sh\nwhile read -r line; do echo \"$line\"; echo reporter:counter:lines,$line,2 >&2; done\n\
         echo reporter:counter:lines,a,-1 >&2\necho reporter:status:all read >&2\n",
    );
    let args =
        ["--input", "in", "--mapper", "./count.sh", "--reducer", "builtin:count", "--file", "count.sh"];
    sandbox.run_job(&args).expect_success();
    let report = sandbox.report(&sandbox.out());
    assert_eq!(report["counters"], serde_json::json!({ "lines,a": 3, "lines,b": 2 }));
    let shown = sandbox.look(&["show", "1", "--limit", "100"]).expect_success().text();
    assert!(shown.contains("map task 0: all read"), "{shown}");
    let shown = sandbox.look(&["report", "1"]).expect_success().text();
    assert!(shown.contains("lines,a"), "{shown}");
    // What a failed attempt said last is told; its reports are not among its last lines.
    sandbox.script("fail.sh", "#!/bin/sh\necho reporter:status:line 7 >&2\necho oh no >&2\nexit 4\n");
    let args = ["--input", "in", "--mapper", "./fail.sh", "--file", "fail.sh", "--output", "other"];
    let finished =
        sandbox.run_job(&args).expect_failure(4, &["oh no", "the last status it reported: line 7"]);
    assert!(!finished.stderr.contains("reporter:"), "{}", finished.story());
}

#[test]
fn exit_codes_may_be_let_pass() {
    let sandbox = Sandbox::new();
    sandbox.write("in", "a\nb\n");
    let job = "-input in -output o -mapper 'grep nothing' -numReduceTasks 0";
    typed(&sandbox, "", job).expect_failure(1, &["exit code 1"]);
    typed(&sandbox, "", &format!("{job} -D stream.non.zero.exit.is.failure=false")).expect_success();
    assert_eq!(sandbox.concatenated(&sandbox.path("o")), b"");
}

#[test]
fn a_combiner_keeps_its_keys() {
    let sandbox = Sandbox::new();
    sandbox.write("in", "b\na\nb\n");
    sandbox.script("other.sh", "#!/bin/sh\nsed 's/^b/x/'\n");
    let line = "-input in -output o -mapper cat -combiner other.sh -reducer cat -file other.sh";
    typed(&sandbox, "", line).expect_failure(1, &["\"x\""]);
    sandbox.assert_no_leftovers();
}

/// Bug 9 of the Python report: mrjob's word pairs.
/// Python report, 9.
#[test]
fn combiner_returns_keys_of_two_fields() {
    let sandbox = Sandbox::new();
    sandbox.write("in", "a\tx\t1\na\ty\t5\na\tx\t2\n");
    sandbox.script(
        "sum.sh",
        "#!/bin/sh\nawk -F '\\t' '{ k = $1 \"\\t\" $2 } NR > 1 && k != key { print key \"\\t\" sum; sum = 0 } { key = k; sum += $3 } \
         END { if (NR) print key \"\\t\" sum }'\n",
    );
    let line = "-D stream.num.map.output.key.fields=2 -input in -output o -mapper cat -combiner sum.sh -reducer sum.sh -file sum.sh";
    typed(&sandbox, "", line).expect_success();
    assert_eq!(sandbox.concatenated(&sandbox.path("o")), b"a\tx\t3\na\ty\t5\n");
}

/// The same bug: jobs of mrjob that have their values sorted make the value a field of the key, and their combiners change it.
/// Python report, 9.
#[test]
fn combiner_may_change_fields_that_only_sort() {
    let sandbox = Sandbox::new();
    let lines: Vec<String> = (0..3000).map(|number| format!("k{}\t{}\n", number % 7, number % 3)).collect();
    sandbox.write("in", lines.concat());
    let sum = "awk -F '\t' '{ sum[$1] += $2 } END { for (k in sum) print k \"\t\" sum[k] }'";
    sandbox.script("sum.sh", &format!("#!/bin/sh\n{sum} | LC_ALL=C sort\n"));
    let mut expected = [0; 7];
    (0..3000).for_each(|number| expected[number % 7] += number % 3);
    let expected: Vec<String> = (0..7).map(|key| format!("k{key}\t{}", expected[key])).collect();
    let job = "-D stream.num.map.output.key.fields=2 -input in -mapper cat -combiner sum.sh -reducer sum.sh -file sum.sh";
    typed(&sandbox, "", &format!("{job} -output o")).expect_success();
    assert_eq!(sandbox.output_lines(&sandbox.path("o")), expected);
    let properties = "-D mapreduce.partition.keypartitioner.options=-k1,1";
    let line = format!(
        "{properties} {job} -output p -numReduceTasks 3 -partitioner org.apache.hadoop.mapred.lib.KeyFieldBasedPartitioner"
    );
    typed(&sandbox, "", &line).expect_success();
    let mut found = sandbox.output_lines(&sandbox.path("p"));
    found.sort();
    assert_eq!(found, expected);
    // Where the partition hangs on the fields that the combiner changes, nobody can say where its keys go.
    typed(&sandbox, "", &format!("{job} -output q -numReduceTasks 3"))
        .expect_failure(1, &["which it did not read"]);
}

#[test]
fn output_of_reducer_without_input_is_dropped() {
    let sandbox = Sandbox::new();
    sandbox.write("in", "a\n");
    let line = "-input in -output o -mapper cat -reducer 'wc -l' -numReduceTasks 2";
    typed(&sandbox, "", line).expect_success();
    let sizes: Vec<usize> = parts(&sandbox.path("o")).values().map(|part| part.len()).collect();
    assert_eq!(sizes.iter().filter(|size| **size == 0).count(), 1, "{sizes:?}");
    // Of the parts that -lazyOutput leaves, each has a record.
    let line = line.replace("-output o", "-output lazy -lazyOutput");
    typed(&sandbox, "", &line).expect_success();
    assert_eq!(parts(&sandbox.path("lazy")).len(), 1);
}
