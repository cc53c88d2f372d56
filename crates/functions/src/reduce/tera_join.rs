//! `builtin:tera-join`: joins the summaries of `builtin:tera-sum`, file by file.

use crate::reduce::{GroupedRecords, ReduceCounts, ReduceFunction};
use api::{Blame, TaskFailure};
use output::PartWriter;
use tera::{ROW_BYTES, Summary};

/// Writes a pair for each file: its number (u32, big-endian) and the summary of all its rows.
#[derive(Default)]
pub(crate) struct TeraJoinReducer;

/// A partly joined file.
struct File {
    index: [u8; 4],
    next_offset_bytes: u64,
    summary: Summary,
}

impl ReduceFunction for TeraJoinReducer {
    fn run(
        &mut self,
        input: &mut dyn GroupedRecords,
        output: &mut PartWriter,
    ) -> Result<ReduceCounts, TaskFailure> {
        let mut groups = 0;
        let mut open: Option<File> = None;
        while let Some(record) = input.next()? {
            groups += u64::from(record.starts_group);
            let (index, offset_bytes) = place_of(record.key)?;
            let summary = Summary::from_bytes(record.value)
                .map_err(|error| TaskFailure::new(Blame::Engine, error.to_string()))?;
            let next_offset_bytes = offset_bytes + summary.records() * ROW_BYTES as u64;
            match &mut open {
                Some(file) if file.index == index => {
                    if file.next_offset_bytes != offset_bytes {
                        return Err(gap(file, offset_bytes));
                    }
                    file.summary.append(&summary);
                    file.next_offset_bytes = next_offset_bytes;
                }
                before => {
                    if let Some(file) = before.take() {
                        output.write_pair(&file.index, &file.summary.to_bytes())?;
                    }
                    open = Some(File { index, next_offset_bytes, summary });
                }
            }
        }
        if let Some(file) = open {
            output.write_pair(&file.index, &file.summary.to_bytes())?;
        }
        Ok(ReduceCounts { groups, unread_bytes: 0 })
    }
}

fn place_of(key: &[u8]) -> Result<([u8; 4], u64), TaskFailure> {
    let parts = key.split_first_chunk::<4>();
    let parts = parts.and_then(|(index, offset)| Some((*index, u64::from_be_bytes(offset.try_into().ok()?))));
    parts.ok_or_else(|| {
        let message = "builtin:tera-join reads only the output of builtin:tera-sum";
        TaskFailure::new(Blame::UserData, message)
    })
}

fn gap(file: &File, offset_bytes: u64) -> TaskFailure {
    let message = format!(
        "the splits of input {} leave a gap or overlap: a stretch ends at byte {} and the next begins at {offset_bytes}",
        u32::from_be_bytes(file.index),
        file.next_offset_bytes
    );
    TaskFailure::new(Blame::Engine, message)
}

#[cfg(test)]
mod tests {
    use super::TeraJoinReducer;
    use crate::reduce::{GroupedRecord, GroupedRecords, ReduceFunction};
    use api::{Blame, Formats, OutputFormat, TaskFailure};
    use ids::AttemptNumber;
    use output::{PartPlace, PartWriter};
    use tera::Summary;

    /// Pairs as the merge returns them, and the last one returned.
    struct Pairs(Vec<(Vec<u8>, Vec<u8>)>, (Vec<u8>, Vec<u8>));

    impl GroupedRecords for Pairs {
        fn next(&mut self) -> Result<Option<GroupedRecord<'_>>, TaskFailure> {
            if self.0.is_empty() {
                return Ok(None);
            }
            self.1 = self.0.remove(0);
            Ok(Some(GroupedRecord {
                key: &self.1.0,
                value: &self.1.1,
                starts_group: true,
                is_separated: false,
            }))
        }
    }

    fn summary(rows: &[u8]) -> Summary {
        let mut summary = Summary::new();
        rows.iter().for_each(|row| summary.add_rows(&[*row; 100]).unwrap());
        summary
    }

    /// Joins stretches (file, offset, rows). Returns the written bytes, or the party at fault.
    fn join(pairs: Vec<(Vec<u8>, Vec<u8>)>) -> Result<Vec<u8>, Blame> {
        let staging = tempfile::tempdir().unwrap();
        let place = PartPlace {
            staging: staging.path(),
            part_index: 0,
            attempt: AttemptNumber(0),
            buffer_bytes: 1000,
            object_buffer_bytes: 0,
            sync: false,
            is_stage_file: false,
            is_hashed: false,
            stored: None,
        };
        let formats = Formats { output: OutputFormat::Raw, ..Formats::default() };
        let mut part = PartWriter::create(place, &formats).unwrap();
        let mut input = Pairs(pairs, Default::default());
        TeraJoinReducer.run(&mut input, &mut part).map_err(|failure| failure.blame)?;
        let part = part.finish().unwrap();
        Ok(std::fs::read(staging.path().join(part.attempt_name)).unwrap())
    }

    fn stretch(file: u32, offset: u64, rows: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let key = [&file.to_be_bytes()[..], &offset.to_be_bytes()[..]].concat();
        (key, summary(rows).to_bytes().to_vec())
    }

    #[test]
    fn stretches_of_a_file_are_joined() {
        let pairs = vec![stretch(1, 0, b"ab"), stretch(1, 200, b"a"), stretch(7, 100, b"c")];
        let expected = [
            &1_u32.to_be_bytes()[..],
            &summary(b"aba").to_bytes()[..],
            &7_u32.to_be_bytes()[..],
            &summary(b"c").to_bytes()[..],
        ];
        assert_eq!(join(pairs), Ok(expected.concat()));
        assert_eq!(join(Vec::new()), Ok(Vec::new()));
    }

    #[test]
    fn gaps_and_other_pairs_are_refused() {
        assert_eq!(join(vec![stretch(1, 0, b"ab"), stretch(1, 300, b"c")]), Err(Blame::Engine));
        assert_eq!(join(vec![stretch(1, 0, b"ab"), stretch(1, 100, b"c")]), Err(Blame::Engine));
        assert_eq!(join(vec![(b"word".to_vec(), b"1".to_vec())]), Err(Blame::UserData));
        let (key, _) = stretch(1, 0, b"a");
        assert_eq!(join(vec![(key, vec![0; 80])]), Err(Blame::Engine));
    }
}
