//! The division of input bytes into records, of lines into key and value, and the format of output.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Length of a row of the sort benchmark, and of its key (docs/formats/tera-rows.md).
pub const TERA_ROW_BYTES: u32 = 100;
pub const TERA_KEY_BYTES: u32 = 10;
/// Maximum number of characters of an extension without its dot.
const EXTENSION_CHARACTERS_MAX: usize = 16;

/// The division of input into records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum RecordFormat {
    /// Each record ends with this byte (LF, or NUL), which is not part of it. The last record of a file may lack it.
    Lines { terminator: u8 },
    /// Records of one length, whose first bytes are the key. A file that is no multiple of the length is an error.
    Fixed { record_bytes: u32, key_bytes: u32 },
    /// No division: a record is a line of JSON that describes a stretch of a file, which the program reads by itself
    /// ([`crate::program::Stretch`]).
    Stretches,
}

impl RecordFormat {
    /// Lines of text that end with LF.
    pub const TEXT: RecordFormat = RecordFormat::Lines { terminator: b'\n' };
    /// Rows of the sort benchmark.
    pub const TERA: RecordFormat =
        RecordFormat::Fixed { record_bytes: TERA_ROW_BYTES, key_bytes: TERA_KEY_BYTES };
}

/// The division of a line: the first `key_fields` fields, with the separators between them, are the key; the separator
/// after them is dropped; the rest is the value. A line with fewer separators is a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FieldSplit {
    /// Never empty; may have several bytes.
    pub separator: Vec<u8>,
    /// At least 1.
    pub key_fields: u32,
}

impl Default for FieldSplit {
    fn default() -> Self {
        Self { separator: b"\t".to_vec(), key_fields: 1 }
    }
}

/// The format of written pairs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum OutputFormat {
    /// Key, separator, value, terminator.
    Lines {
        separator: Vec<u8>,
        terminator: u8,
        /// Write the separator even if the value is empty (Hadoop does).
        always_separate: bool,
    },
    /// Key and value without anything between them: the records of [`RecordFormat::Fixed`] again.
    Raw,
    /// Nothing is written; records are only counted.
    Discard,
}

impl Default for OutputFormat {
    fn default() -> Self {
        Self::Lines { separator: b"\t".to_vec(), terminator: b'\n', always_separate: false }
    }
}

/// Compression of an input file, or of the parts of an output, whose names get the extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    Gzip,
    Zstd,
    Bzip2,
    Xz,
}

impl Compression {
    /// Returns the extension of a part file, with the dot.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Gzip => ".gz",
            Self::Zstd => ".zst",
            Self::Bzip2 => ".bz2",
            Self::Xz => ".xz",
        }
    }
}

/// An extension with its dot, as in `.parquet`. It cannot lead out of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(try_from = "String")]
pub struct PartExtension(String);

impl PartExtension {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// An error: the text is no extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an extension is a dot and up to {EXTENSION_CHARACTERS_MAX} letters and digits, as in .parquet")]
pub struct BadExtension;

impl TryFrom<String> for PartExtension {
    type Error = BadExtension;

    fn try_from(text: String) -> Result<Self, BadExtension> {
        let name = text.strip_prefix('.').ok_or(BadExtension)?;
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric());
        match is_plain && (1..=EXTENSION_CHARACTERS_MAX).contains(&name.len()) {
            true => Ok(Self(text)),
            false => Err(BadExtension),
        }
    }
}

/// The exchange format between programs and the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Exchange {
    /// Lines that are divided into key and value.
    #[default]
    Lines,
    /// The same with records that end with a zero byte: line feeds are ordinary bytes.
    Nul,
    /// Frames in which keys and values are any bytes: `docs/formats/program-frames.md`.
    Frames,
}

impl Exchange {
    /// Returns the byte that ends a record of a program; LF for frames, which have none.
    pub fn terminator(self) -> u8 {
        match self {
            Self::Nul => 0,
            Self::Lines | Self::Frames => b'\n',
        }
    }
}

/// The formats of a job from end to end. The default corresponds to `sailfish run` without format options.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Formats {
    pub input: RecordFormat,
    /// The division of the lines that a mapper program prints, and of those of the identity mapper.
    pub map_output: FieldSplit,
    /// Separator between key and value in the lines that a reducer program reads.
    pub reduce_input_separator: Vec<u8>,
    /// The division of the lines that a reducer program (in a map-only job, the mapper) prints before `output` writes
    /// them; with None its bytes are copied unchanged.
    pub reduce_output: Option<FieldSplit>,
    pub output: OutputFormat,
    pub output_codec: Option<Compression>,
    /// Suffix of the names of parts, before the extension of the codec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part_extension: Option<PartExtension>,
    /// True if parts without records are left out, except one: readers of a directory may take the types of its first
    /// file for all.
    #[serde(default)]
    pub omit_empty_parts: bool,
    /// Number of leading key fields that a combiner program may not change; with None it may change nothing. Partitions
    /// must depend only on these fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub combiner_key_fields: Option<u32>,
    /// Exchange with programs. The fields above about lines of programs apply to `lines`.
    #[serde(default)]
    pub exchange: Exchange,
}

impl Formats {
    /// Returns the final name of an output part: `part-00000`, with the extensions of the job and of the codec.
    pub fn part_name(&self, part_index: u32) -> String {
        let extension = self.part_extension.as_ref().map_or("", PartExtension::as_str);
        let of_codec = self.output_codec.map_or("", Compression::extension);
        format!("part-{part_index:05}{extension}{of_codec}")
    }

    /// Returns the division of the lines that a combiner prints. Its separator is that of the reducer if the reducer
    /// has its own, otherwise that of the mapper, whose keys it returns; with as many fields.
    pub fn combiner_output(&self) -> &FieldSplit {
        let by_reducer = self.reduce_output.as_ref();
        by_reducer.filter(|split| split.separator != self.map_output.separator).unwrap_or(&self.map_output)
    }
}

impl Default for Formats {
    fn default() -> Self {
        Self {
            input: RecordFormat::TEXT,
            map_output: FieldSplit::default(),
            reduce_input_separator: b"\t".to_vec(),
            reduce_output: None,
            output: OutputFormat::default(),
            output_codec: None,
            part_extension: None,
            omit_empty_parts: false,
            combiner_key_fields: None,
            exchange: Exchange::default(),
        }
    }
}

/// Input that is generated: rows of the sort benchmark. The segments of a split are stretches of rows: `offset_bytes`
/// and `length_bytes` count row bytes from `start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GeneratedRows {
    pub layout: TeraLayout,
    pub skewed: bool,
    /// Number of the first row.
    #[serde(with = "crate::task::proof::hash_hex")]
    #[schema(value_type = String)]
    pub start: u128,
    pub rows: u64,
}

impl GeneratedRows {
    /// Returns the bytes of all rows.
    pub fn bytes(&self) -> u64 {
        self.rows.saturating_mul(u64::from(TERA_ROW_BYTES))
    }
}

/// The layouts of sort benchmark rows (docs/formats/tera-rows.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TeraLayout {
    /// gensort 1.5, binary.
    Modern,
    /// gensort 1.1, which Hadoop's TeraGen follows.
    Legacy,
    /// Printable.
    Ascii,
}
