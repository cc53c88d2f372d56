//! A pause of the process, as on a machine that swaps or is migrated.

use rustix::process::{Signal, getpid, kill_process};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

/// A kernel timer that sends SIGCONT to this process: first after the pause, then each second. So every stop ends, even
/// one that begins after the timer has expired.
struct Waker(libc::timer_t);

impl Waker {
    fn after(seconds: u32) -> std::io::Result<Waker> {
        // SAFETY: all bytes zero are a value of this plain structure.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_SIGNAL;
        event.sigev_signo = libc::SIGCONT;
        let mut timer: libc::timer_t = null_mut();
        // SAFETY: both structures live until the call returns.
        if unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        let waker = Waker(timer);
        let time = |seconds: u32| libc::timespec { tv_sec: seconds.into(), tv_nsec: 0 };
        let times = libc::itimerspec { it_value: time(seconds.max(1)), it_interval: time(1) };
        // SAFETY: the timer was made above and is not deleted yet.
        match unsafe { libc::timer_settime(waker.0, 0, &raw const times, null_mut()) } {
            0 => Ok(waker),
            _ => Err(std::io::Error::last_os_error()),
        }
    }
}

impl Drop for Waker {
    fn drop(&mut self) {
        // SAFETY: the timer was made by `after` and is deleted once.
        unsafe { libc::timer_delete(self.0) };
    }
}

/// Stops this process for this many seconds, and returns the time it took. Another thread may take the signal, and this
/// one continues until then: so the timer stays until it has expired, which ends a stop that has begun and withdraws
/// one that has not.
pub(crate) fn stand_still(seconds: u32) -> std::io::Result<Duration> {
    let started = Instant::now();
    let _waker = Waker::after(seconds)?;
    kill_process(getpid(), Signal::STOP)?;
    let gone_off = started + Duration::from_secs(u64::from(seconds.max(1)) + 1);
    std::thread::sleep(gone_off.saturating_duration_since(Instant::now()));
    Ok(started.elapsed())
}

#[cfg(test)]
mod tests {
    use super::Waker;

    #[test]
    fn the_kernel_takes_the_timer() {
        // A stop would stop the other tests of this process; a black-box test covers it.
        drop(Waker::after(60).unwrap());
    }
}
