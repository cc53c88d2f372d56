//! Reader of a gzip file with several members.

use flate2::bufread::GzDecoder;
use std::io::{BufRead, Read, Result};

/// Magic bytes of a member (RFC 1952, section 2.3.1).
const MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Reader of all members in sequence. Bytes after them that are not a member stay unread, as with `gzip`: tapes and
/// transfers pad files.
pub(crate) struct GzipReader<R> {
    state: Option<State<R>>,
}

enum State<R> {
    Member(Box<GzDecoder<R>>),
    Ended { source: R, has_garbage: bool },
}

impl<R: BufRead> GzipReader<R> {
    pub(crate) fn new(source: R) -> Self {
        Self { state: Some(State::Member(Box::new(GzDecoder::new(source)))) }
    }

    pub(crate) fn source(&self) -> &R {
        match &self.state {
            Some(State::Member(member)) => member.get_ref(),
            Some(State::Ended { source, .. }) => source,
            None => unreachable!("a state is only away while another takes its place"),
        }
    }

    /// Returns whether other bytes follow the last member. Known at the end.
    pub(crate) fn has_garbage(&self) -> bool {
        matches!(self.state, Some(State::Ended { has_garbage: true, .. }))
    }

    /// Continues with the next member, or ends.
    fn go_on(&mut self) -> Result<()> {
        let Some(State::Member(member)) = &mut self.state else { return Ok(()) };
        let head = member.get_mut().fill_buf()?;
        let is_member = head.first() == MAGIC.first() && head.get(1).is_none_or(|byte| *byte == MAGIC[1]);
        let has_garbage = !head.is_empty();
        if let Some(State::Member(member)) = self.state.take() {
            let source = member.into_inner();
            self.state = Some(match is_member {
                true => State::Member(Box::new(GzDecoder::new(source))),
                false => State::Ended { source, has_garbage },
            });
        }
        Ok(())
    }
}

impl<R: BufRead> Read for GzipReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        loop {
            let Some(State::Member(member)) = &mut self.state else { return Ok(0) };
            let count = member.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            self.go_on()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::GzipReader;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::{BufReader, Read, Write};

    fn packed(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn members_are_read_and_trailing_bytes_are_reported() {
        let two = [packed("one\n"), packed(""), packed("two\n")].concat();
        for (behind, has_garbage) in
            [(&b""[..], false), (b"\0\0\0", true), (b"garbage", true), (b"\x1e", true)]
        {
            let bytes = [&two[..], behind].concat();
            for capacity in [1, 2, 7, 1000] {
                let mut reader = GzipReader::new(BufReader::with_capacity(capacity, &bytes[..]));
                let mut text = String::new();
                reader.read_to_string(&mut text).unwrap();
                assert_eq!((text.as_str(), reader.has_garbage()), ("one\ntwo\n", has_garbage), "{behind:?}");
            }
        }
        // A truncated member is not garbage, nor is a damaged one.
        for bytes in [&two[..two.len() - 1], &[&two[..], &[0x1f, 0x8b, 8]].concat()] {
            let mut reader = GzipReader::new(BufReader::new(bytes));
            assert!(reader.read_to_end(&mut Vec::new()).is_err());
        }
    }
}
