//! `cargo xtask tidy`: the laws of ARCHITECTURE.md as checks.
//!
//! Each check takes the tree and gives findings; `run` reads the tree, runs them all and prints what they found.

mod arrows;
mod circles;
mod docs;
mod english;
mod migrations;
mod names;
mod parameters;
mod purity;
mod recipes;
mod sizes;
mod tree;
mod words;

use anyhow::Result;
use std::fmt;
use std::path::Path;
use std::process::ExitCode;
use tree::Tree;

/// One breach: where, what, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    pub path: String,
    /// Counts from 1; 0 means the file as a whole.
    pub line: usize,
    pub message: String,
}

impl Finding {
    pub fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_string(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

type Check = fn(&Tree) -> Vec<Finding>;

/// Every check, by the name that the summary prints.
const CHECKS: &[(&str, Check)] = &[
    ("the Rust files parse", sizes::parse),
    ("file length", sizes::file_lines),
    ("function length", sizes::function_lines),
    ("size of tracked files", sizes::file_bytes),
    ("files directly in src", circles::src_files),
    ("circles inside a crate", circles::circles),
    ("crate arrows", arrows::workspace_arrows),
    ("pure crates: dependencies", arrows::pure_dependencies),
    ("owners of outside crates", arrows::outside_owners),
    ("pure crates: no I/O, clock or threads", purity::pure_crates),
    ("bounded channels", purity::bounded_channels),
    ("SQL only in the metastore", purity::sql),
    ("serde derives only in api and ids", purity::serde_derives),
    ("banned names", words::names),
    ("words of test names", names::test_names),
    ("names of public types", names::type_names),
    ("named parameters", parameters::named_parameters),
    ("unfinished work", words::unfinished),
    ("machine paths", words::machine_paths),
    ("registries in Cargo.lock", words::registries),
    ("headings of each crate", docs::headings),
    ("crates in ARCHITECTURE.md", docs::crate_list),
    ("links between documents", docs::links),
    ("paths of recipes", recipes::paths),
    ("migrations", migrations::paired),
    ("English of doc comments", english::doc_comments),
    ("words of documents", english::document_words),
    ("sentences of documents", english::sentences),
];

/// Checks the tree below `root` and prints every finding as `path:line: what, and what to do`.
pub fn run(root: &Path) -> Result<ExitCode> {
    let tree = Tree::read(root)?;
    let mut count = 0;
    for (name, check) in CHECKS {
        let mut findings = check(&tree);
        findings.sort();
        findings.dedup();
        count += findings.len();
        for finding in &findings {
            println!("{finding} [{name}]");
        }
    }
    if count == 0 {
        println!("tidy: {} files, {} checks, nothing found", tree.file_count(), CHECKS.len());
        return Ok(ExitCode::SUCCESS);
    }
    println!("tidy: {count} findings");
    Ok(ExitCode::FAILURE)
}

/// Runs a check on a tree made of `(path, text)` samples, and returns its findings as the printed lines.
#[cfg(test)]
fn findings(check: Check, samples: &[(&str, &str)]) -> Vec<String> {
    let mut findings = check(&Tree::from_samples(samples));
    findings.sort();
    findings.iter().map(Finding::to_string).collect()
}

/// Asserts that the samples break a rule exactly as often as `expected` has entries, each a start of a message.
#[cfg(test)]
#[track_caller]
fn check_finds(check: Check, samples: &[(&str, &str)], expected: &[&str]) {
    let found = findings(check, samples);
    let matches = found.len() == expected.len()
        && found.iter().zip(expected).all(|(found, expected)| found.starts_with(expected));
    assert!(matches, "expected {expected:#?}, found {found:#?}");
}
