//! Context of a user function from the node.

use crate::limits::ProgramLimits;
use crate::programs::{Programs, cancelled_failure};
use crate::reports::Reports;
use crate::sandbox::{DeclaredReads, Sandbox};
use crate::spec::ProgramSpec;
use api::TaskFailure;
use ids::JobId;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Context that the node gives to the functions of one attempt.
#[derive(Clone, Debug)]
pub struct FunctionContext {
    /// The registry of live programs.
    pub programs: Arc<Programs>,
    /// Current directory of programs, with the files given with `--file`.
    pub work_dir: PathBuf,
    /// Directory in which the user typed the command.
    pub start_dir: PathBuf,
    /// Environment in addition to the variables that always pass through: the job's `--env` and the `SAILFISH_`
    /// variables.
    pub env: Vec<(String, String)>,
    /// Those of them that differ between attempts of the job: a program that stays gets them with each task.
    pub task_env: Vec<(String, String)>,
    /// The job whose next attempts on this thread may reuse a program of this one; None: each attempt starts its own.
    pub kept_for: Option<JobId>,
    /// Maximum size of key plus value.
    pub record_bytes_max: u64,
    /// Size of the buffer between a program and the engine, in each direction.
    pub buffer_bytes: usize,
    /// Set before the processes of a cancelled attempt are killed.
    pub cancelled: Arc<AtomicBool>,
    /// Limits of its programs.
    pub limits: ProgramLimits,
    /// Directories whose content counts for the limit on disks, besides the `/tmp` of a contained program.
    pub disk_dirs: Vec<PathBuf>,
    /// File to which standard error is also copied, up to a limit.
    pub stderr_log: Option<PathBuf>,
    /// Collector of the counters and the status that programs of this attempt report.
    pub reports: Arc<Reports>,
    /// Sandbox of programs; None: they may access whatever the node may.
    pub sandbox: Option<Arc<Sandbox>>,
    /// Limit of the reads of programs without a sandbox; None: they read whatever the node may.
    pub declared_reads: Option<Arc<DeclaredReads>>,
    /// True if an exit code other than 0 is no failure; an end by a signal still is.
    pub any_exit_code: bool,
    /// Files that the job names: its programs see them, also where they have a `/tmp` of their own.
    pub named: Vec<PathBuf>,
}

impl FunctionContext {
    /// Returns the failure of a cancelled attempt, if it was cancelled.
    pub fn check_cancelled(&self) -> Result<(), TaskFailure> {
        match self.cancelled.load(Ordering::Relaxed) {
            true => Err(cancelled_failure()),
            false => Ok(()),
        }
    }
}

impl ProgramSpec {
    /// Makes the specification of a command line that runs under an attempt's context.
    pub fn new(words: &[String], context: &FunctionContext) -> Self {
        Self {
            words: words.to_vec(),
            work_dir: context.work_dir.clone(),
            start_dir: context.start_dir.clone(),
            env: context.env.clone(),
            stderr_log: context.stderr_log.clone(),
            sandbox: context.sandbox.clone(),
            declared_reads: context.declared_reads.clone(),
            limits: context.limits,
            streams: Vec::new(),
        }
    }
}
