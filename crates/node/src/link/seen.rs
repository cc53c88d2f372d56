//! Listings of files that this node sees and not every other, by orders of the server.

use crate::link::node_link::NodeLink;
use api::seen::{SEEN_PAGE_BYTES, SEEN_PAGE_FILES_MAX, SeenEnd, SeenFile, SeenNews};
use mapper::input::{InputError, list_seen};
use roots::JobPaths;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of listings that run or wait for their turn.
const LISTINGS_MAX: usize = 16;

/// The directories that this node sees; one listing runs at a time.
#[derive(Clone, Default)]
pub(crate) struct SeenDirectories {
    pub paths: Option<JobPaths>,
    turn: Arc<Mutex<()>>,
    waiting: Arc<AtomicUsize>,
}

impl SeenDirectories {
    /// Lets a node list files below its directories.
    pub fn of(paths: Option<JobPaths>) -> Self {
        Self { paths, ..Self::default() }
    }

    /// Begins a listing in a thread of its own, because a mount may stand still.
    pub fn list(&self, link: &Arc<NodeLink>, listing: String, path: String) {
        let mut pages =
            Pages { link: Arc::clone(link), news: SeenNews { listing, ..SeenNews::default() }, bytes: 0 };
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= LISTINGS_MAX {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return pages.fail(&format!("{LISTINGS_MAX} listings are under way on it: retry later"));
        }
        let here = self.clone();
        let work = move || {
            let turn = here.turn.lock().unwrap_or_else(PoisonError::into_inner);
            pages.send_all(here.paths.as_ref(), Path::new(&path));
            drop(turn);
            here.waiting.fetch_sub(1, Ordering::Relaxed);
        };
        if let Err(error) = std::thread::Builder::new().name("seen".to_string()).spawn(work) {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            tracing::warn!(%error, "cannot start a thread that lists a directory");
        }
    }
}

/// The pages of one listing.
struct Pages {
    link: Arc<NodeLink>,
    news: SeenNews,
    /// Bytes of the paths in the page.
    bytes: usize,
}

impl Pages {
    fn send_all(&mut self, paths: Option<&JobPaths>, path: &Path) {
        let Some(paths) = paths else { return self.fail("it was started without --sees") };
        // The listing may have waited longer for its turn than its caller.
        if !self.send() {
            return;
        }
        let mut goes_on = true;
        let listed = list_seen(paths, path, &mut |input| {
            self.bytes += input.path.as_os_str().len();
            self.news.files.push(SeenFile::from(input));
            if self.news.files.len() == SEEN_PAGE_FILES_MAX || self.bytes >= SEEN_PAGE_BYTES {
                goes_on = self.send();
            }
            goes_on
        });
        match listed {
            _ if !goes_on => {}
            Ok(()) => self.end(SeenEnd::Complete),
            Err(InputError::Missing { path: missing }) if missing == path => self.end(SeenEnd::Missing),
            Err(error) => self.fail(&error.to_string()),
        }
    }

    fn fail(&mut self, why: &str) {
        self.end(SeenEnd::Failed { why: why.to_string() });
    }

    fn end(&mut self, end: SeenEnd) {
        self.news.end = Some(end);
        self.send();
    }

    /// Sends the page, and begins the next one. Returns whether the server wants more.
    fn send(&mut self) -> bool {
        let told = self.link.tell_seen(&mut self.news);
        self.news.files.clear();
        self.news.page += 1;
        self.bytes = 0;
        told.inspect_err(|error| tracing::info!(%error, "cannot send a listing to the server"))
            .unwrap_or(false)
    }
}
