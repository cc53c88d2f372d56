//! The tokens that are known, in memory: what a request brings is looked up here. The store is the truth; whatever
//! changes a token goes through the server, and this is read anew.

use crate::answer::Problem;
use api::control::ErrorCode;
use api::people::Role;
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

#[derive(Clone)]
struct Known {
    user: Arc<str>,
    role: Role,
    expires_ns: Option<u64>,
    /// Revoked, or of a user who may do nothing any more.
    withdrawn: bool,
}

/// By hash, so that the time of a look-up tells nothing of a secret.
#[derive(Default)]
pub(crate) struct Keyring {
    known: RwLock<HashMap<[u8; 32], Known>>,
}

impl Keyring {
    /// Reads all tokens anew.
    pub async fn reload(&self, store: &Metastore) -> Result<(), StoreError> {
        let users = store.users().await?;
        let users: HashMap<&str, _> = users.iter().map(|user| (user.name.as_str(), user)).collect();
        let mut known = HashMap::new();
        for token in store.tokens().await? {
            // A foreign key holds them together.
            let Some(user) = users.get(token.user.as_str()) else { continue };
            let withdrawn = token.revoked_ns.is_some() || user.disabled_ns.is_some();
            let entry = Known {
                user: token.user.as_str().into(),
                role: user.role,
                expires_ns: token.expires_ns,
                withdrawn,
            };
            known.insert(token.hash, entry);
        }
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = known;
        Ok(())
    }

    /// Whose token it is, if it is good.
    pub fn find(&self, secret: &Secret, now_ns: u64) -> Result<(Arc<str>, Role), Problem> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let refused = |why: &str| Err(Problem::new(ErrorCode::Unauthenticated, why));
        match known.get(&secret.hash()) {
            None => refused("the token is not known here"),
            Some(known) if known.withdrawn => refused("the token has been revoked"),
            Some(known) if known.expires_ns.is_some_and(|end_ns| end_ns <= now_ns) => {
                refused("the token has expired")
            }
            Some(known) => Ok((Arc::clone(&known.user), known.role)),
        }
    }
}
