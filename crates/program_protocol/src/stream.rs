//! The frames of a program's output, one after the other.

use crate::head::{FRAME_HEAD_BYTES, FrameKind, decode};
use std::io::{ErrorKind, Read};

/// Reason why a stream is invalid.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    #[error(
        "it begins with \"{}\", which is no head of a frame; does the program print to its standard output?",
        head.escape_ascii()
    )]
    NoHead { head: [u8; FRAME_HEAD_BYTES] },
    #[error("it has {payload_bytes} bytes, more than the limit of {payload_bytes_max}")]
    TooLong { payload_bytes: u32, payload_bytes_max: u64 },
    #[error("it cannot be read")]
    Io(#[source] std::io::Error),
}

/// Reader of a program's output.
pub struct FromProgram<R> {
    source: R,
    payload: Vec<u8>,
    payload_bytes_max: u64,
    /// Bytes of the buffer that stay allocated for the next frame.
    kept_bytes: usize,
}

impl<R: Read> FromProgram<R> {
    /// Makes a reader that accepts payloads of at most `payload_bytes_max`.
    pub fn new(source: R, payload_bytes_max: u64, kept_bytes: usize) -> Self {
        Self { source, payload: Vec::new(), payload_bytes_max, kept_bytes }
    }

    /// Returns the next frame; None if the stream ends before the frame is complete. The exit code of the program
    /// explains an end within a frame.
    pub fn next_frame(&mut self) -> Result<Option<(FrameKind, &[u8])>, FrameError> {
        let mut head = [0; FRAME_HEAD_BYTES];
        if !self.fill(&mut head)? {
            return Ok(None);
        }
        let (kind, payload_bytes) = decode(head).ok_or(FrameError::NoHead { head })?;
        if u64::from(payload_bytes) > self.payload_bytes_max {
            let payload_bytes_max = self.payload_bytes_max;
            return Err(FrameError::TooLong { payload_bytes, payload_bytes_max });
        }
        let mut payload = std::mem::take(&mut self.payload);
        payload.clear();
        payload.shrink_to(self.kept_bytes);
        payload.resize(payload_bytes as usize, 0);
        let is_whole = self.fill(&mut payload);
        self.payload = payload;
        Ok(is_whole?.then_some((kind, &self.payload)))
    }

    /// Returns whether the stream has ended.
    pub fn is_at_end(&mut self) -> Result<bool, FrameError> {
        self.fill(&mut [0]).map(|is_there| !is_there)
    }

    /// Fills the buffer; false if the source ends before.
    fn fill(&mut self, mut buffer: &mut [u8]) -> Result<bool, FrameError> {
        while !buffer.is_empty() {
            match self.source.read(buffer) {
                Ok(0) => return Ok(false),
                Ok(count) => buffer = &mut buffer[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(FrameError::Io(error)),
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::FromProgram;
    use crate::{FrameKind, head};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_come_back_until_they_are_cut_off(
            payloads: Vec<Vec<u8>>,
            kinds: [prop::sample::Index; 8],
            cut: prop::sample::Index,
        ) {
            let kind = |index: usize| *kinds[index % 8].get(&FrameKind::FROM_PROGRAM);
            let mut bytes = Vec::new();
            let mut ends = Vec::new();
            for (index, payload) in payloads.iter().enumerate() {
                bytes.extend(head(kind(index), payload.len()).unwrap());
                bytes.extend(payload);
                ends.push(bytes.len());
            }
            let cut = cut.index(bytes.len() + 1);
            let mut frames = FromProgram::new(&bytes[..cut], 1 << 20, 16);
            let whole = ends.iter().take_while(|end| **end <= cut).count();
            for (index, expected) in payloads.iter().take(whole).enumerate() {
                let (found, payload) = frames.next_frame().unwrap().unwrap();
                prop_assert_eq!((found, payload), (kind(index), expected.as_slice()));
            }
            prop_assert!(frames.next_frame().unwrap().is_none());
        }
    }
}
