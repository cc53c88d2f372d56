//! Runs on this and other nodes, as inputs of one merge.

use crate::error::ScanError;
use crate::request::failover::Fallback;
use crate::request::scan::run::RemoteRun;
use chunkserver::{AllRead, ChunkServerError, CursorReport, RunCursor};
use ids::{IfileIndex, NodeId, RunId};
use ifile::{Record, SourceRow};
use imerger::SortedRun;
use std::time::Duration;

/// A run on this or another node: an input of a merge.
pub enum AnyRun<'a> {
    Here(RunCursor<'a>),
    /// On this node, with a replica on another one.
    Covered(FailoverCursor<'a>),
    There(RemoteRun),
}

/// A run on this node with a replica elsewhere, from which the reader continues if the local file is damaged or lost.
pub struct FailoverCursor<'a> {
    cursor: RunCursor<'a>,
    /// Number of records returned.
    given: u64,
    fallback: Box<Fallback>,
}

impl<'a> AnyRun<'a> {
    /// Reads an opened local run. If it is lost, now or later, and `fallback` knows a replica, the replica is read.
    pub fn here(
        opened: Result<RunCursor<'a>, ChunkServerError>,
        fallback: Option<Fallback>,
    ) -> Result<Self, ScanError> {
        let Some(fallback) = fallback else { return Ok(Self::Here(opened?)) };
        match opened {
            Ok(cursor) => {
                Ok(Self::Covered(FailoverCursor { cursor, given: 0, fallback: Box::new(fallback) }))
            }
            Err(error) if error.lost_run().is_some() => {
                let copy = fallback.resume(0, CursorReport::default(), None);
                Ok(Self::There(copy.map_err(|_| ScanError::from(error))?))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns whether the replica is read because the local run could not be read, or not to its end.
    pub fn resumed(&self) -> bool {
        matches!(self, Self::There(run) if run.resumed())
    }

    /// Continues with the replica of a run that was lost here.
    #[cold]
    fn go_on(&mut self, error: ChunkServerError) -> Result<bool, ScanError> {
        let Self::Covered(run) = self else { return Err(error.into()) };
        if error.lost_run().is_none() {
            return Err(error.into());
        }
        let rows = run.cursor.sources();
        match run.fallback.resume(run.given, run.cursor.report(), Some(rows)) {
            Ok(copy) => {
                *self = Self::There(copy);
                self.advance()
            }
            Err(_) => Err(error.into()),
        }
    }
}

impl AnyRun<'_> {
    /// Returns the retrievals so far.
    pub fn report(&self) -> CursorReport {
        match self {
            Self::Here(run) => run.report(),
            Self::Covered(run) => run.cursor.report(),
            Self::There(run) => run.report(),
        }
    }

    /// Returns the number of a run in a local file, and the mark that shows whether its whole range was read from
    /// there.
    pub fn read_mark(&self) -> Option<(RunId, AllRead)> {
        match self {
            Self::Here(run) => run.read_mark(),
            Self::Covered(run) => run.cursor.read_mark(),
            Self::There(_) => None,
        }
    }

    /// Returns the other node from which it is read, and the time spent waiting for that node.
    pub fn waited(&self) -> Option<(NodeId, Duration)> {
        match self {
            Self::Here(_) | Self::Covered(_) => None,
            Self::There(run) => Some((run.node(), run.waited())),
        }
    }
}

impl SortedRun for AnyRun<'_> {
    type Error = ScanError;

    #[inline]
    fn advance(&mut self) -> Result<bool, ScanError> {
        match self {
            Self::Here(run) => Ok(run.advance()?),
            Self::Covered(run) => match run.cursor.advance() {
                Ok(more) => {
                    run.given += u64::from(more);
                    Ok(more)
                }
                Err(error) => self.go_on(error),
            },
            Self::There(run) => run.advance(),
        }
    }

    #[inline]
    fn record(&self) -> Record<'_> {
        match self {
            Self::Here(run) => run.record(),
            Self::Covered(run) => run.cursor.record(),
            Self::There(run) => run.record(),
        }
    }

    #[inline]
    fn prefix(&self) -> u64 {
        match self {
            Self::Here(run) => run.prefix(),
            Self::Covered(run) => run.cursor.prefix(),
            Self::There(run) => run.prefix(),
        }
    }

    #[inline]
    fn source_row(&self) -> u32 {
        match self {
            Self::Here(run) => run.source_row(),
            Self::Covered(run) => run.cursor.source_row(),
            Self::There(run) => run.source_row(),
        }
    }

    fn sources(&self) -> &[SourceRow] {
        match self {
            Self::Here(run) => run.sources(),
            Self::Covered(run) => run.cursor.sources(),
            Self::There(run) => run.sources(),
        }
    }

    fn ifile(&self) -> IfileIndex {
        match self {
            Self::Here(run) => run.ifile(),
            Self::Covered(run) => run.cursor.ifile(),
            Self::There(run) => run.ifile(),
        }
    }
}
