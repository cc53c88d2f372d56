//! Commands that inspect jobs, outputs, nodes and files, and change nothing, except for draining a node.

pub mod explain;
pub mod fsck;
pub mod ifile_files;
pub mod jobs;
pub mod lineage;
pub mod nodes;
pub mod output_place;
pub mod report;
pub mod show;
pub mod state;
pub mod timeline;
pub mod usage;
pub mod verify;
