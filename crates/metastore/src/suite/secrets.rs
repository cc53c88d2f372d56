//! By what people and nodes are known, and what data ports let in.

use super::node;
use crate::fleet::NodeSecretRow;
use crate::{AuditRow, Change, DATA_KEYS_MAX, DataKeyRow, Metastore, NodeRow, NodeState, Role, TokenRow};
use ids::NodeId;

pub(crate) async fn people_come_by_their_tokens(store: &Metastore) {
    let token = |name: &str, byte| TokenRow {
        token: name.to_string(),
        user: "ann".to_string(),
        hash: [byte; 32],
        created_ns: 2,
        expires_ns: Some(99),
        revoked_ns: None,
    };
    let added = |role| Change::UserAdded { name: "ann".to_string(), role, now_ns: 1 };
    let issued = |token| Change::TokenIssued { token };
    let audit = AuditRow {
        time_ns: 5,
        user: Some("ann".to_string()),
        source: Some("10.0.0.7".to_string()),
        action: "DELETE /v1/jobs/7".to_string(),
        target: "job 7".to_string(),
        allowed: false,
        detail: None,
    };
    store
        .apply(&[
            added(Role::User),
            issued(token("t1", 1)),
            issued(token("t2", 2)),
            Change::TokenRevoked { token: "t2".to_string(), now_ns: 3 },
            Change::TokenRevoked { token: "t2".to_string(), now_ns: 4 },
            Change::Audit { row: audit.clone() },
        ])
        .await
        .unwrap();
    let (found, user) = store.token_by_hash(&[1; 32]).await.unwrap().unwrap();
    assert_eq!((found, user.role, user.disabled_ns), (token("t1", 1), Role::User, None));
    assert_eq!(store.token_by_hash(&[2; 32]).await.unwrap().unwrap().0.revoked_ns, Some(3));
    assert_eq!(store.token_by_hash(&[3; 32]).await.unwrap(), None);
    assert_eq!(store.tokens().await.unwrap().len(), 2);
    assert_eq!(store.audit(10).await.unwrap(), [audit]);
    let changed = Change::UserChanged { name: "ann".to_string(), role: Role::ReadOnly, disabled_ns: Some(6) };
    store.apply(&[changed]).await.unwrap();
    let user = store.users().await.unwrap().remove(0);
    assert_eq!((user.role, user.disabled_ns), (Role::ReadOnly, Some(6)));
    // One user of a name, no token of nobody, no token twice.
    assert!(store.apply(&[added(Role::Admin)]).await.is_err());
    let of_nobody = TokenRow { user: "bob".to_string(), ..token("t3", 3) };
    assert!(store.apply(&[issued(of_nobody)]).await.is_err());
    assert!(store.apply(&[issued(token("t4", 1))]).await.is_err());
}

pub(crate) async fn nodes_are_known_by_their_secrets(store: &Metastore) {
    let joined = |number: u32, token: Option<&str>| {
        let secret_hash = Some([number as u8; 32]);
        let join_token = token.map(str::to_string);
        let node = NodeRow { secret_hash, join_token, ..node(number, &format!("n{number}")) };
        Change::NodeRegistered { node, disks: Vec::new() }
    };
    let before = Change::NodeRegistered { node: node(9, "before"), disks: Vec::new() };
    let state = |node, state| Change::NodeStateChanged { node: NodeId(node), state, now_ns: 7 };
    store
        .apply(&[
            before,
            joined(1, Some("t1")),
            joined(2, None),
            joined(3, None),
            joined(4, Some("t1")),
            joined(5, None),
            state(3, NodeState::Dead),
            state(4, NodeState::Left),
            state(5, NodeState::Draining),
        ])
        .await
        .unwrap();
    let known = store.node_secrets().await.unwrap();
    let row = |number: u32, token: Option<&str>| {
        let (node, hash) = (NodeId(number), [number as u8; 32]);
        NodeSecretRow { node, hash, join_token: token.map(str::to_string) }
    };
    assert_eq!(known, [row(1, Some("t1")), row(2, None), row(5, None)]);
    assert_eq!(store.node_named("n1").await.unwrap().unwrap().join_token.as_deref(), Some("t1"));
}

pub(crate) async fn keys_of_data_ports_are_remembered(store: &Metastore) {
    let made = |key: &str, withdraws_earlier, now_ns| {
        let public_key = key.to_string();
        Change::DataKeyMade { public_key, withdraws_earlier, now_ns }
    };
    let row = |key: &str, withdrawn_ns| DataKeyRow { public_key: key.to_string(), withdrawn_ns };
    assert_eq!(store.data_keys().await.unwrap(), []);
    store.apply(&[made("a", false, 1)]).await.unwrap();
    store.apply(&[made("b", true, 2)]).await.unwrap();
    store.apply(&[made("c", false, 3)]).await.unwrap();
    let expected = [row("c", None), row("b", None), row("a", Some(2))];
    assert_eq!(store.data_keys().await.unwrap(), expected);
    // The first time stands.
    store.apply(&[made("d", true, 4)]).await.unwrap();
    let expected = [row("d", None), row("c", Some(4)), row("b", Some(4)), row("a", Some(2))];
    assert_eq!(store.data_keys().await.unwrap(), expected);
    let many: Vec<Change> = (0..DATA_KEYS_MAX).map(|key| made(&key.to_string(), false, 5)).collect();
    store.apply(&many).await.unwrap();
    let kept = store.data_keys().await.unwrap();
    assert_eq!((kept.len() as u32, kept.iter().any(|row| row.public_key == "d")), (DATA_KEYS_MAX, false));
}
