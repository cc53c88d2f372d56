//! The window of a combiner that is a user's program: pairs sorted by key, one process for each window.

use crate::command::{Parting, emit_lines};
use crate::program_frames::emit;
use api::program::ProgramRole;
use api::{Blame, Exchange, FieldSplit, Formats, TaskFailure};
use functions::{Emitter, FieldSplitter, GroupedRecord, GroupedRecords, feed_groups, take_from_program};
use program::{Feed, FunctionContext, ProgramSpec};

/// Bytes of a key that a message shows.
const SHOWN_BYTES_MAX: usize = 80;

/// A pair in the arena: key, then value.
#[derive(Clone, Copy)]
struct Pair {
    offset: u32,
    key_length: u32,
    value_length: u32,
}

impl Pair {
    fn key(self, arena: &[u8]) -> &[u8] {
        &arena[self.offset as usize..][..self.key_length as usize]
    }

    fn value(self, arena: &[u8]) -> &[u8] {
        &arena[self.offset as usize + self.key_length as usize..][..self.value_length as usize]
    }
}

/// The pairs of a window, kept until it ends.
pub(crate) struct SortedWindow {
    spec: ProgramSpec,
    context: FunctionContext,
    /// Between key and value in the lines that the program reads.
    separator: Vec<u8>,
    splitter: FieldSplitter,
    exchange: Exchange,
    /// Finds the fields of a key that the program must keep, where it may change the others.
    kept_fields: Option<KeptFields>,
    arena: Vec<u8>,
    /// Capacity to which the arena returns after a long record.
    arena_bytes: usize,
    pairs: Vec<Pair>,
}

impl SortedWindow {
    /// A window that is drained when it has `window_bytes`; room for them is set aside as in a fold table.
    pub(crate) fn new(
        words: &[String],
        context: &FunctionContext,
        formats: &Formats,
        window_bytes: u64,
    ) -> Self {
        let arena_bytes = window_bytes as usize;
        Self {
            spec: ProgramSpec::new(words, context),
            context: context.clone(),
            separator: formats.reduce_input_separator.clone(),
            splitter: FieldSplitter::new(formats.combiner_output()),
            exchange: formats.exchange,
            kept_fields: formats.combiner_key_fields.map(|key_fields| KeptFields::new(key_fields, formats)),
            arena: Vec::with_capacity(arena_bytes),
            arena_bytes,
            pairs: Vec::with_capacity(arena_bytes / size_of::<Pair>() + 1),
        }
    }

    /// Takes a pair; returns the memory in use.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) -> u64 {
        // The window's limit keeps these numbers within 32 bits.
        self.pairs.push(Pair {
            offset: self.arena.len() as u32,
            key_length: key.len() as u32,
            value_length: value.len() as u32,
        });
        self.arena.extend_from_slice(key);
        self.arena.extend_from_slice(value);
        (self.arena.len() + self.pairs.len() * size_of::<Pair>()) as u64
    }

    /// Runs the program over the pairs in key order, values of a key in the order they came, and emits what
    /// it prints.
    pub(crate) fn drain(&mut self, output: &mut dyn Emitter) -> Result<(), TaskFailure> {
        if self.pairs.is_empty() {
            return Ok(());
        }
        let arena = &self.arena;
        self.pairs.sort_by(|left, right| left.key(arena).cmp(right.key(arena)));
        let kept_fields = self.kept_fields.as_ref();
        let known = &mut KnownKeys { arena, pairs: &self.pairs, last: 0, kept_fields, inner: output };
        match self.exchange {
            Exchange::Lines | Exchange::Nul => self.fold_lines(known)?,
            Exchange::Frames => self.fold_frames(known)?,
        }
        self.arena.clear();
        self.arena.shrink_to(self.arena_bytes);
        self.pairs.clear();
        Ok(())
    }

    fn fold_lines(&self, output: &mut dyn Emitter) -> Result<(), TaskFailure> {
        let Self { spec, context, separator, splitter, arena, pairs, .. } = self;
        let terminator = self.exchange.terminator();
        program::run(context, spec, |feed, stdout| {
            let ends = (separator.as_slice(), terminator);
            let feeder = move || feed_pairs(arena, pairs, ends, feed, context.buffer_bytes);
            let parting = Parting { terminator, splitter };
            (feeder, move || emit_lines(stdout, context, parting, output))
        })?;
        Ok(())
    }

    fn fold_frames(&self, output: &mut dyn Emitter) -> Result<(), TaskFailure> {
        let Self { spec, context, arena, pairs, .. } = self;
        let mut groups = WindowGroups { arena, pairs, next: 0 };
        let (_, taken) = program::run(context, spec, |feed, stdout| {
            (
                move || feed_groups(&mut groups, feed, ProgramRole::Combine, context),
                move || take_from_program(stdout, context, |each| emit(output, each)),
            )
        })?;
        taken.complete().map(|_| ())
    }
}

/// The sorted pairs of a window as groups.
struct WindowGroups<'a> {
    arena: &'a [u8],
    pairs: &'a [Pair],
    next: usize,
}

impl GroupedRecords for WindowGroups<'_> {
    fn next(&mut self) -> Result<Option<GroupedRecord<'_>>, TaskFailure> {
        let Some(pair) = self.pairs.get(self.next) else { return Ok(None) };
        let before = self.next.checked_sub(1).map(|before| self.pairs[before].key(self.arena));
        self.next += 1;
        let (key, value) = (pair.key(self.arena), pair.value(self.arena));
        Ok(Some(GroupedRecord { key, value, starts_group: before != Some(key), is_separated: false }))
    }
}

/// Lets only keys pass that stand in the window, or whose first fields do where the job says so. A combiner may fold values, nothing else: what it put under
/// another key would not be sorted into its place, and whether it runs, and over what, is the engine's choice.
struct KnownKeys<'a> {
    arena: &'a [u8],
    pairs: &'a [Pair],
    /// A pair with the key that came last: most programs keep the order.
    last: usize,
    kept_fields: Option<&'a KeptFields>,
    inner: &'a mut dyn Emitter,
}

/// The first fields of keys.
struct KeptFields {
    splitter: FieldSplitter,
    separator: Vec<u8>,
}

impl KeptFields {
    fn new(key_fields: u32, formats: &Formats) -> Self {
        let separator = formats.map_output.separator.clone();
        let splitter = FieldSplitter::new(&FieldSplit { separator: separator.clone(), key_fields });
        Self { splitter, separator }
    }

    /// Whether a key in the window begins with the same fields. The pairs are sorted.
    fn are_known(&self, key: &[u8], pairs: &[Pair], arena: &[u8]) -> bool {
        let (fields, _) = self.splitter.split(key);
        if pairs.binary_search_by(|pair| pair.key(arena).cmp(fields)).is_ok() {
            return true;
        }
        let with_more = [fields, &self.separator].concat();
        let first = pairs.partition_point(|pair| pair.key(arena) < with_more.as_slice());
        pairs.get(first).is_some_and(|pair| pair.key(arena).starts_with(&with_more))
    }
}

impl Emitter for KnownKeys<'_> {
    #[inline]
    fn emit(&mut self, key: &[u8], value: &[u8]) -> Result<(), TaskFailure> {
        self.find(key)?;
        self.inner.emit(key, value)
    }

    fn emit_separated(&mut self, key: &[u8]) -> Result<(), TaskFailure> {
        self.find(key)?;
        self.inner.emit_separated(key)
    }
}

impl KnownKeys<'_> {
    #[inline]
    fn find(&mut self, key: &[u8]) -> Result<(), TaskFailure> {
        if self.pairs[self.last].key(self.arena) != key {
            match self.pairs.binary_search_by(|pair| pair.key(self.arena).cmp(key)) {
                Ok(index) => self.last = index,
                Err(_) => {
                    let may_be = |kept: &KeptFields| kept.are_known(key, self.pairs, self.arena);
                    if !self.kept_fields.is_some_and(may_be) {
                        return Err(unknown_key(key));
                    }
                }
            }
        }
        Ok(())
    }
}

#[cold]
fn unknown_key(key: &[u8]) -> TaskFailure {
    let shown = String::from_utf8_lossy(&key[..key.len().min(SHOWN_BYTES_MAX)]);
    let more = if key.len() > SHOWN_BYTES_MAX { "…" } else { "" };
    let message = format!(
        "the combiner wrote the key {shown:?}{more}, which it did not read: a combiner may only fold the \
         values of a key; change keys in the mapper or the reducer"
    );
    TaskFailure::new(Blame::UserProgram, message)
}

fn feed_pairs(
    arena: &[u8],
    pairs: &[Pair],
    (separator, terminator): (&[u8], u8),
    mut feed: Feed,
    buffer_bytes: usize,
) -> Result<(), TaskFailure> {
    let mut lines = Vec::with_capacity(buffer_bytes);
    for pair in pairs {
        lines.extend_from_slice(pair.key(arena));
        lines.extend_from_slice(separator);
        lines.extend_from_slice(pair.value(arena));
        lines.push(terminator);
        if lines.len() >= buffer_bytes {
            feed.write(&lines)?;
            lines.clear();
            if feed.abandoned() {
                return Ok(());
            }
        }
    }
    feed.write(&lines)
}
