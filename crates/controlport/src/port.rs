//! State that the routes work on, and the rules of access to it.

use crate::gate::{FailedTokens, Keyring, Meters, Refusals, TELL_EVERY, UserLimits, now_ns};
use crate::routes::{Console, ConsoleProgram, Passages};
use metastore::{Metastore, StoreError};
use server::Server;
use std::sync::Arc;
use std::time::Instant;
use trust::Authority;

/// Which tokens a server admits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokensAsked {
    /// None is needed: each caller is the administrator. For a port that only this machine reaches.
    Never,
    /// Those that the server issued, and its own, by which programs of its user come in without set-up.
    OwnOrIssued,
    /// Those that it issued.
    #[default]
    Issued,
}

/// Rules of access: callers that may come in, and the limits for them.
#[derive(Default)]
pub struct Access {
    pub tokens: TokensAsked,
    pub limits: UserLimits,
    /// Signs the certificates of data ports and is named in the tokens that are given out, where there is TLS.
    pub authority: Option<Authority>,
    /// Starts a process that answers questions of the console; None: there are no answers.
    pub console: Option<ConsoleProgram>,
    /// Nodes must keep user programs in a sandbox.
    pub sandbox: bool,
}

/// State that the routes work on.
#[derive(Clone)]
pub struct Port {
    pub(crate) server: Arc<Server>,
    /// For looking at what the store remembers.
    pub(crate) store: Arc<Metastore>,
    pub(crate) access: Arc<Access>,
    pub(crate) keyring: Arc<Keyring>,
    pub(crate) meters: Arc<Meters>,
    pub(crate) refusals: Arc<Refusals>,
    pub(crate) failed_tokens: Arc<FailedTokens>,
    pub(crate) passages: Arc<Passages>,
    pub(crate) console: Console,
}

impl Port {
    /// A port of a server; `store` is that of the server, opened for reading.
    pub async fn open(server: Arc<Server>, store: Metastore, access: Access) -> Result<Self, StoreError> {
        let keyring = Keyring::default();
        keyring.reload(&store).await?;
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
        })
    }

    /// Tells from time to time how many refusals were only counted; ends with the server.
    pub async fn tell_refusals(self) {
        loop {
            tokio::time::sleep(TELL_EVERY).await;
            let rows = self.refusals.due(Instant::now(), now_ns());
            if !rows.is_empty() && self.server.audit(rows).await.is_err() {
                return;
            }
        }
    }
}
