//! The nodes with replicas: their disks, reports, inventories and orders, and the decisions about replicas.

pub(crate) mod disks;
pub(crate) mod inventory;
pub(crate) mod news;
pub(crate) mod orders;
pub(crate) mod pace;
pub(crate) mod placement;
pub(crate) mod repair;
