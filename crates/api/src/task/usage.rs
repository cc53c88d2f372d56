//! Resources that an attempt used, as its node measured them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Largest value of each figure that is believed: a petabyte, or 35 years of processor time.
pub const ATTEMPT_USAGE_MAX: u64 = 1 << 50;

/// Resources that an attempt used. A figure that is not known is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AttemptUsage {
    /// Processor time, user and system, in microseconds: of the programs and of the thread that ran the attempt.
    pub cpu_us: u64,
    /// Bytes of its inputs that it read.
    pub read_bytes: u64,
    /// Bytes of records that it appended to I-files.
    pub shuffled_bytes: u64,
    /// Bytes of outputs that it wrote.
    pub stored_bytes: u64,
    /// Bytes that went over the network for it.
    pub moved_bytes: u64,
}

impl AttemptUsage {
    /// Adds the figures of another part of the attempt.
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in self.figures_mut().into_iter().zip(other.figures()) {
            *sum = sum.saturating_add(more);
        }
    }

    /// Returns the figures that are believed: none is above [`ATTEMPT_USAGE_MAX`].
    pub fn believed(mut self) -> Self {
        self.figures_mut().into_iter().for_each(|figure| *figure = (*figure).min(ATTEMPT_USAGE_MAX));
        self
    }

    fn figures(&self) -> [u64; 5] {
        let Self { cpu_us, read_bytes, shuffled_bytes, stored_bytes, moved_bytes } = *self;
        [cpu_us, read_bytes, shuffled_bytes, stored_bytes, moved_bytes]
    }

    fn figures_mut(&mut self) -> [&mut u64; 5] {
        let Self { cpu_us, read_bytes, shuffled_bytes, stored_bytes, moved_bytes } = self;
        [cpu_us, read_bytes, shuffled_bytes, stored_bytes, moved_bytes]
    }
}

#[cfg(test)]
mod tests {
    use super::{ATTEMPT_USAGE_MAX, AttemptUsage};

    #[test]
    fn impossible_figures_are_cut() {
        let mut usage = AttemptUsage { cpu_us: u64::MAX, read_bytes: 7, ..AttemptUsage::default() };
        usage.add(&AttemptUsage { cpu_us: 5, read_bytes: 3, ..AttemptUsage::default() });
        let expected = AttemptUsage { cpu_us: ATTEMPT_USAGE_MAX, read_bytes: 10, ..AttemptUsage::default() };
        assert_eq!(usage.believed(), expected);
    }
}
