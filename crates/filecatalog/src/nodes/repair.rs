//! Repair: a scan over all files finds those with too few replicas, and orders copies, files at the highest risk first;
//! and those with too many, and removes some. It runs after something changed, and rests ten times as long as it took.
//!
//! Source: Clustera, section 3.4; a node that leaves gets time to return, and one that vanishes endangers files.

use crate::nodes::disks::{Disks, Standing};
use crate::nodes::orders::part_of;
use crate::nodes::placement::{choose, surplus};
use crate::{Catalog, CatalogError};
use ids::ConcreteId;
use rows::ReplicatedFile;
use std::collections::BTreeMap;
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
    let count = |standing: Standing| standings.iter().filter(|each| **each == standing).count() as u32;
    let (live, away, vanished) = (count(Standing::Live), count(Standing::Away), count(Standing::Vanished));
    let wanted = wanted.min(usable.max(live));
    if live == 0 {
        // Nobody can copy it.
        return Need::default();
    }
    let counted = live + away + vanished + fetching;
    let mut missing = wanted.saturating_sub(counted);
    // One replica is left, and others are on nodes that may be dead.
    if live + fetching == 1 && vanished > 0 && wanted > 1 {
        missing = missing.max(1);
    }
    Need {
        live,
        missing,
        surplus: if missing == 0 && fetching == 0 { live.saturating_sub(wanted) } else { 0 },
    }
}

/// A file that needs copies.
struct AtRisk {
    file: ReplicatedFile,
    missing: u32,
}

impl Catalog {
    /// Asks for a scan.
    pub(crate) fn wake_repair(&self) {
        self.wanted.store(true, Ordering::Release);
    }

    /// Scans all files, and orders copies and removals. Returns whether more is left than could be ordered.
    pub(crate) async fn repair(&self) -> Result<bool, CatalogError> {
        // By the number of live replicas.
        let mut at_risk: BTreeMap<u32, Vec<AtRisk>> = BTreeMap::new();
        let (mut remembered, mut more) = (0, false);
        let mut after = ConcreteId(-1);
        loop {
            let rows = self.store.replicated_files_after(after, ROWS_AT_ONCE).await?;
            let Some(last) = rows.last() else { break };
            after = last.row.concrete;
            let mut state = self.state();
            let now = Instant::now();
            let usable = state.disks.nodes(now) as u32;
            let fetches = state.disks.fetches();
            for file in rows {
                let fetchers = fetches.get(&file.row.concrete).into_iter().flatten();
                let fetching = fetchers.filter(|disk| !file.disks.contains(disk)).count() as u32;
                let staying = state.disks.staying(&file);
                let standings: Vec<Standing> =
                    staying.iter().map(|disk| state.disks.standing(*disk, now)).collect();
                let need = need(file.replicas, &standings, fetching, usable);
                if need.surplus > 0 {
                    more |= !trim(&mut state.disks, &file, need.surplus as usize, now);
                }
                if need.missing == 0 {
                    continue;
                }
                if remembered == REMEMBERED_MAX {
                    more = true;
                    continue;
                }
                remembered += 1;
                at_risk.entry(need.live).or_default().push(AtRisk { file, missing: need.missing });
            }
        }
        let mut state = self.state();
        let now = Instant::now();
        for each in at_risk.into_values().flatten() {
            more |= !copy(&mut state.disks, &each, now);
        }
        Ok(more)
    }
}

/// Orders copies of a file; false if not all could be ordered now.
fn copy(disks: &mut Disks, each: &AtRisk, now: Instant) -> bool {
    let part = part_of(&each.file.row);
    let mut candidates = disks.candidates(now);
    candidates.retain(|candidate| {
        disks.get(candidate.disk).is_some_and(|disk| {
            disk.orders.has_room_for(&part) && !disk.orders.failed_lately(part.concrete, now)
        })
    });
    let mut holders = each.file.disks.clone();
    holders.extend(disks.fetchers(part.concrete));
    // Disks that are gone do not speak for a rack; their nodes may be usable again under other disks.
    holders.retain(|disk| disks.get(*disk).is_some_and(|disk| disk.reach(now).is_some()));
    let places = disks.places_of(&holders);
    let chosen = choose(&candidates, &places, each.missing as usize, part.bytes, fastrand::f64);
    for disk in &chosen {
        if let Some(disk) = disks.get_mut(*disk) {
            disk.orders.fetch(part, now);
        }
    }
    chosen.len() == each.missing as usize
}

/// Orders the removal of replicas that a file has too many of; false if not all could be ordered now.
fn trim(disks: &mut Disks, file: &ReplicatedFile, count: usize, now: Instant) -> bool {
    let concrete = file.row.concrete;
    let holders = disks.live_among(&disks.staying(file), now);
    let chosen = surplus(&holders, count);
    let mut all = true;
    for disk in chosen {
        all &= disks.get_mut(disk).is_some_and(|disk| disk.orders.remove(concrete));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::Standing::{Away, Gone, Live, Vanished};
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
    }
}
