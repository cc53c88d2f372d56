//! Accounts of users, jobs and days.

use ids::JobId;
use serde::{Deserialize, Serialize};
use std::fmt::{Display, Formatter};
use std::str::FromStr;
use utoipa::ToSchema;

/// Maximum number of rows in an answer.
pub const USAGE_ROWS_MAX: u32 = 1_000;
/// Days for which accounts are kept.
pub const USAGE_KEPT_DAYS: u64 = 400;

/// A question, as `?by=job&since=2026-01-01&user=ann` at the end of a path. A missing field is no condition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UsageQuestion {
    #[serde(default)]
    pub by: UsageBy,
    /// The first day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<UsageDay>,
    /// The last day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<UsageDay>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// With its steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
}

/// The subject of each row of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum UsageBy {
    #[default]
    User,
    /// The steps of a job count for their job.
    Job,
    Day,
}

/// The answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UsageList {
    /// Users with most processor time first, the latest jobs first, the latest days first.
    pub rows: Vec<UsageRow>,
    /// True if there are more rows.
    pub is_cut: bool,
}

/// Sums over the attempts of a user, a job or a day.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UsageRow {
    /// None where the server does not ask for users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// Name of the job, if the store still has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub day: Option<UsageDay>,
    pub jobs: u64,
    /// Ended attempts of any end.
    pub attempts: u64,
    /// Processor time, user and system.
    pub cpu_ms: u64,
    /// Claimed memory times wall time.
    pub memory_mib_seconds: u64,
    pub read_bytes: u64,
    pub shuffled_bytes: u64,
    pub stored_bytes: u64,
    pub moved_bytes: u64,
    pub kept_bytes: u64,
}

/// A day in UTC, as days since 1970; as text `YYYY-MM-DD`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct UsageDay(pub u32);

/// A text that names no day.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no day: give one as YYYY-MM-DD, from 1970-01-01 to 9999-12-31")]
pub struct UsageDayError {
    text: String,
}

impl Display for UsageDay {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let mut left = self.0;
        let mut year = 1970;
        while left >= days_of_year(year) {
            left -= days_of_year(year);
            year += 1;
        }
        let mut month = 1;
        while left >= days_of_month(year, month) {
            left -= days_of_month(year, month);
            month += 1;
        }
        write!(f, "{year:04}-{month:02}-{:02}", left + 1)
    }
}

impl FromStr for UsageDay {
    type Err = UsageDayError;

    fn from_str(text: &str) -> Result<Self, UsageDayError> {
        parse(text).ok_or_else(|| UsageDayError { text: text.chars().take(40).collect() })
    }
}

impl TryFrom<String> for UsageDay {
    type Error = UsageDayError;

    fn try_from(text: String) -> Result<Self, UsageDayError> {
        text.parse()
    }
}

impl From<UsageDay> for String {
    fn from(day: UsageDay) -> Self {
        day.to_string()
    }
}

fn parse(text: &str) -> Option<UsageDay> {
    let mut parts = text.split('-');
    let mut number = |width: usize| -> Option<u32> {
        let part = parts.next()?;
        let is_number = part.len() == width && part.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| part.parse().ok()).flatten()
    };
    let (year, month, day) = (number(4)?, number(2)?, number(2)?);
    let is_day = year >= 1970 && (1..=12).contains(&month) && day >= 1 && day <= days_of_month(year, month);
    if !is_day || parts.next().is_some() {
        return None;
    }
    let years: u32 = (1970..year).map(days_of_year).sum();
    let months: u32 = (1..month).map(|month| days_of_month(year, month)).sum();
    Some(UsageDay(years + months + day - 1))
}

fn is_leap(year: u32) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_of_year(year: u32) -> u32 {
    if is_leap(year) { 366 } else { 365 }
}

fn days_of_month(year: u32, month: u32) -> u32 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::UsageDay;

    #[test]
    fn days_are_read_and_written() {
        for (text, day) in
            [("1970-01-01", 0), ("2000-02-29", 11_016), ("2024-12-31", 20_088), ("2026-03-01", 20_513)]
        {
            assert_eq!(text.parse(), Ok(UsageDay(day)), "{text}");
            assert_eq!(UsageDay(day).to_string(), text);
        }
        let bad =
            ["", "2026", "2026-02-29", "2026-13-01", "2026-1-1", "1969-12-31", "2026-01-01-01", "+026-01-01"];
        for text in bad {
            let error = text.parse::<UsageDay>().unwrap_err();
            assert!(error.to_string().contains("YYYY-MM-DD"), "{text}");
        }
    }
}
