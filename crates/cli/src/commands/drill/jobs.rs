//! Input with a known answer, and the jobs over it. Their programs wait a moment before they begin, so that a fault can
//! be injected in the middle of their work; they need only `sh`, `sleep` and `cat` on a node.

use super::judge::Reference;
use crate::engine::resources::CommandLineFrontEnd;
use crate::exit::Failure;
use crate::options::connect::Site;
use anyhow::Context;
use api::Replication;
use jobspec::key_options::KeyOptions;
use jobspec::{FunctionText, JobOptions, Plan};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

pub const INPUT_BYTES_MIN: u64 = 1 << 20;
/// Maximum bytes of input: the drill holds the expected records in memory.
pub const INPUT_BYTES_MAX: u64 = 256 << 20;
/// Approximate size of a split of so little input.
const FILE_BYTES: u64 = 1 << 20;
/// Divisor of the input for counting and summing jobs, which need only a few map tasks.
const SMALL_PART: u64 = 4;
/// Filler of the lines of the sorting job; with it they have about a hundred bytes.
const FILLER: &str = "................................................................";
const KEYS: u64 = 20_000;
/// Script that waits, and then passes its input on.
const PROGRAM: &str = "#!/bin/sh\nsleep 1\nexec cat\n";
const PROGRAM_NAME: &str = "drill.sh";
/// Long enough for any drill; the data is removed after each fault.
const KEEP_FOR: &str = "1h";
/// The minimum, so that many jobs fit, and their chunks are small.
const MEMORY: &str = "64M";
/// Number of parts of the sorting job per slot of the cluster, so that some reduce tasks have not begun at the fault.
const PARTS_PER_SLOT: u32 = 2;
const PARTS_MAX: u32 = 64;

/// Kind of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Returns every line, in order within its part; with programs on both sides.
    Sort,
    /// Counts each word.
    Count,
    /// Sums of numbers.
    Sum,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Sort, Kind::Count, Kind::Sum];

    pub fn word(self) -> &'static str {
        match self {
            Self::Sort => "sort",
            Self::Count => "count",
            Self::Sum => "sum",
        }
    }
}

/// The input of each kind of job, with the expected output.
pub struct Inputs {
    root: PathBuf,
    references: [Reference; 3],
}

impl Inputs {
    /// Writes the inputs into the directory of the drill.
    pub fn write(root: &Path, seed: u64, size_bytes: u64) -> Result<Inputs, Failure> {
        let mut random = fastrand::Rng::with_seed(seed);
        let small_bytes = (size_bytes / SMALL_PART).max(INPUT_BYTES_MIN);
        let write = || -> anyhow::Result<[Reference; 3]> {
            write_program(&root.join(PROGRAM_NAME))?;
            Ok([
                write_lines(root, &mut random, size_bytes)?,
                write_words(root, &mut random, small_bytes)?,
                write_numbers(root, &mut random, small_bytes)?,
            ])
        };
        let references = { write }().context("writing the input of the drill").map_err(Failure::refused)?;
        Ok(Inputs { root: root.to_path_buf(), references })
    }

    pub fn reference(&self, kind: Kind) -> &Reference {
        &self.references[kind as usize]
    }

    pub fn output(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Plans a job of this name over the input of its kind, like `sailfish run`.
    pub fn plan(
        &self,
        kind: Kind,
        name: &str,
        site: &Site,
        slots: u32,
        replication: Replication,
    ) -> Result<Plan, Failure> {
        let program = || Some(FunctionText { text: format!("sh ./{PROGRAM_NAME}"), dir: self.root.clone() });
        let builtin =
            |name: &str| Some(FunctionText { text: format!("builtin:{name}"), dir: self.root.clone() });
        let partitions = (slots * PARTS_PER_SLOT).clamp(1, PARTS_MAX);
        let (reducer, partitions) = match kind {
            Kind::Sort => (program(), Some(partitions)),
            Kind::Count => (builtin("count"), None),
            Kind::Sum => (builtin("sum"), None),
        };
        let path = |path: PathBuf| path.to_string_lossy().into_owned();
        let options = JobOptions {
            start_dir: self.root.clone(),
            name: Some(name.to_string()),
            input: vec![path(self.root.join(kind.word()))],
            mapper: program(),
            reducer,
            output: Some(self.output(name)),
            memory: Some(MEMORY.to_string()),
            slots: Some(slots),
            in_cluster: true,
            file: vec![path(self.root.join(PROGRAM_NAME))],
            keys: KeyOptions { partitions, ..KeyOptions::default() },
            // So all sorted data is on disks, where it can be damaged.
            keep_for: Some(KEEP_FOR.to_string()),
            replication: Some(replication),
            ..JobOptions::default()
        };
        jobspec::plan(options, &CommandLineFrontEnd { site: Some(site) }).map_err(Failure::refused)
    }
}

fn write_program(path: &Path) -> anyhow::Result<()> {
    std::fs::write(path, PROGRAM)?;
    let mut permissions = path.metadata()?.permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o755);
    Ok(std::fs::set_permissions(path, permissions)?)
}

/// Writes lines to files of a directory until they have this total size.
fn write_files(dir: &Path, total_bytes: u64, mut line: impl FnMut() -> Vec<u8>) -> anyhow::Result<()> {
    std::fs::create_dir(dir)?;
    let files = total_bytes.div_ceil(FILE_BYTES);
    for number in 0..files {
        let mut file = BufWriter::new(File::create(dir.join(format!("{number:04}.txt")))?);
        let mut written = 0;
        while written < total_bytes / files {
            let line = line();
            file.write_all(&line)?;
            file.write_all(b"\n")?;
            written += line.len() as u64 + 1;
        }
        file.flush()?;
    }
    Ok(())
}

fn write_lines(root: &Path, random: &mut fastrand::Rng, bytes: u64) -> anyhow::Result<Reference> {
    let mut lines = Vec::new();
    write_files(&root.join(Kind::Sort.word()), bytes, || {
        // Its position makes every line unique; some keys have several lines.
        let line = format!("{:08x}\t{:010} {FILLER}", random.u32(..) / 3 * 3, lines.len()).into_bytes();
        lines.push(line.clone());
        line
    })?;
    Ok(Reference::of_lines(lines))
}

fn write_words(root: &Path, random: &mut fastrand::Rng, bytes: u64) -> anyhow::Result<Reference> {
    let mut counts: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    write_files(&root.join(Kind::Count.word()), bytes, || {
        let word = key(random, "word");
        *counts.entry(word.clone()).or_default() += 1;
        word
    })?;
    Ok(Reference::of_values(counts))
}

fn write_numbers(root: &Path, random: &mut fastrand::Rng, bytes: u64) -> anyhow::Result<Reference> {
    let mut sums: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    write_files(&root.join(Kind::Sum.word()), bytes, || {
        let (key, number) = (key(random, "key"), random.u64(..1_000_000));
        *sums.entry(key.clone()).or_default() += number;
        [key, format!("\t{number}").into_bytes()].concat()
    })?;
    Ok(Reference::of_values(sums))
}

/// Returns a random key; some are much more common than others.
fn key(random: &mut fastrand::Rng, what: &str) -> Vec<u8> {
    let among = if random.u32(..10) < 3 { 10 } else { KEYS };
    format!("{what}-{:05}", random.u64(..among)).into_bytes()
}
