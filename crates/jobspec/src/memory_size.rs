//! Sizes as users type them: `64M`, `1.5G`, `67108864`.

const UNITS: [(char, u32); 4] = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];
/// Maximum number of digits after the point.
const FRACTION_DIGITS_MAX: usize = 9;

/// An error: the text is not a size. The user must fix it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotASize;

impl std::fmt::Display for NotASize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("not a size: write bytes or a number with K, M, G or T (powers of 1024), as in 1.5G")
    }
}

impl std::error::Error for NotASize {}

/// Parses a size in bytes. K, M, G and T are powers of 1024, in either case; `B` or `iB` may follow the unit. A
/// fraction needs a unit and is rounded down to whole bytes.
pub fn parse(text: &str) -> Result<u64, NotASize> {
    let text = text.trim();
    let number_end = text.find(|each: char| !each.is_ascii_digit() && each != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(number_end);
    let shift = shift_of(unit.trim_start()).ok_or(NotASize)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let has_point = number.contains('.');
    if whole.is_empty() || (has_point && (fraction.is_empty() || shift == 0)) {
        return Err(NotASize);
    }
    if fraction.len() > FRACTION_DIGITS_MAX || !fraction.bytes().all(|each| each.is_ascii_digit()) {
        return Err(NotASize);
    }
    let whole: u64 = whole.parse().map_err(|_| NotASize)?;
    let fraction_value: u128 =
        if fraction.is_empty() { 0 } else { fraction.parse().map_err(|_| NotASize)? };
    let bytes = (u128::from(whole) << shift) + (fraction_value << shift) / 10_u128.pow(fraction.len() as u32);
    u64::try_from(bytes).map_err(|_| NotASize)
}

/// Returns the power of two of a unit; 0 for no unit.
fn shift_of(unit: &str) -> Option<u32> {
    let mut letters = unit.chars();
    let Some(letter) = letters.next() else { return Some(0) };
    if letter.eq_ignore_ascii_case(&'B') {
        return letters.next().is_none().then_some(0);
    }
    let rest = letters.as_str();
    if !(rest.is_empty() || rest.eq_ignore_ascii_case("B") || rest.eq_ignore_ascii_case("iB")) {
        return None;
    }
    UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(&letter)).map(|(_, shift)| *shift)
}

#[cfg(test)]
mod tests {
    use super::{NotASize, parse};

    #[test]
    fn sizes_are_read() {
        let check = |text, expected| assert_eq!(parse(text), Ok(expected), "{text}");
        check("0", 0);
        check("67108864", 64 << 20);
        check("100B", 100);
        check("64M", 64 << 20);
        check("64m", 64 << 20);
        check("64 MiB", 64 << 20);
        check("1G", 1 << 30);
        check("1.5G", 3 << 29);
        check("0.1K", 102);
        check("2T", 2 << 40);
        check(" 3GB ", 3 << 30);
        check("18446744073709551615", u64::MAX);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "M",
            "1.5",
            "1.G",
            ".5G",
            "1..5G",
            "1.2.3G",
            "-1",
            "1X",
            "1GG",
            "1 G x",
            "half",
            "1.1234567890G",
            "18446744073709551616",
            "16777216T",
        ] {
            assert_eq!(parse(text), Err(NotASize), "{text}");
        }
    }
}
