//! Paths with wildcards: `data/{sample}.txt`.

use super::error::ExpansionError;
use super::files::NamePattern;
use super::instance::split_base;
use super::placeholder::{Piece, pieces};
use super::stored::STORED_ROOT;
use super::values::{Place, Values};
use api::STORED_PREFIX;
use std::collections::BTreeSet;

/// Maximum number of wildcards of a pattern.
const WILDCARDS_MAX: usize = 8;
/// Maximum number of trials to match a path, if a wildcard is repeated.
const TRIALS_MAX: usize = 1_000_000;
const DOTS: &str = "give a path without `..`";
const NO_WILDCARD: &str = "give a wildcard in braces, as in `data/{sample}.txt`";
const STAR: &str = "give a name in braces in place of `*`, as in `data/{sample}.txt`";
const ADJACENT: &str = "give text between two wildcards";
const TOO_MANY: &str = "give at most 8 wildcards";
pub const TRIALS: &str = "a path takes too many trials to match: give each wildcard once";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    Text(String),
    /// A wildcard. It stands for one character or more of one part of a path.
    Wildcard(&'a str),
}

/// The need of a pattern for wildcards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wildcards {
    Needed,
    /// It may name one file, which stands for several steps.
    Optional,
}

/// A pattern of absolute paths.
#[derive(Debug)]
pub struct EachPattern<'a> {
    /// As the user wrote it, with the values of a sweep.
    pub text: String,
    /// The directory below which it looks, without a slash at its end.
    pub base: String,
    /// Between two slashes each.
    components: Vec<Vec<Part<'a>>>,
    /// All components with the directory and slashes.
    parts: Vec<Part<'a>>,
}

impl<'a> EachPattern<'a> {
    /// Reads a pattern. Known names stand for their values, all others are wildcards.
    pub fn parse(
        text: &'a str,
        values: &Values<'_>,
        dir: &str,
        wildcards: Wildcards,
    ) -> Result<Self, ExpansionError> {
        let mut components = vec![Vec::new()];
        let (base, rest) = split_base(dir, text);
        let mut shown = if base == STORED_ROOT { STORED_PREFIX.to_string() } else { String::new() };
        for piece in pieces(rest) {
            let plain = match piece {
                Piece::Text(plain) => plain.to_string(),
                Piece::Doubled(name) | Piece::DoubledOfSnakemake(name) | Piece::OfSnakemake(name) => {
                    format!("{{{name}}}")
                }
                Piece::Placeholder(name) => match values.value(name, Place::Plain)? {
                    Some(value) => value.to_string(),
                    None => {
                        shown.push_str(&format!("{{{name}}}"));
                        components.last_mut().into_iter().for_each(|last| last.push(Part::Wildcard(name)));
                        continue;
                    }
                },
            };
            shown.push_str(&plain);
            add_text(&mut components, &plain);
        }
        components.retain(|component| !component.is_empty() && *component != [Part::Text(".".to_string())]);
        // A parameter may have given it its first slash.
        let base = if base != STORED_ROOT && shown.starts_with('/') { "" } else { base }.to_string();
        let mut parts = vec![Part::Text(format!("{base}/"))];
        for (index, component) in components.iter().enumerate() {
            if index > 0 {
                parts.push(Part::Text("/".to_string()));
            }
            parts.extend(component.iter().cloned());
        }
        let pattern = Self { text: shown, base, components, parts };
        match pattern.mistake(wildcards) {
            None => Ok(pattern),
            Some(reason) => {
                let (step, pattern) = (values.step.to_string(), pattern.text);
                Err(ExpansionError::BadPattern { step, pattern, reason })
            }
        }
    }

    fn mistake(&self, needed: Wildcards) -> Option<&'static str> {
        let wildcards = self.parts.iter().filter(|part| matches!(part, Part::Wildcard(_))).count();
        let has_dots = self.components.iter().any(|component| *component == [Part::Text("..".to_string())]);
        let is_adjacent = |pair: &[Part<'_>]| matches!(pair, [Part::Wildcard(_), Part::Wildcard(_)]);
        let mistakes = [
            (wildcards == 0 && needed == Wildcards::Needed, NO_WILDCARD),
            (wildcards > WILDCARDS_MAX, TOO_MANY),
            (has_dots, DOTS),
            (self.text.contains('*'), STAR),
            (self.parts.windows(2).any(is_adjacent), ADJACENT),
        ];
        mistakes.into_iter().find(|(is_so, _)| *is_so).map(|(_, reason)| reason)
    }

    /// Returns the text before the first wildcard: all paths that match begin with it.
    pub fn prefix(&self) -> String {
        let plain = self.parts.iter().map_while(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            Part::Wildcard(_) => None,
        });
        plain.collect()
    }

    pub fn wildcards(&self) -> impl Iterator<Item = &'a str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Wildcard(name) => Some(*name),
        })
    }

    /// Returns the names of its directories and files, for a walk.
    pub fn names(&self) -> Vec<NamePattern<'a>> {
        let name = |component: &Vec<Part<'a>>| match component.as_slice() {
            [Part::Text(text)] => NamePattern::Fixed(text.clone()),
            parts => NamePattern::Wild(parts.to_vec()),
        };
        self.components.iter().map(name).collect()
    }

    /// Returns the wildcards with their values, if a path matches. Of several ways to match, the first wildcard takes as
    /// few characters as it can, and so on. A path that takes too many trials has no values, and `instance`
    /// refuses it.
    pub fn bind<'p>(&self, path: &'p str) -> Option<Vec<(&'a str, &'p str)>> {
        let mut matching = Matching::new(&self.parts, path, has_repeats(&self.parts));
        let matches = matching.rest_matches(0, 0);
        match matching.trials > TRIALS_MAX {
            true => Some(Vec::new()),
            false => matches.then_some(matching.bound),
        }
    }
}

/// Adds text to the last component; each slash in it begins a new one.
fn add_text(components: &mut Vec<Vec<Part<'_>>>, text: &str) {
    for (index, text) in text.split('/').enumerate() {
        if index > 0 {
            components.push(Vec::new());
        }
        let Some(last) = components.last_mut() else { continue };
        match last.last_mut() {
            Some(Part::Text(before)) => before.push_str(text),
            _ if text.is_empty() => {}
            _ => last.push(Part::Text(text.to_string())),
        }
    }
}

/// Returns whether a text matches parts in which a repeated wildcard may have several values.
pub fn may_match(parts: &[Part<'_>], text: &str) -> bool {
    Matching::new(parts, text, false).rest_matches(0, 0)
}

fn has_repeats(parts: &[Part<'_>]) -> bool {
    let mut names = BTreeSet::new();
    parts.iter().any(|part| matches!(part, Part::Wildcard(name) if !names.insert(*name)))
}

/// A text that is matched with parts. A wildcard matches no slash and no hidden name.
struct Matching<'m, 'a, 'p> {
    parts: &'m [Part<'a>],
    text: &'p str,
    /// Wildcards with their values.
    bound: Vec<(&'a str, &'p str)>,
    /// A repeated wildcard has the same value everywhere. So the rest depends on the values before it.
    has_repeats: bool,
    /// Wildcards, by number of part, with places in the text from which the rest does not match; empty with repeats.
    failed: BTreeSet<(usize, usize)>,
    /// Number of trials with repeats. Above the maximum nothing matches.
    trials: usize,
}

impl<'m, 'a, 'p> Matching<'m, 'a, 'p> {
    fn new(parts: &'m [Part<'a>], text: &'p str, has_repeats: bool) -> Self {
        Self { parts, text, bound: Vec::new(), has_repeats, failed: BTreeSet::new(), trials: 0 }
    }

    /// Returns whether the text from a place on matches the parts from a number on, and binds their wildcards.
    fn rest_matches(&mut self, number: usize, place: usize) -> bool {
        let rest = &self.text[place..];
        let name = match self.parts.get(number) {
            None => return rest.is_empty(),
            Some(Part::Text(plain)) => {
                return rest.starts_with(plain.as_str())
                    && self.rest_matches(number + 1, place + plain.len());
            }
            Some(Part::Wildcard(name)) => *name,
        };
        if self.has_repeats {
            let before = self.bound.iter().find(|(other, _)| *other == name);
            if let Some(value) = before.map(|(_, value)| *value) {
                return rest.starts_with(value) && self.rest_matches(number + 1, place + value.len());
            }
        } else if self.failed.contains(&(number, place)) {
            return false;
        }
        let matches = self.wildcard_matches(name, number, place);
        if !matches && !self.has_repeats {
            self.failed.insert((number, place));
        }
        matches
    }

    /// Tries all values of a wildcard, the shortest first.
    fn wildcard_matches(&mut self, name: &'a str, number: usize, place: usize) -> bool {
        let text = self.text;
        let rest = &text[place..];
        let begins_name = place == 0 || text[..place].ends_with('/');
        if begins_name && rest.starts_with('.') {
            return false;
        }
        let is_last = number + 1 == self.parts.len();
        let end = rest.find('/').unwrap_or(rest.len());
        let ends = (1..=end).filter(|end| rest.is_char_boundary(*end) && (!is_last || *end == rest.len()));
        for end in ends {
            self.trials += usize::from(self.has_repeats);
            if self.trials > TRIALS_MAX {
                return false;
            }
            self.bound.push((name, &rest[..end]));
            if self.rest_matches(number + 1, place + end) {
                return true;
            }
            self.bound.pop();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::super::values::Values;
    use super::{EachPattern, Wildcards};
    use std::collections::BTreeMap;

    fn check(pattern: &str, path: &str, expected: &str) {
        let values = Values { step: "s", params: &BTreeMap::new(), own: BTreeMap::new() };
        let pattern = EachPattern::parse(pattern, &values, "/dir", Wildcards::Needed).unwrap();
        let shown = pattern.bind(path).map(|bound| {
            let one = |(name, value): (&str, &str)| format!("{name}={value}");
            bound.into_iter().map(one).collect::<Vec<_>>().join(" ")
        });
        assert_eq!(shown.unwrap_or_default(), expected, "{pattern:?} {path}");
    }

    #[test]
    fn wildcards_match_parts_of_names() {
        check("data/{s}.txt", "/dir/data/a.txt", "s=a");
        check("./data//{s}.txt", "/dir/data/a.b.txt", "s=a.b");
        check("/data/{s}.txt", "/data/é x.txt", "s=é x");
        check("{a}-{b}.txt", "/dir/x-y-z.txt", "a=x b=y-z");
        check("{a}/{b}", "/dir/x/y", "a=x b=y");
        check("{s}-{t}/{s}.txt", "/dir/a-b-c/a-b.txt", "s=a-b t=c");
        check("{s}/{s}", "/dir/x/x", "s=x");
        check("{{s}}{s}", "/dir/{s}x", "s=x");
        for (pattern, path) in [
            ("data/{s}.txt", "/dir/data/.txt"),
            ("data/{s}.txt", "/dir/data/.a.txt"),
            ("data/{s}.txt", "/dir/data/a/b.txt"),
            ("data/{s}.txt", "/other/data/a.txt"),
            ("data/{s}", "/dir/data/.."),
            ("data/{s}/x", "/dir/data/../x"),
            ("{s}/{s}", "/dir/x/y"),
            ("{s}", "/dir/"),
        ] {
            check(pattern, path, "");
        }
    }

    #[test]
    fn many_wildcards_match_at_once() {
        let long = "_".repeat(200);
        check("{a}_{b}_{c}_{d}_{e}_{f}_{g}_{h}.txt", &format!("/dir/{long}"), "");
        check("{a}_{b}.txt", &format!("/dir/{long}.txt"), &format!("a=_ b={}", "_".repeat(198)));
    }

    #[test]
    fn repeated_wildcards_have_limited_trials() {
        let values = Values { step: "s", params: &BTreeMap::new(), own: BTreeMap::new() };
        let pattern =
            EachPattern::parse("{a}_{b}_{c}_{d}_{e}_{f}_{g}_{a}.txt", &values, "/dir", Wildcards::Needed)
                .unwrap();
        let path = format!("/dir/x{}.txt", "_".repeat(200));
        assert_eq!(pattern.bind(&path), Some(Vec::new()));
        assert_eq!(pattern.bind("/dir/x_b_c_d_e_f_g_y.txt"), None);
    }
}
