//! The options of `sailfish files put --hash-by`.

use anyhow::{anyhow, bail, ensure};
use api::stored::HASHED_PARTITIONS_MAX;
use api::{PartitionRule, RecordFormat};
use clap::Args;
use filetransfer::{HashBy, RecordEnds};
use jobspec::key_options::partition_stretches;
use jobspec::record_formats::keys_of_records;

/// Number of partitions, if the user gives none: files that are to be joined need the same.
const PARTITIONS: u32 = 16;

/// The distribution of records on the command line.
#[derive(Debug, Args)]
pub struct HashArgs {
    /// Put each record of one file into the part that the hash of its key chooses, as `run --partitions` does: `key`, or
    /// fields of the key as in `run --partition-fields`. The order of records is lost. --parts is the number of partitions
    /// [default: 16], and --records is `lines` by default
    #[arg(long, value_name = "KEYS", allow_hyphen_values = true)]
    pub hash_by: Option<String>,
    /// With --hash-by: one or more bytes between the fields of a line; \t \n \0 \\ \xNN are understood [default: \t]
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, requires = "hash_by")]
    pub separator: Option<String>,
    /// With --hash-by: number of fields of a line that form the key [default: 1]
    #[arg(long, value_name = "N", requires = "hash_by")]
    pub key_fields: Option<u32>,
}

/// Records on the command line: `lines`, `fixed:N` or `fixed:N:KEY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordsArg {
    Lines,
    Fixed { record_bytes: u32, key_bytes: Option<u32> },
}

/// Parses records.
pub fn parse_records(text: &str) -> Result<RecordsArg, String> {
    if text == "lines" {
        return Ok(RecordsArg::Lines);
    }
    let number = |text: &str| text.parse().ok().filter(|bytes| *bytes > 0);
    let fixed = text.strip_prefix("fixed:").and_then(|sizes| match sizes.split_once(':') {
        None => Some(RecordsArg::Fixed { record_bytes: number(sizes)?, key_bytes: None }),
        Some((record, key)) => {
            let (record_bytes, key_bytes) = (number(record)?, Some(number(key)?));
            (key_bytes <= Some(record_bytes)).then_some(RecordsArg::Fixed { record_bytes, key_bytes })
        }
    });
    fixed.ok_or_else(|| {
        "give `lines`, or `fixed:N` with the bytes of a record, with --hash-by also `fixed:N:KEY` with those of the \
         key at its beginning"
            .to_string()
    })
}

/// Returns the places where files are cut.
pub fn record_ends(records: Option<RecordsArg>) -> anyhow::Result<RecordEnds> {
    Ok(match records {
        None => RecordEnds::Bytes,
        Some(RecordsArg::Lines) => RecordEnds::Lines,
        Some(RecordsArg::Fixed { record_bytes, key_bytes: None }) => RecordEnds::Fixed(record_bytes.into()),
        Some(RecordsArg::Fixed { .. }) => {
            bail!("--records fixed:N:KEY has a key, which only --hash-by needs")
        }
    })
}

impl HashArgs {
    /// Checks the options and returns the distribution; None without `--hash-by`.
    pub fn checked(&self, parts: Option<u32>, records: Option<RecordsArg>) -> anyhow::Result<Option<HashBy>> {
        let Some(text) = self.hash_by.as_deref() else { return Ok(None) };
        let records = match records {
            None | Some(RecordsArg::Lines) => RecordFormat::TEXT,
            Some(RecordsArg::Fixed { record_bytes, key_bytes }) => {
                RecordFormat::Fixed { record_bytes, key_bytes: key_bytes.unwrap_or(record_bytes) }
            }
        };
        let keys = keys_of_records(records, self.separator.as_deref(), self.key_fields)?;
        let count = parts.unwrap_or(PARTITIONS);
        ensure!(
            count <= HASHED_PARTITIONS_MAX,
            "--parts {count}: with --hash-by a file has at most {HASHED_PARTITIONS_MAX} parts"
        );
        let fields = matches!(records, RecordFormat::Lines { .. }).then_some(keys.key_fields);
        let stretches = match text {
            "key" => Vec::new(),
            "" => return Err(anyhow!("--hash-by is empty: give `key`, or fields of the key as in 1,2")),
            text => partition_stretches("--hash-by", text, fields)?,
        };
        Ok(Some(HashBy { records, keys, partitions: PartitionRule { count, stretches } }))
    }
}

#[cfg(test)]
mod tests {
    use super::{HashArgs, parse_records};

    fn args(hash_by: &str, separator: Option<&str>, key_fields: Option<u32>) -> HashArgs {
        HashArgs { hash_by: Some(hash_by.into()), separator: separator.map(String::from), key_fields }
    }

    #[test]
    fn unsuitable_options_are_refused() {
        let check = |args: HashArgs, parts, records: Option<&str>, expected: &str| {
            let records = records.map(|text| parse_records(text).unwrap());
            let error = format!("{:#}", args.checked(parts, records).unwrap_err());
            assert!(error.contains(expected), "{args:?}: {error}");
        };
        check(args("key", None, None), Some(1025), None, "at most 1024 parts");
        check(args("", None, None), None, None, "--hash-by is empty");
        check(args("x", None, None), None, None, "--hash-by: \"x\" is not a range of fields");
        check(args("2", None, None), None, None, "--hash-by 2: a key has 1 field here; give --key-fields 2");
        check(args("key", Some(""), None), None, None, "--separator is empty");
        check(args("key", Some("\\n"), None), None, None, "--separator holds the byte that ends each record");
        check(args("key", None, Some(0)), None, None, "--key-fields 0");
        check(
            args("key", None, Some(1)),
            None,
            Some("fixed:8"),
            "write --records fixed:RECORD_BYTES:KEY_BYTES",
        );
        assert!(args("-k1,1 -k2,2", None, Some(2)).checked(None, None).unwrap().is_some());
        for text in ["bytes", "fixed:0", "fixed:4:5", "fixed:4:0", "fixed:"] {
            assert!(parse_records(text).is_err(), "{text}");
        }
    }
}
