//! Where else a run lies, for a reader that cannot go on where it is.

use crate::client::{DataClient, Peer};
use crate::error::ScanError;
use crate::remote_run::RemoteRun;
use crate::remote_scan::{RemoteScan, ScanOptions};
use chunkserver::CursorReport;
use ids::RunId;
use ifile::SourceRow;
use std::collections::BTreeMap;

/// The copy of one run, and what of it is read.
#[derive(Clone)]
pub struct Fallback {
    client: DataClient,
    peer: Peer,
    options: ScanOptions,
}

impl Fallback {
    /// The copy of `run` that `options` know, with their range of keys; None where they know none.
    pub fn of(client: &DataClient, options: &ScanOptions, run: RunId) -> Option<Self> {
        let peer = options.copies.get(&run)?.clone();
        let options = ScanOptions {
            job: options.job,
            runs: vec![run],
            lower: options.lower.clone(),
            upper: options.upper.clone(),
            skip_records: Vec::new(),
            // There is no third place.
            copies: BTreeMap::new(),
            compress: options.compress,
            cancelled: options.cancelled.clone(),
        };
        Some(Self { client: client.clone(), peer, options })
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
