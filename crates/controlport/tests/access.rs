//! Every route of the document by every kind of caller, against the matrix that is meant; and what each user is
//! limited to.

use api::control::{
    ErrorAnswer, ErrorCode, JOB_HEADER, JobBatch, NodeInfo, NodeWelcome, PROTOCOL_VERSION, SubmittedBatch,
};
use api::people::{IssuedToken, Role, TokenList, TokenRequest};
use api::task::RunTask;
use api::{InputFile, JobKind, JobSpec, MapReduce, StoredContent};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use controlport::{Access, Port, TokensAsked, UserLimits};
use ids::JobId;
use metastore::{AuditRow, Metastore};
use serde_json::{Value, json};
use server::{Server, ServerOptions, UserQuota};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tower::ServiceExt;

/// The callers that each route admits, in this order: tokens of the roles admin, user, read-only, node, and the secret of a node that joined.
const MATRIX: &[(&str, &str, [bool; 5])] = &[
    ("get", "/healthz", [true, true, true, true, true]),
    ("get", "/openapi.json", [true, true, true, true, true]),
    ("get", "/metrics", [true, true, true, true, true]),
    ("get", "/v1/jobs", [true, true, true, false, false]),
    ("post", "/v1/jobs", [true, true, false, false, false]),
    ("post", "/v1/jobs/batch", [true, true, false, false, false]),
    ("post", "/v1/flows", [true, true, false, false, false]),
    ("get", "/v1/jobs/{job}", [true, true, true, false, false]),
    ("get", "/v1/jobs/{job}/logs", [true, true, false, false, false]),
    ("get", "/v1/jobs/{job}/wait", [true, true, true, false, false]),
    ("get", "/v1/jobs/{job}/progress", [true, true, true, false, false]),
    ("get", "/v1/jobs/{job}/report", [true, true, true, false, false]),
    ("post", "/v1/jobs/{job}/cancel", [true, true, false, false, false]),
    ("post", "/v1/jobs/{job}/brief", [false, false, false, false, true]),
    ("post", "/v1/jobs/{job}/places", [false, false, false, false, true]),
    ("post", "/v1/jobs/{job}/stored-files", [false, false, false, false, true]),
    ("post", "/v1/jobs/{job}/stored-output/places", [false, false, false, false, true]),
    ("post", "/v1/jobs/{job}/stored-output/commit", [false, false, false, false, true]),
    ("post", "/v1/jobs/{job}/boundaries", [false, false, false, false, true]),
    ("post", "/v1/jobs/{job}/fsck", [true, true, false, false, false]),
    ("post", "/v1/gc", [true, true, false, false, false]),
    ("post", "/v1/files/missing", [true, true, false, false, false]),
    ("put", "/v1/files/{sha256}", [true, true, false, false, false]),
    ("get", "/v1/files/{sha256}", [false, false, false, false, true]),
    ("post", "/v1/intermediate-files", [true, true, false, false, false]),
    ("get", "/v1/intermediate-files", [true, true, false, false, false]),
    ("post", "/v1/intermediate-files/open", [true, true, false, false, false]),
    ("post", "/v1/intermediate-files/remove", [true, true, false, false, false]),
    ("post", "/v1/intermediate-files/change", [true, true, false, false, false]),
    ("post", "/v1/nodes/{node}/intermediate-files", [false, false, false, false, true]),
    ("post", "/v1/stored-files/find", [true, true, true, false, false]),
    ("post", "/v1/stored-files/list", [true, true, true, false, false]),
    ("post", "/v1/stored-files/lease", [true, true, true, false, false]),
    ("post", "/v1/stored-files/change", [true, true, false, false, false]),
    ("post", "/v1/stored-files/commits", [true, true, true, false, false]),
    ("post", "/v1/stored-files/puts", [true, true, false, false, false]),
    ("post", "/v1/stored-files/puts/known", [true, true, false, false, false]),
    ("post", "/v1/stored-files/puts/numbers", [true, true, false, false, false]),
    ("post", "/v1/stored-files/puts/places", [true, true, false, false, false]),
    ("post", "/v1/stored-files/puts/files", [true, true, false, false, false]),
    ("post", "/v1/stored-files/puts/commit", [true, true, false, false, false]),
    ("post", "/v1/stored-files/puts/abandon", [true, true, false, false, false]),
    ("post", "/v1/nodes/{node}/stored-files", [false, false, false, false, true]),
    ("post", "/v1/nodes/{node}/stored-files/parts", [false, false, false, false, true]),
    ("get", "/v1/nodes", [true, true, true, false, false]),
    ("post", "/v1/nodes", [true, false, false, true, false]),
    ("post", "/v1/nodes/admission", [true, false, false, true, false]),
    ("post", "/v1/nodes/{node}/poll", [false, false, false, false, true]),
    ("post", "/v1/nodes/{node}/kept", [false, false, false, false, true]),
    ("post", "/v1/nodes/{node}/checked", [false, false, false, false, true]),
    ("post", "/v1/nodes/{node}/struck", [false, false, false, false, true]),
    ("post", "/v1/nodes/{node}/seen", [false, false, false, false, true]),
    ("post", "/v1/seen", [true, true, false, false, false]),
    ("post", "/v1/nodes/{node}/leave", [false, false, false, false, true]),
    ("post", "/v1/nodes/{node}/data-tokens", [false, false, false, false, true]),
    ("post", "/v1/nodes/{node}/drain", [true, false, false, false, false]),
    ("post", "/v1/nodes/{node}/drill", [true, false, false, false, false]),
    ("get", "/v1/jobs/{job}/placements", [true, true, true, false, false]),
    ("post", "/v1/state", [true, true, true, false, false]),
    ("get", "/v1/tokens", [true, false, false, false, false]),
    ("post", "/v1/tokens", [true, false, false, false, false]),
    ("post", "/v1/tokens/{token}/revoke", [true, false, false, false, false]),
    ("get", "/v1/groups", [true, true, true, false, false]),
    ("post", "/v1/groups", [true, false, false, false, false]),
    ("post", "/v1/groups/{group}/delete", [true, false, false, false, false]),
    ("post", "/v1/groups/{group}/members", [true, false, false, false, false]),
    ("post", "/v1/groups/{group}/members/remove", [true, false, false, false, false]),
];
const ONLY_NODES: [bool; 5] = [false, false, false, false, true];
/// Open to whoever has no token at all.
const OPEN: [&str; 3] = ["/healthz", "/metrics", "/openapi.json"];

/// A server whose port is called by function.
struct Place {
    routes: Router,
    port: Port,
    server: Arc<Server>,
    runtime: Runtime,
    state: TempDir,
}

impl Place {
    fn new(tokens: TokensAsked, limits: UserLimits) -> Place {
        Self::with(Access { tokens, limits, ..Access::default() })
    }

    fn with(access: Access) -> Place {
        let state = tempfile::tempdir().expect("a directory");
        let server = Server::open(ServerOptions::cluster(state.path().to_path_buf(), None));
        let server = Arc::new(server.expect("a server"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let port = runtime.block_on(async {
            let store = Metastore::open(state.path()).await.expect("a store");
            let files = Metastore::open(state.path()).await.expect("a store");
            Port::open(Arc::clone(&server), store, files, access).await.expect("a port")
        });
        Place { runtime, routes: controlport::router(port.clone()), port, server, state }
    }

    /// Another port on the same store.
    async fn open(&self, access: Access) -> Result<Port, metastore::StoreError> {
        let [store, files] =
            [Metastore::open(self.state.path()).await?, Metastore::open(self.state.path()).await?];
        Port::open(Arc::clone(&self.server), store, files, access).await
    }

    fn token(&self, user: &str, role: Role, seconds: Option<u64>) -> IssuedToken {
        let request = TokenRequest { user: user.to_string(), role, seconds };
        self.runtime.block_on(self.port.issue(request)).expect("a token")
    }

    /// A node that has joined, with the secret that it got.
    fn join(&self, name: &str, token: Option<&str>) -> (u32, String) {
        let welcome = self.welcome(name, token);
        (welcome.node.0, welcome.secret.0)
    }

    fn welcome(&self, name: &str, token: Option<&str>) -> NodeWelcome {
        let info = NodeInfo {
            protocol: PROTOCOL_VERSION,
            version: "0".to_string(),
            name: name.to_string(),
            rack: "r".to_string(),
            slots: 1,
            memory_bytes: 1 << 30,
            architecture: "x86_64".to_string(),
            data_url: "http://127.0.0.1:1".to_string(),
            sees: Vec::new(),
            left: Vec::new(),
            predecessors: Vec::new(),
        };
        let body = serde_json::to_string(&info).expect("JSON");
        let (status, _, body) = self.ask("post", "/v1/nodes", token, body);
        assert_eq!(status, StatusCode::OK, "{}", String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).expect("a welcome")
    }

    /// Gives the status, the error's word where it is one, and the body.
    fn ask(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        body: impl Into<Body>,
    ) -> (StatusCode, Option<ErrorCode>, Vec<u8>) {
        self.ask_for(method, path, token, None, body)
    }

    /// The same, for a program of the job that the text names.
    fn ask_for(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        job: Option<&str>,
        body: impl Into<Body>,
    ) -> (StatusCode, Option<ErrorCode>, Vec<u8>) {
        let mut request = Request::builder().method(method.to_uppercase().as_str()).uri(path);
        if let Some(job) = job {
            request = request.header(JOB_HEADER, job);
        }
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(body.into()).expect("a request");
        self.runtime.block_on(async {
            let response = self.routes.clone().oneshot(request).await.expect("routes always answer");
            let status = response.status();
            let body = to_bytes(response.into_body(), 1 << 20).await.expect("a body").to_vec();
            let code = serde_json::from_slice::<ErrorAnswer>(&body).ok().map(|answer| answer.code);
            (status, code, body)
        })
    }

    fn code(&self, method: &str, path: &str, token: Option<&str>, body: &str) -> Option<ErrorCode> {
        self.ask(method, path, token, body.to_string()).1
    }

    fn submit(&self, token: &str, jobs: usize) -> Result<SubmittedBatch, ErrorCode> {
        let tasks = vec![RunTask { words: vec!["true".into()], ..RunTask::default() }; jobs];
        let claimed = "somebody-else".to_string();
        let batch = JobBatch { name: "test".into(), tasks, user: claimed, priority: 0 };
        let body = serde_json::to_string(&batch).expect("JSON");
        let (status, code, body) = self.ask("post", "/v1/jobs/batch", Some(token), body);
        match status {
            StatusCode::OK => Ok(serde_json::from_slice(&body).expect("numbers of jobs")),
            _ => Err(code.expect("an error")),
        }
    }

    /// The audit, once all that was sent before is in it.
    fn audit(&self) -> Vec<AuditRow> {
        self.runtime.block_on(async {
            // The server takes requests in their order, and answers this one after it has written.
            self.server.issue_token(unused_token()).await.expect("a server");
            self.server.issue_token(unused_token()).await.expect("a server");
            let store = Metastore::open(self.state.path()).await.expect("a store");
            store.audit(1000).await.expect("rows")
        })
    }
}

/// With so many jobs, and as much of all else as by default.
fn quota(jobs_max: u32) -> UserQuota {
    UserQuota { jobs_max, ..UserLimits::default().quota }
}

fn unused_token() -> server::NewToken {
    let hash = trust::Secret::random().expect("randomness").hash();
    let name = hash.map(|byte| format!("{byte:02x}")).concat();
    server::NewToken { name, user: "nobody".into(), role: Role::ReadOnly, hash, expires_ns: None }
}

/// Routes of the document, and the document itself.
fn routes() -> BTreeSet<(String, String)> {
    let document: serde_json::Value = serde_json::from_str(&controlport::openapi_text()).expect("JSON");
    let mut routes = BTreeSet::from([("get".to_string(), "/openapi.json".to_string())]);
    for (path, methods) in document["paths"].as_object().expect("paths") {
        let methods = methods.as_object().expect("methods");
        routes.extend(methods.keys().map(|method| (method.clone(), path.clone())));
    }
    routes
}

/// Whether only nodes that have joined may use it.
fn is_of_nodes(method: &str, path: &str) -> bool {
    MATRIX.iter().any(|row| (row.0, row.1) == (method, path) && row.2 == ONLY_NODES)
}

fn is_refused(code: Option<ErrorCode>) -> bool {
    matches!(code, Some(ErrorCode::Unauthenticated | ErrorCode::Forbidden))
}

#[test]
fn every_route_by_every_caller() {
    let place = Place::new(TokensAsked::Issued, UserLimits::default());
    let good = Role::ALL.map(|role| place.token(role.word(), role, None).token);
    let expired = place.token("late", Role::Admin, Some(0)).token;
    let revoked = place.token("gone", Role::Admin, None);
    place.runtime.block_on(place.server.revoke_token(revoked.name.clone())).expect("a token");
    // What the route does, which reads the tokens anew.
    let again = place.code("post", &format!("/v1/tokens/{}/revoke", revoked.name), Some(&good[0]), "");
    assert_eq!(again, None);
    let stranger = trust::Secret::random().expect("randomness").text();
    let bad = ["no token", stranger.as_str(), expired.as_str(), revoked.token.as_str()];
    let bad = [Some(bad[0]), Some(bad[1]), Some(bad[2]), Some(bad[3]), None];
    let (node, secret) = place.join("n1", Some(&good[3]));
    let mut tried = BTreeSet::new();
    for (method, path) in routes() {
        let row = MATRIX.iter().find(|(m, p, _)| (*m, *p) == (method.as_str(), path.as_str()));
        let (_, _, expected) = row.unwrap_or_else(|| panic!("{method} {path} is not in the matrix"));
        let uri = |node: u32| {
            path.replace("{job}", "999")
                .replace("{node}", &node.to_string())
                .replace("{token}", "x")
                .replace("{group}", "x")
        };
        let callers = Role::ALL.iter().map(|role| role.word()).chain(["a node itself"]);
        for ((caller, token), expected) in callers.zip(good.iter().chain([&secret])).zip(expected) {
            let code = place.code(&method, &uri(node), Some(token), "{\"unknown\": 1}");
            assert_eq!(!is_refused(code), *expected, "{method} {path} by {caller}: {code:?}");
            if !expected {
                assert_eq!(code, Some(ErrorCode::Forbidden), "{method} {path} by {caller}");
            }
        }
        // A node speaks for no other one.
        if path.contains("{node}") {
            let code = place.code(&method, &uri(node + 1), Some(&secret), "{\"unknown\": 1}");
            assert_eq!(code, Some(ErrorCode::Forbidden), "{method} {path} of another node");
        }
        let uri = uri(999);
        for token in bad {
            let code = place.code(&method, &uri, token, "{\"unknown\": 1}");
            let expected = match token.is_none() && OPEN.contains(&path.as_str()) {
                true => None,
                false => Some(ErrorCode::Unauthenticated),
            };
            assert_eq!(code, expected, "{method} {path} with {token:?}");
        }
        tried.insert((method, path));
    }
    assert_eq!(tried.len(), MATRIX.len(), "the matrix has rows of routes that are no more");
}

/// The positive case is a program on a real node, in the black-box tests.
#[test]
fn nodes_speak_only_for_programs_they_run() {
    let place = Place::new(TokensAsked::Issued, UserLimits::default());
    let ann = place.token("ann", Role::User, None).token;
    let rack = place.token("rack", Role::Node, None).token;
    let (_, secret) = place.join("n1", Some(&rack));
    let job = place.submit(&ann, 1).expect("a job").first.to_string();
    let code = |path: &str, token: &str, job: Option<&str>| {
        place.ask_for("get", path, Some(token), job, Body::empty()).1
    };
    let files = "/v1/intermediate-files";
    assert_eq!(code(files, &secret, None), Some(ErrorCode::Forbidden));
    // It waits: the node has not asked for it.
    assert!(code(files, &secret, Some(&job)).is_some());
    assert_eq!(code(files, &secret, Some("999")), Some(ErrorCode::NotFound));
    assert_eq!(code(files, &secret, Some("1x")), Some(ErrorCode::BadRequest));
    // The header gives no other route, and nothing to other callers.
    assert_eq!(code("/v1/jobs", &secret, Some(&job)), Some(ErrorCode::Forbidden));
    assert_eq!(code(files, &rack, Some(&job)), Some(ErrorCode::Forbidden));
    assert_eq!(code(files, &ann, Some("999")), None);
}

#[test]
fn without_tokens_the_caller_is_the_administrator() {
    let place = Place::new(TokensAsked::Never, UserLimits::default());
    let (node, secret) = place.join("n1", None);
    for (method, path) in routes() {
        let uri = path
            .replace("{job}", "999")
            .replace("{node}", &node.to_string())
            .replace("{token}", "x")
            .replace("{group}", "x");
        let of_nodes = is_of_nodes(&method, &path);
        let code = |token| place.code(&method, &uri, token, "{\"unknown\": 1}");
        // A node is known by its secret all the same.
        assert_eq!(is_refused(code(None)), of_nodes, "{method} {path}: {:?}", code(None));
        assert!(!of_nodes || !is_refused(code(Some(&secret))), "{method} {path}: {:?}", code(Some(&secret)));
    }
}

#[test]
fn own_token_of_server_is_the_administrators() {
    let place = Place::new(TokensAsked::OwnOrIssued, UserLimits::default());
    let file = place.state.path().join("own.token");
    let keep = |place: &Place| {
        place.runtime.block_on(place.port.keep_own_token(&file)).expect("a token");
        std::fs::read_to_string(&file).expect("a file").trim().to_string()
    };
    let own = keep(&place);
    assert_eq!(keep(&place), own, "a good one stays");
    assert!(!place.runtime.block_on(place.port.has_admin_token()).expect("tokens"), "it is nobody's");
    let user = place.token("ann", Role::User, None).token;
    for (method, path) in routes() {
        let uri = path
            .replace("{job}", "999")
            .replace("{node}", "999")
            .replace("{token}", "x")
            .replace("{group}", "x");
        let code = place.code(&method, &uri, Some(&own), "{\"unknown\": 1}");
        assert_eq!(is_refused(code), is_of_nodes(&method, &path), "{method} {path}: {code:?}");
        let code = place.code(&method, &uri, None, "{\"unknown\": 1}");
        assert_eq!(!is_refused(code), OPEN.contains(&path.as_str()), "{method} {path}: {code:?}");
    }
    assert_eq!(place.code("get", "/v1/tokens", Some(&user), ""), Some(ErrorCode::Forbidden));
    let (_, _, body) = place.ask("get", "/v1/jobs", None, "");
    let answer = String::from_utf8(body).expect("text");
    assert!(answer.contains("--token-file") && answer.contains("--no-tokens"), "{answer}");
    // Its name is nobody else's, and a file that is damaged or has a token of another server is replaced.
    let named = TokenRequest { user: "@server".to_string(), role: Role::Admin, seconds: None };
    assert!(place.runtime.block_on(place.port.issue(named)).is_err());
    for other in ["damaged", user.as_str(), &trust::Secret::random().expect("randomness").text()] {
        std::fs::write(&file, other).expect("our own file");
        assert_ne!(keep(&place), other);
    }
    // Another port on the same store, as of a standby, admits it; one that wants tokens of people does not.
    for (tokens, expected) in [(TokensAsked::OwnOrIssued, true), (TokensAsked::Issued, false)] {
        let port = place.runtime.block_on(async {
            let access = Access { tokens, ..Access::default() };
            place.open(access).await.expect("a port")
        });
        let request = Request::builder().uri("/v1/jobs").header("authorization", format!("Bearer {own}"));
        let request = request.body(Body::empty()).expect("a request");
        let answer = place.runtime.block_on(controlport::router(port).oneshot(request));
        assert_eq!(answer.expect("routes always answer").status().is_success(), expected, "{tokens:?}");
    }
}

/// Whether a port admits a node to its poll, by its secret.
fn is_known(place: &Place, routes: &Router, (node, secret): &(u32, String)) -> bool {
    let request = Request::builder().method("POST").uri(format!("/v1/nodes/{node}/poll"));
    let request = request.header("authorization", format!("Bearer {secret}"));
    let request = request.body(Body::from("{\"unknown\": 1}")).expect("a request");
    let answer = place.runtime.block_on(routes.clone().oneshot(request)).expect("routes always answer");
    !matches!(answer.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}

#[test]
fn revoking_a_token_ends_secrets_of_its_nodes() {
    let place = Place::new(TokensAsked::OwnOrIssued, UserLimits::default());
    let file = place.state.path().join("own.token");
    place.runtime.block_on(place.port.keep_own_token(&file)).expect("a token");
    let own = std::fs::read_to_string(&file).expect("a file").trim().to_string();
    let (rack, short) = (place.token("rack", Role::Node, None), place.token("short", Role::Node, Some(3600)));
    let (by_own, by_rack, by_short) = (
        place.join("n1", Some(&own)),
        place.join("n2", Some(&rack.token)),
        place.join("n3", Some(&short.token)),
    );
    let again = |tokens| {
        let access = Access { tokens, ..Access::default() };
        let port = place.runtime.block_on(async { place.open(access).await.expect("a port") });
        controlport::router(port)
    };
    // A port that opens later, as of a server that starts again and of a standby, knows them too.
    for routes in [place.routes.clone(), again(TokensAsked::OwnOrIssued)] {
        for node in [&by_own, &by_rack, &by_short] {
            assert!(is_known(&place, &routes, node), "{node:?}");
        }
        // Each speaks for itself.
        assert!(!is_known(&place, &routes, &(by_own.0, by_rack.1.clone())));
    }
    let people_only = again(TokensAsked::Issued);
    assert!(!is_known(&place, &people_only, &by_own) && is_known(&place, &people_only, &by_rack));
    let revoked = place.code("post", &format!("/v1/tokens/{}/revoke", rack.name), Some(&own), "");
    assert_eq!(revoked, None);
    for routes in [place.routes.clone(), again(TokensAsked::OwnOrIssued)] {
        assert!(!is_known(&place, &routes, &by_rack), "its token has been revoked");
        assert!(is_known(&place, &routes, &by_own) && is_known(&place, &routes, &by_short));
    }
}

#[test]
fn unknown_routes_say_so_to_anybody() {
    let place = Place::new(TokensAsked::Issued, UserLimits::default());
    let admin = place.token("root", Role::Admin, None).token;
    let paths = ["/", "/v1", "/v1/jobs/", "/v1/jobs/1/2/3", "/v1/../metrics", "/v1/tokens/../jobs"];
    for path in paths {
        assert_eq!(place.code("get", path, Some(&admin), ""), Some(ErrorCode::NotFound), "{path}");
        let stranger = place.code("get", path, None, "");
        assert_eq!(stranger, Some(ErrorCode::NotFound), "{path}");
    }
    for (method, path) in [("delete", "/v1/jobs"), ("put", "/healthz"), ("patch", "/v1/tokens")] {
        assert_eq!(place.code(method, path, Some(&admin), ""), Some(ErrorCode::NotFound), "{method} {path}");
    }
}

#[test]
fn a_user_cancels_only_their_own_jobs() {
    let place = Place::new(TokensAsked::Issued, UserLimits::default());
    let token = |user, role| place.token(user, role, None).token;
    let (ann, bob) = (token("ann", Role::User), token("bob", Role::User));
    let (root, eve) = (token("root", Role::Admin), token("eve", Role::ReadOnly));
    let job = place.submit(&ann, 2).expect("jobs").first;
    let list = place.ask("get", "/v1/jobs", Some(&eve), "").2;
    let list: api::history::JobList = serde_json::from_slice(&list).expect("a list");
    let users: Vec<_> = list.jobs.iter().map(|row| row.user.as_deref()).collect();
    assert_eq!(users, [Some("ann"), Some("ann")], "the name comes from the token");
    let cancel = |job: i64, token: &str| {
        place.code("post", &format!("/v1/jobs/{job}/cancel"), Some(token), "{\"reason\": \"test\"}")
    };
    assert_eq!(cancel(job.0, &bob), Some(ErrorCode::Forbidden));
    assert_eq!(cancel(job.0, &eve), Some(ErrorCode::Forbidden));
    // The same job, its number escaped: what the route would decode must not get past the question of whose it is.
    let escaped: String = job.0.to_string().bytes().map(|digit| format!("%{digit:x}")).collect();
    let path = format!("/v1/jobs/{escaped}/cancel");
    let answer = place.code("post", &path, Some(&bob), "{\"reason\": \"test\"}");
    assert_eq!(answer, Some(ErrorCode::NotFound));
    assert_eq!(cancel(job.0, &ann), None);
    assert_eq!(cancel(job.0 + 1, &root), None);
    assert_eq!(cancel(job.0 + 2, &bob), Some(ErrorCode::NotFound));
}

#[test]
fn users_check_only_their_own_kept_data() {
    let place = Place::new(TokensAsked::Issued, UserLimits::default());
    let token = |user, role| place.token(user, role, None).token;
    let (ann, bob, root) = (token("ann", Role::User), token("bob", Role::User), token("root", Role::Admin));
    let job = place.submit(&ann, 1).expect("a job").first;
    let fsck = |job: i64, token: &str| place.code("post", &format!("/v1/jobs/{job}/fsck"), Some(token), "{}");
    assert_eq!(fsck(job.0, &bob), Some(ErrorCode::Forbidden));
    // It keeps nothing.
    assert_eq!(fsck(job.0, &ann), Some(ErrorCode::Refused));
    assert_eq!(fsck(job.0, &root), Some(ErrorCode::Refused));
    let unknown = place.code("post", &format!("/v1/jobs/{job}/fsck"), Some(&ann), "{\"check\": \"x\"}");
    assert_eq!(unknown, Some(ErrorCode::NotFound));
}

#[test]
fn jobs_of_a_user_are_limited() {
    let limits = UserLimits { quota: quota(3), ..UserLimits::default() };
    let place = Place::new(TokensAsked::Issued, limits);
    let token = |user, role| place.token(user, role, None).token;
    let (ann, bob) = (token("ann", Role::User), token("bob", Role::User));
    assert_eq!(place.submit(&ann, 4), Err(ErrorCode::TooMany));
    let first = place.submit(&ann, 3).expect("jobs").first;
    assert_eq!(place.submit(&ann, 1), Err(ErrorCode::TooMany));
    place.submit(&bob, 3).expect("another user has jobs of their own");
    place.submit(&token("root", Role::Admin), 100).expect("an administrator has no limit");
    let path = format!("/v1/jobs/{first}/cancel");
    assert_eq!(place.code("post", &path, Some(&ann), "{\"reason\": \"test\"}"), None);
    place.runtime.block_on(place.server.wait_job(first)).expect("a job that ends");
    place.submit(&ann, 1).expect("room for one more");
}

#[test]
fn requests_and_bytes_of_a_user_are_limited() {
    let limits = UserLimits { requests_per_second: 1, body_bytes_max: 1000, ..UserLimits::default() };
    let place = Place::new(TokensAsked::Issued, limits);
    let ann = place.token("ann", Role::User, None).token;
    let large = place.code("post", "/v1/jobs", Some(&ann), &"x".repeat(1001));
    assert_eq!(large, Some(ErrorCode::TooLarge));
    let codes: Vec<_> = (0..20).map(|_| place.code("get", "/v1/jobs", Some(&ann), "")).collect();
    assert_eq!(codes[0], None);
    assert!(codes.contains(&Some(ErrorCode::TooMany)), "{codes:?}");
    let root = place.token("root", Role::Admin, None).token;
    assert!((0..20).all(|_| place.code("get", "/v1/jobs", Some(&root), "").is_none()));
}

#[test]
fn changes_and_refusals_are_audited() {
    let place = Place::new(TokensAsked::Issued, UserLimits::default());
    let ann = place.token("ann", Role::User, None).token;
    let job = place.submit(&ann, 1).expect("a job").first;
    for _ in 0..500 {
        assert_eq!(place.code("get", "/v1/tokens", Some(&ann), ""), Some(ErrorCode::Forbidden));
        assert_eq!(place.code("get", "/v1/jobs", None, ""), Some(ErrorCode::Unauthenticated));
    }
    assert_eq!(place.code("get", "/v1/jobs", Some(&ann), ""), None);
    assert_eq!(place.code("post", &format!("/v1/jobs/{job}/cancel"), Some(&ann), "{\"reason\": \"\"}"), None);
    let rows = place.audit();
    let rows: Vec<_> = rows
        .iter()
        .map(|row| (row.user.as_deref(), row.action.as_str(), row.target.as_str(), row.allowed))
        .collect();
    let cancelled = format!("/v1/jobs/{job}/cancel");
    let expected = [
        (Some("ann"), "POST /v1/jobs/batch", "/v1/jobs/batch", true),
        (Some("ann"), "GET /v1/tokens", "/v1/tokens", false),
        (None, "GET /v1/jobs", "/v1/jobs", false),
        (Some("ann"), "POST /v1/jobs/{job}/cancel", cancelled.as_str(), true),
    ];
    assert_eq!(rows, expected);
}

#[test]
fn tokens_are_told_once_and_kept_as_hashes() {
    let place = Place::new(TokensAsked::Issued, UserLimits::default());
    let root = place.token("root", Role::Admin, None);
    let create = |body: &str| place.ask("post", "/v1/tokens", Some(&root.token), body.to_string());
    let (status, _, body) = create("{\"user\": \"ann\", \"role\": \"user\", \"seconds\": 3600}");
    assert_eq!(status, StatusCode::OK);
    let ann: IssuedToken = serde_json::from_slice(&body).expect("a token");
    assert_eq!(place.code("get", "/v1/jobs", Some(&ann.token), ""), None);
    let wrong = [
        "{\"user\": \"ann\", \"role\": \"admin\"}",
        "{\"user\": \"\", \"role\": \"user\"}",
        "{\"user\": \"a b\", \"role\": \"user\"}",
        "{\"user\": \"../x\", \"role\": \"user\"}",
    ];
    for body in wrong {
        assert_eq!(create(body).1, Some(ErrorCode::Refused), "{body}");
    }
    assert_eq!(create("{\"user\": \"ann\", \"role\": \"king\"}").1, Some(ErrorCode::BadRequest));
    let list = place.ask("get", "/v1/tokens", Some(&root.token), "").2;
    let list: TokenList = serde_json::from_slice(&list).expect("a list");
    let names: Vec<_> = list.tokens.iter().map(|token| token.name.as_str()).collect();
    assert_eq!(names, [root.name.as_str(), ann.name.as_str()]);
    assert!(list.tokens[1].expires_ns > Some(list.tokens[1].created_ns));
    assert_eq!(
        place.code("post", "/v1/tokens/nothing/revoke", Some(&root.token), ""),
        Some(ErrorCode::NotFound)
    );
    let revoke = format!("/v1/tokens/{}/revoke", ann.name);
    assert_eq!(place.code("post", &revoke, Some(&root.token), ""), None);
    assert_eq!(place.code("get", "/v1/jobs", Some(&ann.token), ""), Some(ErrorCode::Unauthenticated));
    for token in [&root.token, &ann.token] {
        let digits = token.trim_start_matches("sailfish_");
        assert!(!holds(place.state.path(), digits.as_bytes()), "a secret lies in the state directory");
        let raw: Vec<u8> = (0..digits.len()).step_by(2).map(|at| byte(&digits[at..at + 2])).collect();
        assert!(!holds(place.state.path(), &raw), "the bytes of a secret lie in the state directory");
    }
}

fn byte(digits: &str) -> u8 {
    u8::from_str_radix(digits, 16).expect("two hex digits")
}

/// Whether any file of a directory holds these bytes.
fn holds(dir: &Path, bytes: &[u8]) -> bool {
    std::fs::read_dir(dir).expect("a directory").flatten().any(|entry| match entry.path() {
        path if path.is_dir() => holds(&path, bytes),
        path => {
            let content = std::fs::read(&path).unwrap_or_default();
            content.windows(bytes.len()).any(|window| window == bytes)
        }
    })
}

/// The way in which a route of a private server hides rows of others.
enum Hides {
    /// Users may not ask it.
    NotAsked,
    /// It shows and takes no rows of users.
    NoRows(&'static str),
    /// It leaves rows of others out: this question shows the owner a row.
    LeavesOut(&'static str),
    /// These questions about a row of another are answered as those about a row that is not there.
    AsMissing(&'static [&'static str]),
}

/// All routes. In paths and bodies stand `{job}`, `{put}`, `{directory}` and `{name}` of the row.
const PRIVATE: &[(&str, &str, Hides)] = &[
    ("get", "/healthz", Hides::NoRows("")),
    ("get", "/openapi.json", Hides::NoRows("")),
    ("get", "/metrics", Hides::NoRows("")),
    ("get", "/v1/jobs", Hides::LeavesOut("")),
    ("post", "/v1/jobs", Hides::AsMissing(&["{of-files}", "{again}"])),
    ("post", "/v1/jobs/batch", Hides::NoRows(r#"{"name": "x", "tasks": []}"#)),
    ("post", "/v1/flows", Hides::AsMissing(&["{flow}"])),
    ("get", "/v1/jobs/{job}", Hides::AsMissing(&[""])),
    ("get", "/v1/jobs/{job}/logs", Hides::AsMissing(&[""])),
    ("get", "/v1/jobs/{job}/wait", Hides::AsMissing(&[""])),
    ("get", "/v1/jobs/{job}/progress", Hides::AsMissing(&[""])),
    ("get", "/v1/jobs/{job}/report", Hides::AsMissing(&[""])),
    ("get", "/v1/jobs/{job}/placements", Hides::AsMissing(&[""])),
    ("post", "/v1/jobs/{job}/cancel", Hides::AsMissing(&[r#"{"reason": "test"}"#])),
    ("post", "/v1/jobs/{job}/fsck", Hides::AsMissing(&["{}"])),
    ("post", "/v1/jobs/{job}/brief", Hides::NotAsked),
    ("post", "/v1/jobs/{job}/places", Hides::NotAsked),
    ("post", "/v1/jobs/{job}/stored-files", Hides::NotAsked),
    ("post", "/v1/jobs/{job}/stored-output/places", Hides::NotAsked),
    ("post", "/v1/jobs/{job}/stored-output/commit", Hides::NotAsked),
    ("post", "/v1/jobs/{job}/boundaries", Hides::NotAsked),
    ("post", "/v1/gc", Hides::AsMissing(&[r#"{"selection": {"jobs": [{job}]}}"#, r#"{"selection": "all"}"#])),
    ("post", "/v1/files/missing", Hides::NoRows(r#"{"sha256": []}"#)),
    ("put", "/v1/files/{sha256}", Hides::NoRows("")),
    ("get", "/v1/files/{sha256}", Hides::NotAsked),
    ("post", "/v1/intermediate-files", Hides::AsMissing(&[r#"{"name": "x", "job": {job}}"#])),
    ("get", "/v1/intermediate-files", Hides::LeavesOut("")),
    (
        "post",
        "/v1/intermediate-files/open",
        Hides::AsMissing(&[r#"{"name": "{name}"}"#, r#"{"name": "{name}", "user": "zelda"}"#]),
    ),
    (
        "post",
        "/v1/intermediate-files/remove",
        Hides::AsMissing(&[r#"{"name": "{name}"}"#, r#"{"name": "{name}", "user": "zelda"}"#]),
    ),
    (
        "post",
        "/v1/intermediate-files/change",
        Hides::AsMissing(&[
            r#"{"name": "{name}", "change": {"set_owner": {"user": "bob"}}}"#,
            r#"{"name": "{name}", "user": "zelda", "change": {"set_owner": {"user": "bob"}}}"#,
            r#"{"name": "{name}", "user": "zelda", "change": {"set_groups": {"read": {"group": "x"}, "write": "kept"}}}"#,
        ]),
    ),
    ("post", "/v1/nodes/{node}/intermediate-files", Hides::NotAsked),
    (
        "post",
        "/v1/stored-files/find",
        Hides::AsMissing(&[
            r#"{"path": "{name}"}"#,
            r#"{"path": "{name}/in", "reads": true}"#,
            r#"{"path": "{name}/in", "version": 1}"#,
        ]),
    ),
    ("post", "/v1/stored-files/list", Hides::LeavesOut(r#"{"directory": 1, "limit": 9, "parts": true}"#)),
    ("post", "/v1/stored-files/lease", Hides::NoRows(r#"{"lease": 1, "version": 1, "ends": true}"#)),
    (
        "post",
        "/v1/stored-files/change",
        Hides::AsMissing(&[
            r#"{"change": {"remove": {"path": "{name}", "recursive": false}}}"#,
            r#"{"change": {"rename": {"from": "{name}", "to": "x"}}}"#,
            r#"{"change": {"copy": {"from": "{name}/in", "to": "x"}}}"#,
            r#"{"change": {"set_groups": {"path": "{name}", "read": "kept", "write": "inherited", "recursive": true}}}"#,
            r#"{"change": {"set_owner": {"path": "{name}", "user": "bob", "recursive": true}}}"#,
        ]),
    ),
    ("post", "/v1/stored-files/commits", Hides::LeavesOut(r#"{"path": "/", "limit": 9}"#)),
    // Below a name that is taken.
    (
        "post",
        "/v1/stored-files/puts",
        Hides::AsMissing(&[r#"{"path": "secret/{name}/x", "is_directory": false, "keep_versions": 1}"#]),
    ),
    ("post", "/v1/stored-files/puts/known", Hides::AsMissing(&[r#"{"of": {put}}"#])),
    ("post", "/v1/stored-files/puts/numbers", Hides::AsMissing(&[r#"{"of": {put}, "count": 1}"#])),
    ("post", "/v1/stored-files/puts/places", Hides::AsMissing(&[r#"{"of": {put}, "bytes": 1}"#])),
    ("post", "/v1/stored-files/puts/files", Hides::AsMissing(&[r#"{"of": {put}, "files": []}"#])),
    ("post", "/v1/stored-files/puts/commit", Hides::AsMissing(&[r#"{"of": {put}}"#])),
    ("post", "/v1/stored-files/puts/abandon", Hides::AsMissing(&["{put}"])),
    ("post", "/v1/nodes/{node}/stored-files", Hides::NotAsked),
    ("post", "/v1/nodes/{node}/stored-files/parts", Hides::NotAsked),
    ("get", "/v1/nodes", Hides::NoRows("")),
    ("post", "/v1/nodes", Hides::NotAsked),
    ("post", "/v1/nodes/admission", Hides::NotAsked),
    ("post", "/v1/nodes/{node}/poll", Hides::NotAsked),
    ("post", "/v1/nodes/{node}/kept", Hides::NotAsked),
    ("post", "/v1/nodes/{node}/checked", Hides::NotAsked),
    ("post", "/v1/nodes/{node}/struck", Hides::NotAsked),
    ("post", "/v1/nodes/{node}/seen", Hides::NotAsked),
    ("post", "/v1/nodes/{node}/leave", Hides::NotAsked),
    ("post", "/v1/nodes/{node}/data-tokens", Hides::NotAsked),
    ("post", "/v1/nodes/{node}/drain", Hides::NotAsked),
    ("post", "/v1/nodes/{node}/drill", Hides::NotAsked),
    // All users may list directories of `node --sees`.
    ("post", "/v1/seen", Hides::NoRows(r#"{"path": "/somewhere"}"#)),
    // The console shows all tables.
    ("post", "/v1/state", Hides::NotAsked),
    ("get", "/v1/tokens", Hides::NotAsked),
    ("post", "/v1/tokens", Hides::NotAsked),
    ("post", "/v1/tokens/{token}/revoke", Hides::NotAsked),
    ("get", "/v1/groups", Hides::LeavesOut("")),
    ("post", "/v1/groups", Hides::NotAsked),
    ("post", "/v1/groups/{group}/delete", Hides::NotAsked),
    ("post", "/v1/groups/{group}/members", Hides::NotAsked),
    ("post", "/v1/groups/{group}/members/remove", Hides::NotAsked),
];

/// A row, and the same where there is none.
struct Row {
    job: String,
    put: String,
    name: &'static str,
}

impl Row {
    /// Returns a path or a body about the row.
    fn fill(&self, text: &str) -> String {
        let spec = |kind: JobKind, inputs: Vec<InputFile>| JobSpec { kind, inputs, ..JobSpec::named("x") };
        let job = JobId(self.job.parse().expect("a number"));
        let again = spec(MapReduce::ReduceAgain { source: job }.into(), Vec::new());
        let input = InputFile {
            path: format!("files:{}/in@1", self.name).into(),
            size_bytes: 0,
            mtime_ns: 0,
            compression: None,
            named: 0,
            object: None,
            stage_file: None,
            stored: Some(StoredContent::default()),
            seen: None,
        };
        let submission = |spec: &JobSpec| json!({ "spec": spec, "splits": [] });
        match text {
            "{of-files}" => submission(&spec(JobKind::default(), vec![input])).to_string(),
            "{again}" => submission(&again).to_string(),
            "{flow}" => json!({ "stages": [submission(&again)] }).to_string(),
            text => text.replace("{job}", &self.job).replace("{put}", &self.put).replace("{name}", self.name),
        }
    }

    /// Returns an answer about the row without names and numbers, which the question may have had.
    fn without(&self, (status, _, body): (StatusCode, Option<ErrorCode>, Vec<u8>)) -> String {
        let text = String::from_utf8(body).expect("text").replace(self.name, "").replace("secret", "");
        format!("{status} {}", text.replace(|c: char| c.is_ascii_digit(), ""))
    }
}

/// Makes a node that takes files, and rows of a user, all with the name `secret`.
fn rows_of_owner(place: &Place, owner: &str, root: &str) -> Row {
    let done = |method: &str, path: &str, token: &str, body: Value| {
        let (status, _, body) = place.ask(method, path, Some(token), body.to_string());
        assert_eq!(status, StatusCode::OK, "{path}: {}", String::from_utf8_lossy(&body));
        serde_json::from_slice::<Value>(&body).expect("JSON")
    };
    let rack = place.token("rack", Role::Node, None).token;
    let welcome = place.welcome("n1", Some(&rack));
    let (node, secret) = (welcome.node.0, welcome.secret.0);
    let disk = json!({
        "uuid": "a disk", "secret": "x", "is_empty": true, "total_bytes": 1 << 30, "free_bytes": 1 << 30,
        "room_bytes": 1 << 30, "takes_files": true,
    });
    let news = json!({ "incarnation": "1", "data_url": "", "disks": [disk] });
    done("post", &format!("/v1/nodes/{node}/stored-files"), &secret, news);
    let tasks = vec![RunTask { words: vec!["true".into()], ..RunTask::default() }];
    let batch = JobBatch { name: "secret".into(), tasks, user: String::new(), priority: 0 };
    let batch = serde_json::to_value(batch).expect("JSON");
    let job = done("post", "/v1/jobs/batch", owner, batch)["first"].to_string();
    let make = json!({ "change": { "make_directory": { "path": "secret/in", "parents": true } } });
    done("post", "/v1/stored-files/change", owner, make);
    let begin = json!({ "path": "secret/put", "is_directory": false, "keep_versions": 1 });
    let put = done("post", "/v1/stored-files/puts", owner, begin)["of"].to_string();
    done("post", "/v1/groups", root, json!({ "name": "secret" }));
    done("post", "/v1/groups/secret/members", root, json!({ "user": "zelda" }));
    // The node tells of its disk, and gets the job.
    let disk = json!({ "path": "/disk", "total_bytes": 1 << 30, "free_bytes": 1 << 30, "state": "usable" });
    let poll = json!({
        "incarnation": welcome.incarnation, "received": 0, "free_slots": [0], "finished": [], "report": { "disks": [disk] },
    });
    done("post", &format!("/v1/nodes/{node}/poll"), &secret, poll);
    done("post", "/v1/intermediate-files", owner, json!({ "name": "secret" }));
    Row { job, put, name: "secret" }
}

#[test]
fn private_servers_show_nothing_of_others() {
    let place = Place::with(Access { private: true, ..Access::default() });
    let token = |user, role| place.token(user, role, None).token;
    let (owner, root) = (token("zelda", Role::User), token("root", Role::Admin));
    let others = [token("bob", Role::User), token("eve", Role::ReadOnly)];
    let row = rows_of_owner(&place, &owner, &root);
    let missing = Row { job: "999".into(), put: r#"{"put":999,"session":1}"#.into(), name: "nothing" };
    for (method, path) in routes() {
        let decided = PRIVATE.iter().find(|row| (row.0, row.1) == (method.as_str(), path.as_str()));
        let (_, _, hides) = decided.unwrap_or_else(|| panic!("say how {method} {path} hides rows of others"));
        let uri = |row: &Row| {
            let uri = row.fill(&path).replace("{node}", "1").replace("{sha256}", &"0".repeat(64));
            uri.replace("{token}", "x").replace("{group}", "secret")
        };
        let ask =
            |row: &Row, token: &str, body: &str| place.ask(&method, &uri(row), Some(token), row.fill(body));
        for other in &others {
            match hides {
                Hides::NotAsked => {
                    // About a job, the answer is that there is none.
                    let (_, code, _) = ask(&row, other, r#"{"statement": "select 1", "rows_max": 1}"#);
                    let is_refused = matches!(code, Some(ErrorCode::Forbidden | ErrorCode::NotFound));
                    assert!(is_refused, "{method} {path}: {code:?}");
                }
                Hides::NoRows(body) => {
                    let text = String::from_utf8(ask(&row, other, body).2).expect("text");
                    let is_open =
                        path == "/openapi.json" || !(text.contains("secret") || text.contains("zelda"));
                    assert!(is_open, "{method} {path}: {text}");
                }
                Hides::LeavesOut(body) => {
                    let shown = |token: &str| String::from_utf8(ask(&row, token, body).2).expect("text");
                    assert!(shown(&owner).contains("secret"), "{method} {path}: {}", shown(&owner));
                    assert!(shown(&root).contains("secret"), "{method} {path}: {}", shown(&root));
                    let text = shown(other);
                    assert!(!text.contains("secret") && !text.contains("zelda"), "{method} {path}: {text}");
                }
                Hides::AsMissing(bodies) => {
                    for body in *bodies {
                        let told = row.without(ask(&row, other, body));
                        let of_none = missing.without(ask(&missing, other, body));
                        assert_eq!(told, of_none, "{method} {path} {body}");
                        assert!(!told.contains("bad_request"), "{method} {path} {body}: {told}");
                    }
                }
            }
        }
    }
    assert_eq!(PRIVATE.len(), routes().len(), "the table has rows of routes that are no more");
    check_sights(&place, &row, &owner, &others[0], &root);
}

/// Each request by everybody: the owner of an intermediate file, a member of a group, and another user.
#[test]
fn groups_open_intermediate_files() {
    let place = Place::new(TokensAsked::Issued, UserLimits::default());
    let token = |user, role| place.token(user, role, None).token;
    let (owner, root) = (token("zelda", Role::User), token("root", Role::Admin));
    let (member, stranger) = (token("bob", Role::User), token("cid", Role::User));
    rows_of_owner(&place, &owner, &root);
    let body = json!({ "user": "bob" }).to_string();
    assert_eq!(place.code("post", "/v1/groups/secret/members", Some(&root), &body), None);
    let route = |verb: &str| format!("/v1/intermediate-files{verb}");
    let ask = |verb: &str, token: &str, more: Value| {
        let mut body = json!({ "name": "secret", "user": "zelda" });
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        place.code("post", &route(verb), Some(token), &body.to_string())
    };
    let groups = |token: &str, read: Value, write: Value| {
        ask("/change", token, json!({ "change": { "set_groups": { "read": read, "write": write } } }))
    };
    let team = || json!({ "group": "secret" });
    let is_listed = |token: &str| {
        let (_, _, listed) = place.ask("get", &route(""), Some(token), "");
        String::from_utf8(listed).expect("text").contains("zelda")
    };
    // Whether each may see, replace and open the file; for the member it is as the owner says.
    let check = |reads: bool, writes: bool| {
        let refusal = |may: bool| (!may).then_some(ErrorCode::Forbidden);
        for (token, reads, writes) in
            [(&member, reads, writes), (&stranger, false, false), (&root, true, true)]
        {
            assert_eq!(is_listed(token), reads);
            assert_eq!(ask("/open", token, json!({})), refusal(reads));
            assert_eq!(ask("", token, json!({ "replace": true })), refusal(writes));
        }
        assert_eq!(ask("/open", &owner, json!({})), None);
    };
    check(false, false);
    for other in [&member, &stranger] {
        assert_eq!(groups(other, team(), json!("kept")), Some(ErrorCode::Forbidden));
    }
    assert_eq!(
        groups(&owner, json!({ "group": "none of that name" }), json!("kept")),
        Some(ErrorCode::Refused)
    );
    assert_eq!(groups(&owner, team(), json!("kept")), None);
    check(true, false);
    assert_eq!(groups(&member, json!("inherited"), team()), Some(ErrorCode::Forbidden));
    assert_eq!(groups(&owner, json!("inherited"), team()), None);
    // A file that replaces another one keeps its groups.
    check(true, true);
    assert_eq!(ask("", &member, json!({ "name": "another", "replace": true })), Some(ErrorCode::Forbidden));
    assert_eq!(ask("", &member, json!({})), Some(ErrorCode::Refused), "it exists");
    let give = |token: &str, user: &str| {
        ask("/change", token, json!({ "change": { "set_owner": { "user": user } } }))
    };
    for other in [&owner, &member] {
        assert_eq!(give(other, "bob"), Some(ErrorCode::Forbidden));
    }
    assert_eq!(give(&root, "a b"), Some(ErrorCode::Refused));
    let left = json!({ "user": "bob" }).to_string();
    assert_eq!(place.code("post", "/v1/groups/secret/members/remove", Some(&root), &left), None);
    check(false, false);
    assert_eq!(ask("/remove", &member, json!({})), Some(ErrorCode::Forbidden));
    assert_eq!(give(&root, "bob"), None);
    assert_eq!(ask("/remove", &member, json!({ "user": "bob" })), None);
    assert_eq!(ask("/open", &owner, json!({})), Some(ErrorCode::NotFound));
}

/// Checks that nothing was changed by those who asked, that its owner finds everything, and members of a group more than
/// before.
fn check_sights(place: &Place, row: &Row, owner: &str, other: &str, root: &str) {
    let bodies = [
        ("get", "/v1/jobs/{job}", ""),
        ("post", "/v1/stored-files/find", r#"{"path": "{name}/in"}"#),
        ("post", "/v1/stored-files/puts/known", r#"{"of": {put}}"#),
    ];
    for (method, path, body) in bodies {
        assert_eq!(place.code(method, &row.fill(path), Some(owner), &row.fill(body)), None, "{path}");
    }
    let code = |path: &str| {
        place.code("post", "/v1/stored-files/find", Some(other), &json!({ "path": path }).to_string())
    };
    assert_eq!(code("secret/in"), Some(ErrorCode::NotFound));
    // A group shows a directory with everything below it, also to a user who does not see those above.
    let body = json!({ "user": "bob" }).to_string();
    assert_eq!(place.code("post", "/v1/groups/secret/members", Some(root), &body), None);
    let set =
        json!({ "path": "secret/in", "read": { "group": "secret" }, "write": "kept", "recursive": false });
    let body = json!({ "change": { "set_groups": set } }).to_string();
    assert_eq!(place.code("post", "/v1/stored-files/change", Some(owner), &body), None);
    assert_eq!((code("secret"), code("secret/in")), (Some(ErrorCode::NotFound), None));
}
