//! The lineage of a file, from the remembered runs of steps.

use api::history::lineage::{
    LINEAGE_RUNS_MAX, Lineage, LineageDirection, LineageFile, LineageQuestion, LineageRun,
};
use api::stored::of_partition;
use api::task::{FileContent, RecordedRun, is_stored_path};
use ids::JobId;
use metastore::{FinishedRunRow, Metastore, StoreError};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use tokio::sync::Semaphore;

/// Maximum number of files of the runs that are read.
const FILES_MAX: usize = 2_000_000;

/// Each question may take much memory: they are answered one after the other.
static TURN: Semaphore = Semaphore::const_new(1);

/// Returns the lineage of a file. `user`: only runs of this user are looked at.
pub async fn lineage(
    store: &Metastore,
    user: Option<&str>,
    question: &LineageQuestion,
) -> Result<Lineage, StoreError> {
    let _turn = TURN.acquire().await;
    let (mut graph, mut after) = (RunGraph::default(), None);
    loop {
        let (rows, last) = store.finished_runs_after(user, after).await?;
        rows.into_iter().for_each(|row| graph.add(row));
        if last.is_none() || graph.files >= FILES_MAX {
            let mut lineage = graph.lineage(question);
            lineage.is_cut |= last.is_some();
            return Ok(lineage);
        }
        after = last;
    }
}

/// Returns the remembered runs of the steps of a job, the oldest job first. Runs that stood for its other steps, and those
/// of steps that have run again since, are not among them.
pub async fn runs_of_steps(store: &Metastore, job: JobId) -> Result<Lineage, StoreError> {
    let rows = store.finished_runs_of(job, LINEAGE_RUNS_MAX as u32 + 1).await?;
    let mut runs: Vec<LineageRun> = rows.into_iter().map(run_of).collect();
    let is_cut = runs.len() > LINEAGE_RUNS_MAX;
    runs.truncate(LINEAGE_RUNS_MAX);
    Ok(Lineage { was_at: None, runs, is_cut })
}

/// Runs by the files that they read and wrote.
#[derive(Default)]
struct RunGraph {
    runs: Vec<LineageRun>,
    writers: BTreeMap<PathBuf, usize>,
    readers: BTreeMap<PathBuf, Vec<usize>>,
    /// Number of files of all runs.
    files: usize,
}

impl RunGraph {
    fn add(&mut self, row: FinishedRunRow) {
        let index = self.runs.len();
        let run = &row.run.run;
        self.files += 1 + run.executables.len() + run.paths().count();
        for output in &run.outputs {
            // Two steps may have written one path; the later run made the present file.
            let writer = self.writers.entry(output.path.clone()).or_insert(index);
            if *writer != index && self.runs[*writer].ended_ns <= row.ended_ns {
                *writer = index;
            }
        }
        // A change of a program makes its steps run again, as that of an input does.
        for read in run.inputs.iter().chain(&run.environment).chain(&run.executables) {
            for path in std::iter::once(&read.path).chain(&read.real_path) {
                self.readers.entry(whole(path).to_path_buf()).or_default().push(index);
            }
        }
        self.runs.push(run_of(row));
    }

    /// Returns the paths by which a file is known, or else the path of a file with its content: it was moved since.
    fn known_as(&self, question: &LineageQuestion) -> Vec<PathBuf> {
        let is_known = |path: &&PathBuf| self.writers.contains_key(*path) || self.readers.contains_key(*path);
        let paths = std::iter::once(&question.path).chain(&question.real_path);
        let known: Vec<PathBuf> = paths.filter(is_known).cloned().collect();
        if !known.is_empty() {
            return known;
        }
        let same = |file: &&LineageFile| file.sha256.is_some() && file.sha256 == question.sha256;
        let mut files = self.runs.iter().flat_map(|run| run.outputs.iter().chain(&run.inputs));
        files.find(same).map(|file| file.path.clone()).into_iter().collect()
    }

    fn next(&self, path: &Path, direction: LineageDirection) -> Vec<usize> {
        match direction {
            LineageDirection::Up => self.writers.get(whole(path)).copied().into_iter().collect(),
            LineageDirection::Down => self.readers.get(whole(path)).cloned().unwrap_or_default(),
        }
    }

    fn lineage(&self, question: &LineageQuestion) -> Lineage {
        let paths = self.known_as(question);
        let asked = |path: &PathBuf| *path == question.path || Some(path) == question.real_path.as_ref();
        let was_at = paths.first().filter(|path| !asked(path)).cloned();
        let (mut seen, mut runs) = (BTreeSet::new(), Vec::new());
        let mut files: VecDeque<(PathBuf, u32)> = paths.into_iter().map(|path| (path, 0)).collect();
        while let Some((file, distance)) = files.pop_front() {
            for index in self.next(&file, question.direction) {
                if !seen.insert(index) {
                    continue;
                }
                let run = &self.runs[index];
                if runs.len() == LINEAGE_RUNS_MAX {
                    return Lineage { was_at, runs, is_cut: true };
                }
                runs.push(LineageRun { distance, ..run.clone() });
                let further = match question.direction {
                    LineageDirection::Up => run.inputs.iter().chain(&run.executables),
                    LineageDirection::Down => run.outputs.iter().chain(&[]),
                };
                let paths = further.flat_map(|file| std::iter::once(&file.path).chain(&file.real_path));
                files.extend(paths.map(|path| (path.clone(), distance + 1)));
            }
        }
        Lineage { was_at, runs, is_cut: false }
    }
}

/// Returns the file of which a run read a partition, or else the path.
fn whole(path: &Path) -> &Path {
    of_partition(path).map_or(path, |(file, _)| file)
}

fn run_of(row: FinishedRunRow) -> LineageRun {
    let FinishedRunRow { user, job, ended_ns, run: RecordedRun { step, run, .. }, .. } = row;
    let inputs = run.inputs.into_iter().chain(run.environment).map(file).collect();
    let user = Some(user).filter(|user| !user.is_empty());
    let executables = run.executables.into_iter().map(file).collect();
    let outputs = run.outputs.into_iter().map(file).collect();
    LineageRun { step, job, user, ended_ns, distance: 0, executables, inputs, outputs }
}

fn file(file: FileContent) -> LineageFile {
    // The identity of a stored file is no hash of its bytes.
    let sha256 = file.sha256.filter(|_| !is_stored_path(&file.path));
    LineageFile { path: file.path, real_path: file.real_path, sha256, bytes: file.bytes }
}

#[cfg(test)]
mod tests {
    use super::RunGraph;
    use api::ContentHash;
    use api::history::lineage::{LineageDirection, LineageQuestion};
    use api::task::{FileContent, FinishedRun, RecordedRun};
    use ids::JobId;
    use metastore::FinishedRunRow;

    fn file(path: &str) -> FileContent {
        let sha256 = Some(ContentHash([path.len() as u8; 32]));
        FileContent {
            path: path.into(),
            real_path: None,
            sha256,
            bytes: 1,
            stamp: None,
            made_by: None,
            stored: None,
            compression: None,
        }
    }

    fn row(step: &str, inputs: &[&str], outputs: &[&str]) -> FinishedRunRow {
        let files = |paths: &[&str]| paths.iter().map(|path| file(path)).collect::<Vec<_>>();
        let run = FinishedRun { inputs: files(inputs), outputs: files(outputs), ..FinishedRun::default() };
        let hash = ContentHash([0; 32]);
        let run = RecordedRun {
            rules: 1,
            step: step.to_string(),
            words: hash,
            env: hash,
            identity: hash,
            waits: None,
            run,
        };
        let path = outputs[0].to_string();
        FinishedRunRow { user: String::new(), path, job: JobId(0), ended_ns: 0, run }
    }

    fn graph(runs: &[(&str, &[&str], &[&str])]) -> RunGraph {
        let mut graph = RunGraph::default();
        for (number, (step, inputs, outputs)) in runs.iter().enumerate() {
            let (job, ended_ns) = (JobId(number as i64), number as u64);
            graph.add(FinishedRunRow { job, ended_ns, ..row(step, inputs, outputs) });
        }
        graph
    }

    fn ask(graph: &RunGraph, path: &str, direction: LineageDirection) -> Vec<(String, u32)> {
        let sha256 = Some(ContentHash([path.len() as u8; 32]));
        let lineage =
            graph.lineage(&LineageQuestion { path: path.into(), real_path: None, direction, sha256 });
        lineage.runs.into_iter().map(|run| (run.step, run.distance)).collect()
    }

    #[test]
    fn readers_of_partitions_read_the_file() {
        let graph = graph(&[
            ("put", &["/in"], &["files:day"]),
            ("first", &["files:day/@0"], &["/0"]),
            ("second", &["files:day/@1"], &["/1"]),
        ]);
        let down = ask(&graph, "files:day", LineageDirection::Down);
        assert_eq!(down, [("first".to_string(), 0), ("second".to_string(), 0)]);
        let up = ask(&graph, "/1", LineageDirection::Up);
        assert_eq!(up, [("second".to_string(), 0), ("put".to_string(), 1)]);
    }

    #[test]
    fn lineage_follows_files_both_ways() {
        let graph = graph(&[
            ("a", &["/in"], &["/a", "/log"]),
            ("b", &["/a", "/more"], &["/bb"]),
            ("c", &["/a", "/bb"], &["/c"]),
            ("other", &["/else"], &["/other"]),
        ]);
        let named = |names: &[(&str, u32)]| {
            names.iter().map(|(name, distance)| (name.to_string(), *distance)).collect::<Vec<_>>()
        };
        let (up, down) = (LineageDirection::Up, LineageDirection::Down);
        assert_eq!(ask(&graph, "/c", up), named(&[("c", 0), ("a", 1), ("b", 1)]));
        assert_eq!(ask(&graph, "/in", down), named(&[("a", 0), ("b", 1), ("c", 1)]));
        assert_eq!(ask(&graph, "/in", up), []);
        assert_eq!(ask(&graph, "/more", down), named(&[("b", 0), ("c", 1)]));
        // The file was moved: its content is that of `/other`.
        assert_eq!(ask(&graph, "/moved", up), named(&[("other", 0)]));
    }

    #[test]
    fn links_and_programs_lead_to_their_readers() {
        let mut graph =
            graph(&[("tool", &["/c"], &["/tool"]), ("a", &["/link"], &["/a"]), ("b", &["/in"], &["/b"])]);
        let (mut row, down) = (row("late", &["/linked/x"], &["/y"]), LineageDirection::Down);
        row.run.run.executables = vec![file("/tool")];
        row.run.run.inputs[0].real_path = Some("/x".into());
        graph.add(row);
        let both = [("tool".to_string(), 0), ("late".to_string(), 1)];
        assert_eq!(ask(&graph, "/c", down), both);
        assert_eq!(
            ask(&graph, "/y", LineageDirection::Up),
            [("late".to_string(), 0), ("tool".to_string(), 1)]
        );
        assert_eq!(ask(&graph, "/x", down), [("late".to_string(), 0)]);
        assert_eq!(ask(&graph, "/linked/x", down), [("late".to_string(), 0)]);
        // `/link` leads to `/in` now.
        let (path, real_path) = ("/link".into(), Some("/in".into()));
        let asked = LineageQuestion { path, real_path, direction: down, sha256: None };
        let lineage = graph.lineage(&asked);
        let names: Vec<String> = lineage.runs.into_iter().map(|run| run.step).collect();
        assert_eq!((names, lineage.was_at), (vec!["a".to_string(), "b".to_string()], None));
    }

    #[test]
    fn later_run_made_the_present_file() {
        let graph = graph(&[("early", &["/in"], &["/x", "/out"]), ("late", &["/else"], &["/out"])]);
        assert_eq!(ask(&graph, "/out", LineageDirection::Up), [("late".to_string(), 0)]);
    }
}
