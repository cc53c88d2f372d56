//! The data port of a node: its answers to other nodes and to writers of intermediate files.

mod append;
mod body_reader;
mod copy;
mod growing;
mod intermediate;
mod port;
mod receiving;
pub(crate) mod refused_body;
pub(crate) mod routes;
mod scan;
pub(crate) mod services;
mod stage;
pub(crate) mod stored;
