//! The built-in mappers.

use crate::function::{Emitter, MapCounts, MapFunction, RecordInput};
use api::{FieldSplit, RecordFormat, TaskFailure};
use memchr::memchr_iter;
use reducer::FieldSplitter;
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
fn lines(block: &[u8], terminator: u8) -> impl Iterator<Item = &[u8]> {
    let mut start = 0;
    memchr_iter(terminator, block).map(move |line_end| {
        let line = &block[start..line_end];
        start = line_end + 1;
        line
    })
}

/// `builtin:identity`: each record is a pair.
pub(crate) struct IdentityMapper {
    splitter: FieldSplitter,
}

impl IdentityMapper {
    pub(crate) fn new(split: &FieldSplit) -> Self {
        Self { splitter: FieldSplitter::new(split) }
    }
}

impl MapFunction for IdentityMapper {
    fn run(
        &mut self,
        input: &mut dyn RecordInput,
        output: &mut dyn Emitter,
    ) -> Result<MapCounts, TaskFailure> {
        let format = input.format();
        let mut counted = Counted { output, counts: MapCounts::default() };
        while let Some(block) = input.next_block()? {
            match format {
                RecordFormat::Lines { terminator } => {
                    for line in lines(block, terminator) {
                        let (key, value) = self.splitter.split(line);
                        counted.emit(key, value)?;
                    }
                }
                RecordFormat::Fixed { record_bytes, key_bytes } => {
                    for record in block.chunks_exact(record_bytes as usize) {
                        let (key, value) = record.split_at(key_bytes as usize);
                        counted.emit(key, value)?;
                    }
                }
            }
        }
        Ok(counted.counts)
    }
}

/// `builtin:grep:RE`: the records that match, as pairs.
pub(crate) struct GrepMapper {
    pattern: Regex,
    splitter: FieldSplitter,
}

impl GrepMapper {
    pub(crate) fn new(pattern: &str, split: &FieldSplit) -> Result<Self, regex::Error> {
        Ok(Self { pattern: Regex::new(pattern)?, splitter: FieldSplitter::new(split) })
    }
}

impl MapFunction for GrepMapper {
    fn run(
        &mut self,
        input: &mut dyn RecordInput,
        output: &mut dyn Emitter,
    ) -> Result<MapCounts, TaskFailure> {
        let format = input.format();
        let mut counted = Counted { output, counts: MapCounts::default() };
        while let Some(block) = input.next_block()? {
            match format {
                RecordFormat::Lines { terminator } => {
                    for line in lines(block, terminator).filter(|line| self.pattern.is_match(line)) {
                        let (key, value) = self.splitter.split(line);
                        counted.emit(key, value)?;
                    }
                }
                RecordFormat::Fixed { record_bytes, key_bytes } => {
                    let records = block.chunks_exact(record_bytes as usize);
                    for record in records.filter(|record| self.pattern.is_match(record)) {
                        let (key, value) = record.split_at(key_bytes as usize);
                        counted.emit(key, value)?;
                    }
                }
            }
        }
        Ok(counted.counts)
    }
}

/// Bytes looked at in one step when words are parted.
const STEP_BYTES: usize = 64;

/// A byte in each of the eight bytes of a word.
const fn each_byte(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// A bit for each byte that parts words: ASCII space as C's `isspace` has it, that is blank and TAB, LF, VT,
/// FF, CR. Eight bytes at a time, without a branch: the ends of words are what a processor guesses worst.
fn space_mask(bytes: &[u8; STEP_BYTES]) -> u64 {
    let mut mask = 0;
    let (words, _) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let low_bits = word & each_byte(0x7f);
        // The top bit of each byte answers: sums of seven bits never carry into the next byte.
        let not_blank = (word ^ each_byte(b' ')) | ((low_bits ^ each_byte(b' ')) + each_byte(0x7f));
        let from_tab = low_bits + each_byte(0x80 - b'\t');
        let beyond_return = low_bits + each_byte(0x80 - b'\r' - 1);
        let space = (!not_blank | (from_tab & !beyond_return & !word)) & each_byte(0x80);
        // The product moves the eight answers side by side into the top byte.
        let answers = (space >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        mask |= answers << (index * 8);
    }
    mask
}

/// Calls `emit` for each run of bytes of a block that are not ASCII space.
fn for_each_word<E>(block: &[u8], mut emit: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
    let (mut start, mut in_word, mut space_before) = (0, false, 1);
    for (index, piece) in block.chunks(STEP_BYTES).enumerate() {
        let mask = match piece.try_into() {
            Ok(whole) => space_mask(whole),
            Err(_) => {
                let mut padded = [b' '; STEP_BYTES];
                padded[..piece.len()].copy_from_slice(piece);
                space_mask(&padded)
            }
        };
        // Where space begins or ends. The two kinds take turns.
        let mut edges = mask ^ (mask << 1 | space_before);
        space_before = mask >> 63;
        while edges != 0 {
            let place = index * STEP_BYTES + edges.trailing_zeros() as usize;
            edges &= edges - 1;
            if in_word {
                emit(&block[start..place])?;
            } else {
                start = place;
            }
            in_word = !in_word;
        }
    }
    if in_word { emit(&block[start..]) } else { Ok(()) }
}

/// `builtin:words`: (word, 1) for each run of bytes that are not ASCII space.
pub(crate) struct WordsMapper;

impl MapFunction for WordsMapper {
    fn run(
        &mut self,
        input: &mut dyn RecordInput,
        output: &mut dyn Emitter,
    ) -> Result<MapCounts, TaskFailure> {
        let format = input.format();
        let mut counted = Counted { output, counts: MapCounts::default() };
        while let Some(block) = input.next_block()? {
            let mut emit = |word: &[u8]| counted.emit(word, b"1");
            match format {
                // The ends of lines part words, and a block ends with one, so that no word goes on in the next.
                RecordFormat::Lines { terminator: b'\n' } => for_each_word(block, &mut emit)?,
                RecordFormat::Lines { terminator } => {
                    for line in lines(block, terminator) {
                        for_each_word(line, &mut emit)?;
                    }
                }
                RecordFormat::Fixed { record_bytes, .. } => {
                    for record in block.chunks_exact(record_bytes as usize) {
                        for_each_word(record, &mut emit)?;
                    }
                }
            }
        }
        Ok(counted.counts)
    }
}

#[cfg(test)]
mod tests {
    use crate::function::{BlockPlace, Emitter, MapCounts, RecordInput, check_mapper, map_function};
    use api::{FieldSplit, Formats, Function, RecordFormat, TaskFailure};

    struct OneBlock(Option<Vec<u8>>, Vec<u8>, RecordFormat);

    impl RecordInput for OneBlock {
        fn next_block(&mut self) -> Result<Option<&[u8]>, TaskFailure> {
            match self.0.take() {
                Some(block) => self.1 = block,
                None => return Ok(None),
            }
            Ok(Some(&self.1))
        }
        fn format(&self) -> RecordFormat {
            self.2
        }
        fn place(&self) -> BlockPlace {
            BlockPlace::default()
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
        check_format(function, &Formats::default(), block, expected);
    }

    fn check_format(function: &str, formats: &Formats, block: &[u8], expected: &[(&str, &str)]) {
        let function = Function::parse(function).unwrap();
        check_mapper(&function).unwrap();
        let mut mapper = map_function(Some(&function), &crate::test_context::context(), formats).unwrap();
        let mut pairs = Pairs(Vec::new());
        let mut input = OneBlock(Some(block.to_vec()), Vec::new(), formats.input);
        let counts = mapper.run(&mut input, &mut pairs).unwrap();
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
    fn builtins_know_the_record_formats() {
        let fixed = RecordFormat::Fixed { record_bytes: 5, key_bytes: 2 };
        let fixed = Formats { input: fixed, ..Formats::default() };
        check_format("builtin:identity", &fixed, b"ab\ncdk\tv\0w", &[("ab", "\\ncd"), ("k\\t", "v\\x00w")]);
        check_format("builtin:grep:^a.*d$", &fixed, b"abxcdabcde", &[("ab", "xcd")]);
        check_format(
            "builtin:words",
            &fixed,
            b"a bcdef  g",
            &[("a", "1"), ("bcd", "1"), ("ef", "1"), ("g", "1")],
        );
        let key_only = RecordFormat::Fixed { record_bytes: 2, key_bytes: 2 };
        let key_only = Formats { input: key_only, ..Formats::default() };
        check_format("builtin:identity", &key_only, b"abcd", &[("ab", ""), ("cd", "")]);
        let nul = Formats {
            input: RecordFormat::Lines { terminator: 0 },
            map_output: FieldSplit { separator: b", ".to_vec(), key_fields: 2 },
            ..Formats::default()
        };
        check_format(
            "builtin:identity",
            &nul,
            b"a, b, c\n\0\0x, y\0",
            &[("a, b", "c\\n"), ("", ""), ("x, y", "")],
        );
        check_format("builtin:grep:^b", &nul, b"ab\0ba\0", &[("ba", "")]);
        check_format("builtin:words", &nul, b"a\0b c\0", &[("a", "1"), ("b", "1"), ("c", "1")]);
    }

    proptest::proptest! {
        #[test]
        fn words_are_runs_without_space(block in proptest::collection::vec(
            proptest::prop_oneof![
                proptest::sample::select(&b" \t\n\x0b\x0c\r\x08\x0e\x1f\x21\x80\x89\x8d\xa0\xff\0ab"[..]),
                proptest::prelude::any::<u8>(),
            ],
            0..300,
        )) {
            let mut found = Vec::new();
            let collect = |word: &[u8]| {
                found.push(word.to_vec());
                Ok::<(), TaskFailure>(())
            };
            super::for_each_word(&block, collect).unwrap();
            let is_space = |byte: &u8| b" \t\n\x0b\x0c\r".contains(byte);
            let expected: Vec<&[u8]> = block.split(is_space).filter(|word| !word.is_empty()).collect();
            proptest::prop_assert_eq!(found, expected);
        }
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
