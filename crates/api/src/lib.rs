//! # What it does
//! The messages between the parts of Sailfish: job specifications, tasks, their results, reports.
//!
//! # Where it sits
//! Above `ids`, below everything that plans, runs, stores or shows a job.
//!
//! # Invariants
//! With `ids` the only crate whose types derive serde. Sizes carry their unit in the name; every key that
//! crosses a message is bytes, written as hex in JSON. Unknown fields in a message are an error.
//!
//! # Deliberately absent
//! No behaviour beyond parsing and formatting; no I/O; the record data itself (that is `ifile`).
//!
//! # How it is tested
//! Unit tests where text is parsed; job, tasks and results go through JSON and back in `tests/`.

pub mod boundaries;
pub mod console;
pub mod control;
pub mod data_access;
pub mod drill;
pub mod failure;
pub mod flow;
pub mod format;
pub mod fsck;
pub mod function;
pub mod history;
pub mod intermediate;
pub mod job;
pub mod job_file;
pub mod kept;
pub mod key_bytes;
pub mod key_rules;
pub mod layout;
pub mod left;
pub mod machine;
pub mod object;
pub mod people;
pub mod placement;
pub mod program;
pub mod proof;
pub mod report;
pub mod shipping;
pub mod task;

pub use boundaries::Boundaries;
pub use failure::{Blame, LostInput, TaskFailure};
pub use flow::{FlowStage, StageFile, StageFilePlace};
pub use format::{
    BadExtension, Exchange, FieldSplit, Formats, GeneratedRows, OutputCodec, OutputFormat, PartExtension,
    RecordFormat, TERA_ROW_BYTES, TeraLayout,
};
pub use function::Function;
pub use job::{
    Codec, FileLink, InputFile, InputFormat, JobSpec, MAX_REGENERATIONS, MapperInput, Notice, Partitioning,
    Replication, Segment, Split, Streaming,
};
pub use job_file::{JobFile, JobFileError, KeyOrder};
pub use key_bytes::KeyBytes;
pub use key_rules::{FieldPlace, KeyRules, KeyStretch, Numbers, OrderStep, PartitionRule};
pub use layout::Layout;
pub use object::{ObjectPin, is_object_url};
pub use proof::{DataSum, SourceCommit};
pub use report::{JobReport, ReportedJob, ReportedPart, ReportedParts};
pub use shipping::{ContentHash, ShippedFile};
pub use task::{Task, TaskResult};
