//! # What it does
//! Named crash points, planted faults, and faults of input and output: the one list that tests, the simulator and the
//! fault drill use.
//!
//! # Where it sits
//! Below every crate that touches a disk, the store or a chunk.
//!
//! # Invariants
//! Nothing fires unless the environment names it when the process starts, except for a crash point that a drill arms in
//! a node started for drills ([`arm`]). `SAILFISH_CRASH_AT=NAME[:N]` aborts the process at the N-th passing of a point,
//! `SAILFISH_PLANT=NAME[:N]` plants one fault at its N-th chance, with `:*` at every one,
//! `SAILFISH_IO_FAULT=CALL:FAULT:N` makes the N-th call of a kind (create, write, sync, rename) fail or take long
//! ([`io_call`]). Without these, a passing costs two loads.
//! A name that does not exist is an error at start-up ([`check_environment`]), so that no test passes by a typo.
//!
//! # Deliberately absent
//! No randomness, no clock: passings are counted. No files: the engine makes its calls itself.
//!
//! # How it is tested
//! The black-box tests walk [`CrashPoint::ALL`] and [`PlantedFault::ALL`], and every call
//! of a small job.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// All of them, in the order in which a job passes them.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// Returns the name used in the environment.
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }

            fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|each| each.name() == text)
            }
        }
    };
}

named! {
    /// A place where the death of the process has consequences: around each sync, rename, transaction, hand-over.
    CrashPoint {
        OwnerLockTaken = "owner-lock-taken",
        SubmitBeforeTransaction = "submit-before-transaction",
        SubmitAfterTransaction = "submit-after-transaction",
        StagingCreated = "staging-created",
        BoundariesBeforeTransaction = "boundaries-before-transaction",
        BoundariesAfterTransaction = "boundaries-after-transaction",
        FrameBeforeHandOver = "frame-before-hand-over",
        FrameAfterHandOver = "frame-after-hand-over",
        ChunkClosed = "chunk-closed",
        RawSpillBeforeWrite = "raw-spill-before-write",
        RawSpillAfterWrite = "raw-spill-after-write",
        RunBeforeWrite = "run-before-write",
        RunAfterWrite = "run-after-write",
        ResultBeforeTransaction = "result-before-transaction",
        ResultAfterTransaction = "result-after-transaction",
        PartBeforeSync = "part-before-sync",
        PartAfterSync = "part-after-sync",
        CommitBeforePartRename = "commit-before-part-rename",
        CommitAfterPartRename = "commit-after-part-rename",
        CommitReportWritten = "commit-report-written",
        CommitBeforeSync = "commit-before-sync",
        CommitAfterSync = "commit-after-sync",
        CommitAfterRename = "commit-after-rename",
        CommitAfterParentSync = "commit-after-parent-sync",
        CleanupBeforeRemove = "cleanup-before-remove",
        CleanupAfterRemove = "cleanup-after-remove",
        GcBeforeMark = "gc-before-mark",
        GcAfterMark = "gc-after-mark",
        GcAfterRemove = "gc-after-remove",
        FilesBegun = "files-begun",
        FilesWritten = "files-written",
        FilesSynced = "files-synced",
        FilesCommitted = "files-committed",
        FilesRetired = "files-retired",
        FilesRemoved = "files-removed",
    }
}

/// The points that a node of a cluster passes; the others are in the server.
pub const POINTS_OF_NODES: &[CrashPoint] = &[
    CrashPoint::FrameBeforeHandOver,
    CrashPoint::FrameAfterHandOver,
    CrashPoint::ChunkClosed,
    CrashPoint::RawSpillBeforeWrite,
    CrashPoint::RawSpillAfterWrite,
    CrashPoint::RunBeforeWrite,
    CrashPoint::RunAfterWrite,
    CrashPoint::PartBeforeSync,
    CrashPoint::PartAfterSync,
    CrashPoint::CommitBeforePartRename,
    CrashPoint::CommitAfterPartRename,
    CrashPoint::CommitReportWritten,
    CrashPoint::CommitBeforeSync,
    CrashPoint::CommitAfterSync,
    CrashPoint::CommitAfterRename,
    CrashPoint::CommitAfterParentSync,
];

named! {
    /// A fault of the kind that the proof must find. Spoiled data is recomputed; if it strikes every time, the job must
    /// fail with an error.
    PlantedFault {
        /// A frame is acknowledged and discarded.
        FrameDropped = "frame-dropped",
        /// A frame is appended twice.
        FrameDuplicated = "frame-duplicated",
        /// A byte of a record changes after it was counted.
        FrameAltered = "frame-altered",
        /// A merge takes the records of a losing attempt.
        AttemptMixed = "attempt-mixed",
        /// A chunk is left out of the runs.
        ChunkForgotten = "chunk-forgotten",
    }
}

mod io_calls;

pub use io_calls::{IoCall, IoFault, io_call};

struct Armed<T> {
    what: Option<T>,
    /// Passings until it fires.
    countdown: AtomicU64,
    /// It fires at each passing.
    lasts: bool,
}

fn read<T>(variable: &str, parse: fn(&str) -> Option<T>) -> Result<Armed<T>, String> {
    let Ok(text) = std::env::var(variable) else {
        return Ok(Armed { what: None, countdown: AtomicU64::new(0), lasts: false });
    };
    let (name, count) = match text.split_once(':') {
        Some((name, "*")) => (name, Some(1)),
        Some((name, count)) => (name, count.parse::<u64>().ok().filter(|count| *count > 0)),
        None => (text.as_str(), Some(1)),
    };
    match (parse(name), count) {
        (Some(what), Some(count)) => {
            let (countdown, lasts) = (AtomicU64::new(count), text.ends_with(":*"));
            Ok(Armed { what: Some(what), countdown, lasts })
        }
        _ => Err(format!("{variable}={text}: no such name or count")),
    }
}

fn armed_crash() -> &'static Result<Armed<CrashPoint>, String> {
    static ARMED: OnceLock<Result<Armed<CrashPoint>, String>> = OnceLock::new();
    ARMED.get_or_init(|| read("SAILFISH_CRASH_AT", CrashPoint::parse))
}

fn armed_fault() -> &'static Result<Armed<PlantedFault>, String> {
    static ARMED: OnceLock<Result<Armed<PlantedFault>, String>> = OnceLock::new();
    ARMED.get_or_init(|| read("SAILFISH_PLANT", PlantedFault::parse))
}

fn fires<T: PartialEq>(armed: &Result<Armed<T>, String>, what: T) -> bool {
    match armed {
        Ok(armed) if armed.what == Some(what) => {
            armed.lasts || armed.countdown.fetch_sub(1, Ordering::Relaxed) == 1
        }
        _ => false,
    }
}

/// Checks the environment variables; call once at start-up. The error names the variable.
pub fn check_environment() -> Result<(), String> {
    if let Err(message) = armed_crash() {
        return Err(message.clone());
    }
    if let Err(message) = armed_fault() {
        return Err(message.clone());
    }
    io_calls::check_environment()
}

/// The crash point that a drill has armed: its position in [`CrashPoint::ALL`], counted from 1. 0: none.
static ARMED_BY_DRILL: AtomicUsize = AtomicUsize::new(0);

/// Arms a crash point of nodes, instead of the previously armed one: the process aborts when it reaches it. Returns
/// None if there is no such point.
pub fn arm(name: &str) -> Option<CrashPoint> {
    let point = POINTS_OF_NODES.iter().copied().find(|point| point.name() == name)?;
    ARMED_BY_DRILL.store(point as usize + 1, Ordering::Relaxed);
    Some(point)
}

/// Undoes [`arm`].
pub fn disarm() {
    ARMED_BY_DRILL.store(0, Ordering::Relaxed);
}

/// Passes a crash point: aborts the process if the environment, or a drill, names it.
#[inline]
pub fn crash_point(point: CrashPoint) {
    let is_armed = ARMED_BY_DRILL.load(Ordering::Relaxed) == point as usize + 1;
    if is_armed || fires(armed_crash(), point) {
        eprintln!("sailfish: aborting at crash point {}", point.name());
        std::process::abort();
    }
}

/// Returns whether the planted fault strikes here and now.
#[inline]
pub fn planted(fault: PlantedFault) -> bool {
    fires(armed_fault(), fault)
}
