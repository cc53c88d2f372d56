//! The nodes that have the stored inputs of map tasks: parts of stored files (Clustera, section 3.5).

use api::{InputFile, Split};
use ids::{ConcreteId, NodeId};
use std::collections::BTreeMap;

/// Nodes with a replica, by concrete file. A hint: replicas move.
pub type PartNodes = BTreeMap<ConcreteId, Vec<NodeId>>;

/// The nodes near the stored bytes of a split.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NearSplit {
    /// Nodes with at least half of these bytes, most bytes first.
    pub nodes: Vec<NodeId>,
    pub stored_bytes: u64,
}

/// Returns the nodes near each split.
pub fn near_splits<'a>(
    inputs: &[InputFile],
    splits: impl Iterator<Item = &'a Split>,
    places: &PartNodes,
) -> Vec<NearSplit> {
    let ends: Vec<Vec<u64>> = inputs.iter().map(part_ends).collect();
    splits.map(|split| near_split(inputs, &ends, split, places)).collect()
}

/// Returns the offset behind each part of a stored file.
fn part_ends(input: &InputFile) -> Vec<u64> {
    let parts = input.stored.iter().flat_map(|content| &content.parts);
    let end = |sum: &mut u64, bytes: u64| {
        *sum = sum.saturating_add(bytes);
        Some(*sum)
    };
    parts.map(|part| part.bytes).scan(0, end).collect()
}

fn near_split(inputs: &[InputFile], ends: &[Vec<u64>], split: &Split, places: &PartNodes) -> NearSplit {
    let mut bytes_of: BTreeMap<NodeId, u64> = BTreeMap::new();
    let mut stored_bytes = 0;
    for segment in &split.segments {
        let index = segment.file_index as usize;
        let Some((input, ends)) = inputs.get(index).zip(ends.get(index)) else { continue };
        let Some(content) = &input.stored else { continue };
        let (begin, end) = (segment.offset_bytes, segment.offset_bytes.saturating_add(segment.length_bytes));
        let first = ends.partition_point(|part_end| *part_end <= begin);
        for (part, part_end) in content.parts.iter().zip(ends).skip(first) {
            let part_begin = part_end.saturating_sub(part.bytes);
            if part_begin >= end {
                break;
            }
            let bytes = end.min(*part_end).saturating_sub(begin.max(part_begin));
            stored_bytes += bytes;
            for node in places.get(&part.concrete).into_iter().flatten() {
                *bytes_of.entry(*node).or_default() += bytes;
            }
        }
    }
    let mut near: Vec<(NodeId, u64)> = bytes_of.into_iter().collect();
    near.retain(|(_, bytes)| *bytes > 0 && bytes.saturating_mul(2) >= stored_bytes);
    near.sort_by_key(|(node, bytes)| (std::cmp::Reverse(*bytes), *node));
    NearSplit { nodes: near.into_iter().map(|(node, _)| node).collect(), stored_bytes }
}

#[cfg(test)]
mod tests {
    use super::{NearSplit, PartNodes, near_splits};
    use api::{InputFile, Segment, Split, StoredContent, StoredPart};
    use ids::{ConcreteId, NodeId};

    fn file(parts: &[(i64, u64)]) -> InputFile {
        let part = |(concrete, bytes): &(i64, u64)| StoredPart {
            concrete: ConcreteId(*concrete),
            bytes: *bytes,
            crc32c: 0,
        };
        let content = StoredContent { parts: parts.iter().map(part).collect() };
        InputFile {
            path: "files:a@1".into(),
            size_bytes: content.bytes(),
            mtime_ns: 0,
            compression: None,
            named: 0,
            object: None,
            stage_file: None,
            stored: Some(content),
            content: None,
            seen: None,
        }
    }

    #[test]
    fn nodes_with_half_of_a_split_are_near() {
        let plain = InputFile { stored: None, ..file(&[(9, 100)]) };
        let inputs = [file(&[(1, 10), (2, 0), (3, 10), (4, 20)]), plain, file(&[(5, 8)])];
        let places: PartNodes = [(1, vec![7, 8]), (2, vec![9]), (3, vec![8]), (4, vec![7]), (5, vec![6, 9])]
            .into_iter()
            .map(|(file, nodes)| (ConcreteId(file), nodes.into_iter().map(NodeId).collect()))
            .collect();
        let check = |segments: &[(u32, u64, u64)], nodes: &[u32], stored_bytes: u64| {
            let segment = |(file_index, offset_bytes, length_bytes): &(u32, u64, u64)| Segment {
                file_index: *file_index,
                offset_bytes: *offset_bytes,
                length_bytes: *length_bytes,
            };
            let split = Split { segments: segments.iter().map(segment).collect() };
            let nodes = nodes.iter().copied().map(NodeId).collect();
            assert_eq!(
                near_splits(&inputs, [split].iter(), &places),
                [NearSplit { nodes, stored_bytes }],
                "{segments:?}"
            );
        };
        check(&[(0, 0, 10)], &[7, 8], 10);
        check(&[(0, 0, 20)], &[8, 7], 20);
        check(&[(0, 9, 5)], &[8], 5);
        check(&[(0, 0, 40)], &[7, 8], 40);
        check(&[(0, 35, 5)], &[7], 5);
        check(&[(0, 35, 5), (2, 0, 8)], &[6, 9], 13);
        check(&[(0, 38, 2), (0, 10, 2), (2, 0, 2)], &[], 6);
        check(&[(1, 0, 100)], &[], 0);
        check(&[(1, 0, 100), (2, 0, 8)], &[6, 9], 8);
        check(&[], &[], 0);
    }
}
