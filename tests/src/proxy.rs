//! A way to a server that may be slow, stand still for a while, or be cut.

use crate::WAIT_MAX;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[derive(Default)]
struct Gate {
    /// Nothing goes through before.
    closed_until: Option<Instant>,
    /// Each piece of bytes is held for so long.
    delay: Duration,
    /// Pieces that were held back while the gate was closed.
    held: u64,
    connections: Vec<TcpStream>,
}

#[derive(Default)]
struct Shared {
    gate: Mutex<Gate>,
    changed: Condvar,
    ends: AtomicBool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds a piece for as long as it must be.
    fn pass(&self) {
        let mut gate = self.lock();
        let open_at = Instant::now() + gate.delay;
        let is_closed = |gate: &Gate| gate.closed_until.is_some_and(|until| Instant::now() < until);
        if is_closed(&gate) {
            gate.held += 1;
            self.changed.notify_all();
        }
        while !self.ends.load(Ordering::Relaxed) {
            let until = gate.closed_until.map_or(open_at, |until| until.max(open_at));
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            gate = self.changed.wait_timeout(gate, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Listens on a port of its own and passes on what comes; ends with the value.
pub struct SlowProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl SlowProxy {
    /// A way to whoever listens at `target`, as in `127.0.0.1:5432`.
    pub fn start(target: &str) -> SlowProxy {
        let target: SocketAddr = target.parse().expect("an address and a port");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        let shared = Arc::<Shared>::default();
        let passing = Arc::clone(&shared);
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                if passing.ends.load(Ordering::Relaxed) {
                    return;
                }
                // Nobody there: whoever came is sent away.
                let Ok(far) = TcpStream::connect(target) else { continue };
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else { continue };
                    let shared = Arc::clone(&passing);
                    std::thread::spawn(move || pass_on(from, to, &shared));
                }
                passing.lock().connections.extend([near, far]);
            }
        });
        SlowProxy { address, shared }
    }

    /// Returns the address at which the proxy listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Holds every piece of bytes, either way, for so long.
    pub fn delay(&self, delay: Duration) {
        self.shared.lock().delay = delay;
    }

    /// Lets nothing through for so long, and waits until somebody is kept waiting.
    #[track_caller]
    pub fn stall(&self, duration: Duration) {
        let mut gate = self.shared.lock();
        let before = gate.held;
        gate.closed_until = Some(Instant::now() + duration);
        let deadline = Instant::now() + WAIT_MAX;
        while gate.held == before {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "nobody sent anything");
            gate = self.shared.changed.wait_timeout(gate, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Ends all connections; new ones are taken.
    pub fn cut(&self) {
        for connection in self.shared.lock().connections.drain(..) {
            // One that has ended does not mind.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, shared: &Shared) {
    let mut block = vec![0; 64 << 10];
    while let Ok(count) = from.read(&mut block) {
        // The end of a connection waits as well.
        shared.pass();
        if count == 0 {
            break;
        }
        if to.write_all(&block[..count]).is_err() {
            break;
        }
    }
    // The other direction ends with this one.
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

impl Drop for SlowProxy {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        self.shared.changed.notify_all();
        self.cut();
        // The thread that listens waits for somebody.
        let _ = TcpStream::connect(self.address);
    }
}
