//! The server over the real store, with a node that makes its results up.

mod dead_owners;
mod outcomes;
mod steps;
mod submitting;
mod world;
