//! # What it does
//! The harness of the black-box tests: sandboxes, runs of the real binary `sailfish`, what they printed and left,
//! and the reference that its answers are compared with.
//!
//! # Where it sits
//! Above everything, from outside: it starts the binary and looks at files, as a user does.
//!
//! # Invariants
//! A test touches nothing outside its own temporary directory. What a test starts ends with it. Nothing sleeps:
//! tests wait for a line, a file, a pipe or the end of a process, each with a time limit that fails the test.
//! `wait_until` alone looks again and again, where nothing announces an event. SQL stands in `questions.rs`, except
//! where it is what is tested.
//!
//! # Deliberately absent
//! No use of the engine's crates but the names of its crash points and planted faults, and the rows of `tera`,
//! which has golden tests of its own.
//!
//! # How it is tested
//! By its use in `tests/tests/`.

mod binary;
mod browser;
mod chaos;
mod clock;
mod cluster;
mod compressed;
mod corpus;
mod faulting;
mod fifo;
mod files_chaos;
mod finished;
pub mod flow;
mod frames_program;
mod http;
mod leftovers;
mod model;
mod mounts;
mod object_server;
mod openapi;
mod programs;
mod proxy;
mod questions;
mod racks;
mod random;
mod running;
mod sandbox;
mod stored_files;
mod stub_server;
mod tera_rows;
mod waiting;
mod workflow_chaos;

pub use binary::{package_path, sailfish_binary};
pub use browser::{Browser, WebSite};
pub use chaos::{Chaos, Settings as ChaosSettings};
pub use clock::WrongClock;
pub use cluster::{CLUSTER_MEMORY, Cluster, NODE_MEMORY};
pub use compressed::{bzip2, gzip, unpacked, xz, zstd};
pub use corpus::corpus;
pub use faulting::{SmallDisk, Watched, left_on_small_disks, with_small_disks};
pub use fifo::Fifo;
pub use files_chaos::stored_files_chaos;
pub use finished::Finished;
pub use frames_program::frames_program;
pub use http::{Answer, PROTOCOL, break_off, exchange, exchange_within, exchange_without_token};
pub use leftovers::{files_below, run_files};
pub use model::{group_lines, part_lines, sorted_lines};
pub use mounts::Mounts;
pub use object_server::{ObjectServer, Verdict};
pub use openapi::{Document, Route, spoiled};
pub use programs::{
    LAST_WORDS, LAST_WORDS_MAPPER, WAITS_AFTER_A_LINE, WAITS_AT_ITS_END, WAITS_AT_THE_GATE, WaitingProgram,
    any_process_names,
};
pub use proxy::SlowProxy;
pub use questions::{Answers, Event, Question, Questions, Stage, State, StoredQuestions, rows_of};
pub use racks::Racks;
pub use random::Random;
pub use running::Running;
pub use sandbox::Sandbox;
pub use stored_files::{FileTree, STORED_DIR, StoredFiles, file_tree};
pub use stub_server::StubServer;
pub use tera_rows::{sha256, tera_rows};
pub use waiting::wait_until;
pub use workflow_chaos::workflows_chaos;

use std::time::Duration;

/// Longest wait for anything a test waits for. Long: only a hang should reach it, even on a loaded machine.
pub const WAIT_MAX: Duration = Duration::from_secs(240);

/// Says that a test could not look at something here, and why; a skip is never silent.
pub fn could_not_run(what: &str, why: &str) {
    println!("NOT RUN: {what}: {why}");
    // A passing test's output is not shown: `make test` prints this list at its end.
    if let Some(list) = std::env::var_os("SAILFISH_SKIPPED")
        && let Ok(mut list) = std::fs::OpenOptions::new().append(true).open(list)
    {
        let _ = std::io::Write::write_all(&mut list, format!("{what}: {why}\n").as_bytes());
    }
}
