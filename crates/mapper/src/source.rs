//! The stored bytes of an input, from a file or from an object.

use api::InputFile;
use objects::{ObjectReader, ObjectUrl};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;

pub(crate) enum Source {
    File(File),
    Object(Box<ObjectReader>),
}

impl Source {
    /// Opens an input at the start of `planned`. The errors of an object hold an [`objects::ObjectError`].
    pub(crate) fn open(
        input: &InputFile,
        planned: Range<u64>,
        object_buffer_bytes: usize,
    ) -> std::io::Result<Source> {
        let Some(pin) = &input.object else {
            let mut file = File::open(&input.path)?;
            if planned.start > 0 {
                file.seek(SeekFrom::Start(planned.start))?;
            }
            return Ok(Source::File(file));
        };
        let url = ObjectUrl::from_path(&input.path)?;
        let reader = ObjectReader::open(&url, input.size_bytes, pin, planned, object_buffer_bytes)?;
        Ok(Source::Object(Box::new(reader)))
    }
}

impl Read for Source {
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Source::File(file) => file.read(buffer),
            Source::Object(reader) => reader.read(buffer),
        }
    }
}
