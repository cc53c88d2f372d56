//! Steps whose jobs began before the step that writes their standard input has ended. Such a job is held in the scheduler:
//! `control` starts it on a slot that nothing else wants, a few times at most for each attempt of the writer, and stops it
//! if another task waits for a slot, or if that attempt ends without success.

use api::task::GrowingInput;
use ids::{JobId, StepNumber};
use std::collections::BTreeMap;

/// Maximum number of attempts of a reader for one attempt of its writer: after that it waits for the file.
pub(crate) const TRIES_MAX: u32 = 3;

/// A step that reads the output of a running one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EarlyReader {
    /// The job of which both are steps.
    pub of: JobId,
    pub writer: EarlyWriter,
    /// Attempt of the writer that its last attempt reads, or has read, with its node.
    pub reads: Option<GrowingInput>,
    /// Number of its attempts that have read that one.
    pub tries: u32,
}

/// The step that writes: the first one of its pipeline, with its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EarlyWriter {
    pub step: StepNumber,
    pub job: JobId,
}

/// All such steps, by their jobs.
#[derive(Default)]
pub(crate) struct EarlyReaders(BTreeMap<JobId, EarlyReader>);

impl EarlyReaders {
    pub fn insert(&mut self, reader: JobId, of: JobId, writer: EarlyWriter) {
        self.0.insert(reader, EarlyReader { of, writer, reads: None, tries: 0 });
    }

    pub fn remove(&mut self, reader: JobId) {
        self.0.remove(&reader);
    }

    pub fn get(&self, reader: JobId) -> Option<EarlyReader> {
        self.0.get(&reader).copied()
    }

    pub fn all(&self) -> Vec<JobId> {
        self.0.keys().copied().collect()
    }

    /// Returns the jobs that read the output of a job.
    pub fn readers_of(&self, writer: JobId) -> impl Iterator<Item = JobId> {
        self.0.iter().filter(move |(_, reader)| reader.writer.job == writer).map(|(job, _)| *job)
    }

    /// Returns the stream that an attempt of a job reads which starts now, and remembers it; None for any other job.
    pub fn begins(&mut self, reader: JobId, input: Option<GrowingInput>) -> Option<GrowingInput> {
        let known = self.0.get_mut(&reader)?;
        known.tries = if known.reads == input { known.tries + 1 } else { 1 };
        known.reads = input;
        input
    }
}
