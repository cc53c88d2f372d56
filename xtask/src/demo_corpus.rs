//! The demo's text: the Rust sources of our own dependencies, which any machine that built us has.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Marks a directory as ours to replace. Its name begins with `_`, so it is never taken for data.
const MARKER: &str = "_demo-corpus";
/// Deepest directory that is walked: package trees are shallow, and a loop of links must end.
const DEPTH_MAX: usize = 32;

/// Copies every `.rs` file of every dependency to `DIR/PACKAGE-VERSION/...` and prints the number and size.
/// Refuses a directory that exists and was not made by this command.
pub fn copy(workspace: &Path, target: &Path) -> Result<()> {
    if target.exists() {
        if !target.join(MARKER).exists() {
            bail!("{} exists and was not made by demo-corpus: remove it or name another", target.display());
        }
        fs::remove_dir_all(target).with_context(|| format!("remove {}", target.display()))?;
    }
    fs::create_dir_all(target).with_context(|| format!("create {}", target.display()))?;
    fs::write(target.join(MARKER), "made by cargo xtask demo-corpus\n")
        .with_context(|| format!("write the marker in {}", target.display()))?;
    let mut files = 0_u64;
    let mut bytes = 0_u64;
    for package in dependency_directories(&metadata(workspace)?)? {
        let Some(name) = package.file_name() else { continue };
        let mut sources = Vec::new();
        collect_sources(&package, 0, &mut sources)?;
        for source in sources {
            let relative = source.strip_prefix(&package).context("find a source below its package")?;
            let copy = target.join(name).join(relative);
            if let Some(parent) = copy.parent() {
                fs::create_dir_all(parent).with_context(|| format!("create {}", parent.display()))?;
            }
            bytes += fs::copy(&source, &copy).with_context(|| format!("copy {}", source.display()))?;
            files += 1;
        }
    }
    println!("{files} files, {:.1} MB: the sources of our dependencies", bytes as f64 / 1e6);
    Ok(())
}

/// What `cargo metadata` says, so that any CARGO_HOME, vendoring or registry mirror is followed.
fn metadata(workspace: &Path) -> Result<serde_json::Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked", "--manifest-path"])
        .arg(workspace.join("Cargo.toml"))
        .output()
        .context("run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).context("read what cargo metadata wrote")
}

/// The directories of the packages that come from outside the workspace, sorted.
fn dependency_directories(metadata: &serde_json::Value) -> Result<Vec<PathBuf>> {
    let packages = metadata["packages"].as_array().context("find packages in cargo metadata")?;
    let mut directories: Vec<PathBuf> = packages
        .iter()
        .filter(|package| package["source"].is_string())
        .filter_map(|package| package["manifest_path"].as_str())
        .filter_map(|manifest| Path::new(manifest).parent().map(Path::to_path_buf))
        .collect();
    directories.sort();
    Ok(directories)
}

/// Regular `.rs` files below `directory`, in order of name; links are left alone.
pub fn collect_sources(directory: &Path, depth: usize, sources: &mut Vec<PathBuf>) -> Result<()> {
    if depth == DEPTH_MAX {
        bail!("{} lies more than {DEPTH_MAX} directories deep", directory.display());
    }
    let entries = fs::read_dir(directory).with_context(|| format!("list {}", directory.display()))?;
    let mut entries = entries.collect::<Result<Vec<_>, _>>().context("list a package")?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let kind = entry.file_type().context("read the type of a file")?;
        let path = entry.path();
        if kind.is_dir() {
            collect_sources(&path, depth + 1, sources)?;
        } else if kind.is_file() && path.extension().is_some_and(|extension| extension == "rs") {
            sources.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::dependency_directories;
    use std::path::PathBuf;

    #[test]
    fn only_packages_from_outside_count() {
        let metadata = serde_json::json!({"packages": [
            {"source": "registry+x", "manifest_path": "/cargo/src/b-1.0.0/Cargo.toml"},
            {"source": null, "manifest_path": "/ours/crates/api/Cargo.toml"},
            {"source": "registry+x", "manifest_path": "/cargo/src/a-2.0.0/Cargo.toml"},
        ]});
        let expected = [PathBuf::from("/cargo/src/a-2.0.0"), PathBuf::from("/cargo/src/b-1.0.0")];
        assert_eq!(dependency_directories(&metadata).unwrap(), expected);
        assert!(dependency_directories(&serde_json::json!({})).is_err());
    }
}
