//! Names of the partitions of a stored file, for steps that read one each: `files:NAME/@3` is the fourth. No file has such a
//! name, because `@` and digits at the end of a part mean a version.

use crate::stored::STORED_PREFIX;
use std::path::{Path, PathBuf};

/// Returns the path of a partition of a stored file, `files:NAME`. Partitions count from 0.
pub fn partition_path(file: &str, partition: usize) -> PathBuf {
    PathBuf::from(format!("{file}/@{partition}"))
}

/// Returns the path of the stored file, `files:NAME`, and the partition that a path means; None for a whole file.
pub fn of_partition(path: &Path) -> Option<(&Path, usize)> {
    let (file, partition) = path.to_str()?.rsplit_once("/@")?;
    let is_number = partition.bytes().all(|byte| byte.is_ascii_digit());
    let number = partition.parse().ok().filter(|_| is_number && file.starts_with(STORED_PREFIX))?;
    Some((Path::new(file), number))
}

#[cfg(test)]
mod tests {
    use super::{of_partition, partition_path};
    use crate::{name_beside, task::is_stored_name};
    use std::path::Path;

    #[test]
    fn partitions_have_names_of_no_file() {
        let path = partition_path("files:logs/day", 12);
        assert_eq!(of_partition(&path), Some((Path::new("files:logs/day"), 12)));
        assert!(!is_stored_name(&path));
        assert_eq!(name_beside(&path), Some("day".as_ref()));
        for path in ["files:logs/day", "files:logs/day@3", "files:a/@", "files:a/@+3", "/a/@3"] {
            assert_eq!(of_partition(Path::new(path)), None, "{path}");
        }
    }
}
