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

/// A node that does not even accept a connection for so long is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// An idle connection is closed here before the other node does it, so that no request meets the end of one.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// A node may be silent for so long: it waits for memory while it writes to its disks.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(120);
/// Whoever hears nothing for so long says so, and goes on waiting.
const SILENT_AFTER: Duration = Duration::from_secs(1);
/// Pause before a request is sent again; doubles from try to try. All tries together take some two seconds.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(800);
/// How often the server is asked whether there are new tokens, before it is taken for true that a node lets nothing in.
const RENEWALS_MAX: u32 = 60;
/// Between an answer of the server and the next try: the other node hears of new tokens as well.
const RENEWED_PAUSE: Duration = Duration::from_millis(250);
/// Most bytes that are read of a reason for a refusal, and of an answer.
const REASON_BYTES_MAX: usize = 4 << 10;
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Address of a node's data port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    pub node: NodeId,
    /// Begin of its URLs, as `http://host:port`.
    pub url: String,
    /// The process that is meant, not a later one of the same node.
    pub incarnation: u64,
}

impl Peer {
    /// Whether it is reached without a network: a process beside this one.
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

/// Hears which nodes do not answer, and how that showed. Called from the threads that carry requests: it must not wait.
pub type Unanswered = Arc<dyn Fn(NodeId, Unreached) + Send + Sync>;

/// The tokens that a client shows.
#[derive(Clone)]
enum Shows {
    /// Nothing, or always the same.
    One(Option<Token>),
    OfJobs(Arc<dyn JobTokens>),
}

/// The tokens of one request, and how many of them were refused.
pub(crate) struct Showing<'a> {
    shows: &'a Shows,
    of: DataScope,
    tokens: Vec<Token>,
    /// Index of the token that is shown next.
    next: usize,
    renewals: u32,
}

impl Showing<'_> {
    pub fn token(&self) -> Option<&Token> {
        self.tokens.get(self.next)
    }

    /// Whether there is something else to show to a node that did not let the last in. Nodes hear at different moments that there
    /// are new tokens, and none hears of it while no server answers.
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
        // After a panic nothing was renewed, and the next round finds that out.
        let _ = tokio::task::spawn_blocking(move || asking.renew()).await;
        tokio::time::sleep(RENEWED_PAUSE).await;
        (self.tokens, self.next) = (tokens.tokens(job), 0);
        !self.tokens.is_empty()
    }
}

/// Sends requests to other nodes. Cheap to clone; connections are kept and shared.
#[derive(Clone)]
pub struct DataClient {
    http: reqwest::Client,
    /// For requests that may take as long as they like, as long as they go on.
    patient: reqwest::Client,
    runtime: Handle,
    shows: Shows,
    unanswered: Option<Unanswered>,
}

/// A pause of about that length: where a node comes back, not all of its peers ask at once.
fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + fastrand::f64())
}

impl DataClient {
    /// A client whose requests run on `runtime`, which must have a thread of its own: callers of this crate wait
    /// on theirs.
    pub fn new(runtime: Handle) -> Result<Self, DataError> {
        Self::with(runtime, &Credentials::none())
    }

    /// As [`Self::new`], for data ports with TLS that these credentials believe.
    pub fn with(runtime: Handle, credentials: &Credentials) -> Result<Self, DataError> {
        let builder = || -> Result<reqwest::ClientBuilder, DataError> {
            let tls = credentials.to_data_ports().map_err(DataError::Trust)?;
            let builder = reqwest::Client::builder().tls_backend_preconfigured(tls);
            // A cluster's nodes are reached directly, whatever the environment says of proxies.
            let builder = builder.tcp_nodelay(true).no_proxy().redirect(reqwest::redirect::Policy::none());
            Ok(builder.connect_timeout(CONNECT_TIMEOUT).pool_idle_timeout(IDLE_MAX))
        };
        let http = builder()?.read_timeout(SILENCE_MAX).build().map_err(DataError::Client)?;
        let patient = builder()?.build().map_err(DataError::Client)?;
        Ok(Self { http, patient, runtime, shows: Shows::One(None), unanswered: None })
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// The same client, which always shows this.
    pub fn with_token(&self, token: Option<Token>) -> Self {
        Self { shows: Shows::One(token), ..self.clone() }
    }

    /// The same client, which shows the tokens of the jobs that its requests are about.
    pub fn with_job_tokens(&self, tokens: Arc<dyn JobTokens>) -> Self {
        Self { shows: Shows::OfJobs(tokens), ..self.clone() }
    }

    pub(crate) fn showing(&self, of: DataScope) -> Showing<'_> {
        let tokens = match (&self.shows, of) {
            (Shows::One(token), _) => token.iter().cloned().collect(),
            (Shows::OfJobs(tokens), DataScope::Job(job)) => tokens.tokens(job),
            (Shows::OfJobs(_), DataScope::Users) => Vec::new(),
        };
        Showing { shows: &self.shows, of, tokens, next: 0, renewals: 0 }
    }

    /// The same client, which tells of every node that does not answer.
    pub fn telling(&self, unanswered: Unanswered) -> Self {
        Self { unanswered: Some(unanswered), ..self.clone() }
    }

    fn tell(&self, node: NodeId, how: Unreached) {
        if let Some(unanswered) = &self.unanswered {
            unanswered(node, how);
        }
    }

    /// Waits for something that a node sends, and tells how it fails to.
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

    /// Sends one request; an answer that is no success is an error.
    pub(crate) async fn post(
        &self,
        target: Target<'_>,
        body: reqwest::Body,
    ) -> Result<reqwest::Response, DataError> {
        let peer = target.peer;
        let request = request(&self.http, target, self.showing(target.scope).token()).body(body);
        answer_of(peer, self.heard(peer.node, request.send()).await).await
    }

    /// Sends a request until it is answered by a message, with pauses, a limited number of times.
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

    /// Sends frames in one request, and the same request again until it is answered. Gives for each frame None
    /// where it is acknowledged, or what stands in its chunk, which closed.
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

    /// Once only: a release that is lost costs nothing but a place among the appenders of a chunk.
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

    /// Sends a copy of a file, once. Whoever fills the body sees to it that it goes on.
    pub(crate) async fn send_copy(&self, target: Target<'_>, body: reqwest::Body) -> Result<(), DataError> {
        let peer = target.peer;
        let request = request(&self.patient, target, self.showing(target.scope).token());
        let sent = request.body(body).send().await;
        if let Err(error) = &sent {
            self.tell(peer.node, unreached(error));
        }
        answer_of(peer, sent).await.map(|_| ())
    }

    /// Reads blocks of a stage file, as they are stored.
    pub(crate) async fn stage_blocks(
        &self,
        peer: &Peer,
        scope: DataScope,
        request: &StageReadRequest,
        tries_max: u32,
    ) -> Result<Vec<u8>, DataError> {
        let raw = request.raw().stored;
        let expected_bytes = (raw.end - raw.start) as usize;
        // One more shows an answer that is too long.
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

    /// Starts a scan; its answer is read by the caller. Sent again only while nothing of it was answered.
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

/// An answer that is no success is an error.
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

/// Returns how a node could not be reached, by the error of a request.
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

/// Reader of a scan: its attempt, and how often it asks.
#[derive(Clone, Copy)]
pub(crate) struct ScanReader {
    pub attempt: Option<AttemptKey>,
    pub tries_max: u32,
}

/// How often a request is sent, and how much of its answer is read.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub tries_max: u32,
    pub answer_bytes_max: usize,
}

/// The first bytes of an answer, so that a node gone mad cannot fill the memory of this one.
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

/// The body of a request with frames: their payloads go to the socket from where they are.
struct FramesBody {
    frames: Arc<[(ChunkId, AppendFrame)]>,
    head: Option<Bytes>,
    next: usize,
    /// The payload of the frame whose head was given out.
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

/// The memory of a payload, for [`Bytes`] to keep.
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
