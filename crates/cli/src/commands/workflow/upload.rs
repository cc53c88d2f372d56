//! `sailfish workflow run --upload`: the nodes of a server do not see the files of this machine. Inputs become stored files
//! of the cluster, outputs too, and `--fetch` brings these back to their paths.

use crate::commands::files;
use crate::engine::step_outputs::content_of;
use crate::exit::Failure;
use crate::options::connect::Site;
use crate::show::quantity::counted;
use crate::show::terminal::tell;
use anyhow::{Context, anyhow};
use api::job::workflow::{WorkflowSpec, WorkflowStep};
use api::task::{RunTask, TaskFile, is_stored_name};
use api::{STORED_PREFIX, StoredContent};
use clusterfiles::ClusterFiles;
use filestore::{PutOptions, PutSource, StoredTree};
use filetransfer::{Links, RecordEnds, Target, Watch};
use filetree::{TreeName, TreePath};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

/// Directory of the stored files of all workflows.
const RUNS: &str = "runs";
/// Digits of the hash that tells workflows of equally named directories apart.
const HASH_DIGITS: usize = 8;
/// Bytes that are read at once.
const BUFFER_BYTES: usize = 1 << 20;
/// Threads of a transfer, which waits for nodes most of the time.
const THREADS: usize = 4;

/// A workflow whose files are stored in the cluster.
pub struct Uploaded {
    tree: ClusterFiles,
    /// Directory of its stored files.
    root: String,
    /// Outputs that stay, by their plain paths.
    outputs: BTreeMap<PathBuf, TreePath>,
}

/// Puts the inputs of a workflow that no step makes, as far as their contents have changed, and lets its steps read and
/// write stored files.
pub fn upload(site: &Site, spec: &mut WorkflowSpec) -> Result<Uploaded, Failure> {
    if let Some(step) = spec.steps.iter().find(|step| step.job.is_some()) {
        let message = "is a MapReduce job, and the server must see its files: leave out --upload";
        return Err(Failure::refused(anyhow!("the step {:?} {message}", step.name)));
    }
    let dir = spec.steps.first().map(|step| step.program.directory.clone()).unwrap_or_default();
    spec.steps.iter_mut().try_for_each(add_program).map_err(Failure::refused)?;
    let root = root_of(&dir);
    let written: BTreeSet<PathBuf> = paths(spec, |program| &program.outputs).collect();
    let read: BTreeSet<PathBuf> = paths(spec, |program| &program.inputs).collect();
    let names = |path: &PathBuf| Ok((path.clone(), stored_name(&root, &dir, path)?));
    let names: anyhow::Result<BTreeMap<PathBuf, PathBuf>> = read.union(&written).map(names).collect();
    let names = names.map_err(Failure::refused)?;
    let mut outputs = BTreeMap::new();
    for output in
        spec.steps.iter().flat_map(|step| &step.program.outputs).filter(|output| !output.is_stored())
    {
        if !output.temporary || !read.contains(&output.path) {
            outputs.insert(output.path.clone(), tree_path(&names[&output.path])?);
        }
    }
    let credentials = site.credentials.read(&site.url)?;
    let user = std::env::var("USER").unwrap_or_default();
    let tree = ClusterFiles::connect(&site.url, &credentials, &user).map_err(files::failure)?;
    let (mut put_count, mut same_count) = (0, 0);
    for path in read.difference(&written) {
        match put_if_changed(&tree, path, &tree_path(&names[path])?)? {
            Upload::Put => put_count += 1,
            Upload::Unchanged => same_count += 1,
        }
    }
    tell(&format!(
        "sailfish: {} put below {STORED_PREFIX}{root}, {same_count} unchanged",
        counted(put_count, "file")
    ));
    for step in &mut spec.steps {
        let program = &mut step.program;
        for file in program.inputs.iter_mut().chain(&mut program.outputs) {
            if let Some(name) = names.get(&file.path) {
                file.path.clone_from(name);
            }
        }
    }
    Ok(Uploaded { tree, root, outputs })
}

/// Returns the plain paths of files of all programs.
fn paths<'a>(
    spec: &'a WorkflowSpec,
    files: impl Fn(&'a RunTask) -> &'a Vec<TaskFile>,
) -> impl Iterator<Item = PathBuf> {
    let all = spec.steps.iter().flat_map(move |step| files(&step.program));
    all.filter(|file| !file.is_stored()).map(|file| file.path.clone())
}

/// Adds a program below the directory of the workflow to the inputs of its step: the nodes do not see that directory.
fn add_program(step: &mut WorkflowStep) -> anyhow::Result<()> {
    let program = &mut step.program;
    let place = program.place();
    let word = Path::new(&place.word);
    let path = program.directory.join(word);
    let is_of_workflow =
        word.is_relative() && path.is_file() && (place.word.contains('/') || !is_in_path(word));
    if is_of_workflow && place.input.is_none() {
        if word.components().any(|part| part == Component::ParentDir) {
            return Err(anyhow!(
                "the step {:?} runs {}: give a program below the directory of the workflow, without `..`",
                step.name,
                word.display()
            ));
        }
        let name: PathBuf = word.components().filter(|part| matches!(part, Component::Normal(_))).collect();
        let path = program.directory.join(&name);
        program.inputs.push(TaskFile { name, path, ..TaskFile::default() });
    }
    if program.inputs.is_empty() && program.outputs.is_empty() {
        return Err(anyhow!(
            "the step {:?} names no file, and the nodes do not see the directory of the workflow: give it an input or an \
             output, or leave out --upload",
            step.name
        ));
    }
    Ok(())
}

/// Returns whether a bare name is found in PATH here, as it is on the nodes.
fn is_in_path(word: &Path) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(word).is_file())
}

/// Returns the directory for the stored files of workflows in a directory of this machine: workflows there share plain
/// files, and so they share stored ones.
fn root_of(dir: &Path) -> String {
    let hash = shipped::hash_of(dir.as_os_str().as_encoded_bytes()).to_string();
    let plain = |each: char| if each.is_ascii_alphanumeric() || "._-".contains(each) { each } else { '_' };
    let name: String =
        dir.file_name().unwrap_or_default().to_string_lossy().chars().map(plain).take(64).collect();
    format!("{RUNS}/{name}-{}", &hash[..HASH_DIGITS])
}

/// Returns the name of the stored file that stands for a plain one.
fn stored_name(root: &str, dir: &Path, path: &Path) -> anyhow::Result<PathBuf> {
    let text = path.to_str().with_context(|| format!("{} has a name that is not UTF-8", path.display()))?;
    let name = match path.strip_prefix(dir).ok().and_then(Path::to_str) {
        Some(below) => format!("{STORED_PREFIX}{root}/{below}"),
        None => format!("{STORED_PREFIX}{root}.elsewhere{text}"),
    };
    match is_stored_name(Path::new(&name)) {
        true => Ok(PathBuf::from(name)),
        false => Err(anyhow!(
            "{text} cannot become a stored file: a part of it ends like a version (`@` and digits), or begins with `files:`"
        )),
    }
}

fn tree_path(name: &Path) -> Result<TreePath, Failure> {
    let text = name.to_string_lossy();
    let parsed = TreeName::parse(&text).with_context(|| format!("{text} is no name of a stored file"));
    parsed.map(|name| name.path).map_err(Failure::refused)
}

enum Upload {
    Put,
    Unchanged,
}

/// Puts a file unless the name has the same bytes.
fn put_if_changed(tree: &ClusterFiles, path: &Path, name: &TreePath) -> Result<Upload, Failure> {
    let stored = content_of(tree, name.clone()).map_err(files::failure)?;
    if let Some(stored) = stored
        && has_content(path, &stored)
            .with_context(|| format!("reading {}", path.display()))
            .map_err(Failure::refused)?
    {
        return Ok(Upload::Unchanged);
    }
    let options = PutOptions {
        parts: None,
        records: RecordEnds::Bytes,
        hash_by: None,
        links: Links::Followed,
        skip_unsuitable: false,
        keep_versions: 1,
        ttl: None,
        replicas: None,
        threads: THREADS,
    };
    let put = tree.put(PutSource::Path(path), name, &options, &Watch::default(), &mut |_| {});
    put.map_err(files::failure)?;
    Ok(Upload::Put)
}

/// Returns whether a file has these bytes: its size, and the checksum of each part.
fn has_content(path: &Path, content: &StoredContent) -> std::io::Result<bool> {
    let mut file = File::open(path)?;
    if file.metadata()?.len() != content.bytes() {
        return Ok(false);
    }
    let mut buffer = vec![0; BUFFER_BYTES];
    for part in &content.parts {
        let (mut left_bytes, mut sum) = (part.bytes, 0);
        while left_bytes > 0 {
            let wanted = buffer.len().min(usize::try_from(left_bytes).unwrap_or(usize::MAX));
            let count = file.read(&mut buffer[..wanted])?;
            if count == 0 {
                return Ok(false);
            }
            sum = crc32c::crc32c_append(sum, &buffer[..count]);
            left_bytes -= count as u64;
        }
        if sum != part.crc32c {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Uploaded {
    /// Brings the outputs that stay to their paths, as far as their contents differ. Each file is verified, and gets its
    /// name when it is complete.
    pub fn fetch(&self) -> Result<(), Failure> {
        let (mut got_count, mut same_count) = (0, 0);
        for (path, name) in &self.outputs {
            let stored = content_of(&self.tree, name.clone()).map_err(files::failure)?;
            if stored.is_some_and(|stored| has_content(path, &stored).unwrap_or(false)) {
                same_count += 1;
                continue;
            }
            if let Some(above) = path.parent() {
                let made = std::fs::create_dir_all(above);
                made.with_context(|| format!("creating {}", above.display())).map_err(Failure::refused)?;
            }
            let name = TreeName { path: name.clone(), version: None };
            let target = Target { path: path.clone(), overwrite: true };
            self.tree.get(&name, &target, THREADS, &Watch::default()).map_err(files::failure)?;
            got_count += 1;
        }
        tell(&format!("sailfish: {} fetched, {same_count} unchanged", counted(got_count, "output")));
        Ok(())
    }

    /// Tells where the outputs are.
    pub fn tell_outputs(&self) {
        if !self.outputs.is_empty() {
            let root = &self.root;
            tell(&format!(
                "sailfish: its outputs are stored below {STORED_PREFIX}{root}: --fetch brings them here"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{has_content, root_of, stored_name};
    use api::{StoredContent, StoredPart};
    use ids::ConcreteId;
    use std::path::Path;

    #[test]
    fn plain_files_get_names_of_their_workflow() {
        let dir = Path::new("/data/ann/my words");
        let root = root_of(dir);
        assert!(
            root.starts_with("runs/my_words-") && root != root_of(Path::new("/data/bob/my words")),
            "{root}"
        );
        let check = |path: &str, expected: &str| {
            let name = stored_name(&root, dir, Path::new(path)).unwrap();
            assert_eq!(name, Path::new(&expected.replace("ROOT", &root)), "{path}");
        };
        check("/data/ann/my words/in/a b", "files:ROOT/in/a b");
        check("/data/ann/my words.txt", "files:ROOT.elsewhere/data/ann/my words.txt");
        for path in ["/data/ann/my words/a@3", "/data/ann/my words/files:a"] {
            assert!(stored_name(&root, dir, Path::new(path)).is_err(), "{path}");
        }
    }

    #[test]
    fn contents_are_compared_by_their_parts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "one two").unwrap();
        let part = |text: &str| StoredPart {
            concrete: ConcreteId(1),
            bytes: text.len() as u64,
            crc32c: crc32c::crc32c(text.as_bytes()),
        };
        let check = |parts: &[&str], expected: bool| {
            let content = StoredContent { parts: parts.iter().map(|text| part(text)).collect() };
            assert_eq!(has_content(&path, &content).unwrap(), expected, "{parts:?}");
        };
        check(&["one", " two"], true);
        check(&["one two"], true);
        check(&["one", " twO"], false);
        check(&["one"], false);
        check(&[], false);
    }
}
