//! Parameters, sweeps, wildcards and globs of workflow files.

use api::job::workflow::WorkflowStep;
use proptest::prelude::*;
use std::fs;
use std::path::Path;
use workflowfile::{JobMachines, NamedWorkflow, Sources, WorkflowFileError, read};

/// Reads a file in a directory with these files.
fn read_with(files: &[&str], text: &str, sources: Sources) -> Result<NamedWorkflow, WorkflowFileError> {
    let directory = tempfile::tempdir().unwrap();
    for file in files {
        let path = directory.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }
    let file = directory.path().join("flow.toml");
    fs::write(&file, text).unwrap();
    read(&file, sources, JobMachines::NONE)
}

/// Shows a step: its name, command, inputs, outputs, and positions of steps before it.
fn shown(step: &WorkflowStep) -> String {
    let names = |files: &[api::task::TaskFile]| {
        files.iter().map(|file| file.name.display().to_string()).collect::<Vec<_>>().join(",")
    };
    let program = &step.program;
    let command = program.words.last().unwrap();
    format!(
        "{}: {command} [{}>{}] {:?}",
        step.name,
        names(&program.inputs),
        names(&program.outputs),
        step.after
    )
}

#[track_caller]
fn check(files: &[&str], text: &str, expected: &[&str]) {
    let steps = read_with(files, text, Sources::Here).unwrap().spec.steps;
    assert_eq!(steps.iter().map(shown).collect::<Vec<_>>(), expected);
}

/// Checks that a file is refused with a sentence that has all these parts.
#[track_caller]
fn check_mistake(files: &[&str], text: &str, parts: &[&str]) {
    let said = read_with(files, text, Sources::Here).unwrap_err().to_string();
    parts.iter().for_each(|part| assert!(said.contains(part), "{part:?} is not in {said:?}"));
}

#[test]
fn sweeps_have_a_step_per_combination() {
    let text = r#"
        [params]
        models = ["a", "b"]
        rate = 0.5

        [[step]]
        name = "train"
        command = "train {model} {k} {rate} ${k} {{k}} awk '{print $1}' {a,b}"
        sweep = { k = [1, 2.0], model = "models" }
        outputs = ["out/{model}-{k}"]

        [[step]]
        name = "score {k}"
        sweep = { k = [1, 2] }
        words = ["score", "{k}"]
        after = ["train", "one {k}"]

        [[step]]
        name = "one {k}"
        sweep = { k = [1, 2] }
        words = ["one"]

        [[step]]
        name = "last {rate}"
        words = ["true"]
        after = ["one {k}", "score 2"]
    "#;
    let rest = "0.5 ${k} {k} awk '{print $1}' {a,b}";
    check(
        &[],
        text,
        &[
            &format!("train k=1 model=a: train a 1 {rest} [>out/a-1] []"),
            &format!("train k=1 model=b: train b 1 {rest} [>out/b-1] []"),
            &format!("train k=2.0 model=a: train a 2.0 {rest} [>out/a-2.0] []"),
            &format!("train k=2.0 model=b: train b 2.0 {rest} [>out/b-2.0] []"),
            "score 1: 1 [>] [0, 1, 2, 3, 6]",
            "score 2: 2 [>] [0, 1, 2, 3, 7]",
            "one 1: one [>] []",
            "one 2: one [>] []",
            "last 0.5: true [>] [6, 7, 5]",
        ],
    );
}

#[test]
fn every_text_takes_values() {
    let text = r#"
        [params]
        x = "v"
        [[step]]
        name = "s"
        command = "true"
        sweep = { t = [true, "2m"] }
        stdin = "{x}.in"
        stdout = "{t}.out"
        env = { A = "{x}{t}" }
        arch = "{x}"
        memory = "{{x}}"
    "#;
    check_mistake(&["v.in"], text, &["memory = \"{x}\""]);
    let steps = read_with(&["v.in"], &text.replace("{{x}}", "1G"), Sources::Here).unwrap().spec.steps;
    let program = &steps[1].program;
    assert_eq!(program.env, [("A".to_string(), "v2m".to_string())]);
    assert_eq!(program.stdin.as_deref(), Some(Path::new("v.in")));
    assert_eq!(program.stdout.as_deref(), Some(Path::new("2m.out")));
    assert_eq!(program.architecture.as_deref(), Some("v"));
}

#[test]
fn streams_take_values_and_patterns() {
    let text = r#"
        [params]
        x = "v"
        [[step]]
        name = "s"
        command = "true"
        inputs = ["{x}.in", "in/*"]
        outputs = ["{x}.out"]
        streams = ["in/*", "{x}.out"]
    "#;
    let steps = read_with(&["v.in", "in/a", "in/b"], text, Sources::Here).unwrap().spec.steps;
    let program = &steps[0].program;
    let streams: Vec<&Path> = program.named_streams().map(|file| file.name.as_path()).collect();
    assert_eq!(streams, [Path::new("in/a"), Path::new("in/b"), Path::new("v.out")]);
}

const SAMPLES: &str = r#"
    [[step]]
    name = "sort {sample}"
    each = "counts/{sample}"
    command = "sort"
    stdin = "counts/{sample}"
    stdout = "sorted/{sample}"

    [[step]]
    name = "count"
    each = "data/{sample}.txt"
    command = "count {sample}"
    stdin = "data/{sample}.txt"
    stdout = "counts/{sample}"

    [[step]]
    name = "all"
    command = "cat sorted/*"
    inputs = ["sorted/*", "list"]
    outputs = ["sorted/all"]
    after = ["count"]

    [[step]]
    name = "make"
    command = "make"
    outputs = ["data/made.txt", "list"]
"#;

#[test]
fn wildcards_follow_files_and_outputs() {
    let files =
        ["data/b.txt", "data/a.txt", "data/.hidden.txt", "data/dir.txt/x", "data/c.csv", "sorted/old"];
    check(
        &files,
        SAMPLES,
        &[
            "sort a: sort [counts/a>sorted/a] []",
            "sort b: sort [counts/b>sorted/b] []",
            "sort made: sort [counts/made>sorted/made] []",
            "count sample=a: count a [data/a.txt>counts/a] []",
            "count sample=b: count b [data/b.txt>counts/b] []",
            "count sample=made: count made [data/made.txt>counts/made] []",
            "all: cat sorted/* [sorted/a,sorted/b,sorted/made,sorted/old,list>sorted/all] [3, 4, 5]",
            "make: make [>data/made.txt,list] []",
        ],
    );
}

#[test]
fn wildcards_and_sweeps_combine() {
    let text = r#"
        [[step]]
        name = "{set} {s} {k}"
        each = "{set}/{s}-{k}.txt"
        sweep = { k = ["x", "y"] }
        command = "true"
        outputs = ["out/{set}-{s}-{k}"]
    "#;
    let files = ["a/1-x.txt", "b/1-x.txt", "b/2-y.txt"];
    let expected =
        ["a 1 x: true [>out/a-1-x] []", "b 1 x: true [>out/b-1-x] []", "b 2 y: true [>out/b-2-y] []"];
    check(&files, text, &expected);
}

#[test]
fn combinations_may_follow_each_other() {
    let text = r#"
        [[step]]
        name = "{k} {s}"
        each = "{k}/{s}"
        sweep = { k = ["a", "aa"] }
        words = ["true"]
        outputs = ["{k}a/{s}"]
    "#;
    check(&["a/x"], text, &["a x: true [>aa/x] []", "aa x: true [>aaa/x] []"]);
    check_mistake(
        &["a/x"],
        &text.replace("{k}a/{s}", "{k}/{s}s"),
        &["grows without end", "\"a/{s}\"", "a/xs"],
    );
}

#[test]
fn star_in_brackets_names_the_star() {
    let step = |input: &str| format!("[[step]]\nname = \"s\"\ncommand = \"true\"\ninputs = [{input}]\n");
    check(&["a*b", "axb"], &step("'a[*]b'"), &["s: true [a*b>] []"]);
    check(&["a*b", "axb"], &step("'a*b', 'axb'"), &["s: true [a*b,axb>] []"]);
    check(&["a[1]b?"], &step("'a[1]b?'"), &["s: true [a[1]b?>] []"]);
    check_mistake(&[], &step("'../*'"), &["the pattern \"../*\": give a path without `..`"]);
    check_mistake(&[], &step("'a/**/b'"), &["a `*` for each directory"]);
    check_mistake(&[], &step("'a[*'"), &["the pattern \"a[*\": invalid range pattern"]);
    check_mistake(
        &["b"],
        &step("'a*', 'b'"),
        &["the step \"s\": no file matches \"a*\", and no step writes"],
    );
}

#[test]
fn cluster_steps_follow_outputs() {
    let text = SAMPLES.replace("inputs = [\"sorted/*\", ", "inputs = [\"sorted/m*\", ");
    let steps = read_with(&[], &text, Sources::OnNodes).unwrap().spec.steps;
    assert_eq!(steps.len(), 4);
    let text = text.replace("data/made.txt", "made.txt");
    let said = read_with(&[], &text, Sources::OnNodes).unwrap_err().to_string();
    assert!(said.contains("no file that this machine sees matches \"counts/{sample}\""), "{said}");
}

#[test]
fn mistakes_of_values_are_named() {
    let mistake = |head: &str, step: &str, parts: &[&str]| {
        let text = format!("{head}\n[[step]]\nname = \"s\"\ncommand = \"x {{k}}\"\n{step}\n");
        check_mistake(&[], &text, parts);
    };
    let lists = "[params]\nmodels = [1]\none = 1";
    mistake("", "sweep = { k = [] }", &["the sweep of the step \"s\"", "the list of k is empty"]);
    mistake("[params]\nk = []", "sweep = { k = \"k\" }", &["the list of k is empty"]);
    mistake("", "sweep = { k-1 = [1] }", &["has \"k-1\": give a name of letters"]);
    mistake("[params]\n1k = 1", "", &["[params] has \"1k\": give a name"]);
    mistake("", "sweep = { k = 3 }", &["k is no list"]);
    mistake("", "sweep = [1]", &["sweep is no table"]);
    mistake("", "sweep = { k = [[1]] }", &["k is a list in a list"]);
    mistake("[params]\nk = nan", "", &["[params]: k is no finite number"]);
    mistake("[params]\nk = { a = 1 }", "", &["[params]: k is a table"]);
    mistake(lists, "sweep = { k = \"model\" }", &["names \"model\"", "did you mean `models`?"]);
    mistake(lists, "sweep = { k = \"one\" }", &["names \"one\", which is no list"]);
    mistake("[params]\nk = [1]", "", &["the step \"s\" has {k}, which is a list: sweep"]);
    mistake("", "swep = { k = [1] }", &["no key `swep`: did you mean `sweep`?"]);
    mistake("[param]\nk = 1", "", &["no key `param`: did you mean `params`?"]);
    let near = "[params]\nsample = 1";
    mistake(near, "outputs = [\"{sampel}\"]", &["has {sampel}", "did you mean {sample}?", "{{sampel}}"]);
    mistake("", "sweep = { k = [1, 1] }", &["two steps have the name \"s k=1\""]);
    mistake("", "sweep = { k = [1, 2] }\noutputs = [\"o\"]", &["\"s k=1\" and \"s k=2\" both write"]);
    mistake("", "sweep = { k = [\"..\"] }\noutputs = [\"{k}/o\"]", &["names \"../o\"", "without `..`"]);
    mistake("", "sweep = { k = [\"a\\nb\"] }", &["printable bytes"]);
    mistake(
        "",
        "sweep = { k = [1] }\n[[step]]\nname = \"s\"\ncommand = \"x\"",
        &["two steps have the name \"s\""],
    );
    mistake("", "sweep = { k = [1] }\nafter = [\"s\"]", &["steps wait for each other: \"s k=1\""]);
    mistake(
        "",
        "sweep = { k = [1] }\nafter = [\"s k=2\"]",
        &["waits for \"s k=2\"", "did you mean `s k=1`?"],
    );
}

#[test]
fn near_names_in_braces_are_refused() {
    let step =
        |command: &str| format!("[params]\ntop = 20\n[[step]]\nname = \"s\"\ncommand = '''{command}'''\n");
    for near in ["tob", "tpo", "Top", "TOP", "topp", "to"] {
        let said = format!("has {{{near}}}, which is no name of it: did you mean {{top}}?");
        check_mistake(&[], &step(&format!("echo {{{near}}}")), &[&said]);
    }
    let plain = "echo ${tob} ${x} {a,b} {1..3} {j}; awk '{print}' x; sh -c 'f() { to; }'";
    check(&[], &step(plain), &[&format!("s: {plain} [>] []")]);
}

#[test]
fn placeholders_of_snakemake_are_refused() {
    let step = |keys: &str| format!("[[step]]\nname = \"s\"\n{keys}\n");
    for inside in ["input", "output", "inputs", "outputs", "input.fa", "output[0]"] {
        let said = format!("the step \"s\" has {{{inside}}}, which is no placeholder here: write the names");
        check_mistake(&[], &step(&format!("command = 'x {{{inside}}}'")), &[&said, "Coming from Snakemake"]);
    }
    let wildcard = "words = ['x', '{wildcards.sample}']";
    check_mistake(&[], &step(wildcard), &["name the wildcard alone, as in {sample}", "{{wildcards.sample}}"]);
    let plain = "command = 'x ${input} {{input}} {{input.fa}} {wildcards} {params}'";
    let made = "s: x ${input} {input} {input.fa} {wildcards} {params} [>] []";
    check(&[], &step(plain), &[made]);
    let known = "[params]\ninput = 'data'\n";
    check(&[], &format!("{known}{}", step("command = 'x {input}'")), &["s: x data [>] []"]);
}

#[test]
fn mistakes_of_wildcards_are_named() {
    let mistake = |files: &[&str], step: &str, parts: &[&str]| {
        check_mistake(files, &format!("[[step]]\nname = \"s\"\ncommand = \"x {{a}}\"\n{step}\n"), parts);
    };
    mistake(&[], "each = \"d/{a}\"", &["the step \"s\": no file matches \"d/{a}\", and no step writes"]);
    mistake(&[], "each = \"d/a\"", &["the pattern \"d/a\": give a wildcard"]);
    mistake(&[], "each = \"../{a}\"", &["without `..`"]);
    mistake(&[], "each = \"*/{a}\"", &["in place of `*`"]);
    mistake(&[], "each = \"{a}{b}\"", &["text between two wildcards"]);
    mistake(&[], "each = \"{a}.{b}.{c}.{d}.{e}.{f}.{g}.{h}.{i}\"", &["at most 8 wildcards"]);
    let grows = "each = \"d/{a}.txt\"\noutputs = [\"d/{a}.up.txt\"]";
    mistake(&["d/x.txt"], grows, &["grows without end", "d/x.up.txt", "do not match"]);
    let other = "\n[[step]]\nname = \"t\"\neach = \"e/{a}\"\nwords = [\"x\"]\noutputs = [\"d/{a}x\"]";
    let grows = format!("each = \"d/{{a}}\"\noutputs = [\"e/{{a}}\"]{other}");
    mistake(&["d/x"], &grows, &["the step \"s\" grows without end", "d/xx"]);
    for name in ["a b", "$(x)", "a;b", "-r", "a'b", "a\nb", "~", "*"] {
        let file = format!("d/{name}.txt");
        mistake(&[&file], "each = \"d/{a}.txt\"", &["has {a} in `command`", "NAME", "words"]);
    }
}

#[test]
fn repeated_wildcards_are_not_tried_without_end() {
    let file = format!("x{}.txt", "_".repeat(200));
    let each = "{a}_{b}_{c}_{d}_{e}_{f}_{g}_{a}.txt";
    let text = format!("[[step]]\nname = \"s\"\nwords = [\"x\"]\neach = \"{each}\"\n");
    check_mistake(&[&file], &text, &["the step \"s\" has the pattern", each, "too many trials"]);
}

#[test]
fn odd_names_are_refused_in_scripts() {
    let step = |words: &str| {
        format!("[[step]]\nname = \"s\"\nwords = [{words}]\neach = \"d/{{a}}\"\nstdin = \"d/{{a}}\"\n")
    };
    for option in ["-c", "-ec", "-euc", "-e"] {
        let words = step(&format!("\"bash\", \"{option}\", \"sort {{a}} | uniq\""));
        check_mistake(&["d/$(x)"], &words, &["has {a} in `command` or after an option", "a word of its own"]);
        check(&["d/x"], &words, &["s a=x: sort x | uniq [d/x>] []"]);
    }
    for before in ["--name", "-x", "-", "c", "-1c"] {
        check(&["d/a b"], &step(&format!("\"p\", \"{before}\", \"{{a}}\"")), &["s a=a b: a b [d/a b>] []"]);
    }
    let argument = step("\"sh\", \"-c\", \"cat \\\"$1\\\"\", \"sh\", \"{a}\"");
    check(&["d/a b"], &argument, &["s a=a b: a b [d/a b>] []"]);
}

#[test]
fn odd_names_pass_in_words() {
    let text = "[[step]]\nname = \"s\"\nwords = [\"{a}\"]\neach = \"d/{a}\"\nstdin = \"d/{a}\"\n";
    check(
        &["d/a b", "d/$(x)", "d/{a}"],
        text,
        &["s a=$(x): $(x) [d/$(x)>] []", "s a=a b: a b [d/a b>] []", "s a={a}: {a} [d/{a}>] []"],
    );
    check_mistake(&["d/a\nb"], text, &["has the name \"s a=a\\nb\"", "printable"]);
}

#[test]
fn too_many_steps_are_refused_at_once() {
    let list = (0..1000).map(|number| number.to_string()).collect::<Vec<_>>().join(",");
    let text = |keys: &str| {
        let sweep: String = keys.chars().map(|key| format!("{key} = [{list}],")).collect();
        let sweep = sweep.trim_end_matches(',').to_string();
        format!("[[step]]\nname = \"s\"\nwords = [\"x\"]\nsweep = {{ {sweep} }}\n")
    };
    let parts = ["the step \"s\" makes more than 1000000 steps"];
    check_mistake(&[], &text("abc"), &parts);
    check_mistake(&[], &text("abcdefghijklmnopqrstuvwxyz"), &parts);
    let long = text("ab").replace("\"x\"", &format!("\"{}\"", "x".repeat(10_000)));
    check_mistake(&[], &long, &["makes more than 1073741824 bytes"]);
    let every =
        format!("{}after = [\"t\"]\n{}", text("ab").replace("999", "1"), text("a").replace("\"s\"", "\"t\""));
    let every = every.replace("b = [0,1,2,3,4,5,6,7,8,9,", "b = [0,1,2,3,4,5,6,7,8,9] #");
    check_mistake(&[], &every.replace("] #", "] }\n#"), &["makes more than 5000000 gathered"]);
}

proptest! {
    /// A file without values stays as it is; so does a text without names in braces beside a sweep.
    #[test]
    fn texts_without_names_stay(command in "[ -~é]{1,40}", name in "[a-z{}$ ]{1,10}") {
        let literal = |text: &str| format!("'''{}'''", text.replace('\'', "\""));
        let text = format!("[[step]]\nname = {}\nwords = [{}]\n", literal(&name), literal(&command));
        let plain = read_with(&[], &text, Sources::Here).unwrap().spec;
        prop_assert_eq!(&plain.steps[0].name, &name);
        prop_assert_eq!(&plain.steps[0].program.words[0], &command.replace('\'', "\""));
        let other = "[[step]]\nname = \"other\"\nwords = [\"{zzzzzzzzzzzz}\"]\nsweep = { zzzzzzzzzzzz = [1] }\n";
        let beside = read_with(&[], &format!("[params]\nyyyyyyyyyyyy = 1\n{text}{other}"), Sources::Here);
        let beside = beside.unwrap().spec;
        prop_assert_eq!(&beside.steps[0].name, &plain.steps[0].name);
        prop_assert_eq!(&beside.steps[0].program.words, &plain.steps[0].program.words);
        prop_assert_eq!(&beside.steps[1].program.words[0], "1");
    }
}
