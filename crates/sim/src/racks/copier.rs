//! The thread of a node that sends its runs to others, as in `crates/node/src/shuffle/replicate.rs`.

use super::Copying;
use super::model::{Hop, Model};
use crate::links::Flow;
use chunkserver::copy_pace;
use ids::{ChunkId, NodeId};
use mapreduce::Replica;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Bytes of a paced piece.
const PIECE_BYTES: usize = 256 << 10;

#[derive(Default)]
pub(super) struct Copier {
    /// Runs without a copy, oldest first.
    pub queue: VecDeque<usize>,
    pub step: Step,
    /// Time since which each open chunk has waited to be full, as far as the copier has checked.
    waiting: BTreeMap<ChunkId, f64>,
    looks_at_s: f64,
}

#[derive(Clone, Copy, Default)]
pub(super) enum Step {
    /// The copier waits for a run, or for a node that accepts one.
    #[default]
    Waits,
    /// A run in memory is first written to disk.
    Writes {
        run: usize,
        left_bytes: f64,
    },
    Sends {
        run: usize,
        to: usize,
        left_bytes: f64,
    },
}

impl Step {
    pub fn left_bytes(&self) -> Option<f64> {
        match self {
            Self::Waits => None,
            Self::Writes { left_bytes, .. } | Self::Sends { left_bytes, .. } => Some(*left_bytes),
        }
    }

    /// Counts moved bytes. Returns true if the step is done.
    pub fn moves(&mut self, bytes: f64) -> bool {
        match self {
            Self::Waits => false,
            Self::Writes { left_bytes, .. } | Self::Sends { left_bytes, .. } => {
                *left_bytes -= bytes;
                *left_bytes <= 1.0
            }
        }
    }
}

impl Model {
    /// Lets each idle copier look for work.
    pub(super) fn copiers_look(&mut self) {
        if self.world.copying == Copying::None {
            return;
        }
        for node in 0..self.nodes.len() {
            let copier = &self.nodes[node].copier;
            if matches!(copier.step, Step::Waits) && copier.looks_at_s <= self.now_s {
                self.close_old(node);
                self.begin_copy(node);
            }
        }
    }

    /// Closes chunks that have waited too long to be full.
    fn close_old(&mut self, node: usize) {
        let waits_max = copy_pace::open_chunk_waits_max(Duration::from_secs_f64(self.now_s)).as_secs_f64();
        let now_s = self.now_s;
        let state = &mut self.nodes[node];
        let begun: Vec<(u32, ChunkId)> =
            state.open.iter().map(|(ifile, open)| (*ifile, open.chunk)).collect();
        state.copier.waiting.retain(|chunk, _| begun.iter().any(|(_, begun)| begun == chunk));
        for (ifile, chunk) in begun {
            let since_s = *state.copier.waiting.entry(chunk).or_insert(now_s);
            if now_s - since_s >= waits_max {
                state.close(ifile);
            }
        }
    }

    fn begin_copy(&mut self, node: usize) {
        let Some(run) = self.nodes[node].copier.queue.pop_front() else {
            self.nodes[node].copier.looks_at_s = self.now_s + copy_pace::LOOK_EVERY.as_secs_f64();
            return;
        };
        let bytes = self.runs[run].bytes;
        // A write that has begun continues from its current position.
        let half_written = self.nodes[node].stop_write(run);
        match (self.runs[run].in_memory, half_written) {
            (true, left) => {
                let left_bytes = left.unwrap_or(bytes);
                self.nodes[node].copier.step = Step::Writes { run, left_bytes };
            }
            (false, _) => self.offer(node, run),
        }
    }

    /// Offers a run to the nodes that may take one, in the order of the run. If none does, it is offered again later.
    fn offer(&mut self, node: usize, run: usize) {
        let id = self.runs[run].id;
        let mut peers: Vec<usize> = self.replica_hosts[node].clone();
        peers.sort_by_key(|peer| copy_pace::turn(id, NodeId(*peer as u32)));
        let taker = peers.into_iter().find(|peer| self.nodes[*peer].receives < dataport::COPIES_MAX);
        let (bytes, now_s) = (self.runs[run].bytes, self.now_s);
        let copier = &mut self.nodes[node].copier;
        match taker {
            Some(to) => {
                copier.step = Step::Sends { run, to, left_bytes: bytes };
                self.nodes[to].receives += 1;
            }
            None => {
                copier.queue.push_back(run);
                copier.step = Step::Waits;
                copier.looks_at_s = now_s + copy_pace::REFUSED_PAUSE.as_secs_f64();
            }
        }
    }

    /// Returns the flow of the current step of a copier.
    pub(super) fn copy_flow(&self, node: usize) -> Option<Flow> {
        match self.nodes[node].copier.step {
            Step::Waits => None,
            Step::Writes { .. } => {
                let mut flow = Flow::new(f64::INFINITY);
                flow.takes(self.disk(node), 1.0, 1.0);
                Some(flow)
            }
            Step::Sends { run, to, .. } => {
                let age_s = (self.now_s - self.runs[run].sorted_s).max(0.0);
                let piece_s = copy_pace::yielding(PIECE_BYTES, Duration::from_secs_f64(age_s)).as_secs_f64();
                let yields = self.is_appended_to(node);
                let mut flow = Flow::new(if yields { PIECE_BYTES as f64 / piece_s } else { f64::INFINITY });
                flow.takes(self.disk(node), 1.0, 1.0);
                if self.world.copying != Copying::Read {
                    self.path(&mut flow, Hop { from: node, to }, 1.0, 1.0);
                }
                if self.world.copying == Copying::Full {
                    flow.takes(self.disk(to), 1.0, 1.0);
                }
                Some(flow)
            }
        }
    }

    /// Counts bytes that a copier has moved.
    pub(super) fn copied(&mut self, node: usize, bytes: f64) {
        let mut step = self.nodes[node].copier.step;
        let is_done = step.moves(bytes);
        self.nodes[node].copier.step = step;
        match step {
            Step::Writes { run, .. } => {
                self.outcome.written_bytes += bytes;
                if is_done {
                    self.goes_to_disk(node, run);
                    self.offer(node, run);
                }
            }
            Step::Sends { run, to, .. } => {
                if self.world.copying != Copying::Read {
                    self.outcome.sent_bytes += bytes;
                    self.outcome.copied_bytes += bytes;
                }
                if self.world.copying == Copying::Full {
                    self.outcome.written_bytes += bytes;
                }
                if is_done {
                    self.nodes[to].receives -= 1;
                    self.nodes[node].copier.step = Step::Waits;
                    self.nodes[node].copier.looks_at_s = self.now_s;
                    self.has_copy(run, to);
                }
            }
            Step::Waits => {}
        }
    }

    fn has_copy(&mut self, run: usize, to: usize) {
        let state = &self.runs[run];
        let single_s = self.now_s - state.sorted_s;
        let replica = Replica {
            node: NodeId(to as u32),
            chunks: vec![state.chunk],
            single_ns: Duration::from_secs_f64(single_s).as_nanos() as u64,
            promoted: false,
            second: None,
        };
        assert!(self.results.add_replica(state.id, replica), "{} has a replica already", state.id);
        self.outcome.copied_s.push(self.now_s);
        self.outcome.single_s.push(single_s);
    }
}
