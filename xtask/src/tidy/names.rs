//! Names: a test's name is a short sentence, and a public type's name means one thing in all crates.

use super::Finding;
use super::tree::{Tree, TreeFile};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};
use syn::{Item, UseTree, Visibility};

const TEST_NAME_WORDS_MAX: usize = 8;

/// Public type names that more than one crate exports, each with its reason.
const SHARED_TYPE_NAMES: &[(&str, &str)] = &[
    ("Control", "control: the state behind all decisions; node: the trait of requests to a server"),
    ("DiskState", "api: the words of messages; rows: the values of a column"),
    ("LostOnDisk", "chunkserver: the lost runs of one job's chunks; api: the report of them to the server"),
    ("NodeState", "api: the words of messages; rows: the values of a column"),
    ("Problem", "ifile: damage of an I-file; controlport: the refusal of a request"),
];

/// Checks that the name of a test states its behaviour in at most eight words.
pub fn test_names(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, syntax) in tree.rust_files() {
        let mut visitor = TestNames { path: &file.path, findings: &mut findings };
        visitor.visit_file(syntax);
    }
    findings
}

struct TestNames<'a> {
    path: &'a str,
    findings: &'a mut Vec<Finding>,
}

impl TestNames<'_> {
    fn check(&mut self, name: &proc_macro2::Ident) {
        let words = name.to_string().split('_').filter(|word| !word.is_empty()).count();
        if words > TEST_NAME_WORDS_MAX {
            let message = format!(
                "test {name} has {words} words, at most {TEST_NAME_WORDS_MAX} are allowed: state the behaviour, \
                 without articles"
            );
            self.findings.push(Finding::new(self.path, name.span().start().line, message));
        }
    }

    /// Finds tests inside a macro call, as in `proptest!`, among its tokens: `#[test]`, further attributes, `fn` and a
    /// name.
    fn check_tokens(&mut self, tokens: TokenStream) {
        let mut is_test = false;
        let mut is_name_next = false;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) if ident == "fn" => is_name_next = true,
                TokenTree::Ident(ident) if is_name_next => {
                    is_name_next = false;
                    if std::mem::take(&mut is_test) {
                        self.check(&ident);
                    }
                }
                TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => {
                    is_test |= ends_with_test(group.stream());
                }
                TokenTree::Group(group) => self.check_tokens(group.stream()),
                TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }
}

/// Returns whether an attribute's tokens are a path that ends with `test`, such as `test` or `tokio::test(..)`.
fn ends_with_test(attribute: TokenStream) -> bool {
    let path = attribute.into_iter().take_while(|token| !matches!(token, TokenTree::Group(_)));
    path.last().is_some_and(|token| matches!(token, TokenTree::Ident(ident) if ident == "test"))
}

impl<'ast> Visit<'ast> for TestNames<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        let last =
            |attribute: &syn::Attribute| attribute.path().segments.last().map(|last| last.ident.to_string());
        if item.attrs.iter().any(|attribute| last(attribute).as_deref() == Some("test")) {
            self.check(&item.sig.ident);
        }
        visit::visit_item_fn(self, item);
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        self.check_tokens(mac.tokens.clone());
    }
}

/// Checks that no two crates export a type of the same name, except for a list with reasons.
pub fn type_names(tree: &Tree) -> Vec<Finding> {
    shared_names(tree, SHARED_TYPE_NAMES)
}

fn shared_names(tree: &Tree, allowed: &[(&str, &str)]) -> Vec<Finding> {
    let mut places: BTreeMap<String, Vec<TypePlace>> = BTreeMap::new();
    for name in tree.crate_names() {
        for place in exported_types(tree, name) {
            places.entry(place.name.clone()).or_default().push(place);
        }
    }
    let mut findings = Vec::new();
    for (name, places) in &places {
        let crates: BTreeSet<&str> = places.iter().filter_map(|place| place.file.crate_name()).collect();
        if crates.len() < 2 || allowed.iter().any(|(allowed, _)| allowed == name) {
            continue;
        }
        let crates = crates.into_iter().collect::<Vec<_>>().join(", ");
        for place in places {
            let message = format!("the crates {crates} all export a type {name}: rename all but one");
            findings.push(Finding::new(&place.file.path, place.line, message));
        }
    }
    for (name, _) in allowed {
        let crates =
            places.get(*name).map(|places| places.iter().filter_map(|place| place.file.crate_name()));
        if crates.map_or(0, |crates| crates.collect::<BTreeSet<_>>().len()) < 2 {
            let message =
                format!("lists the type {name}, which is exported by fewer than two crates: remove it");
            findings.push(Finding::new(ALLOW_LIST, 0, message));
        }
    }
    findings
}

/// The file that holds the list of shared names.
const ALLOW_LIST: &str = "xtask/src/tidy/names.rs";

/// A public type and the file that defines it.
#[derive(Clone)]
struct TypePlace<'a> {
    /// The exported name.
    name: String,
    file: &'a TreeFile,
    line: usize,
}

/// Returns the types that the library of a crate exports: defined in modules that are public down from the root, or
/// re-exported from there. Types that macros define are not seen.
fn exported_types<'a>(tree: &'a Tree, crate_name: &str) -> Vec<TypePlace<'a>> {
    let root = format!("crates/{crate_name}/src/lib.rs");
    let files: Vec<(&TreeFile, &syn::File)> = tree
        .rust_files()
        .filter(|(file, _)| file.crate_name() == Some(crate_name) && !file.is_test())
        .collect();
    let Some((file, syntax)) = files.iter().find(|(file, _)| file.path == root) else { return Vec::new() };
    let mut exports = Exports { files: &files, types: Vec::new() };
    exports.walk(&format!("crates/{crate_name}/src"), file, &syntax.items);
    exports.types
}

struct Exports<'a, 'b> {
    files: &'b [(&'a TreeFile, &'a syn::File)],
    types: Vec<TypePlace<'a>>,
}

impl<'a> Exports<'a, '_> {
    /// Collects the exports of a public module with submodules in `folder`.
    fn walk(&mut self, folder: &str, file: &'a TreeFile, items: &'a [Item]) {
        for item in items {
            if let Some(ident) = public_type(item) {
                let line = ident.span().start().line;
                self.types.push(TypePlace { name: ident.to_string(), file, line });
            }
            match item {
                Item::Mod(module) if is_public(&module.vis) => {
                    let below = format!("{folder}/{}", module.ident);
                    match &module.content {
                        Some((_, items)) => self.walk(&below, file, items),
                        None => {
                            if let Some((file, syntax)) = self.module(&below) {
                                self.walk(&below, file, &syntax.items);
                            }
                        }
                    }
                }
                Item::Use(import) if is_public(&import.vis) => {
                    self.add_import(folder, &mut Vec::new(), &import.tree)
                }
                _ => {}
            }
        }
    }

    fn module(&self, below: &str) -> Option<(&'a TreeFile, &'a syn::File)> {
        let paths = [format!("{below}.rs"), format!("{below}/mod.rs")];
        self.files.iter().find(|(file, _)| paths.contains(&file.path)).copied()
    }

    /// Adds the types of one `pub use`. A path that begins with a module of the crate leads to a file of that module.
    fn add_import(&mut self, folder: &str, path: &mut Vec<String>, tree: &UseTree) {
        match tree {
            UseTree::Path(segment) => {
                path.push(segment.ident.to_string());
                self.add_import(folder, path, &segment.tree);
                path.pop();
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.add_import(folder, path, tree)),
            UseTree::Name(name) => {
                self.add_types(folder, path, Some((&name.ident.to_string(), &name.ident.to_string())))
            }
            UseTree::Rename(rename) => {
                self.add_types(folder, path, Some((&rename.ident.to_string(), &rename.rename.to_string())));
            }
            UseTree::Glob(_) => self.add_types(folder, path, None),
        }
    }

    fn add_types(&mut self, folder: &str, path: &[String], name: Option<(&str, &str)>) {
        let root = folder.split('/').take(3).collect::<Vec<_>>().join("/");
        let mut module = folder.to_string();
        for (index, segment) in path.iter().enumerate() {
            match segment.as_str() {
                "self" => {}
                "crate" => module.clone_from(&root),
                "super" => {
                    module = module.rsplit_once('/').map_or(String::new(), |(above, _)| above.to_string())
                }
                segment if index == 0 && self.module(&format!("{module}/{segment}")).is_none() => return,
                segment => module = format!("{module}/{segment}"),
            }
        }
        let Some((file, syntax)) = self.module(&module) else { return };
        for item in &syntax.items {
            let Some(ident) = public_type(item) else { continue };
            let exported = match name {
                None => ident.to_string(),
                Some((name, exported)) if ident == name => exported.to_string(),
                Some(_) => continue,
            };
            self.types.push(TypePlace { name: exported, file, line: ident.span().start().line });
        }
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn public_type(item: &Item) -> Option<&proc_macro2::Ident> {
    let (visibility, ident) = match item {
        Item::Struct(item) => (&item.vis, &item.ident),
        Item::Enum(item) => (&item.vis, &item.ident),
        Item::Union(item) => (&item.vis, &item.ident),
        Item::Trait(item) => (&item.vis, &item.ident),
        Item::Type(item) => (&item.vis, &item.ident),
        _ => return None,
    };
    is_public(visibility).then_some(ident)
}

#[cfg(test)]
mod tests {
    use super::super::{Check, check_finds};
    use super::{shared_names, test_names};

    #[test]
    fn long_test_names_are_found() {
        let check = |text: &str, expected: &[&str]| check_finds(test_names, &[("a.rs", text)], expected);
        check("#[test]\nfn a_b_c_d_e_f_g_h() {}\nfn a_b_c_d_e_f_g_h_i() {}\n", &[]);
        check("#[test]\nfn a_b_c_d_e_f_g_h_i() {}\n", &["a.rs:2: test a_b_c_d_e_f_g_h_i has 9 words"]);
        check("mod tests {\n#[tokio::test]\nasync fn a_b_c_d_e_f_g_h_i() {}\n}\n", &["a.rs:3: test"]);
        check("#[tokio::test(start_paused = true)]\nasync fn a_b_c_d_e_f_g_h_i() {}\n", &["a.rs:2: test"]);
        let property =
            "proptest! {\n#![proptest_config(few())]\n#[test]\nfn a_b_c_d_e_f_g_h_i(x in 0..9_u8) {}\n}\n";
        check(property, &["a.rs:4: test"]);
        check(&property.replace("#[test]", ""), &[]);
    }

    #[test]
    fn type_names_of_two_crates_are_found() {
        let names: Check = |tree| shared_names(tree, &[]);
        let manifests = [("crates/a/Cargo.toml", ""), ("crates/b/Cargo.toml", "")];
        let check = |a: &str, b: &str, c: &str, expected: &[&str]| {
            let sources = [("crates/a/src/lib.rs", a), ("crates/b/src/lib.rs", b), ("crates/b/src/c.rs", c)];
            check_finds(names, &[&manifests[..], &sources].concat(), expected);
        };
        let both = &["crates/a/src/lib.rs:1: the crates a, b all export a type T", "crates/b/src/"];
        check("pub struct T;", "pub enum T {}", "", both);
        check("pub struct T;", "pub mod c;", "pub trait T {}", both);
        check("pub struct T;", "mod c;\npub use c::{S, T};", "pub type T = u8;", both);
        check("pub struct T;", "mod c;\npub use crate::c::*;", "pub type T = u8;", both);
        check("pub struct T;", "mod c;\npub use c::S as T;", "pub struct S;", both);
        check("pub struct T;", "mod c;\npub use c::T as S;", "pub struct T;", &[]);
        check("pub struct T;", "mod c;", "pub struct T;", &[]);
        check("pub struct T;", "pub use a::T;\npub(crate) struct T;\nstruct T;", "", &[]);
    }

    #[test]
    fn allowed_type_names_are_shared_indeed() {
        let names: Check = |tree| shared_names(tree, &[("T", "a sample")]);
        let manifests = [("crates/a/Cargo.toml", ""), ("crates/b/Cargo.toml", "")];
        let a = ("crates/a/src/lib.rs", "pub struct T;");
        check_finds(names, &[&manifests[..], &[a, ("crates/b/src/lib.rs", "pub struct T;")]].concat(), &[]);
        let unshared = [&manifests[..], &[a]].concat();
        check_finds(names, &unshared, &["xtask/src/tidy/names.rs: lists the type T"]);
    }
}
