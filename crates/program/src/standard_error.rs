//! Draining a program's standard error: its last lines are kept for the failure, its first bytes for the log.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Write};

/// Lines of standard error that a failure carries.
pub(crate) const TAIL_LINES_MAX: usize = 20;
/// Bytes kept of one such line.
pub(crate) const TAIL_LINE_BYTES_MAX: usize = 1024;
/// Bytes copied into the log of an attempt.
pub(crate) const LOG_BYTES_MAX: usize = 1 << 20;

#[derive(Default)]
struct Tail {
    lines: VecDeque<Vec<u8>>,
    /// Whether the last of `lines` has not seen its line end yet.
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

/// Reads to the end and returns the last lines. A log that cannot be written is given up, not an error:
/// the program's own fate matters more than its log.
pub(crate) fn drain(mut source: impl Read, mut log: Option<File>) -> Vec<String> {
    let mut tail = Tail::default();
    let mut log_room = LOG_BYTES_MAX;
    let mut buffer = [0; 8 << 10];
    loop {
        let bytes = match source.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => &buffer[..count],
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        tail.add(bytes);
        let logged = &bytes[..bytes.len().min(log_room)];
        log_room -= logged.len();
        if let Some(file) = &mut log
            && (logged.is_empty() || file.write_all(logged).is_err())
        {
            log = None;
        }
    }
    tail.lines.iter().map(|line| String::from_utf8_lossy(line).into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::{TAIL_LINE_BYTES_MAX, drain};

    fn check(text: &[u8], expected: &[&str]) {
        assert_eq!(drain(text, None), expected);
    }

    #[test]
    fn the_last_lines_are_kept_and_capped() {
        check(b"", &[]);
        check(b"one\n\ntwo", &["one", "", "two"]);
        check(b"bad \xff byte\n", &["bad \u{fffd} byte"]);
        let many: String = (0..100_000).map(|number| format!("{number}\n")).collect();
        let tail = drain(many.as_bytes(), None);
        assert_eq!((tail.len(), tail[0].as_str(), tail[19].as_str()), (20, "99980", "99999"));
        let long = vec![b'x'; 1 << 20];
        assert_eq!(drain(&long[..], None), ["x".repeat(TAIL_LINE_BYTES_MAX)]);
    }
}
