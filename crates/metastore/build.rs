//! Lists the migrations of both databases for `open.rs`, with their texts and checksums: each file in the directory is one.

use sha2::{Digest, Sha384};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=migrations");
    let package = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo names the package"));
    let mut source = String::new();
    for database in ["sqlite", "postgres"] {
        let list = listed(&package.join("migrations").join(database))?;
        let name = database.to_uppercase();
        writeln!(source, "const {name}_MIGRATIONS: &[Embedded] = &[\n{list}];").expect("a text takes all");
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names a directory"));
    fs::write(out.join("migrations.rs"), source)
}

/// `(version, description, text, checksum)` of each file `VERSION_DESCRIPTION.sql`, in order of version.
fn listed(directory: &Path) -> io::Result<String> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory)? {
        paths.push(entry?.path());
    }
    paths.sort();
    let mut list = String::new();
    for path in paths {
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let parts = stem.split_once('_').and_then(|(version, rest)| Some((version.parse().ok()?, rest)));
        let (version, description): (i64, &str) =
            parts.unwrap_or_else(|| panic!("{} is not named VERSION_DESCRIPTION.sql", path.display()));
        let description = description.replace('_', " ");
        // The text and not the path: clones that share a target directory share the output of this program as well.
        let text = fs::read_to_string(&path)?;
        // The checksum by which the driver knows a migration: computed here, for each start of the program would do it again.
        let checksum: &[u8] = &Sha384::digest(&text);
        writeln!(list, "    ({version}, {description:?}, {text:?}, &{checksum:?}),")
            .expect("a text takes all");
    }
    Ok(list)
}
