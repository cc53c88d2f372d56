//! Placement of all tasks of a stage against brute force on small cases, and the ways of shared inputs.

use ids::NodeId;
use proptest::collection::vec;
use proptest::prelude::*;
use scheduler::{
    Fetch, FetchTree, InputPlace, NodeOfRack, NodeRoom, PlacedTask, Proximity, Reach, SERVES_MAX,
    fetch_trees, place,
};
use std::collections::{BTreeMap, BTreeSet};

/// Nodes with these free slots of these slots, in two racks.
fn rooms(slots: &[(u32, u32)]) -> Vec<NodeRoom> {
    let room = |(index, (free_slots, more)): (usize, &(u32, u32))| NodeRoom {
        node: NodeId(index as u32),
        rack: index as u32 % 2,
        free_slots: *free_slots,
        slots: free_slots + more,
    };
    slots.iter().enumerate().map(room).collect()
}

fn inputs(nodes: &[Vec<u32>], reach: Reach) -> Vec<InputPlace> {
    nodes
        .iter()
        .map(|nodes| InputPlace { nodes: nodes.iter().copied().map(NodeId).collect(), reach })
        .collect()
}

/// The number of tasks that each node takes: the smallest number of waves with room for all.
fn capacities(tasks: usize, nodes: &[NodeRoom]) -> BTreeMap<NodeId, usize> {
    let slots = |node: &NodeRoom, waves: usize| node.free_slots as usize + waves * node.slots as usize;
    let is_enough = |waves: &usize| nodes.iter().map(|node| slots(node, *waves)).sum::<usize>() >= tasks;
    let waves = (0..=tasks).find(is_enough).unwrap_or(0);
    nodes.iter().map(|node| (node.node, slots(node, waves))).collect()
}

/// The largest number of tasks on a replica, over all ways to place them.
fn most_by_brute_force(tasks: &[InputPlace], left: &mut BTreeMap<NodeId, usize>) -> usize {
    let Some((task, others)) = tasks.split_first() else { return 0 };
    let mut most = most_by_brute_force(others, left);
    for node in task.nodes.iter().collect::<BTreeSet<_>>() {
        if left.get(node).is_some_and(|left| *left > 0) {
            *left.get_mut(node).unwrap() -= 1;
            most = most.max(1 + most_by_brute_force(others, left));
            *left.get_mut(node).unwrap() += 1;
        }
    }
    most
}

fn count(placed: &[Option<PlacedTask>], node: NodeId) -> usize {
    placed.iter().flatten().filter(|place| place.node == node).count()
}

fn check_placed(tasks: &[InputPlace], nodes: &[NodeRoom]) {
    let placed = place(tasks, nodes);
    assert_eq!(placed.len(), tasks.len());
    let mut capacities = capacities(tasks.len(), nodes);
    let has_room = |node: &NodeId| capacities.get(node).is_some_and(|most| count(&placed, *node) < *most);
    let rack = |node: &NodeId| nodes.iter().find(|other| other.node == *node).map(|node| node.rack);
    for (task, place) in tasks.iter().zip(&placed) {
        let Some(PlacedTask { node, proximity }) = place else {
            assert_eq!(capacities.values().sum::<usize>(), 0, "{task:?} has no node");
            continue;
        };
        let is_near = task.nodes.iter().any(|replica| rack(replica) == rack(node));
        let expected = match (task.nodes.contains(node), is_near) {
            (true, _) => Proximity::OnReplica,
            (false, true) => Proximity::InRackOfReplica,
            (false, false) => Proximity::Elsewhere,
        };
        assert_eq!(*proximity, expected, "{task:?} on {node:?}");
        assert!(
            expected == Proximity::OnReplica || !task.nodes.iter().any(has_room),
            "{task:?} could be local"
        );
    }
    for (node, most) in &capacities {
        assert!(count(&placed, *node) <= *most, "{node:?} takes {most}: {placed:?}");
    }
    let local = placed.iter().flatten().filter(|place| place.proximity == Proximity::OnReplica).count();
    assert_eq!(local, most_by_brute_force(tasks, &mut capacities), "{placed:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn placement_is_the_best_by_brute_force(
        nodes in vec(vec(0_u32..6, 0..4), 0..9),
        slots in vec((0_u32..3, 0_u32..2), 0..6),
    ) {
        check_placed(&inputs(&nodes, Reach::Anywhere), &rooms(&slots));
    }

    #[test]
    fn bound_tasks_run_only_where_their_input_is(
        bound in vec(vec(0_u32..5, 0..3), 0..8),
        free in vec(vec(0_u32..5, 0..3), 0..8),
        slots in vec((0_u32..3, 0_u32..2), 1..5),
    ) {
        let nodes = rooms(&slots);
        let tasks = [inputs(&bound, Reach::OnlyThere), inputs(&free, Reach::Anywhere)].concat();
        let has_slots = nodes.iter().any(|node| node.slots > 0);
        for (task, place) in tasks.iter().zip(place(&tasks, &nodes)) {
            let is_known = nodes.iter().any(|node| task.nodes.contains(&node.node));
            match task.reach {
                Reach::OnlyThere => {
                    prop_assert_eq!(place.is_some(), is_known);
                    prop_assert!(place.is_none_or(|place| task.nodes.contains(&place.node)));
                }
                Reach::Anywhere => prop_assert_eq!(place.is_some(), has_slots),
            }
        }
    }

    #[test]
    fn every_node_fetches_and_none_serves_many(
        holders in 1_u32..5,
        others in 0_u32..70,
        racks in 1_u32..9,
        trees in 0_u32..4,
    ) {
        let at = |node| NodeOfRack { node: NodeId(node), rack: node % racks };
        let has: Vec<NodeOfRack> = (0..holders).map(at).collect();
        let wants: Vec<NodeOfRack> = (holders..holders + others).map(at).collect();
        let trees = fetch_trees(&has, &wants, trees);
        let mut serves: BTreeMap<NodeId, u32> = BTreeMap::new();
        for tree in &trees {
            let mut known: BTreeSet<NodeId> = has.iter().map(|holder| holder.node).collect();
            for Fetch { from, to } in tree {
                prop_assert!(known.contains(from), "{from:?} gets the bytes later");
                prop_assert!(known.insert(*to), "{to:?} fetches twice");
                *serves.entry(*from).or_default() += 1;
            }
            prop_assert_eq!(known.len() as u32, holders + others);
        }
        prop_assert!(serves.values().all(|serves| *serves <= SERVES_MAX), "{serves:?}");
    }

    /// Nodes ask in any order, again, and after failures of any source.
    #[test]
    fn growing_tree_serves_few_without_circles(
        holders in 1_u32..4,
        asks in vec((0_u32..40, 0_u32..6), 1..150),
        racks in 1_u32..5,
    ) {
        let at = |node| NodeOfRack { node: NodeId(node), rack: node % racks };
        let has: Vec<NodeOfRack> = (0..holders).map(at).collect();
        let (mut tree, mut sources) = (FetchTree::default(), BTreeMap::new());
        let mut given: BTreeSet<(NodeId, NodeId)> = BTreeSet::new();
        let mut has_failed = false;
        for (reader, fails) in asks {
            let reader = NodeId(holders + reader);
            let failed: Vec<NodeId> = sources.get(&reader).copied().filter(|_| fails == 0).into_iter().collect();
            let source = tree.source(&has, at(reader.0), &failed);
            prop_assert!(source.is_none_or(|source| !failed.contains(&source)));
            // Each reader adds more places than it takes, so they last unless sources fail.
            has_failed |= !failed.is_empty();
            prop_assert!(source.is_some() || has_failed);
            let Some(source) = source else { continue };
            given.insert((source, reader));
            sources.insert(reader, source);
            let mut above = source;
            for _ in 0..sources.len() {
                above = sources.get(&above).copied().unwrap_or(above);
            }
            prop_assert!(above.0 < holders, "{reader:?} is in a circle");
        }
        for server in given.iter().map(|(source, _)| *source) {
            let serves = given.iter().filter(|(source, _)| *source == server).count();
            prop_assert!(serves <= SERVES_MAX as usize, "{server:?} serves {serves}");
        }
    }
}

#[test]
fn sources_are_in_the_rack_and_above() {
    let at = |node: u32, rack: u32| NodeOfRack { node: NodeId(node), rack };
    let mut tree = FetchTree::default();
    let mut ask = |reader: NodeOfRack, failed: &[u32]| {
        let failed: Vec<NodeId> = failed.iter().copied().map(NodeId).collect();
        tree.source(&[at(0, 0)], reader, &failed).map(|node| node.0)
    };
    // The second of a rack fetches from the first one.
    assert_eq!(
        [ask(at(10, 1), &[]), ask(at(11, 1), &[]), ask(at(12, 1), &[])],
        [Some(0), Some(10), Some(10)]
    );
    assert_eq!(ask(at(1, 0), &[]), Some(0));
    // The one with the replica has served twice, whether or not those fetches are over.
    assert_eq!(ask(at(2, 0), &[]), Some(1));
    // The same question has the same answer, and a failed source another one, which is not below.
    assert_eq!([ask(at(11, 1), &[]), ask(at(11, 1), &[10])], [Some(10), Some(12)]);
    assert_eq!(ask(at(10, 1), &[0]), Some(2));
    // All that may serve get the input by this node.
    tree.retain(|node| node != NodeId(1));
    assert_eq!(tree.source(&[at(0, 0)], at(2, 0), &[]), None);
    assert_eq!(tree.source(&[at(0, 0)], at(3, 0), &[]), Some(NodeId(2)));
    assert_eq!(FetchTree::default().source(&[], at(2, 0), &[]), None);
}

#[test]
fn task_with_one_choice_goes_first() {
    // The first task in the list could take the only node of the last one.
    let tasks = inputs(&[vec![0, 1], vec![1, 2], vec![0]], Reach::Anywhere);
    let placed = place(&tasks, &rooms(&[(1, 0), (1, 0), (1, 0)]));
    let nodes: Vec<u32> = placed.iter().flatten().map(|place| place.node.0).collect();
    assert_eq!(nodes, [1, 2, 0]);
}

#[test]
fn few_tasks_are_spread_over_nodes() {
    // Four tasks with replicas on all of four nodes with two slots: one on each.
    let placed = place(&inputs(&vec![vec![0, 1, 2, 3]; 4], Reach::Anywhere), &rooms(&[(2, 0); 4]));
    (0..4).for_each(|node| assert_eq!(count(&placed, NodeId(node)), 1));
    // Waves are even as well.
    let placed = place(&inputs(&vec![vec![0, 1, 2, 3]; 40], Reach::Anywhere), &rooms(&[(2, 0); 4]));
    (0..4).for_each(|node| assert_eq!(count(&placed, NodeId(node)), 10));
}

#[test]
fn racks_get_the_input_over_their_uplinks_once() {
    let at = |node| NodeOfRack { node: NodeId(node), rack: node / 10 };
    let others: Vec<NodeOfRack> = (1..40).map(at).collect();
    let crossing = |fetch: &&Fetch| at(fetch.from.0).rack != at(fetch.to.0).rack;
    // In two trees the holder serves one node in each, so a few cannot be served in their rack.
    for (trees, most) in [(1, 3), (2, 6)] {
        for tree in fetch_trees(&[at(0)], &others, trees) {
            assert!(tree.iter().filter(crossing).count() <= most, "{tree:?}");
        }
    }
    assert!(fetch_trees(&[], &others, 2).iter().all(Vec::is_empty));
}
