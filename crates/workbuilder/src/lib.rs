//! # What it does
//! Cuts the reduce work: from how bytes spread over keys in the runs to balanced key ranges, one a reduce task.
//!
//! # Where it sits
//! chunkserver (weights of the key indexes) -> workbuilder -> imerger (one range each).
//!
//! # Invariants
//! The ranges of an I-file (or, across I-files, of all of them) cover every key exactly once. A cut stands at a
//! partition key, so a group is never split. The number of tasks follows from the bytes; no user sets it.
//!
//! # Deliberately absent
//! No data is read, only weights; no choice of slot or node; no versions (the store keeps those).
//!
//! # How it is tested
//! Property tests: ranges cover, do not overlap, and none exceeds its target by more than one key.
//!
//! The algorithm on a tiny model. Weights of an I-file, all runs together, in key order, target 10:
//!
//! ```text
//! key     a   c   c   f   k   m         bytes passed before the key: a 0, c 4, f 11, k 13, m 21
//! bytes   4   3   4   2   8   5         cut at the first key with 10 or more since the last cut: f, then m
//! tasks   [ ..f )     [ f..m )  [ m.. )
//! ```
//!
//! Source: Sailfish section 5 (workbuilder: split points from the per-chunk indexes).

use api::task::KeyWeight;
use ids::{IfileIndex, RunId};
use std::collections::BTreeMap;

/// The spread of one run over the keys.
#[derive(Clone, Copy, Debug)]
pub struct RunWeights<'a> {
    pub run: RunId,
    pub ifile: IfileIndex,
    /// In key order.
    pub weights: &'a [KeyWeight],
}

/// Input of [`cut`].
#[derive(Clone, Debug)]
pub struct CutRequest<'a> {
    pub runs: Vec<RunWeights<'a>>,
    /// Bytes a task aims at; at least 1.
    pub target_bytes: u64,
    /// Ranges lie over all I-files (range partitioning); otherwise each lies in one.
    pub across_ifiles: bool,
    /// Upper limit of tasks over all; the target grows to keep it. At least the number of I-files is given.
    pub tasks_max: u32,
}

/// The work of one reduce task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRange {
    pub ifiles: Vec<IfileIndex>,
    pub runs: Vec<RunId>,
    /// Keys >= this; None from the first.
    pub lower_key: Option<Vec<u8>>,
    /// Keys < this; None to the last.
    pub upper_key: Option<Vec<u8>>,
    /// Bytes by the weights.
    pub expected_bytes: u64,
}

/// Cuts the runs into ranges, in part order: by (I-file, lower key), or by lower key across I-files.
pub fn cut(request: &CutRequest<'_>) -> Vec<TaskRange> {
    let mut spaces: BTreeMap<Option<IfileIndex>, Vec<RunWeights<'_>>> = BTreeMap::new();
    for run in &request.runs {
        let space = if request.across_ifiles { None } else { Some(run.ifile) };
        spaces.entry(space).or_default().push(*run);
    }
    let total: u64 = request.runs.iter().flat_map(|run| run.weights).map(|weight| weight.bytes).sum();
    // Each key space rounds up, so that many tasks are taken from the limit before the target is derived.
    let rounded = (request.tasks_max as u64).saturating_sub(spaces.len() as u64).max(1);
    let target_bytes = request.target_bytes.max(total.div_ceil(rounded)).max(1);
    spaces.into_values().flat_map(|runs| cut_space(&runs, target_bytes)).collect()
}

/// In order, one of each key: all weights of a key lie on one side of a cut.
fn by_key(mut weights: Vec<(&[u8], u64)>) -> Vec<(&[u8], u64)> {
    weights.sort_unstable();
    weights.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        kept.1 += if same { next.1 } else { 0 };
        same
    });
    weights
}

fn cut_space(runs: &[RunWeights<'_>], target_bytes: u64) -> Vec<TaskRange> {
    let weights: Vec<(&[u8], u64)> = runs
        .iter()
        .flat_map(|run| run.weights)
        .map(|weight| (weight.first_key.0.as_slice(), weight.bytes))
        .collect();
    let weights = by_key(weights);
    let total: u64 = weights.iter().map(|(_, bytes)| bytes).sum();
    // Even shares: three tasks of 70 rather than two of 100 and one of 10.
    let share = total.div_ceil(total.div_ceil(target_bytes).max(1)).max(1);
    let smallest = weights.first().map_or(&b""[..], |(key, _)| key);
    let mut cuts: Vec<(&[u8], u64)> = Vec::new();
    let mut since_cut = 0;
    for (key, bytes) in &weights {
        let previous = cuts.last().map_or(smallest, |(cut, _)| cut);
        if since_cut >= share && *key > previous {
            cuts.push((key, since_cut));
            since_cut = 0;
        }
        since_cut += bytes;
    }
    let mut ifiles: Vec<IfileIndex> = runs.iter().map(|run| run.ifile).collect();
    ifiles.sort_unstable();
    ifiles.dedup();
    let range = |lower: Option<&[u8]>, upper: Option<&[u8]>, expected_bytes| TaskRange {
        ifiles: ifiles.clone(),
        runs: runs.iter().map(|run| run.run).collect(),
        lower_key: lower.map(<[u8]>::to_vec),
        upper_key: upper.map(<[u8]>::to_vec),
        expected_bytes,
    };
    let mut ranges = Vec::with_capacity(cuts.len() + 1);
    let mut lower = None;
    for (cut, bytes) in cuts {
        ranges.push(range(lower, Some(cut), bytes));
        lower = Some(cut);
    }
    ranges.push(range(lower, None, since_cut));
    ranges
}

/// Bounds of a range: lower <= key < upper. None is no bound.
#[derive(Clone, Copy, Debug)]
pub struct KeyBounds<'a> {
    pub lower: Option<&'a [u8]>,
    pub upper: Option<&'a [u8]>,
}

/// The weights of a run, which are in key order, whose blocks begin in a range. A block that begins in a range may end in
/// another, so what they add up to is an estimate, as everywhere.
pub fn within<'a>(weights: &'a [KeyWeight], range: KeyBounds<'_>) -> &'a [KeyWeight] {
    let starts_before =
        |bound: &[u8]| weights.partition_point(|weight| weight.first_key.0.as_slice() < bound);
    let first = range.lower.map_or(0, starts_before);
    let end = range.upper.map_or(weights.len(), starts_before);
    weights.get(first..end).unwrap_or_default()
}

/// A place where the end of a range may be cut off, in the unread part of the range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TailCut {
    /// First key of the tail.
    pub key: Vec<u8>,
    /// Bytes from there to the end of the range, by the weights.
    pub tail_bytes: u64,
}

/// At most `cuts_max` keys of a range, in order, the first of which leaves to each side about half of what is unread. Nothing is read for
/// that, and no group is split. `runs` are the weights of each run in key order; of the range, the first
/// `done_bytes` have been read. Empty where nothing can be cut off. See `docs/internals/elastic.md`.
pub fn tail_cuts(
    runs: &[&[KeyWeight]],
    range: KeyBounds<'_>,
    done_bytes: u64,
    cuts_max: usize,
) -> Vec<TailCut> {
    let mut weights: Vec<(&[u8], u64)> = Vec::new();
    for run in runs {
        let inside = within(run, range).iter();
        weights.extend(inside.map(|weight| (weight.first_key.0.as_slice(), weight.bytes)));
    }
    let weights = by_key(weights);
    let total_bytes: u64 = weights.iter().map(|(_, bytes)| bytes).sum();
    let goal_bytes = done_bytes.saturating_add(total_bytes.saturating_sub(done_bytes) / 2);
    let smallest = range.lower.or(weights.first().map(|(key, _)| *key)).unwrap_or_default();
    let (mut keys, mut passed_bytes): (Vec<(&[u8], u64)>, u64) = (Vec::new(), 0);
    for (key, bytes) in &weights {
        if *key > smallest && passed_bytes > done_bytes {
            keys.push((key, passed_bytes));
        }
        passed_bytes += bytes;
    }
    // The nearest to the goal, from either side.
    let beyond = keys.partition_point(|(_, passed)| *passed < goal_bytes);
    let is_nearer = |before: usize| {
        let short_bytes = goal_bytes - keys[before].1;
        keys.get(beyond).is_none_or(|(_, passed)| short_bytes < passed - goal_bytes)
    };
    let first = beyond.checked_sub(1).filter(|before| is_nearer(*before)).unwrap_or(beyond);
    let cut = |(key, passed): &(&[u8], u64)| TailCut { key: key.to_vec(), tail_bytes: total_bytes - passed };
    let cuts: Vec<TailCut> = keys[first..].iter().map(cut).collect();
    // The first, and of the others as many as may be, evenly.
    let step = cuts.len().div_ceil(cuts_max.max(1)).max(1);
    cuts.into_iter().step_by(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::KeyBytes;
    use proptest::prelude::*;

    fn weights(list: &[(&str, u64)]) -> Vec<KeyWeight> {
        list.iter()
            .map(|(key, bytes)| KeyWeight {
                first_key: KeyBytes(key.as_bytes().to_vec()),
                bytes: *bytes,
                records: 1,
            })
            .collect()
    }

    fn check(runs: &[(u32, &[(&str, u64)])], across_ifiles: bool, target_bytes: u64, expected: &[&str]) {
        let lists: Vec<Vec<KeyWeight>> = runs.iter().map(|(_, list)| weights(list)).collect();
        let request = CutRequest {
            runs: runs
                .iter()
                .zip(&lists)
                .enumerate()
                .map(|(run, ((ifile, _), weights))| RunWeights {
                    run: RunId(run as u64),
                    ifile: IfileIndex(*ifile),
                    weights,
                })
                .collect(),
            target_bytes,
            across_ifiles,
            tasks_max: 1000,
        };
        let text = |key: &Option<Vec<u8>>| {
            key.as_ref().map_or(String::new(), |key| String::from_utf8_lossy(key).into_owned())
        };
        let actual: Vec<String> = cut(&request)
            .iter()
            .map(|task| {
                let ifiles: Vec<String> = task.ifiles.iter().map(|ifile| ifile.0.to_string()).collect();
                format!("{} {}..{}", ifiles.join("+"), text(&task.lower_key), text(&task.upper_key))
            })
            .collect();
        assert_eq!(actual, expected);
    }

    #[test]
    fn ranges_follow_the_bytes() {
        check(&[], false, 10, &[]);
        check(
            &[(0, &[("a", 4), ("c", 3)]), (0, &[("c", 4), ("f", 2), ("k", 8), ("m", 5)])],
            false,
            9,
            &["0 ..f", "0 f..m", "0 m.."],
        );
        check(&[(0, &[("a", 40)]), (1, &[("a", 5), ("b", 30)])], false, 20, &["0 ..", "1 .."]);
        check(&[(0, &[("a", 40)]), (1, &[("b", 5), ("c", 30)])], true, 25, &["0+1 ..b", "0+1 b.."]);
    }

    #[test]
    fn one_hot_key_is_never_cut() {
        check(
            &[(0, &[("a", 1), ("h", 100), ("h", 100), ("h", 100), ("z", 1)])],
            false,
            10,
            &["0 ..z", "0 z.."],
        );
    }

    fn check_tail(
        runs: &[&[(&str, u64)]],
        range: (&str, &str),
        done: u64,
        most: usize,
        expected: &[(&str, u64)],
    ) {
        let lists: Vec<Vec<KeyWeight>> = runs.iter().map(|list| weights(list)).collect();
        let lists: Vec<&[KeyWeight]> = lists.iter().map(Vec::as_slice).collect();
        let bound = |text: &'static str| (!text.is_empty()).then_some(text.as_bytes());
        let (lower, upper) = (range.0.to_string().leak(), range.1.to_string().leak());
        let bounds = KeyBounds { lower: bound(lower), upper: bound(upper) };
        let cuts = tail_cuts(&lists, bounds, done, most);
        let cuts: Vec<(String, u64)> =
            cuts.into_iter().map(|cut| (String::from_utf8(cut.key).unwrap(), cut.tail_bytes)).collect();
        let cuts: Vec<(&str, u64)> = cuts.iter().map(|(key, bytes)| (key.as_str(), *bytes)).collect();
        assert_eq!(cuts, expected, "{runs:?} {range:?} {done}");
    }

    #[test]
    fn tail_is_half_of_the_unread_part() {
        let runs: &[&[(&str, u64)]] =
            &[&[("a", 10), ("c", 10), ("e", 10)], &[("b", 10), ("d", 10), ("f", 10)]];
        check_tail(runs, ("", ""), 0, 9, &[("d", 30), ("e", 20), ("f", 10)]);
        check_tail(runs, ("", ""), 20, 9, &[("e", 20), ("f", 10)]);
        check_tail(runs, ("", ""), 20, 1, &[("e", 20)]);
        check_tail(runs, ("", ""), 60, 9, &[]);
        check_tail(runs, ("", ""), 600, 9, &[]);
        // Within its own range only.
        check_tail(runs, ("b", "e"), 0, 9, &[("d", 10)]);
        check_tail(runs, ("d", "e"), 0, 9, &[]);
        check_tail(runs, ("x", ""), 0, 9, &[]);
        // A key is not cut in two.
        check_tail(&[&[("a", 9), ("h", 50), ("h", 50), ("z", 1)]], ("", ""), 0, 9, &[("h", 101), ("z", 1)]);
        check_tail(&[&[("a", 9), ("h", 50), ("h", 50), ("z", 1)]], ("", ""), 9, 9, &[("z", 1)]);
        check_tail(&[&[("h", 50), ("h", 50)]], ("", ""), 0, 9, &[]);
        check_tail(&[], ("", ""), 0, 9, &[]);
    }

    proptest! {
        #[test]
        fn ranges_cover_all_keys_once(
            lists in proptest::collection::vec(proptest::collection::vec((0u8..60, 1u64..50), 1..40), 1..6),
            target_bytes in 1u64..200,
            tasks_max in 8u32..40,
        ) {
            let lists: Vec<Vec<KeyWeight>> = lists.into_iter().map(|mut list| {
                list.sort_unstable();
                list.into_iter().map(|(key, bytes)|
                    KeyWeight { first_key: KeyBytes(vec![key]), bytes, records: 1 }).collect()
            }).collect();
            let mut of_key = std::collections::BTreeMap::<&KeyBytes, u64>::new();
            for weight in lists.iter().flatten() {
                *of_key.entry(&weight.first_key).or_default() += weight.bytes;
            }
            let total: u64 = of_key.values().sum();
            // The target grows where the limit of tasks asks for it; one I-file takes one of them.
            let target = target_bytes.max(total.div_ceil(u64::from(tasks_max) - 1));
            let heaviest = of_key.values().max().copied().unwrap_or(0);
            let runs = lists.iter().enumerate()
                .map(|(run, weights)| RunWeights { run: RunId(run as u64), ifile: IfileIndex(0), weights })
                .collect();
            let tasks = cut(&CutRequest { runs, target_bytes, across_ifiles: false, tasks_max });
            prop_assert!(tasks.len() <= tasks_max as usize);
            prop_assert_eq!(&tasks[0].lower_key, &None);
            prop_assert_eq!(&tasks[tasks.len() - 1].upper_key, &None);
            for pair in tasks.windows(2) {
                prop_assert_eq!(&pair[0].upper_key, &pair[1].lower_key);
                prop_assert!(pair[0].upper_key.is_some());
            }
            for task in &tasks {
                prop_assert!(task.expected_bytes < target + heaviest + 1);
            }
            let expected: u64 = tasks.iter().map(|task| task.expected_bytes).sum();
            prop_assert_eq!(expected, lists.iter().flatten().map(|weight| weight.bytes).sum::<u64>());
        }
    }
}
