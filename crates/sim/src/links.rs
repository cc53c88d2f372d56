//! Capacities shared by flows: links and disks. Each gives every connection an even share of the remaining capacity.

/// Maximum number of rounds, after which unsettled shares are used as they are.
const ROUNDS_MAX: usize = 40;
/// Relative change of a share below which it has settled.
const SETTLED: f64 = 1e-4;

/// A flow's use of one capacity.
#[derive(Clone, Copy, Debug)]
struct Use {
    resource: usize,
    /// Bytes of the capacity for each byte of the flow.
    part: f64,
    /// Number of connections of the flow on it; each gets a share.
    connections: f64,
}

/// Bytes that move at one rate over several capacities.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    /// Maximum rate in bytes per second.
    rate_max: f64,
    uses: Vec<Use>,
}

impl Flow {
    pub fn new(rate_max: f64) -> Self {
        Self { rate_max, uses: Vec::new() }
    }

    /// Adds a use: each byte of the flow takes `part` bytes of this capacity, over `connections` connections.
    pub fn takes(&mut self, resource: usize, part: f64, connections: f64) {
        if part <= 0.0 {
            return;
        }
        match self.uses.iter_mut().find(|known| known.resource == resource) {
            Some(known) => {
                (known.part, known.connections) = (known.part + part, known.connections + connections)
            }
            None => self.uses.push(Use { resource, part, connections }),
        }
    }
}

/// Returns the rate of each flow, in bytes per second. No capacity is exceeded; a flow below its `rate_max` shares a
/// capacity that is used up.
pub(crate) fn rates(capacities: &[f64], flows: &[Flow]) -> Vec<f64> {
    let mut users: Vec<Vec<(usize, usize)>> = vec![Vec::new(); capacities.len()];
    for (index, flow) in flows.iter().enumerate() {
        for (place, used) in flow.uses.iter().enumerate() {
            users[used.resource].push((index, place));
        }
    }
    // Limit of each flow by each capacity that it uses.
    let mut limits: Vec<Vec<f64>> = flows.iter().map(|flow| vec![f64::INFINITY; flow.uses.len()]).collect();
    for _ in 0..ROUNDS_MAX {
        let mut moved = false;
        for (capacity, users) in capacities.iter().zip(&users) {
            moved |= share(*capacity, users, flows, &mut limits);
        }
        if !moved {
            break;
        }
    }
    let least = |(flow, limits): (&Flow, &Vec<f64>)| limits.iter().copied().fold(flow.rate_max, f64::min);
    let wanted: Vec<f64> = flows.iter().zip(&limits).map(least).collect();
    not_overdrawn(capacities, flows, &users, wanted)
}

/// Shares one capacity among its users, within the limits of their other capacities. Returns whether anything moved.
fn share(capacity: f64, users: &[(usize, usize)], flows: &[Flow], limits: &mut [Vec<f64>]) -> bool {
    // (demand of each connection, flow, use)
    let demand = |(flow, place): &(usize, usize)| {
        let used = flows[*flow].uses[*place];
        let elsewhere = limits[*flow].iter().enumerate().filter(|(other, _)| other != place);
        let rate = elsewhere.map(|(_, limit)| *limit).fold(flows[*flow].rate_max, f64::min);
        (rate * used.part / used.connections, *flow, *place)
    };
    let mut demands: Vec<(f64, usize, usize)> = users.iter().map(demand).collect();
    demands.sort_by(|left, right| left.0.total_cmp(&right.0));
    let mut connections: f64 = users.iter().map(|(flow, place)| flows[*flow].uses[*place].connections).sum();
    let (mut left, mut moved) = (capacity, false);
    for (wants, flow, place) in demands {
        let used = flows[flow].uses[place];
        let even = left.max(0.0) / connections;
        let limit = if wants <= even { f64::INFINITY } else { even * used.connections / used.part };
        left -= wants.min(even) * used.connections;
        connections -= used.connections;
        let before = std::mem::replace(&mut limits[flow][place], limit);
        let is_same = before == limit || (before - limit).abs() <= SETTLED * limit;
        moved |= !is_same;
    }
    moved
}

/// Reduces the rates of all users of an overdrawn capacity, for shares that have not settled.
fn not_overdrawn(
    capacities: &[f64],
    flows: &[Flow],
    users: &[Vec<(usize, usize)>],
    wanted: Vec<f64>,
) -> Vec<f64> {
    let part_given = |(capacity, users): (&f64, &Vec<(usize, usize)>)| -> f64 {
        let used: f64 =
            users.iter().map(|(flow, place)| wanted[*flow] * flows[*flow].uses[*place].part).sum();
        if used > *capacity { capacity / used } else { 1.0 }
    };
    let given: Vec<f64> = capacities.iter().zip(users).map(part_given).collect();
    let least = |flow: &Flow| flow.uses.iter().map(|used| given[used.resource]).fold(1.0, f64::min);
    flows.iter().zip(&wanted).map(|(flow, rate)| rate * least(flow)).collect()
}

#[cfg(test)]
mod tests {
    use super::{Flow, rates};

    fn flow(rate_max: f64, uses: &[(usize, f64, f64)]) -> Flow {
        let mut flow = Flow::new(rate_max);
        uses.iter().for_each(|(resource, part, connections)| flow.takes(*resource, *part, *connections));
        flow
    }

    #[track_caller]
    fn check(capacities: &[f64], flows: &[Flow], expected: &[f64]) {
        let rates = rates(capacities, flows);
        let is_close = |(rate, expected): (&f64, &f64)| (rate - expected).abs() <= 0.01 * expected;
        assert!(rates.iter().zip(expected).all(is_close), "{rates:?}, not {expected:?}");
    }

    #[test]
    fn a_capacity_is_shared_evenly_among_connections() {
        let any = f64::INFINITY;
        check(&[12.0], &[flow(any, &[(0, 1.0, 1.0)]), flow(any, &[(0, 1.0, 3.0)])], &[3.0, 9.0]);
        // The others get the capacity that one flow does not use.
        check(&[12.0], &[flow(2.0, &[(0, 1.0, 1.0)]), flow(any, &[(0, 1.0, 1.0)])], &[2.0, 10.0]);
        // Half of the bytes of the first flow use another path.
        check(&[12.0], &[flow(any, &[(0, 0.5, 1.0)]), flow(any, &[(0, 1.0, 1.0)])], &[12.0, 6.0]);
    }

    #[test]
    fn unused_share_of_a_flow_goes_to_others() {
        let any = f64::INFINITY;
        let long = flow(any, &[(0, 1.0, 1.0), (1, 1.0, 1.0)]);
        check(&[10.0, 4.0], &[long.clone(), flow(any, &[(0, 1.0, 1.0)])], &[4.0, 6.0]);
        let others = [long, flow(any, &[(0, 1.0, 1.0)]), flow(any, &[(1, 1.0, 1.0)])];
        check(&[10.0, 4.0], &others, &[2.0, 8.0, 2.0]);
    }

    #[test]
    fn flow_over_no_link_gets_its_wish() {
        check(&[1.0], &[flow(7.0, &[])], &[7.0]);
    }
}
