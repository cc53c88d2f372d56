//! `sailfish tera sort --rules`: a sort by the rules of the benchmark. A separate process sorts, so that its start
//! counts; this one makes the input cold before, and judges input and output afterwards.

use super::args::SortArgs;
use super::{EngineArgs, cold, sums};
use crate::exit::Failure;
use crate::show::quantity::{bytes, count};
use crate::show::tables::facts;
use crate::show::terminal::{print, tell};
use anyhow::{Context, anyhow};
use api::JobReport;
use serde_json::json;
use signal_hook::consts::SIGINT;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;
use tera::Summary;

const BYTES_PER_MEGABYTE: f64 = 1e6;
const BYTES_PER_TERABYTE: f64 = 1e12;
const SECONDS_PER_MINUTE: f64 = 60.0;

/// Results of a run.
struct Run {
    report: JobReport,
    /// Seconds from the start of the process to its end, when the output was durable.
    seconds: f64,
    cold: bool,
    before: Summary,
    after: Summary,
}

/// Sorts by the rules, judges, and prints the figures. Exits with 1 if the output is not the sorted input.
pub fn run(args: &SortArgs) -> Result<(), Failure> {
    let inputs = mapper::input::list(&args.input).context("--input").map_err(Failure::refused)?;
    if let Some(packed) = inputs.iter().find(|input| input.compression.is_some()) {
        let message =
            format!("--rules allows no compression, but input {} is compressed", packed.path.display());
        return Err(Failure::refused(anyhow!(message)));
    }
    let engine = &args.engine;
    let before = sums::figures(&args.input, engine, args.layout, "tera sum of the input")?.total();
    let cold = cold::evict(&inputs)?;
    if !cold {
        tell("sailfish: note: the input could not be dropped from the page cache: this run is warm");
    }
    let (report, seconds) = sort(args)?;
    let output = args.output.to_str().context("--output is not UTF-8").map_err(Failure::refused)?;
    let outputs = [output.to_string()];
    let sorted = sums::figures(&outputs, engine, args.layout, "tera validate the output")?;
    let run = Run { report, seconds, cold, before, after: sorted.total() };
    print(&if engine.json { run.json() } else { run.text(&args.output) })?;
    if let Some(disorder) = sorted.disorder() {
        return Err(anyhow!("the output is not in order: {disorder}").into());
    }
    match run.agrees() {
        true => Ok(()),
        false => Err(anyhow!("the output does not match the input: records or checksum differ").into()),
    }
}

/// Runs the sort in its own process. Returns its report and the seconds it took.
fn sort(args: &SortArgs) -> Result<(JobReport, f64), Failure> {
    let program = std::env::current_exe().context("finding the path of sailfish itself")?;
    let mut command = Command::new(program);
    command.args(["tera", "sort", "--json", "--codec", "none", "--input"]).args(&args.input);
    command.arg("--output").arg(&args.output);
    if args.overwrite {
        command.arg("--overwrite");
    }
    if let Some(layout) = args.layout {
        command.args(["--layout", layout.name()]);
    }
    add_engine_options(&mut command, &args.engine);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    // Ctrl-C reaches the sort too: it cleans up, and this process waits for it.
    signal_hook::flag::register(SIGINT, Arc::default()).context("listening for signals")?;
    let start = Instant::now();
    let output = command.output().context("starting the sort")?;
    let seconds = start.elapsed().as_secs_f64();
    if !output.status.success() {
        let code = output.status.code().and_then(|code| u8::try_from(code).ok());
        return Err(Failure::said(code.unwrap_or(crate::exit::FAILED)));
    }
    let report = serde_json::from_slice(&output.stdout).context("reading the report of the sort")?;
    Ok((report, seconds))
}

fn add_engine_options(command: &mut Command, engine: &EngineArgs) {
    if let Some(memory) = &engine.memory {
        command.args(["--memory", memory]);
    }
    if let Some(slots) = engine.slots {
        command.args(["--slots", &slots.to_string()]);
    }
    if let Some(state) = &engine.state.state {
        command.arg("--state").arg(state);
    }
    for disk in &engine.disk {
        command.args(["--disk", disk]);
    }
}

impl Run {
    fn agrees(&self) -> bool {
        (self.before.records(), self.before.checksum()) == (self.after.records(), self.after.checksum())
    }

    fn bytes(&self) -> u64 {
        self.after.records() * tera::ROW_BYTES as u64
    }

    fn bytes_per_second(&self) -> f64 {
        self.bytes() as f64 / self.seconds.max(f64::MIN_POSITIVE)
    }

    fn text(&self, output: &Path) -> String {
        let (before, after) = (self.before.checksum(), self.after.checksum());
        let checksum = match self.agrees() {
            true => format!("{after}, the same as that of the input"),
            false => format!("{after}, but that of the input is {before}"),
        };
        let input = if self.cold {
            "cold: from the disk"
        } else {
            "WARM: it could not be dropped from the page cache"
        };
        let speed = self.bytes_per_second();
        let rows = [
            ("records", count(self.after.records())),
            ("bytes", format!("{} ({})", count(self.bytes()), bytes(self.bytes()))),
            ("seconds", format!("{:.3}, from the start of the process to a durable output", self.seconds)),
            ("TB/min", format!("{:.4}", speed * SECONDS_PER_MINUTE / BYTES_PER_TERABYTE)),
            ("MB/s", format!("{:.0}", speed / BYTES_PER_MEGABYTE)),
            ("input", input.to_string()),
            ("checksum", checksum),
            ("duplicate keys", count(self.after.duplicates())),
            ("proof", crate::show::summary::proof(&self.report)),
            ("output", output.display().to_string()),
        ];
        format!("GraySort figures of job {}\n{}", self.report.job, facts(&rows))
    }

    fn json(&self) -> String {
        let value = json!({
            "job": self.report.job,
            "records": self.after.records(),
            "bytes": self.bytes(),
            "seconds": self.seconds,
            "terabytes_per_minute": self.bytes_per_second() * SECONDS_PER_MINUTE / BYTES_PER_TERABYTE,
            "megabytes_per_second": self.bytes_per_second() / BYTES_PER_MEGABYTE,
            "cold_input": self.cold,
            "synced": self.report.synced,
            "checksum_in": self.before.checksum().to_string(),
            "checksum_out": self.after.checksum().to_string(),
            "duplicates": self.after.duplicates(),
            "ordered": self.after.is_ordered(),
            "proof_agrees": self.report.proof.agrees,
        });
        format!("{value:#}\n")
    }
}
