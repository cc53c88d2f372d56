//! Permitted dependencies between crates: they point down (ARCHITECTURE.md, laws 1 and 2).

use super::Finding;
use super::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};
use toml::{Table, Value};

/// The crates of the workspace from the ground up, each with the crates it may depend on. A new crate is a new row; a
/// row names earlier rows only, which a test checks, so that there are no cycles.
const ARROWS: &[(&str, &[&str])] = &[
    ("ids", &[]),
    ("faults", &[]),
    ("arena", &[]),
    ("diskfile", &["faults"]),
    ("stagefile", &["faults", "diskfile"]),
    ("concretefile", &["ids", "faults"]),
    ("tera", &[]),
    ("trust", &["faults"]),
    ("listener", &["trust"]),
    ("api", &["ids"]),
    ("shipped", &["ids", "api", "faults"]),
    ("ifile", &["ids", "api"]),
    ("chunksorter", &["ids", "api", "ifile"]),
    ("keys", &["ids", "api"]),
    ("workbuilder", &["ids", "api"]),
    ("imerger", &["ids", "api", "ifile"]),
    ("scheduler", &["ids"]),
    ("jobkind", &["ids", "api"]),
    ("workflow", &["ids", "api", "jobkind"]),
    ("jobkinds", &["jobkind", "workflow"]),
    ("streaming", &["ids", "api", "keys"]),
    ("iappender", &["ids", "api", "ifile", "arena", "faults"]),
    ("containment", &[]),
    ("program", &["ids", "api", "faults", "containment"]),
    ("objects", &["ids", "api", "faults"]),
    ("roots", &["ids", "api", "objects"]),
    ("program_protocol", &[]),
    ("output", &["ids", "api", "arena", "faults", "diskfile", "objects", "roots", "stagefile"]),
    ("functions", &["ids", "api", "program", "program_protocol", "tera", "output"]),
    ("reducer", &["ids", "api", "program", "functions", "output"]),
    ("mapper", &["ids", "api", "program", "functions", "output", "faults", "tera", "objects", "roots"]),
    (
        "chunkserver",
        &["ids", "api", "ifile", "arena", "diskfile", "chunksorter", "iappender", "imerger", "faults"],
    ),
    (
        "dataport",
        &[
            "ids",
            "api",
            "ifile",
            "arena",
            "iappender",
            "imerger",
            "chunkserver",
            "trust",
            "stagefile",
            "concretefile",
        ],
    ),
    ("mapreduce", &["ids", "api", "keys", "workbuilder"]),
    (
        "jobspec",
        &[
            "ids",
            "api",
            "faults",
            "functions",
            "keys",
            "mapper",
            "mapreduce",
            "objects",
            "program",
            "roots",
            "streaming",
        ],
    ),
    ("workflowfile", &["api", "jobkind", "jobspec", "workflow"]),
    ("rows", &["ids", "api"]),
    ("filetree", &["ids", "api", "rows"]),
    ("filetransfer", &["ids", "api", "rows", "keys", "ifile", "functions", "concretefile", "filetree"]),
    ("control", &["ids", "api", "rows", "filetree", "jobkind", "mapreduce", "scheduler"]),
    ("sim", SIM_BELOW),
    ("metastore", &["ids", "api", "rows", "faults"]),
    ("filestore", &["ids", "api", "rows", "faults", "concretefile", "filetree", "filetransfer", "metastore"]),
    ("filecatalog", &["ids", "api", "rows", "scheduler", "filetree", "metastore", "trust"]),
    (
        "server",
        &[
            "ids",
            "api",
            "shipped",
            "filetree",
            "jobkind",
            "jobkinds",
            "control",
            "metastore",
            "mapper",
            "mapreduce",
            "faults",
            "objects",
            "output",
            "roots",
            "trust",
        ],
    ),
    ("client", &["ids", "api", "shipped", "trust", "stagefile", "dataport"]),
    (
        "clusterfiles",
        &[
            "ids",
            "api",
            "rows",
            "trust",
            "concretefile",
            "filetree",
            "filetransfer",
            "filestore",
            "chunkserver",
            "dataport",
            "client",
        ],
    ),
    ("filemount", &["ids", "rows", "filetree", "filestore"]),
    (
        "controlport",
        &[
            "ids",
            "api",
            "shipped",
            "client",
            "filecatalog",
            "filetree",
            "listener",
            "metastore",
            "server",
            "trust",
        ],
    ),
    ("programport", &["ids", "api", "client", "dataport", "trust"]),
    ("node", NODE_BELOW),
    ("cli", CLI_BELOW),
];

const SIM_BELOW: &[&str] = &[
    "ids",
    "api",
    "ifile",
    "arena",
    "chunksorter",
    "iappender",
    "imerger",
    "chunkserver",
    "dataport",
    "mapreduce",
    "scheduler",
    "rows",
    "jobkind",
    "workflow",
    "control",
];

const NODE_BELOW: &[&str] = &[
    "concretefile",
    "programport",
    "ids",
    "diskfile",
    "api",
    "stagefile",
    "shipped",
    "faults",
    "stagefile",
    "arena",
    "program",
    "ifile",
    "keys",
    "iappender",
    "imerger",
    "chunkserver",
    "dataport",
    "functions",
    "output",
    "mapper",
    "reducer",
    "client",
    "objects",
    "roots",
    "trust",
];

const CLI_BELOW: &[&str] = &[
    "ids",
    "rows",
    "concretefile",
    "clusterfiles",
    "filemount",
    "filestore",
    "filetransfer",
    "filetree",
    "api",
    "shipped",
    "faults",
    "arena",
    "program",
    "programport",
    "ifile",
    "iappender",
    "imerger",
    "chunksorter",
    "workbuilder",
    "chunkserver",
    "dataport",
    "functions",
    "jobspec",
    "mapper",
    "mapreduce",
    "scheduler",
    "metastore",
    "server",
    "client",
    "listener",
    "controlport",
    "node",
    "tera",
    "streaming",
    "trust",
    "objects",
    "output",
    "roots",
    "workflowfile",
];

/// Law 1: no I/O, no clock, no randomness.
pub const PURE_CRATES: &[&str] = &[
    "ids",
    "ifile",
    "keys",
    "iappender",
    "chunksorter",
    "workbuilder",
    "imerger",
    "scheduler",
    "control",
    "filetree",
];

/// Crates that a pure crate must not reach, at any distance.
const IMPURE: &[&str] = &["tokio", "sqlx", "axum", "datafusion"];
/// Randomness, which a pure crate must not depend on directly; further down the lock file also has the dependencies of
/// build scripts, so a path there proves nothing.
const RANDOM: &[&str] = &["rand", "fastrand", "getrandom", "uuid"];

/// Outside crates with one home. Other crates use the service of that home.
const OUTSIDE_OWNERS: &[(&str, &[&str])] =
    &[("sqlx", &["metastore"]), ("datafusion", &["sql"]), ("object_store", &["objects"])];

/// Returns the dependency tables of a manifest: (name of the table, names of the crates in it).
fn dependency_tables(manifest: &Table) -> Vec<(String, Vec<String>)> {
    let mut tables = Vec::new();
    let mut add = |prefix: &str, holder: &Table| {
        for kind in ["dependencies", "build-dependencies", "dev-dependencies"] {
            if let Some(Value::Table(table)) = holder.get(kind) {
                let names = table.iter().map(|(name, value)| package_name(name, value)).collect();
                tables.push((format!("{prefix}{kind}"), names));
            }
        }
    };
    add("", manifest);
    if let Some(Value::Table(targets)) = manifest.get("target") {
        for (target, holder) in targets {
            if let Value::Table(holder) = holder {
                add(&format!("target.{target}."), holder);
            }
        }
    }
    tables
}

/// Returns the package of a dependency, which may be renamed.
fn package_name(name: &str, value: &Value) -> String {
    value.get("package").and_then(Value::as_str).unwrap_or(name).to_string()
}

/// Returns the manifests of the crates: (crate, path of the manifest, its text, its tables).
fn manifests(tree: &Tree) -> Vec<(String, String, String, Table)> {
    let mut manifests = Vec::new();
    for name in tree.crate_names() {
        let path = format!("crates/{name}/Cargo.toml");
        // Cargo itself refuses a manifest that does not parse.
        if let Some(text) = tree.text(&path)
            && let Ok(table) = text.parse::<Table>()
        {
            manifests.push((name.to_string(), path, text.to_string(), table));
        }
    }
    manifests
}

/// Returns the line of a dependency in a manifest, or 0.
fn line_of(text: &str, dependency: &str) -> usize {
    let stands = |line: &str| {
        let rest = line.trim_start().strip_prefix(dependency);
        rest.is_some_and(|rest| rest.starts_with(['.', ' ', '=']))
    };
    text.lines().position(stands).map_or(0, |index| index + 1)
}

/// Returns all crates of the workspace that `name` may reach by the table.
fn reachable(name: &str) -> BTreeSet<&'static str> {
    let mut reached = BTreeSet::new();
    let mut pending = vec![name];
    while let Some(next) = pending.pop() {
        let row = ARROWS.iter().find(|(each, _)| *each == next);
        for below in row.map_or(&[][..], |(_, below)| *below) {
            if reached.insert(*below) {
                pending.push(below);
            }
        }
    }
    reached
}

/// Checks that every crate is in [`ARROWS`] and depends only on crates of its row. Tests may reach further, but not up.
pub fn workspace_arrows(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let ours: BTreeSet<&str> = tree.crate_names().into_iter().collect();
    for (name, path, text, manifest) in manifests(tree) {
        let Some((_, allowed)) = ARROWS.iter().find(|(each, _)| *each == name) else {
            let message =
                format!("crate {name} has no row in the arrows table: add it to xtask/src/tidy/arrows.rs");
            findings.push(Finding::new(&path, 0, message));
            continue;
        };
        for (kind, dependencies) in dependency_tables(&manifest) {
            for dependency in dependencies.iter().filter(|each| ours.contains(each.as_str())) {
                let for_tests = kind.ends_with("dev-dependencies");
                let points_up = dependency == &name || reachable(dependency).contains(name.as_str());
                if for_tests && !points_up || allowed.contains(&dependency.as_str()) {
                    continue;
                }
                let message = format!(
                    "{name} must not depend on {dependency}: define a trait here and let a crate above join the \
                     two, or change the table in xtask/src/tidy/arrows.rs and explain it in ARCHITECTURE.md"
                );
                findings.push(Finding::new(&path, line_of(&text, dependency), message));
            }
        }
    }
    findings
}

/// Checks law 1: follows Cargo.lock from each pure crate and reports the path to any crate with I/O.
pub fn pure_dependencies(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let locked = locked_dependencies(tree.text("Cargo.lock").unwrap_or(""));
    for (name, path, text, manifest) in manifests(tree) {
        if !PURE_CRATES.contains(&name.as_str()) {
            continue;
        }
        for (kind, dependencies) in dependency_tables(&manifest) {
            if kind.ends_with("dev-dependencies") {
                continue;
            }
            for dependency in dependencies {
                if let Some(way) = way_to_impure(&dependency, &locked) {
                    let message = format!(
                        "pure crate {name} reaches {} ({}): pass the effect in as a parameter or a trait",
                        way.last().unwrap_or(&dependency),
                        way.join(" -> ")
                    );
                    findings.push(Finding::new(&path, line_of(&text, &dependency), message));
                }
            }
        }
    }
    findings
}

/// Checks that outside crates with one home are used there only.
pub fn outside_owners(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, path, text, manifest) in manifests(tree) {
        for (_, dependencies) in dependency_tables(&manifest) {
            for (outside, owners) in OUTSIDE_OWNERS {
                if dependencies.iter().any(|each| each == outside) && !owners.contains(&name.as_str()) {
                    let message =
                        format!("only {} depends on {outside}: ask that crate instead", owners.join(", "));
                    findings.push(Finding::new(&path, line_of(&text, outside), message));
                }
            }
        }
    }
    findings
}

/// Maps packages to packages, by name. Several versions of a package count as one: too strict rather than blind. The
/// entries of our own crates include dev-dependencies and are skipped; their manifests are read instead.
fn locked_dependencies(lock: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut locked: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let Ok(lock) = lock.parse::<Table>() else { return locked };
    let packages = lock.get("package").and_then(Value::as_array);
    for package in packages.into_iter().flatten().filter(|package| package.get("source").is_some()) {
        let Some(name) = package.get("name").and_then(Value::as_str) else { continue };
        let dependencies = package.get("dependencies").and_then(Value::as_array);
        let names = dependencies.into_iter().flatten().filter_map(Value::as_str);
        let names = names.filter_map(|each| each.split(' ').next()).map(str::to_string);
        locked.entry(name.to_string()).or_default().extend(names);
    }
    locked
}

/// Returns the shortest path from a package to an impure one, both ends included.
fn way_to_impure(start: &str, locked: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    if RANDOM.contains(&start) {
        return Some(vec![start.to_string()]);
    }
    let mut seen = BTreeSet::from([start.to_string()]);
    let mut ways = std::collections::VecDeque::from([vec![start.to_string()]]);
    while let Some(way) = ways.pop_front() {
        let last = way.last()?;
        if IMPURE.contains(&last.as_str()) {
            return Some(way);
        }
        for next in locked.get(last).into_iter().flatten() {
            if seen.insert(next.clone()) {
                let mut longer = way.clone();
                longer.push(next.clone());
                ways.push_back(longer);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::check_finds;
    use super::{
        ARROWS, IMPURE, PURE_CRATES, outside_owners, pure_dependencies, reachable, workspace_arrows,
    };

    #[test]
    fn the_table_points_down() {
        for (index, (name, below)) in ARROWS.iter().enumerate() {
            for each in *below {
                let earlier = ARROWS[..index].iter().any(|(earlier, _)| earlier == each);
                assert!(earlier, "{name} names {each}, which is not in an earlier row");
            }
        }
    }

    #[test]
    fn pure_crates_stand_in_the_table() {
        for name in PURE_CRATES {
            assert!(ARROWS.iter().any(|(each, _)| each == name), "{name}");
            assert!(!IMPURE.contains(name) && !reachable(name).contains("metastore"));
        }
    }

    const IDS: (&str, &str) = ("crates/ids/Cargo.toml", "[dependencies]\nserde.workspace = true\n");

    #[test]
    fn arrow_outside_the_table_is_found() {
        let up = ("crates/ifile/Cargo.toml", "[dependencies]\nids.workspace = true\nnode.workspace = true\n");
        let node = ("crates/node/Cargo.toml", "[dependencies]\nifile = { path = \"../ifile\" }\n");
        check_finds(
            workspace_arrows,
            &[IDS, up, node],
            &["crates/ifile/Cargo.toml:3: ifile must not depend on node"],
        );
        let renamed =
            ("crates/ifile/Cargo.toml", "[dependencies]\nn = { package = \"node\", path = \"../node\" }\n");
        check_finds(workspace_arrows, &[IDS, renamed, node], &["crates/ifile/Cargo.toml: ifile must not"]);
        let hidden =
            ("crates/ifile/Cargo.toml", "[target.'cfg(unix)'.dependencies]\nnode.workspace = true\n");
        check_finds(workspace_arrows, &[IDS, hidden, node], &["crates/ifile/Cargo.toml:2: ifile must not"]);
    }

    #[test]
    fn tests_may_reach_further_but_not_up() {
        let ifile = ("crates/ifile/Cargo.toml", "");
        let sideways = ("crates/imerger/Cargo.toml", "[dev-dependencies]\nchunksorter.workspace = true\n");
        let sorter = ("crates/chunksorter/Cargo.toml", "[dependencies]\nifile.workspace = true\n");
        check_finds(workspace_arrows, &[IDS, ifile, sideways, sorter], &[]);
        let up = ("crates/ids/Cargo.toml", "[dev-dependencies]\nifile.workspace = true\n");
        check_finds(
            workspace_arrows,
            &[up, ifile],
            &["crates/ids/Cargo.toml:2: ids must not depend on ifile"],
        );
    }

    #[test]
    fn a_crate_without_a_row_is_found() {
        check_finds(
            workspace_arrows,
            &[("crates/new/Cargo.toml", "")],
            &["crates/new/Cargo.toml: crate new has no row"],
        );
    }

    const LOCK: (&str, &str) = (
        "Cargo.lock",
        "[[package]]\nname = \"nice\"\nversion = \"1.0.0\"\nsource = \"registry+x\"\ndependencies = [\"deep 2.0.0\"]\n\
         [[package]]\nname = \"deep\"\nversion = \"2.0.0\"\nsource = \"registry+x\"\ndependencies = [\"tokio\"]\n\
         [[package]]\nname = \"tokio\"\nversion = \"1.0.0\"\nsource = \"registry+x\"\n",
    );

    #[test]
    fn pure_crate_that_reaches_a_runtime_is_found() {
        let direct = ("crates/imerger/Cargo.toml", "[dependencies]\ntokio.workspace = true\n");
        check_finds(
            pure_dependencies,
            &[LOCK, direct],
            &["crates/imerger/Cargo.toml:2: pure crate imerger reaches tokio"],
        );
        let distant = ("crates/ids/Cargo.toml", "[dependencies]\nnice = \"1\"\n");
        let expected = "crates/ids/Cargo.toml:2: pure crate ids reaches tokio (nice -> deep -> tokio)";
        check_finds(pure_dependencies, &[LOCK, distant], &[expected]);
        let random = ("crates/ids/Cargo.toml", "[dependencies]\nrand = \"1\"\n");
        check_finds(
            pure_dependencies,
            &[random],
            &["crates/ids/Cargo.toml:2: pure crate ids reaches rand (rand)"],
        );
        let for_tests = ("crates/ids/Cargo.toml", "[dev-dependencies]\nnice = \"1\"\n");
        let impure = ("crates/server/Cargo.toml", "[dependencies]\ntokio = \"1\"\n");
        check_finds(pure_dependencies, &[LOCK, for_tests, impure], &[]);
    }

    #[test]
    fn sqlx_outside_the_metastore_is_found() {
        let metastore = ("crates/metastore/Cargo.toml", "[dependencies]\nsqlx.workspace = true\n");
        let server = ("crates/server/Cargo.toml", "[dependencies]\nsqlx.workspace = true\n");
        check_finds(outside_owners, &[metastore], &[]);
        check_finds(
            outside_owners,
            &[metastore, server],
            &["crates/server/Cargo.toml:2: only metastore depends on sqlx"],
        );
    }
}
