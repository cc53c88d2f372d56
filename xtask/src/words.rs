//! Check of word counts without any code of the product.
//!
//! Counts are summed as count times hash of the word, modulo 2^64: the sum does not depend on the order, on partial
//! counts or on the number of files, so one sum of the text fits all outputs.

use anyhow::{Context, Result, bail};
use std::collections::HashSet;
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::{BufRead, BufReader};
use std::path::Path;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WordSums {
    /// Number of words and of distinct words; for counts, the sum of all counts, and the lines.
    pub words: u64,
    pub distinct: u64,
    pub sum: u64,
}

impl WordSums {
    fn add(&mut self, word: &[u8], count: u64) {
        let mut hasher = DefaultHasher::new();
        hasher.write(word);
        self.words += count;
        self.sum = self.sum.wrapping_add(hasher.finish().wrapping_mul(count));
    }

    /// Formats words, distinct words and sum as one line.
    pub fn line(&self) -> String {
        format!("{}\t{}\t{:016x}", self.words, self.distinct, self.sum)
    }
}

/// Sums the words of a text: runs of bytes that are not ASCII space.
pub fn of_text(path: &Path) -> Result<WordSums> {
    let mut sums = WordSums::default();
    let mut distinct: HashSet<Vec<u8>> = HashSet::new();
    for_each_line(path, |line| {
        for word in line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty()) {
            sums.add(word, 1);
            if !distinct.contains(word) {
                distinct.insert(word.to_vec());
            }
        }
        Ok(())
    })?;
    sums.distinct = distinct.len() as u64;
    Ok(sums)
}

/// Sums lines WORD TAB COUNT. If equal words were counted separately, `distinct` is larger than that of the text.
pub fn of_counts(paths: &[impl AsRef<Path>]) -> Result<WordSums> {
    let mut sums = WordSums::default();
    for path in paths {
        for_each_line(path.as_ref(), |line| {
            let tab = line.iter().rposition(|byte| *byte == b'\t').context("find the TAB of a count")?;
            let count = std::str::from_utf8(&line[tab + 1..]).context("read a count")?;
            let Ok(count) = count.parse() else { bail!("{count:?} is not a count") };
            sums.add(&line[..tab], count);
            sums.distinct += 1;
            Ok(())
        })?;
    }
    Ok(sums)
}

fn for_each_line(path: &Path, mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
    let mut reader = BufReader::with_capacity(1 << 20, file);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read_bytes =
            reader.read_until(b'\n', &mut line).with_context(|| format!("read {}", path.display()))?;
        if read_bytes == 0 {
            return Ok(());
        }
        each(line.strip_suffix(b"\n").unwrap_or(&line))
            .with_context(|| format!("check {}", path.display()))?;
    }
}

#[cfg(test)]
mod tests {
    use super::{of_counts, of_text};

    #[test]
    fn counts_fit_their_text_however_they_were_counted() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str, content: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, content).unwrap();
            path
        };
        let text = of_text(&path("text", " a b  a\n\nc\ta\n")).unwrap();
        assert_eq!((text.words, text.distinct), (5, 3));
        let counted = [path("part-0", "b\t1\na\t3\n"), path("part-1", "c\t1\n")];
        assert_eq!(of_counts(&counted).unwrap(), text);
        let pairs = of_counts(&[path("pairs", "a\t1\na\t1\na\t1\nb\t1\nc\t1\n")]).unwrap();
        assert_eq!((pairs.words, pairs.sum, pairs.distinct), (text.words, text.sum, 5));
        let wrong = of_counts(&[path("wrong", "b\t1\na\t1\nc\t3\n")]).unwrap();
        assert!(wrong.words == text.words && wrong.sum != text.sum);
        assert!(of_counts(&[path("bad", "a 1\n")]).is_err());
        assert!(of_counts(&[path("bad", "a\tx\n")]).is_err());
    }
}
