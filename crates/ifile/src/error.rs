//! Errors of bytes that claim to be an I-file. They are never the user's fault, and a retry on the same copy never
//! helps: another copy must be read, or the data recomputed.

use std::fmt;

/// Damage, a foreign file, or a failed read, at a byte offset of the file or buffer.
#[derive(Debug)]
pub struct FormatError {
    pub offset: u64,
    pub problem: Problem,
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: {}", self.offset, self.problem)
    }
}

impl std::error::Error for FormatError {
    /// Returns the cause of the problem. The text of this error already holds the problem itself.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.problem.source()
    }
}

/// Problem of a file or buffer.
#[derive(Debug)]
pub enum Problem {
    /// The bytes are not an I-file.
    Foreign,
    /// The version is unknown to this program.
    Version(u16),
    /// There are fewer bytes than the structure needs.
    Truncated { needed_bytes: u64, present_bytes: u64 },
    /// The end mark is not at the end of the file.
    NoEndMark,
    /// Bytes do not match their checksum.
    Checksum { what: &'static str, stored: u32, computed: u32 },
    /// A field has an impossible value.
    Field { what: &'static str, value: u64 },
    /// Two parts of the file contradict each other.
    Disagreement { what: &'static str, here: u64, there: u64 },
    /// Records are not in order.
    Order,
    /// The block does not decompress.
    Compression,
    /// The bytes could not be read.
    Read(std::io::Error),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => write!(f, "not an I-file (the first bytes are foreign)"),
            Self::Version(version) => write!(f, "format version {version} is not known to this program"),
            Self::Truncated { needed_bytes, present_bytes } => {
                write!(f, "truncated: {needed_bytes} bytes needed, {present_bytes} present")
            }
            Self::NoEndMark => {
                write!(f, "the end mark is missing: the file is truncated, or has bytes after its end")
            }
            Self::Checksum { what, stored, computed } => {
                write!(f, "damaged {what}: checksum {stored:08x} stored, {computed:08x} computed")
            }
            Self::Field { what, value } => write!(f, "damaged: {what} cannot be {value}"),
            Self::Disagreement { what, here, there } => {
                write!(f, "damaged: {what} is {here} here, but {there} in another place")
            }
            Self::Order => write!(f, "damaged: records are not in order"),
            Self::Compression => write!(f, "damaged: the block does not decompress"),
            Self::Read(_) => write!(f, "cannot read"),
        }
    }
}

impl std::error::Error for Problem {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read(source) => Some(source),
            _ => None,
        }
    }
}

impl FormatError {
    /// Makes the error of a problem at `offset`.
    pub fn at(offset: u64, problem: Problem) -> Self {
        Self { offset, problem }
    }

    /// Returns the same problem, `base` bytes further into the file.
    pub fn shifted(mut self, base: u64) -> Self {
        self.offset += base;
        self
    }
}
