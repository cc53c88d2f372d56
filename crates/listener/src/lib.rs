//! # What it does
//! Takes the connections of a port and hands their requests to its routes. Before any route it refuses what a page of
//! another web site may have sent, connections beyond a number, and requests that come too slowly.
//!
//! # Where it sits
//! routes of `controlport` and `dataport` -> listener -> the network; `cli` binds the sockets.
//!
//! # Invariants
//! One rule ([`HostNames`]) for every port: a browser can make no request that has an effect, under no name of the port
//! that is not its own. Connections are bounded, by address and in all; `/healthz` is answered beyond the bound. A head and a
//! control port's body arrive within a time that follows from their bytes.
//!
//! # Deliberately absent
//! No routes, no tokens, no roles: these are the affair of the port.
//!
//! # How it is tested
//! Unit tests of the rule and of the counts; real sockets that say nothing, little or too much beside each file; the
//! cross-site page in a real browser in the black-box tests.

mod connections;
mod host_names;
mod once_a_minute;
mod paced_body;
mod serve;
mod tls;

pub use connections::ConnectionLimits;
pub use host_names::{HostNames, Refusal};
pub use paced_body::{BodyPace, TooSlow};
pub use serve::{Door, PeerAddress, plain_text, serve};

/// A request with a header of this beginning is none that a page of another site sends without asking first.
pub const HEADER_PREFIX: &str = "sailfish-";
