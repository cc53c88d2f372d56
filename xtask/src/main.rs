//! # What it does
//! The house's own tools: `cargo xtask tidy` keeps the laws of ARCHITECTURE.md true, the others serve the demo
//! and the benchmarks.
//!
//! # Where it sits
//! Beside the product: no crate depends on it and it depends on none of them.
//!
//! # Invariants
//! `tidy` reads and never writes. Every check is a function over a tree held in memory, so that each one has a
//! test with a sample that breaks its rule.
//!
//! # Deliberately absent
//! Nothing that a user of Sailfish needs.
//!
//! # How it is tested
//! Unit tests beside each check; the checks run over this very tree in `make test`.

mod demo_corpus;
mod measure;
mod records;
mod tidy;
mod touch;

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND
  tidy                            check the laws of the house over the tracked and new files
  demo-corpus DIR                 copy the Rust sources of our dependencies to DIR and print their number and size
  gen-records --bytes N --out F   write N bytes of 100-byte records (deterministic; N is rounded down to records)
  time --out F -- COMMAND...      run a command and write wall, user, sys seconds, peak MiB and exit code to F
  touch-memory --bytes N          touch and release N bytes in huge pages, so that the machine backs them";

fn main() -> ExitCode {
    match run(std::env::args().skip(1).collect()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Vec<String>) -> Result<ExitCode> {
    let Some((command, rest)) = arguments.split_first() else { bail!("{USAGE}") };
    match (command.as_str(), rest) {
        ("tidy", []) => tidy::run(&workspace_root()?),
        ("demo-corpus", [directory]) => {
            demo_corpus::copy(&workspace_root()?, Path::new(directory)).map(|()| ExitCode::SUCCESS)
        }
        ("gen-records", [flag_bytes, bytes, flag_out, out])
            if flag_bytes == "--bytes" && flag_out == "--out" =>
        {
            records::generate(read_bytes(bytes)?, Path::new(out)).map(|()| ExitCode::SUCCESS)
        }
        ("time", [flag_out, out, separator, command @ ..]) if flag_out == "--out" && separator == "--" => {
            measure::run(Path::new(out), command)
        }
        ("touch-memory", [flag_bytes, bytes]) if flag_bytes == "--bytes" => {
            touch::touch(read_bytes(bytes)?).map(|()| ExitCode::SUCCESS)
        }
        _ => bail!("{USAGE}"),
    }
}

/// The directory of the root manifest: the parent of this package, wherever the command was given.
fn workspace_root() -> Result<PathBuf> {
    let package = match std::env::var_os("CARGO_MANIFEST_DIR") {
        Some(directory) => PathBuf::from(directory),
        None => PathBuf::from(env!("CARGO_MANIFEST_DIR")),
    };
    package.parent().map(Path::to_path_buf).context("find the workspace above xtask")
}

fn read_bytes(text: &str) -> Result<u64> {
    text.parse().with_context(|| format!("read {text:?} as a number of bytes"))
}
