//! Which jobs of one task wait, and which of them may be admitted next. A queue has jobs among which the scheduler would choose
//! the oldest: those of one user with one priority and equal needs. The jobs of a user have one window, whatever their queues
//! are, so that nobody gets more of the scheduler by a priority or a memory of its own for each job. So that a queue need not
//! wait behind another of its user, at most [`RESERVES_MAX`] of them have a small reserve beside the window. Jobs that wait cost
//! little more than their numbers.

use api::JobSpec;
use ids::JobId;
use scheduler::{Claim, Needs};
use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// A specification of this many bytes as it is written is remembered; a longer one is read again when its turn comes.
const REMEMBERED_BYTES_MAX: usize = 512;
/// Queues of one user that may have jobs admitted beside the user's window, each this part of a window.
const RESERVES_MAX: usize = 16;
const RESERVES_IN_WINDOW: u64 = 16;
const OLDEST: JobId = JobId(i64::MIN);

/// Jobs among which the scheduler would choose the oldest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueueKey {
    pub user: u64,
    /// The higher goes first.
    priority: Reverse<i32>,
    needs: Needs,
}

impl QueueKey {
    pub fn of(claim: &Claim) -> Self {
        Self { user: claim.user, priority: Reverse(claim.priority), needs: claim.needs }
    }

    pub fn claim(&self) -> Claim {
        Claim { user: self.user, priority: self.priority.0, needs: self.needs }
    }
}

/// Something that stays as long as a job needs it. Control only holds it.
pub type FileHold = Arc<dyn Send + Sync>;

/// A job that waits.
pub struct Waiting {
    pub name: Arc<str>,
    pub spec: WaitingSpec,
    pub spec_bytes: u64,
    /// Keeps the files that it needs.
    pub file_hold: Option<FileHold>,
}

/// The place of the specification of a job that waits.
pub enum WaitingSpec {
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
        let written = spec.kind.program().and_then(|task| serde_json::to_string(task).ok());
        match written.filter(|written| written.len() <= REMEMBERED_BYTES_MAX) {
            Some(written) => Self::Written(written.into()),
            None => Self::InStore,
        }
    }
}

/// How much of one user's jobs the scheduler may have, besides reserves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub jobs_max: u64,
    pub bytes_max: u64,
    /// Queues of which it may have any: each need makes its decisions dearer.
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

    /// Whether one more has room. One alone has, however large it is.
    fn has_room(self, admitted: Amount, more_bytes: u64) -> bool {
        admitted.jobs == 0
            || (admitted.jobs < self.jobs_max && admitted.bytes.saturating_add(more_bytes) <= self.bytes_max)
    }
}

/// Jobs that the scheduler has, and the bytes of their specifications.
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

/// The place of a job that was admitted; given back when the job is over.
#[derive(Debug)]
pub struct Seat {
    queue: QueueKey,
    bytes: u64,
    of_reserve: bool,
}

/// Jobs of a queue that the scheduler has, and how many of them the window and a reserve admitted.
#[derive(Clone, Copy, Default)]
struct Admitted {
    all: Amount,
    by_window: u64,
    by_reserve: u64,
}

#[derive(Default)]
struct JobsOfUser {
    /// By queue, the oldest first.
    waiting: BTreeMap<(QueueKey, JobId), Waiting>,
    /// Queues of which the scheduler has any.
    admitted: BTreeMap<QueueKey, Admitted>,
    in_window: Amount,
    /// Queues with jobs that were admitted by the window.
    queues_in_window: usize,
    /// Queues with jobs that were admitted by a reserve, at most [`RESERVES_MAX`].
    reserves: BTreeSet<QueueKey>,
    /// Whether it stands among those that may have a job whose turn has come.
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

    /// The oldest of the first queue at or behind a place.
    fn first_from(&self, place: (QueueKey, JobId)) -> Option<(QueueKey, JobId, u64)> {
        self.waiting.range(place..).next().map(|((queue, job), waiting)| (*queue, *job, waiting.spec_bytes))
    }

    fn oldest_of(&self, queue: &QueueKey) -> Option<(QueueKey, JobId, u64)> {
        self.first_from((*queue, OLDEST)).filter(|(first, ..)| first == queue)
    }

    /// The job whose turn is next: of the first queue where the window has room, else of the first whose reserve has.
    fn next(&self, window: Window) -> Option<(QueueKey, JobId)> {
        let chosen = self.next_in_window(window).or_else(|| self.next_by_reserve(window));
        chosen.map(|(queue, job, _)| (queue, job))
    }

    /// Bytes are kept for the first queue, or many small jobs would keep a large one out.
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
        // Only queues with jobs admitted have no room here, and of these there are not many.
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

/// All that wait.
#[derive(Default)]
pub struct Backlog {
    users: BTreeMap<u64, JobsOfUser>,
    /// The queue of each job.
    queues: BTreeMap<JobId, QueueKey>,
    /// Users something of whom changed since none of their jobs could be admitted. They take turns.
    ripe: VecDeque<u64>,
    /// The last window that was asked about.
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

    /// Whether a job must wait: others of its queue do, or the scheduler has enough of its user.
    pub fn must_wait(&self, queue: &QueueKey, spec_bytes: u64, window: Window) -> bool {
        let Some(user) = self.users.get(&queue.user) else { return false };
        user.oldest_of(queue).is_some() || !user.has_room(queue, spec_bytes, window)
    }

    pub fn waits(&mut self, job: JobId, queue: QueueKey, waiting: Waiting) {
        self.queues.insert(job, queue);
        self.users.entry(queue.user).or_default().waiting.insert((queue, job), waiting);
        self.ripens(queue.user);
    }

    /// The scheduler gets a job.
    pub fn admit(&mut self, queue: QueueKey, spec_bytes: u64, window: Window) -> Seat {
        self.users.entry(queue.user).or_default().admit(queue, spec_bytes, window)
    }

    /// A job that was admitted is over.
    pub fn is_over(&mut self, seat: &Seat) {
        let Some(user) = self.users.get_mut(&seat.queue.user) else { return };
        user.leaves(seat);
        self.ripens(seat.queue.user);
        self.drop_if_empty(seat.queue.user);
    }

    /// Takes a job out that waits.
    pub fn take(&mut self, job: JobId) -> Option<(QueueKey, Waiting)> {
        let queue = self.queues.remove(&job)?;
        let waiting = self.users.get_mut(&queue.user)?.waiting.remove(&(queue, job))?;
        // A smaller one may be the first now.
        self.ripens(queue.user);
        self.drop_if_empty(queue.user);
        Some((queue, waiting))
    }

    /// The next job whose turn has come.
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
    use std::sync::Arc;

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

    /// Admits as many as may be.
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
        // Another user has a window, and a higher priority a reserve.
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
        // One alone has room however large it is.
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
        // Another user is not behind them.
        backlog.waits(JobId(2000), key(2, -9999), waiting(1));
        assert_eq!(numbers(&all(&mut backlog, LARGE)), [2000]);
        // One goes, one comes, the most urgent first.
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
        // The window and the reserves are full: one goes, one comes.
        backlog.is_over(&admitted.remove(1).1);
        assert_eq!(numbers(&all(&mut backlog, NARROW)), [162]);
        backlog.is_over(&admitted.remove(1 + RESERVES_MAX).1);
        assert_eq!(numbers(&all(&mut backlog, NARROW)), [4 + RESERVES_MAX as i64]);
    }

    /// Any order of jobs that come and go.
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
        // A queue waits with nothing admitted only where all reserves are taken.
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
            Arc::new(JobSpec::of_one_task("job".to_string(), RunTask { words, ..RunTask::default() }))
        };
        assert!(matches!(WaitingSpec::of(&of_words(1000), true), WaitingSpec::Shared(_)));
        assert!(matches!(WaitingSpec::of(&of_words(1000), false), WaitingSpec::InStore));
        assert!(matches!(WaitingSpec::of(&of_words(10), false), WaitingSpec::Written(_)));
        let each = size_of::<((QueueKey, JobId), Waiting)>() + size_of::<(JobId, QueueKey)>();
        assert!(
            each + super::REMEMBERED_BYTES_MAX < 800,
            "{each} bytes, besides the text and what maps need"
        );
    }
}
