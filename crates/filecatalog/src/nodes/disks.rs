//! The disks of nodes: who reaches them, how much room they have, and the orders for them.

use crate::nodes::orders::DiskOrders;
use crate::nodes::pace::RepairPace;
use crate::nodes::placement::{Candidate, Place};
use api::stored::cluster::{StoredDiskNews, StoredListing, StoredNode};
use api::stored::need::DrainingNode;
use ids::{ConcreteId, DiskId, NodeId};
use rows::{FileDiskRow, ReplicatedFile};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// Interval after which the inventory of a disk is compared again: files of interrupted puts are found by it.
const LIST_EVERY: Duration = Duration::from_secs(3600);
/// Time after which an inventory that does not come is asked for again.
const LIST_AGAIN_AFTER: Duration = Duration::from_secs(120);
/// Shortest interval between two inventories that given-up puts cause: a user can give up many.
const LIST_PUTS_EVERY: Duration = Duration::from_secs(5);

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
    total_bytes: u64,
    room_bytes: u64,
    takes_files: bool,
    /// Its node, if that is being drained or was drained.
    drained: Option<NodeId>,
    listing: Listing,
    /// True if files may lie on it since its last inventory began that nobody will record.
    is_listed_early: bool,
    /// Its standing at the last scan.
    judged: Option<Standing>,
    pace: RepairPace,
    pub orders: DiskOrders,
}

/// The standing of a disk, for decisions about replicas on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Live,
    /// Reachable and about to leave: others copy from it, and its replicas do not count.
    Draining,
    /// Not heard for a moment, or expected back.
    Away,
    /// Silent without a word: its node may be dead.
    Vanished,
    /// Silent for so long that its replicas count as lost, or since its node was drained.
    Gone,
}

impl Disk {
    fn new(row: FileDiskRow, pace: RepairPace, now: Instant) -> Self {
        Self {
            row,
            pace,
            reach: None,
            heard: now,
            total_bytes: 0,
            room_bytes: 0,
            takes_files: false,
            drained: None,
            listing: Listing::Wanted,
            is_listed_early: false,
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
            Some(_) if self.drained.is_some() => Standing::Draining,
            Some(_) => Standing::Live,
            None if self.drained.is_some() || silence >= after.max(heard_within) => Standing::Gone,
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
            Listing::Done(since) => {
                let every = if self.is_listed_early { LIST_PUTS_EVERY } else { LIST_EVERY };
                now.saturating_duration_since(since) >= every
            }
        };
        if is_due {
            self.is_listed_early = false;
            self.listing = Listing::Asked(now);
        }
        is_due
    }

    /// Lets the disk list its files soon after its inventory of now.
    pub fn wants_listing_again(&mut self) {
        self.is_listed_early = true;
    }

    /// Lets the disk list its files when it is heard again.
    pub fn wants_listing(&mut self) {
        self.listing = Listing::Wanted;
    }

    /// Remembers that a page came; the last one completes the inventory. A page of an inventory that began before another
    /// one was wanted completes nothing.
    pub fn was_listed(&mut self, page: &StoredListing, now: Instant) {
        if matches!(self.listing, Listing::Wanted) {
            return;
        }
        self.listing = if page.is_last { Listing::Done(now) } else { Listing::Asked(now) };
    }

    /// Returns the node that drains or has drained it.
    pub fn drained(&self) -> Option<NodeId> {
        self.drained
    }

    /// Returns whether new files may be put on it, as far as its node says.
    pub fn takes_files(&self) -> bool {
        self.takes_files && self.drained.is_none()
    }

    /// Returns whether its orders will be done. The node of a vanished disk may have ended, and nobody would report the end
    /// of a fetch.
    fn does_orders(&self, now: Instant) -> bool {
        !matches!(self.standing(now), Standing::Vanished | Standing::Gone)
    }

    fn candidate(&self, reach: &Reach) -> Candidate {
        Candidate {
            disk: self.row.disk,
            node: reach.node,
            rack: self.row.rack.clone(),
            room_bytes: self.room_bytes.saturating_sub(self.orders.incoming_bytes()),
            total_bytes: self.total_bytes,
        }
    }
}

/// All disks with a row.
#[derive(Debug, Default)]
pub(crate) struct Disks {
    pace: RepairPace,
    all: BTreeMap<DiskId, Disk>,
    /// Nodes that are being drained.
    draining: BTreeMap<NodeId, Draining>,
}

/// A node that is being drained.
#[derive(Clone, Debug)]
pub(crate) struct Draining {
    name: String,
    pub since: Instant,
}

impl Disks {
    pub fn new(rows: Vec<FileDiskRow>, pace: RepairPace, now: Instant) -> Self {
        let all = rows.into_iter().map(|row| (row.disk, Disk::new(row, pace, now))).collect();
        Self { pace, all, draining: BTreeMap::new() }
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
            disk.drained = Some(reach.node).filter(|node| self.draining.contains_key(node));
        }
        disk.reach = Some(reach.clone());
        disk.heard = now;
        (disk.room_bytes, disk.takes_files) = (news.room_bytes, news.takes_files);
        disk.total_bytes = news.total_bytes;
    }

    /// Notes all nodes that are being drained. A disk that was not heard yet is known by the name of its node. The disks
    /// of a drained node that left stay drained until another process reports them.
    pub fn set_draining(&mut self, nodes: &[DrainingNode], now: Instant) {
        let mut before = std::mem::take(&mut self.draining);
        for DrainingNode { node, name } in nodes {
            let known = before.remove(node);
            let new = Draining { name: name.clone(), since: now };
            self.draining.insert(*node, known.unwrap_or(new));
        }
        for disk in self.all.values_mut() {
            disk.drained = match &disk.reach {
                Some(reach) if self.draining.contains_key(&reach.node) => Some(reach.node),
                Some(reach) => disk.drained.filter(|node| *node == reach.node),
                None => {
                    let named = self.draining.iter().find(|(_, each)| each.name == disk.row.node_name);
                    named.map(|(node, _)| *node)
                }
            };
        }
    }

    /// Returns the nodes that are being drained.
    pub fn draining(&self) -> &BTreeMap<NodeId, Draining> {
        &self.draining
    }

    /// Returns the nodes among those of these disks that are being drained, each once.
    pub fn draining_among(&self, disks: &[DiskId]) -> Vec<NodeId> {
        let drained = disks.iter().filter_map(|disk| self.all.get(disk)?.drained);
        let mut nodes: Vec<NodeId> = drained.filter(|node| self.draining.contains_key(node)).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// Returns whether these nodes have been drained for so long that their disks were heard if they can be.
    pub fn drain_for_long(&self, nodes: &[NodeId], now: Instant) -> bool {
        let since = nodes.iter().filter_map(|node| self.draining.get(node)).map(|draining| draining.since);
        since.into_iter().all(|since| now.saturating_duration_since(since) >= self.pace.grace)
    }

    /// Returns whether a node has disks with rows.
    pub fn has_disks(&self, node: NodeId) -> bool {
        self.all.values().any(|disk| {
            disk.drained == Some(node) || disk.reach.as_ref().is_some_and(|reach| reach.node == node)
        })
    }

    /// Returns whether the replicas of a disk count as about to go.
    pub fn is_drained(&self, disk: DiskId) -> bool {
        self.all.get(&disk).is_some_and(|disk| disk.drained.is_some())
    }

    /// Subtracts bytes that a client will write, until the next report says how much room is left.
    pub fn will_hold(&mut self, disk: DiskId, bytes: u64) {
        if let Some(disk) = self.all.get_mut(&disk) {
            disk.room_bytes = disk.room_bytes.saturating_sub(bytes);
        }
    }

    /// Returns the disks that may get files.
    pub fn candidates(&self, now: Instant) -> Vec<Candidate> {
        let usable = self.all.values().filter(|disk| disk.takes_files());
        usable.filter_map(|disk| Some(disk.candidate(disk.reach(now)?))).collect()
    }

    /// Returns the number of nodes that take files.
    pub fn nodes(&self, now: Instant) -> usize {
        let mut nodes: Vec<NodeId> = self.candidates(now).iter().map(|each| each.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.len()
    }

    /// Returns the number of nodes that had disks lately, by their names.
    pub fn nodes_expected(&self, now: Instant) -> usize {
        let stays = |disk: &&Disk| disk.drained.is_none() && disk.standing(now) != Standing::Gone;
        let names: BTreeSet<&str> =
            self.all.values().filter(stays).map(|disk| disk.row.node_name.as_str()).collect();
        names.len()
    }

    /// Returns whether the inventory of a disk is complete, so that the disk has the files of its rows.
    pub fn is_listed(&self, disk: DiskId) -> bool {
        self.all.get(&disk).is_some_and(|disk| matches!(disk.listing, Listing::Done(_)))
    }

    /// Returns the reachable ones among these disks that stay, as candidates.
    pub fn live_among(&self, disks: &[DiskId], now: Instant) -> Vec<Candidate> {
        let known = disks.iter().filter_map(|disk| self.all.get(disk)).filter(|disk| disk.drained.is_none());
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

    /// Returns the disks that fetch a file, without those that have vanished.
    pub fn fetchers(&self, file: ConcreteId, now: Instant) -> Vec<DiskId> {
        let fetching = self.all.values().filter(|disk| disk.orders.fetches(file) && disk.does_orders(now));
        fetching.map(|disk| disk.row.disk).collect()
    }

    /// Returns all files that are fetched, with the disks that fetch them, without those that have vanished.
    pub fn fetches(&self, now: Instant) -> HashMap<ConcreteId, Vec<DiskId>> {
        let mut fetches: HashMap<ConcreteId, Vec<DiskId>> = HashMap::new();
        for disk in self.all.values().filter(|disk| disk.does_orders(now)) {
            for file in disk.orders.fetched_files() {
                fetches.entry(file).or_default().push(disk.row.disk);
            }
        }
        fetches
    }

    /// Returns whether no node is expected back or drained, and no disk fetches anything.
    pub fn are_calm(&self, now: Instant) -> bool {
        let is_calm = |disk: &Disk| {
            let stands = matches!(disk.standing(now), Standing::Live | Standing::Gone);
            stands && !(disk.does_orders(now) && disk.orders.fetched_files().next().is_some())
        };
        self.draining.is_empty() && self.all.values().all(is_calm)
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
                Some(_) if disk.takes_files() => {
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
