//! The known tokens and node secrets, in memory, to look up the secrets of requests. The store is the truth: changes of
//! tokens go through the server, after which this is read again.

use crate::answer::Problem;
use api::control::ErrorCode;
use api::people::Role;
use ids::NodeId;
use metastore::{Metastore, StoreError};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};
use trust::Secret;

/// Returns nanoseconds since 1970.
pub(crate) fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

struct Known {
    name: Arc<str>,
    user: Arc<str>,
    role: Role,
    expires_ns: Option<u64>,
    /// True if it is revoked, or belongs to a user who has lost all rights.
    withdrawn: bool,
}

struct KnownNode {
    node: NodeId,
    /// The join token; None if the node joined without one.
    join_token: Option<String>,
}

/// Secrets by hash, so that the time of a look-up reveals nothing about a secret.
#[derive(Default)]
struct KnownSecrets {
    tokens: HashMap<[u8; 32], Known>,
    /// The hash of each token, by its name.
    names: HashMap<Arc<str>, [u8; 32]>,
    nodes: HashMap<[u8; 32], KnownNode>,
}

impl KnownSecrets {
    /// Returns the token with which a node joined. Its expiry only ends further joins.
    fn join_token(&self, name: &str) -> Option<&Known> {
        self.tokens.get(self.names.get(name)?)
    }
}

/// The owner of a secret.
pub(crate) enum Holder {
    OfToken {
        /// Name by which the token is revoked.
        name: Arc<str>,
        user: Arc<str>,
        role: Role,
    },
    Node {
        node: NodeId,
        /// The user of its join token; None if it joined without one.
        user: Option<Arc<str>>,
    },
}

impl Holder {
    /// Returns the user of the presented token, or of the node's join token.
    pub fn user(&self) -> Option<&str> {
        match self {
            Self::OfToken { user, .. } => Some(user),
            Self::Node { user, .. } => user.as_deref(),
        }
    }
}

#[derive(Default)]
pub(crate) struct Keyring {
    known: RwLock<KnownSecrets>,
}

impl Keyring {
    /// Reads all tokens and node secrets again.
    pub async fn reload(&self, store: &Metastore) -> Result<(), StoreError> {
        let users = store.users().await?;
        let users: HashMap<&str, _> = users.iter().map(|user| (user.name.as_str(), user)).collect();
        let mut known = KnownSecrets::default();
        for token in store.tokens().await? {
            // A foreign key guarantees that the user exists.
            let Some(user) = users.get(token.user.as_str()) else { continue };
            let withdrawn = token.revoked_ns.is_some() || user.disabled_ns.is_some();
            let entry = Known {
                name: token.token.as_str().into(),
                user: token.user.as_str().into(),
                role: user.role,
                expires_ns: token.expires_ns,
                withdrawn,
            };
            known.names.insert(Arc::clone(&entry.name), token.hash);
            known.tokens.insert(token.hash, entry);
        }
        for row in store.node_secrets().await? {
            known.nodes.insert(row.hash, KnownNode { node: row.node, join_token: row.join_token });
        }
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = known;
        Ok(())
    }

    /// Adds a node that has joined.
    pub fn add_node(&self, hash: [u8; 32], node: NodeId, join_token: Option<String>) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.nodes.insert(hash, KnownNode { node, join_token });
    }

    /// Returns whether a token was ever issued to a user.
    pub fn knows_user(&self, name: &str) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.tokens.values().any(|token| &*token.user == name)
    }

    /// Returns the owner of a valid secret.
    pub fn find(&self, secret: &Secret, now_ns: u64) -> Result<Holder, Problem> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let refused = |why: &str| Err(Problem::new(ErrorCode::Unauthenticated, why));
        let hash = secret.hash();
        if let Some(KnownNode { node, join_token }) = known.nodes.get(&hash) {
            let token = join_token.as_deref().map(|name| known.join_token(name));
            return match token {
                Some(token) if token.is_none_or(|token| token.withdrawn) => {
                    refused("the token by which the node joined has been revoked")
                }
                token => {
                    let user = token.flatten().map(|token| Arc::clone(&token.user));
                    Ok(Holder::Node { node: *node, user })
                }
            };
        }
        match known.tokens.get(&hash) {
            None => refused("the token is not known here"),
            Some(known) if known.withdrawn => refused("the token has been revoked"),
            Some(known) if known.expires_ns.is_some_and(|end_ns| end_ns <= now_ns) => {
                refused("the token has expired")
            }
            Some(Known { name, user, role, .. }) => {
                Ok(Holder::OfToken { name: Arc::clone(name), user: Arc::clone(user), role: *role })
            }
        }
    }
}
