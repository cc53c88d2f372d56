//! Other locations of a run, for a reader that cannot continue.

use crate::error::ScanError;
use crate::request::client::{DataClient, Peer};
use crate::request::scan::run::RemoteRun;
use crate::request::scan::{RemoteScan, ScanOptions};
use chunkserver::CursorReport;
use ids::{NodeId, RunId};
use ifile::SourceRow;
use std::collections::BTreeMap;

/// A source of current locations of runs, for a reader that cannot continue. Called on the reading thread.
pub trait Places: Send + Sync {
    /// Returns the nodes other than `than` that have the runs, for runs on such a node.
    fn elsewhere(&self, runs: &[RunId], than: NodeId) -> BTreeMap<RunId, Peer>;
}

/// A replica of a run, and the range that is read.
#[derive(Clone)]
pub struct Fallback {
    client: DataClient,
    peer: Peer,
    options: ScanOptions,
}

impl Fallback {
    /// Returns the replica of `run` that `options` know, with their key range; None if they know none.
    pub fn of(client: &DataClient, options: &ScanOptions, run: RunId) -> Option<Self> {
        Some(Self::at(client, options, run, options.copies.get(&run)?.clone()))
    }

    /// Returns the replica of `run` on a node.
    pub(crate) fn at(client: &DataClient, options: &ScanOptions, run: RunId, peer: Peer) -> Self {
        let options = ScanOptions {
            job: options.job,
            runs: vec![run],
            lower: options.lower.clone(),
            upper: options.upper.clone(),
            skip_records: Vec::new(),
            // There is no third location.
            copies: BTreeMap::new(),
            places: None,
            compress: options.compress,
            attempt: options.attempt,
            cancelled: options.cancelled.clone(),
        };
        Self { client: client.clone(), peer, options }
    }

    /// Opens the replica after `skip_records` records of the range. Fails if its sources differ from those of the run
    /// that was read.
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
