//! Puts of a cluster. Each has a session, so that a client whose put another one took over changes nothing any more;
//! and everything about a put that may be large is written and removed in steps.

use super::changes::{NAME_COLUMNS, push_name};
use super::puts::{PUT_FILE_COLUMNS, push_put_file};
use super::replicas::{FILES_AT_ONCE, placed, places};
use crate::database::{Row, Rows, Session};
use crate::transaction::{ApplyError, Ending};
use crate::{Metastore, StoreError};
use ids::{ContentId, FileVersion, ITEM_BITS, ITEMS_MAX, PutId};
use rows::{ClusterPutRow, ConcreteRow, FileNameRow, FileSpace, PutFile, RecordedPutFile};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The answer to a request for numbers of concrete files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbered {
    /// The first of the reserved numbers.
    First(u32),
    /// Another session has the put, or it is committed or gone.
    SessionOver,
    /// The put would have more than [`ITEMS_MAX`] concrete files.
    TooMany,
}

/// The outcome of recording files of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    Done,
    /// Another session has the put, or it is being named, committed or gone.
    SessionOver,
    /// A number of a part was not given to the put, or was used before for another part; nothing was recorded.
    Conflict,
}

impl Metastore {
    /// Stores a put of the cluster that begins.
    pub async fn begin_cluster_put(&self, row: &ClusterPutRow) -> Result<(), StoreError> {
        let values = vec![
            row.put.0.into(),
            row.user.as_str().into(),
            row.path.as_str().into(),
            row.source.as_str().into(),
            row.created_ns.into(),
            row.session.into(),
            row.is_directory.into(),
            row.next_number.into(),
            row.is_naming.into(),
            row.replicas.into(),
            row.keep_versions.into(),
            row.heard_ns.into(),
            row.ttl_ns.into(),
        ];
        let statement = "INSERT INTO file_puts (put, user_name, path, source, created_ns, session, is_directory, \
                next_number, is_naming, replicas, keep_versions, heard_ns, ttl_ns, tree) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, 1)";
        self.write_one(statement, values).await.map(drop)
    }

    /// Returns the puts of the cluster that are under way, oldest first.
    pub async fn cluster_puts(&self) -> Result<Vec<ClusterPutRow>, StoreError> {
        let statement = "SELECT * FROM file_puts WHERE tree = 1 AND version IS NULL ORDER BY put";
        self.cluster_put_rows(&self.rows(statement, []).await?)
    }

    /// Returns the committed puts of the cluster that are not forgotten, oldest first.
    pub async fn ended_cluster_puts(&self) -> Result<Vec<ClusterPutRow>, StoreError> {
        let statement = "SELECT * FROM file_puts WHERE tree = 1 AND version IS NOT NULL ORDER BY put";
        self.cluster_put_rows(&self.rows(statement, []).await?)
    }

    /// Returns a put of the cluster, under way or committed.
    pub async fn cluster_put(&self, put: PutId) -> Result<Option<ClusterPutRow>, StoreError> {
        let rows = self.rows("SELECT * FROM file_puts WHERE put = $1 AND tree = 1", [put.0.into()]).await?;
        rows.first().map(|row| self.cluster_put_row(row)).transpose()
    }

    /// Begins the next session of a put that is under way; names that the last one stored stay. None if it is committed
    /// or gone.
    pub async fn resume_cluster_put(
        &self,
        put: PutId,
        now_ns: u64,
    ) -> Result<Option<ClusterPutRow>, StoreError> {
        let statement = "UPDATE file_puts SET session = session + 1, is_naming = 0, heard_ns = $2 \
             WHERE put = $1 AND tree = 1 AND version IS NULL RETURNING *";
        let rows = self.write_one(statement, vec![put.0.into(), now_ns.into()]).await?;
        rows.first().map(|row| self.cluster_put_row(row)).transpose()
    }

    /// Reserves `count` numbers of concrete files of a put.
    pub async fn number_cluster_put(
        &self,
        put: PutId,
        session: u32,
        count: u32,
        now_ns: u64,
    ) -> Result<Numbered, StoreError> {
        self.in_transaction(async |db| {
            let statement = "UPDATE file_puts SET heard_ns = $3 WHERE put = $1 AND session = $2 AND tree = 1 \
                 AND version IS NULL RETURNING next_number";
            let rows = db.fetch(statement, [put.0.into(), session.into(), now_ns.into()]).await?;
            let Some(row) = rows.first() else { return Ok(Ending::Rollback(Numbered::SessionOver)) };
            let first: u32 = self.number(row, "next_number")?;
            let Some(next) = first.checked_add(count).filter(|next| *next <= ITEMS_MAX) else {
                return Ok(Ending::Commit(Numbered::TooMany));
            };
            let statement = "UPDATE file_puts SET next_number = $2 WHERE put = $1";
            db.execute(statement, [put.0.into(), next.into()]).await?;
            Ok(Ending::Commit(Numbered::First(first)))
        })
        .await
    }

    /// Records files of a put that are on disks, and forgets others, in one transaction. A file that is known under the
    /// same name is replaced, and its concrete files are marked as removed; so are those of forgotten files.
    pub async fn record_cluster_files(
        &self,
        put: PutId,
        session: u32,
        now_ns: u64,
        files: &[RecordedPutFile],
        forgotten: &[String],
    ) -> Result<Recorded, StoreError> {
        // One request has a name once.
        let files: BTreeMap<&str, &RecordedPutFile> =
            files.iter().map(|file| (file.row.name.as_str(), file)).collect();
        let forgotten: HashSet<&str> =
            forgotten.iter().map(String::as_str).filter(|name| !files.contains_key(name)).collect();
        self.in_transaction(async |db| {
            let statement = "UPDATE file_puts SET heard_ns = $3 WHERE put = $1 AND session = $2 AND tree = 1 \
                 AND version IS NULL AND is_naming = 0 RETURNING replicas, next_number";
            let rows = db.fetch(statement, [put.0.into(), session.into(), now_ns.into()]).await?;
            let Some(row) = rows.first() else { return Ok(Ending::Rollback(Recorded::SessionOver)) };
            let replicas: u32 = self.number(row, "replicas")?;
            if !are_of_the_put(put, self.number(row, "next_number")?, &files) {
                return Ok(Ending::Rollback(Recorded::Conflict));
            }
            replace(db, put, &files, &forgotten).await?;
            write_recorded(db, put, replicas, &files).await?;
            Ok(match self.has_parts_of(db, &files).await? {
                true => Ending::Commit(Recorded::Done),
                false => Ending::Rollback(Recorded::Conflict),
            })
        })
        .await
    }

    /// Returns whether the parts of recorded files have their rows. They do not if a number was used before.
    async fn has_parts_of(
        &self,
        db: &mut Session<'_>,
        files: &BTreeMap<&str, &RecordedPutFile>,
    ) -> Result<bool, ApplyError> {
        let all: Vec<&RecordedPutFile> = files.values().copied().collect();
        for some in all.chunks(FILES_AT_ONCE) {
            let statement = concat!(
                "SELECT * FROM concrete_files WHERE is_removed = 0 AND replicas > 0 AND content IN ",
                places!(),
                " ORDER BY content, part"
            );
            let rows = db.fetch(statement, placed(some.iter().map(|file| file.row.content.0))).await?;
            let found = by_content(self.concrete_rows(&rows)?);
            for file in some {
                let parts = found.get(&file.row.content).map_or(&[][..], Vec::as_slice);
                if !parts.iter().eq(file.parts.iter().map(|(part, _)| part)) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Returns recorded files of a put with their parts, by name in the order of its bytes: at most `limit` after a
    /// name, or the first ones.
    pub async fn cluster_put_files(
        &self,
        put: PutId,
        after: Option<&str>,
        limit: u32,
    ) -> Result<Vec<PutFile>, StoreError> {
        let rows = match after {
            None => {
                let statement = "SELECT * FROM file_put_files WHERE put = $1 ORDER BY name LIMIT $2";
                self.rows(statement, [put.0.into(), limit.into()]).await?
            }
            Some(after) => {
                let statement =
                    "SELECT * FROM file_put_files WHERE put = $1 AND name > $2 ORDER BY name LIMIT $3";
                self.rows(statement, [put.0.into(), after.into(), limit.into()]).await?
            }
        };
        let mut files = Vec::with_capacity(rows.len());
        for row in &rows {
            files.push(PutFile { row: self.put_file_row(row)?, parts: Vec::new() });
        }
        let (Some(first), Some(last)) = (files.first(), files.last()) else { return Ok(files) };
        let statement = "SELECT c.* FROM file_put_files p JOIN concrete_files c ON c.content = p.content \
             WHERE p.put = $1 AND p.name >= $2 AND p.name <= $3 ORDER BY c.content, c.part";
        let values = [put.0.into(), first.row.name.as_str().into(), last.row.name.as_str().into()];
        let mut parts = by_content(self.concrete_rows(&self.rows(statement, values).await?)?);
        for file in &mut files {
            file.parts = parts.remove(&file.row.content).unwrap_or_default();
        }
        Ok(files)
    }

    /// Stores names of files of a put, in directories that no name reaches yet; from now on no file is recorded. Names
    /// that are there stay as they are. Returns false if another session has the put, or if it is committed or gone.
    pub async fn name_cluster_files(
        &self,
        put: PutId,
        session: u32,
        now_ns: u64,
        names: &[FileNameRow],
    ) -> Result<bool, StoreError> {
        let mut rows = Rows::default();
        names.iter().for_each(|name| push_name(&mut rows, FileSpace::Cluster, name));
        self.in_transaction(async |db| {
            let statement = "UPDATE file_puts SET is_naming = 1, heard_ns = $3 \
                 WHERE put = $1 AND session = $2 AND tree = 1 AND version IS NULL";
            if db.execute(statement, [put.0.into(), session.into(), now_ns.into()]).await? == 0 {
                return Ok(Ending::Rollback(false));
            }
            let after = "ON CONFLICT (directory, name, since_version) DO NOTHING";
            db.insert("file_names", NAME_COLUMNS, after, rows).await?;
            Ok(Ending::Commit(true))
        })
        .await
    }

    /// Deletes at most `limit` names in the directories of a put that is not committed. Returns how many it deleted.
    pub async fn unname_cluster_put(&self, put: PutId, limit: u32) -> Result<u64, StoreError> {
        self.in_transaction(async |db| match self.locked_cluster_put(db, put).await? {
            Some(row) if row.version.is_none() => Ok(Ending::Commit(self.unname(db, put, limit).await?)),
            _ => Ok(Ending::Rollback(0)),
        })
        .await
    }

    /// Makes a step of giving up a put that is not committed: ends its session, deletes names in its directories, and
    /// then its files, whose concrete files it marks as removed; at most `limit` rows. Returns whether there is more to
    /// do.
    pub async fn abandon_cluster_put(&self, put: PutId, limit: u32) -> Result<bool, StoreError> {
        self.in_transaction(async |db| {
            let statement = "UPDATE file_puts SET session = session + 1 \
                             WHERE put = $1 AND tree = 1 AND version IS NULL";
            if db.execute(statement, [put.0.into()]).await? == 0 {
                return Ok(Ending::Rollback(false));
            }
            if self.unname(db, put, limit).await? >= u64::from(limit) {
                return Ok(Ending::Commit(true));
            }
            let marked = "UPDATE concrete_files SET is_removed = 1 WHERE content IN \
                 (SELECT content FROM file_put_files WHERE put = $1 ORDER BY name LIMIT $2)";
            Ok(Ending::Commit(forget_step(db, put, limit, marked).await?))
        })
        .await
    }

    /// Makes a step of forgetting a committed put: deletes at most `limit` of its recorded files, and at last its row.
    /// Concrete files of recorded files that got no name are marked as removed. Returns whether there is more to do.
    pub async fn forget_cluster_put(&self, put: PutId, limit: u32) -> Result<bool, StoreError> {
        self.in_transaction(async |db| {
            match self.locked_cluster_put(db, put).await? {
                Some(row) if row.version.is_some() => {}
                _ => return Ok(Ending::Rollback(false)),
            }
            let unused = "UPDATE concrete_files SET is_removed = 1 WHERE content IN \
                 (SELECT p.content FROM (SELECT content FROM file_put_files WHERE put = $1 \
                      ORDER BY name LIMIT $2) p WHERE NOT EXISTS \
                      (SELECT 1 FROM file_names n WHERE n.item = p.content AND n.is_directory = 0))";
            Ok(Ending::Commit(forget_step(db, put, limit, unused).await?))
        })
        .await
    }

    /// Deletes the first names in the directories of a put. A step reads the names that it deletes, and no other ones.
    async fn unname(&self, db: &mut Session<'_>, put: PutId, limit: u32) -> Result<u64, ApplyError> {
        let (first, end): (i64, i64) = (put.0 << ITEM_BITS, (put.0 + 1) << ITEM_BITS);
        let last = "SELECT directory, name, since_version FROM file_names \
             WHERE directory >= $1 AND directory < $2 ORDER BY directory, name, since_version LIMIT 1 OFFSET $3";
        let values = [first.into(), end.into(), limit.saturating_sub(1).into()];
        let rows = db.fetch(last, values).await?;
        let Some(last) = rows.first() else {
            let statement = "DELETE FROM file_names WHERE directory >= $1 AND directory < $2";
            return Ok(db.execute(statement, [first.into(), end.into()]).await?);
        };
        let values = [
            first.into(),
            self.get::<i64>(last, "directory")?.into(),
            self.get::<String>(last, "name")?.into(),
            self.get::<i64>(last, "since_version")?.into(),
        ];
        let statement = "DELETE FROM file_names \
             WHERE directory >= $1 AND (directory, name, since_version) <= ($2, $3, $4)";
        Ok(db.execute(statement, values).await?)
    }

    /// Returns a put of the cluster, which does not change until the transaction ends.
    pub(super) async fn locked_cluster_put(
        &self,
        db: &mut Session<'_>,
        put: PutId,
    ) -> Result<Option<ClusterPutRow>, ApplyError> {
        // The update locks the row in PostgreSQL.
        let statement = "UPDATE file_puts SET heard_ns = heard_ns WHERE put = $1 AND tree = 1 RETURNING *";
        let rows = db.fetch(statement, [put.0.into()]).await?;
        Ok(rows.first().map(|row| self.cluster_put_row(row)).transpose()?)
    }

    fn cluster_put_rows(&self, rows: &[Row]) -> Result<Vec<ClusterPutRow>, StoreError> {
        rows.iter().map(|row| self.cluster_put_row(row)).collect()
    }

    fn cluster_put_row(&self, row: &Row) -> Result<ClusterPutRow, StoreError> {
        Ok(ClusterPutRow {
            put: PutId(self.get(row, "put")?),
            session: self.number(row, "session")?,
            user: self.get(row, "user_name")?,
            path: self.get(row, "path")?,
            source: self.get(row, "source")?,
            is_directory: self.get::<i64>(row, "is_directory")? != 0,
            next_number: self.number(row, "next_number")?,
            is_naming: self.get::<i64>(row, "is_naming")? != 0,
            replicas: self.number(row, "replicas")?,
            keep_versions: self.number(row, "keep_versions")?,
            ttl_ns: self.number_or_none(row, "ttl_ns")?,
            created_ns: self.number(row, "created_ns")?,
            heard_ns: self.number(row, "heard_ns")?,
            version: self.get::<Option<i64>>(row, "version")?.map(FileVersion),
            files: self.number(row, "files")?,
            bytes: self.number(row, "bytes")?,
            short_files: self.number(row, "short_files")?,
        })
    }
}

fn by_content(parts: Vec<ConcreteRow>) -> HashMap<ContentId, Vec<ConcreteRow>> {
    let mut all: HashMap<ContentId, Vec<ConcreteRow>> = HashMap::new();
    for part in parts {
        all.entry(part.content).or_default().push(part);
    }
    all
}

/// Returns whether the parts of recorded files have numbers that the put was given. A client cannot reach the files of
/// another put.
fn are_of_the_put(put: PutId, next_number: u32, files: &BTreeMap<&str, &RecordedPutFile>) -> bool {
    files.values().all(|file| {
        let of_the_put = |part: &ConcreteRow| {
            part.concrete.put() == put
                && part.concrete.number() < next_number
                && part.content == file.row.content
        };
        file.row.content.put() == put && file.parts.iter().all(|(part, _)| of_the_put(part))
    })
}

/// Marks the concrete files of known files that are forgotten or get another content, and deletes the forgotten ones.
async fn replace(
    db: &mut Session<'_>,
    put: PutId,
    files: &BTreeMap<&str, &RecordedPutFile>,
    forgotten: &HashSet<&str>,
) -> Result<(), ApplyError> {
    let mut old = Rows::default();
    files.iter().for_each(|(name, file)| {
        old.push([put.0.into(), (*name).into(), file.row.content.0.into()]);
    });
    // No content has this number.
    forgotten.iter().for_each(|name| old.push([put.0.into(), (*name).into(), (-1_i64).into()]));
    let tail = "JOIN file_put_files p ON p.put = v.column1 AND p.name = v.column2 \
                WHERE p.content = concrete_files.content AND p.content <> v.column3";
    db.update("UPDATE concrete_files SET is_removed = 1", tail, old).await?;
    for name in forgotten {
        let statement = "DELETE FROM file_put_files WHERE put = $1 AND name = $2";
        db.execute(statement, [put.0.into(), (*name).into()]).await?;
    }
    Ok(())
}

async fn write_recorded(
    db: &mut Session<'_>,
    put: PutId,
    replicas: u32,
    files: &BTreeMap<&str, &RecordedPutFile>,
) -> Result<(), ApplyError> {
    let (mut rows, mut concretes, mut places) = (Rows::default(), Rows::default(), Rows::default());
    for file in files.values() {
        push_put_file(&mut rows, put, &file.row);
        for (part, disks) in &file.parts {
            concretes.push([
                part.content.0.into(),
                part.part.into(),
                part.concrete.0.into(),
                part.bytes.into(),
                part.crc32c.into(),
                false.into(),
                replicas.into(),
            ]);
            disks.iter().for_each(|disk| places.push([disk.0.into(), part.concrete.0.into()]));
        }
    }
    let after = "ON CONFLICT (put, name) DO UPDATE SET content = excluded.content, parts = excluded.parts, \
                 bytes = excluded.bytes, modified_ns = excluded.modified_ns, hashed = excluded.hashed";
    db.insert("file_put_files", PUT_FILE_COLUMNS, after, rows).await?;
    let columns = "content, part, concrete, bytes, crc32c, is_removed, replicas";
    // A request that is repeated finds them; the caller looks whether they are the same.
    db.insert("concrete_files", columns, "ON CONFLICT DO NOTHING", concretes).await?;
    db.insert("concrete_replicas", "disk, concrete", "ON CONFLICT DO NOTHING", places).await?;
    Ok(())
}

/// Marks concrete files of the first `limit` recorded files of a put by a statement over `$1` and `$2`, and deletes
/// these files; behind the last one the put itself. Returns whether there is more to do.
async fn forget_step(
    db: &mut Session<'_>,
    put: PutId,
    limit: u32,
    marking: &'static str,
) -> Result<bool, ApplyError> {
    db.execute(marking, [put.0.into(), limit.into()]).await?;
    let files = "DELETE FROM file_put_files WHERE put = $1 AND name IN \
         (SELECT name FROM file_put_files WHERE put = $1 ORDER BY name LIMIT $2)";
    if db.execute(files, [put.0.into(), limit.into()]).await? >= u64::from(limit) {
        return Ok(true);
    }
    db.execute("DELETE FROM file_puts WHERE put = $1", [put.0.into()]).await?;
    Ok(false)
}
