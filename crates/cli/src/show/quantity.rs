//! Sizes, counts, durations and times for users. Units are powers of 1024.

use jiff::Timestamp;
use jiff::tz::TimeZone;

const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const SECONDS_PER_MINUTE: f64 = 60.0;
const SECONDS_PER_HOUR: f64 = 3600.0;
const SECONDS_PER_DAY: f64 = 86400.0;

/// Formats a size with three digits: `1.21 GiB`.
pub fn bytes(count: u64) -> String {
    let mut scaled = count as f64;
    let mut unit = 0;
    // From 999.5 on, three digits would round to a thousand.
    while scaled >= 999.5 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{} {}", three_digits(scaled), UNITS[unit]) }
}

/// Formats a rate: `310 MiB/s`.
pub fn rate(bytes_per_second: f64) -> String {
    format!("{}/s", bytes(bytes_per_second.max(0.0) as u64))
}

/// Formats a count: `12,345,678`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a count with its word: `1 file`, `2 files`.
pub fn counted(number: u64, word: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{} {word}{ending}", count(number))
}

/// Formats a duration: `0.35 s`, `42.3 s`, `2 min 05 s`, `3 h 07 min`, `2 d 03 h`.
pub fn seconds(seconds: f64) -> String {
    let seconds = seconds.max(0.0);
    let pair = |large: f64, unit: &str, small: f64, small_unit: &str| {
        let total = (seconds / small).round();
        let per_large = large / small;
        let (whole, rest) = ((total / per_large).floor(), total % per_large);
        format!("{whole:.0} {unit} {rest:02.0} {small_unit}")
    };
    if seconds < SECONDS_PER_MINUTE {
        format!("{} s", three_digits(seconds))
    } else if seconds < SECONDS_PER_HOUR {
        pair(SECONDS_PER_MINUTE, "min", 1.0, "s")
    } else if seconds < SECONDS_PER_DAY {
        pair(SECONDS_PER_HOUR, "h", SECONDS_PER_MINUTE, "min")
    } else {
        pair(SECONDS_PER_DAY, "d", SECONDS_PER_HOUR, "h")
    }
}

/// Formats an estimated duration: `5 s`, longer ones like [`seconds`].
pub fn whole_seconds(estimate: f64) -> String {
    let whole = estimate.max(0.0).ceil();
    if whole < SECONDS_PER_MINUTE { format!("{whole:.0} s") } else { seconds(whole) }
}

/// Returns the seconds between two times in nanoseconds.
pub fn seconds_between(start_ns: u64, end_ns: u64) -> f64 {
    end_ns.saturating_sub(start_ns) as f64 / 1e9
}

/// Formats a percentage: `99.6 %`.
pub fn percent(value: f64) -> String {
    format!("{value:.1} %")
}

/// Formats local date and time of nanoseconds since 1970.
pub fn date_and_time(time_ns: u64) -> String {
    in_local_time(time_ns, "%Y-%m-%d %H:%M:%S")
}

/// Formats the local time of day, with milliseconds.
pub fn time_of_day(time_ns: u64) -> String {
    in_local_time(time_ns, "%H:%M:%S.%3f")
}

fn in_local_time(time_ns: u64, format: &str) -> String {
    match Timestamp::from_nanosecond(i128::from(time_ns)) {
        Ok(time) => time.to_zoned_datetime(TimeZone::system()).strftime(format).to_string(),
        Err(_) => format!("{time_ns} ns"),
    }
}

fn three_digits(value: f64) -> String {
    // The limits are the values at which rounding would give a fourth digit.
    if value < 9.995 {
        format!("{value:.2}")
    } else if value < 99.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

#[cfg(test)]
mod tests {
    use super::{bytes, count, counted, seconds, whole_seconds};

    #[test]
    fn sizes_have_three_digits() {
        let check = |given, expected| assert_eq!(bytes(given), expected);
        check(0, "0 B");
        check(999, "999 B");
        check(1000, "0.98 KiB");
        check(1024, "1.00 KiB");
        check(10 << 10, "10.0 KiB");
        check(128 << 20, "128 MiB");
        check((1 << 30) - 1, "1.00 GiB");
        check(1_299_227_607, "1.21 GiB");
        check(u64::MAX, "16.0 EiB");
    }

    #[test]
    fn durations_carry_over() {
        let check = |given, expected| assert_eq!(seconds(given), expected);
        check(0.0, "0.00 s");
        check(-1.0, "0.00 s");
        check(42.34, "42.3 s");
        check(60.0, "1 min 00 s");
        check(119.7, "2 min 00 s");
        check(3599.9, "60 min 00 s");
        check(11_220.0, "3 h 07 min");
        check(180_000.0, "2 d 02 h");
        assert_eq!((whole_seconds(7.2).as_str(), whole_seconds(59.5).as_str()), ("8 s", "1 min 00 s"));
    }

    #[test]
    fn counts_are_grouped() {
        let check = |given, expected| assert_eq!(count(given), expected);
        check(0, "0");
        check(999, "999");
        check(1000, "1,000");
        check(12_345_678, "12,345,678");
        assert_eq!((counted(1, "file").as_str(), counted(0, "file").as_str()), ("1 file", "0 files"));
    }
}
