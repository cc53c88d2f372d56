//! The quota of a user: bytes of stored files, without replicas. It is checked before bytes travel.

use crate::error::CatalogError;
use crate::nodes::disks::Disk;
use crate::{Asker, Catalog, State};
use ids::{DiskId, PutId};
use rows::ClusterPutRow;
use std::collections::BTreeSet;

/// Bytes of a put that got places and are not recorded yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Travelling {
    user: String,
    bytes: u64,
    /// The disks that parts of the put were sent to.
    disks: BTreeSet<DiskId>,
}

impl State {
    /// Notes disks that parts of a put are sent to.
    pub fn will_travel_to(&mut self, row: &ClusterPutRow, disks: &[DiskId]) {
        let travelling = self.travelling.entry(row.put).or_default();
        travelling.user.clone_from(&row.user);
        travelling.disks.extend(disks);
    }

    /// Forgets a put that was given up. A part may lie on a disk without a row, because its put ended before the part was
    /// recorded: the disks of the put list their files. After a restart any disk may have such a part.
    pub fn put_was_given_up(&mut self, put: PutId) {
        self.short.remove(&put);
        match self.travelling.remove(&put) {
            Some(travelling) => {
                for disk in travelling.disks {
                    self.disks.get_mut(disk).into_iter().for_each(Disk::wants_listing_again);
                }
            }
            None => self.disks.iter_mut().for_each(Disk::wants_listing_again),
        }
    }
}

impl Catalog {
    /// Returns an error if the user may not store so many more bytes.
    pub(crate) async fn check_quota(
        &self,
        asker: &Asker,
        user: &str,
        bytes: u64,
    ) -> Result<(), CatalogError> {
        let Some(bytes_max) = asker.bytes_max else { return Ok(()) };
        let stored = self.store.stored_bytes_of(user).await?;
        let travelling: u64 = {
            let state = self.state();
            let own = state.travelling.values().filter(|travelling| travelling.user == user);
            own.fold(0, |sum, travelling| sum.saturating_add(travelling.bytes))
        };
        match stored.saturating_add(travelling).saturating_add(bytes) <= bytes_max {
            true => Ok(()),
            false => Err(CatalogError::OverQuota { user: user.to_string(), stored, bytes_max }),
        }
    }

    /// Notes bytes that got places.
    pub(crate) fn will_travel(&self, row: &ClusterPutRow, bytes: u64) {
        let mut state = self.state();
        let travelling = state.travelling.entry(row.put).or_default();
        travelling.user.clone_from(&row.user);
        travelling.bytes = travelling.bytes.saturating_add(bytes);
    }

    /// Notes bytes that are recorded.
    pub(crate) fn have_arrived(&self, put: PutId, bytes: u64) {
        if let Some(travelling) = self.state().travelling.get_mut(&put) {
            travelling.bytes = travelling.bytes.saturating_sub(bytes);
        }
    }
}
