//! Tokens of users.

use crate::ServerError;
use crate::access::key_made;
use crate::clock::now_ns;
use crate::event_loop::{EventLoop, Reply};
use metastore::{Change, Role, StoreError, TokenRow};
use trust::DataSigner;

/// A token to be remembered by its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewToken {
    /// To list and revoke it by; random, so that no two are the same.
    pub name: String,
    pub user: String,
    pub role: Role,
    /// SHA-256 of the secret.
    pub hash: [u8; 32],
    /// Nanoseconds since 1970; None: never.
    pub expires_ns: Option<u64>,
}

impl EventLoop {
    /// Remembers a token, and its user where nobody has that name yet. An error of the store ends the server.
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
        // At once: the next request may be for the same user.
        self.store.apply(&changes).await?;
        let _ = reply.send(Ok(()));
        Ok(())
    }

    /// Makes a token good for nothing from now on.
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
        // In one transaction: the next server must not take the old key for a good one.
        changes.extend(lets_join.then(|| key_made(&signer, true)));
        self.store.apply(&changes).await?;
        if lets_join {
            self.shut_out(&token, signer);
        }
        // With what is told of nodes that were sent away.
        self.answer(reply, Ok(()));
        Ok(())
    }
}
