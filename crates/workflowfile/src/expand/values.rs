//! Values of placeholders, and texts that are filled with them.

use super::error::ExpansionError;
use super::placeholder::{Piece, is_of_snakemake, pieces};
use api::job::workflow_param::{ParamText, WorkflowParam, WorkflowSweep};
use std::collections::BTreeMap;

/// Likeness from which on a name in braces is taken for a misspelt one.
const LIKE: f64 = 0.9;
/// Letters from which on a name with one other letter is taken for a misspelt one: shorter ones are often other names.
const LETTERS_MIN: usize = 3;
/// Statements of awk, which programs have in braces of their own.
const OF_AWK: [&str; 3] = ["print", "next", "exit"];
/// Characters besides letters and digits that every shell takes as they stand.
const SHELL_PLAIN: &str = "._-+=:,@%";

pub type Params = BTreeMap<String, WorkflowParam>;

/// A value of a placeholder of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    pub text: String,
    pub source: BoundBy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundBy {
    /// The author of the file, who may write text for the shell.
    Author,
    /// The name of a file.
    FileName,
}

/// The place that a text is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Plain,
    /// Names of other steps, which may have placeholders of these.
    After,
    Shell,
}

/// A step's own names, and those of the file.
pub struct Values<'a> {
    pub step: &'a str,
    pub params: &'a Params,
    pub own: BTreeMap<&'a str, Bound>,
}

impl Values<'_> {
    /// Returns a text with values in place of its placeholders.
    pub fn fill(&self, text: &str, place: Place) -> Result<String, ExpansionError> {
        if !text.contains('{') {
            return Ok(text.to_string());
        }
        let mut filled = String::new();
        for piece in pieces(text) {
            match piece {
                Piece::Text(plain) => filled.push_str(plain),
                Piece::Doubled(name)
                    if self.is_known(name) || self.nearest(name).is_some() || is_of_snakemake(name) =>
                {
                    filled.push_str(&format!("{{{name}}}"));
                }
                Piece::DoubledOfSnakemake(inside) => filled.push_str(&format!("{{{inside}}}")),
                Piece::OfSnakemake(inside) if place != Place::After => {
                    return Err(self.of_snakemake(inside));
                }
                Piece::OfSnakemake(inside) => filled.push_str(&format!("{{{inside}}}")),
                Piece::Doubled(name) => filled.push_str(&format!("{{{{{name}}}}}")),
                Piece::Placeholder(name) => match self.value(name, place)? {
                    Some(value) => filled.push_str(value),
                    None => match self.nearest(name).filter(|_| place != Place::After) {
                        None if place != Place::After && is_of_snakemake(name) => {
                            return Err(self.of_snakemake(name));
                        }
                        None => filled.push_str(&format!("{{{name}}}")),
                        Some(nearest) => {
                            let (step, name) = (self.step.to_string(), name.to_string());
                            return Err(ExpansionError::UnknownPlaceholder { step, name, nearest });
                        }
                    },
                },
            }
        }
        Ok(filled)
    }

    /// Returns the value of a name; None if there is no such name.
    pub fn value(&self, name: &str, place: Place) -> Result<Option<&str>, ExpansionError> {
        if let Some(Bound { text, source }) = self.own.get(name) {
            if place == Place::Shell && *source == BoundBy::FileName && !is_plain_for_shell(text) {
                let (step, name, value) = (self.step.to_string(), name.to_string(), text.clone());
                return Err(ExpansionError::NotForShell { step, name, value });
            }
            return Ok(Some(text));
        }
        match self.params.get(name) {
            Some(WorkflowParam::One(ParamText(text))) => Ok(Some(text)),
            Some(WorkflowParam::List(_)) => {
                Err(ExpansionError::ListInText { step: self.step.to_string(), name: name.to_string() })
            }
            None => Ok(None),
        }
    }

    fn is_known(&self, name: &str) -> bool {
        self.own.contains_key(name) || self.params.contains_key(name)
    }

    fn of_snakemake(&self, inside: &str) -> ExpansionError {
        let advice = match inside.strip_prefix("wildcards.") {
            Some(name) => format!("name the wildcard alone, as in {{{name}}}"),
            None => "write the names of the files in their place".to_string(),
        };
        ExpansionError::OfSnakemake { step: self.step.to_string(), inside: inside.to_string(), advice }
    }

    /// Returns the name that is so like another one that this is a slip.
    fn nearest(&self, name: &str) -> Option<String> {
        let names = self.own.keys().copied().chain(self.params.keys().map(String::as_str));
        let slips = names.filter(|known| is_slip(name, known));
        slips.min_by_key(|known| strsim::osa_distance(name, known)).map(str::to_string)
    }
}

/// Returns whether a name in braces is a known one with a slip: in upper or lower case, with a letter too many, too few,
/// another one, or with two exchanged.
fn is_slip(name: &str, known: &str) -> bool {
    if name.eq_ignore_ascii_case(known) {
        return true;
    }
    if OF_AWK.contains(&name) {
        return false;
    }
    let [lower, known_lower] = [name, known].map(str::to_ascii_lowercase);
    if strsim::osa_distance(&lower, &known_lower) <= 1 {
        let is_other_letter = strsim::hamming(&lower, &known_lower) == Ok(1);
        return !is_other_letter || known.len() >= LETTERS_MIN;
    }
    strsim::jaro_winkler(name, known) >= LIKE
}

fn is_plain_for_shell(text: &str) -> bool {
    !text.starts_with('-') && text.chars().all(|each| each.is_alphanumeric() || SHELL_PLAIN.contains(each))
}

/// The values that a step is swept over.
pub struct Sweep<'a> {
    /// Sorted by name.
    lists: Vec<(&'a str, &'a [ParamText])>,
}

impl<'a> Sweep<'a> {
    /// Finds the lists of a step. [`super::check_values`] has found them good.
    pub fn new(sweep: &'a BTreeMap<String, WorkflowSweep>, params: &'a Params) -> Self {
        let list = |values: &'a WorkflowSweep| match values {
            WorkflowSweep::List(list) => list.as_slice(),
            WorkflowSweep::Param(name) => match params.get(name) {
                Some(WorkflowParam::List(list)) => list.as_slice(),
                _ => &[],
            },
        };
        Self { lists: sweep.iter().map(|(name, values)| (name.as_str(), list(values))).collect() }
    }

    /// Returns the number of combinations, 1 without a sweep; None if it is beyond all limits.
    pub fn count(&self) -> Option<usize> {
        self.lists.iter().try_fold(1_usize, |count, (_, list)| count.checked_mul(list.len()))
    }

    /// Returns a combination. The last name changes fastest.
    pub fn combination(&self, index: usize) -> BTreeMap<&'a str, Bound> {
        let (mut left, mut values) = (index, BTreeMap::new());
        for (name, list) in self.lists.iter().rev() {
            let text = list[left % list.len()].0.clone();
            values.insert(*name, Bound { text, source: BoundBy::Author });
            left /= list.len();
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::is_slip;

    #[test]
    fn slips_are_told_from_other_names() {
        let slips = ["tob tpo Top TOP topp to op xtop", "rwos row rowss Rows", "k_ kk K", "sampel Samples"];
        for (known, slips) in ["top", "rows", "k", "sample"].into_iter().zip(slips) {
            for slip in slips.split(' ') {
                assert!(is_slip(slip, known), "{slip} for {known}");
            }
        }
        let others = [("j", "k"), ("x1", "x2"), ("print", "point"), ("next", "text"), ("exit", "edit")];
        let others = others.into_iter().chain([("tab", "top"), ("pot", "top"), ("columns", "rows")]);
        for (other, known) in others {
            assert!(!is_slip(other, known), "{other} for {known}");
        }
    }
}
