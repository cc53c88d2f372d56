//! Division of the inputs of a job into splits, one for each map task.

use api::{InputFile, RecordFormat, Segment, Split};
use std::ops::Range;

/// Maximum number of segments in a split: bounds the message of a job over very many tiny files.
pub const SEGMENTS_PER_SPLIT_MAX: usize = 4096;

/// Divides inputs into splits of about `split_bytes` stored bytes, in input order. Plain files of lines are cut at
/// multiples of `split_bytes` (the reader moves both ends to line ends), like files that programs read by themselves.
/// Files of records of fixed length are cut at a multiple of the record length. Compressed files stay whole; small
/// files are packed together up to `split_bytes`. Plain stored files are also cut at the ends of their parts, because each
/// part has other nodes; a part is divided evenly. Files that other nodes see are in other splits. Each byte of each file is in exactly one split, and empty files are
/// in none.
pub fn plan(inputs: &[InputFile], split_bytes: u64, format: RecordFormat) -> Vec<Split> {
    let record_bytes = match format {
        RecordFormat::Lines { .. } | RecordFormat::Stretches => 1,
        RecordFormat::Fixed { record_bytes, .. } => u64::from(record_bytes.max(1)),
    };
    let split_bytes = (split_bytes / record_bytes).max(1) * record_bytes;
    let mut packer = Packer { split_bytes, splits: Vec::new(), open: Vec::new(), open_bytes: 0 };
    let mut seen = None;
    for (file_index, input) in inputs.iter().enumerate() {
        if std::mem::replace(&mut seen, input.seen) != input.seen {
            packer.close();
        }
        let file_index = u32::try_from(file_index).expect("an input list has fewer than 2^32 files");
        if let (None, Some(content)) = (input.compression, &input.stored) {
            let (mut part_end, mut begin) = (0_u64, 0);
            for part in &content.parts {
                part_end = part_end.saturating_add(part.bytes).min(input.size_bytes);
                let end = part_end / record_bytes * record_bytes;
                let pieces = (end - begin).div_ceil(split_bytes).max(1);
                let piece_bytes = (end - begin).div_ceil(pieces).div_ceil(record_bytes) * record_bytes;
                // Only small parts share a split with parts that other nodes have.
                let is_small = (end - begin) * 2 <= split_bytes;
                if !is_small {
                    packer.close();
                }
                packer.add_pieces(file_index, begin..end, piece_bytes);
                if !is_small {
                    packer.close();
                }
                begin = end;
            }
            // Less than a record, for which the reader has an error.
            packer.add_pieces(file_index, begin..input.size_bytes, split_bytes);
            continue;
        }
        let piece_bytes = match input.compression {
            None => split_bytes,
            Some(_) => input.size_bytes,
        };
        packer.add_pieces(file_index, 0..input.size_bytes, piece_bytes);
    }
    packer.close();
    packer.splits
}

struct Packer {
    split_bytes: u64,
    splits: Vec<Split>,
    open: Vec<Segment>,
    open_bytes: u64,
}

impl Packer {
    fn add_pieces(&mut self, file_index: u32, stretch: Range<u64>, piece_bytes: u64) {
        let mut offset_bytes = stretch.start;
        while offset_bytes < stretch.end {
            let length_bytes = piece_bytes.min(stretch.end - offset_bytes);
            self.add(Segment { file_index, offset_bytes, length_bytes });
            offset_bytes += length_bytes;
        }
    }

    fn add(&mut self, segment: Segment) {
        let too_large = self.open_bytes.saturating_add(segment.length_bytes) > self.split_bytes;
        let goes_on = |last: &&mut Segment| {
            last.file_index == segment.file_index
                && last.offset_bytes + last.length_bytes == segment.offset_bytes
        };
        if !too_large && let Some(last) = self.open.last_mut().filter(goes_on) {
            last.length_bytes += segment.length_bytes;
            self.open_bytes += segment.length_bytes;
            return;
        }
        if too_large || self.open.len() == SEGMENTS_PER_SPLIT_MAX {
            self.close();
        }
        self.open.push(segment);
        self.open_bytes += segment.length_bytes;
    }

    fn close(&mut self) {
        if !self.open.is_empty() {
            self.splits.push(Split { segments: std::mem::take(&mut self.open) });
            self.open_bytes = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::plan;
    use api::{Compression, InputFile, RecordFormat, StoredContent, StoredPart};
    use ids::ConcreteId;

    fn check(files: &[(u64, Option<Compression>)], split_bytes: u64, expected: &[&[(u32, u64, u64)]]) {
        check_format(files, split_bytes, RecordFormat::TEXT, expected);
    }

    fn check_format(
        files: &[(u64, Option<Compression>)],
        split_bytes: u64,
        format: RecordFormat,
        expected: &[&[(u32, u64, u64)]],
    ) {
        let file = |(size_bytes, compression): &(u64, Option<Compression>)| InputFile {
            path: "/f".into(),
            size_bytes: *size_bytes,
            mtime_ns: 0,
            compression: *compression,
            named: 0,
            object: None,
            stage_file: None,
            stored: None,
            content: None,
            seen: None,
        };
        let inputs: Vec<InputFile> = files.iter().map(file).collect();
        let splits = plan(&inputs, split_bytes, format);
        let rows: Vec<Vec<(u32, u64, u64)>> = splits
            .iter()
            .map(|split| {
                let row = |s: &api::Segment| (s.file_index, s.offset_bytes, s.length_bytes);
                split.segments.iter().map(row).collect()
            })
            .collect();
        assert_eq!(rows, expected);
    }

    #[test]
    fn files_of_other_nodes_are_in_other_splits() {
        let file = |seen| InputFile {
            path: "/f".into(),
            size_bytes: 10,
            mtime_ns: 0,
            compression: None,
            named: 0,
            object: None,
            stage_file: None,
            stored: None,
            content: None,
            seen,
        };
        let splits = plan(&[None, Some(0), Some(0), Some(1), None].map(file), 1000, RecordFormat::TEXT);
        let files = |split: api::Split| split.segments.iter().map(|segment| segment.file_index).collect();
        let files: Vec<Vec<u32>> = splits.into_iter().map(files).collect();
        assert_eq!(files, [vec![0], vec![1, 2], vec![3], vec![4]]);
    }

    #[test]
    fn stored_files_are_cut_at_their_parts() {
        let check = |parts: &[u64], split_bytes: u64, format: RecordFormat, expected: &[&[(u64, u64)]]| {
            let part = |bytes: &u64| StoredPart { concrete: ConcreteId(1), bytes: *bytes, crc32c: 0 };
            let content = StoredContent { parts: parts.iter().map(part).collect() };
            let input = InputFile {
                path: "files:a@1".into(),
                size_bytes: content.bytes(),
                mtime_ns: 0,
                compression: None,
                named: 0,
                object: None,
                stage_file: None,
                stored: Some(content),
                content: None,
                seen: None,
            };
            let rows: Vec<Vec<(u64, u64)>> = plan(&[input], split_bytes, format)
                .iter()
                .map(|split| split.segments.iter().map(|s| (s.offset_bytes, s.length_bytes)).collect())
                .collect();
            assert_eq!(rows, expected, "{parts:?}");
        };
        let text = RecordFormat::TEXT;
        check(&[], 10, text, &[]);
        check(&[10, 10], 10, text, &[&[(0, 10)], &[(10, 10)]]);
        check(&[12, 0, 8], 10, text, &[&[(0, 6)], &[(6, 6)], &[(12, 8)]]);
        check(&[11, 11], 10, text, &[&[(0, 6)], &[(6, 5)], &[(11, 6)], &[(17, 5)]]);
        check(&[3, 6, 3, 3], 10, text, &[&[(0, 3)], &[(3, 6)], &[(9, 6)]]);
        check(&[3, 3, 3, 3], 10, text, &[&[(0, 9)], &[(9, 3)]]);
        let fixed = RecordFormat::Fixed { record_bytes: 4, key_bytes: 1 };
        check(&[10, 10], 9, fixed, &[&[(0, 8)], &[(8, 8)], &[(16, 4)]]);
        check(&[10, 7], 9, fixed, &[&[(0, 8)], &[(8, 8)], &[(16, 1)]]);
    }

    #[test]
    fn splits_are_cut_and_packed() {
        use Compression::{Gzip, Zstd};
        check(&[], 10, &[]);
        check(&[(0, None)], 10, &[]);
        check(&[(10, None)], 10, &[&[(0, 0, 10)]]);
        check(&[(25, None)], 10, &[&[(0, 0, 10)], &[(0, 10, 10)], &[(0, 20, 5)]]);
        check(
            &[(12, None), (8, None), (1, None)],
            10,
            &[&[(0, 0, 10)], &[(0, 10, 2), (1, 0, 8)], &[(2, 0, 1)]],
        );
        check(
            &[(3, Some(Gzip)), (25, Some(Zstd)), (4, Some(Gzip))],
            10,
            &[&[(0, 0, 3)], &[(1, 0, 25)], &[(2, 0, 4)]],
        );
        check(&[(3, Some(Gzip)), (0, None), (4, None)], 10, &[&[(0, 0, 3), (2, 0, 4)]]);
    }

    #[test]
    fn stretches_are_cut_as_lines_are() {
        use Compression::Bzip2;
        check_format(
            &[(25, None), (30, Some(Bzip2)), (3, None), (0, None), (12, None)],
            10,
            RecordFormat::Stretches,
            &[
                &[(0, 0, 10)],
                &[(0, 10, 10)],
                &[(0, 20, 5)],
                &[(1, 0, 30)],
                &[(2, 0, 3)],
                &[(4, 0, 10)],
                &[(4, 10, 2)],
            ],
        );
        check_format(&[(4, None), (5, None)], 10, RecordFormat::Stretches, &[&[(0, 0, 4), (1, 0, 5)]]);
    }

    #[test]
    fn splits_hold_whole_records() {
        use Compression::Xz;
        let fixed = RecordFormat::Fixed { record_bytes: 4, key_bytes: 1 };
        check_format(&[(24, None)], 10, fixed, &[&[(0, 0, 8)], &[(0, 8, 8)], &[(0, 16, 8)]]);
        check_format(&[(8, None)], 3, fixed, &[&[(0, 0, 4)], &[(0, 4, 4)]]);
        check_format(
            &[(4, None), (7, Some(Xz)), (4, None)],
            10,
            fixed,
            &[&[(0, 0, 4)], &[(1, 0, 7)], &[(2, 0, 4)]],
        );
    }
}
