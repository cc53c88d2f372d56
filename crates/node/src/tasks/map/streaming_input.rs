//! Input of mappers of Hadoop Streaming: lines that end with LF instead of any other line end, and with keys if the
//! input format has them.

use api::{Function, JobSpec, MapperInput, RecordFormat, TaskFailure};
use functions::{BlockPlace, RecordInput};
use memchr::memmem::Finder;
use memchr::{memchr, memchr2};

/// Converts the lines of another input.
pub(crate) struct PresentedInput<'a> {
    inner: &'a mut dyn RecordInput,
    shape: Shape,
    block: Vec<u8>,
    lines: Vec<u8>,
}

enum Shape {
    Lines,
    Numbered { separator: Vec<u8> },
    Pairs { split: Finder<'static>, separator: Vec<u8> },
    Values { split: Finder<'static> },
}

impl<'a> PresentedInput<'a> {
    /// Creates the input; `shape` is the result of [`shape_for`].
    pub fn new(inner: &'a mut dyn RecordInput, shape: MapperInput) -> Self {
        let finder = |split: Vec<u8>| Finder::new(&split).into_owned();
        let shape = match shape {
            MapperInput::Lines => Shape::Lines,
            MapperInput::Numbered { separator } => Shape::Numbered { separator },
            MapperInput::Pairs { split, separator } => Shape::Pairs { split: finder(split), separator },
            MapperInput::Values { split } => Shape::Values { split: finder(split) },
        };
        Self { inner, shape, block: Vec::new(), lines: Vec::new() }
    }
}

/// Returns the input form of the mapper of a job; None if the job is not a streaming job. A mapper that is no program
/// divides lines itself.
pub(crate) fn shape_for(spec: &JobSpec) -> Option<MapperInput> {
    let streaming = spec.streaming.as_ref()?;
    Some(match spec.mapper {
        Some(Function::Command { .. }) => streaming.mapper_input.clone(),
        _ => MapperInput::Lines,
    })
}

/// Returns the lines of a block without their ends (LF, CR LF or CR), with the bytes of each including its end.
fn hadoop_lines(block: &[u8]) -> impl Iterator<Item = (&[u8], u64)> {
    let mut rest = block;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
        let end_bytes = if rest[end..].starts_with(b"\r\n") { 2 } else { 1 };
        let line_bytes = (end + end_bytes).min(rest.len());
        let line = &rest[..end];
        rest = &rest[line_bytes..];
        Some((line, line_bytes as u64))
    })
}

impl RecordInput for PresentedInput<'_> {
    fn next_block(&mut self) -> Result<Option<&[u8]>, TaskFailure> {
        let Self { inner, shape, block, lines } = self;
        lines.clear();
        if let Shape::Numbered { separator } = shape {
            let Some(read) = inner.next_block()? else { return Ok(None) };
            block.clear();
            block.extend_from_slice(read);
            let mut offset_bytes = inner.place().offset_bytes;
            for (line, line_bytes) in hadoop_lines(block) {
                lines.extend_from_slice(offset_bytes.to_string().as_bytes());
                lines.extend_from_slice(separator);
                lines.extend_from_slice(line);
                lines.push(b'\n');
                offset_bytes += line_bytes;
            }
            return Ok(Some(lines));
        }
        let Some(read) = inner.next_block()? else { return Ok(None) };
        if matches!(shape, Shape::Lines) && memchr(b'\r', read).is_none() {
            return Ok(Some(read));
        }
        for (line, _) in hadoop_lines(read) {
            present(shape, line, lines);
            lines.push(b'\n');
        }
        Ok(Some(lines))
    }

    fn format(&self) -> RecordFormat {
        self.inner.format()
    }

    fn place(&self) -> BlockPlace {
        self.inner.place()
    }

    fn source_name(&self) -> String {
        self.inner.source_name()
    }

    fn position(&self, offset_in_block: usize) -> String {
        self.inner.position(offset_in_block)
    }
}

fn present(shape: &Shape, line: &[u8], lines: &mut Vec<u8>) {
    match shape {
        Shape::Lines | Shape::Numbered { .. } => lines.extend_from_slice(line),
        Shape::Pairs { split, separator } => {
            let (key, value) = match split.find(line) {
                Some(at) => (&line[..at], &line[at + split.needle().len()..]),
                None => (line, &line[line.len()..]),
            };
            lines.extend_from_slice(key);
            lines.extend_from_slice(separator);
            lines.extend_from_slice(value);
        }
        Shape::Values { split } => {
            if let Some(at) = split.find(line) {
                lines.extend_from_slice(&line[at + split.needle().len()..]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PresentedInput;
    use api::{MapperInput, RecordFormat, TaskFailure};
    use functions::{BlockPlace, RecordInput};

    struct Blocks(Vec<&'static [u8]>, u64);

    impl RecordInput for Blocks {
        fn next_block(&mut self) -> Result<Option<&[u8]>, TaskFailure> {
            self.1 += 100;
            Ok(self.0.pop())
        }
        fn format(&self) -> RecordFormat {
            RecordFormat::TEXT
        }
        fn place(&self) -> BlockPlace {
            BlockPlace { offset_bytes: self.1 - 100, ..BlockPlace::default() }
        }
        fn source_name(&self) -> String {
            "test".to_string()
        }
        fn position(&self, offset_in_block: usize) -> String {
            offset_in_block.to_string()
        }
    }

    fn check(shape: MapperInput, blocks: &[&'static str], expected: &str) {
        let blocks = blocks.iter().rev().map(|block| block.as_bytes()).collect();
        let mut input = Blocks(blocks, 0);
        let mut presented = PresentedInput::new(&mut input, shape);
        let mut got = Vec::new();
        while let Some(block) = presented.next_block().unwrap() {
            assert!(!block.is_empty());
            got.extend_from_slice(block);
        }
        assert_eq!(String::from_utf8(got).unwrap(), expected);
    }

    #[test]
    fn lines_end_with_lf() {
        check(MapperInput::Lines, &["a\nb\n", "c\r\nd\re\n\r\n\n"], "a\nb\nc\nd\ne\n\n\n");
    }

    #[test]
    fn keys_stand_before_lines() {
        let tab = || b"\t".to_vec();
        check(
            MapperInput::Numbered { separator: b": ".to_vec() },
            &["a\r\nb\n", "\nc\n"],
            "0: a\n3: b\n100: \n101: c\n",
        );
        check(
            MapperInput::Pairs { split: b",".to_vec(), separator: tab() },
            &["a,b,c\nd\n\n,\n"],
            "a\tb,c\nd\t\n\t\n\t\n",
        );
        check(MapperInput::Values { split: tab() }, &["a\tb\tc\nd\n"], "b\tc\n\n");
    }
}
