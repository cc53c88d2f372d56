//! Runs for a reduce attempt: all on this node, or some on other nodes.

use crate::shuffle::remote::RunFailure;
use chunkserver::{AllRead, CursorReport, RunCursor};
use dataport::AnyRun;
use ids::{NodeId, RunId};
use imerger::SortedRun;
use std::time::Duration;

/// A run, with facts for the result of the attempt.
pub(crate) trait ReadRun: SortedRun<Error: RunFailure> {
    fn report(&self) -> CursorReport;

    /// Returns the mark that shows whether its local file is still needed; None for a run without a local file.
    fn read_mark(&self) -> Option<(RunId, AllRead)>;

    /// Returns the time spent waiting for its data, and the node, if it comes from another one.
    fn waited(&self) -> Option<(NodeId, Duration)>;

    /// Returns whether a replica was read from some point on.
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
