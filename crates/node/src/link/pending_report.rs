//! Reports of a node that no poll has carried yet.

use api::machine::{NodeReport, OutputChunk, ProgramSaid, SAMPLES_MAX, UNREACHED_MAX, UnreachedNode};
use api::task::RUN_OUTPUT_BYTES_MAX;

/// Several reports merged into one, within its limits.
#[derive(Default)]
pub(crate) struct PendingReport(NodeReport);

impl PendingReport {
    /// Adds a report. Returns true if the server must get it at once: samples can wait for the next poll.
    pub fn add(&mut self, later: NodeReport) -> bool {
        let is_news = !later.disks.is_empty()
            || !later.said.is_empty()
            || !later.progress.is_empty()
            || !later.replicated.is_empty()
            || !later.replicated_parts.is_empty()
            || !later.lost.is_empty()
            || !later.shortened.is_empty()
            || !later.unreached.is_empty();
        self.0.replicated.extend(later.replicated);
        self.0.replicated_parts.extend(later.replicated_parts);
        self.0.lost.extend(later.lost);
        self.0.shortened.extend(later.shortened);
        self.0.samples.extend(later.samples);
        self.drop_oldest();
        if !later.disks.is_empty() {
            self.0.disks = later.disks;
        }
        if !later.progress.is_empty() {
            self.0.progress = later.progress;
        }
        for piece in later.said {
            match self.0.said.iter_mut().find(|said| said.attempt == piece.attempt) {
                Some(said) => join(said, piece),
                None => self.0.said.push(piece),
            }
        }
        later.unreached.into_iter().for_each(|report| self.unreached(report));
        is_news
    }

    /// Takes the report for the next poll.
    pub fn take(&mut self) -> NodeReport {
        std::mem::take(&mut self.0)
    }

    /// Takes back the report of a lost poll, to send it again. Texts of programs are not repeated, because a program
    /// that ends reports all of them; nor are unreachable nodes, because that may have changed.
    pub fn put_back(&mut self, earlier: NodeReport) {
        let later = self.take();
        self.0 = NodeReport { said: Vec::new(), unreached: Vec::new(), ..earlier };
        self.add(later);
    }

    fn unreached(&mut self, report: UnreachedNode) {
        let told = &mut self.0.unreached;
        let has_room = told.len() < UNREACHED_MAX;
        match told.iter_mut().find(|told| told.node == report.node) {
            Some(told) => told.how = told.how.max(report.how),
            None if has_room => told.push(report),
            None => {}
        }
    }

    fn drop_oldest(&mut self) {
        let over = self.0.samples.len().saturating_sub(SAMPLES_MAX);
        self.0.samples.drain(..over);
    }
}

fn join(said: &mut ProgramSaid, later: ProgramSaid) {
    join_text(&mut said.standard_output, later.standard_output);
    join_text(&mut said.standard_error, later.standard_error);
}

/// Joins two texts: the later one continues the earlier one, or replaces it.
fn join_text(said: &mut OutputChunk, later: OutputChunk) {
    let follows = later.end_bytes == said.end_bytes + later.text.len() as u64;
    if !follows {
        *said = later;
        return;
    }
    said.text.push_str(&later.text);
    said.end_bytes = later.end_bytes;
    let cut = said.text.ceil_char_boundary(said.text.len().saturating_sub(RUN_OUTPUT_BYTES_MAX));
    said.text.drain(..cut);
}

#[cfg(test)]
mod tests {
    use super::PendingReport;
    use api::machine::{
        DiskReport, DiskState, MachineSample, NodeReport, OutputChunk, ProgramSaid, SAMPLES_MAX, Unreached,
        UnreachedNode,
    };
    use ids::{AttemptKey, AttemptNumber, JobId, NodeId, StageIndex, TaskIndex, TaskKey};

    fn samples(times: std::ops::Range<u64>) -> NodeReport {
        let sample = |time_ns| MachineSample { time_ns, ..MachineSample::default() };
        NodeReport { samples: times.map(sample).collect(), ..NodeReport::default() }
    }

    #[test]
    fn samples_of_a_minute_survive_lost_polls() {
        let mut pending = PendingReport::default();
        assert!(!pending.add(samples(0..50)));
        let lost = pending.take();
        assert!(pending.take().is_empty());
        pending.add(samples(50..70));
        pending.put_back(lost);
        let times: Vec<u64> = pending.take().samples.iter().map(|sample| sample.time_ns).collect();
        assert_eq!(times, (70 - SAMPLES_MAX as u64..70).collect::<Vec<_>>());
    }

    #[test]
    fn the_latest_word_on_disks_stands() {
        let disks = |state| {
            let disk = DiskReport { path: "/d".to_string(), total_bytes: 2, free_bytes: 1, state };
            NodeReport { disks: vec![disk], ..NodeReport::default() }
        };
        let mut pending = PendingReport::default();
        assert!(pending.add(disks(DiskState::Full)));
        pending.put_back(disks(DiskState::Usable));
        assert_eq!(pending.take().disks[0].state, DiskState::Full);
        pending.put_back(disks(DiskState::Usable));
        assert_eq!(pending.take().disks[0].state, DiskState::Usable);
    }

    #[test]
    fn unreachable_peer_is_reported_once_with_worst_cause() {
        let unreached = |node, how| {
            let unreached = vec![UnreachedNode { node: NodeId(node), how }];
            NodeReport { unreached, ..NodeReport::default() }
        };
        let mut pending = PendingReport::default();
        assert!(pending.add(unreached(1, Unreached::Refused)));
        pending.add(unreached(1, Unreached::Silent));
        pending.add(unreached(2, Unreached::CutOff));
        let told = pending.take();
        let pairs: Vec<_> = told.unreached.iter().map(|each| (each.node.0, each.how)).collect();
        assert_eq!(pairs, [(1, Unreached::Refused), (2, Unreached::CutOff)]);
        pending.put_back(told);
        assert!(pending.take().is_empty());
    }

    #[test]
    fn adjacent_pieces_of_text_are_joined() {
        let task = TaskKey { job: JobId(1), stage: StageIndex(0), task: TaskIndex(0) };
        let attempt = AttemptKey { task, attempt: AttemptNumber(0) };
        let said = |text: &str, end_bytes| {
            let standard_output = OutputChunk { text: text.to_string(), end_bytes };
            let said = ProgramSaid { attempt, standard_output, standard_error: OutputChunk::default() };
            NodeReport { said: vec![said], ..NodeReport::default() }
        };
        let mut pending = PendingReport::default();
        let mut check = |text, end_bytes, expected: &str| {
            assert!(pending.add(said(text, end_bytes)));
            assert_eq!((pending.0.said.len(), &*pending.0.said[0].standard_output.text), (1, expected));
        };
        check("ab", 2, "ab");
        check("cd", 4, "abcd");
        check("xy", 10, "xy");
        check("z", 11, "xyz");
    }
}
