use super::*;
use api::StoredPart;

const BLOCK: u64 = BLOCK_BYTES;

fn some_bytes(count: u64) -> Vec<u8> {
    (0..count as usize).map(|place| (place.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// A range of a part, and the bytes of the part.
struct Sample {
    range: PartRange,
    all: Vec<u8>,
}

fn sample(part_bytes: u64, offset: u64, bytes: u64) -> Sample {
    let all = some_bytes(part_bytes);
    let part = StoredPart { concrete: ConcreteId(7), bytes: part_bytes, crc32c: crc32c::crc32c(&all) };
    Sample { range: PartRange { part, offset, bytes }, all }
}

/// Writes a range as a node does, in pieces of this length.
fn put_range(out: &mut Vec<u8>, of: &Sample, piece_bytes: usize) {
    out.push(HERE);
    if sums_sent(&of.range.part) > 0 {
        for block in of.all.chunks(BLOCK as usize) {
            out.extend_from_slice(&crc32c::crc32c(block).to_le_bytes());
        }
    }
    let blocks = of.range.blocks();
    let end = (blocks.end * BLOCK).min(of.range.part.bytes);
    for piece in of.all[(blocks.start * BLOCK) as usize..end as usize].chunks(piece_bytes) {
        out.extend_from_slice(&(piece.len() as u32).to_le_bytes());
        out.extend_from_slice(piece);
    }
}

fn answer(samples: &[Sample], piece_bytes: usize) -> Vec<u8> {
    let mut out = Vec::new();
    samples.iter().for_each(|of| put_range(&mut out, of, piece_bytes));
    out.push(ANSWER_END);
    out
}

/// The bytes of each complete range, and the problem that ended the stream.
fn decode(ranges: Vec<PartRange>, stream: &[u8], cut: usize) -> (Vec<Vec<u8>>, Option<AnswerProblem>) {
    let mut decoder = AnswerDecoder::new(ranges);
    let (mut complete, mut current) = (Vec::new(), Vec::new());
    let mut pieces = stream.chunks(cut);
    loop {
        match decoder.next_answer() {
            Ok(Some(Answered::Bytes(bytes))) => current.extend_from_slice(&bytes),
            Ok(Some(Answered::RangeEnd)) => complete.push(std::mem::take(&mut current)),
            Ok(Some(Answered::StreamEnd)) => return (complete, None),
            Ok(None) => match pieces.next() {
                Some(piece) => decoder.push(Bytes::copy_from_slice(piece)),
                None => return (complete, None),
            },
            Err(problem) => return (complete, Some(problem)),
        }
    }
}

fn samples() -> Vec<Sample> {
    vec![
        sample(0, 0, 0),
        sample(1, 0, 1),
        sample(5000, 17, 3000),
        sample(BLOCK, 0, BLOCK),
        sample(BLOCK + 1, BLOCK, 1),
        sample(9 * BLOCK + 5, 0, 9 * BLOCK + 5),
        sample(9 * BLOCK + 5, 3 * BLOCK + 9, 5 * BLOCK),
        sample(9 * BLOCK + 5, 4 * BLOCK, 0),
    ]
}

#[test]
fn ranges_arrive_whatever_the_pieces() {
    let samples = samples();
    let expected: Vec<&[u8]> = samples
        .iter()
        .map(|of| &of.all[of.range.offset as usize..(of.range.offset + of.range.bytes) as usize])
        .collect();
    for piece_bytes in [1000, BLOCK as usize, 100_000, 1 << 20] {
        let stream = answer(&samples, piece_bytes);
        for cut in [1, 3, 4096, 300_000, usize::MAX] {
            let (read, problem) = decode(samples.iter().map(|of| of.range).collect(), &stream, cut);
            assert!(problem.is_none(), "{piece_bytes} {cut}: {problem:?}");
            assert!(read == expected, "{piece_bytes} {cut}");
        }
    }
    let (read, problem) = decode(Vec::new(), &[ANSWER_END], 1);
    assert!(read.is_empty() && problem.is_none());
}

#[test]
fn flipped_bits_never_pass() {
    let of = sample(2 * BLOCK + 7, BLOCK - 3, 9);
    let stream = answer(std::slice::from_ref(&of), 50_000);
    let expected = &of.all[(BLOCK - 3) as usize..(BLOCK + 6) as usize];
    let mut refused = 0;
    for bit in
        (0..stream.len() * 8).filter(|bit| bit / 8 < 40 || bit % 997 == 0 || bit / 8 + 9 > stream.len())
    {
        let mut flipped = stream.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let (read, problem) = decode(vec![of.range], &flipped, 10_000);
        // A shorter length of the last piece would let the stream end early; then nothing is complete.
        assert!(read.is_empty() || read == [expected], "bit {bit}");
        assert!(problem.is_some() || read.is_empty(), "bit {bit}");
        refused += u32::from(problem.is_some());
    }
    assert!(refused > 300, "{refused}");
}

#[test]
fn cut_answers_are_incomplete() {
    let of = sample(BLOCK + 7, 0, BLOCK + 7);
    let stream = answer(std::slice::from_ref(&of), 50_000);
    for length in [0, 1, 5, 9, 13, 50_000, stream.len() - 1] {
        let (read, problem) = decode(vec![of.range], &stream[..length], 10_000);
        assert!(read.is_empty() && problem.is_none(), "{length}");
    }
}

#[test]
fn failed_ranges_do_not_end_the_stream() {
    let (first, last) = (sample(5000, 0, 5000), sample(70_000, 0, 70_000));
    let mut stream = Vec::new();
    put_range(&mut stream, &first, 1 << 20);
    stream.push(NOT_HERE);
    stream.push(FAILED);
    put_reason(&mut stream, "disk failed");
    put_range(&mut stream, &last, 1 << 20);
    stream.push(ANSWER_END);
    let ranges = vec![first.range, first.range, first.range, last.range];
    let mut decoder = AnswerDecoder::new(ranges);
    decoder.push(stream.into());
    let mut seen = Vec::new();
    loop {
        match decoder.next_answer() {
            Ok(Some(Answered::Bytes(bytes))) => seen.push(format!("{}", bytes.len())),
            Ok(Some(Answered::RangeEnd)) => seen.push("end".to_string()),
            Ok(Some(Answered::StreamEnd)) => break,
            Err(AnswerProblem::Part { file: ConcreteId(7), reason }) if decoder.goes_on() => {
                seen.push(reason)
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seen, ["5000", "end", "it is not there", "disk failed", "70000", "end"]);
}

#[test]
fn broken_off_range_ends_the_stream() {
    let of = sample(70_000, 0, 70_000);
    let mut stream = answer(std::slice::from_ref(&of), 10_000);
    stream.truncate(9 + 4 + 10_000);
    stream.extend_from_slice(&BROKEN_OFF.to_le_bytes());
    put_reason(&mut stream, "block 1 is damaged");
    for cut in [1, 7, usize::MAX] {
        match decode(vec![of.range], &stream, cut) {
            (read, Some(AnswerProblem::Part { reason, .. })) => {
                assert!(read.is_empty() && reason == "block 1 is damaged");
            }
            other => panic!("{other:?}"),
        }
    }
    let mut decoder = AnswerDecoder::new(vec![of.range, of.range]);
    decoder.push(stream.into());
    assert!(matches!(decoder.next_answer(), Err(AnswerProblem::Part { .. })) && !decoder.goes_on());
    assert!(matches!(decoder.next_answer(), Err(AnswerProblem::Stream(_))));
}

#[test]
fn impossible_answers_are_refused() {
    let of = sample(70_000, 0, 70_000);
    let whole = answer(std::slice::from_ref(&of), 1 << 20);
    let with = |at: usize, number: u32| {
        let mut changed = whole.clone();
        changed[at..at + 4].copy_from_slice(&number.to_le_bytes());
        changed
    };
    let mut other_sums = whole.clone();
    other_sums[1..5].copy_from_slice(&whole[5..9]);
    other_sums[5..9].copy_from_slice(&whole[1..5]);
    for (what, stream) in [
        ("a status", [&[9u8][..], &whole[1..]].concat()),
        ("checksums that changed places", other_sums),
        ("an empty piece", with(9, 0)),
        ("a piece beyond the part", with(9, 70_001)),
        ("a piece beyond the limit", with(9, STORED_PIECE_BYTES_MAX + 1)),
        ("no end mark", [&whole[..whole.len() - 1], &[0]].concat()),
        ("a long reason", [&[FAILED][..], &(REASON_BYTES_MAX as u32 + 1).to_le_bytes()].concat()),
    ] {
        let (read, problem) = decode(vec![of.range], &stream, 4096);
        assert!(read.is_empty() && problem.is_some(), "{what}");
    }
    // A content that cannot be: an empty part with a checksum.
    let mut empty = sample(0, 0, 0).range;
    empty.part.crc32c = 1;
    let (read, problem) = decode(vec![empty], &[HERE, ANSWER_END], 1);
    assert!(read.is_empty() && matches!(problem, Some(AnswerProblem::Part { .. })), "{problem:?}");
}
