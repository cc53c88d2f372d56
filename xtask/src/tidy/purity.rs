//! Checks for forbidden effects: laws 1 and 2, and bounded channels. They read the syntax, not the text, so that
//! comments and strings do not count; test code is skipped.

use super::Finding;
use super::arrows::PURE_CRATES;
use super::tree::Tree;
use proc_macro2::{Span, TokenStream, TokenTree};
use syn::visit::{self, Visit};

/// Paths by which a crate would reach files, the network, the clock, threads, processes or the environment.
const EFFECTS: &[&str] = &[
    "std::fs",
    "std::net",
    "std::thread",
    "std::process",
    "std::env",
    "std::io::stdin",
    "std::io::stdout",
    "std::io::stderr",
    "std::time::Instant",
    "std::time::SystemTime",
    "Instant::now",
    "SystemTime::now",
];
/// Macros that write to the terminal.
const EFFECT_MACROS: &[&str] = &["print", "println", "eprint", "eprintln", "dbg"];
/// Channels without a bound. `tokio::sync::mpsc::channel` has one, so the standard library's is listed by its full
/// name.
const UNBOUNDED: &[&str] = &[
    "std::sync::mpsc::channel",
    "crossbeam_channel::unbounded",
    "crossbeam::channel::unbounded",
    "tokio::sync::mpsc::unbounded_channel",
    "mpsc::unbounded_channel",
    "flume::unbounded",
    "async_channel::unbounded",
];
/// Crates with SQL: for our own state, and for users' data.
const SQL_CRATES: &[&str] = &["metastore", "sql"];
/// A literal is SQL if it begins with one of these and contains the other word too.
const SQL_SHAPES: &[(&str, &str)] = &[
    ("select ", " from "),
    ("with ", " select "),
    ("insert ", "into "),
    ("update ", " set "),
    ("delete from ", ""),
    ("create table ", ""),
    ("create index ", ""),
    ("alter table ", ""),
    ("drop table ", ""),
    ("pragma ", ""),
];
/// Messages of `containment` stay between processes of one build and name what only that crate has.
const SERDE_CRATES: &[&str] = &["api", "ids", "containment"];

/// Checks law 1: pure crates name no effect.
pub fn pure_crates(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, uses) in uses_of(tree) {
        if !crate_of(path).is_some_and(|name| PURE_CRATES.contains(&name)) {
            continue;
        }
        for (name, span) in &uses.paths {
            if let Some(effect) = EFFECTS.iter().find(|effect| path_names(name, effect)) {
                let message =
                    format!("a pure crate uses {effect}: take it as a parameter or a trait of this crate");
                findings.push(Finding::new(path, span.start().line, message));
            }
        }
        for (name, span) in &uses.macros {
            if EFFECT_MACROS.contains(&name.as_str()) {
                let message = format!("a pure crate calls {name}!: return the text instead");
                findings.push(Finding::new(path, span.start().line, message));
            }
        }
    }
    findings
}

/// Checks that every queue has a bound (law 4).
pub fn bounded_channels(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, uses) in uses_of(tree) {
        let imports_std = uses.paths.iter().any(|(name, _)| path_names(name, "std::sync::mpsc"));
        for (name, span) in &uses.paths {
            let unbounded = UNBOUNDED.iter().any(|each| path_names(name, each));
            if unbounded || imports_std && name == "mpsc::channel" {
                let message = format!("{name} has no bound: use sync_channel or bounded with a named limit");
                findings.push(Finding::new(path, span.start().line, message));
            }
        }
    }
    findings
}

/// Checks law 2: SQL for our state is in the metastore.
pub fn sql(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, uses) in uses_of(tree) {
        if crate_of(path).is_none_or(|name| SQL_CRATES.contains(&name)) {
            continue;
        }
        for (literal, span) in &uses.literals {
            let text = literal.trim_start().to_lowercase();
            let is_sql =
                SQL_SHAPES.iter().any(|(start, word)| text.starts_with(start) && text.contains(word));
            if is_sql {
                let message = "a literal that looks like SQL: add a typed call to the metastore";
                findings.push(Finding::new(path, span.start().line, message));
            }
        }
    }
    findings
}

/// Checks law 2: messages and stored values are types of `api` or `ids`.
pub fn serde_derives(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, uses) in uses_of(tree) {
        if crate_of(path).is_none_or(|name| SERDE_CRATES.contains(&name)) {
            continue;
        }
        for (name, span) in &uses.derives {
            if matches!(name.rsplit("::").next(), Some("Serialize" | "Deserialize")) {
                let message = format!("derives {name}: move the type to api, where messages live");
                findings.push(Finding::new(path, span.start().line, message));
            }
        }
    }
    findings
}

fn crate_of(path: &str) -> Option<&str> {
    Some(path.strip_prefix("crates/")?.split_once('/')?.0)
}

/// Returns whether a path as written is `wanted`, lies below it, or imports its whole parent.
fn path_names(written: &str, wanted: &str) -> bool {
    let written = written.trim_start_matches("::");
    if let Some(holder) = written.strip_suffix("::*") {
        return wanted.rsplit_once("::").is_some_and(|(above, _)| above == holder)
            || path_names(holder, wanted);
    }
    written == wanted || written.strip_prefix(wanted).is_some_and(|rest| rest.starts_with("::"))
}

/// Returns the uses of every Rust file with code other than tests.
fn uses_of(tree: &Tree) -> impl Iterator<Item = (&str, Uses)> {
    tree.rust_files().filter(|(file, _)| !file.is_test()).map(|(file, syntax)| {
        let mut uses = Uses::default();
        uses.visit_file(syntax);
        (file.path.as_str(), uses)
    })
}

/// Collector of the names that a file uses outside its test code.
#[derive(Default)]
struct Uses {
    paths: Vec<(String, Span)>,
    macros: Vec<(String, Span)>,
    literals: Vec<(String, Span)>,
    derives: Vec<(String, Span)>,
}

impl Uses {
    /// Flattens `use a::{b, c::d}` to `a::b` and `a::c::d`.
    fn flatten(&mut self, prefix: &str, tree: &syn::UseTree) {
        let join = |name: &dyn std::fmt::Display| match prefix {
            "" => name.to_string(),
            prefix => format!("{prefix}::{name}"),
        };
        match tree {
            syn::UseTree::Path(path) => self.flatten(&join(&path.ident), &path.tree),
            syn::UseTree::Name(name) => {
                let whole = if name.ident == "self" { prefix.to_string() } else { join(&name.ident) };
                self.paths.push((whole, name.ident.span()));
            }
            syn::UseTree::Rename(rename) => self.paths.push((join(&rename.ident), rename.ident.span())),
            syn::UseTree::Glob(glob) => self.paths.push((join(&"*"), glob.star_token.spans[0])),
            syn::UseTree::Group(group) => {
                for item in &group.items {
                    self.flatten(prefix, item);
                }
            }
        }
    }

    /// Collects paths and literals in the tokens of a macro call.
    fn read_tokens(&mut self, tokens: TokenStream) {
        let mut path = String::new();
        let mut start = Span::call_site();
        for token in tokens {
            match token {
                TokenTree::Ident(ident) if path.is_empty() || path.ends_with(':') => {
                    if path.is_empty() {
                        start = ident.span();
                    }
                    path.push_str(&ident.to_string());
                    continue;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' && !path.is_empty() => {
                    path.push(':');
                    continue;
                }
                TokenTree::Literal(literal) => {
                    if let Ok(literal) = syn::parse_str::<syn::LitStr>(&literal.to_string()) {
                        self.literals.push((literal.value(), start));
                    }
                }
                TokenTree::Group(group) => self.read_tokens(group.stream()),
                TokenTree::Ident(ident) => {
                    self.end_path(&mut path, start);
                    start = ident.span();
                    path.push_str(&ident.to_string());
                    continue;
                }
                TokenTree::Punct(_) => {}
            }
            self.end_path(&mut path, start);
        }
        self.end_path(&mut path, start);
    }

    fn end_path(&mut self, path: &mut String, start: Span) {
        if path.contains("::") {
            self.paths.push((path.trim_end_matches(':').to_string(), start));
        }
        path.clear();
    }
}

impl<'ast> Visit<'ast> for Uses {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes = match item {
            syn::Item::Mod(item) => &item.attrs,
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Use(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            syn::Item::Struct(item) => &item.attrs,
            syn::Item::Enum(item) => &item.attrs,
            syn::Item::Const(item) => &item.attrs,
            syn::Item::Static(item) => &item.attrs,
            syn::Item::Trait(item) => &item.attrs,
            syn::Item::Macro(item) => &item.attrs,
            _ => &Vec::new(),
        };
        if !attributes.iter().any(is_test_only) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !item.attrs.iter().any(is_test_only) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.flatten("", &item.tree);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if let Some(first) = path.segments.first() {
            self.paths.push((segments.join("::"), first.ident.span()));
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        if let Some(last) = mac.path.segments.last() {
            self.macros.push((last.ident.to_string(), last.ident.span()));
        }
        self.read_tokens(mac.tokens.clone());
    }

    fn visit_lit_str(&mut self, literal: &'ast syn::LitStr) {
        self.literals.push((literal.value(), literal.span()));
    }

    /// Attributes have documents and settings, not code; only derives matter.
    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        let derives = match &attribute.meta {
            syn::Meta::List(list) if list.path.is_ident("derive") => list.tokens.to_string(),
            // `cfg_attr(feature, derive(...))` derives too.
            syn::Meta::List(list) if list.path.is_ident("cfg_attr") => {
                let text = list.tokens.to_string();
                text.split_once("derive").map_or(String::new(), |(_, rest)| rest.replace(['(', ')'], " "))
            }
            _ => return,
        };
        for name in derives.split(',') {
            let name: String = name.chars().filter(|letter| !letter.is_whitespace()).collect();
            self.derives.push((name, attribute.pound_token.spans[0]));
        }
    }
}

/// Recognizes `#[cfg(test)]` in its plain forms.
fn is_test_only(attribute: &syn::Attribute) -> bool {
    match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string();
            condition == "test" || condition.starts_with("all") && condition.contains("test")
        }
        syn::Meta::Path(path) => path.is_ident("test"),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
