//! Whole shuffle jobs at the level of records, while everything around them fails (`docs/internals/lost-data.md`).
//!
//! Safety: the output of a job that is said to be done holds what each map task put out, each record once, after a power cut too; no
//! job that was handed in is forgotten; none that ended runs again; the proof never disagrees, as no byte is altered here. Liveness:
//! once nothing fails any more every job ends. Simulation with the real code in it, and counts that show that rare situations come up,
//! are from FoundationDB (Zhou et al., SIGMOD 2021, section 4).
//!
//! One attempt's step is the smallest thing that happens; where an appender waits for answers, only packets travel meanwhile.

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
