//! `sailfish drill`: a fault drill on a working cluster. Jobs with known answers run while faults are injected, at
//! moments that a seed chooses; at the end it reports the lost records, of which there must be none.
//!
//! ```text
//! faults   their names, and what each is
//! jobs     input with a known answer, and the jobs over it
//! judge    an output against the answer, record by record
//! cluster    the cluster: who takes part, who else is there, what happened
//! trial     some jobs and one fault, from submit to verdict
//! told     the table, and JSON
//! ```

mod faults;
mod jobs;
mod judge;
mod output;
mod target_cluster;
mod trial;

use crate::engine::interrupt::Interrupt;
use crate::engine::machine;
use crate::exit::{FAILED, Failure, INTERRUPTED};
use crate::options::connect::{CredentialArgs, Site};
use crate::show::quantity::counted;
use crate::show::terminal::{print, tell};
use anyhow::{Context, anyhow};
use clap::Args;
use faults::Fault;
use jobs::{INPUT_BYTES_MAX, INPUT_BYTES_MIN, Inputs};
use jobspec::memory_size;
use program::Programs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use target_cluster::{OtherJobs, TargetCluster};
use trial::{Row, Trial};

/// Maximum number of tries of a fault whose moment passed, each with new jobs.
const TRIES_MAX: u32 = 3;
/// Maximum number of tries: a task that stops late may still write while a directory is removed.
const REMOVE_TRIES_MAX: u32 = 50;
const REMOVE_AGAIN_AFTER: std::time::Duration = std::time::Duration::from_millis(100);

pub const EXAMPLES: &str = "\
Nodes take part that were started with `sailfish node --drills`; with tokens, the caller must be an administrator.
Jobs of the drill are named sailfish-drill-...; only their data is damaged and only their programs are killed. A
fault that ends or stops a node hits whatever runs there: the drill refuses it while others have jobs on the
cluster, unless --yes is given. The last node that works is not ended. A node that was ended comes back only where
something starts it again, such as `sailfish node --supervise`; the table says whether it did.

Examples:
  sailfish drill --list
  sailfish drill --server http://127.0.0.1:7070 --directory /shared/scratch
  sailfish drill --server http://127.0.0.1:7070 --directory /shared/scratch --faults kill-node,crash-at:run-after-write
  sailfish drill --server http://127.0.0.1:7070 --directory /shared/scratch --rounds 20 --seed 7 --json

Exit codes:
  0    faults struck, and every record of every job came out once and as it should be
  1    something was lost, twice there, or wrong, or a job failed (what is printed names it); or no fault struck
  2    the drill was refused: an option, a directory, the role, or no node takes part
  130  stopped by Ctrl-C; what the drill had made is removed";

#[derive(Debug, Args)]
pub struct DrillArgs {
    /// The server of the cluster, as in http://127.0.0.1:7070
    #[arg(long, value_name = "URL", required_unless_present = "list")]
    pub server: Option<String>,
    #[command(flatten)]
    pub credentials: CredentialArgs,
    /// Directory that this machine and all nodes see under this path, and in which jobs may read and write; the drill
    /// makes its own directory in it and removes it at the end
    #[arg(long, value_name = "DIR", required_unless_present = "list")]
    pub directory: Option<PathBuf>,
    /// Faults by their names, with commas between, or all
    #[arg(long, value_name = "NAME,...", default_value = "all")]
    pub faults: String,
    /// Number of times that each fault strikes
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Seed that chooses input, jobs, moments and nodes [default: a new one each time; it is printed]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Jobs that run while a fault strikes
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub jobs: u32,
    /// Bytes of the input of the largest job, 1M to 256M
    #[arg(long, value_name = "SIZE", default_value = "16M")]
    pub size: String,
    /// End and pause nodes also while other users have jobs on the cluster: the jobs rerun lost work, as after any
    /// crash
    #[arg(long)]
    pub yes: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// List the faults and crash points
    #[arg(long)]
    pub list: bool,
}

/// A drill: its cluster, its inputs, the jobs that run at once, and its seed.
pub struct Drill {
    cluster: TargetCluster,
    inputs: Inputs,
    jobs_at_once: u32,
    seed: u64,
}

/// Runs the drill; exits with [`FAILED`] if anything is wrong.
pub fn run(args: &DrillArgs) -> Result<(), Failure> {
    if args.list {
        return Ok(print(&faults::list())?);
    }
    let faults = faults::parse(&args.faults).map_err(Failure::refused)?;
    machine::raise_open_file_limit();
    let (server, directory) = (args.server.clone(), args.directory.as_deref());
    let (Some(url), Some(directory)) = (server, directory) else {
        return Err(Failure::refused(anyhow!("--server and --directory are missing")));
    };
    let size_bytes = memory_size::parse(&args.size).with_context(|| format!("--size {:?}", args.size));
    let size_bytes = size_bytes.map_err(Failure::refused)?;
    if !(INPUT_BYTES_MIN..=INPUT_BYTES_MAX).contains(&size_bytes) {
        return Err(Failure::refused(anyhow!("--size {}: give 1M to 256M", args.size)));
    }
    let site = Site { url, credentials: args.credentials.clone() };
    let other_jobs = if args.yes { OtherJobs::Hit } else { OtherJobs::Spare };
    let cluster = TargetCluster::open(site, other_jobs)?;
    cluster.check_others(&faults).map_err(Failure::refused)?;
    let interrupt = Interrupt::listen(Arc::new(Programs::new()))?;
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    let root = Root::make(directory).map_err(Failure::refused)?;
    let (stop, second, path) = (Arc::clone(&cluster.stop), interrupt.clone(), root.path.clone());
    interrupt.aim(Arc::new(move || {
        // The next signal ends the process at once.
        second.end_at_once(&path);
        stop.stop();
    }));
    tell(&format!("sailfish: drill with seed {seed} on {}", cluster.summary()));
    let inputs = Inputs::write(&root.path, seed, size_bytes)?;
    let drill = Drill { cluster, inputs, jobs_at_once: args.jobs, seed };
    let rows = drill.strike_all(&faults, args.rounds);
    let stopped = drill.cluster.stop.is_stopped();
    if rows.is_err() {
        drill.cluster.stop.cancel_jobs();
    }
    drop(root);
    if stopped {
        tell("sailfish: the drill was stopped by a signal; what it had made is removed");
        return Err(Failure::said(INTERRUPTED));
    }
    let rows = rows?;
    let text = if args.json { output::json(seed, &rows)? } else { output::text(seed, &rows) };
    print(&text)?;
    let is_well = rows.iter().all(Row::is_well) && rows.iter().any(|row| row.fired.is_ok());
    if is_well { Ok(()) } else { Err(Failure::said(FAILED)) }
}

impl Drill {
    /// Injects every fault of every round.
    fn strike_all(&self, faults: &[Fault], rounds: u32) -> Result<Vec<Row>, Failure> {
        let mut rows = Vec::new();
        let mut random = fastrand::Rng::with_seed(self.seed);
        for round in 1..=rounds {
            for fault in faults {
                let turn = random.u32(..1 << 16);
                for try_number in 1..=TRIES_MAX {
                    let trial = Trial::choose(self, round, fault, turn + try_number, &mut random);
                    let row = trial.run()?;
                    tell(&format!("sailfish: {}", row.sentence()));
                    let again = row.fired.is_err() && row.is_well() && row.may_fire_again;
                    rows.push(row);
                    if !again || try_number == TRIES_MAX {
                        break;
                    }
                }
            }
        }
        tell(&format!("sailfish: {} over", counted(u64::from(rounds), "round")));
        Ok(rows)
    }
}

/// The directory of a drill, as long as it lasts.
struct Root {
    path: PathBuf,
}

impl Root {
    fn make(directory: &Path) -> anyhow::Result<Root> {
        let shown = directory.display();
        let directory = directory.canonicalize().with_context(|| format!("--directory {shown}"))?;
        let path = directory.join(format!("sailfish-drill-{:08x}", fastrand::u32(..)));
        std::fs::create_dir(&path)
            .with_context(|| format!("--directory {shown}: cannot make a directory there"))?;
        Ok(Root { path })
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        for _ in 1..REMOVE_TRIES_MAX {
            if std::fs::remove_dir_all(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(REMOVE_AGAIN_AFTER);
        }
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            tell(&format!("sailfish: {} stays: {error}", self.path.display()));
        }
    }
}
