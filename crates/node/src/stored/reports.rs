//! Ends of orders and pages of inventories that the server has not confirmed yet.

use api::stored::cluster::{StoredEnd, StoredListing, StoredOutcome};
use ids::ConcreteId;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of ends that wait; the inventory shows the outcome of those beyond it.
const ENDS_MAX: usize = 100_000;
/// Maximum number of ends of one report.
const ENDS_TOLD_MAX: usize = 2000;
/// Longest reason that is passed on, in bytes.
const REASON_BYTES_MAX: usize = 500;
/// Time that an end waits for others.
const GATHER: Duration = Duration::from_millis(20);

/// Everything that the next reports tell.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    waiting: Mutex<Waiting>,
    woken: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    ends: VecDeque<StoredEnd>,
    /// At most one of each disk.
    pages: VecDeque<StoredListing>,
    /// True if something was added since the last report.
    is_new: bool,
}

/// Ends and a page that one report carries.
#[derive(Debug, Default)]
pub(crate) struct CarriedReports {
    pub ends: Vec<StoredEnd>,
    pub page: Option<StoredListing>,
}

impl Reports {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the end of an order, or damage.
    pub fn add(&self, uuid: &str, file: ConcreteId, outcome: StoredOutcome) {
        let outcome = match outcome {
            StoredOutcome::Lost(reason) => StoredOutcome::Lost(cut(reason)),
            StoredOutcome::Failed(reason) => StoredOutcome::Failed(cut(reason)),
            outcome => outcome,
        };
        let mut waiting = self.waiting();
        if waiting.ends.len() < ENDS_MAX {
            waiting.ends.push_back(StoredEnd { uuid: uuid.to_string(), file, outcome });
        }
        waiting.is_new = true;
        self.woken.notify_all();
    }

    /// Adds a page of an inventory.
    pub fn add_page(&self, page: StoredListing) {
        let mut waiting = self.waiting();
        waiting.pages.push_back(page);
        waiting.is_new = true;
        self.woken.notify_all();
    }

    /// Returns whether a page of this disk waits.
    pub fn has_page(&self, uuid: &str) -> bool {
        self.waiting().pages.iter().any(|page| page.uuid == uuid)
    }

    /// Drops the page of a disk, because its inventory begins again.
    pub fn drop_page(&self, uuid: &str) {
        self.waiting().pages.retain(|page| page.uuid != uuid);
    }

    /// Takes what the next report carries. A page follows the ends before it: otherwise it would lack files whose
    /// removal the server does not know.
    pub fn take(&self) -> CarriedReports {
        let mut waiting = self.waiting();
        waiting.is_new = false;
        let count = waiting.ends.len().min(ENDS_TOLD_MAX);
        let ends = waiting.ends.drain(..count).collect();
        let page = if waiting.ends.is_empty() { waiting.pages.pop_front() } else { None };
        CarriedReports { ends, page }
    }

    /// Drops everything about other disks than these: the server does not take it.
    pub fn retain(&self, is_used: impl Fn(&str) -> bool) {
        let mut waiting = self.waiting();
        waiting.ends.retain(|end| is_used(&end.uuid));
        waiting.pages.retain(|page| is_used(&page.uuid));
    }

    /// Puts back what a report carried that was not answered.
    pub fn put_back(&self, carried: CarriedReports) {
        let mut waiting = self.waiting();
        for end in carried.ends.into_iter().rev() {
            if waiting.ends.len() < ENDS_MAX {
                waiting.ends.push_front(end);
            }
        }
        // The inventory may have begun again meanwhile.
        if let Some(page) = carried.page.filter(|page| waiting.pages.iter().all(|new| new.uuid != page.uuid))
        {
            waiting.pages.push_front(page);
        }
    }

    /// Returns whether more waits than the last report could carry.
    pub fn has_more(&self) -> bool {
        let waiting = self.waiting();
        !waiting.ends.is_empty() || !waiting.pages.is_empty()
    }

    /// Makes the next report leave at once.
    pub fn wake(&self) {
        self.waiting().is_new = true;
        self.woken.notify_all();
    }

    /// Waits for the time of the next report.
    pub fn wait(&self, time: Duration) {
        let due = Instant::now() + time;
        let waiting = self.waiting();
        let (waiting, _) = self
            .woken
            .wait_timeout_while(waiting, time, |waiting| !waiting.is_new)
            .unwrap_or_else(PoisonError::into_inner);
        drop(waiting);
        std::thread::sleep(GATHER.min(due.saturating_duration_since(Instant::now())));
    }
}

/// Shortens a reason, at the end of a character.
fn cut(mut reason: String) -> String {
    if reason.len() > REASON_BYTES_MAX {
        let end = (0..=REASON_BYTES_MAX).rev().find(|end| reason.is_char_boundary(*end));
        reason.truncate(end.unwrap_or(0));
    }
    reason
}

#[cfg(test)]
mod tests {
    use super::{CarriedReports, ENDS_MAX, ENDS_TOLD_MAX, Reports, cut};
    use api::stored::cluster::{StoredListing, StoredOutcome};
    use ids::ConcreteId;

    #[test]
    fn unanswered_reports_are_told_again() {
        let reports = Reports::default();
        (0..ENDS_MAX + 5).for_each(|file| {
            reports.add("a", ConcreteId(file as i64), StoredOutcome::Removed);
        });
        let told_with_page = |reports: &Reports| {
            let told = reports.take();
            (told.ends.len(), told.page.is_some())
        };
        let page = StoredListing {
            uuid: "a".into(),
            first: ConcreteId(0),
            last: ConcreteId(9),
            files: Vec::new(),
            is_last: false,
        };
        reports.add_page(page.clone());
        let carried = reports.take();
        assert_eq!((carried.ends.len(), carried.page.clone()), (ENDS_TOLD_MAX, None));
        assert!(reports.has_more() && reports.has_page("a"));
        reports.put_back(carried);
        let mut told = 0;
        while reports.has_more() {
            let carried = reports.take();
            let expected = (told as i64..).map(ConcreteId);
            assert!(carried.ends.iter().map(|end| end.file).zip(expected).all(|(file, next)| file == next));
            told += carried.ends.len();
        }
        assert_eq!(told, ENDS_MAX);
        // The page came with the last ends.
        assert!(!reports.has_page("a"));
        reports.put_back(CarriedReports { ends: Vec::new(), page: Some(page) });
        reports.add("b", ConcreteId(1), StoredOutcome::Removed);
        reports.retain(|uuid| uuid == "a");
        assert_eq!(told_with_page(&reports), (0, true));
    }

    #[test]
    fn long_reasons_are_cut() {
        assert_eq!(cut("short".into()), "short");
        assert_eq!(cut("ä".repeat(400)).len(), 500);
        assert_eq!(cut(format!("x{}", "ä".repeat(400))).len(), 499);
    }
}
