//! A PostgreSQL that is slow, stands still or is cut off while jobs run: they end as if nothing had been, and no attempt is
//! made twice because nobody could write that it had been made.

use blackbox::{Cluster, Fifo, Running, SlowProxy, WaitingProgram, part_lines};
use private_postgres::PrivatePostgres;
use std::time::Duration;

/// Longer than the lease of a node.
const LONGER_THAN_A_LEASE: Duration = Duration::from_secs(14);

struct World {
    postgres: PrivatePostgres,
    proxy: SlowProxy,
    cluster: Cluster,
}

impl World {
    /// A cluster whose server reaches its PostgreSQL through a proxy.
    fn start(what: &str, nodes: u32) -> Option<World> {
        let postgres = PrivatePostgres::start_or_say(what, &[])?;
        let url = postgres.url("postgres");
        let (user, place) = url.split_once('@').expect("a URL with a user");
        let (target, database) = place.split_once('/').expect("a URL with a database");
        let proxy = SlowProxy::start(target);
        let through = format!("{user}@{}/{database}", proxy.address());
        let cluster = Cluster::builder().nodes(nodes).database(through).start();
        Some(World { postgres, proxy, cluster })
    }

    /// A job that hangs in its mapper until a line is written.
    fn hanging_job(&self) -> (Running, Fifo) {
        let sandbox = &self.cluster.sandbox;
        sandbox.write("in.txt", "b\t1\na\t2\nb\t3\n");
        let WaitingProgram { mut here, go, path } = sandbox.waiting_program("hangs");
        let args = ["--input", "in.txt", "--mapper", &path, "--output", "out"];
        let job = Running::start(&mut self.cluster.job(&args));
        assert_eq!(here.read_line(), "here");
        (job, go)
    }

    #[track_caller]
    fn expect_undisturbed(&self, job: Running) {
        job.wait().expect_success();
        let bytes = self.cluster.sandbox.concatenated(&self.cluster.sandbox.path("out"));
        assert_eq!(part_lines(&bytes), [b"a\t2", b"b\t1", b"b\t3"]);
        let report = self.cluster.sandbox.report(&self.cluster.sandbox.path("out"));
        let attempts = (&report["map"]["attempts"], &report["reduce"]["attempts"]);
        assert_eq!(attempts, (&1.into(), &1.into()), "what ran was started again");
        let said = self.cluster.node(0).stderr_so_far();
        assert_eq!(said.matches("joined").count(), 1, "the node was given up:\n{said}");
    }
}

#[test]
fn postgres_that_stalls_beyond_lease_costs_only_time() {
    let Some(world) = World::start("a PostgreSQL that stands still", 1) else { return };
    let (job, mut go) = world.hanging_job();
    world.proxy.stall(LONGER_THAN_A_LEASE);
    // The attempt ends while nobody can write it down.
    go.write_line("go on");
    world.expect_undisturbed(job);
}

#[test]
fn lock_held_in_postgres_costs_only_time() {
    let Some(world) = World::start("a lock held in PostgreSQL", 1) else { return };
    let (job, mut go) = world.hanging_job();
    let seconds = LONGER_THAN_A_LEASE.as_secs();
    let hold = format!(
        "begin; lock table attempts, nodes in access exclusive mode; \\warn locked\nselect pg_sleep({seconds}); commit;\n"
    );
    let script = world.cluster.sandbox.write("hold.sql", hold);
    let holder = Running::start(world.postgres.psql("postgres").arg("--file").arg(script));
    holder.wait_for_stderr("locked");
    go.write_line("go on");
    world.expect_undisturbed(job);
    holder.wait().expect_success();
}

#[test]
fn slow_link_to_postgres_only_slows_jobs() {
    let Some(world) = World::start("a slow way to PostgreSQL", 2) else { return };
    let cluster = &world.cluster;
    cluster.sandbox.write_text(3 << 20, 2);
    world.proxy.delay(Duration::from_millis(60));
    let args = ["--input", "in", "--mapper", "builtin:words", "--reducer", "builtin:sum"];
    cluster.run_job(&[&args[..], &["--output", "out"]].concat()).expect_success();
    cluster.assert_as_embedded(&args);
    for node in 0..2 {
        let said = cluster.node(node).stderr_so_far();
        assert_eq!(said.matches("joined").count(), 1, "a node was given up:\n{said}");
    }
}

/// Connections that end in the middle of a transaction, whether it came through or not.
#[test]
fn jobs_survive_cut_connections_to_postgres() {
    let Some(world) = World::start("connections to PostgreSQL that are cut", 1) else { return };
    let (job, mut go) = world.hanging_job();
    world.proxy.stall(Duration::from_secs(1));
    world.proxy.cut();
    go.write_line("go on");
    world.expect_undisturbed(job);
    let bench = ["bench", "jobs", "--jobs", "10", "--only-submit"];
    world.cluster.run(&bench).expect_success();
    world.proxy.cut();
    world.cluster.run(&["wait", "11"]).expect_success();
}
