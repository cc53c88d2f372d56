//! What a reduce function is, and which ones there are.

use crate::builtin::{FoldReducer, ListReducer, PairWriter};
use crate::command::CommandReducer;
use crate::fold::Fold;
use crate::part::PartWriter;
use api::{Blame, Function, TaskFailure};
use program::FunctionContext;

/// A record of a sorted, grouped stream.
#[derive(Clone, Copy, Debug)]
pub struct GroupedRecord<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    /// Set on the first record of each key.
    pub starts_group: bool,
}

/// A stream of records in key order, values of a key in input order; the merge implements it.
pub trait GroupedRecords {
    /// The next record, or None at the end. The error is final.
    fn next(&mut self) -> Result<Option<GroupedRecord<'_>>, TaskFailure>;
}

/// What a reduce function saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReduceCounts {
    /// Distinct keys.
    pub groups: u64,
    /// Bytes of lines that the user's program did not take.
    pub unread_bytes: u64,
}

/// A reduce function: Python workers and SQL stages will come through the same trait.
pub trait ReduceFunction: Send {
    /// Reads the input to its end, always, and writes the result.
    fn run(
        &mut self,
        input: &mut dyn GroupedRecords,
        output: &mut PartWriter,
    ) -> Result<ReduceCounts, TaskFailure>;
}

/// Why a reducer or combiner cannot be used. The user's fault.
#[derive(Debug, thiserror::Error)]
pub enum FunctionUnusable {
    #[error("no built-in {role} is called {name:?}; there are: {known}")]
    UnknownBuiltin { role: &'static str, name: String, known: String },
    #[error("the built-in {name} takes no argument, but {argument:?} follows it")]
    ArgumentNotTaken { name: String, argument: String },
}

/// Checks at submit that a reducer exists. Programs are checked by `program::check_program`.
pub fn check_reducer(function: &Function) -> Result<(), FunctionUnusable> {
    fold_of(function, "reducer").map(|_| ())
}

/// Checks at submit that a combiner exists. Programs are checked by `program::check_program`.
pub fn check_combiner(function: &Function) -> Result<(), FunctionUnusable> {
    fold_of(function, "combiner").map(|_| ())
}

/// Whether a reducer serves as its own combiner when none is given: every built-in fold does.
pub fn combines_by_itself(function: &Function) -> bool {
    matches!(fold_of(function, "reducer"), Ok(Some(_)))
}

/// The fold of a built-in, None for a command.
pub(crate) fn fold_of(function: &Function, role: &'static str) -> Result<Option<Fold>, FunctionUnusable> {
    let Function::Builtin { name, argument } = function else {
        return Ok(None);
    };
    let Some(fold) = Fold::by_name(name) else {
        let known = Fold::ALL.map(|each| format!("builtin:{}", each.name())).join(", ");
        return Err(FunctionUnusable::UnknownBuiltin { role, name: name.clone(), known });
    };
    match argument {
        Some(argument) => {
            Err(FunctionUnusable::ArgumentNotTaken { name: name.clone(), argument: argument.clone() })
        }
        None => Ok(Some(fold)),
    }
}

/// Makes the reduce function of a job: None writes the sorted pairs.
///
/// `pre_combined` says that every value has been through the built-in of the same name already, so that
/// `count` adds partial counts up. Error: [`Blame::UserData`] for a built-in that does not exist.
pub fn reduce_function(
    function: Option<&Function>,
    pre_combined: bool,
    context: &FunctionContext,
) -> Result<Box<dyn ReduceFunction>, TaskFailure> {
    let Some(function) = function else {
        return Ok(Box::new(PairWriter));
    };
    if let Function::Command { words } = function {
        return Ok(Box::new(CommandReducer::new(words, context)));
    }
    let fold =
        fold_of(function, "reducer").map_err(|error| TaskFailure::new(Blame::UserData, error.to_string()))?;
    Ok(match fold {
        None => Box::new(PairWriter),
        Some(Fold::List) => Box::new(ListReducer),
        Some(Fold::Count) if pre_combined => Box::new(FoldReducer::new(Fold::Sum)),
        Some(fold) => Box::new(FoldReducer::new(fold)),
    })
}
