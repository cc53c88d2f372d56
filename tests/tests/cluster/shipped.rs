//! Programs and files that travel with their jobs, by the hash of their content.

use blackbox::{Cluster, Running, STORED_DIR, corpus, part_lines};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Asks the control port as anybody could; the status and the body.
fn ask(cluster: &Cluster, head: &str, body: &[u8]) -> (u16, String) {
    let address = cluster.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).expect("a server listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket has time-outs");
    let length = match head.contains("content-length") {
        true => String::new(),
        false => format!("content-length: {}\r\n", body.len()),
    };
    let (first, rest) = head.split_once('\n').unwrap_or((head, ""));
    let rest = rest.replace('\n', "\r\n");
    let own = format!("host: {address}\r\nsailfish-request: 1\r\n{}\r\n", cluster.own_token_header());
    write!(stream, "{first} HTTP/1.1\r\n{own}connection: close\r\n{length}{rest}\r\n").expect("it reads");
    stream.write_all(body).expect("it reads");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("it answers");
    let answer = String::from_utf8(answer).expect("text");
    let status = answer.split_whitespace().nth(1).and_then(|status| status.parse().ok());
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status.expect("a status"), body.to_string())
}

/// A figure of `/metrics`.
fn figure(cluster: &Cluster, name: &str) -> u64 {
    let (_, text) = ask(cluster, "GET /metrics", b"");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.trim().parse().ok()).unwrap_or_else(|| panic!("no {name} in\n{text}"))
}

fn lines(cluster: &Cluster, output: &str) -> Vec<String> {
    let bytes = cluster.sandbox.concatenated(&cluster.sandbox.path(output));
    part_lines(&bytes).iter().map(|line| String::from_utf8_lossy(line).into_owned()).collect()
}

/// The reducer starts long after its original was changed and the file beside it was removed; the server was killed in
/// between.
#[test]
fn shipped_files_run_though_originals_are_gone() {
    let mut cluster = Cluster::builder().nodes(2).start();
    cluster.sandbox.write("in.txt", "b\t1\na\t2\n");
    let mut mapper = cluster.sandbox.waiting_program("mine/map");
    cluster.sandbox.script("mine/reduce.sh", "#!/bin/sh\nexec sed \"s/^/$(cat prefix)/\"\n");
    cluster.sandbox.write("mine/prefix", "old:");
    let args = ["--input", "in.txt", "--mapper", "mine/map.sh", "--reducer", "mine/reduce.sh"];
    let files = ["--file", "mine/prefix", "--partitions", "1", "--output", "out"];
    let job = Running::start(&mut cluster.job(&[&args[..], &files].concat()));
    assert_eq!(mapper.here.read_line(), "here");
    std::fs::remove_dir_all(cluster.sandbox.path("mine")).expect("the originals go");
    cluster.restart_server();
    cluster.add_node();
    mapper.go.write_line("go on");
    job.wait().expect_success();
    assert_eq!(lines(&cluster, "out"), ["old:a\t2", "old:b\t1"]);
}

#[test]
fn shipped_files_are_sent_once() {
    let cluster = Cluster::builder().nodes(1).start();
    cluster.sandbox.write("in.txt", "b\t1\na\t2\n");
    cluster.sandbox.write("mine/map.py", "import sys, helper\nfor line in sys.stdin: helper.say(line)\n");
    cluster.sandbox.write("mine/helper.py", "def say(line): print('1:' + line, end='')\n");
    let run = |output: &str| {
        let args = ["--input", "in.txt", "--mapper", "python3 map.py", "--map-only", "--output", output];
        let files = ["--file", "mine/map.py", "--file", "mine/helper.py"];
        cluster.run_job(&[&args[..], &files].concat()).expect_success();
        let figure = |name: &str| figure(&cluster, &format!("sailfish_shipped_{name}"));
        (lines(&cluster, output), figure("received_total"), figure("fetched_total"))
    };
    let first = ["1:b\t1", "1:a\t2"].map(String::from).to_vec();
    assert_eq!(run("first"), (first.clone(), 2, 2));
    assert_eq!(run("second"), (first.clone(), 2, 2));
    // One of them is another content now, under the same name.
    cluster.sandbox.write("mine/helper.py", "def say(line): print('2:' + line, end='')\n");
    let second = ["2:b\t1", "2:a\t2"].map(String::from).to_vec();
    assert_eq!(run("third"), (second, 3, 3));
    // A disk of the node damages what it has: it is noticed and fetched once more.
    cluster.sandbox.write("mine/helper.py", "def say(line): print('1:' + line, end='')\n");
    let mut damaged = 0;
    for path in cached(&cluster) {
        let text = std::fs::read_to_string(&path).expect("a file of the cache");
        std::fs::write(&path, text.replace("1:", "X:")).expect("a file of the cache");
        damaged += u64::from(text.contains("1:"));
    }
    assert_eq!(damaged, 1);
    assert_eq!(run("fourth"), (first, 3, 4));
}

/// Lists the shipped files that a node keeps.
fn cached(cluster: &Cluster) -> Vec<PathBuf> {
    let dir = cluster.node_disk(0).join(".sailfish-shipped");
    let owners = std::fs::read_dir(dir).expect("a cache").map(|entry| entry.expect("a cache").path());
    let files = owners.flat_map(|owner| std::fs::read_dir(owner).expect("a cache"));
    files.map(|entry| entry.expect("a cache").path()).collect()
}

#[test]
fn shipped_file_with_wrong_hash_is_refused() {
    let cluster = Cluster::builder().start();
    let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let put = format!("PUT /v1/files/{abc}");
    let check = |head: &str, body: &str, expected: u16| {
        let (status, text) = ask(&cluster, head, body.as_bytes());
        assert_eq!(status, expected, "{head}: {text}");
    };
    let missing = format!("{{\"sha256\": [\"{abc}\"]}}");
    check(&put, "abd", 400);
    assert!(ask(&cluster, "POST /v1/files/missing", missing.as_bytes()).1.contains(abc));
    check(&format!("{put}\ncontent-length: 3000000000\n"), "", 413);
    check(&format!("{put}\ntransfer-encoding: chunked\ncontent-length: 3\n"), "0\r\n\r\n", 400);
    // Nodes fetch it, and nobody else.
    check(&format!("GET /v1/files/{abc}"), "", 403);
    check(&put, "abc", 200);
    assert!(!ask(&cluster, "POST /v1/files/missing", missing.as_bytes()).1.contains(abc));
    for name in ["..%2f..%2fadmin.token", "..", "abc", &abc.to_uppercase()] {
        let (status, _) = ask(&cluster, &format!("PUT /v1/files/{name}"), b"abc");
        assert!((400..500).contains(&status), "{name}: {status}");
    }
    let batch = |task: &str| format!("{{\"name\": \"x\", \"tasks\": [{{\"words\": [\"true\"], {task}}}]}}");
    let shipped = |path: &str, hash: &str| {
        batch(&format!(
            "\"shipped\": [{{\"path\": \"{path}\", \"sha256\": \"{hash}\", \"bytes\": 3, \"executable\": false}}]"
        ))
    };
    let other = abc.replace('b', "c");
    check("POST /v1/jobs/batch", &shipped("/a/x", abc), 200);
    check("POST /v1/jobs/batch", &shipped("/a/x", &other), 422);
    check("POST /v1/jobs/batch", &shipped("/a/x", "../x"), 400);
    check("POST /v1/jobs/batch", &shipped("../x", abc), 422);
    check("POST /v1/jobs/batch", &shipped("/a/..", abc), 422);
    check("POST /v1/jobs/batch", &batch("\"files\": [\"/a/../..\"]"), 422);
    // A file is too large before a byte of it is read or sent.
    let large = std::fs::File::create(cluster.sandbox.path("large")).expect("a file");
    large.set_len(3 << 30).expect("a file with a hole");
    cluster.sandbox.write("in.txt", "a\n");
    let args = ["--input", "in.txt", "--file", "large", "--output", "out"];
    cluster.run_job(&args).expect_failure(2, &["large", "are shipped"]);
}

#[test]
fn a_program_of_one_task_finds_its_files() {
    let mut cluster = Cluster::builder().nodes(1).start();
    cluster.sandbox.script("prog.sh", "#!/bin/sh\ncat data.txt; pwd; ls\n");
    cluster.sandbox.write("data.txt", "the data\n");
    let files = ["--file", "data.txt", "--file", "prog.sh"];
    let near = cluster.sandbox.state();
    let mut command = cluster.sandbox.sailfish();
    command.args(["submit", "--state"]).arg(near).args(files).args(["--", "./prog.sh"]);
    let submit = cluster
        .sandbox
        .sailfish()
        .args(["submit", "--server", &cluster.url, "--wait"])
        .args(files)
        .args(["--", "./prog.sh"])
        .output();
    let far = String::from_utf8(submit.expect("a binary").stdout).expect("text");
    let near = Running::start(&mut command).wait().expect_success().text();
    for said in [&far, &near] {
        assert!(said.contains("the data\n"), "{said}");
        assert!(said.contains("/sailfish-") && said.ends_with("data.txt\nprog.sh\n"), "{said}");
    }
    // Named by its path alone, it runs in the directory from which it was handed in.
    let mut alone = cluster.sandbox.sailfish();
    alone.args(["submit", "--server", &cluster.url, "--wait", "--count", "3", "--", "./prog.sh"]);
    let alone = Running::start(&mut alone).wait().expect_success().text();
    assert_eq!(alone.matches("the data\n").count(), 3, "{alone}");
    assert_eq!(figure(&cluster, "sailfish_shipped_received_total"), 2);
    cluster.stop_node();
    let left = std::fs::read_dir(cluster.node_disk(0)).expect("a disk");
    let names = left.map(|entry| entry.expect("a disk").file_name().to_string_lossy().into_owned());
    let left: Vec<String> = names.filter(|name| !name.ends_with(".lock") && name != STORED_DIR).collect();
    assert_eq!(left, [".sailfish-shipped"]);
}

/// Map tasks of two nodes read standard input, from a pipe or a file, as they read a named file.
#[test]
fn standard_input_travels_to_nodes() {
    let cluster = Cluster::builder().nodes(2).start();
    let text = corpus(6 << 20);
    let file = cluster.sandbox.write("in.txt", &text);
    let job = ["--mapper", "builtin:words", "--reducer", "builtin:sum", "--partitions", "3"];
    let run = |input: &str, output: &str, stdin: Stdio| {
        let args = [&["--input", input][..], &job, &["--output", output]].concat();
        Running::start_with_stdin(&mut cluster.job(&args), stdin).wait().expect_success();
        cluster.sandbox.concatenated(&cluster.sandbox.path(output))
    };
    let expected = run("in.txt", "named", Stdio::null());
    let open = std::fs::File::open(&file).expect("a file");
    assert!(run("-", "redirected", open.into()) == expected, "the outputs differ");
    let mut cat = Command::new("cat").arg(&file).stdout(Stdio::piped()).spawn().expect("cat");
    let pipe = cat.stdout.take().expect("a pipe");
    assert!(run("-", "piped", pipe.into()) == expected, "the outputs differ");
    cat.wait().expect("cat ends");
    // The same content by either way.
    assert_eq!(figure(&cluster, "sailfish_shipped_received_total"), 1);
    let large = std::fs::File::create(cluster.sandbox.path("large")).expect("a file");
    large.set_len(3 << 30).expect("a file with a hole");
    let open = std::fs::File::open(cluster.sandbox.path("large")).expect("a file");
    let refused =
        Running::start_with_stdin(&mut cluster.job(&["--input", "-", "--output", "out"]), open).wait();
    refused.expect_failure(2, &["--input -", "on a path that all nodes share"]);
}

/// `--env-file`: programs of all kinds find what it says in their environment, and nobody else anywhere.
#[test]
fn secret_file_reaches_programs_alone() {
    const SECRET: &str = "hunter2";
    let cluster = Cluster::builder().nodes(1).start();
    cluster.sandbox.write("secrets.env", format!("# of the database\nPASSWORD={SECRET} and=more\nLIMIT=1\n"));
    let told = |command: &mut std::process::Command| Running::start(command).wait().expect_success().text();
    let script = "printf %s \"$PASSWORD\" | sha256sum; echo $LIMIT";
    let mut submit = cluster.sailfish(&["submit", "--wait", "--env-file", "secrets.env", "--env", "LIMIT=2"]);
    let on_cluster = told(submit.args(["--", "sh", "-c", script]));
    let mut submit = cluster.sandbox.sailfish();
    submit.args(["submit", "--env-file", "secrets.env", "--env", "LIMIT=2", "--", "sh", "-c", script]);
    let here = told(&mut submit);
    for text in [&on_cluster, &here] {
        // Variables of the command line win over those of the file.
        assert!(text.contains("\n2"), "{text}");
    }
    let digest = |text: &str| text.lines().find(|line| line.contains(" -")).map(str::to_string);
    assert_eq!((digest(&on_cluster).is_some(), digest(&on_cluster)), (true, digest(&here)), "{here}");
    cluster.sandbox.write("in.txt", "a\n");
    let mapper = cluster
        .sandbox
        .script("map.sh", "#!/bin/sh\nread line; printf '%s\\t%s\\n' \"$LIMIT\" \"${#PASSWORD}\"\n");
    let mapper = mapper.display().to_string();
    let job = ["--input", "in.txt", "--mapper", &mapper, "--env-file", "secrets.env"];
    told(&mut cluster.job(&[&job[..], &["--output", "out"]].concat()));
    assert_eq!(cluster.sandbox.concatenated(&cluster.sandbox.path("out")), b"1\t16\n");
    cluster.sandbox.run_job(&[&job[..], &["--memory", "64M", "--output", "here"]].concat()).expect_success();
    assert_eq!(cluster.sandbox.concatenated(&cluster.sandbox.path("here")), b"1\t16\n");
    // A file that is no such file is told by its line.
    cluster.sandbox.write("wrong.env", format!("A=1\n{SECRET}\n"));
    let mut wrong = cluster.sailfish(&["submit", "--env-file", "wrong.env"]);
    let refused =
        Running::start(wrong.args(["--", "true"])).wait().expect_failure(2, &["line 2", "wrong.env"]);
    assert!(!refused.story().contains(SECRET), "{}", refused.story());
    // And one that the job does not bring is not read from the disks of nodes.
    let task = r#"{"name": "x", "tasks": [{"words": ["env"], "env_file": "/etc/passwd"}]}"#;
    assert_eq!(ask(&cluster, "POST /v1/jobs/batch", task.as_bytes()).0, 422);
    for log in [cluster.server(), cluster.node(0)] {
        assert!(!log.stderr_so_far().contains(SECRET), "{}", log.stderr_so_far());
    }
    for name in ["sailfish.db", "sailfish.db-wal"] {
        for state in ["server-state", "xdg-state/sailfish"] {
            let bytes = std::fs::read(cluster.sandbox.path(state).join(name)).unwrap_or_default();
            let holds = bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes());
            assert!(!holds, "{state}/{name} has it");
        }
    }
}
