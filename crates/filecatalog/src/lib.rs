//! # What it does
//! The stored files of a cluster, at the server: names, puts and leases of clients; disks, replicas, inventories and
//! repairs of nodes.
//!
//! # Where it sits
//! controlport (messages) -> filecatalog -> filetree (decisions on names), metastore (rows).
//!
//! # Invariants
//! Everything that must survive is in rows: memory has reports of nodes, leases of readers, orders under way and the nodes that make local copies, which a
//! restart makes anew. A replica has a row only after its node has synced it, and loses the row only after its node has
//! reported that it is gone, or for a removed file, because its disk is unreachable and will be compared when it returns.
//! A file is removed from a disk only if the store says that it needs it no more. Transactions are short: a put of a
//! million names is stored in steps, in directories that no name reaches, and one small transaction shows them.
//!
//! # Deliberately absent
//! No bytes of files: they travel between clients and nodes. No threads: a caller runs [`Catalog::keep_house`].
//!
//! # How it is tested
//! Placement against brute force; moves over made-up disks (`nodes/levels.rs`); `tests/repair.rs` runs a catalogue with
//! made-up nodes that lose and regain disks, are drained and join; the rest by black-box tests of a cluster.
//!
//! Source: Clustera, sections 3.3 to 3.5: logical files are sets of concrete files with replicas, which the server
//! places and keeps at their number.

mod asked;
mod changes;
mod commit;
mod error;
mod expiry;
mod groups;
mod house;
mod jobs;
mod leases;
mod near_inputs;
mod nodes;
mod outputs;
mod puts;
mod quota;
mod reading;

pub use error::CatalogError;
pub use jobs::JobInputs;
pub use jobs::made::MadeInputs;
pub use near_inputs::{PLACED_PARTS_MAX, ReplicaNodes};
pub use nodes::news::ReportingNode;
pub use nodes::pace::RepairPace;

use api::stored::need::StoredNeed;
use commit::Naming;
use filetree::Changer;
use ids::{NodeId, PutId};
use jobs::ReadingJobs;
use leases::Leases;
use metastore::{Metastore, StoreError};
use nodes::disks::Disks;
use nodes::moves::Moves;
use outputs::open::OpenOutputs;
use quota::Travelling;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use trust::DataRight;

/// Signs rights for data ports.
pub type SignRight = Box<dyn Fn(&DataRight) -> String + Send + Sync>;

/// The user who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asker {
    /// Owner of everything that is made.
    pub user: String,
    /// The rights: an administrator may do everything.
    pub changer: Changer,
    /// Maximum bytes of the user's files; None is unlimited.
    pub bytes_max: Option<u64>,
}

/// The stored files of a cluster. Shared by all requests. Its futures must run where they may block for a moment.
pub struct Catalog {
    store: Metastore,
    sign: SignRight,
    pace: RepairPace,
    opened: Instant,
    state: Mutex<State>,
    /// True if something changed that a repair may answer.
    wanted: AtomicBool,
    /// Held while names are retired, and while a lease begins: a reader sees a version whole or not at all.
    retiring: tokio::sync::Mutex<()>,
    /// Held while the names of a put are stored: one step at a time.
    naming: tokio::sync::Mutex<HashMap<PutId, Naming>>,
    house: tokio::sync::Mutex<house::House>,
    /// True if users see only the names that they may read.
    is_private: bool,
}

/// The part that a restart makes anew.
struct State {
    disks: Disks,
    moves: Moves,
    /// Stored files that need nodes which are being drained.
    needs: BTreeMap<NodeId, StoredNeed>,
    leases: Leases,
    jobs: ReadingJobs,
    outputs: OpenOutputs,
    /// Files of puts under way that have fewer replicas than wished.
    short: HashMap<PutId, u64>,
    /// Bytes of puts under way that are on their way to nodes.
    travelling: HashMap<PutId, Travelling>,
}

impl Catalog {
    /// Opens the catalogue of a store.
    pub async fn open(store: Metastore, sign: SignRight, pace: RepairPace) -> Result<Self, StoreError> {
        let rows = store.file_disks().await?;
        let jobs = store.jobs_with_stored_files().await?;
        let is_fresh = store.file_version().await?.0 == 0;
        let now = Instant::now();
        let state = State {
            disks: Disks::new(rows, pace, now),
            moves: Moves::default(),
            needs: BTreeMap::new(),
            leases: if is_fresh { Leases::default() } else { Leases::after_restart(now) },
            outputs: OpenOutputs::restored(&jobs),
            jobs: ReadingJobs::restored(jobs),
            short: HashMap::new(),
            travelling: HashMap::new(),
        };
        Ok(Self {
            store,
            sign,
            pace,
            opened: now,
            state: Mutex::new(state),
            wanted: AtomicBool::new(true),
            retiring: tokio::sync::Mutex::default(),
            naming: tokio::sync::Mutex::default(),
            house: tokio::sync::Mutex::default(),
            is_private: false,
        })
    }

    /// Returns the same catalogue, in which users see only the names that they may read.
    #[must_use]
    pub fn kept_private(self) -> Self {
        Self { is_private: true, ..self }
    }

    /// Returns whether names are hidden from this user.
    fn hides_from(&self, changer: &Changer) -> bool {
        self.is_private && changer.user().is_some()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
