//! Splits of a fixed number of lines, like Hadoop's NLineInputFormat.

use crate::input;
use api::{InputFile, Segment, Split};
use memchr::memchr_iter;
use std::io::{ErrorKind, Read};
use std::path::PathBuf;

/// Maximum number of splits: each is a task with its own rows in the store.
pub const LINE_SPLITS_MAX: usize = 100_000;
const BUFFER_BYTES: usize = 1 << 20;

/// Error of inputs that cannot be cut by lines.
#[derive(Debug, thiserror::Error)]
pub enum LineSplitError {
    #[error("{} is compressed: only plain files can be cut after every {lines} lines", path.display())]
    Compressed { path: PathBuf, lines: u32 },
    #[error("cannot read {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error(
        "{lines} lines per map task make more than {LINE_SPLITS_MAX} tasks: give each task more \
             lines"
    )]
    TooMany { lines: u32 },
}

/// Makes splits of `lines` lines of one file each; the last one of a file has the rest. Reads every input once.
pub fn plan_lines(inputs: &[InputFile], lines: u32) -> Result<Vec<Split>, LineSplitError> {
    let mut splits = Vec::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    for (file_index, input) in inputs.iter().enumerate() {
        if input.compression.is_some() {
            return Err(LineSplitError::Compressed { path: input.path.clone(), lines });
        }
        let file_index = u32::try_from(file_index).expect("an input list has fewer than 2^32 files");
        let mut add = |start: u64, end: u64| -> Result<(), LineSplitError> {
            if splits.len() == LINE_SPLITS_MAX {
                return Err(LineSplitError::TooMany { lines });
            }
            let segment = Segment { file_index, offset_bytes: start, length_bytes: end - start };
            splits.push(Split { segments: vec![segment] });
            Ok(())
        };
        let unreadable = |source| LineSplitError::Unreadable { path: input.path.clone(), source };
        // The reader refuses bytes that were appended after the file was pinned.
        let mut file = input::open(input).map_err(unreadable)?.take(input.size_bytes);
        let (mut start, mut offset, mut lines_seen) = (0, 0, 0);
        loop {
            let count = match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(unreadable(error)),
            };
            for line_end in memchr_iter(b'\n', &buffer[..count]) {
                lines_seen += 1;
                if lines_seen == lines {
                    let end = offset + line_end as u64 + 1;
                    add(start, end)?;
                    (start, lines_seen) = (end, 0);
                }
            }
            offset += count as u64;
        }
        if start < input.size_bytes {
            add(start, input.size_bytes)?;
        }
    }
    Ok(splits)
}

#[cfg(test)]
mod tests {
    use super::plan_lines;
    use crate::input;

    #[test]
    fn lines_are_counted_in_each_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).to_str().unwrap().to_string();
        std::fs::write(path("a"), "1\n22\n\n4\nno end").unwrap();
        std::fs::write(path("b"), "").unwrap();
        std::fs::write(path("c"), "x\ny\n").unwrap();
        let inputs = input::list(&[path("a"), path("b"), path("c")]).unwrap();
        let check = |lines: u32, expected: &[(u32, u64, u64)]| {
            let splits = plan_lines(&inputs, lines).unwrap();
            let rows: Vec<_> = splits.iter().flat_map(|split| &split.segments).collect();
            let rows: Vec<_> = rows.iter().map(|s| (s.file_index, s.offset_bytes, s.length_bytes)).collect();
            assert_eq!(rows, expected, "{lines} lines");
        };
        check(2, &[(0, 0, 5), (0, 5, 3), (0, 8, 6), (2, 0, 4)]);
        check(1, &[(0, 0, 2), (0, 2, 3), (0, 5, 1), (0, 6, 2), (0, 8, 6), (2, 0, 2), (2, 2, 2)]);
        check(100, &[(0, 0, 14), (2, 0, 4)]);
    }

    #[test]
    fn compressed_files_cannot_be_cut() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.gz").to_str().unwrap().to_string();
        std::fs::write(&path, b"\x1f\x8b\x08").unwrap();
        let error = plan_lines(&input::list(&[path]).unwrap(), 3).unwrap_err().to_string();
        assert!(error.contains("x.gz is compressed"), "{error}");
    }
}
