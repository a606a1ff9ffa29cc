//! Links between network namespaces: a thread that takes packets from one TUN device of each link and gives
//! them to the other, when they have passed the link's delay line.
//!
//! ```text
//! program ── client device ══ link ══ peer device ── bitcoind
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

/// A link: its two devices, that of the program and that of the peer, and what comes from each.
pub struct Link {
    devices: [Tun; 2],
    lines: [DelayLine<Vec<u8>>; 2],
}

impl Link {
    /// Creates the devices of link `number` in the namespace of this process, and returns their names: the
    /// program's and the peer's. They vanish when they are dropped.
    ///
    /// # Errors
    /// [`ErrorKind::Environment`](engine::ErrorKind::Environment) if the system has no TUN devices or refuses
    /// them.
    pub fn new(number: usize, shape: Shape) -> Result<(Self, [String; 2]), Error> {
        // Below the 15 characters that a name may have, for any process and number.
        let names = [0, 1].map(|end| format!("pb{:x}.{}", std::process::id(), 2 * number + end));
        let device = |name: &String| -> io::Result<Tun> {
            let device = Tun::create_named(Interface::new(name)?)?;
            device.set_nonblocking(true)?;
            Ok(device)
        };
        let refused = |error| failed("make a TUN device (is there /dev/net/tun, and permission?)", error);
        let devices = [device(&names[0]).map_err(refused)?, device(&names[1]).map_err(refused)?];
        Ok((Self { devices, lines: [DelayLine::new(shape), DelayLine::new(shape)] }, names))
    }

    /// Passes on all packets that have arrived. A device that takes no packet loses it, as a network may.
    fn deliver(&mut self, now: Duration) {
        for (line, to) in self.lines.iter_mut().zip(self.devices.iter().rev()) {
            while let Some(packet) = line.pop(now) {
                let _ = to.send(&packet);
            }
        }
    }

    /// Takes packets from the devices that have some, not more than a batch from each.
    fn take(&mut self, ready: &[bool], now: Duration) {
        let mut packet = [0; MAX_PACKET];
        for ((line, from), is_ready) in self.lines.iter_mut().zip(&self.devices).zip(ready) {
            for _ in 0..if *is_ready { BATCH } else { 0 } {
                let Ok(length) = from.recv(&mut packet) else { break };
                let packet = &packet[..length.min(MAX_PACKET)];
                line.push(now, packet.len(), packet.to_vec());
            }
        }
    }
}

/// All links, and the thread that serves them. It ends when this is dropped.
pub struct Tunnels {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Tunnels {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`ErrorKind::Environment`](engine::ErrorKind::Environment) if no thread can be started.
    pub fn new(links: Vec<Link>) -> Result<Self, Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = thread::Builder::new().name("links".to_owned()).spawn(move || run(links, &flag));
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

/// Forwards packets until `stop` is set.
fn run(mut links: Vec<Link>, stop: &AtomicBool) {
    let started = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let now = started.elapsed();
        links.iter_mut().for_each(|link| link.deliver(now));
        let next = links.iter().flat_map(|link| &link.lines).filter_map(DelayLine::next_arrival).min();
        let wait = next.map_or(LOOK_EVERY, |at| at.saturating_sub(started.elapsed()).min(LOOK_EVERY));
        let ready = ready(&links, wait);
        thread::sleep(PAUSE);
        let now = started.elapsed();
        links.iter_mut().zip(ready.chunks_exact(2)).for_each(|(link, ready)| link.take(ready, now));
    }
}

/// Waits for packets. Returns for each device whether it has some.
fn ready(links: &[Link], most: Duration) -> Vec<bool> {
    let devices = links.iter().flat_map(|link| &link.devices);
    let mut polled: Vec<_> = devices.map(|device| PollFd::new(device, PollFlags::IN)).collect();
    let most = Timespec { tv_sec: 0, tv_nsec: i64::from(most.subsec_nanos()) };
    match poll(&mut polled, Some(&most)) {
        Ok(_) | Err(Errno::INTR) => (),
        Err(_) => thread::sleep(Duration::from_millis(1)),
    }
    polled.iter().map(|device| !device.revents().is_empty()).collect()
}
