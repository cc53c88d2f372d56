//! Files inside a crate: the number directly in `src/`, and the number that import each other in a circle.
//!
//! A circle is a set of files in which each reaches each other by the items that it names. An edge leads to the file
//! that defines an item; re-exports are followed, but are not edges themselves, nor are `mod` lines. Test code is
//! skipped.

use super::Finding;
use super::tree::{Tree, TreeFile};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};

/// Maximum files directly in a `src/`: more need folders.
const SRC_FILES_MAX: usize = 16;
/// Maximum for the steps of a record's road, whose file names tell the step, and for the messages.
const WIDE_SRC_FILES_MAX: usize = 24;
const WIDE_CRATES: &[&str] =
    &["api", "mapper", "iappender", "chunkserver", "chunksorter", "workbuilder", "imerger", "reducer"];
/// Maximum files of a circle.
const CIRCLE_FILES_MAX: usize = 6;
/// Maximum re-exports followed for one name.
const REEXPORTS_MAX: usize = 16;

/// Checks the number of files directly in a `src/`.
pub fn src_files(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in tree.crate_names() {
        let limit = if WIDE_CRATES.contains(&name) { WIDE_SRC_FILES_MAX } else { SRC_FILES_MAX };
        let src = format!("crates/{name}/src/");
        let is_direct = |file: &&TreeFile| {
            file.path.strip_prefix(&src).is_some_and(|rest| rest.ends_with(".rs") && !rest.contains('/'))
        };
        let count = tree.files().filter(is_direct).count();
        if count > limit {
            let message =
                format!("{count} files directly in src, at most {limit} are allowed: put them into folders");
            findings.push(Finding::new(&src, 0, message));
        }
    }
    findings
}

/// Checks the circles of imports inside a crate.
pub fn circles(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in tree.crate_names() {
        for circle in Modules::of_crate(tree, name).circles() {
            if circle.len() > CIRCLE_FILES_MAX {
                let src = format!("crates/{name}/src/");
                let files: Vec<&str> =
                    circle.iter().map(|path| path.strip_prefix(&src).unwrap_or(path)).collect();
                let message = format!(
                    "{} files import each other in a circle ({}), at most {CIRCLE_FILES_MAX} are allowed: move what they share \
                     into a file that imports none of them",
                    files.len(),
                    files.join(", ")
                );
                findings.push(Finding::new(&src, 0, message));
            }
        }
    }
    findings
}

/// A module of a crate; inline modules are parts of their file.
#[derive(Default)]
struct Module {
    file: String,
    items: BTreeSet<String>,
    /// Local name -> whole path as written. The name `*` stands for all names below a path.
    imports: Vec<(String, Vec<String>)>,
    /// Paths that the module names, as written, including those of its private imports.
    named: Vec<Vec<String>>,
}

/// The modules of a crate by their paths from its root.
struct Modules {
    modules: BTreeMap<Vec<String>, Module>,
}

impl Modules {
    fn of_crate(tree: &Tree, name: &str) -> Modules {
        let src = format!("crates/{name}/src/");
        let root = (Vec::new(), Module::default());
        let mut modules = Modules { modules: BTreeMap::from([root]) };
        for (file, syntax) in tree.rust_files().filter(|(file, _)| !file.is_test()) {
            let Some(path) = file.path.strip_prefix(&src).and_then(|rest| rest.strip_suffix(".rs")) else {
                continue;
            };
            let mut segments: Vec<String> = path.split('/').map(str::to_string).collect();
            if matches!(segments.last().map(String::as_str), Some("lib" | "main" | "mod")) {
                segments.pop();
            }
            modules.read(&file.path, segments, &syntax.items);
        }
        modules
    }

    fn read(&mut self, file: &str, path: Vec<String>, items: &[syn::Item]) {
        let mut reader = Reader::default();
        for item in items {
            match item {
                syn::Item::Mod(inner) if is_test_only(&inner.attrs) => {}
                syn::Item::Mod(inner) => {
                    if let Some((_, items)) = &inner.content {
                        let mut below = path.clone();
                        below.push(inner.ident.to_string());
                        self.read(file, below, items);
                    }
                }
                item => reader.visit_item(item),
            }
        }
        let Reader { items, imports, named } = reader;
        self.modules.insert(path, Module { file: file.to_string(), items, imports, named });
    }

    /// Returns the file that defines the item of a path in a module; None outside of the crate.
    fn file_of(&self, from: &[String], written: &[String], depth: usize) -> Option<&str> {
        if depth == 0 {
            return None;
        }
        let (first, rest) = written.split_first()?;
        let (mut at, mut rest) = match first.as_str() {
            "crate" => (Vec::new(), rest),
            "self" => (from.to_vec(), rest),
            "super" => (from.split_last()?.1.to_vec(), rest),
            _ => {
                let (below, here) = ([from, std::slice::from_ref(first)].concat(), self.modules.get(from)?);
                // A module may have the name of a function, and only a module has items below it.
                let is_imported = here.imports.iter().any(|(local, _)| local == first);
                if self.modules.contains_key(&below) {
                    (below, rest)
                } else if here.items.contains(first) && (rest.is_empty() || !is_imported) {
                    return Some(&here.file);
                } else {
                    return self.imported(from, first, rest, depth);
                }
            }
        };
        while let Some((next, others)) = rest.split_first() {
            let module = self.modules.get(&at)?;
            let below = [&at[..], std::slice::from_ref(next)].concat();
            if next == "super" {
                at.pop();
            } else if module.items.contains(next) && (others.is_empty() || !self.modules.contains_key(&below))
            {
                return Some(&module.file);
            } else if self.modules.contains_key(&below) {
                at = below;
            } else {
                return self.imported(&at, next, others, depth);
            }
            rest = others;
        }
        // A module by itself is not an item: an edge comes from an item below it.
        None
    }

    /// Returns the file of an item that a module imports, or re-exports.
    fn imported(&self, from: &[String], name: &str, rest: &[String], depth: usize) -> Option<&str> {
        let module = self.modules.get(from)?;
        let found = module.imports.iter().find(|(local, _)| local == name);
        if let Some((_, whole)) = found {
            return self.file_of(from, &[whole, rest].concat(), depth - 1);
        }
        let globs = module.imports.iter().filter(|(local, _)| local == "*");
        let name = [name.to_string()];
        globs
            .filter_map(|(_, above)| self.file_of(from, &[above, &name[..], rest].concat(), depth - 1))
            .next()
    }

    /// Maps each file to the files of the items that it names.
    fn edges(&self) -> BTreeMap<&str, BTreeSet<&str>> {
        let mut edges: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (path, module) in &self.modules {
            let edges = edges.entry(&module.file).or_default();
            for written in &module.named {
                let to = self.file_of(path, written, REEXPORTS_MAX);
                edges.extend(to.filter(|to| *to != module.file));
            }
        }
        edges
    }

    /// Returns the sets of files that reach each other, of at least two files.
    fn circles(&self) -> Vec<Vec<String>> {
        let edges = self.edges();
        let reach: BTreeMap<&str, BTreeSet<&str>> =
            edges.keys().map(|file| (*file, reached_from(file, &edges))).collect();
        let mut circles: Vec<Vec<String>> = Vec::new();
        for (file, reached) in &reach {
            let circle = reached.iter().filter(|other| reach[*other].contains(file));
            let circle: Vec<String> = circle.map(|other| other.to_string()).collect();
            if circle.len() > 1 && !circles.contains(&circle) {
                circles.push(circle);
            }
        }
        circles
    }
}

fn reached_from<'a>(file: &'a str, edges: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut pending = vec![file];
    while let Some(next) = pending.pop() {
        for to in edges.get(next).into_iter().flatten() {
            if reached.insert(*to) {
                pending.push(to);
            }
        }
    }
    reached
}

/// Collector of the names of one module, without inline modules.
#[derive(Default)]
struct Reader {
    items: BTreeSet<String>,
    imports: Vec<(String, Vec<String>)>,
    named: Vec<Vec<String>>,
}

impl Reader {
    fn import(&mut self, above: &[String], tree: &syn::UseTree) {
        let joined = |name: &syn::Ident| match (name == "self" && !above.is_empty(), above) {
            (true, above) => above.to_vec(),
            (false, above) => [above, &[name.to_string()]].concat(),
        };
        match tree {
            syn::UseTree::Path(path) => self.import(&joined(&path.ident), &path.tree),
            syn::UseTree::Name(name) => {
                let whole = joined(&name.ident);
                self.imports.push((whole.last().cloned().unwrap_or_default(), whole));
            }
            syn::UseTree::Rename(rename) => {
                self.imports.push((rename.rename.to_string(), joined(&rename.ident)));
            }
            syn::UseTree::Glob(_) => self.imports.push(("*".to_string(), above.to_vec())),
            syn::UseTree::Group(group) => group.items.iter().for_each(|item| self.import(above, item)),
        }
    }

    /// Collects paths in the tokens of a macro call.
    fn read_tokens(&mut self, tokens: proc_macro2::TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                proc_macro2::TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                proc_macro2::TokenTree::Ident(ident) if colons == 2 && !path.is_empty() => {
                    path.push(ident.to_string());
                    colons = 0;
                }
                other => {
                    self.named.push(std::mem::take(&mut path));
                    colons = 0;
                    match other {
                        proc_macro2::TokenTree::Ident(ident) => path.push(ident.to_string()),
                        proc_macro2::TokenTree::Group(group) => self.read_tokens(group.stream()),
                        _ => {}
                    }
                }
            }
        }
        self.named.push(path);
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let (attributes, name) = match item {
            syn::Item::Fn(item) => (&item.attrs, Some(&item.sig.ident)),
            syn::Item::Struct(item) => (&item.attrs, Some(&item.ident)),
            syn::Item::Enum(item) => (&item.attrs, Some(&item.ident)),
            syn::Item::Union(item) => (&item.attrs, Some(&item.ident)),
            syn::Item::Trait(item) => (&item.attrs, Some(&item.ident)),
            syn::Item::Type(item) => (&item.attrs, Some(&item.ident)),
            syn::Item::Const(item) => (&item.attrs, Some(&item.ident)),
            syn::Item::Static(item) => (&item.attrs, Some(&item.ident)),
            syn::Item::Macro(item) => (&item.attrs, item.ident.as_ref()),
            syn::Item::Impl(item) => (&item.attrs, None),
            syn::Item::Use(item) => (&item.attrs, None),
            _ => return,
        };
        if is_test_only(attributes) {
            return;
        }
        self.items.extend(name.map(ToString::to_string));
        visit::visit_item(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test_only(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        // `::name` is a crate, even if a module has that name.
        if item.leading_colon.is_none() {
            let before = self.imports.len();
            self.import(&[], &item.tree);
            if matches!(item.vis, syn::Visibility::Inherited) {
                self.named.extend(self.imports[before..].iter().map(|(_, whole)| whole.clone()));
            }
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            self.named.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        self.visit_path(&mac.path);
        self.read_tokens(mac.tokens.clone());
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        // `#[arg(value_parser = name)]` names a function too.
        if let syn::Meta::List(list) = &attribute.meta {
            self.read_tokens(list.tokens.clone());
        }
    }
}

/// Recognizes `#[cfg(test)]` in its plain forms, and `#[test]`.
fn is_test_only(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string();
            condition == "test" || condition.starts_with("all") && condition.contains("test")
        }
        syn::Meta::Path(path) => path.is_ident("test"),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::super::check_finds;
    use super::{Modules, circles, src_files};
    use crate::tidy::tree::Tree;

    /// Returns the files of each circle of a made-up crate `a`.
    fn circles_of(samples: &[(&str, &str)]) -> Vec<String> {
        let samples: Vec<(String, &str)> =
            samples.iter().map(|(path, text)| (format!("crates/a/src/{path}"), *text)).collect();
        let samples: Vec<(&str, &str)> = samples.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let found = Modules::of_crate(&Tree::from_samples(&samples), "a").circles();
        found.iter().map(|files| files.join(" ").replace("crates/a/src/", "")).collect()
    }

    #[test]
    fn many_files_are_found() {
        let files = |name: &str, count: usize| -> Vec<(String, &'static str)> {
            let path = |index| (format!("crates/{name}/src/f{index}.rs"), "");
            (0..count).map(path).chain([(format!("crates/{name}/Cargo.toml"), "")]).collect()
        };
        let check = |samples: &[(String, &str)], expected: &[&str]| {
            let samples: Vec<(&str, &str)> =
                samples.iter().map(|(path, text)| (path.as_str(), *text)).collect();
            check_finds(src_files, &samples, expected);
        };
        check(&files("a", 16), &[]);
        check(&files("a", 17), &["crates/a/src/: 17 files directly in src, at most 16"]);
        check(&files("mapper", 24), &[]);
        check(&files("mapper", 25), &["crates/mapper/src/: 25 files directly in src, at most 24"]);
        let mut folders = files("a", 16);
        folders.push(("crates/a/src/f0/more.rs".to_string(), ""));
        check(&folders, &[]);
    }

    #[test]
    fn large_circles_are_found() {
        let ring = |count: usize| -> Vec<(String, String)> {
            let file = |index: usize| {
                let text = format!("use crate::f{}::F;\npub struct F;", (index + 1) % count);
                (format!("crates/a/src/f{index}.rs"), text)
            };
            (0..count).map(file).chain([("crates/a/Cargo.toml".to_string(), String::new())]).collect()
        };
        let check = |count: usize, expected: &[&str]| {
            let samples = ring(count);
            let samples: Vec<(&str, &str)> =
                samples.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
            check_finds(circles, &samples, expected);
        };
        check(6, &[]);
        check(7, &["crates/a/src/: 7 files import each other in a circle (f0.rs, f1.rs, f2.rs"]);
    }

    #[test]
    fn edges_lead_to_the_file_that_defines() {
        // A re-export is followed, so the parent is in no circle; a `mod` line is no edge.
        let parent = ("b.rs", "mod c;\nmod d;\npub use c::C;\n");
        let (c, d) =
            (("b/c.rs", "use super::d;\npub struct C(d::D);"), ("b/d.rs", "use super::C;\npub struct D;"));
        assert_eq!(circles_of(&[parent, c, d]), ["b/c.rs b/d.rs"]);
        // An imported module is an edge only if an item of it is named.
        let named = ("x.rs", "use crate::y;\nfn f() { y::g() }\n");
        assert_eq!(circles_of(&[named, ("y.rs", "use crate::x;\npub fn g() {}\n")]), [""; 0]);
        let same_name = ("y.rs", "use crate::x;\npub fn x() { x::f() }\npub fn g() {}");
        assert_eq!(circles_of(&[("x.rs", "use crate::y;\npub fn f() { y::g() }"), same_name]), ["x.rs y.rs"]);
        let calls = ("y.rs", "use crate::x;\npub fn g() { assert!(x::f()) }\n");
        assert_eq!(circles_of(&[("x.rs", "use crate::y::*;\npub fn f() { g() }"), calls]), ["x.rs y.rs"]);
    }

    #[test]
    fn tests_and_other_crates_make_no_edges() {
        let x = ("x.rs", "pub fn f() {}\n#[cfg(test)]\nmod tests {\n    use crate::y::g;\n}\n");
        assert_eq!(circles_of(&[x, ("y.rs", "pub fn g() { crate::x::f() }")]), [""; 0]);
        let foreign = ("x.rs", "use ::y::g;\npub fn f() { ::y::h() }\n");
        assert_eq!(circles_of(&[foreign, ("y.rs", "pub fn g() { super::x::f() }")]), [""; 0]);
    }
}
