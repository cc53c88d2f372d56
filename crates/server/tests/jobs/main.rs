//! The server over the real store, with a node that makes its results up.

mod dead_owners;
mod outcomes;
mod submitting;
mod world;
