//! Inputs with `*`: all files and outputs that match; and names of steps in `after` that stand for several.

use super::error::ExpansionError;
use super::files::{Disk, GLOB_OPTIONS, NamePattern, glob_prefix};
use super::instance::{absolute_path, output_paths, split_base};
use super::stored::{declared_name, is_of_store};
use super::{Outputs, no_match};
use crate::machines::Sources;
use api::job::workflow_file::WorkflowFileStep;
use api::job::workflow_input::WorkflowInput;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Maximum number of files and steps that the steps of a workflow gather, all together.
const GATHERED_MAX: usize = 5_000_000;
const NO_TREES: &str = "`**` is no pattern: give a `*` for each directory";
const DOTS: &str = "give a path without `..`";

/// Finds the files and steps that steps gather.
pub struct Gatherer<'a> {
    pub dir: &'a str,
    pub sources: Sources,
    pub outputs: &'a Outputs,
    pub disk: Disk<'a>,
    pub gathered: usize,
    /// Output directories of jobs: of the files there, only the parts are gathered.
    pub job_dirs: BTreeSet<String>,
}

impl Gatherer<'_> {
    /// Puts the files that match in place of the inputs with `*`.
    pub fn gather_inputs(&mut self, step: &mut WorkflowFileStep) -> Result<(), ExpansionError> {
        let is_pattern = |input: &WorkflowInput| input.path.to_str().is_some_and(|text| text.contains('*'));
        if !step.inputs.iter().any(is_pattern) {
            return Ok(());
        }
        let own: BTreeSet<String> = output_paths(self.dir, step).collect();
        let plain = step.inputs.iter().filter(|input| !is_pattern(input)).map(|input| &input.path);
        let plain = plain.chain(&step.stdin);
        let mut listed: BTreeSet<String> = plain.filter_map(|path| absolute_path(self.dir, path)).collect();
        let mut inputs = Vec::new();
        for input in std::mem::take(&mut step.inputs) {
            if !is_pattern(&input) {
                inputs.push(input);
                continue;
            }
            let pattern = input.path.to_string_lossy();
            let found = self.matching(&step.name, &pattern, &own)?;
            self.count(&step.name, found.len())?;
            let are_streams = step.streams.contains(&input.path);
            for path in found {
                if listed.insert(path.clone()) {
                    let path = declared(self.dir, &pattern, path);
                    step.streams.extend(are_streams.then(|| path.clone()));
                    inputs.push(WorkflowInput { path, view: input.view });
                }
            }
            step.streams.retain(|stream| *stream != input.path);
        }
        step.inputs = inputs;
        Ok(())
    }

    fn matching(
        &mut self,
        step: &str,
        text: &str,
        own: &BTreeSet<String>,
    ) -> Result<BTreeSet<String>, ExpansionError> {
        let bad =
            |reason| ExpansionError::BadPattern { step: step.to_string(), pattern: text.to_string(), reason };
        let (base, rest) = split_base(self.dir, text);
        let (mut names, mut whole, mut prefix) = (Vec::new(), glob::Pattern::escape(base), base.to_string());
        let mut is_plain = true;
        for part in rest.split('/').filter(|part| !part.is_empty() && *part != ".") {
            let reason = match part {
                ".." => Some(DOTS),
                part if part.contains("**") => Some(NO_TREES),
                _ => None,
            };
            if let Some(reason) = reason {
                return Err(bad(reason));
            }
            whole = format!("{whole}/{part}");
            if is_plain {
                prefix = format!("{prefix}/{}", glob_prefix(part));
            }
            let is_fixed = glob_prefix(part) == part;
            is_plain &= is_fixed;
            names.push(match is_fixed {
                true => NamePattern::Fixed(part.to_string()),
                false => NamePattern::Glob(glob::Pattern::new(part).map_err(|error| bad(error.msg))?),
            });
        }
        let whole = glob::Pattern::new(&whole).map_err(|error| bad(error.msg))?;
        let mut found: BTreeSet<String> = self.disk.matching(base, &names, text)?.into_iter().collect();
        let like = self.outputs.range(prefix.clone()..).take_while(|(path, _)| path.starts_with(&prefix));
        let like = like.filter(|(path, _)| whole.matches_with(path, GLOB_OPTIONS));
        found.extend(like.map(|(path, _)| path.clone()));
        let is_left = |path: &String| {
            let above = path.rsplit_once('/').map_or("", |(above, _)| above);
            self.outputs.contains_key(path) || !self.job_dirs.contains(above)
        };
        found.retain(|path| !own.contains(path) && is_left(path));
        if found.is_empty() { Err(no_match(step, text, self.sources)) } else { Ok(found) }
    }

    fn count(&mut self, step: &str, more: usize) -> Result<(), ExpansionError> {
        self.gathered += more;
        match self.gathered > GATHERED_MAX {
            false => Ok(()),
            true => Err(ExpansionError::TooMany {
                step: step.to_string(),
                max: GATHERED_MAX,
                things: "gathered files and steps",
                advice: "gather them in one step, and read its output",
            }),
        }
    }

    /// Puts the names of instances in place of the names in `after` that stand for several steps.
    pub fn gather_after(
        &mut self,
        steps: &mut [WorkflowFileStep],
        ranges: &BTreeMap<String, Range<usize>>,
    ) -> Result<(), ExpansionError> {
        for number in 0..steps.len() {
            if !steps[number].after.iter().any(|name| ranges.contains_key(name)) {
                continue;
            }
            let mut after = Vec::new();
            for name in std::mem::take(&mut steps[number].after) {
                match ranges.get(&name) {
                    Some(range) => {
                        self.count(&steps[number].name, range.len())?;
                        after.extend(steps[range.clone()].iter().map(|step| step.name.clone()));
                    }
                    None => after.push(name),
                }
            }
            steps[number].after = after;
        }
        Ok(())
    }
}

/// Returns a path as a pattern declares it: relative to the directory of the file, absolute, or the name of a stored file.
fn declared(dir: &str, pattern: &str, path: String) -> PathBuf {
    match pattern.starts_with('/') {
        true => PathBuf::from(path),
        false if is_of_store(&path) => PathBuf::from(declared_name(&path)),
        false => Path::new(&path).strip_prefix(dir).map(Path::to_path_buf).unwrap_or(PathBuf::from(&path)),
    }
}
