//! # What it does
//! Holds the functions of jobs: the list of built-ins with their help, checks and constructors, the folds that reducers
//! and combine windows share, and the adapters between functions and user programs, in lines and in frames.
//!
//! # Where it sits
//! Below `mapper` and `reducer`, which feed functions and run programs; above `program`, `frames` and `output`.
//!
//! # Invariants
//! Folds are exact: decimals have no rounding, and folding partial results gives the same text as folding the values. A
//! built-in reads its input to its end.
//!
//! # Deliberately absent
//! No reading of inputs, no windows, no merging: a function gets a [`RecordInput`] or [`GroupedRecords`]. It starts no
//! process.
//!
//! # How it is tested
//! Unit tests beside each type; the tables of docs/cli.md against the list in `tests/`; folds against a model of big
//! decimals in the tests of `reducer`.

pub mod aggregate;
mod builtins;
mod decimal;
mod fed_frames;
mod fields;
pub mod fold;
mod map;
mod program_lines;
mod program_output;
mod record_limit;
mod reduce;
mod taken_frames;

pub use builtins::{
    Combining, FunctionUnusable, ReducedValues, check_combiner, check_mapper, check_reducer, combiner,
    combiner_fits, combines_by_itself, help_text, identity_mapper, mapper, markdown_tables, reducer,
};
pub use decimal::{Decimal, whole_amount};
pub use fed_frames::{feed_groups, job_frame, write_end, write_job, write_records};
pub use fields::FieldSplitter;
pub use map::{BlockPlace, Emitter, KeyPlace, KeysInBlock, MapCounts, MapFunction, RecordInput, no_tails};
pub use program_lines::for_each_output_line;
pub use program_output::{write_from_program, write_program_output};
pub use record_limit::{RECORD_BYTES_LIMIT, record_too_long};
pub use reduce::{GroupedRecord, GroupedRecords, ReduceCounts, ReduceFunction};
pub use taken_frames::{PutOut, Taken, take_from_program};
