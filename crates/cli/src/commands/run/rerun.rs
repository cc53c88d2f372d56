//! `sailfish rerun-reduce JOB`: a job that begins where the maps of an earlier one ended.

use crate::commands::run;
use crate::engine::machine;
use crate::engine::store;
use crate::exit::Failure;
use crate::options::connect::StateArgs;
use crate::show::terminal::tell;
use anyhow::{Context, anyhow, bail, ensure};
use api::{Function, JobSpec, Layout};
use clap::Args;
use ids::JobId;
use jobspec::{FunctionText, Plan, add_variables, memory_size, paths, state_dir};
use mapreduce::layout::{self, LayoutRequest};
use metastore::CLUSTER_OWNER;
use server::{KeptSource, NotReducible, check_reducible, kept_source};
use std::path::PathBuf;

pub const EXAMPLES: &str = "\
The job must have run with --keep-ifiles or --keep-for. Inputs, order, formats, files and environment are those of
that job; its I-files are read and never changed.

Examples:
  sailfish run --input logs/ --mapper 'python3 map.py' --file map.py --keep-for 2d --output pairs
  sailfish rerun-reduce 1 --reducer 'python3 reduce.py' --file reduce.py --output first-try
  sailfish rerun-reduce 1 --reducer builtin:list --output lists";

#[derive(Debug, Default, Args)]
pub struct RerunArgs {
    /// Number of the job whose I-files are kept
    pub job: i64,
    /// Reduce function [default: the sorted pairs are written]
    #[arg(long, value_name = "F")]
    pub reducer: Option<String>,
    /// Output directory; appears whole or not at all
    #[arg(long, value_name = "DIR")]
    pub output: PathBuf,
    /// Name of the new job [default: that of the output]
    #[arg(long)]
    pub name: Option<String>,
    /// Budget of the engine's own buffers, at least 64M [default: that of the job]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// Tasks that run at once, 1 to 1024 [default: as many as in the job]
    #[arg(long, value_name = "N")]
    pub slots: Option<u32>,
    #[command(flatten)]
    pub state: StateArgs,
    /// Directory for extra merge passes and work directories [default: those of the job]
    #[arg(long, value_name = "DIR")]
    pub disk: Vec<String>,
    /// File to put into the directory in which the reducer runs, besides those of the job
    #[arg(long, value_name = "PATH")]
    pub file: Vec<String>,
    /// Environment of the reducer, added to that of the job
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// Exchange an existing output for the new one
    #[arg(long)]
    pub overwrite: bool,
    /// Do not wait for the disk before the output is published
    #[arg(long)]
    pub no_sync: bool,
    /// Print the report as JSON on standard output
    #[arg(long)]
    pub json: bool,
}

/// Checks, submits and waits; ends as `sailfish run` does.
pub fn run(args: RerunArgs) -> Result<(), Failure> {
    machine::raise_open_file_limit();
    let source = source(&args.state, JobId(args.job))?;
    let start_dir = std::env::current_dir().context("finding the current directory")?;
    let site = args.state.site();
    let plan = make_plan(args, &source, start_dir).map_err(Failure::refused)?;
    let old = &source.spec;
    if let Some(note) = note_on_partial_values(old, plan.spec.reducer.as_ref()) {
        tell(&format!("sailfish: note: job {} {note}", source.row.job));
    }
    run::conclude(plan, site.as_ref())
}

/// The job that has the I-files, where it can be reduced again.
fn source(from: &StateArgs, job: JobId) -> Result<KeptSource, Failure> {
    let Some(connection) = from.connection()? else {
        let read = async |store| kept_source(&store, job).await.map_err(Failure::from_server);
        let source = store::look(from.state.as_deref(), read)?;
        return match source.row.owner == CLUSTER_OWNER {
            true => Err(Failure::refused(NotReducible::OfCluster { job: source.row.job })),
            false => Ok(source),
        };
    };
    let ask = |job| connection.run(async |client| client.job(job, 0).await).map_err(Failure::from_client);
    let mut details = ask(job)?;
    // A job that reduces again always names the job that has the files.
    if let Some(source) = details.job.reduce_again {
        details = ask(source)?;
    }
    check_reducible(&details.job, &details.spec, &details.stages).map_err(Failure::refused)?;
    Ok(KeptSource { row: details.job, spec: details.spec })
}

/// The new job: what stands in the I-files and how it is ordered comes from the old one.
fn make_plan(args: RerunArgs, source: &KeptSource, start_dir: PathBuf) -> anyhow::Result<Plan> {
    let old = &source.spec;
    let new_files = paths::files(&args.file, &start_dir)?;
    let files = merged_files(&old.files, new_files);
    let mut env = old.env.clone();
    add_variables(&mut env, &args.env)?;
    jobspec::check_environment(&env)?;
    let written = args.reducer.map(|text| FunctionText { text, dir: start_dir.clone() });
    let reducer = jobspec::function("--reducer", written.as_ref(), &files)?;
    if let Some(function) = &reducer {
        functions::check_reducer(function).context("--reducer")?;
        // Of a cluster, a bare name is looked up on the nodes.
        let is_here = |words: &[String]| args.state.server.is_none() || words[0].contains('/');
        if let Function::Command { words } = function
            && is_here(words)
        {
            program::check_program(words, &files, &start_dir, &env).map_err(|error| {
                anyhow!("--reducer: {error}; give the path of an executable file, or ship it with --file")
            })?;
        }
    }
    check_combined(source.row.job, old, reducer.as_ref())?;
    let memory_bytes = match &args.memory {
        Some(text) => memory_size::parse(text).with_context(|| format!("--memory {text:?}"))?,
        None => old.memory_bytes,
    };
    let slots = args.slots.unwrap_or(old.slots);
    let slots_max = machine::SLOTS_MAX;
    ensure!((1..=slots_max).contains(&slots), "--slots {slots} is out of range: give 1 to {slots_max}");
    let output = paths::output(&args.output, &start_dir, args.overwrite)?;
    let disks = match args.disk.is_empty() {
        true => old.disks.clone(),
        false => paths::disks(&args.disk, &start_dir)?,
    };
    let spec = JobSpec {
        name: args.name.unwrap_or_else(|| paths::name_of(&output)),
        // Nothing is read but I-files; the report names the job they come from.
        inputs: Vec::new(),
        generate: None,
        reducer,
        output,
        overwrite: args.overwrite,
        memory_bytes,
        slots,
        disks,
        files,
        env,
        keep_ifiles: false,
        keep_seconds: None,
        single: None,
        shipped: Vec::new(),
        sync: !args.no_sync,
        layout: again_layout(old, memory_bytes, slots)?,
        reduce_again: Some(source.row.job),
        ..old.clone()
    };
    let state_dir = state_dir::state_dir(args.state.state.as_deref())?;
    let (splits, json) = (Vec::new(), args.json);
    Ok(Plan { spec, splits, state_dir, start_dir, json, standard_output: None, standard_input: None })
}

/// Shares follow from the memory of now; the sizes of what is on disk already are as they are.
fn again_layout(old: &JobSpec, memory_bytes: u64, slots: u32) -> anyhow::Result<Layout> {
    let input_bytes = old.inputs.iter().map(|input| input.size_bytes).sum();
    let derived = layout::derive(&LayoutRequest { memory_bytes, slots, input_bytes, combines: false })?;
    Ok(Layout { ifile_count: old.layout.ifile_count, chunk_bytes: old.layout.chunk_bytes, ..derived })
}

/// Files of the old job, but those that a new one of the same name takes the place of.
fn merged_files(old: &[PathBuf], new: Vec<PathBuf>) -> Vec<PathBuf> {
    let replaced = |file: &&PathBuf| !new.iter().any(|other| other.file_name() == file.file_name());
    let mut files: Vec<PathBuf> = old.iter().filter(replaced).cloned().collect();
    files.extend(new);
    files
}

/// A built-in that folds values of the mapper would fold partial results of another one without a word.
fn check_combined(job: JobId, old: &JobSpec, reducer: Option<&Function>) -> anyhow::Result<()> {
    let (Some(combiner), Some(reducer @ Function::Builtin { .. })) = (&old.combiner, reducer) else {
        return Ok(());
    };
    if combiner == reducer || needs_only_keys(combiner, reducer) {
        return Ok(());
    }
    bail!(
        "--reducer {}: job {job} combined what its maps put out with {}, so its I-files hold partial results and no \
         longer the values themselves; run the maps again without combining (a job without --reducer, with \
         --keep-ifiles, keeps every value)",
        reducer.display(),
        combiner.display(),
    );
}

/// A built-in combiner keeps every key, and `unique` looks at nothing else.
fn needs_only_keys(combiner: &Function, reducer: &Function) -> bool {
    let unique = Function::Builtin { name: "unique".to_string(), argument: None };
    matches!(combiner, Function::Builtin { .. }) && *reducer == unique
}

/// Returns a note for the user if the reducer reads values that the combiner has folded. None if there is no combiner, or if the
/// reducer is the old one, the combiner itself, or one that needs only keys.
fn note_on_partial_values(old: &JobSpec, reducer: Option<&Function>) -> Option<String> {
    let combiner = old.combiner.as_ref()?;
    let as_before = reducer == old.reducer.as_ref() || reducer == Some(combiner);
    let as_before = as_before || reducer.is_some_and(|reducer| needs_only_keys(combiner, reducer));
    (!as_before)
        .then(|| format!("combined with {}: the values read now are its partial results", combiner.display()))
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
