//! The plan of a stage: a node for each task among those with its input.

use super::greedy::{InputPlace, NodeRoom, Proximity, Reach, place};
use ids::{InputNodes, Placement};

/// Chooses a node for each task among those with its input, for all tasks at once. A task waits for its nodes only if
/// one of them has room for it in the plan, or if no other can run it. `nodes` has each node once.
pub fn plan(tasks: Vec<InputNodes>, nodes: &[NodeRoom]) -> Vec<Placement> {
    let reach = |task: &InputNodes| if task.only_there { Reach::OnlyThere } else { Reach::Anywhere };
    let input = |task: &InputNodes| InputPlace { nodes: task.nodes.clone(), reach: reach(task) };
    let inputs: Vec<InputPlace> = tasks.iter().map(input).collect();
    let placed = place(&inputs, nodes);
    let placement = |(task, placed): (InputNodes, Option<super::PlacedTask>)| {
        let on_replica = placed.filter(|placed| placed.proximity == Proximity::OnReplica);
        match on_replica {
            _ if task.nodes.is_empty() && !task.only_there => Placement::Anywhere,
            Some(placed) => Placement::Planned(InputNodes { planned: Some(placed.node), ..task }),
            None => Placement::Planned(InputNodes { planned: None, wait_ns: 0, ..task }),
        }
    };
    tasks.into_iter().zip(placed).map(placement).collect()
}

#[cfg(test)]
mod tests {
    use super::plan;
    use crate::NodeRoom;
    use ids::{InputNodes, NodeId, Placement};

    #[test]
    fn tasks_beyond_slots_have_no_plan() {
        let room = |node| NodeRoom { node: NodeId(node), rack: 0, free_slots: 1, slots: 1 };
        let input = |nodes: &[u32]| InputNodes {
            nodes: nodes.iter().copied().map(NodeId).collect(),
            planned: None,
            wait_ns: 7,
            only_there: false,
        };
        let planned =
            plan(vec![input(&[1, 2]), input(&[1]), input(&[1]), input(&[])], &[1, 2, 3, 4].map(room));
        let rows: Vec<Option<(Option<u32>, u64)>> = planned
            .into_iter()
            .map(|placement| match placement {
                Placement::Planned(input) => Some((input.planned.map(|node| node.0), input.wait_ns)),
                _ => None,
            })
            .collect();
        assert_eq!(rows, [Some((Some(2), 7)), Some((Some(1), 7)), Some((None, 0)), None]);
        // Tasks that no other node can run wait even for a full node, and for none.
        let bound = |nodes: &[u32]| InputNodes { only_there: true, ..input(nodes) };
        let planned = plan(vec![bound(&[1]), bound(&[1]), bound(&[])], &[1, 2].map(room));
        let there = Placement::Planned(InputNodes { planned: Some(NodeId(1)), ..bound(&[1]) });
        let nowhere = Placement::Planned(InputNodes { wait_ns: 0, ..bound(&[]) });
        assert_eq!(planned, [there.clone(), there, nowhere]);
    }
}
