//! Stored files of a cluster on the disks of this node: their directories, the service for the data port, and the
//! threads that execute the orders of the server.

mod disk_orders;
pub(crate) mod disks;
mod ending;
mod fetch;
pub(crate) mod files;
mod inventory;
pub(crate) mod job_input;
pub(crate) mod job_output;
pub(crate) mod keeper;
pub(crate) mod local_files;
mod marked;
pub(crate) mod passed_on;
pub(crate) mod range_cache;
mod receive;
mod reports;
mod scrub;
pub(crate) mod server;
pub(crate) mod step_files;
pub(crate) mod views;

#[cfg(test)]
mod tests;
