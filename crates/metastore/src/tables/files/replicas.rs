//! Concrete files of a cluster, and the disks that have them.

use super::lookups::{of_version, version_value};
use crate::database::{Row, Rows, Value};
use crate::transaction::Ending;
use crate::{Metastore, StoreError};
use ids::{ConcreteId, DirectoryId, DiskId, FileVersion};
use rows::{ConcreteRow, ReplicatedFile};
use std::collections::HashMap;

/// Files of one look-up by number; a statement has a place for each.
pub(super) const FILES_AT_ONCE: usize = 32;

/// Places for the values of a look-up by number.
macro_rules! places {
    () => {
        "($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, \
          $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32)"
    };
}
pub(super) use places;

/// Returns the values of a look-up of at most [`FILES_AT_ONCE`] numbers; the last one fills the places that are left.
pub(super) fn placed(numbers: impl Iterator<Item = i64>) -> Vec<Value> {
    let mut values: Vec<Value> = numbers.take(FILES_AT_ONCE).map(Value::from).collect();
    let last = values.last().cloned().unwrap_or_else(|| (-1_i64).into());
    values.resize(FILES_AT_ONCE, last);
    values
}

impl Metastore {
    /// Stores that disks have concrete files. A file without a row, or of a machine, gets none; a removed one does, so
    /// that its replica is removed.
    pub async fn add_replicas(&self, replicas: &[(ConcreteId, DiskId)]) -> Result<(), StoreError> {
        let head = "INSERT INTO concrete_replicas (concrete, disk) \
                    SELECT c.concrete, v.column2 FROM concrete_files c JOIN";
        let tail = "ON c.concrete = v.column1 WHERE c.replicas > 0 ON CONFLICT (disk, concrete) DO NOTHING";
        self.over_replicas(head, tail, replicas).await
    }

    /// Stores that disks do not have concrete files any more.
    pub async fn drop_replicas(&self, replicas: &[(ConcreteId, DiskId)]) -> Result<(), StoreError> {
        let head =
            "DELETE FROM concrete_replicas WHERE (concrete, disk) IN (SELECT v.column1, v.column2 FROM";
        self.over_replicas(head, ")", replicas).await
    }

    async fn over_replicas(
        &self,
        head: &'static str,
        tail: &'static str,
        replicas: &[(ConcreteId, DiskId)],
    ) -> Result<(), StoreError> {
        if replicas.is_empty() {
            return Ok(());
        }
        let rows: Rows = replicas.iter().map(|(file, disk)| [file.0.into(), disk.0.into()]).collect();
        self.in_transaction(async |db| {
            db.over(head, tail, rows).await?;
            Ok(Ending::Commit(()))
        })
        .await
    }

    /// Returns at most `limit` concrete files of the cluster with higher numbers than `after`, by number, without
    /// removed ones.
    pub async fn replicated_files_after(
        &self,
        after: ConcreteId,
        limit: u32,
    ) -> Result<Vec<ReplicatedFile>, StoreError> {
        let statement = "SELECT * FROM concrete_files \
             WHERE concrete > $1 AND replicas > 0 AND is_removed = 0 ORDER BY concrete LIMIT $2";
        let rows = self.rows(statement, [after.0.into(), limit.into()]).await?;
        let files = self.replicated_files(&rows)?;
        let (Some(first), Some(last)) = (files.first(), files.last()) else { return Ok(files) };
        // Removed files between them have replicas too, perhaps very many.
        let statement = "SELECT r.* FROM concrete_files c JOIN concrete_replicas r ON r.concrete = c.concrete \
             WHERE c.concrete >= $1 AND c.concrete <= $2 AND c.replicas > 0 AND c.is_removed = 0";
        let values = [first.row.concrete.0.into(), last.row.concrete.0.into()];
        let replicas = self.rows(statement, values).await?;
        self.with_disks(files, &replicas)
    }

    /// Returns the concrete files of the cluster from one number to another, both included, by number, also removed
    /// ones.
    pub async fn replicated_files_between(
        &self,
        first: ConcreteId,
        last: ConcreteId,
    ) -> Result<Vec<ReplicatedFile>, StoreError> {
        let statement = "SELECT * FROM concrete_files \
             WHERE concrete >= $1 AND concrete <= $2 AND replicas > 0 ORDER BY concrete";
        let rows = self.rows(statement, [first.0.into(), last.0.into()]).await?;
        let statement = "SELECT * FROM concrete_replicas WHERE concrete >= $1 AND concrete <= $2";
        let replicas = self.rows(statement, [first.0.into(), last.0.into()]).await?;
        self.with_disks(self.replicated_files(&rows)?, &replicas)
    }

    /// Returns these concrete files by number, also removed ones. Those without a row, and files of a machine, are left
    /// out.
    pub async fn replicated_files_of(&self, files: &[ConcreteId]) -> Result<Vec<ReplicatedFile>, StoreError> {
        let mut numbers: Vec<i64> = files.iter().map(|file| file.0).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let mut found = Vec::with_capacity(numbers.len());
        for some in numbers.chunks(FILES_AT_ONCE) {
            let statement = concat!(
                "SELECT * FROM concrete_files WHERE replicas > 0 AND concrete IN ",
                places!(),
                " ORDER BY concrete"
            );
            let rows = self.rows(statement, placed(some.iter().copied())).await?;
            let statement = concat!("SELECT * FROM concrete_replicas WHERE concrete IN ", places!());
            let replicas = self.rows(statement, placed(some.iter().copied())).await?;
            found.extend(self.with_disks(self.replicated_files(&rows)?, &replicas)?);
        }
        Ok(found)
    }

    /// Returns the concrete files of the entries of a directory of the cluster from one name to another, both included,
    /// by content and part.
    pub async fn replicated_files_of_entries(
        &self,
        directory: DirectoryId,
        at: Option<FileVersion>,
        names: [&str; 2],
    ) -> Result<Vec<ReplicatedFile>, StoreError> {
        let values = [version_value(at), directory.0.into(), names[0].into(), names[1].into()];
        // Two names of the directory may be of one content.
        let statement = concat!(
            "SELECT * FROM concrete_files WHERE replicas > 0 AND content IN (SELECT item FROM file_names WHERE ",
            of_version!(),
            " AND directory = $2 AND name >= $3 AND name <= $4 AND is_directory = 0 AND tree = 1) \
             ORDER BY content, part"
        );
        let rows = self.rows(statement, values.clone()).await?;
        let statement = concat!(
            "SELECT r.* FROM concrete_files c JOIN concrete_replicas r ON r.concrete = c.concrete \
             WHERE c.content IN (SELECT item FROM file_names WHERE ",
            of_version!(),
            " AND directory = $2 AND name >= $3 AND name <= $4 AND is_directory = 0 AND tree = 1)"
        );
        let replicas = self.rows(statement, values).await?;
        self.with_disks(self.replicated_files(&rows)?, &replicas)
    }

    /// Returns at most `limit` concrete files that a disk has, with higher numbers than `after`, by number, without
    /// removed ones.
    pub async fn replicated_files_on(
        &self,
        disk: DiskId,
        after: ConcreteId,
        limit: u32,
    ) -> Result<Vec<ConcreteRow>, StoreError> {
        let statement = "SELECT c.* FROM concrete_replicas r JOIN concrete_files c ON c.concrete = r.concrete \
             WHERE r.disk = $1 AND r.concrete > $2 AND c.is_removed = 0 ORDER BY r.concrete LIMIT $3";
        let rows = self.rows(statement, [disk.0.into(), after.0.into(), limit.into()]).await?;
        self.concrete_rows(&rows)
    }

    /// Returns at most `limit` concrete files of the cluster that no name needs any more, by number. Their replicas are
    /// to be removed.
    pub async fn removed_cluster_files(&self, limit: u32) -> Result<Vec<ReplicatedFile>, StoreError> {
        let statement = "SELECT * FROM concrete_files WHERE is_removed = 1 AND replicas > 0 \
                         ORDER BY concrete LIMIT $1";
        let rows = self.rows(statement, [limit.into()]).await?;
        let files = self.replicated_files(&rows)?;
        let (Some(first), Some(last)) = (files.first(), files.last()) else { return Ok(files) };
        let statement = "SELECT r.* FROM concrete_files c JOIN concrete_replicas r ON r.concrete = c.concrete \
             WHERE c.concrete >= $1 AND c.concrete <= $2 AND c.is_removed = 1 AND c.replicas > 0";
        let values = [first.row.concrete.0.into(), last.row.concrete.0.into()];
        let replicas = self.rows(statement, values).await?;
        self.with_disks(files, &replicas)
    }

    /// Forgets removed concrete files of the cluster that no disk has any more; others stay.
    pub async fn forget_removed_cluster_files(&self, files: &[ConcreteId]) -> Result<(), StoreError> {
        if files.is_empty() {
            return Ok(());
        }
        let rows: Rows = files.iter().map(|file| [file.0.into()]).collect();
        let head = "DELETE FROM concrete_files WHERE concrete IN (SELECT v.column1 FROM";
        let tail = ") AND is_removed = 1 AND replicas > 0 AND NOT EXISTS \
             (SELECT 1 FROM concrete_replicas r WHERE r.concrete = concrete_files.concrete)";
        self.in_transaction(async |db| {
            db.over(head, tail, rows).await?;
            Ok(Ending::Commit(()))
        })
        .await
    }

    /// Returns files from their rows, without disks.
    fn replicated_files(&self, rows: &[Row]) -> Result<Vec<ReplicatedFile>, StoreError> {
        let one = |row| {
            Ok(ReplicatedFile {
                row: self.concrete_row(row)?,
                replicas: self.number(row, "replicas")?,
                is_removed: self.get::<i64>(row, "is_removed")? != 0,
                disks: Vec::new(),
            })
        };
        rows.iter().map(one).collect()
    }

    /// Adds the disks to files. Replicas of other files are passed over.
    fn with_disks(
        &self,
        mut files: Vec<ReplicatedFile>,
        replicas: &[Row],
    ) -> Result<Vec<ReplicatedFile>, StoreError> {
        let places: HashMap<ConcreteId, usize> =
            files.iter().enumerate().map(|(index, file)| (file.row.concrete, index)).collect();
        for row in replicas {
            let concrete = ConcreteId(self.get(row, "concrete")?);
            if let Some(index) = places.get(&concrete) {
                files[*index].disks.push(DiskId(self.get(row, "disk")?));
            }
        }
        files.iter_mut().for_each(|file| file.disks.sort_unstable());
        Ok(files)
    }
}
