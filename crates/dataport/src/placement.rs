//! Choice of the node for the next chunk of an I-file.

use api::Layout;
use ids::{IfileIndex, NodeId, Source};

/// A node that can host a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub node: NodeId,
    /// True if the appender runs there: frames are passed without a network.
    pub is_here: bool,
    /// True if the node already has a copy of the appended data (its spool): it gets a chunk only if no other node is
    /// left.
    pub is_avoided: bool,
    /// Bytes that the node's disks and memory can still accept; u64::MAX if unknown.
    pub free_bytes: u64,
    /// Bytes there that wait to be sorted, written or read: the busier of two nodes has more.
    pub queued_bytes: u64,
}

/// Chooses a node for a chunk. Appenders that choose alike share chunks, so that the chunks fill up.
pub trait ChunkPlacement: Send + Sync {
    /// Returns the position of the chosen node in `candidates`, which are in order of their nodes and never empty.
    fn choose(&self, ifile: IfileIndex, source: Source, candidates: &[Candidate]) -> usize;
}

/// Spreads I-files over nodes by number, except full nodes and nodes with twice the queue of the others. If there are
/// fewer I-files than nodes, each I-file is on several nodes, and a map task's part of it on one; otherwise a few nodes
/// and their disks would bottleneck most maps. If that node is avoided, another one is chosen, a different one for
/// I-files that would all be there.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpreadByIfile {
    /// Bytes that a node must have free, usually a chunk.
    pub free_bytes_min: u64,
    ifile_count: u32,
    nodes_per_ifile_max: u32,
}

impl SpreadByIfile {
    /// Puts each I-file on one node.
    pub const fn by_number(free_bytes_min: u64) -> Self {
        Self { free_bytes_min, ifile_count: 1, nodes_per_ifile_max: 1 }
    }

    /// Returns the placement for a job with this input: each node with a part of an I-file gets enough input for a
    /// chunk.
    pub fn for_job(layout: &Layout, input_bytes: u64) -> Self {
        let ifile_count = layout.ifile_count.max(1);
        let chunks_of_ifile = input_bytes / u64::from(ifile_count) / layout.chunk_bytes.max(1);
        let nodes_per_ifile_max = u32::try_from(chunks_of_ifile).unwrap_or(u32::MAX);
        Self { free_bytes_min: 0, ifile_count, nodes_per_ifile_max }
    }

    /// Returns the preferred position.
    fn first(&self, ifile: IfileIndex, source: Source, count: usize) -> usize {
        let nodes_per_ifile =
            (count / self.ifile_count.max(1) as usize).min(self.nodes_per_ifile_max as usize).max(1);
        (ifile.0 as usize * nodes_per_ifile + source.map_task.0 as usize % nodes_per_ifile) % count
    }
}

impl ChunkPlacement for SpreadByIfile {
    fn choose(&self, ifile: IfileIndex, source: Source, candidates: &[Candidate]) -> usize {
        let count = candidates.len();
        let queued: u64 = candidates.iter().map(|candidate| candidate.queued_bytes / count as u64).sum();
        let home = self.first(ifile, source, count);
        let others = candidates.iter().filter(|candidate| !candidate.is_avoided).count();
        let first = match candidates[home].is_avoided {
            true if others > 0 => (home + 1 + (ifile.0 as usize / count) % (count - 1)) % count,
            _ => home,
        };
        let in_turn = (0..count).map(|step| (first + step) % count);
        let is_wanted = |index: &usize| others == 0 || !candidates[*index].is_avoided;
        let has_room = |index: &usize| candidates[*index].free_bytes >= self.free_bytes_min;
        let mut roomy = in_turn.filter(is_wanted).filter(has_room).peekable();
        let fallback = roomy.peek().copied().unwrap_or(first);
        roomy.find(|index| candidates[*index].queued_bytes / 2 <= queued).unwrap_or(fallback)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::{AttemptNumber, TaskIndex};

    fn source(task: u32) -> Source {
        Source { map_task: TaskIndex(task), attempt: AttemptNumber(0) }
    }

    fn check(loads: &[(u64, u64)], ifile: u32, expected: usize) {
        let candidates: Vec<Candidate> = loads
            .iter()
            .enumerate()
            .map(|(node, (free_bytes, queued_bytes))| Candidate {
                node: NodeId(node as u32),
                is_here: false,
                is_avoided: false,
                free_bytes: *free_bytes,
                queued_bytes: *queued_bytes,
            })
            .collect();
        let chosen = SpreadByIfile::by_number(10).choose(IfileIndex(ifile), source(7), &candidates);
        assert_eq!(chosen, expected, "{loads:?}");
    }

    #[test]
    fn data_rotates_among_the_permitted_nodes() {
        let check = |avoided: u32, nodes: u32, expected: &[usize]| {
            let candidate = |node| Candidate {
                node: NodeId(node),
                is_here: node == avoided,
                is_avoided: node == avoided,
                free_bytes: u64::MAX,
                queued_bytes: 0,
            };
            let candidates: Vec<Candidate> = (0..nodes).map(candidate).collect();
            let choose = |ifile| SpreadByIfile::default().choose(IfileIndex(ifile), source(7), &candidates);
            let chosen: Vec<usize> = (0..expected.len() as u32).map(choose).collect();
            assert_eq!(chosen, expected, "without {avoided} of {nodes}");
        };
        check(1, 3, &[0, 2, 2, 0, 0, 2, 0, 2, 2]);
        check(0, 2, &[1, 1, 1, 1]);
        check(5, 2, &[0, 1, 0, 1]);
        // Some node has to take it.
        check(0, 1, &[0, 0]);
    }

    #[test]
    fn ifiles_go_round_past_full_and_busy_nodes() {
        check(&[(u64::MAX, 0)], 5, 0);
        check(&[(100, 0), (100, 0), (100, 0)], 4, 1);
        check(&[(100, 0), (5, 0), (100, 0)], 4, 2);
        check(&[(100, 0), (100, 900), (100, 0)], 4, 2);
        check(&[(100, 50), (100, 60), (100, 70)], 5, 2);
        // All are full: some node has to take it.
        check(&[(5, 0), (5, 0)], 1, 1);
    }

    #[test]
    fn few_ifiles_lie_on_all_nodes() {
        let check = |(ifile_count, chunks), nodes, ifile, expected: &[usize]| {
            let (ifile_count, nodes_per_ifile_max) = (ifile_count, chunks);
            let spread = SpreadByIfile { free_bytes_min: 0, ifile_count, nodes_per_ifile_max };
            let chosen: Vec<usize> =
                (0..6).map(|task| spread.first(IfileIndex(ifile), source(task), nodes)).collect();
            assert_eq!(chosen, expected, "{spread:?}");
        };
        check((1, 9), 5, 0, &[0, 1, 2, 3, 4, 0]);
        check((2, 9), 5, 1, &[2, 3, 2, 3, 2, 3]);
        // At least as many I-files as nodes: each is on one node.
        check((5, 9), 5, 4, &[4, 4, 4, 4, 4, 4]);
        check((7, 9), 5, 6, &[1, 1, 1, 1, 1, 1]);
        // Too little input for a chunk on each node.
        check((1, 2), 5, 0, &[0, 1, 0, 1, 0, 1]);
        check((1, 0), 5, 0, &[0, 0, 0, 0, 0, 0]);
    }
}
