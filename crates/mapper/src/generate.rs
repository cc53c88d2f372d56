//! Input that is made, not read: rows of the sort benchmark.

use api::{Blame, GeneratedRows, RecordFormat, Segment, Split, TaskFailure, TeraLayout};
use functions::{BlockPlace, RecordInput};
use tera::{ROW_BYTES, RowGenerator, RowKind, RowLayout};

/// Cuts the rows of a job into splits of about `split_bytes`, in order of row: whole rows, at least one each.
pub fn plan(generated: &GeneratedRows, split_bytes: u64) -> Vec<Split> {
    let row_bytes = ROW_BYTES as u64;
    let piece_bytes = (split_bytes / row_bytes).max(1) * row_bytes;
    let all_bytes = generated.rows * row_bytes;
    let mut splits = Vec::new();
    let mut offset_bytes = 0;
    while offset_bytes < all_bytes {
        let length_bytes = piece_bytes.min(all_bytes - offset_bytes);
        splits.push(Split { segments: vec![Segment { file_index: 0, offset_bytes, length_bytes }] });
        offset_bytes += length_bytes;
    }
    splits
}

/// The kind of rows that a job asks for. Error: legacy rows that are skewed, which nobody defines.
pub fn row_kind(generated: &GeneratedRows) -> Result<RowKind, tera::NoSkewedLegacy> {
    let layout = match generated.layout {
        TeraLayout::Modern => RowLayout::Modern,
        TeraLayout::Legacy => RowLayout::Legacy,
        TeraLayout::Ascii => RowLayout::Ascii,
    };
    match generated.skewed {
        true => RowKind::with_skewed_keys(layout),
        false => Ok(RowKind::uniform(layout)),
    }
}

/// Makes the rows of a split, block by block.
pub struct GeneratedInput {
    start: u128,
    kind: RowKind,
    segments: std::vec::IntoIter<Segment>,
    /// Makes the rest of the current segment.
    generator: RowGenerator,
    left_bytes: u64,
    /// Position of the next block among the row bytes of the job.
    next_offset_bytes: u64,
    buffer: Vec<u8>,
    handed_out: usize,
    bytes: u64,
}

impl GeneratedInput {
    /// Error: [`Blame::Engine`] for rows that do not exist or a split that cuts a row, which no plan asks for.
    pub fn open(
        generated: &GeneratedRows,
        split: &Split,
        buffer_bytes: usize,
    ) -> Result<GeneratedInput, TaskFailure> {
        let kind = row_kind(generated).map_err(|error| TaskFailure::new(Blame::Engine, error.to_string()))?;
        let row_bytes = ROW_BYTES as u64;
        let all_bytes = generated.rows.saturating_mul(row_bytes);
        for segment in &split.segments {
            let end_bytes = segment.offset_bytes.saturating_add(segment.length_bytes);
            let whole = segment.offset_bytes % row_bytes == 0 && segment.length_bytes % row_bytes == 0;
            if !whole || end_bytes > all_bytes {
                let message = format!("a split of {all_bytes} bytes of rows is wrong: {segment:?}");
                return Err(TaskFailure::new(Blame::Engine, message));
            }
        }
        let rows_per_block = (buffer_bytes / ROW_BYTES).max(1);
        Ok(GeneratedInput {
            start: generated.start,
            kind,
            segments: split.segments.clone().into_iter(),
            generator: RowGenerator::new(kind, generated.start),
            left_bytes: 0,
            next_offset_bytes: 0,
            buffer: vec![0; rows_per_block * ROW_BYTES],
            handed_out: 0,
            bytes: 0,
        })
    }

    /// Bytes of the rows made so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Rows made so far.
    pub fn records(&self) -> u64 {
        self.bytes / ROW_BYTES as u64
    }

    fn open_next(&mut self) -> bool {
        let Some(segment) = self.segments.next() else { return false };
        let row = u128::from(segment.offset_bytes / ROW_BYTES as u64);
        self.generator = RowGenerator::new(self.kind, self.start.wrapping_add(row));
        self.left_bytes = segment.length_bytes;
        self.next_offset_bytes = segment.offset_bytes;
        true
    }
}

impl RecordInput for GeneratedInput {
    fn next_block(&mut self) -> Result<Option<&[u8]>, TaskFailure> {
        while self.left_bytes == 0 {
            if !self.open_next() {
                return Ok(None);
            }
        }
        let wanted = usize::try_from(self.left_bytes).unwrap_or(usize::MAX).min(self.buffer.len());
        let block = &mut self.buffer[..wanted];
        self.generator.fill(block);
        self.handed_out = wanted;
        self.left_bytes -= wanted as u64;
        self.next_offset_bytes += wanted as u64;
        self.bytes += wanted as u64;
        Ok(Some(block))
    }

    fn format(&self) -> RecordFormat {
        RecordFormat::TERA
    }

    fn source_name(&self) -> String {
        format!("the generated rows from number {} on", self.start)
    }

    fn position(&self, offset_in_block: usize) -> String {
        let BlockPlace { offset_bytes, .. } = self.place();
        let row = (offset_bytes + offset_in_block as u64) / ROW_BYTES as u64;
        format!("generated row {}", self.start.wrapping_add(u128::from(row)))
    }

    fn place(&self) -> BlockPlace {
        let offset_bytes = self.next_offset_bytes - self.handed_out as u64;
        BlockPlace { offset_bytes, ..BlockPlace::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::{GeneratedInput, plan};
    use api::{GeneratedRows, Segment, Split, TeraLayout};
    use functions::RecordInput;
    use tera::{RowGenerator, RowKind, RowLayout};

    fn check(rows: u64, start: u128, split_bytes: u64, buffer_bytes: usize, splits: usize) {
        let generated = GeneratedRows { layout: TeraLayout::Ascii, skewed: true, start, rows };
        let plan = plan(&generated, split_bytes);
        assert_eq!(plan.len(), splits, "{rows} rows in splits of {split_bytes} bytes");
        let mut found = Vec::new();
        for split in &plan {
            let mut input = GeneratedInput::open(&generated, split, buffer_bytes).unwrap();
            let before = found.len();
            while let Some(block) = input.next_block().unwrap() {
                let block = block.to_vec();
                assert_eq!(input.place().offset_bytes, found.len() as u64);
                found.extend(block);
            }
            assert_eq!(input.bytes(), (found.len() - before) as u64);
            assert_eq!(input.records() * 100, input.bytes());
        }
        let mut expected = vec![0; rows as usize * 100];
        RowGenerator::new(RowKind::with_skewed_keys(RowLayout::Ascii).unwrap(), start).fill(&mut expected);
        assert!(found == expected, "{rows} rows from {start}");
    }

    #[test]
    fn splits_and_blocks_give_the_rows_in_order() {
        check(0, 0, 1000, 1000, 0);
        check(1, 7, 1, 1, 1);
        check(25, 0, 1000, 300, 3);
        check(1000, u128::from(u64::MAX) - 500, 12_345, 4096, 9);
        check(64, u128::MAX - 31, 1600, 333, 4);
    }

    #[test]
    fn a_split_that_cuts_a_row_is_refused() {
        let generated = GeneratedRows { layout: TeraLayout::Modern, skewed: false, start: 0, rows: 2 };
        for (offset_bytes, length_bytes) in [(0, 150), (50, 100), (100, 200)] {
            let segments = vec![Segment { file_index: 0, offset_bytes, length_bytes }];
            assert!(GeneratedInput::open(&generated, &Split { segments }, 1000).is_err());
        }
    }
}
