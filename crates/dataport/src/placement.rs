//! Which node gets the next chunk of an I-file.

use ids::{IfileIndex, NodeId};

/// A node that can host a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    pub node: NodeId,
    /// The appender runs there: frames are handed over, not sent.
    pub is_here: bool,
    /// Bytes that the node's disks and memory can still take; u64::MAX where nobody has measured.
    pub free_bytes: u64,
    /// Bytes there that wait to be sorted, written or read: the busier of two nodes has more.
    pub queued_bytes: u64,
}

/// Chooses a node for a chunk. Appenders that choose alike share chunks, so that these fill up.
pub trait ChunkPlacement: Send + Sync {
    /// The position of the chosen one in `candidates`, which are in order of their nodes and never empty.
    fn choose(&self, ifile: IfileIndex, candidates: &[Candidate]) -> usize;
}

/// Spreads I-files over nodes by their number, past nodes that are full or have twice the queue of the others.
#[derive(Clone, Copy, Debug, Default)]
pub struct SpreadByIfile {
    /// What a node must have free, usually a chunk.
    pub free_bytes_min: u64,
}

impl ChunkPlacement for SpreadByIfile {
    fn choose(&self, ifile: IfileIndex, candidates: &[Candidate]) -> usize {
        let count = candidates.len();
        let queued: u64 = candidates.iter().map(|candidate| candidate.queued_bytes / count as u64).sum();
        let first = ifile.0 as usize % count;
        let in_turn = (0..count).map(|step| (first + step) % count);
        let has_room = |index: &usize| candidates[*index].free_bytes >= self.free_bytes_min;
        let mut roomy = in_turn.filter(has_room).peekable();
        let fallback = roomy.peek().copied().unwrap_or(first);
        roomy.find(|index| candidates[*index].queued_bytes / 2 <= queued).unwrap_or(fallback)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(loads: &[(u64, u64)], ifile: u32, expected: usize) {
        let candidates: Vec<Candidate> = loads
            .iter()
            .enumerate()
            .map(|(node, (free_bytes, queued_bytes))| Candidate {
                node: NodeId(node as u32),
                is_here: false,
                free_bytes: *free_bytes,
                queued_bytes: *queued_bytes,
            })
            .collect();
        let chosen = SpreadByIfile { free_bytes_min: 10 }.choose(IfileIndex(ifile), &candidates);
        assert_eq!(chosen, expected, "{loads:?}");
    }

    #[test]
    fn ifiles_go_round_past_full_and_busy_nodes() {
        check(&[(u64::MAX, 0)], 5, 0);
        check(&[(100, 0), (100, 0), (100, 0)], 4, 1);
        check(&[(100, 0), (5, 0), (100, 0)], 4, 2);
        check(&[(100, 0), (100, 900), (100, 0)], 4, 2);
        check(&[(100, 50), (100, 60), (100, 70)], 5, 2);
        // All are full: somebody has to take it.
        check(&[(5, 0), (5, 0)], 1, 1);
    }
}
