//! The built-in functions: one list with name, help and constructor. Checks, error messages, `sailfish run --help` and
//! the tables of docs/cli.md are generated from it.

use crate::aggregate::AGGREGATE;
use crate::fold::Fold;
use crate::map::MapFunction;
use crate::map::records::{GrepMapper, IdentityMapper, WordsMapper};
use crate::map::tera_sum::TeraSumMapper;
use crate::reduce::ReduceFunction;
use crate::reduce::aggregate::AggregateReducer;
use crate::reduce::check_order::CheckOrderReducer;
use crate::reduce::folds::{FoldReducer, ListReducer, SumReducer};
use crate::reduce::tera_join::TeraJoinReducer;
use api::{Blame, Formats, Function, TaskFailure};

/// A built-in function.
struct Builtin {
    /// Name after `builtin:`.
    name: &'static str,
    /// Output of the function, as shown in docs/cli.md.
    help: &'static str,
    make: Make,
}

/// Constructor of a mapper from its argument, as in `builtin:NAME:ARGUMENT`.
type MakeWithArgument = fn(Option<&str>, &Formats) -> Result<Box<dyn MapFunction>, FunctionUnusable>;

enum Make {
    Mapper(fn(&Formats) -> Box<dyn MapFunction>),
    MapperWithArgument {
        /// Name of the argument in help texts.
        argument: &'static str,
        make: MakeWithArgument,
    },
    /// A reducer that is also a combiner.
    Reducer(fn(ReducedValues) -> Box<dyn ReduceFunction>, Combining),
    /// A reducer that checks its input, for a command that measures or compares.
    Judge(fn() -> Box<dyn ReduceFunction>),
}

/// The values that a built-in reducer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReducedValues {
    /// Values as the mappers emitted them.
    Emitted,
    /// Partial results of the same built-in, which has combined every value: `count` adds partial counts up.
    Partial,
}

/// Fold of a combine window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combining {
    Fold(Fold),
    /// The fold that each key names.
    Aggregate,
}

/// The list. Help and messages keep its order. A function without help is for commands of the engine and is not listed.
const BUILTINS: &[Builtin] = &[
    Builtin {
        name: "words",
        help: "(word, 1) for each run of bytes that are not ASCII white space",
        make: Make::Mapper(|_| Box::new(WordsMapper)),
    },
    Builtin {
        name: "grep",
        help: "records that match, split like identity",
        make: Make::MapperWithArgument { argument: "RE", make: grep_mapper },
    },
    Builtin {
        name: "identity",
        help: "each record as key and value: a line split at its first separator, a record of fixed length behind its key",
        make: Make::Mapper(identity_mapper),
    },
    Builtin { name: "tera-sum", help: "", make: Make::Mapper(|_| Box::new(TeraSumMapper)) },
    fold(Fold::Sum, "the sum of decimal numbers, exact", |_| Box::new(SumReducer::default())),
    fold(Fold::Min, "the smallest of decimal numbers, by value", |_| Box::new(FoldReducer::new(Fold::Min))),
    fold(Fold::Max, "the largest of decimal numbers, by value", |_| Box::new(FoldReducer::new(Fold::Max))),
    fold(Fold::Count, "the number of values", |values| match values {
        ReducedValues::Partial => Box::new(SumReducer::default()),
        ReducedValues::Emitted => Box::new(FoldReducer::new(Fold::Count)),
    }),
    fold(Fold::Unique, "each key once", |_| Box::new(FoldReducer::new(Fold::Unique))),
    fold(Fold::List, "the values in input order, joined by commas", |_| Box::new(ListReducer)),
    Builtin {
        name: AGGREGATE,
        help: "Hadoop's aggregate package: the key names the function, as in `LongValueSum:apples`",
        make: Make::Reducer(|_| Box::new(AggregateReducer), Combining::Aggregate),
    },
    Builtin { name: "check-order", help: "", make: Make::Judge(|| Box::new(CheckOrderReducer)) },
    Builtin { name: "tera-join", help: "", make: Make::Judge(|| Box::new(TeraJoinReducer)) },
];

const fn fold(fold: Fold, help: &'static str, make: fn(ReducedValues) -> Box<dyn ReduceFunction>) -> Builtin {
    Builtin { name: fold.name(), help, make: Make::Reducer(make, Combining::Fold(fold)) }
}

/// Creates `builtin:identity`, which is also the default mapper.
pub fn identity_mapper(formats: &Formats) -> Box<dyn MapFunction> {
    Box::new(IdentityMapper::new(&formats.map_output))
}

fn grep_mapper(pattern: Option<&str>, formats: &Formats) -> Result<Box<dyn MapFunction>, FunctionUnusable> {
    let pattern = pattern.ok_or(FunctionUnusable::NoPattern)?;
    Ok(Box::new(GrepMapper::new(pattern, &formats.map_output)?))
}

/// The reason why a function cannot be used. The user must fix it.
#[derive(Debug, thiserror::Error)]
pub enum FunctionUnusable {
    #[error("there is no built-in {role} {name:?}; choose one of: {known}")]
    UnknownBuiltin { role: &'static str, name: String, known: String },
    #[error("the built-in {name} takes no argument, but {argument:?} follows it")]
    ArgumentNotTaken { name: String, argument: String },
    #[error("builtin:grep needs a regular expression, as in builtin:grep:error")]
    NoPattern,
    #[error("the regular expression of builtin:grep is invalid: {0}")]
    Pattern(#[from] regex::Error),
}

impl FunctionUnusable {
    /// Returns the failure of an attempt whose function was not checked at submit.
    pub fn failure(self) -> TaskFailure {
        TaskFailure::new(Blame::UserData, self.to_string())
    }
}

impl Builtin {
    fn is_mapper(&self) -> bool {
        matches!(self.make, Make::Mapper(_) | Make::MapperWithArgument { .. })
    }

    fn is_listed(&self) -> bool {
        !self.help.is_empty()
    }

    /// Returns the function as a user writes it.
    fn text(&self) -> String {
        match self.make {
            Make::MapperWithArgument { argument, .. } => format!("builtin:{}:{argument}", self.name),
            _ => format!("builtin:{}", self.name),
        }
    }
}

/// Returns the listed functions: mappers, or combiners and reducers.
fn listed(mappers: bool) -> impl Iterator<Item = &'static Builtin> {
    BUILTINS.iter().filter(move |each| each.is_listed() && each.is_mapper() == mappers)
}

fn unknown(role: &'static str, name: &str) -> FunctionUnusable {
    let known: Vec<String> = listed(role == "mapper").map(Builtin::text).collect();
    FunctionUnusable::UnknownBuiltin { role, name: name.to_string(), known: known.join(", ") }
}

fn without_argument(name: &str, argument: Option<&str>) -> Result<(), FunctionUnusable> {
    match argument {
        None => Ok(()),
        Some(argument) => {
            Err(FunctionUnusable::ArgumentNotTaken { name: name.to_string(), argument: argument.to_string() })
        }
    }
}

/// Creates a built-in mapper.
pub fn mapper(
    name: &str,
    argument: Option<&str>,
    formats: &Formats,
) -> Result<Box<dyn MapFunction>, FunctionUnusable> {
    match BUILTINS.iter().find(|each| each.name == name).map(|each| &each.make) {
        Some(Make::Mapper(make)) => without_argument(name, argument).map(|()| make(formats)),
        Some(Make::MapperWithArgument { make, .. }) => make(argument, formats),
        _ => Err(unknown("mapper", name)),
    }
}

/// Creates a built-in reducer.
pub fn reducer(
    name: &str,
    argument: Option<&str>,
    values: ReducedValues,
) -> Result<Box<dyn ReduceFunction>, FunctionUnusable> {
    match BUILTINS.iter().find(|each| each.name == name).map(|each| &each.make) {
        Some(Make::Reducer(make, _)) => without_argument(name, argument).map(|()| make(values)),
        Some(Make::Judge(make)) => without_argument(name, argument).map(|()| make()),
        _ => Err(unknown("reducer", name)),
    }
}

/// Returns the fold of a built-in combiner.
pub fn combiner(name: &str, argument: Option<&str>) -> Result<Combining, FunctionUnusable> {
    match BUILTINS.iter().find(|each| each.name == name).map(|each| &each.make) {
        Some(Make::Reducer(_, combining)) => without_argument(name, argument).map(|()| *combining),
        _ => Err(unknown("combiner", name)),
    }
}

/// Checks at submit that a mapper exists. Programs are checked by `program::check_program`.
pub fn check_mapper(function: &Function) -> Result<(), FunctionUnusable> {
    let Function::Builtin { name, argument } = function else { return Ok(()) };
    mapper(name, argument.as_deref(), &Formats::default()).map(drop)
}

/// Checks at submit that a combiner exists. Programs are checked by `program::check_program`.
pub fn check_combiner(function: &Function) -> Result<(), FunctionUnusable> {
    let Function::Builtin { name, argument } = function else { return Ok(()) };
    combiner(name, argument.as_deref()).map(drop)
}

/// Checks at submit that a reducer exists. Programs are checked by `program::check_program`.
pub fn check_reducer(function: &Function) -> Result<(), FunctionUnusable> {
    let Function::Builtin { name, argument } = function else { return Ok(()) };
    reducer(name, argument.as_deref(), ReducedValues::Emitted).map(drop)
}

/// Returns whether a reducer can read the output of a combiner. Only the user knows that of programs; a built-in can
/// read its own, and a reducer that uses only keys can read any.
pub fn combiner_fits(combiner: &Function, reducer: &Function) -> bool {
    match (combiner, reducer) {
        (Function::Builtin { name: combine, .. }, Function::Builtin { name: reduce, .. }) => {
            combine == reduce || reduce == Fold::Unique.name()
        }
        _ => true,
    }
}

/// Returns whether a reducer is its own combiner if none is given: every built-in except the checking ones.
pub fn combines_by_itself(function: &Function) -> bool {
    matches!(function, Function::Builtin { .. }) && check_combiner(function).is_ok()
}

/// Columns of a line of help.
const HELP_COLUMNS: usize = 80;

/// Returns the names for `--help`: a line for the mappers, and lines for the combiners and reducers.
pub fn help_text() -> String {
    format!(
        "{}{}",
        help_lines("  mappers               ", true),
        help_lines("  combiners, reducers   ", false)
    )
}

fn help_lines(title: &str, mappers: bool) -> String {
    let mut text = String::new();
    let mut line = title.to_string();
    for name in listed(mappers).map(Builtin::text) {
        if line.len() + name.len() > HELP_COLUMNS {
            text.push_str(line.trim_end());
            text.push('\n');
            line = " ".repeat(title.len());
        }
        line.push_str(&name);
        line.push_str("  ");
    }
    text + line.trim_end() + "\n"
}

/// Returns the tables of docs/cli.md.
pub fn markdown_tables() -> String {
    let table = |title: &str, mappers: bool| {
        let rows = listed(mappers).map(|each| format!("| `{}` | {} |\n", each.text(), each.help));
        format!("| {title} | output |\n|---|---|\n{}", rows.collect::<String>())
    };
    format!("{}\n{}", table("mapper", true), table("reducer or combiner", false))
}

#[cfg(test)]
mod tests {
    use super::{
        BUILTINS, Builtin, HELP_COLUMNS, Make, check_combiner, check_mapper, check_reducer, help_text, listed,
    };
    use api::Function;

    #[test]
    fn names_are_unique() {
        for (index, each) in BUILTINS.iter().enumerate() {
            assert!(BUILTINS[..index].iter().all(|before| before.name != each.name), "{}", each.name);
        }
    }

    #[test]
    fn functions_serve_their_role_only() {
        for each in BUILTINS {
            let argument = matches!(each.make, Make::MapperWithArgument { .. }).then(|| "x".to_string());
            let function = Function::Builtin { name: each.name.to_string(), argument };
            let roles = [check_mapper(&function), check_combiner(&function), check_reducer(&function)];
            let expected = match each.make {
                Make::Mapper(_) | Make::MapperWithArgument { .. } => [true, false, false],
                Make::Reducer(..) => [false, true, true],
                Make::Judge(_) => [false, false, true],
            };
            assert_eq!(roles.map(|role| role.is_ok()), expected, "{}", each.name);
        }
    }

    #[test]
    fn unknown_names_are_answered_with_the_list() {
        let check = |checked: Result<(), super::FunctionUnusable>, expected: &str| {
            let error = checked.unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        };
        let function = |text: &str| Function::parse(text).unwrap();
        check(
            check_mapper(&function("builtin:wrods")),
            "there is no built-in mapper \"wrods\"; choose one of: builtin:words, builtin:grep:RE, ",
        );
        check(
            check_combiner(&function("builtin:check-order")),
            "there is no built-in combiner \"check-order\"; choose one of: builtin:sum, builtin:min, ",
        );
        check(
            check_reducer(&function("builtin:sum:x")),
            "the built-in sum takes no argument, but \"x\" follows it",
        );
    }

    #[test]
    fn help_fits_its_columns() {
        let text = help_text();
        let start = "  mappers               builtin:words  builtin:grep:RE  builtin:identity";
        assert!(text.starts_with(start) && text.lines().all(|line| line.len() <= HELP_COLUMNS), "{text}");
        let names: Vec<&str> = text.split_whitespace().filter(|word| word.starts_with("builtin:")).collect();
        let listed: Vec<String> = listed(true).chain(listed(false)).map(Builtin::text).collect();
        assert_eq!(names, listed);
    }
}
