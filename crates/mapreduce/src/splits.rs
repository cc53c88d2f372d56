//! Division of the inputs of a job into splits, one for each map task.

use api::{InputFile, RecordFormat, Segment, Split};

/// Maximum number of segments in a split: bounds the message of a job over very many tiny files.
pub const SEGMENTS_PER_SPLIT_MAX: usize = 4096;

/// Divides inputs into splits of about `split_bytes` stored bytes, in input order. Plain files of lines are cut at
/// multiples of `split_bytes` (the reader moves both ends to line ends), like files that programs read by themselves.
/// Files of records of fixed length are cut at a multiple of the record length. Compressed files stay whole; small
/// files are packed together up to `split_bytes`. Each byte of each file is in exactly one split, and empty files are
/// in none.
pub fn plan(inputs: &[InputFile], split_bytes: u64, format: RecordFormat) -> Vec<Split> {
    let split_bytes = match format {
        RecordFormat::Lines { .. } | RecordFormat::Stretches => split_bytes.max(1),
        RecordFormat::Fixed { record_bytes, .. } => {
            let record_bytes = u64::from(record_bytes.max(1));
            (split_bytes / record_bytes).max(1) * record_bytes
        }
    };
    let mut packer = Packer { split_bytes, splits: Vec::new(), open: Vec::new(), open_bytes: 0 };
    for (file_index, input) in inputs.iter().enumerate() {
        let file_index = u32::try_from(file_index).expect("an input list has fewer than 2^32 files");
        let piece_bytes = match input.compression {
            None => split_bytes,
            Some(_) => input.size_bytes,
        };
        let mut offset_bytes = 0;
        while offset_bytes < input.size_bytes {
            let length_bytes = piece_bytes.min(input.size_bytes - offset_bytes);
            packer.add(Segment { file_index, offset_bytes, length_bytes });
            offset_bytes += length_bytes;
        }
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
    fn add(&mut self, segment: Segment) {
        let too_large = self.open_bytes.saturating_add(segment.length_bytes) > self.split_bytes;
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
    use api::{Compression, InputFile, RecordFormat};

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
