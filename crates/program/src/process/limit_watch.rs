//! Measures the programs of an attempt against its limits, from time to time.

use crate::context::FunctionContext;
use crate::limits::{Passed, ProgramLimits};
use crate::process::Process;
use crate::process::disk_usage::disk_usage;
use crate::process::ending::Outcome;
use crate::process::file_memory::FileMemory;
use api::LimitKind;
use containment::{UnlinkedFiles, Usage};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval between two measurements.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The same where files lie in memory, which fills fast.
const LOOK_AT_MEMORY_EVERY: Duration = Duration::from_millis(50);

/// The limits of one run, and the next time to look at them.
#[derive(Debug)]
pub(crate) struct LimitWatch {
    limits: ProgramLimits,
    dirs: Vec<PathBuf>,
    started: Instant,
    /// None: no limit needs a look, or one has been passed.
    next: Option<Instant>,
    passed: Option<Passed>,
    file_memory: Option<Arc<FileMemory>>,
}

impl LimitWatch {
    /// Begins with the run of a program on this thread's slot.
    pub fn begin(context: &FunctionContext) -> Self {
        let limits = context.limits;
        let has = |kind| limits.get(kind).is_some();
        let needs_looks =
            [LimitKind::Time, LimitKind::Memory, LimitKind::Disk, LimitKind::Processes].into_iter().any(has);
        let own_temporary = context.programs.slots.temporary_here().filter(|_| has(LimitKind::Disk));
        let dirs = context.disk_dirs.iter().cloned().chain(own_temporary).collect();
        let started = Instant::now();
        Self {
            limits,
            dirs,
            started,
            next: needs_looks.then(|| started + LOOK_EVERY),
            passed: None,
            file_memory: None,
        }
    }

    /// Adds the directory in memory of the program, if it has one.
    pub fn with_file_memory(mut self, memory: Option<&Arc<FileMemory>>) -> Self {
        self.file_memory = memory.cloned();
        if memory.is_some() {
            self.next = Some(self.started + LOOK_AT_MEMORY_EVERY);
        }
        self
    }

    /// Returns when to look again.
    pub fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Measures, if it is time, and ends everything of the attempt that has passed a limit; returns whether it has.
    pub fn look(&mut self, process: &Process) -> bool {
        let now = Instant::now();
        if self.next.is_none_or(|next| now < next) {
            return false;
        }
        let every = if self.file_memory.is_some() { LOOK_AT_MEMORY_EVERY } else { LOOK_EVERY };
        self.next = Some(now + every);
        self.passed = self.measure(process, now);
        if self.passed.is_none() && !self.file_memory.as_ref().is_some_and(|memory| memory.measure()) {
            return false;
        }
        self.next = None;
        process.member.init.kill_all();
        true
    }

    /// Looks at the actions of the kernel once a program has ended. A program that succeeded although processes were
    /// refused to it has passed no limit.
    pub fn look_at_ended(&mut self, process: &Process, outcome: Outcome) {
        if let Some(memory) = &self.file_memory {
            match outcome {
                Outcome::Failed => memory.measure_failed(),
                _ => memory.measure(),
            };
        }
        if self.passed.is_none()
            && let Some(usage) = self.usage(process)
        {
            let refused = self.refused_in_group(usage);
            let is_passed =
                |refused: &Passed| outcome == Outcome::Failed || refused.kind == LimitKind::Memory;
            self.passed = refused.filter(is_passed);
        }
        self.next = None;
    }

    /// Returns whether a limit was passed.
    pub fn has_passed(&self) -> bool {
        self.passed.is_some() || self.file_memory.as_ref().is_some_and(|memory| memory.is_outgrown())
    }

    /// Returns the limit that was passed.
    pub fn passed(self) -> Option<Passed> {
        self.passed
    }

    fn measure(&self, process: &Process, now: Instant) -> Option<Passed> {
        let over = |kind: LimitKind, measured: u64| {
            let is_over = self.limits.get(kind).is_some_and(|limit| measured > limit);
            is_over.then_some(Passed { kind, measured: Some(measured) })
        };
        // The whole second in which it ends still belongs to the time.
        let seconds = now.duration_since(self.started).as_millis().div_ceil(1000) as u64;
        if let Some(passed) = over(LimitKind::Time, seconds) {
            return Some(passed);
        }
        let usage = self.usage(process).unwrap_or_default();
        let refused = self.refused_in_group(usage).filter(|refused| refused.kind == LimitKind::Memory);
        let passed = refused
            .or_else(|| over(LimitKind::Processes, usage.processes))
            .or_else(|| over(LimitKind::Memory, usage.memory_bytes));
        passed.or_else(|| {
            self.limits.get(LimitKind::Disk)?;
            over(LimitKind::Disk, usage.unlinked_bytes.saturating_add(disk_usage(&self.dirs)))
        })
    }

    /// Returns the limit of the control group that the kernel has enforced.
    fn refused_in_group(&self, usage: Usage) -> Option<Passed> {
        let kind = match usage {
            Usage { ended_for_memory: true, .. } => LimitKind::Memory,
            Usage { refused_processes: true, .. } => LimitKind::Processes,
            _ => return None,
        };
        self.limits.get(kind).map(|_| Passed { kind, measured: None })
    }

    fn usage(&self, process: &Process) -> Option<Usage> {
        let has = |kind| self.limits.get(kind).is_some();
        let wanted = [LimitKind::Memory, LimitKind::Disk, LimitKind::Processes].into_iter().any(has);
        let unlinked = match has(LimitKind::Disk) {
            true => UnlinkedFiles::Counted,
            false => UnlinkedFiles::LeftOut,
        };
        wanted.then(|| process.member.init.usage(unlinked).ok()).flatten()
    }
}
