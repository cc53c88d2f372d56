//! The payload of a spool (`docs/formats/stage-file.md`): the appended frames of a map attempt, one after the other,
//! those of each I-file in the order of their numbers. It is read from front to end, once.

use crate::error::FormatError;
use crate::frame::{FRAME_HEADER_BYTES, FrameHeader};
use crate::record::KeyShape;
use ids::{IfileIndex, Source};
use std::collections::BTreeMap;
use std::fmt;
use std::io::{ErrorKind, Read};

/// Requirements for the frames of a spool.
#[derive(Clone, Copy, Debug)]
pub struct SpoolOf {
    pub source: Source,
    pub key_shape: KeyShape,
    pub payload_bytes_max: u64,
}

/// Error of a spool that cannot be read further.
#[derive(Debug)]
pub enum SpoolError {
    Read(std::io::Error),
    Format(FormatError),
    /// The spool ends in the middle of a frame.
    Cut,
    /// A frame belongs to another attempt, or has another shape of keys.
    Foreign(Source),
    OutOfTurn {
        ifile: IfileIndex,
        sequence: u64,
        expected: u64,
    },
    /// A frame has too many bytes.
    TooLarge(u64),
}

impl fmt::Display for SpoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(error) => write!(f, "{error}"),
            Self::Format(error) => write!(f, "{error}"),
            Self::Cut => write!(f, "it ends in the middle of a frame"),
            Self::Foreign(source) => write!(f, "a frame of {source}, which does not belong to its attempt"),
            Self::OutOfTurn { ifile, sequence, expected } => {
                write!(f, "frame {sequence} of {ifile} where {expected} should be")
            }
            Self::TooLarge(bytes) => write!(f, "a frame of {bytes} bytes"),
        }
    }
}

impl std::error::Error for SpoolError {
    /// Returns the cause of the problem. The text of this error already holds the problem itself.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read(error) => error.source(),
            Self::Format(error) => error.source(),
            _ => None,
        }
    }
}

impl From<FormatError> for SpoolError {
    fn from(error: FormatError) -> Self {
        Self::Format(error)
    }
}

/// The frames of a spool.
pub struct SpoolFrames<R> {
    of: SpoolOf,
    reader: R,
    /// The number of the next frame of each I-file.
    next: BTreeMap<IfileIndex, u64>,
    payload: Vec<u8>,
}

impl<R: Read> SpoolFrames<R> {
    pub fn new(of: SpoolOf, reader: R) -> Self {
        Self { of, reader, next: BTreeMap::new(), payload: Vec::new() }
    }

    /// Returns the next frame, with its payload verified but not its records; None at the end.
    pub fn next_frame(&mut self) -> Result<Option<(FrameHeader, &[u8])>, SpoolError> {
        let mut front = [0; FRAME_HEADER_BYTES];
        if !fill(&mut self.reader, &mut front)? {
            return Ok(None);
        }
        let header = FrameHeader::decode(&front)?;
        if header.source != self.of.source || header.key_shape != self.of.key_shape {
            return Err(SpoolError::Foreign(header.source));
        }
        let (ifile, sequence) = (header.ifile, header.sequence);
        let expected = self.next.entry(ifile).or_default();
        if sequence != *expected {
            return Err(SpoolError::OutOfTurn { ifile, sequence, expected: *expected });
        }
        *expected += 1;
        let bytes = header.sum.bytes;
        let length = usize::try_from(bytes).ok().filter(|_| bytes <= self.of.payload_bytes_max);
        self.payload.resize(length.ok_or(SpoolError::TooLarge(bytes))?, 0);
        if !fill(&mut self.reader, &mut self.payload)? && bytes > 0 {
            return Err(SpoolError::Cut);
        }
        header.check_payload(&self.payload)?;
        Ok(Some((header, &self.payload)))
    }
}

/// Fills the buffer; false at the end.
fn fill(reader: &mut impl Read, buffer: &mut [u8]) -> Result<bool, SpoolError> {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..]) {
            Ok(0) if filled == 0 => return Ok(false),
            Ok(0) => return Err(SpoolError::Cut),
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(SpoolError::Read(error)),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::{SpoolError, SpoolFrames, SpoolOf};
    use crate::{FrameHeader, KeyShape};
    use ids::{AttemptNumber, Source, TaskIndex};

    /// Frames of one attempt, alternating between three I-files (`tests/golden.rs`).
    const SPOOL: &[u8] = include_bytes!("../test_data/v2/spool.part");
    const SOURCE: Source = Source { map_task: TaskIndex(0), attempt: AttemptNumber(0) };
    const OF: SpoolOf = SpoolOf { source: SOURCE, key_shape: KeyShape::Whole, payload_bytes_max: 1 << 20 };

    type Frame = (FrameHeader, Vec<u8>);

    fn bytes_of(frames: &[Frame]) -> Vec<u8> {
        frames.iter().flat_map(|(header, payload)| [&header.encode()[..], payload].concat()).collect()
    }

    fn read(bytes: &[u8]) -> Result<Vec<Frame>, SpoolError> {
        let mut shown = Vec::new();
        let mut frames = SpoolFrames::new(OF, bytes);
        while let Some((header, payload)) = frames.next_frame()? {
            shown.push((header, payload.to_vec()));
        }
        Ok(shown)
    }

    #[test]
    fn each_flip_is_found() {
        for (index, bit) in (0..SPOOL.len()).flat_map(|index| (0..8).map(move |bit| (index, bit))) {
            let mut damaged = SPOOL.to_vec();
            damaged[index] ^= 1 << bit;
            assert!(read(&damaged).is_err(), "bit {bit} of byte {index}");
        }
    }

    #[test]
    fn each_cut_leaves_whole_frames_or_is_found() {
        let all = read(SPOOL).unwrap();
        let ends: Vec<usize> = (0..=all.len()).map(|count| bytes_of(&all[..count]).len()).collect();
        for length in 0..=SPOOL.len() {
            let found = read(&SPOOL[..length]);
            match ends.iter().position(|end| *end == length) {
                Some(count) => assert_eq!(found.unwrap(), all[..count]),
                None => assert!(found.is_err(), "cut at {length}"),
            }
        }
    }

    #[test]
    fn misplaced_frames_of_spool_are_found() {
        let check = |frames: &[&Frame], word: &str| {
            let frames: Vec<Frame> = frames.iter().copied().cloned().collect();
            let error = read(&bytes_of(&frames)).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        };
        let all = read(SPOOL).unwrap();
        let (first, second) = (&all[0], &all[3]);
        check(&[second], "frame 1 of ifile-0 where 0 should be");
        check(&[first, first], "frame 0 of ifile-0 where 1 should be");
        let mut other = first.clone();
        other.0.source.attempt = AttemptNumber(2);
        check(&[&other], "map 0 attempt 2, which does not belong");
        let mut large = first.clone();
        large.0.sum.bytes = u64::MAX;
        check(&[&large], "a frame of 18446744073709551615 bytes");
    }
}
