//! Puts: their sessions, numbers and places, and the files that are on disks.

use crate::asked::{found_paths, making, now_ns, path_of};
use crate::error::limited;
use crate::nodes::disks::Standing;
use crate::nodes::orders::part_of;
use crate::nodes::placement::choose;
use crate::outputs::open::JOB_SOURCE;
use crate::{Asker, Catalog, CatalogError, State};
use api::stored::HASHED_PARTITIONS_MAX;
use api::stored::cluster::{
    BeginStored, BegunStored, KnownFile, KnownFiles, KnownOfPut, NumberStored, NumberedStored, PlaceStored,
    PlacesOfStored, RecordStored, RecordedFile, STORED_PAGE_MAX, STORED_REPLICAS, STORED_REPLICAS_MAX,
    StoredPut, StoredRange,
};
use filetree::{
    Changer, FileSize, FoundPath, TreeError, check_component, check_seen_place, may_put, place, ttl_ns,
};
use ids::{ConcreteId, ContentId, DirectoryId, DiskId, PutId};
use metastore::{FileFacts, Numbered, Recorded};
use rows::{ClusterPutRow, ConcreteRow, FileItem, FileSpace, PutFileRow, RecordedPutFile};
use std::time::{Duration, Instant};
use trust::FileRight;

/// Validity of rights to write. A longer put asks for new numbers.
const GRANTED_SECONDS: u64 = 7 * 24 * 3600;
/// Longest text that names the source of a put, in bytes.
const SOURCE_BYTES_MAX: usize = 64 << 10;
/// Maximum number of puts under way of all users.
const PUTS_MAX: usize = 10_000;
/// Maximum number of concrete files of a file.
const PARTS_MAX: usize = 1 << 20;
/// A server that began so lately may not have heard its nodes yet.
const YOUNG_FOR: Duration = Duration::from_secs(30);
/// Rows of a step.
const ROWS_AT_ONCE: u32 = 2000;

impl Catalog {
    /// Begins a put, or goes on with one of the same source that was interrupted. An earlier client of it can change
    /// nothing more.
    pub async fn begin(&self, asker: &Asker, begin: &BeginStored) -> Result<BegunStored, CatalogError> {
        if begin.source.starts_with(JOB_SOURCE) {
            return Err(CatalogError::SourceOfJob);
        }
        self.begin_put(asker, begin).await
    }

    /// Does the same, also for jobs.
    pub(crate) async fn begin_put(
        &self,
        asker: &Asker,
        begin: &BeginStored,
    ) -> Result<BegunStored, CatalogError> {
        limited("the bytes of the source", begin.source.len(), SOURCE_BYTES_MAX)?;
        let asked = begin.replicas.unwrap_or(STORED_REPLICAS);
        limited("the number of replicas", asked as usize, STORED_REPLICAS_MAX as usize)?;
        let nodes = self.nodes_for_puts()?;
        let replicas = begin.replicas.unwrap_or(STORED_REPLICAS.min(nodes)).max(1);
        let ttl_ns = begin.ttl_seconds.map(|seconds| ttl_ns(Duration::from_secs(seconds))).transpose()?;
        self.check_place(asker, begin).await?;
        self.check_quota(asker, &asker.user, 0).await?;
        let path = path_of(&begin.path)?.to_string();
        let under_way = self.store.cluster_puts().await?;
        limited("the number of puts under way", under_way.len(), PUTS_MAX)?;
        let same = under_way.iter().find(|row| {
            !begin.source.is_empty()
                && (&row.source, &row.path, &row.user) == (&begin.source, &path, &asker.user)
                && (row.is_directory, row.keep_versions) == (begin.is_directory, begin.keep_versions.max(1))
                && row.ttl_ns == ttl_ns
                // Without a wish the number of nodes decided, which may be another one now.
                && begin.replicas.is_none_or(|asked| asked == row.replicas)
        });
        if let Some(row) = same
            && let Some(row) = self.resume(row.put).await?
        {
            let of = StoredPut { put: row.put, session: row.session };
            return Ok(BegunStored { of, replicas: row.replicas, goes_on: true });
        }
        let put = self.store.reserve_put_id().await?;
        let now = now_ns();
        let row = ClusterPutRow {
            put,
            session: 1,
            user: asker.user.clone(),
            path,
            source: begin.source.clone(),
            is_directory: begin.is_directory,
            next_number: 0,
            is_naming: false,
            replicas,
            keep_versions: begin.keep_versions.max(1),
            ttl_ns,
            created_ns: now,
            heard_ns: now,
            version: None,
            files: 0,
            bytes: 0,
            short_files: 0,
        };
        self.store.begin_cluster_put(&row).await?;
        Ok(BegunStored { of: StoredPut { put, session: 1 }, replicas, goes_on: false })
    }

    /// Returns the number of nodes that replicas may lie on. A server that has just begun counts nodes that it has not heard
    /// yet.
    fn nodes_for_puts(&self) -> Result<u32, CatalogError> {
        let state = self.state();
        let now = Instant::now();
        match state.disks.nodes(now) {
            0 => Err(self.no_nodes(&state)),
            heard if self.is_young() => Ok(heard.max(state.disks.nodes_expected(now)) as u32),
            heard => Ok(heard as u32),
        }
    }

    fn is_young(&self) -> bool {
        self.opened.elapsed() < YOUNG_FOR
    }

    /// Returns the error of a request for which no disk has room.
    pub(crate) fn no_place(&self, state: &State, bytes: u64) -> CatalogError {
        let now = Instant::now();
        match state.disks.candidates(now).is_empty() {
            true => self.no_nodes(state),
            false => CatalogError::NoRoom { bytes, nodes: state.disks.described(now) },
        }
    }

    /// Returns the error of a request for which there is no node.
    fn no_nodes(&self, state: &State) -> CatalogError {
        match self.is_young() && state.disks.nodes_expected(Instant::now()) > 0 {
            true => CatalogError::NodesAwaited,
            false => CatalogError::NoNodes,
        }
    }

    async fn resume(&self, put: PutId) -> Result<Option<ClusterPutRow>, CatalogError> {
        let mut naming = self.naming.lock().await;
        naming.remove(&put);
        let Some(row) = self.store.resume_cluster_put(put, now_ns()).await? else { return Ok(None) };
        // Names that an earlier session had begun to store; no name reaches them.
        while self.store.unname_cluster_put(put, ROWS_AT_ONCE).await? > 0 {}
        Ok(Some(row))
    }

    /// Returns an error before any byte travels if the name cannot be used.
    async fn check_place(&self, asker: &Asker, begin: &BeginStored) -> Result<(), CatalogError> {
        let path = path_of(&begin.path)?;
        if path.is_root() {
            return Err(TreeError::Root.into());
        }
        let rows = self.store.found_names(FileSpace::Cluster, path.components(), None).await?;
        let facts = FileFacts { found: vec![rows], ..FileFacts::default() };
        let found = found_paths(&facts, &[&path]);
        let Some(found) = found.first() else { return Ok(()) };
        let item = match begin.is_directory {
            true => FileItem::Directory(DirectoryId(0)),
            false => FileItem::File(ContentId(0)),
        };
        let changer = self.with_groups(&asker.changer).await?;
        if self.hides_from(&changer) {
            check_seen_place(found, &changer)?;
        }
        place(found, item, FileSize::default(), &mut making(&facts, &asker.user, 1))?;
        Ok(may_put(found, &changer)?)
    }

    /// Returns an error if the user may not put something there.
    pub(crate) fn may_put_at(&self, found: &FoundPath, changer: &Changer) -> Result<(), TreeError> {
        if self.hides_from(changer) {
            check_seen_place(found, changer)?;
        }
        may_put(found, changer)
    }

    /// Returns the row of a put of the asker, in this session.
    pub(crate) async fn put_row(&self, asker: &Asker, of: StoredPut) -> Result<ClusterPutRow, CatalogError> {
        let row = self.store.cluster_put(of.put).await?;
        let is_own = |row: &ClusterPutRow| asker.changer.has(&row.user);
        row.filter(|row| row.session == of.session && is_own(row)).ok_or(CatalogError::SessionOver(of.put))
    }

    /// Returns files that an earlier session stored.
    pub async fn known(&self, asker: &Asker, of: &KnownOfPut) -> Result<KnownFiles, CatalogError> {
        let row = self.put_row(asker, of.of).await?;
        let limit = STORED_PAGE_MAX;
        let files = self.store.cluster_put_files(row.put, of.after.as_deref(), limit).await?;
        let more = files.len() == limit as usize;
        let known = |file: rows::PutFile| KnownFile {
            name: file.row.name,
            content: file.row.content,
            bytes: file.row.bytes,
            modified_ns: file.row.modified_ns,
            parts: file.parts.iter().map(part_of).collect(),
        };
        Ok(KnownFiles { files: files.into_iter().map(known).collect(), more })
    }

    /// Reserves numbers of concrete files.
    pub async fn number(&self, asker: &Asker, number: &NumberStored) -> Result<NumberedStored, CatalogError> {
        let row = self.put_row(asker, number.of).await?;
        let count = number.count.max(1);
        let numbered = self.store.number_cluster_put(row.put, number.of.session, count, now_ns()).await?;
        let first = match numbered {
            Numbered::First(first) => first,
            Numbered::SessionOver => return Err(CatalogError::SessionOver(row.put)),
            Numbered::TooMany => return Err(CatalogError::TooMany),
        };
        let ends = (ConcreteId::of(row.put, first), ConcreteId::of(row.put, first + count - 1));
        let (Some(from), Some(to)) = ends else { return Err(CatalogError::TooMany) };
        let grant = self.grant(FileRight::Write, [from, to], GRANTED_SECONDS);
        Ok(NumberedStored { first, range: StoredRange { first: from, last: to, grant } })
    }

    /// Chooses disks for concrete files.
    pub async fn place(&self, asker: &Asker, ask: &PlaceStored) -> Result<PlacesOfStored, CatalogError> {
        let row = self.put_row(asker, ask.of).await?;
        // Another try for the same bytes was counted.
        if ask.avoid.is_empty() {
            self.check_quota(asker, &row.user, ask.bytes).await?;
            self.will_travel(&row, ask.bytes);
        }
        let mut state = self.state();
        let now = Instant::now();
        let all = state.disks.candidates(now);
        let usable: Vec<_> = all.iter().filter(|each| !ask.avoid.contains(&each.disk)).cloned().collect();
        let chosen = choose(&usable, &[], row.replicas as usize, ask.bytes, fastrand::f64);
        if chosen.is_empty() {
            return Err(self.no_place(&state, ask.bytes));
        }
        chosen.iter().for_each(|disk| state.disks.will_hold(*disk, ask.bytes));
        state.will_travel_to(&row, &chosen);
        let disks = chosen.iter().filter_map(|disk| state.disks.node_of(*disk, now)).collect();
        Ok(PlacesOfStored { disks })
    }

    /// Records files that are synced on disks.
    pub async fn record(&self, asker: &Asker, record: &RecordStored) -> Result<(), CatalogError> {
        limited("the number of files", record.files.len(), STORED_PAGE_MAX as usize)?;
        let row = self.put_row(asker, record.of).await?;
        let mut files = Vec::with_capacity(record.files.len());
        let mut short = 0;
        for file in &record.files {
            check_file(&row, file)?;
            let is_short = |disks: &[DiskId]| disks.len() < row.replicas as usize;
            short += u64::from(file.parts.iter().any(|part| is_short(&part.disks)));
            files.push(recorded(file));
        }
        self.check_disks(&record.files)?;
        let session = record.of.session;
        let kept =
            self.store.record_cluster_files(row.put, session, now_ns(), &files, &record.forgotten).await?;
        let problem = "a number of a recorded part was used before";
        match kept {
            Recorded::Done => {}
            Recorded::SessionOver => return Err(CatalogError::SessionOver(row.put)),
            Recorded::Conflict => return Err(CatalogError::Incomplete { put: row.put, problem }),
        }
        self.have_arrived(row.put, record.files.iter().map(|file| file.bytes).sum());
        if short > 0 {
            *self.state().short.entry(row.put).or_default() += short;
        }
        if short > 0 || self.any_is_endangered(&record.files) {
            self.wake_repair();
        }
        Ok(())
    }

    /// Returns whether a file was recorded on a disk that is not live any more: the scan that its silence caused may have
    /// been before the file had its row.
    fn any_is_endangered(&self, files: &[RecordedFile]) -> bool {
        let state = self.state();
        let now = Instant::now();
        let mut disks = files.iter().flat_map(|file| &file.parts).flat_map(|part| &part.disks);
        disks.any(|disk| state.disks.standing(*disk, now) != Standing::Live)
    }

    /// Returns an error if a disk has no row.
    fn check_disks(&self, files: &[RecordedFile]) -> Result<(), CatalogError> {
        let state = self.state();
        let disks = files.iter().flat_map(|file| &file.parts).flat_map(|part| &part.disks);
        for disk in disks {
            if state.disks.get(*disk).is_none() {
                return Err(CatalogError::UnknownDisk(disk.to_string()));
            }
        }
        Ok(())
    }

    /// Gives up a put.
    pub async fn abandon(&self, asker: &Asker, of: StoredPut) -> Result<(), CatalogError> {
        let row = self.put_row(asker, of).await?;
        if row.version.is_some() {
            return Err(CatalogError::SessionOver(of.put));
        }
        self.naming.lock().await.remove(&of.put);
        while self.store.abandon_cluster_put(of.put, ROWS_AT_ONCE).await? {}
        self.state().put_was_given_up(of.put);
        Ok(())
    }
}

/// Returns an error for a file that does not belong to the put, or contradicts itself.
fn check_file(row: &ClusterPutRow, file: &RecordedFile) -> Result<(), CatalogError> {
    let incomplete = |problem| Err(CatalogError::Incomplete { put: row.put, problem });
    let name = |source| CatalogError::Name { text: file.name.clone(), source };
    match row.is_directory {
        true => {
            path_of(&format!("{}/{}", row.path, file.name))?;
            file.name.split('/').try_for_each(check_component).map_err(name)?;
        }
        false if file.name.is_empty() => {}
        false => return incomplete("it is one file, and a file of a directory was recorded"),
    }
    limited("the number of parts of a file", file.parts.len(), PARTS_MAX)?;
    let is_of_put = |part: &ConcreteId| part.put() == row.put && part.number() < row.next_number;
    if file.content.put() != row.put || !file.parts.iter().all(|part| is_of_put(&part.file.concrete)) {
        return incomplete("a recorded file has numbers that were not given to it");
    }
    if file.parts.iter().any(|part| part.disks.is_empty()) {
        return incomplete("a recorded part is on no disk");
    }
    if let Some(hashed) = &file.hashed
        && (hashed.partitions.count > HASHED_PARTITIONS_MAX
            || hashed.empty.len() + file.parts.len() != hashed.partitions.count as usize)
    {
        return incomplete("a recorded file has other parts than its partitions say");
    }
    let bytes = file.parts.iter().fold(0_u64, |sum, part| sum.saturating_add(part.file.bytes));
    match bytes == file.bytes && file.parts.iter().all(|part| part.file.bytes > 0) {
        true => Ok(()),
        false => incomplete("the parts of a recorded file have other bytes than the file"),
    }
}

fn recorded(file: &RecordedFile) -> RecordedPutFile {
    let row = PutFileRow {
        name: file.name.clone(),
        content: file.content,
        parts: file.parts.len() as u32,
        bytes: file.bytes,
        modified_ns: file.modified_ns,
        hashed: file.hashed.clone(),
    };
    let parts = (0..).zip(&file.parts).map(|(part, recorded)| {
        let concrete = ConcreteRow {
            concrete: recorded.file.concrete,
            content: file.content,
            part,
            bytes: recorded.file.bytes,
            crc32c: recorded.file.crc32c,
        };
        let mut disks = recorded.disks.clone();
        disks.sort_unstable();
        disks.dedup();
        (concrete, disks)
    });
    RecordedPutFile { row, parts: parts.collect() }
}
