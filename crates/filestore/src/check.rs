//! The check of files: every block of every concrete file, and whether rows and disk agree.

use crate::error::FilesError;
use crate::{FileStore, content_of};
use concretefile::{ConcreteError, ConcreteReader, verify};
use filetransfer::{PIECE_BYTES, RecordSum, check_records};
use filetree::TreeName;
use ids::PutId;
use rows::FileItem;
use std::collections::HashSet;

/// A difference between a file and its row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Name of the file; None for files of the disk without a name.
    pub name: Option<String>,
    pub text: String,
}

/// The outcome of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckedFiles {
    pub files: u64,
    pub parts: u64,
    pub bytes: u64,
    pub problems: Vec<Problem>,
    /// Interrupted puts that can go on, by their names.
    pub unfinished: Vec<String>,
}

impl FileStore {
    /// Reads and verifies everything below a name. For the root it also looks for files without rows.
    pub fn check(&self, name: &TreeName) -> Result<CheckedFiles, FilesError> {
        let pin = self.pin(name.version)?;
        let at = TreeName { version: Some(pin.version), ..name.clone() };
        let mut checked = CheckedFiles::default();
        self.walk(&at, &mut |entry| {
            let Some(row) = entry.row.filter(|row| matches!(row.item, FileItem::File(_))) else {
                return Ok(());
            };
            checked.files += 1;
            let rows = self.parts(&row)?;
            let maker = self.maker_of(row.item.put())?;
            let mut problem = |text: String| {
                let name = Some(entry.name.clone());
                let text = maker.as_ref().map(|job| format!("{text}; {}", job.advice())).unwrap_or(text);
                checked.problems.push(Problem { name, text });
            };
            if rows.len() != row.parts as usize {
                problem(format!("the store has {} of its {} parts", rows.len(), row.parts));
            }
            let mut sum = row.hashed.as_ref().map(RecordSum::new);
            let mut is_readable = true;
            for part in rows {
                let opened = self.disk.read(part.concrete, content_of(&part));
                let verified = match &mut sum {
                    None => opened.and_then(verify),
                    Some(sum) => opened.and_then(|reader| add_records(reader, part.bytes, sum)),
                };
                match verified {
                    Ok(()) => checked.bytes += part.bytes,
                    Err(error) => {
                        is_readable = false;
                        problem(format!("part {}: {error}", part.part));
                    }
                }
                checked.parts += 1;
            }
            if let (Some(sum), Some(hashed), true) = (sum, &row.hashed, is_readable)
                && let Err(error) = check_records(&entry.name, hashed, &sum.finish())
            {
                problem(error.to_string());
            }
            Ok(())
        })?;
        if name.path.is_root() {
            self.check_disk(&mut checked)?;
        }
        Ok(checked)
    }

    fn check_disk(&self, checked: &mut CheckedFiles) -> Result<(), FilesError> {
        let unfinished = self.run(self.store.file_puts())?;
        let under_way: HashSet<PutId> = unfinished.iter().map(|row| row.put).collect();
        for put in self.disk.puts()? {
            if under_way.contains(&put) {
                continue;
            }
            let known = self.run(self.store.concrete_files_of_put(put))?;
            let known: HashSet<_> = known.iter().map(|row| row.concrete).collect();
            let lost = self.disk.files(put)?.into_iter().filter(|file| !known.contains(file));
            for file in lost {
                let text = format!("{} has no row in the store", self.disk.path(file).display());
                checked.problems.push(Problem { name: None, text });
            }
        }
        checked.unfinished = unfinished.into_iter().map(|row| row.path).collect();
        Ok(())
    }
}

/// Reads a verified part, and adds its records to a sum.
fn add_records(mut reader: ConcreteReader, bytes: u64, sum: &mut RecordSum) -> Result<(), ConcreteError> {
    let mut offset = 0;
    while offset < bytes {
        let piece = reader.read(offset, PIECE_BYTES)?;
        sum.add(piece);
        offset += piece.len() as u64;
    }
    Ok(())
}
