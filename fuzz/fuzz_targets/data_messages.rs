//! Fuzzes the messages between nodes: bind, append, frame heads, answers, release, scan, heads of copies, stage files,
//! stored files and the answers to their readers.
//!
//! Invariants:
//! - no input makes a decoder panic or make more room than the input is long;
//! - an accepted message encodes to the bytes that it was read from, but for the version of a frame's header, which
//!   becomes today's;
//! - counts and lengths of an accepted message are within the limits;
//! - an answer with parts, cut anywhere, yields the bytes of the part that was asked for, or an error.

#![no_main]

use dataport::wire::messages::{
    AppendAnswers, AppendHead, BOUND_BYTES_MAX, BindReply, BindRequest, CHUNKS_PER_RELEASE_MAX,
    COPY_BYTES_MAX, COPY_HEAD_BYTES, CopyHead, FRAME_HEAD_BYTES, FRAMES_PER_REQUEST_MAX, FrameHead,
    RUNS_PER_SCAN_MAX, ReleaseRequest, ScanRequest,
};
use dataport::wire::stage::{BLOCKS_PER_READ_MAX, STAGE_COPY_HEAD_BYTES, StageCopyHead, StageReadRequest};
use dataport::wire::stored::answer::{AnswerDecoder, Answered};
use dataport::wire::stored::{
    PARTS_PER_REQUEST_MAX, PartRange, STORED_PART_BYTES_MAX, StoredFetchRequest, StoredReadRequest,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    check(data);
    let mut mended = data.to_vec();
    mending::mend_last_crc(&mut mended);
    check(&mended);
    let mut head = data.to_vec();
    mending::mend_frame_head(&mut head);
    check(&head);
    check_answer(data);
});

/// Reads an answer with a part of two blocks, and one of a few bytes.
fn check_answer(bytes: &[u8]) {
    let parts: [Vec<u8>; 2] = [vec![7; 70_000], b"part".to_vec()];
    let range = |(number, part): (i64, &Vec<u8>)| {
        let (bytes, crc32c) = (part.len() as u64, crc32c::crc32c(part));
        PartRange::whole(api::StoredPart { concrete: ids::ConcreteId(number), bytes, crc32c })
    };
    let mut decoder = AnswerDecoder::new((0..).zip(&parts).map(range).collect());
    let cut = bytes.first().map_or(1, |first| usize::from(*first) * 300 + 1);
    let mut pieces = bytes.chunks(cut);
    let (mut part, mut read) = (0, 0);
    loop {
        match decoder.next_answer() {
            Ok(Some(Answered::Bytes(bytes))) => {
                assert_eq!(bytes, parts[part][read..read + bytes.len()]);
                read += bytes.len();
            }
            Ok(Some(Answered::RangeEnd)) => {
                assert_eq!(read, parts[part].len());
                (part, read) = (part + 1, 0);
            }
            Ok(None) => match pieces.next() {
                Some(piece) => decoder.push(piece.to_vec().into()),
                None => return,
            },
            Err(_) if decoder.goes_on() => (part, read) = (part + 1, 0),
            Ok(Some(Answered::StreamEnd)) | Err(_) => return,
        }
    }
}

fn check(bytes: &[u8]) {
    if let Ok(bind) = BindRequest::decode(bytes) {
        assert_eq!(bind.encode(), bytes);
        assert!(bind.frame_bytes <= ifile::ENCODED_RECORD_BYTES_MAX);
    }
    if let Ok(reply) = BindReply::decode(bytes) {
        assert_eq!(reply.encode(), bytes);
    }
    if let Ok(head) = AppendHead::decode(bytes) {
        assert_eq!(head.encode(), bytes);
        assert!(head.frame_count <= FRAMES_PER_REQUEST_MAX);
    }
    if let Ok(answers) = AppendAnswers::decode(bytes) {
        assert_eq!(answers.encode(), bytes);
        assert!(answers.closed.len() <= FRAMES_PER_REQUEST_MAX as usize);
    }
    if let Ok(release) = ReleaseRequest::decode(bytes) {
        assert_eq!(release.encode(), bytes);
        assert!(release.chunks.len() <= CHUNKS_PER_RELEASE_MAX as usize);
    }
    if let Ok(scan) = ScanRequest::decode(bytes) {
        assert_eq!(scan.encode(), bytes);
        assert!(scan.runs.len() <= RUNS_PER_SCAN_MAX as usize);
        assert!(scan.skip_records.is_empty() || scan.skip_records.len() == scan.runs.len());
        assert!([scan.lower, scan.upper].into_iter().flatten().all(|bound| bound.len() <= BOUND_BYTES_MAX));
    }
    if let Ok(head) = CopyHead::decode(bytes) {
        assert_eq!((head.encode().as_slice(), bytes.len()), (bytes, COPY_HEAD_BYTES));
        assert!(head.bytes <= COPY_BYTES_MAX);
    }
    if let Ok(read) = StageReadRequest::decode(bytes) {
        assert_eq!(read.encode(), bytes);
        assert_eq!(read.raw().blocks, u64::from(read.blocks));
        assert!((1..=BLOCKS_PER_READ_MAX).contains(&read.blocks));
        assert!(!read.file.name.as_str().contains(['/', '\\', '\0']));
    }
    if let Ok(head) = StageCopyHead::decode(bytes) {
        assert_eq!((head.encode().as_slice(), bytes.len()), (bytes, STAGE_COPY_HEAD_BYTES));
    }
    if let Ok(read) = StoredReadRequest::decode(bytes) {
        assert_eq!(read.encode(), bytes);
        assert!(read.ranges.len() <= PARTS_PER_REQUEST_MAX as usize);
        for PartRange { part, offset, bytes } in read.ranges {
            assert!(part.bytes <= STORED_PART_BYTES_MAX && offset + bytes <= part.bytes);
        }
    }
    if let Ok(fetch) = StoredFetchRequest::decode(bytes) {
        assert_eq!(fetch.encode(), bytes);
        assert!(fetch.parts.len() <= PARTS_PER_REQUEST_MAX as usize);
    }
    if let Ok(head) = FrameHead::decode(bytes) {
        assert_eq!(bytes.len(), FRAME_HEAD_BYTES);
        mending::assert_same_frame(&head.header, &bytes[FRAME_HEAD_BYTES - ifile::FRAME_HEADER_BYTES..]);
        // The checksum covers the version, so it is compared through the bytes of today.
        let mut today = bytes.to_vec();
        mending::frame_head_of_today(&mut today);
        assert_eq!(head.encode()[..], today);
    }
}
