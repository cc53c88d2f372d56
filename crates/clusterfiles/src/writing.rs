//! Places for parts of a put, and their replicas: the first disk gets the bytes from the client, the others fetch them
//! from its node.

use crate::connection::{Connection, of_node, peer_of};
use api::StoredPart;
use api::stored::cluster::{PlaceStored, StoredNode, StoredPut};
use dataport::{DataClient, PartRange};
use filestore::FilesError;
use filetransfer::TransferError;
use ids::{DiskId, NodeId};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a disk that failed or refused gets nothing more.
const AVOIDED: Duration = Duration::from_secs(60);
/// Maximum number of tries to find disks for missing replicas; the server adds what is missing after that.
const REPLICA_TRIES_MAX: u32 = 4;
/// Tries to find a first disk, and the pause between them, which grows.
const PLACE_TRIES_MAX: u32 = 8;
const PLACE_PAUSE: Duration = Duration::from_millis(250);
/// Pause after a node did not accept a right that the server gave.
const KEY_PAUSE: Duration = Duration::from_secs(2);

/// The choice of disks for the parts of a put.
pub(crate) struct Writing<'a> {
    pub connection: &'a Connection,
    of: StoredPut,
    replicas: usize,
    failed: Mutex<HashMap<DiskId, Instant>>,
}

impl<'a> Writing<'a> {
    pub fn new(connection: &'a Connection, of: StoredPut, replicas: u32) -> Self {
        Self { connection, of, replicas: replicas.max(1) as usize, failed: Mutex::default() }
    }

    fn failed(&self) -> MutexGuard<'_, HashMap<DiskId, Instant>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the put avoid a disk for some time.
    pub fn avoid(&self, disk: DiskId) {
        self.failed().insert(disk, Instant::now());
    }

    fn avoided(&self) -> Vec<DiskId> {
        let mut failed = self.failed();
        failed.retain(|_, at| at.elapsed() < AVOIDED);
        failed.keys().copied().collect()
    }

    fn ask(&self, bytes: u64, avoid: Vec<DiskId>) -> Result<Vec<StoredNode>, FilesError> {
        let place = PlaceStored { of: self.of, bytes, avoid };
        Ok(self.connection.ask(async |client| client.place_stored(&place).await)?.disks)
    }

    /// Returns disks for so many bytes, at least one. `avoid`: disks that may have a half of them.
    pub fn place(&self, bytes: u64, avoid: &[DiskId]) -> Result<Vec<StoredNode>, FilesError> {
        let mut avoided = self.avoided();
        avoided.extend(avoid);
        avoided.sort_unstable();
        avoided.dedup();
        let have_failed = !avoided.is_empty();
        for tried in 1.. {
            match self.ask(bytes, avoided.clone()) {
                Ok(disks) if !disks.is_empty() => return Ok(disks),
                // There may be no others, and a node may be back soon. It refuses a part of which it has a half.
                Ok(_) | Err(FilesError::Remote { .. }) if have_failed && tried < PLACE_TRIES_MAX => {
                    std::thread::sleep(PLACE_PAUSE * tried);
                    avoided.clear();
                }
                Ok(_) => break,
                Err(error) => return Err(error),
            }
        }
        let reason = format!("no node of the cluster takes {bytes} bytes more");
        Err(TransferError::Node { reason }.into())
    }

    /// Makes the replicas of parts that a disk has synced. Returns all disks that have them, also if they are too few: the
    /// server adds others. Fails if the only node that has them cannot be read: the parts are written again then.
    pub fn replicate(
        &self,
        client: &DataClient,
        parts: &[StoredPart],
        places: &[StoredNode],
    ) -> Result<Vec<DiskId>, TransferError> {
        let Some((first, others)) = places.split_first() else { return Ok(Vec::new()) };
        let wanted = self.replicas.min(places.len());
        let bytes = parts.iter().map(|part| part.bytes).sum();
        let mut have = vec![first.clone()];
        let mut source = first.clone();
        let mut refused = Vec::new();
        let mut others: Vec<StoredNode> = others.to_vec();
        for tried in 1.. {
            others.truncate(wanted - have.len());
            let mut failed = Vec::new();
            for (place, is_there) in fetched(client, source.node, parts, &others) {
                if is_there { have.push(place) } else { failed.push(place.disk) }
            }
            // The cause may be the node that they fetch from.
            let is_source_dead = !failed.is_empty() && !can_be_read(client, &source, parts);
            if is_source_dead {
                self.avoid(source.disk);
                source = match have.iter().find(|place| place.disk != source.disk) {
                    Some(other) => other.clone(),
                    None => {
                        let reason = format!("{} failed before another node had its files", source.node_name);
                        return Err(TransferError::Node { reason });
                    }
                };
            } else {
                failed.iter().for_each(|disk| self.avoid(*disk));
                refused.extend(failed);
            }
            if have.len() >= wanted || tried == REPLICA_TRIES_MAX {
                break;
            }
            let mut avoid = self.avoided();
            avoid.extend(have.iter().map(|place| place.disk).chain(refused.iter().copied()));
            avoid.sort_unstable();
            avoid.dedup();
            // The server adds replicas later for which there is no disk now.
            let Ok(found) = self.ask(bytes, avoid) else { break };
            let is_new = |place: &StoredNode| {
                !have.iter().any(|other| other.node == place.node) && !refused.contains(&place.disk)
            };
            others = found.into_iter().filter(is_new).collect();
            if others.is_empty() {
                break;
            }
        }
        Ok(have.into_iter().map(|place| place.disk).collect())
    }
}

/// Returns whether a node answers with a byte of these parts.
fn can_be_read(client: &DataClient, place: &StoredNode, parts: &[StoredPart]) -> bool {
    let Some(part) = parts.last() else { return true };
    let range = PartRange { part: *part, offset: 0, bytes: 1 };
    let read = client.read_parts(&peer_of(place), vec![range]);
    read.and_then(|mut stream| stream.next_piece()).is_ok()
}

/// Asks the nodes of disks to fetch parts, all at once. Returns whether each has them.
fn fetched(
    client: &DataClient,
    from: NodeId,
    parts: &[StoredPart],
    places: &[StoredNode],
) -> Vec<(StoredNode, bool)> {
    let fetch = |place: &StoredNode| {
        let peer = peer_of(place);
        client.ask_to_fetch(&peer, place.disk, from, parts).is_ok()
    };
    std::thread::scope(|scope| {
        let (last, others) = match places.split_last() {
            Some(split) => split,
            None => return Vec::new(),
        };
        let asked: Vec<_> = others.iter().map(|place| (place, scope.spawn(move || fetch(place)))).collect();
        let mut all = vec![(last.clone(), fetch(last))];
        all.extend(asked.into_iter().map(|(place, thread)| (place.clone(), thread.join().unwrap_or(false))));
        all
    })
}

/// Converts an error of a data port, and avoids its disk if the node is the cause.
pub(crate) fn failed_at(writing: &Writing<'_>, disk: DiskId, error: &dataport::DataError) -> TransferError {
    if error.is_wrong_token() {
        // After a restart of the server a node needs a moment to learn its new key.
        std::thread::sleep(KEY_PAUSE);
    }
    let error = of_node(error);
    if matches!(error, TransferError::Node { .. }) {
        writing.avoid(disk);
    }
    error
}
