//! Jobs and faults chosen by the seed. Jobs, kills and corruptions have random numbers of their own, so that more of one kind
//! changes nothing about the others.

use super::kinds::{KINDS, Kind};
use super::settings::Settings;
use crate::Random;
use std::time::Duration;

/// The next fault comes after fewer than so many further ends of attempts; or at once, so that several come together.
const ENDS_BETWEEN: u64 = 11;
const TOGETHER_PERCENT: u64 = 25;
/// A fault that found no victim is chosen anew, so often at most.
const CHOSEN_ANEW_MAX: u64 = 400;
/// How long a stopped process stands still: below and above the time after which a silent node counts as dead.
const STOPS: [Duration; 5] = [
    Duration::from_millis(600),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(7),
    Duration::from_secs(13),
];
/// How long a killed process is away.
const ABSENCES: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(700), Duration::from_secs(3), Duration::from_secs(8)];

/// Victim of a fault, and its manner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FaultKind {
    ServerKilled,
    ServerStopped,
    NodeKilled,
    NodeStopped,
    ProgramKilled,
    ProgramStopped,
    InitKilled,
    SpawnerKilled,
    FileDamaged,
}

/// Kills and stops with their weights.
const STRIKES: [(FaultKind, u64); 8] = [
    (FaultKind::ServerKilled, 14),
    (FaultKind::ServerStopped, 12),
    (FaultKind::NodeKilled, 22),
    (FaultKind::NodeStopped, 18),
    (FaultKind::ProgramKilled, 20),
    (FaultKind::ProgramStopped, 14),
    (FaultKind::InitKilled, 8),
    (FaultKind::SpawnerKilled, 4),
];

/// A fault and its moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    pub kind: FaultKind,
    pub after_ends: u64,
    pub stop: Duration,
    pub absence: Duration,
    /// Chooses the victim, and what is damaged.
    pub choice: u64,
}

/// A job: its kind, its place in the order, and what chooses its options.
#[derive(Clone, Copy)]
pub(super) struct PlannedJob {
    pub number: u64,
    pub kind: &'static Kind,
    pub choice: u64,
}

pub(super) struct Plan {
    jobs: Random,
    strikes: Random,
    corruptions: Random,
    begun: u64,
    /// Kinds that come before any comes again.
    turn: Vec<&'static Kind>,
    strikes_left: u64,
    corruptions_left: u64,
    chosen_anew: u64,
}

impl Plan {
    pub fn new(settings: &Settings) -> Plan {
        let stream = |number: u64| Random::new(Random::new(settings.seed ^ (number << 56)).next_bits());
        Plan {
            jobs: stream(1),
            strikes: stream(2),
            corruptions: stream(3),
            begun: 0,
            turn: Vec::new(),
            strikes_left: settings.faults,
            corruptions_left: settings.corruptions,
            chosen_anew: 0,
        }
    }

    /// All kinds by turns, in an order that changes from turn to turn.
    pub fn next_job(&mut self) -> PlannedJob {
        if self.turn.is_empty() {
            self.turn = KINDS.iter().collect();
        }
        let next = self.jobs.below(self.turn.len() as u64) as usize;
        let kind = self.turn.swap_remove(next);
        self.begun += 1;
        PlannedJob { number: self.begun, kind, choice: self.jobs.next_bits() }
    }

    pub fn faults_left(&self) -> u64 {
        self.strikes_left + self.corruptions_left
    }

    /// None when there are no more.
    pub fn next_strike(&mut self) -> Option<Fault> {
        self.strikes_left = self.strikes_left.checked_sub(1)?;
        let kind = struck(&mut self.strikes);
        Some(fault(kind, &mut self.strikes))
    }

    /// None when there are no more.
    pub fn next_corruption(&mut self) -> Option<Fault> {
        self.corruptions_left = self.corruptions_left.checked_sub(1)?;
        Some(fault(FaultKind::FileDamaged, &mut self.corruptions))
    }

    /// A fault found no victim: another one comes in its place.
    pub fn put_back(&mut self, kind: FaultKind) {
        self.chosen_anew += 1;
        if self.chosen_anew > CHOSEN_ANEW_MAX {
            return;
        }
        match kind {
            FaultKind::FileDamaged => self.corruptions_left += 1,
            _ => self.strikes_left += 1,
        }
    }
}

fn fault(kind: FaultKind, random: &mut Random) -> Fault {
    let together = random.chance(TOGETHER_PERCENT);
    let after_ends = if together { 0 } else { random.below(ENDS_BETWEEN) };
    let (stop, absence) = (*random.one_of(&STOPS), *random.one_of(&ABSENCES));
    Fault { kind, after_ends, stop, absence, choice: random.next_bits() }
}

fn struck(random: &mut Random) -> FaultKind {
    let all: u64 = STRIKES.iter().map(|(_, weight)| weight).sum();
    let mut drawn = random.below(all);
    for (kind, weight) in STRIKES {
        if drawn < weight {
            return kind;
        }
        drawn -= weight;
    }
    unreachable!("a number below the sum of the weights lies in one of them")
}
