//! Reads key ranges from all nodes at once, part of them by calls and part over the network.

use crate::cluster::{Cluster, JOB};
use crate::model::{Case, Outcome};
use api::DataSum;
use chunkserver::{Run, RunCursor};
use dataport::{AnyRun, Fallback, Peer, RemoteScan, ScanError, ScanOptions};
use ids::{IfileIndex, RunId};
use imerger::{Groups, Merge, SortedRun, Winners};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub type Range<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);
type Read = (Vec<(Vec<u8>, Vec<u8>)>, BTreeMap<IfileIndex, DataSum>);

/// Readings of one range before the lines are mended, for a long one may be cut each time; and then before a test gives up.
const READINGS_CUT_MAX: u32 = 100;
const READINGS_MAX: u32 = 110;

pub fn check_all(case: &Case, cluster: &Cluster, outcome: &Outcome) {
    let mut edges: Vec<Option<&[u8]>> = vec![None];
    edges.extend(case.cuts.iter().map(|cut| Some(cut.as_slice())));
    edges.push(None);
    for (index, range) in edges.windows(2).enumerate() {
        check_range(case, cluster, outcome, index % cluster.nodes.len(), (range[0], range[1]));
    }
    let (_, sums) = check_range(case, cluster, outcome, 0, (None, None));
    let mut committed: BTreeMap<IfileIndex, DataSum> = BTreeMap::new();
    for commit in outcome.winners.values().flat_map(|winner| &winner.commits) {
        committed.entry(commit.ifile).or_default().add(&commit.sum);
    }
    for (ifile, sum) in committed {
        assert_eq!(sums.get(&ifile), Some(&sum), "the proof of {ifile}");
    }
}

/// Reads until no line was cut; whatever is read as a whole must be right.
fn check_range(case: &Case, cluster: &Cluster, outcome: &Outcome, here: usize, range: Range<'_>) -> Read {
    for reading in 0..READINGS_MAX {
        if reading == READINGS_CUT_MAX {
            cluster.nodes.iter().for_each(|node| node.line.state.cut_per_mille.store(0, Ordering::Relaxed));
        }
        match read(cluster, outcome, here, range) {
            Ok(read) => {
                assert!(
                    read.0 == case.expected(outcome, range),
                    "what is in {range:?} differs from the model"
                );
                return read;
            }
            Err(ScanError::There(_) | ScanError::CutOff { .. }) if case.lines_cut_per_mille > 0 => {}
            Err(error) => panic!("{error:?}"),
        }
    }
    panic!("{range:?} could never be read");
}

/// The records of a range as node `here` sees them.
pub fn read(cluster: &Cluster, outcome: &Outcome, here: usize, range: Range<'_>) -> Result<Read, ScanError> {
    read_with(cluster, outcome, here, range, &BTreeMap::new()).map(|(read, _)| read)
}

/// The same with copies to go on with, and how many runs did.
pub fn read_with(
    cluster: &Cluster,
    outcome: &Outcome,
    here: usize,
    (lower, upper): Range<'_>,
    copies: &BTreeMap<RunId, Peer>,
) -> Result<(Read, usize), ScanError> {
    let local: Vec<Arc<Run>> = cluster.runs(here);
    let mut scans = Vec::new();
    for node in (0..cluster.nodes.len()).filter(|node| *node != here) {
        let runs = cluster.runs(node);
        let options = ScanOptions {
            job: JOB,
            runs: runs.iter().map(|run| run.id).collect(),
            lower: lower.map(<[u8]>::to_vec),
            upper: upper.map(<[u8]>::to_vec),
            skip_records: Vec::new(),
            copies: copies.clone(),
            places: None,
            compress: Some(node == 0),
            attempt: None,
            cancelled: Arc::new(AtomicBool::new(false)),
        };
        scans.push(RemoteScan::start(&cluster.client, &cluster.peer(node), options)?);
    }
    let mut runs = Vec::new();
    let here = ScanOptions {
        job: JOB,
        runs: Vec::new(),
        lower: lower.map(<[u8]>::to_vec),
        upper: upper.map(<[u8]>::to_vec),
        skip_records: Vec::new(),
        copies: copies.clone(),
        places: None,
        compress: None,
        attempt: None,
        cancelled: Arc::new(AtomicBool::new(false)),
    };
    for run in &local {
        let fallback = Fallback::of(&cluster.client, &here, run.id);
        runs.push(AnyRun::here(RunCursor::open(run, lower, upper, 4096), fallback)?);
    }
    for scan in scans {
        runs.extend(scan.into_runs()?.into_iter().map(AnyRun::There));
    }
    let attempts = outcome.winners.iter().map(|(task, winner)| (*task, winner.source.attempt));
    let winners = Winners::new(attempts, []);
    let valid = runs.iter().map(|run| winners.valid_rows(run.ifile(), run.sources())).collect();
    let mut groups = Groups::new(Merge::new(runs)?, valid);
    let mut records = Vec::new();
    while let Some(record) = groups.advance()? {
        records.push((record.key.to_vec(), record.value.to_vec()));
    }
    let resumed = groups.runs().iter().filter(|run| run.resumed()).count();
    Ok(((records, groups.report().merged.into_iter().collect()), resumed))
}
