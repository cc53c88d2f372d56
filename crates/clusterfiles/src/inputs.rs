//! Stored files as inputs of jobs: a list at one version, which stays while the list lives.

use crate::ClusterFiles;
use crate::read_parts::{PartReads, part_of};
use filestore::FilesError;
use filetransfer::{FileToGet, GetPlan};
use filetree::TreeName;

/// Files of one version. A job server keeps the version from the submit on.
pub struct ReadableFiles {
    pub plan: GetPlan,
    reads: PartReads,
}

impl ClusterFiles {
    /// Lists a file, or all files below a directory.
    pub fn below(&self, name: &TreeName) -> Result<ReadableFiles, FilesError> {
        let (plan, reads) = self.planned(name)?;
        Ok(ReadableFiles { plan, reads })
    }
}

impl ReadableFiles {
    /// Returns the first bytes of a file, at most `bytes_max`.
    pub fn first_bytes(&self, file: &FileToGet, bytes_max: usize) -> Result<Vec<u8>, FilesError> {
        let mut bytes = Vec::new();
        for row in &file.parts {
            let wanted = row.bytes.min((bytes_max - bytes.len()) as u64);
            let mut reading = self.reads.range(part_of(row), 0, wanted);
            while let Some(piece) = reading.next_piece()? {
                bytes.extend_from_slice(&piece);
            }
            if bytes.len() >= bytes_max {
                break;
            }
        }
        Ok(bytes)
    }
}
