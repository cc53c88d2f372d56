//! The messages about stage files, as bytes. Byte tables: `docs/protocol-data.md`.

use crate::wire::messages::{CRC_BYTES, NAME_BYTES, all_read, begin, end, limited, open};
use crate::wire::stage_name::{STAGE_FILE_NAME_BYTES_MAX, StageFileName};
use ifile::encoding::FieldReader;
use ifile::{FormatError, Problem};
use stagefile::{BlockLayout, PAYLOAD_BYTES_MAX, Payload, RawRange};

/// Blocks in one answer.
pub const BLOCKS_PER_READ_MAX: u32 = 16;

const READ: [u8; 4] = *b"SFGR";
const STAGE_COPY: [u8; 4] = *b"SFGC";
const STAGE_FILE_BYTES: usize = STAGE_FILE_NAME_BYTES_MAX + 12;

/// The name and the content of a stage file: a file of the same name with other content is another file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageFileRef {
    pub name: StageFileName,
    pub payload: Payload,
}

impl StageFileRef {
    fn put(&self, out: &mut Vec<u8>) {
        let mut name = [0; STAGE_FILE_NAME_BYTES_MAX];
        name[..self.name.as_str().len()].copy_from_slice(self.name.as_str().as_bytes());
        out.extend_from_slice(&name);
        out.extend_from_slice(&self.payload.bytes.to_le_bytes());
        out.extend_from_slice(&self.payload.crc32c.to_le_bytes());
    }

    fn take(fields: &mut FieldReader<'_>) -> Result<Self, FormatError> {
        let no_name = fields.problem(Problem::Field { what: "the name of a stage file", value: 0 });
        let field = fields.take(STAGE_FILE_NAME_BYTES_MAX)?;
        let length = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
        let (name, rest) = field.split_at(length);
        let name = std::str::from_utf8(name).ok().filter(|_| rest.iter().all(|byte| *byte == 0));
        let name = name.and_then(StageFileName::new).ok_or(no_name)?;
        let bytes = limited("the payload of a stage file", fields.u64()?, PAYLOAD_BYTES_MAX)?;
        Ok(Self { name, payload: Payload { bytes, crc32c: fields.u32()? } })
    }
}

/// Asks for blocks of a stage file. The answer is these blocks as they are stored, and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageReadRequest {
    pub file: StageFileRef,
    pub first_block: u64,
    /// At least one.
    pub blocks: u32,
}

impl StageReadRequest {
    /// The bytes of the file that are asked for.
    pub fn raw(&self) -> RawRange {
        BlockLayout::of(self.file.payload.bytes).raw_blocks(self.first_block, self.blocks.into())
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = begin(READ);
        self.file.put(&mut out);
        out.extend_from_slice(&self.first_block.to_le_bytes());
        out.extend_from_slice(&self.blocks.to_le_bytes());
        end(out)
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut fields = open(READ, "read of a stage file", bytes)?;
        let file = StageFileRef::take(&mut fields)?;
        let request = Self { file, first_block: fields.u64()?, blocks: fields.u32()? };
        all_read(&fields)?;
        limited("a number of blocks", request.blocks.into(), BLOCKS_PER_READ_MAX.into())?;
        let value = request.first_block;
        match request.blocks > 0 && request.raw().blocks == u64::from(request.blocks) {
            true => Ok(request),
            false => Err(FormatError::at(0, Problem::Field { what: "the first of some blocks", value })),
        }
    }
}

/// In front of the file of a stage file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageCopyHead {
    pub file: StageFileRef,
}

/// Encoded size of a [`StageCopyHead`].
pub const STAGE_COPY_HEAD_BYTES: usize = NAME_BYTES + STAGE_FILE_BYTES + CRC_BYTES;

impl StageCopyHead {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = begin(STAGE_COPY);
        self.file.put(&mut out);
        end(out)
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut fields = open(STAGE_COPY, "head of a stage file", bytes)?;
        let head = Self { file: StageFileRef::take(&mut fields)? };
        all_read(&fields)?;
        Ok(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::messages::tests::check;

    fn file(name: &str) -> StageFileRef {
        let name = StageFileName::new(name).expect("a name");
        StageFileRef { name, payload: Payload { bytes: 200_000, crc32c: 0x1234_5678 } }
    }

    #[test]
    fn messages_round_trip_and_damaged_ones_are_refused() {
        for name in ["part-00003.attempt-0.stage", &format!("{}-1.stage", "a".repeat(56))] {
            let read = StageReadRequest { file: file(name), first_block: 1, blocks: 3 };
            check(read.clone(), &read.encode(), StageReadRequest::decode);
            let copy = StageCopyHead { file: file(name) };
            assert_eq!(copy.encode().len(), STAGE_COPY_HEAD_BYTES);
            check(copy.clone(), &copy.encode(), StageCopyHead::decode);
        }
    }

    #[test]
    fn impossible_ranges_are_refused() {
        let check = |first_block: u64, blocks: u32, bytes: u64, is_one: bool| {
            let mut file = file("part-1.stage");
            file.payload.bytes = bytes;
            let read = StageReadRequest { file, first_block, blocks };
            assert_eq!(StageReadRequest::decode(&read.encode()).is_ok(), is_one, "{read:?}");
        };
        check(0, 4, 200_000, true);
        check(0, 5, 200_000, false);
        check(3, 1, 200_000, true);
        check(4, 1, 200_000, false);
        check(0, 0, 200_000, false);
        check(u64::MAX, 1, 200_000, false);
        check(0, BLOCKS_PER_READ_MAX, PAYLOAD_BYTES_MAX, true);
        check(0, BLOCKS_PER_READ_MAX + 1, PAYLOAD_BYTES_MAX, false);
        check(0, 1, PAYLOAD_BYTES_MAX + 1, false);
        check(0, 1, 0, false);
    }

    #[test]
    fn a_name_that_leads_elsewhere_is_refused() {
        let check = |name: &str| {
            let mut out = begin(STAGE_COPY);
            let mut field = [0; STAGE_FILE_NAME_BYTES_MAX];
            field[..name.len()].copy_from_slice(name.as_bytes());
            out.extend_from_slice(&field);
            out.extend_from_slice(&[0; 12]);
            assert!(StageCopyHead::decode(&end(out)).is_err(), "{name:?}");
        };
        for name in ["", "..", "../part-1.stage", "/part-1.stage", "part-1.stage\0x", "run-000001.ifile"] {
            check(name);
        }
    }
}
