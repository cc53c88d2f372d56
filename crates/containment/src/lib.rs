//! # What it does
//! Starts programs so that nothing of them outlives their attempt: below an init for each slot, in namespaces of their
//! own where that is asked.
//!
//! # Where it sits
//! Below `program`, which feeds and judges programs. The engine, the spawner and the inits are three kinds of process:
//!
//! ```text
//!   engine --------------- a SlotInit for each slot ---------------.
//!     |                                                            |  start, kill, end
//!     |  Spawner: "a new init"                                     v
//!     '---------------------> spawner ---- clone --------------> init ---- vfork, exec ---> program
//!                  forked before the engine's memory grew     (PID 1 of the slot's             |
//!                                                              namespace, or a subreaper) <----' orphans
//! ```
//!
//! # Invariants
//! When the engine, the spawner or an init ends, however it does, everything below it is killed. With a PID namespace
//! the kernel kills it; else the init, or the spawner for a killed init, finds all descendants. A program has no
//! descriptor of the engine except its three streams. A process is signalled by a descriptor of it, or by a number
//! that cannot have been reused.
//!
//! # Deliberately absent
//! No pipes' contents, no exit codes' meaning, no Landlock rules (they are made by `program`).
//!
//! # How it is tested
//! With real processes in `tests/`, as root and as another user.

mod channel;
mod error;
mod init;
mod launch;
mod message;
mod process;
mod processes;
mod slot_init;
mod spawner;

pub use error::ContainmentError;
pub use message::{
    Capabilities, Containment, Holder, HoldersThen, JobFiles, Launch, OwnPath, ProcessLimits, Restrictions,
    Space, UnlinkedFiles, Usage, VisibleBelow,
};
pub use slot_init::{ProgramEnd, ProgramEnds, SlotInit, StartError, Started};
pub use spawner::Spawner;

/// Returns the directory that holds a path and is a job's own where it has namespaces: the path is not seen there unless
/// it is among the visible ones ([`JobFiles`]).
pub fn own_directory_above(path: &std::path::Path) -> Option<&'static std::path::Path> {
    init::OWN
        .iter()
        .map(|(directory, _)| std::path::Path::new(*directory))
        .find(|directory| path.starts_with(directory))
}
