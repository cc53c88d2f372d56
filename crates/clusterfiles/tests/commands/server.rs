//! A server in memory: one version of a tree, and puts that replace all of it.

use crate::node::NOW;
use api::data_access::SecretText;
use api::stored::cluster::{
    BegunStored, CommitStored, CommittedStored, FindStored, FoundStored, KnownFile, KnownFiles, ListStored,
    NumberStored, NumberedStored, PlaceStored, PlacedPart, PlacesOfStored, RecordStored, RecordedFile,
    StoredEntry, StoredGroups, StoredItem, StoredNode, StoredPage, StoredPut, StoredRange,
};
use ids::{ConcreteId, ContentId, DirectoryId, DiskId, FileVersion, PutId};
use serde_json::{Value, from_slice, json, to_value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use trust::{DataRight, DataSigner, FileRight, StoredGrant};

const PUT: PutId = PutId(3);

#[derive(Default)]
pub struct ServerState {
    pub nodes: Vec<StoredNode>,
    /// Nodes that are not told to anybody.
    pub absent: BTreeSet<DiskId>,
    pub replicas: u32,
    session: u32,
    next_number: u32,
    pub recorded: BTreeMap<String, RecordedFile>,
    empty_directories: Vec<String>,
    commits: u32,
    /// Calls by their routes.
    pub calls: BTreeMap<String, u32>,
}

pub struct TestServer {
    pub state: Mutex<ServerState>,
    pub signer: Arc<DataSigner>,
}

impl TestServer {
    fn range(&self, right: FileRight, first: ConcreteId, last: ConcreteId) -> StoredRange {
        let grant = StoredGrant { right, first: first.0, last: last.0, expires_seconds: NOW };
        StoredRange { first, last, grant: SecretText(self.signer.sign(&DataRight::Stored(grant))) }
    }

    /// Answers a call.
    pub fn answer(&self, route: &str, body: &[u8]) -> Value {
        let mut state = self.state.lock().unwrap();
        *state.calls.entry(route.to_string()).or_default() += 1;
        match route {
            "find" => to_value(state.find(&from_slice(body).unwrap())),
            "list" => to_value(self.list(&state, &from_slice(body).unwrap())),
            "lease" | "puts/abandon" => Ok(Value::Null),
            "puts" => to_value(state.begin()),
            "puts/known" => to_value(state.known()),
            "puts/numbers" => to_value(self.number(&mut state, &from_slice(body).unwrap())),
            "puts/places" => to_value(state.place(&from_slice(body).unwrap())),
            "puts/files" => {
                state.record(from_slice(body).unwrap());
                Ok(Value::Null)
            }
            "puts/commit" => to_value(state.commit(from_slice(body).unwrap())),
            _ => Ok(json!({ "route": route })),
        }
        .unwrap()
    }

    fn number(&self, state: &mut ServerState, number: &NumberStored) -> NumberedStored {
        // As if an answer was lost before.
        let first = state.next_number + 2;
        state.next_number = first + number.count;
        let id = |number| ConcreteId::of(PUT, number).unwrap();
        let range = self.range(FileRight::Write, id(first), id(first + number.count - 1));
        NumberedStored { first, range }
    }

    fn list(&self, state: &ServerState, list: &ListStored) -> StoredPage {
        let entries = state.entries(list.directory);
        let is_wanted = |entry: &&StoredEntry| {
            entry.name > list.after && list.only.as_ref().is_none_or(|only| *only == entry.name)
        };
        let all: Vec<StoredEntry> = entries.iter().filter(is_wanted).cloned().collect();
        let page: Vec<StoredEntry> = all.iter().take(list.limit.min(50) as usize).cloned().collect();
        let mut answer = StoredPage { more: all.len() > page.len(), ..StoredPage::default() };
        if list.parts {
            let contents: BTreeSet<ContentId> = page.iter().filter_map(content_of).collect();
            for file in state.recorded.values().filter(|file| contents.contains(&file.content)) {
                for (position, part) in (0..).zip(&file.parts) {
                    answer.parts.push(PlacedPart {
                        content: file.content,
                        part: position,
                        file: part.file,
                        replicas: state.replicas,
                        disks: part.disks.clone(),
                    });
                }
            }
            let ids: Vec<ConcreteId> = answer.parts.iter().map(|part| part.file.concrete).collect();
            if let (Some(first), Some(last)) = (ids.iter().min(), ids.iter().max()) {
                answer.grants.push(self.range(FileRight::Read, *first, *last));
            }
            answer.nodes = state.present();
        }
        answer.entries = page;
        answer
    }
}

fn content_of(entry: &StoredEntry) -> Option<ContentId> {
    match entry.item {
        StoredItem::File(content) => Some(content),
        StoredItem::Directory(_) => None,
    }
}

impl ServerState {
    fn present(&self) -> Vec<StoredNode> {
        self.nodes.iter().filter(|node| !self.absent.contains(&node.disk)).cloned().collect()
    }

    /// Returns all directories below the put; the first one is the put itself.
    fn directories(&self) -> Vec<String> {
        let mut names = BTreeSet::from([String::new()]);
        let files = self.recorded.keys().filter_map(|name| name.rsplit_once('/'));
        for name in files.map(|(above, _)| above).chain(self.empty_directories.iter().map(String::as_str)) {
            let mut name = name;
            names.insert(name.to_string());
            while let Some((above, _)) = name.rsplit_once('/') {
                names.insert(above.to_string());
                name = above;
            }
        }
        names.into_iter().collect()
    }

    fn entry(&self, directory: DirectoryId, name: &str, item: StoredItem, bytes: [u64; 2]) -> StoredEntry {
        StoredEntry {
            directory,
            name: name.to_string(),
            item,
            since: FileVersion(1),
            user: "u".to_string(),
            bytes: bytes[0],
            parts: bytes[1] as u32,
            created_ns: 0,
            keep_versions: 1,
            expires_ns: None,
            groups: StoredGroups::default(),
            hashed: None,
        }
    }

    fn entries(&self, directory: DirectoryId) -> Vec<StoredEntry> {
        let names = self.directories();
        let name = &names[(directory.0 - 100) as usize];
        let prefix = if name.is_empty() { String::new() } else { format!("{name}/") };
        let within = |each: &str| {
            let rest = each.strip_prefix(&prefix)?;
            (!rest.is_empty() && !rest.contains('/')).then(|| rest.to_string())
        };
        let mut all = Vec::new();
        for (index, each) in (100..).zip(&names) {
            if let Some(name) = within(each) {
                let item = StoredItem::Directory(DirectoryId(index));
                all.push(self.entry(directory, &name, item, [0, 0]));
            }
        }
        for (each, file) in &self.recorded {
            if let Some(name) = within(each) {
                let item = StoredItem::File(file.content);
                all.push(self.entry(directory, &name, item, [file.bytes, file.parts.len() as u64]));
            }
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// Finds `data`, the put, and `data/NAME`, a file in it.
    fn find(&self, find: &FindStored) -> FoundStored {
        let entry = match find.path.strip_prefix("data/") {
            Some(name) => {
                let all = self.entries(DirectoryId(100));
                all.into_iter().find(|entry| entry.name == name).unwrap()
            }
            None => self.entry(DirectoryId(1), "data", StoredItem::Directory(DirectoryId(100)), [0, 0]),
        };
        FoundStored {
            entry: Some(entry),
            root: DirectoryId(1),
            version: FileVersion(1),
            lease: find.reads.then_some(5),
            lease_seconds: 30,
            groups: StoredGroups::default(),
            job: None,
        }
    }

    fn begin(&mut self) -> BegunStored {
        self.session += 1;
        let of = StoredPut { put: PUT, session: self.session };
        BegunStored { of, replicas: self.replicas, goes_on: self.session > 1 }
    }

    fn known(&self) -> KnownFiles {
        let known = |file: &RecordedFile| KnownFile {
            name: file.name.clone(),
            content: file.content,
            bytes: file.bytes,
            modified_ns: file.modified_ns,
            parts: file.parts.iter().map(|part| part.file).collect(),
        };
        KnownFiles { files: self.recorded.values().map(known).collect(), more: false }
    }

    fn place(&self, place: &PlaceStored) -> PlacesOfStored {
        let mut disks = self.present();
        disks.retain(|node| !place.avoid.contains(&node.disk));
        disks.truncate(self.replicas as usize);
        PlacesOfStored { disks }
    }

    fn record(&mut self, record: RecordStored) {
        assert_eq!(record.of.session, self.session);
        record.forgotten.iter().for_each(|name| drop(self.recorded.remove(name).unwrap()));
        for file in record.files {
            self.recorded.insert(file.name.clone(), file);
        }
    }

    fn commit(&mut self, commit: CommitStored) -> CommittedStored {
        self.commits += 1;
        self.empty_directories = commit.empty_directories;
        let is_short =
            |file: &&RecordedFile| file.parts.iter().any(|part| part.disks.len() < self.replicas as usize);
        CommittedStored {
            version: self.commits.is_multiple_of(2).then_some(FileVersion(1)),
            files: self.recorded.len() as u64,
            bytes: self.recorded.values().map(|file| file.bytes).sum(),
            short_files: self.recorded.values().filter(is_short).count() as u64,
        }
    }
}
