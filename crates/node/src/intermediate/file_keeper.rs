//! Care for the intermediate files of users on this node: abandons files of silent writers, and copies complete files
//! to a second node, like `shuffle::replicate::parts` for parts.

use crate::intermediate::intermediate_files::{IntermediateFiles, SentFile};
use crate::link::remote::Remote;
use crate::shuffle::remote::OtherNodes;
use crate::shuffle::replicate::parts::age;
use crate::shuffle::replicate::{Offered, candidates, offer};
use api::data_access::FileCopy;
use dataport::{DataClient, DataScope, StageFileHere, StageFileName, StageFileRef, Token};
use ids::IntermediateId;
use std::sync::Weak;
use std::time::Duration;

/// Interval between two searches for silent writers, and for files without a replica.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Pause before a file that no node accepted is offered again.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

/// Watches writers until the node ends.
pub(crate) fn look_after_writers(files: &IntermediateFiles) {
    while !files.has_ended() {
        std::thread::sleep(LOOK_EVERY);
        files.look_after_writers();
    }
}

/// Replicates files until the node ends.
pub(crate) fn replicate_files(remote: &Weak<Remote>) {
    loop {
        let Some(remote) = remote.upgrade().filter(|remote| !remote.files().has_ended()) else { return };
        let waits = send_files(&remote);
        drop(remote);
        std::thread::sleep(if waits { REFUSED_PAUSE } else { LOOK_EVERY });
    }
}

/// Copies files without a replica. Returns whether any could not be copied now.
fn send_files(remote: &Remote) -> bool {
    let files = remote.files();
    let lives = |node| remote.link().peers().iter().any(|peer| peer.node == node);
    let single = files.single(lives);
    if single.is_empty() {
        return false;
    }
    let others = remote.others(None);
    let mut waits = false;
    for (file, here) in single {
        match send(remote, &others, file, &here) {
            Offered::Taken(to, bytes) => {
                let single_ns = age(&here).as_nanos() as u64;
                files.was_sent(file, SentFile { to, bytes, single_ns });
            }
            // An unreadable one is retried, rarely: a disk may come back.
            Offered::NotNow | Offered::Unreadable => waits = true,
            Offered::Cancelled => {}
        }
    }
    waits
}

/// Returns a client with the right to send a node a copy; None if the server gives none now.
fn granted(remote: &Remote, others: &OtherNodes, copy: FileCopy) -> Option<DataClient> {
    let grant = remote.link().copy_grant(copy);
    let grant =
        grant.inspect_err(|error| tracing::debug!(file = %copy.file, %error, "no right to send a copy"));
    let token = Token::new(grant.ok().flatten()?.0)?;
    Some(others.client.with_token(Some(token)))
}

/// Returns the bytes of the copy, if a node takes one.
fn send(remote: &Remote, others: &OtherNodes, file: IntermediateId, here: &StageFileHere) -> Offered<u64> {
    let files = remote.files();
    let name = StageFileName::of_user_file(file);
    let of_file = StageFileRef { name: name.clone(), payload: here.payload };
    let may_go_on = |_: usize| files.knows(file) && !files.has_ended();
    let peers = candidates(others, &name).into_iter();
    let peers = peers.filter_map(|peer| {
        let copy = FileCopy { file, to: peer.node };
        Some((peer, granted(remote, others, copy)?))
    });
    offer(&name, peers, |peer, client| {
        client.copy_stage_file(peer, DataScope::Users, &of_file, &here.path, &may_go_on)
    })
}
