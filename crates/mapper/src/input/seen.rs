//! Listing of files below directories that this node alone sees, by an order of the server. Every file and directory is
//! opened below these directories, so that no link and no race leads out of them.

use super::source::open_seen;
use super::{InputError, never_data, pin_opened, unreadable};
use api::InputFile;
use api::seen::SEEN_FILES_MAX;
use roots::JobPaths;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Deepest directory that is listed, below the named one.
const DEPTH_MAX: usize = 128;

/// Lists a file, or the files below a directory, as [`super::list`] does, and passes each to `found` until it returns
/// false. Files of a directory come in order of their names.
pub fn list_seen(
    seen: &JobPaths,
    path: &Path,
    found: &mut dyn FnMut(InputFile) -> bool,
) -> Result<(), InputError> {
    let place = seen.open_place(path).map_err(|source| unseen(path, source))?;
    Walk { seen, found, above: Vec::new(), directories: 0 }.enter(path, File::from(place)).map(drop)
}

fn unseen(path: &Path, source: std::io::Error) -> InputError {
    unreadable(path.to_path_buf(), super::source::outside(path, source))
}

struct Walk<'a> {
    seen: &'a JobPaths,
    found: &'a mut dyn FnMut(InputFile) -> bool,
    /// The open directories, by device and number.
    above: Vec<((u64, u64), PathBuf)>,
    /// Number of directories so far.
    directories: usize,
}

impl Walk<'_> {
    /// Returns whether more files are wanted.
    fn enter(&mut self, path: &Path, place: File) -> Result<bool, InputError> {
        let failed = |source| unreadable(path.to_path_buf(), source);
        let metadata = place.metadata().map_err(failed)?;
        if path.to_str().is_none() {
            return Err(InputError::NotUtf8 { path: path.to_path_buf() });
        }
        if metadata.is_file() {
            let file = open_seen(Some(self.seen), path).map_err(failed)?;
            if !file.metadata().map_err(failed)?.is_file() {
                return Err(InputError::NotRegular { path: path.to_path_buf() });
            }
            return Ok((self.found)(pin_opened(path, &file)?));
        }
        if !metadata.is_dir() {
            return Err(InputError::NotRegular { path: path.to_path_buf() });
        }
        let number = (metadata.dev(), metadata.ino());
        if let Some((_, ancestor)) = self.above.iter().find(|(above, _)| *above == number) {
            return Err(InputError::Loop { path: path.to_path_buf(), ancestor: ancestor.clone() });
        }
        if self.above.len() == DEPTH_MAX {
            return Err(InputError::TooDeep { path: path.to_path_buf(), depth_max: DEPTH_MAX });
        }
        self.above.push((number, path.to_path_buf()));
        let goes_on = self.list_dir(path);
        self.above.pop();
        goes_on
    }

    fn list_dir(&mut self, path: &Path) -> Result<bool, InputError> {
        let failed = |source| unseen(path, source);
        let too_many = || InputError::TooMany { path: path.to_path_buf(), max: SEEN_FILES_MAX };
        self.directories += 1;
        if self.directories > SEEN_FILES_MAX {
            return Err(too_many());
        }
        let dir = self.seen.open_dir(path).map_err(failed)?;
        let mut names = Vec::new();
        for entry in std::fs::read_dir(dir.path()).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            if !never_data(name.as_bytes()) {
                names.push(name);
            }
            if names.len() > SEEN_FILES_MAX {
                return Err(too_many());
            }
        }
        names.sort();
        for name in names {
            let path = path.join(name);
            let place = self.seen.open_place(&path).map_err(|source| unseen(&path, source))?;
            if !self.enter(&path, File::from(place))? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::list_seen;
    use crate::input::InputError;
    use roots::{JobPaths, Roots};
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    fn names(dir: &Path, path: &Path) -> Result<Vec<String>, InputError> {
        let roots = Roots::of_operator(&[dir.to_str().unwrap().to_string()]).unwrap();
        let mut names = Vec::new();
        list_seen(&JobPaths::below(vec![roots]), path, &mut |input| {
            names.push(input.path.strip_prefix(dir).unwrap().to_str().unwrap().to_string());
            names.len() < 5
        })?;
        Ok(names)
    }

    #[test]
    fn files_below_a_seen_directory_are_listed() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("seen");
        for name in ["b/_temporary", "b/inner", "c"] {
            fs::create_dir_all(dir.join(name)).unwrap();
        }
        for file in ["b/2", "b/inner/1", "a", "_SUCCESS", ".hidden", "b/_temporary/x"] {
            fs::write(dir.join(file), "x\n").unwrap();
        }
        symlink("../a", dir.join("b/to-a")).unwrap();
        assert_eq!(names(&dir, &dir).unwrap(), ["a", "b/2", "b/inner/1", "b/to-a"]);
        assert_eq!(names(&dir, &dir.join("b/inner/1")).unwrap(), ["b/inner/1"]);
        ["c/1", "c/2"].iter().for_each(|file| fs::write(dir.join(file), "").unwrap());
        assert_eq!(names(&dir, &dir).unwrap().len(), 5);
    }

    #[test]
    fn links_out_of_a_seen_directory_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("seen");
        fs::create_dir_all(&dir).unwrap();
        fs::create_dir_all(root.path().join("secret")).unwrap();
        fs::write(root.path().join("secret/key"), "secret").unwrap();
        let error = |path: &Path| names(&dir, path).unwrap_err().to_string();
        for target in ["../secret", "../secret/key", "/etc"] {
            symlink(target, dir.join("link")).unwrap();
            let text = error(&dir);
            assert!(text.contains("seen/link") && text.contains("leads out of"), "{text}");
            fs::remove_file(dir.join("link")).unwrap();
        }
        assert!(error(&root.path().join("secret/key")).contains("leads out of"));
        assert!(error(&dir.join("../secret/key")).contains("leads out of"));
        symlink(".", dir.join("again")).unwrap();
        assert!(matches!(names(&dir, &dir), Err(InputError::Loop { .. })));
        assert!(matches!(names(&dir, &dir.join("absent")), Err(InputError::Missing { .. })));
    }
}
