//! State of a slot thread that outlives its attempts.

use iappender::WorkerSlabs;
use ids::JobId;

#[derive(Default)]
pub(crate) struct SlotState {
    /// Slabs that are being filled for the job of the last map task.
    pub slabs: WorkerSlabs,
    pub slabs_of: Option<JobId>,
}
