//! English that a busy engineer reads once, as far as a program can check it.

use super::Finding;
use super::tree::Tree;

/// Beginnings of sentences without a subject: readers learn the topic only at their end.
const HEADLESS: &[&str] = &["What", "Of", "Where", "Who", "Whose", "That", "One that"];

/// Documents that newcomers read completely, with the maximum number of words of each.
const WORDS_MAX: &[(&str, usize)] =
    &[("README.md", 1000), ("ARCHITECTURE.md", 2800), ("docs/operations.md", 150)];

/// Checks that the entry page, the map and the lists stay short.
pub fn document_words(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, words_max) in WORDS_MAX {
        let words = tree.text(path).unwrap_or("").split_whitespace().count();
        if words > *words_max {
            let message =
                format!("{words} words, at most {words_max} are allowed: move a part to its own page");
            findings.push(Finding::new(path, 0, message));
        }
    }
    findings
}

/// Documents for readers in a hurry.
const SENTENCES_OF: &[&str] = &["README.md", "ARCHITECTURE.md"];
const SENTENCE_WORDS_MAX: usize = 30;

/// Checks that no sentence of the entry page and the map is too long. A code span is one word; code blocks, tables and
/// headings have no sentences.
pub fn sentences(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for path in SENTENCES_OF {
        for (line, paragraph) in paragraphs(tree.text(path).unwrap_or("")) {
            for (sentence_line, sentence) in sentences_of(line, &paragraph) {
                let words = sentence.split_whitespace().filter(|word| *word != "-").count();
                if words > SENTENCE_WORDS_MAX {
                    let start: Vec<&str> = sentence.split_whitespace().take(5).collect();
                    let message = format!(
                        "the sentence \"{} ...\" has {words} words, at most {SENTENCE_WORDS_MAX} are allowed: split it",
                        start.join(" ")
                    );
                    findings.push(Finding::new(path, sentence_line, message));
                }
            }
        }
    }
    findings
}

/// Returns the paragraphs and list items of a document, each with the number of its first line.
fn paragraphs(text: &str) -> Vec<(usize, String)> {
    let mut paragraphs: Vec<(usize, String)> = Vec::new();
    let mut is_open = false;
    let mut is_fenced = false;
    for (index, line) in text.lines().enumerate() {
        if line.starts_with("```") {
            is_fenced = !is_fenced;
        }
        let is_prose = !is_fenced
            && !line.trim().is_empty()
            && !["```", "|", "#", "    "].iter().any(|start| line.starts_with(start));
        let is_item = line.starts_with("- ")
            || line.split_once(". ").is_some_and(|(number, _)| number.parse::<u8>().is_ok());
        match paragraphs.last_mut().filter(|_| is_prose && is_open && !is_item) {
            Some((_, paragraph)) => {
                paragraph.push('\n');
                paragraph.push_str(line);
            }
            None if is_prose => paragraphs.push((index + 1, line.to_string())),
            None => {}
        }
        is_open = is_prose;
    }
    paragraphs
}

/// Returns the sentences of a paragraph, each with the number of its first line: code spans as one word, links as their
/// text.
fn sentences_of(first_line: usize, paragraph: &str) -> Vec<(usize, String)> {
    let mut sentences = Vec::new();
    let mut sentence = String::new();
    let (mut line, mut start_line) = (first_line, first_line);
    let mut letters = paragraph.chars().peekable();
    let mut is_code = false;
    let mut is_target = false;
    while let Some(letter) = letters.next() {
        line += usize::from(letter == '\n');
        if sentence.trim().is_empty() {
            start_line = line;
        }
        match letter {
            '`' => is_code = !is_code,
            letter if is_code => sentence.push(if letter.is_whitespace() { '_' } else { letter }),
            ')' if is_target => is_target = false,
            _ if is_target => {}
            ']' if letters.peek() == Some(&'(') => is_target = true,
            '.' | '!' | '?' if letters.peek().is_none_or(|next| next.is_whitespace() || *next == '*') => {
                sentences.push((start_line, std::mem::take(&mut sentence)));
            }
            letter => sentence.push(letter),
        }
    }
    sentences.push((start_line, sentence));
    sentences
}

/// Checks that paragraphs of doc comments begin with a noun or a verb.
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

/// Returns the text of a line of a doc comment.
fn doc_text(line: &str) -> Option<&str> {
    let line = line.trim_start();
    line.strip_prefix("///").or_else(|| line.strip_prefix("//!")).map(str::trim)
}

/// Returns the beginning of a paragraph that has no subject.
fn headless(text: &str) -> Option<&'static str> {
    let begins = |word: &&&str| text.strip_prefix(**word).is_some_and(|rest| rest.starts_with([' ', ',']));
    HEADLESS.iter().find(begins).copied()
}

#[cfg(test)]
mod tests {
    use super::super::check_finds;
    use super::{doc_comments, document_words, sentences};

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
    fn long_sentences_are_found() {
        let check = |text: &str, expected: &[&str]| check_finds(sentences, &[("README.md", text)], expected);
        let words = |count: usize| vec!["word"; count].join(" ");
        check(&format!("{}.\n\n{}\n{}.\n", words(30), words(15), words(15)), &[]);
        check(
            &format!("{}.\n", words(31)),
            &["README.md:1: the sentence \"word word word word word ...\" has 31"],
        );
        check(&format!("Short. Is\nit? {}\n{}.\n", words(15), words(16)), &["README.md:2: the sentence"]);
        check(&format!("- {}\n- {}\n1. {}\n", words(20), words(20), words(20)), &[]);
        check(&format!("- {}\n  {}\n", words(20), words(20)), &["README.md:1: the sentence \"- word"]);
        check(&format!("`{}` and [{}]({}) {}.\n", words(40), words(10), words(1), words(15)), &[]);
        check(&format!("# {0}\n| {0} |\n\n    {0}\n\n```\n{0}\n```\n", words(40)), &[]);
        check_finds(sentences, &[("docs/other.md", &words(40))], &[]);
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
