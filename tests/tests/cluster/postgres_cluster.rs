//! A cluster whose rows are in a PostgreSQL: it runs jobs, a standby takes over, and PostgreSQL may go and come back.

use blackbox::{Cluster, Fifo, Questions, Running, Sandbox, State, WaitingProgram, part_lines};
use private_postgres::{PASSWORD, PrivatePostgres};
use std::net::TcpListener;
use std::process::Command;

/// A cluster with one node and a job that hangs in its mapper until a line is written; None without PostgreSQL.
fn hanging_job(what: &str) -> Option<(PrivatePostgres, Cluster, Running, Fifo)> {
    let postgres = PrivatePostgres::start_or_say(what, &[])?;
    let cluster = Cluster::builder().nodes(1).database(postgres.url("postgres")).start();
    cluster.sandbox.write("in.txt", "b\t1\na\t2\nb\t3\n");
    let WaitingProgram { mut here, go, path } = cluster.sandbox.waiting_program("hangs");
    let args = ["--input", "in.txt", "--mapper", &path, "--output", "out"];
    let job = Running::start(&mut cluster.job(&args));
    assert_eq!(here.read_line(), "here");
    Some((postgres, cluster, job, go))
}

fn expect_sorted(cluster: &Cluster, job: Running) {
    job.wait().expect_success();
    let bytes = cluster.sandbox.concatenated(&cluster.sandbox.path("out"));
    assert_eq!(part_lines(&bytes), [b"a\t2", b"b\t1", b"b\t3"]);
    let report = cluster.sandbox.report(&cluster.sandbox.path("out"));
    assert_eq!(report["map"]["attempts"], 1, "what ran was not started again");
}

#[test]
fn standby_takes_over_from_killed_leader() {
    let Some((_postgres, mut cluster, job, mut silent)) = hanging_job("a standby server") else { return };
    let standby = cluster.another_server();
    standby.wait_for_stderr("another server leads");
    cluster.kill_server();
    standby.wait_for_stderr("serving at");
    silent.write_line("go on");
    expect_sorted(&cluster, job);
}

/// Nodes and clients know both addresses, and find out by themselves which server leads.
#[test]
fn a_standby_at_another_address_takes_over() {
    let Some(postgres) = PrivatePostgres::start_or_say("a standby at another address", &[]) else { return };
    let database = postgres.url("postgres");
    let mut cluster = Cluster::builder().database(database.clone()).start();
    // It listens when it leads, so that it cannot tell a port of its own choice before.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let address = port.expect("a free port").to_string();
    let mut serve = cluster.sandbox.sailfish();
    serve.args(["server", "--listen", &address, "--state", "standby-state", "--database", &database]);
    let standby = Running::start(&mut serve);
    standby.wait_for_stderr("another server leads");
    let first = cluster.url.clone();
    // The one that leads need not stand first.
    cluster.url = format!("http://{address},{first}");
    cluster.add_node();
    cluster.url = format!("{first},http://{address}");
    cluster.add_node();
    cluster.sandbox.write("in.txt", "b\t1\na\t2\nb\t3\n");
    let mut program = cluster.sandbox.waiting_program("mapper");
    let args = ["--input", "in.txt", "--mapper", &program.path, "--output", "out"];
    let job = Running::start(&mut cluster.job(&args));
    assert_eq!(program.here.read_line(), "here");
    cluster.kill_server();
    standby.wait_for_stderr("serving at");
    program.go.write_line("go on");
    expect_sorted(&cluster, job);
    // No node was given up: what they held is still theirs.
    assert_eq!(cluster.nodes().is(State::Up).count(), 2);
    let mut submit = cluster.sailfish(&["submit", "--wait"]);
    Running::start(submit.args(["--", "true"])).wait().expect_success();
}

#[test]
fn job_survives_a_restart_of_postgres() {
    let Some((postgres, cluster, job, mut silent)) = hanging_job("a restart of PostgreSQL") else { return };
    postgres.restart("immediate");
    silent.write_line("go on");
    expect_sorted(&cluster, job);
    let bench = ["bench", "jobs", "--jobs", "10", "--only-submit"];
    cluster.run(&bench).expect_success();
    cluster.run(&["wait", "11"]).expect_success();
}

/// The rows of what nodes keep are the same there.
#[test]
fn kept_data_is_reduced_and_collected_on_postgres() {
    let what = "kept I-files of a cluster on PostgreSQL";
    let Some(postgres) = PrivatePostgres::start_or_say(what, &[]) else { return };
    let mut cluster = Cluster::builder().nodes(1).database(postgres.url("postgres")).start();
    cluster.sandbox.write("in.txt", "b\t1\na\t2\nb\t3\n");
    let run = |command: &mut std::process::Command| Running::start(command).wait().expect_success();
    run(&mut cluster.job(&["--input", "in.txt", "--keep-ifiles", "--output", "out"]));
    cluster.kill_node();
    cluster.restart_server();
    cluster.restart_node(0);
    run(&mut cluster.sailfish(&["rerun-reduce", "1", "--reducer", "builtin:count", "--output", "counts"]));
    let bytes = cluster.sandbox.concatenated(&cluster.sandbox.path("counts"));
    assert_eq!(part_lines(&bytes), [b"a\t1", b"b\t2"]);
    assert_eq!(cluster.keeping_nodes(1), ["node-0"]);
    assert!(run(&mut cluster.sailfish(&["gc", "--all"])).text().contains("of 1 job"));
    assert!(cluster.jobs().of_job(1).with_ifiles("removed").any());
}

/// Two servers on two machines, as it were, with one directory of shipped files. The first dies while a job runs, the
/// originals of whose programs are gone; a node that has none of them yet does the rest.
#[test]
fn standby_serves_files_shipped_to_the_leader() {
    let what = "a standby server with shipped files";
    let Some(postgres) = PrivatePostgres::start_or_say(what, &[]) else { return };
    let mut cluster = Cluster::builder().database(postgres.url("postgres")).start();
    cluster.kill_server();
    let shared = ["--shipped-dir", "shared-files"];
    let leader = cluster.server_elsewhere("state-1", &shared);
    leader.wait_for_stderr("serving at");
    cluster.led_by(leader);
    let standby = cluster.server_elsewhere("state-2", &shared);
    standby.wait_for_stderr("another server leads");
    cluster.add_node();
    cluster.sandbox.write("in.txt", "b\t1\na\t2\n");
    let (mut here, mut go) = (cluster.sandbox.fifo("here"), cluster.sandbox.fifo("go"));
    let hang = format!("if mkdir first; then echo here > '{}'; read line < '{}'; fi", here.text(), go.text());
    let hang = hang.replace("first", &cluster.sandbox.path("first").display().to_string());
    cluster.sandbox.script("mine/map.sh", &format!("#!/bin/sh\n{hang}\nexec cat\n"));
    cluster.sandbox.script("mine/reduce.sh", "#!/bin/sh\nexec sed \"s/^/$(cat prefix)/\"\n");
    cluster.sandbox.write("mine/prefix", "shipped:");
    let programs = ["--mapper", "mine/map.sh", "--reducer", "mine/reduce.sh", "--file", "mine/prefix"];
    let args = ["--input", "in.txt", "--partitions", "1", "--output", "out"];
    let mut command: Command = cluster.job(&[&args[..], &programs].concat());
    let job = Running::start(&mut command);
    assert_eq!(here.read_line(), "here");
    std::fs::remove_dir_all(cluster.sandbox.path("mine")).expect("the originals go");
    cluster.kill_server();
    standby.wait_for_stderr("serving at");
    cluster.led_by(standby);
    // With the node goes its cache: the next one must ask the server that leads now.
    cluster.kill_node();
    cluster.add_node();
    go.write_line("go on");
    job.wait().expect_success();
    let bytes = cluster.sandbox.concatenated(&cluster.sandbox.path("out"));
    assert_eq!(part_lines(&bytes), [b"shipped:a\t2", b"shipped:b\t1"]);
    for state in ["state-1", "state-2"] {
        assert!(!cluster.sandbox.path(state).join("shipped").exists(), "{state} holds files of its own");
    }
}

/// A database that takes nobody without TLS and a password.
#[test]
fn database_is_reached_over_tls_with_password_file() {
    let what = "a PostgreSQL that demands TLS";
    let Some(postgres) = PrivatePostgres::start_with_tls_or_say(what) else { return };
    let url = postgres.url("postgres");
    let believed = format!("{url}?sslmode=verify-full&sslrootcert={}", postgres.authority().display());
    let sandbox = Sandbox::new();
    sandbox.write("password", format!("{PASSWORD}\n"));
    sandbox.write("wrong", "another");
    let stranger = PrivatePostgres::start_with_tls_or_say(what).expect("as before");
    let serve = |database: &str, password: &str| {
        let mut command = sandbox.sailfish();
        command.args(["server", "--listen", "127.0.0.1:0", "--state", "state", "--database", database]);
        command.args(["--database-password-file", password]);
        Running::start(&mut command).wait()
    };
    let distrusted = format!("{url}?sslmode=verify-full&sslrootcert={}", stranger.authority().display());
    for (database, password, code, words) in [
        (&format!("{url}?sslmode=disable"), "password", 1, ["no pg_hba.conf entry", "no encryption"]),
        (&believed, "wrong", 1, ["password authentication failed", "sailfish"]),
        (&distrusted, "password", 1, ["certificate", "postgres://sailfish@127.0.0.1"]),
        (&format!("{url}?sslmod=verify-full"), "password", 2, ["unknown parameter", "sslmod"]),
        (&believed, "missing", 2, ["--database-password-file", "missing"]),
    ] {
        let ended = serve(database, password);
        assert!(!ended.story().contains("a secret"), "{}", ended.story());
        ended.expect_failure(code, &words);
    }
    let file = sandbox.path("password");
    let cluster = Cluster::builder()
        .nodes(1)
        .server_command(|command| {
            command.args(["--database", &believed, "--database-password-file"]).arg(&file);
        })
        .start();
    Running::start(cluster.sailfish(&["submit", "--wait"]).args(["--", "true"])).wait().expect_success();
    assert_eq!(cluster.jobs().count(), 1);
    let shown = std::fs::read(format!("/proc/{}/cmdline", cluster.server().id())).expect("a process");
    assert!(!String::from_utf8_lossy(&shown).contains("secret"));
    drop(cluster);
    // The same by the file of libpq, in which a colon and a backslash are written with a backslash.
    let port = url.rsplit_once(':').and_then(|(_, rest)| rest.split_once('/')).expect("a port").0;
    let password = PASSWORD.replace('\\', "\\\\").replace(':', "\\:");
    let file = sandbox.write("pgpass", format!("127.0.0.1:{port}:postgres:sailfish:{password}\n"));
    sandbox.set_mode("pgpass", 0o600);
    let cluster = Cluster::builder()
        .server_command(|command| {
            command.args(["--database", &believed]).env("PGPASSFILE", &file);
        })
        .start();
    assert_eq!(cluster.jobs().count(), 1);
}
