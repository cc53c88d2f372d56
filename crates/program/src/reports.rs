//! Reports of programs, as lines on standard error: counters and a status, in the form of Hadoop Streaming.
//!
//! ```text
//!   reporter:counter:GROUP,NAME,AMOUNT
//!   reporter:status:TEXT
//! ```
//!
//! A program that serves several tasks writes `reporter:end` after the last report of each.

use crate::process::intake::Intake;
use crate::process::standard_error::TAIL_LINES_MAX;
use api::{Blame, TaskFailure};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Prefix of every report.
pub(crate) const PREFIX: &[u8] = b"reporter:";
/// The line of a program that has reported everything about a task, and stays for the next.
pub(crate) const END: &[u8] = b"reporter:end";
/// Maximum length of a report line.
pub(crate) const LINE_BYTES_MAX: usize = 4096;
/// Maximum number of counter names of an attempt.
const COUNTERS_MAX: usize = 1000;
/// Maximum bytes of a status.
const STATUS_BYTES_MAX: usize = 1024;

/// The reports of all programs of an attempt, added up, and the bytes that its first one has read.
#[derive(Debug, Default)]
pub struct Reports {
    reported: Mutex<Reported>,
    pub(crate) intake: Intake,
}

#[derive(Debug, Default)]
struct Reported {
    counters: BTreeMap<String, i64>,
    status: Option<String>,
    /// The last lines of standard error that are not reports.
    said: VecDeque<String>,
    too_many: bool,
}

impl Reports {
    /// Returns the counters by `GROUP,NAME`.
    pub fn counters(&self) -> BTreeMap<String, i64> {
        self.lock().counters.clone()
    }

    /// Returns the bytes of its input that the first program of the attempt has read; None if there was no program.
    pub fn taken_bytes(&self) -> Option<u64> {
        self.intake.bytes()
    }

    /// Returns the last status.
    pub fn status(&self) -> Option<String> {
        self.lock().status.clone()
    }

    /// Returns the last lines that the programs wrote to standard error, without reports.
    pub fn said(&self) -> Vec<String> {
        self.lock().said.iter().cloned().collect()
    }

    /// Adds the last lines of a program; the oldest lines are dropped if there are too many.
    pub(crate) fn says(&self, lines: Vec<String>) {
        let said = &mut self.lock().said;
        said.extend(lines.into_iter().filter(|line| !line.is_empty()));
        let surplus = said.len().saturating_sub(TAIL_LINES_MAX);
        said.drain(..surplus);
    }

    /// Parses a line without its end; false if it is not a report and belongs to standard error.
    pub(crate) fn take(&self, line: &[u8]) -> bool {
        let Some(text) = line.strip_prefix(PREFIX).and_then(|rest| std::str::from_utf8(rest).ok()) else {
            return false;
        };
        if let Some(counter) = text.strip_prefix("counter:") {
            return self.count(counter.trim());
        }
        let Some(status) = text.strip_prefix("status:") else { return false };
        let mut status = status.trim().to_string();
        status.truncate(status.floor_char_boundary(STATUS_BYTES_MAX));
        self.lock().status = Some(status);
        true
    }

    /// Parses `GROUP,NAME,AMOUNT`: exactly three fields; the amount may be negative.
    fn count(&self, text: &str) -> bool {
        let mut fields = text.split(',');
        let (Some(group), Some(name), Some(amount), None) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            return false;
        };
        let Ok(amount) = amount.parse::<i64>() else { return false };
        let mut reported = self.lock();
        let key = format!("{group},{name}");
        if reported.counters.len() == COUNTERS_MAX && !reported.counters.contains_key(&key) {
            reported.too_many = true;
            return true;
        }
        let sum = reported.counters.entry(key).or_insert(0);
        *sum = sum.saturating_add(amount);
        true
    }

    /// Returns the failure of a program that uses too many counter names.
    pub(crate) fn check(&self) -> Result<(), TaskFailure> {
        match self.lock().too_many {
            false => Ok(()),
            true => {
                let message =
                    format!("the program counts under more than {COUNTERS_MAX} names (reporter:counter:)");
                Err(TaskFailure::new(Blame::UserData, message))
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Reported> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{COUNTERS_MAX, Reports, STATUS_BYTES_MAX};

    #[test]
    fn counters_add_up_and_the_last_status_stays() {
        let reports = Reports::default();
        let lines = [
            "reporter:counter:G,n,1",
            "reporter:counter:G,n,-3",
            "reporter:counter:G,other name, 2",
            "reporter:counter: H,m,+4 ",
            "reporter:counter:,,0",
            "reporter:status:half way",
            "reporter:status: done ",
        ];
        let taken: Vec<bool> = lines.iter().map(|line| reports.take(line.as_bytes())).collect();
        assert_eq!(taken, [true, true, false, true, true, true, true]);
        let counters: Vec<(String, i64)> = reports.counters().into_iter().collect();
        assert_eq!(counters, [(",".to_string(), 0), ("G,n".to_string(), -2), ("H,m".to_string(), 4)]);
        assert_eq!(reports.status().as_deref(), Some("done"));
    }

    #[test]
    fn lines_without_reports_stay_in_place() {
        let reports = Reports::default();
        for line in [
            "error",
            "reporter",
            "reporter:",
            "reporter:counter:a,b",
            "reporter:counter:a,b,c,1",
            "reporter:counter:a,b,one",
            "reporter:counter:a,b,99999999999999999999",
            " reporter:status:x",
            "Reporter:status:x",
        ] {
            assert!(!reports.take(line.as_bytes()), "{line}");
        }
        assert!(!reports.take(b"reporter:status:\xff"));
        assert!(reports.counters().is_empty() && reports.status().is_none());
    }

    #[test]
    fn kept_reports_are_limited() {
        let reports = Reports::default();
        for number in 0..COUNTERS_MAX {
            assert!(reports.take(format!("reporter:counter:g,{number},1").as_bytes()));
        }
        assert!(reports.check().is_ok());
        assert!(reports.take(b"reporter:counter:g,1,1") && reports.check().is_ok());
        assert!(reports.take(b"reporter:counter:g,one more,1") && reports.check().is_err());
        reports.take(format!("reporter:status:{}", "ä".repeat(STATUS_BYTES_MAX)).as_bytes());
        assert_eq!(reports.status().map(|status| status.len()), Some(STATUS_BYTES_MAX));
        let sums = Reports::default();
        for _ in 0..2 {
            sums.take(format!("reporter:counter:g,n,{}", i64::MAX).as_bytes());
        }
        assert_eq!(sums.counters()["g,n"], i64::MAX);
    }
}
