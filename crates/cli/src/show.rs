//! Text for users: tables, quantities, messages, and the two standard streams.

pub mod advice;
pub mod escape;
pub mod quantity;
pub mod summary;
pub mod tables;
pub mod terminal;
