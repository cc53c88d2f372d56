//! Forty jobs while servers, nodes and PostgreSQL are killed: none is lost, none that is over runs again, and every output
//! is that of one machine. `SAILFISH_SEED=N` repeats the kills of a run that failed.

use blackbox::{CLUSTER_MEMORY, Cluster, Questions, Random, Running, State, corpus, wait_until};
use private_postgres::PrivatePostgres;

const ROUNDS: u32 = 5;
const JOBS_AT_ONCE: u64 = 4;
const NODES: u32 = 3;
/// The kinds of jobs, which take turns.
const KINDS: [&[&str]; JOBS_AT_ONCE as usize] = [
    &["--input", "in/a.txt", "--mapper", "builtin:words", "--reducer", "builtin:sum"],
    &["--input", "in/b.txt", "--total-order"],
    &["--input", "in", "--mapper", "builtin:words"],
    &["--input", "in/a.txt", "--mapper", "tr ' ' '\\n'", "--reducer", "uniq -c"],
];

#[derive(Clone, Copy, Debug)]
enum Victim {
    Server,
    Node,
    Postgres,
}

struct World {
    cluster: Cluster,
    postgres: Option<PrivatePostgres>,
    random: Random,
    submitted: i64,
}

impl World {
    fn start(postgres: Option<PrivatePostgres>) -> World {
        let given = std::env::var("SAILFISH_SEED").ok().and_then(|text| text.parse().ok());
        let seed = given.unwrap_or_else(|| u64::from(std::process::id()));
        println!("SAILFISH_SEED={seed}");
        let cluster = Cluster::builder()
            .nodes(NODES)
            .database(postgres.as_ref().map(|postgres| postgres.url("postgres")))
            .start();
        let text = corpus(3 << 20);
        let (first, second) = text.split_at(text.len() / 2);
        cluster.sandbox.write("in/a.txt", first);
        cluster.sandbox.write("in/b.txt", second);
        World { cluster, postgres, random: Random::new(seed), submitted: 0 }
    }

    fn ended_attempts(&self) -> i64 {
        self.cluster.attempts().ended().count()
    }

    /// Waits until the store knows all jobs handed in, and until so many of their attempts are over.
    fn wait_for_attempts(&self, over: i64) {
        let jobs = || self.cluster.jobs();
        wait_until("all jobs are in the store, and enough attempts are over", || {
            jobs().count() == self.submitted
                && (self.ended_attempts() >= over || jobs().not_ended().count() == 0)
        });
    }

    fn kill(&mut self, victim: Victim) {
        match (victim, &self.postgres) {
            (Victim::Node, _) => {
                self.cluster.kill_node();
                self.cluster.add_node();
            }
            (Victim::Postgres, Some(postgres)) => postgres.kill_and_begin(),
            _ => self.cluster.restart_server(),
        }
    }

    /// Hands in a job of each kind, kills somebody in the middle, and looks at what came out.
    fn round(&mut self, round: u32, victim: Victim) {
        let before = self.ended_attempts();
        let start = |kind: usize| {
            let output = format!("out-{round}-{kind}");
            Running::start(&mut self.cluster.job(&[KINDS[kind], &["--output", &output]].concat()))
        };
        let jobs: Vec<Running> = (0..KINDS.len()).map(start).collect();
        self.submitted += JOBS_AT_ONCE as i64;
        let over = self.random.below(24) as i64;
        println!("round {round}: {victim:?} after {over} attempts");
        self.wait_for_attempts(before + over);
        self.kill(victim);
        for (kind, job) in jobs.into_iter().enumerate() {
            job.wait().expect_success();
            let whole = |name: String| self.cluster.sandbox.concatenated(&self.cluster.sandbox.path(&name));
            let same = whole(format!("out-{round}-{kind}")) == whole(format!("embedded-{kind}"));
            assert!(same, "round {round}: the output of {:?} differs", KINDS[kind]);
        }
    }
}

fn survive(postgres: Option<PrivatePostgres>, victims: &[Victim]) {
    let mut world = World::start(postgres);
    for (kind, args) in KINDS.iter().enumerate() {
        let output = format!("embedded-{kind}");
        let own = ["--memory", CLUSTER_MEMORY, "--slots", "2", "--output", &output];
        world.cluster.sandbox.run_job(&[args, &own[..]].concat()).expect_success();
    }
    for round in 0..ROUNDS {
        let victim = match victims.get(round as usize) {
            Some(victim) => *victim,
            None => *world.random.one_of(victims),
        };
        world.round(round, victim);
    }
    assert_eq!(world.cluster.jobs().is(State::Succeeded).count(), world.submitted);
    assert_eq!(world.cluster.late_attempts().count(), 0, "a job that was over ran again");
}

#[test]
fn jobs_survive_kills_of_servers_and_nodes() {
    survive(None, &[Victim::Server, Victim::Node, Victim::Server]);
}

#[test]
fn jobs_survive_kills_of_postgres_too() {
    let Some(postgres) = PrivatePostgres::start_or_say("kills of PostgreSQL in the middle of jobs", &[])
    else {
        return;
    };
    survive(Some(postgres), &[Victim::Postgres, Victim::Server, Victim::Postgres, Victim::Node]);
}
