//! Notices of the third-party crates that the program links: a list in the repository, and their texts for packages.
//!
//! `cargo tree` lists the crates that the package `cli` links, with the features that it requests: no crates of tests,
//! build scripts or macros. `cargo metadata` has the licence of each and its folder.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The list, relative to the root of the workspace.
const LIST: &str = "packaging/THIRD-PARTY.md";
const PACKAGE: &str = "cli";
/// Platforms of the packages; the same as in deny.toml.
const TARGETS: &[&str] = &["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];
/// Prefixes of the names of files with the text of a licence or a notice.
const TEXT_STARTS: &[&str] = &["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE", "COPYRIGHT"];
/// Folders that are searched below that of a crate: they have C libraries with their own texts.
const DEPTH_MAX: usize = 3;
/// C libraries with a choice of licences also carry this one, which is not the chosen one.
const NOT_TAKEN: &str = "GNU GENERAL PUBLIC LICENSE";
/// Larger files are not licences.
const TEXT_BYTES_MAX: u64 = 256 << 10;

/// A third-party crate that the program links.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Linked {
    name: String,
    version: String,
    licence: String,
    folder: PathBuf,
}

/// Writes the list; with `texts` also a file with the list and the text of every licence.
pub fn write(root: &Path, texts: Option<&Path>) -> Result<()> {
    let linked = linked(root)?;
    let list = list(&linked);
    let path = root.join(LIST);
    std::fs::write(&path, &list).with_context(|| format!("write {}", path.display()))?;
    println!("{LIST}: {} crates", linked.len());
    let Some(path) = texts else { return Ok(()) };
    let mut all = list;
    add_texts(&linked, &mut all)?;
    std::fs::write(path, &all).with_context(|| format!("write {}", path.display()))?;
    println!("{}: {:.1} MB", path.display(), all.len() as f64 / 1e6);
    Ok(())
}

/// Asks cargo for the crates that the program links, sorted by name. Nothing is downloaded.
fn linked(root: &Path) -> Result<Vec<Linked>> {
    let mut tree = vec!["tree", "--package", PACKAGE, "--edges", "normal,no-proc-macro", "--prefix", "none"];
    tree.extend(["--no-dedupe", "--format", "{p}"]);
    let mut metadata = vec!["metadata", "--format-version", "1"];
    for target in TARGETS {
        tree.extend(["--target", target]);
        metadata.extend(["--filter-platform", target]);
    }
    let names = names(&cargo(root, &tree)?);
    let metadata = cargo(root, &metadata)?;
    select(&names, &serde_json::from_str(&metadata).context("read the answer of cargo metadata")?)
}

fn cargo(root: &Path, arguments: &[&str]) -> Result<String> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(program)
        .args(arguments)
        .args(["--offline", "--locked"])
        .current_dir(root)
        .output()
        .with_context(|| format!("run cargo {}", arguments[0]))?;
    if !output.status.success() {
        bail!("cargo {} failed: {}", arguments[0], String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8(output.stdout).with_context(|| format!("read the answer of cargo {}", arguments[0]))
}

/// Returns name and version of each line `name vVERSION ...`.
fn names(tree: &str) -> BTreeSet<(String, String)> {
    let lines = tree.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_string(), words.next()?.strip_prefix('v')?.to_string()))
    });
    lines.collect()
}

/// Returns the third-party crates among the packages of `cargo metadata` that have one of the names.
fn select(names: &BTreeSet<(String, String)>, metadata: &Value) -> Result<Vec<Linked>> {
    let text = |package: &Value, field: &str| package[field].as_str().unwrap_or("").to_string();
    let mut linked = BTreeSet::new();
    for package in metadata["packages"].as_array().context("find the packages of cargo metadata")? {
        let (name, version) = (text(package, "name"), text(package, "version"));
        let is_of_others = package["source"].is_string();
        if !is_of_others || !names.contains(&(name.clone(), version.clone())) {
            continue;
        }
        // The older spelling of "or".
        let licence = text(package, "license").replace(" / ", " OR ").replace('/', " OR ");
        if licence.is_empty() {
            bail!(
                "the crate {name} {version} names no licence: read its sources and replace it if it has none"
            );
        }
        let manifest = PathBuf::from(text(package, "manifest_path"));
        let folder = manifest.parent().map(Path::to_path_buf).unwrap_or_default();
        linked.insert(Linked { name, version, licence, folder });
    }
    Ok(linked.into_iter().collect())
}

fn list(linked: &[Linked]) -> String {
    let mut list = String::from(
        "# Third-party crates\n\n\
         The program `sailfish` links these third-party crates, under these licences. `cargo xtask licences` writes this list;\n\
         packages also carry the texts, as `THIRD-PARTY-LICENCES.txt`.\n\n\
         | crate | version | licence |\n|---|---|---|\n",
    );
    for Linked { name, version, licence, .. } in linked {
        let _ = writeln!(list, "| [{name}](https://crates.io/crates/{name}) | {version} | {licence} |");
    }
    list
}

/// Appends every text once, below the names of the crates that carry it.
fn add_texts(linked: &[Linked], all: &mut String) -> Result<()> {
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for each in linked {
        let mut paths = Vec::new();
        find_texts(&each.folder, 0, &mut paths)?;
        for path in paths {
            let bytes = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
            let text = String::from_utf8_lossy(&bytes).trim().to_string();
            if text.contains(NOT_TAKEN) {
                continue;
            }
            let file = path.strip_prefix(&each.folder).unwrap_or(&path).display();
            texts.entry(text).or_default().push(format!("{} {} ({file})", each.name, each.version));
        }
    }
    let mut texts: Vec<(Vec<String>, String)> = texts.into_iter().map(|(text, of)| (of, text)).collect();
    texts.sort();
    for (crates, text) in texts {
        let _ = write!(all, "\n{}\n{}\n\n{text}\n", "-".repeat(80), crates.join("\n"));
    }
    Ok(())
}

fn find_texts(folder: &Path, depth: usize, paths: &mut Vec<PathBuf>) -> Result<()> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?;
    let mut entries = entries.collect::<Result<Vec<_>, _>>().context("list the folder of a crate")?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let metadata = entry.metadata().with_context(|| format!("look at {}", entry.path().display()))?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        let is_text = TEXT_STARTS.iter().any(|start| name.starts_with(start)) && !name.ends_with(".RS");
        if metadata.is_dir() && depth < DEPTH_MAX {
            find_texts(&entry.path(), depth + 1, paths)?;
        } else if metadata.is_file() && is_text && metadata.len() <= TEXT_BYTES_MAX {
            paths.push(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{LIST, Linked, add_texts, linked, list, names, select};
    use serde_json::json;
    use std::path::Path;

    #[test]
    fn list_of_licences_is_current() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let current = list(&linked(root).unwrap());
        let checked_in = std::fs::read_to_string(root.join(LIST)).unwrap();
        assert!(checked_in == current, "{LIST} is not current: run `cargo xtask licences` and commit it");
    }

    #[test]
    fn linked_crates_of_others_are_selected() {
        let names = names("cli v0.1.0 (/x/cli)\nours v0.1.0 (/x/ours)\nb v2.0.0\na v1.0.0 (*)\n");
        let package = |name: &str, version: &str, source: Option<&str>, licence: &str| {
            let manifest = format!("/registry/{name}/Cargo.toml");
            json!({"name": name, "version": version, "source": source, "license": licence, "manifest_path": manifest})
        };
        let registry = Some("registry+https://x");
        let mut packages = vec![
            package("ours", "0.1.0", None, "Apache-2.0"),
            package("b", "1.0.0", registry, "MIT"),
            package("b", "2.0.0", registry, "MIT/Apache-2.0"),
            package("a", "1.0.0", registry, "ISC"),
        ];
        let found = select(&names, &json!({"packages": &packages})).unwrap();
        let found: Vec<_> = found.iter().map(|each| (each.name.as_str(), each.licence.as_str())).collect();
        assert_eq!(found, [("a", "ISC"), ("b", "MIT OR Apache-2.0")]);
        packages[3]["license"] = json!(null);
        let error = select(&names, &json!({"packages": packages})).unwrap_err();
        assert_eq!(error.to_string().split(':').next(), Some("the crate a 1.0.0 names no licence"));
    }

    #[test]
    fn equal_texts_are_written_once() {
        let directory = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = directory.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("a/LICENSE", "the text\n");
        write("a/src/license.rs", "code");
        write("b/license-mit.txt", "the text");
        write("b/c/COPYING", super::NOT_TAKEN);
        write("b/c/NOTICE", "a notice");
        let linked = ["a", "b"].map(|name| Linked {
            name: name.to_string(),
            version: "1".to_string(),
            licence: "MIT".to_string(),
            folder: directory.path().join(name),
        });
        let mut all = String::new();
        add_texts(&linked, &mut all).unwrap();
        let line = "-".repeat(80);
        let expected = format!(
            "\n{line}\na 1 (LICENSE)\nb 1 (license-mit.txt)\n\nthe text\n\n{line}\nb 1 (c/NOTICE)\n\na notice\n"
        );
        assert_eq!(all, expected);
    }
}
