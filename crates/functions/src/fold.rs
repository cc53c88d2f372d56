//! The built-in folds, as used by the reducer and by combine windows: many values of a key become one.
//!
//! All are associative in the order of the values, so that folding partial results gives the same text as folding the
//! values themselves. A fold keeps bytes in an arena of its caller; its state refers to them by offset.

use crate::decimal::Decimal;
use api::{Blame, TaskFailure};

/// Maximum bytes of a key or value in an error.
const SHOWN_BYTES_MAX: usize = 100;
/// Bytes before each value in the chain of a list: offset of the next value, length.
const LINK_BYTES: usize = 8;
/// Marks the end of a chain. Arenas end before it.
const NO_LINK: u32 = u32::MAX;

/// A built-in fold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// The exact sum of decimals, as plain text.
    Sum,
    /// The text of the first value that is the smallest decimal.
    Min,
    /// The text of the first value that is the largest decimal.
    Max,
    /// The number of values.
    Count,
    /// Nothing but the key.
    Unique,
    /// The values joined by commas, in their order.
    List,
}

/// An error: a fold of numbers got a value that is no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotANumber;

impl NotANumber {
    /// Returns the failure of the attempt: the user's data is at fault; the message names key and value.
    pub fn failure(self, fold: Fold, key: &[u8], value: &[u8]) -> TaskFailure {
        let (name, key, value) = (fold.name(), shown(key), shown(value));
        let message = format!("builtin:{name}: the value {value} of the key {key} is not a number");
        TaskFailure::new(Blame::UserData, message)
    }
}

fn shown(bytes: &[u8]) -> String {
    let cut = &bytes[..bytes.len().min(SHOWN_BYTES_MAX)];
    let more = if cut.len() < bytes.len() { "..." } else { "" };
    format!("\"{}{more}\"", cut.escape_ascii())
}

/// A text in the arena of a fold.
#[derive(Clone, Copy, Debug)]
pub struct ArenaText {
    offset: u32,
    length: u32,
}

/// State of a fold for one key.
#[derive(Clone, Debug)]
pub enum FoldState {
    Sum(Decimal),
    Extreme { best: Decimal, text: ArenaText },
    Count(u64),
    Unique,
    List { first: u32, last: u32 },
}

impl Fold {
    /// Returns the name after `builtin:`.
    pub const fn name(self) -> &'static str {
        match self {
            Fold::Sum => "sum",
            Fold::Min => "min",
            Fold::Max => "max",
            Fold::Count => "count",
            Fold::Unique => "unique",
            Fold::List => "list",
        }
    }

    /// Returns the state after the first value of a key.
    #[inline]
    pub fn start(self, value: &[u8], arena: &mut Vec<u8>) -> Result<FoldState, NotANumber> {
        Ok(match self {
            Fold::Sum => FoldState::Sum(Decimal::parse(value).ok_or(NotANumber)?),
            Fold::Min | Fold::Max => FoldState::Extreme {
                best: Decimal::parse(value).ok_or(NotANumber)?,
                text: push(arena, value),
            },
            Fold::Count => FoldState::Count(1),
            Fold::Unique => FoldState::Unique,
            Fold::List => {
                let link = push_link(arena, value);
                FoldState::List { first: link, last: link }
            }
        })
    }

    /// Adds the next value of the key. The state must be of this fold.
    #[inline]
    pub fn add(self, state: &mut FoldState, value: &[u8], arena: &mut Vec<u8>) -> Result<(), NotANumber> {
        match state {
            FoldState::Sum(sum) => sum.add_text(value).ok_or(NotANumber)?,
            FoldState::Extreme { best, text } => {
                let number = Decimal::parse(value).ok_or(NotANumber)?;
                if (self == Fold::Min && number < *best) || (self == Fold::Max && number > *best) {
                    *best = number;
                    // The last text in the arena is replaced by the better one.
                    if text.offset as usize + text.length as usize == arena.len() {
                        arena.truncate(text.offset as usize);
                    }
                    *text = push(arena, value);
                }
            }
            FoldState::Count(count) => *count += 1,
            FoldState::Unique => {}
            FoldState::List { last, .. } => {
                let link = push_link(arena, value);
                let place = *last as usize;
                arena[place..place + 4].copy_from_slice(&link.to_le_bytes());
                *last = link;
            }
        }
        Ok(())
    }
}

impl FoldState {
    /// Appends the result. A list longer than `bytes_max` is divided into pieces of at least one value each. The
    /// closure is called with each result; all are in `out`, which it must not empty.
    pub fn finish<E>(
        &self,
        arena: &[u8],
        bytes_max: usize,
        out: &mut Vec<u8>,
        mut emit: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        out.clear();
        match self {
            FoldState::Sum(sum) => sum.write_plain(out),
            FoldState::Extreme { text, .. } => out.extend_from_slice(text_of(arena, *text)),
            FoldState::Count(count) => out.extend_from_slice(count.to_string().as_bytes()),
            FoldState::Unique => {}
            FoldState::List { first, .. } => {
                let (mut value, mut link) = read_link(arena, *first);
                out.extend_from_slice(value);
                while link != NO_LINK {
                    (value, link) = read_link(arena, link);
                    if out.len() + 1 + value.len() > bytes_max {
                        emit(out)?;
                        out.clear();
                    } else {
                        out.push(b',');
                    }
                    out.extend_from_slice(value);
                }
            }
        }
        emit(out)
    }
}

fn place(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("the caller of a fold keeps its arena below 4 GiB")
}

fn push(arena: &mut Vec<u8>, value: &[u8]) -> ArenaText {
    let text = ArenaText { offset: place(arena.len()), length: place(value.len()) };
    arena.extend_from_slice(value);
    text
}

fn text_of(arena: &[u8], text: ArenaText) -> &[u8] {
    &arena[text.offset as usize..][..text.length as usize]
}

fn push_link(arena: &mut Vec<u8>, value: &[u8]) -> u32 {
    let link = place(arena.len());
    arena.extend_from_slice(&NO_LINK.to_le_bytes());
    arena.extend_from_slice(&place(value.len()).to_le_bytes());
    arena.extend_from_slice(value);
    link
}

/// Returns a value of a chain and the offset of the next one.
fn read_link(arena: &[u8], link: u32) -> (&[u8], u32) {
    let word = |at: usize| u32::from_le_bytes([arena[at], arena[at + 1], arena[at + 2], arena[at + 3]]);
    let at = link as usize;
    let value_at = at + LINK_BYTES;
    (&arena[value_at..value_at + word(at + 4) as usize], word(at))
}

#[cfg(test)]
mod tests {
    use super::{Fold, NotANumber};

    fn fold(fold: Fold, values: &[&str], bytes_max: usize) -> Result<Vec<String>, NotANumber> {
        let mut arena = b"other".to_vec();
        let mut state = fold.start(values[0].as_bytes(), &mut arena)?;
        for value in &values[1..] {
            fold.add(&mut state, value.as_bytes(), &mut arena)?;
        }
        let mut results = Vec::new();
        let emit = |result: &[u8]| {
            results.push(String::from_utf8(result.to_vec()).unwrap());
            Ok::<(), NotANumber>(())
        };
        state.finish(&arena, bytes_max, &mut Vec::new(), emit)?;
        Ok(results)
    }

    fn check(which: Fold, values: &[&str], expected: &str) {
        assert_eq!(fold(which, values, 1000).unwrap(), [expected], "{which:?} of {values:?}");
    }

    #[test]
    fn folds_give_their_text() {
        check(Fold::Sum, &["1", "2.50", "-0.5"], "3");
        check(Fold::Min, &["10", "9.0", "9", "1e1"], "9.0");
        check(Fold::Max, &["2", "10", "10.0", "-3", "9"], "10");
        check(Fold::Max, &["1", "2", "30"], "30");
        check(Fold::Count, &["x", "", "y"], "3");
        check(Fold::Unique, &["x", "y"], "");
        check(Fold::List, &["b", "", "a"], "b,,a");
        check(Fold::List, &[""], "");
    }

    #[test]
    fn long_lists_come_in_pieces() {
        assert_eq!(fold(Fold::List, &["aa", "bb", "c", "dddddddd"], 5).unwrap(), ["aa,bb", "c", "dddddddd"]);
    }

    #[test]
    fn wrong_numbers_are_named() {
        for which in [Fold::Sum, Fold::Min, Fold::Max] {
            assert_eq!(fold(which, &["1", "one"], 10), Err(NotANumber));
            assert_eq!(fold(which, &["one"], 10), Err(NotANumber));
        }
        let failure = NotANumber.failure(Fold::Sum, b"k\xff", &[b'x'; 1000]);
        assert!(failure.message.contains("\"k\\xff\"") && failure.message.len() < 300, "{failure:?}");
        assert!(!failure.retryable());
    }
}
