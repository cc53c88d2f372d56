//! Decimal numbers of any size as bytes that compare by value.
//!
//! A number is 0.DDD... times 10 to the power of E, with neither the first nor the last digit 0.
//!
//! ```text
//! zero       80
//! positive   82 + (E + 30)                for E from -30 to 94
//!            81 | E, 8 bytes              for smaller ones
//!            FF | E, 8 bytes              for larger ones
//!            then two digits a byte, as 1 + their number (a missing one is 0), then 00
//! negative   the encoding of the positive number, all bits inverted
//! ```
//! No first byte is 7F, and 00 is never followed by 00, which is reserved for places beyond the end.

use api::Numbers;

/// Maximum absolute power of ten of a number.
const EXPONENT_MAX: i64 = 1_000_000_000;
const ZERO: u8 = 0x80;
const SMALLER: u8 = 0x81;
const SHORT_FIRST: u8 = 0x82;
const LARGER: u8 = 0xff;
const SHORT_MIN: i64 = -30;
const SHORT_MAX: i64 = 94;

const _: () = assert!(SHORT_FIRST as i64 + (SHORT_MAX - SHORT_MIN) < LARGER as i64);

/// Error: the text is not a number in a strict order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotANumber;

/// A number as written, without a sign: `whole.fraction * 10^exponent`.
#[derive(Clone, Copy, Debug)]
struct Written<'a> {
    negative: bool,
    whole: &'a [u8],
    fraction: &'a [u8],
    exponent: i64,
}

/// Appends the encoding of a number.
pub(crate) fn encode_number(numbers: Numbers, text: &[u8], out: &mut Vec<u8>) -> Result<(), NotANumber> {
    let written = match numbers {
        Numbers::Strict => read_strict(text.trim_ascii()).ok_or(NotANumber)?,
        Numbers::Lenient => read_lenient(text),
    };
    push_number(written, out);
    Ok(())
}

/// Parses a sign, digits with at most one point, an exponent, and nothing else.
fn read_strict(text: &[u8]) -> Option<Written<'_>> {
    let (negative, rest) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let (whole, rest) = split_digits(rest);
    let (fraction, rest) = match rest {
        [b'.', rest @ ..] => split_digits(rest),
        rest => (&rest[..0], rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let exponent = match rest {
        [] => 0,
        [b'e' | b'E', exponent @ ..] => {
            let value: i64 = std::str::from_utf8(exponent).ok()?.parse().ok()?;
            if value.unsigned_abs() > EXPONENT_MAX as u64 {
                return None;
            }
            value
        }
        _ => return None,
    };
    Some(Written { negative, whole, fraction, exponent })
}

/// Reads a field like Hadoop's KeyFieldBasedComparator under `n`: a minus, digits, a point and digits from the first
/// byte on; the rest is ignored, and without a digit the number is 0. Hadoop distinguishes some fields of equal value
/// by their first byte, by accident and not transitively; here they are equal.
fn read_lenient(text: &[u8]) -> Written<'_> {
    let (negative, rest) = match text {
        [b'-', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let (whole, rest) = split_digits(rest);
    let fraction = match rest {
        [b'.', rest @ ..] => split_digits(rest).0,
        rest => &rest[..0],
    };
    Written { negative, whole, fraction, exponent: 0 }
}

fn split_digits(text: &[u8]) -> (&[u8], &[u8]) {
    let length = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(length)
}

fn push_number(written: Written<'_>, out: &mut Vec<u8>) {
    let zeros = |digits: &[u8]| digits.iter().take_while(|digit| **digit == b'0').count();
    let trailing_zeros = |digits: &[u8]| digits.iter().rev().take_while(|digit| **digit == b'0').count();
    let mut whole = &written.whole[zeros(written.whole)..];
    let mut fraction = &written.fraction[..written.fraction.len() - trailing_zeros(written.fraction)];
    let mut exponent = written.exponent + whole.len() as i64;
    if whole.is_empty() {
        let leading = zeros(fraction);
        fraction = &fraction[leading..];
        exponent -= leading as i64;
    }
    if fraction.is_empty() {
        whole = &whole[..whole.len() - trailing_zeros(whole)];
    }
    if whole.is_empty() && fraction.is_empty() {
        out.push(ZERO);
        return;
    }
    let start = out.len();
    match exponent {
        SHORT_MIN..=SHORT_MAX => out.push(SHORT_FIRST + (exponent - SHORT_MIN) as u8),
        _ => {
            out.push(if exponent < SHORT_MIN { SMALLER } else { LARGER });
            // With the sign bit inverted, unsigned order is the order of the exponents.
            out.extend_from_slice(&((exponent as u64) ^ (1 << 63)).to_be_bytes());
        }
    }
    let mut digits = whole.iter().chain(fraction).map(|digit| digit - b'0');
    while let Some(first) = digits.next() {
        out.push(1 + 10 * first + digits.next().unwrap_or(0));
    }
    out.push(0);
    if written.negative {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

#[cfg(test)]
mod tests {
    use super::{NotANumber, encode_number};
    use api::Numbers;

    fn encoded(numbers: Numbers, text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        encode_number(numbers, text.as_bytes(), &mut out).unwrap_or_else(|_| panic!("{text:?} is a number"));
        out
    }

    #[test]
    fn forms_are_as_documented() {
        let check = |text, expected: &[u8]| assert_eq!(encoded(Numbers::Strict, text), expected, "{text}");
        check("0", &[0x80]);
        check("1", &[0x82 + 31, 11, 0]);
        check("-1", &[!(0x82 + 31), !11, 0xff]);
        check("120", &[0x82 + 33, 13, 0]);
        check("123", &[0x82 + 33, 13, 31, 0]);
        check("0.05", &[0x82 + 29, 51, 0]);
        check("1e94", &[0xff, 0x80, 0, 0, 0, 0, 0, 0, 95, 11, 0]);
        check("1e-40", &[0x81, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xd9, 11, 0]);
    }

    #[test]
    fn equal_values_are_equal_bytes() {
        let check = |left, right| {
            assert_eq!(encoded(Numbers::Strict, left), encoded(Numbers::Strict, right), "{left} {right}");
        };
        check("-0", "0");
        check("0.000", "0e7");
        check("1", "1.0");
        check("007", "7");
        check("+5", "5");
        check("5.", "5");
        check(".5", "0.50");
        check("1e3", "1000");
        check("12.5E-1", "1.25");
        check(" 3\r", "3");
    }

    #[test]
    fn strict_order_refuses_wrong_numbers() {
        for text in [
            "", " ", "-", "+", ".", "-.", "e5", "1e", "1e+", "1 2", "1,5", "0x10", "1.2.3", "--1", "nan",
            "12a",
        ] {
            let refused = encode_number(Numbers::Strict, text.as_bytes(), &mut Vec::new());
            assert_eq!(refused, Err(NotANumber), "{text:?}");
        }
        assert!(encode_number(Numbers::Strict, b"1e1000000001", &mut Vec::new()).is_err());
        assert!(encode_number(Numbers::Strict, b"1e99999999999999999999", &mut Vec::new()).is_err());
    }

    #[test]
    fn lenient_order_reads_the_leading_number() {
        let check = |text, value| {
            assert_eq!(encoded(Numbers::Lenient, text), encoded(Numbers::Strict, value), "{text:?} {value}");
        };
        check("12abc", "12");
        check("-3.5.7", "-3.5");
        check("1e5", "1");
        check("", "0");
        check("abc", "0");
        check("-abc", "0");
        check(" 5", "0");
        check("+5", "0");
        check("-.5x", "-0.5");
    }
}
