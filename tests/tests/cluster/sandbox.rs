//! User programs in a sandbox, on a cluster of real processes.

use blackbox::{CLUSTER_MEMORY, Finished, Running, Sandbox, could_not_run};

/// A server that wants a sandbox and a node that keeps one.
struct Kept {
    place: Sandbox,
    url: String,
    _server: Running,
    _node: Running,
}

impl Kept {
    /// None, and said so, where the kernel cannot.
    fn start(node_args: &[&str]) -> Option<Kept> {
        let place = Sandbox::new();
        let mut command = place.sailfish();
        command.args(["server", "--listen", "127.0.0.1:0", "--sandbox", "--state", "server-state"]);
        let server = Running::start(&mut command);
        server.wait_for_stderr("serving at");
        let told = server.stderr_so_far();
        let url = told.split_whitespace().find(|word| word.starts_with("http://"));
        let url = url.expect("a server tells its URL").trim_end_matches(',').to_string();
        let mut command = place.sailfish();
        command.args(["node", "--server", &url, "--slots", "2", "--memory", CLUSTER_MEMORY]);
        let node = Running::start(command.args(["--disk", "node-disk"]).args(node_args));
        // It joins, or says why it cannot.
        node.wait_for_stderr("sailfish: ");
        if node.stderr_so_far().contains("this kernel has no sandbox") {
            could_not_run("user programs in a sandbox", node.wait().stderr.trim());
            return None;
        }
        Some(Kept { place, url, _server: server, _node: node })
    }

    /// A job of one task in a directory of its own.
    #[track_caller]
    fn submit(&self, script: &str) -> Finished {
        let mut command = self.place.sailfish();
        let dir = self.place.path("job");
        std::fs::create_dir_all(&dir).expect("a directory");
        command.current_dir(dir);
        command.args(["submit", "--server", &self.url, "--wait", "--", "sh", "-c", script]);
        Running::start(&mut command).wait()
    }
}

#[test]
fn program_writes_only_where_its_job_permits() {
    let Some(kept) = Kept::start(&[]) else { return };
    let secret = kept.place.write("secret", "of somebody else\n");
    let (secret, victim) = (secret.display().to_string(), kept.place.path("victim").display().to_string());
    kept.place.write("victim", "whole\n");
    let said = kept.submit("echo kept > mine; echo x > $TMPDIR/t; cat mine /etc/hosts > /dev/null; cat mine");
    assert!(said.expect_success().text().contains("kept"));
    assert_eq!(std::fs::read_to_string(kept.place.path("job/mine")).expect("a file"), "kept\n");
    let refused = [
        format!("cat {secret}"),
        format!("echo x > {victim}"),
        format!("truncate -s 0 {victim}"),
        format!("rm {victim}"),
        format!("ln {victim} mine-too"),
        format!("ls {}", kept.place.path("node-disk").display()),
        "echo x > /tmp/sailfish-test-sandbox".to_string(),
        "cat /etc/shadow".to_string(),
        // Neither may it stop the node, which is of the same user, nor look into it.
        "kill -0 $PPID".to_string(),
        "readlink /proc/$PPID/exe".to_string(),
    ];
    for script in refused {
        let story = kept.submit(&script);
        assert!(story.code().is_some_and(|code| code != 0), "{script}: {}", story.story());
    }
    assert_eq!(std::fs::read_to_string(&victim).expect("a file"), "whole\n");
    let limits = kept.submit("ulimit -c; ulimit -n").expect_success().text();
    let limits: Vec<&str> = limits.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(limits[limits.len() - 2], "0", "{limits:?}");
    assert!(limits[limits.len() - 1].parse::<u64>().is_ok_and(|files| files <= 4096), "{limits:?}");
}

#[test]
fn mappers_and_reducers_read_their_inputs_and_files() {
    let Some(kept) = Kept::start(&["--sandbox-memory", "4G"]) else { return };
    kept.place.write("in/text", "b a\na\n".repeat(1000));
    kept.place.write("other", "not named by the job\n");
    kept.place.script("map.sh", "#!/bin/sh\ncat list.txt > scratch\nhead -c 1 \"$1\" >&2\ntr ' ' '\\n'\n");
    kept.place.write("list.txt", "x\n");
    let run = |argument: &str, out: &str| {
        let mut command = kept.place.sailfish();
        command.args(["run", "--server", &kept.url, "--memory", CLUSTER_MEMORY, "--slots", "2"]);
        command.args([
            "--input",
            "in",
            "--file",
            "map.sh",
            "--file",
            "list.txt",
            "--reducer",
            "builtin:count",
        ]);
        let argument = kept.place.path(argument).display().to_string();
        command.args(["--mapper", &format!("sh -e map.sh {argument}"), "--output", out]);
        Running::start(&mut command).wait()
    };
    run("in/text", "out").expect_success();
    let lines = kept.place.output_lines(&kept.place.path("out"));
    assert_eq!(lines, ["a\t2000", "b\t1000"]);
    run("other", "refused").expect_failure(1, &[]);
}

/// So many that each is no longer named for each program.
#[test]
fn many_inputs_open_no_directory_to_a_program() {
    let Some(kept) = Kept::start(&[]) else { return };
    for file in 0..100 {
        kept.place.write(&format!("in/{file:02}.txt"), format!("line of {file}\n"));
    }
    let neighbour = kept.place.write("in/neighbour.key", "not of the job\n").display().to_string();
    let run = |script: &str, out: &str| {
        let mut command = kept.place.sailfish();
        command.args([
            "run",
            "--server",
            &kept.url,
            "--memory",
            CLUSTER_MEMORY,
            "--slots",
            "2",
            "--map-only",
        ]);
        command.args(["--input", "in/*.txt", "--output", out, "--mapper", &format!("sh -ec \"{script}\"")]);
        Running::start(&mut command).wait()
    };
    run("cat", "out").expect_success();
    assert_eq!(kept.place.output_lines(&kept.place.path("out")).len(), 100);
    run(&format!("cat; cat {neighbour}"), "refused").expect_failure(1, &["Permission denied"]);
    let directory = kept.place.path("in").display().to_string();
    run(&format!("cat; ls {directory}"), "refused").expect_failure(2, &["Permission denied"]);
}

/// Interpreters from wherever the node finds them, and one from an environment that the job names.
#[test]
fn interpreters_run_in_sandbox() {
    let Some(kept) = Kept::start(&[]) else { return };
    let python = "python3 -c 'import ctypes, json, multiprocessing, ssl, tempfile; tempfile.TemporaryFile(); print(6 * 7)'";
    let java = "cd $TMPDIR; echo 'class A { public static void main(String[] a) { System.out.println(6 * 7); } }' > A.java
        java -Xmx64m A.java";
    let go = "go env GOROOT > /dev/null && go version > /dev/null && echo 42";
    let node = "node -e 'console.log(6 * 7)'";
    for (tool, script) in [
        ("bash", "bash -c 'echo $((6 * 7))'"),
        ("nice", "nice -n 5 echo 42"),
        ("python3", python),
        ("java", java),
        ("node", node),
        ("go", go),
    ] {
        let found = std::process::Command::new("sh").args(["-c", &format!("command -v {tool}")]).output();
        if !found.is_ok_and(|found| found.status.success()) {
            could_not_run(&format!("{tool} in a sandbox"), "it is not installed");
            continue;
        }
        let said = kept.submit(script);
        assert!(said.code() == Some(0) && said.text().contains("42"), "{tool}: {}", said.story());
    }
    let environment = kept.place.path("environment");
    let mut made = std::process::Command::new("python3");
    made.args(["-m", "venv", "--without-pip"]).arg(&environment);
    assert!(made.status().expect("python3 runs").success());
    kept.place.write("in.txt", "one line\n");
    kept.place.write("map.py", "import json, sys\nprint(sys.stdin.read().strip() if sys.prefix != sys.base_prefix else sys.prefix)\n");
    // A program that is given as a path would be shipped without its environment.
    let path = format!("PATH={}:/usr/bin:/bin", environment.join("bin").display());
    let mut command = kept.place.sailfish();
    command.args(["run", "--server", &kept.url, "--memory", CLUSTER_MEMORY, "--slots", "2", "--map-only"]);
    command.args([
        "--input",
        "in.txt",
        "--file",
        "map.py",
        "--mapper",
        "python3 map.py",
        "--env",
        &path,
        "--output",
        "from-environment",
    ]);
    Running::start(&mut command).wait().expect_success();
    assert_eq!(kept.place.output_lines(&kept.place.path("from-environment")), ["one line"]);
}

#[test]
fn network_needs_both_operator_and_job() {
    let connect =
        "python3 -c 'import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)'";
    for (node_args, code) in [(&[][..], 1), (&["--allow-network"][..], 0)] {
        let Some(kept) = Kept::start(node_args) else { return };
        let address = kept.url.trim_start_matches("http://").replace(':', " ");
        let script = format!("{connect} {address}");
        kept.submit(&script).expect_failure(1, &[]);
        let mut command = kept.place.sailfish();
        command.args(["submit", "--server", &kept.url, "--wait", "--network", "--", "sh", "-c", &script]);
        let told = Running::start(&mut command).wait();
        assert_eq!(told.code() == Some(0), code == 0, "{}", told.story());
        assert!(code == 0 || told.stderr.contains("--allow-network"), "{}", told.story());
    }
}
