//! Limits of an attempt's programs.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Limits of all programs of one attempt together, except for those of a process; None: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AttemptLimits {
    /// Processes at once; also threads, where the kernel counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// Open files of each process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
    /// Bytes of each file that a process writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_bytes: Option<u64>,
    /// Bytes in the directories of the attempt, and of open files that have no name any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
    /// Resident memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Time of each run of a program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
}

/// Name of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitKind {
    Processes,
    OpenFiles,
    FileSize,
    Disk,
    Memory,
    Time,
}

impl LimitKind {
    pub const ALL: [Self; 6] =
        [Self::Processes, Self::OpenFiles, Self::FileSize, Self::Disk, Self::Memory, Self::Time];

    /// Returns the word of options and messages.
    pub fn word(self) -> &'static str {
        match self {
            Self::Processes => "processes",
            Self::OpenFiles => "open-files",
            Self::FileSize => "file-size",
            Self::Disk => "disk",
            Self::Memory => "memory",
            Self::Time => "time",
        }
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word() == word)
    }
}

impl AttemptLimits {
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Returns a limit: a number, bytes or seconds.
    pub fn get(&self, kind: LimitKind) -> Option<u64> {
        match kind {
            LimitKind::Processes => self.processes,
            LimitKind::OpenFiles => self.open_files,
            LimitKind::FileSize => self.file_bytes,
            LimitKind::Disk => self.disk_bytes,
            LimitKind::Memory => self.memory_bytes,
            LimitKind::Time => self.seconds,
        }
    }

    pub fn set(&mut self, kind: LimitKind, value: u64) {
        let place = match kind {
            LimitKind::Processes => &mut self.processes,
            LimitKind::OpenFiles => &mut self.open_files,
            LimitKind::FileSize => &mut self.file_bytes,
            LimitKind::Disk => &mut self.disk_bytes,
            LimitKind::Memory => &mut self.memory_bytes,
            LimitKind::Time => &mut self.seconds,
        };
        *place = Some(value);
    }
}
