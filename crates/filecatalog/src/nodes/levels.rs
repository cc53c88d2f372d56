//! The choice of files to move between disks, as pure functions. A disk is as full as the share of stored files in the
//! bytes that they could have there; a disk that other data has filled up to the reserve is full.
//!
//! A move makes the giver emptier and never makes the taker fuller than the giver is afterwards, so the sum of the squares
//! of all shares, weighted by the sizes of the disks, falls with each move: the moves end.

use crate::nodes::placement::Place;
use ids::{DiskId, NodeId};

/// Difference to the mean from which a disk gives files away, and down to which it goes on.
pub(crate) const FAR_ABOVE_MEAN: f64 = 0.1;
pub(crate) const NEAR_MEAN: f64 = 0.02;

/// A disk that takes files, with its bytes after all moves that have begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Level {
    pub disk: DiskId,
    pub node: NodeId,
    pub rack: String,
    pub stored_bytes: u64,
    pub room_bytes: u64,
}

fn share(stored_bytes: u64, room_bytes: u64) -> f64 {
    let all = stored_bytes as f64 + room_bytes as f64;
    if all > 0.0 { stored_bytes as f64 / all } else { 1.0 }
}

impl Level {
    pub fn share(&self) -> f64 {
        share(self.stored_bytes, self.room_bytes)
    }

    fn share_without(&self, bytes: u64) -> f64 {
        share(self.stored_bytes.saturating_sub(bytes), self.room_bytes.saturating_add(bytes))
    }

    fn share_with(&self, bytes: u64) -> f64 {
        share(self.stored_bytes.saturating_add(bytes), self.room_bytes.saturating_sub(bytes))
    }

    fn gives(&self, mean: f64, above_mean: f64) -> bool {
        let is_far = self.share() > mean + above_mean;
        self.stored_bytes > 0 && (is_far || (self.room_bytes == 0 && self.share() > mean))
    }

    /// Notes a move, if this disk takes part in it. A disk without room may still have none after it.
    pub fn moves(&mut self, from: DiskId, to: DiskId, bytes: u64) {
        if self.disk == from {
            self.stored_bytes = self.stored_bytes.saturating_sub(bytes);
            if self.room_bytes > 0 {
                self.room_bytes = self.room_bytes.saturating_add(bytes);
            }
        } else if self.disk == to {
            self.stored_bytes = self.stored_bytes.saturating_add(bytes);
            self.room_bytes = self.room_bytes.saturating_sub(bytes);
        }
    }
}

/// Returns whether a disk gives files away.
pub(crate) fn gives(levels: &[Level], disk: DiskId, above_mean: f64) -> bool {
    let mean = mean(levels);
    levels.iter().any(|level| level.disk == disk && level.gives(mean, above_mean))
}

/// Returns the share of stored files in the bytes of all disks.
pub(crate) fn mean(levels: &[Level]) -> f64 {
    let stored: f64 = levels.iter().map(|level| level.stored_bytes as f64).sum();
    let all: f64 = levels.iter().map(|level| level.stored_bytes as f64 + level.room_bytes as f64).sum();
    if all > 0.0 { stored / all } else { 1.0 }
}

/// Returns the disks that give files away, the fullest first: those that are so far above the mean, and those without
/// room.
pub(crate) fn givers(levels: &[Level], above_mean: f64) -> Vec<DiskId> {
    let mean = mean(levels);
    let mut givers: Vec<&Level> = levels.iter().filter(|level| level.gives(mean, above_mean)).collect();
    givers.sort_by(|one, other| other.share().total_cmp(&one.share()).then(one.disk.cmp(&other.disk)));
    givers.into_iter().map(|level| level.disk).collect()
}

/// Returns the disk that takes a file of `from`: the emptiest of those that have room and no replica on their node, and
/// leave the file in as many racks. It is below the mean, unless `from` has no room. `others`: the places of the other
/// replicas.
pub(crate) fn taker(
    levels: &[Level],
    from: DiskId,
    others: &[Place],
    bytes: u64,
    may_take: impl Fn(DiskId) -> bool,
) -> Option<DiskId> {
    let mean = mean(levels);
    let giver = levels.iter().find(|level| level.disk == from)?;
    let racks_with = |rack: &str| {
        let is_new = others.iter().all(|other| other.rack != rack);
        let among_others = others.iter().any(|other| other.rack != others[0].rack);
        // Two racks are enough.
        usize::from(!others.is_empty()) + usize::from(among_others || (is_new && !others.is_empty()))
    };
    let racks = racks_with(&giver.rack);
    let after = giver.share_without(bytes);
    let takes = |level: &&Level| {
        level.disk != from
            && level.room_bytes >= bytes
            && (level.share() < mean || giver.room_bytes == 0)
            && level.share_with(bytes) <= after
            && others.iter().all(|other| other.node != level.node)
            && racks_with(&level.rack) >= racks
            && may_take(level.disk)
    };
    let emptiest =
        |one: &&Level, other: &&Level| one.share().total_cmp(&other.share()).then(one.disk.cmp(&other.disk));
    levels.iter().filter(takes).min_by(emptiest).map(|level| level.disk)
}

#[cfg(test)]
mod tests {
    use super::{FAR_ABOVE_MEAN, Level, NEAR_MEAN, givers, mean, taker};
    use crate::nodes::placement::Place;
    use fastrand::Rng;
    use ids::{DiskId, NodeId};
    use std::collections::BTreeSet;

    /// Disks and files: a file is its bytes and the indexes of the disks that have it.
    struct MadeUp {
        sizes: Vec<u64>,
        /// Bytes of other data, some of it within the reserve.
        others: Vec<u64>,
        places: Vec<Place>,
        files: Vec<(u64, Vec<usize>)>,
    }

    impl MadeUp {
        fn new(random: &mut Rng) -> Self {
            let nodes = random.usize(2..7);
            let racks = random.usize(1..4);
            let place = |node: usize| Place { node: NodeId(node as u32), rack: format!("r{}", node % racks) };
            let places: Vec<Place> = (0..random.usize(2..9)).map(|disk| place(disk % nodes)).collect();
            let sizes: Vec<u64> = places.iter().map(|_| random.u64(200..2000)).collect();
            let others = sizes.iter().map(|size| if random.u8(0..4) == 0 { size + 9 } else { 0 }).collect();
            let mut made_up = Self { sizes, others, places, files: Vec::new() };
            for _ in 0..random.usize(0..120) {
                let mut disks: Vec<usize> = Vec::new();
                for _ in 0..random.usize(1..4) {
                    let disk = random.usize(0..made_up.places.len());
                    let is_new =
                        disks.iter().all(|other| made_up.places[*other].node != made_up.places[disk].node);
                    // The first disks have most files: the others came later.
                    if is_new && (disk < 2 || random.u8(0..4) == 0) {
                        disks.push(disk);
                    }
                }
                if !disks.is_empty() {
                    made_up.files.push((random.u64(1..40), disks));
                }
            }
            made_up
        }

        fn levels(&self) -> Vec<Level> {
            let level = |disk: usize| {
                let own = self.files.iter().filter(|(_, disks)| disks.contains(&disk));
                let stored_bytes = own.map(|(bytes, _)| bytes).sum();
                Level {
                    disk: DiskId(disk as i64),
                    node: self.places[disk].node,
                    rack: self.places[disk].rack.clone(),
                    stored_bytes,
                    room_bytes: self.sizes[disk].saturating_sub(stored_bytes + self.others[disk]),
                }
            };
            (0..self.places.len()).map(level).collect()
        }

        /// Moves one file, as the first giver that finds a taker would. Returns whether there was one.
        fn moves_one(&mut self) -> bool {
            let levels = self.levels();
            for from in givers(&levels, NEAR_MEAN) {
                for index in 0..self.files.len() {
                    let (bytes, disks) = &self.files[index];
                    let giver = from.0 as usize;
                    if !disks.contains(&giver) {
                        continue;
                    }
                    let others = disks.iter().filter(|disk| **disk != giver);
                    let others: Vec<Place> = others.map(|disk| self.places[*disk].clone()).collect();
                    if let Some(to) = taker(&levels, from, &others, *bytes, |_| true) {
                        let at = disks.iter().position(|disk| *disk == giver).unwrap();
                        self.files[index].1[at] = to.0 as usize;
                        return true;
                    }
                }
            }
            false
        }

        /// Nodes and racks of a file, at most two racks.
        fn spread(&self, file: usize) -> [usize; 2] {
            let places = || self.files[file].1.iter().map(|disk| &self.places[*disk]);
            let nodes: BTreeSet<NodeId> = places().map(|place| place.node).collect();
            let racks: BTreeSet<&str> = places().map(|place| place.rack.as_str()).collect();
            [nodes.len(), racks.len().min(2)]
        }
    }

    fn spread(levels: &[Level]) -> f64 {
        let shares = || levels.iter().map(Level::share);
        shares().fold(0.0, f64::max) - shares().fold(1.0, f64::min)
    }

    #[test]
    fn moves_end_and_lower_the_spread() {
        let seed = std::env::var("SEED").ok().and_then(|text| text.parse().ok());
        for seed in seed.map_or(1..301, |seed| seed..seed + 1) {
            let mut made_up = MadeUp::new(&mut Rng::with_seed(seed));
            let spreads: Vec<[usize; 2]> =
                (0..made_up.files.len()).map(|file| made_up.spread(file)).collect();
            let before = spread(&made_up.levels());
            let mut moves = 0;
            while made_up.moves_one() {
                moves += 1;
                assert!(moves < 5000, "seed {seed}: the moves do not end");
            }
            let after = spread(&made_up.levels());
            assert!(after <= before + 1e-9, "seed {seed}: {before} became {after}");
            for (file, before) in spreads.into_iter().enumerate() {
                let after = made_up.spread(file);
                assert!(after[0] >= before[0] && after[1] >= before[1], "seed {seed}: file {file}");
            }
        }
    }

    #[test]
    fn new_disk_gets_its_share() {
        let places = |disk: u32| Place { node: NodeId(disk), rack: "r".to_string() };
        let mut made_up = MadeUp {
            sizes: vec![1000; 4],
            others: vec![0; 4],
            places: (0..4).map(places).collect(),
            files: (0..150).map(|file| (10, vec![file % 3, (file + 1) % 3])).collect(),
        };
        // Three disks are full.
        while made_up.moves_one() {}
        let levels = made_up.levels();
        let is_far = |level: &Level| (level.share() - mean(&levels)).abs() > 4.0 * NEAR_MEAN;
        assert!(!levels.iter().any(is_far), "{levels:?}");
        assert!(givers(&levels, FAR_ABOVE_MEAN).is_empty());
        // Another disk without room, because other data takes it, gives its files away.
        made_up.others[0] = 1000;
        while made_up.moves_one() {}
        assert!(made_up.levels()[0].stored_bytes < 300, "{:?}", made_up.levels());
    }
}
