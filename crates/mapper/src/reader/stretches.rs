//! Descriptions of the stretches of a split for a program, which reads them by itself: a line of JSON for each.

use crate::input;
use crate::input::source::Opening;
use crate::input::stored;
use crate::reader::Segments;
use api::program::Stretch;
use api::{Blame, TaskFailure};
use functions::BlockPlace;
use std::path::PathBuf;

/// Reader of the segments of a split, without reading their files.
pub(crate) struct StretchReader {
    segments: Segments,
    opening: Opening,
    /// The last returned segment.
    line: Vec<u8>,
    name: String,
    place: BlockPlace,
    bytes: u64,
    records: u64,
}

impl StretchReader {
    pub(crate) fn new(segments: Segments, opening: Opening) -> StretchReader {
        StretchReader {
            segments,
            opening,
            line: Vec::new(),
            name: String::new(),
            place: BlockPlace::default(),
            bytes: 0,
            records: 0,
        }
    }

    /// Returns the bytes of the returned stretches, as stored.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    pub(crate) fn next_block(&mut self) -> Result<Option<&[u8]>, TaskFailure> {
        let Some((input, segment)) = self.segments.next() else { return Ok(None) };
        self.name = input::name(&input);
        let copy = match &input.stored {
            Some(_) => Some(self.copy_of(segment.file_index)?),
            None => stored::check(&input, &self.opening).map(|()| None)?,
        };
        self.place = BlockPlace {
            file_index: segment.file_index,
            named_input: input.named,
            offset_bytes: segment.offset_bytes,
        };
        let stretch = Stretch {
            path: copy.as_ref().unwrap_or(&input.path),
            offset: segment.offset_bytes,
            length: segment.length_bytes,
            size: input.size_bytes,
        };
        self.line = serde_json::to_vec(&stretch).map_err(|error| {
            TaskFailure::new(Blame::Engine, format!("the stretch of {} for the program: {error}", self.name))
        })?;
        self.line.push(b'\n');
        self.bytes += segment.length_bytes;
        self.records += 1;
        Ok(Some(&self.line))
    }

    /// Returns the copy of a stored file on this machine, which was verified.
    fn copy_of(&self, file_index: u32) -> Result<PathBuf, TaskFailure> {
        let copy = self.opening.openers.copies.get(&file_index).cloned();
        let missing = || {
            TaskFailure::new(
                Blame::Engine,
                format!("the stored input {} was not copied to this node", self.name),
            )
        };
        copy.ok_or_else(missing)
    }

    pub(crate) fn place(&self) -> BlockPlace {
        self.place
    }

    pub(crate) fn source_name(&self) -> String {
        self.name.clone()
    }

    pub(crate) fn position(&self) -> String {
        format!("the stretch of {} from byte {} on", self.name, self.place.offset_bytes)
    }
}

#[cfg(test)]
mod tests {
    use crate::input;
    use crate::reader::{ReaderLimits, SplitReader};
    use api::{Blame, RecordFormat, Segment, Split};
    use functions::RecordInput;

    const LIMITS: ReaderLimits =
        ReaderLimits { buffer_bytes: 16, record_bytes_max: 1 << 20, object_buffer_bytes: 0 };

    /// Any file name fits into one line.
    #[test]
    fn stretches_are_told_and_files_checked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a \"b\"\n\tc");
        std::fs::write(&path, b"0123456789").unwrap();
        let inputs = input::list(&[path.to_str().unwrap().to_string()]).unwrap();
        let segment = |offset_bytes, length_bytes| Segment { file_index: 0, offset_bytes, length_bytes };
        let split = Split { segments: vec![segment(0, 7), segment(7, 3)] };
        let mut reader = SplitReader::open(&inputs, &split, RecordFormat::Stretches, LIMITS).unwrap();
        let line = String::from_utf8(reader.next_block().unwrap().unwrap().to_vec()).unwrap();
        let expected = format!(
            "{{\"path\":\"{}/a \\\"b\\\"\\n\\tc\",\"offset\":0,\"length\":7,\"size\":10}}\n",
            dir.path().display()
        );
        assert_eq!((line, reader.bytes(), reader.records()), (expected, 7, 1));
        assert_eq!(
            (reader.place().offset_bytes, reader.source_name()),
            (0, path.to_str().unwrap().to_string())
        );
        std::fs::write(&path, b"0123456").unwrap();
        let failure = reader.next_block().unwrap_err();
        assert_eq!(failure.blame, Blame::UserData);
        assert!(failure.message.contains("file changed during the run"), "{failure:?}");
    }
}
