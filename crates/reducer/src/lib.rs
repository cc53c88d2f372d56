//! # What it does
//! Runs reduce functions over grouped records and writes output parts: the user's program or a built-in
//! fold, the part writer with its counts and checksum, and the folds that combiners share.
//!
//! # Where it sits
//! imerger (groups) -> **reducer** -> output. `mapper` uses its folds and its part writer.
//!
//! # Invariants
//! A reduce function drains its input whatever the user's program reads, so that the proof covers every
//! record. Folds are exact: decimals have no rounding, and folding partial results gives the same text as
//! folding the values. A part that was not finished is removed.
//!
//! # Deliberately absent
//! No merging, no knowledge of runs or I-files, no publishing: the commit renames parts, or completes
//! their uploads.
//!
//! # How it is tested
//! Unit tests beside each type; folds against a model of big decimals in `tests/`; programs as real processes.

pub mod aggregate;
mod builtin;
mod check_order;
mod command;
mod decimal;
mod fed_frames;
mod fields;
pub mod fold;
mod function;
mod part;
mod part_file;
mod program_frames;
mod program_lines;
mod taken_frames;
mod tera_join;

pub use command::write_program_output;
pub use decimal::{Decimal, whole_amount};
pub use fed_frames::{job_frame, write_end, write_job, write_records};
pub use fields::FieldSplitter;
pub use function::{
    FunctionUnusable, GroupedRecord, GroupedRecords, ReduceCounts, ReduceFunction, builtin_fold,
    check_combiner, check_reducer, combiner_fits, combines_by_itself, reduce_function,
};
pub use part::{PartPlace, PartWriter};
pub use program_frames::{feed_groups, write_from_program};
pub use program_lines::{RECORD_BYTES_LIMIT, for_each_output_line, record_too_long};
pub use taken_frames::{PutOut, Taken, take_from_program};
