//! The copies of the stored files that programs of a job name, in place of these names.

use api::task::RunTask;
use api::{Function, JobSpec};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The paths of copies, by the names of the stored files with their versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PinnedCopies {
    places: BTreeMap<PathBuf, PathBuf>,
    /// Names of those that are shown without a copy.
    views: BTreeSet<PathBuf>,
}

/// The ways in which the programs of a task can get a stored file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PinnedUse {
    /// It may be executed, or lies beside programs.
    Copy,
    /// It is an input.
    Either,
    /// It is an input that asks for no copy.
    View,
}

impl PinnedUse {
    pub fn of(task: &RunTask, name: &Path) -> Self {
        let inputs = || task.programs().flat_map(|program| &program.inputs).filter(|file| file.path == name);
        let is_word = |program: &RunTask| {
            program.words.iter().any(|word| Path::new(word) == name)
                || program.files.iter().any(|file| file == name)
        };
        match inputs().next() {
            _ if task.programs().any(is_word) => Self::Copy,
            None => Self::Copy,
            Some(_) if inputs().any(|input| input.view) => Self::View,
            Some(_) => Self::Either,
        }
    }
}

impl PinnedCopies {
    pub fn insert(&mut self, name: PathBuf, place: PathBuf) {
        self.places.insert(name, place);
    }

    /// Does the same for a file without a copy.
    pub fn insert_view(&mut self, name: PathBuf, place: PathBuf) {
        self.views.insert(name.clone());
        self.insert(name, place);
    }

    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    pub fn put_into_spec(&self, spec: &mut JobSpec) {
        self.replace_paths(&mut spec.files);
        let links = spec.streaming.iter_mut().flat_map(|streaming| &mut streaming.links);
        self.replace_paths(links.map(|link| &mut link.path));
        for function in [&mut spec.mapper, &mut spec.combiner, &mut spec.reducer].into_iter().flatten() {
            if let Function::Command { words } = function {
                self.replace_words(words);
            }
        }
    }

    /// Does the same for a job of one task, with all programs of its pipeline. Its inputs say which of them are views.
    pub fn put_into_task(&self, task: &mut RunTask) {
        task.inputs.iter_mut().for_each(|input| input.view = self.views.contains(&input.path));
        self.replace_paths(&mut task.files);
        self.replace_paths(task.inputs.iter_mut().map(|input| &mut input.path));
        self.replace_words(&mut task.words);
        task.pipeline.iter_mut().for_each(|program| self.put_into_task(program));
    }

    fn replace_paths<'a>(&self, paths: impl IntoIterator<Item = &'a mut PathBuf>) {
        for path in paths {
            if let Some(place) = self.places.get(path) {
                path.clone_from(place);
            }
        }
    }

    fn replace_words(&self, words: &mut [String]) {
        for word in words {
            if let Some(place) = self.places.get(Path::new(word.as_str())).and_then(|place| place.to_str()) {
                *word = place.to_string();
            }
        }
    }
}

/// Returns whether functions of a task name a stored file, or it is beside their programs.
pub(crate) fn is_wanted(spec: &JobSpec, functions: &[&Option<Function>], name: &Path) -> bool {
    let programs = functions.iter().filter_map(|function| match function {
        Some(Function::Command { words }) => Some(words),
        _ => None,
    });
    let mut programs = programs.peekable();
    let mut links = spec.streaming.iter().flat_map(|streaming| &streaming.links);
    let is_beside = spec.files.iter().any(|file| file == name) || links.any(|link| link.path == name);
    programs.peek().is_some() && is_beside || programs.flatten().any(|word| Path::new(word) == name)
}

#[cfg(test)]
mod tests {
    use super::{PinnedCopies, PinnedUse, is_wanted};
    use api::task::{RunTask, TaskFile};
    use api::{FileLink, Function, JobSpec, Streaming};
    use std::path::{Path, PathBuf};

    fn command(words: &[&str]) -> Option<Function> {
        Some(Function::Command { words: words.iter().map(|word| word.to_string()).collect() })
    }

    fn spec() -> JobSpec {
        let link = FileLink { name: "other".to_string(), path: "files:link@4".into() };
        JobSpec {
            mapper: command(&["files:map.py@3", "files:words@2", "files:words@1"]),
            reducer: command(&["python3", "map.py"]),
            files: vec!["files:map.py@3".into(), "/shared".into()],
            streaming: Some(Streaming { links: vec![link], ..Streaming::default() }),
            ..JobSpec::named("job")
        }
    }

    #[test]
    fn copies_take_the_places_of_names() {
        let mut copies = PinnedCopies::default();
        for (name, place) in [
            ("files:map.py@3", "/disk/1/map.py"),
            ("files:words@2", "/disk/2/words"),
            ("files:link@4", "/disk/3/link"),
        ] {
            copies.insert(name.into(), place.into());
        }
        let mut spec = spec();
        copies.put_into_spec(&mut spec);
        // Another version is no pinned file.
        assert_eq!(spec.mapper, command(&["/disk/1/map.py", "/disk/2/words", "files:words@1"]));
        assert_eq!(spec.reducer, command(&["python3", "map.py"]));
        assert_eq!(spec.files, ["/disk/1/map.py", "/shared"].map(PathBuf::from));
        assert_eq!(spec.streaming.unwrap().links[0].path, Path::new("/disk/3/link"));
        let words = vec!["cat".to_string(), "files:words@2".to_string()];
        let input = |path: &str| TaskFile { name: "in".into(), path: path.into(), ..TaskFile::default() };
        let member = RunTask { inputs: vec![input("files:link@4")], ..RunTask::default() };
        let mut task = RunTask {
            words,
            files: vec!["files:map.py@3".into()],
            inputs: vec![input("files:words@2"), input("/plain")],
            pipeline: vec![member],
            ..RunTask::default()
        };
        copies.put_into_task(&mut task);
        let inputs = task.programs().flat_map(|program| &program.inputs);
        let paths: Vec<&Path> =
            task.files.iter().chain(inputs.map(|input| &input.path)).map(PathBuf::as_path).collect();
        assert_eq!(paths, ["/disk/1/map.py", "/disk/2/words", "/plain", "/disk/3/link"].map(Path::new));
        assert_eq!(task.words[1], "/disk/2/words");
    }

    #[test]
    fn only_inputs_become_views() {
        let input =
            |path: &str, view| TaskFile { name: "in".into(), path: path.into(), view, ..TaskFile::default() };
        let member = RunTask { inputs: vec![input("files:a@1", true)], ..RunTask::default() };
        let mut task = RunTask {
            words: vec!["cat".to_string(), "files:word@2".to_string()],
            files: vec!["files:beside@3".into()],
            inputs: vec![input("files:a@1", false), input("files:b@1", false), input("files:word@2", true)],
            pipeline: vec![member],
            ..RunTask::default()
        };
        for (name, expected) in [
            ("files:a@1", PinnedUse::View),
            ("files:b@1", PinnedUse::Either),
            ("files:word@2", PinnedUse::Copy),
            ("files:beside@3", PinnedUse::Copy),
            ("files:none@1", PinnedUse::Copy),
        ] {
            assert_eq!(PinnedUse::of(&task, Path::new(name)), expected, "{name}");
        }
        // The node decides: the input that does not fit is one, and the word is none.
        let mut copies = PinnedCopies::default();
        copies.insert_view("files:b@1".into(), "/mounted/x/b".into());
        copies.insert("files:a@1".into(), "/disk/1/a".into());
        copies.put_into_task(&mut task);
        let inputs: Vec<_> =
            task.programs().flat_map(|program| &program.inputs).map(|file| file.view).collect();
        assert_eq!(inputs, [false, true, false, false]);
        assert_eq!(task.inputs[1].path, Path::new("/mounted/x/b"));
    }

    #[test]
    fn tasks_bring_only_what_they_open() {
        let spec = spec();
        let check = |functions: &[&Option<Function>], name: &str, expected| {
            assert_eq!(is_wanted(&spec, functions, Path::new(name)), expected, "{name}");
        };
        let builtin = Function::parse("builtin:sum").ok();
        for (name, by_mapper, by_reducer) in [
            ("files:map.py@3", true, true),
            ("files:words@2", true, false),
            ("files:link@4", true, true),
            ("files:none@1", false, false),
        ] {
            check(&[&spec.mapper, &None], name, by_mapper);
            check(&[&spec.reducer], name, by_reducer);
            check(&[&builtin], name, false);
        }
    }
}
