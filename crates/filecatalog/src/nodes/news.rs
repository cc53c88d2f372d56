//! Reports of nodes, and the orders that answer them.

use crate::asked::now_ns;
use crate::error::limited;
use crate::nodes::disks::Reach;
use crate::nodes::orders::part_of;
use crate::nodes::orders::{Look, TakenOrders};
use crate::{Catalog, CatalogError};
use api::StoredPart;
use api::data_access::SecretText;
use api::stored::cluster::{
    EarlyCopy, ListedParts, PartsOnDisk, STORED_LISTED_MAX, STORED_PAGE_MAX, StoredDiskNews, StoredEnd,
    StoredFetch, StoredLook, StoredNews, StoredOrders, StoredOutcome, StoredRemoval,
};
use ids::{ConcreteId, DiskId, ITEM_BITS, PutId};
use rows::{FileDiskRow, ReplicatedFile};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;
use subtle::ConstantTimeEq;
use trust::{DataRight, FileRight, StoredGrant};

/// Maximum number of disks of a node.
const DISKS_MAX: usize = 1024;
/// Longest unique name of a disk and longest secret, in bytes.
const TEXT_BYTES_MAX: usize = 200;
/// Maximum number of ends in one report.
const ENDS_MAX: usize = 100_000;
/// Validity of rights of nodes to fetch replicas.
const GRANTED_SECONDS: u64 = 3600;

/// The node that reports, as it joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportingNode {
    pub node: ids::NodeId,
    pub name: String,
    pub rack: String,
}

fn hash_of(secret: &SecretText) -> String {
    hex::encode(Sha256::digest(secret.0.as_bytes()))
}

impl Catalog {
    /// Takes the report of a node, and returns its orders.
    pub async fn news(&self, from: &ReportingNode, news: StoredNews) -> Result<StoredOrders, CatalogError> {
        limited("the number of disks", news.disks.len(), DISKS_MAX)?;
        limited("the number of ends", news.ends.len(), ENDS_MAX)?;
        let listed: usize = news.listed.iter().map(|page| page.files.len()).sum();
        limited("the number of listed files", listed, STORED_LISTED_MAX)?;
        let (data_url, is_leaving) = (news.data_url.clone(), news.is_leaving);
        let reach = Reach { node: from.node, data_url, is_leaving };
        let mut orders = StoredOrders::default();
        for disk in &news.disks {
            match self.disk_of(from, disk).await? {
                Ok(number) => {
                    self.state().disks.was_heard(number, &reach, disk, Instant::now());
                    orders.disks.push(Some(number));
                }
                Err(reason) => {
                    orders.disks.push(None);
                    orders.refused.push((disk.uuid.clone(), reason));
                }
            }
        }
        let own: BTreeMap<&str, DiskId> = news
            .disks
            .iter()
            .zip(&orders.disks)
            .filter_map(|(disk, number)| Some((disk.uuid.as_str(), (*number)?)))
            .collect();
        let of_uuid =
            |uuid: &str| own.get(uuid).copied().ok_or_else(|| CatalogError::UnknownDisk(uuid.to_string()));
        self.ended(&news.ends, of_uuid).await?;
        for page in &news.listed {
            self.compare(of_uuid(&page.uuid)?, page).await?;
        }
        if !news.is_leaving {
            self.give_orders(&own.values().copied().collect::<Vec<_>>(), &mut orders).await?;
            orders.copy_early = self.early_copies(from.node);
        }
        Ok(orders)
    }

    /// Returns the number of a disk; a sentence if it is not used. A disk that the store does not know is used only if it
    /// is empty: files of another store must not be removed.
    async fn disk_of(
        &self,
        from: &ReportingNode,
        news: &StoredDiskNews,
    ) -> Result<Result<DiskId, String>, CatalogError> {
        limited("the bytes of the name of a disk", news.uuid.len(), TEXT_BYTES_MAX)?;
        limited("the bytes of the secret of a disk", news.secret.0.len(), TEXT_BYTES_MAX)?;
        let hash = hash_of(&news.secret);
        let known = self.state().disks.by_uuid(&news.uuid).map(|disk| disk.row.clone());
        let Some(row) = known else {
            if !news.is_empty {
                let reason = "it has files of another server or of another state of this one; they stay untouched. \
                              Start the node for that server, or remove the directory sailfish-files of the disk";
                return Ok(Err(reason.to_string()));
            }
            let disk = self.store.add_file_disk(&news.uuid, &from.name, &from.rack, &hash).await?;
            let row = FileDiskRow {
                disk,
                uuid: news.uuid.clone(),
                node_name: from.name.clone(),
                rack: from.rack.clone(),
                secret_hash: hash,
            };
            self.state().disks.add(row, Instant::now());
            self.wake_repair();
            return Ok(Ok(disk));
        };
        if !bool::from(row.secret_hash.as_bytes().ct_eq(hash.as_bytes())) {
            return Ok(Err("its secret is not that of the disk with this name".to_string()));
        }
        if (row.node_name.as_str(), row.rack.as_str()) != (from.name.as_str(), from.rack.as_str()) {
            self.store.move_file_disk(row.disk, &from.name, &from.rack).await?;
            if let Some(disk) = self.state().disks.get_mut(row.disk) {
                (disk.row.node_name, disk.row.rack) = (from.name.clone(), from.rack.clone());
            }
        }
        Ok(Ok(row.disk))
    }

    /// Writes the ends of orders, and losses.
    async fn ended(
        &self,
        ends: &[StoredEnd],
        of_uuid: impl Fn(&str) -> Result<DiskId, CatalogError>,
    ) -> Result<(), CatalogError> {
        let (mut fetched, mut dropped, mut suspect) = (Vec::new(), Vec::new(), Vec::new());
        let mut removed = BTreeSet::new();
        for end in ends {
            let disk = of_uuid(&end.uuid)?;
            match &end.outcome {
                StoredOutcome::Fetched => fetched.push((end.file, disk)),
                StoredOutcome::Removed => {
                    dropped.push((end.file, disk));
                    removed.insert(end.file);
                }
                StoredOutcome::Lost(reason) => {
                    tracing::warn!(file = %end.file, %disk, %reason, "a replica of a stored file is lost");
                    dropped.push((end.file, disk));
                    removed.insert(end.file);
                    self.wake_repair();
                }
                StoredOutcome::Suspect(reason) => {
                    tracing::debug!(file = %end.file, %disk, %reason, "a reader met damage");
                    suspect.push((end.file, disk));
                }
                StoredOutcome::Failed(reason) => {
                    tracing::debug!(file = %end.file, %disk, %reason, "a replica could not be fetched");
                    self.wake_repair();
                }
            }
        }
        // Rows come first: an order that ended counts until its row stands.
        self.store.add_replicas(&fetched).await?;
        if !fetched.is_empty() {
            // There may be one too many now, or a drain may be over.
            self.wake_repair();
        }
        self.store.drop_replicas(&dropped).await?;
        let removed: Vec<ConcreteId> = removed.into_iter().collect();
        if !removed.is_empty() {
            self.store.forget_removed_cluster_files(&removed).await?;
        }
        self.look_at(&suspect).await?;
        let mut state = self.state();
        let now = Instant::now();
        for end in ends {
            let Some(disk) = state.disks.get_mut(of_uuid(&end.uuid)?) else { continue };
            match end.outcome {
                StoredOutcome::Failed(_) => disk.orders.has_failed(end.file, now),
                StoredOutcome::Suspect(_) => {}
                _ => disk.orders.has_ended(end.file),
            }
        }
        Ok(())
    }

    /// Lets nodes verify files, with the contents that the store has: a reader may state anything.
    async fn look_at(&self, suspect: &[(ConcreteId, DiskId)]) -> Result<(), CatalogError> {
        let files: Vec<ConcreteId> = suspect.iter().map(|(file, _)| *file).collect();
        let rows = self.store.replicated_files_of(&files).await?;
        let mut state = self.state();
        for (file, disk) in suspect {
            let is_it = |row: &&ReplicatedFile| row.row.concrete == *file && row.disks.contains(disk);
            let row = rows.iter().find(|row| is_it(row) && !row.is_removed);
            if let (Some(row), Some(disk)) = (row, state.disks.get_mut(*disk)) {
                disk.orders.look(Look::Whole(part_of(&row.row)));
            }
        }
        Ok(())
    }

    async fn give_orders(&self, own: &[DiskId], orders: &mut StoredOrders) -> Result<(), CatalogError> {
        let mut fetches: Vec<(DiskId, StoredPart)> = Vec::new();
        {
            let mut state = self.state();
            let now = Instant::now();
            for id in own {
                let Some(disk) = state.disks.get_mut(*id) else { continue };
                if disk.asks_for_listing(now) {
                    orders.list.push(*id);
                }
                let TakenOrders { fetch, remove, look: looks } = disk.orders.take(now);
                fetches.extend(fetch.into_iter().map(|file| (*id, file)));
                let look = |look: Look| StoredLook {
                    disk: *id,
                    file: look.file(),
                    verifies: matches!(look, Look::Whole(_)),
                };
                orders.look.extend(looks.into_iter().map(look));
                if !remove.is_empty() {
                    orders.remove.push(StoredRemoval { disk: *id, files: remove });
                }
            }
        }
        if fetches.is_empty() {
            return Ok(());
        }
        let files: Vec<ConcreteId> = fetches.iter().map(|(_, file)| file.concrete).collect();
        let rows = self.store.replicated_files_of(&files).await?;
        let holders: BTreeMap<ConcreteId, Vec<DiskId>> =
            rows.into_iter().map(|row| (row.row.concrete, row.disks)).collect();
        let mut grants = BTreeMap::new();
        let state = self.state();
        let now = Instant::now();
        for (disk, file) in fetches {
            let others = holders.get(&file.concrete).into_iter().flatten().copied();
            let from = state.disks.nodes_of(others.filter(|other| *other != disk), now);
            if from.is_empty() {
                // It may be there already; if it is not, a later scan orders it again.
                tracing::debug!(file = %file.concrete, "no reachable node has the file");
            }
            let put = file.concrete.put();
            let grant: &SecretText = grants.entry(put).or_insert_with(|| self.grant_of_put(put));
            orders.fetch.push(StoredFetch { disk, file, from, grant: grant.clone() });
        }
        Ok(())
    }

    /// Returns the files that a node copies before programs need them. A node that is being drained gets no tasks.
    fn early_copies(&self, node: ids::NodeId) -> Vec<EarlyCopy> {
        let mut state = self.state();
        if state.disks.draining().contains_key(&node) {
            return Vec::new();
        }
        let nodes = state.disks.nodes(Instant::now());
        state.jobs.shared.for_node(node, nodes)
    }

    /// Returns the right to read all concrete files of a put, for nodes.
    fn grant_of_put(&self, put: PutId) -> SecretText {
        let first = put.0 << ITEM_BITS;
        let last = first + (1 << ITEM_BITS) - 1;
        self.grant(FileRight::Read, [ConcreteId(first), ConcreteId(last)], GRANTED_SECONDS)
    }

    /// Signs a right to a range of concrete files.
    pub(crate) fn grant(&self, right: FileRight, [first, last]: [ConcreteId; 2], seconds: u64) -> SecretText {
        let expires_seconds = now_ns() / 1_000_000_000 + seconds;
        let grant = StoredGrant { right, first: first.0, last: last.0, expires_seconds };
        SecretText((self.sign)(&DataRight::Stored(grant)))
    }

    /// Returns files that a disk of a node should have, for its scrub.
    pub async fn parts_on(
        &self,
        node: ids::NodeId,
        question: &PartsOnDisk,
    ) -> Result<ListedParts, CatalogError> {
        let found = {
            let state = self.state();
            let disk = state.disks.by_uuid(&question.uuid);
            disk.filter(|disk| disk.reach(Instant::now()).is_some_and(|reach| reach.node == node))
                .map(|disk| disk.row.disk)
        };
        let disk = found.ok_or_else(|| CatalogError::UnknownDisk(question.uuid.clone()))?;
        let after = question.after.unwrap_or(ConcreteId(-1));
        let rows = self.store.replicated_files_on(disk, after, STORED_PAGE_MAX).await?;
        Ok(ListedParts { parts: rows.iter().map(part_of).collect() })
    }
}
