//! Listings of files that only some nodes see: ordered for a client, from every node that sees the path. Nothing of a
//! listing is stored: when a server ends, its listings are lost, and the caller must ask again.

use crate::interface::{ControlError, Moment, Outbox, Reply};
use crate::membership::Fleet;
use api::control::NodeOrder;
use api::seen::{
    ListedFile, SEEN_FILES_MAX, SEEN_LISTING_BYTES_MAX, SEEN_PAGE_BYTES, SEEN_PAGE_FILES_MAX, SeenAnswer,
    SeenEnd, SeenFile, SeenNews, SeenNewsAnswer, SeenPage, SeenQuestion, is_seen, is_seen_path,
};
use ids::NodeId;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum number of listings at once.
const LISTINGS_MAX: usize = 8;
/// Longest wait of one question of a client; it asks again.
const ANSWER_AFTER: Duration = Duration::from_secs(4);
/// Longest time from the order to the last page of a node.
const LISTED_WITHIN: Duration = Duration::from_secs(120);
/// Time without a question after which a listing ends.
const UNASKED_MAX: Duration = Duration::from_secs(30);
/// Longest text of a node that is passed on, in bytes.
const TEXT_BYTES_MAX: usize = 4096;

/// Listings by name.
#[derive(Default)]
pub(crate) struct SeenListings(BTreeMap<String, Listing>);

struct Listing {
    path: PathBuf,
    began: Moment,
    asked: Moment,
    reply: Option<Reply<SeenAnswer>>,
    /// Nodes that have not ended their listings, with the numbers of their next pages.
    open: BTreeMap<NodeId, u32>,
    names: BTreeMap<NodeId, String>,
    files: BTreeMap<PathBuf, (SeenFile, Vec<NodeId>)>,
    bytes: usize,
    /// Number of nodes where the path does not exist.
    missing: usize,
    problem: Option<String>,
}

impl Listing {
    /// Takes a file of a node. Files of several nodes are the same file, or the listing fails.
    fn add(&mut self, node: NodeId, file: SeenFile) {
        if !is_seen_path(&file.path) || !file.path.starts_with(&self.path) {
            let name = &self.names[&node];
            self.problem = Some(format!("{name} listed {:?}, which is not below it", file.path));
            return;
        }
        if let Some((known, nodes)) = self.files.get_mut(&file.path) {
            if *known != file {
                let (one, other) = (&self.names[&nodes[0]], &self.names[&node]);
                let path = file.path.display();
                self.problem =
                    Some(format!("{path} is not the same file on {one} and on {other}: size or time differ"));
            } else if !nodes.contains(&node) {
                nodes.push(node);
            }
            return;
        }
        self.bytes += file.path.as_os_str().len();
        self.files.insert(file.path.clone(), (file, vec![node]));
        if self.files.len() > SEEN_FILES_MAX || self.bytes > SEEN_LISTING_BYTES_MAX {
            self.problem = Some(format!(
                "it has more than {SEEN_FILES_MAX} files, or more than {SEEN_LISTING_BYTES_MAX} bytes of names: name \
                 directories below it one by one"
            ));
        }
    }

    /// Returns a page of the whole listing.
    fn page(&self, number: u32) -> SeenPage {
        let mut page = SeenPage { is_last: true, ..SeenPage::default() };
        let (mut current, mut bytes, mut count) = (0, 0, 0);
        let mut groups: BTreeMap<&[NodeId], u32> = BTreeMap::new();
        for (file, nodes) in self.files.values() {
            if count == SEEN_PAGE_FILES_MAX || bytes >= SEEN_PAGE_BYTES {
                (current, bytes, count) = (current + 1, 0, 0);
            }
            if current > number {
                page.is_last = false;
                break;
            }
            (bytes, count) = (bytes + file.path.as_os_str().len(), count + 1);
            if current == number {
                let next = groups.len() as u32;
                let group = *groups.entry(nodes).or_insert(next);
                if group == next {
                    page.nodes.push(nodes.iter().map(|node| self.names[node].clone()).collect());
                }
                page.files.push(ListedFile { file: file.clone(), nodes: group });
            }
        }
        page
    }
}

/// A client's question; `name` is for a new listing.
pub struct SeenRequest {
    /// Unique name.
    pub name: String,
    pub question: SeenQuestion,
}

/// Orders a listing, or answers from one that is under way.
pub(crate) fn ask(
    listings: &mut SeenListings,
    fleet: &mut Fleet,
    outbox: &mut Outbox,
    request: SeenRequest,
    reply: Reply<SeenAnswer>,
) {
    let SeenRequest { name, question } = request;
    let now = outbox.moment();
    let name = match question.listing {
        Some(known) => known,
        None => match begin(listings, fleet, &name, Path::new(&question.path), now) {
            Ok(()) => name,
            Err(error) => return outbox.answer(reply, Err(error)),
        },
    };
    let Some(listing) = listings.0.get_mut(&name) else {
        return outbox.answer(reply, Err(seen_failed(&question.path, "its listing was given up: ask again")));
    };
    listing.asked = now;
    if listing.open.is_empty() && listing.problem.is_none() {
        let page = listing.page(question.page);
        if page.is_last {
            listings.0.remove(&name);
        }
        return outbox.answer(reply, Ok(SeenAnswer { listing: name, page: Some(page) }));
    }
    let older = listing.reply.replace(reply);
    if let Some(older) = older {
        outbox.answer(older, Ok(SeenAnswer { listing: name, page: None }));
    }
    settle(listings, outbox);
}

fn begin(
    listings: &mut SeenListings,
    fleet: &mut Fleet,
    name: &str,
    path: &Path,
    now: Moment,
) -> Result<(), ControlError> {
    let shown = path.display().to_string();
    if !is_seen_path(path) {
        return Err(seen_failed(&shown, "it is not an absolute path without `..`"));
    }
    if listings.0.len() >= LISTINGS_MAX {
        return Err(seen_failed(&shown, "many listings are under way: retry in a moment"));
    }
    let sees = |(id, node): (NodeId, &crate::membership::Node)| {
        is_seen(&node.info().sees, path).then(|| (id, node.info().name.clone(), node.is_away()))
    };
    let seeing: Vec<(NodeId, String, bool)> = fleet.each().filter_map(sees).collect();
    if seeing.is_empty() {
        let dirs = |node: &crate::membership::Node| -> Vec<String> {
            let info = node.info();
            info.sees.iter().map(|dir| format!("{} on {}", dir.display(), info.name)).collect()
        };
        let mut dirs: Vec<String> = fleet.all().flat_map(dirs).take(20).collect();
        if dirs.is_empty() {
            dirs.push("no directory: start a node with --sees DIR".to_string());
        }
        return Err(seen_failed(&shown, &format!("no node sees it; nodes see {}", dirs.join(", "))));
    }
    if let Some((_, node, _)) = seeing.iter().find(|(_, _, is_away)| *is_away) {
        return Err(seen_failed(
            &shown,
            &format!("{node} sees it and is silent: retry when it is back or gone"),
        ));
    }
    for (node, _, _) in &seeing {
        if let Some(node) = fleet.get_mut(*node) {
            node.order(NodeOrder::ListSeen { listing: name.to_string(), path: shown.clone() });
        }
    }
    let listing = Listing {
        path: path.to_path_buf(),
        began: now,
        asked: now,
        reply: None,
        open: seeing.iter().map(|(node, _, _)| (*node, 0)).collect(),
        names: seeing.into_iter().map(|(node, name, _)| (node, name)).collect(),
        files: BTreeMap::new(),
        bytes: 0,
        missing: 0,
        problem: None,
    };
    listings.0.insert(name.to_string(), listing);
    Ok(())
}

fn seen_failed(path: &str, reason: &str) -> ControlError {
    ControlError::NotListed { path: path.to_string(), reason: reason.to_string() }
}

/// Handles a page of a node. A node may report only its own listings.
pub(crate) fn listed(
    listings: &mut SeenListings,
    outbox: &mut Outbox,
    node: NodeId,
    news: SeenNews,
) -> SeenNewsAnswer {
    let listing = listings.0.get_mut(&news.listing).filter(|listing| listing.problem.is_none());
    let Some((listing, next)) = listing.and_then(|listing| {
        let next = *listing.open.get(&node)?;
        Some((listing, next))
    }) else {
        return SeenNewsAnswer { goes_on: false };
    };
    if news.page != next {
        return SeenNewsAnswer { goes_on: news.page < next };
    }
    listing.open.insert(node, next + 1);
    news.files.into_iter().take(SEEN_PAGE_FILES_MAX).for_each(|file| listing.add(node, file));
    if let Some(end) = news.end {
        listing.open.remove(&node);
        match end {
            SeenEnd::Complete => {}
            SeenEnd::Missing => listing.missing += 1,
            SeenEnd::Failed { mut why } => {
                why.truncate(why.floor_char_boundary(TEXT_BYTES_MAX));
                listing.problem = Some(format!("on {}: {why}", listing.names[&node]));
            }
        }
        if listing.missing == listing.names.len() {
            let names: Vec<&str> = listing.names.values().map(String::as_str).collect();
            listing.problem = Some(format!("it does not exist on {}", names.join(", ")));
        }
    }
    settle(listings, outbox);
    SeenNewsAnswer { goes_on: true }
}

/// Gives up listings of a lost node.
pub(crate) fn node_lost(listings: &mut SeenListings, node: NodeId, outbox: &mut Outbox) {
    for listing in listings.0.values_mut().filter(|listing| listing.open.contains_key(&node)) {
        listing.problem = Some(format!("{} was lost meanwhile", listing.names[&node]));
    }
    settle(listings, outbox);
}

/// Handles the passing of time.
pub(crate) fn tick(listings: &mut SeenListings, outbox: &mut Outbox) {
    let now = outbox.moment();
    listings.0.retain(|_, listing| listing.reply.is_some() || now.since(listing.asked) < UNASKED_MAX);
    for (name, listing) in &mut listings.0 {
        if !listing.open.is_empty() && now.since(listing.began) > LISTED_WITHIN {
            let late: Vec<&str> = listing.open.keys().map(|node| listing.names[node].as_str()).collect();
            listing.problem = Some(format!("{} did not list it in time", late.join(" and ")));
        } else if now.since(listing.asked) > ANSWER_AFTER
            && let Some(reply) = listing.reply.take()
        {
            outbox.answer(reply, Ok(SeenAnswer { listing: name.clone(), page: None }));
        }
    }
    settle(listings, outbox);
}

/// Answers callers whose listings have ended.
fn settle(listings: &mut SeenListings, outbox: &mut Outbox) {
    let mut failed = Vec::new();
    for (name, listing) in &mut listings.0 {
        let has_ended = listing.open.is_empty() || listing.problem.is_some();
        let Some(reply) = has_ended.then(|| listing.reply.take()).flatten() else { continue };
        match &listing.problem {
            Some(problem) => {
                outbox.answer(reply, Err(seen_failed(&listing.path.display().to_string(), problem)));
                failed.push(name.clone());
            }
            // The caller asks for the first page next.
            None => outbox.answer(reply, Ok(SeenAnswer { listing: name.clone(), page: None })),
        }
    }
    failed.iter().for_each(|name| drop(listings.0.remove(name)));
}
