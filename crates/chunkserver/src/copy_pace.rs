//! The speed and order of copies of runs to other nodes: the pure part, used by `node` and measured by `sim`.

use ids::NodeId;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// Interval between checks whether the job is over, while waiting for the next run.
pub const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Pause before a run that no other node took is offered again.
pub const REFUSED_PAUSE: Duration = Duration::from_secs(1);
/// Bytes sent per second while map tasks append here, for a new run. For each [`YIELDING_GROWS_EVERY`] that the run has
/// existed on only one node, the rate grows by the same amount.
const YIELDING_BYTES_PER_SECOND: f64 = 32e6;
const YIELDING_GROWS_EVERY: Duration = Duration::from_secs(10);

/// A partial chunk is sorted anyway after it has waited for this fraction of the time since the job began here, but not
/// before this minimum: until then map output exists on only one node. The longer a job has run, the more a chunk may
/// cost to recompute, and the longer it may wait; so there are few such chunks in any job.
const WAITS_PART: u32 = 8;
const WAITS_MIN: Duration = Duration::from_secs(5);

/// Returns the minimum time for sending this many bytes while others append here, for a run that has existed on one
/// node for `age`.
pub fn yielding(bytes: usize, age: Duration) -> Duration {
    let rate = YIELDING_BYTES_PER_SECOND * (1.0 + age.as_secs_f64() / YIELDING_GROWS_EVERY.as_secs_f64());
    Duration::from_secs_f64(bytes as f64 / rate)
}

/// Returns how long a partial chunk may wait to be full before it is closed, in a job that began here this long ago.
pub fn open_chunk_waits_max(job_age: Duration) -> Duration {
    (job_age / WAITS_PART).max(WAITS_MIN)
}

/// Returns the order in which a file is offered to nodes. It differs from file to file, so that nodes get even shares.
pub fn turn(file: impl Hash, node: NodeId) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&file, node).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::{YIELDING_GROWS_EVERY, open_chunk_waits_max, yielding};
    use std::time::Duration;

    #[test]
    fn a_run_goes_faster_the_longer_it_waits() {
        let check = |age: Duration, expected_ms: u128| {
            assert_eq!(yielding(3_200_000, age).as_millis(), expected_ms, "{age:?}");
        };
        check(Duration::ZERO, 100);
        check(YIELDING_GROWS_EVERY, 50);
        check(3 * YIELDING_GROWS_EVERY, 25);
    }

    #[test]
    fn a_chunk_waits_longer_in_a_long_job() {
        let check = |job_seconds: u64, expected_seconds: u64| {
            let waits = open_chunk_waits_max(Duration::from_secs(job_seconds));
            assert_eq!(waits.as_secs(), expected_seconds, "{job_seconds} s");
        };
        check(0, 5);
        check(40, 5);
        check(400, 50);
    }
}
