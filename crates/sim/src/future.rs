//! Future events of a world, in the order of its clock.

use fastrand::Rng;
use std::collections::BTreeMap;

const MINUTE_NS: f64 = 60e9;

/// Events to come. Events at the same time happen in the order in which they were added.
pub(crate) struct Future<H> {
    happenings: BTreeMap<(u64, u64), H>,
    foreseen: u64,
}

impl<H> Default for Future<H> {
    fn default() -> Self {
        Self { happenings: BTreeMap::new(), foreseen: 0 }
    }
}

impl<H> Future<H> {
    pub fn foresee(&mut self, at_ns: u64, happening: H) {
        self.foreseen += 1;
        self.happenings.insert((at_ns, self.foreseen), happening);
    }

    /// Returns the time of the next event.
    pub fn next_ns(&self) -> Option<u64> {
        self.happenings.first_key_value().map(|((at_ns, _), _)| *at_ns)
    }

    /// Takes the next event and its time.
    pub fn pop(&mut self) -> Option<(u64, H)> {
        self.happenings.pop_first().map(|((at_ns, _), happening)| (at_ns, happening))
    }
}

/// Returns the time until the next death of a node at this average rate; None if the rate is 0.
pub(crate) fn until_death_ns(random: &mut Rng, deaths_per_minute: f64) -> Option<u64> {
    let wait_ns = || -random.f64().max(1e-9).ln() * MINUTE_NS / deaths_per_minute;
    (deaths_per_minute > 0.0).then(wait_ns).map(|wait_ns| wait_ns as u64)
}
