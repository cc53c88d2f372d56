//! Agreement of the documents and the tree: headings, the list of crates, links.

use super::Finding;
use super::tree::{Tree, TreeFile};
use std::collections::BTreeSet;

/// The five headings at the start of a crate, in this order.
const HEADINGS: &[&str] =
    &["# What it does", "# Where it sits", "# Invariants", "# Deliberately absent", "# How it is tested"];
const ARCHITECTURE: &str = "ARCHITECTURE.md";
/// Directories of files that documents mention by their path from the root, and the extensions of such files.
const MENTIONED_DIRECTORIES: &[&str] = &["docs/", "crates/", "xtask/", "bench/"];
const MENTIONED_ENDS: &[&str] = &[".md", ".rs", ".sh"];
/// Start of a row of the crate list; the name and a backtick follow.
const CRATE_ROW_START: &str = "| `crates/";

/// Checks that each crate's root file opens with the five headings.
pub fn headings(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in tree.crate_names() {
        let paths = [format!("crates/{name}/src/lib.rs"), format!("crates/{name}/src/main.rs")];
        let root = paths.iter().find_map(|path| tree.text(path).map(|text| (path, text)));
        let Some((path, text)) = root else {
            let message = "the crate has neither src/lib.rs nor src/main.rs: add one";
            findings.push(Finding::new(&format!("crates/{name}"), 0, message));
            continue;
        };
        let lines = text.lines().filter_map(|line| line.strip_prefix("//! "));
        let found: Vec<&str> = lines.filter(|line| line.starts_with("# ")).collect();
        if found.get(..HEADINGS.len()) != Some(HEADINGS) {
            let message = format!("must open with the headings {}, in this order", HEADINGS.join(", "));
            findings.push(Finding::new(path, 1, message));
        }
    }
    findings
}

/// Checks that every crate has a row in ARCHITECTURE.md and every row a crate (law 5).
pub fn crate_list(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut listed = BTreeSet::new();
    let crates: BTreeSet<&str> = tree.crate_names().into_iter().collect();
    for (index, line) in tree.text(ARCHITECTURE).unwrap_or("").lines().enumerate() {
        let Some((name, _)) = line.strip_prefix(CRATE_ROW_START).and_then(|rest| rest.split_once('`')) else {
            continue;
        };
        if !listed.insert(name) {
            findings.push(Finding::new(
                ARCHITECTURE,
                index + 1,
                format!("lists crate {name} twice: remove one row"),
            ));
        }
        if !crates.contains(name) {
            findings.push(Finding::new(
                ARCHITECTURE,
                index + 1,
                format!("lists crate {name}, which does not exist"),
            ));
        }
    }
    for name in crates.difference(&listed) {
        let message = format!("does not list crate {name}: add a row \"{CRATE_ROW_START}{name}` | ...\"");
        findings.push(Finding::new(ARCHITECTURE, 0, message));
    }
    findings
}

/// Checks that relative links of documents, and bare mentions such as `docs/...md`, lead to files of the tree.
pub fn links(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files().filter(|file| file.extension() == "md") {
        for (index, line) in file.text.as_deref().unwrap_or("").lines().enumerate() {
            let targets = link_targets(line).into_iter().map(|target| resolve(file, target));
            let mentions = doc_mentions(line).into_iter().map(str::to_string);
            for target in targets.chain(mentions) {
                if !tree.exists(&target) {
                    let message =
                        format!("leads to {target}, which does not exist: fix the link or add the file");
                    findings.push(Finding::new(&file.path, index + 1, message));
                }
            }
        }
    }
    findings
}

/// Returns the relative targets of `[text](target)` on a line, without their anchors.
fn link_targets(line: &str) -> Vec<&str> {
    let mut targets = Vec::new();
    for (start, _) in line.match_indices("](") {
        let rest = &line[start + 2..];
        let Some((target, _)) = rest.split_once(')') else { continue };
        let path = target.split('#').next().unwrap_or("");
        let is_relative = !path.is_empty() && !path.contains(':') && !path.starts_with('/');
        if is_relative {
            targets.push(path);
        }
    }
    targets
}

/// Returns mentions such as `docs/glossary.md` or `crates/api/src/job.rs` outside of links; they are relative to the
/// root.
fn doc_mentions(line: &str) -> Vec<&str> {
    let is_path = |letter: char| letter.is_ascii_alphanumeric() || "_-./*".contains(letter);
    let words = line.split(|letter: char| !is_path(letter)).map(|word| word.trim_end_matches('.'));
    words.filter(|word| is_mention(word)).collect()
}

fn is_mention(word: &str) -> bool {
    let ours = MENTIONED_DIRECTORIES.iter().any(|directory| word.starts_with(directory));
    ours && !word.contains('*') && MENTIONED_ENDS.iter().any(|end| word.ends_with(end))
}

/// Returns a link's path from the root: relative to the directory of its file.
fn resolve(file: &TreeFile, target: &str) -> String {
    let mut segments: Vec<&str> = file.path.split('/').collect();
    segments.pop();
    for segment in target.split('/') {
        match segment {
            "." | "" => {}
            ".." => {
                segments.pop();
            }
            segment => segments.push(segment),
        }
    }
    segments.join("/")
}

#[cfg(test)]
mod tests {
    use super::super::check_finds;
    use super::{crate_list, headings, links};

    const GOOD: &str = "//! # What it does\n//! A.\n//! # Where it sits\n//! # Invariants\n\
                        //! # Deliberately absent\n//! # How it is tested\n";

    #[test]
    fn missing_headings_are_found() {
        let manifest = ("crates/a/Cargo.toml", "");
        check_finds(headings, &[manifest, ("crates/a/src/lib.rs", GOOD)], &[]);
        check_finds(headings, &[manifest, ("crates/a/src/main.rs", GOOD)], &[]);
        let swapped = GOOD.replace("Invariants", "Limits");
        check_finds(
            headings,
            &[manifest, ("crates/a/src/lib.rs", &swapped)],
            &["crates/a/src/lib.rs:1: must open"],
        );
        check_finds(headings, &[manifest], &["crates/a: the crate has neither"]);
    }

    #[test]
    fn crates_and_their_list_must_agree() {
        let tree = [("crates/a/Cargo.toml", ""), ("crates/b/Cargo.toml", ""), ("ARCHITECTURE.md", "")];
        let list = |text| [tree[0], tree[1], ("ARCHITECTURE.md", text)];
        check_finds(crate_list, &list("| `crates/a` | x |\n| `crates/b` | y |\n"), &[]);
        check_finds(crate_list, &list("| `crates/a` | x |\n"), &["ARCHITECTURE.md: does not list crate b"]);
        let gone = "| `crates/a` | x |\n| `crates/b` | y |\n| `crates/c` | z |\n";
        check_finds(crate_list, &list(gone), &["ARCHITECTURE.md:3: lists crate c, which does not exist"]);
        let twice = "| `crates/a` | x |\n| `crates/b` | y |\n| `crates/a` | x |\n";
        check_finds(crate_list, &list(twice), &["ARCHITECTURE.md:3: lists crate a twice"]);
    }

    #[test]
    fn links_to_nowhere_are_found() {
        let there = ("docs/formats/ifile.md", "see [why](../why.md#top) and [web](https://example.org/x)");
        let why = ("docs/why.md", "the [format](formats/ifile.md) and docs/formats/ifile.md.");
        check_finds(links, &[there, why], &[]);
        let broken = (
            "README.md",
            "see [it](docs/gone.md)\nand `docs/away.md`\n[crates](crates/)\n| `crates/a/src/b.rs` |",
        );
        let expected = [
            "README.md:1: leads to docs/gone.md",
            "README.md:1: leads to docs/gone.md",
            "README.md:2: leads to docs/away.md",
            "README.md:3: leads to crates",
            "README.md:4: leads to crates/a/src/b.rs",
        ];
        check_finds(links, &[broken], &expected);
    }
}
