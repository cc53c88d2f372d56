//! Reasons for refusing a command line.

/// An invalid command line, always for the user to correct: each message names the option or property.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamingError {
    #[error(
        "there is no option {word}{hint}; `sailfish streaming --help` lists what is supported",
        hint = hint.as_ref().map_or(String::new(), |hint| format!(" (did you mean {hint}?)"))
    )]
    UnknownOption { word: String, hint: Option<String> },
    #[error("the word {word:?} belongs to no option: put quotes around a command of several words")]
    StrayWord { word: String },
    #[error("{option} needs a value")]
    MissingValue { option: String },
    #[error("{option} is missing: {advice}")]
    MissingOption { option: &'static str, advice: &'static str },
    #[error("{option} is given twice, as {first:?} and {second:?}: leave one out")]
    Twice { option: String, first: String, second: String },
    #[error("{what} is not supported: {possible}")]
    NotSupported { what: String, possible: String },
    #[error("{what} cannot be {value:?}: {expected}")]
    BadValue { what: String, value: String, expected: String },
    #[error("{first} and {second} contradict each other: {advice}")]
    Conflict { first: String, second: String, advice: String },
}

impl StreamingError {
    pub(crate) fn not_supported(what: impl Into<String>, possible: impl Into<String>) -> Self {
        Self::NotSupported { what: what.into(), possible: possible.into() }
    }

    pub(crate) fn bad_value(what: impl Into<String>, value: &str, expected: impl Into<String>) -> Self {
        Self::BadValue { what: what.into(), value: value.to_string(), expected: expected.into() }
    }

    pub(crate) fn conflict(
        first: impl Into<String>,
        second: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self::Conflict { first: first.into(), second: second.into(), advice: advice.into() }
    }
}
