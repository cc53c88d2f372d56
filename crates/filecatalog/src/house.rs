//! Everything that is done from time to time: removal of names and files that nobody needs or whose time is over, the end
//! of given-up puts, and repair.

use crate::asked::now_ns;
use crate::nodes::disks::Disk;
use crate::outputs::open::JOB_SOURCE;
use crate::{Catalog, CatalogError};
use api::stored::STEP_SOURCE;
use ids::{ConcreteId, FileVersion, PutId};
use metastore::{LastName, RetirePins};
use rows::{ClusterPutRow, FileSpace};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long the files of an interrupted put are kept for the same put.
const UNFINISHED_KEPT: Duration = Duration::from_secs(24 * 3600);
/// The same for a stream, whose client cannot go on.
const STREAM_KEPT: Duration = Duration::from_secs(600);
/// How long a committed put is remembered, for a client that did not get the answer.
const COMMITTED_KEPT: Duration = Duration::from_secs(600);
/// Steps of one kind in one round, so that other requests get their turn.
const STEPS_MAX: u32 = 10;
/// Rows of a step.
const ROWS_AT_ONCE: u32 = 2000;
/// Removed files of a round.
const REMOVED_AT_ONCE: u32 = 10_000;
/// Shortest interval between two scans, and the share of the time that they take.
const SCAN_REST: Duration = Duration::from_secs(1);
const REST_PER_SCAN: u32 = 10;
/// Longest interval between two scans while nodes are drained: they wait for the next one.
const DRAINS_SCANNED_EVERY: Duration = Duration::from_secs(5);

/// The state of the rounds.
#[derive(Debug, Default)]
pub(crate) struct House {
    /// The next scan, at the earliest; and the one without a reason.
    scan_from: Option<Instant>,
    scan_by: Option<Instant>,
    /// Committed puts whose names have their versions, and the last names that got one of the others.
    dated: BTreeSet<PutId>,
    last_names: BTreeMap<PutId, LastName>,
}

impl Catalog {
    /// Does one round; to be called each second, or more often. Returns whether more is to be done at once.
    pub async fn keep_house(&self) -> Result<bool, CatalogError> {
        let mut house = self.house.lock().await;
        self.end_jobs().await?;
        let mut more = self.sweep_puts(&mut house).await?;
        more |= self.expire().await?;
        more |= self.retire().await?;
        more |= self.remove_files().await?;
        let now = Instant::now();
        let may_scan = house.scan_from.is_none_or(|from| now >= from);
        if self.has_new_standings() {
            self.wake_repair();
        }
        let must_scan = house.scan_by.is_none_or(|by| now >= by);
        if may_scan && (self.wanted.swap(false, Ordering::AcqRel) || must_scan) {
            if self.repair().await? {
                self.wake_repair();
            }
            let took = now.elapsed();
            house.scan_from = Some(Instant::now() + SCAN_REST.max(took * REST_PER_SCAN));
            let every = match self.any_drains() {
                true => self.pace.scan_every.min(DRAINS_SCANNED_EVERY),
                false => self.pace.scan_every,
            };
            house.scan_by = Some(Instant::now() + every);
        }
        self.move_files().await?;
        Ok(more)
    }

    /// Returns whether the standing of a disk has changed, by time alone or because its node is drained.
    fn has_new_standings(&self) -> bool {
        let mut state = self.state();
        let now = Instant::now();
        // All of them: each remembers its standing.
        state.disks.iter_mut().filter_map(|disk| disk.has_new_standing(now).then_some(())).count() > 0
    }

    /// Ends puts that nobody goes on with, and forgets committed ones.
    async fn sweep_puts(&self, house: &mut House) -> Result<bool, CatalogError> {
        let mut more = false;
        for row in self.store.cluster_puts().await? {
            let is_of_step = row.source.starts_with(STEP_SOURCE);
            let kept = if row.source.is_empty() || is_of_step { STREAM_KEPT } else { UNFINISHED_KEPT };
            let is_of_running = self.state().outputs.has(row.put);
            let is_over = match row.source.starts_with(JOB_SOURCE) {
                true => !is_of_running,
                // A server that has begun since does not know the jobs of steps: their nodes go on.
                false if is_of_step && is_of_running => false,
                false => row.heard_ns.saturating_add(kept.as_nanos() as u64) < now_ns(),
            };
            if !is_over {
                continue;
            }
            let mut has_more = true;
            for _ in 0..STEPS_MAX {
                has_more = self.store.abandon_cluster_put(row.put, ROWS_AT_ONCE).await?;
                if !has_more {
                    break;
                }
            }
            more |= has_more;
            if !has_more {
                self.state().put_was_given_up(row.put);
            }
        }
        let ended = self.store.ended_cluster_puts().await?;
        house.dated.retain(|put| ended.iter().any(|row| row.put == *put));
        for row in ended {
            for _ in 0..STEPS_MAX {
                let is_dated = self.date(&row, house).await?;
                more |= !is_dated;
                let is_old = row.heard_ns.saturating_add(COMMITTED_KEPT.as_nanos() as u64) < now_ns()
                    // A commit of a job may be repeated until the job is over.
                    && !self.state().outputs.has(row.put);
                if is_dated && (!is_old || !self.store.forget_cluster_put(row.put, ROWS_AT_ONCE).await?) {
                    break;
                }
            }
        }
        Ok(more)
    }

    /// Writes versions to names of a committed put. Returns whether all names have theirs.
    async fn date(&self, row: &ClusterPutRow, house: &mut House) -> Result<bool, CatalogError> {
        let Some(version) = row.version.filter(|_| !house.dated.contains(&row.put)) else { return Ok(true) };
        let after = house.last_names.remove(&row.put);
        match self.store.date_cluster_names(row.put, version, after.as_ref(), ROWS_AT_ONCE).await? {
            Some(last) => drop(house.last_names.insert(row.put, last)),
            None => drop(house.dated.insert(row.put)),
        }
        Ok(house.dated.contains(&row.put))
    }

    /// Returns the versions that readers and jobs read; None if names must not be retired yet.
    fn read_versions(&self) -> Option<Vec<FileVersion>> {
        let mut state = self.state();
        let mut versions = state.leases.read_versions(Instant::now())?;
        versions.extend(state.jobs.versions());
        versions.sort_unstable();
        versions.dedup();
        Some(versions)
    }

    /// Removes names that no version needs.
    async fn retire(&self) -> Result<bool, CatalogError> {
        for _ in 0..STEPS_MAX {
            let _alone = self.retiring.lock().await;
            let Some(versions) = self.read_versions() else { return Ok(false) };
            let retired = self.store.retire_file_names(FileSpace::Cluster, &RetirePins { versions }).await?;
            if !retired.more {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Orders the removal of files that no name needs. A disk that is not reachable loses its rows now: its files are
    /// found unknown when it returns.
    async fn remove_files(&self) -> Result<bool, CatalogError> {
        let files = self.store.removed_cluster_files(REMOVED_AT_ONCE).await?;
        if files.is_empty() {
            return Ok(false);
        }
        let (mut dropped, mut free): (Vec<_>, Vec<ConcreteId>) = (Vec::new(), Vec::new());
        {
            let mut state = self.state();
            let now = Instant::now();
            for file in &files {
                let concrete = file.row.concrete;
                let mut holders = 0;
                for id in &file.disks {
                    match state.disks.get_mut(*id).filter(|disk| disk.reach(now).is_some()) {
                        Some(disk) => {
                            holders += 1;
                            disk.orders.remove(concrete);
                        }
                        None => {
                            dropped.push((concrete, *id));
                            // Its node may only have been slow.
                            state.disks.get_mut(*id).into_iter().for_each(Disk::wants_listing);
                        }
                    }
                }
                if holders == 0 {
                    free.push(concrete);
                }
            }
        }
        self.store.drop_replicas(&dropped).await?;
        if !free.is_empty() {
            self.store.forget_removed_cluster_files(&free).await?;
        }
        Ok(files.len() == REMOVED_AT_ONCE as usize && !free.is_empty())
    }
}
