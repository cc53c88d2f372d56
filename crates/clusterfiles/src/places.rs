//! The places of parts that are read: disks, their nodes, and the rights to read.

use crate::connection::{Connection, covers, peer_of};
use api::StoredPart;
use api::stored::MakingJob;
use api::stored::cluster::{PlacedPart, StoredNode, StoredPage, StoredRange};
use dataport::{DataClient, Peer};
use ids::{ConcreteId, DirectoryId, DiskId, PutId};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// How long other disks are preferred to one that failed.
const PASSED_OVER: Duration = Duration::from_secs(10);

/// A file whose parts are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReadFile {
    pub directory: DirectoryId,
    /// Its name for errors; the last component is its name in the directory.
    pub name: String,
}

impl ReadFile {
    /// Returns the name in the directory.
    pub fn entry(&self) -> &str {
        self.name.rsplit_once('/').map_or(self.name.as_str(), |(_, last)| last)
    }
}

/// A part with the disks that have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartPlaces {
    pub part: StoredPart,
    /// The file that it is a part of, and its position there.
    pub file: usize,
    pub position: u32,
    pub disks: Vec<DiskId>,
}

/// A node that has a part, with a client that may read it.
pub(crate) struct Replica {
    pub disk: DiskId,
    pub peer: Peer,
    pub client: DataClient,
    /// The right that is shown.
    pub range: StoredRange,
}

/// The places of all parts that are read.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// The files in the order of the lists of their directories.
    pub files: Vec<ReadFile>,
    parts: HashMap<ConcreteId, PartPlaces>,
    nodes: HashMap<DiskId, StoredNode>,
    grants: Vec<StoredRange>,
    failed: HashMap<DiskId, Instant>,
    /// The jobs that made parts which the server cannot reach.
    makers: HashMap<PutId, MakingJob>,
}

impl Places {
    /// Adds the nodes and rights of a page. The newest ones count.
    pub fn add_page(&mut self, page: &mut StoredPage) {
        for node in page.nodes.drain(..) {
            // A node that came back is another one.
            let is_same = self.nodes.get(&node.disk) == Some(&node);
            if !is_same {
                self.failed.remove(&node.disk);
                self.nodes.insert(node.disk, node);
            }
        }
        for range in page.grants.drain(..) {
            self.grants.retain(|old| [old.first, old.last] != [range.first, range.last]);
            self.grants.push(range);
        }
        self.makers.extend(page.makers.drain(..).map(|maker| (maker.put, maker.job)));
    }

    /// Adds the job that made a part to the reason why it cannot be read, if the server named the job.
    pub fn with_maker(&self, part: ConcreteId, reason: String) -> String {
        match self.makers.get(&part.put()) {
            Some(job) => format!("{reason}; {}", job.advice()),
            None => reason,
        }
    }

    /// Adds a part of a file. A part of several files belongs to the first one.
    pub fn add_part(&mut self, file: usize, placed: &PlacedPart) {
        self.parts.entry(placed.file.concrete).or_insert_with(|| PartPlaces {
            part: placed.file,
            file,
            position: placed.part,
            disks: placed.disks.clone(),
        });
    }

    /// Replaces the places of known parts after they were asked for again. Nodes that the server does not name cannot
    /// be reached.
    pub fn refresh(&mut self, mut page: StoredPage) {
        let named: HashSet<DiskId> = page.nodes.iter().map(|node| node.disk).collect();
        for placed in &page.parts {
            let Some(known) = self.parts.get_mut(&placed.file.concrete) else { continue };
            known.disks.clone_from(&placed.disks);
            for disk in placed.disks.iter().filter(|disk| !named.contains(disk)) {
                self.nodes.remove(disk);
            }
        }
        self.add_page(&mut page);
    }

    pub fn part(&self, part: ConcreteId) -> Option<&PartPlaces> {
        self.parts.get(&part)
    }

    /// Lets readers prefer other disks for some time.
    pub fn pass_over(&mut self, disk: DiskId) {
        self.failed.insert(disk, Instant::now());
    }

    /// Returns a reachable disk that has a part and was not tried, by chance, so that the load spreads.
    pub fn choose(&self, part: ConcreteId, tried: &HashSet<DiskId>) -> Option<DiskId> {
        let known = self.parts.get(&part)?;
        let is_open = |disk: &&DiskId| self.nodes.contains_key(disk) && !tried.contains(disk);
        let open: Vec<DiskId> = known.disks.iter().filter(is_open).copied().collect();
        let is_good = |disk: &&DiskId| self.failed.get(disk).is_none_or(|at| at.elapsed() > PASSED_OVER);
        let good: Vec<DiskId> = open.iter().filter(is_good).copied().collect();
        fastrand::choice(if good.is_empty() { open } else { good })
    }

    /// Forgets the rights, of which one was refused: the server gives newer ones.
    pub fn forget_grants(&mut self) {
        self.grants.clear();
    }

    /// Returns the newest right to read a part.
    pub fn grant(&self, part: ConcreteId) -> Option<&StoredRange> {
        self.grants.iter().rev().find(|range| covers(range, part))
    }

    /// Returns what a request for a part to a disk needs.
    pub fn replica(&self, connection: &Connection, part: ConcreteId, disk: DiskId) -> Option<Replica> {
        let range = self.grant(part)?.clone();
        let peer = peer_of(self.nodes.get(&disk)?);
        Some(Replica { disk, peer, client: connection.showing(&range), range })
    }

    /// Returns whether a part of a group can be read from this disk with this right too.
    pub fn is_at(&self, part: ConcreteId, disk: DiskId, range: &StoredRange) -> bool {
        covers(range, part) && self.parts.get(&part).is_some_and(|known| known.disks.contains(&disk))
    }

    /// Returns the name of the node of a disk, if it can be reached.
    pub fn node_name(&self, disk: DiskId) -> Option<String> {
        self.nodes.get(&disk).map(|node| node.node_name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::{Places, ReadFile};
    use api::StoredPart;
    use api::data_access::SecretText;
    use api::stored::cluster::{PlacedPart, StoredNode, StoredPage, StoredRange};
    use ids::{ConcreteId, ContentId, DirectoryId, DiskId, NodeId};
    use std::collections::HashSet;

    fn node(disk: i64, incarnation: u64) -> StoredNode {
        StoredNode {
            disk: DiskId(disk),
            node: NodeId(disk as u32),
            node_name: format!("n{disk}"),
            data_url: format!("http://n{disk}"),
            incarnation,
        }
    }

    fn placed(concrete: i64, disks: &[i64]) -> PlacedPart {
        PlacedPart {
            content: ContentId(concrete),
            part: 0,
            file: StoredPart { concrete: ConcreteId(concrete), bytes: 3, crc32c: 0 },
            replicas: 2,
            disks: disks.iter().copied().map(DiskId).collect(),
        }
    }

    fn range(first: i64, last: i64, grant: &str) -> StoredRange {
        StoredRange { first: ConcreteId(first), last: ConcreteId(last), grant: SecretText(grant.to_string()) }
    }

    #[test]
    fn failed_and_absent_disks_are_passed_over() {
        let mut places = Places::default();
        let nodes = vec![node(1, 1), node(2, 1)];
        let grants = vec![range(0, 9, "old")];
        places.add_page(&mut StoredPage { nodes, grants, ..StoredPage::default() });
        places.add_part(0, &placed(5, &[1, 2, 3]));
        let chosen = |places: &Places, tried: &[i64]| {
            let tried: HashSet<DiskId> = tried.iter().copied().map(DiskId).collect();
            places.choose(ConcreteId(5), &tried)
        };
        assert_eq!(chosen(&places, &[2]), Some(DiskId(1)));
        assert_eq!(chosen(&places, &[1, 2]), None);
        places.pass_over(DiskId(1));
        assert_eq!(chosen(&places, &[]), Some(DiskId(2)));
        // It is better than none.
        assert_eq!(chosen(&places, &[2]), Some(DiskId(1)));
        let page = StoredPage {
            parts: vec![placed(5, &[1, 2, 3])],
            nodes: vec![node(1, 2)],
            grants: vec![range(5, 5, "new")],
            ..StoredPage::default()
        };
        places.refresh(page);
        assert_eq!(places.with_maker(ConcreteId(5), "lost".to_string()), "lost");
        assert_eq!(chosen(&places, &[]), Some(DiskId(1)));
        assert_eq!(chosen(&places, &[1]), None);
        assert_eq!(places.grant(ConcreteId(5)).map(|range| range.grant.0.as_str()), Some("new"));
        assert_eq!(places.grant(ConcreteId(6)).map(|range| range.grant.0.as_str()), Some("old"));
    }

    #[test]
    fn file_of_a_directory_has_its_entry() {
        let file = |name: &str| ReadFile { directory: DirectoryId(1), name: name.to_string() };
        assert_eq!(file("a/b/c").entry(), "c");
        assert_eq!(file("c").entry(), "c");
    }
}
