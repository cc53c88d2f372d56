//! A server of the S3 protocol on this machine, whose objects are files of a temporary directory.

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, HttpError, HttpResponse};
use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

const ACCESS_KEY: &str = "the-access-key";
/// Looked for where it must not be.
const SECRET_KEY: &str = "the-very-secret-key";
/// A test may block one of them.
const THREADS: usize = 4;

/// Treatment of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Pass,
    /// 503, as from a server with too much to do.
    Busy,
    /// The same as [`Self::Pass`], so much later.
    Late(Duration),
}

/// Sees each request: its method, and its path with the query.
type Watch = Box<dyn FnMut(&str, &str) -> Verdict + Send>;

/// Serves while it lives.
pub struct ObjectServer {
    root: TempDir,
    url: String,
    watch: Arc<Mutex<Option<Watch>>>,
    _runtime: Runtime,
}

impl ObjectServer {
    /// Starts a server with a bucket.
    pub fn start(bucket: &str) -> ObjectServer {
        let root =
            tempfile::Builder::new().prefix("sailfish-objects-").tempdir().expect("a temporary directory");
        fs::create_dir(root.path().join(bucket)).expect("our own directory takes another");
        let files = s3s_fs::FileSystem::new(root.path()).expect("a directory can be served");
        let mut builder = S3ServiceBuilder::new(files);
        builder.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));
        let service = builder.build();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build();
        let runtime = runtime.expect("threads can be started");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port is free");
        let address = listener.local_addr().expect("a listener has an address");
        let watch: Arc<Mutex<Option<Watch>>> = Arc::default();
        runtime.spawn(serve(listener, service, Arc::clone(&watch)));
        ObjectServer { root, url: format!("http://{address}"), watch, _runtime: runtime }
    }

    /// Returns the environment variables that let a process use the server.
    pub fn environment(&self) -> Vec<(String, String)> {
        let pairs = [
            ("AWS_ENDPOINT_URL", self.url.as_str()),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY),
            ("AWS_SECRET_ACCESS_KEY", SECRET_KEY),
        ];
        pairs.map(|(name, value)| (name.to_string(), value.to_string())).to_vec()
    }

    /// Returns the address at which the server listens, without the scheme.
    pub fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    /// Returns the secret key among these variables.
    pub fn secret(&self) -> &'static str {
        SECRET_KEY
    }

    /// Sees every request from now on.
    pub fn watch(&self, watch: impl FnMut(&str, &str) -> Verdict + Send + 'static) {
        *self.watch.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(watch));
    }

    /// Returns the path of an object, `BUCKET/KEY`. A file written there is an object, and can be read there too.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// Makes an object, and its bucket where it is missing.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a file lies in a directory")).expect("directories are made");
        fs::write(path, bytes).expect("our own directory takes a file");
    }

    /// The objects below a prefix, `BUCKET/KEY`, sorted.
    pub fn objects(&self, prefix: &str) -> Vec<String> {
        let mut found = Vec::new();
        collect(&self.path(prefix), &mut found);
        let relative = |path: &PathBuf| {
            let path = path.strip_prefix(self.root.path()).expect("it lies below the root");
            path.to_str().expect("keys are text").to_string()
        };
        let mut names: Vec<String> = found.iter().map(relative).collect();
        names.sort();
        names
    }

    /// Uploads that are neither completed nor taken back.
    pub fn open_uploads(&self) -> usize {
        let entries = fs::read_dir(self.root.path()).expect("our own directory can be listed");
        let names = entries.map(|entry| entry.expect("and read").file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with(".upload-")).count()
    }
}

fn collect(dir: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries {
        let path = entry.expect("our own directory can be listed").path();
        match path.is_dir() {
            true => collect(&path, found),
            false => found.push(path),
        }
    }
}

async fn serve(listener: TcpListener, service: S3Service, watch: Arc<Mutex<Option<Watch>>>) {
    while let Ok((socket, _)) = listener.accept().await {
        let (service, watch) = (service.clone(), Arc::clone(&watch));
        let answer = move |request: Request<hyper::body::Incoming>| {
            let (service, watch) = (service.clone(), Arc::clone(&watch));
            async move { Ok::<_, Infallible>(answer(&service, &watch, request).await) }
        };
        let serving = http1::Builder::new().serve_connection(TokioIo::new(socket), service_fn(answer));
        tokio::spawn(async move {
            // A client that was killed is what some tests are about.
            let _ = serving.await;
        });
    }
}

async fn answer(
    service: &S3Service,
    watch: &Mutex<Option<Watch>>,
    request: Request<hyper::body::Incoming>,
) -> HttpResponse {
    let verdict = {
        let mut watch = watch.lock().unwrap_or_else(PoisonError::into_inner);
        let path = request.uri().path_and_query().map_or("", |path| path.as_str());
        watch.as_mut().map_or(Verdict::Pass, |watch| watch(request.method().as_str(), path))
    };
    let status = |code: u16| {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = hyper::StatusCode::from_u16(code).expect("a code of three digits");
        response
    };
    match verdict {
        Verdict::Busy => status(503),
        Verdict::Pass | Verdict::Late(_) => {
            if let Verdict::Late(by) = verdict {
                tokio::time::sleep(by).await;
            }
            let answered: Result<HttpResponse, HttpError> = service.call(request.map(Body::from)).await;
            answered.unwrap_or_else(|_| status(500))
        }
    }
}
