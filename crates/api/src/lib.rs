//! # What it does
//! The messages between the parts of Sailfish: job specifications, tasks, their results, reports.
//!
//! # Where it sits
//! Above `ids`, below everything that plans, runs, stores or shows a job.
//!
//! # Invariants
//! With `ids` the only crate whose types derive serde. Names of sizes contain the unit; every key in a message is
//! bytes, written as hex in JSON. Unknown fields in a message are an error.
//!
//! # Deliberately absent
//! No behaviour beyond parsing and formatting; no I/O; no record data (`ifile` has it).
//!
//! # How it is tested
//! Unit tests for texts that are parsed; `tests/` converts job, tasks and results to JSON and back.

pub mod console;
pub mod control;
pub mod data_access;
pub mod drill;
pub mod flow;
pub mod fsck;
pub mod history;
pub mod intermediate;
pub mod job;
pub mod job_file;
pub mod kept;
pub mod layout;
pub mod machine;
pub mod object;
pub mod orphaned;
pub mod people;
pub mod placement;
pub mod program;
pub mod records;
pub mod report;
pub mod shipping;
pub mod stored;
pub mod task;

pub use flow::{FlowStage, StageFile, StageFilePlace};
pub use job::seen::{self, SEEN_PREFIX, SeenBy, SeenFile};
pub use job::{
    AttemptLimits, Codec, FileLink, InputFile, JobKind, JobSpec, JsonPart, JsonText, LimitKind,
    MAX_REGENERATIONS, MapReduce, MapperInput, Notice, Partitioning, Replication, Segment, Split,
    SteppedKind, Streaming, TasksKind,
};
pub use job_file::{JobFile, JobFileError, KeyOrder};
pub use layout::Layout;
pub use object::{ObjectPin, is_object_url};
pub use records::{
    BadExtension, Boundaries, Compression, Exchange, FieldPlace, FieldSplit, Formats, Function,
    GeneratedRows, KeyBytes, KeyRules, KeyStretch, Numbers, OrderStep, OutputFormat, PartExtension,
    PartitionRule, RecordFormat, TERA_ROW_BYTES, TeraLayout,
};
pub use report::{JobReport, ReportedJob, ReportedPart, ReportedParts};
pub use shipping::{ContentHash, ShippedFile};
pub use stored::{
    PinnedFile, STORED_PREFIX, StoredContent, StoredOutput, StoredPart, is_stored_output, name_beside,
};
pub use task::{Blame, DataSum, LostFile, LostInput, SourceCommit, Task, TaskFailure, TaskResult};
