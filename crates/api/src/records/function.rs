//! The text of `--mapper`, `--combiner` or `--reducer` as a user writes it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A user function: a built-in (`builtin:NAME` or `builtin:NAME:ARGUMENT`) or a command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Function {
    Builtin {
        name: String,
        argument: Option<String>,
    },
    /// Shell words, run without a shell. Never empty.
    Command {
        words: Vec<String>,
    },
}

/// The reason why a function text is not valid. The user must fix it; a retry does not help.
#[derive(Debug, thiserror::Error)]
pub enum FunctionError {
    #[error("the command line is empty")]
    Empty,
    #[error("the command line {text:?} cannot be split into words: {source}")]
    Quotes { text: String, source: shell_words::ParseError },
    #[error("builtin: needs a name, as in builtin:words")]
    NoName,
}

impl Function {
    /// Parses the user's text. The mapper or reducer checks whether a built-in of that name exists.
    pub fn parse(text: &str) -> Result<Self, FunctionError> {
        if let Some(rest) = text.trim().strip_prefix("builtin:") {
            let (name, argument) = match rest.split_once(':') {
                Some((name, argument)) => (name, Some(argument.to_string())),
                None => (rest, None),
            };
            if name.is_empty() {
                return Err(FunctionError::NoName);
            }
            return Ok(Self::Builtin { name: name.to_string(), argument });
        }
        let words = shell_words::split(text)
            .map_err(|source| FunctionError::Quotes { text: text.to_string(), source })?;
        if words.is_empty() {
            return Err(FunctionError::Empty);
        }
        Ok(Self::Command { words })
    }

    /// Returns the text that a user would type for it.
    pub fn display(&self) -> String {
        match self {
            Self::Builtin { name, argument: None } => format!("builtin:{name}"),
            Self::Builtin { name, argument: Some(argument) } => format!("builtin:{name}:{argument}"),
            Self::Command { words } => shell_words::join(words),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Function;

    fn check(text: &str, expected: &str) {
        assert_eq!(Function::parse(text).unwrap().display(), expected);
    }

    #[test]
    fn functions_are_read_as_typed() {
        check("builtin:words", "builtin:words");
        check("builtin:grep:a:b c", "builtin:grep:a:b c");
        check("python3 'my map.py'  -x", "python3 'my map.py' -x");
        assert!(Function::parse("").is_err());
        assert!(Function::parse("builtin:").is_err());
        assert!(Function::parse("cat 'x").is_err());
    }
}
