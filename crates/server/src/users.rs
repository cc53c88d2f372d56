//! Who has how many jobs here, and who may come in: users as the scheduler knows them, and their tokens.

use crate::ServerError;
use crate::clock::now_ns;
use crate::event_loop::{EventLoop, Reply};
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
    jobs: BTreeMap<u64, u32>,
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

    /// Refuses so many jobs more where the user may not have them.
    pub fn check_room(&self, user: &str, more: u32, jobs_max: Option<u32>) -> Result<(), ServerError> {
        let Some(jobs_max) = jobs_max else { return Ok(()) };
        let has = self.numbers.get(user).and_then(|number| self.jobs.get(number)).copied().unwrap_or(0);
        match has.saturating_add(more) > jobs_max {
            true => Err(ServerError::TooManyJobs { user: user.to_string(), jobs_max }),
            false => Ok(()),
        }
    }

    /// A job of the user begins; gives the user's number.
    pub fn job_begins(&mut self, user: String) -> u64 {
        self.jobs_begin(user, 1)
    }

    /// As [`Self::job_begins`], for several jobs.
    pub fn jobs_begin(&mut self, user: String, count: u32) -> u64 {
        let number = self.number(user);
        *self.jobs.entry(number).or_default() += count;
        number
    }

    /// One that was counted is over.
    pub fn job_over(&mut self, number: u64) {
        if let Some(jobs) = self.jobs.get_mut(&number) {
            *jobs = jobs.saturating_sub(1);
            if *jobs == 0 {
                self.jobs.remove(&number);
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
        self.store.apply(&[Change::TokenRevoked { token: token.clone(), now_ns: now_ns() }]).await?;
        let role = self.store.user(&known.user).await?.map(|user| user.role);
        if role.is_none_or(|role| matches!(role, Role::Admin | Role::Node)) {
            self.shut_out(&token, signer).await?;
        }
        // With what is told of nodes that were sent away.
        self.replies.push(Box::new(move || drop(reply.send(Ok(())))));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Users;
    use crate::ServerError;

    #[test]
    fn jobs_count_until_they_are_over() {
        let mut users = Users::default();
        let ann = users.jobs_begin("ann".to_string(), 3);
        let bob = users.job_begins("bob".to_string());
        assert_ne!(ann, bob);
        let room = |users: &Users, more| users.check_room("ann", more, Some(4)).is_ok();
        assert_eq!((room(&users, 1), room(&users, 2), room(&users, u32::MAX)), (true, false, false));
        users.job_over(ann);
        assert_eq!((room(&users, 2), room(&users, 3)), (true, false));
        assert!(users.check_room("ann", u32::MAX, None).is_ok());
        let full = users.check_room("new", 1, Some(0));
        assert!(matches!(full, Err(ServerError::TooManyJobs { jobs_max: 0, .. })), "{full:?}");
        (0..9).for_each(|_| users.job_over(ann));
        assert!(users.jobs.len() == 1 && room(&users, 4));
        assert_eq!(users.job_begins("ann".to_string()), ann);
    }
}
