//! Puts under way: what they are, and which of their files are on disk already.

use super::changes::{push_concrete, write_concretes};
use crate::database::{Row, Rows, Session};
use crate::transaction::ApplyError;
use crate::transaction::Ending;
use crate::{Metastore, StoreError};
use ids::{ConcreteId, ContentId, ITEM_BITS, PutId};
use rows::{ConcreteRow, FilePutRow, PutFileRow};

/// The columns of the rows of [`push_put_file`].
pub(super) const PUT_FILE_COLUMNS: &str = "put, name, content, parts, bytes, modified_ns, hashed";

impl Metastore {
    /// Reserves the number of a put. A number that is never used does no harm.
    pub async fn reserve_put_id(&self) -> Result<PutId, StoreError> {
        Ok(PutId(self.next_of_sequence("file_put", 1).await?))
    }

    /// Stores a put of the machine that begins.
    pub async fn begin_put(&self, row: &FilePutRow) -> Result<(), StoreError> {
        let values = vec![
            row.put.0.into(),
            row.user.as_str().into(),
            row.path.as_str().into(),
            row.source.as_str().into(),
            row.created_ns.into(),
        ];
        let statement =
            "INSERT INTO file_puts (put, user_name, path, source, created_ns) VALUES ($1, $2, $3, $4, $5)";
        self.write_one(statement, values).await.map(drop)
    }

    /// Returns the puts of the machine that are under way, oldest first.
    pub async fn file_puts(&self) -> Result<Vec<FilePutRow>, StoreError> {
        let rows = self.rows("SELECT * FROM file_puts WHERE tree = 0 ORDER BY put", []).await?;
        let put = |row| {
            Ok(FilePutRow {
                put: PutId(self.get(row, "put")?),
                user: self.get(row, "user_name")?,
                path: self.get(row, "path")?,
                source: self.get(row, "source")?,
                created_ns: self.number(row, "created_ns")?,
            })
        };
        rows.iter().map(put).collect()
    }

    /// Returns the files of a put that are on disk.
    pub async fn put_files(&self, put: PutId) -> Result<Vec<PutFileRow>, StoreError> {
        let rows =
            self.rows("SELECT * FROM file_put_files WHERE put = $1 ORDER BY name", [put.0.into()]).await?;
        rows.iter().map(|row| self.put_file_row(row)).collect()
    }

    pub(super) fn put_file_row(&self, row: &Row) -> Result<PutFileRow, StoreError> {
        Ok(PutFileRow {
            name: self.get(row, "name")?,
            content: ContentId(self.get(row, "content")?),
            parts: self.number(row, "parts")?,
            bytes: self.number(row, "bytes")?,
            modified_ns: self.number(row, "modified_ns")?,
            hashed: self.hashed_file(row)?,
        })
    }

    /// Records files of a put that are on disk, in one transaction.
    pub async fn record_put_files(
        &self,
        put: PutId,
        files: &[(PutFileRow, Vec<ConcreteRow>)],
    ) -> Result<(), StoreError> {
        let (mut rows, mut concretes) = (Rows::default(), Rows::default());
        for (file, parts) in files {
            push_put_file(&mut rows, put, file);
            parts.iter().for_each(|part| push_concrete(&mut concretes, part));
        }
        self.in_transaction(async |db| {
            db.insert("file_put_files", PUT_FILE_COLUMNS, "ON CONFLICT (put, name) DO NOTHING", rows).await?;
            write_concretes(db, concretes).await?;
            Ok(Ending::Commit(()))
        })
        .await
    }

    /// Returns the concrete files of a put that have rows.
    pub async fn concrete_files_of_put(&self, put: PutId) -> Result<Vec<ConcreteRow>, StoreError> {
        let (first, end) = (put.0 << ITEM_BITS, (put.0 + 1) << ITEM_BITS);
        let statement =
            "SELECT * FROM concrete_files WHERE concrete >= $1 AND concrete < $2 ORDER BY concrete";
        self.concrete_rows(&self.rows(statement, [first.into(), end.into()]).await?)
    }

    /// Gives up a put of the machine: marks its concrete files as removed, and forgets it.
    pub async fn abandon_put(&self, put: PutId) -> Result<(), StoreError> {
        let removed = "UPDATE concrete_files SET is_removed = 1 WHERE content IN \
             (SELECT content FROM file_put_files WHERE put = $1)";
        self.in_transaction(async |db| {
            db.execute(removed, [put.0.into()]).await?;
            forget(db, put).await?;
            Ok(Ending::Commit(()))
        })
        .await
    }

    /// Returns concrete files of the machine that no name needs any more; their files are to be removed.
    pub async fn removed_concrete_files(&self, limit: u32) -> Result<Vec<ConcreteId>, StoreError> {
        let statement = "SELECT concrete FROM concrete_files WHERE is_removed = 1 AND replicas = 0 \
                         ORDER BY concrete LIMIT $1";
        let rows = self.rows(statement, [limit.into()]).await?;
        rows.iter().map(|row| Ok(ConcreteId(self.get(row, "concrete")?))).collect()
    }

    /// Forgets removed concrete files of the machine: their files are gone.
    pub async fn forget_removed_files(&self, files: &[ConcreteId]) -> Result<(), StoreError> {
        self.in_transaction(async |db| {
            for file in files {
                let statement = "DELETE FROM concrete_files \
                                 WHERE concrete = $1 AND is_removed = 1 AND replicas = 0";
                db.execute(statement, [file.0.into()]).await?;
            }
            Ok(Ending::Commit(()))
        })
        .await
    }
}

pub(super) fn push_put_file(rows: &mut Rows, put: PutId, file: &PutFileRow) {
    rows.push([
        put.0.into(),
        file.name.as_str().into(),
        file.content.0.into(),
        file.parts.into(),
        file.bytes.into(),
        file.modified_ns.into(),
        super::hashed_value(file.hashed.as_ref()),
    ]);
}

/// Ends a put of the machine whose files have names now. Files that it had, and that are in none of them, are marked as
/// removed: their sources had changed.
pub(super) async fn finish(db: &mut Session<'_>, put: PutId) -> Result<(), ApplyError> {
    let unused = "UPDATE concrete_files SET is_removed = 1 WHERE content IN \
         (SELECT p.content FROM file_put_files p WHERE p.put = $1 AND NOT EXISTS \
              (SELECT 1 FROM file_names n WHERE n.item = p.content AND n.is_directory = 0))";
    db.execute(unused, [put.0.into()]).await?;
    forget(db, put).await
}

async fn forget(db: &mut Session<'_>, put: PutId) -> Result<(), ApplyError> {
    db.execute("DELETE FROM file_put_files WHERE put = $1", [put.0.into()]).await?;
    db.execute("DELETE FROM file_puts WHERE put = $1", [put.0.into()]).await?;
    Ok(())
}
