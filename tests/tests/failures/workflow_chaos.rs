//! Workflows while clients, nodes and the server are killed: no torn output is ever visible, and no finished step runs again. `make chaos`
//! has a hundred kills; `SAILFISH_CHAOS_SEED=N` chooses the same workflows and kills again, though not their timing.

use blackbox::workflows_chaos;
use private_postgres::PrivatePostgres;

/// Some thirty seconds.
const KILLS: u64 = 10;

#[test]
fn workflows_survive_chaos() {
    workflows_chaos(KILLS, None);
}

#[test]
fn workflows_survive_chaos_on_postgres() {
    let what = "chaos over workflows on PostgreSQL";
    let Some(postgres) = PrivatePostgres::start_or_say(what, &[]) else { return };
    workflows_chaos(1, Some(postgres.url("postgres")));
}
