//! Disks that lose or alter what was written, or fail while it is written.

mod damage;
mod failing;
mod job;
mod lost;
