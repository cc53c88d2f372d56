//! # What it does
//! Objects of an object store as inputs and outputs: lists and pins them, reads them in large windows with bounded
//! read-ahead, writes them by multipart uploads that stay invisible until a job commits, publishes these, and removes
//! the remains of a job.
//!
//! # Where it sits
//! Below `mapper` (reads), `reducer` (writes parts), `node` (commits) and `server` (cleans), beside local files.
//!
//! # Invariants
//! An object that differs from the pinned one is an error that names it, never other bytes. Nothing of an output is
//! visible before its commit is decided, and `_SUCCESS` is written last. The uploads of an attempt are recorded in the
//! store before their first byte, so that a later cleanup finds them ([`staging`] has the protocol). Every wait is
//! bounded by the retries of the library. No message contains a secret.
//!
//! # Deliberately absent
//! No records and no job: bytes, names and one protocol. Callers are threads; the library runs on its own small
//! runtime, and an async caller must call from a blocking thread.
//!
//! # How it is tested
//! Unit tests beside each file; the protocol by the black-box tests, against a real server of the S3 protocol.

mod error;
mod listing;
mod reader;
mod record;
mod settings;
pub mod staging;
mod store;
mod upload;
mod url;

pub use error::ObjectError;
pub use listing::{Found, Listed, is_object, listed_below, pin};
pub use reader::{ObjectReader, check_pinned};
pub use settings::{SETTINGS_FILE_VARIABLE, read_settings_file};
pub use store::read_small;
pub use upload::Upload;
pub use url::ObjectUrl;
