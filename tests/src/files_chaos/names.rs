//! The model: what each name may stand for. A change that is under way, or whose client was killed, may or may not have happened.

use super::content::{Content, Shape};
use std::collections::BTreeMap;

/// Names of trees, of single files, and of outputs of jobs. Some lie deeper.
const TREES: [&str; 4] = ["tree-0", "tree-1", "deep/er/tree-2", "deep/er/tree-3"];
const SINGLES: [&str; 4] = ["file-0", "file-1", "file-2", "deep/file-3"];
const OUTPUTS: [&str; 3] = ["out-0", "out-1", "out-2"];
/// The directories above them.
pub(super) const ABOVE: [&str; 2] = ["deep", "deep/er"];

/// A content, or None where nothing has the name.
pub(super) type State = Option<Content>;

/// A state that a name may have, or had until then.
#[derive(Debug)]
struct Possible {
    state: State,
    until: Option<u64>,
}

/// A name and what it may stand for.
#[derive(Debug)]
pub(super) struct Name {
    pub text: &'static str,
    pub shape: Shape,
    possible: Vec<Possible>,
    /// A change is under way; one name has at most one.
    pub is_changing: bool,
}

/// Index of a name.
pub(super) type Place = usize;

/// All names, and a clock that counts their changes.
#[derive(Debug)]
pub(super) struct Names {
    pub list: Vec<Name>,
    clock: u64,
}

impl Names {
    /// Makes the names; none has a content.
    pub fn new() -> Names {
        let of = |shape| {
            move |text: &&'static str| Name {
                text,
                shape,
                possible: vec![Possible { state: None, until: None }],
                is_changing: false,
            }
        };
        let list = TREES.iter().map(of(Shape::Tree)).chain(SINGLES.iter().map(of(Shape::Single)));
        Names { list: list.chain(OUTPUTS.iter().map(of(Shape::Counts))).collect(), clock: 1 }
    }

    /// Returns the time at which a reader begins.
    pub fn now(&self) -> u64 {
        self.clock
    }

    /// Notes that a change of this name begins, after which it may stand for `new` as well.
    pub fn begin(&mut self, place: Place, new: State) {
        self.clock += 1;
        let name = &mut self.list[place];
        assert!(!name.is_changing, "{} is being changed", name.text);
        name.is_changing = true;
        name.possible.push(Possible { state: new, until: None });
    }

    /// Notes that the change is over and the name stands for this.
    pub fn end(&mut self, place: Place, state: State) {
        self.clock += 1;
        let name = &mut self.list[place];
        name.is_changing = false;
        for possible in name.possible.iter_mut().filter(|possible| possible.until.is_none()) {
            possible.until = Some(self.clock);
        }
        name.possible.push(Possible { state, until: None });
    }

    /// Returns the state of a name that is not being changed.
    pub fn state(&self, place: Place) -> Option<State> {
        let name = &self.list[place];
        let last = name.possible.last().filter(|_| !name.is_changing);
        last.map(|possible| possible.state)
    }

    /// Returns the states that a reader may have met who began then and ends now.
    pub fn met_since(&self, place: Place, since: u64) -> Vec<State> {
        let met = |possible: &&Possible| possible.until.is_none_or(|until| until > since);
        self.list[place].possible.iter().filter(met).map(|possible| possible.state).collect()
    }

    /// Returns the names of this shape that may be changed, with their states.
    pub fn free(&self, shape: Shape) -> Vec<(Place, State)> {
        let of_shape = |place: &Place| self.list[*place].shape == shape;
        let all = (0..self.list.len()).filter(of_shape);
        all.filter_map(|place| Some((place, self.state(place)?))).collect()
    }

    /// Divides a list of the whole tree, files with their bytes, among the names. The error names a file of nobody.
    pub fn divide(&self, listed: &BTreeMap<String, u64>) -> Result<Vec<BTreeMap<String, u64>>, String> {
        let mut groups = vec![BTreeMap::new(); self.list.len()];
        for (path, bytes) in listed {
            let below = |name: &Name| {
                let rest = path.strip_prefix(name.text)?;
                if rest.is_empty() { Some("") } else { rest.strip_prefix('/') }
            };
            let found = self.list.iter().enumerate().find_map(|(place, name)| Some((place, below(name)?)));
            let (place, below) = found.ok_or_else(|| format!("nobody put {path}"))?;
            groups[place].insert(below.to_string(), *bytes);
        }
        Ok(groups)
    }
}
