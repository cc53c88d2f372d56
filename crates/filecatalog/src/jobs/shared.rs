//! Stored files that the programs of many tasks open. If at least as many tasks as nodes need a file, each node is told
//! to copy it when it reports, before it gets such a task: so the tree of its fetches grows at once, and not as fast as
//! tasks begin (Clustera, section 4.5: one node that serves all of them is the bound). In memory only: after a restart
//! copies are made when tasks need them.

use api::stored::cluster::EarlyCopy;
use api::{InputFile, JobSpec, PinnedFile};
use ids::{ConcreteId, JobId, NodeId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// About the bytes that a map reads.
const MAP_BYTES: u64 = 64 << 20;
/// Maximum number of files that one answer names.
const COPIES_PER_ANSWER: usize = 16;

/// The files for programs of a job, and the number of tasks that open each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SharingJob {
    /// The user whose tasks run.
    user: String,
    files: BTreeMap<PinnedFile, u64>,
}

impl SharingJob {
    /// Creates one without files.
    pub fn of(user: &str) -> Self {
        Self { user: user.to_string(), files: BTreeMap::new() }
    }

    pub fn has_files(&self) -> bool {
        !self.files.is_empty()
    }

    /// Adds a file that the programs of this job open. Of one that is read by partitions, no node needs the whole.
    pub fn add(&mut self, spec: &JobSpec, file: &PinnedFile) {
        if file.by_partition {
            return;
        }
        let maps = |input: &InputFile| input.size_bytes.div_ceil(MAP_BYTES).max(1);
        let tasks = spec.inputs.iter().map(maps).fold(0, u64::saturating_add).max(1);
        let before = self.files.entry(file.clone()).or_default();
        *before = before.saturating_add(tasks);
    }
}

/// A file of jobs that are not over.
#[derive(Debug, Default)]
struct SharedFile {
    tasks: BTreeMap<JobId, u64>,
    /// Nodes that were told.
    told: BTreeSet<NodeId>,
}

/// The files for programs of all jobs that are not over, by user.
#[derive(Debug, Default)]
pub(crate) struct SharedFiles {
    files: BTreeMap<(String, PinnedFile), SharedFile>,
    /// The files of each job.
    jobs: BTreeMap<JobId, Arc<SharingJob>>,
}

impl SharedFiles {
    pub fn begins(&mut self, job: JobId, sharing: Arc<SharingJob>) {
        for (file, tasks) in &sharing.files {
            let shared = self.files.entry((sharing.user.clone(), file.clone())).or_default();
            shared.tasks.insert(job, *tasks);
        }
        if sharing.has_files() {
            self.jobs.insert(job, sharing);
        }
    }

    pub fn ends(&mut self, job: JobId) {
        let Some(sharing) = self.jobs.remove(&job) else { return };
        for file in sharing.files.keys() {
            let key = (sharing.user.clone(), file.clone());
            if let Some(shared) = self.files.get_mut(&key) {
                shared.tasks.remove(&job);
                if shared.tasks.is_empty() {
                    self.files.remove(&key);
                }
            }
        }
    }

    /// Returns whether a node was told to copy these parts for a job.
    pub fn was_told(&self, node: NodeId, job: JobId, parts: &[ConcreteId]) -> bool {
        let Some(sharing) = self.jobs.get(&job) else { return false };
        let of_node = |file: &&PinnedFile| {
            let shared = self.files.get(&(sharing.user.clone(), (*file).clone()));
            shared.is_some_and(|shared| shared.told.contains(&node))
        };
        let told = sharing.files.keys().filter(of_node).flat_map(|file| &file.stored.parts);
        let told: BTreeSet<ConcreteId> = told.map(|part| part.concrete).collect();
        parts.iter().all(|part| told.contains(part))
    }

    /// Returns the files that a node copies now; each is named to it once. `nodes`: the number of nodes.
    pub fn for_node(&mut self, node: NodeId, nodes: usize) -> Vec<EarlyCopy> {
        let wanted = self.files.iter_mut().filter_map(|((user, file), shared)| {
            // First, because there may be very many jobs, and each node asks each second.
            if nodes < 2 || shared.told.contains(&node) {
                return None;
            }
            let job = *shared.tasks.keys().next()?;
            let tasks = || shared.tasks.values().copied().fold(0, u64::saturating_add);
            let is_told = shared.tasks.len() >= nodes || tasks() >= nodes as u64;
            is_told.then(|| {
                shared.told.insert(node);
                EarlyCopy { job, user: user.clone(), file: file.clone() }
            })
        });
        wanted.take(COPIES_PER_ANSWER).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{SharedFiles, SharingJob};
    use api::{InputFile, JobSpec, PinnedFile, StoredContent, StoredPart};
    use ids::{ConcreteId, JobId, NodeId};
    use std::sync::Arc;

    fn file(name: &str) -> PinnedFile {
        let part = StoredPart { concrete: ConcreteId(7), bytes: 1, crc32c: 1 };
        PinnedFile {
            path: format!("files:{name}@1").into(),
            stored: StoredContent { parts: vec![part] },
            ..PinnedFile::default()
        }
    }

    /// A job with one input of so many bytes, whose program is this file.
    fn job(name: &str, bytes: u64) -> Arc<SharingJob> {
        let input = InputFile { size_bytes: bytes, ..InputFile::default() };
        let spec = JobSpec { inputs: vec![input], ..JobSpec::named("") };
        let mut sharing = SharingJob::of("ann");
        sharing.add(&spec, &file(name));
        Arc::new(sharing)
    }

    #[test]
    fn nodes_copy_widely_shared_files_once() {
        let mut shared = SharedFiles::default();
        let named = |shared: &mut SharedFiles, node| {
            let copies = shared.for_node(NodeId(node), 4);
            copies.into_iter().map(|copy| (copy.job, copy.file)).collect::<Vec<_>>()
        };
        // Three small jobs are less than four nodes.
        (1..4).for_each(|number| shared.begins(JobId(number), job("small", 1)));
        shared.begins(JobId(9), job("large", 1 << 30));
        assert_eq!(named(&mut shared, 1), [(JobId(9), file("large"))]);
        shared.begins(JobId(4), job("small", 1));
        assert_eq!(named(&mut shared, 1), [(JobId(1), file("small"))]);
        assert_eq!(named(&mut shared, 1), []);
        let may_ask = |node, job, part| shared.was_told(NodeId(node), JobId(job), &[ConcreteId(part)]);
        assert_eq!([may_ask(1, 9, 7), may_ask(2, 9, 7), may_ask(1, 9, 8)], [true, false, false]);
        // Jobs that are over need nothing.
        shared.ends(JobId(9));
        shared.ends(JobId(1));
        assert_eq!(named(&mut shared, 2), []);
        (2..5).for_each(|number| shared.ends(JobId(number)));
        assert!(shared.files.is_empty() && shared.jobs.is_empty());
    }
}
