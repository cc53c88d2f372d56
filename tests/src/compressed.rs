//! Compressed inputs and outputs.

use std::io::{Read, Write};

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

/// One bzip2 stream that holds `bytes`.
pub fn bzip2(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    encoder.write_all(bytes).expect("memory takes all");
    encoder.finish().expect("memory takes all")
}

/// One xz stream that holds `bytes`.
pub fn xz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
    encoder.write_all(bytes).expect("memory takes all");
    encoder.finish().expect("memory takes all")
}

/// Unpacks a compressed part with this extension, all streams of it.
pub fn unpacked(extension: &str, bytes: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    let outcome = match extension {
        "gz" => flate2::read::MultiGzDecoder::new(bytes).read_to_end(&mut text),
        "zst" => zstd::Decoder::new(bytes).and_then(|mut decoder| decoder.read_to_end(&mut text)),
        "bz2" => bzip2::read::MultiBzDecoder::new(bytes).read_to_end(&mut text),
        "xz" => liblzma::read::XzDecoder::new_multi_decoder(bytes).read_to_end(&mut text),
        other => panic!("no part is named .{other}"),
    };
    outcome.expect("a compressed part is whole");
    text
}
