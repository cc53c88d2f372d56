//! Statements of the console. Each is run by a separate process with limits on memory and processor time, whose answer
//! comes through a pipe, so that an expensive statement does not burden the server.

use crate::answer::Problem;
use api::console::{ANSWER_BYTES_MAX, ConsoleAnswer, ConsoleQuestion};
use api::control::ErrorCode;
use api::history::Table;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Maximum number of statements that run at once: each takes memory and a processor.
const ASKED_MAX: usize = 2;
/// Maximum number of statements that wait for their turn.
const WAITING_MAX: usize = 16;
/// Additional time of the process, to start and to report a timeout of the statement.
const MORE_TIME: Duration = Duration::from_secs(3);
/// Maximum bytes of an answer besides its rows; names of columns take nearly all of it.
const NAMES_BYTES_MAX: usize = 1 << 20;

/// Runs statements in other processes.
#[derive(Clone)]
pub(crate) struct Console {
    turns: Arc<Semaphore>,
    /// A statement holds a permit while it waits and while it runs.
    places: Arc<Semaphore>,
}

impl Default for Console {
    fn default() -> Self {
        let of = |count| Arc::new(Semaphore::new(count));
        Self { turns: of(ASKED_MAX), places: of(ASKED_MAX + WAITING_MAX) }
    }
}

/// Starts a process that reads a [`ConsoleQuestion`] from its standard input and writes a [`ConsoleAnswer`] to its
/// standard output.
pub type ConsoleProgram = fn() -> Command;

impl Console {
    pub async fn ask(&self, program: ConsoleProgram, question: &ConsoleQuestion) -> Result<Table, Problem> {
        let too_many =
            |_| Problem::new(ErrorCode::TooMany, "too many statements wait for an answer: retry in a moment");
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(too_many)?;
        let turn = Arc::clone(&self.turns).acquire_owned().await;
        let failed = |error: std::io::Error| {
            Problem::new(ErrorCode::Failed, format!("cannot ask the database: {error}"))
        };
        let text = serde_json::to_vec(question).map_err(|error| failed(error.into()))?;
        let mut child = start(program).map_err(failed)?;
        let process = Process::of(&child).map_err(|error| {
            // Nobody else would end it.
            let _ = child.kill();
            failed(error)
        })?;
        let exchange = tokio::task::spawn_blocking(move || {
            let answer = exchange(&mut child, &text);
            // Both end with the process, even if the caller has hung up.
            drop((place, turn));
            answer
        });
        let time_max = Duration::from_millis(question.time_max_ms) + MORE_TIME;
        let answer = timeout(time_max, exchange).await;
        drop(process);
        let stopped = || {
            Problem::new(ErrorCode::Refused, "the statement needed too much memory or time, and was stopped")
        };
        let answer = answer.map_err(|_| stopped())?.map_err(|error| failed(std::io::Error::other(error)))?;
        match serde_json::from_slice(&answer.map_err(failed)?) {
            Ok(ConsoleAnswer::Table(table)) => Ok(table),
            Ok(ConsoleAnswer::Refused { message }) => Err(Problem::new(ErrorCode::Refused, message)),
            Ok(ConsoleAnswer::Failed { message }) => Err(Problem::new(ErrorCode::Failed, message)),
            // The statement killed the process.
            Err(_) => Err(stopped()),
        }
    }
}

fn start(program: ConsoleProgram) -> std::io::Result<Child> {
    program().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
}

/// Sends a statement and reads the answer to its end.
fn exchange(child: &mut Child, question: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut answer = Vec::new();
    // A process that dies before it has read the statement gives no answer either.
    if let Some(mut input) = child.stdin.take() {
        let _ = input.write_all(question);
    }
    let bytes_max = ANSWER_BYTES_MAX + NAMES_BYTES_MAX;
    let read = child.stdout.take().map(|output| output.take(bytes_max as u64).read_to_end(&mut answer));
    // A process that writes too much is ended.
    let _ = child.kill();
    child.wait()?;
    read.transpose()?;
    Ok(answer)
}

/// A process that is ended when this value is dropped.
struct Process(OwnedFd);

impl Process {
    fn of(child: &Child) -> std::io::Result<Self> {
        let id =
            i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(std::io::ErrorKind::NotFound)?;
        Ok(Self(pidfd_open(id, PidfdFlags::empty())?))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = pidfd_send_signal(&self.0, Signal::KILL);
    }
}
