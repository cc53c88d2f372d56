//! Generator of text for word counts: a real corpus repeated, with new tokens in every repeat.
//!
//! Plain repetition would favour an engine with combiners, since the vocabulary would stop growing. So from the second
//! repeat on one name in four, chosen by hash, gets the number of the repeat at its end: its frequency stays the same,
//! and the vocabulary grows with the text. Bytes that tools split or decode in different ways (TAB, CR, other control
//! characters, non-ASCII bytes) are replaced, so that every contender sees the same words.

use crate::records::mix;
use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Maximum depth of directories: package trees are shallow, and a loop of links must end.
const DEPTH_MAX: usize = 32;
/// Shorter names are mostly keywords, which do not change from text to text.
const NAME_BYTES_MIN: usize = 4;

/// Writes whole lines until `bytes` are reached, at most one line more. The same corpus gives the same bytes.
pub fn generate(bytes: u64, corpus: &Path, out: &Path) -> Result<()> {
    let mut sources = Vec::new();
    collect_sources(corpus, 0, &mut sources)?;
    let file = File::create(out).with_context(|| format!("create {}", out.display()))?;
    let mut text = Text { output: BufWriter::with_capacity(1 << 20, file), left_bytes: bytes };
    for repeat in 0_u64.. {
        let before_bytes = text.left_bytes;
        for source in &sources {
            if text.left_bytes == 0 {
                return text.output.flush().with_context(|| format!("write {}", out.display()));
            }
            let content = std::fs::read(source).with_context(|| format!("read {}", source.display()))?;
            text.write(&content, repeat).with_context(|| format!("write {}", out.display()))?;
        }
        if text.left_bytes == before_bytes && bytes > 0 {
            bail!("{} holds no text", corpus.display());
        }
    }
    Ok(())
}

struct Text<W> {
    output: W,
    left_bytes: u64,
}

impl<W: Write> Text<W> {
    fn write(&mut self, content: &[u8], repeat: u64) -> std::io::Result<()> {
        let mut written = Vec::new();
        for line in content.split(|byte| *byte == b'\n') {
            if self.left_bytes == 0 {
                return Ok(());
            }
            written.clear();
            vary(line, repeat, &mut written);
            written.push(b'\n');
            self.output.write_all(&written)?;
            self.left_bytes = self.left_bytes.saturating_sub(written.len() as u64);
        }
        Ok(())
    }
}

/// Copies a line, with replaced bytes and varied names.
fn vary(line: &[u8], repeat: u64, written: &mut Vec<u8>) {
    for token in line.chunk_by(|left, right| is_name_byte(*left) == is_name_byte(*right)) {
        if !is_name_byte(token[0]) {
            written.extend(token.iter().map(|byte| plain(*byte)));
            continue;
        }
        written.extend_from_slice(token);
        if repeat > 0 && token.len() >= NAME_BYTES_MIN && hash(token, repeat).is_multiple_of(4) {
            written.extend_from_slice(repeat.to_string().as_bytes());
        }
    }
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn plain(byte: u8) -> u8 {
    match byte {
        b'\t' | b'\r' => b' ',
        b' '..=b'~' => byte,
        _ => b'?',
    }
}

/// Computes FNV-1a, seeded with the repeat, so that each repeat changes other names, and mixed, since names differ in
/// few bits.
fn hash(token: &[u8], repeat: u64) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ mix(repeat);
    mix(token.iter().fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)))
}

/// Lists regular `.rs` files below `directory`, in order of name; links are skipped.
fn collect_sources(directory: &Path, depth: usize, sources: &mut Vec<PathBuf>) -> Result<()> {
    if depth == DEPTH_MAX {
        bail!("{} lies more than {DEPTH_MAX} directories deep", directory.display());
    }
    let entries = fs::read_dir(directory).with_context(|| format!("list {}", directory.display()))?;
    let mut entries = entries.collect::<Result<Vec<_>, _>>().context("list a package")?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let kind = entry.file_type().context("read the type of a file")?;
        let path = entry.path();
        if kind.is_dir() {
            collect_sources(&path, depth + 1, sources)?;
        } else if kind.is_file() && path.extension().is_some_and(|extension| extension == "rs") {
            sources.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{generate, vary};

    fn varied(line: &str, repeat: u64) -> String {
        let mut written = Vec::new();
        vary(line.as_bytes(), repeat, &mut written);
        String::from_utf8(written).unwrap()
    }

    #[test]
    fn first_repeat_is_the_corpus_in_plain_characters() {
        assert_eq!(varied("let name = map[\"a\"];\t// x\r", 0), "let name = map[\"a\"]; // x ");
        assert_eq!(varied("\u{e9}\0", 0), "???");
    }

    #[test]
    fn later_repeats_have_reproducible_names_of_their_own() {
        let line = (0..1000).map(|index| format!("name_{index}")).collect::<Vec<_>>().join(" ");
        let changed = |repeat: u64| {
            let varied = varied(&line, repeat);
            varied.split(' ').zip(line.split(' ')).filter(|(varied, word)| varied != word).count()
        };
        for repeat in [1, 2, 7] {
            assert!((150..350).contains(&changed(repeat)), "{} of 1000 in repeat {repeat}", changed(repeat));
            assert_eq!(varied(&line, repeat), varied(&line, repeat));
        }
        assert_ne!(varied(&line, 1), varied(&line, 2));
        assert_eq!(varied("let fn mut", 3), "let fn mut");
    }

    #[test]
    fn text_ends_with_the_line_reaching_the_size() {
        let directory = tempfile::tempdir().unwrap();
        let corpus = directory.path().join("corpus");
        std::fs::create_dir(&corpus).unwrap();
        std::fs::write(corpus.join("a.rs"), "one line\nanother\n").unwrap();
        let out = directory.path().join("out");
        for bytes in [0, 1, 17, 1000] {
            generate(bytes, &corpus, &out).unwrap();
            let text = std::fs::read(&out).unwrap();
            assert!((bytes..bytes + 16).contains(&(text.len() as u64)), "{bytes}: {}", text.len());
            assert!(text.is_empty() || text.ends_with(b"\n"));
        }
        let empty = directory.path().join("empty");
        std::fs::create_dir(&empty).unwrap();
        assert!(generate(10, &empty, &out).is_err());
    }
}
