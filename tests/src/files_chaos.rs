//! Stored files of a cluster under `kill -9`: puts, gets and jobs over files, while clients, nodes and the server are killed.
//!
//! ```text
//! settings     number of kills, and the seed
//! content      bytes of files by seed and number, and the counts of their words
//! names        the model: what each name may stand for
//! world        the server and the nodes, which come back
//! operations   commands by chance: put, get, cat, ls, rm, mv, cp, and jobs
//! judge        verdicts on commands that have ended
//! run          commands and kills side by side
//! finish       checks of everything that is left
//! tally        counts and problems
//! ```
//! The seed chooses the contents, the kills and their pauses. Which command or process is next follows from the seed and from what there is
//! at that moment, and timing differs.
//!
//! # Requirements
//! Each name is changed by one command at a time and read by many. A reader gets exactly one content, all of it, that the name had
//! after the reader began. A list shows all files of one content. A command that is not killed succeeds: clients are more patient than
//! servers and nodes are away. A change whose client was killed has happened as a whole or not at all. In the end all files have
//! their replicas, and disks have no files without rows.

mod content;
mod finish;
mod judge;
mod names;
mod operations;
mod run;
pub(crate) mod settings;
pub(crate) mod tally;
pub(crate) mod world;

use run::Run;
use settings::Settings;
use std::time::Instant;

/// Runs so many kills, if the environment does not say another number, on a database by its URL or on SQLite. Prints a table; fails the test
/// if there was a problem.
pub fn stored_files_chaos(kills: u64, database: Option<String>) {
    let settings = Settings::from_environment("SAILFISH_FILES_CHAOS_KILLS", kills);
    println!("{settings}");
    let started = Instant::now();
    let mut run = Run::start(settings, database);
    run.work();
    if !run.tally.is_hopeless() {
        run.finish();
    }
    println!("{}", run.tally.table(started.elapsed()));
    let problems = &run.tally.problems;
    if !problems.is_empty() {
        let kept = run.world.keep_what_is_left("files-chaos", settings.seed);
        panic!(
            "{} problems; state and messages: {}; again:\n\
             {settings} cargo test --locked --test failures files_chaos:: -- --nocapture\n{}",
            problems.len(),
            kept.display(),
            problems.join("\n")
        );
    }
    assert_eq!(run.tally.sum("killed"), settings.kills);
}
