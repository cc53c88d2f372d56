//! Attempts of each kind.

pub(crate) mod attempt_files;
mod beside_outputs;
pub(crate) mod commit;
mod declared_files;
mod declared_reads;
pub(crate) mod finished_runs;
mod growing_input;
pub(crate) mod growing_outputs;
pub(crate) mod map;
mod members;
pub(crate) mod memory_dirs;
pub(crate) mod merge;
mod phases;
pub(crate) mod pinned_copies;
mod pipeline_wiring;
pub(crate) mod program;
pub(crate) mod program_output;
pub(crate) mod reduce;
pub(crate) mod seal;
mod streaming_env;
mod work_dir;
