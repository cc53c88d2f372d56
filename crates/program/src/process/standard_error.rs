//! Reading of a program's standard error: its last lines are kept for the failure, its first bytes for the log, and its
//! reports are parsed.

use crate::reports::{END, LINE_BYTES_MAX, PREFIX, Reports};
use faults::{IoCall, io_call};
use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Lines of standard error that a failure carries.
pub(crate) const TAIL_LINES_MAX: usize = 20;
/// Bytes kept of one such line.
pub(crate) const TAIL_LINE_BYTES_MAX: usize = 1024;
/// Bytes copied into the log of an attempt.
pub(crate) const LOG_BYTES_MAX: usize = 1 << 20;

#[derive(Default)]
struct Tail {
    lines: VecDeque<Vec<u8>>,
    /// True if the last of `lines` has no line end yet.
    open: bool,
}

impl Tail {
    fn add(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if !self.open {
                if self.lines.len() == TAIL_LINES_MAX {
                    self.lines.pop_front();
                }
                self.lines.push_back(Vec::new());
            }
            self.open = !piece.ends_with(b"\n");
            let text = piece.strip_suffix(b"\n").unwrap_or(piece);
            if let Some(line) = self.lines.back_mut() {
                let room = TAIL_LINE_BYTES_MAX - line.len();
                line.extend_from_slice(&text[..text.len().min(room)]);
            }
        }
    }
}

/// Splitter of reports from other lines.
struct Sieve<'a> {
    reports: &'a Reports,
    tail: Tail,
    /// The start of a line that may be a report.
    held: Vec<u8>,
    /// True if the current line is not a report.
    passing: bool,
    /// True if the last line ended the reports about the task.
    has_ended: bool,
}

impl Sieve<'_> {
    fn add(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let ends = piece.ends_with(b"\n");
            self.has_ended = false;
            if self.passing {
                self.tail.add(piece);
                self.passing = !ends;
                continue;
            }
            self.held.extend_from_slice(piece);
            let looked_at = self.held.len().min(PREFIX.len());
            let may_be_report =
                self.held[..looked_at] == PREFIX[..looked_at] && self.held.len() <= LINE_BYTES_MAX;
            if ends && may_be_report {
                self.end_line();
            } else if ends || !may_be_report {
                self.tail.add(&self.held);
                self.held.clear();
                self.passing = !ends;
            }
        }
    }

    /// Parses the held line, or passes it on.
    fn end_line(&mut self) {
        let line = self.held.strip_suffix(b"\n").unwrap_or(&self.held);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        self.has_ended = line == END;
        if !self.has_ended && !self.reports.take(line) {
            self.tail.add(&self.held);
        }
        self.held.clear();
    }
}

/// The first bytes of standard error, in a file that is created with the first byte.
struct Log<'a> {
    /// None: there is no log, or writing it failed.
    path: Option<&'a Path>,
    file: Option<File>,
    room: usize,
}

impl Log<'_> {
    /// Writes to the log. A failure is not an error: the result of the program matters more than its log.
    fn add(&mut self, bytes: &[u8]) {
        let Some(path) = self.path else { return };
        let logged = &bytes[..bytes.len().min(self.room)];
        self.room -= logged.len();
        if self.file.is_none() {
            self.file = open_log(path);
        }
        let asked = io_call(IoCall::Write, path);
        let written = asked.is_ok() && self.file.as_mut().is_some_and(|file| file.write_all(logged).is_ok());
        if !written || self.room == 0 {
            (self.path, self.file) = (None, None);
        }
    }
}

fn open_log(path: &Path) -> Option<File> {
    let not_through_links = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    File::options().create(true).append(true).custom_flags(not_through_links).open(path).ok()
}

/// Reader of standard error, piece by piece.
pub(crate) struct Drain<'a> {
    sieve: Sieve<'a>,
    log: Log<'a>,
}

impl<'a> Drain<'a> {
    pub fn new(log: Option<&'a Path>, reports: &'a Reports) -> Self {
        let sieve =
            Sieve { reports, tail: Tail::default(), held: Vec::new(), passing: false, has_ended: false };
        Self { sieve, log: Log { path: log, file: None, room: LOG_BYTES_MAX } }
    }

    pub fn add(&mut self, bytes: &[u8]) {
        self.sieve.add(bytes);
        self.log.add(bytes);
    }

    /// Adds a line of the engine to the log alone.
    pub fn note(&mut self, line: &str) {
        self.log.add(line.as_bytes());
    }

    /// Returns whether nothing follows the line that ended the reports about the task.
    pub fn has_ended(&self) -> bool {
        self.sieve.has_ended
    }

    /// Returns the last lines that are not reports. None follows.
    pub fn finish(&mut self) -> Vec<String> {
        if !self.sieve.held.is_empty() {
            self.sieve.end_line();
        }
        let lines = self.sieve.tail.lines.iter();
        lines.map(|line| String::from_utf8_lossy(line).into_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Drain, TAIL_LINE_BYTES_MAX};
    use crate::reports::{LINE_BYTES_MAX, Reports};

    /// Returns the last lines of a text that arrives in pieces of some length.
    fn drain_in(piece_bytes: usize, text: &[u8], reports: &Reports) -> Vec<String> {
        let mut drain = Drain::new(None, reports);
        text.chunks(piece_bytes).for_each(|piece| drain.add(piece));
        drain.finish()
    }

    fn drain(text: &[u8]) -> Vec<String> {
        drain_in(8 << 10, text, &Reports::default())
    }

    fn check(text: &[u8], expected: &[&str]) {
        assert_eq!(drain(text), expected);
    }

    #[test]
    fn last_line_marks_the_end_of_task() {
        let check = |text: &[u8], expected: bool| {
            for piece_bytes in [1, 3, text.len()] {
                let reports = Reports::default();
                let mut drain = Drain::new(None, &reports);
                text.chunks(piece_bytes).for_each(|piece| drain.add(piece));
                assert_eq!(drain.has_ended(), expected, "{}", text.escape_ascii());
                assert!(!drain.finish().iter().any(|line| line == "reporter:end"));
            }
        };
        check(b"one\nreporter:end\n", true);
        check(b"reporter:end\r\n", true);
        check(b"reporter:end\nreporter:counter:g,n,1\nreporter:end\n", true);
        for text in
            ["one\n", "reporter:ending\n", "onereporter:end\n", "reporter:end\nmore", "reporter:end\n\n"]
        {
            check(text.as_bytes(), false);
        }
    }

    #[test]
    fn reports_are_taken_out() {
        let text = b"one\nreporter:counter:g,n,2\nrep\nreporter:counter:bad\nreporter:counter:g,n,3\r\n\
            reporter:status:there\nlast";
        let long =
            [b"reporter:status:", &vec![b'x'; LINE_BYTES_MAX][..], b"\nreporter:counter:g,n,5"].concat();
        for text in [&text[..], &long] {
            let (at_once, slowly) = (Reports::default(), Reports::default());
            let tail = drain_in(text.len(), text, &at_once);
            assert_eq!(drain_in(1, text, &slowly), tail);
            assert_eq!((at_once.counters(), at_once.status()), (slowly.counters(), slowly.status()));
            assert_eq!(at_once.counters()["g,n"], 5);
            if text.starts_with(b"one") {
                assert_eq!(tail, ["one", "rep", "reporter:counter:bad", "last"]);
                assert_eq!(at_once.status().as_deref(), Some("there"));
            } else {
                assert_eq!((tail.len(), at_once.status()), (1, None));
            }
        }
    }

    #[test]
    fn the_last_lines_are_kept_and_capped() {
        check(b"", &[]);
        check(b"one\n\ntwo", &["one", "", "two"]);
        check(b"bad \xff byte\n", &["bad \u{fffd} byte"]);
        let many: String = (0..100_000).map(|number| format!("{number}\n")).collect();
        let tail = drain(many.as_bytes());
        assert_eq!((tail.len(), tail[0].as_str(), tail[19].as_str()), (20, "99980", "99999"));
        let long = vec![b'x'; 1 << 20];
        assert_eq!(drain(&long), ["x".repeat(TAIL_LINE_BYTES_MAX)]);
    }
}
