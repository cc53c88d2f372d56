//! Splits.
use api::{InputFile, Split};
/// Cuts inputs into splits.
pub fn plan(_inputs: &[InputFile], _split_bytes: u64) -> Vec<Split> {
    panic!("lands next")
}
