//! The built-in reducers, and the one that writes the sorted pairs.

use crate::fold::{Fold, FoldState};
use crate::function::{GroupedRecords, ReduceCounts, ReduceFunction};
use crate::part::PartWriter;
use api::TaskFailure;

/// Writes every pair as it comes.
pub(crate) struct PairWriter;

impl ReduceFunction for PairWriter {
    fn run(
        &mut self,
        input: &mut dyn GroupedRecords,
        output: &mut PartWriter,
    ) -> Result<ReduceCounts, TaskFailure> {
        let groups = input.write_pairs(output)?;
        Ok(ReduceCounts { groups, unread_bytes: 0 })
    }
}

/// Writes one line for each key: the fold of its values.
pub(crate) struct FoldReducer {
    fold: Fold,
    key: Vec<u8>,
    arena: Vec<u8>,
    result: Vec<u8>,
}

impl FoldReducer {
    /// For every fold but the list, whose length has no bound: that is [`ListReducer`].
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
            let not_a_number = |error: crate::fold::NotANumber| error.failure(fold, record.key, record.value);
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

/// Writes the values of each key joined by commas, as they come: a list may be longer than memory.
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
