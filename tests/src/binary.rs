//! Finding the binary under test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Names a binary to test in place of the one built from this tree.
const BINARY_VARIABLE: &str = "SAILFISH_BINARY";

/// The path of `sailfish`, built from this tree in the profile of the running test. `cargo test` builds no
/// binaries of other packages, and an old one beside us would be tested in silence: so cargo is asked to bring
/// it up to date once per test executable, which is quick after `make` has built it.
pub fn sailfish_binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| match std::env::var_os(BINARY_VARIABLE) {
        Some(path) => PathBuf::from(path),
        None => build(),
    })
}

/// A path below the package of these tests, in the clone in which they run. That may be another one than that in which they
/// were compiled: clones that share a target directory share what is built of equal sources.
pub fn package_path(path: &str) -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    package.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR"))).join(path)
}

fn build() -> PathBuf {
    let executable = std::env::current_exe().expect("a test knows its own path");
    // TARGET/PROFILE/deps/TEST
    let profile_dir = executable.ancestors().nth(2).expect("a test lies in TARGET/PROFILE/deps");
    let target_dir = profile_dir.parent().expect("a profile lies in a target directory");
    let profile = match profile_dir.file_name().and_then(|name| name.to_str()) {
        Some("debug") => "dev",
        Some(name) => name,
        None => panic!("{} names no profile", profile_dir.display()),
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // What cargo tells a test of its package is no news for another cargo, but build scripts look at it: much would be built anew.
    let own = |name: &String| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    let told = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).filter(own);
    let mut command = Command::new(cargo);
    told.for_each(|name| {
        command.env_remove(name);
    });
    // The same packages as in the Makefile: another set could have other features and build everything anew.
    let output = command
        .args(["build", "--quiet", "--locked", "--bins", "--profile", profile, "--target-dir"])
        .arg(target_dir)
        .current_dir(package_path(".."))
        .output()
        .expect("cargo runs where a test runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cannot build sailfish (or name one in {BINARY_VARIABLE}): {errors}");
    profile_dir.join("sailfish")
}
