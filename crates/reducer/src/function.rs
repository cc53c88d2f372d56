//! Reduce functions: their traits, and the choice of a built-in or a program.

use crate::aggregate::{AGGREGATE, AggregateReducer};
use crate::builtin::{FoldReducer, ListReducer, PairWriter, SumReducer};
use crate::check_order::CheckOrderReducer;
use crate::command::CommandReducer;
use crate::fold::Fold;
use crate::part::PartWriter;
use crate::program_frames::FramesReducer;
use crate::tera_join::TeraJoinReducer;
use api::{Blame, Exchange, Formats, Function, TaskFailure};
use program::FunctionContext;

/// A record of a sorted, grouped stream.
#[derive(Clone, Copy, Debug)]
pub struct GroupedRecord<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    /// Set on the first record of each key.
    pub starts_group: bool,
    /// Its line had a separator, although the value is empty.
    pub is_separated: bool,
}

/// A stream of records in key order, values of a key in input order; the merge implements it.
pub trait GroupedRecords {
    /// The next record, or None at the end. The error is final.
    fn next(&mut self) -> Result<Option<GroupedRecord<'_>>, TaskFailure>;

    /// Writes every pair that is left; returns the number of groups. Here, where the stream's own type is known, a
    /// record costs no call through a table.
    fn write_pairs(&mut self, output: &mut PartWriter) -> Result<u64, TaskFailure> {
        let mut groups = 0;
        while let Some(record) = self.next()? {
            groups += u64::from(record.starts_group);
            match record.is_separated {
                false => output.write_pair(record.key, record.value)?,
                true => output.write_separated(record.key, record.value)?,
            }
        }
        Ok(groups)
    }
}

/// Counts of one run of a reduce function.
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

impl FunctionUnusable {
    /// The failure of an attempt whose function was not checked at submit.
    pub fn failure(self) -> TaskFailure {
        TaskFailure::new(Blame::UserData, self.to_string())
    }
}

/// Checks at submit that a reducer exists. Programs are checked by `program::check_program`.
pub fn check_reducer(function: &Function) -> Result<(), FunctionUnusable> {
    if judge(function).is_some() {
        return Ok(());
    }
    check(function, "reducer")
}

/// Checks at submit that a combiner exists. Programs are checked by `program::check_program`.
pub fn check_combiner(function: &Function) -> Result<(), FunctionUnusable> {
    check(function, "combiner")
}

/// Whether a combiner leaves a reducer its result. Nobody but the user knows that of programs; a built-in serves itself, and any serves
/// one that looks at keys alone.
pub fn combiner_fits(combiner: &Function, reducer: &Function) -> bool {
    match (combiner, reducer) {
        (Function::Builtin { name: combine, .. }, Function::Builtin { name: reduce, .. }) => {
            combine == reduce || reduce == Fold::Unique.name()
        }
        _ => true,
    }
}

/// Whether a reducer serves as its own combiner when none is given: every built-in fold does.
pub fn combines_by_itself(function: &Function) -> bool {
    matches!(function, Function::Builtin { .. }) && check_combiner(function).is_ok()
}

/// The built-in reducers that are no folds: they judge what they read, for the jobs that measure and compare.
fn judge(function: &Function) -> Option<Box<dyn ReduceFunction>> {
    match function {
        Function::Builtin { name, argument: None } => match name.as_str() {
            "check-order" => Some(Box::new(CheckOrderReducer)),
            "tera-join" => Some(Box::new(TeraJoinReducer)),
            _ => None,
        },
        _ => None,
    }
}

/// The fold of a built-in; `role` (reducer or combiner) is for the error.
pub fn builtin_fold(
    name: &str,
    argument: Option<&str>,
    role: &'static str,
) -> Result<Fold, FunctionUnusable> {
    let Some(fold) = Fold::by_name(name) else {
        let folds = Fold::ALL.map(|each| format!("builtin:{}", each.name())).join(", ");
        let known = format!("{folds}, builtin:{AGGREGATE}");
        return Err(FunctionUnusable::UnknownBuiltin { role, name: name.to_string(), known });
    };
    match argument {
        Some(argument) => {
            Err(FunctionUnusable::ArgumentNotTaken { name: name.to_string(), argument: argument.to_string() })
        }
        None => Ok(fold),
    }
}

fn check(function: &Function, role: &'static str) -> Result<(), FunctionUnusable> {
    match function {
        Function::Command { .. } => Ok(()),
        Function::Builtin { name, argument: None } if name == AGGREGATE => Ok(()),
        Function::Builtin { name, argument } => builtin_fold(name, argument.as_deref(), role).map(|_| ()),
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
    formats: &Formats,
) -> Result<Box<dyn ReduceFunction>, TaskFailure> {
    if let Some(judge) = function.and_then(judge) {
        return Ok(judge);
    }
    let fold = match function {
        None => return Ok(Box::new(PairWriter)),
        Some(Function::Command { words }) => {
            return Ok(match formats.exchange {
                Exchange::Lines | Exchange::Nul => Box::new(CommandReducer::new(words, context, formats)),
                Exchange::Frames => Box::new(FramesReducer::new(words, context)),
            });
        }
        Some(Function::Builtin { name, argument: None }) if name == AGGREGATE => {
            return Ok(Box::new(AggregateReducer));
        }
        Some(Function::Builtin { name, argument }) => {
            builtin_fold(name, argument.as_deref(), "reducer").map_err(FunctionUnusable::failure)?
        }
    };
    Ok(match fold {
        Fold::List => Box::new(ListReducer),
        Fold::Sum => Box::new(SumReducer::default()),
        Fold::Count if pre_combined => Box::new(SumReducer::default()),
        fold => Box::new(FoldReducer::new(fold)),
    })
}
