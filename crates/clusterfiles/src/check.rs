//! The check of files: one replica of each part is read and verified, and replicas are counted. The server lets the
//! nodes verify the others from time to time.

use crate::ClusterFiles;
use crate::lease::Lease;
use crate::places::Places;
use crate::read_parts::PartReads;
use crate::reading::{Leased, PlacedEntry, PlacedFile, add_file, check_parts, entries_of, text_of};
use api::stored::cluster::{PlacedPart, StoredItem, StoredPage};
use filestore::{CheckedFiles, FilesError, Problem};
use filetransfer::{PIECE_BYTES, PartStore, RecordSum, TransferError, check_records};
use filetree::TreeName;
use rows::ConcreteRow;
use std::sync::Arc;
use std::time::Duration;

impl ClusterFiles {
    /// Reads and verifies everything below a name.
    pub(crate) fn check_below(&self, name: &TreeName) -> Result<CheckedFiles, FilesError> {
        let Leased { found, lease } = self.leased(name)?;
        let mut checked = CheckedFiles::default();
        let directory = match &found.entry {
            None => found.root,
            Some(entry) => match entry.item {
                StoredItem::Directory(directory) => directory,
                StoredItem::File(_) => {
                    let page = self.placed_file(name, &lease)?;
                    let above = text_of(&name.path);
                    let prefix = above.rfind('/').map_or("", |end| &above[..=end]);
                    self.check_page(&lease, prefix, page, &mut checked)?;
                    return Ok(checked);
                }
            },
        };
        self.placed_pages(directory, &lease, &mut |prefix, page| {
            self.check_page(&lease, prefix, page, &mut checked)
        })?;
        Ok(checked)
    }

    fn placed_file(&self, name: &TreeName, lease: &Lease) -> Result<StoredPage, FilesError> {
        let at = TreeName { version: Some(lease.version), ..name.clone() };
        let row = self.found_entry(&at)?.row.ok_or_else(|| FilesError::Missing(name.clone()))?;
        self.placed_entry(&row, Some(lease.version), lease.number)
    }

    /// Verifies the files of a page.
    fn check_page(
        &self,
        lease: &Arc<Lease>,
        prefix: &str,
        mut page: StoredPage,
        checked: &mut CheckedFiles,
    ) -> Result<(), FilesError> {
        let mut places = Places::default();
        places.add_page(&mut page);
        let mut files = Vec::new();
        for entry in entries_of(page) {
            let PlacedEntry::File(file) = entry else { continue };
            let name = format!("{prefix}{}", file.row.name);
            add_file(&mut places, &name, &file);
            files.push((name, file));
        }
        let order: Vec<_> =
            files.iter().flat_map(|(_, file)| file.parts.iter().map(|placed| placed.file)).collect();
        let (connection, lease) = (Arc::clone(&self.connection), Arc::clone(lease));
        let reads = PartReads::new(connection, lease, places, order, Duration::ZERO);
        for (name, file) in &files {
            check_file(name, file, &reads, checked)?;
        }
        Ok(())
    }
}

fn check_file(
    name: &str,
    file: &PlacedFile,
    reads: &PartReads,
    checked: &mut CheckedFiles,
) -> Result<(), FilesError> {
    checked.files += 1;
    let mut problem = |text: String| checked.problems.push(Problem { name: Some(name.to_string()), text });
    if let Err(error) = check_parts(name, file) {
        problem(error.to_string());
    }
    let mut sum = file.row.hashed.as_ref().map(RecordSum::new);
    let mut is_readable = true;
    for placed in &file.parts {
        checked.parts += 1;
        let short = count_problem(placed);
        if placed.disks.is_empty() {
            is_readable = false;
            problem(reads.places().with_maker(placed.file.concrete, short.unwrap_or_default()));
            continue;
        }
        if let Some(text) = short {
            problem(text);
        }
        match read_whole(reads, placed, sum.as_mut()) {
            Ok(()) => checked.bytes += placed.file.bytes,
            Err(TransferError::NoReplica { part, reason, .. }) => {
                is_readable = false;
                problem(format!("part {part} cannot be read: {reason}"));
            }
            Err(error) => return Err(error.into()),
        }
    }
    if let (Some(sum), Some(hashed), true) = (sum, &file.row.hashed, is_readable)
        && let Err(error) = check_records(name, hashed, &sum.finish())
    {
        problem(error.to_string());
    }
    Ok(())
}

/// Returns the difference between the replicas of a part and the wished number.
fn count_problem(placed: &PlacedPart) -> Option<String> {
    let (part, wanted) = (placed.part, placed.replicas);
    match placed.disks.len() {
        0 => Some(format!("part {part}: all {wanted} replicas are lost")),
        count if count < wanted as usize => Some(format!("part {part} has {count} of {wanted} replicas")),
        _ => None,
    }
}

/// Reads and verifies a part, and adds its records to `sum`.
fn read_whole(
    reads: &PartReads,
    placed: &PlacedPart,
    mut sum: Option<&mut RecordSum>,
) -> Result<(), TransferError> {
    let row = ConcreteRow {
        concrete: placed.file.concrete,
        content: placed.content,
        part: placed.part,
        bytes: placed.file.bytes,
        crc32c: placed.file.crc32c,
    };
    let mut source = reads.open(&row)?;
    let mut offset = 0;
    let mut computed = 0;
    while offset < row.bytes {
        let piece = source.read(offset, PIECE_BYTES)?;
        if piece.is_empty() {
            break;
        }
        computed = crc32c::crc32c_append(computed, piece);
        if let Some(sum) = &mut sum {
            sum.add(piece);
        }
        offset += piece.len() as u64;
    }
    match offset == row.bytes && computed == row.crc32c {
        true => Ok(()),
        false => {
            let text = format!("part {} was read with other bytes than were put", row.part);
            Err(TransferError::Store(text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::count_problem;
    use api::StoredPart;
    use api::stored::cluster::PlacedPart;
    use ids::{ConcreteId, ContentId, DiskId};

    #[test]
    fn missing_replicas_are_counted() {
        let check = |disks: i64, expected: Option<&str>| {
            let placed = PlacedPart {
                content: ContentId(1),
                part: 4,
                file: StoredPart { concrete: ConcreteId(1), bytes: 1, crc32c: 0 },
                replicas: 3,
                disks: (0..disks).map(DiskId).collect(),
            };
            assert_eq!(count_problem(&placed).as_deref(), expected);
        };
        check(3, None);
        check(4, None);
        check(1, Some("part 4 has 1 of 3 replicas"));
        check(0, Some("part 4: all 3 replicas are lost"));
    }
}
