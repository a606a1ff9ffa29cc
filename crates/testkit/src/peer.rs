//! Scripted peers on loopback sockets: they serve a chain, honestly or with one fault.
//!
//! A [`ScriptedPeer`] accepts connections until it is dropped. What it serves can change meanwhile, and it
//! can be held at a number of blocks or go offline, so that a test determines what happens during a download.

mod coins;
mod fault;
mod served;
mod session;

pub use fault::{Asked, BlockAnswer, End, Fault};
pub use served::ServedChain;
pub use session::without_witnesses;

use crate::GeneratedBlock;
use net::{address::PeerAddress, pool::Target};
use session::Session;
use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};
use wire::BlockHash;

/// Time between two looks at whether a connection should end.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// What a peer's connections share.
struct Shared {
    fault: Fault,
    chain: Mutex<Arc<ServedChain>>,
    accepted: AtomicUsize,
    /// Blocks that were asked for and that the peer has, in that order.
    asked: Mutex<Vec<BlockHash>>,
    coins_asked: AtomicUsize,
    headers_asked: AtomicUsize,
    /// Number of blocks after which the peer waits.
    hold_at: AtomicUsize,
    is_offline: AtomicBool,
    has_ended: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn chain(&self) -> Arc<ServedChain> {
        Arc::clone(&lock(&self.chain))
    }

    /// Returns whether connections should end.
    fn is_over(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed) || self.is_offline.load(Ordering::Relaxed)
    }
}

/// A listening peer. It ends when it is dropped.
pub struct ScriptedPeer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl ScriptedPeer {
    /// Starts a peer at a free port of 127.0.0.1.
    ///
    /// # Panics
    /// If the system gives no port.
    #[must_use]
    pub fn start(chain: &Arc<ServedChain>, fault: Fault) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback address has a free port");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared {
            fault,
            chain: Mutex::new(Arc::clone(chain)),
            accepted: AtomicUsize::new(0),
            asked: Mutex::default(),
            coins_asked: AtomicUsize::new(0),
            headers_asked: AtomicUsize::new(0),
            hold_at: AtomicUsize::new(usize::MAX),
            is_offline: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
        });
        let theirs = Arc::clone(&shared);
        thread::spawn(move || accept_all(&listener, &theirs));
        Self { address, shared }
    }

    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns what a client dials.
    pub fn target(&self) -> Target {
        Target::Address(PeerAddress::from_socket(self.address))
    }

    /// Returns the number of connections that were accepted.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    /// Returns the hashes of the blocks that were asked for and that the peer has, in that order.
    pub fn asked(&self) -> Vec<BlockHash> {
        lock(&self.shared.asked).clone()
    }

    /// Returns the number of questions for spent coins.
    pub fn coins_asked(&self) -> usize {
        self.shared.coins_asked.load(Ordering::Relaxed)
    }

    /// Returns the number of questions for headers.
    pub fn headers_asked(&self) -> usize {
        self.shared.headers_asked.load(Ordering::Relaxed)
    }

    /// Serves another chain from now on.
    pub fn serve(&self, chain: &Arc<ServedChain>) {
        *lock(&self.shared.chain) = Arc::clone(chain);
    }

    /// Waits after this number of blocks since the start, until it is set higher.
    pub fn hold_at(&self, blocks: usize) {
        self.shared.hold_at.store(blocks, Ordering::Relaxed);
    }

    /// Closes all connections and those that are opened, or accepts them again.
    pub fn set_offline(&self, is_offline: bool) {
        self.shared.is_offline.store(is_offline, Ordering::Relaxed);
    }
}

impl Drop for ScriptedPeer {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.address));
    }
}

/// Starts an honest peer with these blocks.
#[must_use]
pub fn peer_with<'b>(blocks: impl IntoIterator<Item = &'b GeneratedBlock>) -> ScriptedPeer {
    ScriptedPeer::start(&Arc::new(ServedChain::of(blocks)), Fault::None)
}

fn accept_all(listener: &TcpListener, shared: &Arc<Shared>) {
    for socket in listener.incoming() {
        if shared.has_ended.load(Ordering::Relaxed) {
            return;
        }
        let Ok(socket) = socket else { continue };
        if shared.is_offline.load(Ordering::Relaxed) {
            continue;
        }
        shared.accepted.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::clone(shared);
        // The end of a connection, from whichever side, is part of what is tested.
        thread::spawn(move || -> io::Result<()> { Session::run(socket, shared) });
    }
}
