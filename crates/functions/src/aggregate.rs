//! The aggregate package of Hadoop: the first word of a key names the fold of its values.
//!
//! ```text
//!   LongValueSum:apples TAB 3     ->  apples TAB sum of the values
//! ```
//! Numbers and texts have the forms of Java, because the results must be the same texts.

use api::{Blame, TaskFailure};
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use xxhash_rust::xxh3::xxh3_128;

/// Name after `builtin:`.
pub(crate) const AGGREGATE: &str = "aggregate";
/// Maximum number of distinct values of one key: each costs some 40 bytes beyond the budget of `--memory`.
const DISTINCT_MAX: usize = 1 << 25;
/// Maximum bytes of a key or value in a message.
const SHOWN_BYTES_MAX: usize = 100;

/// Fold of the values of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    LongSum,
    LongMax,
    LongMin,
    DoubleSum,
    StringMax,
    StringMin,
    UniqueCount,
    Histogram,
}

const NAMES: [(&str, Kind); 8] = [
    ("LongValueSum", Kind::LongSum),
    ("LongValueMax", Kind::LongMax),
    ("LongValueMin", Kind::LongMin),
    ("DoubleValueSum", Kind::DoubleSum),
    ("StringValueMax", Kind::StringMax),
    ("StringValueMin", Kind::StringMin),
    ("UniqValueCount", Kind::UniqueCount),
    ("ValueHistogram", Kind::Histogram),
];

/// An error: the record cannot be aggregated. The user's data is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AggregateError {
    #[error("the key is not KIND:NAME; the kinds are {}", NAMES.map(|(name, _)| name).join(", "))]
    Kind,
    #[error("the value is not a whole number of 64 bits")]
    Long,
    #[error("the value is not a number")]
    Double,
    #[error("the value is not ITEM or ITEM TAB COUNT")]
    Count,
    #[error("there are more than {DISTINCT_MAX} distinct values of one key")]
    TooMany,
}

impl AggregateError {
    /// Returns the failure of the attempt, which names the record.
    pub fn failure(self, key: &[u8], value: &[u8]) -> TaskFailure {
        let shown = |bytes: &[u8]| bytes[..bytes.len().min(SHOWN_BYTES_MAX)].escape_ascii().to_string();
        let message =
            format!("builtin:{AGGREGATE}: key \"{}\", value \"{}\": {self}", shown(key), shown(value));
        TaskFailure::new(Blame::UserData, message)
    }
}

/// Returns the kind of a key, matched in any case, and the text after its first colon.
pub fn kind_and_name(key: &[u8]) -> Result<(Kind, &[u8]), AggregateError> {
    let colon = memchr::memchr(b':', key).ok_or(AggregateError::Kind)?;
    let found = NAMES.iter().find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(&key[..colon]));
    found.map(|(_, kind)| (*kind, &key[colon + 1..])).ok_or(AggregateError::Kind)
}

/// State of the fold of one key's values.
#[derive(Clone, Debug)]
pub enum Aggregate {
    Long(i64),
    Double(f64),
    Text(Vec<u8>),
    /// Hashes of the values: 128 bits distinguish any number of values that a machine can hold.
    Unique(HashSet<u128>),
    /// Count of each item, by hash of the item.
    Items(HashMap<u128, i64>),
}

impl Kind {
    /// Returns whether folding parts of the values first gives the same result: not for sums of doubles, nor if all
    /// values are needed.
    pub fn folds_in_parts(self) -> bool {
        !matches!(self, Kind::DoubleSum | Kind::UniqueCount | Kind::Histogram)
    }

    /// Returns the state after the first value.
    pub fn start(self, value: &[u8]) -> Result<Aggregate, AggregateError> {
        let mut state = match self {
            Kind::LongSum => Aggregate::Long(0),
            Kind::LongMax => Aggregate::Long(i64::MIN),
            Kind::LongMin => Aggregate::Long(i64::MAX),
            Kind::DoubleSum => Aggregate::Double(0.0),
            Kind::StringMax | Kind::StringMin => return Ok(Aggregate::Text(value.to_vec())),
            Kind::UniqueCount => Aggregate::Unique(HashSet::new()),
            Kind::Histogram => Aggregate::Items(HashMap::new()),
        };
        self.add(&mut state, value)?;
        Ok(state)
    }

    /// Adds the next value. The state must be of this kind.
    pub fn add(self, state: &mut Aggregate, value: &[u8]) -> Result<(), AggregateError> {
        match state {
            Aggregate::Long(sum) => {
                let number = long(value).ok_or(AggregateError::Long)?;
                *sum = match self {
                    Kind::LongMax => number.max(*sum),
                    Kind::LongMin => number.min(*sum),
                    // Java wraps on overflow too.
                    _ => sum.wrapping_add(number),
                };
            }
            Aggregate::Double(sum) => *sum += double(value).ok_or(AggregateError::Double)?,
            Aggregate::Text(best) => {
                let wanted = if self == Kind::StringMax { Ordering::Greater } else { Ordering::Less };
                if compare_as_java(value, best) == wanted {
                    best.clear();
                    best.extend_from_slice(value);
                }
            }
            Aggregate::Unique(values) => {
                values.insert(xxh3_128(value));
                if values.len() > DISTINCT_MAX {
                    return Err(AggregateError::TooMany);
                }
            }
            Aggregate::Items(items) => {
                let (item, count) = match memchr::memrchr(b'\t', value) {
                    Some(tab) => (&value[..tab], long(&value[tab + 1..]).ok_or(AggregateError::Count)?),
                    None => (value, 1),
                };
                let sum = items.entry(xxh3_128(item)).or_insert(0);
                *sum = sum.wrapping_add(count);
                if items.len() > DISTINCT_MAX {
                    return Err(AggregateError::TooMany);
                }
            }
        }
        Ok(())
    }
}

impl Aggregate {
    /// Returns the result as text.
    pub fn finish(&self) -> Vec<u8> {
        match self {
            Aggregate::Long(number) => number.to_string().into_bytes(),
            Aggregate::Double(number) => java_double(*number).into_bytes(),
            Aggregate::Text(text) => text.clone(),
            Aggregate::Unique(values) => values.len().to_string().into_bytes(),
            Aggregate::Items(items) => histogram(items.values().copied().collect()).into_bytes(),
        }
    }
}

/// Returns the number of items; least, middle and greatest of their counts; mean and standard deviation.
fn histogram(mut counts: Vec<i64>) -> String {
    counts.sort_unstable();
    let (Some(least), Some(greatest)) = (counts.first(), counts.last()) else { return "0".to_string() };
    let items = counts.len() as f64;
    let sum = counts.iter().fold(0_i64, |sum, count| sum.wrapping_add(*count));
    let mean = sum as f64 / items;
    let squares: f64 = counts.iter().map(|count| (*count as f64 - mean) * (*count as f64 - mean)).sum();
    let deviation = (squares / items).sqrt();
    let middle = counts[counts.len() / 2];
    let (mean, deviation) = (java_double(mean), java_double(deviation));
    format!("{}\t{least}\t{middle}\t{greatest}\t{mean}\t{deviation}", counts.len())
}

/// Parses a number like `Long.parseLong`.
fn long(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Parses a decimal number like `Double.parseDouble`: with blanks around it and a type letter after it.
fn double(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?.trim_matches(|each: char| each <= ' ');
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if matches!(unsigned, "NaN" | "Infinity") {
        return text.parse().ok();
    }
    let digits = unsigned.strip_suffix(['f', 'F', 'd', 'D']).unwrap_or(unsigned);
    let plain = digits.starts_with(|first: char| first.is_ascii_digit() || first == '.')
        && digits.bytes().all(|byte| byte.is_ascii_digit() || b".eE+-".contains(&byte));
    let sign = if text.starts_with('-') { -1.0 } else { 1.0 };
    digits.parse::<f64>().ok().filter(|_| plain).map(|number| sign * number)
}

/// Formats a double like `Double.toString`: plainly from a thousandth to below ten million, otherwise with an exponent;
/// always with a digit after the point.
fn java_double(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_string();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.to_string();
    }
    let with_point = |text: &str| if text.contains('.') { text.to_string() } else { format!("{text}.0") };
    if number == 0.0 || (1e-3..1e7).contains(&number.abs()) {
        return with_point(&number.to_string());
    }
    let text = format!("{number:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    format!("{}E{exponent}", with_point(digits))
}

/// Compares like `String.compareTo`, by UTF-16 units. It differs from bytewise order only beyond U+D800.
fn compare_as_java(left: &[u8], right: &[u8]) -> Ordering {
    if left.iter().chain(right).all(|byte| *byte < 0xee) {
        return left.cmp(right);
    }
    let (left, right) = (String::from_utf8_lossy(left), String::from_utf8_lossy(right));
    left.encode_utf16().cmp(right.encode_utf16())
}

#[cfg(test)]
mod tests {
    use super::{AggregateError, compare_as_java, java_double, kind_and_name};
    use std::cmp::Ordering;

    fn fold(key: &str, values: &[&str]) -> Result<String, AggregateError> {
        let (kind, _) = kind_and_name(key.as_bytes())?;
        let mut state = kind.start(values[0].as_bytes())?;
        for value in &values[1..] {
            kind.add(&mut state, value.as_bytes())?;
        }
        Ok(String::from_utf8(state.finish()).unwrap())
    }

    #[test]
    fn kinds_give_the_texts_of_java() {
        let check = |key: &str, values: &[&str], expected: &str| {
            assert_eq!(fold(key, values).as_deref(), Ok(expected), "{key} of {values:?}");
        };
        check("LongValueSum:x", &["1", "-3", "+10"], "8");
        check("longvaluesum:x:y", &["9223372036854775807", "1"], "-9223372036854775808");
        check("LongValueMax:", &["-5", "-7"], "-5");
        check("LongValueMin:x", &["5", "7", "3"], "3");
        check("DoubleValueSum:x", &["0.1", "0.2"], "0.30000000000000004");
        check("DoubleValueSum:x", &[" 1e3 ", "2.5f", "-1d"], "1001.5");
        check("DoubleValueSum:x", &["-Infinity"], "-Infinity");
        check("StringValueMax:x", &["pear", "apple", "zoo"], "zoo");
        check("StringValueMin:x", &["pear", "apple", "zoo"], "apple");
        check("UniqValueCount:x", &["a", "b", "a", ""], "3");
        check("ValueHistogram:x", &["a", "b", "a"], "2\t1\t2\t2\t1.5\t0.5");
        check("ValueHistogram:x", &["a\t10", "b\t2", "c", "c\tb\t4"], "4\t1\t4\t10\t4.25\t3.491060010942235");
    }

    #[test]
    fn values_that_cannot_be_folded_are_named() {
        assert_eq!(fold("apples", &["1"]), Err(AggregateError::Kind));
        assert_eq!(fold("LongSum:x", &["1"]), Err(AggregateError::Kind));
        assert_eq!(fold("LongValueSum:x", &[" 1"]), Err(AggregateError::Long));
        assert_eq!(fold("LongValueSum:x", &["1.5"]), Err(AggregateError::Long));
        assert_eq!(fold("DoubleValueSum:x", &["inf"]), Err(AggregateError::Double));
        assert_eq!(fold("DoubleValueSum:x", &["1", "--2"]), Err(AggregateError::Double));
        assert_eq!(fold("ValueHistogram:x", &["a\tmany"]), Err(AggregateError::Count));
        let failure = AggregateError::Long.failure(b"LongValueSum:k", b"x");
        assert!(failure.message.contains("LongValueSum:k") && !failure.retryable(), "{failure:?}");
    }

    #[test]
    fn doubles_are_written_as_java_writes_them() {
        let check = |number: f64, expected: &str| assert_eq!(java_double(number), expected);
        check(0.0, "0.0");
        check(-0.0, "-0.0");
        check(5.0, "5.0");
        check(0.001, "0.001");
        check(0.0001, "1.0E-4");
        check(9999999.0, "9999999.0");
        check(12345678.5, "1.23456785E7");
        check(-1e10, "-1.0E10");
        check(f64::NAN, "NaN");
    }

    #[test]
    fn texts_are_compared_by_units_of_utf16() {
        assert_eq!(compare_as_java("b".as_bytes(), "a".as_bytes()), Ordering::Greater);
        assert_eq!(compare_as_java("é".as_bytes(), "z".as_bytes()), Ordering::Greater);
        // A surrogate pair sorts before U+FF5E, whose bytes are smaller.
        assert_eq!(compare_as_java("\u{10400}".as_bytes(), "\u{ff5e}".as_bytes()), Ordering::Less);
    }
}
