//! The programs of a MapReduce job, and the files beside them.

use super::JobSpec;
use crate::Function;
use crate::task::ProgramPlace;
use std::path::{Path, PathBuf};

impl JobSpec {
    fn is_shipped(&self, path: &Path) -> bool {
        self.shipped.iter().any(|file| file.path == path)
    }

    /// Returns the files of its programs that do not travel with it: they count by their contents at their paths.
    pub fn own_files(&self) -> impl Iterator<Item = &PathBuf> {
        self.files.iter().filter(|file| !self.is_shipped(file))
    }

    /// Returns the facts that determine the executables of mapper, combiner and reducer. Built-ins have none.
    pub fn program_places(&self, directory: &Path) -> Vec<ProgramPlace> {
        let path = self.env.iter().rev().find(|(name, _)| name == "PATH").map(|(_, value)| value);
        let functions = [&self.mapper, &self.combiner, &self.reducer].into_iter().flatten();
        let words = functions.filter_map(|function| match function {
            Function::Command { words } => words.first(),
            Function::Builtin { .. } => None,
        });
        let place = |word: &String| {
            let name = Path::new(word.strip_prefix("./").unwrap_or(word)).as_os_str();
            // The name of a file beside a program starts that file.
            let beside = self.files.iter().find(|file| file.file_name() == Some(name));
            ProgramPlace {
                word: word.clone(),
                directory: directory.to_path_buf(),
                search_path: path.cloned(),
                input: beside.cloned(),
                is_shipped: self.is_shipped(beside.map_or(Path::new(word), PathBuf::as_path)),
            }
        };
        words.map(place).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::{ContentHash, Function, JobSpec, ShippedFile};
    use std::path::{Path, PathBuf};

    #[test]
    fn programs_of_jobs_have_places() {
        let command =
            |word: &str| Some(Function::Command { words: vec![word.to_string(), "-u".to_string()] });
        let shipped = ShippedFile {
            path: "/w/map.sh".into(),
            sha256: ContentHash([1; 32]),
            bytes: 1,
            executable: true,
        };
        let spec = JobSpec {
            mapper: command("/w/map.sh"),
            combiner: Function::parse("builtin:sum").ok(),
            reducer: command("./reduce.py"),
            files: vec!["/w/reduce.py".into(), "/w/words".into()],
            shipped: vec![shipped],
            ..JobSpec::named("job")
        };
        let places = spec.program_places(Path::new("/w"));
        let shown: Vec<_> = places.iter().map(|place| (place.word.as_str(), place.is_shipped)).collect();
        assert_eq!(shown, [("/w/map.sh", true), ("./reduce.py", false)]);
        assert_eq!(places[1].input, Some(PathBuf::from("/w/reduce.py")));
        assert_eq!(spec.own_files().count(), 2);
    }
}
