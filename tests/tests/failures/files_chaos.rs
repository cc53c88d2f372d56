//! Stored files while clients, nodes and the server are killed: no torn file is ever visible, and checksums always match. `make chaos` has
//! two hundred kills; `SAILFISH_CHAOS_SEED=N` chooses the same kills and contents again, though not their timing.

use blackbox::stored_files_chaos;
use private_postgres::PrivatePostgres;

/// Some thirty seconds.
const KILLS: u64 = 10;

#[test]
fn stored_files_survive_chaos() {
    stored_files_chaos(KILLS, None);
}

#[test]
fn stored_files_survive_chaos_on_postgres() {
    let what = "chaos over stored files on PostgreSQL";
    let Some(postgres) = PrivatePostgres::start_or_say(what, &[]) else { return };
    stored_files_chaos(1, Some(postgres.url("postgres")));
}
