//! How long one decision of the scheduler takes with 1,000 nodes and 100,000 tasks that wait, near their data and
//! anywhere: `cargo run --release -p sim --example match_decisions`.

use ids::{AttemptKey, JobId, NodeId, Placement, StageIndex, StageKind};
use scheduler::{Action, Claim, Event, Slot, State, UnixNanos, handle};
use std::collections::VecDeque;
use std::time::Instant;

const NODES: u32 = 1000;
const SLOTS: u32 = 4;
const TASKS_PER_JOB: u32 = 1000;
const JOBS: i64 = 100;

fn main() {
    let mut random = fastrand::Rng::with_seed(1);
    let (mut state, mut outbox) = (State::default(), VecDeque::new());
    let mut now_ns = 1;
    for job in (1..=JOBS).map(JobId) {
        let claim = Claim { user: (job.0 % 10) as u64, priority: (job.0 % 3) as i32, ..Claim::default() };
        feed(
            &mut state,
            &mut outbox,
            now_ns,
            Event::JobSubmitted {
                job,
                claim,
                stages: vec![StageKind::Map],
                failures_max: scheduler::FAILURES_MAX,
            },
        );
        let mut place = || match job.0 % 2 {
            0 => Placement::Near(vec![NodeId(random.u32(..NODES)), NodeId(random.u32(..NODES))]),
            _ => Placement::Anywhere,
        };
        let tasks = (0..TASKS_PER_JOB).map(|_| place()).collect();
        feed(&mut state, &mut outbox, now_ns, Event::StageExpanded { job, stage: StageIndex(0), tasks });
    }
    let mut running: Vec<(AttemptKey, Slot)> = Vec::new();
    let mut nanos = Vec::new();
    let mut decide = |event, running: &mut Vec<_>, now_ns| {
        let started = Instant::now();
        handle(&mut state, &mut outbox, UnixNanos(now_ns), event);
        nanos.push(started.elapsed().as_nanos() as u64);
        while let Some(action) = outbox.pop_front() {
            if let Action::StartAttempt { attempt, slot } = action {
                running.push((attempt, slot));
            }
        }
    };
    for index in 0..NODES * SLOTS {
        let slot = Slot { node: NodeId(index % NODES), slot: index / NODES };
        decide(Event::SlotFree { slot }, &mut running, now_ns);
    }
    for _ in 0..50_000 {
        now_ns += 1_000_000;
        let (attempt, slot) = running.swap_remove(random.usize(..running.len()));
        decide(Event::AttemptSucceeded { attempt }, &mut running, now_ns);
        decide(Event::SlotFree { slot }, &mut running, now_ns);
    }
    nanos.sort_unstable();
    let at = |share: f64| nanos[((nanos.len() - 1) as f64 * share) as usize] as f64 / 1000.0;
    println!(
        "decisions {}  p50 {:.1} us  p99 {:.1} us  most {:.1} us",
        nanos.len(),
        at(0.5),
        at(0.99),
        at(1.0)
    );
}

fn feed(state: &mut State, outbox: &mut VecDeque<Action>, now_ns: u64, event: Event) {
    handle(state, outbox, UnixNanos(now_ns), event);
    outbox.clear();
}
