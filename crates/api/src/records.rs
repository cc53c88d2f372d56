//! Records: how input is divided into them, how their keys compare, and functions over them.

mod boundaries;
mod format;
mod function;
mod key_bytes;
mod key_rules;

pub use boundaries::Boundaries;
pub use format::{
    BadExtension, Compression, Exchange, FieldSplit, Formats, GeneratedRows, OutputFormat, PartExtension,
    RecordFormat, TERA_ROW_BYTES, TeraLayout,
};
pub use function::Function;
pub use key_bytes::KeyBytes;
pub use key_rules::{FieldPlace, KeyRules, KeyStretch, Numbers, OrderStep, PartitionRule};
