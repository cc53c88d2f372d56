//! Explanation for a program that was killed, but not by the engine: most often by the kernel, when memory runs out.

use std::sync::atomic::{AtomicU64, Ordering};

/// File with the kernel's count of processes that it killed for lack of memory, in a line `oom_kill N`.
const KERNEL_COUNTS: &str = "/proc/vmstat";

/// The kernel's count of processes killed for lack of memory, at the last check.
#[derive(Debug)]
pub(crate) struct OutOfMemory(AtomicU64);

impl Default for OutOfMemory {
    fn default() -> Self {
        Self(AtomicU64::new(ended_by_kernel().unwrap_or(0)))
    }
}

impl OutOfMemory {
    /// Returns the text that follows the message that a program was killed. `last_bytes`: memory of the program at the
    /// last check; 0 if there was none.
    pub fn why_killed(&self, last_bytes: u64) -> String {
        let why = match self.since_last() {
            Some(1) => {
                ": probably out of memory, because the kernel has killed 1 process for lack of it".to_string()
            }
            Some(count) if count > 0 => {
                format!(
                    ": probably out of memory, because the kernel has killed {count} processes for lack of it"
                )
            }
            _ => ", which sailfish did not send".to_string(),
        };
        match last_bytes {
            0 => why,
            bytes => format!("{why}; it had {} MiB at the last check", bytes.div_ceil(1 << 20)),
        }
    }

    /// Returns the increase of the count; None if the kernel does not report it.
    fn since_last(&self) -> Option<u64> {
        let now = ended_by_kernel()?;
        Some(now.saturating_sub(self.0.swap(now, Ordering::Relaxed)))
    }
}

fn ended_by_kernel() -> Option<u64> {
    let counts = std::fs::read_to_string(KERNEL_COUNTS).ok()?;
    let line = counts.lines().find_map(|line| line.strip_prefix("oom_kill "))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cause_of_a_kill_is_named() {
        let counted = ended_by_kernel().expect("Linux counts them");
        let seen = OutOfMemory(AtomicU64::new(counted));
        assert_eq!(seen.why_killed(0), ", which sailfish did not send");
        assert_eq!(seen.why_killed(5 << 20), ", which sailfish did not send; it had 5 MiB at the last check");
    }
}
