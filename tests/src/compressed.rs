//! Compressed inputs.

use std::io::Write;

/// One gzip member that holds `bytes`.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("memory takes all");
    encoder.finish().expect("memory takes all")
}

/// One zstd frame, with a checksum, that holds `bytes`.
pub fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).expect("level 1 exists");
    encoder.include_checksum(true).expect("checksums exist");
    encoder.write_all(bytes).expect("memory takes all");
    encoder.finish().expect("memory takes all")
}
