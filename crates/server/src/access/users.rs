//! Tokens of users.

use crate::ServerError;
use crate::access::{EarlierKeys, key_made};
use crate::clock::now_ns;
use crate::event_loop::{EventLoop, Reply};
use metastore::{Change, Role, StoreError, TokenRow};
use trust::DataSigner;

/// A token to be stored by its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewToken {
    /// Name for listing and revoking it; random, so that it is unique.
    pub name: String,
    pub user: String,
    pub role: Role,
    /// SHA-256 of the secret.
    pub hash: [u8; 32],
    /// Expiry in nanoseconds since 1970; None for a token that does not expire.
    pub expires_ns: Option<u64>,
}

impl EventLoop {
    /// Stores a token, and its user if the name is new. An error of the store ends the server.
    pub async fn issue_token(&mut self, token: NewToken, reply: Reply<()>) -> Result<(), StoreError> {
        let now_ns = now_ns();
        let mut changes = Vec::new();
        match self.store.user(&token.user).await? {
            Some(known) if known.role != token.role => {
                let (user, role) = (token.user, known.role.word());
                drop(reply.send(Err(ServerError::RoleDiffers { user, role })));
                return Ok(());
            }
            Some(_) => {}
            None => {
                changes.push(Change::UserAdded { name: token.user.clone(), role: token.role, now_ns });
            }
        }
        let row = TokenRow {
            token: token.name,
            user: token.user,
            hash: token.hash,
            created_ns: now_ns,
            expires_ns: token.expires_ns,
            revoked_ns: None,
        };
        changes.push(Change::TokenIssued { token: row });
        // Stored at once: the next request may be for the same user.
        self.store.apply(&changes).await?;
        let _ = reply.send(Ok(()));
        Ok(())
    }

    /// Revokes a token.
    pub async fn revoke_token(&mut self, token: String, reply: Reply<()>) -> Result<(), StoreError> {
        let known = self.store.tokens().await?.into_iter().find(|known| known.token == token);
        let Some(known) = known else {
            drop(reply.send(Err(ServerError::UnknownToken { token })));
            return Ok(());
        };
        let signer = match DataSigner::generate() {
            Ok(signer) => signer,
            Err(error) => {
                drop(reply.send(Err(error.into())));
                return Ok(());
            }
        };
        let role = self.store.user(&known.user).await?.map(|user| user.role);
        let lets_join = role.is_none_or(|role| matches!(role, Role::Admin | Role::Node));
        let mut changes = vec![Change::TokenRevoked { token: token.clone(), now_ns: now_ns() }];
        // One transaction: the next server must not accept the old key.
        changes.extend(lets_join.then(|| key_made(&signer, EarlierKeys::Withdrawn)));
        self.store.apply(&changes).await?;
        if lets_join {
            self.shut_out(&token, signer);
        }
        // Answered together with the news about the removed nodes.
        self.answer(reply, Ok(()));
        Ok(())
    }
}
