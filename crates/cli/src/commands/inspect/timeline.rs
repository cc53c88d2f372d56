//! `sailfish timeline JOB`: the work of each slot over time, one line per slot (the charts and marks of the Tsukuba
//! study of Hadoop's task progress, section on Gantt charts, for an engine without a copy phase).

mod drawing;

use crate::commands::inspect::jobs::{now_ns, state_text};
use crate::engine::store;
use crate::exit::Failure;
use crate::options::connect::StateArgs;
use crate::show::escape;
use crate::show::quantity::{counted, percent, seconds, seconds_between};
use crate::show::tables::{left, right, table};
use crate::show::terminal::print;
use clap::Args;
use drawing::{Frame, LABEL_COLUMNS, axis, colour, slot_line, stage_line};
use ids::{JobId, NodeId, StageKind};
use metastore::{AttemptRow, AttemptState, JobRow, StageRow};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::IsTerminal;

#[derive(Debug, Args)]
pub struct TimelineArgs {
    /// Number of the job
    pub job: i64,
    #[command(flatten)]
    pub state: StateArgs,
    /// Columns of the drawing [default: the width of the terminal, otherwise 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(20..=2000))]
    pub width: Option<u16>,
    /// Print attempts, stages and sums as JSON
    #[arg(long)]
    pub json: bool,
}

/// Number of columns without a terminal.
const WIDTH_DEFAULT: u16 = 100;
const WIDTH_MIN: u16 = 20;

/// Kind of work of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Map,
    /// Waits for sorters, merge passes, and what a reduce task does before its merge stands at its first record.
    Merge,
    /// Merge and reduce are one stream.
    Reduce,
    Commit,
    /// Work that did not count.
    Lost,
}

impl Mark {
    pub const ALL: [Mark; 5] = [Mark::Map, Mark::Merge, Mark::Reduce, Mark::Commit, Mark::Lost];

    pub fn letter(self) -> char {
        match self {
            Self::Map => '#',
            Self::Merge => '%',
            Self::Reduce => '!',
            Self::Commit => '=',
            Self::Lost => '-',
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Map => "map",
            Self::Merge => "merge",
            Self::Reduce => "reduce",
            Self::Commit => "commit",
            Self::Lost => "lost",
        }
    }

    fn meaning(self) -> &'static str {
        match self {
            Self::Map => "map, with appending to I-files",
            Self::Merge => {
                "last sorters, opening kept runs, merge passes, a reduce task until its merge begins"
            }
            Self::Reduce => "merge and reduce in one stream, including writing the part",
            Self::Commit => "checking names, syncing and publishing the output",
            Self::Lost => "attempts that failed, were cancelled, or lost to another attempt",
        }
    }
}

/// A stretch of time in which a slot did one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub slot: u32,
    pub mark: Mark,
    pub start_ns: u64,
    pub end_ns: u64,
}

/// From the first start to the last end of a stage's attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StageTime {
    pub name: String,
    pub start_ns: u64,
    pub end_ns: u64,
}

struct Timeline {
    job: JobRow,
    slots: u32,
    start_ns: u64,
    end_ns: u64,
    stages: Vec<StageTime>,
    spans: Vec<Span>,
    attempts: Vec<(Option<StageKind>, AttemptRow)>,
    /// Labels before the lines of the slots.
    labels: Vec<String>,
}

/// Prints the timeline of a job; for a running one, up to now.
pub fn run(args: &TimelineArgs) -> Result<(), Failure> {
    let job = JobId(args.job);
    let all = store::details(&args.state, job, 0)?;
    store::expect_no_steps(&all)?;
    let timeline = timeline(all.job, all.spec.slots, &all.stages, all.attempts, now_ns());
    if args.json {
        let text = serde_json::to_string_pretty(&as_json(&timeline)).map_err(anyhow::Error::from)?;
        return Ok(print(&format!("{text}\n"))?);
    }
    let on_terminal = std::io::stdout().is_terminal();
    let width = args.width.or_else(|| terminal_columns(on_terminal)).unwrap_or(WIDTH_DEFAULT);
    Ok(print(&render(&timeline, width.max(WIDTH_MIN), on_terminal && wants_colour()))?)
}

fn terminal_columns(on_terminal: bool) -> Option<u16> {
    let size = on_terminal.then(|| rustix::termios::tcgetwinsize(std::io::stdout()).ok())??;
    (size.ws_col > 0).then_some(size.ws_col)
}

fn wants_colour() -> bool {
    let given = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    given("NO_COLOR").is_none() && given("TERM").is_some_and(|term| term != "dumb")
}

fn timeline(
    job: JobRow,
    slots: u32,
    stages: &[StageRow],
    mut attempts: Vec<AttemptRow>,
    now_ns: u64,
) -> Timeline {
    let nodes = number_slots(&mut attempts);
    let kind_of = |attempt: &AttemptRow| {
        let stage = stages.iter().find(|stage| stage.stage == attempt.attempt.task.stage);
        stage.map(|stage| stage.kind)
    };
    let attempts: Vec<(Option<StageKind>, AttemptRow)> =
        attempts.into_iter().map(|row| (kind_of(&row), row)).collect();
    let times = |attempt: &AttemptRow| start_and_end(attempt, now_ns);
    let all = || attempts.iter().map(|(_, attempt)| times(attempt));
    let start_ns = all().map(|(start, _)| start).min().unwrap_or(job.created_ns);
    let end_ns = all().map(|(_, end)| end).max().unwrap_or(start_ns);
    let stage_time = |stage: &StageRow| {
        let own = || {
            attempts
                .iter()
                .filter(|(_, row)| row.attempt.task.stage == stage.stage)
                .map(|(_, row)| times(row))
        };
        let start_ns = own().map(|(start, _)| start).min()?;
        let end_ns = own().map(|(_, end)| end).max()?;
        Some(StageTime { name: stage.kind.to_string(), start_ns, end_ns })
    };
    let spans = attempts.iter().flat_map(|(stage, attempt)| spans(*stage, attempt, now_ns)).collect();
    let slots = attempts.iter().map(|(_, attempt)| attempt.slot + 1).max().unwrap_or(0).max(slots);
    let stages = stages.iter().filter_map(stage_time).collect();
    let label = |slot: u32| nodes.get(slot as usize).cloned().unwrap_or_else(|| format!("slot {slot}"));
    let labels = (0..slots).map(label).collect();
    Timeline { job, slots, start_ns, end_ns, stages, spans, attempts, labels }
}

/// Numbers the slots of all nodes of a cluster, and returns the label of each with its node and slot. On one machine
/// nothing changes.
fn number_slots(attempts: &mut [AttemptRow]) -> Vec<String> {
    let slots: BTreeSet<(NodeId, u32)> = attempts.iter().map(|row| (row.node, row.slot)).collect();
    if slots.iter().all(|(node, _)| *node == NodeId(0)) {
        return Vec::new();
    }
    let slots: Vec<(NodeId, u32)> = slots.into_iter().collect();
    for row in attempts {
        let place = slots.binary_search(&(row.node, row.slot));
        row.slot = place.expect("every slot is in the list made of them") as u32;
    }
    slots.iter().map(|(node, slot)| format!("{node}/{slot}")).collect()
}

/// Returns the start and the end of an attempt. Without a reported start it counts from its assignment; a running
/// attempt lasts until now.
fn start_and_end(attempt: &AttemptRow, now_ns: u64) -> (u64, u64) {
    let start_ns = attempt.started_ns.unwrap_or(attempt.assigned_ns);
    (start_ns, attempt.ended_ns.unwrap_or(now_ns).max(start_ns))
}

fn spans(stage: Option<StageKind>, attempt: &AttemptRow, now_ns: u64) -> Vec<Span> {
    let (start_ns, end_ns) = start_and_end(attempt, now_ns);
    let span = |mark, start_ns, end_ns| Span { slot: attempt.slot, mark, start_ns, end_ns };
    match (attempt.state, stage) {
        (AttemptState::Succeeded | AttemptState::Running, Some(StageKind::Reduce)) => {
            // A store of an earlier version, or a running attempt, has no start of the merge.
            let opened_ns = attempt.opened_ns.unwrap_or(start_ns).clamp(start_ns, end_ns);
            vec![span(Mark::Merge, start_ns, opened_ns), span(Mark::Reduce, opened_ns, end_ns)]
        }
        (AttemptState::Succeeded | AttemptState::Running, stage) => {
            let mark = match stage {
                Some(StageKind::Map) => Mark::Map,
                Some(StageKind::Commit) => Mark::Commit,
                _ => Mark::Merge,
            };
            vec![span(mark, start_ns, end_ns)]
        }
        _ => vec![span(Mark::Lost, start_ns, end_ns)],
    }
}

/// Returns the slot seconds under each mark, and the idle ones.
fn totals(timeline: &Timeline) -> (Vec<(Mark, f64)>, f64) {
    let of = |mark: Mark| -> f64 {
        let own = timeline.spans.iter().filter(|span| span.mark == mark);
        // The empty sum of floating-point numbers is -0.
        own.map(|span| seconds_between(span.start_ns, span.end_ns)).fold(0.0, |sum, time| sum + time)
    };
    let marks: Vec<(Mark, f64)> = Mark::ALL.into_iter().map(|mark| (mark, of(mark))).collect();
    let busy: f64 = marks.iter().map(|(_, time)| time).sum();
    let all = f64::from(timeline.slots) * seconds_between(timeline.start_ns, timeline.end_ns);
    (marks, (all - busy).max(0.0))
}

fn render(timeline: &Timeline, width: u16, coloured: bool) -> String {
    let job = &timeline.job;
    let wall = seconds_between(timeline.start_ns, timeline.end_ns);
    let mut text = format!(
        "Job {}: {}, {}, {} on {}\n",
        job.job,
        escape::cell(&job.name),
        state_text(job),
        seconds(wall),
        counted(timeline.slots.into(), "slot")
    );
    if timeline.spans.is_empty() {
        text.push_str("no attempt has started\n");
        return text;
    }
    let columns = usize::from(width).saturating_sub(LABEL_COLUMNS + 2).max(1);
    let frame = Frame { start_ns: timeline.start_ns, end_ns: timeline.end_ns, columns };
    text.push('\n');
    text.push_str(&axis(&frame));
    for (slot, label) in (0..timeline.slots).zip(&timeline.labels) {
        let own: Vec<Span> = timeline.spans.iter().filter(|span| span.slot == slot).copied().collect();
        let line = slot_line(&frame, &own);
        let line = if coloured { colour(&line) } else { line };
        text.push_str(&format!("{label:<LABEL_COLUMNS$}|{line}|\n"));
    }
    text.push_str(&stage_line(&frame, &timeline.stages));
    text.push_str("\nStages, in seconds from the first start\n");
    text.push_str(&stage_table(timeline));
    text.push_str(
        "\nMarks, in slot seconds; a column shows the work that took most of it, or a lost attempt\n",
    );
    text.push_str(&legend(timeline, coloured));
    text
}

fn stage_table(timeline: &Timeline) -> String {
    let since = |time_ns| format!("{:.2}", seconds_between(timeline.start_ns, time_ns));
    let row = |stage: &StageTime| {
        let wall = format!("{:.2}", seconds_between(stage.start_ns, stage.end_ns));
        vec![stage.name.clone(), since(stage.start_ns), since(stage.end_ns), wall]
    };
    let columns = [left("stage"), right("from"), right("to"), right("wall")];
    table(&columns, timeline.stages.iter().map(row).collect())
}

fn legend(timeline: &Timeline, coloured: bool) -> String {
    let (marks, idle) = totals(timeline);
    let all: f64 = marks.iter().map(|(_, time)| time).sum::<f64>() + idle;
    let share = |time: f64| format!("{time:>9.2} {:>7}", percent(100.0 * time / all.max(f64::MIN_POSITIVE)));
    let line = |letter: char, time: f64, meaning: &str| {
        let letter = letter.to_string();
        let letter = if coloured { colour(&letter) } else { letter };
        format!("  {letter}  {}  {meaning}\n", share(time))
    };
    let mut text = String::new();
    for (mark, time) in marks {
        text.push_str(&line(mark.letter(), time, mark.meaning()));
    }
    text.push_str(&line('.', idle, "nothing to run"));
    text
}

fn as_json(timeline: &Timeline) -> Value {
    let since = |time_ns| seconds_between(timeline.start_ns, time_ns);
    let stage = |stage: &StageTime| {
        let (from, to) = (since(stage.start_ns), since(stage.end_ns));
        json!({ "stage": stage.name, "from_seconds": from, "to_seconds": to })
    };
    let attempt = |(stage, row): &(Option<StageKind>, AttemptRow)| {
        let own = spans(*stage, row, timeline.end_ns);
        let spans: Vec<Value> = own
            .iter()
            .filter(|span| span.end_ns > span.start_ns)
            .map(|span| {
                let (from, to) = (since(span.start_ns), since(span.end_ns));
                json!({ "mark": span.mark.name(), "from_seconds": from, "to_seconds": to })
            })
            .collect();
        json!({
            "slot": row.slot,
            "stage": stage,
            "task": row.attempt.task.task.0,
            "attempt": row.attempt.attempt.0,
            "state": row.state.word(),
            "spans": spans,
        })
    };
    let (marks, idle) = totals(timeline);
    let mut totals: serde_json::Map<String, Value> =
        marks.into_iter().map(|(mark, time)| (mark.name().to_string(), json!(time))).collect();
    totals.insert("idle".to_string(), json!(idle));
    json!({
        "job": timeline.job.job,
        "name": timeline.job.name,
        "state": timeline.job.state.word(),
        "slots": timeline.slots,
        "start_ns": timeline.start_ns,
        "end_ns": timeline.end_ns,
        "wall_seconds": since(timeline.end_ns),
        "slot_seconds": totals,
        "stages": timeline.stages.iter().map(stage).collect::<Vec<Value>>(),
        "attempts": timeline.attempts.iter().map(attempt).collect::<Vec<Value>>(),
    })
}
