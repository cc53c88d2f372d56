//! Reports of unresponsive nodes to the server: each node at most once a second, unless the new error says more.

use crate::link::node_link::NodeLink;
use api::machine::{NodeReport, Unreached, UnreachedNode};
use dataport::Unanswered;
use ids::NodeId;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const TELL_EVERY: Duration = Duration::from_secs(1);

/// Reports of the last second, by node.
#[derive(Default)]
struct RecentReports(BTreeMap<NodeId, (Instant, Unreached)>);

impl RecentReports {
    fn is_news(&mut self, node: NodeId, how: Unreached, now: Instant) -> bool {
        self.0.retain(|_, (told, _)| now.saturating_duration_since(*told) < TELL_EVERY);
        let is_news = self.0.get(&node).is_none_or(|(_, before)| how > *before);
        if is_news {
            self.0.insert(node, (now, how));
        }
        is_news
    }
}

/// Returns a callback that reports through this link.
pub(crate) fn tell_by(link: &Arc<NodeLink>) -> Unanswered {
    let (link, told) = (Arc::clone(link), Mutex::<RecentReports>::default());
    Arc::new(move |node, how| {
        let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_news(node, how, Instant::now()) {
            let unreached = vec![UnreachedNode { node, how }];
            link.report(NodeReport { unreached, ..NodeReport::default() });
        }
    })
}

#[cfg(test)]
mod tests {
    use super::{RecentReports, TELL_EVERY, Unreached};
    use ids::NodeId;
    use std::time::{Duration, Instant};

    #[test]
    fn unreachable_node_is_reported_once_a_second() {
        let (mut told, start) = (RecentReports::default(), Instant::now());
        let mut check = |node, how, after_ms, expected| {
            let now = start + Duration::from_millis(after_ms);
            assert_eq!(told.is_news(NodeId(node), how, now), expected, "{how:?} after {after_ms} ms");
        };
        check(1, Unreached::Silent, 0, true);
        check(1, Unreached::Silent, 10, false);
        check(2, Unreached::Silent, 10, true);
        check(1, Unreached::Refused, 20, true);
        check(1, Unreached::CutOff, 30, false);
        check(1, Unreached::Refused, 20 + TELL_EVERY.as_millis() as u64, true);
        assert_eq!(told.0.len(), 1, "what is over is not remembered");
    }
}
