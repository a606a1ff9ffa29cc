//! Links between network namespaces: a thread that takes packets from one TUN device of each link and gives
//! them to the other, when they have passed the link's delay lines.
//!
//! ```text
//! program ── client device ══ access ══ link ══ peer device ── bitcoind
//! ```

use super::{delay_line::DelayLine, failed, link::Shape};
use engine::Error;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use tappers::{Interface, linux::Tun};

/// Longest wait for packets, so that the thread ends soon after it should.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A rest after each wait, so that packets are handled in groups: most of the work is for waking up. It is
/// the inaccuracy of a link's delay, too.
const PAUSE: Duration = Duration::from_micros(200);
/// How many packets are taken from a device before the others' turn.
const BATCH: usize = 64;
/// The greatest packet: devices have the default MTU of 1,500 bytes.
const MAX_PACKET: usize = 2048;
/// How long a packet may wait for its turn on the line that all links share.
const ACCESS_QUEUE: Duration = Duration::from_millis(100);

/// The two devices of a link.
pub struct Devices {
    pub client: Tun,
    pub peer: Tun,
}

impl Devices {
    /// Creates the devices of link `number` in the namespace of this process, and returns their names: the
    /// program's and the peer's. They vanish when they are dropped.
    ///
    /// # Errors
    /// [`ErrorKind::Environment`](engine::ErrorKind::Environment) if the system has no TUN devices or refuses
    /// them.
    pub fn new(number: usize) -> Result<(Self, [String; 2]), Error> {
        // Below the 15 characters that a name may have, for any process and number.
        let names = [0, 1].map(|end| format!("pb{:x}.{}", std::process::id(), 2 * number + end));
        let device = |name: &String| -> io::Result<Tun> {
            let device = Tun::create_named(Interface::new(name)?)?;
            device.set_nonblocking(true)?;
            Ok(device)
        };
        let refused = |error| failed("make a TUN device (is there /dev/net/tun, and permission?)", error);
        let [client, peer] = [device(&names[0]).map_err(refused)?, device(&names[1]).map_err(refused)?];
        Ok((Self { client, peer }, names))
    }
}

/// A packet, and the link to which it belongs.
type Packet = (usize, Vec<u8>);

/// The delay lines of one link.
struct Lines {
    up: DelayLine<Vec<u8>>,
    down: DelayLine<Vec<u8>>,
    stall_after: Option<u64>,
    /// Bytes that went down since the last connection was opened.
    bytes_down: u64,
}

impl Lines {
    fn new(shape: &Shape, seed: u64) -> Self {
        let line = |seed| {
            let rate = Some(shape.bytes_per_second);
            DelayLine::new(rate, shape.round_trip / 2, shape.queue, shape.loss, seed)
        };
        let (up, down) = (line(2 * seed), line(2 * seed + 1));
        Self { up, down, stall_after: shape.stall_after, bytes_down: 0 }
    }

    fn push_up(&mut self, now: Duration, packet: &[u8]) {
        if opens_connection(packet) {
            self.bytes_down = 0;
        }
        self.up.push(now, packet.len(), packet.to_vec());
    }

    fn push_down(&mut self, now: Duration, packet: &[u8]) {
        self.bytes_down += packet.len() as u64;
        if self.stall_after.is_none_or(|most| self.bytes_down <= most) {
            self.down.push(now, packet.len(), packet.to_vec());
        }
    }
}

/// Returns whether an IPv4 packet is the first of a TCP connection: SYN without ACK.
fn opens_connection(packet: &[u8]) -> bool {
    const TCP: u8 = 6;
    let header_len = packet.first().map_or(0, |first| usize::from(first & 0x0f) * 4);
    packet.get(9) == Some(&TCP) && packet.get(header_len + 13).is_some_and(|flags| flags & 0x12 == 0x02)
}

/// All links, and the thread that serves them. It ends when this is dropped.
pub struct Tunnels {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Tunnels {
    /// Starts the thread. `access` is the rate in bytes per second of the line that all links share.
    ///
    /// # Errors
    /// [`ErrorKind::Environment`](engine::ErrorKind::Environment) if no thread can be started.
    pub fn new(links: Vec<(Devices, Shape)>, access: Option<u64>) -> Result<Self, Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let work = move || Network::new(links, access).run(&flag);
        let thread = thread::Builder::new().name("links".to_owned()).spawn(work);
        Ok(Self { stop, thread: Some(thread.map_err(|error| failed("start a thread", error))?) })
    }
}

impl Drop for Tunnels {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the thread works on.
struct Network {
    devices: Vec<Devices>,
    lines: Vec<Lines>,
    access_up: DelayLine<Packet>,
    access_down: DelayLine<Packet>,
}

impl Network {
    fn new(links: Vec<(Devices, Shape)>, access: Option<u64>) -> Self {
        let (mut devices, mut lines) = (Vec::new(), Vec::new());
        for (seed, (pair, shape)) in (1..).zip(links) {
            devices.push(pair);
            lines.push(Lines::new(&shape, seed));
        }
        let line = || DelayLine::new(access, Duration::ZERO, ACCESS_QUEUE, 0.0, 0);
        Self { devices, lines, access_up: line(), access_down: line() }
    }

    /// Forwards packets until `stop` is set.
    fn run(mut self, stop: &AtomicBool) {
        let started = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            self.deliver(started.elapsed());
            let wait = self
                .next_arrival()
                .map_or(LOOK_EVERY, |at| at.saturating_sub(started.elapsed()).min(LOOK_EVERY));
            let ready = self.wait(wait);
            thread::sleep(PAUSE);
            self.take(&ready, started.elapsed());
        }
    }

    fn next_arrival(&self) -> Option<Duration> {
        let links = self.lines.iter().flat_map(|lines| [lines.up.next_arrival(), lines.down.next_arrival()]);
        let access = [self.access_up.next_arrival(), self.access_down.next_arrival()];
        links.chain(access).flatten().min()
    }

    /// Passes on all packets that have arrived.
    fn deliver(&mut self, now: Duration) {
        for (link, lines) in self.lines.iter_mut().enumerate() {
            while let Some((arrival, packet)) = lines.up.pop(now) {
                self.access_up.push(arrival, packet.len(), (link, packet));
            }
            while let Some((arrival, packet)) = lines.down.pop(now) {
                self.access_down.push(arrival, packet.len(), (link, packet));
            }
        }
        // A device that takes no packet loses it, as a network may.
        while let Some((_, (link, packet))) = self.access_up.pop(now) {
            let _ = self.devices.get(link).map(|devices| devices.peer.send(&packet));
        }
        while let Some((_, (link, packet))) = self.access_down.pop(now) {
            let _ = self.devices.get(link).map(|devices| devices.client.send(&packet));
        }
    }

    /// Waits for packets. Returns for each device whether it has some: client and peer of the first link,
    /// then of the next.
    fn wait(&self, most: Duration) -> Vec<bool> {
        let devices = self.devices.iter().flat_map(|Devices { client, peer }| [client, peer]);
        let mut polled: Vec<_> = devices.map(|device| PollFd::new(device, PollFlags::IN)).collect();
        let most = Timespec { tv_sec: 0, tv_nsec: i64::from(most.subsec_nanos()) };
        match poll(&mut polled, Some(&most)) {
            Ok(_) | Err(Errno::INTR) => (),
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
        polled.iter().map(|device| !device.revents().is_empty()).collect()
    }

    /// Takes packets from the devices that have some.
    fn take(&mut self, ready: &[bool], now: Duration) {
        let links = self.devices.iter().zip(&mut self.lines).zip(ready.chunks_exact(2));
        for ((devices, lines), ready) in links {
            if ready[0] {
                for_each_packet(&devices.client, |packet| lines.push_up(now, packet));
            }
            if ready[1] {
                for_each_packet(&devices.peer, |packet| lines.push_down(now, packet));
            }
        }
    }
}

/// Takes packets from a device, not more than a batch.
fn for_each_packet(device: &Tun, mut each: impl FnMut(&[u8])) {
    let mut packet = [0; MAX_PACKET];
    for _ in 0..BATCH {
        let Ok(length) = device.recv(&mut packet) else { break };
        each(&packet[..length.min(MAX_PACKET)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(flags: u8, length: usize) -> Vec<u8> {
        let mut packet = vec![0; length];
        (packet[0], packet[9], packet[20 + 13]) = (0x45, 6, flags);
        packet
    }

    #[test]
    fn a_stalled_peer_gets_its_first_bytes_through_on_each_connection() {
        let shape: Shape = "8M/2ms/stall=2500".parse().unwrap();
        let mut lines = Lines::new(&shape, 1);
        let arrive = |lines: &mut Lines| {
            let now = Duration::from_secs(1);
            let all = std::iter::from_fn(|| lines.down.pop(now)).count();
            (all, std::iter::from_fn(|| lines.up.pop(now)).count())
        };
        (0..4).for_each(|_| lines.push_down(Duration::ZERO, &tcp(0x10, 1000)));
        lines.push_up(Duration::ZERO, &tcp(0x10, 60));
        assert_eq!(arrive(&mut lines), (2, 1));
        lines.push_up(Duration::ZERO, &tcp(0x02, 60));
        lines.push_down(Duration::ZERO, &tcp(0x12, 60));
        assert_eq!(arrive(&mut lines), (1, 1));
    }

    #[test]
    fn only_the_first_packet_of_a_connection_opens_it() {
        assert!(opens_connection(&tcp(0x02, 60)) && opens_connection(&tcp(0xc2, 60)));
        assert!(!opens_connection(&tcp(0x12, 60)) && !opens_connection(&tcp(0x10, 60)));
        assert!(!opens_connection(&[]) && !opens_connection(&[0x45; 20]));
    }
}
