//! A server whose port is called by function.

use api::ContentHash;
use api::control::{
    ErrorAnswer, ErrorCode, JOB_HEADER, JobBatch, NodeInfo, NodeWelcome, PROTOCOL_VERSION, SubmittedBatch,
};
use api::people::{IssuedToken, Role, TokenRequest};
use api::task::{AttemptUsage, CACHING_RULES, FileContent, FinishedRun, RecordedRun, RunTask};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use controlport::{Access, Port, TokensAsked, UserLimits};
use ids::JobId;
use metastore::{AuditRow, Change, Metastore, UsageSums};
use server::{Server, ServerOptions, UserQuota};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tower::ServiceExt;

/// A server whose port is called by function.
pub struct Place {
    pub routes: Router,
    pub port: Port,
    pub server: Arc<Server>,
    pub runtime: Runtime,
    pub state: TempDir,
}

impl Place {
    pub fn new(tokens: TokensAsked, limits: UserLimits) -> Place {
        Self::with(Access { tokens, limits, ..Access::default() })
    }

    pub fn with(access: Access) -> Place {
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
    pub async fn open(&self, access: Access) -> Result<Port, metastore::StoreError> {
        let [store, files] =
            [Metastore::open(self.state.path()).await?, Metastore::open(self.state.path()).await?];
        Port::open(Arc::clone(&self.server), store, files, access).await
    }

    pub fn token(&self, user: &str, role: Role, seconds: Option<u64>) -> IssuedToken {
        let request = TokenRequest { user: user.to_string(), role, seconds };
        self.runtime.block_on(self.port.issue(request)).expect("a token")
    }

    /// A node that has joined, with the secret that it got.
    pub fn join(&self, name: &str, token: Option<&str>) -> (u32, String) {
        let welcome = self.welcome(name, token);
        (welcome.node.0, welcome.secret.0)
    }

    pub fn welcome(&self, name: &str, token: Option<&str>) -> NodeWelcome {
        let info = NodeInfo {
            protocol: PROTOCOL_VERSION,
            version: "0".to_string(),
            name: name.to_string(),
            rack: "r".to_string(),
            slots: 1,
            memory_bytes: 1 << 30,
            architecture: "x86_64".to_string(),
            resources: Default::default(),
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
    pub fn ask(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        body: impl Into<Body>,
    ) -> (StatusCode, Option<ErrorCode>, Vec<u8>) {
        self.ask_for(method, path, token, None, body)
    }

    /// The same, for a program of the job that the text names.
    pub fn ask_for(
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

    pub fn code(&self, method: &str, path: &str, token: Option<&str>, body: &str) -> Option<ErrorCode> {
        self.ask(method, path, token, body.to_string()).1
    }

    pub fn submit(&self, token: &str, jobs: usize) -> Result<SubmittedBatch, ErrorCode> {
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

    /// Stores a finished run of a step of a user, which wrote this file.
    pub fn remember_run(&self, user: &str, step: &str, path: &str) {
        let output = FileContent {
            path: path.into(),
            real_path: None,
            sha256: None,
            bytes: 0,
            stamp: None,
            made_by: None,
            stored: None,
            compression: None,
        };
        let (none, outputs) = (ContentHash([0; 32]), vec![output]);
        let run = FinishedRun { outputs, ..FinishedRun::default() };
        let (rules, step, words, env, identity) = (CACHING_RULES, step.to_string(), none, none, none);
        let run = Arc::new(RecordedRun { rules, step, words, env, identity, waits: None, run });
        let (user, path) = (user.to_string(), path.into());
        let change = Change::RunFinished { user, path, job: Some(JobId(1)), run, now_ns: 1 };
        self.runtime.block_on(async {
            let store = Metastore::open(self.state.path()).await.expect("a store");
            store.apply(&[change]).await.expect("it is stored");
        });
    }

    /// Accounts for an attempt of a user's job.
    pub fn account(&self, user: &str, job: JobId) {
        let sums = Box::new(UsageSums::attempt(AttemptUsage::default(), 0, 1));
        // The server removes accounts of long ago.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a date");
        let change = Change::Used { job, user: user.to_string(), sums, now_ns: now.as_nanos() as u64 };
        self.runtime.block_on(async {
            let store = Metastore::open(self.state.path()).await.expect("a store");
            store.apply(&[change]).await.expect("it is stored");
        });
    }

    /// The audit, once all that was sent before is in it.
    pub fn audit(&self) -> Vec<AuditRow> {
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
pub fn quota(jobs_max: u32) -> UserQuota {
    UserQuota { jobs_max, ..UserLimits::default().quota }
}

pub fn unused_token() -> server::NewToken {
    let hash = trust::Secret::random().expect("randomness").hash();
    let name = hash.map(|byte| format!("{byte:02x}")).concat();
    server::NewToken { name, user: "nobody".into(), role: Role::ReadOnly, hash, expires_ns: None }
}
