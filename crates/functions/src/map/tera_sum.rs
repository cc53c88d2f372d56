//! `builtin:tera-sum`: valsort's figures over each stretch of a file in a split.

use crate::map::{BlockPlace, Emitter, MapCounts, MapFunction, RecordInput};
use api::{Blame, TaskFailure};
use tera::Summary;

/// Emits a pair for each stretch: the key is the number of the file (u32) and the offset in it (u64), both big-endian
/// so that they sort as numbers; the value is the bytes of the summary. `builtin:tera-join` joins them.
pub(crate) struct TeraSumMapper;

/// A stretch of a file that is being summed.
struct Stretch {
    start: BlockPlace,
    bytes: u64,
    summary: Summary,
}

impl Stretch {
    fn goes_on_at(&self, place: BlockPlace) -> bool {
        place == BlockPlace { offset_bytes: self.start.offset_bytes + self.bytes, ..self.start }
    }

    fn emit(&self, output: &mut dyn Emitter, counts: &mut MapCounts) -> Result<(), TaskFailure> {
        let key =
            [&self.start.file_index.to_be_bytes()[..], &self.start.offset_bytes.to_be_bytes()[..]].concat();
        let value = self.summary.to_bytes();
        counts.output_records += 1;
        counts.output_bytes += (key.len() + value.len()) as u64;
        output.emit(&key, &value)
    }
}

impl MapFunction for TeraSumMapper {
    fn run(
        &mut self,
        input: &mut dyn RecordInput,
        output: &mut dyn Emitter,
    ) -> Result<MapCounts, TaskFailure> {
        let mut counts = MapCounts::default();
        let mut open: Option<Stretch> = None;
        let mut block_summary;
        loop {
            let block_bytes;
            match input.next_block()? {
                None => break,
                Some(block) => {
                    block_bytes = block.len() as u64;
                    block_summary = Summary::new();
                    let added = block_summary.add_rows(block);
                    added.map_err(|error| {
                        let place = input.position(0);
                        TaskFailure::new(
                            Blame::UserData,
                            format!("the rows of {place} do not end with a whole row: {error}"),
                        )
                    })?;
                }
            }
            let place = input.place();
            match &mut open {
                Some(stretch) if stretch.goes_on_at(place) => {
                    stretch.summary.append(&block_summary);
                    stretch.bytes += block_bytes;
                }
                before => {
                    if let Some(stretch) = before.take() {
                        stretch.emit(output, &mut counts)?;
                    }
                    open = Some(Stretch { start: place, bytes: block_bytes, summary: block_summary });
                }
            }
        }
        if let Some(stretch) = open {
            stretch.emit(output, &mut counts)?;
        }
        Ok(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::TeraSumMapper;
    use crate::map::{BlockPlace, Emitter, MapFunction, RecordInput};
    use api::TaskFailure;
    use tera::Summary;

    /// Blocks of rows of one byte each, with their positions.
    struct Blocks(Vec<(BlockPlace, Vec<u8>)>, BlockPlace, Vec<u8>);

    impl RecordInput for Blocks {
        fn next_block(&mut self) -> Result<Option<&[u8]>, TaskFailure> {
            if self.0.is_empty() {
                return Ok(None);
            }
            (self.1, self.2) = self.0.remove(0);
            Ok(Some(&self.2))
        }
        fn format(&self) -> api::RecordFormat {
            api::RecordFormat::TERA
        }
        fn source_name(&self) -> String {
            "test".to_string()
        }
        fn position(&self, offset_in_block: usize) -> String {
            format!("test at byte {offset_in_block}")
        }
        fn place(&self) -> BlockPlace {
            self.1
        }
    }

    struct Pairs(Vec<(Vec<u8>, Summary)>);

    impl Emitter for Pairs {
        fn emit(&mut self, key: &[u8], value: &[u8]) -> Result<(), TaskFailure> {
            self.0.push((key.to_vec(), Summary::from_bytes(value).unwrap()));
            Ok(())
        }
    }

    fn rows(bytes: &[u8]) -> Vec<u8> {
        bytes.iter().flat_map(|byte| [*byte; 100]).collect()
    }

    fn at(file_index: u32, offset_bytes: u64) -> BlockPlace {
        BlockPlace { file_index, named_input: 0, offset_bytes }
    }

    #[test]
    fn a_pair_for_each_stretch() {
        let blocks = vec![
            (at(3, 700), rows(b"ab")),
            (at(3, 900), rows(b"a")),
            (at(4, 0), rows(b"cc")),
            (at(5, 0), rows(b"d")),
            (at(5, 200), rows(b"e")),
        ];
        let mut pairs = Pairs(Vec::new());
        let mut input = Blocks(blocks, at(0, 0), Vec::new());
        let counts = TeraSumMapper.run(&mut input, &mut pairs).unwrap();
        let found: Vec<(u32, u64, u64, u64, u64)> = pairs
            .0
            .iter()
            .map(|(key, sum)| {
                let (file, offset) = key.split_at(4);
                let file = u32::from_be_bytes(file.try_into().unwrap());
                let offset = u64::from_be_bytes(offset.try_into().unwrap());
                (file, offset, sum.records(), sum.duplicates(), sum.unordered())
            })
            .collect();
        assert_eq!(found, [(3, 700, 3, 0, 1), (4, 0, 2, 1, 0), (5, 0, 1, 0, 0), (5, 200, 1, 0, 0)]);
        assert_eq!((counts.output_records, counts.output_bytes), (4, 4 * 92));
    }

    #[test]
    fn a_cut_row_is_named() {
        let mut input = Blocks(vec![(at(0, 0), vec![0; 150])], at(0, 0), Vec::new());
        let failure = TeraSumMapper.run(&mut input, &mut Pairs(Vec::new())).unwrap_err();
        assert!(failure.message.contains("test at byte 0"), "{}", failure.message);
    }
}
