//! The process that runs one statement of the console, started by a server. It limits itself before it reads the
//! statement, so that no statement costs more.

use crate::engine::store;
use crate::exit::Failure;
use anyhow::Context;
use api::console::{ConsoleAnswer, ConsoleQuestion};
use api::history::Cell;
use metastore::QueryError;
use rustix::process::{Resource, Rlimit, Signal, nice, set_parent_process_death_signal, setrlimit};
use std::io::{Read, Write};
use std::process::Command;

/// Name of the subcommand, which no help lists.
pub const SUBCOMMAND: &str = "console-question";
/// Maximum bytes of a question: a statement has at most a megabyte, and each byte may be written as six.
const QUESTION_BYTES_MAX: u64 = 8 << 20;
/// Maximum memory: the heap and all other private memory (`RLIMIT_DATA`).
const MEMORY_BYTES_MAX: u64 = 256 << 20;
const CPU_SECONDS_MAX: u64 = 12;
/// Maximum size of a file; nothing is written except to the pipe.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Lowers the priority below every other process.
const NICE: i32 = 10;

/// Returns the command to start it: the running binary itself, even if the file was replaced.
pub fn program() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg(SUBCOMMAND);
    command
}

/// Reads a question, and writes its answer.
pub fn run() -> Result<(), Failure> {
    limit().context("limiting this process")?;
    let mut text = Vec::new();
    let read = std::io::stdin().take(QUESTION_BYTES_MAX).read_to_end(&mut text);
    read.context("reading the question")?;
    let question: ConsoleQuestion = serde_json::from_slice(&text).context("reading the question")?;
    let answer = match store::run(metastore::answer_question(&question))? {
        Ok(mut table) => {
            // JSON has no word for NaN and infinity.
            for cell in table.rows.iter_mut().flatten() {
                if let Cell::Real(real) = cell
                    && !real.is_finite()
                {
                    *cell = Cell::Text(real.to_string());
                }
            }
            ConsoleAnswer::Table(table)
        }
        Err(error @ (QueryError::Store(_) | QueryError::NoReader { .. })) => {
            ConsoleAnswer::Failed { message: error.to_string() }
        }
        Err(error) => ConsoleAnswer::Refused { message: error.to_string() },
    };
    let text = serde_json::to_vec(&answer).context("writing the answer")?;
    std::io::stdout().write_all(&text).context("writing the answer")?;
    Ok(())
}

fn limit() -> rustix::io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let of = |maximum| Rlimit { current: Some(maximum), maximum: Some(maximum) };
    setrlimit(Resource::Data, of(MEMORY_BYTES_MAX))?;
    setrlimit(Resource::Cpu, of(CPU_SECONDS_MAX))?;
    setrlimit(Resource::Fsize, of(FILE_BYTES_MAX))?;
    setrlimit(Resource::Core, of(0))?;
    nice(NICE)?;
    // The kernel kills it before the server when the machine runs out of memory. A refusal leaves the choice to the
    // kernel.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    Ok(())
}
