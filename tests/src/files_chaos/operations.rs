//! The commands of a run: drawn by chance, and started.

use super::content::{Content, LARGE_FILE, SMALL_FILE, Shape};
use super::names::{Place, State};
use super::run::Run;
use crate::Running;
use std::fs;
use std::process::Command;
use std::time::Instant;

/// A command with its names.
#[derive(Debug)]
pub(super) enum Verb {
    Put {
        place: Place,
        content: Content,
        source: String,
        options: [&'static str; 4],
    },
    Get {
        place: Place,
        target: String,
    },
    /// A file of a tree, or with an empty name a single one.
    Cat {
        place: Place,
        below: &'static str,
    },
    List,
    Remove {
        place: Place,
    },
    Move {
        from: Place,
        to: Place,
        content: Content,
    },
    Copy {
        from: Place,
        to: Place,
        content: Content,
    },
    Job {
        input: Place,
        output: Place,
        name: String,
        step: JobStep,
    },
}

/// Step of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobStep {
    Submits,
    /// Its client has not said whether there is a job: the store is asked.
    Asks,
    Follows(i64),
    Reads,
}

/// A command under way.
pub(super) struct Operation {
    pub verb: Verb,
    /// None until the last request of a killed client is over.
    pub client: Option<Running>,
    pub waits_until: Instant,
    pub is_killed: bool,
    /// The client of today lists the tree, to find out whether the change has happened. The text is that of a failure.
    pub settles: Option<String>,
    /// Time of the names when the command began.
    pub since: u64,
    pub begun: Instant,
    pub server_kills_before: u64,
}

impl Verb {
    /// Returns the row of the table.
    pub fn row(&self) -> &'static str {
        match self {
            Self::Put { .. } => "put",
            Self::Get { .. } => "get",
            Self::Cat { .. } => "cat",
            Self::List => "ls",
            Self::Remove { .. } => "rm",
            Self::Move { .. } => "mv",
            Self::Copy { .. } => "cp",
            Self::Job { .. } => "job",
        }
    }

    /// Returns the names that it changes, with their states when it is done. The state of an output is not known before.
    pub fn changes(&self) -> Vec<(Place, State)> {
        match self {
            Self::Put { place, content, .. } => vec![(*place, Some(*content))],
            Self::Remove { place } => vec![(*place, None)],
            Self::Move { from, to, content } => vec![(*from, None), (*to, Some(*content))],
            // Nobody changes the source meanwhile, so that it is known what is copied.
            Self::Copy { from, to, content } => vec![(*from, Some(*content)), (*to, Some(*content))],
            Self::Job { .. } | Self::Get { .. } | Self::Cat { .. } | Self::List => Vec::new(),
        }
    }
}

impl Run {
    /// Starts a command by chance, if the names allow one.
    pub fn begin_one(&mut self) {
        let drawn = self.random.below(100);
        let verb = match drawn {
            0..30 => self.put(),
            30..52 => self.get(),
            52..64 => self.cat(),
            64..70 => Some(Verb::List),
            70..75 => self.remove(),
            75..88 => self.move_or_copy(drawn < 82),
            _ => self.job(),
        };
        if let Some(verb) = verb {
            self.begin(verb);
        }
    }

    /// Starts a command, and notes its changes in the model.
    pub fn begin(&mut self, verb: Verb) {
        if let Verb::Job { output, .. } = &verb {
            let old = self.names.state(*output).expect("it is not being changed");
            self.names.begin(*output, old);
        }
        for (place, state) in verb.changes() {
            self.names.begin(place, state);
        }
        let operation = Operation {
            client: Some(Running::start(&mut self.command(&verb))),
            verb,
            waits_until: Instant::now(),
            is_killed: false,
            settles: None,
            since: self.names.now(),
            begun: Instant::now(),
            server_kills_before: self.world.server_kills_over(),
        };
        self.operations.push(operation);
    }

    /// Starts the client of today's step once more, or that of the next step.
    pub fn start_again(&self, operation: &mut Operation) {
        let command = match operation.settles {
            Some(_) => self.command(&Verb::List),
            None => self.command(&operation.verb),
        };
        operation.client = Some(Running::start(&mut { command }));
        operation.is_killed = false;
        // A job reads the version of its submit, whoever waits for it.
        if !matches!(operation.verb, Verb::Job { .. }) {
            operation.since = self.names.now();
        }
    }

    fn command(&self, verb: &Verb) -> Command {
        let (files, text) = (self.world.cluster.files(), |place: &Place| self.names.list[*place].text);
        match verb {
            Verb::Put { place, source, options, .. } => {
                let mut command = files.command(&["put", source, text(place)]);
                command.args(options);
                command
            }
            Verb::Get { place, target } => files.command(&["get", text(place), target]),
            Verb::Cat { place, below: "" } => files.command(&["cat", text(place)]),
            Verb::Cat { place, below } => files.command(&["cat", &format!("{}/{below}", text(place))]),
            Verb::List => files.command(&["ls", "--json", "--recursive"]),
            Verb::Remove { place } => files.command(&["rm", "--recursive", text(place)]),
            Verb::Move { from, to, .. } => files.command(&["mv", text(from), text(to)]),
            Verb::Copy { from, to, .. } => files.command(&["cp", text(from), text(to)]),
            Verb::Job { input, output, name, step } => {
                self.job_command(text(input), text(output), name, *step)
            }
        }
    }

    fn job_command(&self, input: &str, output: &str, name: &str, step: JobStep) -> Command {
        let cluster = &self.world.cluster;
        match step {
            JobStep::Submits | JobStep::Asks => cluster.job(&[
                "--name",
                name,
                "--input",
                &format!("files:{input}"),
                "--mapper",
                "builtin:words",
                "--reducer",
                "builtin:sum",
                "--output",
                &format!("files:{output}"),
                "--replicas",
                "2",
            ]),
            JobStep::Follows(job) => cluster.sailfish(&["wait", &job.to_string()]),
            JobStep::Reads => cluster.files().command(&["cat", output]),
        }
    }

    fn new_number(&mut self) -> u32 {
        self.last_number += 1;
        self.last_number
    }

    fn put(&mut self) -> Option<Verb> {
        let shape = *self.random.one_of(&[Shape::Tree, Shape::Tree, Shape::Single]);
        let free = self.names.free(shape);
        let (place, _) = *self.one_of(&free)?;
        Some(self.put_at(place))
    }

    /// Writes the source of a put. Every second one has the path of an earlier one, whose put may have been given up.
    pub fn put_at(&mut self, place: Place) -> Verb {
        let number = self.new_number();
        let content = Content { shape: self.names.list[place].shape, number };
        let source = format!("source/{}-{}", self.names.list[place].text.replace('/', "-"), number % 2);
        let sandbox = &self.world.cluster.sandbox;
        remove(&sandbox.path(&source));
        for (name, bytes) in content.files(self.settings.seed) {
            let path = if name.is_empty() { source.clone() } else { format!("{source}/{name}") };
            sandbox.write(&path, bytes);
        }
        let replicas = *self.random.one_of(&["2", "3"]);
        let parts = *self.random.one_of(&["1", "1", "3"]);
        Verb::Put { place, content, source, options: ["--replicas", replicas, "--parts", parts] }
    }

    fn get(&mut self) -> Option<Verb> {
        let shape = *self.random.one_of(&[Shape::Tree, Shape::Tree, Shape::Single]);
        let place = self.read_one(shape)?;
        Some(Verb::Get { place, target: format!("got/{}", self.new_number()) })
    }

    fn cat(&mut self) -> Option<Verb> {
        let shape = *self.random.one_of(&[Shape::Tree, Shape::Single, Shape::Counts]);
        let place = self.read_one(shape)?;
        let below = match shape {
            Shape::Tree => *self.random.one_of(&[SMALL_FILE, LARGE_FILE, LARGE_FILE]),
            Shape::Single | Shape::Counts => "",
        };
        Some(Verb::Cat { place, below })
    }

    /// Returns a name that may have a content, whether or not it is being changed.
    fn read_one(&mut self, shape: Shape) -> Option<Place> {
        let now = self.names.now();
        let has_content = |place: &Place| self.names.met_since(*place, now).iter().any(Option::is_some);
        let of_shape = (0..self.names.list.len()).filter(|place| self.names.list[*place].shape == shape);
        let readable: Vec<Place> = of_shape.filter(has_content).collect();
        self.one_of(&readable).copied()
    }

    fn remove(&mut self) -> Option<Verb> {
        let shape = *self.random.one_of(&[Shape::Tree, Shape::Single, Shape::Counts]);
        let mut free = self.names.free(shape);
        free.retain(|(_, state)| state.is_some());
        let (place, _) = *self.one_of(&free)?;
        Some(Verb::Remove { place })
    }

    /// A file may replace a file; nothing replaces a directory so.
    fn move_or_copy(&mut self, moves: bool) -> Option<Verb> {
        let shape = *self.random.one_of(&[Shape::Tree, Shape::Single]);
        let free = self.names.free(shape);
        let sources: Vec<(Place, Content)> =
            free.iter().filter_map(|(place, state)| Some((*place, (*state)?))).collect();
        let (from, content) = *self.one_of(&sources)?;
        let may_be_target =
            |(place, state): &&(Place, State)| *place != from && (shape == Shape::Single || state.is_none());
        let targets: Vec<(Place, State)> = free.iter().filter(may_be_target).copied().collect();
        let (to, _) = *self.one_of(&targets)?;
        Some(match moves {
            true => Verb::Move { from, to, content },
            false => Verb::Copy { from, to, content },
        })
    }

    fn job(&mut self) -> Option<Verb> {
        let input = self.read_one(Shape::Tree)?;
        let free = self.names.free(Shape::Counts);
        let (output, _) = *self.one_of(&free)?;
        let name = format!("count-{}", self.new_number());
        Some(Verb::Job { input, output, name, step: JobStep::Submits })
    }

    fn one_of<'a, T>(&mut self, list: &'a [T]) -> Option<&'a T> {
        (!list.is_empty()).then(|| self.random.one_of(list))
    }
}

/// Removes a file or directory of ours, if there is one.
pub(super) fn remove(path: &std::path::Path) {
    let _ = match path.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    };
}
