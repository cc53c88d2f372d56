//! Real text: the sources of our own dependencies, which any machine that built us has.

use crate::package_path;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Deepest directory that is walked: package trees are shallow, and a loop of links must end.
const DEPTH_MAX: usize = 32;

/// About `bytes` of text, the same at each call on one machine: whole source files in order of name, repeated
/// where there are fewer.
pub fn corpus(bytes: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes + (1 << 20));
    while text.len() < bytes {
        for file in files() {
            text.extend(fs::read(file).expect("the source of a dependency can be read"));
            if text.len() >= bytes {
                break;
            }
        }
    }
    text
}

fn files() -> &'static [PathBuf] {
    static FILES: OnceLock<Vec<PathBuf>> = OnceLock::new();
    FILES.get_or_init(|| {
        let mut files = Vec::new();
        for directory in dependency_directories() {
            collect(&directory, 0, &mut files);
        }
        assert!(!files.is_empty(), "the dependencies have no sources");
        files
    })
}

/// The directories of the packages from outside the workspace, sorted, as `cargo metadata` knows them: so any
/// CARGO_HOME, vendoring or mirror is followed.
fn dependency_directories() -> Vec<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(package_path(""))
        .output()
        .expect("cargo runs where a test runs");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    let packages = metadata["packages"].as_array().expect("cargo metadata lists packages");
    let outside = packages.iter().filter(|package| package["source"].is_string());
    let manifests = outside.filter_map(|package| package["manifest_path"].as_str());
    let mut found: Vec<PathBuf> =
        manifests.filter_map(|manifest| Path::new(manifest).parent().map(Path::to_path_buf)).collect();
    found.sort();
    found
}

fn collect(directory: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    assert!(depth < DEPTH_MAX, "{} lies too deep", directory.display());
    let Ok(entries) = fs::read_dir(directory) else { return };
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.expect("a package can be listed").path()).collect();
    paths.sort();
    for path in paths {
        let Ok(metadata) = path.symlink_metadata() else { continue };
        if metadata.is_dir() {
            collect(&path, depth + 1, files);
        } else if metadata.is_file() && path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}
