//! Who has how many jobs here, and who may come in: users as the scheduler knows them, and their tokens.

use crate::ServerError;
use crate::clock::now_ns;
use crate::data_keys::key_made;
use crate::event_loop::{EventLoop, Reply};
use crate::messages::UserQuota;
use metastore::{Change, Role, StoreError, TokenRow};
use std::collections::BTreeMap;
use trust::DataSigner;

/// Users by number, and the jobs of each that are not over.
#[derive(Default)]
pub(crate) struct Users {
    numbers: BTreeMap<String, u64>,
    /// By number.
    names: Vec<String>,
    /// No row for a user without a job.
    has: BTreeMap<u64, Has>,
}

/// The jobs of a user that are not over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Has {
    pub jobs: u32,
    /// Of their specifications.
    pub spec_bytes: u64,
}

impl Users {
    fn number(&mut self, user: String) -> u64 {
        let next = self.names.len() as u64;
        if !self.numbers.contains_key(&user) {
            self.names.push(user.clone());
        }
        *self.numbers.entry(user).or_insert(next)
    }

    /// The name of the user of a job.
    pub fn name(&self, number: u64) -> String {
        self.names.get(number as usize).cloned().unwrap_or_default()
    }

    /// Refuses so much more where the user may not have it.
    pub fn check_room(&self, user: &str, more: Has, quota: Option<UserQuota>) -> Result<(), ServerError> {
        let Some(UserQuota { jobs_max, spec_bytes_max, .. }) = quota else { return Ok(()) };
        let has = self.numbers.get(user).and_then(|number| self.has.get(number)).copied().unwrap_or_default();
        let user = || user.to_string();
        if has.jobs.saturating_add(more.jobs) > jobs_max {
            return Err(ServerError::TooManyJobs { user: user(), jobs_max });
        }
        if has.spec_bytes.saturating_add(more.spec_bytes) > spec_bytes_max {
            return Err(ServerError::TooManySpecBytes { user: user(), bytes_max: spec_bytes_max });
        }
        Ok(())
    }

    /// Jobs of the user begin; gives the user's number.
    pub fn jobs_begin(&mut self, user: String, more: Has) -> u64 {
        let number = self.number(user);
        let has = self.has.entry(number).or_default();
        has.jobs += more.jobs;
        has.spec_bytes += more.spec_bytes;
        number
    }

    /// One that was counted is over.
    pub fn job_over(&mut self, number: u64, spec_bytes: u64) {
        if let Some(has) = self.has.get_mut(&number) {
            has.jobs = has.jobs.saturating_sub(1);
            has.spec_bytes = has.spec_bytes.saturating_sub(spec_bytes);
            if has.jobs == 0 {
                self.has.remove(&number);
            }
        }
    }
}

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
        self.replies.push(Box::new(move || drop(reply.send(Ok(())))));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Has, Users};
    use crate::ServerError;
    use crate::messages::UserQuota;

    const QUOTA: UserQuota =
        UserQuota { jobs_max: 4, spec_bytes_max: 100, kept_bytes_max: 0, intermediate_bytes_max: 0 };

    fn jobs(jobs: u32) -> Has {
        Has { jobs, spec_bytes: 0 }
    }

    #[test]
    fn jobs_count_until_they_are_over() {
        let mut users = Users::default();
        let ann = users.jobs_begin("ann".to_string(), jobs(3));
        let bob = users.jobs_begin("bob".to_string(), jobs(1));
        assert_ne!(ann, bob);
        let room = |users: &Users, more| users.check_room("ann", jobs(more), Some(QUOTA)).is_ok();
        assert_eq!((room(&users, 1), room(&users, 2), room(&users, u32::MAX)), (true, false, false));
        users.job_over(ann, 0);
        assert_eq!((room(&users, 2), room(&users, 3)), (true, false));
        assert!(users.check_room("ann", jobs(u32::MAX), None).is_ok());
        let full = users.check_room("new", jobs(1), Some(UserQuota { jobs_max: 0, ..QUOTA }));
        assert!(matches!(full, Err(ServerError::TooManyJobs { jobs_max: 0, .. })), "{full:?}");
        (0..9).for_each(|_| users.job_over(ann, 0));
        assert!(users.has.len() == 1 && room(&users, 4));
        assert_eq!(users.jobs_begin("ann".to_string(), jobs(1)), ann);
    }

    #[test]
    fn bytes_count_until_their_jobs_are_over() {
        let mut users = Users::default();
        let of_bytes = |spec_bytes| Has { jobs: 1, spec_bytes };
        let ann = users.jobs_begin("ann".to_string(), of_bytes(60));
        users.jobs_begin("ann".to_string(), of_bytes(30));
        let room = |users: &Users, more| users.check_room("ann", of_bytes(more), Some(QUOTA));
        assert!(room(&users, 10).is_ok());
        assert!(matches!(room(&users, 11), Err(ServerError::TooManySpecBytes { bytes_max: 100, .. })));
        assert!(matches!(room(&users, u64::MAX), Err(ServerError::TooManySpecBytes { .. })));
        users.job_over(ann, 60);
        assert!(room(&users, 70).is_ok() && room(&users, 71).is_err());
    }
}
