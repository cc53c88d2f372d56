//! Decisions of control that need the store in between: a number for a node or a file, and the store's answers about
//! kept directories.

use crate::event_loop::{EventLoop, Joining, Reply, caller};
use crate::{ServerError, clock};
use api::control::NodeWelcome;
use api::data_access::SecretText;
use api::intermediate::{CreatedIntermediate, NewIntermediate};
use api::kept::{KeptAnnouncement, KeptDir};
use api::orphaned::{OrphanedData, PREDECESSORS_MAX};
use control::NamedFile;
use control::retention::DirInStore;
use ids::NodeId;
use metastore::StoreError;
use trust::{Secret, TokenText};
use uuid::Builder;

/// Returns the incarnation of the process that gets this proof: a hash of it. A process that presents the proof later
/// has read it from the disks of the first one, because lists and messages contain only the incarnation.
fn incarnation_of(proof: &Secret) -> String {
    let hash = proof.hash();
    Builder::from_random_bytes(std::array::from_fn(|index| hash[index])).into_uuid().to_string()
}

/// Returns whether a node that reports a dead process has its disks.
fn is_proven(left: &OrphanedData) -> bool {
    let proof = TokenText::parse(&left.proof.0);
    proof.is_some_and(|proof| incarnation_of(&proof.secret) == left.incarnation)
}

impl EventLoop {
    /// Registers a node. An error of the store ends the server; all other errors go to the node.
    pub async fn register(&mut self, joining: Joining, reply: Reply<NodeWelcome>) -> Result<(), StoreError> {
        let Joining { mut info, secret_hash, join_token } = joining;
        if let Err(error) = self.control.check_joining(&info) {
            self.answer(reply, Err(error.into()));
            return Ok(());
        }
        let proof = match Secret::random() {
            Ok(proof) => proof,
            Err(error) => {
                self.answer(reply, Err(error.into()));
                return Ok(());
            }
        };
        info.left.retain(is_proven);
        let predecessors = self.predecessors(&std::mem::take(&mut info.predecessors)).await?;
        let node = self.store.reserve_node_id().await?;
        let joining = control::membership::Joining {
            info,
            predecessors,
            secret_hash,
            join_token,
            incarnation: incarnation_of(&proof),
            disk_proof: SecretText(proof.text()),
            data_keys: self.signing.told(),
        };
        self.tell_time();
        self.control.join(&mut self.outbox, node, joining, caller(reply));
        Ok(())
    }

    /// Returns the nodes to which the server gave these proofs.
    async fn predecessors(&self, proofs: &[SecretText]) -> Result<Vec<NodeId>, StoreError> {
        let proofs = proofs.iter().filter_map(|proof| TokenText::parse(&proof.0)).take(PREDECESSORS_MAX);
        let mut nodes = Vec::new();
        for proof in proofs {
            nodes.extend(self.store.node_of_incarnation(&incarnation_of(&proof.secret)).await?);
        }
        Ok(nodes)
    }

    /// Creates an intermediate file of a user.
    pub async fn create_file(
        &mut self,
        of: NamedFile,
        new: NewIntermediate,
        bytes_max: Option<u64>,
        reply: Reply<CreatedIntermediate>,
    ) -> Result<(), StoreError> {
        match self.control.check_file(of, new, bytes_max) {
            Err(error) => self.answer(reply, Err(error.into())),
            Ok(new) => {
                let file = self.store.reserve_intermediate_id().await?;
                self.control.create_file(&mut self.outbox, file, new, caller(reply));
            }
        }
        Ok(())
    }

    /// Handles a node's announcement of kept data, for one job or for all its disks.
    pub async fn announced(
        &mut self,
        node: NodeId,
        announcement: KeptAnnouncement,
        reply: Reply<()>,
    ) -> Result<(), StoreError> {
        if let Err(error) = self.control.hear(node, &announcement.incarnation, clock::now()) {
            self.answer(reply, Err(error.into()));
            return Ok(());
        }
        // The store is read below: earlier decisions must be written first.
        self.write_and_reply().await?;
        let found = self.control.announced(&mut self.outbox, node, announcement);
        let mut in_store = Vec::with_capacity(found.dirs().len());
        for dir in found.dirs() {
            in_store.push(self.look_up(dir).await?);
        }
        self.control.found(&mut self.outbox, found, in_store);
        self.answer(reply, Ok::<(), ServerError>(()));
        Ok(())
    }

    async fn look_up(&self, dir: &KeptDir) -> Result<DirInStore, StoreError> {
        let places = self.store.kept_places(dir.job).await?;
        if let Some(known) = places.into_iter().find(|place| place.dir.name() == dir.name()) {
            return Ok(DirInStore::Kept { made_by: known.made_by });
        }
        Ok(match self.store.node_of_incarnation(&dir.incarnation).await? {
            Some(_) => DirInStore::Stranger,
            None => DirInStore::OfOthers,
        })
    }
}
