//! The k-way merge: a loser tree over the heads of the runs.
//!
//! The tree has one leaf per run; each inner node has the loser of the match below it, node 0 the winner of all. Taking
//! the winner replays one path, log2(k) matches (Knuth, TAOCP 3, section 5.4.1).

use ids::{AttemptNumber, IfileIndex, TaskIndex};
use ifile::record::key_prefix;
use ifile::{Record, SourceRow};
use std::cmp::Ordering;

/// A sorted run, read record by record.
pub trait SortedRun {
    type Error;
    /// Moves to the next record; false at the end.
    fn advance(&mut self) -> Result<bool, Self::Error>;
    /// Returns the current record. Only called after `advance` returned true.
    fn record(&self) -> Record<'_>;
    /// Returns the [`key_prefix`] of its key.
    #[inline]
    fn prefix(&self) -> u64 {
        key_prefix(self.record().key)
    }
    /// Returns the row of that record in [`Self::sources`].
    fn source_row(&self) -> u32;
    /// Returns the source table.
    fn sources(&self) -> &[SourceRow];
    /// Returns the I-file of the run.
    fn ifile(&self) -> IfileIndex;
}

/// Sort data of a run's current record. The prefix is compared before the key is touched; the rank decides between
/// equal keys.
#[derive(Clone, Copy)]
struct Head {
    /// The first eight bytes of the key, zero padded, big-endian: keys whose prefixes differ compare alike.
    prefix: u64,
    rank: (TaskIndex, AttemptNumber, u64),
    ended: bool,
}

const ENDED: Head = Head { prefix: u64::MAX, rank: (TaskIndex(0), AttemptNumber(0), 0), ended: true };

/// Runs merged into one ordered stream.
pub struct Merge<R: SortedRun> {
    runs: Vec<R>,
    heads: Vec<Head>,
    /// tree[0] is the winner, tree[1..] are the losers of the inner nodes; indexes of runs.
    tree: Vec<usize>,
    /// True if the winner was returned and must advance before the next comparison.
    winner_is_spent: bool,
    /// Number of runs that have not ended. The last one needs no comparisons.
    live: usize,
}

impl<R: SortedRun> Merge<R> {
    /// Starts the merge: moves every run to its first record.
    pub fn new(mut runs: Vec<R>) -> Result<Self, R::Error> {
        let mut heads = Vec::with_capacity(runs.len());
        for run in &mut runs {
            heads.push(read_head(run)?);
        }
        let tree = vec![usize::MAX; runs.len().max(1)];
        let live = heads.iter().filter(|head| !head.ended).count();
        let mut merge = Self { runs, heads, tree, winner_is_spent: false, live };
        merge.build();
        Ok(merge)
    }

    fn build(&mut self) {
        let count = self.runs.len();
        let mut winners = vec![usize::MAX; 2 * count.max(1)];
        for leaf in 0..count {
            winners[count + leaf] = leaf;
        }
        for node in (1..count).rev() {
            let (left, right) = (winners[2 * node], winners[2 * node + 1]);
            let (winner, loser) = if self.goes_first(left, right) { (left, right) } else { (right, left) };
            winners[node] = winner;
            self.tree[node] = loser;
        }
        self.tree[0] = if count > 1 { winners[1] } else { 0 };
    }

    /// Returns whether the head of run `left` precedes that of run `right`.
    #[inline]
    fn goes_first(&self, left: usize, right: usize) -> bool {
        let (a, b) = (&self.heads[left], &self.heads[right]);
        if a.ended || b.ended {
            return !a.ended || (b.ended && left < right);
        }
        let order = a
            .prefix
            .cmp(&b.prefix)
            .then_with(|| self.runs[left].record().key.cmp(self.runs[right].record().key))
            .then_with(|| a.rank.cmp(&b.rank));
        match order {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => left < right,
        }
    }

    fn replay(&mut self, run: usize) {
        let mut winner = run;
        let mut node = (self.runs.len() + run) / 2;
        while node > 0 {
            let loser = self.tree[node];
            if self.goes_first(loser, winner) {
                self.tree[node] = winner;
                winner = loser;
            }
            node /= 2;
        }
        self.tree[0] = winner;
    }

    /// Moves to the next record of the merged stream; returns the index of its run, or None at the end. The record is
    /// `run(index).record()`.
    #[inline]
    pub fn advance(&mut self) -> Result<Option<usize>, R::Error> {
        if self.live == 0 {
            return Ok(None);
        }
        let winner = self.tree[0];
        if !self.winner_is_spent {
            self.winner_is_spent = true;
            return Ok(Some(winner));
        }
        if self.live == 1 {
            // Every other run has ended, so this one stays in front: most range tasks read one run for long.
            let goes_on = self.runs[winner].advance()?;
            self.live = usize::from(goes_on);
            return Ok(goes_on.then_some(winner));
        }
        self.heads[winner] = read_head(&mut self.runs[winner])?;
        self.live -= usize::from(self.heads[winner].ended);
        self.replay(winner);
        Ok(Some(self.tree[0]))
    }

    /// Returns the run of the last returned record; None before the first and after the last one.
    pub fn position(&self) -> Option<&R> {
        (self.winner_is_spent && self.live > 0).then(|| &self.runs[self.tree[0]])
    }

    /// Returns one of the runs.
    #[inline]
    pub fn run(&self, index: usize) -> &R {
        &self.runs[index]
    }

    /// Returns all runs, in the given order.
    pub fn runs(&self) -> &[R] {
        &self.runs
    }
}

#[inline]
fn read_head<R: SortedRun>(run: &mut R) -> Result<Head, R::Error> {
    if !run.advance()? {
        return Ok(ENDED);
    }
    let prefix = run.prefix();
    let rank = run.sources()[run.source_row() as usize].rank();
    Ok(Head { prefix, rank, ended: false })
}
