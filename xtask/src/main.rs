//! # What it does
//! The project's own tools: `cargo xtask tidy` checks the laws of ARCHITECTURE.md, `ledger` reports the minutes of the
//! tests, `licences` lists third-party crates, and the rest serve the benchmarks.
//!
//! # Where it sits
//! Beside the product: no crate depends on it and it depends on none of them.
//!
//! # Invariants
//! `tidy` reads and never writes. Every check is a function over a tree in memory, so that each one has a test with a
//! sample that breaks its rule.
//!
//! # Deliberately absent
//! Nothing that a user of Sailfish needs.
//!
//! # How it is tested
//! Unit tests beside each check; the checks run over this very tree in `make test`.

mod huge_pages;
mod ledger;
mod licences;
mod measure;
mod records;
mod reference;
mod rows;
mod text;
mod tidy;
mod touch;
mod words;

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND
  tidy                            check the laws of the project in tracked and new files
  ledger DIR                      print the minutes of a run of `make test`; fail if a cold stage exceeded its ceiling
  licences [--texts F]            write packaging/THIRD-PARTY.md, the third-party crates that the program links; their texts to F
  gen-records --bytes N --out F   write N bytes of 100-byte records (deterministic; N is rounded down to records)
  gen-text --bytes N --corpus DIR --out F
                                  write N bytes of text for word counts: the .rs files of DIR again and again, varied
  time --out F -- COMMAND...      run a command and write wall, user, sys seconds, peak MiB, peak anonymous MiB and
                                  exit code to F
  touch-memory --bytes N          touch and release N bytes in huge pages, so that the machine backs them
  sort-reference --input F --output F
                                  sort 100-byte rows in memory, the simple way: the reference for `tera sort`
  check-rows [--any-order] [--without-cr] F...
                                  print count and checksum of 100-byte rows; fail if a key is smaller than the last
  count-words F                   print words, distinct words and checksum of a text
  check-counts F...               print the same of lines WORD TAB COUNT";

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
        ("licences", []) => licences::write(&workspace_root()?, None).map(|()| ExitCode::SUCCESS),
        ("licences", [flag_texts, texts]) if flag_texts == "--texts" => {
            licences::write(&workspace_root()?, Some(Path::new(texts))).map(|()| ExitCode::SUCCESS)
        }
        ("ledger", [directory]) => ledger::run(&workspace_root()?, Path::new(directory)),
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
        ("sort-reference", [flag_input, input, flag_output, output])
            if flag_input == "--input" && flag_output == "--output" =>
        {
            reference::sort(Path::new(input), Path::new(output)).map(|()| ExitCode::SUCCESS)
        }
        _ => run_text_and_checks(command, rest),
    }
}

fn run_text_and_checks(command: &str, rest: &[String]) -> Result<ExitCode> {
    match (command, rest) {
        ("gen-text", [flag_bytes, bytes, flag_corpus, corpus, flag_out, out])
            if flag_bytes == "--bytes" && flag_corpus == "--corpus" && flag_out == "--out" =>
        {
            text::generate(read_bytes(bytes)?, Path::new(corpus), Path::new(out))?;
        }
        ("check-rows", rest) => {
            let (flags, paths) = rest.split_at(rest.iter().take_while(|word| word.starts_with("--")).count());
            let mut demands = rows::Demands::default();
            for flag in flags {
                match flag.as_str() {
                    "--any-order" => demands.any_order = true,
                    "--without-cr" => demands.without_cr = true,
                    _ => bail!("{USAGE}"),
                }
            }
            println!("{}", rows::check(paths, demands)?.line());
        }
        ("count-words", [path]) => println!("{}", words::of_text(Path::new(path))?.line()),
        ("check-counts", paths) => println!("{}", words::of_counts(paths)?.line()),
        _ => bail!("{USAGE}"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the directory of the root manifest: the parent of this package, wherever the command was given.
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
