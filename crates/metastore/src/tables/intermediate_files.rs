//! Intermediate files of users: a row for each file, and one for its replica.

use crate::database::{Row, Session};
use crate::transaction::ApplyError;
use crate::{Metastore, StoreError};
use api::intermediate::{IntermediateState, IntermediateStatus};
use api::stored::cluster::StoredGroups;
use ids::{IntermediateId, JobId, NodeId};
use rows::Change;

impl Metastore {
    /// Reserves the number of a new file. A number that is never used does no harm.
    pub async fn reserve_intermediate_id(&self) -> Result<IntermediateId, StoreError> {
        Ok(IntermediateId(self.next_of_sequence("intermediate", 1).await?))
    }

    /// Returns all files, by number.
    pub async fn intermediate_files(&self) -> Result<Vec<IntermediateStatus>, StoreError> {
        let statement = "SELECT f.*, r.node AS replica FROM intermediate_files f \
                         LEFT JOIN intermediate_file_replicas r ON r.file = f.file ORDER BY f.file";
        let rows = self.rows(statement, []).await?;
        rows.iter().map(|row| self.intermediate_row(row)).collect()
    }

    fn intermediate_row(&self, row: &Row) -> Result<IntermediateStatus, StoreError> {
        Ok(IntermediateStatus {
            file: IntermediateId(self.get(row, "file")?),
            user: self.get(row, "user_name")?,
            name: self.get(row, "name")?,
            groups: StoredGroups { read: self.get(row, "read_group")?, write: self.get(row, "write_group")? },
            former: self.json(row, "former")?,
            job: self.get::<Option<i64>>(row, "job")?.map(JobId),
            state: self.word(row, "state", IntermediateState::parse)?,
            node: NodeId(self.number(row, "node")?),
            replica: self.number_or_none(row, "replica")?.map(NodeId),
            bytes: self.number_or_none(row, "bytes")?,
            crc32c: self.number_or_none(row, "crc32c")?,
            created_ns: self.number(row, "created_ns")?,
            closed_ns: self.number_or_none(row, "closed_ns")?,
            keep_ns: self.number_or_none(row, "keep_ns")?,
            expires_ns: self.number_or_none(row, "expires_ns")?,
            problem: self.get(row, "problem")?,
        })
    }
}

pub(crate) async fn apply_one(db: &mut Session<'_>, change: &Change) -> Result<(), ApplyError> {
    match change {
        Change::Intermediate { row } => {
            let values = [
                row.file.0.into(),
                row.user.as_str().into(),
                row.name.as_str().into(),
                row.job.map(|job| job.0).into(),
                row.state.word().into(),
                row.node.0.into(),
                row.bytes.into(),
                row.crc32c.into(),
                row.created_ns.into(),
                row.closed_ns.into(),
                row.keep_ns.into(),
                row.expires_ns.into(),
                row.problem.clone().into(),
                row.groups.read.clone().into(),
                row.groups.write.clone().into(),
                crate::convert::json(&row.former)?.into(),
            ];
            let statement = "INSERT INTO intermediate_files (file, user_name, name, job, state, node, bytes, crc32c, \
                 created_ns, closed_ns, keep_ns, expires_ns, problem, read_group, write_group, former) \
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) \
                 ON CONFLICT (file) DO UPDATE SET user_name = excluded.user_name, state = excluded.state, \
                 node = excluded.node, bytes = excluded.bytes, crc32c = excluded.crc32c, closed_ns = excluded.closed_ns, \
                 expires_ns = excluded.expires_ns, problem = excluded.problem, read_group = excluded.read_group, \
                 write_group = excluded.write_group, former = excluded.former";
            db.execute(statement, values).await?;
        }
        Change::IntermediateReplica { row } => {
            let values = [row.file.0.into(), row.node.0.into(), row.bytes.into(), row.single_ns.into()];
            let statement = "INSERT INTO intermediate_file_replicas (file, node, bytes, single_ns) VALUES ($1, $2, $3, $4) \
                 ON CONFLICT (file) DO UPDATE SET node = excluded.node, bytes = excluded.bytes, \
                 single_ns = excluded.single_ns";
            db.execute(statement, values).await?;
        }
        Change::IntermediateReplicaGone { file } => {
            db.execute("DELETE FROM intermediate_file_replicas WHERE file = $1", [file.0.into()]).await?;
        }
        Change::IntermediateRemoved { file } => {
            db.execute("DELETE FROM intermediate_file_replicas WHERE file = $1", [file.0.into()]).await?;
            db.execute("DELETE FROM intermediate_files WHERE file = $1", [file.0.into()]).await?;
        }
        other => unreachable!("{other:?} is no change of intermediate files"),
    }
    Ok(())
}
