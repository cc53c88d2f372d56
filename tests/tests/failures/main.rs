//! Failures in a cluster: processes that are killed, nodes that are lost or come back, disks, damaged data, chaos.

mod chaos;
mod cluster_kills;
mod damaged_data;
mod drill;
mod files_chaos;
mod flips;
mod flow_failures;
mod fsck;
mod kept_on_nodes;
mod lost_data;
mod node_disks;
mod replicas;
mod returning_nodes;
mod selective;
mod stored_replicas;
mod supervised;
mod workflow_chaos;
