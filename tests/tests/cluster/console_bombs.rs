//! Questions in SQL that would eat a machine: each ends with an error or a part of its answer, and the server has not noticed.

use blackbox::{Answers, Cluster, Questions, Running, wait_until};
use private_postgres::PrivatePostgres;
use rustix::process::Signal;

/// Most memory of the server, whatever it was asked: answers have 16 MB, and an engine without jobs is small.
const SERVER_MEMORY_KIB_MAX: u64 = 400 << 10;

const OF_SQLITE: &[&str] = &[
    "with recursive r(n) as (select 1 union all select n + 1 from r where n < 100000) select printf('%.*c', 1000000, 'x') from r",
    "with recursive r(n) as (select 1 union all select n + 1 from r where n < 100000) \
     select group_concat(printf('%.*c', 1000000, 'x')) from r",
    "with recursive r(n) as (select 1 union all select n + 1 from r where n < 100000) \
     select printf('%.*c', 100000, 'x') as t from r order by t || n",
    "with recursive r(n) as (select 1 union all select n + 1 from r) select count(distinct n) from r",
];
const OF_POSTGRES: &[&str] = &[
    "with x as materialized (select string_agg('xxxxxxxxxx', '') as t from generate_series(1, 100000)) \
     select t from x, generate_series(1, 100000)",
    "with x as materialized (select string_agg('xxxxxxxxxx', '') as t from generate_series(1, 100000)) \
     select string_agg(t, '') from x, generate_series(1, 300)",
    "with recursive r(n) as (select 1 union all select n + 1 from r) select count(distinct n) from r",
];

fn withstands(cluster: &Cluster, bombs: &[&str]) {
    for bomb in bombs {
        let asked = cluster.run(&["state", "--json", bomb]);
        let is_part = asked.story().contains("there are more");
        let is_refused = ["needed too much", "took longer", "too big", "memory", "more than"]
            .iter()
            .any(|text| asked.story().contains(text));
        assert!(is_part || is_refused, "{bomb}: {}", &asked.story()[..asked.story().len().min(2000)]);
    }
    let most = cluster.server().most_memory_kib();
    assert!(most < SERVER_MEMORY_KIB_MAX, "the server had {most} KiB");
    assert_eq!(cluster.jobs().count(), 0);
    let mut submit = cluster.sailfish(&["submit", "--wait"]);
    Running::start(submit.args(["--", "true"])).wait().expect_success();
}

#[test]
fn no_question_eats_a_server() {
    withstands(&Cluster::builder().nodes(1).start(), OF_SQLITE);
}

#[test]
fn no_question_eats_a_server_with_postgres() {
    let Some(postgres) = PrivatePostgres::start_or_say("questions that eat memory", &["fsync = off"]) else {
        return;
    };
    withstands(&Cluster::builder().nodes(1).database(postgres.url("postgres")).start(), OF_POSTGRES);
}

/// Processes that a process started, of the threads that it has.
fn children(process: u32) -> usize {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).expect("the server runs").flatten();
    let of_thread = |thread: std::fs::DirEntry| {
        // A thread may have ended since.
        std::fs::read_to_string(thread.path().join("children")).unwrap_or_default().split_whitespace().count()
    };
    threads.map(of_thread).sum()
}

fn wait_for_children(cluster: &Cluster, expected: usize) {
    wait_until(&format!("the server has {expected} children"), || {
        children(cluster.server().id()) == expected
    });
}

#[test]
fn question_ends_when_its_client_is_gone() {
    let cluster = Cluster::builder().start();
    let endless = "with recursive r(n) as (select 1 union all select n + 1 from r) select count(*) from r";
    let asked = [(); 2].map(|()| Running::start(&mut cluster.sailfish(&["state", endless])));
    wait_for_children(&cluster, 2);
    for client in asked {
        client.signal(Signal::KILL);
        client.wait();
    }
    wait_for_children(&cluster, 0);
    assert_eq!(cluster.rows("select 7 as n")[0]["n"], 7);
}

#[test]
fn a_question_ends_with_its_server() {
    let mut cluster = Cluster::builder().start();
    let endless = "with recursive r(n) as (select 1 union all select n + 1 from r) select count(*) from r";
    let client = Running::start(&mut cluster.sailfish(&["state", endless]));
    wait_for_children(&cluster, 1);
    let server = cluster.server().id();
    let threads = std::fs::read_dir(format!("/proc/{server}/task")).expect("the server runs").flatten();
    let listed: String =
        threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok()).collect();
    let asking = listed.trim().to_string();
    cluster.kill_server();
    // One that has ended and that nobody has waited for yet has no memory any more.
    let lives =
        || std::fs::read_to_string(format!("/proc/{asking}/status")).is_ok_and(|text| text.contains("VmRSS"));
    wait_until("the process that asks ends with its server", || !lives());
    client.signal(Signal::KILL);
    client.wait();
}
