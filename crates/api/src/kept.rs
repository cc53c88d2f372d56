//! Intermediate data that outlives its job on the disks of nodes, and its removal.

use ids::{DiskIndex, JobId, NodeId};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use utoipa::ToSchema;

/// Prefix of the name of every kept directory, used for nothing else.
const MARK: &str = "sailfish-kept-";
const JOB: &str = "-job";
const DISK: &str = "-disk";

/// Kept data of a job on one disk of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KeptDir {
    pub job: JobId,
    /// Incarnation of the node that made it; a restarted node on the same disks has another one.
    pub incarnation: String,
    /// Index of the disk in that node, by which the store knows its runs.
    pub disk: DiskIndex,
    /// Current path of the directory.
    #[schema(value_type = String)]
    pub path: PathBuf,
    pub bytes: u64,
}

impl KeptDir {
    /// Returns the name of the directory, which describes its content wherever the disk is mounted.
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
        // Names that we would not write ourselves are refused, because names become paths.
        let ours = !incarnation.contains('/') && Self::name_of(&parsed.0, parsed.1, parsed.2) == name;
        ours.then_some(parsed)
    }
}

/// A kept directory, and the node that has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KeptPlace {
    /// The node that made it: the numbers of its runs contain this one.
    pub made_by: NodeId,
    /// The node that announced it last.
    pub node: NodeId,
    pub node_name: String,
    pub dir: KeptDir,
}

/// A node's announcement of the kept directories on its disks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KeptAnnouncement {
    pub incarnation: String,
    /// The job that it was ordered to keep; None for all directories it found.
    #[serde(default)]
    pub job: Option<JobId>,
    pub dirs: Vec<KeptDir>,
    /// The reason why it could not keep the job.
    #[serde(default)]
    pub problem: Option<String>,
    /// Together with all directories: jobs of which it holds data that is not kept. The previous server may have died
    /// before it sent the order to remove them.
    #[serde(default)]
    pub held: Vec<JobId>,
}

/// Selection of the jobs whose kept files are removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum GcSelection {
    /// Jobs whose kept files have expired.
    Expired,
    /// Expired jobs, and jobs that ended longer ago than this.
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
    /// Report the jobs, and remove nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// Outcome of the removal of the kept files of one job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Collected {
    pub job: JobId,
    pub name: String,
    /// Bytes of its files before the removal.
    pub bytes: u64,
    pub outcome: GcOutcome,
    /// Nodes that are not in the cluster now. They remove their part when they come back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub away: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum GcOutcome {
    Removed,
    /// A dry run would remove them.
    WouldBeRemoved,
    /// An unfinished job reads them.
    ReadBy(JobId),
    /// The process of the job has not ended.
    OwnerLives,
    /// Nodes have them, and only their server can order the removal.
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
