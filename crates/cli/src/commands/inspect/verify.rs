//! `sailfish verify OUT`: comparison of an output with its own report.

use crate::commands::inspect::output_place::OutputPlace;
use crate::engine::progress;
use crate::exit::{FAILED, Failure};
use crate::show::quantity::{bytes, count, counted};
use crate::show::summary::record_word;
use crate::show::terminal::{print, tell};
use anyhow::{Context, ensure};
use api::report::REPORT_VERSION;
use api::task::Part;
use api::{JobReport, OutputFormat};
use clap::Args;
use indicatif::ProgressBar;
use std::collections::BTreeSet;
use std::io::{IsTerminal, Read};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Output directory of a job
    pub output: PathBuf,
}

const REPORT_NAME: &str = "_report.json";
const SUCCESS_NAME: &str = "_SUCCESS";
const READ_BYTES: usize = 1 << 20;

/// Prints each difference. Exits with 1 if there is one.
pub fn run(args: &VerifyArgs) -> Result<(), Failure> {
    let output = OutputPlace::of(&args.output).map_err(Failure::refused)?;
    let report = read_report(&output)?;
    let differences = differences(&output, &report)?;
    let shown = args.output.display();
    if differences.is_empty() {
        let records: u64 = report.parts.iter().map(|part| part.records).sum();
        let size: u64 = report.parts.iter().map(|part| part.bytes).sum();
        let parts = counted(report.parts.len() as u64, "part");
        let lines = counted(records, record_word(&report));
        return Ok(print(&format!(
            "{shown} matches the report of job {}: {parts}, {lines}, {}\n",
            report.job,
            bytes(size)
        ))?);
    }
    for difference in &differences {
        tell(&format!("sailfish: {shown}: {difference}"));
    }
    tell(&format!(
        "sailfish: {} between {shown} and its report",
        counted(differences.len() as u64, "difference")
    ));
    Err(Failure::said(FAILED))
}

fn read_report(output: &OutputPlace) -> anyhow::Result<JobReport> {
    let path = output.shown(REPORT_NAME);
    let text = output
        .read(REPORT_NAME)
        .with_context(|| format!("reading {path}: without its report an output cannot be verified"))?;
    let report: JobReport =
        serde_json::from_slice(&text).with_context(|| format!("reading the report {path}"))?;
    ensure!(
        report.report_version == REPORT_VERSION,
        "the report {path} has version {}, but this program reads version {REPORT_VERSION}",
        report.report_version
    );
    Ok(report)
}

/// Returns every difference between the output and the report.
fn differences(output: &OutputPlace, report: &JobReport) -> anyhow::Result<Vec<String>> {
    let mut differences = Vec::new();
    let mut expected = BTreeSet::from([REPORT_NAME, SUCCESS_NAME]);
    if !report.proof.agrees {
        differences.push("the report says that the proof disagrees".to_string());
    }
    match output.read(SUCCESS_NAME) {
        Ok(bytes) if bytes.is_empty() => {}
        Ok(_) => differences.push(format!("{SUCCESS_NAME} is not empty")),
        Err(error) => differences.push(format!("{SUCCESS_NAME} cannot be found: {error:#}")),
    }
    let bar = progress::bar("verify");
    if !std::io::stderr().is_terminal() {
        bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
    }
    bar.set_length(report.parts.iter().map(|part| part.bytes).sum());
    for part in &report.parts {
        if !expected.insert(part.name.as_str()) {
            differences.push(format!("the report names {} twice", part.name));
            continue;
        }
        let found = output.open(&part.name).and_then(|file| read_part(file, line_terminator(report), &bar));
        match found {
            Ok(found) => compare(part, &found, &mut differences),
            Err(error) => differences.push(format!("{} cannot be read: {error:#}", part.name)),
        }
    }
    bar.finish_and_clear();
    let names = output.names().with_context(|| format!("reading {}", output.shown("")))?;
    let strange = names.iter().filter(|name| !expected.contains(name.as_str()));
    differences.extend(strange.map(|name| format!("{name} is not in the report")));
    Ok(differences)
}

/// Returns the byte that ends each line of the parts; None if records cannot be counted from the stored bytes.
fn line_terminator(report: &JobReport) -> Option<u8> {
    match report.formats.output {
        OutputFormat::Lines { terminator, .. } if report.formats.output_codec.is_none() => Some(terminator),
        OutputFormat::Lines { .. } | OutputFormat::Raw | OutputFormat::Discard => None,
    }
}

/// Content of a part file: its size, its records, and its checksum.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    bytes: u64,
    /// None where they cannot be counted.
    records: Option<u64>,
    crc32c: u32,
}

fn read_part(mut file: impl Read, terminator: Option<u8>, bar: &ProgressBar) -> anyhow::Result<Found> {
    let mut buffer = vec![0; READ_BYTES];
    let mut found = Found::default();
    let (mut line_ends, mut last_byte) = (0, None);
    loop {
        let length = match file.read(&mut buffer) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        };
        let piece = &buffer[..length];
        found.bytes += length as u64;
        if let Some(terminator) = terminator {
            line_ends += memchr::memchr_iter(terminator, piece).count() as u64;
        }
        found.crc32c = crc32c::crc32c_append(found.crc32c, piece);
        last_byte = piece.last().copied();
        bar.inc(length as u64);
    }
    // An unfinished last line counts, as it did when it was written.
    let open_line = last_byte.is_some() && last_byte != terminator;
    found.records = terminator.map(|_| line_ends + u64::from(open_line));
    Ok(found)
}

fn compare(part: &Part, found: &Found, differences: &mut Vec<String>) {
    let name = &part.name;
    if found.bytes != part.bytes {
        differences.push(format!(
            "{name} has {} bytes, the report says {}",
            count(found.bytes),
            count(part.bytes)
        ));
    }
    if let Some(records) = found.records.filter(|records| *records != part.records) {
        let (here, there) = (count(records), count(part.records));
        differences.push(format!("{name} has {here} lines, the report says {there}"));
    }
    if found.crc32c != part.crc32c {
        let (here, there) = (found.crc32c, part.crc32c);
        differences.push(format!("{name} has checksum {here:08x}, the report says {there:08x}"));
    }
}

#[cfg(test)]
mod tests {
    use super::{Found, compare, read_part};
    use api::task::Part;
    use indicatif::ProgressBar;

    #[test]
    fn parts_are_measured_as_they_were_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("part-00000");
        let check = |text: &str, records| {
            std::fs::write(&path, text).unwrap();
            let expected = Found {
                bytes: text.len() as u64,
                records: Some(records),
                crc32c: crc32c::crc32c(text.as_bytes()),
            };
            let read = |terminator| {
                read_part(std::fs::File::open(&path).unwrap(), terminator, &ProgressBar::hidden()).unwrap()
            };
            assert_eq!(read(Some(b'\n')), expected);
            assert_eq!(read(None).records, None);
        };
        check("", 0);
        check("a\nb\n", 2);
        check("a\nb", 2);
        check(&"line\n".repeat(500_000), 500_000);
    }

    #[test]
    fn each_difference_is_named() {
        let part = Part { name: "part-00000".into(), bytes: 4, records: 2, crc32c: 7, ..Part::default() };
        let check = |found: Found, expected: &[&str]| {
            let mut differences = Vec::new();
            compare(&part, &found, &mut differences);
            assert_eq!(differences.len(), expected.len(), "{differences:?}");
            for (difference, word) in differences.iter().zip(expected) {
                assert!(difference.contains(word), "{difference}");
            }
        };
        check(Found { bytes: 4, records: Some(2), crc32c: 7 }, &[]);
        check(Found { bytes: 4, records: Some(2), crc32c: 8 }, &["checksum"]);
        check(Found { bytes: 3, records: Some(1), crc32c: 8 }, &["bytes", "lines", "checksum"]);
    }
}
