//! The proof that the shuffle lost and duplicated nothing (`docs/internals/lost-data.md`).

use crate::JobResults;
use api::DataSum;
use ids::{ChunkId, IfileIndex, Source};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The sums of an I-file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IfileProof {
    pub ifile: IfileIndex,
    /// Sum of the data that the winning map attempts committed.
    pub committed: DataSum,
    /// Sum of the data that the reduce tasks merged.
    pub merged: DataSum,
}

/// A finding: something that does not agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The two sums of an I-file differ.
    SumsDiffer { ifile: IfileIndex, committed: DataSum, merged: DataSum },
    /// A map task committed to a chunk that was never sealed.
    ChunkForgotten { ifile: IfileIndex, chunk: ChunkId, source: Source, committed: DataSum },
    /// The accounts of a chunk differ from the commit of a map task that appended to it.
    ChunkDiffers { ifile: IfileIndex, chunk: ChunkId, source: Source, committed: DataSum, held: DataSum },
    /// A sealed chunk with data is in no run.
    ChunkInNoRun { ifile: IfileIndex, chunk: ChunkId },
}

/// The proof of a job: its sums, and all findings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    /// In I-file order, including I-files without data.
    pub ifiles: Vec<IfileProof>,
    pub findings: Vec<Finding>,
}

impl Finding {
    /// Returns the I-file of the finding.
    pub fn ifile(&self) -> IfileIndex {
        match self {
            Self::SumsDiffer { ifile, .. }
            | Self::ChunkForgotten { ifile, .. }
            | Self::ChunkDiffers { ifile, .. }
            | Self::ChunkInNoRun { ifile, .. } => *ifile,
        }
    }

    /// Returns the chunk at fault; None if the finding names no chunk.
    pub fn chunk(&self) -> Option<ChunkId> {
        match self {
            Self::SumsDiffer { .. } => None,
            Self::ChunkForgotten { chunk, .. }
            | Self::ChunkDiffers { chunk, .. }
            | Self::ChunkInNoRun { chunk, .. } => Some(*chunk),
        }
    }
}

impl Proof {
    pub fn agrees(&self) -> bool {
        self.findings.is_empty()
    }

    /// Returns the committed sums of all I-files together.
    pub fn committed_total(&self) -> DataSum {
        let mut total = DataSum::default();
        for row in &self.ifiles {
            total.add(&row.committed);
        }
        total
    }
}

/// Compares the commits of the winning maps with the sums that the reduce tasks merged, I-file by I-file; and, to
/// locate the fault, with the accounts of the chunks between them.
pub fn prove(results: &JobResults, ifile_count: u32) -> Proof {
    let mut rows: BTreeMap<IfileIndex, IfileProof> = BTreeMap::new();
    for index in 0..ifile_count {
        let ifile = IfileIndex(index);
        rows.insert(ifile, IfileProof { ifile, ..IfileProof::default() });
    }
    for commit in results.maps.values().flat_map(|(_, result)| &result.commits) {
        let row =
            rows.entry(commit.ifile).or_insert(IfileProof { ifile: commit.ifile, ..Default::default() });
        row.committed.add(&commit.sum);
    }
    for (ifile, sum) in results.reduces.values().flat_map(|result| &result.merged) {
        let row = rows.entry(*ifile).or_insert(IfileProof { ifile: *ifile, ..Default::default() });
        row.merged.add(sum);
    }
    let ifiles: Vec<IfileProof> = rows.into_values().collect();
    let differ = |row: &IfileProof| {
        (row.committed != row.merged).then_some(Finding::SumsDiffer {
            ifile: row.ifile,
            committed: row.committed,
            merged: row.merged,
        })
    };
    let mut findings: Vec<Finding> = ifiles.iter().filter_map(differ).collect();
    findings.extend(chunk_findings(results));
    Proof { ifiles, findings }
}

fn chunk_findings(results: &JobResults) -> Vec<Finding> {
    let Some(seal) = &results.seal else { return Vec::new() };
    let mut findings = Vec::new();
    let mut held: BTreeMap<(IfileIndex, ChunkId), BTreeMap<Source, DataSum>> = BTreeMap::new();
    for chunk in &seal.chunks {
        held.entry((chunk.ifile, chunk.chunk)).or_default().extend(chunk.sources.iter().copied());
    }
    for (map_task, (attempt, result)) in &results.maps {
        for commit in &result.commits {
            let (ifile, chunk, committed) = (commit.ifile, commit.chunk, commit.sum);
            let attempt = results.attempt_in(*map_task, *attempt, ifile);
            let source = Source { map_task: *map_task, attempt };
            match held.get(&(ifile, chunk)).map(|sources| sources.get(&source).copied()) {
                None => findings.push(Finding::ChunkForgotten { ifile, chunk, source, committed }),
                Some(sum) if sum.unwrap_or_default() != committed => {
                    let held = sum.unwrap_or_default();
                    findings.push(Finding::ChunkDiffers { ifile, chunk, source, committed, held });
                }
                Some(_) => {}
            }
        }
    }
    let in_runs: BTreeSet<(IfileIndex, ChunkId)> =
        seal.runs.iter().flat_map(|run| run.chunks.iter().map(|chunk| (run.ifile, *chunk))).collect();
    for chunk in &seal.chunks {
        if chunk.appended_bytes > 0 && !in_runs.contains(&(chunk.ifile, chunk.chunk)) {
            findings.push(Finding::ChunkInNoRun { ifile: chunk.ifile, chunk: chunk.chunk });
        }
    }
    findings
}

fn write_sum(f: &mut fmt::Formatter<'_>, sum: &DataSum) -> fmt::Result {
    write!(f, "{} records, {} bytes, hash sum {:032x}", sum.records, sum.bytes, sum.hash_sum)
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SumsDiffer { ifile, committed, merged } => {
                write!(f, "in {ifile} the maps committed ")?;
                write_sum(f, committed)?;
                write!(f, "; the reduce tasks merged ")?;
                write_sum(f, merged)
            }
            Self::ChunkForgotten { ifile, chunk, source, committed } => {
                write!(f, "{chunk} of {ifile} was forgotten: {source} committed ")?;
                write_sum(f, committed)?;
                write!(f, " to it, and it was never sealed")
            }
            Self::ChunkDiffers { ifile, chunk, source, committed, held } => {
                write!(f, "{chunk} of {ifile} does not hold what {source} committed to it: ")?;
                write_sum(f, committed)?;
                write!(f, "; it holds ")?;
                write_sum(f, held)
            }
            Self::ChunkInNoRun { ifile, chunk } => write!(f, "{chunk} of {ifile} is in no run"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Finding, prove};
    use crate::JobResults;
    use crate::test_job::{commit, map_result, reduce_result, seal_of, sum};
    use ids::*;

    fn agreeing() -> JobResults {
        let mut results = JobResults::new(JobId(1), Vec::new());
        let first = map_result(&[commit(0, 0, sum(3)), commit(1, 1, sum(4))]);
        let second = map_result(&[commit(1, 1, sum(5))]);
        results.maps.insert(TaskIndex(0), (AttemptNumber(0), first));
        results.maps.insert(TaskIndex(1), (AttemptNumber(2), second));
        results.seal = Some(seal_of(&results));
        results.reduces.insert(TaskIndex(0), reduce_result(0, &[(0, sum(3))]));
        results.reduces.insert(TaskIndex(1), reduce_result(1, &[(1, sum(9))]));
        results
    }

    #[test]
    fn equal_sums_agree() {
        let proof = prove(&agreeing(), 3);
        assert!(proof.agrees(), "{:?}", proof.findings);
        assert_eq!((proof.ifiles.len(), proof.committed_total()), (3, sum(12)));
    }

    #[test]
    fn a_forgotten_chunk_is_named() {
        let mut results = agreeing();
        let seal = results.seal.as_mut().unwrap();
        seal.chunks.retain(|chunk| chunk.chunk != ChunkId(0));
        let proof = prove(&results, 2);
        assert!(matches!(proof.findings[..], [Finding::ChunkForgotten { chunk: ChunkId(0), .. }]));
        assert!(
            proof.findings[0].to_string().starts_with("chunk-0 of ifile-0 was forgotten: map 0 attempt 0")
        );
    }

    #[test]
    fn a_chunk_in_no_run_is_named() {
        let mut results = agreeing();
        results.seal.as_mut().unwrap().runs.clear();
        let proof = prove(&results, 2);
        assert_eq!(proof.findings.len(), 2);
        assert_eq!(proof.findings[1].to_string(), "chunk-1 of ifile-1 is in no run");
    }

    #[test]
    fn losing_attempt_does_not_count_for_the_winner() {
        let mut results = agreeing();
        for chunk in &mut results.seal.as_mut().unwrap().chunks {
            for (source, _) in &mut chunk.sources {
                source.attempt = AttemptNumber(7);
            }
        }
        assert_eq!(prove(&results, 2).findings.len(), 3);
    }
}
