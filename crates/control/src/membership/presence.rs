//! Presence of nodes, judged by their polls and by peers that could not reach them.
//!
//! A node has a poll open nearly always, so the time without a poll shows whether it is alive. The timeout depends on
//! how the last poll ended, on recent gaps between its polls, and on the errors of peers that could not reach it.
//! Reports of peers alone never make a node dead: they make the server answer its open poll. A live node polls again at
//! once, even if peers cannot reach it.

use crate::interface::Moment;
use api::machine::Unreached;
use ids::NodeId;
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest silence of a node; after it the node is dead, and its work is retried on other nodes.
pub const LEASE: Duration = Duration::from_secs(10);
/// Least time without a poll after which a node is dead, for a node that hung up and for a node whose poll was
/// answered. No node is dead before [`ABSENT_FACTOR`] times its longest recent gap between polls, up to [`LEASE`]: a
/// slow machine is not dead.
const HUNG_UP_MIN: Duration = Duration::from_secs(2);
const ABSENT_MIN: Duration = Duration::from_secs(5);
const ABSENT_FACTOR: u32 = 5;
/// Reports of peers divide these times and the factor by one more than their total weight, down to these bounds.
const EVIDENCE_MIN: Duration = Duration::from_millis(300);
const EVIDENCE_FACTOR_MIN: u32 = 2;
/// Percent of the longest gap that is kept at each new poll.
const ABSENT_REMEMBERED: u32 = 99;
/// Maximum wait of a poll of a node that peers could not reach.
const DOUBTED_POLL_MAX: Duration = Duration::from_millis(500);
/// Maximum number of remembered reporters; more add nothing.
const REPORTERS_MAX: usize = 16;

/// The server's knowledge about the presence of a node.
pub struct Presence {
    last_heard: Moment,
    /// Time since which no caller waits with a poll of the node; None while it has a poll open, or if it never had one.
    absent_since: Option<Moment>,
    /// True if it hung up: its last poll ended without an answer.
    hung_up: bool,
    /// Longest recent time without a poll.
    absent_max: Duration,
    /// Peers that could not reach it since its last poll, with the error of each.
    reports: BTreeMap<NodeId, Unreached>,
}

impl Presence {
    pub fn new(now: Moment) -> Self {
        Self {
            last_heard: now,
            absent_since: None,
            hung_up: false,
            absent_max: Duration::ZERO,
            reports: BTreeMap::new(),
        }
    }

    /// Returns how long nothing was heard from it.
    pub fn silent_for(&self, now: Moment) -> Duration {
        now.since(self.last_heard)
    }

    /// Records any message of the node.
    pub fn heard(&mut self, now: Moment) {
        self.last_heard = now;
    }

    /// Records that it has a poll open: it is alive, and earlier reports of peers are dropped.
    pub fn polls(&mut self, now: Moment) {
        let absent = self.absent_since.take().map_or(Duration::ZERO, |since| now.since(since));
        self.absent_max = absent.max(self.absent_max * ABSENT_REMEMBERED / 100);
        self.hung_up = false;
        self.reports.clear();
    }

    /// Records that its poll was answered.
    pub fn answered(&mut self, now: Moment) {
        self.absent_since.get_or_insert(now);
    }

    /// Records that it hung up its poll.
    pub fn hangs_up(&mut self, now: Moment) {
        self.absent_since.get_or_insert(now);
        self.hung_up = true;
    }

    /// Records that a peer could not reach it.
    pub fn reported(&mut self, by: NodeId, how: Unreached) {
        if self.reports.len() < REPORTERS_MAX || self.reports.contains_key(&by) {
            let worst = self.reports.entry(by).or_insert(how);
            *worst = how.max(*worst);
        }
    }

    /// Returns how long its poll may wait: less if peers could not reach it, so that it proves its presence.
    pub fn poll_max(&self, otherwise: Duration) -> Duration {
        if self.reports.is_empty() { otherwise } else { otherwise.min(DOUBTED_POLL_MAX) }
    }

    /// Extends the times by a period in which no node could be heard.
    pub fn forgive(&mut self, stood_still: Duration, now: Moment) {
        self.last_heard = (self.last_heard + stood_still).min(now);
        self.absent_since = self.absent_since.map(|since| (since + stood_still).min(now));
    }

    /// Returns the reason why the node is considered dead; None if it is alive.
    pub fn is_gone(&self, now: Moment) -> Option<String> {
        let absent = self.absent_since.map(|since| now.since(since));
        let is_absent = absent.is_some_and(|absent| absent > self.patience());
        if !is_absent && self.silent_for(now) <= LEASE {
            return None;
        }
        let silence = match absent {
            Some(absent) if self.hung_up => {
                format!("it hung up, and did not poll again for {} ms", absent.as_millis())
            }
            Some(absent) if is_absent => format!("it did not poll again for {} ms", absent.as_millis()),
            _ => "it sent no message for too long".to_string(),
        };
        Some(match self.reports.len() {
            0 => silence,
            count => format!("reported by {count} peers ({}), and {silence}", self.reporters()),
        })
    }

    /// Returns whether its process has ended as far as known, while its machine may go on: another process may start on
    /// its disks.
    pub fn process_ended(&self) -> bool {
        self.hung_up || self.reports.values().any(|how| *how == Unreached::Refused)
    }

    fn reporters(&self) -> String {
        let each = self.reports.iter().map(|(by, how)| format!("{by}: {}", how.words()));
        each.collect::<Vec<_>>().join(", ")
    }

    /// Returns the current limit of the time without a poll.
    fn patience(&self) -> Duration {
        let least = if self.hung_up { HUNG_UP_MIN } else { ABSENT_MIN };
        let divisor = 1 + self.reports.values().map(|how| weight(*how)).sum::<u32>();
        let factor = (ABSENT_FACTOR / divisor).max(EVIDENCE_FACTOR_MIN);
        (self.absent_max * factor).clamp((least / divisor).max(EVIDENCE_MIN), LEASE)
    }
}

/// Returns the weight of a report. A machine that refuses a connection does not run the process any more. Other errors
/// have other possible causes: a broken network, or a busy node. A slow peer is a reason to ask it, but not to shorten
/// its timeout.
fn weight(how: Unreached) -> u32 {
    match how {
        Unreached::Silent => 0,
        Unreached::TimedOut | Unreached::CutOff => 1,
        Unreached::Refused => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::{LEASE, Presence, Unreached};
    use crate::interface::Moment;
    use ids::NodeId;
    use std::time::Duration;

    const POLL_MAX: Duration = Duration::from_secs(5);

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// Returns when a node that polled at `start` is declared dead, in steps of the clock, and the reason.
    fn given_up(presence: &Presence, start: Moment) -> (Duration, String) {
        let steps = (0..=LEASE.as_millis() as u64 + 100).step_by(10);
        let given_up = steps.map(ms).find_map(|after| Some((after, presence.is_gone(start + after)?)));
        given_up.expect("a lease ends")
    }

    /// Returns a node whose poll ended at once, by a hang-up or by an answer.
    fn away(hung_up: bool, reports: &[(u32, Unreached)]) -> (Presence, Moment) {
        let start = Moment::default();
        let mut presence = Presence::new(start);
        presence.polls(start);
        if hung_up {
            presence.hangs_up(start)
        } else {
            presence.answered(start)
        }
        reports.iter().for_each(|(by, how)| presence.reported(NodeId(*by), *how));
        (presence, start)
    }

    #[test]
    fn more_peer_reports_give_up_node_sooner() {
        let check = |hung_up, reports: &[(u32, Unreached)], expected_ms: u64| {
            let (presence, start) = away(hung_up, reports);
            let (after, why) = given_up(&presence, start);
            assert_eq!(after, ms(expected_ms + 10), "{reports:?}: {why}");
            let told = format!("reported by {} peers", reports.len());
            assert_eq!(why.contains(&told), !reports.is_empty(), "{why}");
        };
        use Unreached::{CutOff, Refused, Silent, TimedOut};
        check(false, &[], 5000);
        check(false, &[(2, Silent), (3, Silent), (4, Silent)], 5000);
        check(false, &[(2, TimedOut)], 2500);
        check(false, &[(2, TimedOut), (3, CutOff)], 1660);
        check(false, &[(2, Refused)], 1250);
        check(false, &[(2, Refused), (3, Refused)], 710);
        check(true, &[], 2000);
        check(true, &[(2, CutOff)], 1000);
        check(true, &[(2, Refused)], 500);
        check(true, &[(2, Refused), (3, Refused), (4, Refused)], 300);
        // Two reports of one peer count once, by the worse error.
        let (mut presence, start) = away(false, &[(2, Refused)]);
        presence.reported(NodeId(2), TimedOut);
        assert_eq!(given_up(&presence, start).0, ms(1260));
    }

    #[test]
    fn slow_node_gets_more_time_despite_reports() {
        let start = Moment::default();
        let mut presence = Presence::new(start);
        presence.answered(start);
        presence.polls(start + ms(1500));
        presence.answered(start + ms(1500));
        (2..9).for_each(|by| presence.reported(NodeId(by), Unreached::Refused));
        assert_eq!(given_up(&presence, start + ms(1500)).0, ms(3010));
    }

    #[test]
    fn polling_node_is_never_given_up() {
        let start = Moment::default();
        let mut presence = Presence::new(start);
        let mut now = start;
        for round in 0..1000 {
            presence.heard(now);
            presence.polls(now);
            assert_eq!(presence.poll_max(POLL_MAX), POLL_MAX);
            presence.reported(NodeId(2 + round % 7), Unreached::Refused);
            // Its open poll is answered early, to see whether it polls again.
            let asked_after = presence.poll_max(POLL_MAX);
            assert!(asked_after < POLL_MAX);
            now += asked_after;
            assert_eq!(presence.is_gone(now), None);
            presence.answered(now);
            now += ms(100);
            assert_eq!(presence.is_gone(now), None);
        }
    }

    #[test]
    fn lease_ends_silence_and_stalled_server_forgives() {
        let start = Moment::default();
        let mut presence = Presence::new(start);
        presence.polls(start);
        let (after, why) = given_up(&presence, start);
        assert_eq!((after, why.as_str()), (LEASE + ms(10), "it sent no message for too long"));
        presence.forgive(ms(4000), start + LEASE);
        assert_eq!(presence.is_gone(start + LEASE + ms(4000)), None);
        let (mut presence, start) = away(true, &[(2, Unreached::Refused)]);
        presence.forgive(ms(600), start + ms(700));
        assert_eq!(presence.is_gone(start + ms(1100)), None);
        assert!(presence.is_gone(start + ms(1101)).is_some());
    }
}
