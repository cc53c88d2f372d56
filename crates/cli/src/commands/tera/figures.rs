//! valsort's figures for files, and the first violation of the order.

use super::sums::Judge;
use serde_json::{Value, json};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tera::Summary;

/// The figures of a file.
#[derive(Clone, Debug)]
pub struct FileFigures {
    pub path: PathBuf,
    pub summary: Summary,
}

/// Files, in the order in which they should be sorted.
#[derive(Clone, Debug)]
pub struct Figures {
    pub files: Vec<FileFigures>,
    pub elapsed: Duration,
}

/// The first record that is smaller than the one before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disorder {
    pub path: PathBuf,
    /// Number of the record, counted from 0 within the file.
    pub record: u64,
    /// The previous file, if the order is violated between the two.
    pub after: Option<PathBuf>,
}

impl fmt::Display for Disorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Disorder { path, record, after } = self;
        let path = path.display();
        match after {
            None => write!(f, "record {record} of {path} is smaller than the record before it"),
            Some(before) => {
                let before = before.display();
                write!(f, "record {record} of {path} is smaller than the last record of {before}")
            }
        }
    }
}

impl Figures {
    /// Returns the figures of all files, one after the other.
    pub fn total(&self) -> Summary {
        let mut total = Summary::new();
        self.files.iter().for_each(|file| total.append(&file.summary));
        total
    }

    /// Returns the first violation of the order, within a file or between two.
    pub fn disorder(&self) -> Option<Disorder> {
        let mut before: Option<&FileFigures> = None;
        for file in self.files.iter().filter(|file| file.summary.records() > 0) {
            if let Some(previous) = before
                && file.summary.first_key() < previous.summary.last_key()
            {
                let after = Some(previous.path.clone());
                return Some(Disorder { path: file.path.clone(), record: 0, after });
            }
            if let Some(record) = file.summary.first_unordered() {
                return Some(Disorder { path: file.path.clone(), record, after: None });
            }
            before = Some(file);
        }
        None
    }

    /// Returns valsort's lines.
    pub fn text(&self, judge: Judge) -> String {
        lines(&self.total(), judge).iter().map(|line| format!("{line}\n")).collect()
    }

    /// Returns valsort's lines, preceded by a block for each file.
    pub fn text_by_file(&self, judge: Judge) -> String {
        let mut text = String::new();
        for file in &self.files {
            text.push_str(&format!("{}\n", file.path.display()));
            lines(&file.summary, judge).iter().for_each(|line| text.push_str(&format!("  {line}\n")));
        }
        text + &self.text(judge)
    }

    /// Returns the same as JSON.
    pub fn json(&self) -> String {
        let mut value = summary_json(&self.total());
        let file = |file: &FileFigures| {
            let mut value = summary_json(&file.summary);
            value["path"] = json!(path_text(&file.path));
            value
        };
        value["files"] = self.files.iter().map(file).collect();
        value["seconds"] = json!(self.elapsed.as_secs_f64());
        if let Some(disorder) = self.disorder() {
            value["disorder"] = json!({
                "path": path_text(&disorder.path),
                "record": disorder.record,
                "after": disorder.after.as_deref().map(path_text),
            });
        }
        format!("{value:#}")
    }
}

fn path_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn summary_json(summary: &Summary) -> Value {
    json!({
        "records": summary.records(),
        "checksum": summary.checksum().to_string(),
        "ordered": summary.is_ordered(),
        "duplicates": summary.duplicates(),
        "unordered": summary.unordered(),
        "first_unordered": summary.first_unordered(),
    })
}

fn lines(summary: &Summary, judge: Judge) -> Vec<String> {
    let validates = judge == Judge::Validate;
    let mut lines = Vec::new();
    if let Some(record) = summary.first_unordered().filter(|_| validates) {
        lines.push(format!("First unordered record is record {record}"));
    }
    lines.push(format!("Records: {}", summary.records()));
    lines.push(format!("Checksum: {}", summary.checksum()));
    if summary.is_ordered() {
        lines.push(format!("Duplicate keys: {}", summary.duplicates()));
    }
    match (validates, summary.unordered()) {
        (true, 0) => lines.push("SUCCESS - all records are in order".to_string()),
        (true, unordered) => lines.push(format!("ERROR - there are {unordered} unordered records")),
        (false, 0) => {}
        (false, unordered) => lines.push(format!("Unordered records: {unordered}")),
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::{Figures, FileFigures, Judge};
    use std::time::Duration;
    use tera::Summary;

    fn figures(files: &[&[u8]]) -> Figures {
        let file = |(index, keys): (usize, &&[u8])| {
            let mut summary = Summary::new();
            keys.iter().for_each(|key| summary.add_rows(&[*key; 100]).unwrap());
            FileFigures { path: format!("f{index}").into(), summary }
        };
        Figures { files: files.iter().enumerate().map(file).collect(), elapsed: Duration::ZERO }
    }

    fn check(files: &[&[u8]], disorder: Option<&str>, last_line: &str) {
        let figures = figures(files);
        assert_eq!(figures.disorder().map(|found| found.to_string()).as_deref(), disorder);
        let text = figures.text(Judge::Validate);
        assert_eq!(text.lines().last(), Some(last_line), "{text}");
    }

    #[test]
    fn order_is_checked_within_and_across_files() {
        let success = "SUCCESS - all records are in order";
        check(&[b"ab", b"", b"bc"], None, success);
        check(
            &[b"ab", b"cbd"],
            Some("record 1 of f1 is smaller than the record before it"),
            "ERROR - there are 1 unordered records",
        );
        check(
            &[b"ab", b"", b"ac", b"a"],
            Some("record 0 of f2 is smaller than the last record of f0"),
            "ERROR - there are 2 unordered records",
        );
    }

    #[test]
    fn lines_are_those_of_valsort() {
        let text = figures(&[b"ab", b"ba"]).text_by_file(Judge::Validate);
        let expected = "f0\n  Records: 2\n  Checksum: ";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.contains("\nFirst unordered record is record 3\nRecords: 4\nChecksum: "), "{text}");
        let text = figures(&[b"ab", b"ba"]).text(Judge::SumUp);
        assert!(text.ends_with("Unordered records: 1\n") && !text.contains("ERROR"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&figures(&[b"ba"]).json()).unwrap();
        assert_eq!(json["disorder"]["record"], 1);
        assert_eq!((&json["records"], &json["files"][0]["path"]), (&2.into(), &"f0".into()));
    }
}
