//! Other places of a run, for a reader that cannot go on where it is.

use crate::error::ScanError;
use crate::request::client::{DataClient, Peer};
use crate::request::scan::run::RemoteRun;
use crate::request::scan::{RemoteScan, ScanOptions};
use chunkserver::CursorReport;
use ids::{NodeId, RunId};
use ifile::SourceRow;
use std::collections::BTreeMap;

/// Knows where runs lie, when a reader asks that cannot go on where it is. Asked on the thread that reads.
pub trait Places: Send + Sync {
    /// Returns the nodes other than `than` on which the runs lie, for those runs that lie on such a node.
    fn elsewhere(&self, runs: &[RunId], than: NodeId) -> BTreeMap<RunId, Peer>;
}

/// Copy of one run, and the range of it that is read.
#[derive(Clone)]
pub struct Fallback {
    client: DataClient,
    peer: Peer,
    options: ScanOptions,
}

impl Fallback {
    /// The copy of `run` that `options` know, with their range of keys; None where they know none.
    pub fn of(client: &DataClient, options: &ScanOptions, run: RunId) -> Option<Self> {
        Some(Self::at(client, options, run, options.copies.get(&run)?.clone()))
    }

    /// A copy of `run` on a node.
    pub(crate) fn at(client: &DataClient, options: &ScanOptions, run: RunId, peer: Peer) -> Self {
        let options = ScanOptions {
            job: options.job,
            runs: vec![run],
            lower: options.lower.clone(),
            upper: options.upper.clone(),
            skip_records: Vec::new(),
            // There is no third place.
            copies: BTreeMap::new(),
            places: None,
            compress: options.compress,
            attempt: options.attempt,
            cancelled: options.cancelled.clone(),
        };
        Self { client: client.clone(), peer, options }
    }

    /// Opens the copy behind so many records of the range. Where its sources are not those of the run that was being
    /// read, it is another one.
    pub(crate) fn resume(
        &self,
        skip_records: u64,
        earlier: CursorReport,
        sources: Option<&[SourceRow]>,
    ) -> Result<RemoteRun, ScanError> {
        let options = ScanOptions { skip_records: vec![skip_records], ..self.options.clone() };
        let opened = RemoteScan::start(&self.client, &self.peer, options)?.into_runs()?;
        let unexpected = |what| ScanError::Unexpected { node: self.peer.node, what };
        let run = opened.into_iter().next().ok_or_else(|| unexpected("no run"))?;
        if sources.is_some_and(|sources| sources != imerger::SortedRun::sources(&run)) {
            return Err(unexpected("a copy has other sources than its run"));
        }
        Ok(run.after(earlier))
    }
}
