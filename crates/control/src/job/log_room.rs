//! Limits for standard error of the programs of a job with many tasks, as the history stores it.

/// Bytes stored of an attempt: its last ones.
const ATTEMPT_BYTES_MAX: usize = 24 << 10;
/// Bytes stored of a job: its first ones.
const JOB_BYTES_MAX: usize = 1 << 20;
/// Text after the last stored text.
const FULL: &str = "\n(limit reached: later output of this job is not kept)";

/// Bytes that may still be stored for a job.
#[derive(Clone, Copy, Debug)]
pub struct LogRoom {
    left_bytes: usize,
}

impl Default for LogRoom {
    fn default() -> Self {
        Self { left_bytes: JOB_BYTES_MAX }
    }
}

impl LogRoom {
    /// Returns the text to store for the lines of an attempt; None if there is no text or no room. Neither database
    /// stores a text with a zero byte.
    pub fn text_of(&mut self, lines: &[String]) -> Option<String> {
        if lines.is_empty() || self.left_bytes == 0 {
            return None;
        }
        let mut text = lines.join("\n").replace('\0', "\u{fffd}");
        text.drain(..text.ceil_char_boundary(text.len().saturating_sub(ATTEMPT_BYTES_MAX)));
        let is_full = text.len() >= self.left_bytes;
        self.left_bytes = self.left_bytes.saturating_sub(text.len());
        if is_full {
            text.push_str(FULL);
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::{ATTEMPT_BYTES_MAX, FULL, JOB_BYTES_MAX, LogRoom};

    #[test]
    fn first_lines_of_job_and_last_are_kept() {
        let mut room = LogRoom::default();
        assert_eq!(room.text_of(&[]), None);
        let two = ["a\0b".to_string(), "c".to_string()];
        assert_eq!(room.text_of(&two).as_deref(), Some("a\u{fffd}b\nc"));
        let many = vec!["€".repeat(300); 100];
        let mut kept = 0;
        let last = loop {
            let text = room.text_of(&many).expect("the last one says that it is");
            assert!(text.len() <= ATTEMPT_BYTES_MAX + FULL.len() && !text.is_empty());
            kept += text.len();
            if text.ends_with(FULL) {
                break text;
            }
        };
        assert!(last.starts_with('€') && kept <= JOB_BYTES_MAX + ATTEMPT_BYTES_MAX + FULL.len());
        assert_eq!(room.text_of(&two), None);
    }
}
