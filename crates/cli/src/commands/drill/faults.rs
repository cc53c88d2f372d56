//! The faults by their names.

use anyhow::{Context, anyhow, bail, ensure};
use api::drill::{DrillFault, PAUSE_SECONDS_MAX};
use faults::{CrashPoint, POINTS_OF_NODES};
use ids::JobId;
use std::fmt::Write;

/// Longer than the timeout of a silent node: so its work is retried on other nodes, and it comes back too late.
const PAUSE_SECONDS: u32 = 12;
/// Every fault, in the order of `all`: the least harmful first.
const NAMES: [(&str, &str); 6] = [
    ("kill-program", "kills a user program of a job of the drill"),
    ("damage-run", "changes a byte of sorted intermediate data of a job of the drill"),
    ("drop-run", "removes a file of sorted intermediate data of a job of the drill"),
    (
        "pause-node",
        "pauses a node for 12 s, longer than the server waits for it; pause-node:SECONDS, up to 60",
    ),
    ("kill-node", "ends the process of a node at once"),
    (
        "crash-at",
        "ends the process of a node when it reaches a crash point; crash-at:POINT, otherwise the seed \
         chooses",
    ),
];
/// Points that are reached only by jobs whose chunks exceed memory: the seed does not choose them.
const RARE: [CrashPoint; 2] = [CrashPoint::RawSpillBeforeWrite, CrashPoint::RawSpillAfterWrite];

/// A fault of the drill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    KillProgram,
    DamageRun,
    DropRun,
    PauseNode {
        seconds: u32,
    },
    KillNode,
    /// None lets the seed choose the point.
    CrashAt(Option<CrashPoint>),
}

impl Fault {
    pub fn name(&self) -> String {
        match self {
            Self::KillProgram => "kill-program".to_string(),
            Self::DamageRun => "damage-run".to_string(),
            Self::DropRun => "drop-run".to_string(),
            Self::PauseNode { seconds } => format!("pause-node:{seconds}"),
            Self::KillNode => "kill-node".to_string(),
            Self::CrashAt(None) => "crash-at".to_string(),
            Self::CrashAt(Some(point)) => format!("crash-at:{}", point.name()),
        }
    }

    /// Returns whether it affects everything on the node, and not only the drill.
    pub fn hits_others(&self) -> bool {
        matches!(self, Self::PauseNode { .. } | Self::KillNode | Self::CrashAt(_))
    }

    /// Returns whether it needs sorted data on disks, which exists after the maps.
    pub fn needs_runs(&self) -> bool {
        matches!(self, Self::DamageRun | Self::DropRun)
    }

    /// Returns the fault with a crash point, if it needs one.
    pub fn chosen(self, random: &mut fastrand::Rng) -> Fault {
        let usual = || POINTS_OF_NODES.iter().copied().filter(|point| !RARE.contains(point));
        match self {
            Self::CrashAt(None) => Self::CrashAt(usual().nth(random.usize(..usual().count()))),
            other => other,
        }
    }

    /// Returns the order for a node, with this job as the victim.
    pub fn order(&self, job: JobId, choice: u64, seconds: u32) -> DrillFault {
        match self {
            Self::KillProgram => DrillFault::KillProgram { job },
            Self::DamageRun => DrillFault::DamageRun { job, choice },
            Self::DropRun => DrillFault::DropRun { job, choice },
            Self::PauseNode { seconds } => DrillFault::PauseNode { seconds: *seconds },
            Self::KillNode => DrillFault::KillNode,
            Self::CrashAt(point) => {
                let point = point.map_or("", CrashPoint::name).to_string();
                DrillFault::CrashAt { point, seconds }
            }
        }
    }
}

/// Parses a list of names.
pub fn parse(text: &str) -> anyhow::Result<Vec<Fault>> {
    if text == "all" {
        return NAMES.iter().map(|(name, _)| parse_one(name)).collect();
    }
    let faults = text.split(',').map(str::trim).map(parse_one).collect::<anyhow::Result<Vec<Fault>>>();
    faults.with_context(|| format!("--faults {text}"))
}

fn parse_one(text: &str) -> anyhow::Result<Fault> {
    let (name, of) = text.split_once(':').map_or((text, None), |(name, of)| (name, Some(of)));
    let fault = match (name, of) {
        ("kill-program", None) => Fault::KillProgram,
        ("damage-run", None) => Fault::DamageRun,
        ("drop-run", None) => Fault::DropRun,
        ("kill-node", None) => Fault::KillNode,
        ("pause-node", None) => Fault::PauseNode { seconds: PAUSE_SECONDS },
        ("pause-node", Some(seconds)) => {
            let seconds = seconds.parse().ok().filter(|seconds| (1..=PAUSE_SECONDS_MAX).contains(seconds));
            let seconds =
                seconds.with_context(|| format!("{text}: give 1 to {PAUSE_SECONDS_MAX} seconds"))?;
            Fault::PauseNode { seconds }
        }
        ("crash-at", None) => Fault::CrashAt(None),
        ("crash-at", Some(point)) => {
            let found = POINTS_OF_NODES.iter().copied().find(|each| each.name() == point);
            let names = POINTS_OF_NODES.iter().map(|point| point.name());
            Fault::CrashAt(Some(found.ok_or_else(|| unknown("crash point of nodes", point, names))?))
        }
        (name, of) => {
            let names = NAMES.iter().map(|(name, _)| *name);
            ensure!(names.clone().any(|known| known == name), unknown("fault", name, names.chain(["all"])));
            bail!("{name} takes no argument, but {:?} follows it", of.unwrap_or_default());
        }
    };
    Ok(fault)
}

fn unknown<'a>(what: &str, name: &str, names: impl Iterator<Item = &'a str>) -> anyhow::Error {
    let nearest = names.min_by_key(|known| distance(name, known)).unwrap_or_default();
    anyhow!("there is no {what} {name:?}; did you mean {nearest}? `sailfish drill --list` lists all")
}

/// Returns the edit distance of two words: letters to insert, remove or change.
fn distance(left: &str, right: &str) -> usize {
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (number, from) in left.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], number + 1);
        for (place, to) in right.bytes().enumerate() {
            let changed = diagonal + usize::from(from != to);
            diagonal = row[place + 1];
            row[place + 1] = changed.min(diagonal + 1).min(row[place] + 1);
        }
    }
    row[right.len()]
}

/// Returns all names with their meanings.
pub fn list() -> String {
    let mut text = "faults:\n".to_string();
    for (name, meaning) in NAMES {
        let _ = writeln!(text, "  {name:<14}{meaning}");
    }
    text.push_str("crash points:\n");
    for point in POINTS_OF_NODES {
        let _ = writeln!(text, "  {}", point.name());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Fault, NAMES, distance, parse};

    #[test]
    fn names_are_read() {
        assert_eq!(parse("all").unwrap().len(), NAMES.len());
        let check = |text: &str, expected: &[Fault]| assert_eq!(parse(text).unwrap(), expected, "{text}");
        check("kill-node", &[Fault::KillNode]);
        check("drop-run, pause-node:3", &[Fault::DropRun, Fault::PauseNode { seconds: 3 }]);
        check("crash-at", &[Fault::CrashAt(None)]);
        let [fault] = parse("crash-at:run-after-write").unwrap()[..] else { panic!("one fault") };
        assert_eq!(fault.name(), "crash-at:run-after-write");
        let refused = |text: &str, part: &str| {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains(part), "{text}: {error}");
        };
        refused("kil-node", "did you mean kill-node?");
        refused("kill-node,damage-rum", "did you mean damage-run?");
        refused("crash-at:run-after-wirte", "did you mean run-after-write?");
        // A crash point of the server.
        refused("crash-at:submit-before-transaction", "no crash point of nodes");
        refused("pause-node:61", "1 to 60");
        refused("kill-node:3", "takes no argument");
        refused("", "there is no fault");
    }

    #[test]
    fn distances_count_letters() {
        assert_eq!((distance("", "abc"), distance("abc", "abc"), distance("abd", "abc")), (3, 0, 1));
        assert_eq!((distance("kitten", "sitting"), distance("ac", "abc")), (3, 1));
    }
}
