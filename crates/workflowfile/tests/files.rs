//! Workflow files with and without mistakes.

use std::fs;
use std::path::Path;
use workflowfile::{JobMachines, NamedWorkflow, Sources, WorkflowFileError, lines, read, script};

const TEXT: &str = r#"
name = "words of a text"

[[step]]
name = "words"
command = "tr ' ' '\n'"
stdin = "text"
stdout = "made/words"

[[step]]
name = "counts"
words = ["sort", "-u"]
stdin = "made/words"
stdout = "counts"
cores = 2
memory = "1.5G"
timeout = "2m"
retries = 1
env = { LC_ALL = "C" }

[[step]]
name = "last"
command = "touch last"
outputs = ["last"]
after = ["counts"]
"#;

fn in_directory(text: &str, check: impl FnOnce(&Path, Result<NamedWorkflow, WorkflowFileError>)) {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("text"), "a rose\n").unwrap();
    let file = directory.path().join("flow.toml");
    fs::write(&file, text).unwrap();
    check(&directory.path().canonicalize().unwrap(), read(&file, Sources::Here, JobMachines::NONE));
}

#[test]
fn files_are_read_as_they_say() {
    in_directory(TEXT, |dir, workflow| {
        let NamedWorkflow { name, spec } = workflow.unwrap();
        assert_eq!((name.as_str(), spec.steps.len()), ("words of a text", 3));
        let words = &spec.steps[0].program;
        assert_eq!(words.words, ["sh", "-eu", "-c", "tr ' ' '\n'"]);
        assert_eq!(
            (&words.directory, words.inputs[0].path.as_path()),
            (&dir.to_path_buf(), &*dir.join("text"))
        );
        let output = &words.outputs[0];
        assert_eq!(
            (output.name.as_path(), output.path.as_path()),
            (Path::new("made/words"), &*dir.join("made/words"))
        );
        assert!(output.temporary && words.stdout.as_deref() == Some(Path::new("made/words")));
        let counts = &spec.steps[1].program;
        assert_eq!((counts.cores, counts.memory_bytes, counts.retries), (2, 3 << 29, 1));
        assert_eq!((counts.limits.seconds, counts.env.len()), (Some(120), 1));
        assert_eq!((&spec.steps[2].after, &spec.steps[1].after), (&vec![1], &vec![]));
    });
}

#[test]
fn plan_shows_levels_and_pipelines() {
    let text = TEXT.replace("retries = 1", "");
    in_directory(&text, |_, workflow| {
        let spec = workflow.unwrap().spec;
        let shown = |slots| {
            let lines = lines(&spec, slots).unwrap();
            let line = |line: &workflowfile::StepLine| format!("{} {}", line.level, line.names.join("|"));
            lines.iter().map(line).collect::<Vec<_>>()
        };
        assert_eq!(shown(3), ["1 words|counts", "2 last"]);
        assert_eq!(shown(2), ["1 words", "2 counts", "3 last"]);
    });
}

#[test]
fn mistakes_are_named() {
    let error = |text: &str| {
        let mut said = String::new();
        in_directory(text, |_, workflow| {
            said = workflow.err().map(|error| error.to_string()).unwrap_or_default()
        });
        said
    };
    let changed = |from: &str, to: &str| error(&TEXT.replacen(from, to, 1));
    let check = |said: String, parts: &[&str]| {
        parts.iter().for_each(|part| assert!(said.contains(part), "{part:?} is not in {said:?}"));
    };
    assert_eq!(error(TEXT), "");
    check(
        changed("command =", "comand ="),
        &["the step \"words\"", "no key `comand`", "did you mean `command`?"],
    );
    check(changed("name = \"words of", "nam = \"words of"), &["flow.toml", "`nam`", "`name`"]);
    check(changed("[[step]]", "[[steps]]"), &["no key `steps`: did you mean `step`?"]);
    check(changed("\"counts\"\nwords", "\"counts\"\ncommand = \"x\"\nwords"), &["\"counts\" has both"]);
    check(changed("words = [\"sort\", \"-u\"]", "words = []"), &["\"counts\" has both"]);
    check(changed("[\"counts\"]", "[\"count\"]"), &["waits for \"count\"", "did you mean `counts`?"]);
    check(changed("\"text\"", "\"../text\""), &["\"words\" names \"../text\"", "without `..`"]);
    check(changed("stdin = \"text\"", "stdin = \"texd\""), &["reads", "texd, which does not exist"]);
    check(changed("1.5G", "much"), &["memory = \"much\"", "not a size"]);
    check(changed("2m", "2 min"), &["timeout = \"2 min\""]);
    check(changed("outputs = [\"last\"]", "outputs = [\"made/words\"]"), &["both write"]);
    check(changed("name = \"last\"", "name = \"counts\""), &["two steps have the name \"counts\""]);
    check(changed("after = [\"counts\"]", "after = [\"last\"]"), &["steps wait for each other"]);
    check(changed("[\"counts\"]", "[\"zz\"]"), &["no step: the steps are \"words\", \"counts\", \"last\""]);
    check(changed("stdin = \"made/words\"", "stdin = \"counts\""), &["cannot change its input in place"]);
    let far = changed("stdin = \"text\"", "stdin = \"nofile\"");
    assert!(far.ends_with("nofile, which does not exist, and no step writes it"), "{far}");
    check(error("x = "), &["flow.toml is no TOML"]);
    check(error(""), &["it has no steps"]);
    let missing = read(Path::new("/nowhere/flow.toml"), Sources::Here, JobMachines::NONE).unwrap_err();
    assert!(missing.to_string().contains("cannot read /nowhere/flow.toml"), "{missing}");
}

#[test]
fn values_of_wrong_types_get_advice() {
    let check = |line: &str, parts: &[&str]| {
        in_directory(&format!("[[step]]\nname = \"s\"\n{line}\n"), |_, workflow| {
            let said = workflow.unwrap_err().to_string();
            parts.iter().for_each(|part| assert!(said.contains(part), "{part:?} is not in {said:?}"));
            assert!(!said.contains("no TOML"), "{said}");
        });
    };
    check(
        "inputs = \"in\"",
        &["flow.toml, line 3, column 10: `inputs` of the step \"s\" is a text: write inputs = [\"in\"]"],
    );
    check("timeout = 90", &["is a number: write timeout = \"90s\""]);
    check("memory = 2", &["write memory = \"2G\""]);
    check("memory = 4294967296", &["write memory = \"4294967296\""]);
    check("stdin = [\"in\"]", &["is a list: write stdin = \"in\""]);
    check("cores = \"2\"", &["is a text: write cores = 2"]);
    check("cores = 1.5", &["give a whole number, as in cores = 2"]);
    check("keep = \"true\"", &["write keep = true"]);
    check("keep = 1", &["write keep = true or keep = false"]);
    check("outputs = [1]", &["give a list of texts, as in outputs"]);
    check("env = { N = 3 }", &["env = { NAME = \"value\" }"]);
    check("env = \"N=3\"", &["env = { NAME = \"value\" }"]);
    check(
        "resources = \"gpu=1\"",
        &["is a text: give each resource a whole number", "resources = { gpu = 1 }"],
    );
    check("resources = { gpu = \"1\" }", &["`resources` of the step \"s\"", "resources = { gpu = 1 }"]);
    check("resources = { gpu = -1 }", &["resources = { gpu = 1 }"]);
    check("[[step]]\ncommand = \"x\"", &["flow.toml is no workflow file", "missing field `name`"]);
}

#[test]
fn streams_are_read_and_checked() {
    let step = |more: &str| {
        format!(
            "[[step]]\nname = \"s\"\ncommand = \"true\"\ninputs = [\"text\"]\noutputs = [\"out/b\"]\n{more}\n"
        )
    };
    in_directory(&step("streams = [\"text\", \"./out/b\"]"), |_, workflow| {
        let program = &workflow.unwrap().spec.steps[0].program;
        assert!(program.inputs[0].stream && program.outputs[0].stream);
    });
    let check = |text: &str, part: &str| {
        in_directory(text, |_, workflow| {
            let said = workflow.unwrap_err().to_string();
            assert!(said.contains(part) && said.contains("\"s\""), "{part:?} is not in {said:?}");
        });
    };
    check(
        &step("streams = [\"texd\"]"),
        "the stream \"texd\", which is none of its inputs and outputs: did you mean `text`?",
    );
    check(&step("stdin = \"text\"\nstreams = [\"text\"]"), "streams anyway; leave it out of the streams");
    check(&step("in_place = true\nstreams = [\"text\"]"), "all files are plain ones");
    check(&step("streams = \"text\""), "write streams = [\"text\"]");
    let stored = step("streams = [\"files:a/b\"]").replace("\"text\"]\nout", "\"files:a/b\"]\nout");
    check(&stored, "the stream files:a/b, a stored file that no step writes");
    let job =
        "[[step]]\nname = \"s\"\ninputs = [\"text\"]\nstreams = [\"text\"]\n[step.job]\noutput = \"o\"\n";
    check(job, "has [step.job] and `streams`");
}

#[test]
fn resources_are_read_and_checked() {
    let step = |line: &str| format!("[[step]]\nname = \"s\"\ncommand = \"true\"\n{line}\n");
    in_directory(&step("resources = { gpu = 2, tape-1 = 1 }"), |_, workflow| {
        let program = &workflow.unwrap().spec.steps[0].program;
        assert_eq!(program.resources.to_string(), "gpu=2, tape-1=1");
    });
    let check = |line: &str, part: &str| {
        in_directory(&step(line), |_, workflow| {
            let said = workflow.unwrap_err().to_string();
            assert!(said.contains(part) && said.contains("\"s\""), "{part:?} is not in {said:?}");
        });
    };
    check("resources = { gpu = 0 }", "give 1 to 1000000");
    check("resources = { gpu = 1000001 }", "give 1 to 1000000");
    check("resources = { \"g pu\" = 1 }", "\"g pu\" is no name of a resource");
    check("resources = { gpu = 1, GPU = 1 }", "two spellings");
    check("resources = { a = 1, b = 1, c = 1, d = 1, e = 1, f = 1, g = 1, h = 1, i = 1 }", "at most 8");
    check("resource = { gpu = 1 }", "there is no key `resource`: did you mean `resources`?");
}

#[test]
fn unknown_step_lists_near_ones_or_some() {
    in_directory(TEXT, |_, workflow| {
        let spec = workflow.unwrap().spec;
        let said = |name: &str| workflowfile::check_step(&spec, name).unwrap_err().to_string();
        assert_eq!(said("word"), "there is no step \"word\": did you mean `words`?");
        assert_eq!(said("zz"), "there is no step \"zz\": the steps are \"words\", \"counts\", \"last\"");
        let (mut many, mut one) = (spec.clone(), spec.clone());
        one.steps.truncate(1);
        let only = workflowfile::check_step(&one, "zz").unwrap_err().to_string();
        assert!(only.ends_with(": the only step is \"words\""), "{only}");
        many.steps = (0..7).map(|_| spec.steps[0].clone()).collect();
        let said = workflowfile::check_step(&many, "zz").unwrap_err().to_string();
        assert!(said.ends_with("\"words\" and 2 more"), "{said}");
    });
}

#[test]
fn script_does_the_same_in_a_shell() {
    in_directory(TEXT, |dir, workflow| {
        let script = script(&workflow.unwrap().spec).unwrap();
        let file = dir.join("script");
        fs::write(&file, &script).unwrap();
        let ran = std::process::Command::new("sh").arg(&file).current_dir("/").output().unwrap();
        assert!(ran.status.success(), "{script}\n{}", String::from_utf8_lossy(&ran.stderr));
        assert_eq!(fs::read_to_string(dir.join("counts")).unwrap(), "a\nrose\n");
        assert!(dir.join("last").exists() && !dir.join("made/words").exists());
    });
}
