//! Workflows of a cluster under `kill -9` of client, nodes and server.
//!
//! ```text
//! flow         random workflows, and the bytes of all their files
//! watcher      a thread that reads all outputs all the time
//! run          workflows one after the other, and kills
//! judge        the steps that the store calls finished, and the attempts of all others
//! ```
//! The seed chooses the workflows, the kills and their pauses; timing differs.
//!
//! # Requirements
//! An output is absent or whole and right, at any time. An output that stays is never absent again. A step that the store calls finished
//! does not begin again, and its outputs are not replaced. A step begins again only if the node of its attempt is gone and the store has
//! no success of that attempt: a node may die between the rename of an output and its report; or if it read a stream that another
//! attempt was writing, and was interrupted. In the end the same workflow runs once more, and all its steps are skipped.

mod flow;
mod judge;
mod run;
mod watcher;

use crate::files_chaos::settings::Settings;
use run::Run;
use std::time::Instant;

/// Runs workflows during so many kills, if the environment does not say another number, on a database by its URL or on SQLite. Prints a
/// table; fails the test if there was a problem.
pub fn workflows_chaos(kills: u64, database: Option<String>) {
    let settings = Settings::from_environment("SAILFISH_CHAOS_WORKFLOW_KILLS", kills);
    println!("{settings}");
    let started = Instant::now();
    let mut run = Run::start(settings, database);
    run.work();
    println!("{}", run.tally.table(started.elapsed()));
    let problems = &run.tally.problems;
    if !problems.is_empty() {
        let kept = run.world.keep_what_is_left("workflow-chaos", settings.seed);
        panic!(
            "{} problems; state and messages: {}; again:\n\
             {settings} cargo test --locked --test failures workflow_chaos:: -- --nocapture\n{}",
            problems.len(),
            kept.display(),
            problems.join("\n")
        );
    }
    assert_eq!(run.tally.sum("killed"), settings.kills);
}
