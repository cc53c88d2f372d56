//! Numbers of rows and first rows, in the notation of users.

use crate::ROW_BYTES;
use std::fmt;
use std::str::FromStr;

/// A number of rows whose bytes are below 2^64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rows(u64);

/// The number of a first row; rows count from 0 and may have any number of 128 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StartRow(pub u128);

/// Reason why a text is not a number of rows, with advice.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NumberError {
    /// It is not digits with at most one suffix.
    #[error(
        "{found:?} is not a number of rows: give digits, with an optional k, m, b or t (thousand, million, \
         billion, trillion), as in 10m"
    )]
    NotANumber {
        /// The text as written.
        found: String,
    },
    /// As a number of rows it would be 2^64 bytes or more.
    #[error("{found} rows are too many: give at most {}, which is 18 exabytes", Rows::MAX.0)]
    TooManyRows {
        /// The text as written.
        found: String,
    },
    /// It does not fit into 128 bits.
    #[error("{found} is too large: row numbers have 128 bits, so give at most {}", u128::MAX)]
    TooLarge {
        /// The text as written.
        found: String,
    },
}

impl Rows {
    /// Maximum number of rows whose bytes fit into 64 bits.
    pub const MAX: Rows = Rows(u64::MAX / ROW_BYTES as u64);

    /// Parses `250`, `10k`, `10m`, `1b` or `1t`; the suffix is a power of 1000, in either case.
    ///
    /// # Errors
    /// The text is something else, or more than [`Rows::MAX`].
    pub fn parse(text: &str) -> Result<Rows, NumberError> {
        let too_many = || NumberError::TooManyRows { found: text.to_string() };
        let number = match parse_number(text) {
            Err(NumberError::TooLarge { .. }) => return Err(too_many()),
            parsed => parsed?,
        };
        let rows = u64::try_from(number).map_err(|_| too_many())?;
        Rows::new(rows).ok_or_else(too_many)
    }

    /// `None` if that is more than [`Rows::MAX`].
    pub fn new(rows: u64) -> Option<Rows> {
        (rows <= Rows::MAX.0).then_some(Rows(rows))
    }

    /// Returns the number of rows.
    pub fn count(self) -> u64 {
        self.0
    }

    /// Returns the bytes of the rows.
    pub fn bytes(self) -> u64 {
        self.0 * ROW_BYTES as u64
    }
}

impl StartRow {
    /// Parses a row number, with the suffixes of [`Rows::parse`].
    ///
    /// # Errors
    /// The text is something else, or does not fit into 128 bits.
    pub fn parse(text: &str) -> Result<StartRow, NumberError> {
        parse_number(text).map(StartRow)
    }
}

fn parse_number(text: &str) -> Result<u128, NumberError> {
    let (digits, unit) = match text.bytes().last().map(|byte| byte.to_ascii_lowercase()) {
        Some(b'k') => (&text[..text.len() - 1], 1_000),
        Some(b'm') => (&text[..text.len() - 1], 1_000_000),
        Some(b'b') => (&text[..text.len() - 1], 1_000_000_000),
        Some(b't') => (&text[..text.len() - 1], 1_000_000_000_000),
        _ => (text, 1),
    };
    // `u128::from_str` alone would accept a plus sign.
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(NumberError::NotANumber { found: text.to_string() });
    }
    let number = digits.parse::<u128>().ok().and_then(|number| number.checked_mul(unit));
    number.ok_or_else(|| NumberError::TooLarge { found: text.to_string() })
}

impl FromStr for Rows {
    type Err = NumberError;

    fn from_str(text: &str) -> Result<Rows, NumberError> {
        Rows::parse(text)
    }
}

impl FromStr for StartRow {
    type Err = NumberError;

    fn from_str(text: &str) -> Result<StartRow, NumberError> {
        StartRow::parse(text)
    }
}

impl fmt::Display for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for StartRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::{NumberError, Rows, StartRow};

    #[test]
    fn suffixes_are_powers_of_a_thousand() {
        for (text, rows) in [
            ("0", 0),
            ("250", 250),
            ("007", 7),
            ("10k", 10_000),
            ("10m", 10_000_000),
            ("10M", 10_000_000),
            ("1b", 1_000_000_000),
            ("3T", 3_000_000_000_000),
        ] {
            assert_eq!(Rows::parse(text).map(Rows::count), Ok(rows), "{text}");
            assert_eq!(text.parse(), Ok(StartRow(u128::from(rows))), "{text}");
        }
        assert_eq!(Rows::parse("2k").map(Rows::bytes), Ok(200_000));
    }

    #[test]
    fn errors_say_the_right_spelling() {
        for text in
            ["", "k", "-1", "+1", "1.5m", "10 m", "10mm", "10g", "0x10", "1_000", "m10", "10µ", "１０"]
        {
            let error = Rows::parse(text).expect_err(text);
            assert_eq!(error, NumberError::NotANumber { found: text.to_string() });
            assert!(error.to_string().contains("as in 10m"), "{error}");
            assert_eq!(StartRow::parse(text), Err(error));
        }
    }

    #[test]
    fn limits_are_named() {
        assert_eq!(Rows::parse("184467440737095516"), Ok(Rows::MAX));
        for text in
            ["184467440737095517", "184468t", "18446744073709551616", "99999999999999999999999999999999t"]
        {
            let error = Rows::parse(text).expect_err(text);
            assert_eq!(error, NumberError::TooManyRows { found: text.to_string() });
        }
        let largest = "340282366920938463463374607431768211455";
        assert_eq!(StartRow::parse(largest), Ok(StartRow(u128::MAX)));
        for text in ["340282366920938463463374607431768211456", "340282366920938463463374608t"] {
            let error = StartRow::parse(text).expect_err(text);
            assert_eq!(error, NumberError::TooLarge { found: text.to_string() });
            assert!(error.to_string().contains(largest), "{error}");
        }
    }
}
