//! The tree of files: its names and contents. A change is decided inside the transaction that writes it.

mod changes;
mod cluster_puts;
mod disks;
mod entries;
mod expiry;
mod foreign;
mod lookups;
mod owners;
mod puts;
mod replicas;
mod retirement;

pub use changes::{EndedPut, FileChange, FileFacts, FileQuestion};
pub use cluster_puts::{Numbered, Recorded};
pub use entries::LastName;
pub use expiry::ExpiredName;
pub use foreign::{FOREIGN_PUT_MAX, ForeignPuts};
pub use retirement::{RetirePins, Retired};

use crate::database::{Row, Value};
use crate::{Metastore, StoreError};
use api::stored::HashedFile;
use ids::{ConcreteId, ContentId, DirectoryId, FileVersion};
use rows::{ConcreteRow, FileGroups, FileItem, FileNameRow};

impl Metastore {
    fn file_name_row(&self, row: &Row) -> Result<FileNameRow, StoreError> {
        let item = match self.get::<i64>(row, "is_directory")? {
            0 => FileItem::File(ContentId(self.get(row, "item")?)),
            _ => FileItem::Directory(DirectoryId(self.get(row, "item")?)),
        };
        Ok(FileNameRow {
            directory: DirectoryId(self.get(row, "directory")?),
            name: self.get(row, "name")?,
            since: FileVersion(self.get(row, "since_version")?),
            until: self.get::<Option<i64>>(row, "until_version")?.map(FileVersion),
            item,
            user: self.get(row, "user_name")?,
            bytes: self.number(row, "bytes")?,
            parts: self.number(row, "parts")?,
            created_ns: self.number(row, "created_ns")?,
            keep_versions: self.number(row, "keep_versions")?,
            expires_ns: self.number_or_none(row, "expires_ns")?,
            groups: FileGroups { read: self.get(row, "read_group")?, write: self.get(row, "write_group")? },
            hashed: self.hashed_file(row)?,
        })
    }

    /// Reads the distribution of the records of a file, which is stored as JSON.
    fn hashed_file(&self, row: &Row) -> Result<Option<HashedFile>, StoreError> {
        let text: Option<String> = self.get(row, "hashed")?;
        let parsed = text.map(|text| serde_json::from_str(&text).map_err(|_| self.damaged("hashed", &text)));
        parsed.transpose()
    }

    fn file_name_rows(&self, rows: &[Row]) -> Result<Vec<FileNameRow>, StoreError> {
        rows.iter().map(|row| self.file_name_row(row)).collect()
    }

    fn concrete_rows(&self, rows: &[Row]) -> Result<Vec<ConcreteRow>, StoreError> {
        rows.iter().map(|row| self.concrete_row(row)).collect()
    }

    fn concrete_row(&self, row: &Row) -> Result<ConcreteRow, StoreError> {
        Ok(ConcreteRow {
            concrete: ConcreteId(self.get(row, "concrete")?),
            content: ContentId(self.get(row, "content")?),
            part: self.number(row, "part")?,
            bytes: self.number(row, "bytes")?,
            crc32c: self.number(row, "crc32c")?,
        })
    }
}

/// Returns the distribution of the records of a file as it is stored.
fn hashed_value(hashed: Option<&HashedFile>) -> Value {
    // Numbers and texts are always written as JSON.
    hashed.and_then(|hashed| serde_json::to_string(hashed).ok()).into()
}
