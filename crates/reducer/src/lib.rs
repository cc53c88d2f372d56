//! # What it does
//! Runs the reduce function of a task over grouped records: the user's program, in lines or in frames, a built-in of
//! `functions`, or the writer of sorted pairs.
//!
//! # Where it sits
//! imerger (groups) -> **reducer** -> output.
//!
//! # Invariants
//! A reduce function drains its input even if the user's program does not read all of it, so that the proof covers
//! every record.
//!
//! # Deliberately absent
//! No merging, no knowledge of runs or I-files, no built-ins (`functions`), no files (`output`).
//!
//! # How it is tested
//! Every function in `tests/`: built-ins against a model of big decimals, programs as real processes.

mod command;
mod function;
mod pairs;
mod program_frames;

pub use function::reduce_function;
