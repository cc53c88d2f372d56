//! `sailfish bench shuffle`: the benchmark of the Sailfish paper (section 6.2.1). There is no input and no output: maps
//! generate records of a 10-byte key and 90 bytes of value, the engine sorts them, reduce tasks check and discard them.

use crate::commands::run::report_of;
use crate::commands::tera::{EngineArgs, Resources};
use crate::engine::progress::Display;
use crate::engine::{self, Ended, machine};
use crate::exit::Failure;
use crate::options::run::CodecArg;
use crate::show::quantity::{bytes, count, counted, percent, rate, seconds};
use crate::show::summary::{output_sums, proof};
use crate::show::tables::facts;
use crate::show::terminal::print;
use anyhow::{Context, anyhow, ensure};
use api::report::PhaseReport;
use api::{
    Codec, Function, GeneratedRows, JobReport, MapReduce, OutputFormat, Partitioning, TERA_ROW_BYTES,
    TeraLayout,
};
use clap::Args;
use jobspec::{Plan, memory_size};
use program::Containment;
use std::path::PathBuf;

const BYTES_PER_MAP_DEFAULT: u64 = 1 << 30;
const BYTES_PER_MEGABYTE: f64 = 1e6;

#[derive(Debug, Args)]
pub struct ShuffleArgs {
    /// Map tasks [default: one per slot]
    #[arg(long, value_name = "N")]
    pub maps: Option<u32>,
    /// Bytes that each map generates, in records of 100 bytes [default: 1G]
    #[arg(long, value_name = "SIZE")]
    pub bytes_per_map: Option<String>,
    /// Compression of intermediate data [default: lz4]
    #[arg(long, value_enum)]
    pub codec: Option<CodecArg>,
    #[command(flatten)]
    pub engine: EngineArgs,
}

/// Runs the shuffle, and prints the figures.
pub fn run(args: ShuffleArgs) -> Result<(), Failure> {
    machine::raise_open_file_limit();
    let resources = Resources::of(&args.engine).map_err(Failure::refused)?;
    let private = resources.private_output().map_err(Failure::refused)?;
    let plan = plan_of(&args, &resources, private.output()).map_err(Failure::refused)?;
    let rows = plan.spec.kind.generated().map_or(0, |generated| generated.rows);
    let display = Display::choose([&plan]);
    let ended = engine::execute(plan, resources.server.as_ref(), display, Containment::Subreaper)?;
    let report = report_of(&ended)?;
    let (_, checked) = output_sums(report);
    if checked != rows || report.proof.records != rows {
        let merged = report.proof.records;
        let message = format!(
            "the counts differ: {rows} records generated, {merged} merged and \
            {checked} checked"
        );
        return Err(anyhow!(message).into());
    }
    let text = match args.engine.json {
        true => format!("{}\n", serde_json::to_string_pretty(report).map_err(anyhow::Error::from)?),
        false => metrics(&ended, report),
    };
    Ok(print(&text)?)
}

fn plan_of(args: &ShuffleArgs, resources: &Resources, output: PathBuf) -> anyhow::Result<Plan> {
    let maps = args.maps.unwrap_or(resources.slots);
    ensure!(maps > 0, "--maps 0: give at least 1");
    let bytes_per_map = match &args.bytes_per_map {
        Some(text) => memory_size::parse(text).with_context(|| format!("--bytes-per-map {text:?}"))?,
        None => BYTES_PER_MAP_DEFAULT,
    };
    let rows_per_map = bytes_per_map / u64::from(TERA_ROW_BYTES);
    ensure!(rows_per_map > 0, "--bytes-per-map {bytes_per_map}: a record has {TERA_ROW_BYTES} bytes");
    let rows = rows_per_map.checked_mul(maps.into()).and_then(tera::Rows::new);
    let rows = rows.context("--maps times --bytes-per-map exceeds 2^64 bytes")?.count();
    let generated = GeneratedRows { layout: TeraLayout::Ascii, skewed: false, start: 0, rows };
    let mut spec = resources.job("bench shuffle", output, generated.bytes())?;
    spec.layout.split_bytes = rows_per_map * u64::from(TERA_ROW_BYTES);
    spec.kind = MapReduce::Shuffled { generate: Some(generated) }.into();
    spec.partitioning = Partitioning::Hash;
    spec.reducer = Some(Function::Builtin { name: "check-order".to_string(), argument: None });
    spec.formats.output = OutputFormat::Discard;
    spec.codec = args.codec.map_or(Codec::Lz4, Codec::from);
    let splits = mapper::generate::plan(&generated, spec.layout.split_bytes);
    Ok(resources.plan(spec, splits))
}

/// Returns the figures of the paper.
fn metrics(ended: &Ended, report: &JobReport) -> String {
    let elapsed = ended.elapsed.as_secs_f64();
    let phase = |phase: &PhaseReport| format!("{} {}", phase.stage, seconds(phase.wall_seconds));
    let mut rows = reduce_rows(report);
    rows.extend(chunk_rows(report));
    rows.push(("phases", report.phases.iter().map(phase).collect::<Vec<_>>().join(", ")));
    rows.push(("speed", speed(report, elapsed)));
    rows.push(("order", "every key checked against the previous one".to_string()));
    rows.push(("proof", proof(report)));
    format!("bench shuffle, job {}, in {}\n{}", report.job, seconds(elapsed), facts(&rows))
}

fn speed(report: &JobReport, elapsed: f64) -> String {
    let bytes_per_second = report.input.bytes as f64 / elapsed.max(f64::MIN_POSITIVE);
    let megabytes = |speed: f64| format!("{:.0} MB/s", speed / BYTES_PER_MEGABYTE);
    format!(
        "{} ({}), {} per slot",
        megabytes(bytes_per_second),
        rate(bytes_per_second),
        megabytes(bytes_per_second / f64::from(report.slots.max(1)))
    )
}

fn reduce_rows(report: &JobReport) -> Vec<(&'static str, String)> {
    let reduce = &report.reduce;
    let tasks = reduce.tasks.max(1);
    let merged = || report.plan.iter().map(|row| row.merged_bytes);
    let records = format!(
        "{} of {TERA_ROW_BYTES} bytes, {} by {}",
        count(report.input.records),
        bytes(report.input.bytes),
        counted(report.map.tasks, "map task")
    );
    let each = format!(
        "{} on average ({} to {}) in {:.1} retrievals, {}",
        bytes(report.shuffle.bytes / tasks),
        bytes(merged().min().unwrap_or(0)),
        bytes(merged().max().unwrap_or(0)),
        reduce.retrievals as f64 / tasks as f64,
        counted(reduce.tasks, "task")
    );
    let retrievals =
        format!("{}, {} each", count(reduce.retrievals), bytes(reduce.bytes_per_retrieval as u64));
    vec![("records", records), ("per reduce task", each), ("retrievals", retrievals)]
}

fn chunk_rows(report: &JobReport) -> Vec<(&'static str, String)> {
    let shuffle = &report.shuffle;
    let chunks = format!(
        "{:.1} an I-file, {} in all, {} would do; {}",
        shuffle.chunks as f64 / shuffle.ifiles.max(1) as f64,
        count(shuffle.chunks),
        count(shuffle.chunks_optimum),
        counted(shuffle.ifiles, "I-file")
    );
    let fill = format!(
        "{} on average, {} at least (all but the last of each I-file)",
        percent(shuffle.fill_percent_mean),
        percent(shuffle.fill_percent_min)
    );
    let runs = format!(
        "{}, {} of them in memory; {} on disk; {} merged beforehand",
        count(shuffle.runs),
        count(shuffle.runs_in_memory),
        bytes(shuffle.run_stored_bytes),
        count(shuffle.merged_runs)
    );
    let sorting = format!(
        "{} of threads, {} a chunk, and {} writing",
        seconds(shuffle.sort_seconds),
        seconds(shuffle.sort_seconds / shuffle.chunks.max(1) as f64),
        seconds(shuffle.write_seconds)
    );
    vec![("chunks", chunks), ("fill", fill), ("runs", runs), ("sorting", sorting)]
}
