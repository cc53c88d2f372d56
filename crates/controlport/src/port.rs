//! The shared state of the routes, and the rules of access.

use crate::gate::{Caller, FailedTokens, Keyring, Meters, Refusals, TELL_EVERY, UserLimits, now_ns};
use crate::routes::{Console, ConsoleProgram, Passages, StoredFiles};
use api::people::Role;
use filecatalog::{Catalog, RepairPace};
use metastore::{Metastore, StoreError};
use server::Server;
use std::sync::Arc;
use std::time::Instant;
use trust::{Authority, DataRight};

/// The tokens that a server accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokensAsked {
    /// None is required: each caller is the administrator. For a port that only this machine reaches.
    Never,
    /// Issued tokens, and the server's own, by which programs of its user get access without set-up.
    OwnOrIssued,
    /// Issued tokens only.
    #[default]
    Issued,
}

/// Rules of access: the accepted tokens, and the limits of users.
#[derive(Default)]
pub struct Access {
    pub tokens: TokensAsked,
    pub limits: UserLimits,
    /// Signs the certificates of data ports, and is named in issued tokens, if the server uses TLS.
    pub authority: Option<Authority>,
    /// Starts a process that runs statements of the console; None disables the console.
    pub console: Option<ConsoleProgram>,
    /// True if nodes must run user programs in a sandbox.
    pub sandbox: bool,
    /// True if users see only rows of their own, and stored files that their groups may read.
    pub private: bool,
    /// The times of repairs of stored files.
    pub repair: RepairPace,
}

/// The shared state of the routes.
#[derive(Clone)]
pub struct Port {
    pub(crate) server: Arc<Server>,
    /// For reads from the store.
    pub(crate) store: Arc<Metastore>,
    pub(crate) access: Arc<Access>,
    pub(crate) keyring: Arc<Keyring>,
    pub(crate) meters: Arc<Meters>,
    pub(crate) refusals: Arc<Refusals>,
    pub(crate) failed_tokens: Arc<FailedTokens>,
    pub(crate) passages: Arc<Passages>,
    pub(crate) console: Console,
    pub(crate) stored: StoredFiles,
}

impl Port {
    /// Opens the port of a server; `store` is the server's store, opened for reading, and `files` the same for the
    /// catalogue of stored files, which writes too.
    pub async fn open(
        server: Arc<Server>,
        store: Metastore,
        files: Metastore,
        access: Access,
    ) -> Result<Self, StoreError> {
        let keyring = Keyring::default();
        keyring.reload(&store).await?;
        let signer = Arc::clone(&server);
        let sign = Box::new(move |right: &DataRight| signer.sign(right));
        let catalog = Catalog::open(files, sign, access.repair).await?;
        let stored = StoredFiles::new(if access.private { catalog.kept_private() } else { catalog });
        Ok(Self {
            server,
            store: Arc::new(store),
            access: Arc::new(access),
            keyring: Arc::new(keyring),
            meters: Arc::default(),
            refusals: Arc::default(),
            failed_tokens: Arc::default(),
            passages: Arc::default(),
            console: Console::default(),
            stored,
        })
    }

    /// Returns whether rows of others are hidden from a caller.
    pub(crate) fn hides_from(&self, caller: &Caller) -> bool {
        self.access.private && caller.role != Role::Admin
    }

    /// Writes the counts of refusals from time to time; ends with the server.
    pub async fn tell_refusals(self) {
        loop {
            tokio::time::sleep(TELL_EVERY).await;
            let rows = self.refusals.due(Instant::now(), now_ns());
            if !rows.is_empty() && self.server.audit(rows).await.is_err() {
                return;
            }
        }
    }

    /// Removes stored files that nobody needs, and repairs those that need it; ends with the server.
    pub async fn keep_files(self) {
        self.stored.keep_house(self.server).await;
    }
}
