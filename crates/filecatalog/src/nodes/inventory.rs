//! Comparison of the files on a disk with the rows. Differences become orders; the node looks again before anything
//! counts as lost, because files come and go while a page travels.

use crate::nodes::orders::{Look, part_of};
use crate::{Catalog, CatalogError};
use api::StoredPart;
use api::stored::cluster::StoredListing;
use ids::{ConcreteId, DiskId, PutId};
use metastore::FOREIGN_PUT_MAX;
use rows::ReplicatedFile;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// Rows that are read at once.
const ROWS_AT_ONCE: usize = 1000;

/// The difference of one file.
#[derive(Debug, PartialEq, Eq)]
enum Difference {
    /// The store does not need it.
    Unknown(ConcreteId),
    /// It has no row for this disk: the disk takes it in, if its content is right, or gives it up.
    TakeIn(StoredPart),
    /// It should be there.
    Look(StoredPart),
}

impl Catalog {
    /// Compares a page of an inventory.
    pub(crate) async fn compare(&self, disk: DiskId, page: &StoredListing) -> Result<(), CatalogError> {
        let here: BTreeMap<ConcreteId, u64> = page.files.iter().copied().collect();
        // Puts are read before rows: a put that is not under way any more has all its rows.
        let under_way: BTreeSet<PutId> = self.store.cluster_puts().await?.iter().map(|row| row.put).collect();
        let next = self.store.next_put_number().await?;
        self.pass_foreign_puts(disk, &here, next).await?;
        let foreign = self.store.foreign_puts().await?;
        let mut differences = self.missing(disk, page, &here).await?;
        let files: Vec<ConcreteId> = here.keys().copied().collect();
        for some in files.chunks(ROWS_AT_ONCE) {
            let rows = self.store.replicated_files_of(some).await?;
            let rows: BTreeMap<ConcreteId, ReplicatedFile> =
                rows.into_iter().map(|row| (row.row.concrete, row)).collect();
            for file in some {
                let row = rows.get(file);
                let put = file.put();
                let is_foreign = || put >= next || foreign.iter().any(|range| range.contains(put));
                if row.is_none() && (under_way.contains(&put) || is_foreign()) {
                    // It is being put, or the store is older than the file: an older state was restored.
                    continue;
                }
                let bytes = here.get(file).copied().unwrap_or(0);
                differences.extend(difference(disk, *file, bytes, row));
            }
        }
        self.order(disk, differences);
        if let Some(disk) = self.state().disks.get_mut(disk) {
            disk.was_listed(page, Instant::now());
        }
        if page.is_last {
            self.wake_repair();
        }
        Ok(())
    }

    /// Lets the numbers of puts go on behind those of files that are newer than the store, which was restored from an older
    /// backup. Without that, new puts would get the numbers of these files.
    async fn pass_foreign_puts(
        &self,
        disk: DiskId,
        here: &BTreeMap<ConcreteId, u64>,
        next: PutId,
    ) -> Result<(), CatalogError> {
        let newer = || here.keys().map(|file| file.put()).filter(|put| *put >= next);
        let Some(newest) = newer().max() else { return Ok(()) };
        // A larger number is not believed: no store has got so far.
        let Some(last) = newer().filter(|put| *put <= FOREIGN_PUT_MAX).max() else {
            tracing::warn!(%disk, put = %newest, "a disk has a stored file of an impossible number; it stays");
            return Ok(());
        };
        if self.store.pass_foreign_puts(last).await?.is_some() {
            let files = newer().count();
            tracing::warn!(
                %disk, files, last = %last,
                "stored files on a disk are newer than the state of the server, which was restored from an older backup: \
                 they have no names, and stay on their disks"
            );
        }
        Ok(())
    }

    /// Returns files that should be on the disk, and that the page lacks.
    async fn missing(
        &self,
        disk: DiskId,
        page: &StoredListing,
        here: &BTreeMap<ConcreteId, u64>,
    ) -> Result<Vec<Difference>, CatalogError> {
        let mut missing = Vec::new();
        let mut after = ConcreteId(page.first.0.saturating_sub(1));
        loop {
            let rows = self.store.replicated_files_on(disk, after, ROWS_AT_ONCE as u32).await?;
            let Some(last) = rows.last() else { break };
            after = last.concrete;
            let lacking =
                rows.iter().filter(|row| row.concrete <= page.last && !here.contains_key(&row.concrete));
            missing.extend(lacking.map(|row| Difference::Look(part_of(row))));
            if after >= page.last {
                break;
            }
        }
        Ok(missing)
    }

    fn order(&self, disk: DiskId, differences: Vec<Difference>) {
        let mut state = self.state();
        let now = Instant::now();
        let Some(disk) = state.disks.get_mut(disk) else { return };
        for difference in differences {
            match difference {
                // A file that is being fetched gets its row when the node reports it.
                Difference::Unknown(file) if disk.orders.fetches(file) => {}
                Difference::Unknown(file) => drop(disk.orders.remove(file)),
                Difference::TakeIn(part) => disk.orders.fetch(part, now),
                Difference::Look(part) => disk.orders.look(Look::Length(part)),
            }
        }
    }
}

/// Returns the difference of a file of this length on a disk from its row.
fn difference(
    disk: DiskId,
    file: ConcreteId,
    bytes: u64,
    row: Option<&ReplicatedFile>,
) -> Option<Difference> {
    let Some(row) = row.filter(|row| !row.is_removed) else { return Some(Difference::Unknown(file)) };
    let part = part_of(&row.row);
    match (row.disks.contains(&disk), bytes == row.row.bytes) {
        (true, true) => None,
        (true, false) => Some(Difference::Look(part)),
        // It is taken in even if there are enough: the repair trims the fullest disk.
        (false, true) => Some(Difference::TakeIn(part)),
        (false, false) => Some(Difference::Unknown(file)),
    }
}

#[cfg(test)]
mod tests {
    use super::{Difference, difference};
    use crate::nodes::orders::part_of;
    use ids::{ConcreteId, ContentId, DiskId};
    use rows::{ConcreteRow, ReplicatedFile};

    #[test]
    fn differences_become_orders() {
        let concrete = ConcreteId(7);
        let row = ConcreteRow { concrete, content: ContentId(7), part: 0, bytes: 10, crc32c: 3 };
        let (disk, other) = (DiskId(1), DiskId(2));
        let file = |disks: &[DiskId], is_removed| ReplicatedFile {
            row,
            replicas: 2,
            is_removed,
            disks: disks.to_vec(),
        };
        let check = |bytes: u64, row: Option<ReplicatedFile>, expected: Option<Difference>| {
            assert_eq!(difference(disk, concrete, bytes, row.as_ref()), expected);
        };
        let part = part_of(&row);
        check(10, Some(file(&[disk, other], false)), None);
        check(9, Some(file(&[disk, other], false)), Some(Difference::Look(part)));
        check(10, Some(file(&[other], false)), Some(Difference::TakeIn(part)));
        check(9, Some(file(&[other], false)), Some(Difference::Unknown(concrete)));
        check(10, Some(file(&[disk], true)), Some(Difference::Unknown(concrete)));
        check(10, None, Some(Difference::Unknown(concrete)));
    }
}
