//! Limits of files and functions (law 5), for readers and for the repository.

use super::Finding;
use super::tree::Tree;
use proc_macro2::{Delimiter, Span, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

const FILE_LINES_MAX: usize = 800;
const TEST_FILE_LINES_MAX: usize = 1500;
const FUNCTION_LINES_MAX: usize = 70;
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Extensions of code files: documents and data may be longer.
const CODE_EXTENSIONS: &[&str] = &["rs", "py", "sh", "sql", "ts", "tsx", "java"];

/// Checks that every Rust file parses: one that syn cannot read escapes every other check.
pub fn parse(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files() {
        if let Some(Err(error)) = &file.syntax {
            let line = error.span().start().line;
            findings.push(Finding::new(
                &file.path,
                line,
                format!("does not parse ({error}): fix the syntax"),
            ));
        }
    }
    findings
}

pub fn file_lines(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files().filter(|file| CODE_EXTENSIONS.contains(&file.extension())) {
        let line_count = file.text.as_deref().map_or(0, |text| text.lines().count());
        let limit = if file.is_test() { TEST_FILE_LINES_MAX } else { FILE_LINES_MAX };
        if line_count > limit {
            let message =
                format!("{line_count} lines, at most {limit} are allowed: split it by step or by type");
            findings.push(Finding::new(&file.path, limit + 1, message));
        }
    }
    findings
}

pub fn function_lines(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, syntax) in tree.rust_files() {
        let mut visitor = LongFunctions { path: &file.path, findings: &mut findings };
        visitor.visit_file(syntax);
    }
    findings
}

pub fn file_bytes(tree: &Tree) -> Vec<Finding> {
    let large = tree.files().filter(|file| file.size_bytes > FILE_BYTES_MAX);
    let message =
        |bytes| format!("{bytes} bytes, at most {FILE_BYTES_MAX} are allowed: generate it when needed");
    large.map(|file| Finding::new(&file.path, 0, message(file.size_bytes))).collect()
}

struct LongFunctions<'a> {
    path: &'a str,
    findings: &'a mut Vec<Finding>,
}

impl LongFunctions<'_> {
    /// Counts from the line of the signature to the line of the closing brace, without attributes and comments above.
    fn check(&mut self, name: &proc_macro2::Ident, start: Span, end: Span) {
        let first = start.start().line;
        let line_count = end.end().line + 1 - first;
        if line_count > FUNCTION_LINES_MAX {
            let message = format!(
                "function {name} has {line_count} lines, at most {FUNCTION_LINES_MAX} are allowed: \
                 move steps into functions"
            );
            self.findings.push(Finding::new(self.path, first, message));
        }
    }

    /// Finds functions inside a macro call, as in `proptest!`, among its tokens: `fn`, a name, and the next braces.
    fn check_tokens(&mut self, tokens: TokenStream) {
        let mut function: Option<(Span, Option<proc_macro2::Ident>)> = None;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) if ident == "fn" => function = Some((ident.span(), None)),
                TokenTree::Ident(ident) => {
                    if let Some((_, name @ None)) = &mut function {
                        *name = Some(ident);
                    }
                }
                TokenTree::Group(group) => {
                    if group.delimiter() == Delimiter::Brace
                        && let Some((start, Some(name))) = function.take()
                    {
                        self.check(&name, start, group.span_close());
                    }
                    self.check_tokens(group.stream());
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for LongFunctions<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.check(&item.sig.ident, item.sig.span(), item.block.span());
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.check(&item.sig.ident, item.sig.span(), item.span());
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.check(&item.sig.ident, item.sig.span(), item.span());
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        self.check_tokens(mac.tokens.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::super::check_finds;
    use super::{file_bytes, file_lines, function_lines, parse};

    #[test]
    fn broken_syntax_is_found() {
        check_finds(parse, &[("a.rs", "fn a() {}\nfn b( {}\n")], &["a.rs:"]);
        check_finds(parse, &[("a.rs", "fn a() {}\n"), ("b.md", "fn b( {")], &[]);
    }

    #[test]
    fn long_files_are_found_with_room_for_tests() {
        let lines = "// line\n".repeat(801);
        check_finds(file_lines, &[("crates/a/src/b.rs", &lines)], &["crates/a/src/b.rs:801: 801 lines"]);
        check_finds(file_lines, &[("crates/a/src/tests.rs", &lines), ("tests/src/c.rs", &lines)], &[]);
        check_finds(file_lines, &[("docs/long.md", &lines), ("a.rs", &lines[8..])], &[]);
        let lines = "// line\n".repeat(1501);
        check_finds(
            file_lines,
            &[("crates/a/tests/b.rs", &lines)],
            &["crates/a/tests/b.rs:1501: 1501 lines"],
        );
    }

    #[test]
    fn long_functions_are_found_wherever_they_stand() {
        let body =
            |name: &str, lines: usize| format!("fn {name}() {{\n{}}}\n", "    work();\n".repeat(lines));
        check_finds(function_lines, &[("a.rs", &body("fits", 68))], &[]);
        check_finds(function_lines, &[("a.rs", &body("long", 69))], &["a.rs:1: function long has 71 lines"]);
        let method = format!("struct S;\nimpl S {{\n    /// Doc.\n    {}}}\n", body("method", 69));
        check_finds(function_lines, &[("a.rs", &method)], &["a.rs:4: function method has 71"]);
        let given = format!("trait T {{\n{}}}\n", body("given", 80));
        check_finds(function_lines, &[("a.rs", &given)], &["a.rs:2: function given has 82"]);
        let test = format!("mod tests {{\n    #[test]\n    {}}}\n", body("test", 69));
        check_finds(function_lines, &[("a.rs", &test)], &["a.rs:3: function test has 71"]);
        let property = format!("proptest! {{\n    #[test]\n    {}}}\n", body("property", 69));
        check_finds(function_lines, &[("a.rs", &property)], &["a.rs:3: function property has 71"]);
        check_finds(function_lines, &[("a.rs", &property.replacen("    work();\n", "", 1))], &[]);
        let nested = format!("fn outer() {{\n{}}}\n", body("inner", 69));
        check_finds(
            function_lines,
            &[("a.rs", &nested)],
            &["a.rs:1: function outer", "a.rs:2: function inner"],
        );
    }

    #[test]
    fn large_files_are_found() {
        let text = "x".repeat((1 << 20) + 1);
        check_finds(
            file_bytes,
            &[("data.bin", &text), ("fits.bin", &text[1..])],
            &["data.bin: 1048577 bytes"],
        );
    }
}
