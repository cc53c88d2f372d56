//! Exact decimal numbers: nearly always a few digits, sometimes any number of them.

use bigdecimal::BigDecimal;
use std::cmp::Ordering;
use std::str::FromStr;

/// Maximum number of digits that are read without a big number.
const SMALL_DIGITS_MAX: usize = 18;
/// Maximum number of digits for [`whole_amount`].
const AMOUNT_DIGITS_MAX: usize = 8;
/// Longest number, in bytes. It is generous: the text of a partial sum is read again.
const NUMBER_BYTES_MAX: usize = 1 << 20;
/// Largest exponent, in either direction, so that a few bytes cannot ask for gigabytes of digits.
const EXPONENT_MAX: i64 = 10_000;

/// A decimal number without rounding. Order is by value.
#[derive(Clone, Debug)]
pub struct Decimal(Repr);

#[derive(Clone, Debug)]
enum Repr {
    /// `digits / 10^scale`.
    Small {
        digits: i128,
        scale: u32,
    },
    Big(Box<BigDecimal>),
}

impl Decimal {
    /// Parses a number: a sign, digits with at most one point, an exponent; ASCII space around it is ignored. None for
    /// any other text.
    #[inline]
    pub fn parse(text: &[u8]) -> Option<Decimal> {
        match parse_small(text) {
            Some((digits, scale)) => Some(Decimal(Repr::Small { digits: digits.into(), scale })),
            None => Self::parse_big(text.trim_ascii()),
        }
    }

    /// Returns a whole number.
    #[inline]
    pub fn from_whole(number: u64) -> Decimal {
        Decimal(Repr::Small { digits: number.into(), scale: 0 })
    }

    /// Parses a number and adds it to this one; None if [`Decimal::parse`] returns None.
    #[inline]
    pub fn add_text(&mut self, text: &[u8]) -> Option<()> {
        if let Some((right, right_scale)) = parse_small(text)
            && let Repr::Small { digits, scale } = &mut self.0
            && *scale == right_scale
            && let Some(sum) = digits.checked_add(right.into())
        {
            *digits = sum;
            return Some(());
        }
        self.add(&Self::parse(text)?);
        Some(())
    }

    #[cold]
    fn parse_big(text: &[u8]) -> Option<Decimal> {
        if text.len() > NUMBER_BYTES_MAX {
            return None;
        }
        let text = std::str::from_utf8(text).ok()?;
        let (number, exponent) = match text.split_once(['e', 'E']) {
            Some((number, exponent)) => (number, Some(exponent)),
            None => (text, None),
        };
        let unsigned = number.strip_prefix(['-', '+']).unwrap_or(number);
        let digit_count = unsigned.bytes().filter(u8::is_ascii_digit).count();
        let point_count = unsigned.bytes().filter(|byte| *byte == b'.').count();
        if digit_count == 0 || point_count > 1 || digit_count + point_count != unsigned.len() {
            return None;
        }
        let exponent = match exponent {
            Some(exponent) => exponent.parse::<i64>().ok().filter(|value| value.abs() <= EXPONENT_MAX)?,
            None => 0,
        };
        let number = BigDecimal::from_str(number.strip_prefix('+').unwrap_or(number)).ok()?;
        let (digits, scale) = number.into_bigint_and_scale();
        Some(Decimal(Repr::Big(Box::new(BigDecimal::from_bigint(digits, scale - exponent)))))
    }

    /// Adds a number to this one.
    pub fn add(&mut self, other: &Decimal) {
        if let Some((left, right, scale)) = self.aligned(other)
            && let Some(digits) = left.checked_add(right)
        {
            self.0 = Repr::Small { digits, scale };
            return;
        }
        self.0 = Repr::Big(Box::new(self.to_big() + other.to_big()));
    }

    /// Returns both numbers at the larger scale; None if they become too large.
    fn aligned(&self, other: &Decimal) -> Option<(i128, i128, u32)> {
        let (
            Repr::Small { digits: left, scale: left_scale },
            Repr::Small { digits: right, scale: right_scale },
        ) = (&self.0, &other.0)
        else {
            return None;
        };
        let scale = (*left_scale).max(*right_scale);
        let widen = |digits: i128, from: u32| digits.checked_mul(10_i128.checked_pow(scale - from)?);
        Some((widen(*left, *left_scale)?, widen(*right, *right_scale)?, scale))
    }

    fn to_big(&self) -> BigDecimal {
        match &self.0 {
            Repr::Small { digits, scale } => BigDecimal::from_bigint((*digits).into(), i64::from(*scale)),
            Repr::Big(number) => BigDecimal::clone(number),
        }
    }

    /// Appends the number as plain text: no exponent, no zeros at the end of a fraction.
    pub fn write_plain(&self, out: &mut Vec<u8>) {
        match &self.0 {
            Repr::Small { digits, scale } => write_small(*digits, *scale, out),
            Repr::Big(number) => out.extend_from_slice(number.normalized().to_plain_string().as_bytes()),
        }
    }
}

/// Parses the form of nearly all numbers: a sign and some digits, perhaps with a point. Returns the digits and the
/// number of digits after the point; None if the text needs a closer look.
#[inline]
fn parse_small(text: &[u8]) -> Option<(i64, u32)> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if digits.is_empty() || digits.len() > SMALL_DIGITS_MAX {
        return None;
    }
    let mut number: i64 = 0;
    let mut point = None;
    for (index, byte) in digits.iter().enumerate() {
        match byte {
            b'0'..=b'9' => number = number * 10 + i64::from(byte - b'0'),
            b'.' if point.is_none() && digits.len() > 1 => point = Some(index),
            _ => return None,
        }
    }
    let scale = point.map_or(0, |index| (digits.len() - 1 - index) as u32);
    Some((if negative { -number } else { number }, scale))
}

/// Parses a number that consists of a few digits: below 100 million, so that the sum of 2^37 of them fits 64 bits. None
/// for any other text, number or not.
#[inline]
pub fn whole_amount(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > AMOUNT_DIGITS_MAX {
        return None;
    }
    let mut amount = 0;
    for byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        amount = amount * 10 + u64::from(digit);
    }
    Some(amount)
}

impl PartialEq for Decimal {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Decimal {}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        match self.aligned(other) {
            Some((left, right, _)) => left.cmp(&right),
            None => self.to_big().cmp(&other.to_big()),
        }
    }
}

fn write_small(mut digits: i128, mut scale: u32, out: &mut Vec<u8>) {
    while scale > 0 && digits % 10 == 0 {
        digits /= 10;
        scale -= 1;
    }
    if digits < 0 {
        out.push(b'-');
    }
    // At most 39 digits of an i128, or the leading zeros of a scale, and the point.
    let mut text = [0; 64];
    let mut start = text.len();
    let mut rest = digits.unsigned_abs();
    let mut written = 0;
    while rest > 0 || written <= scale {
        if written == scale && scale > 0 {
            start -= 1;
            text[start] = b'.';
        }
        start -= 1;
        // Division of 128 bits is slow, and nearly all numbers fit into 64 bits.
        match u64::try_from(rest) {
            Ok(short) => {
                text[start] = b'0' + (short % 10) as u8;
                rest = u128::from(short / 10);
            }
            Err(_) => {
                text[start] = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
        }
        written += 1;
    }
    out.extend_from_slice(&text[start..]);
}

#[cfg(test)]
mod tests {
    use super::{Decimal, whole_amount};

    fn plain(number: &Decimal) -> String {
        let mut out = Vec::new();
        number.write_plain(&mut out);
        String::from_utf8(out).unwrap()
    }

    fn check(text: &str, expected: Option<&str>) {
        assert_eq!(Decimal::parse(text.as_bytes()).as_ref().map(plain).as_deref(), expected, "{text:?}");
    }

    #[test]
    fn numbers_are_read_and_written() {
        check("0", Some("0"));
        check("-0.00", Some("0"));
        check("007", Some("7"));
        check("+5", Some("5"));
        check(" 5\r", Some("5"));
        check(".5", Some("0.5"));
        check("5.", Some("5"));
        check("-1.050", Some("-1.05"));
        check("0.001", Some("0.001"));
        check("1e3", Some("1000"));
        check("1.5E-3", Some("0.0015"));
        check("12345678901234567890.120", Some("12345678901234567890.12"));
        check("-1000000000000000000000", Some("-1000000000000000000000"));
        check("0.000000000000000000000001", Some("0.000000000000000000000001"));
    }

    #[test]
    fn only_plain_digits_are_amounts() {
        let check = |text: &str, expected| assert_eq!(whole_amount(text.as_bytes()), expected, "{text:?}");
        check("1", Some(1));
        check("00000012", Some(12));
        check("99999999", Some(99_999_999));
        for text in ["", "-1", "+1", "1.0", " 1", "1e3", "123456789", "x"] {
            check(text, None);
        }
    }

    #[test]
    fn wrong_numbers_are_refused() {
        for text in
            ["", " ", "-", ".", "+.", "1 2", "1_000", "0x10", "NaN", "inf", "--1", "1.2.3", "1e", "e5"]
        {
            check(text, None);
        }
        check("1e10001", None);
        check("1e99999999999999999999", None);
        check("\u{661}", None);
    }

    #[test]
    fn sums_leave_the_small_range_and_stay_exact() {
        let mut sum = Decimal::parse(b"0").unwrap();
        let large = Decimal::parse(b"999999999999999999").unwrap();
        let small = Decimal::parse(b"0.00000000000000001").unwrap();
        for _ in 0..1000 {
            sum.add(&large);
            sum.add(&small);
        }
        assert_eq!(plain(&sum), "999999999999999999000.00000000000001");
        assert!(sum > large && small < large);
        assert_eq!(Decimal::parse(b"1.50"), Decimal::parse(b"15e-1"));
    }
}
