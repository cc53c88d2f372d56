//! A job file: the options of `sailfish run` in TOML.
//!
//! ```
//! let text = r#"
//!     input = ["books/*.txt", "more"]
//!     mapper = "builtin:words"
//!     reducer = "builtin:sum"
//!     output = "counts"
//!     memory = "1G"
//!     env = { LIMIT = "3" }
//! "#;
//! let file = api::JobFile::parse(text).unwrap();
//! assert_eq!(file.input.unwrap().len(), 2);
//! ```

use crate::{Codec, Notice, Replication, STORED_PREFIX, is_object_url};
use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::path::{Path, PathBuf};

/// A job file as written. Keys are the long names of the options with `_` for `-`; an option that is missing is None
/// and follows its default. An unknown key is an error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobFile {
    pub name: Option<String>,
    /// One path or a list; files, directories, globs.
    #[serde(default, deserialize_with = "one_or_more")]
    pub input: Option<Vec<String>>,
    pub mapper: Option<String>,
    pub combiner: Option<String>,
    pub reducer: Option<String>,
    pub output: Option<PathBuf>,
    /// A size as on the command line (`"1.5G"`) or a number of bytes, kept as text.
    #[serde(default, deserialize_with = "size_text")]
    pub memory: Option<String>,
    pub slots: Option<u32>,
    pub state: Option<PathBuf>,
    /// One directory or a list.
    #[serde(default, deserialize_with = "one_or_more")]
    pub disk: Option<Vec<String>>,
    /// One path or a list.
    #[serde(default, deserialize_with = "one_or_more")]
    pub file: Option<Vec<String>>,
    /// A table of names and values, or a list of `NAME=VALUE`.
    #[serde(default, deserialize_with = "name_values")]
    pub env: Option<Vec<(String, String)>>,
    pub env_file: Option<PathBuf>,
    pub network: Option<bool>,
    /// Limits of programs, `NAME=VALUE`; one or a list.
    #[serde(default, deserialize_with = "one_or_more")]
    pub limit: Option<Vec<String>>,
    pub codec: Option<Codec>,
    pub input_format: Option<String>,
    pub output_format: Option<String>,
    pub exchange: Option<String>,
    pub separator: Option<String>,
    pub key_fields: Option<u32>,
    pub compress: Option<String>,
    pub part_extension: Option<String>,
    pub omit_empty_parts: Option<bool>,
    pub order: Option<KeyOrder>,
    pub reverse: Option<bool>,
    pub sort_keys: Option<String>,
    pub partitions: Option<u32>,
    pub partition_fields: Option<String>,
    pub key_tails: Option<bool>,
    pub total_order: Option<bool>,
    pub map_only: Option<bool>,
    pub overwrite: Option<bool>,
    pub keep_ifiles: Option<bool>,
    /// A duration as on the command line: `"12h"`.
    pub keep_for: Option<String>,
    pub max_regenerations: Option<u32>,
    pub no_sync: Option<bool>,
    pub unread: Option<Notice>,
    pub empty_input: Option<Notice>,
    pub speculation: Option<bool>,
    pub elastic: Option<bool>,
    pub replication: Option<Replication>,
    pub replicas: Option<u32>,
    pub json: Option<bool>,
    /// Stages that follow one another, in place of one job: each is written as a separate job; keys outside of them
    /// apply to all.
    #[serde(default, deserialize_with = "stages")]
    pub stage: Option<Vec<JobFile>>,
    /// Names of the stages whose output this stage reads after its `input`: one or a list.
    #[serde(default, deserialize_with = "one_or_more")]
    pub from: Option<Vec<String>>,
    /// Line on which a stage begins, counted from 1.
    #[serde(skip)]
    pub line: usize,
}

/// The comparison of whole keys (`order`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyOrder {
    Bytes,
    Numeric,
}

/// The reason why a job file is not valid. The user must fix it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct JobFileError {
    /// Line of the error, counted from 1.
    pub line: usize,
    /// Message of the parser.
    pub message: String,
}

impl JobFile {
    /// Parses a job file. Paths stay as they are written; see [`JobFile::resolve_paths`].
    pub fn parse(text: &str) -> Result<JobFile, JobFileError> {
        let mut file: JobFile = toml::from_str(text).map_err(|error: toml::de::Error| {
            // An error without a position concerns the file as a whole.
            let offset = error.span().map_or(0, |span| span.start);
            let line = line_at(text, offset);
            let message = match text.lines().nth(line - 1).and_then(unquoted) {
                Some(quoted) => format!("{}: write strings in quotes, as in {quoted}", error.message()),
                None => error.message().to_string(),
            };
            JobFileError { line, message }
        })?;
        file.stage.iter_mut().flatten().for_each(|stage| stage.line = line_at(text, stage.line));
        Ok(file)
    }

    /// Returns a stage in which the values that the file gives for all stages fill the gaps.
    pub fn stage_of(self, all: &JobFile) -> JobFile {
        let all = all.clone();
        JobFile {
            name: self.name,
            input: self.input,
            mapper: self.mapper,
            combiner: self.combiner,
            reducer: self.reducer,
            output: self.output,
            memory: self.memory.or(all.memory),
            slots: self.slots.or(all.slots),
            state: self.state.or(all.state),
            disk: self.disk.or(all.disk),
            file: self.file.or(all.file),
            env: self.env.or(all.env),
            env_file: self.env_file.or(all.env_file),
            network: self.network.or(all.network),
            limit: self.limit.or(all.limit),
            codec: self.codec.or(all.codec),
            input_format: self.input_format.or(all.input_format),
            output_format: self.output_format.or(all.output_format),
            exchange: self.exchange.or(all.exchange),
            separator: self.separator.or(all.separator),
            key_fields: self.key_fields.or(all.key_fields),
            compress: self.compress.or(all.compress),
            part_extension: self.part_extension.or(all.part_extension),
            omit_empty_parts: self.omit_empty_parts.or(all.omit_empty_parts),
            order: self.order.or(all.order),
            reverse: self.reverse.or(all.reverse),
            sort_keys: self.sort_keys.or(all.sort_keys),
            partitions: self.partitions.or(all.partitions),
            partition_fields: self.partition_fields.or(all.partition_fields),
            key_tails: self.key_tails.or(all.key_tails),
            total_order: self.total_order.or(all.total_order),
            map_only: self.map_only.or(all.map_only),
            overwrite: self.overwrite.or(all.overwrite),
            keep_ifiles: self.keep_ifiles.or(all.keep_ifiles),
            keep_for: self.keep_for.or(all.keep_for),
            max_regenerations: self.max_regenerations.or(all.max_regenerations),
            no_sync: self.no_sync.or(all.no_sync),
            unread: self.unread.or(all.unread),
            empty_input: self.empty_input.or(all.empty_input),
            speculation: self.speculation.or(all.speculation),
            elastic: self.elastic.or(all.elastic),
            replication: self.replication.or(all.replication),
            replicas: self.replicas.or(all.replicas),
            json: self.json.or(all.json),
            stage: self.stage,
            from: self.from,
            line: self.line,
        }
    }

    /// Makes relative paths relative to `dir`, the directory of the job file: so a job file means the same in every
    /// current directory. Command lines do not change. Neither `-`, for standard input or output, nor a URL or a name of a stored file is a path.
    pub fn resolve_paths(&mut self, dir: &Path) {
        let is_path = |path: &Path| path.as_os_str() != "-" && !is_object_url(path);
        let is_stored = |path: &str| path.starts_with(STORED_PREFIX);
        for path in [&mut self.output, &mut self.state, &mut self.env_file].into_iter().flatten() {
            if is_path(path) && !path.to_str().is_some_and(is_stored) {
                *path = dir.join(&*path);
            }
        }
        for list in [&mut self.input, &mut self.disk, &mut self.file].into_iter().flatten() {
            for path in list.iter_mut().filter(|path| is_path(Path::new(path.as_str())) && !is_stored(path)) {
                // Only a directory that is not UTF-8 could be changed here; the check of inputs reports it.
                *path = dir.join(&*path).to_string_lossy().into_owned();
            }
        }
        self.stage.iter_mut().flatten().for_each(|stage| stage.resolve_paths(dir));
    }
}

/// Returns a line with its bare word in quotes; None if the value is no bare word.
fn unquoted(line: &str) -> Option<String> {
    let (key, value) = line.split_once('=')?;
    let (key, value) = (key.trim(), value.trim());
    let is_key = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let begins_word = |byte: u8| byte.is_ascii_alphabetic() || b"/.~*".contains(&byte);
    let is_word = value.bytes().next().is_some_and(begins_word) && !value.contains(['"', '\'', '#']);
    (is_key && is_word && !matches!(value, "true" | "false")).then(|| format!("{key} = \"{value}\""))
}

fn line_at(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

/// Reads the stages. Each gets the offset at which it begins instead of its line, because the text is not at hand.
fn stages<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<JobFile>>, D::Error> {
    let stages = Vec::<toml::Spanned<JobFile>>::deserialize(deserializer)?;
    let placed = |stage: toml::Spanned<JobFile>| {
        let line = stage.span().start;
        JobFile { line, ..stage.into_inner() }
    };
    Ok(Some(stages.into_iter().map(placed).collect()))
}

fn one_or_more<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<String>>, D::Error> {
    struct OneOrMore;

    impl<'de> Visitor<'de> for OneOrMore {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string or a list of strings")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
            Ok(vec![text.to_string()])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut values = Vec::new();
            while let Some(value) = list.next_element()? {
                values.push(value);
            }
            Ok(values)
        }
    }

    deserializer.deserialize_any(OneOrMore).map(Some)
}

fn size_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    struct SizeText;

    impl Visitor<'_> for SizeText {
        type Value = String;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a size such as \"1.5G\" or a number of bytes")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
            Ok(text.to_string())
        }

        fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Self::Value, E> {
            u64::try_from(bytes).map(|bytes| bytes.to_string()).map_err(|_| {
                let wrong = de::Unexpected::Signed(bytes);
                E::invalid_value(wrong, &self)
            })
        }
    }

    deserializer.deserialize_any(SizeText).map(Some)
}

fn name_values<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<(String, String)>>, D::Error> {
    struct NameValues;

    impl<'de> Visitor<'de> for NameValues {
        type Value = Vec<(String, String)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a table of strings or a list of NAME=VALUE")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut table: A) -> Result<Self::Value, A::Error> {
            let mut pairs = Vec::new();
            while let Some(pair) = table.next_entry()? {
                pairs.push(pair);
            }
            Ok(pairs)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut pairs = Vec::new();
            while let Some(text) = list.next_element::<String>()? {
                let Some((name, value)) = text.split_once('=') else {
                    return Err(de::Error::invalid_value(de::Unexpected::Str(&text), &"NAME=VALUE"));
                };
                pairs.push((name.to_string(), value.to_string()));
            }
            Ok(pairs)
        }
    }

    deserializer.deserialize_any(NameValues).map(Some)
}

#[cfg(test)]
mod tests {
    use super::{JobFile, KeyOrder};
    use crate::Codec;
    use std::path::Path;

    fn check(text: &str, expected: JobFile) {
        assert_eq!(JobFile::parse(text), Ok(expected), "{text}");
    }

    fn check_error(text: &str, expected_line: usize, expected_words: &str) {
        let error = JobFile::parse(text).unwrap_err();
        assert_eq!(error.line, expected_line, "{text}: {error}");
        assert!(error.message.contains(expected_words), "{text}: {error}");
    }

    /// A mistake from a field report.
    #[test]
    fn string_without_quotes_is_reported() {
        check_error("input = in", 1, "write strings in quotes, as in input = \"in\"");
        check_error("\noutput = /a/b", 2, "as in output = \"/a/b\"");
        check_error("reverse = yes", 1, "as in reverse = \"yes\"");
    }

    #[test]
    fn keys_are_the_names_of_options() {
        let strings = |list: &[&str]| Some(list.iter().map(|each| each.to_string()).collect());
        let pairs = Some(vec![("A".to_string(), "1".to_string()), ("B".to_string(), "x=y".to_string())]);
        let empty = JobFile::default;
        check("", empty());
        check("input = \"a\"", JobFile { input: strings(&["a"]), ..empty() });
        check("input = [\"a\", \"b*\"]", JobFile { input: strings(&["a", "b*"]), ..empty() });
        check("memory = \"1.5G\"", JobFile { memory: Some("1.5G".into()), ..empty() });
        check("memory = 67108864", JobFile { memory: Some("67108864".into()), ..empty() });
        check("env = { A = \"1\", B = \"x=y\" }", JobFile { env: pairs.clone(), ..empty() });
        check("[env]\nA = \"1\"\nB = \"x=y\"", JobFile { env: pairs.clone(), ..empty() });
        check("env = [\"A=1\", \"B=x=y\"]", JobFile { env: pairs, ..empty() });
        check("codec = \"zstd\"", JobFile { codec: Some(Codec::Zstd), ..empty() });
        let formats = JobFile {
            input_format: Some("fixed:100:10".into()),
            separator: Some("::".into()),
            key_fields: Some(2),
            ..empty()
        };
        check("input_format = \"fixed:100:10\"\nseparator = \"::\"\nkey_fields = 2", formats);
        let flags = JobFile { total_order: Some(true), no_sync: Some(false), ..empty() };
        check("total_order = true\nno_sync = false", flags);
        let output = JobFile { output: Some("out".into()), slots: Some(3), ..empty() };
        check("output = \"out\"\nslots = 3 # three", output);
        let keys = JobFile { order: Some(KeyOrder::Numeric), partitions: Some(3), ..empty() };
        check("order = \"numeric\"\npartitions = 3", keys);
    }

    #[test]
    fn errors_name_the_line() {
        check_error("input = \"a\"\ninptu = \"b\"", 2, "unknown field");
        check_error("\n\nslots = \"many\"", 3, "invalid type");
        check_error("slots = -1", 1, "invalid value");
        check_error("memory = -1", 1, "a number of bytes");
        check_error("codec = \"gzip\"", 1, "unknown variant");
        check_error("env = [\"A\"]", 1, "NAME=VALUE");
        check_error("input = [1]", 1, "invalid type");
        check_error("output = \"a\noverwrite = true", 1, "");
        check_error("name = \"a\"\nname = \"b\"", 2, "duplicate");
        check_error("[[stage]]\nname = \"a\"\n[[stage]]\nname = \"b\"\nform = \"a\"", 5, "`form`");
    }

    #[test]
    fn stages_know_where_they_begin() {
        let file =
            JobFile::parse("# Two.\nslots = 1\n\n[[stage]]\nname = \"a\"\n\n[[stage]]\nname = \"b\"\n")
                .unwrap();
        let lines: Vec<usize> = file.stage.into_iter().flatten().map(|stage| stage.line).collect();
        assert_eq!(lines, [4, 7]);
    }

    #[test]
    fn paths_are_relative_to_the_file() {
        let text = "input = [\"a\", \"/b\", \"files:c\"]\noutput = \"out\"\nstate = \"../s\"\ndisk = \"d\"\nfile = [\"f\"]";
        for other in ["-", "s3://bucket/key"] {
            let mut job = JobFile::parse(&format!("input = \"{other}\"\noutput = \"{other}\"")).unwrap();
            job.resolve_paths(Path::new("/jobs"));
            assert_eq!((job.input.unwrap(), job.output.unwrap()), (vec![other.to_string()], other.into()));
        }
        let mut file = JobFile::parse(text).unwrap();
        file.resolve_paths(Path::new("/jobs"));
        assert_eq!(file.input.unwrap(), ["/jobs/a", "/b", "files:c"]);
        assert_eq!(file.output.unwrap(), Path::new("/jobs/out"));
        assert_eq!(file.state.unwrap(), Path::new("/jobs/../s"));
        assert_eq!(
            (file.disk.unwrap(), file.file.unwrap()),
            (vec!["/jobs/d".into()], vec!["/jobs/f".into()])
        );
    }
}
