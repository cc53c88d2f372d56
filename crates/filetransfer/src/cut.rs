//! The ends of the parts of a file.

use crate::error::TransferError;
use crate::source::SourceFile;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Maximum bytes of a part in a cluster, if the user gives no number of parts: those of a task's split.
pub const PART_BYTES: u64 = 128 << 20;
/// The same on one disk. More parts would gain nothing there, and the kernel can read a file of one part by itself
/// (`filemount`); parts bound the checksums that a reader holds.
pub const PART_BYTES_OF_ONE_DISK: u64 = 4 << 30;
/// Bytes that are searched at once for the end of a line.
const SEARCHED_BYTES: usize = 64 << 10;

/// The places where a file may be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordEnds {
    /// At any byte.
    Bytes,
    /// After a line.
    Lines,
    /// After each record of so many bytes.
    Fixed(u64),
}

/// How files are cut into parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Wished number of parts of each file; None derives it from the length.
    pub parts: Option<u32>,
    /// Maximum bytes of a part, if the number is derived.
    pub part_bytes_max: u64,
    pub records: RecordEnds,
}

/// Returns the ends of the parts of a file: none if it is empty, else the last one is its length.
pub(crate) fn ends_of_parts(file: &SourceFile, cut: Cut) -> Result<Vec<u64>, TransferError> {
    let records = cut.records;
    if let RecordEnds::Fixed(record_bytes) = records
        && !file.bytes.is_multiple_of(record_bytes.max(1))
    {
        let path = file.path.clone();
        return Err(TransferError::RaggedRecords { path, bytes: file.bytes, record_bytes });
    }
    if file.bytes == 0 {
        return Ok(Vec::new());
    }
    let wished = match cut.parts {
        Some(parts) => u64::from(parts.max(1)).min(file.bytes),
        None => file.bytes.div_ceil(cut.part_bytes_max.max(1)),
    };
    let mut ends = Vec::with_capacity(wished as usize);
    let mut open = None;
    for part in 1..wished {
        let place = (u128::from(file.bytes) * u128::from(part) / u128::from(wished)) as u64;
        let end = match records {
            RecordEnds::Bytes => place,
            RecordEnds::Fixed(record_bytes) => place.next_multiple_of(record_bytes.max(1)),
            RecordEnds::Lines => {
                let opened = match open.take() {
                    Some(opened) => opened,
                    None => File::open(&file.path).map_err(TransferError::io("open", &file.path))?,
                };
                let end = line_end(&opened, place, file)?;
                open = Some(opened);
                end
            }
        };
        if end > ends.last().copied().unwrap_or(0) && end < file.bytes {
            ends.push(end);
        }
    }
    ends.push(file.bytes);
    Ok(ends)
}

/// Returns the end of the line that holds the byte before `place`.
fn line_end(opened: &File, place: u64, file: &SourceFile) -> Result<u64, TransferError> {
    let mut at = place - 1;
    let mut buffer = vec![0; SEARCHED_BYTES];
    loop {
        let read = opened.read_at(&mut buffer, at).map_err(TransferError::io("read", &file.path))?;
        if read == 0 {
            return Ok(file.bytes);
        }
        match buffer[..read].iter().position(|byte| *byte == b'\n') {
            Some(position) => return Ok(at + position as u64 + 1),
            None => at += read as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Cut, RecordEnds, ends_of_parts};
    use crate::source::SourceFile;
    use std::io::Write;

    #[test]
    fn parts_end_where_records_end() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"one\nthree\n\nlonger line\nx").unwrap();
        let check = |parts: u32, records: RecordEnds, expected: &[u64]| {
            let source = SourceFile {
                name: String::new(),
                path: file.path().to_path_buf(),
                bytes: 24,
                modified_ns: 0,
            };
            let cut = Cut { parts: Some(parts), part_bytes_max: 1, records };
            assert_eq!(ends_of_parts(&source, cut).ok().as_deref(), Some(expected));
        };
        check(1, RecordEnds::Bytes, &[24]);
        check(3, RecordEnds::Bytes, &[8, 16, 24]);
        check(100, RecordEnds::Bytes, &(1..=24).collect::<Vec<_>>());
        check(2, RecordEnds::Lines, &[23, 24]);
        check(6, RecordEnds::Lines, &[4, 10, 23, 24]);
        check(24, RecordEnds::Lines, &[4, 10, 11, 23, 24]);
        check(3, RecordEnds::Fixed(6), &[12, 18, 24]);
        let ragged = SourceFile { name: String::new(), path: file.path().into(), bytes: 24, modified_ns: 0 };
        let by_size = |part_bytes_max, records| {
            ends_of_parts(&ragged, Cut { parts: None, part_bytes_max, records }).ok()
        };
        assert_eq!(by_size(8, RecordEnds::Fixed(5)), None);
        let parts = by_size(8, RecordEnds::Bytes).map(|ends| ends.len() as u64);
        assert_eq!(parts, Some(ragged.bytes.div_ceil(8)));
    }
}
