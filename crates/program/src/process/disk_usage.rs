//! Bytes that directories take on their disks.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Maximum number of entries that one look counts. A tree with more counts as larger than any limit.
const ENTRIES_MAX: usize = 200_000;
/// Unit of `st_blocks`.
const BLOCK_BYTES: u64 = 512;

/// Returns the bytes of all files below directories, each file once. Entries that vanish meanwhile count nothing.
pub(crate) fn disk_usage(dirs: &[PathBuf]) -> u64 {
    let mut next: Vec<PathBuf> = dirs.to_vec();
    let (mut bytes, mut entries) = (0_u64, 0_usize);
    let mut linked = BTreeSet::new();
    while let Some(dir) = next.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            entries += 1;
            if entries > ENTRIES_MAX {
                return u64::MAX;
            }
            let Ok(metadata) = entry.metadata() else { continue };
            let is_first = metadata.nlink() < 2 || linked.insert((metadata.dev(), metadata.ino()));
            if metadata.is_dir() {
                next.push(entry.path());
            }
            if metadata.is_dir() || is_first {
                bytes = bytes.saturating_add(metadata.blocks() * BLOCK_BYTES);
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::disk_usage;

    #[test]
    fn files_below_directories_count_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(path("a/b")).unwrap();
        let before = disk_usage(&[dir.path().to_path_buf()]);
        std::fs::write(path("a/b/file"), vec![1; 1 << 20]).unwrap();
        std::fs::hard_link(path("a/b/file"), path("link")).unwrap();
        std::os::unix::fs::symlink("/", path("root")).unwrap();
        let added = disk_usage(&[dir.path().to_path_buf()]) - before;
        assert!((1 << 20..(1 << 20) + (64 << 10)).contains(&added), "{added}");
        assert_eq!(disk_usage(&[path("missing")]), 0);
    }
}
