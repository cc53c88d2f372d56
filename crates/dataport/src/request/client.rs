//! Requests to the data ports of other nodes.

use crate::error::DataError;
use crate::wire::data_scope::DataScope;
use crate::wire::messages::{
    AppendAnswers, AppendHead, BindReply, BindRequest, FrameHead, ReleaseRequest, ScanRequest,
};
use crate::wire::stage::StageReadRequest;
use crate::wire::token::{JobTokens, Token};
use crate::{ATTEMPT_HEADER, INCARNATION_HEADER};
use api::machine::Unreached;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use iappender::{APPEND_TRIES_MAX, AppendFrame};
use ids::{AttemptKey, ChunkId, JobId, NodeId, Source};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::runtime::Handle;
use trust::Credentials;

/// Timeout of a connection attempt, after which a node counts as absent.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Idle time after which a connection is closed, earlier than on the other side, so that no request meets a closing
/// one.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// Timeout of a silent node: it may wait for memory while it writes to its disks.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(120);
/// Time after which a silent node is reported; the request goes on.
const SILENT_AFTER: Duration = Duration::from_secs(1);
/// First pause before a retry; it doubles with each. All tries together take about two seconds.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(800);
/// Maximum number of requests for new tokens to the server before a refusal by a node counts as final.
const RENEWALS_MAX: u32 = 60;
/// Pause between an answer of the server and the next try: the other node must learn the new tokens too.
const RENEWED_PAUSE: Duration = Duration::from_millis(250);
/// Maximum bytes that are read of a reason for a refusal, and of an answer.
const REASON_BYTES_MAX: usize = 4 << 10;
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Address of a node's data port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    pub node: NodeId,
    /// Prefix of its URLs, as `http://host:port`.
    pub url: String,
    /// The process that is meant, not a later one of the same node.
    pub incarnation: u64,
}

impl Peer {
    /// Returns whether it is reached without a network: a process beside this one.
    pub(crate) fn is_this_machine(&self) -> bool {
        let url = reqwest::Url::parse(&self.url).ok();
        let host = url.as_ref().and_then(|url| url.host_str()).unwrap_or_default();
        let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
        host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    }
}

/// Target of a request: a route of a peer, for the data of an owner.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub peer: &'a Peer,
    pub scope: DataScope,
    pub route: &'a str,
}

/// Receives the nodes that do not respond, with the error. Called from the threads for requests: it must not wait.
pub type Unanswered = Arc<dyn Fn(NodeId, Unreached) + Send + Sync>;

/// The tokens that a client presents.
#[derive(Clone)]
enum Shows {
    /// None, or always the same.
    One(Option<Token>),
    OfJobs(Arc<dyn JobTokens>),
}

/// The tokens of a request, and the number of refused ones.
pub(crate) struct Showing<'a> {
    shows: &'a Shows,
    of: DataScope,
    tokens: Vec<Token>,
    /// Index of the next token to present.
    next: usize,
    renewals: u32,
}

impl Showing<'_> {
    pub fn token(&self) -> Option<&Token> {
        self.tokens.get(self.next)
    }

    /// Returns whether there is another token to present to a node that refused the last one. Nodes learn of new tokens
    /// at different times, and none learns of them while no server responds.
    pub async fn has_another(&mut self) -> bool {
        self.next += 1;
        if self.next < self.tokens.len() {
            return true;
        }
        let (Shows::OfJobs(tokens), DataScope::Job(job)) = (self.shows, self.of) else { return false };
        if self.renewals == RENEWALS_MAX {
            return false;
        }
        self.renewals += 1;
        let asking = Arc::clone(tokens);
        // After a panic nothing was renewed, which the next round notices.
        let _ = tokio::task::spawn_blocking(move || asking.renew()).await;
        tokio::time::sleep(RENEWED_PAUSE).await;
        (self.tokens, self.next) = (tokens.tokens(job), 0);
        !self.tokens.is_empty()
    }
}

/// A client for requests to other nodes. Cheap to clone; connections are kept and shared.
#[derive(Clone)]
pub struct DataClient {
    http: reqwest::Client,
    /// For requests without a total time limit, as long as they make progress.
    patient: reqwest::Client,
    runtime: Handle,
    shows: Shows,
    unanswered: Option<Unanswered>,
}

/// Returns a pause of about this length, so that not all peers ask a returning node at once.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + fastrand::f64())
}

impl DataClient {
    /// Creates a client whose requests run on `runtime`, which needs its own thread: callers of this crate block
    /// theirs.
    pub fn new(runtime: Handle) -> Result<Self, DataError> {
        Self::with(runtime, &Credentials::none())
    }

    /// Does the same as [`Self::new`], for data ports with TLS that these credentials trust.
    pub fn with(runtime: Handle, credentials: &Credentials) -> Result<Self, DataError> {
        let builder = || -> Result<reqwest::ClientBuilder, DataError> {
            let tls = credentials.to_data_ports().map_err(DataError::Trust)?;
            let builder = reqwest::Client::builder().tls_backend_preconfigured(tls);
            // Nodes of a cluster are reached directly, without proxies of the environment.
            let builder = builder.tcp_nodelay(true).no_proxy().redirect(reqwest::redirect::Policy::none());
            let builder = match credentials.socket() {
                Some(socket) => builder.unix_socket(socket),
                None => builder,
            };
            Ok(builder.connect_timeout(CONNECT_TIMEOUT).pool_idle_timeout(IDLE_MAX))
        };
        let http = builder()?.read_timeout(SILENCE_MAX).build().map_err(DataError::Client)?;
        let patient = builder()?.build().map_err(DataError::Client)?;
        Ok(Self { http, patient, runtime, shows: Shows::One(None), unanswered: None })
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Returns the same client, which always presents this token.
    pub fn with_token(&self, token: Option<Token>) -> Self {
        Self { shows: Shows::One(token), ..self.clone() }
    }

    /// Returns the same client, which presents the tokens of the jobs of its requests.
    pub fn with_job_tokens(&self, tokens: Arc<dyn JobTokens>) -> Self {
        Self { shows: Shows::OfJobs(tokens), ..self.clone() }
    }

    pub(crate) fn showing(&self, of: DataScope) -> Showing<'_> {
        let tokens = match (&self.shows, of) {
            (Shows::One(token), _) => token.iter().cloned().collect(),
            (Shows::OfJobs(tokens), DataScope::Job(job)) => tokens.tokens(job),
            (Shows::OfJobs(_), DataScope::Users | DataScope::Stored) => Vec::new(),
        };
        Showing { shows: &self.shows, of, tokens, next: 0, renewals: 0 }
    }

    /// Returns the same client, which reports every node that does not respond.
    pub fn telling(&self, unanswered: Unanswered) -> Self {
        Self { unanswered: Some(unanswered), ..self.clone() }
    }

    fn tell(&self, node: NodeId, how: Unreached) {
        if let Some(unanswered) = &self.unanswered {
            unanswered(node, how);
        }
    }

    /// Waits for data from a node, and reports a failure.
    pub(crate) async fn heard<T>(
        &self,
        node: NodeId,
        coming: impl Future<Output = Result<T, reqwest::Error>>,
    ) -> Result<T, reqwest::Error> {
        let mut coming = std::pin::pin!(coming);
        let come = loop {
            match tokio::time::timeout(SILENT_AFTER, &mut coming).await {
                Ok(come) => break come,
                Err(_) => self.tell(node, Unreached::Silent),
            }
        };
        if let Err(error) = &come {
            self.tell(node, unreached(error));
        }
        come
    }

    /// Sends a request once; an answer without success is an error.
    pub(crate) async fn post(
        &self,
        target: Target<'_>,
        body: reqwest::Body,
    ) -> Result<reqwest::Response, DataError> {
        let peer = target.peer;
        let request = request(&self.http, target, self.showing(target.scope).token()).body(body);
        answer_of(peer, self.heard(peer.node, request.send()).await).await
    }

    /// Sends a request until a message answers it, with pauses, a limited number of times.
    async fn again_and_again<T>(
        &self,
        target: Target<'_>,
        body: impl Fn() -> reqwest::Body,
        decode: impl Fn(&[u8]) -> Result<T, DataError>,
    ) -> Result<T, DataError> {
        let limits = Limits { tries_max: APPEND_TRIES_MAX, answer_bytes_max: ANSWER_BYTES_MAX };
        self.until_answered(target, limits, body, |bytes| decode(&bytes)).await
    }

    pub(crate) async fn until_answered<T>(
        &self,
        target: Target<'_>,
        limits: Limits,
        body: impl Fn() -> reqwest::Body,
        decode: impl Fn(Vec<u8>) -> Result<T, DataError>,
    ) -> Result<T, DataError> {
        let mut pause = FIRST_PAUSE;
        let mut tries = 0;
        let peer = target.peer;
        let mut showing = self.showing(target.scope);
        loop {
            tries += 1;
            let request = request(&self.http, target, showing.token()).body(body());
            let answered = match answer_of(peer, self.heard(peer.node, request.send()).await).await {
                Ok(answer) => {
                    let answer = limited(answer, limits.answer_bytes_max);
                    self.heard(peer.node, answer).await.map_err(|source| DataError::Unreachable {
                        node: peer.node,
                        url: peer.url.clone(),
                        source: source.without_url(),
                    })
                }
                Err(error) => Err(error),
            };
            match answered.and_then(&decode) {
                Err(error) if error.is_wrong_token() && showing.has_another().await => tries -= 1,
                Err(error) if error.is_passing() && tries < limits.tries_max => {
                    tokio::time::sleep(jittered(pause)).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                done => return done,
            }
        }
    }

    pub(crate) async fn bind(
        &self,
        peer: &Peer,
        job: JobId,
        request: BindRequest,
    ) -> Result<ChunkId, DataError> {
        let decode = |bytes: &[u8]| match BindReply::decode(bytes) {
            Ok(reply) => Ok(reply.chunk),
            Err(source) => Err(DataError::Damaged { node: peer.node, source }),
        };
        self.again_and_again(
            Target { peer, scope: job.into(), route: "bind" },
            || request.encode().into(),
            decode,
        )
        .await
    }

    /// Sends frames in one request, and retries it until it is answered. Returns None for each acknowledged frame, or
    /// the end of the data in its chunk, which is closed.
    pub(crate) async fn append(
        &self,
        peer: &Peer,
        job: JobId,
        source: Source,
        frames: Arc<[(ChunkId, AppendFrame)]>,
    ) -> Result<Vec<Option<u64>>, DataError> {
        let count = frames.len();
        let decode = |bytes: &[u8]| {
            let answers = AppendAnswers::decode(bytes);
            let answers = answers.map_err(|source| DataError::Damaged { node: peer.node, source })?.closed;
            match answers.len() == count {
                true => Ok(answers),
                false => {
                    Err(DataError::Incomplete { node: peer.node, frames: count, answers: answers.len() })
                }
            }
        };
        let body = || reqwest::Body::wrap(FramesBody::new(source, Arc::clone(&frames)));
        self.again_and_again(Target { peer, scope: job.into(), route: "frames" }, body, decode).await
    }

    /// Sends a release, once: a lost one costs only a seat among the appenders of a chunk.
    pub(crate) async fn release(
        &self,
        peer: &Peer,
        job: JobId,
        request: &ReleaseRequest,
    ) -> Result<(), DataError> {
        self.post(Target { peer, scope: job.into(), route: "release" }, request.encode().into())
            .await
            .map(|_| ())
    }

    /// Sends a copy of a file, once. The provider of the body must keep it going.
    pub(crate) async fn send_copy(&self, target: Target<'_>, body: reqwest::Body) -> Result<(), DataError> {
        let peer = target.peer;
        let request = request(&self.patient, target, self.showing(target.scope).token());
        let sent = request.body(body).send().await;
        if let Err(error) = &sent {
            self.tell(peer.node, unreached(error));
        }
        answer_of(peer, sent).await.map(|_| ())
    }

    /// Sends a request once and waits for its answer at most this long. It ends earlier only with its connection.
    pub(crate) async fn post_patiently(
        &self,
        target: Target<'_>,
        body: reqwest::Body,
        patience: Duration,
    ) -> Result<reqwest::Response, DataError> {
        let peer = target.peer;
        let request = request(&self.patient, target, self.showing(target.scope).token());
        let sent = tokio::time::timeout(patience, request.body(body).send()).await;
        let sent = sent.map_err(|_| DataError::Silent { node: peer.node, url: peer.url.clone() })?;
        if let Err(error) = &sent {
            self.tell(peer.node, unreached(error));
        }
        answer_of(peer, sent).await
    }

    /// Sends a request of somebody else, once and with that caller's token only. Returns the answer, whatever its status.
    pub async fn pass_on(&self, peer: &Peer, passed: Passed<'_>) -> Result<reqwest::Response, DataError> {
        let url = format!("{}/data/v1/{}/{}", peer.url.trim_end_matches('/'), passed.scope, passed.route);
        let http = if passed.is_patient { &self.patient } else { &self.http };
        let request = http.request(passed.method, url).header(INCARNATION_HEADER, peer.incarnation);
        let request = match passed.authorization {
            Some(value) => request.header(reqwest::header::AUTHORIZATION, value),
            None => request,
        };
        let sent = request.body(passed.body).send();
        // A patient request may have failed because of its caller: nobody is told of it.
        let sent = if passed.is_patient { sent.await } else { self.heard(peer.node, sent).await };
        sent.map_err(|source| DataError::Unreachable {
            node: peer.node,
            url: peer.url.clone(),
            source: source.without_url(),
        })
    }

    /// Reads blocks of a stage file in stored form.
    pub(crate) async fn stage_blocks(
        &self,
        peer: &Peer,
        scope: DataScope,
        request: &StageReadRequest,
        tries_max: u32,
    ) -> Result<Vec<u8>, DataError> {
        let raw = request.raw().stored;
        let expected_bytes = (raw.end - raw.start) as usize;
        // One byte more reveals an answer that is too long.
        let limits = Limits { tries_max, answer_bytes_max: expected_bytes + 1 };
        let decode = |bytes: Vec<u8>| match bytes.len() == expected_bytes {
            true => Ok(bytes),
            false => Err(DataError::Length { node: peer.node, expected_bytes, present_bytes: bytes.len() }),
        };
        self.until_answered(
            Target { peer, scope, route: "stage-blocks" },
            limits,
            || request.encode().into(),
            decode,
        )
        .await
    }

    /// Starts a scan; the caller reads its answer. Retries only while nothing of it was answered.
    pub(crate) async fn scan(
        &self,
        peer: &Peer,
        job: JobId,
        request: &ScanRequest,
        reader: ScanReader,
    ) -> Result<reqwest::Response, DataError> {
        let mut pause = FIRST_PAUSE;
        let mut tries = 0;
        let target = Target { peer, scope: job.into(), route: "scan" };
        let mut showing = self.showing(target.scope);
        loop {
            tries += 1;
            let mut post = self::request(&self.http, target, showing.token());
            post = post.body(request.encode());
            if let Some(AttemptKey { task, attempt }) = reader.attempt {
                let value = format!("{}-{}-{}", task.stage.0, task.task.0, attempt.0);
                post = post.header(ATTEMPT_HEADER, value);
            }
            match answer_of(peer, self.heard(peer.node, post.send()).await).await {
                Err(error) if error.is_wrong_token() && showing.has_another().await => tries -= 1,
                Err(error) if error.is_passing() && tries < reader.tries_max => {
                    tokio::time::sleep(jittered(pause)).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
                done => return done,
            }
        }
    }
}

fn request(http: &reqwest::Client, target: Target<'_>, token: Option<&Token>) -> reqwest::RequestBuilder {
    let Target { peer, scope, route } = target;
    let url = format!("{}/data/v1/{scope}/{route}", peer.url.trim_end_matches('/'));
    let request = http.post(url).header(INCARNATION_HEADER, peer.incarnation);
    match token {
        Some(token) => request.header(reqwest::header::AUTHORIZATION, token.header_value()),
        None => request,
    }
}

/// Returns a successful answer; any other is an error.
async fn answer_of(
    peer: &Peer,
    sent: Result<reqwest::Response, reqwest::Error>,
) -> Result<reqwest::Response, DataError> {
    let unreachable = |source: reqwest::Error| DataError::Unreachable {
        node: peer.node,
        url: peer.url.clone(),
        source: source.without_url(),
    };
    let answer = sent.map_err(unreachable)?;
    let status = answer.status();
    if status.is_success() {
        return Ok(answer);
    }
    let reason = limited(answer, REASON_BYTES_MAX).await.unwrap_or_default();
    let reason = String::from_utf8_lossy(&reason).into_owned();
    Err(DataError::Refused { node: peer.node, status: status.as_u16(), reason })
}

/// Classifies the error of a request to an unreachable node.
fn unreached(error: &reqwest::Error) -> Unreached {
    use std::io::ErrorKind;
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        match error.downcast_ref::<std::io::Error>().map(std::io::Error::kind) {
            Some(ErrorKind::ConnectionRefused) => return Unreached::Refused,
            Some(ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable) => return Unreached::TimedOut,
            _ => cause = error.source(),
        }
    }
    if error.is_timeout() || error.is_connect() { Unreached::TimedOut } else { Unreached::CutOff }
}

/// A request about an intermediate file that is passed on.
pub struct Passed<'a> {
    pub scope: DataScope,
    pub method: reqwest::Method,
    /// Path and query below the scope.
    pub route: &'a str,
    /// Header of the caller.
    pub authorization: Option<reqwest::header::HeaderValue>,
    pub body: reqwest::Body,
    /// True if the request ends only with its answer, its connection or its caller, not after a time without bytes.
    pub is_patient: bool,
}

/// Reader of a scan: its attempt, and its number of tries.
#[derive(Clone, Copy)]
pub(crate) struct ScanReader {
    pub attempt: Option<AttemptKey>,
    pub tries_max: u32,
}

/// Maximum number of tries of a request, and maximum bytes of its answer.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub tries_max: u32,
    pub answer_bytes_max: usize,
}

/// Returns the first bytes of an answer, so that a broken node cannot fill the memory of this one.
async fn limited(mut answer: reqwest::Response, bytes_max: usize) -> Result<Vec<u8>, reqwest::Error> {
    let mut all = Vec::new();
    while let Some(piece) = answer.chunk().await? {
        let count = piece.len().min(bytes_max - all.len());
        all.extend_from_slice(&piece[..count]);
        if all.len() == bytes_max {
            break;
        }
    }
    Ok(all)
}

/// The body of a request with frames: payloads are sent without copying.
struct FramesBody {
    frames: Arc<[(ChunkId, AppendFrame)]>,
    head: Option<Bytes>,
    next: usize,
    /// The payload of the frame whose header was sent.
    payload: Option<Bytes>,
    bytes_left: u64,
}

impl FramesBody {
    fn new(source: Source, frames: Arc<[(ChunkId, AppendFrame)]>) -> Self {
        let head = AppendHead { source, frame_count: frames.len() as u32 }.encode();
        let each =
            |frame: &AppendFrame| (crate::wire::messages::FRAME_HEAD_BYTES + frame.payload.len()) as u64;
        let bytes_left = head.len() as u64 + frames.iter().map(|(_, frame)| each(frame)).sum::<u64>();
        Self { frames, head: Some(head.into()), next: 0, payload: None, bytes_left }
    }

    fn next_piece(&mut self) -> Option<Bytes> {
        if let Some(piece) = self.head.take().or_else(|| self.payload.take()) {
            return Some(piece);
        }
        let (chunk, frame) = self.frames.get(self.next)?;
        self.next += 1;
        self.payload = Some(Bytes::from_owner(Payload(frame.payload.clone())));
        let head = FrameHead { chunk: *chunk, header: frame.header };
        Some(Bytes::copy_from_slice(&head.encode()))
    }
}

/// The memory of a payload, held by [`Bytes`].
struct Payload(arena::FrameBytes);

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl http_body::Body for FramesBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let piece = self.next_piece();
        if let Some(piece) = &piece {
            self.bytes_left -= piece.len() as u64;
        }
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes_left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes_left)
    }
}
