//! Runs here and on other nodes, as one merge reads them.

use crate::error::ScanError;
use crate::request::failover::Fallback;
use crate::request::scan::run::RemoteRun;
use chunkserver::{AllRead, ChunkServerError, CursorReport, RunCursor};
use ids::{IfileIndex, NodeId, RunId};
use ifile::{Record, SourceRow};
use imerger::SortedRun;
use std::time::Duration;

/// A run here or on another node: what a merge over both is made of.
pub enum AnyRun<'a> {
    Here(RunCursor<'a>),
    /// Here, and on another node too.
    Covered(FailoverCursor<'a>),
    There(RemoteRun),
}

/// A run here with a copy elsewhere, to go on with where the file here turns out damaged or gone.
pub struct FailoverCursor<'a> {
    cursor: RunCursor<'a>,
    /// Records given out.
    given: u64,
    fallback: Box<Fallback>,
}

impl<'a> AnyRun<'a> {
    /// A run here as it was opened, or, where it is lost and `fallback` knows a copy, that copy; the copy also if the
    /// run is lost later on.
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

    /// Whether it is read at a copy, since it could not be read where it lies, or no further.
    pub fn resumed(&self) -> bool {
        matches!(self, Self::There(run) if run.resumed())
    }

    /// Goes on at the copy of a run that was lost here.
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

    /// Returns the number of a run in a file here, and the mark that says whether all that is wanted of it was read from there.
    pub fn read_mark(&self) -> Option<(RunId, AllRead)> {
        match self {
            Self::Here(run) => run.read_mark(),
            Self::Covered(run) => run.cursor.read_mark(),
            Self::There(_) => None,
        }
    }

    /// The other node from which it comes, and how long it was waited for that.
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
