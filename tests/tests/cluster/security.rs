//! A cluster that lets in only whom it knows: real processes with tokens and TLS, and those who should not get in.

use blackbox::{
    Answers, CLUSTER_MEMORY, Fifo, Finished, Questions, Running, Sandbox, WrongClock, could_not_run, rows_of,
};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Asks as ann does.
impl Answers for Guarded {
    fn rows(&self, statement: &str) -> Vec<Value> {
        rows_of(self.by("ann.token", &["state", "--json", statement]))
    }
}

/// A server with tokens and TLS, and the tokens of some users.
pub(super) struct Guarded {
    pub sandbox: Sandbox,
    pub url: String,
    server: Option<Running>,
    nodes: Vec<Running>,
}

impl Guarded {
    pub fn start() -> Guarded {
        let sandbox = Sandbox::new();
        let server = serve_jobs(&sandbox, "127.0.0.1:0");
        Self::of(sandbox, server)
    }

    pub fn of(sandbox: Sandbox, server: Running) -> Guarded {
        server.wait_for_stderr("serving at");
        let told = server.stderr_so_far();
        let url = told.split_whitespace().find(|word| word.starts_with("https://"));
        let url = url.expect("a server tells its URL").trim_end_matches(',').to_string();
        let guarded = Guarded { sandbox, url, server: Some(server), nodes: Vec::new() };
        for (user, role) in [("ann", "user"), ("bob", "user"), ("eve", "read-only"), ("rack", "node")] {
            guarded.make_token(user, role);
        }
        guarded
    }

    fn make_token(&self, user: &str, role: &str) {
        let file = format!("{user}.token");
        let args = ["token", "create", "--user", user, "--role", role, "--output", &file];
        self.by(&self.admin_token(), &args).expect_success();
    }

    pub fn admin_token(&self) -> String {
        self.sandbox.path("server-state/admin.token").display().to_string()
    }

    /// A subcommand with `--server`, and the token in a file.
    pub fn command(&self, token_file: &str, args: &[&str]) -> Command {
        let mut command = self.sandbox.sailfish();
        // A program of the job stands last.
        let dashes = args.iter().position(|arg| *arg == "--").unwrap_or(args.len());
        command.args(&args[..dashes]).args(["--server", &self.url, "--token-file", token_file]);
        command.args(&args[dashes..]);
        command
    }

    #[track_caller]
    pub fn by(&self, token_file: &str, args: &[&str]) -> Finished {
        Running::start(&mut self.command(token_file, args)).wait()
    }

    pub fn node_command(&self, token_file: &str, name: &str) -> Command {
        let args =
            ["node", "--slots", "2", "--memory", CLUSTER_MEMORY, "--name", name, "--shuffle-reserve", "0"];
        let mut command = self.command(token_file, &args);
        command.arg("--disk").arg(self.sandbox.path(name));
        command
    }

    fn start_node(&self, token_file: &str, name: &str) -> Running {
        Running::start(&mut self.node_command(token_file, name))
    }

    pub fn add_node(&mut self) {
        self.add_changed_node(|_| ());
    }

    pub fn add_changed_node(&mut self, change: impl FnOnce(&mut Command)) {
        let mut command = self.node_command("rack.token", &format!("node-{}", self.nodes.len()));
        change(&mut command);
        let node = Running::start(&mut command);
        node.wait_for_stderr("joined");
        self.nodes.push(node);
    }

    /// Looks until a file of ann's lies on two nodes.
    fn wait_for_replica(&self) {
        self.replicated_intermediate_files().wait_for(1);
    }

    /// The name of the only token of a user.
    fn token_name(&self, user: &str) -> String {
        let tokens = self.by(&self.admin_token(), &["token", "ls", "--json"]).expect_success().json();
        let mut tokens = tokens.as_array().expect("a list").iter();
        let token = tokens.find(|token| token["user"] == user).expect("the user has a token");
        token["name"].as_str().expect("a name").to_string()
    }

    fn job(&self) -> String {
        let jobs = self.by("eve.token", &["jobs", "--json"]).expect_success().json();
        jobs[0]["job"].as_i64().expect("a job").to_string()
    }
}

pub(super) fn serve(sandbox: &Sandbox, address: &str, more: &[&str]) -> Running {
    let mut command = sandbox.sailfish();
    command.args(["server", "--listen", address, "--require-tokens", "--tls"]).args(more);
    Running::start(command.arg("--state").arg(sandbox.path("server-state")))
}

/// One whose jobs may name everything in the sandbox.
pub fn serve_jobs(sandbox: &Sandbox, address: &str) -> Running {
    serve(sandbox, address, &["--allow-root", &sandbox.path("").display().to_string()])
}

fn mode(path: &Path) -> u32 {
    path.metadata().expect("a file").permissions().mode() & 0o777
}

/// All files of a directory, with what they hold.
fn files(dir: &Path, found: &mut Vec<(PathBuf, Vec<u8>)>) {
    for entry in std::fs::read_dir(dir).expect("a directory").flatten() {
        match entry.path() {
            path if path.is_dir() => files(&path, found),
            path => {
                // One may have gone since.
                let content = std::fs::read(&path).unwrap_or_default();
                found.push((path, content));
            }
        }
    }
}

/// Over TLS to the data ports too, with a grant for the one file.
#[test]
fn intermediate_files_belong_to_their_user() {
    let mut guarded = Guarded::start();
    guarded.add_node();
    guarded.add_node();
    let text: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    guarded.sandbox.write("text", &text);
    let put = |token_file: &str, more: &[&str]| {
        let text = std::fs::File::open(guarded.sandbox.path("text")).expect("it was written");
        let args = [&["intermediate", "put", "mine"], more].concat();
        Running::start_with_stdin(&mut guarded.command(token_file, &args), text).wait()
    };
    put("ann.token", &[]).expect_success();
    let read = ["intermediate", "read", "mine"];
    assert!(guarded.by("ann.token", &read).expect_success().stdout == text);
    guarded.wait_for_replica();
    // Each user has names of their own.
    guarded.by("bob.token", &read).expect_failure(2, &["there is no intermediate file"]);
    let of_ann =
        |verb: &str, token: &str| guarded.by(token, &["intermediate", verb, "mine", "--user", "ann"]);
    for verb in ["read", "stat", "rm"] {
        of_ann(verb, "bob.token").expect_failure(2, &["\"ann\" belong to another user"]);
        of_ann(verb, "eve.token").expect_failure(2, &["read-only may not"]);
        of_ann(verb, "rack.token").expect_failure(2, &["node may not"]);
    }
    put("bob.token", &["--user", "ann", "--replace"]).expect_failure(2, &["belong to another user"]);
    put("bob.token", &[]).expect_success();
    let listed = |token: &str| {
        let listed = guarded.by(token, &["intermediate", "list", "--json"]).expect_success().json();
        listed.as_array().map(Vec::len)
    };
    assert_eq!((listed("bob.token"), listed(&guarded.admin_token())), (Some(1), Some(2)));
    assert!(of_ann("read", &guarded.admin_token()).expect_success().stdout == text);
    of_ann("rm", &guarded.admin_token()).expect_success();
    guarded.by("ann.token", &read).expect_failure(2, &["there is no intermediate file"]);
}

/// Certificates, tokens of jobs and grants do not go by the clocks of nodes.
#[test]
fn nodes_with_wrong_clocks_work_over_tls() {
    const YEAR_SECONDS: i64 = 365 * 86_400;
    let mut guarded = Guarded::start();
    let Some(clock) = WrongClock::build(&guarded.sandbox, "nodes with wrong clocks over TLS") else { return };
    for wrong_by in [-2 * YEAR_SECONDS, 3 * YEAR_SECONDS] {
        guarded.add_changed_node(|command| clock.set(command, wrong_by));
    }
    let text = blackbox::corpus(3 << 20);
    guarded.sandbox.write("in.txt", &text);
    let words = ["--mapper", "builtin:words", "--reducer", "builtin:sum", "--input", "in.txt"];
    let run = [&["run", "--memory", CLUSTER_MEMORY, "--slots", "2", "--output", "out"], &words[..]].concat();
    guarded.by("ann.token", &run).expect_success();
    let own = ["--memory", CLUSTER_MEMORY, "--slots", "2", "--output", "embedded"];
    guarded.sandbox.run_job(&[&words[..], &own].concat()).expect_success();
    guarded.sandbox.assert_same_output("out", "embedded");
    let from = std::fs::File::open(guarded.sandbox.path("in.txt")).expect("it was written");
    Running::start_with_stdin(&mut guarded.command("ann.token", &["intermediate", "put", "mine"]), from)
        .wait()
        .expect_success();
    assert!(guarded.by("ann.token", &["intermediate", "read", "mine"]).expect_success().stdout == text);
    guarded.wait_for_replica();
}

#[test]
fn roles_limit_their_users() {
    let mut guarded = Guarded::start();
    guarded.add_node();
    guarded.add_node();
    let cluster = guarded.by("eve.token", &["nodes", "--json"]).expect_success().json();
    for node in cluster["nodes"].as_array().expect("nodes") {
        let url = node["info"]["data_url"].as_str().expect("a data port");
        assert!(url.starts_with("https://"), "{url}");
    }
    let text: String = (0..20_000).map(|n| format!("word{} the\n", n % 1000)).collect();
    guarded.sandbox.write("in/text", text);
    let run =
        ["run", "--memory", CLUSTER_MEMORY, "--slots", "2", "--input", "in", "--mapper", "builtin:words"];
    let run = |out| [&run[..], &["--reducer", "builtin:sum", "--output", out]].concat();
    guarded.by("ann.token", &run("counts")).expect_success();
    let lines = guarded.sandbox.output_lines(&guarded.sandbox.path("counts"));
    assert!(lines.contains(&"the\t20000".to_string()) && lines.len() == 1001, "{} lines", lines.len());
    let jobs = guarded.by("eve.token", &["jobs", "--json"]).expect_success().json();
    assert_eq!(jobs.as_array().map(Vec::len), Some(1));
    let shown = guarded.by("bob.token", &["show", &guarded.job()]).expect_success();
    assert!(shown.text().contains("counts"), "{}", shown.story());
    guarded.by("eve.token", &run("more")).expect_failure(2, &["read-only may not"]);
    guarded.by("eve.token", &["submit", "--", "true"]).expect_failure(2, &["read-only may not"]);
    guarded.by("rack.token", &["jobs"]).expect_failure(2, &["node may not"]);
    guarded.by("ann.token", &["token", "ls"]).expect_failure(2, &["user may not"]);
    guarded.by("ann.token", &["nodes", "drain", "node-0"]).expect_failure(2, &["user may not"]);
    let create = ["token", "create", "--user", "ann", "--role", "admin"];
    guarded.by("ann.token", &create).expect_failure(2, &["user may not"]);
    guarded.start_node("ann.token", "impostor").wait().expect_failure(2, &["user may not"]);
    guarded.by(&guarded.admin_token(), &create).expect_failure(2, &["has the role user"]);
    let asked = ["state", "select user_name from jobs", "--json"];
    let rows = guarded.by("eve.token", &asked).expect_success().json();
    assert_eq!(rows[0]["user_name"], "ann", "{rows}");
}

#[test]
fn job_belongs_to_the_user_who_submitted_it() {
    let mut guarded = Guarded::start();
    guarded.add_node();
    let (mut ready, hold): (Fifo, Fifo) = (guarded.sandbox.fifo("ready"), guarded.sandbox.fifo("hold"));
    guarded.by("ann.token", &["submit", "--", "sh", "-c", "echo > ready; read line < hold"]).expect_success();
    ready.read_line();
    let job = guarded.job();
    guarded.by("bob.token", &["cancel", &job]).expect_failure(2, &["belongs to another user"]);
    guarded.by("eve.token", &["cancel", &job]).expect_failure(2, &["read-only may not"]);
    guarded.by("ann.token", &["cancel", &job]).expect_success();
    guarded.by("bob.token", &["wait", &job]).expect_failure(130, &["was cancelled"]);
    drop(hold);
}

#[test]
fn kept_data_belongs_to_the_submitting_user() {
    let mut guarded = Guarded::start();
    guarded.add_node();
    guarded.sandbox.write("in", "b\t1\na\t2\n");
    let run = ["run", "--memory", CLUSTER_MEMORY, "--slots", "1", "--input", "in", "--output", "kept"];
    guarded.by("ann.token", &[&run[..], &["--keep-ifiles"]].concat()).expect_success();
    let job = guarded.job();
    let rerun = |by: &str, output| guarded.by(by, &["rerun-reduce", &job, "--output", output]);
    rerun("bob.token", "of-bob").expect_failure(2, &["belongs to another user"]);
    rerun("eve.token", "of-eve").expect_failure(2, &["read-only may not"]);
    rerun("ann.token", "of-ann").expect_success();
    assert_eq!(guarded.sandbox.output_lines(&guarded.sandbox.path("of-ann")), ["a\t2", "b\t1"]);
    // By way of the job that read it, it is no less hers.
    let again = guarded.job();
    let of_bob = ["rerun-reduce", &again, "--output", "of-bob"];
    guarded.by("bob.token", &of_bob).expect_failure(2, &["belongs to another user"]);
    rerun(&guarded.admin_token(), "of-admin").expect_success();
    guarded.by("bob.token", &["gc", &job]).expect_failure(2, &["belongs to another user"]);
    guarded.by("eve.token", &["gc", &job]).expect_failure(2, &["read-only may not"]);
    assert!(guarded.by("bob.token", &["gc", "--all"]).expect_success().text().contains("nothing removed"));
    assert!(guarded.by("ann.token", &["gc", "--all"]).expect_success().text().contains("of 1 job"));
}

#[test]
fn a_wrong_token_or_authority_gets_nowhere() {
    let guarded = Guarded::start();
    let other = Guarded::start();
    let admin = std::fs::read_to_string(guarded.admin_token()).expect("a token");
    let (secret, authority) = admin.trim().rsplit_once('_').expect("a token with its authority");
    // One that names the right authority and was never given out.
    let guessed = format!("sailfish_{}_{authority}", "ab".repeat(32));
    guarded.sandbox.write("guessed", guessed);
    guarded.by("guessed", &["jobs"]).expect_failure(2, &["not known here"]);
    guarded.start_node("guessed", "guesser").wait().expect_failure(2, &["not known here"]);
    // The right one, which does not say whom it is for.
    guarded.sandbox.write("bare", secret);
    guarded.by("bare", &["jobs"]).expect_failure(2, &["no authority is known for"]);
    let ca = |of: &Guarded| of.sandbox.path("server-state/trust/ca.pem").display().to_string();
    guarded.by("bare", &["jobs", "--ca", &ca(&guarded)]).expect_success();
    guarded.by("bare", &["jobs", "--ca", &ca(&other)]).expect_failure(2, &["is not trusted"]);
    // A token of another cluster is not even shown.
    let stranger = other.sandbox.path("rack.token").display().to_string();
    guarded.start_node(&stranger, "stranger").wait().expect_failure(2, &["is not trusted"]);
    guarded.by(&stranger, &["jobs"]).expect_failure(2, &["is not trusted"]);
    let mixed = guarded.by("ann.token", &["jobs", "--ca", &ca(&other)]);
    mixed.expect_failure(2, &["does not belong to the authority that the token names"]);
    // Without TLS, and without anything.
    let plain = guarded.url.replace("https://", "http://");
    let mut command = guarded.sandbox.sailfish();
    command.args(["jobs", "--server", &plain.replace("127.0.0.1", "192.0.2.1"), "--token-file", "ann.token"]);
    Running::start(&mut command).wait().expect_failure(2, &["over TLS only"]);
    let mut command = guarded.sandbox.sailfish();
    command.args(["nodes", "--server", &guarded.url, "--ca", &ca(&guarded)]);
    Running::start(&mut command).wait().expect_failure(2, &["a token is needed"]);
}

#[test]
fn only_administrators_let_jobs_go_before_all_others() {
    let mut guarded = Guarded::start();
    guarded.add_node();
    let submit = |by: &str, priority: &str| {
        guarded.by(by, &["submit", "--wait", "--priority", priority, "--", "true"])
    };
    submit("ann.token", "1").expect_failure(2, &["priority 1", "administrators"]);
    submit("ann.token", "2147483647").expect_failure(2, &["administrators"]);
    submit("ann.token", "-5").expect_success();
    submit(&guarded.admin_token(), "1").expect_success();
}

#[test]
fn a_user_has_roots_of_their_own() {
    let sandbox = Sandbox::new();
    for dir in ["shared", "of-ann", "of-bob"] {
        sandbox.write(&format!("{dir}/in/text"), "a\nb\n");
    }
    let own = |user: &str| format!("{user}={}", sandbox.path(&format!("of-{user}")).display());
    let shared = sandbox.path("shared").display().to_string();
    let roots = ["--allow-root", &shared, &own("ann"), &own("bob")];
    let server = serve(&sandbox, "127.0.0.1:0", &roots);
    let mut guarded = Guarded::of(sandbox, server);
    guarded.add_node();
    let run = |by: &str, input: &str, output: &str| {
        let job = ["run", "--memory", CLUSTER_MEMORY, "--slots", "2", "--input", input, "--output", output];
        guarded.by(by, &job)
    };
    run("ann.token", "shared/in", "of-ann/out").expect_success();
    run("ann.token", "of-ann/in", "shared/out").expect_success();
    run("ann.token", "of-bob/in", "of-ann/other")
        .expect_failure(2, &["of-bob/in/text", "outside of the roots"]);
    let refused = run("bob.token", "of-bob/in", "of-ann/other");
    assert!(
        !refused.stderr.contains("ann="),
        "whose roots there are is nobody's to know: {}",
        refused.story()
    );
    refused.expect_failure(2, &["of-ann/other", "outside of the roots"]);
    run("bob.token", "of-bob/in", "of-bob/out").expect_success();
    let submit = |by: &str, dir: &str| {
        let token = guarded.sandbox.path(by).display().to_string();
        let mut command = guarded.command(&token, &["submit", "--wait", "--", "true"]);
        Running::start(command.current_dir(guarded.sandbox.path(dir))).wait()
    };
    submit("ann.token", "of-ann").expect_success();
    submit("bob.token", "of-ann").expect_failure(2, &["outside of the roots"]);
}

#[test]
fn a_user_replaces_only_outputs_of_their_own() {
    let mut guarded = Guarded::start();
    guarded.add_node();
    guarded.sandbox.write("in/text", "a\nb\n");
    let run = |by: &str, output: &str, more: &[&str]| {
        let job = ["run", "--memory", CLUSTER_MEMORY, "--slots", "2", "--input", "in", "--output", output];
        guarded.by(by, &[&job[..], more].concat())
    };
    run("ann.token", "of-ann", &[]).expect_success();
    run("ann.token", "of-ann", &["--overwrite"]).expect_success();
    run("bob.token", "of-ann", &["--overwrite"])
        .expect_failure(2, &["of-ann", "is not yours as far as this server knows"]);
    // A report that says so does not make it theirs.
    run("bob.token", "of-bob", &[]).expect_success();
    let report = |name: &str| guarded.sandbox.path(name).join("_report.json");
    std::fs::copy(report("of-bob"), report("of-ann")).expect("our own files");
    run("bob.token", "of-ann", &["--overwrite"])
        .expect_failure(2, &["is not yours as far as this server knows"]);
    run(&guarded.admin_token(), "of-ann", &["--overwrite"]).expect_success();
    std::fs::create_dir(guarded.sandbox.path("empty")).expect("a directory of the test");
    run("bob.token", "empty", &["--overwrite"]).expect_success();
}

/// A step that is a job has the rights of its user, no more.
#[test]
fn job_steps_replace_only_outputs_of_their_own() {
    let mut guarded = Guarded::start();
    guarded.add_node();
    guarded.sandbox.write("in", "b\na\n");
    let job = format!(
        "inputs = [\"in\"]\njob = {{ output = \"of-ann\", memory = \"{CLUSTER_MEMORY}\", slots = 2 }}"
    );
    guarded.sandbox.write("flow.toml", format!("[[step]]\nname = \"sort\"\n{job}\n"));
    let run = |by: &str| guarded.by(by, &["workflow", "run", "flow.toml"]);
    run("ann.token").expect_success();
    run("ann.token").expect_success();
    run("bob.token")
        .expect_failure(2, &["\"sort\" cannot begin", "is not yours as far as this server knows"]);
    let part = std::fs::read_to_string(guarded.sandbox.path("of-ann/part-00000")).expect("a part");
    assert_eq!(part, "a\nb\n");
}

/// A proxy that passes connections on to whom they name, and counts them.
fn start_proxy() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let counted = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&counted);
    std::thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                connection.read_exact(&mut byte).expect("a request");
                head.push(byte[0]);
            }
            let head = String::from_utf8(head).expect("a head is text");
            let target = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next());
            let mut onward =
                TcpStream::connect(target.expect("TLS goes by CONNECT")).expect("a server listens");
            connection.write_all(b"HTTP/1.1 200 OK\r\n\r\n").expect("it reads");
            seen.fetch_add(1, Ordering::Relaxed);
            let copies = (connection.try_clone(), onward.try_clone());
            let (mut from, mut to) = (copies.0.expect("a copy"), copies.1.expect("a copy"));
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            std::thread::spawn(move || std::io::copy(&mut onward, &mut connection));
        }
    });
    (url, counted)
}

#[test]
fn proxy_is_used_over_tls_only() {
    let mut guarded = Guarded::start();
    let (proxy, counted) = start_proxy();
    guarded.by("ann.token", &["jobs", "--proxy", &proxy]).expect_success();
    assert_eq!(counted.load(Ordering::Relaxed), 1);
    let node = [
        "node",
        "--slots",
        "1",
        "--memory",
        CLUSTER_MEMORY,
        "--name",
        "behind",
        "--disk",
        "d",
        "--proxy",
        &proxy,
    ];
    let node = Running::start(&mut guarded.command("rack.token", &node));
    node.wait_for_stderr("joined");
    guarded.nodes.push(node);
    guarded.by("ann.token", &["submit", "--wait", "--", "true"]).expect_success();
    assert!(counted.load(Ordering::Relaxed) > 1);
    // What the proxy would see.
    let plain = guarded.url.replace("https://", "http://");
    let secret = std::fs::read_to_string(guarded.sandbox.path("ann.token")).expect("a token");
    guarded.sandbox.write("bare", secret.trim().rsplit_once('_').expect("two parts").0);
    let mut command = guarded.sandbox.sailfish();
    command.args(["jobs", "--server", &plain, "--token-file", "bare", "--proxy", &proxy]);
    Running::start(&mut command).wait().expect_failure(2, &["through a proxy, over TLS only"]);
    guarded
        .by("ann.token", &["jobs", "--proxy", "socks5://127.0.0.1:1"])
        .expect_failure(2, &["no address of a proxy"]);
}

/// Sends a request to a data port with `curl`; returns its exit code, and the status if there is one.
fn ask_data_port(url: &str, more: &[&str]) -> (Option<i32>, String) {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--max-time", "60", "--output", "/dev/null", "--write-out", "%{http_code}"]);
    curl.args(["--noproxy", "*", "--request", "POST", "--data-binary", "x"]);
    curl.args(["--header", "content-type: application/octet-stream"]).args(more);
    let answered = curl.arg(format!("{url}/data/v1/jobs/1/scan")).output().expect("curl runs");
    (answered.status.code(), String::from_utf8_lossy(&answered.stdout).into_owned())
}

/// Strangers at the port by which nodes read each other's data: without a token, with one for something else, with a server
/// in mind that is another, without TLS.
#[test]
fn a_data_port_tells_strangers_nothing() {
    if Command::new("curl").arg("--version").output().is_err() {
        return could_not_run("strangers at a data port", "there is no curl");
    }
    let mut guarded = Guarded::start();
    guarded.add_node();
    let other = Guarded::start();
    let nodes = guarded.by("eve.token", &["nodes", "--json"]).expect_success().json();
    let url = nodes["nodes"][0]["info"]["data_url"].as_str().expect("a data port").to_string();
    let port = url.rsplit(':').next().expect("a port");
    let named = format!("https://data.sailfish.internal:{port}");
    let here = format!("data.sailfish.internal:{port}:127.0.0.1");
    let ca = |of: &Guarded| of.sandbox.path("server-state/trust/ca.pem").display().to_string();
    let token = |file: &str| {
        let text = std::fs::read_to_string(guarded.sandbox.path(file)).expect("a token");
        format!("authorization: Bearer {}", text.trim())
    };
    let believing = ["--cacert", &ca(&guarded), "--resolve", &here];
    let check = |more: &[&str], expected: &str| {
        let (code, status) = ask_data_port(&named, &[&believing, more].concat());
        assert_eq!((code, status.as_str()), (Some(0), expected), "{more:?}");
    };
    check(&[], "401");
    check(&["--header", "sailfish-incarnation: 1"], "401");
    for file in ["ann.token", "rack.token", "server-state/admin.token"] {
        check(&["--header", &token(file)], "403");
    }
    let guessed = format!("authorization: Bearer {}", "ab".repeat(32));
    check(&["--header", &guessed], "403");
    // Whoever believes another authority, or asks for another role of this one, hangs up before a byte is sent.
    let distrusts = |url: &str, more: &[&str]| {
        let (code, status) = ask_data_port(url, more);
        assert_eq!((code, status.as_str()), (Some(60), "000"), "{more:?}");
    };
    distrusts(&named, &["--cacert", &ca(&other), "--resolve", &here]);
    let control = format!("https://control.sailfish.internal:{port}");
    let there = format!("control.sailfish.internal:{port}:127.0.0.1");
    distrusts(&control, &["--cacert", &ca(&guarded), "--resolve", &there]);
    let (code, status) = ask_data_port(&url.replace("https://", "http://"), &[]);
    assert_eq!((code, status.as_str()), (Some(0), "400"), "without TLS it says that it has TLS, and no more");
    // A certificate that somebody else's authority signed opens nothing either: nobody is known by one here.
    let (key, certificate) = (guarded.sandbox.path("s.key"), guarded.sandbox.path("s.pem"));
    let mut openssl = Command::new("openssl");
    openssl.args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-batch",
    ]);
    openssl.args(["-subj", "/CN=data.sailfish.internal", "-days", "1", "-keyout"]).arg(&key).arg("-out");
    if openssl.arg(&certificate).output().is_ok_and(|made| made.status.success()) {
        let (key, certificate) = (key.display().to_string(), certificate.display().to_string());
        check(&["--cert", &certificate, "--key", &key], "401");
    }
    guarded.by("ann.token", &["submit", "--wait", "--", "true"]).expect_success();
}

#[test]
fn a_server_with_tls_is_not_asked_without() {
    let guarded = Guarded::start();
    let address = guarded.url.trim_start_matches("https://").to_string();
    let answer = blackbox::exchange(&address, "GET /healthz", b"").expect("an answer at once");
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("use https://"), "{}", answer.text());
    let plain = format!("http://{address}");
    let ask = |more: &[&str]| {
        let mut command = guarded.sandbox.sailfish();
        Running::start(command.args(["jobs", "--server", &plain]).args(more)).wait()
    };
    ask(&[]).expect_failure(2, &["this server speaks TLS: use https://"]);
    ask(&["--token-file", "ann.token"]).expect_failure(2, &["the token is for a server with TLS"]);
}

#[test]
fn the_audit_has_the_source_of_guesses() {
    let guarded = Guarded::start();
    let guess = format!("sailfish_{}\n", "ab".repeat(32));
    guarded.sandbox.write("guess.token", guess);
    let ca = guarded.sandbox.path("server-state/trust/ca.pem").display().to_string();
    for _ in 0..8 {
        guarded.by("guess.token", &["jobs", "--ca", &ca]).expect_failure(2, &["not known here"]);
    }
    let asked = "select source, count(*) as n from audit where allowed = 0 group by source";
    let rows = guarded.by(&guarded.admin_token(), &["state", "--json", asked]).expect_success().json();
    assert_eq!(rows[0]["source"], "127.0.0.1", "{rows}");
    guarded.by("ann.token", &["jobs"]).expect_success();
}

#[test]
fn revoked_token_fails_at_once_and_later() {
    let mut guarded = Guarded::start();
    guarded.add_node();
    guarded.by("ann.token", &["jobs"]).expect_success();
    for user in ["ann", "rack"] {
        guarded.by(&guarded.admin_token(), &["token", "revoke", &guarded.token_name(user)]).expect_success();
    }
    guarded.by("ann.token", &["jobs"]).expect_failure(2, &["has been revoked"]);
    // A token that somebody keeps is not replaced, and none is made that nobody has.
    let again = ["token", "create", "--user", "bob", "--role", "user", "--output", "bob.token"];
    guarded.by(&guarded.admin_token(), &again).expect_failure(2, &["the file bob.token exists already"]);
    guarded.by("bob.token", &["jobs"]).expect_success();
    // The node learns it with its next poll, and ends.
    let node = guarded.nodes.remove(0);
    node.wait().expect_failure(2, &["has been revoked"]);
    guarded.by(&guarded.admin_token(), &["token", "revoke", "nothing"]).expect_failure(2, &["no token"]);
    let address = guarded.url.trim_start_matches("https://").to_string();
    let server = guarded.server.take().expect("a server runs");
    server.signal(Signal::KILL);
    server.wait();
    let again = serve_jobs(&guarded.sandbox, &address);
    again.wait_for_stderr("serving at");
    assert!(!again.stderr_so_far().contains("admin.token"), "{}", again.stderr_so_far());
    guarded.server = Some(again);
    guarded.by("ann.token", &["jobs"]).expect_failure(2, &["has been revoked"]);
    guarded.by("bob.token", &["jobs"]).expect_success();
    guarded.by(&guarded.admin_token(), &["token", "ls"]).expect_success();
}

#[test]
fn no_secret_is_told_or_stored() {
    let mut guarded = Guarded::start();
    guarded.add_node();
    guarded.by("ann.token", &["submit", "--wait", "--", "true"]).expect_success();
    let secrets = ["ann.token", "rack.token", "server-state/admin.token"];
    let secrets = secrets.map(|file| guarded.sandbox.path(file));
    for path in &secrets {
        assert_eq!(mode(path), 0o600, "{}", path.display());
    }
    assert_eq!(mode(&guarded.sandbox.path("server-state/trust")), 0o700);
    assert_eq!(mode(&guarded.sandbox.path("server-state/trust/ca.key")), 0o600);
    let mut stored = Vec::new();
    files(&guarded.sandbox.path(""), &mut stored);
    let logs = [guarded.server.as_ref(), guarded.nodes.first()];
    for (number, log) in logs.into_iter().flatten().enumerate() {
        stored.push((PathBuf::from(format!("log {number}")), log.stderr_so_far().into_bytes()));
    }
    for secret in &secrets {
        let text = std::fs::read_to_string(secret).expect("a token");
        let digits = text.trim().split('_').nth(1).expect("the digits of a secret");
        let raw = hex::decode(digits).expect("hex");
        for (path, content) in stored.iter().filter(|(path, _)| path != secret) {
            let holds = |bytes: &[u8]| content.windows(bytes.len()).any(|window| window == bytes);
            assert!(
                !holds(digits.as_bytes()) && !holds(&raw),
                "{} is in {}",
                secret.display(),
                path.display()
            );
        }
    }
    let audit = ["state", "select user_name, action, allowed from audit order by audit", "--json"];
    let rows = guarded.by(&guarded.admin_token(), &audit).expect_success().json();
    let told = |user: &str, action: &str| {
        let mut rows = rows.as_array().expect("rows").iter();
        rows.any(|row: &Value| row["user_name"] == user && row["action"] == action)
    };
    assert!(told("admin", "POST /v1/tokens") && told("ann", "POST /v1/jobs/batch"), "{rows}");
    assert!(told("rack", "POST /v1/nodes") && told("rack", "POST /v1/nodes/admission"), "{rows}");
}

/// With tokens callers are not the operator: without a root they name nothing, and never what is the server's own.
#[test]
fn token_holders_cannot_read_files_of_the_server() {
    let guarded = Guarded::start();
    let run = |input: &str| {
        let run = ["run", "--memory", CLUSTER_MEMORY, "--slots", "2", "--output", "out", "--input", input];
        guarded.by("ann.token", &run)
    };
    let refused = run("server-state/admin.token").expect_failure(2, &["belongs to the server"]);
    assert!(refused.story().contains("admin.token"), "{}", refused.story());
    let mut strict = Guarded::start();
    let address = strict.url.trim_start_matches("https://").to_string();
    let server = strict.server.take().expect("a server runs");
    server.signal(Signal::TERM);
    server.wait().expect_success();
    let again = serve(&strict.sandbox, &address, &[]);
    again.wait_for_stderr("serving at");
    assert!(again.stderr_so_far().contains("jobs may name no paths"), "{}", again.stderr_so_far());
    strict.server = Some(again);
    strict.add_node();
    strict.by("ann.token", &["submit", "--", "true"]).expect_failure(2, &["directory", "--allow-root"]);
    // What travels with a job is not named by its path.
    let script = strict.sandbox.script("program", "#!/bin/sh\necho ran\n").display().to_string();
    let submit = ["submit", "--wait", "--file", &script, "--", "./program"];
    assert_eq!(strict.by("ann.token", &submit).expect_success().text().lines().last(), Some("ran"));
}

#[test]
fn other_machines_reach_only_guarded_ports() {
    let sandbox = Sandbox::new();
    let refused = |args: &[&str], text: &str| {
        let mut command = sandbox.sailfish();
        command.args(args);
        Running::start(&mut command).wait().expect_failure(2, &[text]);
    };
    let advice = "add --require-tokens --tls";
    refused(&["server", "--listen", "0.0.0.0:0", "--state", "s"], advice);
    refused(&["server", "--listen", "0.0.0.0:0", "--state", "s", "--tls"], advice);
    refused(&["server", "--listen", "[::]:0", "--state", "s", "--require-tokens"], advice);
    let mut command = sandbox.sailfish();
    command.args(["server", "--listen", "0.0.0.0:0", "--require-tokens", "--tls", "--state", "s"]);
    let server = Running::start(&mut command);
    server.wait_for_stderr("serving at https://0.0.0.0");
    server.signal(Signal::TERM);
    server.wait().expect_success();
    let plain = ["node", "--server", "http://127.0.0.1:9", "--disk", "d", "--listen"];
    refused(&[&plain[..], &["0.0.0.0:0"]].concat(), "by which other nodes reach this machine");
    refused(&[&plain[..], &["192.0.2.1:0"]].concat(), "--require-tokens --tls");
}

#[test]
fn quotas_of_bytes_hold() {
    let sandbox = Sandbox::new();
    let root = sandbox.path("").display().to_string();
    let quotas = ["--user-arguments-max", "300K", "--user-intermediate-max", "100K", "--user-kept-max", "0"];
    let server = serve(&sandbox, "127.0.0.1:0", &[&["--allow-root", &root], &quotas[..]].concat());
    let mut guarded = Guarded::of(sandbox, server);
    guarded.add_node();
    let word = "x".repeat(100_000);
    let submit = |jobs: &str| {
        let args = ["submit", "--wait", "--count", jobs, "--", "true", &word];
        guarded.by("ann.token", &args)
    };
    submit("3").expect_success();
    submit("4")
        .expect_failure(1, &["arguments, environments and file names", "307200 bytes", "give data as files"]);
    // Jobs that are over count no more, and administrators have no quota.
    submit("3").expect_success();
    guarded
        .by(&guarded.admin_token(), &["submit", "--wait", "--count", "4", "--", "true", &word])
        .expect_success();
    let put = |name: &str, bytes: usize| {
        guarded.sandbox.write("bytes", vec![b'x'; bytes]);
        let from = std::fs::File::open(guarded.sandbox.path("bytes")).expect("it was written");
        Running::start_with_stdin(&mut guarded.command("ann.token", &["intermediate", "put", name]), from)
            .wait()
    };
    put("first", 60_000).expect_success();
    let refused = put("second", 60_000);
    assert!(!refused.status.success() && refused.story().contains("no room"), "{}", refused.story());
    put("third", 42_400).expect_success();
    put("fourth", 1).expect_failure(2, &["the limit of a user on this server"]);
    guarded.by("ann.token", &["intermediate", "rm", "first"]).expect_success();
    put("fourth", 1).expect_success();
    guarded.sandbox.write("in.txt", "a\n");
    let run =
        ["run", "--memory", CLUSTER_MEMORY, "--slots", "2", "--input", "in.txt", "--keep-ifiles", "--output"];
    guarded.by("ann.token", &[&run[..], &["out"]].concat()).expect_success();
    guarded.by("ann.token", &[&run[..], &["again"]].concat()).expect_failure(2, &["keep", "sailfish gc"]);
}
