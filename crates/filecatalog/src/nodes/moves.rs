//! Moves under way: copies of files on emptier disks, whose sources are removed when the rows of the copies stand.

use crate::nodes::disks::{Disks, Standing};
use crate::nodes::levels::{FAR_ABOVE_MEAN, Level, NEAR_MEAN, givers, gives, taker};
use crate::nodes::orders::part_of;
use crate::nodes::placement::Candidate;
use ids::{ConcreteId, DiskId};
use rows::ReplicatedFile;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Maximum number of files that a disk gives or takes in a wave, and of their bytes, except for one larger file.
const MOVES_MAX: usize = 200;
const MOVED_BYTES_MAX: u64 = 256 << 20;
/// Maximum number of files of a wave: their rows are read each second.
const WAVE_MAX: usize = 2000;

/// A file that moves.
#[derive(Clone, Copy, Debug)]
struct Move {
    from: DiskId,
    to: DiskId,
    bytes: u64,
}

/// The moves of a wave. The next wave begins when the one before is over, because its end shows how full the disks are.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    all: BTreeMap<ConcreteId, Move>,
    /// Bytes of the files on each disk; None if a scan found something to repair, or nothing more is to be moved.
    stored: Option<BTreeMap<DiskId, u64>>,
    /// True if a scan met a wave, and is to be repeated.
    scans_again: bool,
    /// The last file of each disk that was looked at.
    looked_at: BTreeMap<DiskId, ConcreteId>,
    ended: Option<Instant>,
    /// True after a disk was far above the mean, until no disk gives files.
    balances: bool,
}

impl Moves {
    /// Returns the disk that gives a file away and the one that takes it.
    pub fn ends_of(&self, file: ConcreteId) -> Option<[DiskId; 2]> {
        self.all.get(&file).map(|each| [each.from, each.to])
    }

    pub fn files(&self) -> Vec<ConcreteId> {
        self.all.keys().copied().collect()
    }

    pub fn any(&self) -> bool {
        !self.all.is_empty()
    }

    /// Takes the bytes on disks from a scan that found nothing to repair; None if it found something.
    pub fn was_scanned(&mut self, stored: Option<BTreeMap<DiskId, u64>>) {
        self.scans_again = self.any() && stored.is_some();
        self.stored = stored.filter(|_| self.all.is_empty());
    }

    /// Returns how full the disks are if a wave may begin now. `pause`: time after a wave in which disks report their room.
    pub fn levels(&self, disks: &Disks, pause: Duration, now: Instant) -> Option<Vec<Level>> {
        let rests = self.ended.is_some_and(|ended| now.saturating_duration_since(ended) < pause);
        let stored = self.stored.as_ref().filter(|_| !rests && self.all.is_empty() && disks.are_calm(now))?;
        let level = |candidate: Candidate| Level {
            stored_bytes: stored.get(&candidate.disk).copied().unwrap_or(0),
            room_bytes: candidate.room_bytes,
            disk: candidate.disk,
            node: candidate.node,
            rack: candidate.rack,
        };
        Some(disks.candidates(now).into_iter().map(level).collect())
    }

    /// Returns the disks that give files away, the fullest first.
    pub fn givers(&mut self, levels: &[Level]) -> Vec<DiskId> {
        self.balances |= !givers(levels, FAR_ABOVE_MEAN).is_empty();
        if self.balances { givers(levels, NEAR_MEAN) } else { Vec::new() }
    }

    /// Forgets how full the disks are: they are balanced, as far as they can be.
    pub fn rest(&mut self) {
        (self.stored, self.balances) = (None, false);
    }

    /// Returns the last file of a disk that was looked at.
    pub fn looked_at(&self, disk: DiskId) -> ConcreteId {
        self.looked_at.get(&disk).copied().unwrap_or(ConcreteId(-1))
    }

    /// Begins moves of some of these files of a disk. Returns false if the disk gives no more files in this wave.
    pub fn begin(
        &mut self,
        disks: &mut Disks,
        levels: &mut [Level],
        from: DiskId,
        files: &[ReplicatedFile],
        now: Instant,
    ) -> bool {
        let mut loads = Loads::default();
        self.all.values().for_each(|each| loads.add(each));
        for file in files {
            let part = part_of(&file.row);
            let has_room = self.all.len() < WAVE_MAX && loads.has_room_for(from, part.bytes);
            if !has_room || !gives(levels, from, NEAR_MEAN) {
                return false;
            }
            self.looked_at.insert(from, part.concrete);
            if !is_whole(disks, file, now) {
                continue;
            }
            let others: Vec<DiskId> = file.disks.iter().copied().filter(|disk| *disk != from).collect();
            let is_free = |disk: DiskId| {
                let orders = disks.get(disk).map(|disk| &disk.orders);
                orders.is_some_and(|orders| {
                    orders.has_room_for(&part) && !orders.failed_lately(part.concrete, now)
                })
            };
            let may_take = |disk: DiskId| loads.has_room_for(disk, part.bytes) && is_free(disk);
            let places = disks.places_of(&others);
            let Some(to) = taker(levels, from, &places, part.bytes, may_take) else { continue };
            if let Some(disk) = disks.get_mut(to) {
                disk.orders.fetch(part, now);
            }
            let begun = Move { from, to, bytes: part.bytes };
            loads.add(&begun);
            self.all.insert(part.concrete, begun);
            levels.iter_mut().for_each(|level| level.moves(from, to, part.bytes));
        }
        true
    }

    /// Begins again with the first file of a disk.
    pub fn look_from_start(&mut self, disk: DiskId) {
        self.looked_at.remove(&disk);
    }

    /// Orders the removal of moved files from their sources, and forgets moves that are over. `rows`: the files that move.
    /// Returns whether a scan is wanted.
    pub fn go_on(&mut self, disks: &mut Disks, rows: &[ReplicatedFile], now: Instant) -> bool {
        let rows: BTreeMap<ConcreteId, &ReplicatedFile> =
            rows.iter().filter(|row| !row.is_removed).map(|row| (row.row.concrete, row)).collect();
        let mut moved = Vec::new();
        self.all.retain(|file, each| {
            let Some(row) = rows.get(file) else { return false };
            if row.disks.contains(&each.to) && !row.disks.contains(&each.from) {
                moved.push(*each);
            }
            goes_on(disks, row, each, now)
        });
        if let Some(stored) = self.stored.as_mut() {
            for each in moved {
                let from = stored.entry(each.from).or_default();
                *from = from.saturating_sub(each.bytes);
                *stored.entry(each.to).or_default() += each.bytes;
            }
        }
        if self.any() {
            return false;
        }
        self.ended = Some(now);
        std::mem::take(&mut self.scans_again)
    }
}

/// The number of files and bytes that each disk gives or takes.
#[derive(Default)]
struct Loads(BTreeMap<DiskId, (usize, u64)>);

impl Loads {
    fn add(&mut self, each: &Move) {
        for disk in [each.from, each.to] {
            let (count, sum) = self.0.entry(disk).or_default();
            (*count, *sum) = (*count + 1, sum.saturating_add(each.bytes));
        }
    }

    /// Returns whether a disk may give or take one more file.
    fn has_room_for(&self, disk: DiskId, bytes: u64) -> bool {
        let (count, sum) = self.0.get(&disk).copied().unwrap_or_default();
        count == 0 || (count < MOVES_MAX && sum.saturating_add(bytes) <= MOVED_BYTES_MAX)
    }
}

/// Goes on with a move. Returns false if it is over.
fn goes_on(disks: &mut Disks, row: &ReplicatedFile, each: &Move, now: Instant) -> bool {
    let file = row.row.concrete;
    let is_live = |disks: &Disks, disk: DiskId| disks.standing(disk, now) == Standing::Live;
    if disks.get(each.to).is_some_and(|disk| disk.orders.fetches(file)) {
        return is_live(disks, each.to);
    }
    let has_both = row.disks.contains(&each.to) && row.disks.contains(&each.from);
    if !has_both || !is_live(disks, each.from) {
        return false;
    }
    if disks.get(each.from).is_some_and(|disk| disk.orders.removes(file)) {
        return true;
    }
    // If a replica was lost meanwhile, the copy repairs the file.
    let live = disks.staying(row).into_iter().filter(|disk| is_live(disks, *disk)).count();
    let has_surplus = live > row.replicas as usize && is_live(disks, each.to);
    has_surplus && disks.get_mut(each.from).is_some_and(|disk| disk.orders.remove(file))
}

/// Returns whether a file has all its replicas and no order concerns it.
fn is_whole(disks: &Disks, file: &ReplicatedFile, now: Instant) -> bool {
    let standings: Vec<Standing> = file.disks.iter().map(|disk| disks.standing(*disk, now)).collect();
    let live = standings.iter().filter(|standing| **standing == Standing::Live).count();
    let are_known = standings.iter().all(|standing| matches!(standing, Standing::Live | Standing::Gone));
    let is_idle =
        disks.staying(file).len() == file.disks.len() && disks.fetchers(file.row.concrete, now).is_empty();
    !file.is_removed && live == file.replicas as usize && are_known && is_idle
}
