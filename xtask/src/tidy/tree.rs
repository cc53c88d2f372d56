//! The files to check, in memory.

use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// A file of the project. `path` is relative to the root, with `/`.
pub struct TreeFile {
    pub path: String,
    pub size_bytes: u64,
    /// None if the file is not UTF-8.
    pub text: Option<String>,
    /// The syntax of a Rust file, or the reason why there is none.
    pub syntax: Option<Result<syn::File, syn::Error>>,
}

impl TreeFile {
    /// Returns the crate of a file below `crates/`.
    pub fn crate_name(&self) -> Option<&str> {
        let (name, _) = self.path.strip_prefix("crates/")?.split_once('/')?;
        Some(name)
    }

    /// Returns whether the file has only tests: a sibling `tests.rs`, or any file below a `tests` directory.
    pub fn is_test(&self) -> bool {
        let mut segments = self.path.split('/').rev();
        segments.next() == Some("tests.rs")
            || segments.any(|segment| segment == "tests" || segment == "benches")
    }

    /// Returns the extension without its dot, or nothing.
    pub fn extension(&self) -> &str {
        let name = self.path.rsplit('/').next().unwrap_or("");
        name.rsplit_once('.').map_or("", |(_, extension)| extension)
    }
}

/// The project's files: tracked ones and new ones that git does not ignore.
pub struct Tree {
    files: BTreeMap<String, TreeFile>,
}

impl Tree {
    /// Reads the files that `git ls-files` lists below `root`.
    pub fn read(root: &Path) -> Result<Self> {
        let output = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .context("run git ls-files")?;
        if !output.status.success() {
            bail!("git ls-files failed: {}", String::from_utf8_lossy(&output.stderr));
        }
        let listing = String::from_utf8(output.stdout).context("read the file names of git ls-files")?;
        let mut files = BTreeMap::new();
        for path in listing.split('\0').filter(|path| !path.is_empty()) {
            // A file that is deleted but not yet committed, or a dangling link, cannot be checked.
            let Ok(bytes) = std::fs::read(root.join(path)) else { continue };
            files.insert(path.to_string(), read_file(path, bytes));
        }
        Ok(Self { files })
    }

    /// Makes a tree of made-up files.
    #[cfg(test)]
    pub fn from_samples(samples: &[(&str, &str)]) -> Self {
        let files = samples.iter();
        Self {
            files: files
                .map(|(path, text)| (path.to_string(), read_file(path, text.as_bytes().to_vec())))
                .collect(),
        }
    }

    pub fn file_count(&self) -> usize {
        self.files.len()
    }

    /// Returns all files in order of path.
    pub fn files(&self) -> impl Iterator<Item = &TreeFile> {
        self.files.values()
    }

    /// Returns the text of one file.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.text.as_deref()
    }

    /// Returns whether a file of that path, or anything below a directory of that path, exists.
    pub fn exists(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let below = format!("{path}/");
        self.files.contains_key(path)
            || self.files.range(below.clone()..).next().is_some_and(|(each, _)| each.starts_with(&below))
    }

    /// Returns Rust files with their syntax; another check reports those that do not parse.
    pub fn rust_files(&self) -> impl Iterator<Item = (&TreeFile, &syn::File)> {
        self.files().filter_map(|file| match &file.syntax {
            Some(Ok(syntax)) => Some((file, syntax)),
            _ => None,
        })
    }

    /// Returns the names of the directories below `crates/` with a manifest, sorted.
    pub fn crate_names(&self) -> Vec<&str> {
        let manifests = self.files().filter(|file| file.path.ends_with("/Cargo.toml"));
        manifests.filter_map(TreeFile::crate_name).collect()
    }
}

fn read_file(path: &str, bytes: Vec<u8>) -> TreeFile {
    let size_bytes = bytes.len() as u64;
    let text = String::from_utf8(bytes).ok();
    let syntax = match &text {
        Some(text) if path.ends_with(".rs") => Some(syn::parse_file(text)),
        _ => None,
    };
    TreeFile { path: path.to_string(), size_bytes, text, syntax }
}

#[cfg(test)]
mod tests {
    use super::Tree;

    #[test]
    fn files_know_their_crate_and_kind() {
        let tree = Tree::from_samples(&[
            ("crates/ifile/Cargo.toml", ""),
            ("crates/ifile/src/frame.rs", ""),
            ("crates/ifile/src/frame/tests.rs", ""),
            ("crates/ifile/tests/flips.rs", ""),
            ("xtask/src/main.rs", ""),
        ]);
        let kinds: Vec<_> = tree.files().map(|file| (file.crate_name(), file.is_test())).collect();
        let ifile = Some("ifile");
        assert_eq!(kinds, [(ifile, false), (ifile, false), (ifile, true), (ifile, true), (None, false)]);
        assert_eq!(tree.crate_names(), ["ifile"]);
        assert!(tree.exists("crates/ifile") && tree.exists("crates/ifile/src/") && !tree.exists("crates/i"));
    }
}
