//! A method for each route.

use crate::ClientError;
use crate::addresses::Addresses;
use crate::outages::Outages;
use crate::own_tokens::OwnTokens;
use api::control::{
    BODY_BYTES_MAX, BoundariesProposal, CancelRequest, ClusterStatus, ErrorAnswer, ErrorCode, JOB_HEADER,
    JobBatch, JobBrief, JobLogs, JobOutcome, JobProgress, JobSubmission, NodeInfo, NodeOrders, NodePoll,
    NodeStatus, NodeWelcome, POLL_MS_MAX, PlacesAnswer, PlacesQuestion, SubmittedBatch, SubmittedJob,
    WaitAnswer,
};
use api::data_access::{BriefQuestion, SecretText, TokensAnswer, TokensQuestion};
use api::drill::{DrillFault, DrillNews, DrillOutcome};
use api::flow::{FlowSubmission, SubmittedFlow};
use api::fsck::{CheckAnswer, CheckNews, FsckAnswer, FsckRequest};
use api::history::lineage::{Lineage, LineageQuestion};
use api::history::usage::{UsageBy, UsageList, UsageQuestion};
use api::history::{JobDetails, JobList, JobsQuestion, StateQuestion, Table};
use api::intermediate::{
    ChangeIntermediate, CreatedIntermediate, IntermediateAnswer, IntermediateList, IntermediateNews,
    NewIntermediate, OpenIntermediate, OpenedIntermediate, RemoveIntermediate,
};
use api::kept::{GcAnswer, GcOptions, KeptAnnouncement};
use api::people::{Admission, AdmissionRequest, IssuedToken, TokenList, TokenRequest};
use api::placement::JobPlacements;
use api::seen::{SeenAnswer, SeenNews, SeenNewsAnswer, SeenQuestion};
use api::{Boundaries, JobReport, KeyBytes};
use ids::{JobId, NodeId, RunId};
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Method, Request, RequestBuilder, Response, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use trust::Credentials;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of an answer, after which it counts as lost.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(POLL_MS_MAX + 10_000);
/// How long queries wait for an unavailable server: a restart takes some seconds.
const OUTAGE_MAX: Duration = Duration::from_secs(60);
/// How long a submit waits, whose user wants to know the result.
const RESTART_MAX: Duration = Duration::from_secs(5);
/// How long a wait for a job continues without a server; the job goes on meanwhile.
const JOB_OUTAGE_MAX: Duration = Duration::from_secs(3600);
const TELL_EVERY: Duration = Duration::from_secs(60);
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(250);

/// Returns the pause before a retry, so that not all clients ask a returning server at once.
fn again_after() -> Duration {
    ASK_AGAIN_AFTER.mul_f64(0.5 + fastrand::f64())
}

/// Timeout of a poll if there is another address: early enough for the node to reach that one before its lease ends.
const POLL_TIMEOUT: Duration = Duration::from_millis(POLL_MS_MAX + 3_000);

/// Idle time after which a connection is closed, earlier than on the server, so that no request meets a closing one.
const IDLE_MAX: Duration = Duration::from_secs(30);
const REQUEST_HEADER: &str = "sailfish-request";

/// A client of a server's control port. Cheap to clone: connections are shared.
#[derive(Clone)]
pub struct Client {
    addresses: Addresses,
    http: reqwest::Client,
    /// The header that identifies the caller.
    bearer: Option<HeaderValue>,
    /// Source of tokens if there is no such header; with one, it limits the header to ports of this user or root.
    own_tokens: Option<Arc<OwnTokens>>,
    has_proxy: bool,
    /// The job for whose program a node sends the requests.
    job: Option<JobId>,
    outages: Outages,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Client({})", self.url())
    }
}

impl Client {
    /// Creates a client of a server on this machine, as in `http://127.0.0.1:7070`; connects to nothing yet.
    pub fn new(url: &str) -> Result<Self, ClientError> {
        Self::with(url, &Credentials::none())
    }

    /// Creates a client of a server with one or several addresses, and with credentials for both sides.
    pub fn with(url: &str, credentials: &Credentials) -> Result<Self, ClientError> {
        let addresses = Addresses::parse(url)?;
        let bearer = credentials.bearer().and_then(|text| HeaderValue::try_from(text).ok());
        let bearer = bearer.map(|mut value| {
            value.set_sensitive(true);
            value
        });
        for address in addresses.all() {
            let url = text_of(address).to_string();
            match address.scheme() {
                "http"
                    if bearer.is_some() && (credentials.proxy().is_some() || !is_this_machine(address)) =>
                {
                    return Err(ClientError::TokenInClear { url });
                }
                "http" if credentials.is_for_tls() => return Err(ClientError::TokenForTls { url }),
                "http" => {}
                "https" if credentials.believes_somebody() => {}
                "https" => return Err(ClientError::NobodyBelieved { url }),
                _ => return Err(ClientError::BadUrl { url }),
            }
        }
        let builder = reqwest::Client::builder();
        let builder = match credentials.proxy() {
            Some(proxy) => builder.proxy(parse_proxy(proxy)?),
            // Proxies of the environment are not used either, since they may be meant for other programs.
            None => builder.no_proxy(),
        };
        let builder = match credentials.socket() {
            Some(socket) => builder.unix_socket(socket),
            None => builder,
        };
        let http = builder
            .tls_backend_preconfigured(credentials.to_control_port()?)
            // A token is sent only to the named server.
            .redirect(reqwest::redirect::Policy::none())
            .pool_idle_timeout(IDLE_MAX)
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(ANSWER_TIMEOUT)
            // Messages are small, and each is awaited.
            .tcp_nodelay(true)
            .build()
            .map_err(|source| ClientError::Unreachable { url: url.to_string(), source })?;
        let own_tokens = credentials.own_tokens().map(|dir| Arc::new(OwnTokens::new(dir)));
        let has_proxy = credentials.proxy().is_some();
        Ok(Self { addresses, http, bearer, own_tokens, has_proxy, job: None, outages: Outages::default() })
    }

    /// Returns the same client, which acts as the node with this secret. If the port belongs to this user or to root,
    /// the secret is sent to no other port.
    pub fn as_node(&self, secret: &SecretText) -> Result<Self, ClientError> {
        let in_clear = |url: &&Url| url.scheme() == "http" && (self.has_proxy || !is_this_machine(url));
        if let Some(url) = self.addresses.all().iter().find(in_clear) {
            return Err(ClientError::TokenInClear { url: text_of(url).to_string() });
        }
        let bearer = HeaderValue::try_from(format!("Bearer {}", secret.0));
        let mut bearer =
            bearer.map_err(|_| ClientError::NotOurs { url: self.url().to_string(), status: 200 })?;
        bearer.set_sensitive(true);
        let own_tokens = self.own_tokens.clone().filter(|own| own.is_own_port(self.addresses.current()));
        Ok(Self { bearer: Some(bearer), own_tokens, ..self.clone() })
    }

    /// Returns the same client of a node, which sends requests for a program of this job.
    #[must_use]
    pub fn for_program_of(self, job: JobId) -> Self {
        Self { job: Some(job), ..self }
    }

    /// Returns the same client, which gives the address of a server to `tell` when it has not answered for some seconds
    /// and is asked again; once for each outage.
    #[must_use]
    pub fn telling_outages(self, tell: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self { outages: Outages::telling(tell), ..self }
    }

    /// Returns the server's address; the current one if there are several.
    pub fn url(&self) -> &str {
        text_of(self.addresses.current())
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<T, ClientError> {
        let mut request = self.request(method, path);
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body);
        }
        self.answer(request, path).await
    }

    /// Builds a request that identifies the caller.
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let mut request = self.http.request(method.clone(), format!("{}{path}", self.url()));
        if method != Method::GET {
            // Proves that no page of a web site sent it, with or without a body.
            request = request.header(REQUEST_HEADER, "1");
        }
        if let Some(job) = self.job {
            request = request.header(JOB_HEADER, job.0);
        }
        match &self.bearer {
            Some(bearer) => request.header(AUTHORIZATION, bearer.clone()),
            None => request,
        }
    }

    /// Sends a request whose answer is a message.
    pub(crate) async fn answer<T: DeserializeOwned>(
        &self,
        request: RequestBuilder,
        path: &str,
    ) -> Result<T, ClientError> {
        let response = self.sent(request).await?;
        let (asked, status) = (response.url().clone(), response.status());
        let url = format!("{}{path}", asked.origin().ascii_serialization());
        let answer = self.whole(response, &url).await?;
        if !status.is_success() {
            let error = refusal(&answer, url, status.as_u16());
            if error.code() == Some(ErrorCode::Failed) {
                self.addresses.pass_over(&asked);
            }
            return Err(error);
        }
        serde_json::from_slice(&answer).map_err(|source| ClientError::Unreadable { url, source })
    }

    pub(crate) async fn sent(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let unsent = |source| ClientError::of_request(self.url(), source);
        let request = request.build().map_err(unsent)?;
        let asked = request.url().clone();
        self.shown(request, &asked).await.map_err(|source| {
            self.addresses.pass_over(&asked);
            ClientError::of_request(&asked.origin().ascii_serialization(), source)
        })
    }

    /// Sends a request, with the server's own token if it is needed. A replaced server has another token, so a refused
    /// one is looked up again once.
    async fn shown(&self, mut request: Request, asked: &Url) -> Result<Response, reqwest::Error> {
        let Some(own_tokens) = &self.own_tokens else { return self.http.execute(request).await };
        let again = request.try_clone();
        if self.bearer.is_some() {
            if own_tokens.is_own_port(asked) {
                return self.http.execute(request).await;
            }
            request.headers_mut().remove(AUTHORIZATION);
            let answer = self.http.execute(request).await?;
            // The server may have started in between.
            let is_late = answer.status() == StatusCode::UNAUTHORIZED && own_tokens.is_own_port(asked);
            return match again.filter(|_| is_late) {
                Some(again) => self.http.execute(again).await,
                None => Ok(answer),
            };
        }
        let bearer = own_tokens.bearer(asked);
        request.headers_mut().extend(bearer.clone().map(|bearer| (AUTHORIZATION, bearer)));
        let answer = self.http.execute(request).await?;
        let Some(mut again) = again.filter(|_| answer.status() == StatusCode::UNAUTHORIZED) else {
            return Ok(answer);
        };
        own_tokens.forget(asked);
        match own_tokens.bearer(asked) {
            Some(other) if Some(&other) != bearer.as_ref() => {
                again.headers_mut().insert(AUTHORIZATION, other);
                self.http.execute(again).await
            }
            _ => Ok(answer),
        }
    }

    /// Reads an answer to its end.
    pub(crate) async fn whole(&self, mut response: Response, url: &str) -> Result<Vec<u8>, ClientError> {
        let status = response.status();
        let mut answer = Vec::new();
        loop {
            let chunk = response.chunk().await;
            let chunk =
                chunk.map_err(|source| ClientError::Broken { url: self.url().to_string(), source })?;
            let Some(chunk) = chunk else { break };
            if answer.len() + chunk.len() > BODY_BYTES_MAX {
                return Err(ClientError::NotOurs { url: url.to_string(), status: status.as_u16() });
            }
            answer.extend_from_slice(&chunk);
        }
        Ok(answer)
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.call(Method::GET, path, None).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let url = self.url().to_string();
        let body = serde_json::to_vec(body).map_err(|source| ClientError::Unreadable { url, source })?;
        self.call(Method::POST, path, Some(body)).await
    }

    /// Sends a request that must not be executed twice. It is retried only if it cannot have arrived, for the time of a
    /// restart of the server; with several addresses it goes to the next one, for the time in which a standby takes the
    /// lead.
    pub(crate) async fn once<T>(
        &self,
        ask: impl AsyncFn() -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let started = Instant::now();
        let outage_max = if self.addresses.are_several() { OUTAGE_MAX } else { RESTART_MAX };
        loop {
            match ask().await {
                Err(error) if error.never_arrived() && started.elapsed() < outage_max => {
                    self.outages.lasts(self.url(), started.elapsed(), &error);
                    tokio::time::sleep(again_after()).await;
                }
                other => return self.ended(other),
            }
        }
    }

    /// Takes note of an answer.
    fn ended<T>(&self, answer: Result<T, ClientError>) -> Result<T, ClientError> {
        if answer.as_ref().err().is_none_or(|error| !error.is_silence()) {
            self.outages.is_over();
        }
        answer
    }

    /// Retries until the server answers, for the time of a restart, or until it has time for this caller.
    pub(crate) async fn patiently<T>(
        &self,
        ask: impl AsyncFn() -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        self.patiently_for(OUTAGE_MAX, |_, _| {}, ask).await
    }

    /// Does the same for `outage_max`. Once a minute, `tell` gets the duration of the outage, and the error.
    async fn patiently_for<T>(
        &self,
        outage_max: Duration,
        tell: impl Fn(Duration, &ClientError),
        ask: impl AsyncFn() -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let (started, mut told) = (Instant::now(), Instant::now());
        loop {
            match ask().await {
                Err(error) if self.may_pass(&error) && started.elapsed() < outage_max => {
                    self.outages.lasts(self.url(), started.elapsed(), &error);
                    if told.elapsed() >= TELL_EVERY {
                        told = Instant::now();
                        tell(started.elapsed(), &error);
                    }
                    tokio::time::sleep(again_after()).await;
                }
                other => return self.ended(other),
            }
        }
    }

    fn may_pass(&self, error: &ClientError) -> bool {
        // A server that cannot continue ends; its standby may answer.
        let has_failed = error.code() == Some(ErrorCode::Failed);
        error.may_pass() || (has_failed && self.addresses.are_several())
    }

    /// Submits a job. It arrives at most once: if the answer is lost, nobody knows whether the job exists.
    pub async fn submit(&self, submission: &JobSubmission) -> Result<SubmittedJob, ClientError> {
        self.once(async || self.post("/v1/jobs", submission).await).await
    }

    /// Submits the stages of a flow. Sent once, like [`Self::submit`].
    pub async fn submit_flow(&self, flow: &FlowSubmission) -> Result<SubmittedFlow, ClientError> {
        self.once(async || self.post("/v1/flows", flow).await).await
    }

    /// Submits jobs of one task each. Sent once, like [`Self::submit`].
    pub async fn submit_batch(&self, batch: &JobBatch) -> Result<SubmittedBatch, ClientError> {
        self.once(async || self.post("/v1/jobs/batch", batch).await).await
    }

    /// Returns the output of the program of a one-task job so far.
    pub async fn logs(&self, job: JobId) -> Result<JobLogs, ClientError> {
        self.patiently(async || self.get(&format!("/v1/jobs/{job}/logs")).await).await
    }

    /// Waits for the end of a job, through restarts of the server.
    pub async fn wait(&self, job: JobId) -> Result<JobOutcome, ClientError> {
        self.wait_telling(job, |_, _| {}).await
    }

    /// Does the same. Once a minute without an answer, `tell` gets the duration of the outage, and the error.
    pub async fn wait_telling(
        &self,
        job: JobId,
        tell: impl Fn(Duration, &ClientError),
    ) -> Result<JobOutcome, ClientError> {
        loop {
            let path = format!("/v1/jobs/{job}/wait");
            let answer = self.patiently_for(JOB_OUTAGE_MAX, &tell, async || self.get(&path).await).await;
            let answer: WaitAnswer = answer?;
            if let Some(outcome) = answer.outcome {
                return Ok(outcome);
            }
        }
    }

    /// Returns the progress of a job.
    pub async fn progress(&self, job: JobId) -> Result<JobProgress, ClientError> {
        self.get(&format!("/v1/jobs/{job}/progress")).await
    }

    /// Cancels a job.
    pub async fn cancel(&self, job: JobId, reason: &str) -> Result<(), ClientError> {
        let request = CancelRequest { reason: reason.to_string() };
        self.patiently(async || self.post(&format!("/v1/jobs/{job}/cancel"), &request).await).await
    }

    /// Returns the report of a job that has one.
    pub async fn report(&self, job: JobId) -> Result<JobReport, ClientError> {
        self.once(async || self.get(&format!("/v1/jobs/{job}/report")).await).await
    }

    /// Removes kept data from the disks of nodes, and returns the outcome. Sent once: a repeated request would return
    /// nothing.
    pub async fn collect(&self, options: &GcOptions) -> Result<GcAnswer, ClientError> {
        self.post("/v1/gc", options).await
    }

    /// Begins a check of a job's kept data on nodes, or returns the progress of the check of this name.
    pub async fn fsck(&self, job: JobId, request: &FsckRequest) -> Result<FsckAnswer, ClientError> {
        self.patiently(async || self.post(&format!("/v1/jobs/{job}/fsck"), request).await).await
    }

    /// Returns the live nodes.
    pub async fn cluster(&self) -> Result<ClusterStatus, ClientError> {
        self.once(async || self.get("/v1/nodes").await).await
    }

    /// Returns the path of a route about a node, given by its name or number.
    fn path_of_node(&self, node: &str, route: &str) -> Result<String, ClientError> {
        let mut path = self.addresses.current().clone();
        let segments = path.path_segments_mut();
        segments
            .map_err(|()| ClientError::BadUrl { url: self.url().to_string() })?
            .clear()
            .extend(["v1", "nodes", node, route]);
        Ok(path.path().to_string())
    }

    /// Begins to drain a node, given by its name or number.
    pub async fn drain(&self, node: &str) -> Result<NodeStatus, ClientError> {
        let path = self.path_of_node(node, "drain")?;
        self.patiently(async || self.post(&path, &()).await).await
    }

    /// Injects a fault into a node, given by its name or number. Sent once: a fault must not be executed twice.
    pub async fn drill(&self, node: &str, fault: &DrillFault) -> Result<DrillOutcome, ClientError> {
        let path = self.path_of_node(node, "drill")?;
        self.once(async || self.post(&path, fault).await).await
    }

    /// Returns the facts of a job that a node needs.
    pub async fn brief(&self, job: JobId, question: &BriefQuestion) -> Result<JobBrief, ClientError> {
        self.patiently(async || self.post(&format!("/v1/jobs/{job}/brief"), question).await).await
    }

    /// Returns new tokens of jobs in place of those that a node has.
    pub async fn renew_tokens(
        &self,
        node: NodeId,
        question: &TokensQuestion,
    ) -> Result<TokensAnswer, ClientError> {
        let path = format!("/v1/nodes/{}/data-tokens", node.0);
        self.patiently(async || self.post(&path, question).await).await
    }

    /// Returns the current locations of runs of a job.
    pub async fn places(&self, job: JobId, runs: Vec<RunId>) -> Result<PlacesAnswer, ClientError> {
        let question = PlacesQuestion { runs };
        self.patiently(async || self.post(&format!("/v1/jobs/{job}/places"), &question).await).await
    }

    /// Proposes range boundaries. Returns the boundaries in effect.
    pub async fn propose(&self, job: JobId, keys: Vec<KeyBytes>) -> Result<Boundaries, ClientError> {
        let proposal = BoundariesProposal { keys };
        self.patiently(async || self.post(&format!("/v1/jobs/{job}/boundaries"), &proposal).await).await
    }

    /// Returns the latest jobs, newest first.
    pub async fn jobs(&self, count_max: u32) -> Result<JobList, ClientError> {
        self.patiently(async || self.get(&format!("/v1/jobs?limit={count_max}")).await).await
    }

    /// Returns the latest jobs that match a question, newest first, and the number of other matches.
    pub async fn list_jobs(&self, question: &JobsQuestion) -> Result<JobList, ClientError> {
        let mut url = self.addresses.current().clone();
        let limit = question.limit.map(|limit| limit.to_string());
        let state = question.state.map(|state| state.word().to_string());
        let given = [
            ("limit", limit),
            ("state", state),
            ("user", question.user.clone()),
            ("name", question.name.clone()),
            ("steps_of", question.steps_of.map(|job| job.to_string())),
        ];
        let given = given.into_iter().filter_map(|(key, value)| Some((key, value?)));
        url.query_pairs_mut().clear().extend_pairs(given);
        let path = format!("/v1/jobs?{}", url.query().unwrap_or_default());
        self.patiently(async || self.get(&path).await).await
    }

    /// Returns everything about a job except its report, with at most `events_max` of its latest events.
    pub async fn job(&self, job: JobId, events_max: u32) -> Result<JobDetails, ClientError> {
        self.patiently(async || self.get(&format!("/v1/jobs/{job}?limit={events_max}")).await).await
    }

    /// Returns sums of what attempts used.
    pub async fn usage(&self, question: &UsageQuestion) -> Result<UsageList, ClientError> {
        let mut url = self.addresses.current().clone();
        let by = match question.by {
            UsageBy::User => "user",
            UsageBy::Job => "job",
            UsageBy::Day => "day",
        };
        let given = [
            ("by", Some(by.to_string())),
            ("since", question.since.map(|day| day.to_string())),
            ("until", question.until.map(|day| day.to_string())),
            ("user", question.user.clone()),
            ("job", question.job.map(|job| job.to_string())),
        ];
        let given = given.into_iter().filter_map(|(key, value)| Some((key, value?)));
        url.query_pairs_mut().clear().extend_pairs(given);
        let path = format!("/v1/usage?{}", url.query().unwrap_or_default());
        self.patiently(async || self.get(&path).await).await
    }

    /// Returns the lineage of a file.
    pub async fn lineage(&self, question: &LineageQuestion) -> Result<Lineage, ClientError> {
        self.patiently(async || self.post("/v1/lineage", question).await).await
    }

    /// Returns the remembered runs of the steps of a job, with their files.
    pub async fn runs_of_steps(&self, job: JobId) -> Result<Lineage, ClientError> {
        self.patiently(async || self.get(&format!("/v1/jobs/{job}/runs")).await).await
    }

    /// Returns the reasons for the placement of a job's attempts.
    pub async fn placements(&self, job: JobId) -> Result<JobPlacements, ClientError> {
        self.patiently(async || self.get(&format!("/v1/jobs/{job}/placements")).await).await
    }

    /// Runs an SQL statement on the store.
    pub async fn ask(&self, question: &StateQuestion) -> Result<Table, ClientError> {
        self.patiently(async || self.post("/v1/state", question).await).await
    }

    /// Issues a token. Sent once: if the answer is lost, so is the token, and it can be revoked.
    pub async fn issue_token(&self, request: &TokenRequest) -> Result<IssuedToken, ClientError> {
        self.once(async || self.post("/v1/tokens", request).await).await
    }

    /// Returns all tokens, without their secrets.
    pub async fn tokens(&self) -> Result<TokenList, ClientError> {
        self.patiently(async || self.get("/v1/tokens").await).await
    }

    /// Revokes a token.
    pub async fn revoke_token(&self, name: &str) -> Result<(), ClientError> {
        let path = self.path_of(&["v1", "tokens", name, "revoke"])?;
        self.patiently(async || self.call(Method::POST, &path, None).await).await
    }

    /// Returns the path of a route with names of users in it, escaped.
    pub(crate) fn path_of(&self, segments: &[&str]) -> Result<String, ClientError> {
        let mut url = self.addresses.current().clone();
        let bad = || ClientError::BadUrl { url: self.url().to_string() };
        url.path_segments_mut().map_err(|()| bad())?.clear().extend(segments);
        Ok(url.path().to_string())
    }

    /// Requests the certificates of a node's data port before it opens. Retries until the server is available.
    pub async fn admission(&self, request: &AdmissionRequest) -> Result<Admission, ClientError> {
        self.patiently(async || self.post("/v1/nodes/admission", request).await).await
    }

    /// Joins as a node. Retries until the server is available.
    pub async fn register(&self, info: &NodeInfo) -> Result<NodeWelcome, ClientError> {
        self.patiently(async || self.post("/v1/nodes", info).await).await
    }

    /// Reports results and asks for new work.
    pub async fn poll(&self, node: NodeId, poll: &NodePoll) -> Result<NodeOrders, ClientError> {
        let path = format!("/v1/nodes/{}/poll", node.0);
        if !self.addresses.are_several() || !poll.finished.is_empty() {
            return self.post(&path, poll).await;
        }
        let url = self.url().to_string();
        let body = serde_json::to_vec(poll).map_err(|source| ClientError::Unreadable { url, source })?;
        let request = self.request(Method::POST, &path).timeout(POLL_TIMEOUT);
        self.answer(request.header("content-type", "application/json").body(body), &path).await
    }

    /// Announces the kept directories on the disks of a node.
    pub async fn announce(&self, node: NodeId, kept: &KeptAnnouncement) -> Result<(), ClientError> {
        self.patiently(async || self.post(&format!("/v1/nodes/{}/kept", node.0), kept).await).await
    }

    /// Reports a node's findings for a check.
    pub async fn tell_check(&self, node: NodeId, news: &CheckNews) -> Result<CheckAnswer, ClientError> {
        self.patiently(async || self.post(&format!("/v1/nodes/{}/checked", node.0), news).await).await
    }

    /// Reports intermediate files of users on a node.
    pub async fn tell_intermediates(
        &self,
        node: NodeId,
        news: &IntermediateNews,
    ) -> Result<IntermediateAnswer, ClientError> {
        self.patiently(async || self.post(&format!("/v1/nodes/{}/intermediate-files", node.0), news).await)
            .await
    }

    /// Creates an intermediate file. Sent once: if the answer is lost, the file is abandoned after a while, or may be
    /// removed.
    pub async fn create_intermediate(
        &self,
        new: &NewIntermediate,
    ) -> Result<CreatedIntermediate, ClientError> {
        self.once(async || self.post("/v1/intermediate-files", new).await).await
    }

    /// Returns the locations of an intermediate file as soon as it is complete; no locations if it is not complete
    /// within five seconds.
    pub async fn open_intermediate(
        &self,
        open: &OpenIntermediate,
    ) -> Result<OpenedIntermediate, ClientError> {
        self.patiently(async || self.post("/v1/intermediate-files/open", open).await).await
    }

    /// Returns the intermediate files that the caller may read.
    pub async fn intermediates(&self) -> Result<IntermediateList, ClientError> {
        self.patiently(async || self.get("/v1/intermediate-files").await).await
    }

    /// Removes an intermediate file. Sent once: a repeated request would not find it.
    pub async fn remove_intermediate(&self, remove: &RemoveIntermediate) -> Result<(), ClientError> {
        self.once(async || self.post("/v1/intermediate-files/remove", remove).await).await
    }

    /// Changes the groups or the owner of an intermediate file. Sent once: a file with another owner is not found again.
    pub async fn change_intermediate(&self, change: &ChangeIntermediate) -> Result<(), ClientError> {
        self.once(async || self.post("/v1/intermediate-files/change", change).await).await
    }

    /// Reports the outcome of a fault. Sent once: a node that dies of it does not wait for a server.
    pub async fn tell_drill(&self, node: NodeId, news: &DrillNews) -> Result<(), ClientError> {
        self.once(async || self.post(&format!("/v1/nodes/{}/struck", node.0), news).await).await
    }

    /// Sends a page of a listing of a node.
    pub async fn tell_seen(&self, node: NodeId, news: &SeenNews) -> Result<SeenNewsAnswer, ClientError> {
        self.patiently(async || self.post(&format!("/v1/nodes/{}/seen", node.0), news).await).await
    }

    /// Asks for a page of the files at a path that only some nodes see.
    pub async fn seen(&self, question: &SeenQuestion) -> Result<SeenAnswer, ClientError> {
        self.patiently(async || self.post("/v1/seen", question).await).await
    }

    /// Announces the graceful shutdown of a node.
    pub async fn leave(&self, node: NodeId, incarnation: &str) -> Result<(), ClientError> {
        self.post(
            &format!("/v1/nodes/{}/leave", node.0),
            &NodePoll { incarnation: incarnation.to_string(), ..NodePoll::default() },
        )
        .await
    }
}

/// Returns an address as users write it.
fn text_of(address: &Url) -> &str {
    address.as_str().trim_end_matches('/')
}

/// Makes an error from an unsuccessful answer.
pub(crate) fn refusal(answer: &[u8], url: String, status: u16) -> ClientError {
    match serde_json::from_slice::<ErrorAnswer>(answer) {
        Ok(answer) => ClientError::Refused { answer },
        Err(_) => ClientError::NotOurs { url, status },
    }
}

/// Parses `http://HOST:PORT` or `https://HOST:PORT`.
fn parse_proxy(text: &str) -> Result<reqwest::Proxy, ClientError> {
    let bad = || ClientError::BadProxy { url: text.to_string() };
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https")).ok_or_else(bad)?;
    reqwest::Proxy::all(url).map_err(|_| bad())
}

fn is_this_machine(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// A client for blocking threads.
#[derive(Debug)]
pub struct Blocking {
    /// None only during the drop.
    runtime: Option<Runtime>,
    client: Client,
}

impl Blocking {
    /// Creates a client of a server on this machine, and starts its thread.
    pub fn new(url: &str) -> Result<Self, ClientError> {
        Self::with(url, &Credentials::none())
    }

    /// Creates a client of a server with credentials for both sides, and starts its thread.
    pub fn with(url: &str, credentials: &Credentials) -> Result<Self, ClientError> {
        let client = Client::with(url, credentials)?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("control")
            .enable_all()
            .build()
            .map_err(ClientError::Runtime)?;
        Ok(Self { runtime: Some(runtime), client })
    }

    /// Runs calls to their end: `blocking.run(async |client| client.cluster().await)`.
    pub fn run<T>(&self, work: impl AsyncFnOnce(&Client) -> T) -> T {
        let (runtime, client) = self.parts();
        runtime.block_on(work(client))
    }

    /// Tells outages of the server: see [`Client::telling_outages`].
    pub fn tell_outages(&mut self, tell: impl Fn(&str) + Send + Sync + 'static) {
        self.client = self.client.clone().telling_outages(tell);
    }

    /// Acts as the node with this secret from now on.
    pub fn speak_for_node(&mut self, secret: &SecretText) -> Result<(), ClientError> {
        self.client = self.client.as_node(secret)?;
        Ok(())
    }

    /// Returns the runtime and the async client, for tasks that outlive one call.
    pub fn parts(&self) -> (&Runtime, &Client) {
        (self.runtime.as_ref().expect("it is there until the drop"), &self.client)
    }
}

impl Drop for Blocking {
    fn drop(&mut self) {
        // The last owner may be a task of another runtime, such as a connection of the data port, which must not block.
        // All calls have ended; only polls that nobody needs are left.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Blocking;

    #[test]
    fn connection_may_end_in_another_runtime() {
        let connection = Blocking::new("http://127.0.0.1:1").unwrap();
        let other = tokio::runtime::Builder::new_current_thread().build().unwrap();
        other.block_on(async move { drop(connection) });
    }
}
