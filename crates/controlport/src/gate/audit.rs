//! Refusals as rows of the audit: the first of a kind at once, the following ones as a count, so that a caller who is
//! refused a thousand times a second does not fill the store.

use api::control::ErrorCode;
use metastore::AuditRow;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// At most one row of a kind is written in this time.
pub(crate) const TELL_EVERY: Duration = Duration::from_secs(60);
/// Maximum number of distinct kinds; all others count as one more kind.
const KINDS_MAX: usize = 1024;
/// Longest path in a row, in bytes.
const TARGET_BYTES_MAX: usize = 200;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Kind {
    pub user: Option<Arc<str>>,
    /// Address of the sender.
    pub source: Option<IpAddr>,
    /// Method and route, such as `POST /v1/jobs/{job}/cancel`.
    pub action: String,
    pub code: ErrorCode,
}

struct Counted {
    told_at: Instant,
    /// Refusals since the last row.
    more: u64,
}

#[derive(Default)]
pub(crate) struct Refusals {
    kinds: Mutex<HashMap<Kind, Counted>>,
}

impl Refusals {
    /// Counts a refusal. Returns a row if it is the first of its kind for a while.
    pub fn count(&self, mut kind: Kind, target: &str, now: Instant, now_ns: u64) -> Option<AuditRow> {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        if kinds.len() >= KINDS_MAX && !kinds.contains_key(&kind) {
            kind = Kind { user: None, source: None, action: "many kinds".to_string(), code: kind.code };
        }
        if let Some(counted) = kinds.get_mut(&kind) {
            counted.more += 1;
            return None;
        }
        let row = row(&kind, target, None, now_ns);
        kinds.insert(kind, Counted { told_at: now, more: 0 });
        Some(row)
    }

    /// Returns the rows for counts that are due, and forgets kinds without new refusals.
    pub fn due(&self, now: Instant, now_ns: u64) -> Vec<AuditRow> {
        let mut rows = Vec::new();
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        kinds.retain(|kind, counted| {
            if now.duration_since(counted.told_at) < TELL_EVERY {
                return true;
            }
            let more = std::mem::take(&mut counted.more);
            counted.told_at = now;
            if more > 0 {
                rows.push(row(kind, "", Some(format!("{more} more")), now_ns));
            }
            more > 0
        });
        rows
    }
}

fn row(kind: &Kind, target: &str, detail: Option<String>, now_ns: u64) -> AuditRow {
    AuditRow {
        time_ns: now_ns,
        user: kind.user.as_deref().map(str::to_string),
        source: kind.source.map(|source| source.to_string()),
        action: kind.action.clone(),
        target: shortened(target),
        allowed: false,
        detail: Some(detail.unwrap_or_else(|| format!("{:?}", kind.code))),
    }
}

/// Returns a path shortened for a row.
pub(crate) fn shortened(target: &str) -> String {
    target.chars().filter(|c| !c.is_control()).take(TARGET_BYTES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::{KINDS_MAX, Kind, Refusals, TELL_EVERY};
    use api::control::ErrorCode;
    use std::time::Instant;

    fn kind(action: &str) -> Kind {
        Kind {
            user: Some("ann".into()),
            source: None,
            action: action.to_string(),
            code: ErrorCode::Forbidden,
        }
    }

    #[test]
    fn repeated_refusals_become_a_counter() {
        let (refusals, start) = (Refusals::default(), Instant::now());
        let first = refusals.count(kind("a"), "/a/1", start, 7).expect("a row");
        assert_eq!((first.time_ns, first.target.as_str(), first.allowed), (7, "/a/1", false));
        let told = (0..5000).filter_map(|_| refusals.count(kind("a"), "/a/2", start, 8));
        assert_eq!(told.count(), 0);
        assert!(refusals.count(kind("b"), "/b", start, 8).is_some());
        assert!(refusals.due(start, 9).is_empty());
        let due = refusals.due(start + TELL_EVERY, 10);
        let due: Vec<_> = due.iter().map(|row| (row.action.as_str(), row.detail.as_deref())).collect();
        assert_eq!(due, [("a", Some("5000 more"))]);
        // The kind still counts as the same, until it has been quiet.
        assert!(refusals.count(kind("a"), "/a", start + TELL_EVERY, 11).is_none());
        assert_eq!(refusals.due(start + TELL_EVERY * 2, 12).len(), 1);
        assert!(refusals.due(start + TELL_EVERY * 3, 13).is_empty());
        assert!(refusals.count(kind("a"), "/a", start + TELL_EVERY * 3, 14).is_some());
    }

    #[test]
    fn kinds_are_bounded() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        let rows = (0..10 * KINDS_MAX).filter_map(|n| refusals.count(kind(&n.to_string()), "", now, 1));
        assert_eq!(rows.count(), KINDS_MAX + 1);
    }
}
