//! Runs as a reduce attempt reads them: all of this node, or some of other nodes.

use crate::shuffle::remote::RunFailure;
use chunkserver::{AllRead, CursorReport, RunCursor};
use dataport::AnyRun;
use ids::{NodeId, RunId};
use imerger::SortedRun;
use std::time::Duration;

/// A run with the facts that the result of the attempt has of it.
pub(crate) trait ReadRun: SortedRun<Error: RunFailure> {
    fn report(&self) -> CursorReport;

    /// Returns the mark that says whether its file here is needed any more; None for a run that is in no file here.
    fn read_mark(&self) -> Option<(RunId, AllRead)>;

    /// Returns how long was waited for its data, and for which node, where it comes from another one.
    fn waited(&self) -> Option<(NodeId, Duration)>;

    /// Whether it was read at its replica, from somewhere on.
    fn resumed(&self) -> bool;
}

impl ReadRun for RunCursor<'_> {
    fn report(&self) -> CursorReport {
        RunCursor::report(self)
    }

    fn read_mark(&self) -> Option<(RunId, AllRead)> {
        RunCursor::read_mark(self)
    }

    fn waited(&self) -> Option<(NodeId, Duration)> {
        None
    }

    fn resumed(&self) -> bool {
        false
    }
}

impl ReadRun for AnyRun<'_> {
    fn report(&self) -> CursorReport {
        AnyRun::report(self)
    }

    fn read_mark(&self) -> Option<(RunId, AllRead)> {
        AnyRun::read_mark(self)
    }

    fn waited(&self) -> Option<(NodeId, Duration)> {
        AnyRun::waited(self)
    }

    fn resumed(&self) -> bool {
        AnyRun::resumed(self)
    }
}
