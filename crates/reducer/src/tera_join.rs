//! `builtin:tera-join`: joins the summaries that `builtin:tera-sum` puts out, file by file.

use crate::function::{GroupedRecords, ReduceCounts, ReduceFunction};
use crate::part::PartWriter;
use api::{Blame, TaskFailure};
use tera::{ROW_BYTES, Summary};

/// Writes one pair for each file: its number (u32, big-endian) and the summary of all its rows.
#[derive(Default)]
pub(crate) struct TeraJoinReducer;

/// A file, as far as it is joined.
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
        let message = "builtin:tera-join reads what builtin:tera-sum puts out, and nothing else";
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
