//! Parameters of workflow files.

use serde::Deserialize;

/// A value of a parameter: its text, as it stands in commands and paths.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "Scalar")]
pub struct ParamText(pub String);

/// A parameter of a file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum WorkflowParam {
    List(Vec<ParamText>),
    One(ParamText),
}

/// The values of a sweep of a step.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum WorkflowSweep {
    List(Vec<ParamText>),
    /// Those of a parameter of the file.
    Param(String),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Scalar {
    Text(String),
    Truth(bool),
    Integer(i64),
    Real(f64),
}

impl From<Scalar> for ParamText {
    fn from(scalar: Scalar) -> Self {
        Self(match scalar {
            Scalar::Text(text) => text,
            Scalar::Truth(truth) => truth.to_string(),
            Scalar::Integer(integer) => integer.to_string(),
            // As TOML has it: 1.0 keeps its point, and small numbers their exponent.
            Scalar::Real(real) => format!("{real:?}"),
        })
    }
}
