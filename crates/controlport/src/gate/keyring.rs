//! The tokens and the secrets of nodes that are known, in memory: what a request brings is looked up here. The store is the truth; whatever
//! changes a token goes through the server, and this is read anew.

use crate::answer::Problem;
use api::control::ErrorCode;
use api::people::Role;
use ids::NodeId;
use metastore::{Metastore, StoreError};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};
use trust::Secret;

/// Nanoseconds since 1970.
pub(crate) fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

struct Known {
    name: Arc<str>,
    user: Arc<str>,
    role: Role,
    expires_ns: Option<u64>,
    /// Revoked, or of a user who may do nothing any more.
    withdrawn: bool,
}

struct KnownNode {
    node: NodeId,
    /// None: it joined without one.
    join_token: Option<String>,
}

/// By hash, so that the time of a look-up tells nothing of a secret.
#[derive(Default)]
struct KnownSecrets {
    tokens: HashMap<[u8; 32], Known>,
    /// The hash of each token, by its name.
    names: HashMap<Arc<str>, [u8; 32]>,
    nodes: HashMap<[u8; 32], KnownNode>,
}

impl KnownSecrets {
    /// The token by which a node joined. Its end ends nothing but joining by it.
    fn join_token(&self, name: &str) -> Option<&Known> {
        self.tokens.get(self.names.get(name)?)
    }
}

/// The owner of a secret.
pub(crate) enum Holder {
    OfToken {
        /// The name by which the token is revoked.
        name: Arc<str>,
        user: Arc<str>,
        role: Role,
    },
    Node {
        node: NodeId,
        /// The user whose token it joined by; None: it joined without one.
        user: Option<Arc<str>>,
    },
}

impl Holder {
    /// The user whose token was shown, or joined by.
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
    /// Reads all tokens, and by what nodes are known, anew.
    pub async fn reload(&self, store: &Metastore) -> Result<(), StoreError> {
        let users = store.users().await?;
        let users: HashMap<&str, _> = users.iter().map(|user| (user.name.as_str(), user)).collect();
        let mut known = KnownSecrets::default();
        for token in store.tokens().await? {
            // A foreign key holds them together.
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

    /// A node has joined.
    pub fn add_node(&self, hash: [u8; 32], node: NodeId, join_token: Option<String>) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.nodes.insert(hash, KnownNode { node, join_token });
    }

    /// Finds the owner of a secret that is good.
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
