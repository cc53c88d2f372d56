//! Whole shuffle jobs at the level of records, under failures of everything around them
//! (`docs/internals/lost-data.md`).
//!
//! Safety: the output of a job reported as done holds the output of each map task, each record once, even after a power
//! cut; no submitted job is forgotten; no finished job runs again; the proof always agrees, because no byte is altered
//! here. Liveness: once nothing fails any more, every job ends. Simulation with the real code in it, and counts of rare
//! situations, are from FoundationDB (Zhou et al., SIGMOD 2021, section 4).
//!
//! The smallest unit of time is a step of one attempt; while an appender waits for answers, only packets travel.

mod data_plane;
mod disk;
mod lane;
mod node;
mod parts;
mod plan;
mod process;
mod run;
mod server;
mod simulation;
mod store;
mod world;

pub use simulation::shuffle;
pub use world::{
    FAILED_BY_CHANCE, FaultRates, Planted, ShuffleOutcome, ShuffleWorld, Situation, Sometimes, Violation,
};
