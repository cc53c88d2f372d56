//! The seeds of a test, and what repeats one that failed.

use std::fmt::Debug;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The seeds of a run: some fixed ones, one given (`SIM_SEED=7`), or as many as asked for (`SIM_SEEDS=1000`).
pub fn seeds(usual: u64) -> Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match (number("SIM_SEED"), number("SIM_SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, Some(count)) => 0..count,
        (None, None) => 0..usual,
    }
}

/// Runs a world, and says which it was where that goes wrong.
pub fn told<W: Copy + Debug, T>(seed: u64, world: W, run: impl Fn(W) -> T) -> T {
    catch_unwind(AssertUnwindSafe(|| run(world))).unwrap_or_else(|panic| {
        eprintln!("SIM_SEED={seed} repeats it: {world:?}");
        resume_unwind(panic)
    })
}

/// Whether all the usual seeds run, so that what must come up now and then has come up.
pub fn is_whole() -> bool {
    std::env::var("SIM_SEED").is_err() && std::env::var("SIM_SEEDS").is_err()
}
