//! The nodes with replicas: their disks, reports, inventories and orders, and the decisions about replicas.

pub(crate) mod disks;
mod draining;
pub(crate) mod inventory;
mod levels;
pub(crate) mod moves;
mod moving;
pub(crate) mod news;
pub(crate) mod orders;
pub(crate) mod pace;
pub(crate) mod placement;
pub(crate) mod repair;
