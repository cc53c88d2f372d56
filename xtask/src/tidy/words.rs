//! Unwanted words: meaningless names, unfinished work, paths of one machine.
//!
//! The words are concatenated from halves here, so that this file does not break its own rules.

use super::Finding;
use super::tree::Tree;
use syn::visit::{self, Visit};

/// Crates and modules of these names attract unrelated code.
const BANNED_NAMES: &[&str] = &["common", "core", "utils", "util", "types", "helpers", "helper", "misc"];
const UNFINISHED: &[&str] = &[
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("to", "do!"),
    concat!("unimple", "mented!"),
    concat!("#[ig", "nore"),
];
const CODE_EXTENSIONS: &[&str] = &["rs", "py", "sh", "sql", "ts", "tsx", "java", "toml", "yml", "yaml"];
/// Directories of one machine that are not in the project.
const MACHINE_PATHS: &[&str] = &[
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/Use", "rs/"),
    concat!("/tmp/tar", "get"),
    concat!("/wo", "rk/"),
];
const PUBLIC_REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Checks the names of crates, files, directories and inline modules.
pub fn names(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let advice = "is a banned name: name it after its content";
    for file in tree.files().filter(|file| file.extension() == "rs" || file.path.ends_with("Cargo.toml")) {
        for segment in file.path.split('/') {
            let name = segment.strip_suffix(".rs").unwrap_or(segment);
            if BANNED_NAMES.contains(&name) {
                findings.push(Finding::new(&file.path, 0, format!("{name} {advice}")));
            }
        }
    }
    for (file, syntax) in tree.rust_files() {
        let mut modules = Modules::default();
        modules.visit_file(syntax);
        for (name, line) in modules.names {
            if BANNED_NAMES.contains(&name.as_str()) {
                findings.push(Finding::new(&file.path, line, format!("module {name} {advice}")));
            }
        }
    }
    findings
}

#[derive(Default)]
struct Modules {
    names: Vec<(String, usize)>,
}

impl<'ast> Visit<'ast> for Modules {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.names.push((item.ident.to_string(), item.ident.span().start().line));
        visit::visit_item_mod(self, item);
    }
}

/// Checks that work is finished or an issue: no note in the code says "later".
pub fn unfinished(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files().filter(|file| CODE_EXTENSIONS.contains(&file.extension())) {
        for (index, line) in file.text.as_deref().unwrap_or("").lines().enumerate() {
            for word in UNFINISHED.iter().filter(|word| stands_alone(line, word)) {
                let message = format!("{word} is unfinished work: do it now or file an issue");
                findings.push(Finding::new(&file.path, index + 1, message));
            }
        }
    }
    findings
}

/// Returns whether `word` occurs in `line` as a whole word.
fn stands_alone(line: &str, word: &str) -> bool {
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    line.match_indices(word).any(|(start, _)| {
        let before = line[..start].chars().next_back().is_some_and(is_word);
        let after = line[start + word.len()..].chars().next().is_some_and(is_word);
        !before && (!after || !word.ends_with(is_word))
    })
}

/// Checks for absolute paths of one machine.
pub fn machine_paths(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files() {
        for (index, line) in file.text.as_deref().unwrap_or("").lines().enumerate() {
            for path in MACHINE_PATHS.iter().filter(|path| starts_a_path(line, path)) {
                let message =
                    format!("names {path}, a directory of one machine: use a relative path or a variable");
                findings.push(Finding::new(&file.path, index + 1, message));
            }
        }
    }
    findings
}

/// Returns whether `path` occurs in `line` as the beginning of a path.
fn starts_a_path(line: &str, path: &str) -> bool {
    let within = |letter: char| letter.is_alphanumeric() || "_-./})~*".contains(letter);
    line.match_indices(path).any(|(start, _)| !line[..start].chars().next_back().is_some_and(within))
}

/// Checks that the lock file works wherever the public registry can be reached.
pub fn registries(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files().filter(|file| file.path.ends_with("Cargo.lock")) {
        for (index, line) in file.text.as_deref().unwrap_or("").lines().enumerate() {
            if line.starts_with("source = ") && !line.contains(PUBLIC_REGISTRY) {
                let message = "a package that is not from crates.io: use a published version";
                findings.push(Finding::new(&file.path, index + 1, message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::check_finds;
    use super::{machine_paths, names, registries, unfinished};

    #[test]
    fn banned_names_are_found() {
        check_finds(
            names,
            &[("crates/common/Cargo.toml", "")],
            &["crates/common/Cargo.toml: common is a banned"],
        );
        check_finds(names, &[("crates/a/src/utils.rs", "")], &["crates/a/src/utils.rs: utils is a banned"]);
        check_finds(
            names,
            &[("crates/a/src/types/b.rs", "")],
            &["crates/a/src/types/b.rs: types is a banned"],
        );
        check_finds(names, &[("a.rs", "mod ok {\n    mod misc {}\n}")], &["a.rs:2: module misc is a banned"]);
        check_finds(names, &[("docs/types/a.md", ""), ("crates/a/src/record_types.rs", "")], &[]);
    }

    #[test]
    fn unfinished_work_is_found() {
        for word in super::UNFINISHED {
            let text = format!("fn a() {{}}\n// {word} later\n");
            check_finds(unfinished, &[("a.rs", &text)], &[&format!("a.rs:2: {word} is unfinished")]);
        }
        let call = concat!("fn a() { to", "do!() }");
        check_finds(unfinished, &[("a.rs", call)], &["a.rs:1:"]);
        check_finds(unfinished, &[("a.rs", concat!("// mktemp XX", "XXXX")), ("a.md", "anything")], &[]);
        check_finds(unfinished, &[("Cargo.toml", "[lints]\ntodo = \"deny\"")], &[]);
    }

    #[test]
    fn machine_paths_are_found() {
        let text = concat!("see /ho", "me/someone/x");
        check_finds(machine_paths, &[("a.md", text)], &["a.md:1: names"]);
        let text = concat!("PATH=\"/ro", "ot/bin\"\n(/wo", "rk/main)");
        check_finds(machine_paths, &[("a.sh", text)], &["a.sh:1: names", "a.sh:2: names"]);
        let text = concat!("https://host/ho", "me/x ./wo", "rk/x {dir}/wo", "rk/x");
        check_finds(machine_paths, &[("a.md", text)], &[]);
    }

    #[test]
    fn other_registries_are_found() {
        let ours = "source = \"registry+https://github.com/rust-lang/crates.io-index\"\n";
        let text = format!("{ours}source = \"registry+https://mirror.example/index\"\n");
        check_finds(registries, &[("Cargo.lock", &text)], &["Cargo.lock:2: a package that is not from"]);
        check_finds(registries, &[("Cargo.lock", ours)], &[]);
    }
}
