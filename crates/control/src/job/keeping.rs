//! How far the nodes are that keep what a job left.

use api::kept::KeptPlace;
use ids::{NodeId, RunId};
use std::collections::BTreeSet;

/// How far the nodes are that keep what a job left.
#[derive(Debug, Default)]
pub(crate) struct Keeping {
    /// Runs to keep; each lies on at least one node.
    pub runs: BTreeSet<RunId>,
    /// Nodes that have not yet said that they keep their runs.
    pub waiting: BTreeSet<NodeId>,
    pub places: Vec<KeptPlace>,
    /// Why nothing is kept after all.
    pub lost: Option<String>,
}

/// Meaning of a directory for a job that is being written to the store.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FoundWhile {
    /// A directory that the job keeps.
    Kept,
    /// A directory of which the process that made it has yet to tell.
    NotToldYet,
    /// A directory that no job counts on.
    Stranger,
}

impl Keeping {
    /// A node tells of a directory before all have said what they keep. Where the process that made it had told of it and then died,
    /// the one after it on the same disks takes its place: else nobody would tell that one when the directory is to go.
    pub fn found(&mut self, found: KeptPlace, maker_lives: bool) -> FoundWhile {
        match self.places.iter_mut().find(|place| place.dir.name() == found.dir.name()) {
            Some(place) => {
                *place = KeptPlace { made_by: place.made_by, ..found };
                FoundWhile::Kept
            }
            None if maker_lives => FoundWhile::NotToldYet,
            None => FoundWhile::Stranger,
        }
    }
}
