//! Detection of slow attempts in a stage, the causes, and the decision whether a speculative attempt ("copy") would
//! help.
//!
//! Attempts are compared by the cost of a unit of their data, counted from their own start: neither a late start nor
//! much data counts as slow. The threshold follows from the normal variation between the attempts of the stage. The
//! cause of a slow attempt is the wait that exceeds the waits of others: a copy must not wait for the same. If no node
//! avoids it, there is no copy (Kawamoto et al., section 4: such copies only add to the congestion; Zaharia et al.,
//! OSDI 2008: rank by time to end; Ananthanarayanan et al., OSDI 2010: act by cause).

use crate::UnixNanos;
use ids::{AttemptKey, NodeId};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// Least run time before an attempt is judged and compared; it must also be half of the usual time.
pub const JUDGED_AFTER_NS: u64 = 1_000_000_000;
/// Least number of attempts for a comparison.
pub const COMPARED_MIN: usize = 3;
/// Time without growth of its data after which an attempt makes no progress, if it is also three times the pauses of
/// others.
pub const NO_PROGRESS_NS: u64 = 5_000_000_000;
/// Factor of that time after which an attempt makes no progress even if it was slow before.
pub const NO_PROGRESS_TIMES: u64 = 4;
/// Bounds of the factor by which a unit of a slow attempt costs more than usual.
const SLOW_TIMES_MIN: f64 = 1.5;
const SLOW_TIMES_MAX: f64 = 4.0;
/// Factor of the usual time below which an attempt delays nothing; a copy must also be faster than the rest of the
/// original by this factor.
const LATE_TIMES: f64 = 1.5;
/// Factor of the usual data above which an attempt has large data.
const LARGE_TIMES: f64 = 2.0;
/// Least share of the extra cost of an attempt at which a part of it is a separate cause.
const CAUSE_SHARE: f64 = 0.25;
/// Least share of the extra cost at which another attempt shares the trouble.
const SHARED_SHARE: f64 = 0.4;

/// Time of an attempt since its start, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// Time that it waited for its input, or for the runs that it merges.
    pub read_ns: u64,
    /// Time in the user's program, and all other time.
    pub program_ns: u64,
    /// Time that it waited for chunks, or its output, to accept data.
    pub append_ns: u64,
    /// The node for whose data it waited most; None if its input is on no node.
    pub read_from: Option<NodeId>,
    /// The node for whose chunks it waited most; None if it is its own.
    pub append_to: Option<NodeId>,
}

/// The reason why an attempt is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Label {
    /// It has more data than others, and is as fast.
    LargeData,
    /// The program needs longer for its records.
    SlowProgram,
    /// All attempts on its node need longer.
    SlowNode,
    /// Its input arrives slowly.
    SlowRead,
    /// Its output is accepted slowly.
    SlowAppend,
    /// It makes no progress any more.
    NoProgress,
}

impl Label {
    /// Returns the word for users and tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::LargeData => "large-data",
            Self::SlowProgram => "slow-program",
            Self::SlowNode => "slow-node",
            Self::SlowRead => "slow-read",
            Self::SlowAppend => "slow-append",
            Self::NoProgress => "no-progress",
        }
    }
}

/// The reason why a slow attempt gets no copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyLeft {
    /// A copy would have the same amount of data.
    LargeData,
    /// Others run the same program at the usual speed on the same node: its records are the cause.
    OwnRecords,
    /// A copy would wait for the same disk, link or node.
    SameBottleneck,
    /// A copy would not end much sooner.
    EndsBeforeCopy,
    /// The job has its maximum of running copies.
    EnoughCopies,
    /// Copies that did not win have used up the budget.
    BudgetSpent,
    /// No slot is free where a copy would help, or other work waits for it.
    NoSlot,
}

/// The figures of a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpeculationFigures {
    pub node: NodeId,
    /// Time since its own start.
    pub elapsed_ns: u64,
    /// Units of its data: bytes.
    pub done: u64,
    pub total: u64,
    /// Units per second: of this attempt, of the median attempt, and the rate below which an attempt is slow.
    pub rate: u64,
    pub usual_rate: u64,
    pub slow_below: u64,
    /// Data and time of the median attempt.
    pub usual_total: u64,
    pub usual_ns: u64,
    /// Time until it ends at its current rate; None if no end is in sight.
    pub left_ns: Option<u64>,
    /// Expected time of a copy.
    pub copy_ns: u64,
    /// Number of attempts that it was compared with.
    pub compared: u32,
    pub waits: Waits,
}

/// The known facts about an attempt of a stage.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub attempt: AttemptKey,
    pub node: NodeId,
    /// Time from which it is measured: its start, or its first report.
    pub since: UnixNanos,
    /// Time of its last report, or of its end.
    pub until: UnixNanos,
    /// Units done between the two.
    pub done: u64,
    pub total: u64,
    pub left: u64,
    pub waits: Option<Waits>,
    /// Time at which its data last grew, and the longest pause before that.
    pub grew: UnixNanos,
    pub longest_gap_ns: u64,
    /// Largest growth between two reports.
    pub largest_step: u64,
    pub has_ended: bool,
    /// True if it is the only attempt of its task, and may be copied.
    pub may_be_judged: bool,
    /// Nodes with its data, if known.
    pub near: Vec<NodeId>,
}

/// Nodes on which a copy may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Where {
    pub avoid: BTreeSet<NodeId>,
    pub only: Option<BTreeSet<NodeId>>,
}

/// A slow attempt.
#[derive(Clone, Debug)]
pub(crate) struct Judged {
    pub attempt: AttemptKey,
    pub label: Label,
    pub inputs: SpeculationFigures,
    pub advice: Result<Where, WhyLeft>,
    /// True if its node is slow for others too and gets no copies for a while.
    pub node_is_slow: bool,
}

/// The parts of the cost of a unit: read, program, append.
const PARTS: usize = 3;
const READ: usize = 0;
const PROGRAM: usize = 1;
const APPEND: usize = 2;

impl Observed {
    fn took_ns(&self) -> u64 {
        self.until.0.saturating_sub(self.since.0)
    }

    /// Returns the units that it has done; before its first report, `step`, the units that it may be about to report.
    fn done_at_most(&self, step: u64) -> Option<f64> {
        let done = if self.done > 0 { self.done } else { step };
        (done > 0).then_some(done as f64)
    }

    /// Returns the least nanoseconds per unit; None if it is too early to say.
    fn cost(&self, step: u64) -> Option<f64> {
        let long_enough = self.has_ended || self.took_ns() >= JUDGED_AFTER_NS;
        let done = self.done_at_most(step).filter(|_| long_enough)?;
        Some(self.took_ns().max(1) as f64 / done)
    }

    fn part_costs(&self, step: u64) -> Option<[f64; PARTS]> {
        let (waits, done) = (self.waits?, self.done_at_most(step)?);
        let parts = [waits.read_ns, waits.program_ns, waits.append_ns];
        Some(parts.map(|part_ns| part_ns as f64 / done))
    }
}

/// Usual figures of a stage's attempts.
struct Usual {
    cost: f64,
    /// Cost above which a unit is slow.
    slow_above: f64,
    parts: [f64; PARTS],
    total: u64,
    took_ns: u64,
    shortest_ns: u64,
    gap_ns: u64,
    /// Units that an attempt reports at once.
    step: u64,
    compared: usize,
    ended: usize,
}

/// Returns the quantile at `quarters` quarters; the lower of two values.
fn quantile<T: Copy>(sorted: &[T], quarters: usize) -> T {
    sorted[(sorted.len() - 1) * quarters / 4]
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

impl Usual {
    /// Returns the usual figures; None if too few attempts have come far enough.
    fn of(stage: &[Observed]) -> Option<Self> {
        let known: Vec<(&Observed, f64)> =
            stage.iter().filter_map(|each| Some((each, each.cost(0)?))).collect();
        if known.len() < COMPARED_MIN {
            return None;
        }
        let costs = sorted(known.iter().map(|(_, cost)| *cost));
        let (fast, cost) = (quantile(&costs, 1), quantile(&costs, 2));
        // The spread of the fast half: the slow half contains the attempts that are searched for.
        let slow_times = (cost / fast.max(f64::MIN_POSITIVE)).powi(4).clamp(SLOW_TIMES_MIN, SLOW_TIMES_MAX);
        let with_parts: Vec<[f64; PARTS]> = known.iter().filter_map(|(each, _)| each.part_costs(0)).collect();
        let mut parts = [0.0; PARTS];
        for (index, part) in parts.iter_mut().enumerate().filter(|_| !with_parts.is_empty()) {
            // Attempts that ended without a report have no parts; the others are slow, so their parts are not the usual
            // ones.
            *part = quantile(&sorted(with_parts.iter().map(|parts| parts[index])), 2).min(cost);
        }
        let whole_ns = |(each, cost): &(&Observed, f64)| each.took_ns() as f64 + each.left as f64 * cost;
        let times_ns = sorted(known.iter().map(whole_ns));
        let ended_ns = known.iter().filter(|(each, _)| each.has_ended).map(|(each, _)| each.took_ns());
        Some(Self {
            cost,
            slow_above: cost * slow_times,
            parts,
            total: quantile(&sorted(known.iter().map(|(each, _)| each.total as f64)), 2) as u64,
            took_ns: quantile(&times_ns, 2) as u64,
            shortest_ns: ended_ns.clone().min().unwrap_or(0),
            gap_ns: quantile(&sorted(known.iter().map(|(each, _)| each.longest_gap_ns as f64)), 3) as u64,
            step: quantile(&sorted(known.iter().map(|(each, _)| each.largest_step as f64)), 2) as u64,
            compared: known.len(),
            ended: ended_ns.count(),
        })
    }
}

/// Judges the attempts of a stage that may be judged. Those with the longest remaining time come first.
pub(crate) fn judge(stage: &[Observed], slow_nodes: &BTreeSet<NodeId>) -> Vec<Judged> {
    let Some(usual) = Usual::of(stage) else { return Vec::new() };
    let candidates = stage.iter().filter(|each| each.may_be_judged && !each.has_ended);
    let mut judged: Vec<Judged> =
        candidates.filter_map(|each| judge_one(each, stage, &usual, slow_nodes)).collect();
    judged.sort_by_key(|each| (Reverse(each.inputs.left_ns.unwrap_or(u64::MAX)), each.attempt));
    judged
}

fn judge_one(
    slow: &Observed,
    stage: &[Observed],
    usual: &Usual,
    slow_nodes: &BTreeSet<NodeId>,
) -> Option<Judged> {
    let took_ns = slow.took_ns();
    let is_compared = slow.cost(0).is_some();
    if usual.compared - usize::from(is_compared) < COMPARED_MIN {
        return None;
    }
    let cost = slow.cost(usual.step).unwrap_or(f64::INFINITY);
    let copy_ns = ((slow.total as f64 * usual.cost) as u64).max(usual.shortest_ns);
    let left_ns = slow.left as f64 * cost;
    let stuck = is_stuck(slow, usual);
    let inputs = inputs(slow, usual, (!stuck && cost.is_finite()).then_some(left_ns as u64), copy_ns);
    let judged = |label, advice, node_is_slow| {
        Some(Judged { attempt: slow.attempt, label, inputs: inputs.clone(), advice, node_is_slow })
    };
    let elsewhere = || Where { avoid: BTreeSet::from([slow.node]), only: None };
    if stuck {
        return judged(Label::NoProgress, Ok(elsewhere()), false);
    }
    if took_ns < JUDGED_AFTER_NS || took_ns < usual.took_ns / 2 || !cost.is_finite() || pauses(slow, usual) {
        return None;
    }
    if cost <= usual.slow_above {
        let is_large = slow.total as f64 > usual.total as f64 * LARGE_TIMES && took_ns > usual.took_ns;
        return is_large.then(|| judged(Label::LargeData, Err(WhyLeft::LargeData), false)).flatten();
    }
    if took_ns as f64 + left_ns < usual.took_ns as f64 * LATE_TIMES {
        return None;
    }
    let (label, advice, node_is_slow) = cause(slow, stage, usual, slow_nodes);
    let advice = match left_ns < copy_ns as f64 * LATE_TIMES {
        true => Err(WhyLeft::EndsBeforeCopy),
        false => advice,
    };
    judged(label, advice, node_is_slow)
}

/// Returns whether it ran as usual, and its data has not grown for longer than any pause of others; or was slow, and
/// has not grown for much longer. A program may compute after reading everything: ended attempts show that.
fn is_stuck(slow: &Observed, usual: &Usual) -> bool {
    let still_ns = slow.until.0.saturating_sub(slow.grew.0);
    let knows_ends = slow.left > 0 || usual.ended >= COMPARED_MIN;
    let limit_ns = NO_PROGRESS_NS.max(usual.gap_ns.saturating_mul(3)).max(usual.took_ns / 2);
    let is_still = match pauses(slow, usual) {
        true => still_ns >= limit_ns,
        false => still_ns >= limit_ns.saturating_mul(NO_PROGRESS_TIMES),
    };
    knows_ends && is_still
}

/// Returns whether it would not be slow without its current pause: it continues soon, or makes no progress.
fn pauses(slow: &Observed, usual: &Usual) -> bool {
    let went_ns = slow.grew.0.saturating_sub(slow.since.0);
    slow.done > 0 && slow.until > slow.grew && went_ns as f64 <= slow.done as f64 * usual.slow_above
}

fn inputs(slow: &Observed, usual: &Usual, left_ns: Option<u64>, copy_ns: u64) -> SpeculationFigures {
    let rate = |cost: f64| (1e9 / cost) as u64;
    SpeculationFigures {
        node: slow.node,
        elapsed_ns: slow.took_ns(),
        done: slow.done,
        total: slow.total,
        rate: rate(slow.took_ns().max(1) as f64 / slow.done as f64),
        usual_rate: rate(usual.cost),
        slow_below: rate(usual.slow_above),
        usual_total: usual.total,
        usual_ns: usual.took_ns,
        left_ns,
        copy_ns,
        compared: usual.compared as u32,
        waits: slow.waits.unwrap_or_default(),
    }
}

/// Counts of other attempts: those with the same trouble, and the usual ones.
#[derive(Default)]
struct Company {
    slow: u32,
    usual: u32,
}

impl Company {
    fn shares_it(&self) -> bool {
        self.slow > 0 && self.slow >= self.usual
    }
}

/// The part of a slow attempt that stands out, and the attempts for the comparison.
struct Trouble<'a> {
    slow: &'a Observed,
    stage: &'a [Observed],
    part: usize,
    step: u64,
    /// Cost of the part above which another attempt shares the trouble.
    shared_above: f64,
}

impl Trouble<'_> {
    /// Counts the chosen attempts that ran since this one began: those with the same trouble, and the usual ones.
    fn company(&self, is_chosen: impl Fn(&Observed) -> bool) -> Company {
        let mut company = Company::default();
        let is_other = |each: &&Observed| each.attempt != self.slow.attempt && each.until > self.slow.since;
        let others = self.stage.iter().filter(is_other);
        for other in others.filter(|each| each.cost(self.step).is_some() && is_chosen(each)) {
            let Some(costs) = other.part_costs(self.step) else { continue };
            match costs[self.part] > self.shared_above {
                true => company.slow += 1,
                // Nothing is known of an attempt without reports.
                false => company.usual += u32::from(other.done > 0),
            }
        }
        company
    }

    fn company_here(&self) -> Company {
        self.company(|other| other.node == self.slow.node)
    }

    /// Returns all nodes but its own.
    fn elsewhere(&self) -> Where {
        Where { avoid: BTreeSet::from([self.slow.node]), only: None }
    }

    /// Returns the nodes on which its slow input might arrive faster, or the reason against a copy.
    fn read_advice(&self) -> Result<Where, WhyLeft> {
        let (slow, here) = (self.slow, self.company_here());
        let Some(source) = slow.waits.and_then(|waits| waits.read_from) else {
            // A store that every node reads: is the path from this node slow, or the store?
            return match here.shares_it() || here.usual == 0 {
                true => Ok(self.elsewhere()),
                false => Err(WhyLeft::SameBottleneck),
            };
        };
        let reads_there = |other: &Observed| other.waits.is_some_and(|waits| waits.read_from == Some(source));
        let others = self.company(|other| other.node != slow.node && reads_there(other));
        let is_source = source == slow.node || others.shares_it();
        if !is_source && (others.usual > 0 || here.shares_it()) {
            return Ok(self.elsewhere());
        }
        let avoid = BTreeSet::from([source, slow.node]);
        let only: BTreeSet<NodeId> = slow.near.iter().filter(|node| !avoid.contains(node)).copied().collect();
        match only.is_empty() {
            true => Err(WhyLeft::SameBottleneck),
            false => Ok(Where { avoid, only: Some(only) }),
        }
    }

    /// Returns the nodes on which its output might be accepted faster, or the reason against a copy.
    fn append_advice(&self) -> Result<Where, WhyLeft> {
        let slow = self.slow;
        let to = slow.waits.and_then(|waits| waits.append_to).filter(|to| *to != slow.node);
        let Some(to) = to else { return Ok(self.elsewhere()) };
        let writes_there = |other: &Observed| other.waits.is_some_and(|waits| waits.append_to == Some(to));
        let others = self.company(|other| other.node != slow.node && writes_there(other));
        match others.shares_it() {
            true => Err(WhyLeft::SameBottleneck),
            false => Ok(Where { avoid: BTreeSet::from([slow.node, to]), only: None }),
        }
    }
}

/// Returns the reason why it is slow, the nodes on which a copy would be faster (or the reason against a copy), and
/// whether its node is slow for others too.
fn cause(
    slow: &Observed,
    stage: &[Observed],
    usual: &Usual,
    slow_nodes: &BTreeSet<NodeId>,
) -> (Label, Result<Where, WhyLeft>, bool) {
    // An attempt that reports no waits counts as computing.
    let step = usual.step;
    let parts = slow.part_costs(step).unwrap_or([0.0, slow.cost(step).unwrap_or(0.0), 0.0]);
    let more: [f64; PARTS] = std::array::from_fn(|part| (parts[part] - usual.parts[part]).max(0.0));
    let all_more: f64 = more.iter().sum();
    let part = (0..PARTS).max_by(|a, b| more[*a].total_cmp(&more[*b])).unwrap_or(PROGRAM);
    let shared_above = usual.parts[part] + more[part] * SHARED_SHARE;
    let trouble = Trouble { slow, stage, part, step, shared_above };
    let stands_out =
        |part: &usize| more[*part] >= all_more * CAUSE_SHARE && parts[*part] > usual.parts[*part] * 2.0;
    if (0..PARTS).filter(stands_out).count() > 1 {
        return (Label::SlowNode, Ok(trouble.elsewhere()), true);
    }
    let here = trouble.company_here();
    match part {
        READ => (Label::SlowRead, trouble.read_advice(), here.shares_it()),
        APPEND => (Label::SlowAppend, trouble.append_advice(), here.shares_it()),
        _ if here.shares_it() || slow_nodes.contains(&slow.node) => {
            (Label::SlowNode, Ok(trouble.elsewhere()), true)
        }
        _ if here.usual > 0 => (Label::SlowProgram, Err(WhyLeft::OwnRecords), false),
        _ => (Label::SlowProgram, Ok(trouble.elsewhere()), false),
    }
}
