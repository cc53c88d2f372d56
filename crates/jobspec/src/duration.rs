//! Durations as users write them: `90s`, `30m`, `12h`, `7d`, `2w`.

use anyhow::{Context, bail, ensure};
use std::time::Duration;

const UNITS: [(char, u64); 5] = [('w', 604_800), ('d', 86_400), ('h', 3600), ('m', 60), ('s', 1)];

/// Parses whole numbers with their units, larger units before smaller ones: `1d12h`.
pub fn parse(text: &str) -> anyhow::Result<Duration> {
    let advice = "write whole numbers with a unit, as in 90s, 30m, 12h, 7d, 2w or 1d12h";
    let mut rest = text.trim();
    ensure!(!rest.is_empty(), "the duration is empty: {advice}");
    let mut seconds: u64 = 0;
    let mut smallest = u64::MAX;
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, after) = rest.split_at(digits);
        let number: u64 = number.parse().with_context(|| format!("no duration: {advice}"))?;
        let unit = after.chars().next();
        let Some((letter, per_unit)) = UNITS.into_iter().find(|(letter, _)| Some(*letter) == unit) else {
            bail!("no unit after {number}: {advice}");
        };
        ensure!(per_unit < smallest, "units go from large to small, each once: {advice}");
        smallest = per_unit;
        let part = number.checked_mul(per_unit);
        seconds = part.and_then(|part| seconds.checked_add(part)).context("the duration is too long")?;
        rest = &after[letter.len_utf8()..];
    }
    Ok(Duration::from_secs(seconds))
}

/// Returns the shortest text that [`parse`] reads as this number of seconds.
pub fn display(seconds: u64) -> String {
    let mut left = seconds;
    let mut text = String::new();
    // Weeks are only for input: `14d` is easier to read.
    for (letter, per_unit) in UNITS.into_iter().skip(1) {
        if left >= per_unit {
            text.push_str(&format!("{}{letter}", left / per_unit));
            left %= per_unit;
        }
    }
    if text.is_empty() { "0s".to_string() } else { text }
}

#[cfg(test)]
mod tests {
    use super::{display, parse};

    #[test]
    fn durations_are_read_and_shown() {
        let check = |text: &str, seconds: u64, shown: &str| {
            assert_eq!(parse(text).unwrap().as_secs(), seconds, "{text}");
            assert_eq!(display(seconds), shown);
        };
        check("0s", 0, "0s");
        check("90s", 90, "1m30s");
        check("30m", 1800, "30m");
        check("12h", 43_200, "12h");
        check(" 7d ", 604_800, "7d");
        check("2w", 1_209_600, "14d");
        check("1d12h", 129_600, "1d12h");
    }

    #[test]
    fn others_are_refused() {
        for text in [
            "",
            "7",
            "h",
            "1.5h",
            "-1h",
            "1h1d",
            "1h1h",
            "7 days",
            "1y",
            "99999999999999999999s",
            "9999999999999999w",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}
