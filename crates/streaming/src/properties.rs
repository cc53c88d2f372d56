//! Properties (`-D`): those with an effect, those that are accepted, and those that are refused by name.

use crate::error::StreamingError;
use crate::names::{self, new_name};
use std::collections::BTreeMap;

/// Rule for a property that is not read by `job`.
#[derive(Clone, Copy)]
enum Rule {
    /// Changes results in a way that is not supported.
    Refused(&'static str),
    /// Must have one of these values, which change nothing.
    Only(&'static [&'static str], &'static str),
}

const USE_OPTION: &str = "give a command or class with -mapper, -combiner, -reducer";
const TEXT_ONLY: &str = "keys and values are text";
const TEXT: &[&str] = &["org.apache.hadoop.io.Text"];
const NO_SKIPPING: &str = "failed records and tasks are never skipped";
const ZERO: &[&str] = &["0"];

/// The rules, by new name.
const RULES: &[(&str, Rule)] = &[
    ("aggregate.max.num.unique.values", Rule::Refused("UniqValueCount counts all values")),
    (
        "fs.defaultFS",
        Rule::Only(&["file:///", "file:/", "local"], "files of this machine are read and written"),
    ),
    ("mapreduce.fileoutputcommitter.marksuccessfuljobs", Rule::Only(&["true"], "_SUCCESS is always written")),
    ("mapreduce.input.fileinputformat.inputdir", Rule::Refused("give the input with -input")),
    ("mapreduce.input.linerecordreader.line.maxlength", Rule::Refused("no line is dropped for its length")),
    (
        "mapreduce.input.pathFilter.class",
        Rule::Refused("name the files with -input; * ? [] {} are understood"),
    ),
    ("mapreduce.job.cache.archives", Rule::Refused("unpack it and ship its files with -files PATH#NAME")),
    ("mapreduce.job.cache.files", Rule::Refused("ship files with -files PATH#NAME")),
    ("mapreduce.job.combine.class", Rule::Refused(USE_OPTION)),
    ("mapreduce.job.combiner.group.comparator.class", Rule::Refused("a combiner gets whole keys")),
    (
        "mapreduce.job.end-notification.url",
        Rule::Refused("the command waits for the job: call the URL after it"),
    ),
    ("mapreduce.job.inputformat.class", Rule::Refused("give the class with -inputformat")),
    ("mapreduce.job.map.class", Rule::Refused(USE_OPTION)),
    (
        "mapreduce.job.output.group.comparator.class",
        Rule::Refused("a program reads lines and groups them itself"),
    ),
    ("mapreduce.job.output.key.class", Rule::Only(TEXT, TEXT_ONLY)),
    ("mapreduce.job.output.value.class", Rule::Only(TEXT, TEXT_ONLY)),
    ("mapreduce.job.outputformat.class", Rule::Refused("give the class with -outputformat")),
    ("mapreduce.job.reduce.class", Rule::Refused(USE_OPTION)),
    ("mapreduce.job.skiprecords", Rule::Only(&["false"], NO_SKIPPING)),
    ("mapreduce.map.debug.script", Rule::Refused("`sailfish show` has the last lines of a failed attempt")),
    ("mapreduce.map.failures.maxpercent", Rule::Only(ZERO, NO_SKIPPING)),
    ("mapreduce.map.output.key.class", Rule::Only(TEXT, TEXT_ONLY)),
    ("mapreduce.map.output.value.class", Rule::Only(TEXT, TEXT_ONLY)),
    ("mapreduce.map.skip.maxrecords", Rule::Only(ZERO, NO_SKIPPING)),
    ("mapreduce.output.basename", Rule::Only(&["part"], "parts are called part-00000 and so on")),
    ("mapreduce.output.fileoutputformat.outputdir", Rule::Refused("give the output with -output")),
    (
        "mapreduce.reduce.debug.script",
        Rule::Refused("`sailfish show` has the last lines of a failed attempt"),
    ),
    ("mapreduce.reduce.failures.maxpercent", Rule::Only(ZERO, NO_SKIPPING)),
    ("mapreduce.reduce.skip.maxgroups", Rule::Only(ZERO, NO_SKIPPING)),
    ("stream.io.identifier.resolver.class", Rule::Refused("programs read and write lines of text")),
    ("stream.map.input", Rule::Only(&["text"], "programs read and write lines of text")),
    ("stream.map.output", Rule::Only(&["text"], "programs read and write lines of text")),
    ("stream.reduce.input", Rule::Only(&["text"], "programs read and write lines of text")),
    ("stream.reduce.output", Rule::Only(&["text"], "programs read and write lines of text")),
    ("stream.stderr.reporter.enabled", Rule::Only(&["true"], "reporter: lines always count")),
    ("stream.stderr.reporter.prefix", Rule::Only(&["reporter:"], "the prefix is reporter:")),
    ("textinputformat.record.delimiter", Rule::Only(&["\n"], "records are lines")),
    ("tmparchives", Rule::Refused("unpack the archive and ship its files with -files PATH#NAME")),
    ("tmpfiles", Rule::Refused("ship files with -files PATH#NAME")),
    ("tmpjars", Rule::Refused("Java classes are not run")),
];

/// Supported properties of streaming, or properties without effect here.
const STREAM_NAMES: &[&str] = &[
    names::ADD_ENVIRONMENT,
    names::EXIT_IS_FAILURE,
    names::IGNORE_KEY,
    names::MAP_INPUT_SEPARATOR,
    names::MAP_OUTPUT_SEPARATOR,
    names::MAP_OUTPUT_KEY_FIELDS,
    names::REDUCE_INPUT_SEPARATOR,
    names::REDUCE_OUTPUT_SEPARATOR,
    names::REDUCE_OUTPUT_KEY_FIELDS,
    names::TRUNCATE_LIMIT,
    "stream.joindelay.milli",
    "stream.shipped.hadoopstreaming",
    "stream.tmpdir",
];

/// A value and the name under which it was given.
#[derive(Clone, Debug)]
pub(crate) struct Property {
    pub written: String,
    pub value: String,
}

/// The properties of a command line, by new name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Properties(BTreeMap<String, Property>);

impl Properties {
    /// Adds `NAME=VALUE`. Refuses an unsupported property, and a second value that differs from the first.
    pub fn take(&mut self, option: &str, text: &str) -> Result<(), StreamingError> {
        let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
        let (written, value) = pair.ok_or_else(|| {
            StreamingError::bad_value(option, text, "write NAME=VALUE, without blanks around the =")
        })?;
        if text.contains('\0') {
            return Err(StreamingError::bad_value(option, text, "it holds a zero byte"));
        }
        let name = new_name(written);
        check(name, written, value)?;
        let property = Property { written: written.to_string(), value: value.to_string() };
        match self.0.get(name) {
            Some(before) if before.value != value => Err(StreamingError::conflict(
                format!("-D {}={}", before.written, before.value),
                format!("-D {written}={value}"),
                "both set the same property: leave one out",
            )),
            Some(_) => Ok(()),
            None => {
                self.0.insert(name.to_string(), property);
                Ok(())
            }
        }
    }

    /// Returns the property of that new name.
    pub fn get(&self, name: &str) -> Option<&Property> {
        self.0.get(name)
    }

    /// Returns its value.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).map(|property| property.value.as_str())
    }

    /// Parses `true` or `false`.
    pub fn flag(&self, name: &str) -> Result<Option<bool>, StreamingError> {
        let Some(property) = self.get(name) else { return Ok(None) };
        match property.value.trim().to_ascii_lowercase().as_str() {
            "true" => Ok(Some(true)),
            "false" => Ok(Some(false)),
            _ => Err(property.wrong("write true or false")),
        }
    }

    /// Parses a whole number of at least `least`.
    pub fn number(&self, name: &str, least: u32) -> Result<Option<u32>, StreamingError> {
        let Some(property) = self.get(name) else { return Ok(None) };
        let number = property.value.trim().parse().ok().filter(|number| *number >= least);
        number.map(Some).ok_or_else(|| property.wrong(&format!("write a whole number, at least {least}")))
    }

    /// Parses a separator of one or more bytes; the default is TAB.
    pub fn separator(&self, name: &str) -> Result<Vec<u8>, StreamingError> {
        match self.get(name) {
            None => Ok(b"\t".to_vec()),
            Some(property) if property.value.is_empty() => Err(property.wrong("give at least one character")),
            Some(property) if property.value.contains('\n') => {
                Err(property.wrong("a line end cannot separate the fields of a line"))
            }
            Some(property) => Ok(property.value.as_bytes().to_vec()),
        }
    }

    /// Sets the value of an option.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.0.insert(name.to_string(), Property { written: name.to_string(), value: value.into() });
    }

    /// Returns the environment for programs: each property under its new name, as Hadoop 3 gives it. Values are
    /// cut to `stream.jobconf.truncate.limit` characters.
    pub fn for_programs(&self) -> Result<Vec<(String, String)>, StreamingError> {
        let limit = self.number(names::TRUNCATE_LIMIT, 0).or_else(|error| {
            match self.text(names::TRUNCATE_LIMIT) {
                Some("-1") => Ok(None),
                _ => Err(error),
            }
        })?;
        let cut = |value: &str| match limit {
            Some(limit) => value.chars().take(limit as usize).collect(),
            None => value.to_string(),
        };
        Ok(self.0.iter().map(|(name, property)| (name.clone(), cut(&property.value))).collect())
    }
}

impl Property {
    pub fn wrong(&self, expected: &str) -> StreamingError {
        StreamingError::bad_value(format!("-D {}", self.written), &self.value, expected)
    }
}

fn check(name: &str, written: &str, value: &str) -> Result<(), StreamingError> {
    let refused = |why: &str| Err(StreamingError::not_supported(format!("-D {written}={value}"), why));
    match RULES.iter().find(|(each, _)| *each == name) {
        Some((_, Rule::Refused(why))) => return refused(why),
        Some((_, Rule::Only(values, why))) => {
            return if values.contains(&value) { Ok(()) } else { refused(why) };
        }
        None => {}
    }
    if name.starts_with("stream.recordreader.") {
        return refused("records are lines; turn other input into lines beforehand");
    }
    if name.starts_with("stream.") && !STREAM_NAMES.contains(&name) {
        return refused("this property is not known; docs/streaming.md lists the known ones");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Properties;

    fn take(texts: &[&str]) -> Result<Properties, String> {
        let mut properties = Properties::default();
        for text in texts {
            properties.take("-D", text).map_err(|error| error.to_string())?;
        }
        Ok(properties)
    }

    #[test]
    fn properties_have_one_name_and_one_value() {
        let properties = take(&["mapred.reduce.tasks=3", "mapreduce.job.reduces=3", "my.own=x=y"]).unwrap();
        assert_eq!(properties.text("mapreduce.job.reduces"), Some("3"));
        assert_eq!(properties.text("my.own"), Some("x=y"));
        let all = properties.for_programs().unwrap();
        let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["mapreduce.job.reduces", "my.own"]);
        let error = take(&["mapred.reduce.tasks=3", "mapreduce.job.reduces=2"]).unwrap_err();
        assert!(
            error.contains("mapred.reduce.tasks=3") && error.contains("mapreduce.job.reduces=2"),
            "{error}"
        );
    }

    #[test]
    fn tuning_properties_are_accepted() {
        let tuning = [
            "mapreduce.map.memory.mb=2048",
            "mapred.map.tasks=4",
            "mapreduce.map.speculative=true",
            "mapreduce.map.output.compress=true",
            "mapred.job.priority=HIGH",
            "stream.map.input=text",
            "mapreduce.job.output.key.class=org.apache.hadoop.io.Text",
            "fs.default.name=local",
        ];
        take(&tuning).unwrap();
    }

    #[test]
    fn properties_that_change_results_are_refused() {
        let refused = [
            "stream.map.input=typedbytes",
            "stream.recordreader.class=StreamXmlRecordReader",
            "stream.unheard.of=1",
            "mapred.mapper.class=com.example.Map",
            "mapred.output.value.groupfn.class=X",
            "mapred.max.map.failures.percent=5",
            "mapreduce.job.output.key.class=org.apache.hadoop.io.LongWritable",
            "textinputformat.record.delimiter=||",
            "mapreduce.output.basename=x",
            "fs.defaultFS=hdfs://host",
        ];
        for text in refused {
            let error = take(&[text]).unwrap_err();
            assert!(error.contains(text) && error.contains("not supported"), "{text}: {error}");
        }
        assert!(take(&["novalue"]).unwrap_err().contains("NAME=VALUE"));
        assert!(take(&["=x"]).is_err());
    }

    #[test]
    fn values_are_read_and_cut() {
        let properties =
            take(&["a=maybe", "b=0", "c=", "stream.jobconf.truncate.limit=3", "d=abcdef"]).unwrap();
        assert!(properties.flag("a").is_err() && properties.number("b", 1).is_err());
        assert!(properties.separator("c").is_err());
        assert_eq!(properties.separator("none").unwrap(), b"\t");
        let all = properties.for_programs().unwrap();
        assert!(all.contains(&("d".to_string(), "abc".to_string())), "{all:?}");
        assert!(take(&["stream.jobconf.truncate.limit=-1"]).unwrap().for_programs().is_ok());
        assert!(take(&["stream.jobconf.truncate.limit=x"]).unwrap().for_programs().is_err());
    }
}
