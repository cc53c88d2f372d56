//! Files of dead processes on the disks of this node. When the node joins, it tells the server about the intact runs
//! and parts; those that the server readmits belong to this process from then on. So do all intact intermediate files of
//! users: the node lists them when it has joined, and drops those that the server does not want. All other files are
//! removed.

use crate::disks::Disks;
use api::data_access::SecretText;
use api::orphaned::{LEFT_FILES_MAX, LeftPart, LeftRun, OrphanedData, PREDECESSORS_MAX};
use chunkserver::{left_run, run_of_file};
use dataport::StageFileName;
use faults::{IoCall, io_call};
use ids::JobId;
use stagefile::RawFile;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest wait for a dying process; a live one that shares the disk is not awaited longer.
const DYING_MAX: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Intact files, by the process that left them and their job. While this value lives, no other process takes them.
#[derive(Debug, Default)]
pub struct LeftOnDisks {
    /// Locks of the dead processes, held.
    locks: Vec<File>,
    /// Proof of each process. Without one the server would not trust the report.
    proofs: BTreeMap<String, SecretText>,
    left: BTreeMap<(String, JobId), Left>,
    /// Directories of intermediate files of users.
    user_dirs: Vec<PathBuf>,
}

#[derive(Debug, Default)]
struct Left {
    runs: Vec<(PathBuf, LeftRun)>,
    parts: Vec<(PathBuf, LeftPart)>,
}

/// Treatment of a process that was killed recently: it holds its locks until it has released all its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DyingProcess {
    Await,
    Ignore,
}

impl LeftOnDisks {
    /// Searches the disks. Unreadable files are left out: they will be recomputed.
    pub fn find(disks: &[PathBuf], dying: DyingProcess) -> Self {
        let started = Instant::now();
        while dying == DyingProcess::Await
            && started.elapsed() < DYING_MAX
            && disks.iter().any(|disk| Disks::any_alive_on(disk))
        {
            std::thread::sleep(LOOK_EVERY);
        }
        let (mut found, mut files) = (Self::default(), 0);
        for disk in disks.iter().filter_map(|disk| disk.canonicalize().ok()) {
            for dead in Disks::dead_on(&disk) {
                for (job, dir) in Disks::job_dirs_of(&disk, &dead.name) {
                    let left = found.left.entry((dead.name.clone(), job)).or_default();
                    files += left.look_through(&dir, job, LEFT_FILES_MAX.saturating_sub(files));
                }
                found.user_dirs.push(Disks::user_dir(&disk, &dead.name));
                found.proofs.extend(dead.proof.map(|proof| (dead.name, proof)));
                found.locks.push(dead.lock);
            }
        }
        found
    }

    /// Returns the report for the server.
    pub fn told(&self) -> Vec<OrphanedData> {
        let of_job = |((incarnation, job), left): (&(String, JobId), &Left)| {
            Some(OrphanedData {
                incarnation: incarnation.clone(),
                proof: self.proofs.get(incarnation)?.clone(),
                job: *job,
                runs: left.runs.iter().map(|(_, run)| run.clone()).collect(),
                parts: left.parts.iter().map(|(_, part)| part.clone()).collect(),
            })
        };
        let told = self.left.iter().filter_map(of_job);
        told.filter(|left| !left.runs.is_empty() || !left.parts.is_empty()).collect()
    }

    /// Returns the proofs of the processes, for the server.
    pub fn proofs(&self) -> Vec<SecretText> {
        self.proofs.values().take(PREDECESSORS_MAX).cloned().collect()
    }

    /// Moves the files of these jobs and those of users to this process, which has opened the disks, each on its own disk,
    /// and removes all others. A file of a job that cannot be moved is found missing by its readers, and recomputed; one
    /// of a user stays lost.
    pub fn give_to(self, disks: &Disks, jobs: &[JobId]) {
        for ((_, job), left) in self.left.iter().filter(|((_, job), _)| jobs.contains(job)) {
            if let Err(failure) = disks.create(*job) {
                tracing::warn!(%job, failure.message, "cannot readmit files on the disks");
                continue;
            }
            let paths = left.runs.iter().map(|(path, _)| path).chain(left.parts.iter().map(|(path, _)| path));
            for path in paths {
                if let Err(error) = move_into(path, &disks.dirs(*job)) {
                    tracing::warn!(%job, path = %path.display(), %error, "cannot readmit a file on a disk");
                }
            }
        }
        self.user_dirs.iter().for_each(|dir| move_user_files(dir, &disks.user_dirs()));
        drop(self.locks);
        disks.sweep_all();
    }
}

/// Moves the intact intermediate files of users in a directory.
fn move_user_files(dir: &Path, dirs: &[PathBuf]) {
    // Most processes left none.
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for dir in dirs {
        // If this fails, so does the move.
        let _ = std::fs::create_dir(dir);
    }
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = left_part(&path).and_then(|part| StageFileName::new(part.name));
        if name.is_none_or(|name| name.user_file().is_none()) {
            tracing::info!(path = %path.display(), "an intermediate file of a dead process is not whole");
        } else if let Err(error) = move_into(&path, dirs) {
            tracing::warn!(path = %path.display(), %error, "cannot take over an intermediate file on a disk");
        }
    }
}

impl Left {
    /// Adds the intact files of a directory. Returns the number of files in it.
    fn look_through(&mut self, dir: &Path, job: JobId, files_max: usize) -> usize {
        let mut files = 0;
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()).take(files_max) {
            files += 1;
            if run_of_file(&path).is_some() {
                match left_run(&path, job) {
                    Ok(run) => self.runs.push((path, run)),
                    Err(error) => {
                        tracing::info!(path = %path.display(), %error, "a run of a dead process is damaged");
                    }
                }
            } else if let Some(part) = left_part(&path) {
                self.parts.push((path, part));
            }
        }
        files
    }
}

/// Returns the part in a file; None if header or footer is damaged.
pub(crate) fn left_part(path: &Path) -> Option<LeftPart> {
    let name = StageFileName::new(path.file_name()?.to_str()?)?;
    let payload = RawFile::open_unknown(path).ok()?.payload();
    Some(LeftPart { name: name.to_string(), bytes: payload.bytes, crc32c: payload.crc32c })
}

/// Moves a file into the corresponding directory on the same disk.
fn move_into(path: &Path, dirs: &[PathBuf]) -> std::io::Result<()> {
    let (dir, name) = (path.parent(), path.file_name());
    let disk = dir.and_then(Path::parent);
    let target = dirs.iter().find(|dir| dir.parent() == disk).zip(name);
    let (target, name) = target.ok_or(std::io::ErrorKind::NotFound)?;
    io_call(IoCall::Rename, path)?;
    std::fs::rename(path, target.join(name))
}

#[cfg(test)]
mod tests {
    use super::{DyingProcess, LeftOnDisks};
    use crate::disks::Disks;
    use api::data_access::SecretText;
    use ids::JobId;
    use stagefile::{StageFileWriter, Syncing};
    use std::io::Write;

    #[test]
    fn next_process_takes_over_data_left_behind() {
        let dir = tempfile::tempdir().unwrap();
        let paths = [dir.path().join("a"), dir.path().join("b")];
        paths.iter().for_each(|path| std::fs::create_dir(path).unwrap());
        let (job, other) = (JobId(4), JobId(5));
        for (disk, job) in [(&paths[0], job), (&paths[1], job), (&paths[1], other)] {
            let of_job = disk.join(format!("sailfish-dead-job{job}"));
            std::fs::create_dir(&of_job).unwrap();
            std::fs::write(disk.join(".sailfish-dead.lock"), "dead\nproof\ndead\npr").unwrap();
            std::fs::write(of_job.join("run-000007.ifile"), "no run").unwrap();
            std::fs::write(of_job.join("part-00001.attempt-0.stage"), "no part").unwrap();
        }
        let whole = paths[1].join("sailfish-dead-job4/part-00002.attempt-1.stage");
        let mut part = StageFileWriter::create(&whole).unwrap();
        part.write_all(b"12345").unwrap();
        part.finish(Syncing::NotSynced).unwrap();
        let of_users = paths[0].join("sailfish-dead-intermediate");
        std::fs::create_dir(&of_users).unwrap();
        std::fs::copy(&whole, of_users.join("file-9.stage")).unwrap();
        std::fs::write(of_users.join("file-10.stage"), "not whole").unwrap();
        let left = LeftOnDisks::find(&paths, DyingProcess::Await);
        let told = left.told();
        assert_eq!((told.len(), told[0].job, told[0].incarnation.as_str()), (1, job, "dead"));
        assert_eq!(told[0].proof.0, "proof");
        assert_eq!(left.proofs(), [SecretText("proof".into())]);
        let parts: Vec<_> = told[0].parts.iter().map(|part| (part.name.as_str(), part.bytes)).collect();
        assert_eq!((parts, told[0].runs.len()), (vec![("part-00002.attempt-1.stage", 5)], 0));
        // Nobody takes the files during the inspection.
        assert!(LeftOnDisks::find(&paths, DyingProcess::Ignore).told().is_empty());
        let disks = Disks::open(&paths, "next", &SecretText("next proof".into())).unwrap();
        assert!(whole.exists());
        left.give_to(&disks, &[job]);
        assert!(disks.dirs(job)[1].join("part-00002.attempt-1.stage").exists());
        let taken_over = std::fs::read_dir(&disks.user_dirs()[0]).unwrap().flatten();
        assert_eq!(taken_over.map(|entry| entry.file_name()).collect::<Vec<_>>(), ["file-9.stage"]);
        let left_over = paths.iter().flat_map(|path| std::fs::read_dir(path).unwrap().flatten());
        let dead = left_over.filter(|entry| entry.file_name().to_string_lossy().contains("dead"));
        assert_eq!(dead.count(), 0);
    }
}
