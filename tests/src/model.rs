//! The reference: what a job must give, in a few lines each.

use std::collections::BTreeMap;

/// The lines of a text without their ends; a last line without one counts, an empty text has none.
pub fn part_lines(bytes: &[u8]) -> Vec<&[u8]> {
    let mut lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    if lines.last().is_some_and(|last| last.is_empty()) {
        lines.pop();
    }
    lines
}

/// Lines in bytewise order, joined again: equal for two outputs that hold the same lines.
pub fn sorted_lines(bytes: &[u8]) -> Vec<u8> {
    let mut lines = part_lines(bytes);
    lines.sort_unstable();
    lines.iter().flat_map(|line| [*line, b"\n".as_slice()]).flatten().copied().collect()
}

/// Lines cut at their first TAB, grouped by key, the values of a key in the order they come.
pub fn group_lines(bytes: &[u8]) -> BTreeMap<Vec<u8>, Vec<Vec<u8>>> {
    let mut groups: BTreeMap<Vec<u8>, Vec<Vec<u8>>> = BTreeMap::new();
    for line in part_lines(bytes) {
        let tab = line.iter().position(|byte| *byte == b'\t');
        let (key, value) = tab.map_or((line, &b""[..]), |tab| (&line[..tab], &line[tab + 1..]));
        groups.entry(key.to_vec()).or_default().push(value.to_vec());
    }
    groups
}
