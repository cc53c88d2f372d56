//! Runs a command and records its cost, by `wait4`, so that benchmarks need no other tool.

use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// The kernel keeps no high-water mark of anonymous memory, so it is sampled at this interval: a peak between two
/// samples is missed.
const ANONYMOUS_PERIOD: Duration = Duration::from_millis(20);

/// Resources used by a finished command and the descendants that it waited for.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    pub wall_seconds: f64,
    pub user_seconds: f64,
    pub sys_seconds: f64,
    /// Largest resident set of any one process among them.
    pub rss_peak_mib: f64,
    /// Largest sampled anonymous resident set (`RssAnon`: no files, no page cache) of the command's own process.
    pub anonymous_peak_mib: f64,
    /// Exit code, or 128 + signal, as in a shell.
    pub exit_code: u8,
}

impl Cost {
    /// Returns a line of tab-separated values, in the order of the fields.
    pub fn row(&self) -> String {
        format!(
            "{:.3}\t{:.3}\t{:.3}\t{:.1}\t{:.1}\t{}\n",
            self.wall_seconds,
            self.user_seconds,
            self.sys_seconds,
            self.rss_peak_mib,
            self.anonymous_peak_mib,
            self.exit_code
        )
    }
}

/// Runs `command`, writes its [`Cost::row`] to `out` and ends with its exit code.
pub fn run(out: &Path, command: &[String]) -> Result<ExitCode> {
    let cost = measure(command)?;
    std::fs::write(out, cost.row()).with_context(|| format!("write {}", out.display()))?;
    Ok(ExitCode::from(cost.exit_code))
}

/// Runs `command` to its end. Fails if the command cannot be started.
pub fn measure(command: &[String]) -> Result<Cost> {
    let Some((program, arguments)) = command.split_first() else { bail!("time needs a command") };
    let started = Instant::now();
    let child = Command::new(program).args(arguments).spawn().with_context(|| format!("start {program}"))?;
    let pid = libc::pid_t::try_from(child.id()).context("read the process id")?;
    let (ended, end) = sync_channel(1);
    let anonymous_peak_mib = std::thread::scope(|scope| {
        let sampler = scope.spawn(move || anonymous_peak_mib(pid, &end));
        let waited = wait_for_end(pid);
        // The sampler ends before the process is reaped, so that its number cannot belong to another one.
        drop(ended);
        let peak = sampler.join().expect("the sampler does not panic");
        waited.map(|()| peak)
    })
    .with_context(|| format!("wait for {program}"))?;
    let wall_seconds = started.elapsed().as_secs_f64();
    let (status, usage) = reap(pid).with_context(|| format!("wait for {program}"))?;
    let code = if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 128 + libc::WTERMSIG(status) };
    Ok(Cost {
        wall_seconds,
        user_seconds: seconds(usage.ru_utime),
        sys_seconds: seconds(usage.ru_stime),
        rss_peak_mib: usage.ru_maxrss as f64 / 1024.0,
        anonymous_peak_mib,
        exit_code: u8::try_from(code).unwrap_or(u8::MAX),
    })
}

/// Waits until our child `pid` has ended, without reaping it.
fn wait_for_end(pid: libc::pid_t) -> std::io::Result<()> {
    // SAFETY: an all-zero siginfo is a valid value of that plain struct.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    until_not_interrupted(|| {
        // SAFETY: the pointer is to a live local of the right type; the process is our own child.
        unsafe { libc::waitid(libc::P_PID, pid.unsigned_abs(), &mut info, libc::WEXITED | libc::WNOWAIT) }
    })
}

/// Returns status and usage of our child `pid`, which has ended. `Child::wait` does not report usage.
fn reap(pid: libc::pid_t) -> std::io::Result<(libc::c_int, libc::rusage)> {
    let mut status: libc::c_int = 0;
    // SAFETY: an all-zero rusage is a valid value of that plain struct.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    until_not_interrupted(|| {
        // SAFETY: both pointers are to live locals of the right types; nothing else waits for the process.
        unsafe { libc::wait4(pid, &mut status, 0, &mut usage) }
    })?;
    Ok((status, usage))
}

fn until_not_interrupted(mut call: impl FnMut() -> libc::c_int) -> std::io::Result<()> {
    while call() < 0 {
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok(())
}

/// Samples `RssAnon` of a process until the other end of `end` is dropped.
fn anonymous_peak_mib(pid: libc::pid_t, end: &Receiver<()>) -> f64 {
    let path = format!("/proc/{pid}/status");
    let mut peak_kib = 0;
    while let Err(RecvTimeoutError::Timeout) = end.recv_timeout(ANONYMOUS_PERIOD) {
        // An ended process has no such line, and a starting one may have none.
        let status = std::fs::read_to_string(&path).unwrap_or_default();
        peak_kib = anonymous_kib(&status).unwrap_or(0).max(peak_kib);
    }
    peak_kib as f64 / 1024.0
}

fn anonymous_kib(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

fn seconds(time: libc::timeval) -> f64 {
    time.tv_sec as f64 + time.tv_usec as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::{anonymous_kib, measure};

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_string).collect()
    }

    #[test]
    fn exit_codes_and_signals_are_told() {
        assert_eq!(measure(&words("true")).unwrap().exit_code, 0);
        assert_eq!(measure(&words("false")).unwrap().exit_code, 1);
        let killed = vec!["sh".to_string(), "-c".to_string(), "kill -9 $$".to_string()];
        assert_eq!(measure(&killed).unwrap().exit_code, 137);
    }

    #[test]
    fn a_missing_program_is_an_error() {
        assert!(measure(&words("no-such-program-anywhere")).is_err());
        assert!(measure(&[]).is_err());
    }

    #[test]
    fn a_row_has_six_columns() {
        assert_eq!(measure(&words("true")).unwrap().row().split('\t').count(), 6);
    }

    #[test]
    fn anonymous_memory_is_read_from_process_status() {
        assert_eq!(anonymous_kib("VmRSS:\t    9 kB\nRssAnon:\t    1234 kB\nRssFile:\t 5 kB\n"), Some(1234));
        assert_eq!(anonymous_kib("VmRSS: 9 kB\n"), None);
        let own = std::fs::read_to_string("/proc/self/status").unwrap();
        assert!(anonymous_kib(&own).is_some_and(|kib| kib > 0));
    }
}
