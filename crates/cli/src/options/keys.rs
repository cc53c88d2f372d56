//! The command-line options for the order of keys and their assignment to parts.

use api::KeyOrder;
use clap::{Args, ValueEnum};

/// Comparison of whole keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OrderArg {
    /// By their bytes
    Bytes,
    /// By value: integers of any size and decimals; anything else is an error
    Numeric,
}

impl From<OrderArg> for KeyOrder {
    fn from(order: OrderArg) -> Self {
        match order {
            OrderArg::Bytes => Self::Bytes,
            OrderArg::Numeric => Self::Numeric,
        }
    }
}

/// Order and partitions on the command line.
#[derive(Clone, Debug, Default, Args)]
pub struct KeyArgs {
    /// How keys are compared [default: bytes]
    #[arg(long, value_enum, value_name = "ORDER")]
    pub order: Option<OrderArg>,
    /// Largest keys first
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        hide_possible_values = true)]
    pub reverse: Option<bool>,
    /// Compare by fields of the key, as in "-k1,1 -k2,2nr": n by number, r reversed; equal keys keep the order of the
    /// input
    #[arg(long, value_name = "KEYS", allow_hyphen_values = true)]
    pub sort_keys: Option<String>,
    /// Exactly N parts, each written by one reducer [default: the number follows from the data]
    #[arg(long, value_name = "N")]
    pub partitions: Option<u32>,
    /// Keys with these fields equal go to one part: N, FROM,TO, or a range of fields as in --sort-keys [default: the
    /// whole key]
    #[arg(long, value_name = "FIELDS", allow_hyphen_values = true)]
    pub partition_fields: Option<String>,
    /// Keys with tails: mappers give the number of leading bytes that choose a key's reducer; the rest only orders
    /// (docs/formats/program-frames.md). Needs --exchange frames
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        hide_possible_values = true)]
    pub key_tails: Option<bool>,
}
