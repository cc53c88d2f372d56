//! Combine windows: the output of a mapper is folded, one stretch at a time, before the shuffle.
//!
//! A window ends when its pairs have `window_bytes` key and value bytes, or when the kept ones need that much memory.
//! Both depend on the pairs alone, so that a retry cuts the same windows.

mod add_window;
mod aggregate_window;
mod fold_table;
mod hot_keys;
mod sorted_window;

use add_window::AddWindow;
use aggregate_window::AggregateWindow;
use api::{Formats, Function, TaskFailure};
use fold_table::FoldTable;
use functions::{Combining, Emitter, FunctionUnusable, KeysInBlock};
use program::FunctionContext;
use sorted_window::SortedWindow;

/// Maximum window, so that places in its arena are 32-bit numbers: a window and one record stay below 4 GiB.
pub const WINDOW_BYTES_MAX: u64 = 1 << 30;

/// Maximum bytes that a built-in keeps of a window: about the size of a core's second-level cache. Emitting a key again
/// costs less than missing the cache with every pair (measured: 16 MiB were 15 % slower on a gigabyte of text).
const FOLDED_BYTES_MAX: u64 = 3 << 20;

// An attempt has only one, so the size of the largest variant does not matter.
#[allow(clippy::large_enum_variant)]
enum Window {
    /// A built-in sum or count: emitted in an order that follows from the pairs.
    Added(AddWindow),
    /// Another built-in: folded in a hash table as pairs arrive.
    Folded(FoldTable),
    /// `builtin:aggregate`: each key names its fold.
    Aggregated(AggregateWindow),
    /// A program: sorted by key and run through one process.
    Sorted(SortedWindow),
}

/// Emitter that folds pairs in windows and passes the results to another emitter. Call [`CombineEmitter::finish`] after
/// the last pair.
pub struct CombineEmitter<'a> {
    window: Window,
    window_bytes: u64,
    /// Limit of the kept bytes: the window ends when it reaches the limit.
    kept_bytes_max: u64,
    /// Key and value bytes in the window.
    pair_bytes: u64,
    output_records: u64,
    inner: &'a mut dyn Emitter,
}

impl<'a> CombineEmitter<'a> {
    /// Makes a combiner before `inner`. `window_bytes` is `Layout::combine_window_bytes`. Error:
    /// [`api::Blame::UserData`] for a built-in that does not exist.
    pub fn new(
        combiner: &Function,
        window_bytes: u64,
        context: &FunctionContext,
        formats: &Formats,
        inner: &'a mut dyn Emitter,
    ) -> Result<Self, TaskFailure> {
        let window_bytes = window_bytes.clamp(1, WINDOW_BYTES_MAX);
        let window = match combiner {
            Function::Command { words } => {
                Window::Sorted(SortedWindow::new(words, context, formats, window_bytes))
            }
            Function::Builtin { name, argument } => {
                let combining = functions::combiner(name, argument.as_deref());
                let kept_bytes_max = window_bytes.min(FOLDED_BYTES_MAX);
                let record_bytes_max = context.record_bytes_max;
                match combining.map_err(FunctionUnusable::failure)? {
                    Combining::Aggregate => Window::Aggregated(AggregateWindow::default()),
                    Combining::Fold(fold) if AddWindow::serves(fold) => {
                        Window::Added(AddWindow::new(fold, record_bytes_max, kept_bytes_max))
                    }
                    Combining::Fold(fold) => {
                        Window::Folded(FoldTable::new(fold, record_bytes_max, kept_bytes_max))
                    }
                }
            }
        };
        let kept_bytes_max = match window {
            Window::Added(_) | Window::Folded(_) => window_bytes.min(FOLDED_BYTES_MAX),
            Window::Aggregated(_) | Window::Sorted(_) => window_bytes,
        };
        Ok(Self { window, window_bytes, kept_bytes_max, pair_bytes: 0, output_records: 0, inner })
    }

    /// Makes a built-in emit keys in order of arrival. For jobs whose order treats different keys as equal: the first
    /// of them must follow from the input, not from the end of a window.
    pub fn in_order_of_keys(mut self) -> Self {
        self.window = match self.window {
            Window::Added(window) => Window::Folded(window.into_ordered()),
            other => other,
        };
        self
    }

    /// Folds the last window; without this call its pairs are lost. Returns the number of emitted pairs.
    pub fn finish(mut self) -> Result<u64, TaskFailure> {
        self.end_window()?;
        if let Window::Added(window) = &mut self.window {
            window.drain(&mut CountingEmitter { inner: self.inner, records: &mut self.output_records })?;
        }
        Ok(self.output_records)
    }

    #[inline]
    fn end_full_window(&mut self, kept_bytes: u64) -> Result<(), TaskFailure> {
        if self.pair_bytes >= self.window_bytes || kept_bytes >= self.kept_bytes_max {
            self.end_window()?;
        }
        Ok(())
    }

    #[cold]
    fn end_window(&mut self) -> Result<(), TaskFailure> {
        self.pair_bytes = 0;
        let mut counted = CountingEmitter { inner: self.inner, records: &mut self.output_records };
        match &mut self.window {
            Window::Added(window) => window.drain_rest(&mut counted),
            Window::Folded(table) => table.drain(&mut counted),
            Window::Aggregated(window) => window.drain(&mut counted),
            Window::Sorted(window) => window.drain(&mut counted),
        }
    }
}

impl Emitter for CombineEmitter<'_> {
    #[inline]
    fn emit(&mut self, key: &[u8], value: &[u8]) -> Result<(), TaskFailure> {
        self.pair_bytes += (key.len() + value.len()) as u64;
        let kept_bytes = match &mut self.window {
            Window::Added(window) => {
                let mut counted = CountingEmitter { inner: self.inner, records: &mut self.output_records };
                window.add(key, value, &mut counted)?
            }
            Window::Folded(table) => table.add(key, value)?,
            Window::Aggregated(window) => window.add(key, value)?,
            Window::Sorted(window) => window.add(key, value),
        };
        self.end_full_window(kept_bytes)
    }

    fn emit_each(&mut self, keys: KeysInBlock<'_>, value: &[u8]) -> Result<(), TaskFailure> {
        let Window::Added(window) = &mut self.window else {
            return keys.iter().try_for_each(|key| self.emit(key, value));
        };
        let mut counted = CountingEmitter { inner: self.inner, records: &mut self.output_records };
        let added = window.add_each(keys, value, &mut counted)?;
        if !added {
            return keys.iter().try_for_each(|key| self.emit(key, value));
        }
        Ok(())
    }
}

struct CountingEmitter<'a> {
    inner: &'a mut dyn Emitter,
    records: &'a mut u64,
}

impl Emitter for CountingEmitter<'_> {
    #[inline]
    fn emit(&mut self, key: &[u8], value: &[u8]) -> Result<(), TaskFailure> {
        *self.records += 1;
        self.inner.emit(key, value)
    }

    fn emit_separated(&mut self, key: &[u8]) -> Result<(), TaskFailure> {
        *self.records += 1;
        self.inner.emit_separated(key)
    }
}
