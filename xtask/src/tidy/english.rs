//! English that a busy engineer reads once, as far as a machine can see it.

use super::Finding;
use super::tree::Tree;

/// Beginnings of sentences without a subject: the reader learns at their end what they are about.
const HEADLESS: &[&str] = &["What", "Of", "Where", "Who", "Whose", "That", "One that"];

/// Documents that a newcomer reads whole, with the most words that each may have.
const WORDS_MAX: &[(&str, usize)] =
    &[("README.md", 1000), ("ARCHITECTURE.md", 3000), ("docs/operations.md", 150)];

/// The door, the map and the lists stay short.
pub fn document_words(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, words_max) in WORDS_MAX {
        let words = tree.text(path).unwrap_or("").split_whitespace().count();
        if words > *words_max {
            let message =
                format!("{words} words, at most {words_max} are allowed: move a part to a page of its own");
            findings.push(Finding::new(path, 0, message));
        }
    }
    findings
}

/// Paragraphs of doc comments begin with a noun or a verb.
pub fn doc_comments(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, _) in tree.rust_files() {
        let mut is_inside = false;
        for (index, line) in file.text.as_deref().unwrap_or("").lines().enumerate() {
            let text = doc_text(line);
            if let Some(word) = text.filter(|_| !is_inside).and_then(headless) {
                let message =
                    format!("a doc comment begins with {word:?}: begin with a noun, or with a verb");
                findings.push(Finding::new(&file.path, index + 1, message));
            }
            is_inside = text.is_some_and(|text| !text.is_empty());
        }
    }
    findings
}

/// The text of a line of a doc comment.
fn doc_text(line: &str) -> Option<&str> {
    let line = line.trim_start();
    line.strip_prefix("///").or_else(|| line.strip_prefix("//!")).map(str::trim)
}

/// The beginning of a paragraph that has no subject.
fn headless(text: &str) -> Option<&'static str> {
    let begins = |word: &&&str| text.strip_prefix(**word).is_some_and(|rest| rest.starts_with([' ', ',']));
    HEADLESS.iter().find(begins).copied()
}

#[cfg(test)]
mod tests {
    use super::super::check_finds;
    use super::{doc_comments, document_words};

    #[test]
    fn long_documents_are_found() {
        let text = "a word ".repeat(500);
        check_finds(document_words, &[("README.md", &text), ("docs/other.md", &text.repeat(9))], &[]);
        check_finds(
            document_words,
            &[("README.md", &(text + "more"))],
            &["README.md: 1001 words, at most 1000"],
        );
    }

    #[test]
    fn headless_doc_comments_are_found() {
        let check = |text: &str, expected: &[&str]| check_finds(doc_comments, &[("a.rs", text)], expected);
        check("/// What it holds.\nfn a() {}\n", &["a.rs:1: a doc comment begins with \"What\""]);
        check("//! Of this crate.\n", &["a.rs:1:"]);
        check("struct A {\n    /// One that waits.\n    b: u8,\n}\n", &["a.rs:2:"]);
        check("/// A run.\n///\n/// Where it lies, others may be.\nfn a() {}\n", &["a.rs:3:"]);
        check("/// Content of a file, and\n/// Of what follows.\nfn a() {}\n", &[]);
        check("/// Whatever, Often, Offset.\n/// One thing.\nfn a() {}\n// What is no doc comment.\n", &[]);
    }
}
