//! The messages about outputs that programs are writing, as bytes. Byte tables: `docs/protocol-data.md`.

use crate::wire::messages::{all_read, begin, end, limited, open};
use api::ContentHash;
use ids::{AttemptKey, AttemptNumber, JobId, StageIndex, TaskIndex, TaskKey};
use ifile::encoding::FieldReader;
use ifile::{FormatError, Problem};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Maximum bytes of an output in one answer.
pub const GROWING_BYTES_MAX: usize = 1 << 20;
/// Maximum bytes of the path of an output, as in the kernel.
const PATH_BYTES_MAX: u64 = 4096;

const READ: [u8; 4] = *b"SFOR";
const PIECE: [u8; 4] = *b"SFOP";

/// Asks for the next bytes of an output that an attempt is writing. The job stands in the URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrowingRead {
    pub attempt: AttemptKey,
    /// Path that the output gets when the attempt succeeds.
    pub path: PathBuf,
    /// Position of the first byte.
    pub offset: u64,
}

/// The next bytes of an output that an attempt is writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrowingPiece {
    /// The attempt does not write it here: not yet, or no more.
    Unknown,
    /// Bytes, perhaps none; more may follow.
    Grows(Vec<u8>),
    /// The last bytes, and the content of the whole output. Its attempt has succeeded, and the server knows.
    Complete { bytes: Vec<u8>, total_bytes: u64, sha256: ContentHash },
    /// The attempt has ended without success: the output never becomes complete.
    Broken,
}

impl GrowingRead {
    pub fn encode(&self) -> Vec<u8> {
        let AttemptKey { task, attempt } = self.attempt;
        let path = self.path.as_os_str().as_bytes();
        let mut out = begin(READ);
        out.extend_from_slice(&task.stage.0.to_le_bytes());
        out.extend_from_slice(&task.task.0.to_le_bytes());
        out.extend_from_slice(&attempt.0.to_le_bytes());
        out.extend_from_slice(&self.offset.to_le_bytes());
        out.extend_from_slice(&(path.len() as u32).to_le_bytes());
        out.extend_from_slice(path);
        end(out)
    }

    pub fn decode(job: JobId, bytes: &[u8]) -> Result<Self, FormatError> {
        let mut fields = open(READ, "read of a growing output", bytes)?;
        let (stage, task) = (StageIndex(fields.u16()?), TaskIndex(fields.u32()?));
        let attempt =
            AttemptKey { task: TaskKey { job, stage, task }, attempt: AttemptNumber(fields.u32()?) };
        let offset = fields.u64()?;
        let path_bytes = limited("the path of an output", fields.u32()?.into(), PATH_BYTES_MAX)?;
        let path = PathBuf::from(OsStr::from_bytes(fields.take(path_bytes as usize)?));
        all_read(&fields)?;
        Ok(Self { attempt, path, offset })
    }
}

impl GrowingPiece {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = begin(PIECE);
        let put_bytes = |out: &mut Vec<u8>, bytes: &[u8]| {
            out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            out.extend_from_slice(bytes);
        };
        match self {
            Self::Unknown => out.push(0),
            Self::Grows(bytes) => {
                out.push(1);
                put_bytes(&mut out, bytes);
            }
            Self::Complete { bytes, total_bytes, sha256 } => {
                out.push(2);
                put_bytes(&mut out, bytes);
                out.extend_from_slice(&total_bytes.to_le_bytes());
                out.extend_from_slice(&sha256.0);
            }
            Self::Broken => out.push(3),
        }
        end(out)
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut fields = open(PIECE, "piece of a growing output", bytes)?;
        let piece = match fields.take(1)?[0] {
            0 => Self::Unknown,
            1 => Self::Grows(take_bytes(&mut fields)?),
            2 => {
                let bytes = take_bytes(&mut fields)?;
                let total_bytes = fields.u64()?;
                let mut sha256 = [0; 32];
                sha256.copy_from_slice(fields.take(32)?);
                Self::Complete { bytes, total_bytes, sha256: ContentHash(sha256) }
            }
            3 => Self::Broken,
            other => {
                let value = other.into();
                return Err(fields.problem(Problem::Field { what: "the state of an output", value }));
            }
        };
        all_read(&fields)?;
        Ok(piece)
    }
}

fn take_bytes(fields: &mut FieldReader<'_>) -> Result<Vec<u8>, FormatError> {
    let count = limited("the bytes of an output", fields.u32()?.into(), GROWING_BYTES_MAX as u64)?;
    Ok(fields.take(count as usize)?.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::messages::tests::check;

    const JOB: JobId = JobId(7);

    fn read(path: &str) -> GrowingRead {
        let task = TaskKey { job: JOB, stage: StageIndex(0), task: TaskIndex(0) };
        GrowingRead { attempt: AttemptKey { task, attempt: AttemptNumber(3) }, path: path.into(), offset: 9 }
    }

    #[test]
    fn messages_round_trip_and_damaged_ones_are_refused() {
        let message = read("/data/words");
        check(message.clone(), &message.encode(), |bytes| GrowingRead::decode(JOB, bytes));
        let sha256 = ContentHash([7; 32]);
        for piece in [
            GrowingPiece::Unknown,
            GrowingPiece::Grows(Vec::new()),
            GrowingPiece::Grows(b"some".to_vec()),
            GrowingPiece::Complete { bytes: b"last".to_vec(), total_bytes: 40, sha256 },
            GrowingPiece::Broken,
        ] {
            check(piece.clone(), &piece.encode(), GrowingPiece::decode);
        }
    }

    #[test]
    fn long_fields_are_refused() {
        let path = "x".repeat(PATH_BYTES_MAX as usize + 1);
        assert!(GrowingRead::decode(JOB, &read(&path).encode()).is_err());
        let piece = GrowingPiece::Grows(vec![0; GROWING_BYTES_MAX + 1]);
        assert!(GrowingPiece::decode(&piece.encode()).is_err());
    }
}
