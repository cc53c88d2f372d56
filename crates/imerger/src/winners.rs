//! The records that count: those of the winning attempt of each map task, in chunks that are not void.

use ids::{AttemptNumber, ChunkId, IfileIndex, Source, TaskIndex};
use ifile::SourceRow;
use std::collections::{BTreeMap, BTreeSet};

/// The valid attempts and the voids of a plan version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Winners {
    attempts: BTreeMap<TaskIndex, AttemptNumber>,
    /// Attempts that count for single I-files instead of those above. A recomputing attempt appends to some I-files
    /// only; in the others the older attempt counts.
    older: BTreeMap<(IfileIndex, TaskIndex), AttemptNumber>,
    /// Records to be dropped permanently: the server of their chunk was lost before their source committed.
    voids: BTreeSet<(Source, ChunkId)>,
}

impl Winners {
    pub fn new(
        attempts: impl IntoIterator<Item = (TaskIndex, AttemptNumber)>,
        voids: impl IntoIterator<Item = (Source, ChunkId)>,
    ) -> Self {
        let (attempts, voids) = (attempts.into_iter().collect(), voids.into_iter().collect());
        Self { attempts, older: BTreeMap::new(), voids }
    }

    /// Makes these attempts count in these I-files.
    pub fn with_older(self, older: impl IntoIterator<Item = (IfileIndex, TaskIndex, AttemptNumber)>) -> Self {
        let older = older.into_iter().map(|(ifile, task, attempt)| ((ifile, task), attempt)).collect();
        Self { older, ..self }
    }

    /// Returns for each row of a source table of an I-file whether its records count.
    pub fn valid_rows(&self, ifile: IfileIndex, sources: &[SourceRow]) -> Vec<bool> {
        let valid = |row: &SourceRow| {
            let task = row.source.map_task;
            let attempt = self.older.get(&(ifile, task)).or_else(|| self.attempts.get(&task));
            attempt == Some(&row.source.attempt) && !self.voids.contains(&(row.source, row.chunk))
        };
        sources.iter().map(valid).collect()
    }
}
