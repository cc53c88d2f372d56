//! Runs a command and writes down what it cost, by `wait4`, so that benchmarks need no other tool.

use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

/// What a finished command and the descendants it waited for have used.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    pub wall_seconds: f64,
    pub user_seconds: f64,
    pub sys_seconds: f64,
    /// Largest resident set of any one process among them.
    pub rss_peak_mib: f64,
    /// Exit code, or 128 + signal as a shell counts it.
    pub exit_code: u8,
}

impl Cost {
    /// One line of tab-separated values, in the order of the fields.
    pub fn row(&self) -> String {
        format!(
            "{:.3}\t{:.3}\t{:.3}\t{:.1}\t{}\n",
            self.wall_seconds, self.user_seconds, self.sys_seconds, self.rss_peak_mib, self.exit_code
        )
    }
}

/// Runs `command`, writes its [`Cost::row`] to `out` and ends with its exit code.
pub fn run(out: &Path, command: &[String]) -> Result<ExitCode> {
    let cost = measure(command)?;
    std::fs::write(out, cost.row()).with_context(|| format!("write {}", out.display()))?;
    Ok(ExitCode::from(cost.exit_code))
}

/// Runs `command` to its end. The error is a command that cannot be started.
pub fn measure(command: &[String]) -> Result<Cost> {
    let Some((program, arguments)) = command.split_first() else { bail!("time needs a command") };
    let started = Instant::now();
    let child = Command::new(program).args(arguments).spawn().with_context(|| format!("start {program}"))?;
    let pid = libc::pid_t::try_from(child.id()).context("read the process id")?;
    let mut status: libc::c_int = 0;
    // SAFETY: an all-zero rusage is a valid value of that plain struct.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // `Child::wait` does not report usage. `child` is not touched again, so the process is waited for once.
    // SAFETY: both pointers are to live locals of the right types; the process is our own child.
    while unsafe { libc::wait4(pid, &mut status, 0, &mut usage) } < 0 {
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(error).with_context(|| format!("wait for {program}"));
        }
    }
    let wall_seconds = started.elapsed().as_secs_f64();
    let code = if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 128 + libc::WTERMSIG(status) };
    Ok(Cost {
        wall_seconds,
        user_seconds: seconds(usage.ru_utime),
        sys_seconds: seconds(usage.ru_stime),
        rss_peak_mib: usage.ru_maxrss as f64 / 1024.0,
        exit_code: u8::try_from(code).unwrap_or(u8::MAX),
    })
}

fn seconds(time: libc::timeval) -> f64 {
    time.tv_sec as f64 + time.tv_usec as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::measure;

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
    fn a_row_has_five_columns() {
        assert_eq!(measure(&words("true")).unwrap().row().split('\t').count(), 5);
    }
}
