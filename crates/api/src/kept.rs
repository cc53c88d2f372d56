//! Intermediate data that outlives its job on the disks of nodes, and its removal.

use ids::{DiskIndex, JobId, NodeId};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use utoipa::ToSchema;

/// Prefix of the name of every kept directory, and of nothing else.
const MARK: &str = "sailfish-kept-";
const JOB: &str = "-job";
const DISK: &str = "-disk";

/// Kept data of a job on one disk: the runs that a node had there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KeptDir {
    pub job: JobId,
    /// Incarnation of the node that made it; a node that comes again on the same disks has another one.
    pub incarnation: String,
    /// The place of the disk among those of that node, by which the store knows its runs.
    pub disk: DiskIndex,
    /// Path of the directory now.
    #[schema(value_type = String)]
    pub path: PathBuf,
    pub bytes: u64,
}

impl KeptDir {
    /// The name of the directory, which tells what it holds wherever the disk is mounted.
    pub fn name(&self) -> String {
        Self::name_of(&self.incarnation, self.job, self.disk)
    }

    /// Returns the name of the directory in which a node keeps data of a job on one of its disks.
    pub fn name_of(incarnation: &str, job: JobId, disk: DiskIndex) -> String {
        format!("{MARK}{incarnation}{JOB}{job}{DISK}{}", disk.0)
    }

    /// Parses the name of a kept directory; None for any other name.
    pub fn parse_name(name: &str) -> Option<(String, JobId, DiskIndex)> {
        let (rest, disk) = name.strip_prefix(MARK)?.rsplit_once(DISK)?;
        let (incarnation, job) = rest.rsplit_once(JOB)?;
        let parsed = (incarnation.to_string(), JobId(job.parse().ok()?), DiskIndex(disk.parse().ok()?));
        // Nothing but what we would write ourselves: such names become paths.
        let ours = !incarnation.contains('/') && Self::name_of(&parsed.0, parsed.1, parsed.2) == name;
        ours.then_some(parsed)
    }
}

/// A kept directory, and the node that has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KeptPlace {
    /// The node that made it: the numbers of its runs hold this one.
    pub made_by: NodeId,
    /// The node that told of it last.
    pub node: NodeId,
    pub node_name: String,
    pub dir: KeptDir,
}

/// A node tells what is kept on its disks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KeptAnnouncement {
    pub incarnation: String,
    /// The job that it was told to keep; None: all that it found.
    #[serde(default)]
    pub job: Option<JobId>,
    pub dirs: Vec<KeptDir>,
    /// Why it could not keep the job.
    #[serde(default)]
    pub problem: Option<String>,
    /// With all that it found: jobs of which it holds something that is not kept. The server before this one may have
    /// died with the order that they go.
    #[serde(default)]
    pub held: Vec<JobId>,
}

/// Jobs whose kept files are removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum GcSelection {
    /// Jobs whose time is over.
    Expired,
    /// These, and jobs that ended longer ago than this.
    OlderThan { seconds: u64 },
    /// Every job that is over.
    All,
    /// These jobs.
    Jobs(Vec<JobId>),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GcOptions {
    pub selection: GcSelection,
    /// Say what would go, change nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// Outcome of the removal of the kept files of one job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Collected {
    pub job: JobId,
    pub name: String,
    /// Bytes of its files before.
    pub bytes: u64,
    pub outcome: GcOutcome,
    /// Nodes that are not there now and remove their part when they come back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub away: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum GcOutcome {
    Removed,
    /// In a dry run.
    WouldBeRemoved,
    /// A job that is not over reads them.
    ReadBy(JobId),
    /// The process of the job has not ended.
    OwnerLives,
    /// Nodes have them, and only their server can tell these to remove them.
    OfCluster,
    Failed {
        reason: String,
    },
}

/// The answer to a request to remove kept files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GcAnswer {
    pub collected: Vec<Collected>,
}

#[cfg(test)]
mod tests {
    use super::KeptDir;
    use ids::{DiskIndex, JobId};

    #[test]
    fn names_tell_the_content_of_directories() {
        let name = KeptDir::name_of("ab-job1-cd", JobId(7), DiskIndex(2));
        assert_eq!(name, "sailfish-kept-ab-job1-cd-job7-disk2");
        let parsed = KeptDir::parse_name(&name);
        assert_eq!(parsed, Some(("ab-job1-cd".to_string(), JobId(7), DiskIndex(2))));
        let check = |name: &str| assert_eq!(KeptDir::parse_name(name), None, "{name}");
        check("sailfish-ab-job7");
        check("sailfish-kept-ab-job7");
        check("sailfish-kept-ab-job07-disk2");
        check("sailfish-kept-ab-job7-disk99999");
        check("sailfish-kept-../ab-job7-disk0");
        check("sailfish-kept-ab-job7-disk0/..");
    }
}
