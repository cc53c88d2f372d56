//! `sailfish show JOB`: a job with its stages, attempts, failures and events.

use crate::commands::inspect::jobs::{kept_text, now_ns, state_text, took};
use crate::engine::store;
use crate::exit::Failure;
use crate::options::connect::StateArgs;
use crate::show::escape;
use crate::show::quantity::{self, bytes, count, counted, seconds, seconds_between};
use crate::show::tables::{facts, left, right, table};
use crate::show::terminal::print;
use api::history::StageState;
use api::kept::KeptPlace;
use api::{Function, JobSpec, Partitioning};
use clap::Args;
use ids::{JobId, StageIndex};
use jobspec::{key_options, standard_output};
use metastore::{AttemptRow, AttemptState, EventRow, JobRow, StageRow};

#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Number of the job
    pub job: i64,
    #[command(flatten)]
    pub state: StateArgs,
    /// Maximum number of attempts and events to show: first the failed and the longest
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub limit: u32,
}

/// Maximum number of input paths that are listed.
const INPUTS_SHOWN_MAX: usize = 5;

/// Prints everything about a job except its report.
pub fn run(args: &ShowArgs) -> Result<(), Failure> {
    let job = JobId(args.job);
    let all = store::details(&args.state, job, args.limit)?;
    let limit = args.limit as usize;
    let mut text = head(&all.job, &all.spec, &all.kept);
    if all.spec.kind.steps().is_none() {
        text.push_str("\nStages\n");
        text.push_str(&stages(&all.job, &all.stages, &all.attempts));
    }
    text.push_str(&attempts(&all.stages, &all.attempts, limit));
    text.push_str(&failures(&all.stages, &all.attempts, limit));
    text.push_str(&events(&all.stages, &all.events));
    Ok(print(&text)?)
}

fn head(job: &JobRow, spec: &JobSpec, kept: &[KeptPlace]) -> String {
    let mut rows = vec![("state", state_text(job))];
    if let Some(error) = &job.error {
        rows.push(("because", escape::cell(error)));
    }
    rows.push(("started", quantity::date_and_time(job.started_ns.unwrap_or(job.created_ns))));
    if let Some(took) = took(job, now_ns()) {
        rows.push(("took", seconds(took)));
    }
    if let Some(of) = &job.step_of {
        rows.push(("step of", format!("job {}", of.job)));
    }
    if let Some(steps) = spec.kind.steps() {
        rows.push(("kind", escape::cell(&steps.kind)));
        rows.push(("steps", format!("sailfish jobs --steps-of {}", job.job)));
        return format!("Job {}: {}\n{}", job.job, escape::cell(&job.name), facts(&rows));
    }
    rows.push((
        "input",
        match job.reduce_again {
            Some(source) => format!("the I-files that job {source} kept"),
            None => input_text(spec),
        },
    ));
    for input in spec.inputs.iter().take(INPUTS_SHOWN_MAX) {
        rows.push(("", escape::cell(&mapper::input::name(input))));
    }
    if spec.inputs.len() > INPUTS_SHOWN_MAX {
        rows.push(("", format!("and {} more", count((spec.inputs.len() - INPUTS_SHOWN_MAX) as u64))));
    }
    for (name, function) in
        [("mapper", &spec.mapper), ("combiner", &spec.combiner), ("reducer", &spec.reducer)]
    {
        rows.extend(function.as_ref().map(|function| (name, escape::cell(&Function::display(function)))));
    }
    let order = match (spec.kind.has_shuffle(), spec.partitioning) {
        (false, _) => "map only, in the order of the mappers",
        (true, Partitioning::Hash) => "each part sorted (hash)",
        (true, Partitioning::Range) => "all parts together sorted (range)",
        (true, Partitioning::Partitions) => "each partition a part, sorted",
    };
    rows.push(("order", order.to_string()));
    rows.extend(key_options::text(&spec.keys).map(|keys| ("keys", keys)));
    rows.push(("memory", format!("{}, {}", bytes(spec.memory_bytes), counted(spec.slots.into(), "slot"))));
    let disks: Vec<String> = spec.disks.iter().map(|disk| disk.display().to_string()).collect();
    rows.push(("disks", escape::cell(&disks.join(" "))));
    rows.push(("output", escape::cell(&standard_output::shown(&spec.output))));
    rows.extend(kept_rows(job, kept));
    format!("Job {}: {}\n{}", job.job, escape::cell(&job.name), facts(&rows))
}

/// Returns the size of the input, or the rows that are generated instead.
fn input_text(spec: &JobSpec) -> String {
    let size = bytes(spec.input_bytes());
    match spec.kind.generated() {
        None => format!("{}, {size}", counted(spec.inputs.len() as u64, "file")),
        Some(made) => {
            format!("{} generated, from number {} on, {size}", counted(made.rows, "row"), made.start)
        }
    }
}

/// Returns the rows about kept I-files: their state, and their places.
fn kept_rows(job: &JobRow, kept: &[KeptPlace]) -> Vec<(&'static str, String)> {
    let Some(text) = kept_text(job) else {
        let removed = job.kept_files.map(|_| ("I-files", "were kept and have been removed".to_string()));
        return removed.into_iter().collect();
    };
    let dirs = job.disk_dirs.iter().map(|dir| ("", escape::cell(&dir.to_string_lossy())));
    let on_node = |place: &KeptPlace| format!("{} on {}", place.dir.path.display(), place.node_name);
    let on_nodes = kept.iter().map(|place| ("", escape::cell(&on_node(place))));
    std::iter::once(("I-files", text)).chain(dirs).chain(on_nodes).collect()
}

/// Returns the seconds that an attempt took; None before its end.
fn attempt_seconds(attempt: &AttemptRow) -> Option<f64> {
    Some(seconds_between(attempt.started_ns?, attempt.ended_ns?))
}

fn stages(job: &JobRow, stages: &[StageRow], attempts: &[AttemptRow]) -> String {
    let columns = [
        left("stage"),
        left("state"),
        right("tasks"),
        right("done"),
        right("attempts"),
        right("not won"),
        right("wall"),
        right("mean"),
        right("longest"),
    ];
    let cells = |stage: &StageRow| {
        let own = || attempts.iter().filter(|attempt| attempt.attempt.task.stage == stage.stage);
        let lost =
            own().filter(|attempt| !matches!(attempt.state, AttemptState::Succeeded | AttemptState::Running));
        let times: Vec<f64> = own().filter_map(attempt_seconds).collect();
        let start = own().filter_map(|attempt| attempt.started_ns).min();
        let end = own().filter_map(|attempt| attempt.ended_ns).max();
        let wall = start.zip(end).map(|(start, end)| seconds(seconds_between(start, end)));
        let mean = (!times.is_empty()).then(|| seconds(times.iter().sum::<f64>() / times.len() as f64));
        let longest = times.iter().copied().reduce(f64::max).map(seconds);
        vec![
            stage.kind.to_string(),
            stage_state(job, stage).to_string(),
            stage.task_count.map(|tasks| count(tasks.into())).unwrap_or_default(),
            count(stage.tasks_done.into()),
            count(own().count() as u64),
            count(lost.count() as u64),
            wall.unwrap_or_default(),
            mean.unwrap_or_default(),
            longest.unwrap_or_default(),
        ]
    };
    table(&columns, stages.iter().map(cells).collect())
}

/// Returns the state of a stage. The last stage of a finished job has the state of the job, and later ones never began.
fn stage_state(job: &JobRow, stage: &StageRow) -> &'static str {
    match (job.state, stage.state) {
        (state, StageState::Running) if state.over() => state.word(),
        (state, StageState::Waiting) if state.over() => "not begun",
        (_, state) => state.word(),
    }
}

fn name_of(stages: &[StageRow], stage: StageIndex) -> String {
    let row = stages.iter().find(|row| row.stage == stage);
    row.map_or_else(|| stage.to_string(), |row| row.kind.to_string())
}

/// Lists all attempts if they are few; otherwise those that run or did not win, followed by the longest ones.
fn attempts(stages: &[StageRow], attempts: &[AttemptRow], limit: usize) -> String {
    if attempts.is_empty() || limit == 0 {
        return String::new();
    }
    let mut shown: Vec<&AttemptRow> = attempts.iter().collect();
    let mut title = "Attempts".to_string();
    if attempts.len() > limit {
        let telling = |attempt: &AttemptRow| attempt.state != AttemptState::Succeeded;
        let time = |attempt: &AttemptRow| attempt_seconds(attempt).unwrap_or(f64::INFINITY);
        shown.sort_by(|left, right| {
            telling(right).cmp(&telling(left)).then(time(right).total_cmp(&time(left)))
        });
        shown.truncate(limit);
        shown.sort_by_key(|attempt| attempt.attempt);
        title = format!(
            "Attempts: {limit} of {}, the unsuccessful and the longest",
            count(attempts.len() as u64)
        );
    }
    let columns = [
        left("stage"),
        right("task"),
        right("attempt"),
        left("state"),
        right("slot"),
        left("started"),
        right("took"),
    ];
    let cells = |attempt: &&AttemptRow| {
        vec![
            name_of(stages, attempt.attempt.task.stage),
            attempt.attempt.task.task.0.to_string(),
            attempt.attempt.attempt.0.to_string(),
            attempt.state.word().to_string(),
            attempt.slot.to_string(),
            quantity::time_of_day(attempt.started_ns.unwrap_or(attempt.assigned_ns)),
            attempt_seconds(attempt).map(seconds).unwrap_or_default(),
        ]
    };
    format!("\n{title}\n{}", table(&columns, shown.iter().map(cells).collect()))
}

fn failures(stages: &[StageRow], attempts: &[AttemptRow], limit: usize) -> String {
    let failed: Vec<&AttemptRow> =
        attempts.iter().filter(|row| row.state == AttemptState::Failed && row.failure.is_some()).collect();
    if failed.is_empty() {
        return String::new();
    }
    let mut text = "\nFailures\n".to_string();
    // The last events decided the outcome of the job.
    let skipped = failed.len().saturating_sub(limit);
    if skipped > 0 {
        text.push_str(&format!("  {} earlier events not shown\n", count(skipped as u64)));
    }
    for row in failed.into_iter().skip(skipped) {
        let Some(failure) = &row.failure else { continue };
        let stage = name_of(stages, row.attempt.task.stage);
        let (task, attempt) = (row.attempt.task.task.0, row.attempt.attempt.0);
        text.push_str(&format!("  {stage} task {task}, attempt {attempt}: {}\n", failure.message));
        failure.stderr_tail.iter().for_each(|line| text.push_str(&format!("    | {line}\n")));
    }
    text
}

fn events(stages: &[StageRow], events: &[EventRow]) -> String {
    if events.is_empty() {
        return String::new();
    }
    let columns =
        [left("time"), left("event"), left("stage"), right("task"), right("attempt"), left("detail")];
    let cells = |event: &EventRow| {
        vec![
            quantity::time_of_day(event.time_ns),
            event.kind.word().to_string(),
            event.stage.map(|stage| name_of(stages, stage)).unwrap_or_default(),
            event.task.map(|task| task.0.to_string()).unwrap_or_default(),
            event.attempt.map(|attempt| attempt.0.to_string()).unwrap_or_default(),
            event.detail.as_deref().map(escape::cell).unwrap_or_default(),
        ]
    };
    format!("\nLatest events\n{}", table(&columns, events.iter().map(cells).collect()))
}
