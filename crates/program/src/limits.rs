//! Limits of the programs of an attempt, from its job and its node, and the failure of an attempt that passed one.

use api::{AttemptLimits, Blame, LimitKind, TaskFailure};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// Exit codes of a shell whose child was ended by a signal begin here.
const SHELL_SIGNALS: i32 = 128;

/// Limits of an attempt. The lower one of each kind holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProgramLimits {
    pub of_job: AttemptLimits,
    pub of_node: AttemptLimits,
}

/// The limit that an attempt has passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Passed {
    pub kind: LimitKind,
    /// The measured value; None: the kernel refused more.
    pub measured: Option<u64>,
}

impl ProgramLimits {
    /// Returns the limit that holds.
    pub fn get(&self, kind: LimitKind) -> Option<u64> {
        [self.of_job.get(kind), self.of_node.get(kind)].into_iter().flatten().min()
    }

    /// Returns whether none holds.
    pub fn is_none(&self) -> bool {
        self.of_job.is_none() && self.of_node.is_none()
    }

    /// Returns the failure of an attempt that passed a limit. Another attempt would pass it too.
    pub(crate) fn failure(&self, passed: &Passed, stderr_tail: Vec<String>) -> TaskFailure {
        let Passed { kind, measured } = *passed;
        let limit = self.get(kind).unwrap_or_default();
        let owner = match self.of_job.get(kind) == Some(limit) {
            true if kind == LimitKind::Time => "of the job (`timeout` of the step in a workflow file)",
            true => "of the job",
            false => "of this node",
        };
        let had = match (kind, measured) {
            (LimitKind::Time, _) | (_, None) => String::new(),
            (_, Some(measured)) => format!(": {} at the last check", shown(kind, measured)),
        };
        let message = format!(
            "the programs of the attempt passed --limit {}={} {owner}{had}",
            kind.word(),
            value_text(kind, limit)
        );
        TaskFailure { stderr_tail, ..TaskFailure::new(Blame::UserData, message) }
    }

    /// Returns the limit by which the kernel refused something to a program, as far as its end shows that.
    pub(crate) fn refused(&self, status: ExitStatus, tail: &[String]) -> Option<Passed> {
        let ended_by =
            |signal: i32| status.signal() == Some(signal) || status.code() == Some(SHELL_SIGNALS + signal);
        let says = |texts: &[&str]| tail.iter().any(|line| texts.iter().any(|text| line.contains(text)));
        let too_large = ["File too large", "File size limit exceeded"];
        let is_met = |kind: LimitKind| match kind {
            LimitKind::FileSize => ended_by(libc::SIGXFSZ) || says(&too_large),
            LimitKind::OpenFiles => says(&["Too many open files"]),
            _ => false,
        };
        let kind = LimitKind::ALL.into_iter().find(|kind| self.get(*kind).is_some() && is_met(*kind))?;
        Some(Passed { kind, measured: None })
    }
}

/// Returns the value of a limit as users type it.
fn value_text(kind: LimitKind, value: u64) -> String {
    match kind {
        LimitKind::Processes | LimitKind::OpenFiles => value.to_string(),
        LimitKind::Time => format!("{value}s"),
        LimitKind::FileSize | LimitKind::Disk | LimitKind::Memory => {
            let units = [("T", 40), ("G", 30), ("M", 20), ("K", 10)];
            let unit = units.into_iter().find(|(_, shift)| value > 0 && value.trailing_zeros() >= *shift);
            unit.map_or(value.to_string(), |(unit, shift)| format!("{}{unit}", value >> shift))
        }
    }
}

fn shown(kind: LimitKind, measured: u64) -> String {
    match kind {
        LimitKind::Disk | LimitKind::Memory => format!("{} MiB", measured.div_ceil(1 << 20)),
        _ => measured.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Passed, ProgramLimits};
    use api::{AttemptLimits, LimitKind};
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    #[test]
    fn lower_limit_holds_and_its_owner_is_named() {
        let of_job = AttemptLimits { memory_bytes: Some(64 << 20), processes: Some(9), ..Default::default() };
        let of_node = AttemptLimits { memory_bytes: Some(1 << 30), processes: Some(8), ..Default::default() };
        let limits = ProgramLimits { of_job, of_node };
        let message = |kind, measured| limits.failure(&Passed { kind, measured }, Vec::new()).message;
        let memory = message(LimitKind::Memory, Some(65 << 20));
        assert!(memory.ends_with("--limit memory=64M of the job: 65 MiB at the last check"), "{memory}");
        let processes = message(LimitKind::Processes, None);
        assert!(processes.ends_with("--limit processes=8 of this node"), "{processes}");
        assert_eq!(limits.get(LimitKind::Time), None);
        let of_job = AttemptLimits { seconds: Some(1), ..Default::default() };
        let limits = ProgramLimits { of_job, of_node };
        let time = limits.failure(&Passed { kind: LimitKind::Time, measured: None }, Vec::new()).message;
        let expected = "--limit time=1s of the job (`timeout` of the step in a workflow file)";
        assert!(time.ends_with(expected), "{time}");
    }

    #[test]
    fn refusals_of_the_kernel_are_recognized() {
        let of_job = AttemptLimits { file_bytes: Some(1), open_files: Some(64), ..Default::default() };
        let limits = ProgramLimits { of_job, ..ProgramLimits::default() };
        let kind = |raw, tail: &str| {
            let refused = limits.refused(ExitStatus::from_raw(raw), &[tail.to_string()]);
            refused.map(|passed| passed.kind)
        };
        assert_eq!(kind(libc::SIGXFSZ, ""), Some(LimitKind::FileSize));
        assert_eq!(kind((128 + libc::SIGXFSZ) << 8, ""), Some(LimitKind::FileSize));
        assert_eq!(kind(1 << 8, "OSError: [Errno 24] Too many open files: 'x'"), Some(LimitKind::OpenFiles));
        assert_eq!(kind(1 << 8, "no"), None);
        assert_eq!(ProgramLimits::default().refused(ExitStatus::from_raw(libc::SIGXFSZ), &[]), None);
    }
}
