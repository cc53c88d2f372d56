//! Fuzzes the messages between nodes: bind, append, frame heads, answers, release, scan, heads of copies, stage files.
//!
//! Invariants:
//! - no input makes a decoder panic or make more room than the input is long;
//! - an accepted message encodes to the bytes that it was read from, but for the version of a frame's header, which
//! becomes today's;
//! - counts and lengths of an accepted message are within the limits.

#![no_main]

use dataport::wire::messages::{
    AppendAnswers, AppendHead, BOUND_BYTES_MAX, BindReply, BindRequest, CHUNKS_PER_RELEASE_MAX,
    COPY_BYTES_MAX, COPY_HEAD_BYTES, CopyHead, FRAME_HEAD_BYTES, FRAMES_PER_REQUEST_MAX, FrameHead,
    RUNS_PER_SCAN_MAX, ReleaseRequest, ScanRequest,
};
use dataport::wire::stage::{BLOCKS_PER_READ_MAX, STAGE_COPY_HEAD_BYTES, StageCopyHead, StageReadRequest};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    check(data);
    let mut mended = data.to_vec();
    mending::mend_last_crc(&mut mended);
    check(&mended);
    let mut head = data.to_vec();
    mending::mend_frame_head(&mut head);
    check(&head);
});

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
    if let Ok(head) = FrameHead::decode(bytes) {
        assert_eq!(bytes.len(), FRAME_HEAD_BYTES);
        mending::assert_same_frame(&head.header, &bytes[FRAME_HEAD_BYTES - ifile::FRAME_HEADER_BYTES..]);
        // The checksum covers the version, so it is compared through the bytes of today.
        let mut today = bytes.to_vec();
        mending::frame_head_of_today(&mut today);
        assert_eq!(head.encode()[..], today);
    }
}
