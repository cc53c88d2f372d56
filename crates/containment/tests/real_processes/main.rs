//! Containment with real processes.

mod job_spaces;
mod life;
mod limits;
mod slot;
