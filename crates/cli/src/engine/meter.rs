//! The speed of a growing counter over the last seconds, not over its whole life, so that a change shows.

use std::collections::VecDeque;
use std::time::Duration;

/// Period over which the speed is averaged.
const WINDOW: Duration = Duration::from_secs(5);
/// Maximum number of readings; with ten per second these are more than the window holds.
const READINGS_MAX: usize = 64;

/// Readings of a counter.
#[derive(Debug, Default)]
pub struct Meter {
    readings: VecDeque<(Duration, u64)>,
}

impl Meter {
    /// Adds a reading. `at` must grow.
    pub fn read(&mut self, at: Duration, bytes: u64) {
        // A reading older than the window stays, so that the window is covered.
        while self.readings.len() == READINGS_MAX
            || self.readings.get(1).is_some_and(|(second, _)| at.saturating_sub(*second) >= WINDOW)
        {
            self.readings.pop_front();
        }
        self.readings.push_back((at, bytes));
    }

    /// Returns the bytes per second; None before there are two readings at different times.
    pub fn bytes_per_second(&self) -> Option<f64> {
        let ((first_at, first), (last_at, last)) = (self.readings.front()?, self.readings.back()?);
        let elapsed = last_at.saturating_sub(*first_at).as_secs_f64();
        (elapsed > 0.0).then(|| last.saturating_sub(*first) as f64 / elapsed)
    }

    /// Returns the seconds until `total` at this speed; None while nothing changes.
    pub fn seconds_left(&self, total: u64) -> Option<f64> {
        let (_, last) = self.readings.back()?;
        let speed = self.bytes_per_second().filter(|speed| *speed > 0.0)?;
        Some(total.saturating_sub(*last) as f64 / speed)
    }
}

#[cfg(test)]
mod tests {
    use super::Meter;
    use std::time::Duration;

    #[test]
    fn the_speed_is_that_of_the_last_seconds() {
        let mut meter = Meter::default();
        assert_eq!((meter.bytes_per_second(), meter.seconds_left(10)), (None, None));
        for second in 0..20_u64 {
            meter.read(Duration::from_secs(second), second * 100);
        }
        assert_eq!((meter.bytes_per_second(), meter.seconds_left(2900)), (Some(100.0), Some(10.0)));
        for second in 20..26_u64 {
            meter.read(Duration::from_secs(second), 1900);
        }
        assert_eq!((meter.bytes_per_second(), meter.seconds_left(2900)), (Some(0.0), None));
    }

    #[test]
    fn readings_are_bounded() {
        let mut meter = Meter::default();
        (0..1000).for_each(|step| meter.read(Duration::from_millis(step), step));
        assert!(meter.readings.len() <= super::READINGS_MAX);
    }
}
