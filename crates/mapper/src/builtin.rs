//! The built-in mappers.

use crate::function::{Emitter, MapCounts, MapFunction, RecordInput};
use api::TaskFailure;
use memchr::{memchr, memchr_iter};
use regex::bytes::Regex;

/// Counts what goes through to the emitter.
struct Counted<'a> {
    output: &'a mut dyn Emitter,
    counts: MapCounts,
}

impl Counted<'_> {
    #[inline]
    fn emit(&mut self, key: &[u8], value: &[u8]) -> Result<(), TaskFailure> {
        self.counts.output_records += 1;
        self.counts.output_bytes += (key.len() + value.len()) as u64;
        self.output.emit(key, value)
    }
}

/// The lines of a block, without their ends.
fn lines(block: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut start = 0;
    memchr_iter(b'\n', block).map(move |line_end| {
        let line = &block[start..line_end];
        start = line_end + 1;
        line
    })
}

/// A line as a pair: the first TAB parts key and value; without one the line is a key.
#[inline]
pub(crate) fn split_line(line: &[u8]) -> (&[u8], &[u8]) {
    match memchr(b'\t', line) {
        Some(tab) => (&line[..tab], &line[tab + 1..]),
        None => (line, b""),
    }
}

/// `builtin:identity`: each line is a pair.
pub(crate) struct IdentityMapper;

impl MapFunction for IdentityMapper {
    fn run(
        &mut self,
        input: &mut dyn RecordInput,
        output: &mut dyn Emitter,
    ) -> Result<MapCounts, TaskFailure> {
        let mut counted = Counted { output, counts: MapCounts::default() };
        while let Some(block) = input.next_block()? {
            for line in lines(block) {
                let (key, value) = split_line(line);
                counted.emit(key, value)?;
            }
        }
        Ok(counted.counts)
    }
}

/// `builtin:grep:RE`: the lines that match, as pairs.
pub(crate) struct GrepMapper {
    pattern: Regex,
}

impl GrepMapper {
    pub(crate) fn new(pattern: &str) -> Result<Self, regex::Error> {
        Ok(Self { pattern: Regex::new(pattern)? })
    }
}

impl MapFunction for GrepMapper {
    fn run(
        &mut self,
        input: &mut dyn RecordInput,
        output: &mut dyn Emitter,
    ) -> Result<MapCounts, TaskFailure> {
        let mut counted = Counted { output, counts: MapCounts::default() };
        while let Some(block) = input.next_block()? {
            for line in lines(block) {
                if self.pattern.is_match(line) {
                    let (key, value) = split_line(line);
                    counted.emit(key, value)?;
                }
            }
        }
        Ok(counted.counts)
    }
}

/// The bytes that part words: ASCII space as C's `isspace` has it, which includes the vertical tab.
const IS_SPACE: [bool; 256] = {
    let mut table = [false; 256];
    let mut index = 0;
    while index < 6 {
        table[b" \t\n\x0b\x0c\r"[index] as usize] = true;
        index += 1;
    }
    table
};

/// `builtin:words`: (word, 1) for each run of bytes that are not ASCII space.
pub(crate) struct WordsMapper;

impl MapFunction for WordsMapper {
    fn run(
        &mut self,
        input: &mut dyn RecordInput,
        output: &mut dyn Emitter,
    ) -> Result<MapCounts, TaskFailure> {
        let mut counted = Counted { output, counts: MapCounts::default() };
        while let Some(block) = input.next_block()? {
            // A block ends with a line end, so that no word is left open.
            let mut start = 0;
            for (index, byte) in block.iter().enumerate() {
                if IS_SPACE[usize::from(*byte)] {
                    if start < index {
                        counted.emit(&block[start..index], b"1")?;
                    }
                    start = index + 1;
                }
            }
        }
        Ok(counted.counts)
    }
}

#[cfg(test)]
mod tests {
    use crate::function::{Emitter, MapCounts, RecordInput, check_mapper, map_function};
    use api::{Function, TaskFailure};

    struct OneBlock(Option<Vec<u8>>, Vec<u8>);

    impl RecordInput for OneBlock {
        fn next_block(&mut self) -> Result<Option<&[u8]>, TaskFailure> {
            match self.0.take() {
                Some(block) => self.1 = block,
                None => return Ok(None),
            }
            Ok(Some(&self.1))
        }
        fn position(&self, offset_in_block: usize) -> String {
            format!("test at byte {offset_in_block}")
        }
    }

    struct Pairs(Vec<(String, String)>);

    impl Emitter for Pairs {
        fn emit(&mut self, key: &[u8], value: &[u8]) -> Result<(), TaskFailure> {
            let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
            self.0.push((text(key), text(value)));
            Ok(())
        }
    }

    fn check(function: &str, block: &[u8], expected: &[(&str, &str)]) {
        let function = Function::parse(function).unwrap();
        check_mapper(&function).unwrap();
        let mut mapper = map_function(Some(&function), &crate::test_context::context()).unwrap();
        let mut pairs = Pairs(Vec::new());
        let counts = mapper.run(&mut OneBlock(Some(block.to_vec()), Vec::new()), &mut pairs).unwrap();
        let found: Vec<(&str, &str)> = pairs.0.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(found, expected);
        let MapCounts { unread_bytes, output_records, .. } = counts;
        assert_eq!((unread_bytes, output_records), (0, expected.len() as u64));
    }

    #[test]
    fn builtins_split_their_lines() {
        check(
            "builtin:identity",
            b"a\tb\tc\n\nkey\r\n\t\n",
            &[("a", "b\\tc"), ("", ""), ("key\\r", ""), ("", "")],
        );
        check(
            "builtin:words",
            b" a bb\x0bc\r\n\n\t\xc2\xa0x\0\n",
            &[("a", "1"), ("bb", "1"), ("c", "1"), ("\\xc2\\xa0x\\x00", "1")],
        );
        check("builtin:words", b"\n \n", &[]);
        check("builtin:grep:^a.*z$", b"abz\naz\tv\nabc\nxaz\na\n\xff\nz\n", &[("abz", "")]);
        check("builtin:grep:a:b", b"a:b\tv\nab\n", &[("a:b", "v")]);
    }

    #[test]
    fn bad_mappers_are_named() {
        let error = |text: &str| check_mapper(&Function::parse(text).unwrap()).unwrap_err().to_string();
        assert!(error("builtin:wrods").contains("builtin:words, builtin:grep:RE, builtin:identity"));
        assert!(error("builtin:words:x").contains("takes no argument"));
        assert!(error("builtin:grep").contains("needs a regular expression"));
        assert!(error("builtin:grep:a(").contains("unclosed group"));
    }
}
