//! Numbers of open connections, by address and in total, and connections beyond the limits.

use crate::BodyPace;
use crate::once_a_minute::OnceAMinute;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::AbortHandle;

/// Limits of the cost of unauthenticated callers of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    pub connections_max: usize,
    /// Maximum from one address; of IPv6, from one network of 64 bits.
    pub connections_per_address_max: usize,
    /// Maximum connections beyond the limits, which get only `/healthz`; one more ends the oldest of them.
    pub reserve: usize,
    /// Maximum time for the head of a request, and for an open connection without a request.
    pub head_time_max: Duration,
    /// Pace of bodies; None if the routes limit bodies themselves.
    pub body_pace: Option<BodyPace>,
}

impl ConnectionLimits {
    /// Returns the limits of a process with this limit of open files.
    pub fn within(open_files_max: u64) -> Self {
        let connections_max = usize::try_from(open_files_max / 2).unwrap_or(usize::MAX).clamp(16, 4096);
        Self {
            connections_max,
            connections_per_address_max: connections_max / 2,
            reserve: (connections_max / 4).min(32),
            head_time_max: Duration::from_secs(60),
            body_pace: Some(BodyPace { grace: Duration::from_secs(60), bytes_per_second_min: 16 << 10 }),
        }
    }
}

#[derive(Default)]
struct Counts {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
    reserve: VecDeque<AbortHandle>,
}

/// The open connections of a port.
pub(crate) struct Connections {
    limits: ConnectionLimits,
    counts: Mutex<Counts>,
    bound_told: OnceAMinute,
}

/// A connection within the limits; it counts until this is dropped.
pub(crate) struct Counted {
    connections: Arc<Connections>,
    address: IpAddr,
}

impl Connections {
    pub fn new(limits: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self { limits, counts: Mutex::default(), bound_told: OnceAMinute::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one more; None if a limit is reached.
    pub fn count(self: &Arc<Self>, peer: IpAddr) -> Option<Counted> {
        let address = counted_by(peer);
        let mut counts = self.lock();
        let of_address = counts.by_address.get(&address).copied().unwrap_or(0);
        let is_full = counts.all >= self.limits.connections_max;
        if is_full || of_address >= self.limits.connections_per_address_max {
            if self.bound_told.is_due() {
                let all = counts.all;
                tracing::warn!(%address, of_address, all, "too many connections: further ones get /healthz only");
            }
            return None;
        }
        counts.all += 1;
        *counts.by_address.entry(address).or_default() += 1;
        Some(Counted { connections: Arc::clone(self), address })
    }

    /// Accepts a connection beyond the limits, and ends the oldest of them if there are too many.
    pub fn hold_in_reserve(&self, connection: AbortHandle) {
        let mut counts = self.lock();
        counts.reserve.retain(|held| !held.is_finished());
        if counts.reserve.len() >= self.limits.reserve
            && let Some(oldest) = counts.reserve.pop_front()
        {
            oldest.abort();
        }
        counts.reserve.push_back(connection);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut counts = self.connections.lock();
        counts.all -= 1;
        if let Some(count) = counts.by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.by_address.remove(&self.address);
            }
        }
    }
}

/// Returns the network of an address: the owner of an IPv6 address has its whole network.
fn counted_by(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            let network = u128::from(address) & !u128::from(u64::MAX);
            IpAddr::V6(network.into())
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::{ConnectionLimits, Connections};
    use std::net::IpAddr;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn connections_count_in_total_and_by_address() {
        let limits = ConnectionLimits {
            connections_max: 3,
            connections_per_address_max: 2,
            ..ConnectionLimits::within(1024)
        };
        let connections = Connections::new(limits);
        let ann = || connections.count(address("10.0.0.1"));
        let first = ann().expect("room");
        let mapped = connections.count(address("::ffff:10.0.0.1")).expect("room");
        assert!(ann().is_none(), "an address has its share");
        let of_bob = connections.count(address("2001:db8::1")).expect("room");
        assert!(connections.count(address("10.0.0.3")).is_none(), "all have a bound");
        drop(first);
        let again = connections.count(address("2001:db8::2")).expect("room");
        drop(mapped);
        assert!(connections.count(address("2001:db8::3")).is_none(), "a network of IPv6 is one address");
        drop((again, of_bob));
        assert!(ann().is_some());
        assert!(connections.lock().by_address.is_empty());
    }
}
