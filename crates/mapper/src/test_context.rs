//! A context for unit tests, in which no program can run.

use program::{FunctionContext, Programs};
use std::sync::Arc;

/// Small limits, a directory that is always there.
pub(crate) fn context() -> FunctionContext {
    FunctionContext {
        programs: Arc::new(Programs::new()),
        work_dir: "/".into(),
        start_dir: "/".into(),
        env: Vec::new(),
        record_bytes_max: 1 << 20,
        buffer_bytes: 4096,
        cancelled: Arc::default(),
        stderr_log: None,
        reports: Default::default(),
        any_exit_code: false,
        task_env: Vec::new(),
        kept_for: None,
        sandbox: None,
    }
}
