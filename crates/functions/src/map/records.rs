//! The built-in mappers of records: words, grep, identity.

use crate::fields::FieldSplitter;
use crate::map::{Emitter, KeyPlace, KeysInBlock, MapCounts, MapFunction, RecordInput};
use api::{FieldSplit, RecordFormat, TaskFailure};
use memchr::memchr_iter;
use regex::bytes::Regex;

/// An emitter that counts the pairs it passes on.
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

    #[inline]
    fn emit_line(&mut self, line: &[u8], splitter: &FieldSplitter) -> Result<(), TaskFailure> {
        let (key, value) = splitter.split(line);
        if value.is_empty() && key.len() < line.len() {
            return self.emit_separated(key);
        }
        self.emit(key, value)
    }

    #[cold]
    fn emit_separated(&mut self, key: &[u8]) -> Result<(), TaskFailure> {
        self.counts.output_records += 1;
        self.counts.output_bytes += key.len() as u64;
        self.output.emit_separated(key)
    }

    fn emit_each(&mut self, keys: KeysInBlock<'_>, value: &[u8]) -> Result<(), TaskFailure> {
        let key_bytes: u64 = keys.places.iter().map(|place| u64::from(place.length)).sum();
        self.counts.output_records += keys.places.len() as u64;
        self.counts.output_bytes += key_bytes + (keys.places.len() * value.len()) as u64;
        self.output.emit_each(keys, value)
    }
}

/// Returns the lines of a block, without their ends.
fn lines(block: &[u8], terminator: u8) -> impl Iterator<Item = &[u8]> {
    let mut start = 0;
    memchr_iter(terminator, block).map(move |line_end| {
        let line = &block[start..line_end];
        start = line_end + 1;
        line
    })
}

/// Emits a pair for each line.
#[inline]
fn emit_lines<'a>(
    mut lines: impl Iterator<Item = &'a [u8]>,
    splitter: &FieldSplitter,
    counted: &mut Counted<'_>,
) -> Result<(), TaskFailure> {
    lines.try_for_each(|line| counted.emit_line(line, splitter))
}

/// `builtin:identity`: emits each record as a pair.
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
                    emit_lines(lines(block, terminator), &self.splitter, &mut counted)?;
                }
                RecordFormat::Stretches => emit_lines(lines(block, b'\n'), &self.splitter, &mut counted)?,
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

/// `builtin:grep:RE`: emits the matching records as pairs.
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
                    let matching = lines(block, terminator).filter(|line| self.pattern.is_match(line));
                    emit_lines(matching, &self.splitter, &mut counted)?;
                }
                RecordFormat::Stretches => {
                    let matching = lines(block, b'\n').filter(|line| self.pattern.is_match(line));
                    emit_lines(matching, &self.splitter, &mut counted)?;
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

/// Bytes examined in one step of the division into words.
const STEP_BYTES: usize = 64;

/// Returns a bit for each byte that separates words: ASCII space as in C's `isspace`, that is blank and TAB, LF, VT,
/// FF, CR. It handles many bytes at a time without a branch, because the ends of words are hard to predict for a
/// processor.
#[cfg(target_arch = "x86_64")]
fn space_mask(bytes: &[u8; STEP_BYTES]) -> u64 {
    use std::arch::x86_64::{
        _mm_cmpeq_epi8, _mm_loadu_si128, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128, _mm_set1_epi8,
        _mm_sub_epi8,
    };
    let mut mask = 0;
    for (index, piece) in bytes.as_chunks::<16>().0.iter().enumerate() {
        // SAFETY: the sixteen bytes of `piece` are read, whatever their alignment; SSE2 is part of the architecture.
        let spaces = unsafe {
            let piece = _mm_loadu_si128(piece.as_ptr().cast());
            let above_tab = _mm_sub_epi8(piece, _mm_set1_epi8(b'\t' as i8));
            let to_return = _mm_set1_epi8((b'\r' - b'\t') as i8);
            let tab_to_return = _mm_cmpeq_epi8(_mm_min_epu8(above_tab, to_return), above_tab);
            let blank = _mm_cmpeq_epi8(piece, _mm_set1_epi8(b' ' as i8));
            _mm_movemask_epi8(_mm_or_si128(blank, tab_to_return))
        };
        mask |= u64::from(spaces as u16) << (index * 16);
    }
    mask
}

/// Returns the same without such instructions.
#[cfg(not(target_arch = "x86_64"))]
fn space_mask(bytes: &[u8; STEP_BYTES]) -> u64 {
    let is_space = |byte: u8| byte == b' ' || (b'\t'..=b'\r').contains(&byte);
    bytes.iter().enumerate().fold(0, |mask, (index, byte)| mask | u64::from(is_space(*byte)) << index)
}

/// Maximum number of words per call.
const WORDS_PER_CALL: usize = 256;

/// Calls `emit` with the positions of the runs of bytes that are not ASCII space, many at a time.
fn for_each_words<E>(block: &[u8], mut emit: impl FnMut(&[KeyPlace]) -> Result<(), E>) -> Result<(), E> {
    let mut places = [KeyPlace::default(); WORDS_PER_CALL + STEP_BYTES];
    let mut count = 0;
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
        // Positions at which space begins or ends, in alternation.
        let mut edges = mask ^ (mask << 1 | space_before);
        space_before = mask >> 63;
        while edges != 0 {
            let place = (index * STEP_BYTES) as u32 + edges.trailing_zeros();
            edges &= edges - 1;
            // Written each time and counted only at the end of a word: a branch would be mispredicted every other time.
            places[count] = KeyPlace { start, length: place - start };
            count += usize::from(in_word);
            start = place;
            in_word = !in_word;
        }
        if count >= WORDS_PER_CALL {
            emit(&places[..count])?;
            count = 0;
        }
    }
    if in_word {
        places[count] = KeyPlace { start, length: block.len() as u32 - start };
        count += 1;
    }
    if count > 0 { emit(&places[..count]) } else { Ok(()) }
}

/// `builtin:words`: emits (word, 1) for each run of bytes that are not ASCII space.
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
            let mut emit_words = |block| {
                for_each_words(block, |places| counted.emit_each(KeysInBlock { block, places }, b"1"))
            };
            match format {
                // Line ends separate words, and a block ends with one, so that no word continues in the next block.
                RecordFormat::Lines { terminator: b'\n' } | RecordFormat::Stretches => emit_words(block)?,
                RecordFormat::Lines { terminator } => lines(block, terminator).try_for_each(emit_words)?,
                RecordFormat::Fixed { record_bytes, .. } => {
                    block.chunks_exact(record_bytes as usize).try_for_each(emit_words)?;
                }
            }
        }
        Ok(counted.counts)
    }
}

#[cfg(test)]
mod tests {
    use crate::builtins::{check_mapper, mapper};
    use crate::map::{BlockPlace, Emitter, KeyPlace, KeysInBlock, MapCounts, RecordInput};
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
        fn source_name(&self) -> String {
            "test".to_string()
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
        let Function::Builtin { name, argument } = &function else { panic!("{function:?}") };
        let mut mapper = mapper(name, argument.as_deref(), formats).unwrap();
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
            let collect = |places: &[KeyPlace]| {
                found.extend(KeysInBlock { block: &block, places }.iter().map(<[u8]>::to_vec));
                Ok::<(), TaskFailure>(())
            };
            super::for_each_words(&block, collect).unwrap();
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
