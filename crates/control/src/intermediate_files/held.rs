//! Complete files that a node lists, compared with the rows. A node that comes back brings the files of the process
//! before it.
//!
//! The rule: a file on a disk is that of a row if it has its number, size and checksum, because a complete file never
//! changes. Only nodes that the row names may bring it back: lost nodes that had it, and nodes that proved at their joining
//! that they have the disks of such a node. So no node can claim a file that was never there. A lost file is complete
//! again. A file with one copy gets its second one. Anything else is surplus and removed, so that a file whose row is gone
//! never returns.

use super::{IntermediateFiles, file_changed, order_adopted};
use crate::interface::Outbox;
use crate::membership::Fleet;
use api::control::NodeOrder;
use api::intermediate::{FORMER_NODES_MAX, HeldIntermediate, IntermediateState, IntermediateStatus};
use ids::{IntermediateId, NodeId};
use rows::{Change, IntermediateReplicaRow};
use std::collections::BTreeMap;

/// The consequence of a file on a disk of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is in use here, or about to be: its holder has perhaps just sent it.
    Stays,
    /// It was lost, and a node that had it has it.
    IsBack,
    /// It becomes the second copy of a file of this node.
    SecondOf(NodeId),
    Surplus,
}

/// Records in the row of a file that a lost node had it.
pub(super) fn had_by(mut row: IntermediateStatus, node: NodeId) -> IntermediateStatus {
    if row.state == IntermediateState::Complete {
        row.former.retain(|former| *former != node);
        row.former.push(node);
        row.former.drain(..row.former.len().saturating_sub(FORMER_NODES_MAX));
    }
    row
}

/// Records that a node has the disks of these lost nodes.
pub(crate) fn disks_taken(
    all: &mut IntermediateFiles,
    outbox: &mut Outbox,
    node: NodeId,
    predecessors: &[NodeId],
) {
    let was_there =
        |row: &&mut IntermediateStatus| row.former.iter().any(|former| predecessors.contains(former));
    for row in all.files.values_mut().filter(was_there) {
        row.former.push(node);
        row.former.drain(..row.former.len().saturating_sub(FORMER_NODES_MAX));
        outbox.write(Change::Intermediate { row: Box::new(row.clone()) });
    }
}

/// Compares files on the disks of a node with their rows. Returns those that the node must drop.
pub(super) fn compare(
    all: &mut IntermediateFiles,
    fleet: &mut Fleet,
    outbox: &mut Outbox,
    node: NodeId,
    files: Vec<HeldIntermediate>,
) -> Vec<IntermediateId> {
    let (mut surplus, mut back) = (Vec::new(), Vec::new());
    let mut second: BTreeMap<NodeId, Vec<IntermediateId>> = BTreeMap::new();
    for held in files {
        let file = held.file;
        let row = all.files.get(&file).cloned();
        match (fate(row.as_ref(), node, &held), row) {
            (Fate::Stays, _) => {}
            (Fate::IsBack, Some(row)) => {
                // A lost file has a time at which its reason is forgotten.
                let kept = row.closed_ns.zip(row.keep_ns);
                let expires_ns = kept.map(|(closed_ns, keep_ns)| closed_ns.saturating_add(keep_ns));
                let state = IntermediateState::Complete;
                let row = IntermediateStatus { state, node, replica: None, expires_ns, problem: None, ..row };
                file_changed(all, fleet, outbox, row);
                back.push(file);
            }
            (Fate::SecondOf(home), Some(row)) => {
                // It was on two nodes before, so it was not single for long.
                let bytes = held.stored_bytes.min(i64::MAX as u64);
                let row_of_replica = IntermediateReplicaRow { file, node, bytes, single_ns: 0 };
                outbox.write(Change::IntermediateReplica { row: row_of_replica });
                all.insert(IntermediateStatus { replica: Some(node), ..row });
                second.entry(home).or_default().push(file);
            }
            (Fate::Surplus, _) | (_, None) => surplus.push(file),
        }
    }
    for (home, files) in second {
        if let Some(known) = fleet.get_mut(home) {
            known.order(NodeOrder::CopiedIntermediates { files, on: node });
        }
    }
    if !back.is_empty() {
        order_adopted(fleet, outbox, BTreeMap::from([(node, back)]));
    }
    surplus
}

fn fate(row: Option<&IntermediateStatus>, node: NodeId, held: &HeldIntermediate) -> Fate {
    let Some(row) = row else { return Fate::Surplus };
    let is_same = (row.bytes, row.crc32c) == (Some(held.bytes), Some(held.crc32c));
    let had_it = row.former.contains(&node);
    match row.state {
        // Its close is on its way to the server.
        IntermediateState::Writing if row.node == node => Fate::Stays,
        IntermediateState::Complete if is_same && (row.node == node || row.replica == Some(node)) => {
            Fate::Stays
        }
        IntermediateState::Complete if is_same && row.replica.is_none() => match had_it {
            true => Fate::SecondOf(row.node),
            false => Fate::Stays,
        },
        IntermediateState::Lost if is_same && had_it => Fate::IsBack,
        _ => Fate::Surplus,
    }
}

#[cfg(test)]
mod tests {
    use super::{Fate, fate};
    use api::intermediate::{HeldIntermediate, IntermediateState, IntermediateStatus};
    use api::stored::cluster::StoredGroups;
    use ids::{IntermediateId, NodeId};

    #[test]
    fn returned_file_is_judged_by_its_row() {
        let (here, other, third) = (NodeId(1), NodeId(2), NodeId(3));
        let held = HeldIntermediate { file: IntermediateId(7), bytes: 10, crc32c: 3, stored_bytes: 90 };
        let row = |state, node, replica| IntermediateStatus {
            file: held.file,
            user: "ann".to_string(),
            name: "a".to_string(),
            groups: StoredGroups::default(),
            former: vec![here],
            job: None,
            state,
            node,
            replica,
            bytes: Some(10),
            crc32c: Some(3),
            created_ns: 0,
            closed_ns: Some(1),
            keep_ns: None,
            expires_ns: None,
            problem: None,
        };
        let check = |row: Option<IntermediateStatus>, expected: Fate| {
            assert_eq!(fate(row.as_ref(), here, &held), expected, "{row:?}");
        };
        use IntermediateState::{Abandoned, Complete, Lost, Writing};
        check(None, Fate::Surplus);
        check(Some(row(Complete, here, None)), Fate::Stays);
        check(Some(row(Complete, other, Some(here))), Fate::Stays);
        check(Some(row(Complete, other, None)), Fate::SecondOf(other));
        check(Some(row(Complete, other, Some(third))), Fate::Surplus);
        check(Some(row(Lost, other, None)), Fate::IsBack);
        check(Some(row(Abandoned, other, None)), Fate::Surplus);
        // The file was never on the disks of this node.
        let foreign = |state| IntermediateStatus { former: vec![third], ..row(state, other, None) };
        check(Some(foreign(Lost)), Fate::Surplus);
        check(Some(foreign(Complete)), Fate::Stays);
        let of_writer = |node| IntermediateStatus { bytes: None, crc32c: None, ..row(Writing, node, None) };
        check(Some(of_writer(here)), Fate::Stays);
        check(Some(of_writer(other)), Fate::Surplus);
        // Another file under the same number is not the one of the row.
        for state in [Lost, Complete] {
            check(Some(IntermediateStatus { bytes: Some(11), ..row(state, other, None) }), Fate::Surplus);
            check(Some(IntermediateStatus { crc32c: Some(4), ..row(state, other, None) }), Fate::Surplus);
        }
    }
}
