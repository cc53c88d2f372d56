//! Programs of users on a server with tokens: in a sandbox, without network, with the socket of their node.

use crate::security::{Guarded, serve};
use blackbox::{CLUSTER_MEMORY, Finished, Running, Sandbox, could_not_run};
use std::process::Command;

/// A cluster of two nodes; None, and said so, where the kernel has no sandbox.
fn guarded() -> Option<Guarded> {
    let mut guarded = Guarded::start();
    let mut node = guarded.node_command("rack.token", "probe");
    let probe = Running::start(&mut node);
    probe.wait_for_stderr("sailfish: ");
    if probe.stderr_so_far().contains("this kernel has no sandbox") {
        could_not_run("programs of users with tokens in a sandbox", probe.wait().stderr.trim());
        return None;
    }
    drop(probe);
    guarded.add_node();
    guarded.add_node();
    Some(guarded)
}

/// A job of one task in a directory of its own.
#[track_caller]
fn submit(guarded: &Guarded, token_file: &str, script: &str) -> Finished {
    let dir = guarded.sandbox.path("job").display().to_string();
    std::fs::create_dir_all(&dir).expect("a directory");
    let args = ["submit", "--wait", "--", "sh", "-ec"];
    guarded.by(token_file, &[&args[..], &[&format!("cd {dir}; {script}")]].concat())
}

#[test]
fn sandboxed_programs_write_and_read_intermediate_files() {
    let Some(guarded) = guarded() else { return };
    let put = "seq 200000 | sailfish intermediate put numbers --job $SAILFISH_JOB 2> /dev/null
        sailfish intermediate read numbers | tail -n 1
        seq 3 | sailfish intermediate put kept
        seq 4 | sailfish ifile put old-spelling
        sailfish ifile read old-spelling | tail -n 1
        sailfish intermediate list | grep -c '^[a-z]'
        sailfish intermediate rm old-spelling
        python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", 9))' 2>&1 | tail -n 1";
    let said = submit(&guarded, "ann.token", put).expect_success().text();
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines.windows(2).any(|pair| pair == ["200000", "4"]), "{said}");
    assert!(said.contains("Operation not permitted"), "{said}");
    assert_eq!(
        guarded.by("ann.token", &["intermediate", "read", "kept"]).expect_success().text(),
        "1\n2\n3\n"
    );
    let names = guarded.by("ann.token", &["intermediate", "list"]).expect_success().text();
    assert!(names.contains("kept") && !names.contains("old-spelling"), "{names}");
    // A user's programs have the rights of that user.
    let of_bob = submit(&guarded, "bob.token", "sailfish intermediate read kept");
    of_bob.expect_failure(2, &[]);
    let taken = submit(&guarded, "bob.token", "sailfish intermediate read kept --user ann 2>&1 || true");
    assert!(taken.expect_success().text().contains("belong to another user"));
    // An administrator's programs have no rights of an administrator.
    let admin = guarded.admin_token();
    let taken = submit(&guarded, &admin, "sailfish intermediate read kept --user ann 2>&1 || true");
    assert!(taken.expect_success().text().contains("belong to another user"));
}

#[test]
fn sandboxed_programs_put_and_get_stored_files() {
    let Some(guarded) = guarded() else { return };
    let put = "seq 1000000 > numbers
        sailfish files put numbers team/numbers --replicas 2 2> /dev/null
        sailfish files get team/numbers copy && cmp numbers copy && echo same
        sailfish files stat --json team/numbers | grep -o '\"bytes\":6888896,' | head -n 1
        mkdir -p d/e && seq 3 > d/e/x && sailfish files put d team/d 2> /dev/null
        sailfish files cat team/d/e/x | tail -n 1
        sailfish files ls --recursive team | grep -c d/e/x
        sailfish files mv team/d team/moved
        sailfish files rm --recursive team/moved
        sailfish files ls team --json | grep -c moved || true";
    let said = submit(&guarded, "ann.token", put).expect_success().text();
    let lines: Vec<&str> = said.lines().skip_while(|line| *line != "same").collect();
    assert_eq!(lines, ["same", "\"bytes\":6888896,", "3", "1", "0"], "{said}");
    // They are those of the cluster, and the user's.
    let stat = guarded.by("ann.token", &["files", "stat", "team/numbers", "--json"]).expect_success().json();
    assert_eq!(stat["user"], "ann");
    // The second node has fetched its replica from the first.
    assert_eq!(stat["concrete_files"][0]["replicas"].as_array().map(Vec::len), Some(2), "{stat}");
    // A program has the rights of its user; that of an administrator has no more.
    let taken = "sailfish files ls team
        sailfish files cat team/numbers 2>&1 || true
        sailfish files rm team/numbers 2>&1 || true
        seq 2 | sailfish files put - team/numbers 2>&1 || true
        sailfish files chown team/numbers bob 2>&1 || true";
    for token in ["bob.token", &guarded.admin_token()] {
        let said = submit(&guarded, token, taken).expect_success().text();
        assert!(said.contains(" numbers\n"), "{said}");
        assert_eq!(said.matches("belong to \"ann\"").count(), 1, "{said}");
        assert_eq!(said.matches("belongs to ann").count(), 2, "{said}");
        assert!(said.contains("only administrators may give"), "{said}");
    }
    let whole = guarded.by("ann.token", &["files", "cat", "team/numbers"]).expect_success().text();
    assert_eq!(whole.lines().count(), 1_000_000);
}

#[test]
fn groups_and_machine_count_in_programs() {
    let Some(guarded) = guarded() else { return };
    let (admin, sandbox) = (guarded.admin_token(), &guarded.sandbox);
    sandbox.write("shared", "from ann\n");
    guarded.by("ann.token", &["files", "put", "shared", "shared"]).expect_success();
    guarded.by(&admin, &["group", "create", "team"]).expect_success();
    guarded.by(&admin, &["group", "add", "team", "bob"]).expect_success();
    guarded.by("ann.token", &["files", "chmod", "shared", "--read", "team"]).expect_success();
    let read = "sailfish files cat shared
        seq 2 > own && sailfish files put own of-machine --state state 2> /dev/null
        sailfish files ls --state state
        sailfish files stat of-machine 2>&1 || true";
    let said = submit(&guarded, "bob.token", read).expect_success().text();
    assert!(said.contains("from ann\n"), "{said}");
    assert!(said.contains("there is no file or directory of-machine"), "{said}");
}

#[test]
fn mappers_put_intermediate_files_without_network() {
    let Some(guarded) = guarded() else { return };
    let (sandbox, run) =
        (&guarded.sandbox, ["run", "--memory", CLUSTER_MEMORY, "--slots", "2", "--map-only"]);
    sandbox.write("in/a", "b\na\n");
    sandbox.script(
        "map.sh",
        "#!/bin/sh\nset -e\ntest -S $SAILFISH_SOCKET\ntee copy\nsailfish intermediate put of-$SAILFISH_TASK < copy\n",
    );
    let args = ["--input", "in", "--file", "map.sh", "--mapper", "sh map.sh", "--output", "out"];
    guarded.by("ann.token", &[&run[..], &args].concat()).expect_success();
    assert_eq!(sandbox.output_lines(&sandbox.path("out")), ["b", "a"]);
    assert_eq!(guarded.by("ann.token", &["intermediate", "read", "of-0"]).expect_success().text(), "b\na\n");
}

#[test]
fn socket_of_a_node_leads_nowhere_else() {
    let Some(guarded) = guarded() else { return };
    let ask = r#"import http.client, os, socket
class Connection(http.client.HTTPConnection):
    def connect(self):
        # The whole path may be longer than the kernel takes.
        directory, name = os.path.split(os.environ["SAILFISH_SOCKET"])
        os.chdir(directory)
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(name)
def ask(method, path, body=None, headers={}):
    connection = Connection("localhost")
    connection.request(method, path, body, headers)
    return connection.getresponse().status
data = "/nodes/0/data/v1"
print([ask("GET", "/v1/intermediate-files"), ask("POST", "/v1/intermediate-files", "{"),
    ask("POST", "/v1/stored-files/find", "{}"), ask("POST", "/v1/stored-files/find", '{"path": ""}'),
    ask("POST", "/v1/stored-files/puts/files", "x" * 3000000)])
print([ask(*each) for each in [("GET", "/v1/jobs"), ("POST", "/v1/tokens", "{}"), ("GET", "/metrics"),
    ("POST", data + "/jobs/1/scan"), ("POST", data + "/intermediate/stage-copies"),
    ("GET", data + "/intermediate/1"), ("GET", "/nodes/4000000/data/v1/intermediate/1"),
    ("GET", "/nodes/0/data/v1/intermediate/1/../../jobs/1/scan"), ("GET", "http://127.0.0.1/v1/jobs"),
    ("POST", "/v1/nodes/0/stored-files", "{}"), ("POST", "/v1/jobs/1/stored-files", "{}"),
    ("POST", "/v1/jobs/1/stored-output/commit", "{}"), ("POST", data + "/stored/read-copy", "{}"),
    ("POST", data + "/stored/read", "{}"), ("POST", "/nodes/4000000/data/v1/stored/1/write?bytes=1", "x"),
    ("POST", data + "/stored/1/write/../../../jobs/1/scan", "{}"), ("GET", data + "/stored/1/write")]])
print([ask("GET", "/v1/intermediate-files", None, {"sailfish-job": "1", "authorization": "Bearer x"})])
"#;
    guarded.sandbox.write("job/ask.py", ask);
    let said = submit(&guarded, "ann.token", "python3 ask.py; echo $SAILFISH_SOCKET").expect_success().text();
    let lines: Vec<&str> = said.lines().skip_while(|line| !line.starts_with('[')).collect();
    assert_eq!(lines[0], "[200, 400, 400, 200, 400]", "{said}");
    assert_eq!(lines[1], format!("{:?}", [403; 17]), "{said}");
    assert_eq!(lines[2], "[200]", "{said}");
    // It ends with the attempt.
    assert!(!std::path::Path::new(lines[3]).exists(), "{said}");
    let listed = "grep -c $(basename $SAILFISH_SOCKET) /proc/net/unix || true";
    assert!(submit(&guarded, "ann.token", listed).expect_success().text().lines().any(|line| line == "0"));
}

/// Runs a command on a kernel without Landlock.
fn without_landlock(sandbox: &Sandbox, command: &Command) -> Command {
    let code = r#"import ctypes, os, struct, sys
libc, landlock_create_ruleset, enosys = ctypes.CDLL(None), 444, 38
rules = [(0x20, 0, 0, 0), (0x15, 0, 1, landlock_create_ruleset), (0x06, 0, 0, 0x50000 | enosys), (0x06, 0, 0, 0x7fff0000)]
text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(rules), ctypes.addressof(text)))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])"#;
    let mut without = Command::new("python3");
    sandbox.clean(&mut without);
    without.args(["-c", code]).arg(command.get_program()).args(command.get_args());
    without
}

#[test]
fn old_kernels_join_only_with_no_sandbox() {
    let guarded = Guarded::start();
    let mut node = without_landlock(&guarded.sandbox, &guarded.node_command("rack.token", "old"));
    let refused = Running::start(&mut node).wait();
    refused.expect_failure(2, &["this kernel has no sandbox", "--no-sandbox"]);
    let sandbox = Sandbox::new();
    let server = serve(&sandbox, "127.0.0.1:0", &["--no-sandbox", "--allow-root", "/"]);
    let mut open = Guarded::of(sandbox, server);
    let mut node = without_landlock(&open.sandbox, &open.node_command("rack.token", "old"));
    let node = Running::start(&mut node);
    node.wait_for_stderr("joined");
    node.wait_for_stderr("programs run with the rights of this node");
    // The socket is there without a sandbox too.
    let said = submit(&open, "ann.token", "seq 3 | sailfish intermediate put n; cat /etc/shadow > seen");
    said.expect_success();
    open.add_node();
    drop(node);
}
