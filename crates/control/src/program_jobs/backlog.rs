//! The backlog: the waiting jobs of one task, and the choice of the next to admit. A queue holds jobs of one user with
//! equal priority and needs; the oldest is admitted first. The scheduler has an order of its own for the steps of a job,
//! which counts among admitted jobs only. All queues of a user share one window, so that no user gets more of the scheduler
//! by a separate priority or memory size for each job. So that a queue need not wait behind another one of its user, at
//! most [`RESERVES_MAX`] queues have a small reserve beside the window. A waiting job costs little more than its number.

use api::JobSpec;
use ids::JobId;
use scheduler::{Claim, Needs};
use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Longest specification that is kept in memory, in bytes as written; a longer one is read again when its turn comes.
const REMEMBERED_BYTES_MAX: usize = 512;
/// Maximum number of queues of one user with a reserve beside the window; a reserve is the window divided by this
/// number.
const RESERVES_MAX: usize = 16;
const RESERVES_IN_WINDOW: u64 = 16;
const OLDEST: JobId = JobId(i64::MIN);

/// Identity of a queue. Among its jobs the scheduler would choose the oldest, apart from steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueueKey {
    pub user: u64,
    /// The higher priority goes first.
    priority: Reverse<i32>,
    needs: Needs,
}

impl QueueKey {
    pub fn of(claim: &Claim) -> Self {
        Self { user: claim.user, priority: Reverse(claim.priority), needs: claim.needs }
    }

    /// Returns the claim of a job of the queue that is no step.
    pub fn claim(&self) -> Claim {
        Claim { user: self.user, priority: self.priority.0, needs: self.needs, step: None }
    }
}

/// A hold on files. It is kept as long as a job needs them; control only stores it.
pub type FileHold = Arc<dyn Send + Sync>;

/// A waiting job.
pub struct Waiting {
    pub name: Arc<str>,
    pub spec: WaitingSpec,
    pub spec_bytes: u64,
    /// A hold on the files that it needs.
    pub file_hold: Option<FileHold>,
}

/// Storage of the specification of a waiting job.
pub enum WaitingSpec {
    /// A specification that several jobs share.
    Shared(Arc<JobSpec>),
    /// The task in its written form.
    Written(Box<str>),
    InStore,
}

impl WaitingSpec {
    /// Returns the smallest form from which a specification that no other job shares can be restored.
    pub fn of(spec: &JobSpec) -> Self {
        let written = spec.kind.program().and_then(|task| serde_json::to_string(task).ok());
        match written.filter(|written| written.len() <= REMEMBERED_BYTES_MAX) {
            Some(written) => Self::Written(written.into()),
            None => Self::InStore,
        }
    }
}

/// Limits for the jobs of one user in the scheduler, without reserves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub jobs_max: u64,
    pub bytes_max: u64,
    /// Maximum number of queues with admitted jobs: each distinct need makes decisions of the scheduler more expensive.
    pub queues_max: usize,
}

impl Window {
    fn reserve(self) -> Self {
        Self {
            jobs_max: self.jobs_max.div_ceil(RESERVES_IN_WINDOW),
            bytes_max: self.bytes_max / RESERVES_IN_WINDOW,
            ..self
        }
    }

    /// Returns whether one more job fits. A single job always fits, however large it is.
    fn has_room(self, admitted: Amount, more_bytes: u64) -> bool {
        admitted.jobs == 0
            || (admitted.jobs < self.jobs_max && admitted.bytes.saturating_add(more_bytes) <= self.bytes_max)
    }
}

/// Number of jobs in the scheduler, and the bytes of their specifications.
#[derive(Clone, Copy, Default)]
struct Amount {
    jobs: u64,
    bytes: u64,
}

impl Amount {
    fn add(&mut self, bytes: u64) {
        self.jobs += 1;
        self.bytes += bytes;
    }

    fn subtract(&mut self, bytes: u64) {
        self.jobs = self.jobs.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// The seat of an admitted job in the scheduler; given back when the job is over.
#[derive(Debug)]
pub struct Seat {
    queue: QueueKey,
    bytes: u64,
    of_reserve: bool,
}

/// Jobs of a queue in the scheduler: all of them, and how many the window and the reserve admitted.
#[derive(Clone, Copy, Default)]
struct Admitted {
    all: Amount,
    by_window: u64,
    by_reserve: u64,
}

#[derive(Default)]
struct JobsOfUser {
    /// Waiting jobs by queue, the oldest first.
    waiting: BTreeMap<(QueueKey, JobId), Waiting>,
    /// Queues with jobs in the scheduler.
    admitted: BTreeMap<QueueKey, Admitted>,
    in_window: Amount,
    /// Number of queues with jobs that the window admitted.
    queues_in_window: usize,
    /// Queues with jobs that a reserve admitted, at most [`RESERVES_MAX`].
    reserves: BTreeSet<QueueKey>,
    /// True if the user is in `ripe`.
    is_ripe: bool,
}

impl JobsOfUser {
    fn admitted_of(&self, queue: &QueueKey) -> Amount {
        self.admitted.get(queue).map(|admitted| admitted.all).unwrap_or_default()
    }

    fn reserve_has_room(&self, queue: &QueueKey, bytes: u64, window: Window) -> bool {
        (self.reserves.len() < RESERVES_MAX || self.reserves.contains(queue))
            && window.reserve().has_room(self.admitted_of(queue), bytes)
    }

    fn window_has_room(&self, queue: &QueueKey, bytes: u64, window: Window) -> bool {
        let has_any = |queue| self.admitted.get(queue).is_some_and(|admitted| admitted.by_window > 0);
        window.has_room(self.in_window, bytes)
            && (self.queues_in_window < window.queues_max || has_any(queue))
    }

    fn has_room(&self, queue: &QueueKey, bytes: u64, window: Window) -> bool {
        self.window_has_room(queue, bytes, window) || self.reserve_has_room(queue, bytes, window)
    }

    /// Returns the oldest job of the first queue at or after a position.
    fn first_from(&self, place: (QueueKey, JobId)) -> Option<(QueueKey, JobId, u64)> {
        self.waiting.range(place..).next().map(|((queue, job), waiting)| (*queue, *job, waiting.spec_bytes))
    }

    fn oldest_of(&self, queue: &QueueKey) -> Option<(QueueKey, JobId, u64)> {
        self.first_from((*queue, OLDEST)).filter(|(first, ..)| first == queue)
    }

    /// Returns the next job: of the first queue if the window has room, otherwise of the first queue whose reserve has
    /// room.
    fn next(&self, window: Window) -> Option<(QueueKey, JobId)> {
        let chosen = self.next_in_window(window).or_else(|| self.next_by_reserve(window));
        chosen.map(|(queue, job, _)| (queue, job))
    }

    /// Returns the next job of the window. Free bytes are reserved for the first queue; otherwise many small jobs would
    /// keep out a large one.
    fn next_in_window(&self, window: Window) -> Option<(QueueKey, JobId, u64)> {
        let first = self.waiting.first_key_value();
        let (queue, job, bytes) = first.map(|((queue, job), waiting)| (*queue, *job, waiting.spec_bytes))?;
        if !window.has_room(self.in_window, bytes) {
            return None;
        }
        if self.window_has_room(&queue, bytes, window) {
            return Some((queue, job, bytes));
        }
        let mut oldest = self.admitted.keys().filter_map(|queue| self.oldest_of(queue));
        oldest.find(|(queue, _, bytes)| self.window_has_room(queue, *bytes, window))
    }

    fn next_by_reserve(&self, window: Window) -> Option<(QueueKey, JobId, u64)> {
        let has_room =
            |(queue, _, bytes): &(QueueKey, JobId, u64)| self.reserve_has_room(queue, *bytes, window);
        if self.reserves.len() >= RESERVES_MAX {
            return self.reserves.iter().filter_map(|queue| self.oldest_of(queue)).find(has_room);
        }
        // Only queues with admitted jobs can lack room here, and their number is limited.
        let first = self.waiting.first_key_value().map(|(place, _)| *place)?;
        let behind = |(queue, ..): &(QueueKey, JobId, u64)| self.first_from((*queue, JobId(i64::MAX)));
        std::iter::successors(self.first_from(first), behind).find(has_room)
    }

    fn admit(&mut self, queue: QueueKey, bytes: u64, window: Window) -> Seat {
        let of_reserve = !self.window_has_room(&queue, bytes, window);
        let admitted = self.admitted.entry(queue).or_default();
        admitted.all.add(bytes);
        if of_reserve {
            admitted.by_reserve += 1;
            self.reserves.insert(queue);
        } else {
            self.queues_in_window += usize::from(admitted.by_window == 0);
            admitted.by_window += 1;
            self.in_window.add(bytes);
        }
        Seat { queue, bytes, of_reserve }
    }

    fn leaves(&mut self, seat: &Seat) {
        let Entry::Occupied(mut entry) = self.admitted.entry(seat.queue) else { return };
        let admitted = entry.get_mut();
        admitted.all.subtract(seat.bytes);
        if seat.of_reserve {
            admitted.by_reserve = admitted.by_reserve.saturating_sub(1);
        } else {
            admitted.by_window = admitted.by_window.saturating_sub(1);
            self.queues_in_window -= usize::from(admitted.by_window == 0);
            self.in_window.subtract(seat.bytes);
        }
        if admitted.by_reserve == 0 {
            self.reserves.remove(&seat.queue);
        }
        if admitted.all.jobs == 0 {
            entry.remove();
        }
    }
}

/// All waiting jobs.
#[derive(Default)]
pub struct Backlog {
    users: BTreeMap<u64, JobsOfUser>,
    /// The queue of each job.
    queues: BTreeMap<JobId, QueueKey>,
    /// Users to look at: something of theirs changed since none of their jobs could be admitted. They take turns.
    ripe: VecDeque<u64>,
    /// The window of the last call of `next`.
    window: Option<Window>,
}

impl Backlog {
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    pub fn has(&self, job: JobId) -> bool {
        self.queues.contains_key(&job)
    }

    pub fn jobs(&self) -> impl Iterator<Item = JobId> {
        self.queues.keys().copied()
    }

    /// Returns whether a job must wait: others of its queue wait, or the scheduler has enough jobs of its user.
    pub fn must_wait(&self, queue: &QueueKey, spec_bytes: u64, window: Window) -> bool {
        let Some(user) = self.users.get(&queue.user) else { return false };
        user.oldest_of(queue).is_some() || !user.has_room(queue, spec_bytes, window)
    }

    pub fn waits(&mut self, job: JobId, queue: QueueKey, waiting: Waiting) {
        self.queues.insert(job, queue);
        self.users.entry(queue.user).or_default().waiting.insert((queue, job), waiting);
        self.ripens(queue.user);
    }

    /// Counts a job that is given to the scheduler. Returns its seat.
    pub fn admit(&mut self, queue: QueueKey, spec_bytes: u64, window: Window) -> Seat {
        self.users.entry(queue.user).or_default().admit(queue, spec_bytes, window)
    }

    /// Gives back the seat of an admitted job that is over.
    pub fn is_over(&mut self, seat: &Seat) {
        let Some(user) = self.users.get_mut(&seat.queue.user) else { return };
        user.leaves(seat);
        self.ripens(seat.queue.user);
        self.drop_if_empty(seat.queue.user);
    }

    /// Removes a waiting job.
    pub fn take(&mut self, job: JobId) -> Option<(QueueKey, Waiting)> {
        let queue = self.queues.remove(&job)?;
        let waiting = self.users.get_mut(&queue.user)?.waiting.remove(&(queue, job))?;
        // A smaller job may be the first now.
        self.ripens(queue.user);
        self.drop_if_empty(queue.user);
        Some((queue, waiting))
    }

    /// Takes the next job whose turn has come.
    pub fn next(&mut self, window: Window) -> Option<(JobId, QueueKey, Waiting)> {
        if self.window.replace(window) != Some(window) {
            let users: Vec<u64> = self.users.keys().copied().collect();
            users.into_iter().for_each(|user| self.ripens(user));
        }
        while let Some(number) = self.ripe.pop_front() {
            let Some(user) = self.users.get_mut(&number) else { continue };
            user.is_ripe = false;
            if let Some((queue, job)) = user.next(window) {
                self.ripens(number);
                let (_, waiting) = self.take(job)?;
                return Some((job, queue, waiting));
            }
        }
        None
    }

    fn ripens(&mut self, number: u64) {
        let user = self.users.get_mut(&number);
        let Some(user) = user.filter(|user| !user.is_ripe && !user.waiting.is_empty()) else { return };
        user.is_ripe = true;
        self.ripe.push_back(number);
    }

    fn drop_if_empty(&mut self, number: u64) {
        if let Entry::Occupied(user) = self.users.entry(number)
            && user.get().waiting.is_empty()
            && user.get().admitted.is_empty()
        {
            user.remove();
            self.ripe.retain(|ripe| *ripe != number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Backlog, JobsOfUser, QueueKey, RESERVES_MAX, Seat, Waiting, WaitingSpec, Window};
    use api::JobSpec;
    use api::task::RunTask;
    use ids::JobId;
    use proptest::prelude::{Strategy, any, prop, prop_assert, prop_assert_eq, proptest};
    use scheduler::Claim;
    use std::collections::BTreeMap;

    const WINDOW: Window = Window { jobs_max: 2, bytes_max: 100, queues_max: 9 };

    fn key(user: u64, priority: i32) -> QueueKey {
        QueueKey::of(&Claim { user, priority, ..Claim::default() })
    }

    fn waiting(spec_bytes: u64) -> Waiting {
        Waiting { name: "job".into(), spec: WaitingSpec::InStore, spec_bytes, file_hold: None }
    }

    fn next(backlog: &mut Backlog, window: Window) -> Option<(i64, Seat)> {
        let (job, queue, waiting) = backlog.next(window)?;
        Some((job.0, backlog.admit(queue, waiting.spec_bytes, window)))
    }

    /// Admits as many jobs as possible.
    fn all(backlog: &mut Backlog, window: Window) -> Vec<(i64, Seat)> {
        std::iter::from_fn(|| next(backlog, window)).collect()
    }

    fn numbers(admitted: &[(i64, Seat)]) -> Vec<i64> {
        admitted.iter().map(|(job, _)| *job).collect()
    }

    #[test]
    fn oldest_jobs_come_first_within_the_room() {
        let mut backlog = Backlog::default();
        assert!(!backlog.must_wait(&key(1, 0), 1, WINDOW));
        for job in [3, 1, 2, 4] {
            backlog.waits(JobId(job), key(1, 0), waiting(1));
        }
        assert!(backlog.must_wait(&key(1, 0), 1, WINDOW) && !backlog.must_wait(&key(2, 0), 1, WINDOW));
        let mut admitted = all(&mut backlog, WINDOW);
        assert_eq!(numbers(&admitted), [1, 2]);
        // Another user has a window of his own, and a higher priority has a reserve.
        backlog.waits(JobId(5), key(2, 0), waiting(1));
        backlog.waits(JobId(6), key(1, 7), waiting(1));
        let others = all(&mut backlog, WINDOW);
        assert_eq!(numbers(&others), [5, 6]);
        backlog.is_over(&admitted.remove(0).1);
        assert!(backlog.take(JobId(3)).is_some() && backlog.take(JobId(3)).is_none());
        let last = all(&mut backlog, WINDOW);
        assert_eq!(numbers(&last), [4]);
        assert!(backlog.is_empty());
        for (_, seat) in admitted.iter().chain(&others).chain(&last) {
            backlog.is_over(seat);
        }
        assert!(backlog.users.is_empty() && backlog.ripe.is_empty());
    }

    #[test]
    fn large_jobs_take_turns_one_by_one() {
        let mut backlog = Backlog::default();
        for job in 1..=3 {
            backlog.waits(JobId(job), key(1, 0), waiting(70));
        }
        // A single job has room, however large it is.
        backlog.waits(JobId(4), key(1, 0), waiting(1000));
        for job in 1..=4 {
            let admitted = all(&mut backlog, WINDOW);
            assert_eq!(numbers(&admitted), [job]);
            backlog.is_over(&admitted[0].1);
        }
    }

    #[test]
    fn many_priorities_give_a_user_no_more() {
        const LARGE: Window = Window { jobs_max: 64, bytes_max: 6400, queues_max: 64 };
        let mut backlog = Backlog::default();
        for job in 1..=1000 {
            backlog.waits(JobId(job), key(1, -(job as i32)), waiting(1));
        }
        let mut admitted = all(&mut backlog, LARGE);
        assert_eq!(numbers(&admitted), (1..=64 + RESERVES_MAX as i64).collect::<Vec<_>>());
        assert!(backlog.must_wait(&key(1, 1), 1, LARGE) && !backlog.must_wait(&key(2, 0), 1, LARGE));
        // Another user does not wait for them.
        backlog.waits(JobId(2000), key(2, -9999), waiting(1));
        assert_eq!(numbers(&all(&mut backlog, LARGE)), [2000]);
        // One ends and one is admitted, the most urgent first.
        backlog.waits(JobId(3000), key(1, 7), waiting(1));
        backlog.is_over(&admitted.remove(0).1);
        assert_eq!(numbers(&all(&mut backlog, LARGE)), [3000]);
        backlog.is_over(&admitted.remove(0).1);
        assert_eq!(numbers(&all(&mut backlog, LARGE)), [65 + RESERVES_MAX as i64]);
    }

    #[test]
    fn large_jobs_of_many_queues_share_one_window() {
        let mut backlog = Backlog::default();
        for job in 1..=100 {
            backlog.waits(JobId(job), key(1, -(job as i32)), waiting(60));
        }
        assert_eq!(all(&mut backlog, WINDOW).len(), 1 + RESERVES_MAX);
    }

    #[test]
    fn admitted_jobs_of_few_queues_use_the_window() {
        const NARROW: Window = Window { jobs_max: 64, bytes_max: 6400, queues_max: 3 };
        let mut backlog = Backlog::default();
        for job in 1..=100 {
            backlog.waits(JobId(job), key(1, -(job as i32)), waiting(1));
        }
        let mut admitted = all(&mut backlog, NARROW);
        assert_eq!(numbers(&admitted), (1..=3 + RESERVES_MAX as i64).collect::<Vec<_>>());
        for job in 101..=170 {
            backlog.waits(JobId(job), key(1, -1), waiting(1));
        }
        let more = all(&mut backlog, NARROW);
        assert_eq!(numbers(&more), (101..=161).collect::<Vec<_>>());
        // The window and the reserves are full: one job ends, one is admitted.
        backlog.is_over(&admitted.remove(1).1);
        assert_eq!(numbers(&all(&mut backlog, NARROW)), [162]);
        backlog.is_over(&admitted.remove(1 + RESERVES_MAX).1);
        assert_eq!(numbers(&all(&mut backlog, NARROW)), [4 + RESERVES_MAX as i64]);
    }

    /// Generates sequences of jobs that arrive and end.
    fn steps() -> impl Strategy<Value = Vec<(bool, u64, i32, u64, usize)>> {
        prop::collection::vec((any::<bool>(), 0..3_u64, 0..40_i32, 0..300_u64, any::<usize>()), 1..400)
    }

    fn check(user: &JobsOfUser, window: Window) -> Result<(), proptest::test_runner::TestCaseError> {
        let (jobs, bytes) = (user.in_window.jobs, user.in_window.bytes);
        prop_assert!(jobs <= 1 || jobs <= window.jobs_max && bytes <= window.bytes_max);
        prop_assert!(user.reserves.len() <= RESERVES_MAX);
        let in_window = user.admitted.values().filter(|admitted| admitted.by_window > 0).count();
        prop_assert!(in_window <= window.queues_max);
        prop_assert_eq!(in_window, user.queues_in_window);
        for queue in &user.reserves {
            let reserved = user.admitted[queue].by_reserve;
            prop_assert!(reserved >= 1 && reserved <= window.reserve().jobs_max);
        }
        let (mut all_jobs, mut all_bytes, mut reserved) = (0, 0, 0);
        for admitted in user.admitted.values() {
            (all_jobs, all_bytes) = (all_jobs + admitted.all.jobs, all_bytes + admitted.all.bytes);
            prop_assert_eq!(admitted.all.jobs, admitted.by_window + admitted.by_reserve);
            reserved += admitted.by_reserve;
        }
        prop_assert_eq!(all_jobs, jobs + reserved);
        prop_assert!(all_bytes >= bytes);
        // A queue waits without an admitted job only if all reserves are taken.
        let starves = user.waiting.keys().any(|(queue, _)| !user.admitted.contains_key(queue));
        prop_assert!(!starves || user.reserves.len() == RESERVES_MAX);
        Ok(())
    }

    proptest! {
        #[test]
        fn each_job_is_admitted_once_and_in_turn(steps in steps()) {
            let window = Window { jobs_max: 40, bytes_max: 1000, queues_max: 8 };
            let mut backlog = Backlog::default();
            let mut queue_of = BTreeMap::new();
            let mut last_of = BTreeMap::new();
            let mut seats: Vec<Seat> = Vec::new();
            let mut steps = steps.into_iter().enumerate();
            while let Some((number, (comes, user, priority, bytes, which))) = steps.next().or_else(|| {
                (!seats.is_empty()).then_some((usize::MAX, (false, 0, 0, 0, 0)))
            }) {
                if comes {
                    let (job, queue) = (number as i64, key(user, priority));
                    queue_of.insert(job, queue);
                    if backlog.must_wait(&queue, bytes, window) {
                        backlog.waits(JobId(job), queue, waiting(bytes));
                    } else {
                        prop_assert!(last_of.insert(queue, job) < Some(job));
                        seats.push(backlog.admit(queue, bytes, window));
                    }
                } else if !seats.is_empty() {
                    let seat = seats.swap_remove(which % seats.len());
                    backlog.is_over(&seat);
                }
                for (job, seat) in all(&mut backlog, window) {
                    prop_assert_eq!(queue_of[&job], seat.queue);
                    prop_assert!(last_of.insert(seat.queue, job) < Some(job));
                    seats.push(seat);
                }
                for user in backlog.users.values() {
                    check(user, window)?;
                }
            }
            prop_assert!(backlog.is_empty() && backlog.users.is_empty() && backlog.ripe.is_empty());
        }
    }

    #[test]
    fn little_of_a_job_is_remembered() {
        let of_words = |bytes: usize| {
            let words = vec!["true".to_string(), "x".repeat(bytes)];
            JobSpec::of_one_task("job".to_string(), RunTask { words, ..RunTask::default() })
        };
        assert!(matches!(WaitingSpec::of(&of_words(1000)), WaitingSpec::InStore));
        assert!(matches!(WaitingSpec::of(&of_words(10)), WaitingSpec::Written(_)));
        let each = size_of::<((QueueKey, JobId), Waiting)>() + size_of::<(JobId, QueueKey)>();
        assert!(
            each + super::REMEMBERED_BYTES_MAX <= 800,
            "{each} bytes, besides the text and the nodes of maps"
        );
    }
}
