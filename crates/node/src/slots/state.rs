//! State of a slot thread that outlives its attempts.

use iappender::WorkerSlabs;
use ids::JobId;

#[derive(Default)]
pub(crate) struct SlotState {
    /// Slabs being filled for the job whose map task ran last.
    pub slabs: WorkerSlabs,
    pub slabs_of: Option<JobId>,
}
