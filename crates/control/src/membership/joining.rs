//! Joining of nodes: each gets a number that no node had before, and replaces the dead processes on its disks.

use crate::interface::{ControlError, Outbox, Reply};
use crate::loss::{forerunners, readmit};
use crate::membership::{NodeProcess, let_nodes_rest, lose_node, node_came};
use crate::work::Work;
use api::control::{
    NODE_NAME_BYTES_MAX, NODE_TEXT_BYTES_MAX, NodeInfo, NodeWelcome, PROTOCOL_VERSION, SLOTS_MAX,
};
use api::data_access::{DataKeys, SecretText};
use api::seen::{SEEN_PATH_BYTES_MAX, SEES_MAX, is_seen_path};
use ids::NodeId;
use rows::{Change, NodeRow, NodeState};

/// Largest memory of a node for jobs, in bytes; a larger value is a mistake, and sums of it would overflow.
const NODE_MEMORY_BYTES_MAX: u64 = 1 << 48;

/// Returns the reason why a node's description of itself is out of bounds. All of it is counted, printed and stored.
fn check_node(info: &NodeInfo) -> Result<(), String> {
    let NodeInfo { name, rack, slots, .. } = info;
    if !(1..=SLOTS_MAX).contains(slots) {
        return Err(format!("it has {slots} slots: give 1 to {SLOTS_MAX}"));
    }
    if name.is_empty() || name.len() > NODE_NAME_BYTES_MAX {
        return Err(format!("its name has {} bytes: give 1 to {NODE_NAME_BYTES_MAX}", name.len()));
    }
    if info.memory_bytes > NODE_MEMORY_BYTES_MAX {
        return Err(format!("it has {} bytes of memory: at most {NODE_MEMORY_BYTES_MAX}", info.memory_bytes));
    }
    // Other nodes connect to this URL. A node that serves no data has none.
    let is_http = ["http://", "https://"].iter().any(|scheme| info.data_url.starts_with(scheme));
    if !info.data_url.is_empty() && !is_http {
        return Err(format!("its data URL {:?} is neither http:// nor https://", info.data_url));
    }
    let (version, arch, url) = (&info.version, &info.architecture, &info.data_url);
    for (what, text) in [("rack", rack), ("version", version), ("architecture", arch), ("data URL", url)] {
        if text.len() > NODE_TEXT_BYTES_MAX {
            return Err(format!("its {what} has {} bytes: at most {NODE_TEXT_BYTES_MAX}", text.len()));
        }
    }
    info.resources.check().map_err(|error| error.to_string())?;
    if info.sees.len() > SEES_MAX {
        return Err(format!("it sees {} directories: at most {SEES_MAX}", info.sees.len()));
    }
    if let Some(dir) = info.sees.iter().find(|dir| !is_seen_path(dir)) {
        return Err(format!(
            "it sees {dir:?}, which is not an absolute path without `..`, of at most {SEEN_PATH_BYTES_MAX} bytes"
        ));
    }
    Ok(())
}

/// A node that wants to join, and its identity.
pub struct Joining {
    pub info: NodeInfo,
    /// Dead nodes whose disks it has, as it has proved.
    pub predecessors: Vec<NodeId>,
    /// SHA-256 of its secret.
    pub secret_hash: [u8; 32],
    /// Name of its join token, if the token is its own.
    pub join_token: Option<String>,
    /// Name of its process: a hash of the proof.
    pub incarnation: String,
    /// Text that proves to a later process that its disks were this node's.
    pub disk_proof: SecretText,
    /// Keys of data ports.
    pub data_keys: DataKeys,
}

/// Returns an error for a node that this server cannot admit.
pub(crate) fn check(info: &NodeInfo) -> Result<(), ControlError> {
    if info.protocol != PROTOCOL_VERSION {
        let (server, caller) = (PROTOCOL_VERSION, info.protocol);
        return Err(ControlError::ProtocolDiffers { server, caller });
    }
    check_node(info).map_err(|what| ControlError::UnusableNode { what })
}

/// Admits a node under a number that no node had before. Its claims about dead processes must have been proved.
pub(crate) fn join(
    work: &mut Work,
    outbox: &mut Outbox,
    node: NodeId,
    joining: Joining,
    reply: Reply<NodeWelcome>,
) {
    let Joining { mut info, predecessors, secret_hash, join_token, incarnation, disk_proof, data_keys } =
        joining;
    let left = std::mem::take(&mut info.left);
    // The locks of their disks were free, so their processes are dead, even if their connections seem alive.
    let mut forerunners = forerunners(&work.fleet, &left);
    let still_known = predecessors.into_iter().filter(|older| work.fleet.has(*older));
    forerunners.extend(still_known);
    forerunners.sort_unstable();
    forerunners.dedup();
    match work.fleet.namesake(&info.name).filter(|(node, _)| !forerunners.contains(node)) {
        Some((node, true)) => {
            let name = info.name;
            return outbox.answer(reply, Err(ControlError::NameTaken { name, node }));
        }
        Some((older, false)) => forerunners.push(older),
        None => {}
    }
    let now_ns = outbox.now_ns();
    let row = NodeRow {
        node,
        name: info.name.clone(),
        url: info.data_url.clone(),
        rack: info.rack.clone(),
        slots: info.slots,
        memory_bytes: info.memory_bytes,
        // Nothing depends on this value yet.
        cpu_count: info.slots,
        arch: info.architecture.clone(),
        resources: info.resources.iter().map(|(name, amount)| (name.to_string(), amount)).collect(),
        version: info.version.clone(),
        state: NodeState::Up,
        generation: 1,
        incarnation: incarnation.clone(),
        secret_hash: Some(secret_hash),
        join_token: join_token.clone(),
        sees: info.sees.clone(),
        registered_ns: now_ns,
        last_seen_ns: now_ns,
    };
    outbox.write(Change::NodeRegistered { node: row, disks: Vec::new() });
    node_came(work, outbox, node, &info);
    let process = NodeProcess { incarnation, join_token };
    let welcome = NodeWelcome { data_keys, disk_proof, ..work.fleet.add(node, process, info, outbox.now()) };
    let readmitted = readmit(work, outbox, node, left);
    work.fleet.holds(node, readmitted.iter().copied());
    for older in forerunners {
        let why = format!("{node} started on its disks");
        lose_node(work, outbox, older, NodeState::Dead, &why);
    }
    let welcome = NodeWelcome { readmitted, ..welcome };
    let replicating = work.jobs.values().filter(|job| job.replicating().is_on).map(|job| job.id());
    work.fleet.may_hold(node, replicating);
    let_nodes_rest(work, outbox);
    work.fleet.nodes_changed();
    outbox.answer(reply, Ok(welcome));
}
