//! Comparison of an output with the expected one: lost, repeated and wrong records.

use crate::show::escape;
use anyhow::{Context, ensure};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

/// Maximum number of listed wrong records of an output.
const NAMED_MAX: usize = 5;
/// Maximum bytes of a record that are shown.
const SHOWN_BYTES_MAX: usize = 120;

/// Expected records of an output: each key once, with its value. In jobs that pass records on, the whole line is the
/// key.
#[derive(Debug)]
pub struct Reference {
    /// In order of key.
    records: Vec<(Vec<u8>, Vec<u8>)>,
    has_values: bool,
}

/// Difference between an output and its reference.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judged {
    /// Records of the reference.
    pub records: u64,
    pub lost: u64,
    pub twice: u64,
    pub wrong: u64,
    /// The first of the wrong records.
    pub named: Vec<String>,
}

impl Judged {
    pub fn is_right(&self) -> bool {
        self.lost == 0 && self.twice == 0 && self.wrong == 0
    }

    fn name(&mut self, what: &str, record: &[u8]) {
        if self.named.len() < NAMED_MAX {
            let shown = &record[..record.len().min(SHOWN_BYTES_MAX)];
            self.named.push(format!("{what}: {}", escape::cell(&String::from_utf8_lossy(shown))));
        }
    }
}

impl Reference {
    /// Makes the reference of lines that must come out unchanged, in any order.
    pub fn of_lines(lines: Vec<Vec<u8>>) -> Reference {
        let mut records: Vec<_> = lines.into_iter().map(|line| (line, Vec::new())).collect();
        records.sort_unstable();
        Reference { records, has_values: false }
    }

    /// Makes the reference of keys with values, written `KEY TAB VALUE`.
    pub fn of_values(values: std::collections::BTreeMap<Vec<u8>, u64>) -> Reference {
        let text = |(key, value): (Vec<u8>, u64)| (key, value.to_string().into_bytes());
        Reference { records: values.into_iter().map(text).collect(), has_values: true }
    }

    /// Compares an output. Fails if it is incomplete.
    pub fn judge(&self, output: &Path) -> anyhow::Result<Judged> {
        ensure!(
            output.join("_SUCCESS").exists(),
            "the output {} is incomplete: it has no _SUCCESS",
            output.display()
        );
        let mut seen = vec![0_u32; self.records.len()];
        let mut judged = Judged { records: self.records.len() as u64, ..Judged::default() };
        for part in parts(output)? {
            self.judge_part(&part, &mut seen, &mut judged)
                .with_context(|| format!("reading the output {}", part.display()))?;
        }
        for ((key, _), _) in self.records.iter().zip(&seen).filter(|(_, seen)| **seen == 0) {
            judged.lost += 1;
            judged.name("lost", key);
        }
        Ok(judged)
    }

    fn judge_part(&self, part: &Path, seen: &mut [u32], judged: &mut Judged) -> std::io::Result<()> {
        let mut reader = BufReader::new(File::open(part)?);
        let (mut line, mut before) = (Vec::new(), Vec::new());
        loop {
            line.clear();
            if reader.read_until(b'\n', &mut line)? == 0 {
                return Ok(());
            }
            if line.last() == Some(&b'\n') {
                line.pop();
            }
            let tab = line.iter().position(|byte| *byte == b'\t').unwrap_or(line.len());
            let (sort_key, rest) = line.split_at(tab);
            if sort_key < before.as_slice() {
                judged.wrong += 1;
                judged.name("out of order", &line);
            }
            before.clear();
            before.extend_from_slice(sort_key);
            let (key, value) = match self.has_values {
                true => (sort_key, rest.get(1..).unwrap_or_default()),
                false => (line.as_slice(), &[][..]),
            };
            let found = self.records.binary_search_by(|(known, _)| known.as_slice().cmp(key));
            match found {
                Ok(place) if seen[place] > 0 => {
                    judged.twice += 1;
                    judged.name("twice", &line);
                }
                Ok(place) => {
                    seen[place] = 1;
                    if self.records[place].1 != value {
                        let expected = String::from_utf8_lossy(&self.records[place].1).into_owned();
                        judged.wrong += 1;
                        judged.name(&format!("wrong (not {expected})"), &line);
                    }
                }
                Err(_) => {
                    judged.wrong += 1;
                    judged.name("wrong (not in the input)", &line);
                }
            }
        }
    }
}

fn parts(output: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries =
        std::fs::read_dir(output).with_context(|| format!("listing the output {}", output.display()))?;
    let mut parts = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("part-")) {
            parts.push(path);
        }
    }
    parts.sort();
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::{Judged, Reference};
    use std::collections::BTreeMap;

    fn judged(reference: &Reference, parts: &[&str]) -> Judged {
        let dir = tempfile::tempdir().unwrap();
        for (number, part) in parts.iter().enumerate() {
            std::fs::write(dir.path().join(format!("part-{number:05}")), part).unwrap();
        }
        assert!(reference.judge(dir.path()).is_err(), "without _SUCCESS it is no output");
        std::fs::write(dir.path().join("_SUCCESS"), "").unwrap();
        reference.judge(dir.path()).unwrap()
    }

    #[test]
    fn every_record_is_looked_for() {
        let lines = ["a\t1", "a\t2", "b\t3"].map(|line| line.as_bytes().to_vec());
        let reference = Reference::of_lines(lines.to_vec());
        assert!(judged(&reference, &["a\t2\na\t1\n", "b\t3\n"]).is_right());
        let check = |parts: &[&str], counts: (u64, u64, u64), named: &str| {
            let found = judged(&reference, parts);
            assert_eq!((found.lost, found.twice, found.wrong), counts, "{found:?}");
            assert!(found.named[0].starts_with(named), "{found:?}");
        };
        check(&["a\t1\n", "b\t3\n"], (1, 0, 0), "lost: a");
        check(&["a\t1\na\t2\n", "b\t3\nb\t3\n"], (0, 1, 0), "twice: b");
        check(&["a\t1\na\t2\nb\t4\n"], (1, 0, 1), "wrong (not in the input): b");
        check(&["b\t3\na\t1\na\t2\n"], (0, 0, 1), "out of order: a");
        check(&[], (3, 0, 0), "lost: a");
    }

    #[test]
    fn values_are_compared() {
        let values = BTreeMap::from([(b"x".to_vec(), 3), (b"y".to_vec(), 4)]);
        let reference = Reference::of_values(values);
        assert!(judged(&reference, &["x\t3\n", "y\t4\n"]).is_right());
        let found = judged(&reference, &["x\t2\nx\t3\n"]);
        assert_eq!((found.records, found.lost, found.twice, found.wrong), (2, 1, 1, 1));
        assert!(found.named[0].starts_with("wrong (not 3): x"), "{found:?}");
    }
}
