//! Flows as their users meet them: job files that say what cannot be, stages that are cancelled or fail, nodes that are emptied while
//! parts lie on them, and two flows at once.

use blackbox::flow::{
    Damage, GATED, assert_as_embedded, attempts_again, cluster_with_input, forget_who_hung, let_finish,
    nothing_of_stages_is_left, stage_files, start_at_gate, start_gated, start_here, start_on,
    wait_for_replicas, with_words, write_flow, write_hanging, write_input,
};
use blackbox::{Cluster, Fifo, Questions, Random, Running, Sandbox, State, Watched};
use rustix::process::Signal;
use std::path::PathBuf;

const REFUSED: i32 = 2;
const INTERRUPTED: i32 = 130;

/// A stage that reads a file, one that reads that, and what is said of the last.
const TWO: &str =
    "slots = 1\n\n[[stage]]\nname = \"words\"\ninput = \"gate.txt\"\nreducer = \"cat\"\n\n[[stage]]\n";

#[test]
fn error_of_job_file_names_line_and_key() {
    let sandbox = Sandbox::new();
    write_input(&sandbox);
    let refused = |text: &str, words: &[&str]| {
        sandbox.write("bad.toml", text);
        let refused = start_here(&sandbox, "bad.toml").wait();
        let refused = refused.expect_failure(REFUSED, &[&["bad.toml"][..], words].concat());
        assert!(!sandbox.out().exists(), "{}", refused.story());
    };
    let second = |text: &str| format!("{TWO}{text}\n");
    let unknown = second("name = \"lines\"\nfrom = \"word\"\noutput = \"out\"");
    refused(&unknown, &["line 8", "`from`", "\"word\"", "\"lines\""]);
    let itself = second("name = \"lines\"\nfrom = [\"words\", \"lines\"]\noutput = \"out\"");
    refused(&itself, &["line 8", "`from`", "\"lines\""]);
    let circle =
        "[[stage]]\nname = \"a\"\nfrom = \"b\"\n\n[[stage]]\nname = \"b\"\nfrom = \"a\"\noutput = \"out\"\n";
    refused(circle, &["line 1", "`from`", "\"a\"", "\"b\"", "no stage before it"]);
    let twice = second("name = \"words\"\ninput = \"gate.txt\"\noutput = \"out\"");
    refused(&twice, &["line 8", "`name`", "two stages", "\"words\""]);
    refused(&second("from = \"words\"\noutput = \"out\""), &["line 8", "`name`"]);
    refused("stage = []\n", &["`stage`", "empty list"]);
    refused(
        &second("name = \"lines\"\nform = \"words\"\noutput = \"out\""),
        &["line 10", "`form`", "`from`"],
    );
    refused(&second("name = \"lines\"\nfrom = 7\noutput = \"out\""), &["line 10", "a string or a list"]);
    let outside =
        format!("mapper = \"cat\"\n{}", second("name = \"lines\"\nfrom = \"words\"\noutput = \"out\""));
    refused(&outside, &["`mapper`", "outside of the stages"]);
    let published = TWO.replace("reducer", "output = \"other\"\nreducer");
    refused(
        &format!("{published}name = \"lines\"\nfrom = \"words\"\noutput = \"out\"\n"),
        &["\"words\"", "`output`"],
    );
    refused(&second("name = \"lines\"\nfrom = \"words\""), &["line 8", "\"lines\"", "`output`"]);
    let same = "[[stage]]\nname = \"c\"\nfrom = \"words\"\noutput = \"out\"\n";
    let same = second(&format!("name = \"b\"\nfrom = \"words\"\noutput = \"out\"\n{same}"));
    sandbox.write("bad.toml", same);
    start_here(&sandbox, "bad.toml").wait().expect_failure(REFUSED, &["are nested", "/out"]);
    sandbox.assert_nothing_left();
}

fn start_hanging(cluster: &Cluster, pids: &mut Fifo) -> (Running, Watched) {
    let flow = Running::start(&mut cluster.sailfish(&["run", "--job", "flow.toml"]));
    (flow, Watched::new(&pids.read_line()))
}

fn hanging_cluster() -> (Cluster, Fifo) {
    let cluster = Cluster::builder().nodes(3).start();
    let pids = write_hanging(&cluster.sandbox);
    (cluster, pids)
}

/// No job runs, no program, no output and no file of a stage is left.
#[track_caller]
fn assert_all_gone(cluster: &Cluster, program: &Watched, jobs: i64) {
    program.wait_gone();
    let last = cluster.jobs().of_jobs_after(cluster.last_job() - 3);
    assert_eq!((last.is(State::Cancelled).count(), cluster.jobs().count()), (3, jobs));
    assert!(!cluster.sandbox.out().exists());
    nothing_of_stages_is_left(cluster);
    cluster.sandbox.assert_no_leftovers();
}

/// Whichever: the one that rests, the one that runs, the one that waits.
#[test]
fn a_stage_that_is_cancelled_ends_its_flow() {
    let (cluster, mut pids) = hanging_cluster();
    for stage in 0..3 {
        let (flow, program) = start_hanging(&cluster, &mut pids);
        let job = (3 * stage + stage + 1).to_string();
        cluster.run(&["cancel", &job]).expect_success();
        let ended = flow.wait().expect_failure(INTERRUPTED, &["it left no output and no intermediate data"]);
        assert_all_gone(&cluster, &program, 3 * (stage + 1));
        let reason = cluster.jobs().saying(&format!("(job {job}) did not succeed"));
        assert_eq!(reason.count(), 2, "{}", ended.story());
        forget_who_hung(&cluster.sandbox);
    }
}

#[test]
fn ctrl_c_of_a_client_ends_its_flow() {
    let (cluster, mut pids) = hanging_cluster();
    let (flow, program) = start_hanging(&cluster, &mut pids);
    flow.signal(Signal::INT);
    flow.wait()
        .expect_failure(INTERRUPTED, &["stopped by a signal", "it left no output and no intermediate data"]);
    assert_all_gone(&cluster, &program, 3);
}

const FAILS: &str = r#"
memory = "64M"
slots = 2
replication = "rack"

WORDS
[[stage]]
name = "last"
from = "words"
reducer = "HERE/fails.sh"
output = "OUT"
"#;

/// Its exit code is that of the whole, and the stages before leave nothing.
#[test]
fn failing_program_of_last_stage_ends_flow() {
    let cluster = cluster_with_input(3);
    let sandbox = &cluster.sandbox;
    sandbox.script("fails.sh", "#!/bin/sh\necho 'it cannot be' >&2\nexit 7\n");
    let told = ["the stage \"last\"", "it cannot be", "7"];
    start_on(&cluster, FAILS, "out").wait().expect_failure(7, &told);
    assert!(!sandbox.out().exists());
    nothing_of_stages_is_left(&cluster);
    sandbox.assert_no_leftovers();
    for (job, state) in [(1, State::Cancelled), (2, State::Failed)] {
        cluster.jobs().of_job(job).is(state).wait_for(1);
    }
    start_here(sandbox, "flow.toml").wait().expect_failure(7, &told);
    sandbox.assert_nothing_left();
}

/// Not all parts lie where the first of them was made.
const SPREADS: &str = "#!/bin/sh\nsleep 1\nexec cat\n";

/// A drain does not wait for parts: with replicas nothing is made again, without they are.
#[test]
fn a_node_with_parts_is_emptied() {
    for mode in ["rack", "none"] {
        let mut cluster = cluster_with_input(3);
        cluster.sandbox.script("spreads.sh", SPREADS);
        let text = with_words(&GATED.replace("MODE", mode)).replacen("builtin:sum", "HERE/spreads.sh", 1);
        let (flow, first) = start_at_gate(&cluster, &text, "out");
        if mode == "rack" {
            wait_for_replicas(&cluster, first);
        }
        let place = cluster.node_with_parts(first);
        let name = format!("node-{place}");
        let drain = cluster.run(&["nodes", "drain", &name, "--wait"]);
        assert!(drain.expect_success().text().contains("drained"));
        cluster.wait_for_node(place);
        let_finish(&cluster, flow);
        let again = attempts_again(&cluster, first);
        assert!(mode == "none" || again == 0, "parts with replicas were made again");
    }
}

/// Stages of one do not mix with those of the other, and each has its user.
#[test]
fn two_users_have_flows_at_once() {
    let cluster = cluster_with_input(3);
    let mut flows = Vec::new();
    for user in ["ann", "bob"] {
        let file = format!("{user}.toml");
        write_flow(&cluster.sandbox, &file, &GATED.replace("MODE", "rack"), user);
        flows.push(Running::start(cluster.sailfish(&["run", "--job", &file]).env("USER", user)));
    }
    flows.iter().for_each(|flow| flow.wait_for_stderr("stage words is done"));
    for user in ["ann", "bob"] {
        cluster.jobs().of_user(user).wait_for(3);
    }
    cluster.sandbox.open_gate();
    flows.into_iter().for_each(|flow| drop(flow.wait().expect_success()));
    for user in ["ann", "bob"] {
        assert_as_embedded(&cluster.sandbox, &format!("{user}.toml"), user);
    }
    nothing_of_stages_is_left(&cluster);
}

/// One copy of each part is as it was: it is read, and nothing is made again.
#[test]
fn damaged_parts_are_read_at_their_replicas() {
    let cluster = cluster_with_input(3);
    let (flow, first) = start_gated(&cluster, "rack", "out");
    wait_for_replicas(&cluster, first);
    let mut random = Random::new(5);
    let files = stage_files(&cluster.sandbox, first);
    assert!(files.len() == 6 && files.values().all(|copies| copies.len() == 2), "{files:?}");
    for copies in files.values() {
        Damage::choose(&mut random).strike(random.one_of::<PathBuf>(copies), &mut random);
    }
    let_finish(&cluster, flow);
    assert_eq!(attempts_again(&cluster, first), 0);
}
