//! The mapper that is a user's program: one process for a split.

use api::{Blame, Exchange, Formats, RecordFormat, TaskFailure};
use functions::{
    Emitter, FieldSplitter, MapCounts, MapFunction, RecordInput, for_each_output_line, write_program_output,
};
use memchr::memchr;
use output::PartWriter;
use program::{Feed, FunctionContext, ProgramSpec};
use std::io::Read;

/// Feeds the bytes of a split to a program and emits the lines it prints.
pub(crate) struct CommandMapper {
    spec: ProgramSpec,
    context: FunctionContext,
    splitter: FieldSplitter,
    exchange: Exchange,
}

impl CommandMapper {
    pub(crate) fn new(words: &[String], context: &FunctionContext, formats: &Formats) -> Self {
        let (spec, splitter) = (ProgramSpec::new(words, context), FieldSplitter::new(&formats.map_output));
        Self { spec, context: context.clone(), splitter, exchange: formats.exchange }
    }
}

impl MapFunction for CommandMapper {
    fn run(
        &mut self,
        input: &mut dyn RecordInput,
        output: &mut dyn Emitter,
    ) -> Result<MapCounts, TaskFailure> {
        let (context, exchange) = (&self.context, self.exchange);
        let parting = Parting { terminator: exchange.terminator(), splitter: &self.splitter };
        let (unread_bytes, counts) = program::run(context, &self.spec, |feed, stdout| {
            (move || feed_blocks(input, exchange, feed), move || emit_lines(stdout, context, parting, output))
        })?;
        Ok(MapCounts { unread_bytes, ..counts })
    }
}

/// The way from bytes of a program to pairs.
#[derive(Clone, Copy)]
pub(crate) struct Parting<'a> {
    /// The end of a record.
    pub terminator: u8,
    pub splitter: &'a FieldSplitter,
}

/// Reads a program's output to its end and emits each line, or record with that terminator, as a pair.
/// Error: [`api::Blame::UserData`] for a line longer than a record may be, naming its number.
pub(crate) fn emit_lines(
    stdout: impl Read,
    context: &FunctionContext,
    parting: Parting<'_>,
    output: &mut dyn Emitter,
) -> Result<MapCounts, TaskFailure> {
    let mut counts = MapCounts::default();
    for_each_output_line(stdout, context, parting.terminator, |line| {
        let (key, value) = parting.splitter.split(line);
        counts.output_records += 1;
        counts.output_bytes += (key.len() + value.len()) as u64;
        match value.is_empty() && key.len() < line.len() {
            true => output.emit_separated(key),
            false => output.emit(key, value),
        }
    })?;
    Ok(counts)
}

/// A program in a map-only job: what it prints goes into the part.
pub(crate) fn copy_through(
    words: &[String],
    context: &FunctionContext,
    formats: &Formats,
    input: &mut dyn RecordInput,
    output: &mut PartWriter,
) -> Result<MapCounts, TaskFailure> {
    let spec = ProgramSpec::new(words, context);
    let (unread_bytes, output_bytes) = program::run(context, &spec, |feed, stdout| {
        (
            move || feed_blocks(input, formats.exchange, feed),
            || write_program_output(stdout, output, context, formats),
        )
    })?;
    Ok(MapCounts { unread_bytes, output_records: output.records()?, output_bytes })
}

/// Returns the bytes that the program did not take.
fn feed_blocks(input: &mut dyn RecordInput, exchange: Exchange, mut feed: Feed) -> Result<u64, TaskFailure> {
    let mixes = exchange == Exchange::Lines && input.format() == RecordFormat::Lines { terminator: 0 };
    while let Some(block) = input.next_block()? {
        if mixes && let Some(offset) = memchr(b'\n', block) {
            return Err(holds_line_feed(&input.position(offset)));
        }
        feed.write(block)?;
        if feed.abandoned() {
            break;
        }
    }
    Ok(feed.unread_bytes())
}

#[cold]
fn holds_line_feed(position: &str) -> TaskFailure {
    let message = format!(
        "{position}: the record holds a line feed, but with --exchange lines a line feed ends a record: \
         leave --exchange lines out, and programs read and print records that end with a zero byte"
    );
    TaskFailure::new(Blame::UserData, message)
}
