//! Repair after a failed proof (`docs/internals/lost-data.md`): the wrong data is located and recomputed.
//!
//! Chunk accounts that differ identify a chunk. Sums that differ identify only an I-file: its reduce tasks read it
//! again and count the records of each source in each chunk. The counts either agree now, or identify the chunks whose
//! content differs from the commits to them.

use crate::JobResults;
use crate::losses::LostData;
use crate::proof::{Finding, Proof};
use api::DataSum;
use ids::{ChunkId, IfileIndex, Source, TaskIndex};
use std::collections::{BTreeMap, BTreeSet};

/// The way to repair a job whose proof failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repair {
    /// These reduce tasks run again and count the records that they read by source and chunk.
    ReadAgain(Vec<TaskIndex>),
    /// These reduce tasks run again, after these chunks have been recomputed.
    MakeAgain { gone: LostData, readers: Vec<TaskIndex> },
    /// Everything was read again and equals the commits: only the engine can be at fault.
    Nothing,
}

impl JobResults {
    /// Decides how to repair a job whose proof failed. Forgets the results of the tasks that run again.
    pub fn repair(&mut self, proof: &Proof) -> Repair {
        let wrong: BTreeSet<IfileIndex> = proof.findings.iter().map(|finding| finding.ifile()).collect();
        let readers: Vec<usize> = (0..self.plan.len())
            .filter(|index| self.plan[*index].ifiles.iter().any(|ifile| wrong.contains(ifile)))
            .collect();
        let mut chunks: Vec<ChunkId> = proof.findings.iter().filter_map(Finding::chunk).collect();
        if chunks.is_empty() && readers.iter().all(|index| self.plan[*index].audits_sources) {
            chunks = self.differing_chunks(&wrong);
            if chunks.is_empty() {
                return Repair::Nothing;
            }
        }
        let mut tasks = Vec::new();
        for index in readers {
            let part_index = self.plan[index].part_index;
            self.plan[index].audits_sources = true;
            self.reduces.remove(&TaskIndex(part_index));
            tasks.push(TaskIndex(part_index));
        }
        match chunks.is_empty() {
            true if tasks.is_empty() => Repair::Nothing,
            true => Repair::ReadAgain(tasks),
            false => Repair::MakeAgain { gone: LostData::chunks(&chunks), readers: tasks },
        }
    }

    /// Returns the chunks whose content differs from the commits to them, as reduce tasks read it.
    fn differing_chunks(&self, ifiles: &BTreeSet<IfileIndex>) -> Vec<ChunkId> {
        let mut committed: BTreeMap<(ChunkId, Source), DataSum> = BTreeMap::new();
        for (map_task, (attempt, map)) in &self.maps {
            for commit in map.commits.iter().filter(|commit| ifiles.contains(&commit.ifile)) {
                let attempt = self.attempt_in(*map_task, *attempt, commit.ifile);
                let source = Source { map_task: *map_task, attempt };
                committed.entry((commit.chunk, source)).or_default().add(&commit.sum);
            }
        }
        let mut read: BTreeMap<(ChunkId, Source), DataSum> = BTreeMap::new();
        for books in self
            .reduces
            .values()
            .flat_map(|reduce| &reduce.source_audits)
            .filter(|books| ifiles.contains(&books.ifile))
        {
            read.entry((books.chunk, books.source)).or_default().add(&books.sum);
        }
        committed.retain(|key, sum| read.get(key) != Some(sum));
        let chunks: BTreeSet<ChunkId> = committed.keys().map(|(chunk, _)| *chunk).collect();
        chunks.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Repair;
    use crate::test_job::{commit, finish_reduces, map_result, seal_of, spec, split, sum};
    use crate::{JobResults, LostData, expand, prove};
    use api::task::SourceAudit;
    use ids::StageKind;
    use ids::*;

    /// Two maps, two I-files, and a finished reduce task for each.
    fn reduced() -> JobResults {
        let mut spec = spec();
        spec.layout.ifile_count = 2;
        let mut results = JobResults::new(JobId(7), vec![split(), split()]);
        for task in 0..2 {
            let commits = [commit(0, 0, sum(3)), commit(1, 1, sum(4))];
            results.maps.insert(TaskIndex(task), (AttemptNumber(0), map_result(&commits)));
        }
        results.seal = Some(seal_of(&results));
        expand(StageKind::Reduce, &spec, &mut results).unwrap();
        finish_reduces(&mut results);
        assert!(prove(&results, 2).agrees());
        results
    }

    /// Records a second read of I-file 0 by its reduce task, with counts: `records` of the first map, three of the
    /// second.
    fn read_again(results: &mut JobResults, records: u64) {
        let mut result = crate::test_job::reduce_result(0, &[(0, sum(records + 3))]);
        for (map_task, records) in [(0, records), (1, 3)] {
            let source = Source { map_task: TaskIndex(map_task), attempt: AttemptNumber(0) };
            let (ifile, chunk) = (IfileIndex(0), ChunkId(0));
            result.source_audits.push(SourceAudit { ifile, chunk, source, sum: sum(records) });
        }
        results.reduces.insert(TaskIndex(0), result);
    }

    #[test]
    fn differing_sums_are_read_again_then_made_again() {
        let mut results = reduced();
        results.reduces.get_mut(&TaskIndex(0)).unwrap().merged[0].1 = sum(5);
        let proof = prove(&results, 2);
        assert_eq!(results.repair(&proof), Repair::ReadAgain(vec![TaskIndex(0)]));
        assert_eq!(
            (results.reduces.len(), results.plan[0].audits_sources, results.plan[1].audits_sources),
            (1, true, false)
        );
        let mut other = results.clone();
        read_again(&mut results, 2);
        let proof = prove(&results, 2);
        let (gone, readers) = (LostData::chunks(&[ChunkId(0)]), vec![TaskIndex(0)]);
        assert_eq!(results.repair(&proof), Repair::MakeAgain { gone, readers });
        // The reader was wrong, and now is right.
        read_again(&mut other, 3);
        assert!(prove(&other, 2).agrees());
        // Or it is still wrong.
        other.reduces.get_mut(&TaskIndex(0)).unwrap().merged[0].1 = sum(5);
        let proof = prove(&other, 2);
        assert_eq!(other.repair(&proof), Repair::Nothing);
    }

    #[test]
    fn books_that_differ_name_their_chunk() {
        let mut results = reduced();
        results.seal.as_mut().unwrap().chunks[1].sources.pop();
        let proof = prove(&results, 2);
        let (gone, readers) = (LostData::chunks(&[ChunkId(1)]), vec![TaskIndex(1)]);
        assert_eq!(results.repair(&proof), Repair::MakeAgain { gone, readers });
        assert_eq!(results.reduces.len(), 1);
    }
}
