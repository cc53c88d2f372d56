//! Jobs that reduce the kept I-files of an earlier job again.

use crate::front_end::FrontEnd;
use crate::options::{FunctionText, add_variables};
use crate::paths::{self, ExistingOutput};
use crate::plan::pinning::{Pinning, is_pinned};
use crate::plan::{Held, Plan, check_environment, function};
use crate::{memory_size, state_dir};
use anyhow::{Context, anyhow, bail, ensure};
use api::control::SLOTS_MAX;
use api::{Function, JobSpec, Layout, MapReduce, name_beside};
use ids::JobId;
use mapreduce::layout::{self, LayoutRequest};
use std::path::{Path, PathBuf};

/// Options of such a job, not checked yet. Relative paths refer to the current directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RerunOptions {
    pub reducer: Option<String>,
    pub output: PathBuf,
    pub name: Option<String>,
    pub memory: Option<String>,
    pub slots: Option<u32>,
    pub state: Option<PathBuf>,
    pub in_cluster: bool,
    pub disk: Vec<String>,
    pub file: Vec<String>,
    /// Environment variables as `NAME=VALUE`.
    pub env: Vec<String>,
    pub overwrite: bool,
    pub no_sync: bool,
    pub json: bool,
}

/// A job whose I-files were kept.
#[derive(Clone, Copy, Debug)]
pub struct EarlierJob<'a> {
    pub job: JobId,
    pub spec: &'a JobSpec,
}

/// Plans the new job: the content and order of the I-files come from the old job. Every error names the option, and the
/// user can fix it.
pub fn plan_again(
    options: RerunOptions,
    earlier: EarlierJob<'_>,
    start_dir: PathBuf,
    front_end: &dyn FrontEnd,
) -> anyhow::Result<Plan> {
    let EarlierJob { job, spec: old } = earlier;
    let state_dir = state_dir::state_dir(options.state.as_deref())?;
    let new_files = paths::files(&options.file, &start_dir)?;
    let mut files = merged_files(&old.files, new_files);
    let mut env = old.env.clone();
    add_variables(&mut env, &options.env)?;
    check_environment(&env)?;
    let output = output(&options, &start_dir)?;
    let written = options.reducer.map(|text| FunctionText { text, dir: start_dir.clone() });
    let mut reducer = function("--reducer", written.as_ref(), &files)?;
    if let Some(function) = &reducer {
        check_reducer(function, &files, &start_dir, options.in_cluster, &env)?;
    }
    check_combined(job, old, reducer.as_ref())?;
    let mut streaming = old.streaming.clone();
    let links = streaming.iter_mut().flat_map(|streaming| &mut streaming.links).map(|link| &mut link.path);
    let mut pinning = Pinning::new(front_end, &state_dir);
    // Those of the earlier job keep their versions.
    pinning.pin_files("--file", files.iter_mut().chain(links))?;
    pinning.pin_function("--reducer", reducer.as_mut())?;
    let pinned = pinning.finish();
    let memory_bytes = match &options.memory {
        Some(text) => memory_size::parse(text).with_context(|| format!("--memory {text:?}"))?,
        None => old.memory_bytes,
    };
    let slots = options.slots.unwrap_or(old.slots);
    ensure!((1..=SLOTS_MAX).contains(&slots), "--slots {slots} is out of range: give 1 to {SLOTS_MAX}");
    let disks = match options.disk.is_empty() {
        true => old.disks.clone(),
        false => paths::disks(&options.disk, &start_dir)?,
    };
    let spec = JobSpec {
        name: options.name.unwrap_or_else(|| paths::name_of(&output)),
        kind: MapReduce::ReduceAgain { source: job }.into(),
        // The job reads only I-files; the report names their job.
        inputs: Vec::new(),
        reducer,
        output,
        overwrite: options.overwrite,
        memory_bytes,
        slots,
        disks,
        files,
        env,
        keep_ifiles: false,
        keep_seconds: None,
        shipped: Vec::new(),
        pinned: pinned.files,
        streaming,
        sync: !options.no_sync,
        layout: again_layout(old, memory_bytes, slots)?,
        ..old.clone()
    };
    let (splits, json) = (Vec::new(), options.json);
    let held = Held { stored_pins: pinned.pins, ..Held::default() };
    Ok(Plan { spec, splits, state_dir, start_dir, json, held })
}

/// Returns an error for a reducer that cannot run.
fn check_reducer(
    reducer: &Function,
    files: &[PathBuf],
    start_dir: &Path,
    in_cluster: bool,
    env: &[(String, String)],
) -> anyhow::Result<()> {
    functions::check_reducer(reducer).context("--reducer")?;
    let Function::Command { words } = reducer else { return Ok(()) };
    // In a cluster, a bare name is resolved on the nodes.
    let is_here = !in_cluster || words[0].contains('/');
    if !is_here || is_pinned(&words[0], files) {
        return Ok(());
    }
    program::check_program(words, files, start_dir, env).map_err(|error| {
        anyhow!("--reducer: {error}; give the path of an executable file, or ship it with --file")
    })
}

/// Returns the output directory; in a cluster, the name of a stored file is one too.
fn output(options: &RerunOptions, start_dir: &Path) -> anyhow::Result<PathBuf> {
    let is_stored = api::is_stored_output(&options.output);
    ensure!(
        !is_stored || options.in_cluster,
        "--output {}: kept I-files of this machine are reduced into a directory; put it with `sailfish files put`",
        options.output.display()
    );
    if is_stored {
        return Ok(options.output.clone());
    }
    let existing = if options.overwrite { ExistingOutput::Replace } else { ExistingOutput::Refuse };
    paths::output(&options.output, start_dir, existing)
}

/// Returns the layout of the new job. Shares follow from the current memory; sizes of data on disk stay as they are.
fn again_layout(old: &JobSpec, memory_bytes: u64, slots: u32) -> anyhow::Result<Layout> {
    let input_bytes = old.inputs.iter().map(|input| input.size_bytes).sum();
    let derived = layout::derive(&LayoutRequest { memory_bytes, slots, input_bytes, combines: false })?;
    Ok(Layout { ifile_count: old.layout.ifile_count, chunk_bytes: old.layout.chunk_bytes, ..derived })
}

/// Returns the files of the old job, except those that a new file of the same name replaces.
fn merged_files(old: &[PathBuf], new: Vec<PathBuf>) -> Vec<PathBuf> {
    let replaced = |file: &&PathBuf| !new.iter().any(|other| name_beside(other) == name_beside(file));
    let mut files: Vec<PathBuf> = old.iter().filter(replaced).cloned().collect();
    files.extend(new);
    files
}

/// Returns an error for a built-in reducer that would silently fold partial results of a different combiner.
fn check_combined(job: JobId, old: &JobSpec, reducer: Option<&Function>) -> anyhow::Result<()> {
    let (Some(combiner), Some(reducer @ Function::Builtin { .. })) = (&old.combiner, reducer) else {
        return Ok(());
    };
    if combiner == reducer || needs_only_keys(combiner, reducer) {
        return Ok(());
    }
    bail!(
        "--reducer {}: job {job} combined the output of its maps with {}, so its I-files hold partial \
         results instead of the values; run the maps again without combining (a job without --reducer, \
         with --keep-ifiles, keeps every value)",
        reducer.display(),
        combiner.display(),
    );
}

/// Returns whether the reducer needs only keys. A built-in combiner keeps every key, and `unique` reads nothing else.
fn needs_only_keys(combiner: &Function, reducer: &Function) -> bool {
    let unique = Function::Builtin { name: "unique".to_string(), argument: None };
    matches!(combiner, Function::Builtin { .. }) && *reducer == unique
}

/// Returns a note for the user if the reducer reads values that the combiner has folded. None if there is no combiner,
/// or if the reducer is the old one, the combiner itself, or one that needs only keys.
pub fn note_on_partial_values(old: &JobSpec, reducer: Option<&Function>) -> Option<String> {
    let combiner = old.combiner.as_ref()?;
    let as_before = reducer == old.reducer.as_ref() || reducer == Some(combiner);
    let as_before = as_before || reducer.is_some_and(|reducer| needs_only_keys(combiner, reducer));
    (!as_before)
        .then(|| format!("combined with {}: the reducer reads its partial results", combiner.display()))
}

#[cfg(test)]
mod tests {
    use super::{merged_files, needs_only_keys};
    use api::Function;
    use std::path::PathBuf;

    #[test]
    fn new_files_win() {
        let old = [PathBuf::from("/a/reduce.py"), PathBuf::from("/a/words")];
        let files = merged_files(&old, vec![PathBuf::from("/b/reduce.py")]);
        assert_eq!(files, [PathBuf::from("/a/words"), PathBuf::from("/b/reduce.py")]);
        let files = merged_files(&["files:a/reduce.py@3".into()], vec!["files:b/reduce.py".into()]);
        assert_eq!(files, [PathBuf::from("files:b/reduce.py")]);
    }

    #[test]
    fn a_builtin_never_folds_partial_results_of_another() {
        let check = |combiner: &str, reducer: &str, expected| {
            let function = |text: &str| Function::parse(text).unwrap();
            assert_eq!(needs_only_keys(&function(combiner), &function(reducer)), expected);
        };
        check("builtin:sum", "builtin:unique", true);
        check("./combine", "builtin:unique", false);
        check("builtin:sum", "builtin:count", false);
        check("builtin:unique", "builtin:max", false);
    }
}
