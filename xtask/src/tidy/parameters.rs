//! Parameters that a call names: `open(file, Durability::Synced)` says more than `open(file, true)`.

use super::Finding;
use super::tree::Tree;
use syn::visit::{self, Visit};
use syn::{FnArg, GenericArgument, ImplItemFn, ItemFn, PathArguments, Signature, Type, Visibility};

/// No function that other modules call takes a bare `bool` or a tuple, also not behind a reference or in an `Option`.
/// Collections of pairs are data and may stay; a trait's methods are named by the trait.
pub fn named_parameters(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, syntax) in tree.rust_files().filter(|(file, _)| !file.is_test()) {
        let mut visitor = Parameters { path: &file.path, findings: &mut findings };
        visitor.visit_file(syntax);
    }
    findings
}

struct Parameters<'a> {
    path: &'a str,
    findings: &'a mut Vec<Finding>,
}

impl Parameters<'_> {
    fn check(&mut self, visibility: &Visibility, signature: &Signature) {
        if matches!(visibility, Visibility::Inherited) {
            return;
        }
        for input in &signature.inputs {
            let FnArg::Typed(input) = input else { continue };
            let advice = match unnamed(&input.ty) {
                None => continue,
                Some(Unnamed::Bool) => "a bool: take an enum whose variants say what a call asks for",
                Some(Unnamed::Tuple) => "a tuple: take a struct with named fields",
            };
            let line = signature.ident.span().start().line;
            let message = format!("a parameter of fn {} is {advice}", signature.ident);
            self.findings.push(Finding::new(self.path, line, message));
        }
    }
}

impl<'ast> Visit<'ast> for Parameters<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        let is_test = |attribute: &syn::Attribute| {
            attribute.path().is_ident("cfg")
                && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
        };
        if !module.attrs.iter().any(is_test) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.check(&item.vis, &item.sig);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.check(&item.vis, &item.sig);
        visit::visit_impl_item_fn(self, item);
    }
}

/// A type whose values have no name at a call.
enum Unnamed {
    Bool,
    Tuple,
}

/// Looks through parentheses, references and `Option`.
fn unnamed(parameter: &Type) -> Option<Unnamed> {
    match parameter {
        Type::Paren(inner) => unnamed(&inner.elem),
        Type::Reference(reference) => unnamed(&reference.elem),
        Type::Tuple(tuple) if !tuple.elems.is_empty() => Some(Unnamed::Tuple),
        Type::Path(path) => {
            let last = path.path.segments.last()?;
            match &last.arguments {
                PathArguments::None if last.ident == "bool" => Some(Unnamed::Bool),
                PathArguments::AngleBracketed(arguments) if last.ident == "Option" => {
                    let GenericArgument::Type(inner) = arguments.args.first()? else { return None };
                    unnamed(inner)
                }
                _ => None,
            }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::check_finds;
    use super::named_parameters;

    #[test]
    fn unnamed_parameters_are_found() {
        let check =
            |text: &str, expected: &[&str]| check_finds(named_parameters, &[("a.rs", text)], expected);
        check("pub fn a(b: u8, c: bool) {}", &["a.rs:1: a parameter of fn a is a bool"]);
        check("pub(crate) async fn a(b: Option<bool>) {}", &["a.rs:1: a parameter of fn a is a bool"]);
        check("struct S;\nimpl S {\n    pub(super) fn a(&self, b: &mut bool) {}\n}", &["a.rs:3:"]);
        check("pub fn a((b, c): (u8, u8)) {}", &["a.rs:1: a parameter of fn a is a tuple"]);
        check("pub fn a(b: &(u8, &str), c: Option<(u8, u8)>) {}", &["a.rs:1:", "a.rs:1:"]);
        check("mod b {\n    pub fn a(b: bool) {}\n}", &["a.rs:2:"]);
    }

    #[test]
    fn named_parameters_are_not_found() {
        let check = |path: &str, text: &str| check_finds(named_parameters, &[(path, text)], &[]);
        check("a.rs", "fn a(b: bool, c: (u8, u8)) {}");
        check("a.rs", "pub fn a(b: &[(u8, u8)], c: Vec<bool>, d: &(dyn Error + 'static), e: ()) {}");
        check("a.rs", "pub fn a(b: impl Fn(bool) -> bool, c: &mut (impl T + ?Sized)) -> (bool, u8) {}");
        check("a.rs", "impl T for S {\n    fn a(b: bool) {}\n}\npub trait T {\n    fn a(b: bool);\n}");
        check("a.rs", "#[cfg(test)]\nmod tests {\n    pub fn a(b: bool) {}\n}");
        check("tests/a.rs", "pub fn a(b: bool) {}");
    }
}
