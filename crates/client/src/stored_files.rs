//! Calls about the stored files of a cluster. Almost all may be repeated: a put has a session and numbers, and a commit
//! finds its own result.

use crate::{Client, ClientError};
use api::stored::cluster::{
    BeginStored, BegunStored, ChangeStored, ChangedStored, CommitOutput, CommitStored, CommitsOfStored,
    CommittedStored, FindStored, FoundStored, KnownFiles, KnownOfPut, ListStored, ListedParts, NumberStored,
    NumberedStored, PartsOfJob, PartsOnDisk, PlaceOutput, PlaceStored, PlacedOutput, PlacesOfStored,
    RecordStored, StoredCommits, StoredLease, StoredNews, StoredOrders, StoredPage, StoredPut,
};
use ids::{JobId, NodeId};
use serde::Serialize;
use serde::de::DeserializeOwned;

impl Client {
    async fn of_files<T: DeserializeOwned>(
        &self,
        route: &str,
        message: &impl Serialize,
    ) -> Result<T, ClientError> {
        let path = format!("/v1/stored-files/{route}");
        self.patiently(async || self.post(&path, message).await).await
    }

    /// Returns the entry of a name, with a lease if its contents will be read.
    pub async fn find_stored(&self, find: &FindStored) -> Result<FoundStored, ClientError> {
        self.of_files("find", find).await
    }

    /// Returns a page of a directory.
    pub async fn list_stored(&self, list: &ListStored) -> Result<StoredPage, ClientError> {
        self.of_files("list", list).await
    }

    /// Renews or ends a lease.
    pub async fn lease_stored(&self, lease: &StoredLease) -> Result<(), ClientError> {
        self.of_files("lease", lease).await
    }

    /// Changes the tree. Sent once: if the answer is lost, the change may have been made.
    pub async fn change_stored(&self, change: &ChangeStored) -> Result<ChangedStored, ClientError> {
        self.once(async || self.post("/v1/stored-files/change", change).await).await
    }

    /// Returns changes of the tree, newest first.
    pub async fn stored_commits(&self, of: &CommitsOfStored) -> Result<StoredCommits, ClientError> {
        self.of_files("commits", of).await
    }

    /// Begins a put, or goes on with one that was interrupted.
    pub async fn begin_stored(&self, begin: &BeginStored) -> Result<BegunStored, ClientError> {
        self.of_files("puts", begin).await
    }

    /// Returns files of a put that an earlier session stored.
    pub async fn known_stored(&self, of: &KnownOfPut) -> Result<KnownFiles, ClientError> {
        self.of_files("puts/known", of).await
    }

    /// Reserves numbers of concrete files. Numbers of a lost answer stay unused.
    pub async fn number_stored(&self, number: &NumberStored) -> Result<NumberedStored, ClientError> {
        self.of_files("puts/numbers", number).await
    }

    /// Returns disks for concrete files.
    pub async fn place_stored(&self, place: &PlaceStored) -> Result<PlacesOfStored, ClientError> {
        self.of_files("puts/places", place).await
    }

    /// Reports that files of a put are synced on disks.
    pub async fn record_stored(&self, record: &RecordStored) -> Result<(), ClientError> {
        self.of_files("puts/files", record).await
    }

    /// Makes the files of a put visible, or goes on with that. Repeat it until it has a version.
    pub async fn commit_stored(&self, commit: &CommitStored) -> Result<CommittedStored, ClientError> {
        self.of_files("puts/commit", commit).await
    }

    /// Gives up a put: its files are removed.
    pub async fn abandon_stored(&self, of: &StoredPut) -> Result<(), ClientError> {
        self.of_files("puts/abandon", of).await
    }

    /// Reports the disks of a node with concrete files. Returns orders. Sent once: the next report follows soon.
    pub async fn tell_stored(&self, node: NodeId, news: &StoredNews) -> Result<StoredOrders, ClientError> {
        self.post(&format!("/v1/nodes/{}/stored-files", node.0), news).await
    }

    /// Returns concrete files that a disk of a node should have.
    pub async fn stored_parts_on(
        &self,
        node: NodeId,
        question: &PartsOnDisk,
    ) -> Result<ListedParts, ClientError> {
        self.post(&format!("/v1/nodes/{}/stored-files/parts", node.0), question).await
    }

    /// Returns a number for a part of a job's stored output, and disks, for a node that runs an attempt of the job.
    pub async fn place_stored_output(
        &self,
        job: JobId,
        ask: &PlaceOutput,
    ) -> Result<PlacedOutput, ClientError> {
        let path = format!("/v1/jobs/{}/stored-output/places", job.0);
        self.patiently(async || self.post(&path, ask).await).await
    }

    /// Makes the parts of a job's stored output visible.
    pub async fn commit_stored_output(
        &self,
        job: JobId,
        commit: &CommitOutput,
    ) -> Result<CommittedStored, ClientError> {
        let path = format!("/v1/jobs/{}/stored-output/commit", job.0);
        self.patiently(async || self.post(&path, commit).await).await
    }

    /// Returns the places of stored files that a job reads, for a node that runs an attempt of it.
    pub async fn stored_of_job(&self, job: JobId, question: &PartsOfJob) -> Result<StoredPage, ClientError> {
        let path = format!("/v1/jobs/{}/stored-files", job.0);
        self.patiently(async || self.post(&path, question).await).await
    }
}
