//! Reads of files that lie on this machine: each request is answered from the buffer in which its blocks were verified,
//! while it is still in the cache of the processor.

use filestore::{FileReader, FilesError};
use std::io::Write;
use std::ops::Range;

/// Gives all bytes of a range to `answer`, once: without a copy where the reader has them in one piece. The error is None
/// if the reader gave fewer.
pub(crate) fn read_whole(
    reader: &dyn FileReader,
    range: Range<u64>,
    answer: &mut dyn FnMut(&[u8]),
) -> Result<(), Option<FilesError>> {
    let wanted = range.end - range.start;
    if wanted == 0 {
        answer(&[]);
        return Ok(());
    }
    let mut sink = WholeSink { wanted: wanted as usize, held: Vec::new(), has_answered: false, answer };
    reader.read(range.start, wanted, &mut sink)?;
    match sink.has_answered {
        true => Ok(()),
        false => Err(None),
    }
}

/// A receiver of all bytes of a range.
struct WholeSink<'a> {
    wanted: usize,
    held: Vec<u8>,
    has_answered: bool,
    answer: &'a mut dyn FnMut(&[u8]),
}

impl Write for WholeSink<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let whole = match self.held.is_empty() && bytes.len() == self.wanted {
            true => bytes,
            false => {
                self.held.reserve_exact(self.wanted.saturating_sub(self.held.len()));
                self.held.extend_from_slice(bytes);
                &self.held
            }
        };
        if whole.len() == self.wanted && !self.has_answered {
            (self.answer)(whole);
            self.has_answered = true;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::read_whole;
    use filestore::{FileReader, FilesError};
    use std::io::Write;

    /// A file of ten bytes that comes in pieces of this length, and has a damaged byte.
    struct Pieces {
        bytes: usize,
        damaged: u64,
    }

    impl FileReader for Pieces {
        fn read(&self, offset: u64, bytes_max: u64, out: &mut dyn Write) -> Result<(), FilesError> {
            let wanted: Vec<u8> = (0..10).skip(offset as usize).take(bytes_max as usize).collect();
            for piece in wanted.chunks(self.bytes) {
                if piece.contains(&(self.damaged as u8)) {
                    return Err(FilesError::Thread(std::io::ErrorKind::InvalidData.into()));
                }
                let path = "test".into();
                out.write_all(piece).map_err(|source| FilesError::Io { action: "write", path, source })?;
            }
            Ok(())
        }

        fn is_near(&self) -> bool {
            true
        }

        fn backing(&self) -> Option<std::fs::File> {
            None
        }
    }

    #[test]
    fn ranges_are_answered_once_and_whole() {
        for bytes in [1, 3, 10] {
            let file = Pieces { bytes, damaged: 9 };
            let answers = |range| {
                let mut answers = Vec::new();
                let read = read_whole(&file, range, &mut |bytes| answers.push(bytes.to_vec()));
                (read.map_err(|error| error.is_some()), answers)
            };
            assert_eq!(answers(2..8), (Ok(()), vec![(2..8).collect()]), "{bytes}");
            assert_eq!(answers(4..4), (Ok(()), vec![vec![]]));
            // Nothing is answered before all of it is verified, nor if the file is shorter.
            assert_eq!(answers(2..10), (Err(true), vec![]));
            let short = Pieces { bytes, damaged: 99 };
            let mut count = 0;
            assert!(matches!(read_whole(&short, 2..12, &mut |_| count += 1), Err(None)) && count == 0);
        }
    }
}
