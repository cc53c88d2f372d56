//! # What it does
//! The port of a node for the programs of one attempt: a UNIX socket in their work directory, by which they reach
//! intermediate and stored files of their user without network and without a token.
//!
//! # Where it sits
//! client, dataport (requests to the server and to data ports) -> programport -> node.
//!
//! # Invariants
//! A caller has the rights of the user of its job while the attempt runs, and no more: the node names the job to the
//! server, which knows whether it runs there. Requests go only to routes of intermediate and stored files, and only
//! to nodes that the server named before. The path of the socket is secret: other programs on the machine cannot guess it.
//!
//! # Deliberately absent
//! No decision: the server decides. No record data of jobs. No retries beyond those of `client`.
//!
//! # How it is tested
//! Real sockets with callers that ask for everything else, beside the code; programs in a sandbox in the black-box tests.

mod port;
mod relay;
mod routes;
mod stored;

pub use port::{OpenPort, ProgramPort};
