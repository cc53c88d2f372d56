//! Routes for the stored files of a cluster. The bytes travel through the data ports: the catalogue issues rights.

use crate::answer::{Message, Named, Problem, Refusal};
use crate::gate::{Caller, SpeakingNode};
use crate::port::Port;
use api::control::ErrorCode;
use api::people::Role;
use api::stored::cluster::{
    BeginStored, BegunStored, ChangeStored, ChangedStored, CommitOutput, CommitStored, CommitsOfStored,
    CommittedStored, FindStored, FoundStored, KnownFiles, KnownOfPut, ListStored, ListedParts, NumberStored,
    NumberedStored, PartsOfJob, PartsOnDisk, PlaceOutput, PlaceStored, PlacedOutput, PlacesOfStored,
    RecordStored, StoredCommits, StoredLease, StoredNews, StoredOrders, StoredPage, StoredPut,
};
use api::task::RunTask;
use api::{JobSpec, PinnedFile, StoredOutput, is_stored_output};
use axum::extract::State;
use filecatalog::{Asker, Catalog, CatalogError, JobInputs, MadeInputs, ReplicaNodes, ReportingNode};
use filetree::Changer;
use ids::{JobId, NodeId};
use server::{Server, Submitter};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Pause between two rounds of housekeeping.
const ROUND: Duration = Duration::from_secs(1);
/// Pause after a round that left something to do.
const NEXT_ROUND: Duration = Duration::from_millis(20);
/// Pause of a submit that waits for the nodes of a server that has just begun, and maximum number of pauses.
const AWAIT_PAUSE: Duration = Duration::from_millis(200);
const AWAIT_PAUSES_MAX: u32 = 100;
/// Maximum number of remembered nodes that report files; a number is never reused.
const REMEMBERED_MAX: usize = 10_000;

/// The catalogue, and the nodes that report to it.
#[derive(Clone)]
pub(crate) struct StoredFiles {
    catalog: Arc<Catalog>,
    nodes: Arc<Mutex<HashMap<NodeId, ReportingNode>>>,
}

impl StoredFiles {
    pub fn new(catalog: Catalog) -> Self {
        Self { catalog: Arc::new(catalog), nodes: Arc::default() }
    }

    /// Runs a request on a thread that may block: the futures of the store stay on one thread.
    pub(super) async fn aside<T: Send + 'static>(
        &self,
        work: impl AsyncFnOnce(&Catalog) -> Result<T, CatalogError> + Send + 'static,
    ) -> Result<Message<T>, Problem> {
        let catalog = Arc::clone(&self.catalog);
        let runtime = tokio::runtime::Handle::current();
        let done = tokio::task::spawn_blocking(move || runtime.block_on(work(&catalog))).await;
        let ended = |_| Problem::new(ErrorCode::Failed, "a thread of the server failed");
        Ok(Message(done.map_err(ended)??))
    }

    /// Begins the output of a job. A server that has just begun waits for its nodes.
    async fn begin_output(&self, asker: &Asker, spec: &JobSpec) -> Result<StoredOutput, Problem> {
        let mut pauses = 0;
        loop {
            let (asker, spec) = (asker.clone(), spec.clone());
            let begin = async move |catalog: &Catalog| match catalog.begin_output(&asker, &spec).await {
                Err(CatalogError::NodesAwaited) if pauses < AWAIT_PAUSES_MAX => Ok(None),
                begun => begun.map(Some),
            };
            if let Message(Some(output)) = self.aside(begin).await? {
                return Ok(output);
            }
            pauses += 1;
            tokio::time::sleep(AWAIT_PAUSE).await;
        }
    }

    /// Does what is to be done from time to time; ends with the server.
    pub async fn keep_house(self, server: Arc<Server>) {
        loop {
            self.tell_needs(&server).await;
            let pause = match self.aside(async |catalog| catalog.keep_house().await).await {
                Ok(Message(true)) => NEXT_ROUND,
                Ok(Message(false)) => ROUND,
                Err(error) => {
                    tracing::warn!(%error, "the housekeeping of stored files failed; it is tried again");
                    ROUND
                }
            };
            if !self.catalog.needs().is_empty() {
                self.tell_needs(&server).await;
            }
            if let Err(error) = self.tell_places(&server).await {
                tracing::warn!(%error, "maps are planned without the newest places of stored files");
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Tells the server which files need nodes that are being drained, and asks it for these nodes.
    async fn tell_needs(&self, server: &Server) {
        match server.stored_needs(self.catalog.needs()).await {
            Ok(draining) => self.catalog.drain(&draining),
            Err(error) => tracing::debug!(%error, "the server does not say which nodes are being drained"),
        }
    }

    /// Tells the server the nodes with the inputs of running jobs, if nodes have come or gone.
    async fn tell_places(&self, server: &Server) -> Result<(), Problem> {
        let Message(moved) = self.aside(async |catalog| catalog.moved_inputs().await).await?;
        for (job, places) in moved {
            // A server that ends needs no plans.
            let Ok(goes_on) = server.inputs_moved(job, places).await else { return Ok(()) };
            if !goes_on {
                self.catalog.has_read(job);
            }
        }
        Ok(())
    }
}

impl From<CatalogError> for Problem {
    fn from(error: CatalogError) -> Self {
        let code = match &error {
            error if error.is_missing() => ErrorCode::NotFound,
            error if error.is_forbidden() => ErrorCode::Forbidden,
            error if error.is_of_the_store() => ErrorCode::Failed,
            CatalogError::Limit { .. } => ErrorCode::BadRequest,
            // Its nodes may be restarting, or have not reported to a new server yet.
            CatalogError::OutputPartLost { .. } | CatalogError::NodesAwaited => ErrorCode::TooMany,
            _ => ErrorCode::Refused,
        };
        Self::new(code, error.to_string())
    }
}

/// Returns the asker: the user of the token; without one, the user that the caller names.
pub(super) fn asker(caller: &Caller, claimed: String) -> Asker {
    let changer = match caller.role {
        Role::Admin => Changer::Anybody,
        Role::User | Role::ReadOnly | Role::Node => Changer::User(caller.owner_name().to_string()),
    };
    let bytes_max = caller.quota.map(|quota| quota.stored_bytes_max);
    Asker { user: caller.job_user(claimed), changer, bytes_max }
}

/// Returns the asker of a request about the tree: for a program, the user of its job.
fn asker_of_tree(caller: &Caller, claimed: String) -> Asker {
    let asker = asker(caller, claimed);
    match &caller.job_owner {
        Some(owner) => Asker { user: owner.to_string(), changer: Changer::User(owner.to_string()), ..asker },
        None => asker,
    }
}

#[utoipa::path(
    post,
    path = "/v1/stored-files/find",
    tag = "clients",
    request_body = FindStored,
    responses((status = 200, description = "The entry of the name, and a lease if its contents will be read", body = FoundStored), (status = "default", response = Refusal))
)]
pub(crate) async fn find(
    State(port): State<Port>,
    caller: Caller,
    Message(find): Message<FindStored>,
) -> Result<Message<FoundStored>, Problem> {
    let asker = asker_of_tree(&caller, String::new());
    port.stored.aside(async move |catalog| catalog.find(&asker, &find).await).await
}

#[utoipa::path(
    post,
    path = "/v1/stored-files/list",
    tag = "clients",
    request_body = ListStored,
    responses((status = 200, description = "Entries of the directory, with their concrete files and rights to read them if they are asked for", body = StoredPage), (status = "default", response = Refusal))
)]
pub(crate) async fn list(
    State(port): State<Port>,
    caller: Caller,
    Message(list): Message<ListStored>,
) -> Result<Message<StoredPage>, Problem> {
    let asker = asker_of_tree(&caller, String::new());
    port.stored.aside(async move |catalog| catalog.list(&asker, &list).await).await
}

#[utoipa::path(
    post,
    path = "/v1/stored-files/lease",
    tag = "clients",
    request_body = StoredLease,
    responses((status = 200, description = "The lease is renewed, or has ended, `null`"), (status = "default", response = Refusal))
)]
pub(crate) async fn lease(
    State(port): State<Port>,
    Message(lease): Message<StoredLease>,
) -> Result<Message<()>, Problem> {
    port.stored.catalog.lease(&lease);
    Ok(Message(()))
}

#[utoipa::path(
    post,
    path = "/v1/stored-files/change",
    tag = "clients",
    request_body = ChangeStored,
    responses((status = 200, description = "The change is made; its version, if anything changed", body = ChangedStored), (status = "default", response = Refusal))
)]
pub(crate) async fn change(
    State(port): State<Port>,
    caller: Caller,
    Message(change): Message<ChangeStored>,
) -> Result<Message<ChangedStored>, Problem> {
    let asker = asker_of_tree(&caller, change.user);
    port.stored.aside(async move |catalog| catalog.change(&asker, &change.change).await).await
}

#[utoipa::path(
    post,
    path = "/v1/stored-files/commits",
    tag = "clients",
    request_body = CommitsOfStored,
    responses((status = 200, description = "The changes of the name and of everything below it, newest first", body = StoredCommits), (status = "default", response = Refusal))
)]
pub(crate) async fn commits(
    State(port): State<Port>,
    caller: Caller,
    Message(of): Message<CommitsOfStored>,
) -> Result<Message<StoredCommits>, Problem> {
    let asker = asker_of_tree(&caller, String::new());
    port.stored.aside(async move |catalog| catalog.commits(&asker, &of).await).await
}

#[utoipa::path(
    post,
    path = "/v1/stored-files/puts",
    tag = "clients",
    request_body = BeginStored,
    responses((status = 200, description = "The put has begun, or goes on after its client was interrupted", body = BegunStored), (status = "default", response = Refusal))
)]
pub(crate) async fn begin(
    State(port): State<Port>,
    caller: Caller,
    Message(begin): Message<BeginStored>,
) -> Result<Message<BegunStored>, Problem> {
    let asker = asker_of_tree(&caller, begin.user.clone());
    let of = caller.program_of;
    port.stored.aside(async move |catalog| catalog.begin_for(&asker, &begin, of).await).await
}

#[utoipa::path(
    post,
    path = "/v1/stored-files/puts/known",
    tag = "clients",
    request_body = KnownOfPut,
    responses((status = 200, description = "Files that an earlier session of the put stored", body = KnownFiles), (status = "default", response = Refusal))
)]
pub(crate) async fn known(
    State(port): State<Port>,
    caller: Caller,
    Message(of): Message<KnownOfPut>,
) -> Result<Message<KnownFiles>, Problem> {
    let asker = asker_of_tree(&caller, String::new());
    port.stored.aside(async move |catalog| catalog.known(&asker, &of).await).await
}

#[utoipa::path(
    post,
    path = "/v1/stored-files/puts/numbers",
    tag = "clients",
    request_body = NumberStored,
    responses((status = 200, description = "Numbers of concrete files, and the right to write them", body = NumberedStored), (status = "default", response = Refusal))
)]
pub(crate) async fn number(
    State(port): State<Port>,
    caller: Caller,
    Message(number): Message<NumberStored>,
) -> Result<Message<NumberedStored>, Problem> {
    let asker = asker_of_tree(&caller, String::new());
    port.stored.aside(async move |catalog| catalog.number(&asker, &number).await).await
}

#[utoipa::path(
    post,
    path = "/v1/stored-files/puts/places",
    tag = "clients",
    request_body = PlaceStored,
    responses((status = 200, description = "Disks for concrete files, each on another node", body = PlacesOfStored), (status = "default", response = Refusal))
)]
pub(crate) async fn place(
    State(port): State<Port>,
    caller: Caller,
    Message(place): Message<PlaceStored>,
) -> Result<Message<PlacesOfStored>, Problem> {
    let asker = asker_of_tree(&caller, String::new());
    port.stored.aside(async move |catalog| catalog.place(&asker, &place).await).await
}

#[utoipa::path(
    post,
    path = "/v1/stored-files/puts/files",
    tag = "clients",
    request_body = RecordStored,
    responses((status = 200, description = "The files are recorded, `null`"), (status = "default", response = Refusal))
)]
pub(crate) async fn record(
    State(port): State<Port>,
    caller: Caller,
    Message(record): Message<RecordStored>,
) -> Result<Message<()>, Problem> {
    let asker = asker_of_tree(&caller, String::new());
    port.stored.aside(async move |catalog| catalog.record(&asker, &record).await).await
}

#[utoipa::path(
    post,
    path = "/v1/stored-files/puts/commit",
    tag = "clients",
    request_body = CommitStored,
    responses((status = 200, description = "The version that has the files; none if the request is to be repeated", body = CommittedStored), (status = "default", response = Refusal))
)]
pub(crate) async fn commit(
    State(port): State<Port>,
    caller: Caller,
    Message(commit): Message<CommitStored>,
) -> Result<Message<CommittedStored>, Problem> {
    let asker = asker_of_tree(&caller, String::new());
    port.stored.aside(async move |catalog| catalog.commit_for(&asker, &commit).await).await
}

#[utoipa::path(
    post,
    path = "/v1/stored-files/puts/abandon",
    tag = "clients",
    request_body = StoredPut,
    responses((status = 200, description = "The put is given up, `null`"), (status = "default", response = Refusal))
)]
pub(crate) async fn abandon(
    State(port): State<Port>,
    caller: Caller,
    Message(of): Message<StoredPut>,
) -> Result<Message<()>, Problem> {
    let asker = asker_of_tree(&caller, String::new());
    port.stored.aside(async move |catalog| catalog.abandon(&asker, of).await).await
}

#[utoipa::path(
    post,
    path = "/v1/nodes/{node}/stored-files",
    tag = "nodes",
    params(("node" = u32, Path, description = "Number of the node")),
    request_body = StoredNews,
    responses((status = 200, description = "Orders for the disks of the node", body = StoredOrders), (status = "default", response = Refusal))
)]
pub(crate) async fn news(
    State(port): State<Port>,
    Named(node): Named<u32>,
    Message(news): Message<StoredNews>,
) -> Result<Message<StoredOrders>, Problem> {
    let from = reporting(&port, NodeId(node)).await?;
    port.stored.aside(async move |catalog| catalog.news(&from, news).await).await
}

#[utoipa::path(
    post,
    path = "/v1/nodes/{node}/stored-files/parts",
    tag = "nodes",
    params(("node" = u32, Path, description = "Number of the node")),
    request_body = PartsOnDisk,
    responses((status = 200, description = "Concrete files that the disk should have", body = ListedParts), (status = "default", response = Refusal))
)]
pub(crate) async fn parts(
    State(port): State<Port>,
    SpeakingNode(node): SpeakingNode,
    Message(question): Message<PartsOnDisk>,
) -> Result<Message<ListedParts>, Problem> {
    port.stored.aside(async move |catalog| catalog.parts_on(node, &question).await).await
}

/// Returns the name and the rack of a node, as it joined.
async fn reporting(port: &Port, node: NodeId) -> Result<ReportingNode, Problem> {
    let known = || port.stored.nodes.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = known().get(&node) {
        return Ok(known.clone());
    }
    let nodes = port.server.cluster_status().await?.nodes;
    let found = nodes.into_iter().find(|status| status.node == node);
    let found = found.map(|status| ReportingNode { node, name: status.info.name, rack: status.info.rack });
    let missing = || Problem::new(ErrorCode::UnknownNode, format!("{node} has left the cluster"));
    let found = found.ok_or_else(missing)?;
    let mut all = known();
    if all.len() >= REMEMBERED_MAX {
        all.clear();
    }
    all.insert(node, found.clone());
    Ok(found)
}

#[utoipa::path(
    post,
    path = "/v1/jobs/{job}/stored-files",
    tag = "nodes",
    params(("job" = i64, Path, description = "Number of the job")),
    request_body = PartsOfJob,
    responses((status = 200, description = "Where the job's stored inputs are, and rights to read them", body = StoredPage), (status = "default", response = Refusal))
)]
pub(crate) async fn of_job(
    State(port): State<Port>,
    SpeakingNode(node): SpeakingNode,
    Named(job): Named<i64>,
    Message(question): Message<PartsOfJob>,
) -> Result<Message<StoredPage>, Problem> {
    let job = JobId(job);
    // Only a node that runs the job gets rights, or was told to copy the parts before it does.
    let (job, made) = match port.server.running_on(node, job).await {
        Ok(running) => (running.pinned_by, MadeInputs { user: running.user, pinned: running.pinned }),
        Err(_) if port.stored.catalog.copies_early(job, node, &question) => (job, MadeInputs::default()),
        Err(refusal) => return Err(refusal.into()),
    };
    let places = async move |catalog: &Catalog| {
        catalog.keep_made_inputs(job, &question, &made).await?;
        catalog.places_of_job(job, node, &question).await
    };
    port.stored.aside(places).await
}

#[utoipa::path(
    post,
    path = "/v1/jobs/{job}/stored-output/places",
    tag = "nodes",
    params(("job" = i64, Path, description = "Number of the job")),
    request_body = PlaceOutput,
    responses((status = 200, description = "A number for a part of the job's stored output, and disks for its replicas", body = PlacedOutput), (status = "default", response = Refusal))
)]
pub(crate) async fn place_output(
    State(port): State<Port>,
    SpeakingNode(node): SpeakingNode,
    Named(job): Named<i64>,
    Message(ask): Message<PlaceOutput>,
) -> Result<Message<PlacedOutput>, Problem> {
    let job = JobId(job);
    // Only a node that runs the job gets rights.
    port.server.running_on(node, job).await?;
    port.stored.aside(async move |catalog| catalog.place_output(job, &ask).await).await
}

#[utoipa::path(
    post,
    path = "/v1/jobs/{job}/stored-output/commit",
    tag = "nodes",
    params(("job" = i64, Path, description = "Number of the job")),
    request_body = CommitOutput,
    responses((status = 200, description = "The version that has the output; none if the request is to be repeated", body = CommittedStored), (status = "default", response = Refusal))
)]
pub(crate) async fn commit_output(
    State(port): State<Port>,
    SpeakingNode(node): SpeakingNode,
    Named(job): Named<i64>,
    Message(commit): Message<CommitOutput>,
) -> Result<Message<CommittedStored>, Problem> {
    let job = JobId(job);
    port.server.running_on(node, job).await?;
    port.stored.aside(async move |catalog| catalog.commit_output(job, &commit).await).await
}

/// The stored outputs of jobs that are being submitted. Those whose jobs are not submitted are given up.
pub(crate) struct BegunOutputs {
    stored: StoredFiles,
    /// None for a job whose output is no stored file.
    outputs: Vec<Option<StoredPut>>,
}

impl BegunOutputs {
    /// Begins the outputs of jobs, and writes them into their specifications.
    pub async fn of(
        port: &Port,
        caller: &Caller,
        user: &str,
        specs: Vec<&mut JobSpec>,
    ) -> Result<Self, Problem> {
        let mut begun = Self { stored: port.stored.clone(), outputs: Vec::new() };
        for spec in specs {
            spec.stored_output = None;
            if spec.feeds() || !is_stored_output(&spec.output) {
                begun.outputs.push(None);
                continue;
            }
            let asker = Asker { user: user.to_string(), ..asker(caller, String::new()) };
            let output = begun.stored.begin_output(&asker, spec).await?;
            begun.outputs.push(Some(output.of));
            spec.stored_output = Some(output);
        }
        Ok(begun)
    }

    /// Notes the jobs, in the order of their specifications.
    pub fn have_jobs(&self, jobs: impl IntoIterator<Item = JobId>) {
        for (job, output) in jobs.into_iter().zip(&self.outputs) {
            output.iter().for_each(|of| self.stored.catalog.output_has_job(*of, job));
        }
    }
}

impl Drop for BegunOutputs {
    fn drop(&mut self) {
        self.outputs.iter().flatten().for_each(|of| self.stored.catalog.give_up_output(*of));
    }
}

/// The stored inputs of jobs that are being submitted: their versions stay.
pub(crate) struct CheckedInputs {
    stored: StoredFiles,
    inputs: JobInputs,
    part_nodes: Arc<ReplicaNodes>,
}

impl CheckedInputs {
    /// Checks the stored inputs of jobs.
    pub async fn of(port: &Port, caller: &Caller, specs: &[&JobSpec]) -> Result<Self, Problem> {
        let reads_stored = |spec: &&JobSpec| {
            !spec.pinned.is_empty() || spec.inputs.iter().any(|input| input.stored.is_some())
        };
        let stored = port.stored.clone();
        if !specs.iter().any(reads_stored) {
            return Ok(Self { stored, inputs: JobInputs::default(), part_nodes: Arc::default() });
        }
        let asker = asker(caller, String::new());
        let specs: Vec<JobSpec> = specs.iter().map(|spec| (*spec).clone()).collect();
        let check = async move |catalog: &Catalog| {
            let inputs = catalog.check_inputs(&asker, &specs.iter().collect::<Vec<_>>()).await?;
            let part_nodes = catalog.nodes_of_inputs(&inputs).await?;
            Ok((inputs, part_nodes))
        };
        let Message((inputs, part_nodes)) = stored.aside(check).await?;
        Ok(Self { stored, inputs, part_nodes: Arc::new(part_nodes) })
    }

    /// Checks the stored files that the programs of jobs of one task open. Most of them open the same.
    pub async fn of_tasks(port: &Port, caller: &Caller, tasks: &[RunTask]) -> Result<Self, Problem> {
        let distinct: BTreeSet<&PinnedFile> = tasks.iter().flat_map(|task| &task.pinned).collect();
        let pinned = distinct.into_iter().cloned().collect();
        Self::of(port, caller, &[&JobSpec { pinned, ..JobSpec::named("") }]).await
    }

    /// Returns the facts about the submitter, with the nodes that have the inputs now.
    pub fn submitter(&self, caller: &Caller) -> Submitter {
        Submitter { part_nodes: Arc::clone(&self.part_nodes), ..caller.submitter() }
    }

    /// Keeps the versions until these jobs are over.
    pub fn keep_for(&self, jobs: impl IntoIterator<Item = JobId>) {
        if self.inputs != JobInputs::default() {
            jobs.into_iter().for_each(|job| self.stored.catalog.begins(job, &self.inputs));
        }
    }
}

impl Drop for CheckedInputs {
    fn drop(&mut self) {
        self.stored.catalog.end_check(&self.inputs);
    }
}
