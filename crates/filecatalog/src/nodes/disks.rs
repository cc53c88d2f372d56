//! The disks of nodes: who reaches them, how much room they have, and the orders for them.

use crate::nodes::orders::DiskOrders;
use crate::nodes::pace::RepairPace;
use crate::nodes::placement::{Candidate, Place};
use api::stored::cluster::{StoredDiskNews, StoredListing, StoredNode};
use ids::{ConcreteId, DiskId, NodeId};
use rows::{FileDiskRow, ReplicatedFile};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// Interval after which the inventory of a disk is compared again: files of interrupted puts are found by it.
const LIST_EVERY: Duration = Duration::from_secs(3600);
/// Time after which an inventory that does not come is asked for again.
const LIST_AGAIN_AFTER: Duration = Duration::from_secs(120);

/// The data port of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reach {
    pub node: NodeId,
    pub data_url: String,
    /// True if the node is about to end.
    pub is_leaving: bool,
}

/// The state of the comparison of a disk with the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listing {
    Wanted,
    Asked(Instant),
    Done(Instant),
}

/// A disk with a row.
#[derive(Debug)]
pub(crate) struct Disk {
    pub row: FileDiskRow,
    reach: Option<Reach>,
    /// Its last report; the start of the server if there was none.
    heard: Instant,
    room_bytes: u64,
    takes_files: bool,
    listing: Listing,
    /// Its standing at the last scan.
    judged: Option<Standing>,
    pace: RepairPace,
    pub orders: DiskOrders,
}

/// The standing of a disk, for decisions about replicas on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Live,
    /// Not heard for a moment, or expected back.
    Away,
    /// Silent without a word: its node may be dead.
    Vanished,
    /// Silent for so long that its replicas count as lost.
    Gone,
}

impl Disk {
    fn new(row: FileDiskRow, pace: RepairPace, now: Instant) -> Self {
        Self {
            row,
            pace,
            reach: None,
            heard: now,
            room_bytes: 0,
            takes_files: false,
            listing: Listing::Wanted,
            judged: None,
            orders: DiskOrders::default(),
        }
    }

    /// Returns the data port of its node, if it is reachable.
    pub fn reach(&self, now: Instant) -> Option<&Reach> {
        let is_heard = now.saturating_duration_since(self.heard) <= self.pace.heard_within;
        self.reach.as_ref().filter(|reach| is_heard && !reach.is_leaving)
    }

    fn is_leaving(&self) -> bool {
        self.reach.as_ref().is_some_and(|reach| reach.is_leaving)
    }

    pub fn standing(&self, now: Instant) -> Standing {
        let RepairPace { heard_within, after, grace, .. } = self.pace;
        let silence = now.saturating_duration_since(self.heard);
        match self.reach(now) {
            Some(_) => Standing::Live,
            None if silence >= after.max(heard_within) => Standing::Gone,
            None if self.is_leaving() || silence < grace.max(heard_within) => Standing::Away,
            None => Standing::Vanished,
        }
    }

    /// Returns whether its standing has changed since the last time.
    pub fn has_new_standing(&mut self, now: Instant) -> bool {
        let standing = self.standing(now);
        self.judged.replace(standing) != Some(standing)
    }

    /// Returns whether its inventory is wanted now, and remembers that it was asked for.
    pub fn asks_for_listing(&mut self, now: Instant) -> bool {
        let is_due = match self.listing {
            Listing::Wanted => true,
            Listing::Asked(since) => now.saturating_duration_since(since) >= LIST_AGAIN_AFTER,
            Listing::Done(since) => now.saturating_duration_since(since) >= LIST_EVERY,
        };
        if is_due {
            self.listing = Listing::Asked(now);
        }
        is_due
    }

    /// Remembers that a page came; the last one completes the inventory.
    pub fn was_listed(&mut self, page: &StoredListing, now: Instant) {
        self.listing = if page.is_last { Listing::Done(now) } else { Listing::Asked(now) };
    }

    fn candidate(&self, reach: &Reach) -> Candidate {
        Candidate {
            disk: self.row.disk,
            node: reach.node,
            rack: self.row.rack.clone(),
            room_bytes: self.room_bytes.saturating_sub(self.orders.incoming_bytes()),
        }
    }
}

/// All disks with a row.
#[derive(Debug, Default)]
pub(crate) struct Disks {
    pace: RepairPace,
    all: BTreeMap<DiskId, Disk>,
}

impl Disks {
    pub fn new(rows: Vec<FileDiskRow>, pace: RepairPace, now: Instant) -> Self {
        Self { pace, all: rows.into_iter().map(|row| (row.disk, Disk::new(row, pace, now))).collect() }
    }

    pub fn get(&self, disk: DiskId) -> Option<&Disk> {
        self.all.get(&disk)
    }

    pub fn get_mut(&mut self, disk: DiskId) -> Option<&mut Disk> {
        self.all.get_mut(&disk)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Disk> {
        self.all.values_mut()
    }

    pub fn by_uuid(&self, uuid: &str) -> Option<&Disk> {
        self.all.values().find(|disk| disk.row.uuid == uuid)
    }

    pub fn add(&mut self, row: FileDiskRow, now: Instant) {
        self.all.insert(row.disk, Disk::new(row, self.pace, now));
    }

    /// Notes the report of a node about a disk. Another process of the node lists its files anew.
    pub fn was_heard(&mut self, disk: DiskId, reach: &Reach, news: &StoredDiskNews, now: Instant) {
        let Some(disk) = self.all.get_mut(&disk) else { return };
        if disk.reach.as_ref().is_none_or(|before| before.node != reach.node) {
            disk.listing = Listing::Wanted;
            disk.orders = DiskOrders::default();
        }
        disk.reach = Some(reach.clone());
        disk.heard = now;
        (disk.room_bytes, disk.takes_files) = (news.room_bytes, news.takes_files);
    }

    /// Subtracts bytes that a client will write, until the next report says how much room is left.
    pub fn will_hold(&mut self, disk: DiskId, bytes: u64) {
        if let Some(disk) = self.all.get_mut(&disk) {
            disk.room_bytes = disk.room_bytes.saturating_sub(bytes);
        }
    }

    /// Returns the disks that may get files.
    pub fn candidates(&self, now: Instant) -> Vec<Candidate> {
        let usable = self.all.values().filter(|disk| disk.takes_files);
        usable.filter_map(|disk| Some(disk.candidate(disk.reach(now)?))).collect()
    }

    /// Returns the number of nodes that take files.
    pub fn nodes(&self, now: Instant) -> usize {
        let mut nodes: Vec<NodeId> = self.candidates(now).iter().map(|each| each.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.len()
    }

    /// Returns the reachable ones among these disks, as candidates.
    pub fn live_among(&self, disks: &[DiskId], now: Instant) -> Vec<Candidate> {
        let known = disks.iter().filter_map(|disk| self.all.get(disk));
        known.filter_map(|disk| Some(disk.candidate(disk.reach(now)?))).collect()
    }

    /// Returns the disks in reach, each with its node.
    pub fn reached(&self, now: Instant) -> Vec<(DiskId, NodeId)> {
        self.all.values().filter_map(|disk| Some((disk.row.disk, disk.reach(now)?.node))).collect()
    }

    /// Returns the places of these disks, as far as their nodes are known.
    pub fn places_of(&self, disks: &[DiskId]) -> Vec<Place> {
        let known = disks.iter().filter_map(|disk| self.all.get(disk));
        known
            .filter_map(|disk| {
                let node = disk.reach.as_ref()?.node;
                Some(Place { node, rack: disk.row.rack.clone() })
            })
            .collect()
    }

    /// Returns the disks with a file that are not about to remove it.
    pub fn staying(&self, file: &ReplicatedFile) -> Vec<DiskId> {
        let removes =
            |disk: &DiskId| self.all.get(disk).is_some_and(|disk| disk.orders.removes(file.row.concrete));
        file.disks.iter().copied().filter(|disk| !removes(disk)).collect()
    }

    /// Returns the disks that fetch a file.
    pub fn fetchers(&self, file: ConcreteId) -> Vec<DiskId> {
        let fetching = self.all.values().filter(|disk| disk.orders.fetches(file));
        fetching.map(|disk| disk.row.disk).collect()
    }

    /// Returns all files that are fetched, with the disks that fetch them.
    pub fn fetches(&self) -> HashMap<ConcreteId, Vec<DiskId>> {
        let mut fetches: HashMap<ConcreteId, Vec<DiskId>> = HashMap::new();
        for disk in self.all.values() {
            for file in disk.orders.fetched_files() {
                fetches.entry(file).or_default().push(disk.row.disk);
            }
        }
        fetches
    }

    pub fn standing(&self, disk: DiskId, now: Instant) -> Standing {
        self.all.get(&disk).map_or(Standing::Gone, |disk| disk.standing(now))
    }

    /// Returns how a reachable disk is reached.
    pub fn node_of(&self, disk: DiskId, now: Instant) -> Option<StoredNode> {
        let found = self.all.get(&disk)?;
        let reach = found.reach(now)?;
        Some(StoredNode {
            disk,
            node: reach.node,
            node_name: found.row.node_name.clone(),
            data_url: reach.data_url.clone(),
            // A process that joins has a number of its own.
            incarnation: u64::from(reach.node.0),
        })
    }

    /// Returns the reachable ones among these disks, each once.
    pub fn nodes_of(&self, disks: impl IntoIterator<Item = DiskId>, now: Instant) -> Vec<StoredNode> {
        let mut disks: Vec<DiskId> = disks.into_iter().collect();
        disks.sort_unstable();
        disks.dedup();
        disks.into_iter().filter_map(|disk| self.node_of(disk, now)).collect()
    }

    /// Returns the nodes and their room, for a refusal.
    pub fn described(&self, now: Instant) -> String {
        let mut text = Vec::new();
        for disk in self.all.values() {
            let name = &disk.row.node_name;
            match disk.reach(now) {
                Some(_) if disk.takes_files => {
                    text.push(format!("{name} has room for {} bytes", disk.room_bytes))
                }
                Some(_) => text.push(format!("{name} takes no files")),
                None => text.push(format!("{name} is not reachable")),
            }
        }
        match text.is_empty() {
            true => "no node has joined".to_string(),
            false => text.join(", "),
        }
    }
}
