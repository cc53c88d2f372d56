//! The choice of disks for replicas, as pure functions.

use ids::{DiskId, NodeId};

/// A disk that may get a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub disk: DiskId,
    pub node: NodeId,
    pub rack: String,
    pub room_bytes: u64,
    /// Size of the disk.
    pub total_bytes: u64,
}

impl Candidate {
    /// Returns the share of the disk that is room for files, in millionths: disks differ in size.
    fn room_share(&self) -> u64 {
        let share = u128::from(self.room_bytes) * 1_000_000 / u128::from(self.total_bytes.max(1));
        u64::try_from(share).unwrap_or(u64::MAX)
    }
}

/// The node and the rack of a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub node: NodeId,
    pub rack: String,
}

/// Chooses at most `count` disks with room for `bytes`: no two replicas on one node, and replicas in two racks if there
/// are two. Disks with more room are chosen more often. `held`: replicas that exist. `random`: numbers from 0 to 1.
pub(crate) fn choose(
    candidates: &[Candidate],
    held: &[Place],
    count: usize,
    bytes: u64,
    mut random: impl FnMut() -> f64,
) -> Vec<DiskId> {
    let mut places = held.to_vec();
    let mut chosen = Vec::new();
    while chosen.len() < count {
        let usable: Vec<&Candidate> = candidates
            .iter()
            .filter(|candidate| candidate.room_bytes >= bytes)
            .filter(|candidate| places.iter().all(|place| place.node != candidate.node))
            .collect();
        let in_one_rack = places.first().filter(|first| places.iter().all(|place| place.rack == first.rack));
        let other_racks: Vec<&Candidate> = match in_one_rack {
            Some(first) => usable.iter().copied().filter(|each| each.rack != first.rack).collect(),
            None => Vec::new(),
        };
        let pool = if other_racks.is_empty() { usable } else { other_racks };
        let Some(next) = weighted(&pool, random()) else { break };
        places.push(Place { node: next.node, rack: next.rack.clone() });
        chosen.push(next.disk);
    }
    chosen
}

fn weighted<'a>(pool: &[&'a Candidate], random: f64) -> Option<&'a Candidate> {
    let total: f64 = pool.iter().map(|each| each.room_bytes as f64 + 1.0).sum();
    let mut left = random * total;
    for each in pool {
        left -= each.room_bytes as f64 + 1.0;
        if left <= 0.0 {
            return Some(each);
        }
    }
    pool.last().copied()
}

/// Chooses the replicas that a file has too many of: first second ones of a node, then those on the fullest disks, and as long as possible none whose removal leaves one rack.
pub(crate) fn surplus(holders: &[Candidate], count: usize) -> Vec<DiskId> {
    let mut left: Vec<&Candidate> = holders.iter().collect();
    let mut removed = Vec::new();
    while removed.len() < count && left.len() > 1 {
        let racks_without = |index: usize| {
            let mut racks: Vec<&str> = Vec::new();
            for (other, holder) in left.iter().enumerate() {
                if other != index && !racks.contains(&holder.rack.as_str()) {
                    racks.push(&holder.rack);
                }
            }
            racks.len().min(2)
        };
        let shares_node = |index: usize| {
            let node = left[index].node;
            left.iter().enumerate().any(|(other, holder)| other != index && holder.node == node)
        };
        let best = (0..left.len()).min_by_key(|index| {
            (!shares_node(*index), 2 - racks_without(*index), left[*index].room_share(), left[*index].disk)
        });
        let Some(best) = best else { break };
        removed.push(left.remove(best).disk);
    }
    removed
}

#[cfg(test)]
mod tests {
    use super::{Candidate, Place, choose, surplus};
    use ids::{DiskId, NodeId};
    use std::collections::BTreeSet;

    fn disk(disk: i64, node: u32, rack: &str, room_bytes: u64) -> Candidate {
        let (disk, node, rack) = (DiskId(disk), NodeId(node), rack.to_string());
        Candidate { disk, node, rack, room_bytes, total_bytes: 20 }
    }

    /// Whether there is any choice of `count` disks that keeps the rules; found by trying all of them.
    fn best_spread(candidates: &[Candidate], held: &[Place], count: usize, bytes: u64) -> (usize, usize) {
        let mut best = (0, 0);
        for set in 0_u32..1 << candidates.len() {
            let chosen: Vec<&Candidate> =
                (0..candidates.len()).filter(|bit| set >> bit & 1 == 1).map(|bit| &candidates[bit]).collect();
            let nodes: Vec<NodeId> =
                chosen.iter().map(|each| each.node).chain(held.iter().map(|place| place.node)).collect();
            let is_legal = chosen.len() <= count
                && chosen.iter().all(|each| each.room_bytes >= bytes)
                && nodes.iter().collect::<BTreeSet<_>>().len() == nodes.len();
            if is_legal {
                let racks = chosen.iter().map(|each| &each.rack).chain(held.iter().map(|place| &place.rack));
                let racks = racks.collect::<BTreeSet<_>>().len().min(2);
                best = best.max((chosen.len(), racks));
            }
        }
        best
    }

    #[test]
    fn choice_is_as_good_as_any() {
        let seed = std::env::var("SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(27);
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..500 {
            let nodes = random.u32(1..6);
            let racks: Vec<String> = (0..nodes).map(|_| format!("r{}", random.u8(0..3))).collect();
            let candidates: Vec<Candidate> = (0..random.i64(0..9))
                .map(|number| {
                    let node = random.u32(0..nodes);
                    disk(number, node, &racks[node as usize], random.u64(0..20))
                })
                .collect();
            let held: Vec<Place> = (0..random.u32(0..nodes + 1).min(2))
                .map(|node| Place { node: NodeId(node), rack: racks[node as usize].clone() })
                .collect();
            let (count, bytes) = (random.usize(0..4), random.u64(0..12));
            let chosen = choose(&candidates, &held, count, bytes, || random.f64());
            let of = |id: &DiskId| candidates.iter().find(|each| each.disk == *id).unwrap();
            let nodes: Vec<NodeId> =
                chosen.iter().map(|id| of(id).node).chain(held.iter().map(|place| place.node)).collect();
            assert_eq!(nodes.iter().collect::<BTreeSet<_>>().len(), nodes.len(), "seed {seed}");
            assert!(chosen.iter().all(|id| of(id).room_bytes >= bytes), "seed {seed}");
            let racks = chosen
                .iter()
                .map(|id| &of(id).rack)
                .chain(held.iter().map(|place| &place.rack))
                .collect::<BTreeSet<_>>();
            let expected = best_spread(&candidates, &held, count, bytes);
            assert_eq!(
                (chosen.len(), racks.len().min(2)),
                (expected.0, if chosen.is_empty() { racks.len().min(2) } else { expected.1 }),
                "seed {seed}: {candidates:?} {held:?}"
            );
        }
    }

    #[test]
    fn surplus_keeps_two_racks() {
        let holders = [disk(1, 1, "a", 5), disk(2, 2, "a", 9), disk(3, 3, "b", 1)];
        assert_eq!(surplus(&holders, 1), [DiskId(1)]);
        assert_eq!(surplus(&holders, 2), [DiskId(1), DiskId(3)]);
        assert_eq!(surplus(&holders, 9).len(), 2, "one replica stays");
        let twice = [disk(1, 1, "a", 9), disk(2, 1, "a", 8), disk(3, 3, "a", 1)];
        assert_eq!(surplus(&twice, 1), [DiskId(2)]);
    }
}
