//! Choice of the next job: jobs with waiting tasks, by claim.
//!
//! Entries are dropped late: a job without waiting tasks, or on another level now, keeps its entry until it is found
//! there. So the cost of a change does not depend on the number of waiting jobs.

use crate::Claim;
use ids::JobId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Rank of a job, the lowest first: level, share of its user, order among the jobs of this user.
pub(crate) type ClaimRank = (Reverse<i64>, Served, JobOrder);

/// Order of the jobs of one user on one level, the lowest first: the oldest job, and of its steps the one with the highest
/// rank. It follows from the number and the claim of a job, so it never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct JobOrder {
    /// The job whose age counts: its own, or the one of which it is a step.
    aged: JobId,
    rank: Reverse<u64>,
    pub job: JobId,
}

impl JobOrder {
    pub fn new(job: JobId, claim: &Claim) -> Self {
        let (aged, rank) = claim.step.map_or((job, 0), |step| (step.of, step.rank));
        Self { aged, rank: Reverse(rank), job }
    }
}

/// Share of a user, the least first: slots in use, and among equals the total number of starts at the user's last
/// start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Served {
    /// Number of slots that the user's running attempts take.
    pub running: u32,
    pub last_start: u64,
}

/// A user with jobs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct User {
    pub served: Served,
    /// Number of the user's jobs in the state.
    pub jobs: u32,
}

/// Jobs by level, the highest first, and by user.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claims {
    levels: BTreeMap<Reverse<i64>, BTreeMap<u64, BTreeSet<JobOrder>>>,
}

impl Claims {
    pub fn insert(&mut self, level: i64, user: u64, job: JobOrder) {
        self.levels.entry(Reverse(level)).or_default().entry(user).or_default().insert(job);
    }

    pub fn remove(&mut self, level: i64, user: u64, job: JobOrder) {
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

    pub fn contains(&self, level: i64, user: u64, job: JobOrder) -> bool {
        let jobs = self.levels.get(&Reverse(level)).and_then(|users| users.get(&user));
        jobs.is_some_and(|jobs| jobs.contains(&job))
    }

    pub fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }

    /// Returns the best standing and its user: on the highest level, the user who was served least, and the first job of
    /// this user in their order.
    pub fn best(&self, all_users: &BTreeMap<u64, User>) -> Option<(ClaimRank, u64)> {
        let (level, users) = self.levels.first_key_value()?;
        let standing = |(user, jobs): (&u64, &BTreeSet<JobOrder>)| {
            let served = all_users.get(user).map(|user| user.served).unwrap_or_default();
            jobs.first().map(|job| ((*level, served, *job), *user))
        };
        users.iter().filter_map(standing).min()
    }
}
