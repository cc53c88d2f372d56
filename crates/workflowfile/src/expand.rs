//! Steps that stand for several ones: sweeps over values, wildcards over files, and files that are gathered.
//!
//! A wildcard matches files that exist, and outputs of other steps, which may have wildcards themselves. So the
//! expansion goes in rounds: each looks at the outputs of the instances that the one before has made, until there are no
//! new ones. A step whose files follow from its own outputs would grow for ever, and is refused.

mod error;
mod files;
mod gather;
mod instance;
mod partitions;
mod pattern;
mod placeholder;
mod stored;
mod tables;
mod values;

pub use error::ExpansionError;
pub(crate) use partitions::check_per;
pub(crate) use tables::check_values;

use crate::machines::{JobMachines, Sources};
use api::job::workflow_file::{WorkflowFile, WorkflowFileStep};
use api::job::workflow_input::WorkflowInput;
use files::Disk;
use gather::Gatherer;
use instance::{absolute_path, instance, output_paths, text_bytes, texts};
use jobkind::STEPS_MAX;
use partitions::{check_pattern, is_per_partition, of_output, read_partition, with_partition};
use pattern::{EachPattern, Wildcards};
use placeholder::may_be_of_snakemake;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use stored::{StoredListing, is_of_store};
use values::{Bound, BoundBy, Params, Place, Sweep, Values};

/// Maximum number of bytes of all steps after the expansion.
const BYTES_MAX: usize = 1 << 30;

/// Absolute paths of outputs, each with the position of the match from which it follows; None for an output that follows
/// from no match.
type Outputs = BTreeMap<String, Option<usize>>;

/// Returns a file whose steps are plain ones. A file without parameters, sweeps, wildcards and globs stays as it is.
pub(crate) fn expand(
    file: WorkflowFile,
    dir: &Path,
    sources: Sources,
    machines: JobMachines<'_>,
) -> Result<WorkflowFile, ExpansionError> {
    let is_pattern = |input: &WorkflowInput| input.path.as_os_str().as_encoded_bytes().contains(&b'*');
    let is_template = |step: &WorkflowFileStep| {
        is_expanded(step) || step.inputs.iter().any(is_pattern) || texts(step).any(may_be_of_snakemake)
    };
    if file.params.is_empty() && !file.step.iter().any(is_template) {
        return Ok(file);
    }
    check_names(&file.step)?;
    let dir = dir.to_string_lossy();
    let mut expansion = Expansion {
        params: &file.params,
        dir: &dir,
        disk: Disk::new(StoredListing::new(machines)),
        templates: file.step.iter().map(|step| Template::new(step, &file.params)).collect(),
        outputs: Outputs::new(),
        fresh: Outputs::new(),
        matches: Vec::new(),
        steps: 0,
        bytes: 0,
    };
    expansion.add_first()?;
    expansion.add_rounds()?;
    let step = expansion.finish(sources)?;
    Ok(WorkflowFile { name: file.name, params: BTreeMap::new(), step })
}

/// Refuses a name that two steps have, if one of these stands for several: their instances may differ.
fn check_names(steps: &[WorkflowFileStep]) -> Result<(), ExpansionError> {
    let mut names: BTreeMap<&str, &WorkflowFileStep> = BTreeMap::new();
    for step in steps {
        if let Some(other) =
            names.insert(&step.name, step).filter(|other| is_expanded(other) || is_expanded(step))
        {
            return Err(ExpansionError::SameName { step: other.name.clone() });
        }
    }
    Ok(())
}

fn is_expanded(step: &WorkflowFileStep) -> bool {
    step.each.is_some() || !step.sweep.is_empty()
}

fn no_match(step: &str, pattern: &str, sources: Sources) -> ExpansionError {
    let files = match sources {
        _ if is_of_store(pattern) => "no stored file",
        Sources::Here => "no file",
        Sources::OnNodes => "no file that this machine sees",
    };
    ExpansionError::NoMatch { step: step.to_string(), pattern: pattern.to_string(), files }
}

/// A step of the file.
struct Template<'a> {
    step: &'a WorkflowFileStep,
    sweep: Sweep<'a>,
    /// For each combination of the sweep; empty without wildcards.
    patterns: Vec<EachPattern<'a>>,
    /// Combinations with the paths that they have matched.
    seen: BTreeSet<(usize, String)>,
    /// Instances with their combinations and paths.
    instances: Vec<(usize, String, WorkflowFileStep)>,
}

impl<'a> Template<'a> {
    fn new(step: &'a WorkflowFileStep, params: &'a Params) -> Self {
        let sweep = Sweep::new(&step.sweep, params);
        Self { step, sweep, patterns: Vec::new(), seen: BTreeSet::new(), instances: Vec::new() }
    }
}

/// A file that a step with wildcards has matched.
struct Match {
    template: usize,
    combination: usize,
    /// The match from which the file follows.
    before: Option<usize>,
}

struct Expansion<'a> {
    params: &'a Params,
    dir: &'a str,
    disk: Disk<'a>,
    templates: Vec<Template<'a>>,
    outputs: Outputs,
    /// Outputs that no round has looked at.
    fresh: Outputs,
    matches: Vec<Match>,
    steps: usize,
    bytes: usize,
}

impl<'a> Expansion<'a> {
    /// Adds the instances of the steps without wildcards, and those for files that exist.
    fn add_first(&mut self) -> Result<(), ExpansionError> {
        for number in 0..self.templates.len() {
            let step = self.templates[number].step;
            let count = self.templates[number].sweep.count().filter(|count| self.steps + count <= STEPS_MAX);
            let count = count.ok_or_else(|| too_many_steps(step))?;
            for combination in 0..count {
                let values = self.values(number, self.templates[number].sweep.combination(combination));
                let Some(each) = &step.each else {
                    let made = instance(step, &values)?;
                    self.add(number, combination, String::new(), &values, made, None)?;
                    continue;
                };
                let wildcards = if is_per_partition(step) { Wildcards::Optional } else { Wildcards::Needed };
                let pattern = EachPattern::parse(each, &values, self.dir, wildcards)?;
                if is_per_partition(step) {
                    let names = pattern.wildcards().chain(step.sweep.keys().map(String::as_str));
                    check_pattern(step, &pattern.text, &pattern.base, names)?;
                }
                for path in self.disk.matching(&pattern.base, &pattern.names(), &pattern.text)? {
                    self.add_match(number, combination, &pattern, &path, None)?;
                }
                self.templates[number].patterns.push(pattern);
            }
        }
        Ok(())
    }

    /// Adds the instances for outputs of other ones.
    fn add_rounds(&mut self) -> Result<(), ExpansionError> {
        let patterned: Vec<usize> =
            (0..self.templates.len()).filter(|number| self.templates[*number].step.each.is_some()).collect();
        while !self.fresh.is_empty() {
            let fresh = std::mem::take(&mut self.fresh);
            for number in &patterned {
                let patterns = std::mem::take(&mut self.templates[*number].patterns);
                for (combination, pattern) in patterns.iter().enumerate() {
                    let prefix = pattern.prefix();
                    let like =
                        fresh.range(prefix.clone()..).take_while(|(path, _)| path.starts_with(&prefix));
                    for (path, before) in like {
                        self.add_match(*number, combination, pattern, path, *before)?;
                    }
                }
                self.templates[*number].patterns = patterns;
            }
        }
        Ok(())
    }

    /// Adds an instance for a path if it matches.
    fn add_match(
        &mut self,
        number: usize,
        combination: usize,
        pattern: &EachPattern<'a>,
        path: &str,
        before: Option<usize>,
    ) -> Result<(), ExpansionError> {
        let Some(bound) = pattern.bind(path) else { return Ok(()) };
        let template = &mut self.templates[number];
        let mut ancestor = before;
        while let Some(found) = ancestor.map(|ancestor| &self.matches[ancestor]) {
            if (found.template, found.combination) == (number, combination) {
                return Err(ExpansionError::EndlessGrowth {
                    step: template.step.name.clone(),
                    pattern: pattern.text.clone(),
                    path: path.into(),
                });
            }
            ancestor = found.before;
        }
        if !template.seen.insert((combination, path.to_string())) {
            return Ok(());
        }
        let mut own = template.sweep.combination(combination);
        let wildcard = |(name, value): (&'a str, &str)| {
            (name, Bound { text: value.to_string(), source: BoundBy::FileName })
        };
        own.extend(bound.into_iter().map(wildcard));
        if is_per_partition(template.step) {
            return self.add_partitions(number, combination, pattern, path, &own);
        }
        self.matches.push(Match { template: number, combination, before });
        let values = self.values(number, own);
        let made = instance(self.templates[number].step, &values)?;
        self.add(number, combination, path.to_string(), &values, made, Some(self.matches.len() - 1))
    }

    /// Adds an instance for each partition of a stored file.
    fn add_partitions(
        &mut self,
        number: usize,
        combination: usize,
        pattern: &EachPattern<'a>,
        path: &str,
        own: &BTreeMap<&'a str, Bound>,
    ) -> Result<(), ExpansionError> {
        let step = self.templates[number].step;
        if self.outputs.contains_key(path) {
            return Err(of_output(step, &pattern.text));
        }
        for partition in 0..self.disk.stored.partitions(path)?.unwrap_or(0) {
            let values = self.values(number, with_partition(own, partition));
            let mut made = instance(step, &values)?;
            read_partition(step, &mut made, path, partition)?;
            // In the order of their numbers.
            let place = format!("{path}/@{partition:010}");
            self.matches.push(Match { template: number, combination, before: None });
            self.add(number, combination, place, &values, made, Some(self.matches.len() - 1))?;
        }
        Ok(())
    }

    fn values(&self, number: usize, own: BTreeMap<&'a str, Bound>) -> Values<'a> {
        Values { step: &self.templates[number].step.name, params: self.params, own }
    }

    fn add(
        &mut self,
        number: usize,
        combination: usize,
        path: String,
        values: &Values<'a>,
        mut made: WorkflowFileStep,
        from: Option<usize>,
    ) -> Result<(), ExpansionError> {
        let step = self.templates[number].step;
        for name in made.after.iter_mut().filter(|name| name.contains('{')) {
            *name = values.fill(name, Place::After)?;
        }
        self.steps += 1;
        self.bytes += text_bytes(&made);
        if self.steps > STEPS_MAX {
            return Err(too_many_steps(step));
        }
        if self.bytes > BYTES_MAX {
            let (step, advice) = (step.name.clone(), "give shorter commands, or fewer steps");
            return Err(ExpansionError::TooMany { step, max: BYTES_MAX, things: "bytes", advice });
        }
        for output in output_paths(self.dir, &made) {
            self.outputs.insert(output.clone(), from);
            self.fresh.insert(output, from);
        }
        self.templates[number].instances.push((combination, path, made));
        Ok(())
    }

    /// Returns all instances in the order of the file, with the files that they gather.
    fn finish(self, sources: Sources) -> Result<Vec<WorkflowFileStep>, ExpansionError> {
        let Self { params, dir, disk, templates, outputs, .. } = self;
        let instances = || templates.iter().flat_map(|template| &template.instances).map(|(_, _, step)| step);
        let job_dir = |step: &WorkflowFileStep| absolute_path(dir, step.job.as_ref()?.output.as_deref()?);
        let job_dirs = instances().filter_map(job_dir).collect();
        let mut gatherer = Gatherer { dir, sources, outputs: &outputs, disk, gathered: 0, job_dirs };
        let mut steps: Vec<WorkflowFileStep> = Vec::with_capacity(self.steps);
        let mut ranges: BTreeMap<String, Range<usize>> = BTreeMap::new();
        for mut template in templates {
            for (combination, pattern) in template.patterns.iter().enumerate() {
                let first = template.seen.range((combination, String::new())..).next();
                if first.is_none_or(|(other, _)| *other != combination) {
                    return Err(no_match(&template.step.name, &pattern.text, sources));
                }
            }
            template.instances.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
            let first = steps.len();
            for (_, _, mut step) in template.instances {
                gatherer.gather_inputs(&mut step)?;
                steps.push(step);
            }
            if is_expanded(template.step) {
                let name = template.step.name.as_str();
                let values = Values { step: name, params, own: BTreeMap::new() };
                ranges.insert(values.fill(name, Place::After)?, first..steps.len());
                ranges.insert(name.to_string(), first..steps.len());
            }
        }
        gatherer.gather_after(&mut steps, &ranges)?;
        Ok(steps)
    }
}

fn too_many_steps(step: &WorkflowFileStep) -> ExpansionError {
    let (things, advice) = ("steps", "give shorter lists, or fewer files");
    ExpansionError::TooMany { step: step.name.clone(), max: STEPS_MAX, things, advice }
}
