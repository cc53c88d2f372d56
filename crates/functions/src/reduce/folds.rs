//! The reducers that fold the values of a key.

use crate::decimal::{Decimal, whole_amount};
use crate::fold::{Fold, FoldState, NotANumber};
use crate::reduce::{GroupedRecords, ReduceCounts, ReduceFunction};
use api::TaskFailure;
use output::PartWriter;

/// Writes a line for each key: the exact sum of its values, like [`Fold::Sum`]. Most values are a few digits; these are
/// summed without a decimal number.
#[derive(Default)]
pub(crate) struct SumReducer {
    key: Vec<u8>,
    /// Sum of the plain amounts of the group.
    whole: u64,
    /// Sum of the other values of the group, if any.
    rest: Option<Decimal>,
    text: Vec<u8>,
}

impl SumReducer {
    #[inline]
    fn add(&mut self, value: &[u8]) -> Result<(), NotANumber> {
        if let Some(sum) = whole_amount(value).and_then(|amount| self.whole.checked_add(amount)) {
            self.whole = sum;
            return Ok(());
        }
        self.add_to_rest(value)
    }

    fn add_to_rest(&mut self, value: &[u8]) -> Result<(), NotANumber> {
        match &mut self.rest {
            Some(sum) => sum.add_text(value).ok_or(NotANumber),
            None => {
                self.rest = Some(Decimal::parse(value).ok_or(NotANumber)?);
                Ok(())
            }
        }
    }

    /// Writes the sum of the group and resets it.
    #[inline]
    fn write_group(&mut self, output: &mut PartWriter) -> Result<(), TaskFailure> {
        let whole = std::mem::take(&mut self.whole);
        let Some(mut sum) = self.rest.take() else {
            return output.write_pair(&self.key, itoa::Buffer::new().format(whole).as_bytes());
        };
        sum.add(&Decimal::from_whole(whole));
        self.text.clear();
        sum.write_plain(&mut self.text);
        output.write_pair(&self.key, &self.text)
    }
}

impl ReduceFunction for SumReducer {
    fn run(
        &mut self,
        input: &mut dyn GroupedRecords,
        output: &mut PartWriter,
    ) -> Result<ReduceCounts, TaskFailure> {
        let mut groups = 0;
        while let Some(record) = input.next()? {
            if record.starts_group {
                if groups > 0 {
                    self.write_group(output)?;
                }
                groups += 1;
                self.key.clear();
                self.key.extend_from_slice(record.key);
            }
            let added = self.add(record.value);
            added.map_err(|error| error.failure(Fold::Sum, record.key, record.value))?;
        }
        if groups > 0 {
            self.write_group(output)?;
        }
        Ok(ReduceCounts { groups, unread_bytes: 0 })
    }
}

/// Writes a line for each key: the fold of its values.
pub(crate) struct FoldReducer {
    fold: Fold,
    key: Vec<u8>,
    arena: Vec<u8>,
    result: Vec<u8>,
}

impl FoldReducer {
    /// Creates the reducer of any fold except the sum, which has [`SumReducer`], and the list, whose length has no
    /// bound: it has [`ListReducer`].
    pub(crate) fn new(fold: Fold) -> Self {
        Self { fold, key: Vec::new(), arena: Vec::new(), result: Vec::new() }
    }

    fn write_group(&mut self, state: &FoldState, output: &mut PartWriter) -> Result<(), TaskFailure> {
        let key = &self.key;
        let emit = |result: &[u8]| output.write_pair(key, result);
        state.finish(&self.arena, usize::MAX, &mut self.result, emit)
    }
}

impl ReduceFunction for FoldReducer {
    fn run(
        &mut self,
        input: &mut dyn GroupedRecords,
        output: &mut PartWriter,
    ) -> Result<ReduceCounts, TaskFailure> {
        let fold = self.fold;
        let mut groups = 0;
        let mut open: Option<FoldState> = None;
        while let Some(record) = input.next()? {
            let not_a_number = |error: NotANumber| error.failure(fold, record.key, record.value);
            match &mut open {
                Some(state) if !record.starts_group => {
                    fold.add(state, record.value, &mut self.arena).map_err(not_a_number)?;
                }
                before => {
                    if let Some(state) = before.take() {
                        self.write_group(&state, output)?;
                    }
                    groups += 1;
                    self.key.clear();
                    self.key.extend_from_slice(record.key);
                    self.arena.clear();
                    open = Some(fold.start(record.value, &mut self.arena).map_err(not_a_number)?);
                }
            }
        }
        if let Some(state) = open {
            self.write_group(&state, output)?;
        }
        Ok(ReduceCounts { groups, unread_bytes: 0 })
    }
}

/// Writes the values of each key joined by commas, in a stream: a list may be longer than memory.
pub(crate) struct ListReducer;

impl ReduceFunction for ListReducer {
    fn run(
        &mut self,
        input: &mut dyn GroupedRecords,
        output: &mut PartWriter,
    ) -> Result<ReduceCounts, TaskFailure> {
        let mut groups = 0;
        while let Some(record) = input.next()? {
            if record.starts_group {
                if groups > 0 {
                    output.end_pair()?;
                }
                groups += 1;
                output.start_pair(record.key)?;
            } else {
                output.extend_value(b",")?;
            }
            output.extend_value(record.value)?;
        }
        if groups > 0 {
            output.end_pair()?;
        }
        Ok(ReduceCounts { groups, unread_bytes: 0 })
    }
}
