//! Faults that an administrator injects into this node in a drill; only if the node was started for that.

use crate::link::pause::stand_still;
use crate::link::remote::Remote;
use api::drill::{ARMED_SECONDS_MAX, DrillFault, DrillOutcome, PAUSE_SECONDS_MAX};
use ids::{JobId, NodeId, RunId};
use program::Programs;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Files with fewer bytes have no block.
const RUN_BYTES_MIN: u64 = 256;

/// The participation of a node in drills.
#[derive(Clone, Debug)]
pub struct Drill(Option<Parts>);

#[derive(Clone, Debug)]
struct Parts {
    programs: Arc<Programs>,
    /// Number of times that a crash point was armed or disarmed.
    armed: Arc<AtomicU64>,
}

impl Drill {
    /// Returns the state of a node that takes part in no drill.
    pub fn none() -> Self {
        Self(None)
    }

    /// Returns the state of a participating node, whose slots keep their programs in this registry.
    pub fn taking_part(programs: &Arc<Programs>) -> Self {
        Self(Some(Parts { programs: Arc::clone(programs), armed: Arc::default() }))
    }

    /// Executes a fault, and reports it to the server. A fault that ends or pauses the process is reported before, and
    /// not executed without a server.
    pub(crate) fn strike(&self, remote: &Remote, strike: String, fault: DrillFault) {
        let outcome = match &self.0 {
            None => refused("it was not started with `sailfish node --drills`"),
            Some(parts) => parts.outcome(remote, &fault),
        };
        let struck = matches!(outcome, DrillOutcome::Struck { .. });
        if let Err(error) = remote.link().tell_drill(strike, outcome) {
            tracing::warn!(%error, "cannot report the outcome of a drill's fault to the server");
            return faults::disarm();
        }
        match fault {
            DrillFault::KillNode if struck => {
                eprintln!("sailfish: ending at once, as a drill ordered");
                std::process::abort();
            }
            DrillFault::PauseNode { seconds } if struck => match stand_still(seconds) {
                Ok(took) => tracing::info!(?took, "paused, as a drill ordered"),
                Err(error) => tracing::warn!(%error, "cannot pause for a drill"),
            },
            _ => {}
        }
    }
}

impl Parts {
    fn outcome(&self, remote: &Remote, fault: &DrillFault) -> DrillOutcome {
        match fault {
            DrillFault::Look => struck("takes part".to_string()),
            DrillFault::KillNode => struck(format!("process {} ended", std::process::id())),
            DrillFault::PauseNode { seconds } if !(1..=PAUSE_SECONDS_MAX).contains(seconds) => {
                refused(&format!("it can pause for 1 to {PAUSE_SECONDS_MAX} seconds, not for {seconds}"))
            }
            DrillFault::PauseNode { seconds } => {
                struck(format!("process {} paused for {seconds} s", std::process::id()))
            }
            DrillFault::DamageRun { job, choice } => on_run(remote, *job, *choice, flip),
            DrillFault::DropRun { job, choice } => on_run(remote, *job, *choice, |path, _| remove(path)),
            DrillFault::KillProgram { job } => match self.programs.kill_one_of(&remote.stop_flags(*job)) {
                true => struck("a user program killed".to_string()),
                false => no_victim("no user program of the job runs there"),
            },
            DrillFault::CrashAt { point, seconds } => self.arm(point, *seconds),
            DrillFault::Disarm => {
                self.armed.fetch_add(1, Ordering::Relaxed);
                faults::disarm();
                struck("no crash point is armed".to_string())
            }
        }
    }

    /// Arms a crash point for this many seconds.
    fn arm(&self, point: &str, seconds: u32) -> DrillOutcome {
        if !(1..=ARMED_SECONDS_MAX).contains(&seconds) {
            return refused(&format!(
                "a point is armed for 1 to {ARMED_SECONDS_MAX} seconds, not for {seconds}"
            ));
        }
        let this = self.armed.fetch_add(1, Ordering::Relaxed) + 1;
        let armed = Arc::clone(&self.armed);
        let disarm_in_time = move || {
            std::thread::sleep(Duration::from_secs(seconds.into()));
            // Another point may have been armed since.
            if armed.load(Ordering::Relaxed) == this {
                faults::disarm();
            }
        };
        if let Err(error) = std::thread::Builder::new().name("drill".to_string()).spawn(disarm_in_time) {
            return refused(&format!("it cannot start the thread that disarms the point: {error}"));
        }
        match faults::arm(point) {
            Some(point) => struck(format!("armed {}", point.name())),
            None => refused(&format!("nodes have no crash point {point:?}")),
        }
    }
}

fn struck(what: String) -> DrillOutcome {
    DrillOutcome::Struck { what }
}

fn no_victim(why: &str) -> DrillOutcome {
    DrillOutcome::NoVictim { why: why.to_string() }
}

fn refused(why: &str) -> DrillOutcome {
    DrillOutcome::Refused { why: why.to_string() }
}

/// Applies `act` to one of the job's run files here.
fn on_run(
    remote: &Remote,
    job: JobId,
    choice: u64,
    act: impl Fn(&Path, u64) -> std::io::Result<String>,
) -> DrillOutcome {
    let files = run_files(&remote.disks().dirs(job), remote.link().node());
    let Some(path) = (!files.is_empty()).then(|| &files[(choice % files.len() as u64) as usize]) else {
        return no_victim("its disks have no run of the job");
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match act(path, choice / files.len() as u64) {
        Ok(what) => struck(format!("{what} {name}")),
        // It was merged into another run just now.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            no_victim("the run was removed just now")
        }
        Err(error) => refused(&format!("{}: {error}", path.display())),
    }
}

/// Returns the run files in these directories, in order. Replicas of other nodes' runs only if there is nothing else:
/// most are never read.
fn run_files(dirs: &[PathBuf], here: NodeId) -> Vec<PathBuf> {
    let entries = dirs.iter().filter_map(|dir| std::fs::read_dir(dir).ok()).flatten().flatten();
    let is_run = |path: &PathBuf| {
        let is_long = |metadata: std::fs::Metadata| metadata.len() >= RUN_BYTES_MIN;
        path.extension().is_some_and(|extension| extension == "ifile") && path.metadata().is_ok_and(is_long)
    };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_run).collect();
    files.sort();
    let is_own = |path: &PathBuf| {
        let stem = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.strip_prefix("run-"));
        stem.and_then(|number| number.parse().ok()).is_some_and(|number| RunId(number).node() == here)
    };
    if files.iter().any(is_own) {
        files.retain(is_own);
    }
    files
}

/// Changes a byte in the middle of the file, where blocks are that most likely nobody has read yet.
fn flip(path: &Path, choice: u64) -> std::io::Result<String> {
    let file = File::options().read(true).write(true).open(path)?;
    let bytes = file.metadata()?.len();
    let offset = bytes / 4 + choice % (bytes / 2).max(1);
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset)?;
    byte[0] ^= 1 << (choice % 8);
    file.write_all_at(&byte, offset)?;
    Ok(format!("byte {offset} changed of"))
}

fn remove(path: &Path) -> std::io::Result<String> {
    std::fs::remove_file(path)?;
    Ok("removed".to_string())
}

#[cfg(test)]
mod tests {
    use super::{flip, remove, run_files};
    use ids::{NodeId, RunId};
    use std::fs;

    #[test]
    fn drill_flips_one_byte_of_one_run() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run-000001.ifile");
        fs::write(&run, vec![7; 4096]).unwrap();
        fs::write(dir.path().join("chunk-000001.raw"), vec![7; 4096]).unwrap();
        fs::write(dir.path().join("run-000002.ifile"), b"short").unwrap();
        let dirs = [dir.path().to_path_buf(), dir.path().join("gone")];
        let here = NodeId(3);
        assert!(run_files(&dirs, here).iter().eq([&run]));
        let own = dir.path().join(format!("run-{}.ifile", RunId::on(here, 1).0));
        fs::write(&own, vec![7; 4096]).unwrap();
        assert!(run_files(&dirs, here).iter().eq([&own]));
        remove(&own).unwrap();
        for choice in [0, 1, 4097, u64::MAX] {
            fs::write(&run, vec![7; 4096]).unwrap();
            flip(&run, choice).unwrap();
            let changed = fs::read(&run).unwrap().iter().filter(|byte| **byte != 7).count();
            assert_eq!(changed, 1, "{choice}");
        }
        remove(&run).unwrap();
        assert!(run_files(&dirs, here).is_empty() && remove(&run).is_err());
    }
}
