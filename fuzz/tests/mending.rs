//! Repairs must reach the parsing behind the checksums, or the targets fuzz only checksums.

use ifile::block::{self, BLOCK_HEADER_BYTES, BlockHeader};
use ifile::raw_chunk::read_frames;
use ifile::spool::{SpoolFrames, SpoolOf};
use ifile::{FRAME_HEADER_BYTES, FrameHeader, RunFile, verify};
use stagefile::{FOOTER_BYTES, Footer, RawVerifier};

fn golden(name: &str) -> Vec<u8> {
    let home = if name.ends_with(".stage") { "stagefile" } else { "ifile" };
    let version = if home == "ifile" { "v2" } else { "v1" };
    let path = std::path::Path::new("../crates").join(home).join("test_data").join(version).join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("read {}: {error}", path.display()))
}

fn run_is_read(bytes: &[u8]) -> bool {
    RunFile::open(bytes).and_then(|run| verify::walk_run(bytes, &run, |_, _| {})).is_ok()
}

fn chunk_is_read(bytes: &[u8]) -> bool {
    read_frames(bytes, |_, _| {}).is_ok()
}

fn frame_is_read(bytes: &[u8]) -> bool {
    let payload = bytes.get(FRAME_HEADER_BYTES..).unwrap_or_default();
    FrameHeader::decode(bytes).and_then(|header| header.check_payload(payload)).is_ok()
}

fn spool_is_read(bytes: &[u8]) -> bool {
    // Like a reader that knows the identity.
    let Ok(FrameHeader { source, key_shape, .. }) = FrameHeader::decode(bytes) else { return false };
    let mut frames = SpoolFrames::new(SpoolOf { source, key_shape, payload_bytes_max: 1 << 20 }, bytes);
    loop {
        match frames.next_frame() {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

fn block_is_read(bytes: &[u8]) -> bool {
    let stored = bytes.get(BLOCK_HEADER_BYTES..).unwrap_or_default();
    BlockHeader::decode(bytes).and_then(|header| block::decode_into(&header, stored, &mut Vec::new())).is_ok()
}

fn stage_file_is_read(bytes: &[u8]) -> bool {
    let footer = &bytes[bytes.len() - FOOTER_BYTES..];
    Footer::decode(footer).is_ok_and(|footer| {
        let mut verifier = RawVerifier::new(footer.payload);
        verifier.push(bytes).and_then(|()| verifier.finish()).is_ok()
    })
}

/// Flips one bit of each byte in turn. All flips are refused unchanged; of the repaired ones at least `accepted_min`
/// percent are accepted (flips within values and free fields), and intact bytes stay unchanged.
fn check(name: &str, accepted_min: usize, mend: fn(&mut [u8]), is_read: fn(&[u8]) -> bool) {
    let bytes = golden(name);
    let mut same = bytes.clone();
    mend(&mut same);
    assert!(same == bytes && is_read(&bytes), "{name}: mending changes an intact file");
    let mut accepted = 0;
    for offset in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[offset] ^= 1;
        assert!(!is_read(&flipped), "{name}: byte {offset}");
        mend(&mut flipped);
        accepted += usize::from(is_read(&flipped));
    }
    let share = accepted * 100 / bytes.len();
    assert!(share >= accepted_min, "{name}: {share} in a hundred were accepted");
}

#[test]
fn mended_files_are_accepted() {
    check("run-none.run", 40, mending::mend_run, run_is_read);
    check("run-lz4.run", 20, mending::mend_run, run_is_read);
    check("run-zstd.run", 10, mending::mend_run, run_is_read);
    check("chunk.raw", 50, mending::mend_raw_chunk, chunk_is_read);
    check("frame.part", 50, mending::mend_frame, frame_is_read);
    check("spool.part", 50, mending::mend_spool, spool_is_read);
    check("block-none.part", 50, mending::mend_block, block_is_read);
    check("line.stage", 50, mending::mend_stage_file, stage_file_is_read);
}
