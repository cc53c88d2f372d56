//! The thread that reports the stored files of this node to the server each second, and passes its orders on.

use crate::stored::disk_orders::{DiskOrder, follow_orders};
use crate::stored::fetch::FetchPool;
use crate::stored::files::{DiskInUse, StoredFiles};
use crate::stored::local_files::{EarlyCopies, LocalFiles};
use crate::stored::scrub::scrub;
use api::StoredPart;
use api::stored::cluster::StoredOrders;
use ids::DiskId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

const TELL_EVERY: Duration = Duration::from_secs(1);

/// Starts the threads for stored files; they end with the files.
pub(crate) fn start(files: &Arc<StoredFiles>, copies: &Arc<LocalFiles>) -> std::io::Result<()> {
    let pool = FetchPool::start(files)?;
    let early = EarlyCopies::start(copies, files)?;
    let files = Arc::clone(files);
    let thread = std::thread::Builder::new().name("stored-files".to_string());
    thread.spawn(move || keep(&files, &pool, &early))?;
    Ok(())
}

fn keep(files: &Arc<StoredFiles>, pool: &FetchPool, early: &EarlyCopies) {
    let mut refused = BTreeMap::new();
    while !files.ending.has_ended() {
        for (disk, inbox) in files.open_disks() {
            if let Err(error) = work_on(files, &disk, inbox) {
                tracing::warn!(%error, "cannot start the threads of a disk with stored files");
            }
        }
        let was_told = files.tell(|disks, mut orders| {
            note_refusals(&mut refused, &orders.refused);
            early.take(std::mem::take(&mut orders.copy_early));
            pass_on(files, pool, disks, orders);
        });
        if was_told && files.reports.has_more() {
            files.reports.wake();
        }
        match was_told {
            true => files.reports.wait(TELL_EVERY),
            false => files.ending.rest(TELL_EVERY),
        }
    }
}

/// Starts the threads of a disk.
fn work_on(files: &Arc<StoredFiles>, of: &DiskInUse, inbox: Receiver<DiskOrder>) -> std::io::Result<()> {
    let thread = |name: &str| std::thread::Builder::new().name(name.to_string());
    let (all, disk) = (Arc::clone(files), Arc::clone(&of.disk));
    thread("stored-disk").spawn(move || follow_orders(&all, &disk, &inbox))?;
    let (all, disk) = (Arc::clone(files), Arc::clone(&of.disk));
    thread("stored-scrub").spawn(move || scrub(&all, &disk))?;
    Ok(())
}

/// Warns once of each disk that the server does not use.
fn note_refusals(known: &mut BTreeMap<String, String>, refused: &[(String, String)]) {
    for (uuid, reason) in refused {
        if known.get(uuid) != Some(reason) {
            tracing::warn!(disk = uuid, reason, "the server does not use a disk for stored files");
        }
    }
    *known = refused.iter().cloned().collect();
}

fn pass_on(files: &StoredFiles, pool: &FetchPool, disks: &[DiskInUse], orders: StoredOrders) {
    for (each, number) in disks.iter().zip(orders.disks) {
        each.disk.set_number(number);
    }
    // An order that finds no room in a queue is dropped: the server orders again what the next inventory shows.
    let send = |number: DiskId, order: DiskOrder| {
        let to = disks.iter().find(|each| each.disk.number() == Some(number));
        if to.is_none_or(|to| to.orders.try_send(order).is_err()) {
            tracing::debug!(disk = %number, "an order for a disk was dropped");
        }
    };
    for removal in orders.remove {
        send(removal.disk, DiskOrder::Remove(removal.files));
    }
    let mut looks: BTreeMap<DiskId, Vec<StoredPart>> = BTreeMap::new();
    for look in orders.look {
        match look.verifies {
            true => send(look.disk, DiskOrder::Verify(look.file)),
            false => looks.entry(look.disk).or_default().push(look.file),
        }
    }
    looks.into_iter().for_each(|(disk, parts)| send(disk, DiskOrder::Look(parts)));
    orders.list.into_iter().for_each(|disk| send(disk, DiskOrder::List));
    pool.take(files, orders.fetch);
}
