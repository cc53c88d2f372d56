//! `sailfish report JOB`: the figures of a job, for users.

mod steps;

use crate::engine::{remote, store};
use crate::exit::Failure;
use crate::options::connect::StateArgs;
use crate::show::escape;
use crate::show::quantity::{bytes, count, counted, percent, rate, seconds};
use crate::show::summary::{output_sums, proof};
use crate::show::tables::{facts, left, right, table};
use crate::show::terminal::print;
use anyhow::anyhow;
use api::report::PlanRow;
use api::{JobReport, KeyBytes};
use clap::Args;
use ids::{JobId, StageKind};
use metastore::Metastore;
use std::collections::BTreeMap;

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Number of the job
    pub job: i64,
    #[command(flatten)]
    pub state: StateArgs,
    /// Print the report as JSON, as stored in the output
    #[arg(long)]
    pub json: bool,
    /// Maximum number of rows of the plan, or of files of steps, to show
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub limit: usize,
}

/// Bytes of a key in the plan, so that a row fits into 100 columns.
const KEY_BYTES_SHOWN_MAX: usize = 13;

/// Prints the report of a job.
pub fn run(args: &ReportArgs) -> Result<(), Failure> {
    let job = JobId(args.job);
    let details = store::details(&args.state, job, 0)?;
    if details.spec.kind.steps().is_some() {
        let runs = steps::runs(&args.state, job)?;
        let text = match args.json {
            true => serde_json::to_string_pretty(&runs).map_err(anyhow::Error::from)? + "\n",
            false => steps::render(&details, &runs, args.limit),
        };
        return Ok(print(&text)?);
    }
    let read = async |store: Metastore| {
        let row = store::job_row(&store, job).await?;
        let state = row.state.word();
        let reason = match details.spec.kind.program() {
            Some(_) => "a job of one program has no report",
            None => "only a finished job has a report",
        };
        store.job_report(job).await?.ok_or_else(|| {
            Failure::from(anyhow!("job {job} is {state}: {reason}; see `sailfish show {job}`"))
        })
    };
    let report = match args.state.site() {
        Some(site) => remote::report(&site, job)?,
        None => store::look(args.state.state.as_deref(), read)?,
    };
    if args.json {
        let text = serde_json::to_string_pretty(&report).map_err(anyhow::Error::from)?;
        return Ok(print(&format!("{text}\n"))?);
    }
    Ok(print(&render(&report, args.limit))?)
}

/// Returns the whole report as text, with at most `rows_max` rows of the plan.
pub fn render(report: &JobReport, rows_max: usize) -> String {
    let mut text = format!("Job {}: {}\n{}", report.job, escape::cell(&report.name), head(report));
    let mut section = |title: &str, body: String| {
        if !body.is_empty() {
            text.push_str(&format!("\n{title}\n{body}"));
        }
    };
    section("Road", road(report));
    section("Phases", phases(report));
    if report.has_shuffle() {
        section("I-files", shuffle(report));
        section("Reduce", reduce(report));
    }
    section("Slots", slots(report));
    section("Plan and parts", plan(report, rows_max));
    section("Counters", counters(report));
    if report.has_shuffle() {
        section("Proof", proof_facts(report));
    }
    text
}

fn head(report: &JobReport) -> String {
    let order = match report.partitioning.as_str() {
        "hash" => "each part sorted (hash)",
        "range" => "all parts together sorted (range)",
        "partitions" => "each partition a part, sorted",
        _ => "map only, in the order of the mappers",
    };
    let layout = &report.layout;
    let mut rows = Vec::new();
    if let Some(source) = report.reduce_again {
        rows.push(("reduces", format!("the I-files that job {source} kept; no map ran in this job")));
    }
    rows.push(("mapper", escape::cell(&report.mapper)));
    if report.has_shuffle() {
        rows.push(("combiner", escape::cell(&report.combiner)));
        rows.push(("reducer", escape::cell(&report.reducer)));
    }
    rows.push(("order", order.to_string()));
    rows.push((
        "memory",
        format!("{}, {}", bytes(report.memory_bytes), counted(report.slots.into(), "slot")),
    ));
    rows.push((
        "layout",
        format!(
            "{}; chunk {}, frame {}, block {}, split {}",
            counted(layout.ifile_count.into(), "I-file"),
            bytes(layout.chunk_bytes),
            bytes(layout.frame_bytes),
            bytes(layout.block_bytes),
            bytes(layout.split_bytes)
        ),
    ));
    let synced =
        if report.synced { "synced to disk before it was published" } else { "NOT synced (--no-sync)" };
    rows.push(("output", synced.to_string()));
    rows.push(("made by", format!("sailfish {}", report.sailfish_version)));
    facts(&rows)
}

fn road(report: &JobReport) -> String {
    let columns =
        [left("step"), right("tasks"), right("attempts"), right("records"), right("bytes"), left("")];
    let (input, map) = (&report.input, &report.map);
    let (part_bytes, part_records) = output_sums(report);
    let row = |step: &str, tasks: Option<(u64, u64)>, records: u64, size: u64, note: String| {
        let (tasks, attempts) =
            tasks.map(|(tasks, attempts)| (count(tasks), count(attempts))).unwrap_or_default();
        vec![step.to_string(), tasks, attempts, count(records), bytes(size), note]
    };
    let stored = format!("{}, {} as stored", counted(input.files, "file"), bytes(input.stored_bytes));
    let tasks = Some((map.tasks, map.attempts));
    let mut rows = vec![
        row("input", None, input.records, input.bytes, stored),
        row("map output", tasks, map.output_records, map.output_bytes, unread(map.unread_bytes)),
    ];
    if report.has_shuffle() {
        let (shuffle, reduce) = (&report.shuffle, &report.reduce);
        let combined = if report.combiner == "none" { "" } else { "after combining" };
        rows.push(row("shuffle", None, shuffle.records, shuffle.bytes, combined.to_string()));
        let mut groups = row(
            "reduce",
            Some((reduce.tasks, reduce.attempts)),
            reduce.groups,
            0,
            format!("groups of one key{}", unread(reduce.unread_bytes)),
        );
        groups[4].clear();
        rows.push(groups);
    }
    let parts = counted(report.parts.len() as u64, "part");
    rows.push(row("output", None, part_records, part_bytes, parts));
    table(&columns, rows)
}

fn unread(unread_bytes: u64) -> String {
    match unread_bytes {
        0 => String::new(),
        some => format!(" {} not read by the program", bytes(some)),
    }
}

fn phases(report: &JobReport) -> String {
    let columns = [left("phase"), right("tasks"), right("wall"), right("slot time"), right("speed")];
    let cells = |phase: &api::report::PhaseReport| {
        let handled = match phase.stage {
            StageKind::Map => Some(report.input.bytes),
            StageKind::Reduce => Some(report.shuffle.bytes),
            _ => None,
        };
        let speed = handled.filter(|_| phase.wall_seconds > 0.0);
        vec![
            phase.stage.to_string(),
            count(phase.tasks),
            seconds(phase.wall_seconds),
            seconds(phase.slot_seconds),
            speed.map(|handled| rate(handled as f64 / phase.wall_seconds)).unwrap_or_default(),
        ]
    };
    table(&columns, report.phases.iter().map(cells).collect())
}

fn shuffle(report: &JobReport) -> String {
    let shuffle = &report.shuffle;
    if shuffle.chunks == 0 {
        return facts(&[("chunks", "none: the maps emitted no records".to_string())]);
    }
    let mut chunks = format!("{} ({} would do)", count(shuffle.chunks), count(shuffle.chunks_optimum));
    if shuffle.oversize_chunks > 0 {
        chunks.push_str(&format!(", {} for one large record each", count(shuffle.oversize_chunks)));
    }
    let on_disk = shuffle.runs.saturating_sub(shuffle.runs_in_memory);
    let spills = match shuffle.raw_spills {
        0 => "none".to_string(),
        some => format!("{}, {}", counted(some, "chunk"), bytes(shuffle.raw_spill_bytes)),
    };
    let spools = match (shuffle.spooled_bytes, shuffle.resent_bytes) {
        (0, _) => "none".to_string(),
        (some, resent) => format!("{} kept by maps, {} sent again", bytes(some), bytes(resent)),
    };
    facts(&[
        ("chunks", chunks),
        (
            "fill",
            format!(
                "{} on average, {} at least (all but the last of each I-file)",
                percent(shuffle.fill_percent_mean),
                percent(shuffle.fill_percent_min)
            ),
        ),
        (
            "runs",
            format!(
                "{} in memory, {} on disk with {}, {} merged beforehand",
                count(shuffle.runs_in_memory),
                count(on_disk),
                bytes(shuffle.run_stored_bytes),
                count(shuffle.merged_runs)
            ),
        ),
        ("raw spills", spills),
        ("spools", spools),
        (
            "sorting",
            format!(
                "{} of threads, and {} writing",
                seconds(shuffle.sort_seconds),
                seconds(shuffle.write_seconds)
            ),
        ),
    ])
}

fn reduce(report: &JobReport) -> String {
    let reduce = &report.reduce;
    let mut rows = vec![
        ("plan", format!("version {}, {} a task aimed at", reduce.plan_version, bytes(reduce.target_bytes))),
        (
            "retrievals",
            format!(
                "{}, {} in all, {} each",
                count(reduce.retrievals),
                bytes(reduce.retrieved_bytes),
                bytes(reduce.bytes_per_retrieval as u64)
            ),
        ),
        ("fan-in", format!("{} at most", counted(reduce.fan_in_max.into(), "run"))),
    ];
    if reduce.dropped_records > 0 {
        rows.push(("dropped", format!("{} of losing attempts", counted(reduce.dropped_records, "record"))));
    }
    facts(&rows)
}

fn slots(report: &JobReport) -> String {
    facts(&[
        ("waste", format!("{} in attempts whose results were not used", seconds(report.waste_slot_seconds))),
        ("idle", format!("{} with nothing to run", seconds(report.idle_slot_seconds))),
    ])
}

fn plan(report: &JobReport, rows_max: usize) -> String {
    let planned: BTreeMap<String, &PlanRow> =
        report.plan.iter().map(|row| (report.formats.part_name(row.part), row)).collect();
    let columns = [
        left("part"),
        left("I-files"),
        left("keys from"),
        left("below"),
        right("runs"),
        right("expected"),
        right("merged"),
        right("lines"),
        right("bytes"),
    ];
    let key = |key: &Option<KeyBytes>| {
        key.as_ref().map(|key| escape::key(&key.0, KEY_BYTES_SHOWN_MAX)).unwrap_or_default()
    };
    let mut rows = Vec::new();
    for part in report.parts.iter().take(rows_max) {
        let row = planned.get(&part.name);
        let from_plan = |cell: &dyn Fn(&PlanRow) -> String| row.map(|row| cell(row)).unwrap_or_default();
        rows.push(vec![
            part.name.clone(),
            from_plan(&ifiles),
            from_plan(&|row| key(&row.lower_key)),
            from_plan(&|row| key(&row.upper_key)),
            from_plan(&|row| count(row.runs)),
            from_plan(&|row| bytes(row.expected_bytes)),
            from_plan(&|row| bytes(row.merged_bytes)),
            count(part.records),
            bytes(part.bytes),
        ]);
    }
    if rows.is_empty() {
        return String::new();
    }
    let mut text = table(&columns, rows);
    let left_off = report.parts.len().saturating_sub(rows_max);
    if left_off > 0 {
        text.push_str(&format!("and {} more; --limit N shows them\n", count(left_off as u64)));
    }
    text
}

/// Formats I-files: `3`, or `0-15` for consecutive ones.
fn ifiles(row: &PlanRow) -> String {
    match row.ifiles.as_slice() {
        [] => String::new(),
        [one] => one.0.to_string(),
        [first, .., last] if u64::from(last.0 - first.0) + 1 == row.ifiles.len() as u64 => {
            format!("{}-{}", first.0, last.0)
        }
        many => many.iter().map(|ifile| ifile.0.to_string()).collect::<Vec<_>>().join(" "),
    }
}

fn counters(report: &JobReport) -> String {
    let shown = |value: i64| match value < 0 {
        true => format!("-{}", count(value.unsigned_abs())),
        false => count(value.unsigned_abs()),
    };
    // Programs may give counters any names.
    let names: Vec<String> = report.counters.keys().map(|name| escape::cell(name)).collect();
    let values = report.counters.values();
    let rows: Vec<(&str, String)> =
        names.iter().zip(values).map(|(name, value)| (name.as_str(), shown(*value))).collect();
    facts(&rows)
}

fn proof_facts(report: &JobReport) -> String {
    let proof_report = &report.proof;
    facts(&[
        ("shuffle", format!("{}, over {}", proof(report), counted(proof_report.ifiles, "I-file"))),
        ("hash sum", proof_report.hash_sum.clone()),
    ])
}
