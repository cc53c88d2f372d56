//! # What it does
//! The list of all kinds of jobs with steps.
//!
//! # Where it sits
//! Above the crates of the kinds, below `server`.
//!
//! # Invariants
//! The store keeps names of kinds: none is removed or renamed.
//!
//! # Deliberately absent
//! Everything about a single kind.
//!
//! # How it is tested
//! The example of `docs/kinds.md` is built and checked against the laws of kinds, below.
#![doc = include_str!("../../../docs/kinds.md")]

use jobkind::Kinds;
use workflow::Workflow;

/// Returns all kinds. A new kind is one line here.
pub fn all() -> Kinds {
    Kinds::default().with::<Workflow>()
}
