//! Users by their numbers in the scheduler, and the jobs of each.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The limits of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobQuota {
    /// Maximum number of unfinished jobs.
    pub jobs_max: u32,
    /// Maximum bytes of their specifications.
    pub spec_bytes_max: u64,
}

/// An error for a user whose quota is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    #[error("the user may have {jobs_max} jobs that are not over")]
    Jobs { jobs_max: u32 },
    #[error("the specifications of the user's jobs may have {bytes_max} bytes")]
    SpecBytes { bytes_max: u64 },
}

/// Users by number, with their unfinished jobs.
#[derive(Default)]
pub struct Users {
    numbers: BTreeMap<String, u64>,
    /// Names of users by number.
    names: Vec<Arc<str>>,
    /// A user without a job has no entry.
    has: BTreeMap<u64, Has>,
}

/// The unfinished jobs of a user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Has {
    pub jobs: u32,
    /// Bytes of their specifications.
    pub spec_bytes: u64,
}

/// The user of a job, and its share of the user's quota until it is over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobOwner {
    pub number: u64,
    pub name: Arc<str>,
    pub spec_bytes: u64,
}

impl Users {
    fn number(&mut self, user: String) -> u64 {
        let next = self.names.len() as u64;
        if !self.numbers.contains_key(&user) {
            self.names.push(user.as_str().into());
        }
        *self.numbers.entry(user).or_insert(next)
    }

    /// Returns the name of a user.
    pub fn name(&self, number: u64) -> Arc<str> {
        self.names.get(number as usize).cloned().unwrap_or_default()
    }

    /// Returns an error if the quota of the user does not allow these additional jobs and bytes.
    pub fn check_room(&self, user: &str, more: Has, quota: Option<JobQuota>) -> Result<(), NoRoom> {
        let Some(JobQuota { jobs_max, spec_bytes_max }) = quota else { return Ok(()) };
        let has = self.numbers.get(user).and_then(|number| self.has.get(number)).copied().unwrap_or_default();
        if has.jobs.saturating_add(more.jobs) > jobs_max {
            return Err(NoRoom::Jobs { jobs_max });
        }
        if has.spec_bytes.saturating_add(more.spec_bytes) > spec_bytes_max {
            return Err(NoRoom::SpecBytes { bytes_max: spec_bytes_max });
        }
        Ok(())
    }

    /// Returns the number of jobs that the quota of a user allows beside the unfinished ones.
    pub fn jobs_left(&self, number: u64, quota: JobQuota) -> u32 {
        let has = self.has.get(&number).map_or(0, |has| has.jobs);
        quota.jobs_max.saturating_sub(has)
    }

    /// Counts new jobs of a user. Returns the user's number.
    pub fn jobs_begin(&mut self, user: String, more: Has) -> u64 {
        let number = self.number(user);
        let has = self.has.entry(number).or_default();
        has.jobs += more.jobs;
        has.spec_bytes += more.spec_bytes;
        number
    }

    /// Counts one new job of a user. Returns its owner.
    pub fn job_begins(&mut self, user: String, spec_bytes: u64) -> JobOwner {
        let number = self.jobs_begin(user, Has { jobs: 1, spec_bytes });
        JobOwner { number, name: self.name(number), spec_bytes }
    }

    /// Subtracts a job that is over from its user's count.
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

#[cfg(test)]
mod tests {
    use super::{Has, JobQuota, NoRoom, Users};

    const QUOTA: JobQuota = JobQuota { jobs_max: 4, spec_bytes_max: 100 };

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
        assert_eq!((users.jobs_left(ann, QUOTA), users.jobs_left(bob, QUOTA)), (2, 3));
        assert!(users.check_room("ann", jobs(u32::MAX), None).is_ok());
        let full = users.check_room("new", jobs(1), Some(JobQuota { jobs_max: 0, ..QUOTA }));
        assert!(matches!(full, Err(NoRoom::Jobs { jobs_max: 0 })), "{full:?}");
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
        assert!(matches!(room(&users, 11), Err(NoRoom::SpecBytes { bytes_max: 100 })));
        assert!(matches!(room(&users, u64::MAX), Err(NoRoom::SpecBytes { .. })));
        users.job_over(ann, 60);
        assert!(room(&users, 70).is_ok() && room(&users, 71).is_err());
    }
}
