//! Jobs of one task that wait behind very many others of their user. Their rows are stored, and in memory stands little more than
//! their numbers; those that may run soon are admitted to the scheduler, the oldest first. So a user who hands in a hundred thousand
//! jobs, or such with megabytes of arguments, costs the server a little memory and the other users nothing.

use crate::ServerError;
use crate::arguments;
use crate::clock::now_ns;
use crate::event_loop::EventLoop;
use crate::job::Job;
use crate::messages::{JobRun, Service};
use crate::shipping;
use crate::users::Has;
use api::JobSpec;
use api::control::{JobOutcome, PLACES_MAX};
use api::task::RunTask;
use ids::JobId;
use mapreduce::JobResults;
use metastore::{Change, JobState, Keep, StoreError, WaitingJobRow};
use scheduler::{Claim, Event, Needs};
use shipped::Hold;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Jobs of one queue that the scheduler has at once, where nodes have no room for more.
const ADMITTED_MAX: u64 = 8192;
/// Bytes of their specifications, and of those of each slot.
const ADMITTED_BYTES_MAX: u64 = 32 << 20;
const SLOT_BYTES: u64 = 2 << 20;
/// Jobs that are admitted at once: the loop has other work.
const ADMIT_AT_ONCE: usize = 1024;
/// A specification of this many bytes as it is written is remembered; a longer one is read again when its turn comes.
const REMEMBERED_BYTES_MAX: usize = 512;
/// Rows that are read at once when a server begins.
const ROWS_AT_ONCE: u32 = 1000;

/// Jobs among which the scheduler would choose the oldest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueKey {
    /// The higher goes first.
    priority: Reverse<i32>,
    user: u64,
    needs: Needs,
}

impl QueueKey {
    pub fn of(claim: &Claim) -> Self {
        Self { priority: Reverse(claim.priority), user: claim.user, needs: claim.needs }
    }

    fn claim(&self) -> Claim {
        Claim { user: self.user, priority: self.priority.0, needs: self.needs }
    }
}

/// A job that waits.
pub(crate) struct Waiting {
    pub name: Arc<str>,
    pub spec: WaitingSpec,
    pub spec_bytes: u64,
    /// Keeps the files that it needs.
    pub hold: Option<Arc<Hold>>,
}

/// The place of the specification of a job that waits.
pub(crate) enum WaitingSpec {
    /// Many jobs have the same.
    Shared(Arc<JobSpec>),
    /// Its task, as it is written.
    Written(Box<str>),
    InStore,
}

impl WaitingSpec {
    /// The least that is needed to have it again.
    pub fn of(spec: &Arc<JobSpec>, is_shared: bool) -> Self {
        if is_shared {
            return Self::Shared(Arc::clone(spec));
        }
        let written = spec.single.as_ref().and_then(|task| serde_json::to_string(task).ok());
        match written.filter(|written| written.len() <= REMEMBERED_BYTES_MAX) {
            Some(written) => Self::Written(written.into()),
            None => Self::InStore,
        }
    }
}

#[derive(Default)]
struct Queue {
    /// In the order of their numbers, the oldest first.
    waiting: BTreeMap<JobId, Waiting>,
    admitted: u64,
    admitted_bytes: u64,
}

/// How much of one queue the scheduler may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    jobs_max: u64,
    bytes_max: u64,
}

impl Queue {
    fn has_room(&self, window: Window, more_bytes: u64) -> bool {
        self.admitted == 0
            || (self.admitted < window.jobs_max && self.admitted_bytes + more_bytes <= window.bytes_max)
    }
}

/// All that wait.
#[derive(Default)]
pub(crate) struct Backlog {
    queues: BTreeMap<QueueKey, Queue>,
    /// The queue of each.
    places: BTreeMap<JobId, QueueKey>,
}

impl Backlog {
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub fn has(&self, job: JobId) -> bool {
        self.places.contains_key(&job)
    }

    pub fn jobs(&self) -> impl Iterator<Item = JobId> {
        self.places.keys().copied()
    }

    /// Whether a job must wait: others of its queue do, or the scheduler has enough of them.
    pub fn must_wait(&self, key: &QueueKey, spec_bytes: u64, window: Window) -> bool {
        let queue = self.queues.get(key);
        queue.is_some_and(|queue| !queue.waiting.is_empty() || !queue.has_room(window, spec_bytes))
    }

    pub fn waits(&mut self, job: JobId, key: QueueKey, waiting: Waiting) {
        self.places.insert(job, key);
        self.queues.entry(key).or_default().waiting.insert(job, waiting);
    }

    /// The scheduler has one of a queue.
    pub fn was_admitted(&mut self, key: QueueKey, spec_bytes: u64) {
        let queue = self.queues.entry(key).or_default();
        queue.admitted += 1;
        queue.admitted_bytes += spec_bytes;
    }

    /// One that was admitted is over.
    pub fn is_over(&mut self, key: QueueKey, spec_bytes: u64) {
        let Some(queue) = self.queues.get_mut(&key) else { return };
        queue.admitted = queue.admitted.saturating_sub(1);
        queue.admitted_bytes = queue.admitted_bytes.saturating_sub(spec_bytes);
        self.drop_if_empty(key);
    }

    /// Takes one out that waits.
    pub fn take(&mut self, job: JobId) -> Option<(QueueKey, Waiting)> {
        let key = self.places.remove(&job)?;
        let waiting = self.queues.get_mut(&key)?.waiting.remove(&job)?;
        self.drop_if_empty(key);
        Some((key, waiting))
    }

    fn drop_if_empty(&mut self, key: QueueKey) {
        if self.queues.get(&key).is_some_and(|queue| queue.waiting.is_empty() && queue.admitted == 0) {
            self.queues.remove(&key);
        }
    }

    /// The next job whose turn has come.
    fn next(&mut self, window: Window) -> Option<(JobId, QueueKey, Waiting)> {
        let (job, key) = self.queues.iter().find_map(|(key, queue)| {
            let (job, waiting) = queue.waiting.first_key_value()?;
            queue.has_room(window, waiting.spec_bytes).then_some((*job, *key))
        })?;
        let (_, waiting) = self.take(job)?;
        Some((job, key, waiting))
    }
}

impl EventLoop {
    /// As much as all nodes could have in their slots and places, twice.
    pub fn window(&self) -> Window {
        let (nodes, slots) = self.fleet.nodes_and_slots();
        let capacity = slots + nodes as u64 * u64::from(PLACES_MAX);
        Window {
            jobs_max: ADMITTED_MAX.max(2 * capacity),
            bytes_max: ADMITTED_BYTES_MAX + 2 * slots * SLOT_BYTES,
        }
    }

    /// Gives a job of one task to the scheduler.
    pub fn admit(
        &mut self,
        job: JobId,
        spec: Arc<JobSpec>,
        key: QueueKey,
        (spec_bytes, hold): (u64, Option<Arc<Hold>>),
    ) {
        let cancelled = self.shared.add_job(job);
        let run = JobRun { cancelled, ..JobRun::new(spec) };
        let mut new = Job::new(job, Arc::new(run), JobResults::new(job, Vec::new()));
        let claim = key.claim();
        (new.user, new.spec_bytes, new.queue) = (claim.user, spec_bytes, Some(key));
        new.hold = hold;
        let (stages, failures_max) = (new.stage_names.clone(), new.failures_max());
        self.backlog.was_admitted(key, spec_bytes);
        self.jobs.insert(job, new);
        self.feed(Event::JobSubmitted { job, claim, stages, failures_max });
    }

    /// Writes and replies, and admits those that may run now.
    pub async fn write_and_admit(&mut self) -> Result<(), StoreError> {
        self.write_and_reply().await?;
        if self.admit_waiting().await? {
            self.write_and_reply().await?;
        }
        Ok(())
    }

    /// The process ends. Those of a cluster wait for the next server.
    pub fn interrupt_waiting(&mut self) {
        let waiting = self.backlog.jobs().filter(|_| self.service == Service::Embedded);
        for job in waiting {
            let error = Some("the server was shut down".to_string());
            let (state, now_ns) = (JobState::Interrupted, now_ns());
            self.changes.push(Change::JobEnded { job, state, exit_code: None, error, now_ns });
            self.changes.push(Change::JobCleaned { job, kept: Keep::Nothing, now_ns });
        }
    }

    /// Admits jobs whose turn has come; whether there were any. What they are has been stored.
    async fn admit_waiting(&mut self) -> Result<bool, StoreError> {
        if self.backlog.is_empty() {
            return Ok(false);
        }
        let window = self.window();
        for count in 0..ADMIT_AT_ONCE {
            let Some((job, key, waiting)) = self.backlog.next(window) else { return Ok(count > 0) };
            let written = |text: &str| serde_json::from_str::<RunTask>(text).ok();
            let spec = match &waiting.spec {
                WaitingSpec::Shared(spec) => Some(Arc::clone(spec)),
                WaitingSpec::Written(text) => {
                    written(text).map(|task| Arc::new(JobSpec::of_one_task(waiting.name.to_string(), task)))
                }
                WaitingSpec::InStore => self.store.job_spec(job).await?.map(Arc::new),
            };
            self.changes.push(Change::JobAdmitted { job });
            match spec {
                Some(spec) => self.admit(job, spec, key, (waiting.spec_bytes, waiting.hold)),
                None => self.ends_before_it_began(job, key, &waiting, JobState::Failed, "its row is gone"),
            }
        }
        Ok(true)
    }

    /// Ends a job that waits because somebody wants that; whether it was one.
    pub fn cancel_waiting(&mut self, job: JobId, reason: &str) -> bool {
        let Some((key, waiting)) = self.backlog.take(job) else { return false };
        self.ends_before_it_began(job, key, &waiting, JobState::Cancelled, reason);
        self.has_finished(job, JobOutcome::Cancelled { reason: reason.to_string() });
        true
    }

    fn ends_before_it_began(
        &mut self,
        job: JobId,
        key: QueueKey,
        waiting: &Waiting,
        state: JobState,
        reason: &str,
    ) {
        let (now_ns, exit_code, error) =
            (now_ns(), Some(crate::job::EXIT_CANCELLED), Some(reason.to_string()));
        self.changes.push(Change::JobEnded { job, state, exit_code, error, now_ns });
        self.changes.push(Change::JobCleaned { job, kept: Keep::Nothing, now_ns });
        self.users.job_over(key.user, waiting.spec_bytes);
    }

    /// Takes over the jobs that waited when the server before this one ended.
    pub async fn recover_waiting(&mut self) -> Result<(), ServerError> {
        let mut last = JobId(0);
        loop {
            let rows = self.store.waiting_jobs(last, ROWS_AT_ONCE).await?;
            let Some(row) = rows.last() else { return Ok(()) };
            last = row.job;
            for row in rows {
                self.waits_again(row).await?;
            }
        }
    }

    async fn waits_again(&mut self, row: WaitingJobRow) -> Result<(), ServerError> {
        let spec = match row.spec {
            Some(spec) => Some(spec),
            // One of the long ones.
            None => self.store.job_spec(row.job).await?,
        };
        let Some(spec) = spec else { return Ok(()) };
        let spec_bytes = arguments::spec_bytes(&spec);
        let needs = self.needs_of(&spec);
        let user = self.users.jobs_begin(row.user.unwrap_or_default(), Has { jobs: 1, spec_bytes });
        let contents = shipping::contents(&spec);
        let depot = self.depot.as_ref().filter(|_| !contents.is_empty());
        let hold = depot.map(|depot| Arc::new(depot.hold_what_is_here(&contents)));
        let key = QueueKey::of(&Claim { user, priority: row.priority, needs });
        let name = spec.name.as_str().into();
        let spec = WaitingSpec::of(&Arc::new(spec), false);
        self.backlog.waits(row.job, key, Waiting { name, spec, spec_bytes, hold });
        self.any_job_yet = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Backlog, QueueKey, Waiting, WaitingSpec, Window};
    use api::JobSpec;
    use api::task::RunTask;
    use ids::JobId;
    use scheduler::Claim;
    use std::sync::Arc;

    const WINDOW: Window = Window { jobs_max: 2, bytes_max: 100 };

    fn key(user: u64, priority: i32) -> QueueKey {
        QueueKey::of(&Claim { user, priority, ..Claim::default() })
    }

    fn waiting(spec_bytes: u64) -> Waiting {
        Waiting { name: "job".into(), spec: WaitingSpec::InStore, spec_bytes, hold: None }
    }

    fn next(backlog: &mut Backlog) -> Option<i64> {
        let (job, key, waiting) = backlog.next(WINDOW)?;
        backlog.was_admitted(key, waiting.spec_bytes);
        Some(job.0)
    }

    #[test]
    fn the_oldest_of_a_queue_comes_first_and_no_more_than_have_room() {
        let mut backlog = Backlog::default();
        assert!(!backlog.must_wait(&key(1, 0), 1, WINDOW));
        for job in [3, 1, 2, 4] {
            backlog.waits(JobId(job), key(1, 0), waiting(1));
        }
        assert!(backlog.must_wait(&key(1, 0), 1, WINDOW) && !backlog.must_wait(&key(2, 0), 1, WINDOW));
        assert_eq!([next(&mut backlog), next(&mut backlog), next(&mut backlog)], [Some(1), Some(2), None]);
        // Another user, and a higher priority, have room of their own.
        backlog.waits(JobId(5), key(2, 0), waiting(1));
        backlog.waits(JobId(6), key(1, 7), waiting(1));
        assert_eq!([next(&mut backlog), next(&mut backlog)], [Some(6), Some(5)]);
        backlog.is_over(key(1, 0), 1);
        assert!(backlog.take(JobId(3)).is_some() && backlog.take(JobId(3)).is_none());
        assert_eq!([next(&mut backlog), next(&mut backlog)], [Some(4), None]);
        assert!(backlog.is_empty());
        for (key, count) in [(key(1, 0), 2), (key(1, 7), 1), (key(2, 0), 1)] {
            (0..count).for_each(|_| backlog.is_over(key, 1));
        }
        assert!(backlog.queues.is_empty());
    }

    #[test]
    fn large_jobs_have_their_turn_one_after_the_other() {
        let mut backlog = Backlog::default();
        for job in 1..=3 {
            backlog.waits(JobId(job), key(1, 0), waiting(70));
        }
        // One alone has room however large it is.
        backlog.waits(JobId(4), key(1, 0), waiting(1000));
        for job in 1..=4 {
            assert_eq!([next(&mut backlog), next(&mut backlog)], [Some(job), None]);
            backlog.is_over(key(1, 0), if job == 4 { 1000 } else { 70 });
        }
    }

    #[test]
    fn what_is_remembered_of_a_job_is_small() {
        let of_words = |bytes: usize| {
            let words = vec!["true".to_string(), "x".repeat(bytes)];
            Arc::new(JobSpec::of_one_task("job".to_string(), RunTask { words, ..RunTask::default() }))
        };
        assert!(matches!(WaitingSpec::of(&of_words(1000), true), WaitingSpec::Shared(_)));
        assert!(matches!(WaitingSpec::of(&of_words(1000), false), WaitingSpec::InStore));
        assert!(matches!(WaitingSpec::of(&of_words(10), false), WaitingSpec::Written(_)));
        let each =
            size_of::<(JobId, Waiting)>() + size_of::<(JobId, QueueKey)>() + super::REMEMBERED_BYTES_MAX;
        assert!(each < 800, "{each} bytes, besides what maps need");
    }
}
