//! Intermediate files of users: their list, their locations, and the readers that wait for them. Their bytes travel
//! between users and nodes directly; nodes report when a file is complete, abandoned, or replicated. A file without a
//! replica is lost with its node, until the node returns.

mod held;
mod rights;

pub(crate) use held::disks_taken;
pub use rights::NamedFile;

use crate::interface::{ControlError, Outbox, Reply};
use crate::job::Jobs;
use crate::membership::Fleet;
use api::control::NodeOrder;
use api::data_access::FileCopy;
use api::intermediate::{
    CreatedIntermediate, IntermediateChange, IntermediateList, IntermediateNews, IntermediateNote,
    IntermediatePlace, IntermediateState, IntermediateStatus, NewIntermediate, OpenedIntermediate,
    SILENCE_SECONDS, SILENCE_SECONDS_MAX, USER_INTERMEDIATES_MAX, is_intermediate_name,
};
use api::machine::DiskState;
use api::stored::cluster::StoredGroups;
use filetree::Changer;
use ids::{IntermediateId, NodeId};
use rows::{Change, IntermediateReplicaRow};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Maximum number of files of all users; they are in memory.
const FILES_MAX: usize = 200_000;
/// Maximum number of readers that wait for files being written.
const WAITING_MAX: usize = 4096;
/// How long a lost or abandoned file is remembered, so that a reader learns the reason.
const FAILED_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// Longest reason of a node that is stored, in bytes.
const REASON_BYTES_MAX: usize = 1000;

/// Requests about intermediate files.
pub enum FileRequest {
    /// Opens a file for reading. With `wait`, the answer comes when the file is no longer being written.
    Open {
        of: NamedFile,
        wait: bool,
        reply: Reply<OpenedIntermediate>,
    },
    /// Lists the files that a user may read.
    List {
        changer: Changer,
        reply: Reply<IntermediateList>,
    },
    Remove {
        of: NamedFile,
        reply: Reply<()>,
    },
    Change {
        of: NamedFile,
        change: IntermediateChange,
        reply: Reply<()>,
    },
    News {
        node: NodeId,
        news: IntermediateNews,
        reply: Reply<NewsAnswer>,
    },
}

/// The answer to a node's notes about intermediate files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewsAnswer {
    /// Files that the node must drop.
    pub dropped: Vec<IntermediateId>,
    /// Copies that the node may send.
    pub copies: Vec<FileCopy>,
}

/// All intermediate files.
#[derive(Default)]
pub(crate) struct IntermediateFiles {
    files: BTreeMap<IntermediateId, IntermediateStatus>,
    names: BTreeMap<(String, String), IntermediateId>,
    waiting: Vec<(IntermediateId, Reply<OpenedIntermediate>)>,
}

impl IntermediateFiles {
    fn named(&self, user: &str, name: &str) -> Option<&IntermediateStatus> {
        let id = self.names.get(&(user.to_string(), name.to_string()))?;
        self.files.get(id)
    }

    fn count_of(&self, user: &str) -> usize {
        let of_user = self.names.range((user.to_string(), String::new())..);
        of_user.take_while(|((owner, _), _)| owner == user).count()
    }

    /// Returns the bytes of all complete files of a user.
    fn bytes_of(&self, user: &str) -> u64 {
        let of_user = self.names.range((user.to_string(), String::new())..);
        let of_user = of_user.take_while(|((owner, _), _)| owner == user);
        of_user.filter_map(|(_, file)| self.files.get(file)?.bytes).sum()
    }

    fn insert(&mut self, row: IntermediateStatus) {
        self.names.insert((row.user.clone(), row.name.clone()), row.file);
        self.files.insert(row.file, row);
    }

    fn remove(&mut self, file: IntermediateId) -> Option<IntermediateStatus> {
        let row = self.files.remove(&file)?;
        self.names.remove(&(row.user.clone(), row.name.clone()));
        Some(row)
    }

    /// Returns whether a node holds the only copy of a file, or a file is being written there.
    pub fn need(&self, node: NodeId) -> bool {
        let is_live = |row: &IntermediateStatus| {
            matches!(row.state, IntermediateState::Writing | IntermediateState::Complete)
        };
        self.files.values().any(|row| row.node == node && row.replica.is_none() && is_live(row))
    }

    /// Returns the number of files that are being written on a node.
    fn load_of(&self, node: NodeId) -> usize {
        self.files.values().filter(|row| row.node == node && row.state == IntermediateState::Writing).count()
    }
}

/// Handles a request about files that needs nothing from the store.
pub(crate) fn handle(
    all: &mut IntermediateFiles,
    fleet: &mut Fleet,
    outbox: &mut Outbox,
    request: FileRequest,
) {
    match request {
        FileRequest::Open { of, wait, reply } => open(all, fleet, outbox, &of, wait, reply),
        FileRequest::List { changer, reply } => {
            let by_name = all.names.values().filter_map(|file| all.files.get(file));
            let files = by_name.filter(|row| rights::reads(&changer, row)).cloned().collect();
            outbox.answer(reply, Ok(IntermediateList { files }));
        }
        FileRequest::Remove { of, reply } => {
            let file = rights::writable(all, &of).map(|row| row.file);
            let answer = file.map(|file| remove_intermediates(all, fleet, outbox, [file]));
            outbox.answer(reply, answer);
        }
        FileRequest::Change { of, change, reply } => {
            let answer = rights::change(all, outbox, &of, change);
            outbox.answer(reply, answer);
        }
        FileRequest::News { node, news, reply } => {
            match fleet.heard(node, &news.incarnation, outbox.moment()).map(drop) {
                Err(error) => outbox.answer(reply, Err(error)),
                Ok(()) => {
                    let mut dropped = Vec::new();
                    for note in news.notes {
                        dropped.extend(file_noted(all, fleet, outbox, node, note));
                    }
                    let may_send = |copy: &FileCopy| may_copy(all, fleet, node, copy);
                    let copies = news.copies.into_iter().filter(may_send).collect();
                    outbox.answer(reply, Ok(NewsAnswer { dropped, copies }));
                }
            }
        }
    }
}

/// Returns whether a node may send its copy of a file to another node.
fn may_copy(all: &IntermediateFiles, fleet: &Fleet, node: NodeId, copy: &FileCopy) -> bool {
    let row = all.files.get(&copy.file);
    let is_whole = |row: &IntermediateStatus| row.node == node && row.state == IntermediateState::Complete;
    row.is_some_and(is_whole) && fleet.has(copy.to)
}

/// A file that may be created and has no number yet.
pub struct NewFile {
    user: String,
    new: NewIntermediate,
    /// The groups of the file that it replaces.
    groups: StoredGroups,
    node: NodeId,
    /// Bytes that the quota of the user still allows.
    room_bytes: Option<u64>,
}

/// Returns an error for a file that may not be created. `bytes_max`: the byte quota of its owner for all files.
pub(crate) fn check_create(
    all: &IntermediateFiles,
    fleet: &Fleet,
    jobs: &Jobs,
    of: NamedFile,
    new: NewIntermediate,
    bytes_max: Option<u64>,
) -> Result<NewFile, ControlError> {
    // Another user may only replace a file.
    if !of.changer.has(&of.user) {
        rights::writable(all, &of)?;
    }
    let NamedFile { user, .. } = of;
    let replaced = all.named(&user, &new.name);
    let groups = replaced.map(|row| row.groups.clone()).unwrap_or_default();
    let stored_bytes = all.bytes_of(&user).saturating_sub(replaced.and_then(|row| row.bytes).unwrap_or(0));
    let room_bytes = bytes_max.map(|bytes_max| bytes_max.saturating_sub(stored_bytes));
    let node = check_new(all, fleet, jobs, &user, &new)?;
    if let (Some(bytes_max), Some(0)) = (bytes_max, room_bytes) {
        return Err(ControlError::TooManyIntermediateBytes { user, bytes_max });
    }
    Ok(NewFile { user, new, groups, node, room_bytes })
}

/// Creates a file under a number that no file had before.
pub(crate) fn create(
    all: &mut IntermediateFiles,
    fleet: &mut Fleet,
    outbox: &mut Outbox,
    file: IntermediateId,
    new: NewFile,
    reply: Reply<CreatedIntermediate>,
) {
    let NewFile { user, new, groups, node, room_bytes } = new;
    let replaced = all.named(&user, &new.name).map(|row| row.file);
    remove_intermediates(all, fleet, outbox, replaced);
    let keep_ns = |seconds: u64| seconds.saturating_mul(1_000_000_000).min(i64::MAX as u64);
    let row = IntermediateStatus {
        file,
        user,
        name: new.name,
        groups,
        former: Vec::new(),
        job: new.job,
        state: IntermediateState::Writing,
        node,
        replica: None,
        bytes: None,
        crc32c: None,
        created_ns: outbox.now_ns(),
        closed_ns: None,
        keep_ns: new.keep_seconds.map(keep_ns),
        expires_ns: None,
        problem: None,
    };
    let silence_seconds = new.silence_seconds;
    order_begin(fleet, &row, silence_seconds);
    outbox.write(Change::Intermediate { row: Box::new(row.clone()) });
    all.insert(row);
    let place = place_on(fleet, node).ok_or(ControlError::NoNodeForFile);
    let created = place.map(|place| {
        let bytes_max = room_bytes;
        CreatedIntermediate { bytes_max, file, place, silence_seconds, grant: None }
    });
    outbox.answer(reply, created);
}

fn order_begin(fleet: &mut Fleet, row: &IntermediateStatus, silence_seconds: u32) {
    if let Some(known) = fleet.get_mut(row.node) {
        known.order(NodeOrder::BeginIntermediate { file: row.file, silence_seconds });
    }
}

/// Returns the node that stores a new file, or an error if the file may not be created.
fn check_new(
    all: &IntermediateFiles,
    fleet: &Fleet,
    jobs: &Jobs,
    user: &str,
    new: &NewIntermediate,
) -> Result<NodeId, ControlError> {
    let NewIntermediate { name, job, silence_seconds, near, .. } = new;
    if !is_intermediate_name(name) {
        return Err(ControlError::BadIntermediateName { name: name.clone() });
    }
    if !(1..=SILENCE_SECONDS_MAX).contains(silence_seconds) {
        return Err(ControlError::BadSilence { seconds: *silence_seconds });
    }
    let known = all.named(user, name);
    // A lost or abandoned file of the same name is replaced in any case.
    if let Some(known) = known.filter(|_| !new.replace)
        && matches!(known.state, IntermediateState::Writing | IntermediateState::Complete)
    {
        let (name, state) = (name.clone(), known.state.word());
        return Err(ControlError::IntermediateExists { name, state });
    }
    if let Some(job) = job.filter(|job| jobs.get(job).is_none_or(|job| job.outcome().is_some())) {
        return Err(ControlError::UnknownJob { job });
    }
    let is_full = all.files.len() >= FILES_MAX || all.count_of(user) >= USER_INTERMEDIATES_MAX;
    if is_full && known.is_none() {
        return Err(ControlError::TooManyIntermediates { max: USER_INTERMEDIATES_MAX });
    }
    node_for_file(all, fleet, near.as_deref()).ok_or(ControlError::NoNodeForFile)
}

/// Returns the node for a new file: the writer's own node if it accepts data, otherwise a node of its rack, otherwise
/// any. Among equals it is the node with the fewest writers, and after that with the most free space.
fn node_for_file(all: &IntermediateFiles, fleet: &Fleet, near: Option<&str>) -> Option<NodeId> {
    let near = near.and_then(|name| fleet.named(name).ok());
    let rack = near.and_then(|node| fleet.get(node)).map(|node| node.info().rack.clone());
    let weighed = fleet.each().filter(|(_, node)| node.takes_chunks() && !node.info().data_url.is_empty());
    let weighed = weighed.map(|(id, node)| {
        let is_far = near != Some(id);
        let is_in_other_rack = rack.as_ref().is_some_and(|rack| *rack != node.info().rack);
        let usable = node.disks().iter().filter(|disk| disk.state == DiskState::Usable);
        let free_bytes: u64 = usable.map(|disk| disk.free_bytes).sum();
        (is_far, is_in_other_rack, all.load_of(id), Reverse(free_bytes), id)
    });
    weighed.min().map(|(.., node)| node)
}

pub(crate) fn place_on(fleet: &Fleet, node: NodeId) -> Option<IntermediatePlace> {
    let known = fleet.get(node)?;
    Some(IntermediatePlace {
        node,
        node_name: known.info().name.clone(),
        data_url: known.info().data_url.clone(),
        // A process that joins gets a number that no process had before.
        incarnation: u64::from(node.0),
    })
}

pub(crate) fn opened(fleet: &Fleet, status: &IntermediateStatus) -> OpenedIntermediate {
    let nodes = [Some(status.node), status.replica].into_iter().flatten();
    let places = match status.state {
        IntermediateState::Complete => nodes.filter_map(|node| place_on(fleet, node)).collect(),
        _ => Vec::new(),
    };
    OpenedIntermediate { status: status.clone(), places, grant: None }
}

fn open(
    all: &mut IntermediateFiles,
    fleet: &Fleet,
    outbox: &mut Outbox,
    of: &NamedFile,
    wait: bool,
    reply: Reply<OpenedIntermediate>,
) {
    let row = match rights::readable(all, of) {
        Ok(row) => row,
        Err(error) => return outbox.answer(reply, Err(error)),
    };
    if wait && row.state == IntermediateState::Writing {
        let file = row.file;
        all.waiting.retain(|(_, reply)| !reply.is_gone());
        if all.waiting.len() >= WAITING_MAX {
            return outbox.answer(reply, Err(ControlError::TooManyReaders { max: WAITING_MAX }));
        }
        return all.waiting.push((file, reply));
    }
    let opened = opened(fleet, row);
    outbox.answer(reply, Ok(opened));
}

/// Answers the readers that wait for a file that is no longer being written.
fn tell_readers(
    all: &mut IntermediateFiles,
    fleet: &mut Fleet,
    outbox: &mut Outbox,
    file: IntermediateId,
    name: &str,
) {
    let waiting = std::mem::take(&mut all.waiting);
    let (told, waiting): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|(wanted, _)| *wanted == file);
    all.waiting = waiting;
    for (_, reply) in told {
        let row = all.files.get(&file);
        let answer = row.map(|row| opened(fleet, row));
        let name = name.to_string();
        outbox.answer(reply, answer.ok_or(ControlError::UnknownIntermediate { name }));
    }
}

/// Stores a change of a file, and answers the readers that wait for it.
fn file_changed(
    all: &mut IntermediateFiles,
    fleet: &mut Fleet,
    outbox: &mut Outbox,
    row: IntermediateStatus,
) {
    let (file, name) = (row.file, row.name.clone());
    outbox.write(Change::Intermediate { row: Box::new(row.clone()) });
    all.insert(row);
    tell_readers(all, fleet, outbox, file, &name);
}

fn file_failed(
    all: &mut IntermediateFiles,
    fleet: &mut Fleet,
    outbox: &mut Outbox,
    row: IntermediateStatus,
    state: IntermediateState,
    problem: String,
) {
    let kept_until_ns = outbox.now_ns().saturating_add(FAILED_KEPT.as_nanos() as u64);
    let expires_ns = Some(row.expires_ns.map_or(kept_until_ns, |expires_ns| expires_ns.min(kept_until_ns)));
    file_changed(all, fleet, outbox, IntermediateStatus { state, problem: Some(problem), expires_ns, ..row });
}

/// Removes files from the table and orders their nodes to drop them.
fn remove_intermediates(
    all: &mut IntermediateFiles,
    fleet: &mut Fleet,
    outbox: &mut Outbox,
    files: impl IntoIterator<Item = IntermediateId>,
) {
    let mut on_nodes: BTreeMap<NodeId, Vec<IntermediateId>> = BTreeMap::new();
    for file in files {
        let Some(row) = all.remove(file) else { continue };
        for node in [Some(row.node), row.replica].into_iter().flatten() {
            on_nodes.entry(node).or_default().push(file);
        }
        outbox.write(Change::IntermediateRemoved { file });
        tell_readers(all, fleet, outbox, file, &row.name);
    }
    for (node, files) in on_nodes {
        if let Some(known) = fleet.get_mut(node) {
            known.order(NodeOrder::DropIntermediates { files });
        }
    }
}

/// Handles a note of a node about its files. Returns the files whose copies the node must drop.
fn file_noted(
    all: &mut IntermediateFiles,
    fleet: &mut Fleet,
    outbox: &mut Outbox,
    node: NodeId,
    note: IntermediateNote,
) -> Vec<IntermediateId> {
    match note {
        IntermediateNote::Closed { file, bytes, crc32c } => {
            let known = all.files.get(&file).filter(|row| row.node == node);
            let Some(row) = known.cloned() else { return vec![file] };
            match row.state {
                IntermediateState::Writing => {
                    let closed_ns = outbox.now_ns();
                    let expires_ns = row.keep_ns.map(|keep_ns| closed_ns.saturating_add(keep_ns));
                    let state = IntermediateState::Complete;
                    let (bytes, crc32c, closed_ns) = (Some(bytes), Some(crc32c), Some(closed_ns));
                    file_changed(
                        all,
                        fleet,
                        outbox,
                        IntermediateStatus { state, bytes, crc32c, closed_ns, expires_ns, ..row },
                    );
                    Vec::new()
                }
                // A repeated report: the answer to the first one was lost.
                IntermediateState::Complete if (row.bytes, row.crc32c) == (Some(bytes), Some(crc32c)) => {
                    Vec::new()
                }
                _ => vec![file],
            }
        }
        IntermediateNote::Abandoned { file, reason } => {
            let known = all.files.get(&file).filter(|row| row.node == node);
            if let Some(row) = known.filter(|row| row.state == IntermediateState::Writing).cloned() {
                let reason = reason.replace('\0', "\u{fffd}");
                let cut = reason.floor_char_boundary(REASON_BYTES_MAX);
                file_failed(all, fleet, outbox, row, IntermediateState::Abandoned, reason[..cut].to_string());
            }
            Vec::new()
        }
        IntermediateNote::Replicated { file, to, bytes, single_ns } => {
            file_replicated(
                all,
                fleet,
                outbox,
                node,
                IntermediateReplicaRow { file, node: to, bytes, single_ns },
            );
            Vec::new()
        }
        IntermediateNote::Holds { files, writing } => {
            let is_meant = |row: &IntermediateStatus| {
                let is_live = matches!(row.state, IntermediateState::Writing | IntermediateState::Complete);
                is_live && row.node == node
            };
            let known = |file: &IntermediateId| all.files.get(file).is_some_and(is_meant);
            let mut dropped: Vec<IntermediateId> = writing.into_iter().filter(|file| !known(file)).collect();
            dropped.extend(held::compare(all, fleet, outbox, node, files));
            dropped
        }
    }
}

fn file_replicated(
    all: &mut IntermediateFiles,
    fleet: &mut Fleet,
    outbox: &mut Outbox,
    node: NodeId,
    mut told: IntermediateReplicaRow,
) {
    let file = told.file;
    let known = all.files.get(&file);
    let is_complete = |row: &&IntermediateStatus| row.state == IntermediateState::Complete;
    let Some(row) = known.filter(is_complete).filter(|row| row.node == node).cloned() else {
        // The file was removed while its copy was on its way.
        if known.is_none_or(|row| row.node != told.node && row.replica != Some(told.node))
            && let Some(other) = fleet.get_mut(told.node)
        {
            other.order(NodeOrder::DropIntermediates { files: vec![file] });
        }
        return;
    };
    // If the receiving node is lost by now, the holder notices and sends the file to another node.
    if told.node == node || !fleet.has(told.node) {
        return;
    }
    // A number from a node must fit the store.
    told.bytes = told.bytes.min(i64::MAX as u64);
    told.single_ns = told.single_ns.min(i64::MAX as u64);
    if row.replica == Some(told.node) {
        return;
    }
    // A node that came back had the file already, and the holder had begun to send it elsewhere.
    if let Some(older) = row.replica.and_then(|older| fleet.get_mut(older)) {
        older.order(NodeOrder::DropIntermediates { files: vec![file] });
    }
    outbox.write(Change::IntermediateReplica { row: told });
    all.insert(IntermediateStatus { replica: Some(told.node), ..row });
}

/// Handles the loss of a node: promotes replicas, and marks files without one as lost.
pub(crate) fn files_gone(
    all: &mut IntermediateFiles,
    fleet: &mut Fleet,
    outbox: &mut Outbox,
    node: NodeId,
    node_name: &str,
) {
    let concerned = |row: &&IntermediateStatus| row.node == node || row.replica == Some(node);
    let concerned: Vec<IntermediateStatus> = all.files.values().filter(concerned).cloned().collect();
    let mut adopted: BTreeMap<NodeId, Vec<IntermediateId>> = BTreeMap::new();
    for row in concerned {
        let (file, replica) = (row.file, row.replica.filter(|replica| fleet.has(*replica)));
        if row.replica.is_some() {
            outbox.write(Change::IntermediateReplicaGone { file });
        }
        let row = IntermediateStatus { replica: None, ..row };
        let row = held::had_by(row, node);
        match (row.state, replica) {
            (IntermediateState::Writing, _) => {
                let problem = format!("the node {node_name} was lost while it was written there");
                file_failed(all, fleet, outbox, row, IntermediateState::Abandoned, problem);
            }
            (IntermediateState::Complete, _) if row.node != node => {
                // The holder notices and sends the file to another node.
                file_changed(all, fleet, outbox, row);
            }
            (IntermediateState::Complete, Some(replica)) => {
                adopted.entry(replica).or_default().push(file);
                file_changed(all, fleet, outbox, IntermediateStatus { node: replica, ..row });
            }
            (IntermediateState::Complete, None) => {
                let problem = format!(
                    "the node {node_name}, which had the only copy, is gone; the file can be read again when the node is \
                     started on its disk"
                );
                file_failed(all, fleet, outbox, row, IntermediateState::Lost, problem);
            }
            (IntermediateState::Abandoned | IntermediateState::Lost, _) => {
                all.insert(row);
            }
        }
    }
    order_adopted(fleet, outbox, adopted);
}

fn order_adopted(fleet: &mut Fleet, outbox: &mut Outbox, adopted: BTreeMap<NodeId, Vec<IntermediateId>>) {
    for (node, files) in adopted {
        outbox.info(format!("{} intermediate files have their first copy on {node}", files.len()));
        if let Some(known) = fleet.get_mut(node) {
            known.order(NodeOrder::AdoptIntermediates { files });
        }
    }
}

/// Removes the files that have expired, and the files of jobs that are over.
pub(crate) fn end_files(all: &mut IntermediateFiles, fleet: &mut Fleet, jobs: &Jobs, outbox: &mut Outbox) {
    let now_ns = outbox.now_ns();
    let is_over = |row: &&IntermediateStatus| {
        row.expires_ns.is_some_and(|expires_ns| expires_ns <= now_ns)
            || row.job.is_some_and(|job| !jobs.contains_key(&job))
    };
    let over: Vec<IntermediateId> = all.files.values().filter(is_over).map(|row| row.file).collect();
    remove_intermediates(all, fleet, outbox, over);
    all.waiting.retain(|(_, reply)| !reply.is_gone());
}

/// Restores the files of the previous server. The nodes and jobs must be restored already.
pub(crate) fn recover_files(
    all: &mut IntermediateFiles,
    fleet: &mut Fleet,
    outbox: &mut Outbox,
    rows: Vec<IntermediateStatus>,
) {
    rows.into_iter().for_each(|row| all.insert(row));
    let rows: Vec<IntermediateStatus> = all.files.values().cloned().collect();
    let nodes = rows.iter().flat_map(|row| [Some(row.node), row.replica]).flatten();
    let gone: BTreeSet<NodeId> = nodes.filter(|node| !fleet.has(*node)).collect();
    for node in gone {
        files_gone(all, fleet, outbox, node, &node.to_string());
    }
    let mut adopted: BTreeMap<NodeId, Vec<IntermediateId>> = BTreeMap::new();
    for row in rows {
        match row.state {
            // The order may not have arrived; a writer that is active is not affected.
            IntermediateState::Writing => order_begin(fleet, &row, SILENCE_SECONDS),
            // The same holds for the order to take over a file.
            IntermediateState::Complete => adopted.entry(row.node).or_default().push(row.file),
            IntermediateState::Abandoned | IntermediateState::Lost => {}
        }
    }
    order_adopted(fleet, outbox, adopted);
}
