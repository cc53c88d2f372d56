//! The nodes: their racks and disks, their samples, the locations of replicas, and the placement of attempts. Times are
//! nanoseconds since 1970.

use crate::database::{Row, Rows, Session};
use crate::transaction::ApplyError;
use crate::{Metastore, StoreError};
use ids::{AttemptKey, DiskIndex, JobId, NodeId, RunId, TaskIndex};
use rows::{
    Change, DiskRow, DiskState, NodeRow, NodeSecretRow, NodeState, PartReplicaRow, ReplicaRow, ReplicaState,
    SampleRow,
};
use std::path::PathBuf;

impl Metastore {
    /// Reserves the number of a new node. Numbers count from 1: 0 is the embedded node.
    pub async fn reserve_node_id(&self) -> Result<NodeId, StoreError> {
        let value = self.next_of_sequence("node", 1).await?;
        u32::try_from(value).map(NodeId).map_err(|_| self.damaged("sequences.value", value))
    }

    /// Returns every node that ever registered, by number.
    pub async fn nodes(&self) -> Result<Vec<NodeRow>, StoreError> {
        let rows = self.rows("SELECT * FROM nodes ORDER BY node", []).await?;
        rows.iter().map(|row| self.node_row(row)).collect()
    }

    /// Returns nodes that died after a time in nanoseconds since 1970 and have not come back, most recent first.
    pub async fn dead_nodes(&self, since_ns: u64, count_max: u32) -> Result<Vec<NodeRow>, StoreError> {
        // A node that came back as another process has passed its name on.
        let statement = "SELECT * FROM nodes WHERE state = 'dead' AND last_seen_ns >= $1 AND name NOT LIKE '% (node-' || node || ')' \
                         ORDER BY last_seen_ns DESC LIMIT $2";
        let rows = self.rows(statement, [since_ns.into(), count_max.into()]).await?;
        rows.iter().map(|row| self.node_row(row)).collect()
    }

    /// Returns the node of a name.
    pub async fn node_named(&self, name: &str) -> Result<Option<NodeRow>, StoreError> {
        let rows = self.rows("SELECT * FROM nodes WHERE name = $1", [name.into()]).await?;
        rows.first().map(|row| self.node_row(row)).transpose()
    }

    /// Returns the secrets of all nodes in the cluster.
    pub async fn node_secrets(&self) -> Result<Vec<NodeSecretRow>, StoreError> {
        let statement = "SELECT node, secret_hash, join_token FROM nodes \
                         WHERE secret_hash IS NOT NULL AND state NOT IN ('dead', 'left') ORDER BY node";
        let mut secrets = Vec::new();
        for row in &self.rows(statement, []).await? {
            let Some(hash) = self.secret_hash(row)? else { continue };
            let node = NodeId(self.number(row, "node")?);
            secrets.push(NodeSecretRow { node, hash, join_token: self.get(row, "join_token")? });
        }
        Ok(secrets)
    }

    fn secret_hash(&self, row: &Row) -> Result<Option<[u8; 32]>, StoreError> {
        let hash: Option<Vec<u8>> = self.get(row, "secret_hash")?;
        let hash = hash.map(<[u8; 32]>::try_from).transpose();
        hash.map_err(|hash| self.damaged("nodes.secret_hash", hash.len()))
    }

    fn node_row(&self, row: &Row) -> Result<NodeRow, StoreError> {
        Ok(NodeRow {
            node: NodeId(self.number(row, "node")?),
            name: self.get(row, "name")?,
            url: self.get(row, "url")?,
            rack: self.get(row, "rack")?,
            slots: self.number(row, "slots")?,
            memory_bytes: self.number(row, "memory_bytes")?,
            cpu_count: self.number(row, "cpu_count")?,
            arch: self.get(row, "arch")?,
            resources: self.json(row, "resources")?,
            version: self.get(row, "version")?,
            state: self.word(row, "state", NodeState::parse)?,
            generation: self.number(row, "generation")?,
            incarnation: self.get(row, "incarnation")?,
            secret_hash: self.secret_hash(row)?,
            join_token: self.get(row, "join_token")?,
            sees: self.json(row, "sees")?,
            registered_ns: self.number(row, "registered_ns")?,
            last_seen_ns: self.number(row, "last_seen_ns")?,
        })
    }

    /// Returns the disks of all nodes, by node and position.
    pub async fn disks(&self) -> Result<Vec<(NodeId, DiskRow)>, StoreError> {
        let disk_row = |row: &Row| {
            let disk = DiskRow {
                disk: DiskIndex(self.number(row, "disk")?),
                path: PathBuf::from(self.get::<String>(row, "path")?),
                total_bytes: self.number(row, "total_bytes")?,
                free_bytes: self.number(row, "free_bytes")?,
                state: self.word(row, "state", DiskState::parse)?,
            };
            Ok((NodeId(self.number(row, "node")?), disk))
        };
        self.rows("SELECT * FROM disks ORDER BY node, disk", []).await?.iter().map(disk_row).collect()
    }

    /// Returns the racks of all nodes so far.
    pub async fn racks(&self) -> Result<Vec<String>, StoreError> {
        let rows = self.rows("SELECT rack FROM racks ORDER BY rack", []).await?;
        rows.iter().map(|row| self.get(row, "rack")).collect()
    }

    /// Returns the latest samples of a node, oldest first.
    pub async fn samples(&self, node: NodeId, count_max: u32) -> Result<Vec<SampleRow>, StoreError> {
        let statement = "SELECT * FROM (SELECT * FROM machine_samples WHERE node = $1 ORDER BY time_ns DESC LIMIT $2) AS latest \
                         ORDER BY time_ns";
        let sample_row = |row: &Row| {
            Ok(SampleRow {
                node: NodeId(self.number(row, "node")?),
                time_ns: self.number(row, "time_ns")?,
                cpu_permille: self.number(row, "cpu_permille")?,
                memory_used_bytes: self.number(row, "memory_used_bytes")?,
                disk_busy_permille: self.number(row, "disk_busy_permille")?,
                disk_read_bytes: self.number(row, "disk_read_bytes")?,
                disk_written_bytes: self.number(row, "disk_written_bytes")?,
                network_received_bytes: self.number(row, "network_received_bytes")?,
                network_sent_bytes: self.number(row, "network_sent_bytes")?,
                appended_bytes: self.number(row, "appended_bytes")?,
            })
        };
        self.rows(statement, [node.0.into(), count_max.into()]).await?.iter().map(sample_row).collect()
    }

    /// Returns the replicas of the runs of a job.
    pub async fn replicas(&self, job: JobId) -> Result<Vec<ReplicaRow>, StoreError> {
        let rows =
            self.rows("SELECT * FROM run_replicas WHERE job = $1 ORDER BY run, node", [job.0.into()]).await?;
        rows.iter().map(|row| self.replica_row(row)).collect()
    }

    pub(crate) fn part_replica_row(&self, row: &Row) -> Result<PartReplicaRow, StoreError> {
        Ok(PartReplicaRow {
            task: TaskIndex(self.number(row, "task")?),
            node: NodeId(self.number(row, "node")?),
            bytes: self.number(row, "bytes")?,
            single_ns: self.number(row, "single_ns")?,
            sending_ns: self.number(row, "sending_ns")?,
        })
    }

    pub(crate) fn replica_row(&self, row: &Row) -> Result<ReplicaRow, StoreError> {
        Ok(ReplicaRow {
            run: RunId(self.number(row, "run")?),
            node: NodeId(self.number(row, "node")?),
            state: self.word(row, "state", ReplicaState::parse)?,
            chunks: self.json(row, "chunks")?,
            bytes: self.number(row, "bytes")?,
            single_ns: self.number(row, "single_ns")?,
            sending_ns: self.number(row, "sending_ns")?,
        })
    }

    /// Returns the reasons for the placement of a job's attempts, as JSON, in order of stage, task and attempt.
    pub async fn placements(&self, job: JobId) -> Result<Vec<(AttemptKey, String)>, StoreError> {
        let statement = "SELECT * FROM placements WHERE job = $1 ORDER BY stage, task, attempt";
        let rows = self.rows(statement, [job.0.into()]).await?;
        rows.iter().map(|row| Ok((self.attempt_key(row)?, self.get(row, "reason")?))).collect()
    }
}

pub(crate) async fn apply_one(db: &mut Session<'_>, change: &Change) -> Result<(), ApplyError> {
    match change {
        Change::NodeRegistered { node, disks: rows } => {
            registered(db, node).await?;
            disks(db, node.node, rows).await
        }
        Change::NodeStateChanged { node, state, now_ns } => {
            let is_news = "UPDATE nodes SET state = $2 WHERE node = $1 AND state <> $2";
            if db.execute(is_news, [node.0.into(), state.word().into()]).await? == 1 {
                let kind = format!("node {}", state.word());
                let values = [(*now_ns).into(), kind.into(), node.to_string().into()];
                db.execute("INSERT INTO events (time_ns, kind, detail) VALUES ($1, $2, $3)", values).await?;
            }
            Ok(())
        }
        Change::NodesSeen { nodes } => {
            let rows = nodes.iter().map(|(node, now_ns)| [node.0.into(), (*now_ns).into()]).collect();
            let head = "UPDATE nodes SET last_seen_ns = v.column2";
            Ok(db.update(head, "WHERE nodes.node = v.column1", rows).await?)
        }
        Change::Disks { node, disks: rows } => disks(db, *node, rows).await,
        Change::Samples { rows } => samples(db, rows).await,
        Change::SamplesForgotten { before_ns } => {
            db.execute("DELETE FROM machine_samples WHERE time_ns < $1", [(*before_ns).into()]).await?;
            Ok(())
        }
        other => unreachable!("{other:?} is no change of machines"),
    }
}

async fn registered(db: &mut Session<'_>, node: &NodeRow) -> Result<(), ApplyError> {
    let rack = [node.rack.as_str().into(), node.registered_ns.into()];
    db.execute("INSERT INTO racks (rack, first_seen_ns) VALUES ($1, $2) ON CONFLICT (rack) DO NOTHING", rack)
        .await?;
    // A process that joins under the name of another one is a new node; the older row keeps its number.
    let older = "UPDATE nodes SET name = name || ' (node-' || node || ')', state = 'dead' WHERE name = $1 AND node <> $2";
    db.execute(older, [node.name.as_str().into(), node.node.0.into()]).await?;
    let values = [
        node.node.0.into(),
        node.name.as_str().into(),
        node.url.as_str().into(),
        node.rack.as_str().into(),
        node.slots.into(),
        node.memory_bytes.into(),
        node.cpu_count.into(),
        node.arch.as_str().into(),
        node.version.as_str().into(),
        node.state.word().into(),
        node.generation.into(),
        node.incarnation.as_str().into(),
        node.registered_ns.into(),
        node.last_seen_ns.into(),
        node.secret_hash.as_ref().map(<[u8; 32]>::as_slice).into(),
        node.join_token.as_deref().into(),
        crate::convert::json(&node.sees)?.into(),
        crate::convert::json(&node.resources)?.into(),
    ];
    let statement = "INSERT INTO nodes (node, name, url, rack, slots, memory_bytes, cpu_count, arch, version, state, \
         generation, incarnation, registered_ns, last_seen_ns, secret_hash, join_token, sees, resources) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18) \
         ON CONFLICT (node) DO UPDATE SET name = excluded.name, url = excluded.url, rack = excluded.rack, \
         slots = excluded.slots, memory_bytes = excluded.memory_bytes, cpu_count = excluded.cpu_count, \
         arch = excluded.arch, version = excluded.version, state = excluded.state, generation = excluded.generation, \
         incarnation = excluded.incarnation, registered_ns = excluded.registered_ns, \
         last_seen_ns = excluded.last_seen_ns, secret_hash = excluded.secret_hash, join_token = excluded.join_token, \
         sees = excluded.sees, resources = excluded.resources";
    db.execute(statement, values).await?;
    let detail = format!("{} {} at {}, generation {}", node.node, node.name, node.url, node.generation);
    let values = [node.registered_ns.into(), "node registered".into(), detail.into()];
    db.execute("INSERT INTO events (time_ns, kind, detail) VALUES ($1, $2, $3)", values).await?;
    Ok(())
}

async fn disks(db: &mut Session<'_>, node: NodeId, disks: &[DiskRow]) -> Result<(), ApplyError> {
    let mut rows = Rows::default();
    for disk in disks {
        rows.push([
            node.0.into(),
            disk.disk.0.into(),
            crate::convert::path_text(&disk.path)?.into(),
            disk.total_bytes.into(),
            disk.free_bytes.into(),
            disk.state.word().into(),
        ]);
    }
    let after = "ON CONFLICT (node, disk) DO UPDATE SET path = excluded.path, total_bytes = excluded.total_bytes, \
                 free_bytes = excluded.free_bytes, state = excluded.state";
    Ok(db.insert("disks", "node, disk, path, total_bytes, free_bytes, state", after, rows).await?)
}

async fn samples(db: &mut Session<'_>, samples: &[SampleRow]) -> Result<(), ApplyError> {
    let columns = "node, time_ns, cpu_permille, memory_used_bytes, disk_busy_permille, disk_read_bytes, \
                   disk_written_bytes, network_received_bytes, network_sent_bytes, appended_bytes";
    let row = |sample: &SampleRow| {
        [
            sample.node.0.into(),
            sample.time_ns.into(),
            sample.cpu_permille.into(),
            sample.memory_used_bytes.into(),
            sample.disk_busy_permille.into(),
            sample.disk_read_bytes.into(),
            sample.disk_written_bytes.into(),
            sample.network_received_bytes.into(),
            sample.network_sent_bytes.into(),
            sample.appended_bytes.into(),
        ]
    };
    // A clock that was set back may repeat a time.
    let after = "ON CONFLICT (node, time_ns) DO NOTHING";
    Ok(db.insert("machine_samples", columns, after, samples.iter().map(row).collect()).await?)
}
