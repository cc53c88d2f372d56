//! Disks of nodes with concrete files.

use crate::transaction::Ending;
use crate::{Metastore, StoreError};
use ids::DiskId;
use rows::FileDiskRow;

impl Metastore {
    /// Returns the disks with concrete files, by number.
    pub async fn file_disks(&self) -> Result<Vec<FileDiskRow>, StoreError> {
        let rows = self.rows("SELECT * FROM file_disks ORDER BY disk", []).await?;
        let disk = |row| {
            Ok(FileDiskRow {
                disk: DiskId(self.get(row, "disk")?),
                uuid: self.get(row, "uuid")?,
                node_name: self.get(row, "node_name")?,
                rack: self.get(row, "rack")?,
                secret_hash: self.get(row, "secret_hash")?,
            })
        };
        rows.iter().map(disk).collect()
    }

    /// Stores a new disk. Returns its number; that of a disk of the same name and secret is the one that it has.
    pub async fn add_file_disk(
        &self,
        uuid: &str,
        node_name: &str,
        rack: &str,
        secret_hash: &str,
    ) -> Result<DiskId, StoreError> {
        self.in_transaction(async |db| {
            let known = "SELECT disk FROM file_disks WHERE uuid = $1 AND secret_hash = $2";
            let known = db.fetch(known, [uuid.into(), secret_hash.into()]).await?;
            if let Some(row) = known.first() {
                return Ok(Ending::Rollback(DiskId(self.get(row, "disk")?)));
            }
            let disk = self.advance(db, "file_disk").await?;
            let statement = "INSERT INTO file_disks (disk, uuid, node_name, rack, secret_hash) \
                             VALUES ($1, $2, $3, $4, $5)";
            let values = [disk.into(), uuid.into(), node_name.into(), rack.into(), secret_hash.into()];
            db.execute(statement, values).await?;
            Ok(Ending::Commit(DiskId(disk)))
        })
        .await
    }

    /// Stores the node that has a disk now.
    pub async fn move_file_disk(&self, disk: DiskId, node_name: &str, rack: &str) -> Result<(), StoreError> {
        let statement = "UPDATE file_disks SET node_name = $2, rack = $3 WHERE disk = $1";
        let values = vec![disk.0.into(), node_name.into(), rack.into()];
        self.write_one(statement, values).await.map(drop)
    }
}
