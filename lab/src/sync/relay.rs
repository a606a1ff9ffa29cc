//! Links: for each peer a relay that passes bytes on at the link's rate, after the link's delay, and counts
//! them.
//!
//! ```text
//! program ── relay ── bitcoind
//! ```

use super::link::Shape;
use std::{
    io::{self, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc::sync_channel},
    thread,
    time::{Duration, Instant},
};

/// Most bytes that are passed on at once.
const CHUNK: usize = 16 << 10;
/// Most chunks on their way in one direction, so that memory is bounded: as much as 1 Gbit/s sends in 100 ms.
const ON_THE_WAY: usize = 768;
/// How far a link may catch up after a thread has slept for too long.
const CATCH_UP: Duration = Duration::from_millis(10);
/// Chunks of more bytes than pings and the like have are part of a download.
const DOWNLOADING: usize = 1000;

/// What came from a peer.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    pub bytes: u64,
    /// When the last part of a download came.
    pub last: Instant,
}

/// A link to a peer. Its threads end with the connections.
pub struct Relay {
    /// Where the program finds the peer.
    pub address: SocketAddr,
    received: Arc<Mutex<Received>>,
}

impl Relay {
    /// Listens at an address of this machine, and connects each caller with the peer.
    ///
    /// # Errors
    /// If nothing can listen there.
    pub fn new(address: SocketAddr, peer: SocketAddr, shape: Option<Shape>) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let received = Arc::new(Mutex::new(Received { bytes: 0, last: Instant::now() }));
        let count = Arc::clone(&received);
        thread::spawn(move || {
            for program in listener.incoming().map_while(Result::ok) {
                let count = Arc::clone(&count);
                // The program sees a closed connection if there is none.
                let _ = connect(program, peer, shape, move |bytes| {
                    let mut received = locked(&count);
                    received.bytes += bytes as u64;
                    if bytes > DOWNLOADING {
                        received.last = Instant::now();
                    }
                });
            }
        });
        Ok(Self { address, received })
    }

    /// Returns what has come from the peer so far.
    pub fn received(&self) -> Received {
        *locked(&self.received)
    }
}

fn locked(received: &Mutex<Received>) -> MutexGuard<'_, Received> {
    received.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Connects a program with a peer. `count` is called with the number of bytes that come from the peer.
fn connect(
    program: TcpStream,
    peer: SocketAddr,
    shape: Option<Shape>,
    count: impl FnMut(usize) + Send + 'static,
) -> io::Result<()> {
    let peer = TcpStream::connect(peer)?;
    program.set_nodelay(true)?;
    peer.set_nodelay(true)?;
    let (from_peer, to_program) = (peer.try_clone()?, program.try_clone()?);
    thread::spawn(move || pass_on(program, peer, shape, |_| ()));
    thread::spawn(move || pass_on(from_peer, to_program, shape, count));
    Ok(())
}

/// Passes bytes on until one of the ends is closed, and then closes the other.
fn pass_on(mut from: TcpStream, mut to: TcpStream, shape: Option<Shape>, mut count: impl FnMut(usize)) {
    let (sender, chunks) = sync_channel(ON_THE_WAY);
    let delay = shape.map_or(Duration::ZERO, |shape| shape.round_trip / 2);
    thread::spawn(move || {
        let (mut chunk, mut free_at) = ([0; CHUNK], Instant::now());
        while let Ok(length @ 1..) = from.read(&mut chunk) {
            let now = Instant::now();
            let turn = shape.map_or(Duration::ZERO, |shape| shape.time_for(length));
            free_at = free_at.max(now.checked_sub(CATCH_UP).unwrap_or(now)) + turn;
            if sender.send((free_at.max(now) + delay, chunk[..length].to_vec())).is_err() {
                break;
            }
            thread::sleep(free_at.saturating_duration_since(now));
        }
        let _ = from.shutdown(Shutdown::Read);
    });
    for (arrival, chunk) in chunks {
        thread::sleep(arrival.saturating_duration_since(Instant::now()));
        if to.write_all(&chunk).is_err() {
            break;
        }
        count(chunk.len());
    }
    let _ = to.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    /// A peer that sends `bytes` bytes to its caller, and a link to it.
    fn link(bytes: usize, shape: Option<Shape>) -> Relay {
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = TcpListener::bind(local).unwrap();
        let peer = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut program, _) = listener.accept().unwrap();
            let mut asked = [0; 4];
            program.read_exact(&mut asked).unwrap();
            program.write_all(&vec![asked[0]; bytes]).unwrap();
        });
        Relay::new(local, peer, shape).unwrap()
    }

    /// Asks the peer behind a link, and returns how long its answer took.
    fn ask(relay: &Relay, bytes: usize) -> Duration {
        let begun = Instant::now();
        let mut program = TcpStream::connect(relay.address).unwrap();
        program.write_all(b"send").unwrap();
        let mut answer = Vec::new();
        program.read_to_end(&mut answer).unwrap();
        assert_eq!((answer.len(), answer.iter().all(|byte| *byte == b's')), (bytes, true));
        begun.elapsed()
    }

    #[test]
    fn bytes_come_at_the_rate_of_the_link_and_are_counted() {
        // 300,000 bytes at 1 MB/s.
        let shape = Shape { bytes_per_second: 1_000_000, round_trip: Duration::from_millis(100) };
        let relay = link(300_000, Some(shape));
        let before = relay.received();
        let took = ask(&relay, 300_000);
        assert!(took >= Duration::from_millis(390), "{took:?}");
        let received = relay.received();
        assert_eq!((before.bytes, received.bytes), (0, 300_000));
        assert!(received.last > before.last);
    }

    #[test]
    fn a_link_without_a_shape_only_counts() {
        let relay = link(20 << 20, None);
        ask(&relay, 20 << 20);
        assert_eq!(relay.received().bytes, 20 << 20);
    }

    #[test]
    fn answers_wait_for_the_time_there_and_back() {
        let shape = Shape { bytes_per_second: 1_000_000_000, round_trip: Duration::from_millis(200) };
        let took = ask(&link(10, Some(shape)), 10);
        assert!(took >= Duration::from_millis(200), "{took:?}");
    }
}
