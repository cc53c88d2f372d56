//! The options of `sailfish tera`.

use crate::options::connect::StateArgs;
use crate::options::run::CodecArg;
use api::Replication;
use clap::{Args, Subcommand};
use jobspec::replication_mode;
use std::path::PathBuf;
use tera::{RowLayout, Rows, StartRow};

const GEN_EXAMPLES: &str = "\
Rows are those of gensort 1.5 (modern, ascii) and of Hadoop's TeraGen (legacy), byte for byte.
Numbers may end with k, m, b or t: thousand, million, billion, trillion.

Examples:
  sailfish tera gen --layout modern --rows 10m --output rows
  sailfish tera gen --layout ascii --skewed --start 5b --rows 1m --output more";

const SORT_EXAMPLES: &str = "\
Examples:
  sailfish tera sort --input rows --output sorted --memory 1G
  sailfish tera sort --input rows --output sorted --rules";

#[derive(Debug, Subcommand)]
pub enum TeraCommand {
    /// Generate rows of the sort benchmark
    #[command(after_help = GEN_EXAMPLES)]
    Gen(GenArgs),
    /// Sort rows by their first 10 bytes; the concatenation of the parts is sorted
    #[command(after_help = SORT_EXAMPLES)]
    Sort(SortArgs),
    /// Count rows and sum their checksums, in any order
    Sum(SumArgs),
    /// Check that rows are in order, within files and across them; exit code 1 if not
    Validate(SumArgs),
}

/// Options that every job needs.
#[derive(Clone, Debug, Args)]
pub struct EngineArgs {
    /// Budget of the engine's own buffers, at least 64M [default: half of the machine or control group]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// Tasks that run at once, 1 to 1024 [default: one per core]
    #[arg(long, value_name = "N")]
    pub slots: Option<u32>,
    #[command(flatten)]
    pub state: StateArgs,
    /// Directory for intermediate data; may be given several times [default: disk in the state directory]
    #[arg(long, value_name = "DIR")]
    pub disk: Vec<String>,
    /// Print the result as JSON on standard output
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct GenArgs {
    /// Layout of the 100 bytes of a row: modern, legacy or ascii
    #[arg(long)]
    pub layout: RowLayout,
    /// Make some prefixes of keys much more common than others
    #[arg(long)]
    pub skewed: bool,
    /// Number of the first row, up to 128 bits
    #[arg(long, value_name = "N", default_value = "0")]
    pub start: StartRow,
    /// Number of rows
    #[arg(long, value_name = "N")]
    pub rows: Rows,
    /// Output directory; appears whole or not at all
    #[arg(long, value_name = "DIR")]
    pub output: PathBuf,
    /// Replace an existing output with the new one
    #[arg(long)]
    pub overwrite: bool,
    /// Publish the output before it is synced to disk
    #[arg(long)]
    pub no_sync: bool,
    #[command(flatten)]
    pub engine: EngineArgs,
}

#[derive(Debug, Args)]
pub struct SortArgs {
    /// Files, directories or globs of rows; plain or compressed, recognized by content
    #[arg(long, value_name = "PATH", num_args = 1.., required = true)]
    pub input: Vec<String>,
    /// Output directory; appears whole or not at all
    #[arg(long, value_name = "DIR")]
    pub output: PathBuf,
    /// Refuse rows that do not have this layout
    #[arg(long)]
    pub layout: Option<RowLayout>,
    /// Follow the benchmark's rules: cold input, synced output, no compression, start-up counted; print its figures
    #[arg(long, conflicts_with_all = ["no_sync", "codec"])]
    pub rules: bool,
    /// Replace an existing output with the new one
    #[arg(long)]
    pub overwrite: bool,
    /// Publish the output before it is synced to disk
    #[arg(long)]
    pub no_sync: bool,
    /// Compression of intermediate data [default: none]
    #[arg(long, value_enum)]
    pub codec: Option<CodecArg>,
    /// In a cluster: whether a second node also gets the sorted data, as for `sailfish run` [default: auto]
    #[arg(long, value_name = "MODE", value_parser = replication_mode)]
    pub replication: Option<Replication>,
    #[command(flatten)]
    pub engine: EngineArgs,
}

#[derive(Debug, Args)]
pub struct SumArgs {
    /// Files, directories or globs of rows, in this order; files of a directory are ordered by name
    #[arg(value_name = "PATH", required = true)]
    pub paths: Vec<String>,
    /// Also print the figures of each file
    #[arg(long)]
    pub files: bool,
    /// Refuse rows that do not have this layout
    #[arg(long)]
    pub layout: Option<RowLayout>,
    #[command(flatten)]
    pub engine: EngineArgs,
}
