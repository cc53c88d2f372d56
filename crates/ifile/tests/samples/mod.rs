//! Small files that have everything in them, made without chance so that they are the same each time.

// Each test binary uses its part of this.
#![allow(dead_code)]

use api::{Codec, DataSum};
use ids::{AttemptNumber, ChunkId, IfileIndex, JobId, RunId, Source, TaskIndex};
use ifile::frame::FrameHeader;
use ifile::raw_chunk::{RawChunkIdentity, encode_trailer};
use ifile::record::{self, KeyShape};
use ifile::run_file::RunIdentity;
use ifile::{RunFile, RunWriter, SourceRow, record_hash};

pub const BLOCK_BYTES: u64 = 256;
/// Makes a sample that has a separator and no value.
const SEPARATED: &[u8] = b"(separated)";

/// A record with all that decides its place in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    pub row: u32,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    pub partition_key_bytes: usize,
    pub is_separated: bool,
}

impl Sample {
    pub fn encoded(&self, shape: KeyShape) -> Vec<u8> {
        let mut bytes = Vec::new();
        let encode = if self.is_separated { record::encode_separated } else { record::encode };
        encode(shape, &self.key, &self.value, self.partition_key_bytes, &mut bytes);
        bytes
    }
}

/// Bytes that no codec makes smaller.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut next = || {
        // Constants of the 64-bit linear congruential generator of Knuth's MMIX; the high byte is the best.
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Three stretches of two sources: the second source came back to chunk 7 after it had been elsewhere.
pub fn source_rows() -> Vec<SourceRow> {
    let row = |chunk, task, attempt, first_sequence| SourceRow {
        chunk: ChunkId(chunk),
        source: Source { map_task: TaskIndex(task), attempt: AttemptNumber(attempt) },
        first_sequence,
        sum: DataSum::default(),
    };
    vec![row(7, 0, 0, 0), row(7, 3, 1, 0), row(7, 3, 1, 40)]
}

/// The samples that a version of the format can hold.
pub fn samples_of(version: u16, shape: KeyShape) -> Vec<Sample> {
    samples(shape).into_iter().filter(|sample| version > 1 || !sample.is_separated).collect()
}

/// Records of every kind that is easily forgotten, in run order.
pub fn samples(shape: KeyShape) -> Vec<Sample> {
    let mut samples = Vec::new();
    let mut add = |row: u32, key: &[u8], partition_key_bytes: usize, value: &[u8]| {
        let partition_key_bytes = if shape == KeyShape::Prefix { partition_key_bytes } else { key.len() };
        let (key, value, is_separated) = (key.to_vec(), value.to_vec(), value == SEPARATED);
        let value = if is_separated { Vec::new() } else { value };
        samples.push(Sample { row, key, value, partition_key_bytes, is_separated });
    };
    if shape == KeyShape::Whole {
        // An empty partition key is the beginning of all others, so it may only stand alone.
        add(0, b"", 0, b"the key is empty");
        add(1, b"", 0, b"");
    }
    for index in 0..24_u32 {
        let key = format!("word-{:02}", index / 4);
        add(index % 3, key.as_bytes(), 7, format!("value {index}").as_bytes());
    }
    add(2, b"x binary\0\xff\t\n", 2, b"\0\x01\xfe\xff\r\n");
    add(0, b"x empty value", 2, b"");
    add(0, b"x empty value", 2, SEPARATED);
    add(1, &[b'x'; 200], 2, SEPARATED);
    add(1, &[&b"y"[..], &[b'k'; 300]].concat(), 301, b"a key that the index cuts");
    add(2, &[&b"y"[..], &[b'k'; 300], b"z"].concat(), 301, b"and one more that begins alike");
    add(0, b"z larger than a block", 1, &[b'v'; 700]);
    add(1, b"z noise", 1, &noise(1, 300));
    samples.sort_by_key(|sample| {
        let rank = source_rows()[sample.row as usize].rank();
        (sample.key.clone(), rank)
    });
    samples
}

pub fn run_identity(shape: KeyShape) -> RunIdentity {
    RunIdentity { job: JobId(12), run: RunId(34), ifile: IfileIndex(5), key_shape: shape }
}

/// A run file of the given records, with the sums of its rows filled in.
pub fn write_run(
    identity: RunIdentity,
    codec: Codec,
    block_bytes: u64,
    mut rows: Vec<SourceRow>,
    samples: &[Sample],
) -> (Vec<u8>, RunFile) {
    for sample in samples {
        let encoded = sample.encoded(identity.key_shape);
        let row = &mut rows[sample.row as usize];
        row.sum.add_record(encoded.len() as u64, record_hash(&encoded));
    }
    let mut writer = RunWriter::new(Vec::new(), identity, codec, block_bytes, rows).expect("a Vec takes all");
    for sample in samples {
        let encoded = sample.encoded(identity.key_shape);
        let record = record::decode(identity.key_shape, &encoded).expect("just encoded");
        writer.push(sample.row, &record).expect("a Vec takes all");
    }
    writer.finish().expect("a Vec takes all")
}

pub fn sample_run(codec: Codec, shape: KeyShape) -> Vec<u8> {
    write_run(run_identity(shape), codec, BLOCK_BYTES, source_rows(), &samples(shape)).0
}

/// A frame of the given records: header and payload.
pub fn frame(source: Source, sequence: u64, shape: KeyShape, samples: &[Sample]) -> (FrameHeader, Vec<u8>) {
    let mut payload = Vec::new();
    let mut sum = DataSum::default();
    for sample in samples {
        let encoded = sample.encoded(shape);
        sum.add_record(encoded.len() as u64, record_hash(&encoded));
        payload.extend_from_slice(&encoded);
    }
    let payload_crc32c = crc32c::crc32c(&payload);
    let header =
        FrameHeader { ifile: IfileIndex(5), source, sequence, key_shape: shape, sum, payload_crc32c };
    (header, payload)
}

/// The samples as frames of seven records, each frame of one source.
pub fn sample_frames(shape: KeyShape) -> Vec<(FrameHeader, Vec<u8>)> {
    sample_frames_of(2, shape)
}

/// The same of a version of the format.
pub fn sample_frames_of(version: u16, shape: KeyShape) -> Vec<(FrameHeader, Vec<u8>)> {
    let rows = source_rows();
    let mut frames = Vec::new();
    for (row, stretch) in rows.iter().enumerate() {
        let of_row: Vec<Sample> =
            samples_of(version, shape).into_iter().filter(|each| each.row == row as u32).collect();
        for (index, records) in of_row.chunks(7).enumerate() {
            frames.push(frame(stretch.source, stretch.first_sequence + index as u64, shape, records));
        }
    }
    // A frame without records is allowed.
    frames.push(frame(rows[0].source, 1000, shape, &[]));
    frames
}

pub fn raw_chunk_identity(shape: KeyShape) -> RawChunkIdentity {
    RawChunkIdentity { job: JobId(12), chunk: ChunkId(7), ifile: IfileIndex(5), key_shape: shape }
}

pub fn write_raw_chunk(identity: RawChunkIdentity, frames: &[(FrameHeader, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = identity.encode_header().to_vec();
    for (header, payload) in frames {
        bytes.extend_from_slice(&header.encode());
        bytes.extend_from_slice(payload);
    }
    bytes.extend_from_slice(&encode_trailer(identity.chunk, frames.len() as u64));
    bytes
}
