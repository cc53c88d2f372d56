//! The room in the history for what the programs of a job of many tasks write to standard error.

/// Most that is kept of an attempt, the last of it.
const ATTEMPT_BYTES_MAX: usize = 24 << 10;
/// Most that is kept of a job, the first of it.
const JOB_BYTES_MAX: usize = 1 << 20;
/// Text behind the last text that is kept.
const FULL: &str = "\n(no more is kept of what this job writes)";

/// Room that is left for the texts of a job.
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
    /// The text to keep of the lines of an attempt; None where there is none, or no room. Neither database keeps a text with a zero in it.
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
