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
        let mut counted = Counted { output, counts: MapCounts::default() };
        while let Some(block) = input.next_block()? {
            // A block ends with a line end, so that no word goes on in the next one.
            for_each_word(block, |word| counted.emit(word, b"1"))?;
        }
        Ok(counted.counts)
    }
}

#[cfg(test)]
mod tests {
    use crate::function::{BlockPlace, Emitter, MapCounts, RecordInput, check_mapper, map_function};
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
        fn place(&self) -> BlockPlace {
            BlockPlace::default()
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
