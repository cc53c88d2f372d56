//! Exact decimal numbers.
/// An exact decimal.
#[derive(Clone, Debug)]
pub struct Decimal;
