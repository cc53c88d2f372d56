//! Limits of programs as users type them: `memory=2G`, `processes=100`, `time=10m`.

use crate::{duration, memory_size};
use anyhow::{Context, bail, ensure};
use api::{AttemptLimits, LimitKind};

/// Fewest open files with which a program can start: its streams, and the files that its loader opens.
const OPEN_FILES_MIN: u64 = 16;

/// Parses limits, each `NAME=VALUE`; the last of a name holds.
pub fn parse<'a>(texts: impl IntoIterator<Item = &'a String>) -> anyhow::Result<AttemptLimits> {
    let mut limits = AttemptLimits::default();
    for text in texts {
        let (kind, value) = parse_one(text).with_context(|| format!("--limit {text}"))?;
        limits.set(kind, value);
    }
    Ok(limits)
}

fn parse_one(text: &str) -> anyhow::Result<(LimitKind, u64)> {
    let (name, value) = text.split_once('=').context("give NAME=VALUE, as in memory=2G")?;
    let Some(kind) = LimitKind::parse(name) else {
        let names = LimitKind::ALL.map(LimitKind::word).join(", ");
        bail!("{name:?} is not a limit: the limits are {names}");
    };
    let parsed = match kind {
        LimitKind::Processes | LimitKind::OpenFiles => {
            value.parse().with_context(|| format!("{value:?} is not a number"))?
        }
        LimitKind::FileSize | LimitKind::Disk | LimitKind::Memory => memory_size::parse(value)?,
        LimitKind::Time => duration::parse(value)?.as_secs(),
    };
    ensure!(parsed > 0, "0 lets no program run");
    let has_enough = kind != LimitKind::OpenFiles || parsed >= OPEN_FILES_MIN;
    ensure!(has_enough, "no program starts with so few: give at least {OPEN_FILES_MIN}");
    Ok((kind, parsed))
}

#[cfg(test)]
mod tests {
    use super::parse;
    use api::AttemptLimits;

    #[test]
    fn limits_have_names_and_units() {
        let texts =
            ["memory=2G", "time=10m", "processes=7", "open-files=64", "disk=1K", "file-size=3", "time=1h"];
        let parsed = parse(&texts.map(String::from)).unwrap();
        let expected = AttemptLimits {
            processes: Some(7),
            open_files: Some(64),
            file_bytes: Some(3),
            disk_bytes: Some(1024),
            memory_bytes: Some(2 << 30),
            seconds: Some(3600),
        };
        assert_eq!(parsed, expected);
    }

    #[test]
    fn bad_limits_are_named() {
        for (text, why) in [
            ("memory", "NAME=VALUE"),
            ("cpu=3", "the limits are processes, open-files"),
            ("memory=lots", "not a size"),
            ("processes=0", "0 lets no program run"),
            ("processes=-1", "not a number"),
            ("open-files=3", "at least 16"),
            ("time=soon", "--limit time=soon"),
        ] {
            let error = format!("{:#}", parse(&[text.to_string()]).unwrap_err());
            assert!(error.contains(why) && error.starts_with("--limit "), "{text}: {error}");
        }
    }
}
