//! # What it does
//! Accepts the connections of a port and hands their requests to its routes. Before any route it refuses requests from
//! pages of other web sites, connections beyond a limit, and slow requests.
//!
//! # Where it sits
//! routes of `controlport` and `dataport` -> listener -> the network; `cli` binds the sockets.
//!
//! # Invariants
//! One rule ([`HostNames`]) for every port: a browser can send no request that has an effect, under no foreign name of
//! the port. Connections are limited, by address and in total; `/healthz` is answered beyond the limit. A head and the
//! body of a control port's request must arrive within a time that follows from their bytes.
//!
//! # Deliberately absent
//! No routes, no tokens, no roles: these belong to the port.
//!
//! # How it is tested
//! Unit tests of the rule and of the counts; real sockets that send nothing, little or too much beside each file; the
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

/// Prefix of a header that pages of other sites send only after a preflight request.
pub const HEADER_PREFIX: &str = "sailfish-";
