//! Choice of the next job: jobs with tasks that wait, by claim.
//!
//! Entries are dropped late: a job that has nothing left to give, or has moved to another level, keeps its place
//! until somebody finds it there. So the cost of a change does not depend on how many jobs wait.

use ids::JobId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Rank of a job among others, the lowest first: level, share that its user has got, age.
pub(crate) type Standing = (Reverse<i64>, Served, JobId);

/// Share that a user has got, the least first: running attempts, and among equals the count of all starts at its last
/// one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Served {
    pub running: u32,
    pub last_start: u64,
}

/// A user with jobs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct User {
    pub served: Served,
    /// Jobs that are in the state.
    pub jobs: u32,
}

/// Jobs by level, the highest first, and by user.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claims {
    levels: BTreeMap<Reverse<i64>, BTreeMap<u64, BTreeSet<JobId>>>,
}

impl Claims {
    pub fn insert(&mut self, level: i64, user: u64, job: JobId) {
        self.levels.entry(Reverse(level)).or_default().entry(user).or_default().insert(job);
    }

    pub fn remove(&mut self, level: i64, user: u64, job: JobId) {
        let Some(users) = self.levels.get_mut(&Reverse(level)) else { return };
        if let Some(jobs) = users.get_mut(&user) {
            jobs.remove(&job);
            if jobs.is_empty() {
                users.remove(&user);
            }
        }
        if users.is_empty() {
            self.levels.remove(&Reverse(level));
        }
    }

    pub fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    /// The best standing and its user: among the users of the highest level the one that was served least, and the
    /// oldest job of this one.
    pub fn best(&self, all_users: &BTreeMap<u64, User>) -> Option<(Standing, u64)> {
        let (level, users) = self.levels.first_key_value()?;
        let standing = |(user, jobs): (&u64, &BTreeSet<JobId>)| {
            let served = all_users.get(user).map(|user| user.served).unwrap_or_default();
            jobs.first().map(|job| ((*level, served, *job), *user))
        };
        users.iter().filter_map(standing).min()
    }
}
