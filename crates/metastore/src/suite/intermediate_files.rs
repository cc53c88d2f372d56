//! Tests of intermediate files of users.

use crate::{Change, GroupRefusal, IntermediateReplicaRow, Metastore};
use api::intermediate::{IntermediateState, IntermediateStatus};
use api::stored::cluster::StoredGroups;
use ids::{IntermediateId, JobId, NodeId};

fn row(file: IntermediateId, name: &str) -> IntermediateStatus {
    IntermediateStatus {
        file,
        user: "ann".to_string(),
        name: name.to_string(),
        groups: StoredGroups::default(),
        former: Vec::new(),
        job: Some(JobId(3)),
        state: IntermediateState::Writing,
        node: NodeId(2),
        replica: None,
        bytes: None,
        crc32c: None,
        created_ns: 5,
        closed_ns: None,
        keep_ns: Some(7),
        expires_ns: None,
        problem: None,
    }
}

pub(crate) async fn intermediate_files_are_remembered(store: &Metastore) {
    let (first, second) =
        (store.reserve_intermediate_id().await.unwrap(), store.reserve_intermediate_id().await.unwrap());
    assert_eq!((first, second), (IntermediateId(1), IntermediateId(2)));
    let one = row(first, "a/b");
    let other = IntermediateStatus { job: None, keep_ns: None, ..row(second, "c") };
    let made = [one.clone(), other.clone()].map(|row| Change::Intermediate { row: Box::new(row) });
    store.apply(&made).await.unwrap();
    assert_eq!(store.intermediate_files().await.unwrap(), [one.clone(), other.clone()]);
    // A name belongs to one file.
    let again = Change::Intermediate { row: Box::new(row(IntermediateId(9), "c")) };
    assert!(store.apply(&[again]).await.is_err());
    let closed = IntermediateStatus {
        state: IntermediateState::Complete,
        bytes: Some(1 << 40),
        crc32c: Some(u32::MAX),
        closed_ns: Some(6),
        expires_ns: Some(13),
        ..one
    };
    let replica = |file, node| {
        let row = IntermediateReplicaRow { file, node: NodeId(node), bytes: 80, single_ns: 9 };
        Change::IntermediateReplica { row }
    };
    store
        .apply(&[
            Change::Intermediate { row: Box::new(closed.clone()) },
            replica(first, 4),
            replica(first, 5),
        ])
        .await
        .unwrap();
    let with_replica = IntermediateStatus { replica: Some(NodeId(5)), ..closed.clone() };
    assert_eq!(store.intermediate_files().await.unwrap(), [with_replica, other.clone()]);
    let moved = IntermediateStatus { node: NodeId(5), former: vec![NodeId(2), NodeId(7)], ..closed };
    let moves = [
        Change::Intermediate { row: Box::new(moved.clone()) },
        Change::IntermediateReplicaGone { file: first },
    ];
    store.apply(&moves).await.unwrap();
    assert_eq!(store.intermediate_files().await.unwrap(), [moved, other.clone()]);
    let (team, crew) = ("crew".to_string(), "shift".to_string());
    let groups = StoredGroups { read: Some(team.clone()), write: Some(crew.clone()) };
    let other = IntermediateStatus { user: "ben".to_string(), groups, ..other };
    store.apply(&[Change::Intermediate { row: Box::new(other.clone()) }]).await.unwrap();
    assert_eq!(store.intermediate_files().await.unwrap()[1], other);
    // Nobody would get the rights of a deleted group by a new one of its name.
    for group in [&team, &crew] {
        assert_eq!(store.create_group(group, 1).await.unwrap(), Err(GroupRefusal::StillNamed(group.clone())));
        assert_eq!(store.missing_group(std::slice::from_ref(group)).await.unwrap(), Some(group.clone()));
    }
    let removed = [replica(second, 4), Change::IntermediateRemoved { file: second }];
    store.apply(&removed).await.unwrap();
    assert_eq!(store.intermediate_files().await.unwrap().len(), 1);
    let replicas = store.rows("SELECT file FROM intermediate_file_replicas", []).await.unwrap();
    assert!(replicas.is_empty());
}
