//! # What it does
//! Runs map functions: lists the inputs of a job (files, and objects through `objects`), cuts them into splits, reads a
//! split as whole records, runs the user's mapper or a built-in of `functions` over it, and folds the pairs in combine
//! windows.
//!
//! # Where it sits
//! input split -> **mapper** -> iappender. A map-only task writes its pairs to `output`.
//!
//! # Invariants
//! The splits of a job contain each record of each input exactly once, in input order. The output of a map function,
//! window cuts included, depends on the split and the layout only, so that a retry of a deterministic function gives
//! the same bytes. An input that changed since it was pinned at submit is an error.
//!
//! # Deliberately absent
//! No partitioning, no frames, no I-files: a [`functions::Emitter`] takes the pairs. No clock and no randomness.
//!
//! # How it is tested
//! Unit tests beside each type; any cut of any text or of fixed records in `tests/`, plain and compressed; combine
//! windows against a model; programs as real processes.

mod combine;
mod command;
mod function;
pub mod generate;
pub mod input;
mod program_frames;
pub mod reader;
mod task_input;

pub use combine::{CombineEmitter, WINDOW_BYTES_MAX};
pub use function::{map_function, run_map_only};
pub use input::line_splits::{LINE_SPLITS_MAX, LineSplitError, plan_lines};
pub use input::source::{Openers, StageFileFailure, StageFileSource, StoredFileSource};
pub use reader::{ReaderLimits, SplitReader};
pub use task_input::TaskInput;
