//! The poll loop: one thread, many sockets.
//!
//! The pool dials, shakes hands, answers pings, and turns bytes into messages. Its memory is bounded:
//! incomplete messages, what peers have not read, and blocks that the caller has not released count, and when
//! the limit is reached no socket is read until there is memory again, so that TCP makes the peers wait. If
//! the caller holds less than half of it, the connection with the oldest incomplete message is closed. A peer
//! that does not read is closed before that if it keeps sending what must be answered.

mod connection;
mod i2p;
mod keep_alive;
mod throttle;

use crate::{
    address::{Host, NetworkKind, PeerAddress},
    addresses::KnownPeer,
    handshake::{HandshakeError, HandshakeOptions, PeerInfo},
    message::Message,
    peer::{CloseReason, PeerId},
    sam::{Sam, SamError},
    socks::Socks,
    transport::{Role, Transport, TransportVersion},
};
use connection::{Connection, Proxy, ProxyRequest, READ_QUOTA};
use i2p::I2pSession;
use mio::{Events, Interest, Poll, Token, Waker, net::TcpStream};
use std::{
    collections::BTreeMap,
    fmt, io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use throttle::Throttle;
use wire::Network;

/// Length of the buffer into which all sockets are read, in bytes.
const BUFFER_LEN: usize = 256 << 10;
/// The least memory that suffices to receive two blocks of the maximum size, in bytes.
const MIN_MEMORY: usize = 8 << 20;
/// Time without memory after which the connection with the oldest incomplete message is closed.
const MEMORY_PATIENCE: Duration = Duration::from_secs(5);
/// Time between two looks at the clocks of all connections.
const CLOCK: Duration = Duration::from_millis(250);
/// The token of the waker; connections have their numbers.
const WAKER: Token = Token(usize::MAX);
/// The token of the session with the I2P router.
const I2P_SESSION: Token = Token(usize::MAX - 1);

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Target {
    Address(PeerAddress),
    /// A name, which only a proxy resolves, and a port.
    Name(String, u16),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "{address}"),
            Self::Name(name, port) => write!(f, "{name}:{port}"),
        }
    }
}

/// Which peers are used, and how connections to them are made.
#[derive(Clone, Debug)]
pub struct PeerOptions {
    /// Only these peers are used; if empty, peers are looked for.
    pub connect: Vec<Target>,
    /// Peers that are used besides those that are found.
    pub add: Vec<Target>,
    /// What an earlier run knew of addresses.
    pub known: Vec<KnownPeer>,
    /// Maximum number of connections; Core's peers stay well served below 64.
    pub peers_max: usize,
    /// Maximum number of bytes that are received in a second; `None`: as many as come.
    pub bytes_per_second: Option<u64>,
    /// A SOCKS5 proxy through which all connections are made.
    pub proxy: Option<SocketAddr>,
    /// An I2P router with SAM 3.1, through which all connections to I2P addresses are made.
    pub i2p_sam: Option<SocketAddr>,
    /// Networks whose addresses are dialled.
    pub networks: Vec<NetworkKind>,
    /// Whether DNS seeds are asked for addresses.
    pub use_dns_seeds: bool,
    /// Whether addresses in the program are used if no others are found.
    pub use_fixed_seeds: bool,
    /// Whether version 2 of the transport (BIP-0324) is tried first.
    pub use_v2: bool,
    /// Whether a download waits indefinitely for peers that have what is missing. Otherwise it ends after a
    /// minute without progress, or after five minutes if peers are looked for.
    pub wait: bool,
}

impl Default for PeerOptions {
    fn default() -> Self {
        Self {
            connect: Vec::new(),
            add: Vec::new(),
            known: Vec::new(),
            peers_max: 64,
            bytes_per_second: None,
            proxy: None,
            i2p_sam: None,
            networks: vec![NetworkKind::Ipv4, NetworkKind::Ipv6],
            use_dns_seeds: true,
            use_fixed_seeds: true,
            use_v2: true,
            wait: false,
        }
    }
}

/// How the pool connects, and what it says of us.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    pub network: Network,
    /// The bytes that start each frame: the network's, except on a custom signet.
    pub magic: [u8; 4],
    /// Name and version of our program, such as `/peregrine:1.0.0-rc.1/`.
    pub user_agent: String,
    /// Height of our best block.
    pub height: i32,
    /// Whether the coins that blocks spend are of use.
    pub wants_spent_coins: bool,
    pub peers: PeerOptions,
    /// Memory for messages and for blocks that are not released, in bytes; at least 8 MiB are used.
    pub memory_bytes: usize,
    /// The clock.
    pub now: fn() -> Instant,
}

#[derive(Clone, Debug)]
pub enum PoolEvent {
    /// The handshake with a peer is done.
    Ready { peer: PeerId, info: PeerInfo, transport: TransportVersion },
    /// Bytes came from a peer, in the handshake or later.
    Bytes { peer: PeerId, bytes: u64 },
    /// For a block or spent coins, [`Pool::release`] is to be called when their bytes are no longer in
    /// memory.
    Message { peer: PeerId, message: Message },
    /// A connection ended that the caller did not close.
    Closed { peer: PeerId, target: Target, reason: CloseReason, should_retry_with_v1: bool },
}

/// See the module.
pub struct Pool {
    options: PoolOptions,
    poll: Poll,
    events: Events,
    waker: Arc<Waker>,
    connections: BTreeMap<PeerId, Connection>,
    dialled: u64,
    buffer: Vec<u8>,
    found: Vec<PoolEvent>,
    /// Bytes of blocks and spent coins that the caller has not released.
    held_bytes: usize,
    /// Since when no socket has been read because there is no memory.
    full_since: Option<Instant>,
    throttle: Option<Throttle>,
    last_clock: Instant,
    /// The session with the I2P router; none before an I2P address is dialled.
    i2p: Option<I2pSession>,
}

impl Pool {
    /// Creates a pool without connections.
    ///
    /// # Errors
    /// If the operating system refuses a poll or an event descriptor.
    pub fn new(options: PoolOptions) -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        let now = (options.now)();
        let throttle = options.peers.bytes_per_second.map(|rate| Throttle::new(rate, now));
        Ok(Self {
            options,
            poll,
            events: Events::with_capacity(256),
            waker,
            connections: BTreeMap::new(),
            dialled: 0,
            buffer: vec![0; BUFFER_LEN],
            found: Vec::new(),
            held_bytes: 0,
            full_since: None,
            throttle,
            last_clock: now,
            i2p: None,
        })
    }

    /// Returns a handle with which another thread ends a waiting [`Pool::poll`].
    pub fn waker(&self) -> Arc<Waker> {
        Arc::clone(&self.waker)
    }

    /// Opens a connection. Its end is reported by [`PoolEvent::Closed`].
    ///
    /// # Errors
    /// [`CloseReason`] if it cannot even be tried: a name or an onion service without a proxy, or no route.
    pub fn dial(&mut self, target: &Target, version: TransportVersion) -> Result<PeerId, CloseReason> {
        let (address, proxy) = self.route(target)?;
        let through = proxy.is_some().then_some(address);
        let refused = |error: io::Error| CloseReason::Connect(error.kind());
        let mut socket = TcpStream::connect(address).map_err(refused)?;
        let id = PeerId(self.dialled);
        self.dialled += 1;
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(&mut socket, Token(id.0 as usize), interest).map_err(refused)?;
        let magic = self.options.magic;
        let transport = match version {
            TransportVersion::V1 => Transport::v1(magic),
            TransportVersion::V2 => Transport::v2(magic, Role::Initiator),
        };
        let connection = Connection::new(
            id,
            socket,
            target.clone(),
            (through, proxy),
            transport,
            self.introduction(),
            self.now(),
        );
        self.connections.insert(id, connection);
        Ok(id)
    }

    /// Returns the address to connect to, and the request to the proxy.
    fn route(&mut self, target: &Target) -> Result<(SocketAddr, Option<ProxyRequest>), CloseReason> {
        if let (Target::Address(PeerAddress { host: host @ Host::I2p(_), port }), Some(router)) =
            (target, self.options.peers.i2p_sam)
        {
            // SAM 3.1 has no ports (Core `I2P_SAM31_PORT`).
            if *port != 0 {
                return Err(CloseReason::Connect(io::ErrorKind::InvalidInput));
            }
            let (stream, greeting) = self.i2p_stream(router, &host.to_string())?;
            return Ok((router, Some((Proxy::I2p(stream), greeting))));
        }
        let (name, port) = match target {
            Target::Address(address) => (address.host.to_string(), address.port),
            Target::Name(name, port) => (name.clone(), *port),
        };
        match (self.options.peers.proxy, target) {
            (Some(proxy), _) => {
                let (socks, greeting) = Socks::start(&name, port).map_err(CloseReason::Proxy)?;
                Ok((proxy, Some((Proxy::Socks(socks), greeting))))
            }
            (None, Target::Address(address)) => {
                let address = address.to_socket().ok_or(CloseReason::Connect(io::ErrorKind::Unsupported))?;
                Ok((address, None))
            }
            (None, Target::Name(..)) => Err(CloseReason::Connect(io::ErrorKind::Unsupported)),
        }
    }

    /// Starts a stream to an I2P address, and the session that it needs, if there is none.
    fn i2p_stream(&mut self, router: SocketAddr, peer: &str) -> Result<(Sam, Vec<u8>), CloseReason> {
        let session = match self.i2p.take() {
            Some(session) => session,
            None => {
                let started = I2pSession::start(router, self.poll.registry(), I2P_SESSION, self.now());
                started.map_err(|error| self.no_router(error.kind()))?
            }
        };
        let (mut stream, greeting) = Sam::stream(session.name(), peer);
        if session.is_ready() {
            // Nothing is to be sent before the router has answered the greeting.
            let _ = stream.session_ready();
        }
        self.i2p = Some(session);
        Ok((stream, greeting))
    }

    /// Lets the streams that wait for the session go on, or ends them with it.
    fn drive_i2p_session(&mut self, now: Instant) {
        let Some(session) = &mut self.i2p else { return };
        match session.drive(now) {
            Ok(false) => {}
            Ok(true) => self.connections.values_mut().for_each(Connection::i2p_session_ready),
            Err(CloseReason::Connect(error)) => self.end_i2p_session(&self.no_router(error)),
            Err(reason) => self.end_i2p_session(&reason),
        }
    }

    fn no_router(&self, error: io::ErrorKind) -> CloseReason {
        let router = self.options.peers.i2p_sam;
        let no_router = |address| CloseReason::NoProxy { what: "the I2P router", address, error };
        router.map_or(CloseReason::Connect(error), no_router)
    }

    /// Ends the session with the I2P router, and the streams that are being opened. Those that are open are
    /// the router's to close.
    fn end_i2p_session(&mut self, reason: &CloseReason) {
        // Its socket is closed, which removes it from the poll.
        self.i2p = None;
        let waiting = self.connections.values_mut();
        let waiting =
            waiting.filter_map(|connection| connection.i2p_stream().is_some().then_some(connection.id));
        let waiting: Vec<PeerId> = waiting.collect();
        waiting.into_iter().for_each(|id| self.end(id, reason.clone()));
    }

    fn introduction(&self) -> HandshakeOptions {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        HandshakeOptions {
            user_agent: self.options.user_agent.clone(),
            time: time.as_secs() as i64,
            height: self.options.height,
            own_nonces: self.connections.values().map(|connection| connection.nonce).collect(),
            nonce: u64::from_le_bytes(crate::random::bytes()),
            wants_spent_coins: self.options.wants_spent_coins,
        }
    }

    /// Sends a message to a peer, if it is connected.
    pub fn send(&mut self, peer: PeerId, message: &Message) {
        let Some(connection) = self.connections.get_mut(&peer) else { return };
        if let Err(reason) = connection.send(message) {
            self.end(peer, reason);
        }
    }

    /// Closes a connection. There will be no event for it.
    pub fn close(&mut self, peer: PeerId) {
        if let Some(mut connection) = self.connections.remove(&peer) {
            // The socket is closed next, which removes it in any case.
            let _ = self.poll.registry().deregister(&mut connection.socket);
        }
        self.found.retain(|event| {
            let (PoolEvent::Ready { peer: id, .. }
            | PoolEvent::Bytes { peer: id, .. }
            | PoolEvent::Message { peer: id, .. }
            | PoolEvent::Closed { peer: id, .. }) = event;
            let is_kept = *id != peer;
            let released = if is_kept { 0 } else { block_len(event) };
            self.held_bytes = self.held_bytes.saturating_sub(released);
            is_kept
        });
    }

    /// Returns what a connection leads to.
    pub fn target(&self, peer: PeerId) -> Option<&Target> {
        self.connections.get(&peer).map(|connection| &connection.target)
    }

    /// Returns the number of connections whose handshake is not done.
    pub fn opening(&self) -> usize {
        self.connections.values().filter(|connection| connection.is_opening()).count()
    }

    /// Returns for each connection whether bytes have come that are not read yet, and how many bytes of an
    /// incomplete message have come, and how many it has.
    pub fn readings(&self) -> impl Iterator<Item = (PeerId, bool, Option<(usize, usize)>)> {
        let all = self.connections.values();
        all.map(|connection| (connection.id, connection.is_readable, connection.transport.incoming()))
    }

    /// Returns the time of the pool's clock.
    pub fn now(&self) -> Instant {
        (self.options.now)()
    }

    /// Notes that a block of this length is no longer in memory.
    pub fn release(&mut self, bytes: usize) {
        self.held_bytes = self.held_bytes.saturating_sub(bytes);
    }

    /// Returns the memory for incomplete or unsent messages and blocks that are not released, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.held_bytes + self.connections.values().map(|it| it.transport.memory_bytes()).sum::<usize>()
    }

    /// Waits for events, for at most `timeout`, and handles them.
    ///
    /// # Errors
    /// If the operating system's poll fails; errors of connections are events.
    pub fn poll(&mut self, timeout: Duration) -> io::Result<Vec<PoolEvent>> {
        let throttled = self.throttled(self.now());
        let (is_free, has_memory) = (throttled.is_zero(), self.has_memory());
        let may_read = |connection: &Connection| has_memory && (is_free || connection.is_opening());
        let has_work = self.connections.values().any(|connection| connection.has_work(may_read(connection)));
        let timeout = if throttled.is_zero() { timeout } else { timeout.min(throttled) };
        let timeout = if has_work || !self.found.is_empty() { Duration::ZERO } else { timeout.min(CLOCK) };
        match self.poll.poll(&mut self.events, Some(timeout)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        for event in &self.events {
            if let Some(session) = self.i2p.as_mut().filter(|_| event.token() == I2P_SESSION) {
                session.mark(event);
            }
            if let Some(connection) = self.connections.get_mut(&PeerId(event.token().0 as u64)) {
                connection.is_readable |= event.is_readable() || event.is_read_closed() || event.is_error();
                connection.is_writable |= event.is_writable() || event.is_error();
            }
        }
        let now = self.now();
        self.drive_i2p_session(now);
        self.drive_all(now);
        self.check_times(now);
        Ok(std::mem::take(&mut self.found))
    }

    /// How long no socket is to be read.
    fn throttled(&mut self, now: Instant) -> Duration {
        self.throttle.as_mut().map_or(Duration::ZERO, |throttle| throttle.wait(now))
    }

    fn has_memory(&self) -> bool {
        // A read may double the buffer of an incomplete message.
        self.memory_bytes() + 2 * BUFFER_LEN <= self.options.memory_bytes.max(MIN_MEMORY)
    }

    fn drive_all(&mut self, now: Instant) {
        let mut ended = Vec::new();
        let ids: Vec<PeerId> = self.connections.keys().copied().collect();
        let mut is_full = false;
        // Another connection is first each time, so that none is always last when memory is short.
        let first = crate::random::below(ids.len());
        let readable = self.connections.values().filter(|connection| connection.is_readable).count();
        for id in ids.iter().cycle().skip(first).take(ids.len()) {
            let (has_memory, throttled) = (self.has_memory(), self.throttled(now));
            let Some(connection) = self.connections.get_mut(id) else { continue };
            is_full |= !has_memory && connection.is_readable;
            // A handshake has few bytes, and little time.
            let may_read = has_memory && (throttled.is_zero() || connection.is_opening());
            if !connection.has_work(may_read) {
                continue;
            }
            let turn = self.throttle.map_or(READ_QUOTA, |throttle| throttle.turn(readable).min(READ_QUOTA));
            let (quota, events_before) = (if may_read { turn } else { 0 }, self.found.len());
            if let Err(reason) = connection.drive(&mut self.buffer, &mut self.found, quota, now) {
                ended.push((*id, reason));
            }
            let new = || self.found.iter().skip(events_before);
            self.held_bytes += new().map(block_len).sum::<usize>();
            let read = new().map(read_len).sum();
            if let Some(throttle) = &mut self.throttle {
                throttle.read(read);
            }
        }
        self.full_since = if is_full { Some(self.full_since.unwrap_or(now)) } else { None };
        for (id, reason) in ended {
            self.end(id, reason);
        }
    }

    fn check_times(&mut self, now: Instant) {
        if now.saturating_duration_since(self.last_clock) < CLOCK {
            return;
        }
        self.last_clock = now;
        let late: Vec<(PeerId, CloseReason)> = self
            .connections
            .values_mut()
            .filter_map(|connection| connection.check_time(now).err().map(|reason| (connection.id, reason)))
            .collect();
        for (id, reason) in late {
            self.end(id, reason);
        }
        let is_stuck = self.full_since.is_some_and(|at| now.saturating_duration_since(at) >= MEMORY_PATIENCE);
        // If the caller holds most of the memory, it is the one to wait for.
        if is_stuck && self.held_bytes < self.options.memory_bytes / 2 {
            let incomplete =
                self.connections.values().filter(|connection| connection.incomplete_since.is_some());
            let oldest = incomplete.min_by_key(|connection| (connection.incomplete_since, connection.id));
            if let Some(id) = oldest.map(|connection| connection.id) {
                self.full_since = None;
                self.end(id, CloseReason::OutOfMemory);
            }
        }
    }

    fn end(&mut self, peer: PeerId, reason: CloseReason) {
        if reason == CloseReason::I2p(SamError::NoSession) {
            self.i2p = None;
        }
        let Some(mut connection) = self.connections.remove(&peer) else { return };
        // The socket is closed next, which removes it in any case.
        let _ = self.poll.registry().deregister(&mut connection.socket);
        // A firewall may swallow what it does not know.
        let timed_out = CloseReason::Handshake(HandshakeError::TimedOut);
        let should_retry_with_v1 = [CloseReason::ClosedByPeer, timed_out].contains(&reason)
            && connection.transport.should_retry_with_v1();
        self.found.push(PoolEvent::Closed { peer, target: connection.target, reason, should_retry_with_v1 });
    }
}

const fn read_len(event: &PoolEvent) -> u64 {
    match event {
        PoolEvent::Bytes { bytes, .. } => *bytes,
        _ => 0,
    }
}

/// Returns the bytes that a message holds until it is released.
fn block_len(event: &PoolEvent) -> usize {
    match event {
        PoolEvent::Message { message: Message::Block(bytes) | Message::SpentCoins { bytes, .. }, .. } => {
            bytes.len()
        }
        _ => 0,
    }
}
