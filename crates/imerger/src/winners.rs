//! Which records count: those of the winning attempt of each map task, in chunks that are not void.

use ids::{AttemptNumber, ChunkId, Source, TaskIndex};
use ifile::SourceRow;
use std::collections::{BTreeMap, BTreeSet};

/// The valid attempts and the voids of a plan version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Winners {
    attempts: BTreeMap<TaskIndex, AttemptNumber>,
    /// What a source put into a chunk whose server went away before the source committed: dropped for good.
    voids: BTreeSet<(Source, ChunkId)>,
}

impl Winners {
    pub fn new(
        attempts: impl IntoIterator<Item = (TaskIndex, AttemptNumber)>,
        voids: impl IntoIterator<Item = (Source, ChunkId)>,
    ) -> Self {
        Self { attempts: attempts.into_iter().collect(), voids: voids.into_iter().collect() }
    }

    /// For each row of a source table, whether its records count.
    pub fn valid_rows(&self, sources: &[SourceRow]) -> Vec<bool> {
        sources
            .iter()
            .map(|row| {
                self.attempts.get(&row.source.map_task) == Some(&row.source.attempt)
                    && !self.voids.contains(&(row.source, row.chunk))
            })
            .collect()
    }
}
