//! Output to the two standard streams. A reader that has disconnected (`sailfish jobs | head`) is no error and never
//! causes a panic.

use indicatif::MultiProgress;
use std::io::{BufWriter, ErrorKind, Write};
use std::sync::OnceLock;

/// Bytes that are buffered before they go to standard output.
const OUTPUT_BUFFER_BYTES: usize = 256 << 10;

/// Prints the output of `write` to standard output. A closed pipe ends the printing and is a success.
pub fn print_with(write: impl FnOnce(&mut dyn Write) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let mut output = BufWriter::with_capacity(OUTPUT_BUFFER_BYTES, std::io::stdout().lock());
    // Output written before an error is still valid.
    let outcome = match (write(&mut output), output.flush()) {
        (Ok(()), flushed) => flushed.map_err(anyhow::Error::from),
        (failed, _) => failed,
    };
    // Buffered data has no reader, and must not be written when the writer is dropped.
    drop(output.into_parts());
    match outcome {
        Err(error) if is_closed_pipe(&error) => Ok(()),
        other => other,
    }
}

/// Prints a text to standard output.
pub fn print(text: &str) -> anyhow::Result<()> {
    print_with(|output| Ok(output.write_all(text.as_bytes())?))
}

/// The progress bars of this process: one screen, so that lines and bars do not overwrite each other.
static BARS: OnceLock<MultiProgress> = OnceLock::new();

/// Returns the screen of the progress bars, which are drawn on standard error.
pub fn bars() -> &'static MultiProgress {
    BARS.get_or_init(MultiProgress::new)
}

/// Prints a line on standard error, above the bars.
pub fn tell(line: &str) {
    // A failure cannot be reported anywhere.
    let _ = ErrorLines.write_all(format!("{line}\n").as_bytes());
}

/// Standard error for whole lines, above the bars.
pub struct ErrorLines;

impl Write for ErrorLines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let write = || std::io::stderr().write_all(bytes).map(|()| bytes.len());
        match BARS.get() {
            Some(bars) => bars.suspend(write),
            None => write(),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Returns whether an error says that the reader of standard output has disconnected.
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}
