//! Repair: a scan over all files finds those with too few replicas, and orders copies, files at the highest risk first;
//! and those with too many, and removes some. It runs after something changed, and rests ten times as long as it took.
//!
//! Source: Clustera, section 3.4; a node that leaves gets time to return, and one that vanishes endangers files.

use crate::nodes::disks::{Disk, Disks, Standing};
use crate::nodes::draining::Needs;
use crate::nodes::moves::Moves;
use crate::nodes::orders::part_of;
use crate::nodes::placement::{Place, choose, surplus};
use crate::{Catalog, CatalogError, State};
use ids::{ConcreteId, DiskId, NodeId};
use rows::ReplicatedFile;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Rows that are read at once.
const ROWS_AT_ONCE: u32 = 1000;
/// Maximum number of files with few replicas that one scan remembers; a later scan finds the others.
const REMEMBERED_MAX: usize = 20_000;

/// The need of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Need {
    live: u32,
    /// Copies to make.
    missing: u32,
    /// Replicas to remove.
    surplus: u32,
}

/// Returns the need of a file, from the standings of the disks that have it or fetch it. `usable`: nodes that can have
/// replicas now.
fn need(wanted: u32, standings: &[Standing], fetching: u32, usable: u32) -> Need {
    let [live, draining, away, vanished] = counts(standings);
    let wanted = wanted.min(usable.max(live));
    if live + draining == 0 {
        // Nobody can copy it.
        return Need::default();
    }
    let counted = live + away + vanished + fetching;
    let mut missing = wanted.saturating_sub(counted);
    // At most one replica is left, and others are on nodes that may be dead.
    if live + fetching <= 1 && vanished > 0 && wanted > 1 {
        missing = missing.max(1);
    }
    Need {
        live,
        missing,
        surplus: if missing == 0 && fetching == 0 { live.saturating_sub(wanted) } else { 0 },
    }
}

/// Counts the disks that are live, draining, away and vanished.
fn counts(standings: &[Standing]) -> [u32; 4] {
    [Standing::Live, Standing::Draining, Standing::Away, Standing::Vanished]
        .map(|standing| standings.iter().filter(|each| **each == standing).count() as u32)
}

/// A file that needs copies.
struct AtRisk {
    file: ReplicatedFile,
    missing: u32,
    /// Nodes that must stay until it has them.
    draining: Vec<NodeId>,
}

/// The findings of a scan.
struct Scan {
    /// By the number of replicas that can be copied.
    at_risk: BTreeMap<u32, Vec<AtRisk>>,
    remembered: usize,
    /// True if more is left than could be ordered.
    more: bool,
    needs: Needs,
    /// Bytes of the files on each disk.
    stored: BTreeMap<DiskId, u64>,
}

/// The facts that are equal for many files.
struct Facts {
    now: Instant,
    usable: u32,
    fetches: HashMap<ConcreteId, Vec<DiskId>>,
}

impl Facts {
    fn new(disks: &Disks) -> Self {
        let now = Instant::now();
        Self { now, usable: disks.nodes(now) as u32, fetches: disks.fetches(now) }
    }
}

impl Scan {
    fn look_at(&mut self, disks: &mut Disks, moves: &Moves, facts: &Facts, file: ReplicatedFile) {
        let fetchers = facts.fetches.get(&file.row.concrete).into_iter().flatten();
        let counts_as_fetched = |disk: &&DiskId| !file.disks.contains(disk) && !disks.is_drained(**disk);
        let fetching = fetchers.filter(counts_as_fetched).count() as u32;
        let staying = disks.staying(&file);
        for disk in &staying {
            *self.stored.entry(*disk).or_default() += file.row.bytes;
        }
        let standings: Vec<Standing> = staying.iter().map(|disk| disks.standing(*disk, facts.now)).collect();
        let need = need(file.replicas, &standings, fetching, facts.usable);
        if need.surplus > 0 {
            self.more |= !trim(disks, moves, &file, need.surplus as usize, facts.now);
        }
        let [live, draining, away, vanished] = counts(&standings);
        let mut needed = Vec::new();
        if live < file.replicas {
            needed = disks.draining_among(&staying);
            self.needs.count(&needed);
        }
        // After a restart of the server no disk was heard yet.
        let is_known = live + draining > 0 || disks.drain_for_long(&needed, facts.now);
        if is_known && live + away + vanished + fetching + need.missing < file.replicas {
            // There are too few nodes, or nobody can copy it.
            self.needs.has_no_place(&needed, file.row.content);
            needed.clear();
        }
        if need.missing == 0 {
            return;
        }
        if self.remembered == REMEMBERED_MAX {
            self.more = true;
            return;
        }
        self.remembered += 1;
        let each = AtRisk { file, missing: need.missing, draining: needed };
        self.at_risk.entry(live + draining).or_default().push(each);
    }

    /// Orders copies, for files at the highest risk first.
    fn order_copies(&mut self, disks: &mut Disks, now: Instant) {
        for each in std::mem::take(&mut self.at_risk).into_values().flatten() {
            let left = each.missing as usize - copy(disks, &each, now);
            if left == 0 {
                continue;
            }
            self.more = true;
            if !each.draining.is_empty() && !has_places(disks, &each, left, now) {
                self.needs.has_no_place(&each.draining, each.file.row.content);
            }
        }
    }
}

impl Catalog {
    /// Asks for a scan.
    pub(crate) fn wake_repair(&self) {
        self.wanted.store(true, Ordering::Release);
    }

    /// Scans all files, and orders copies and removals. Returns whether more is left than could be ordered.
    pub(crate) async fn repair(&self) -> Result<bool, CatalogError> {
        let mut scan = Scan {
            at_risk: BTreeMap::new(),
            remembered: 0,
            more: false,
            needs: Needs::of(self.state().disks.draining().keys().copied()),
            stored: BTreeMap::new(),
        };
        let mut after = ConcreteId(-1);
        loop {
            let rows = self.store.replicated_files_after(after, ROWS_AT_ONCE).await?;
            let Some(last) = rows.last() else { break };
            after = last.row.concrete;
            let State { disks, moves, .. } = &mut *self.state();
            let facts = Facts::new(disks);
            for file in rows {
                scan.look_at(disks, moves, &facts, file);
            }
        }
        {
            let State { disks, moves, .. } = &mut *self.state();
            let is_calm = scan.remembered == 0 && !scan.more;
            scan.order_copies(disks, Instant::now());
            moves.was_scanned(is_calm.then(|| std::mem::take(&mut scan.stored)));
        }
        self.note_needs(scan.needs).await?;
        Ok(scan.more)
    }
}

/// Returns the places of the replicas of a file that stay, and of those under way.
fn places(disks: &Disks, file: &ReplicatedFile, now: Instant) -> Vec<Place> {
    let mut holders = file.disks.clone();
    holders.extend(disks.fetchers(file.row.concrete, now));
    // Disks that are gone or drained do not speak for a rack; their nodes may be usable again under other disks.
    let stays = |disk: &Disk| disk.reach(now).is_some() && disk.drained().is_none();
    holders.retain(|disk| disks.get(*disk).is_some_and(stays));
    disks.places_of(&holders)
}

/// Orders copies of a file, and returns their number.
fn copy(disks: &mut Disks, each: &AtRisk, now: Instant) -> usize {
    let part = part_of(&each.file.row);
    let mut candidates = disks.candidates(now);
    candidates.retain(|candidate| {
        disks.get(candidate.disk).is_some_and(|disk| {
            disk.orders.has_room_for(&part) && !disk.orders.failed_lately(part.concrete, now)
        })
    });
    let places = places(disks, &each.file, now);
    let chosen = choose(&candidates, &places, each.missing as usize, part.bytes, fastrand::f64);
    for disk in &chosen {
        if let Some(disk) = disks.get_mut(*disk) {
            disk.orders.fetch(part, now);
        }
    }
    chosen.len()
}

/// Returns whether `count` more copies of a file will have places, once disks have done other orders.
fn has_places(disks: &Disks, each: &AtRisk, count: usize, now: Instant) -> bool {
    let places = places(disks, &each.file, now);
    let candidates = disks.candidates(now);
    choose(&candidates, &places, count, each.file.row.bytes, fastrand::f64).len() == count
}

/// Orders the removal of replicas that a file has too many of; false if not all could be ordered now.
fn trim(disks: &mut Disks, moves: &Moves, file: &ReplicatedFile, count: usize, now: Instant) -> bool {
    let concrete = file.row.concrete;
    let mut holders = disks.live_among(&disks.staying(file), now);
    // A removal that was not told before a restart would count as a replica.
    if !holders.iter().all(|holder| disks.is_listed(holder.disk)) {
        return false;
    }
    let mut chosen: Vec<DiskId> = Vec::new();
    // The disk that gives the file away goes first, once the other one has it.
    if let Some([from, to]) = moves.ends_of(concrete)
        && [from, to].iter().all(|disk| holders.iter().any(|holder| holder.disk == *disk))
    {
        holders.retain(|holder| holder.disk != from);
        chosen.push(from);
    }
    chosen.extend(surplus(&holders, count.saturating_sub(chosen.len())));
    let mut all = true;
    for disk in chosen {
        all &= disks.get_mut(disk).is_some_and(|disk| disk.orders.remove(concrete));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::Standing::{Away, Draining, Gone, Live, Vanished};
    use super::{Need, need};

    #[test]
    fn need_depends_on_silent_nodes() {
        let check = |wanted, standings: &[_], fetching, usable, [live, missing, surplus]: [u32; 3]| {
            assert_eq!(
                need(wanted, standings, fetching, usable),
                Need { live, missing, surplus },
                "{wanted} {standings:?} {fetching} {usable}"
            );
        };
        check(3, &[Live, Live, Live], 0, 4, [3, 0, 0]);
        check(3, &[Live, Live, Away], 0, 4, [2, 0, 0]);
        check(3, &[Live, Live, Vanished], 0, 4, [2, 0, 0]);
        check(3, &[Live, Live, Gone], 0, 4, [2, 1, 0]);
        check(3, &[Live, Live, Gone], 1, 4, [2, 0, 0]);
        check(3, &[Live, Vanished, Vanished], 0, 4, [1, 1, 0]);
        check(3, &[Live, Away, Vanished], 0, 4, [1, 1, 0]);
        check(2, &[Live, Away], 0, 4, [1, 0, 0]);
        check(2, &[Live, Vanished], 1, 4, [1, 0, 0]);
        check(1, &[Live], 0, 4, [1, 0, 0]);
        check(1, &[Vanished], 0, 4, [0, 0, 0]);
        check(3, &[Live], 0, 2, [1, 1, 0]);
        check(2, &[Live, Live, Live], 0, 4, [3, 0, 1]);
        check(2, &[Live, Live, Away], 0, 4, [2, 0, 0]);
        check(3, &[Live, Live, Live], 0, 2, [3, 0, 0]);
        check(2, &[Live, Draining], 0, 4, [1, 1, 0]);
        check(2, &[Live, Draining], 1, 4, [1, 0, 0]);
        check(2, &[Live, Live, Draining], 0, 4, [2, 0, 0]);
        check(1, &[Draining], 0, 4, [0, 1, 0]);
        check(2, &[Draining, Draining], 0, 4, [0, 2, 0]);
        check(2, &[Draining, Draining], 0, 1, [0, 1, 0]);
        check(3, &[Live, Live, Draining], 0, 2, [2, 0, 0]);
        check(2, &[Draining, Vanished], 1, 4, [0, 1, 0]);
    }
}
