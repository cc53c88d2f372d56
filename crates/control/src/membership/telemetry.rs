//! Reports of nodes between two writes to the store.

use crate::interface::Moment;
use api::machine::OutputChunk;
use api::task::RUN_OUTPUT_BYTES_MAX;
use ids::NodeId;
use rows::SampleRow;
use std::collections::BTreeSet;

/// Reports that wait for the next write to the store.
#[derive(Default)]
pub(crate) struct Telemetry {
    pub samples: Vec<SampleRow>,
    /// Nodes whose disks have changed.
    pub disks: BTreeSet<NodeId>,
    pub written: Option<Moment>,
    pub forgotten: Option<Moment>,
}

/// The end of a program's output so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct OutputTail {
    pub standard_output: OutputChunk,
    pub standard_error: OutputChunk,
}

/// Appends a piece of text if it continues the known text; otherwise it replaces the known text.
pub(crate) fn hear(heard: &mut OutputChunk, piece: OutputChunk) {
    let follows = piece.end_bytes == heard.end_bytes.saturating_add(piece.text.len() as u64);
    if !follows && piece.text.is_empty() {
        return;
    }
    if !follows {
        heard.text.clear();
    }
    heard.text.push_str(&piece.text);
    heard.end_bytes = piece.end_bytes;
    let cut = heard.text.ceil_char_boundary(heard.text.len().saturating_sub(RUN_OUTPUT_BYTES_MAX));
    heard.text.drain(..cut);
}

#[cfg(test)]
mod tests {
    use super::hear;
    use api::machine::OutputChunk;
    use api::task::RUN_OUTPUT_BYTES_MAX;

    #[test]
    fn pieces_follow_or_stand_for_themselves() {
        let mut heard = OutputChunk::default();
        let mut check = |text: &str, end_bytes, expected: &str| {
            hear(&mut heard, OutputChunk { text: text.to_string(), end_bytes });
            assert_eq!(heard.text, expected);
        };
        check("ab", 2, "ab");
        check("c", 3, "abc");
        check("", 0, "abc");
        check("xy", 90, "xy");
        check("z", 91, "xyz");
        check("evil", u64::MAX, "evil");
        let long = "a".repeat(RUN_OUTPUT_BYTES_MAX);
        check(&long, 91, &long);
        check("b", 92, &format!("{}b", &long[1..]));
    }
}
