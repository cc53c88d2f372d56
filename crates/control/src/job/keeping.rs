//! Progress of the nodes that keep a job's intermediate data.

use api::kept::KeptPlace;
use ids::{NodeId, RunId};
use std::collections::BTreeSet;

/// Progress of the nodes that keep a job's intermediate data.
#[derive(Debug, Default)]
pub(crate) struct Keeping {
    /// Runs to keep; each is on at least one node.
    pub runs: BTreeSet<RunId>,
    /// Nodes that have not yet confirmed their kept runs.
    pub waiting: BTreeSet<NodeId>,
    pub places: Vec<KeptPlace>,
    /// The reason why nothing is kept after all.
    pub lost: Option<String>,
}

/// Classification of a directory for a job whose kept directories are being stored.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FoundWhile {
    /// A directory that the job keeps.
    Kept,
    /// A directory that its maker has not reported yet.
    NotToldYet,
    /// A directory that no job needs.
    Stranger,
}

impl Keeping {
    /// Classifies a directory that a node reports before all nodes have confirmed. If its maker had confirmed it and
    /// died, the later process on the same disks replaces the maker; otherwise nobody would tell that process to remove
    /// the directory. `maker`: the maker, if it lives.
    pub fn found(&mut self, found: KeptPlace, maker: Option<NodeId>) -> FoundWhile {
        match self.places.iter_mut().find(|place| place.dir.name() == found.dir.name()) {
            Some(place) => {
                *place = KeptPlace { made_by: place.made_by, ..found };
                FoundWhile::Kept
            }
            None if maker.is_some() => FoundWhile::NotToldYet,
            None => FoundWhile::Stranger,
        }
    }
}
