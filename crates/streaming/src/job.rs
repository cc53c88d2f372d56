//! Conversion of options and properties to a job.

use crate::classes::{self, OutputFormatClass, PartitionerClass};
use crate::error::StreamingError;
use crate::options::{self, Given};
use crate::properties::Properties;
use crate::{command, names, order, paths};
use api::{
    FieldSplit, FileLink, Formats, Function, KeyRules, KeyStretch, MapperInput, OutputFormat, PartitionRule,
    Streaming,
};

pub use crate::classes::InputFormatClass;

/// Our name for the reducer of the aggregate package.
const AGGREGATE: &str = "aggregate";
/// Maximum number of parts: part numbers have five digits.
const REDUCES_MAX: u32 = 50_000;

/// Request of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// `-help` or `-info`: print [`crate::HELP`].
    Help,
    Job(Box<StreamingJob>),
}

/// Origin of the number of partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartitionChoice {
    /// The engine: the number of reduce tasks follows from the data.
    Engine,
    /// The user: exactly this many.
    Exactly(PartitionRule),
    /// The engine chooses the number, but the partition is the unit of a part.
    ByBytes { stretches: Vec<KeyStretch> },
}

/// Options that Hadoop does not have; they work as for `sailfish run`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnOptions {
    pub memory: Option<String>,
    pub slots: Option<u32>,
    pub state: Option<String>,
    /// Use of a cluster instead of this machine.
    pub server: Option<String>,
    pub token_file: Option<String>,
    pub proxy: Option<String>,
    pub ca: Option<String>,
    pub disk: Vec<String>,
    pub codec: Option<String>,
    pub replication: Option<String>,
    pub overwrite: bool,
    pub no_sync: bool,
    pub json: bool,
    pub keep_ifiles: bool,
}

/// A job of Hadoop Streaming. Paths are as written; relative ones start at the directory of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamingJob {
    pub name: Option<String>,
    /// Files, directories and globs, in order.
    pub inputs: Vec<String>,
    pub output: String,
    /// None: identity.
    pub mapper: Option<Function>,
    pub combiner: Option<Function>,
    /// None: the sorted pairs.
    pub reducer: Option<Function>,
    pub map_only: bool,
    /// Lines of a file that each map task reads; None for splits by size.
    pub lines_per_map: Option<u32>,
    pub env: Vec<(String, String)>,
    pub formats: Formats,
    pub keys: KeyRules,
    pub partitions: PartitionChoice,
    /// The paths of its links are as written too.
    pub streaming: Streaming,
    /// Notes for the user that are not errors.
    pub notes: Vec<String>,
    pub own: OwnOptions,
}

/// Parses the words after `sailfish streaming`.
pub fn parse(words: &[String]) -> Result<Request, StreamingError> {
    let given = options::read(words)?;
    if given.iter().any(|each| matches!(each.name, "help" | "info" | "h")) {
        return Ok(Request::Help);
    }
    let mut reading = Reading::default();
    for each in &given {
        reading.take(each)?;
    }
    reading.job().map(|job| Request::Job(Box::new(job)))
}

/// Values of the options, before they are combined.
#[derive(Default)]
struct Reading {
    inputs: Vec<String>,
    single: Vec<(&'static str, String)>,
    /// (path as written, name in the work directory).
    shipped: Vec<(String, String)>,
    env: Vec<(String, String)>,
    properties: Properties,
    lazy_output: bool,
    own: OwnOptions,
    own_name: Option<String>,
}

impl Reading {
    fn take(&mut self, given: &Given) -> Result<(), StreamingError> {
        let option = given.shown();
        if given.own {
            return self.take_own(given);
        }
        match given.name {
            "input" => {
                for text in &given.values {
                    for path in paths::list(&option, text)? {
                        self.inputs.extend(paths::alternatives(&option, &paths::data(&option, &path)?)?);
                    }
                }
            }
            "file" | "cacheFile" => {
                for text in &given.values {
                    self.ship(&option, text)?;
                }
            }
            "files" => {
                for text in paths::list(&option, &given.values[0])? {
                    self.ship(&option, &text)?;
                }
            }
            "cmdenv" => {
                let pair = given.values[0].split_once('=').filter(|(name, _)| !name.is_empty());
                let (name, value) = pair.ok_or_else(|| {
                    StreamingError::bad_value(&option, &given.values[0], "write -cmdenv NAME=VALUE")
                })?;
                self.set_env(name, value);
            }
            "D" | "jobconf" => self.properties.take(&option, &given.values[0])?,
            "io" if given.values[0] == "text" => {}
            "io" => {
                let what = format!("-io {}", given.values[0]);
                return Err(StreamingError::not_supported(
                    what,
                    "programs read and write lines: give -io text",
                ));
            }
            "fs" | "dfs" => {
                self.properties.take(&option, &format!("{}={}", "fs.defaultFS", given.values[0]))?
            }
            "jt" if given.values[0] == "local" => {}
            "jt" => {
                let what = format!("-jt {}", given.values[0]);
                return Err(StreamingError::not_supported(what, "jobs run on this machine: give -jt local"));
            }
            "lazyOutput" => self.lazy_output = true,
            "verbose" | "debug" => {}
            name => self.take_single(name, &option, &given.values[0])?,
        }
        Ok(())
    }

    fn take_single(&mut self, name: &'static str, option: &str, value: &str) -> Result<(), StreamingError> {
        if let Some((_, first)) = self.single.iter().find(|(each, _)| *each == name) {
            let (first, second) = (first.clone(), value.to_string());
            return Err(StreamingError::Twice { option: option.to_string(), first, second });
        }
        self.single.push((name, value.to_string()));
        Ok(())
    }

    fn take_own(&mut self, given: &Given) -> Result<(), StreamingError> {
        let value = given.values.first();
        let flag = || match value.map(String::as_str) {
            None | Some("true") => Ok(true),
            Some("false") => Ok(false),
            Some(other) => Err(StreamingError::bad_value(given.shown(), other, "write true or false")),
        };
        let text = || value.cloned();
        match given.name {
            "memory" => self.own.memory = text(),
            "slots" => {
                let slots = value.and_then(|value| value.parse().ok());
                let shown = value.map_or("", String::as_str);
                self.own.slots = Some(slots.ok_or_else(|| {
                    StreamingError::bad_value(given.shown(), shown, "write a whole number, at least 1")
                })?);
            }
            "state" => self.own.state = text(),
            "server" => self.own.server = text(),
            "token-file" => self.own.token_file = text(),
            "proxy" => self.own.proxy = text(),
            "ca" => self.own.ca = text(),
            "disk" => self.own.disk.extend(text()),
            "codec" => self.own.codec = text(),
            "replication" => self.own.replication = text(),
            "name" => self.own_name = text(),
            "overwrite" => self.own.overwrite = flag()?,
            "no-sync" => self.own.no_sync = flag()?,
            "json" => self.own.json = flag()?,
            "keep-ifiles" => self.own.keep_ifiles = flag()?,
            _ => return Err(StreamingError::UnknownOption { word: given.shown(), hint: None }),
        }
        Ok(())
    }

    fn ship(&mut self, option: &str, text: &str) -> Result<(), StreamingError> {
        let (path, name) = paths::shipped(option, text)?;
        match self.shipped.iter().find(|(_, each)| *each == name) {
            Some((before, _)) if paths::plain(before) != paths::plain(&path) => {
                let advice = format!("both would be called {name:?} in the work directory: add #NAME to one");
                Err(StreamingError::conflict(before, format!("{option} {text}"), advice))
            }
            Some(_) => Ok(()),
            None => {
                self.shipped.push((path, name));
                Ok(())
            }
        }
    }

    fn set_env(&mut self, name: &str, value: &str) {
        self.env.retain(|(known, _)| known != name);
        self.env.push((name.to_string(), value.to_string()));
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.single.iter().find(|(each, _)| *each == name).map(|(_, value)| value.as_str())
    }

    fn job(mut self) -> Result<StreamingJob, StreamingError> {
        if self.inputs.is_empty() {
            let advice = "name files, directories or globs with -input PATH";
            return Err(StreamingError::MissingOption { option: "-input", advice });
        }
        let output = self.text("output").ok_or(StreamingError::MissingOption {
            option: "-output",
            advice: "name a new directory with -output DIR",
        })?;
        let output = paths::data("-output", output)?;
        let class = self.text("inputformat").map(InputFormatClass::parse).transpose()?.unwrap_or_default();
        let mut notes = Vec::new();
        let reduces = self.reduces()?;
        let map_only = reduces == Some(0);
        let functions = self.functions(class, map_only)?;
        let formats = self.formats(class, &functions, map_only, &mut notes)?;
        let partitioner = self.partitioner()?;
        let (keys, partitions) = match map_only {
            true => (KeyRules::default(), PartitionChoice::Engine),
            false => order::rules(&self.properties, partitioner, reduces, &mut notes)?,
        };
        let lines_per_map = self.properties.number(names::LINES_PER_MAP, 1)?.unwrap_or(1);
        let mapper_input = self.mapper_input(class)?;
        let any_exit_code = !self.properties.flag(names::EXIT_IS_FAILURE)?.unwrap_or(true);
        self.take_added_environment();
        let name = self.own_name.clone().or(self.properties.text(names::JOB_NAME).map(str::to_string));
        self.tell_programs(reduces, name.as_deref());
        let link = |(path, name): (String, String)| FileLink { name, path: path.into() };
        Ok(StreamingJob {
            name,
            output,
            mapper: functions.mapper,
            combiner: functions.combiner,
            reducer: functions.reducer,
            map_only,
            lines_per_map: (class == InputFormatClass::NLine).then_some(lines_per_map),
            formats,
            keys,
            partitions,
            streaming: Streaming {
                properties: self.properties.for_programs()?,
                any_exit_code,
                links: self.shipped.into_iter().map(link).collect(),
                mapper_input,
                lazy_output: self.lazy_output,
            },
            inputs: self.inputs,
            env: self.env,
            notes,
            own: self.own,
        })
    }

    /// Returns the requested number of reduce tasks.
    fn reduces(&self) -> Result<Option<u32>, StreamingError> {
        let by_property = self.properties.number(names::REDUCES, 0)?;
        let by_option = match self.text("numReduceTasks") {
            Some(text) => Some(text.trim().parse::<u32>().map_err(|_| {
                StreamingError::bad_value("-numReduceTasks", text, "write a whole number, 0 for map only")
            })?),
            None => None,
        };
        if let (Some(option), Some(property)) = (by_option, by_property)
            && option != property
        {
            let written = self.properties.get(names::REDUCES).map_or(names::REDUCES, |each| &each.written);
            return Err(StreamingError::conflict(
                format!("-numReduceTasks {option}"),
                format!("-D {written}={property}"),
                "leave one out",
            ));
        }
        let reduces = by_option.or(by_property);
        if self.text("reducer") == Some("NONE") {
            return match reduces {
                Some(count) if count > 0 => Err(StreamingError::conflict(
                    "-reducer NONE",
                    format!("{count} reduce tasks"),
                    "NONE means no reduce tasks: leave one out",
                )),
                _ => Ok(Some(0)),
            };
        }
        match reduces {
            Some(count) if count > REDUCES_MAX => {
                let expected = format!("the limit is {REDUCES_MAX} parts");
                Err(StreamingError::bad_value("the number of reduce tasks", &count.to_string(), expected))
            }
            other => Ok(other),
        }
    }

    fn partitioner(&self) -> Result<Option<PartitionerClass>, StreamingError> {
        let option = self.text("partitioner");
        let by_option = option.map(|text| PartitionerClass::parse("-partitioner", text)).transpose()?;
        let Some(property) = self.properties.get(names::PARTITIONER_CLASS) else { return Ok(by_option) };
        let by_property = PartitionerClass::parse(&format!("-D {}", property.written), &property.value)?;
        match (by_option, option) {
            (Some(class), Some(option)) if class != by_property => Err(StreamingError::conflict(
                format!("-partitioner {option}"),
                format!("-D {}={}", property.written, property.value),
                "leave one out",
            )),
            _ => Ok(Some(by_property)),
        }
    }

    /// Parses `stream.addenvironment`, which Hadoop sets from `-cmdenv`: pairs separated by blanks.
    fn take_added_environment(&mut self) {
        let added = self.properties.text(names::ADD_ENVIRONMENT).unwrap_or_default().to_string();
        for (name, value) in added.split(' ').filter_map(|pair| pair.split_once('=')) {
            if !name.is_empty() && !self.env.iter().any(|(known, _)| known == name) {
                self.set_env(name, value);
            }
        }
    }

    /// Adds the values of options to the properties that programs see.
    fn tell_programs(&mut self, reduces: Option<u32>, name: Option<&str>) {
        if let Some(reduces) = reduces {
            self.properties.set(names::REDUCES, reduces.to_string());
        }
        if let Some(name) = name {
            self.properties.set(names::JOB_NAME, name);
        }
    }
}

/// Mapper, combiner and reducer.
struct Functions {
    mapper: Option<Function>,
    combiner: Option<Function>,
    reducer: Option<Function>,
}

impl Reading {
    fn functions(&self, class: InputFormatClass, map_only: bool) -> Result<Functions, StreamingError> {
        let mapper = self.function("-mapper", self.text("mapper"), "IdentityMapper")?;
        if mapper.is_none() && class != InputFormatClass::KeyValueText {
            let what = match self.text("mapper") {
                Some(text) => format!("-mapper {text}"),
                None => "a job without -mapper".to_string(),
            };
            let possible = "with this input format the keys would be byte offsets: give -mapper cat, or \
                            -inputformat KeyValueTextInputFormat";
            return Err(StreamingError::not_supported(what, possible));
        }
        let reducer_text = self.text("reducer").filter(|text| *text != "NONE");
        let aggregates = reducer_text.is_some_and(|text| text.eq_ignore_ascii_case(AGGREGATE));
        let reducer = match reducer_text {
            Some(_) if aggregates => Some(Function::Builtin { name: AGGREGATE.to_string(), argument: None }),
            // Hadoop also ignores a reducer if there are no reduce tasks.
            _ if map_only => None,
            text => self.function("-reducer", text, "IdentityReducer")?,
        };
        let combiner = self.function("-combiner", self.text("combiner"), "IdentityReducer")?;
        if combiner.is_some() {
            let against = if map_only {
                Some(("a job without reduce tasks", "a combiner needs a shuffle: leave one out"))
            } else if aggregates {
                Some(("-reducer aggregate", "it has its own combiner: leave -combiner out"))
            } else if reducer.is_none() {
                Some(("a job without a reducer", "its output would be partial results: add -reducer"))
            } else {
                None
            };
            if let Some((second, advice)) = against {
                return Err(StreamingError::conflict("-combiner", second, advice));
            }
        }
        Ok(Functions { mapper, combiner, reducer: reducer.filter(|_| !map_only) })
    }

    /// Parses a command, a built-in of ours, or None for the identity class.
    fn function(
        &self,
        option: &str,
        text: Option<&str>,
        identity: &str,
    ) -> Result<Option<Function>, StreamingError> {
        let Some(text) = text else { return Ok(None) };
        if classes::is_identity(option, text, identity)? {
            return Ok(None);
        }
        if text.trim().starts_with("builtin:") {
            let parsed = Function::parse(text);
            return parsed
                .map(Some)
                .map_err(|error| StreamingError::bad_value(option, text, error.to_string()));
        }
        let mut words = command::split(option, text)?;
        let program = paths::plain(&words[0]);
        let shipped =
            self.shipped.iter().find(|(path, name)| paths::plain(path) == program || *name == program);
        if let Some((_, name)) = shipped {
            words[0] = name.clone();
        }
        Ok(Some(Function::Command { words }))
    }

    fn formats(
        &self,
        class: InputFormatClass,
        functions: &Functions,
        map_only: bool,
        notes: &mut Vec<String>,
    ) -> Result<Formats, StreamingError> {
        let properties = &self.properties;
        let split = |separator, key_fields| -> Result<FieldSplit, StreamingError> {
            let separator = properties.separator(separator)?;
            Ok(FieldSplit { separator, key_fields: properties.number(key_fields, 1)?.unwrap_or(1) })
        };
        let map_output = split(names::MAP_OUTPUT_SEPARATOR, names::MAP_OUTPUT_KEY_FIELDS)?;
        let map_output = match functions.mapper {
            None if class == InputFormatClass::KeyValueText => {
                FieldSplit { separator: self.key_value_separator()?, key_fields: 1 }
            }
            _ => map_output,
        };
        let reduce_output = split(names::REDUCE_OUTPUT_SEPARATOR, names::REDUCE_OUTPUT_KEY_FIELDS)?;
        let output = self.text("outputformat").map(OutputFormatClass::parse).transpose()?.unwrap_or_default();
        let separator = match properties.text(names::OUTPUT_SEPARATOR) {
            Some("") => Vec::new(),
            _ => properties.separator(names::OUTPUT_SEPARATOR)?,
        };
        let compress = properties.flag(names::COMPRESS)?.unwrap_or(false);
        let codec = match (compress, properties.get(names::COMPRESS_CODEC)) {
            (true, Some(codec)) => {
                Some(classes::output_codec(&format!("-D {}", codec.written), &codec.value)?)
            }
            (true, None) => {
                let what = format!("-D {}=true without a codec", names::COMPRESS);
                let possible =
                    format!("add -D {}=org.apache.hadoop.io.compress.GzipCodec", names::COMPRESS_CODEC);
                return Err(StreamingError::not_supported(what, possible));
            }
            (false, Some(codec)) => {
                let compress = names::COMPRESS;
                notes.push(format!(
                    "-D {} has no effect, as in Hadoop, without -D {compress}=true",
                    codec.written
                ));
                None
            }
            (false, None) => None,
        };
        Ok(Formats {
            reduce_output: Some(if map_only { map_output.clone() } else { reduce_output }),
            map_output,
            reduce_input_separator: properties.separator(names::REDUCE_INPUT_SEPARATOR)?,
            output: match output {
                OutputFormatClass::Text => {
                    OutputFormat::Lines { separator, terminator: b'\n', always_separate: true }
                }
                OutputFormatClass::Null => OutputFormat::Discard,
            },
            output_codec: codec.filter(|_| output == OutputFormatClass::Text),
            part_extension: None,
            omit_empty_parts: false,
            ..Formats::default()
        })
    }

    /// Uses only its first character, like Hadoop.
    fn key_value_separator(&self) -> Result<Vec<u8>, StreamingError> {
        let Some(property) = self.properties.get(names::KEY_VALUE_SEPARATOR) else {
            return Ok(b"\t".to_vec());
        };
        match property.value.chars().next() {
            Some(first) if first.is_ascii() && property.value.len() == 1 => Ok(vec![first as u8]),
            _ => Err(property.wrong("give one character of ASCII")),
        }
    }

    fn mapper_input(&self, class: InputFormatClass) -> Result<MapperInput, StreamingError> {
        let separator = self.properties.separator(names::MAP_INPUT_SEPARATOR)?;
        let by_default = class == InputFormatClass::Text;
        let ignore_key = self.properties.flag(names::IGNORE_KEY)?.unwrap_or(by_default);
        Ok(match (class, ignore_key) {
            (InputFormatClass::KeyValueText, false) => {
                MapperInput::Pairs { split: self.key_value_separator()?, separator }
            }
            (InputFormatClass::KeyValueText, true) => {
                MapperInput::Values { split: self.key_value_separator()? }
            }
            (_, true) => MapperInput::Lines,
            (_, false) => MapperInput::Numbered { separator },
        })
    }
}

#[cfg(test)]
mod tests;
