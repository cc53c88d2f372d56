//! A line between nodes that can be bad: connections are cut after some bytes, or a bit is flipped on the way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

pub struct Line {
    pub address: std::net::SocketAddr,
    pub state: Arc<LineState>,
}

pub struct LineState {
    /// How many of a thousand pieces end with a cut.
    pub cut_per_mille: AtomicU64,
    /// Which byte of what comes back gets a bit flipped, counted over all connections; u64::MAX for none.
    pub flip_at: AtomicU64,
    pub stopped: AtomicBool,
    /// After how many bytes of what comes back the line is stopped for good, counted over all connections; u64::MAX
    /// for never.
    pub stop_at: AtomicU64,
    pub cuts: AtomicU64,
    draws: AtomicU64,
    seed: u64,
}

impl LineState {
    /// A number below 1000 (splitmix64 over a counter).
    fn draw(&self) -> u64 {
        let count = self.draws.fetch_add(1, Ordering::Relaxed) + 1;
        let mut mixed = self.seed.wrapping_add(count.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % 1000
    }

    fn is_cut(&self) -> bool {
        let cut =
            self.stopped.load(Ordering::Relaxed) || self.draw() < self.cut_per_mille.load(Ordering::Relaxed);
        self.cuts.fetch_add(u64::from(cut), Ordering::Relaxed);
        cut
    }

    /// How many of `count` bytes that come back still pass.
    fn passing(&self, count: usize) -> usize {
        let left = self.stop_at.load(Ordering::Relaxed);
        if left == u64::MAX {
            return count;
        }
        let passing = left.min(count as u64);
        self.stop_at.store(left - passing, Ordering::Relaxed);
        if passing < count as u64 {
            self.stopped.store(true, Ordering::Relaxed);
        }
        passing as usize
    }

    fn flip(&self, piece: &mut [u8]) {
        let at = self.flip_at.load(Ordering::Relaxed);
        if at == u64::MAX {
            return;
        }
        if let Some(byte) = piece.get_mut(at as usize) {
            *byte ^= 0x10;
            self.flip_at.store(u64::MAX, Ordering::Relaxed);
        } else {
            self.flip_at.store(at - piece.len() as u64, Ordering::Relaxed);
        }
    }
}

/// Starts a line to `target`.
pub async fn start(target: std::net::SocketAddr, cut_per_mille: u64, seed: u64) -> Line {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let state = Arc::new(LineState {
        cut_per_mille: AtomicU64::new(cut_per_mille),
        flip_at: AtomicU64::new(u64::MAX),
        stopped: AtomicBool::new(false),
        stop_at: AtomicU64::new(u64::MAX),
        cuts: AtomicU64::new(0),
        draws: AtomicU64::new(0),
        seed,
    });
    let shared = Arc::clone(&state);
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            if shared.stopped.load(Ordering::Relaxed) {
                continue;
            }
            let Ok(far) = TcpStream::connect(target).await else { continue };
            // As a wire: it carries what it gets at once.
            let _ = (near.set_nodelay(true), far.set_nodelay(true));
            tokio::spawn(carry(near, far, Arc::clone(&shared)));
        }
    });
    Line { address, state }
}

/// Carries bytes both ways until either is cut; then both are. Where the far end takes no more, what it has said still comes back.
async fn carry(near: TcpStream, far: TcpStream, state: Arc<LineState>) {
    let (mut near_read, mut near_write) = near.into_split();
    let (mut far_read, mut far_write) = far.into_split();
    let there = async {
        if one_way(&mut near_read, &mut far_write, &state, false).await == End::NotTaken {
            std::future::pending().await
        }
    };
    tokio::select! {
        () = there => {}
        _ = one_way(&mut far_read, &mut near_write, &state, true) => {}
    }
}

/// Why a way carries no more.
#[derive(PartialEq, Eq)]
enum End {
    /// Nothing comes any more, or the line was cut.
    Over,
    /// Whoever should have it does not take it.
    NotTaken,
}

async fn one_way(from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf, state: &LineState, is_back: bool) -> End {
    let mut buffer = vec![0; 8 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        let mut sent = count;
        let passing = if is_back { state.passing(count) } else { count };
        let cut = state.is_cut();
        if passing < count {
            sent = passing;
        } else if cut {
            // Some of it may still arrive.
            sent = count * state.draw() as usize / 1000;
        }
        if is_back {
            state.flip(&mut buffer[..sent]);
        }
        let written = to.write_all(&buffer[..sent]).await;
        if cut {
            return End::Over;
        }
        if written.is_err() {
            return End::NotTaken;
        }
    }
    End::Over
}
