//! `sailfish fsck JOB`: verification of the kept files of a job.

use crate::engine::{progress, store};
use crate::exit::{FAILED, Failure, REFUSED};
use crate::options::connect::StateArgs;
use crate::show::escape;
use crate::show::quantity::{bytes, count, counted};
use crate::show::terminal::{self, print};
use api::DataSum;
use api::fsck::{Damage, DamagedFile, DisagreeingIfile, FsckAnswer, FsckReport, FsckRequest};
use chunkserver::{Checking, check_kept};
use clap::Args;
use client::Blocking;
use ids::JobId;
use indicatif::ProgressBar;
use server::{KeptCheck, check_here, kept_source};
use std::fmt::Write;
use std::io::IsTerminal;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub const EXIT_CODES: &str = "Exit codes:
  0    every file is whole and the proof agrees
  1    there is \
                              damage, or the proof does not agree; the output lists all of it
  2    the \
                              check was not possible: there is no such job, it kept nothing, or a node with a part of it is disconnected";

#[derive(Debug, Args)]
pub struct FsckArgs {
    /// Number of the job that kept its I-files, or of a job that reduced them again
    pub job: i64,
    #[command(flatten)]
    pub state: StateArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Maximum number of files that are read at once: fewer than the processors keep disks busy.
const THREADS_MAX: usize = 8;
/// Interval between two checks of the progress.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Prints everything that is wrong. Exits with [`FAILED`] if anything is, and with [`REFUSED`] if the check is
/// impossible.
pub fn run(args: &FsckArgs) -> Result<(), Failure> {
    // An error before the check says nothing about the files.
    let report = look(args).map_err(|failure| Failure { code: REFUSED, ..failure })?;
    let text = match args.json {
        true => format!("{}\n", serde_json::to_string_pretty(&report).map_err(anyhow::Error::from)?),
        false => render(&report),
    };
    print(&text)?;
    if report.is_whole() { Ok(()) } else { Err(Failure::said(FAILED)) }
}

fn look(args: &FsckArgs) -> Result<FsckReport, Failure> {
    let job = JobId(args.job);
    let bar = progress::bar("fsck");
    if args.json || !std::io::stderr().is_terminal() {
        bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
    }
    let bar = terminal::bars().add(bar);
    let report = match args.state.connection()? {
        Some(connection) => of_cluster(&connection, job, &bar),
        None => of_this_machine(args, job, &bar),
    };
    bar.finish_and_clear();
    report
}

fn of_this_machine(args: &FsckArgs, job: JobId, bar: &ProgressBar) -> Result<FsckReport, Failure> {
    let state = args.state.state.as_deref();
    let begin = async |store| check_here(&store, job).await.map_err(Failure::from_server);
    let mut check = store::look(state, begin)?;
    check_files(&mut check, bar)?;
    // Files that were collected in between are missing and not damaged.
    store::look(state, async |store| kept_source(&store, job).await.map_err(Failure::from_server))?;
    Ok(check.report())
}

/// Lets the nodes read, and polls for their progress.
fn of_cluster(connection: &Blocking, job: JobId, bar: &ProgressBar) -> Result<FsckReport, Failure> {
    let mut request = FsckRequest::default();
    loop {
        let answer = connection.run(async |client| client.fsck(job, &request).await);
        let FsckAnswer { check, read_bytes, total_bytes, report } = answer.map_err(Failure::from_client)?;
        if let Some(report) = report {
            return Ok(report);
        }
        bar.set_length(total_bytes.max(1));
        bar.set_position(read_bytes);
        request.check = Some(check);
        std::thread::sleep(LOOK_EVERY);
    }
}

fn check_files(check: &mut KeptCheck, bar: &ProgressBar) -> Result<(), Failure> {
    bar.set_length(check.total_bytes().max(1));
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get().min(THREADS_MAX));
    let checking = Checking::default();
    for (_, task) in check.tasks.clone() {
        let (sender, results) = std::sync::mpsc::sync_channel(threads);
        let checked = std::thread::scope(|scope| {
            let (task, checking) = (&task, &checking);
            let checker = scope.spawn(move || {
                check_kept(task, threads, checking, |checked| {
                    // The receiver listens to the end.
                    let _ = sender.send(checked);
                })
            });
            loop {
                match results.recv_timeout(LOOK_EVERY) {
                    Ok(checked) => check.found(task.made_by, checked),
                    Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
                    Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
                }
                bar.set_position(checking.read_bytes.load(Ordering::Relaxed));
            }
            checker.join()
        });
        match checked {
            Ok(checked) => checked.map_err(Failure::refused)?,
            Err(_) => return Err(Failure::refused(anyhow::anyhow!("a thread that reads files panicked"))),
        }
    }
    match check.is_complete() {
        true => Ok(()),
        false => Err(Failure::refused(anyhow::anyhow!("not all files were checked"))),
    }
}

/// Returns all findings, file by file, and a line with the verdict.
fn render(report: &FsckReport) -> String {
    let mut text = String::new();
    for file in &report.damaged {
        add_file(&mut text, file);
    }
    add_left_off(&mut text, report.damaged_count, report.damaged.len(), "damaged file");
    for ifile in &report.disagreeing {
        add_ifile(&mut text, ifile);
    }
    add_left_off(&mut text, report.disagreeing_count, report.disagreeing.len(), "I-file");
    let replicas = match report.replicas {
        0 => String::new(),
        replicas => format!(" and {}", counted(replicas, "replica")),
    };
    let what = format!(
        "job {}: {}{replicas}, {}, {}",
        report.job,
        counted(report.runs, "run"),
        counted(report.blocks, "whole block"),
        bytes(report.bytes)
    );
    let files = match (report.damaged_count, report.lost_runs) {
        (0, _) => "every file is whole".to_string(),
        (damaged, 0) => format!("{}; there is an intact copy of each run", counted(damaged, "damaged file")),
        (damaged, lost) => {
            format!("{}; {} without an intact copy", counted(damaged, "damaged file"), counted(lost, "run"))
        }
    };
    let proof = match report.disagreeing_count {
        0 => format!("the proof of {} agrees", counted(report.ifiles, "I-file")),
        wrong => {
            format!("the proof of {} of {} does not agree", count(wrong), counted(report.ifiles, "I-file"))
        }
    };
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{what}: {files}; {proof}");
    text
}

fn add_file(text: &mut String, file: &DamagedFile) {
    let on = |node: &Option<String>| match node {
        Some(node) => format!(" on {}", escape::cell(node)),
        None => String::new(),
    };
    let kind = if file.is_replica { "replica of " } else { "" };
    let place = match &file.path {
        Some(path) => format!("{}{}", escape::sentence(&path.to_string_lossy()), on(&file.node)),
        None => "nowhere".to_string(),
    };
    let _ = writeln!(text, "damaged: {kind}{} of {}: {place}", file.run, file.ifile);
    for damage in &file.damages {
        let _ = writeln!(text, "  {}", damage_text(damage));
    }
    add_left_off(text, file.damage_count, file.damages.len(), "  damage");
    let _ = match &file.intact {
        Some(copy) => {
            let path = copy.path.to_string_lossy();
            writeln!(text, "  an intact copy: {}{}", escape::sentence(&path), on(&copy.node))
        }
        None => writeln!(text, "  there is no intact copy"),
    };
}

fn damage_text(damage: &Damage) -> String {
    let why = escape::sentence(&damage.why);
    match (damage.block, damage.offset_bytes) {
        (Some(block), Some(offset)) => format!("block {block} at byte {offset}: {why}"),
        (None, Some(offset)) => format!("at byte {offset}: {why}"),
        _ => why,
    }
}

fn add_ifile(text: &mut String, row: &DisagreeingIfile) {
    let sum = |sum: &DataSum| {
        format!("{}, {}, hash sum {:032x}", counted(sum.records, "record"), bytes(sum.bytes), sum.hash_sum)
    };
    let (committed, held) = (sum(&row.committed), sum(&row.held));
    let _ = writeln!(text, "proof: {} does not agree: the maps committed {committed}", row.ifile);
    let _ = writeln!(text, "  intact runs hold {held}; {}", escape::sentence(&row.first));
}

fn add_left_off(text: &mut String, all: u64, shown: usize, what: &str) {
    let more = all.saturating_sub(shown as u64);
    if more > 0 {
        let indent = &what[..what.len() - what.trim_start().len()];
        let _ = writeln!(text, "{indent}and {} more", counted(more, what.trim_start()));
    }
}

#[cfg(test)]
mod tests {
    use super::render;
    use api::fsck::{Damage, DamagedFile, FsckReport, IntactCopy};
    use ids::{IfileIndex, JobId, RunId};

    fn report() -> FsckReport {
        FsckReport {
            job: JobId(3),
            runs: 2,
            replicas: 0,
            blocks: 5,
            bytes: 2048,
            damaged: Vec::new(),
            damaged_count: 0,
            lost_runs: 0,
            ifiles: 1,
            disagreeing: Vec::new(),
            disagreeing_count: 0,
        }
    }

    #[test]
    fn intact_files_take_one_line() {
        let expected =
            "job 3: 2 runs, 5 whole blocks, 2.00 KiB: every file is whole; the proof of 1 I-file agrees\n";
        assert_eq!(render(&report()), expected);
    }

    #[test]
    fn damage_is_shown_with_place_and_intact_copy() {
        let why = "damaged block: no\nreason".to_string();
        let file = DamagedFile {
            run: RunId(1),
            ifile: IfileIndex(0),
            is_replica: true,
            node: Some("node-1".to_string()),
            path: Some("/d/run".into()),
            damages: vec![Damage { block: Some(4), offset_bytes: Some(64), why }],
            damage_count: 3,
            intact: Some(IntactCopy { node: Some("node-0".to_string()), path: "/e/run".into() }),
        };
        let text = render(&FsckReport { damaged: vec![file], damaged_count: 1, replicas: 1, ..report() });
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5, "{text}");
        assert!(lines[0].starts_with("damaged: replica of ") && lines[0].ends_with("/d/run on node-1"));
        assert!(lines[1].starts_with("  block 4 at byte 64: damaged block: no"), "{text}");
        assert_eq!(lines[2], "  and 2 damages more");
        assert_eq!(lines[3], "  an intact copy: /e/run on node-0");
        assert!(lines[4].contains("1 damaged file; there is an intact copy of each run"), "{text}");
    }
}
