//! Runs that jobs keep on the disks of a node. The names of their directories belong to no process: they stay when the
//! node ends, and the next node on the same disks finds them.

use crate::disks::{Disks, named, remove_tree};
use api::kept::KeptDir;
use faults::{IoCall, io_call};
use ids::{DiskIndex, JobId};
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

/// Extension of runs, the only files of a job that are kept.
const RUN_EXTENSION: &str = "ifile";

/// The failure that kept files must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// The end of the process.
    Process,
    PowerCut,
}

impl Disks {
    /// Renames the directories of a job to their permanent names, and removes everything that is no run. A repeated
    /// call returns the same.
    pub(crate) fn keep(&self, job: JobId, durability: Durability) -> std::io::Result<Vec<KeptDir>> {
        let mut kept = Vec::new();
        for (index, dir) in self.dirs(job).iter().enumerate() {
            let disk = DiskIndex(index as u16);
            let parent = dir.parent().unwrap_or(Path::new("."));
            let path = parent.join(KeptDir::name_of(self.name(), job, disk));
            if dir.is_dir() {
                strip(dir, durability).map_err(|error| named(dir, error))?;
                let renamed = io_call(IoCall::Rename, dir).and_then(|()| std::fs::rename(dir, &path));
                renamed.map_err(|error| named(dir, error))?;
                if durability == Durability::PowerCut {
                    sync_one(parent).map_err(|error| named(parent, error))?;
                }
            }
            if path.is_dir() {
                let incarnation = self.name().to_string();
                let bytes = bytes_of(&path).map_err(|error| named(&path, error))?;
                kept.push(KeptDir { job, incarnation, disk, path, bytes });
            }
        }
        if kept.is_empty() {
            let message = format!("the disks of the node have no data of job {job}");
            return Err(std::io::Error::new(ErrorKind::NotFound, message));
        }
        Ok(kept)
    }

    /// Returns all kept directories on these disks, of any process.
    pub(crate) fn kept(&self) -> std::io::Result<Vec<KeptDir>> {
        let mut kept = Vec::new();
        for disk in self.paths() {
            let entries = match std::fs::read_dir(disk) {
                Ok(entries) => entries,
                // The other disks are listed anyway.
                Err(error) => {
                    tracing::warn!(disk = %disk.display(), %error, "cannot search for kept I-files");
                    continue;
                }
            };
            for entry in entries {
                let path = entry?.path();
                let name = path.file_name().and_then(|name| name.to_str());
                let Some((incarnation, job, disk)) = name.and_then(KeptDir::parse_name) else { continue };
                let bytes = bytes_of(&path).map_err(|error| named(&path, error))?;
                kept.push(KeptDir { job, incarnation, disk, path, bytes });
            }
        }
        Ok(kept)
    }

    /// Removes kept directories of these names. Directories with other kinds of names stay in any case.
    pub(crate) fn drop_kept(&self, names: &[String]) {
        for name in names.iter().filter(|name| KeptDir::parse_name(name).is_some()) {
            for disk in self.paths() {
                if let Err(error) = remove_tree(&disk.join(name)) {
                    tracing::warn!(disk = %disk.display(), name, %error, "cannot remove kept I-files");
                }
            }
        }
    }
}

/// Removes everything that is no run: shipped files, directories of programs.
fn strip(dir: &Path, durability: Durability) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            remove_tree(&path)?;
        } else if path.extension().is_none_or(|extension| extension != RUN_EXTENSION) {
            std::fs::remove_file(&path)?;
        } else if durability == Durability::PowerCut {
            sync_one(&path)?;
        }
    }
    if durability == Durability::PowerCut {
        sync_one(dir)?;
    }
    Ok(())
}

/// Syncs a file, or the names in a directory, to the disk.
fn sync_one(path: &Path) -> std::io::Result<()> {
    io_call(IoCall::Sync, path)?;
    File::open(path)?.sync_all()
}

fn bytes_of(dir: &Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::Durability;
    use crate::disks::Disks;
    use api::data_access::SecretText;
    use ids::{DiskIndex, JobId};

    #[test]
    fn next_process_on_the_disk_finds_kept_data() {
        let dir = tempfile::tempdir().unwrap();
        let paths = [dir.path().join("a"), dir.path().join("b")];
        let first = Disks::open(&paths, "first", &SecretText::default()).unwrap();
        let dirs = first.create(JobId(4)).unwrap();
        std::fs::write(dirs[1].join("run-000000.ifile"), "12345").unwrap();
        std::fs::write(dirs[1].join("chunk-000000.raw"), "x").unwrap();
        std::fs::create_dir(dirs[0].join("shipped")).unwrap();
        let kept = first.keep(JobId(4), Durability::PowerCut).unwrap();
        assert_eq!(kept, first.keep(JobId(4), Durability::Process).unwrap());
        let told: Vec<_> = kept.iter().map(|dir| (dir.job, dir.disk, dir.bytes)).collect();
        assert_eq!(told, [(JobId(4), DiskIndex(0), 0), (JobId(4), DiskIndex(1), 5)]);
        assert!(first.keep(JobId(5), Durability::PowerCut).is_err());
        first.remove(JobId(4));
        drop(first);
        // The next process gets the disks in another order.
        let next =
            Disks::open(&[paths[1].clone(), paths[0].clone()], "next", &SecretText::default()).unwrap();
        let mut found = next.kept().unwrap();
        found.sort_by_key(|dir| dir.disk.0);
        assert_eq!(found, kept);
        next.drop_kept(&[kept[1].name(), "..".to_string(), "a".to_string()]);
        assert_eq!(next.kept().unwrap(), kept[..1]);
        assert!(paths[0].is_dir());
    }
}
