//! Intermediate files of users: which there are, where they lie, who waits for them. Their bytes go between their writers and readers
//! and the nodes; nodes say when a file is complete, given up, or has a replica. What a node that is gone had alone is lost.

use crate::ServerError;
use crate::clock::now_ns;
use crate::event_loop::{EventLoop, Reply};
use api::control::NodeOrder;
use api::data_access::{FileCopy, SecretText};
use api::intermediate::{
    CopyGrant, CreatedIntermediate, IntermediateAnswer, IntermediateList, IntermediateNews, IntermediateNote,
    IntermediatePlace, IntermediateState, IntermediateStatus, NewIntermediate, OpenedIntermediate,
    SILENCE_SECONDS, SILENCE_SECONDS_MAX, USER_INTERMEDIATES_MAX, is_intermediate_name,
};
use api::machine::DiskState;
use ids::{IntermediateId, NodeId};
use metastore::{Change, IntermediateReplicaRow, StoreError};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use trust::DataRight;

/// Files of all users, which the loop has in memory.
const FILES_MAX: usize = 200_000;
/// Readers that wait at once for files that are being written.
const WAITING_MAX: usize = 4096;
/// Files of which nothing is left are remembered so long, so that whoever wants to read one learns why.
const FAILED_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// Longest reason of a node that is remembered.
const REASON_BYTES_MAX: usize = 1000;

/// Requests about intermediate files to the loop. `user` is the owner of the file.
pub(crate) enum FileRequest {
    Create {
        user: String,
        new: NewIntermediate,
        /// Limit of the bytes of all intermediate files of this user; None: no limit.
        bytes_max: Option<u64>,
        reply: Reply<CreatedIntermediate>,
    },
    /// Opens a file for reading. With `wait` the answer comes when the file is not being written any more.
    Open {
        user: String,
        name: String,
        wait: bool,
        reply: Reply<OpenedIntermediate>,
    },
    /// None: the files of all users.
    List {
        user: Option<String>,
        reply: Reply<IntermediateList>,
    },
    Remove {
        user: String,
        name: String,
        reply: Reply<()>,
    },
    News {
        node: NodeId,
        news: IntermediateNews,
        reply: Reply<IntermediateAnswer>,
    },
}

/// All files.
#[derive(Default)]
pub(crate) struct Intermediates {
    files: BTreeMap<IntermediateId, IntermediateStatus>,
    names: BTreeMap<(String, String), IntermediateId>,
    waiting: Vec<(IntermediateId, Reply<OpenedIntermediate>)>,
}

impl Intermediates {
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

    /// Whether a node has what is nowhere else, or is being written there.
    pub fn need(&self, node: NodeId) -> bool {
        let is_live = |row: &IntermediateStatus| {
            matches!(row.state, IntermediateState::Writing | IntermediateState::Complete)
        };
        self.files.values().any(|row| row.node == node && row.replica.is_none() && is_live(row))
    }

    /// Bytes of files that a node is to hold, and files that are being written there.
    fn load_of(&self, node: NodeId) -> usize {
        self.files.values().filter(|row| row.node == node && row.state == IntermediateState::Writing).count()
    }
}

impl EventLoop {
    pub async fn intermediate(&mut self, request: FileRequest) -> Result<(), StoreError> {
        match request {
            FileRequest::Create { user, new, bytes_max, reply } => {
                self.create_intermediate(user, new, bytes_max, reply).await?;
            }
            FileRequest::Open { user, name, wait, reply } => self.open_intermediate(&user, name, wait, reply),
            FileRequest::List { user, reply } => {
                let is_meant = |row: &&IntermediateStatus| user.as_ref().is_none_or(|user| *user == row.user);
                let known = &self.intermediates;
                let by_name = known.names.values().filter_map(|file| known.files.get(file));
                let files = by_name.filter(is_meant).cloned().collect();
                self.answer(reply, Ok(IntermediateList { files }));
            }
            FileRequest::Remove { user, name, reply } => {
                let file = self.intermediates.named(&user, &name).map(|row| row.file);
                let answer = file.ok_or(ServerError::UnknownIntermediate { name });
                let answer = answer.map(|file| self.remove_intermediates([file]));
                self.answer(reply, answer);
            }
            FileRequest::News { node, news, reply } => match self.fleet.heard(node, &news.incarnation) {
                Err(error) => drop(reply.send(Err(error))),
                Ok(_) => {
                    let dropped = news.notes.into_iter().flat_map(|note| self.file_noted(node, note));
                    let dropped = dropped.collect();
                    let grants =
                        news.copies.into_iter().filter_map(|copy| self.copy_grant(node, copy)).collect();
                    self.answer(reply, Ok(IntermediateAnswer { dropped, grants }));
                }
            },
        }
        Ok(())
    }

    /// The right of a node to send a file that it has to another node.
    fn copy_grant(&self, node: NodeId, copy: FileCopy) -> Option<CopyGrant> {
        let row = self.intermediates.files.get(&copy.file)?;
        let may_send =
            row.node == node && row.state == IntermediateState::Complete && self.fleet.has(copy.to);
        let right = DataRight::Copy { file: copy.file.0, to_node: copy.to.0 };
        may_send.then(|| CopyGrant { copy, grant: SecretText(self.signing.sign(&right)) })
    }

    /// Once what it says is stored.
    fn answer<T: Send + 'static>(&mut self, reply: Reply<T>, answer: Result<T, ServerError>) {
        self.replies.push(Box::new(move || drop(reply.send(answer))));
    }

    async fn create_intermediate(
        &mut self,
        user: String,
        new: NewIntermediate,
        bytes_max: Option<u64>,
        reply: Reply<CreatedIntermediate>,
    ) -> Result<(), StoreError> {
        let has_bytes = self.intermediates.bytes_of(&user);
        let room = bytes_max.map(|bytes_max| bytes_max.saturating_sub(has_bytes));
        let has_room = match (bytes_max, room) {
            (Some(bytes_max), Some(0)) => {
                Err(ServerError::TooManyIntermediateBytes { user: user.clone(), bytes_max })
            }
            _ => Ok(()),
        };
        let node = match has_room.and_then(|()| self.check_new(&user, &new)) {
            Ok(node) => node,
            Err(error) => {
                drop(reply.send(Err(error)));
                return Ok(());
            }
        };
        // One of that name of which nothing is left makes room.
        let failed = self.intermediates.named(&user, &new.name).map(|row| row.file);
        self.remove_intermediates(failed);
        let file = self.store.reserve_intermediate_id().await?;
        let row = IntermediateStatus {
            file,
            user,
            name: new.name,
            job: new.job,
            state: IntermediateState::Writing,
            node,
            replica: None,
            bytes: None,
            crc32c: None,
            created_ns: now_ns(),
            closed_ns: None,
            keep_ns: new
                .keep_seconds
                .map(|seconds| seconds.saturating_mul(1_000_000_000).min(i64::MAX as u64)),
            expires_ns: None,
            problem: None,
        };
        let silence_seconds = new.silence_seconds;
        self.order_begin(&row, silence_seconds);
        self.changes.push(Change::Intermediate { row: Box::new(row.clone()) });
        self.intermediates.insert(row);
        let place = self.place_on(node).ok_or(ServerError::NoNodeForFile);
        let created = place.map(|place| {
            let bytes_max = room;
            CreatedIntermediate { bytes_max, file, place, silence_seconds, grant: None }
        });
        self.answer(reply, created);
        Ok(())
    }

    fn order_begin(&mut self, row: &IntermediateStatus, silence_seconds: u32) {
        if let Some(known) = self.fleet.get_mut(row.node) {
            known.order(NodeOrder::BeginIntermediate { file: row.file, silence_seconds });
        }
    }

    /// The node that a new file is written on.
    fn check_new(&self, user: &str, new: &NewIntermediate) -> Result<NodeId, ServerError> {
        let NewIntermediate { name, job, silence_seconds, near, .. } = new;
        if !is_intermediate_name(name) {
            return Err(ServerError::BadIntermediateName { name: name.clone() });
        }
        if !(1..=SILENCE_SECONDS_MAX).contains(silence_seconds) {
            return Err(ServerError::BadSilence { seconds: *silence_seconds });
        }
        if let Some(known) = self.intermediates.named(user, name)
            && matches!(known.state, IntermediateState::Writing | IntermediateState::Complete)
        {
            let (name, state) = (name.clone(), known.state.word());
            return Err(ServerError::IntermediateExists { name, state });
        }
        if let Some(job) = job.filter(|job| self.jobs.get(job).is_none_or(|job| job.outcome.is_some())) {
            return Err(ServerError::UnknownJob { job });
        }
        let is_full = self.intermediates.files.len() >= FILES_MAX
            || self.intermediates.count_of(user) >= USER_INTERMEDIATES_MAX;
        if is_full {
            return Err(ServerError::TooManyIntermediates { max: USER_INTERMEDIATES_MAX });
        }
        self.node_for_file(near.as_deref()).ok_or(ServerError::NoNodeForFile)
    }

    /// The node of the writer, where it runs on one that takes data; else one of its rack, else any: that with the fewest writers
    /// and then with most room.
    fn node_for_file(&self, near: Option<&str>) -> Option<NodeId> {
        let near = near.and_then(|name| self.fleet.named(name).ok());
        let rack = near.and_then(|node| self.fleet.get(node)).map(|node| node.info.rack.clone());
        let weighed =
            self.fleet.each().filter(|(_, node)| node.takes_chunks() && !node.info.data_url.is_empty());
        let weighed = weighed.map(|(id, node)| {
            let is_far = near != Some(id);
            let is_in_other_rack = rack.as_ref().is_some_and(|rack| *rack != node.info.rack);
            let usable = node.disks.iter().filter(|disk| disk.state == DiskState::Usable);
            let free_bytes: u64 = usable.map(|disk| disk.free_bytes).sum();
            (is_far, is_in_other_rack, self.intermediates.load_of(id), Reverse(free_bytes), id)
        });
        weighed.min().map(|(.., node)| node)
    }

    fn place_on(&self, node: NodeId) -> Option<IntermediatePlace> {
        let known = self.fleet.get(node)?;
        Some(IntermediatePlace {
            node,
            node_name: known.info.name.clone(),
            data_url: known.info.data_url.clone(),
            // A process that joins gets a number that no other had.
            incarnation: u64::from(node.0),
        })
    }

    fn opened(&self, status: &IntermediateStatus) -> OpenedIntermediate {
        let nodes = [Some(status.node), status.replica].into_iter().flatten();
        let places = match status.state {
            IntermediateState::Complete => nodes.filter_map(|node| self.place_on(node)).collect(),
            _ => Vec::new(),
        };
        OpenedIntermediate { status: status.clone(), places, grant: None }
    }

    fn open_intermediate(&mut self, user: &str, name: String, wait: bool, reply: Reply<OpenedIntermediate>) {
        let Some(row) = self.intermediates.named(user, &name) else {
            return self.answer(reply, Err(ServerError::UnknownIntermediate { name }));
        };
        if wait && row.state == IntermediateState::Writing {
            let file = row.file;
            self.intermediates.waiting.retain(|(_, reply)| !reply.is_closed());
            if self.intermediates.waiting.len() >= WAITING_MAX {
                return drop(reply.send(Err(ServerError::TooManyReaders { max: WAITING_MAX })));
            }
            return self.intermediates.waiting.push((file, reply));
        }
        let opened = self.opened(row);
        self.answer(reply, Ok(opened));
    }

    /// A file is not being written any more: whoever waits for it hears how it stands, or that it is gone.
    fn tell_readers(&mut self, file: IntermediateId, name: &str) {
        let waiting = std::mem::take(&mut self.intermediates.waiting);
        let (told, waiting): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|(wanted, _)| *wanted == file);
        self.intermediates.waiting = waiting;
        for (_, reply) in told {
            let row = self.intermediates.files.get(&file);
            let answer = row.map(|row| self.opened(row));
            let name = name.to_string();
            self.answer(reply, answer.ok_or(ServerError::UnknownIntermediate { name }));
        }
    }

    /// Stores a change of a file, and answers those who wait for the file.
    fn file_changed(&mut self, row: IntermediateStatus) {
        let (file, name) = (row.file, row.name.clone());
        self.changes.push(Change::Intermediate { row: Box::new(row.clone()) });
        self.intermediates.insert(row);
        self.tell_readers(file, &name);
    }

    fn file_failed(&mut self, row: IntermediateStatus, state: IntermediateState, problem: String) {
        let kept_until_ns = now_ns().saturating_add(FAILED_KEPT.as_nanos() as u64);
        let expires_ns =
            Some(row.expires_ns.map_or(kept_until_ns, |expires_ns| expires_ns.min(kept_until_ns)));
        self.file_changed(IntermediateStatus { state, problem: Some(problem), expires_ns, ..row });
    }

    /// These go, wherever they are; nodes are told.
    fn remove_intermediates(&mut self, files: impl IntoIterator<Item = IntermediateId>) {
        let mut on_nodes: BTreeMap<NodeId, Vec<IntermediateId>> = BTreeMap::new();
        for file in files {
            let Some(row) = self.intermediates.remove(file) else { continue };
            for node in [Some(row.node), row.replica].into_iter().flatten() {
                on_nodes.entry(node).or_default().push(file);
            }
            self.changes.push(Change::IntermediateRemoved { file });
            self.tell_readers(file, &row.name);
        }
        for (node, files) in on_nodes {
            if let Some(known) = self.fleet.get_mut(node) {
                known.order(NodeOrder::DropIntermediates { files });
            }
        }
    }

    /// Takes the note of a node. Returns the files of which the node drops its copy.
    fn file_noted(&mut self, node: NodeId, note: IntermediateNote) -> Vec<IntermediateId> {
        match note {
            IntermediateNote::Closed { file, bytes, crc32c } => {
                let known = self.intermediates.files.get(&file).filter(|row| row.node == node);
                let Some(row) = known.cloned() else { return vec![file] };
                match row.state {
                    IntermediateState::Writing => {
                        let closed_ns = now_ns();
                        let expires_ns = row.keep_ns.map(|keep_ns| closed_ns.saturating_add(keep_ns));
                        let state = IntermediateState::Complete;
                        let (bytes, crc32c, closed_ns) = (Some(bytes), Some(crc32c), Some(closed_ns));
                        self.file_changed(IntermediateStatus {
                            state,
                            bytes,
                            crc32c,
                            closed_ns,
                            expires_ns,
                            ..row
                        });
                        Vec::new()
                    }
                    // The answer was lost.
                    IntermediateState::Complete if (row.bytes, row.crc32c) == (Some(bytes), Some(crc32c)) => {
                        Vec::new()
                    }
                    _ => vec![file],
                }
            }
            IntermediateNote::Abandoned { file, reason } => {
                let known = self.intermediates.files.get(&file).filter(|row| row.node == node);
                if let Some(row) = known.filter(|row| row.state == IntermediateState::Writing).cloned() {
                    let reason = reason.replace('\0', "\u{fffd}");
                    let cut = reason.floor_char_boundary(REASON_BYTES_MAX);
                    self.file_failed(row, IntermediateState::Abandoned, reason[..cut].to_string());
                }
                Vec::new()
            }
            IntermediateNote::Replicated { file, to, bytes, single_ns } => {
                self.file_replicated(node, IntermediateReplicaRow { file, node: to, bytes, single_ns });
                Vec::new()
            }
            IntermediateNote::Holds { files } => {
                let is_meant = |row: &IntermediateStatus| {
                    let is_live =
                        matches!(row.state, IntermediateState::Writing | IntermediateState::Complete);
                    is_live && (row.node == node || row.replica == Some(node))
                };
                let known = |file: &IntermediateId| self.intermediates.files.get(file).is_some_and(is_meant);
                files.into_iter().filter(|file| !known(file)).collect()
            }
        }
    }

    fn file_replicated(&mut self, node: NodeId, mut told: IntermediateReplicaRow) {
        let file = told.file;
        let known = self.intermediates.files.get(&file);
        let is_complete = |row: &&IntermediateStatus| row.state == IntermediateState::Complete;
        let Some(row) = known.filter(is_complete).filter(|row| row.node == node).cloned() else {
            // It went while its copy was on its way.
            if known.is_none_or(|row| row.node != told.node && row.replica != Some(told.node))
                && let Some(other) = self.fleet.get_mut(told.node)
            {
                other.order(NodeOrder::DropIntermediates { files: vec![file] });
            }
            return;
        };
        // Where that node is gone by now, its maker sees it and sends the file to another one.
        if told.node == node || !self.fleet.has(told.node) {
            return;
        }
        // What a node says is no reason for a number that a store does not take.
        told.bytes = told.bytes.min(i64::MAX as u64);
        told.single_ns = told.single_ns.min(i64::MAX as u64);
        let replica = Some(told.node);
        if row.replica != replica {
            self.changes.push(Change::IntermediateReplica { row: told });
            self.intermediates.insert(IntermediateStatus { replica, ..row });
        }
    }

    /// A node is gone, with what it had of these files.
    pub fn files_gone(&mut self, node: NodeId, node_name: &str) {
        let concerned = |row: &&IntermediateStatus| row.node == node || row.replica == Some(node);
        let concerned: Vec<IntermediateStatus> =
            self.intermediates.files.values().filter(concerned).cloned().collect();
        let mut adopted: BTreeMap<NodeId, Vec<IntermediateId>> = BTreeMap::new();
        for row in concerned {
            let (file, replica) = (row.file, row.replica.filter(|replica| self.fleet.has(*replica)));
            if row.replica.is_some() {
                self.changes.push(Change::IntermediateReplicaGone { file });
            }
            let row = IntermediateStatus { replica: None, ..row };
            match (row.state, replica) {
                (IntermediateState::Writing, _) => {
                    let problem = format!("the node {node_name} was lost while it was written there");
                    self.file_failed(row, IntermediateState::Abandoned, problem);
                }
                (IntermediateState::Complete, _) if row.node != node => {
                    // Its maker sees it and sends it to another one.
                    self.intermediates.insert(row);
                }
                (IntermediateState::Complete, Some(replica)) => {
                    adopted.entry(replica).or_default().push(file);
                    self.file_changed(IntermediateStatus { node: replica, ..row });
                }
                (IntermediateState::Complete, None) => {
                    let problem = format!("the node {node_name}, which had the only copy, is gone");
                    self.file_failed(row, IntermediateState::Lost, problem);
                }
                (IntermediateState::Abandoned | IntermediateState::Lost, _) => {
                    self.intermediates.insert(row);
                }
            }
        }
        self.order_adopted(adopted);
    }

    fn order_adopted(&mut self, adopted: BTreeMap<NodeId, Vec<IntermediateId>>) {
        for (node, files) in adopted {
            tracing::info!(%node, count = files.len(), "intermediate files have their first copy on a node");
            if let Some(known) = self.fleet.get_mut(node) {
                known.order(NodeOrder::AdoptIntermediates { files });
            }
        }
    }

    /// Files whose time is over, and those of jobs that are, go.
    pub fn end_files(&mut self) {
        let now_ns = now_ns();
        let is_over = |row: &&IntermediateStatus| {
            row.expires_ns.is_some_and(|expires_ns| expires_ns <= now_ns)
                || row.job.is_some_and(|job| !self.jobs.contains_key(&job))
        };
        let over: Vec<IntermediateId> =
            self.intermediates.files.values().filter(is_over).map(|row| row.file).collect();
        self.remove_intermediates(over);
        self.intermediates.waiting.retain(|(_, reply)| !reply.is_closed());
    }

    /// Loads the files that the server before this one knew. The nodes and jobs must be loaded already.
    pub async fn recover_files(&mut self) -> Result<(), StoreError> {
        for row in self.store.intermediate_files().await? {
            self.intermediates.insert(row);
        }
        let rows: Vec<IntermediateStatus> = self.intermediates.files.values().cloned().collect();
        let nodes = rows.iter().flat_map(|row| [Some(row.node), row.replica]).flatten();
        let gone: BTreeSet<NodeId> = nodes.filter(|node| !self.fleet.has(*node)).collect();
        for node in gone {
            self.files_gone(node, &node.to_string());
        }
        let mut adopted: BTreeMap<NodeId, Vec<IntermediateId>> = BTreeMap::new();
        for row in rows {
            match row.state {
                // The order may not have arrived; a writer that is at work goes on as it is.
                IntermediateState::Writing => self.order_begin(&row, SILENCE_SECONDS),
                // The same of what it was told to take over.
                IntermediateState::Complete => adopted.entry(row.node).or_default().push(row.file),
                IntermediateState::Abandoned | IntermediateState::Lost => {}
            }
        }
        self.order_adopted(adopted);
        Ok(())
    }
}
