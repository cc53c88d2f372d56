//! The end of a run: everybody is back, every file is whole, and nothing is left over.

use super::content::{Files, Shape};
use super::run::Run;
use crate::{StoredFiles, file_tree};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bits of the number of a concrete file within its put.
const NUMBER_BITS: u32 = 24;
/// How long a cluster takes to repair everything, at most.
const REST_MAX: Duration = Duration::from_secs(120);
const LOOK_AFTER: Duration = Duration::from_millis(50);

impl Run {
    /// Waits until the cluster is at rest, and checks everything that is left.
    pub fn finish(&mut self) {
        self.world.bring_all_back();
        self.wait_until("all nodes are back", |run| run.world.is_complete());
        self.wait_until("all files have their replicas", |run| {
            run.world.files_with_other_replicas("<") == Some(0)
        });
        self.take_inventory();
        self.check_fsck();
        self.check_all_names();
        self.check_puts();
        self.look_for_panics();
    }

    /// Returns whether it held before the time was over.
    fn wait_until(&mut self, what: &str, holds: impl Fn(&mut Run) -> bool) -> bool {
        let deadline = Instant::now() + REST_MAX;
        loop {
            self.tend();
            if holds(self) {
                return true;
            }
            if Instant::now() >= deadline || self.tally.is_hopeless() {
                self.tally.problem(format!("waited in vain until {what}"));
                return false;
            }
            std::thread::sleep(LOOK_AFTER);
        }
    }

    /// Starts each node again, which tells of all its files then. In the end each has the files of its rows, and those of puts that
    /// were given up.
    fn take_inventory(&mut self) {
        for number in 0..self.world.nodes() {
            self.world.kill_node(number, Duration::ZERO);
            self.wait_until("a node is back", |run| run.world.is_complete());
        }
        self.wait_until("all files have their replicas after the inventory", |run| {
            run.world.files_with_other_replicas("<") == Some(0)
        });
        self.wait_until("no file has more replicas than it needs", |run| {
            run.world.files_with_other_replicas(">") == Some(0)
        });
        for number in 0..self.world.nodes() {
            let is_right = self.wait_until(&format!("node-{number} has the files of its rows"), |run| {
                run.strange_files(number).is_some_and(|strange| strange.is_empty())
            });
            // Replicas may move at any time: a file that is removed has its row for a moment longer.
            if !is_right && let Some(strange) = self.strange_files(number) {
                let shown: Vec<&String> = strange.iter().take(20).collect();
                self.tally.problem(format!("node-{number}: {} files: {shown:?}", strange.len()));
            }
        }
    }

    /// Returns the files that a node has without a row, or does not have though there is a row. Files of puts that may go on do not
    /// count.
    fn strange_files(&self, number: usize) -> Option<Vec<String>> {
        let open: BTreeSet<i64> = self.open_puts()?.iter().filter_map(|row| row.first()?.as_i64()).collect();
        let is_of_open = |file: &i64| open.contains(&(file >> NUMBER_BITS));
        let known: BTreeSet<i64> = self.world.known_files(number)?.into_iter().collect();
        let stored = file_tree(&self.world.cluster.stored_dir(number as u32));
        let files =
            stored.iter().filter(|(_, bytes)| bytes.is_some()).filter_map(|(path, _)| number_of(path));
        let there: BTreeSet<i64> = files.collect();
        let names = |files: Vec<&i64>, what: &str| -> Vec<String> {
            let counted = files.into_iter().filter(|file| !is_of_open(file));
            counted
                .map(|file| format!("{what} {}/{}", file >> NUMBER_BITS, file % (1 << NUMBER_BITS)))
                .collect()
        };
        let unknown = names(there.difference(&known).collect(), "unknown");
        Some([unknown, names(known.difference(&there).collect(), "missing")].concat())
    }

    fn open_puts(&self) -> Option<Vec<Vec<serde_json::Value>>> {
        self.world.ask("select put, path, source from file_puts where tree = 1 and version is null")
    }

    fn check_fsck(&mut self) {
        let checked = self.world.cluster.files().run(&["fsck"]);
        if !checked.status.success() || !checked.text().contains("; 0 problems") {
            self.tally.problem(format!("fsck: {}", checked.story()));
        }
    }

    /// Every name has the content of the model, and there are no others.
    fn check_all_names(&mut self) {
        let now = self.names.now();
        for place in 0..self.names.list.len() {
            let (text, shape) = (self.names.list[place].text, self.names.list[place].shape);
            let Some(state) = self.names.state(place) else { continue };
            let read = match state {
                None => continue,
                Some(_) => {
                    read(&self.world.cluster.files(), text, shape, &self.world.cluster.sandbox.path("last"))
                }
            };
            match read {
                Ok(files) => drop(self.check_files(place, &files, now)),
                Err(story) => self.tally.problem(format!("{text} cannot be read: {story}")),
            }
        }
        let listed = self.world.cluster.files().run(&["ls", "--json", "--recursive"]);
        drop(self.check_list(&listed, now));
    }

    /// Only puts that were given up may go on.
    fn check_puts(&mut self) {
        let Some(rows) = self.open_puts() else {
            return self.tally.problem("the server does not tell of its puts".to_string());
        };
        for row in rows {
            let text = |column: usize| row.get(column).and_then(|value| value.as_str()).unwrap_or_default();
            let (path, source) = (text(1).trim_start_matches('/'), text(2));
            let is_given_up =
                |(name, of): &(&'static str, String)| *name == path && source.contains(of.as_str());
            match self.given_up.iter().any(is_given_up) {
                true => self.tally.count("given up", "put, left"),
                false => self.tally.problem(format!("a put is open: {row:?}, given up: {:?}", self.given_up)),
            }
        }
    }

    fn look_for_panics(&mut self) {
        for (who, told) in self.world.all_told() {
            if let Some(at) = told.find("panicked at") {
                let text: String = told[at..].chars().take(1000).collect();
                self.tally.problem(format!("{who} panicked: {text}"));
            }
        }
    }
}

/// Reads a name, also a tree, to its end.
fn read(files: &StoredFiles<'_>, name: &str, shape: Shape, target: &Path) -> Result<Files, String> {
    if shape != Shape::Tree {
        let finished = files.run(&["cat", name]);
        let is_done = finished.status.success();
        return match is_done {
            true => Ok(Files::from([(String::new(), finished.stdout)])),
            false => Err(finished.story()),
        };
    }
    let finished = files.run(&["get", name, &target.to_string_lossy()]);
    let got = file_tree(target);
    super::operations::remove(target);
    let path = |path: &Path| path.to_string_lossy().into_owned();
    match finished.status.success() {
        true => Ok(got.into_iter().filter_map(|(below, bytes)| Some((path(&below), bytes?))).collect()),
        false => Err(finished.story()),
    }
}

/// Returns the number of the concrete file with this path, `PUT/DIRECTORY/NUMBER` in hexadecimal digits; None for its checksums.
fn number_of(path: &Path) -> Option<i64> {
    let words: Vec<&str> = path.iter().filter_map(|word| word.to_str()).collect();
    let &[put, _, number] = &words[..] else { return None };
    let parse = |word: &str| i64::from_str_radix(word, 16).ok();
    Some(parse(put)? << NUMBER_BITS | parse(number)?)
}
