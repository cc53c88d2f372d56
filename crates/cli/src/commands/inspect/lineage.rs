//! `sailfish lineage`: the finished runs behind a file, and those that read it.

use crate::engine::store;
use crate::exit::Failure;
use crate::options::connect::StateArgs;
use crate::show::escape;
use crate::show::quantity::{self, count, counted};
use crate::show::tables::{left, right, table};
use crate::show::terminal::print;
use anyhow::Context;
use api::history::lineage::{Lineage, LineageDirection, LineageFile, LineageQuestion, LineageRun};
use api::job::workflow::{WorkflowSpec, WorkflowStep};
use api::task::{RunTask, TaskFile, is_stored_path};
use clap::Args;
use metastore::Metastore;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Maximum number of files in a cell.
const FILES_SHOWN_MAX: usize = 4;
/// Largest file that is read to find it by its content.
const HASHED_BYTES_MAX: u64 = 16 << 30;

#[derive(Debug, Args)]
pub struct LineageArgs {
    /// File that a step of a workflow wrote or read
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Show the runs and files from which it was made [default]
    #[arg(long, conflicts_with = "down")]
    pub up: bool,
    /// Show the runs and files that were made from it: these must run again if it changes
    #[arg(long)]
    pub down: bool,
    #[command(flatten)]
    pub from: StateArgs,
    /// Print JSON
    #[arg(long, conflicts_with = "svg")]
    pub json: bool,
    /// Print a drawing of the steps
    #[arg(long)]
    pub svg: bool,
}

/// Prints a line for each run.
pub fn run(args: &LineageArgs) -> Result<(), Failure> {
    let direction = if args.down { LineageDirection::Down } else { LineageDirection::Up };
    let lineage = lineage(&args.from, &args.file, direction)?;
    if args.json {
        let text = serde_json::to_string_pretty(&lineage).context("writing JSON")?;
        return Ok(print(&format!("{text}\n"))?);
    }
    if lineage.runs.is_empty() {
        let (path, did) = (args.file.display(), if args.down { "read" } else { "wrote" });
        return Err(Failure::refused(anyhow::anyhow!("no finished run is known that {did} {path}")));
    }
    if args.svg {
        let drawing = workflowfile::plot(&as_workflow(&lineage.runs)).map_err(anyhow::Error::msg);
        return Ok(print(&drawing.map_err(Failure::refused)?)?);
    }
    Ok(print(&text(&lineage, direction))?)
}

/// Returns the runs as the steps of a workflow, for a drawing.
fn as_workflow(runs: &[LineageRun]) -> WorkflowSpec {
    let nearest = runs.iter().flat_map(|run| &run.outputs).find_map(|output| output.path.parent());
    let base = nearest.unwrap_or(Path::new("/"));
    let file = |file: &LineageFile| {
        let below = file.path.strip_prefix(base).or_else(|_| file.path.strip_prefix("/"));
        let name = below.unwrap_or(&file.path).to_path_buf();
        let temporary = file.sha256.is_none() && !is_stored_path(&file.path);
        TaskFile { name, path: file.path.clone(), temporary, ..TaskFile::default() }
    };
    let step = |run: &LineageRun| {
        let words = run.executables.iter().map(|file| file.path.display().to_string()).collect();
        let (inputs, outputs) =
            (run.inputs.iter().map(file).collect(), run.outputs.iter().map(file).collect());
        let program = RunTask { words, inputs, outputs, ..RunTask::default() };
        WorkflowStep {
            name: format!("{} (job {})", run.step, run.job),
            program,
            after: Vec::new(),
            job: None,
        }
    };
    WorkflowSpec { steps: runs.iter().map(step).collect(), only_judges: false }
}

/// Asks for the lineage of a file.
pub fn lineage(from: &StateArgs, file: &Path, direction: LineageDirection) -> Result<Lineage, Failure> {
    let path = absolute(file).map_err(Failure::refused)?;
    let sha256 = match std::fs::metadata(&path) {
        Ok(facts) if facts.is_file() && facts.len() <= HASHED_BYTES_MAX => {
            let hashed = shipped::hash_file(&path).with_context(|| format!("reading {}", path.display()));
            Some(hashed.map_err(Failure::refused)?.0)
        }
        _ => None,
    };
    let real_path = path.canonicalize().ok().filter(|real| *real != path);
    let question = LineageQuestion { path, real_path, direction, sha256 };
    if let Some(connection) = from.connection()? {
        return connection.run(async |client| client.lineage(&question).await).map_err(Failure::from_client);
    }
    store::look(from.state.as_deref(), async |store: Metastore| {
        Ok(server::lineage(&store, None, &question).await?)
    })
}

/// Returns the path as steps have it: a stored file as it is, others absolute, and below the real path of its directory.
fn absolute(file: &Path) -> anyhow::Result<PathBuf> {
    if is_stored_path(file) {
        return Ok(file.to_path_buf());
    }
    let path = std::path::absolute(file).with_context(|| format!("finding {}", file.display()))?;
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Ok(path) };
    Ok(above.canonicalize().map_or_else(|_| path.clone(), |above| above.join(name)))
}

fn text(lineage: &Lineage, direction: LineageDirection) -> String {
    let near = |path: &Path| {
        let here = std::env::current_dir().ok().and_then(|dir| dir.canonicalize().ok());
        let short = here.and_then(|dir| path.strip_prefix(dir).ok().map(Path::to_path_buf));
        escape::cell(&short.unwrap_or(path.to_path_buf()).display().to_string())
    };
    let files = |files: &[LineageFile]| {
        let mut names: Vec<String> =
            files.iter().take(FILES_SHOWN_MAX).map(|file| near(&file.path)).collect();
        if files.len() > FILES_SHOWN_MAX {
            names.push(format!("{} more", count((files.len() - FILES_SHOWN_MAX) as u64)));
        }
        names.join(", ")
    };
    let row = |run: &LineageRun| {
        let ended = quantity::date_and_time(run.ended_ns);
        let (step, job) = (escape::cell(&run.step), run.job.to_string());
        vec![count(run.distance.into()), step, job, ended, files(&run.inputs), files(&run.outputs)]
    };
    let columns = [right("distance"), left("step"), right("job"), left("ended"), left("read"), left("wrote")];
    let mut text = table(&columns, lineage.runs.iter().map(row).collect());
    if direction == LineageDirection::Up {
        let (mut read, mut wrote) = (BTreeSet::new(), BTreeSet::new());
        for run in &lineage.runs {
            read.extend(run.inputs.iter().map(|file| file.path.as_path()));
            wrote.extend(run.outputs.iter().map(|file| file.path.as_path()));
        }
        let sources: Vec<String> = read.difference(&wrote).map(|path| near(path)).collect();
        text.push_str(&format!("made from {}\n", sources.join(", ")));
    } else {
        let steps = counted(lineage.runs.len() as u64, "step");
        text.push_str(&format!("{steps} must run again if it changes\n"));
    }
    if lineage.is_cut {
        text.push_str("there are more runs, which are not listed\n");
    }
    text
}
