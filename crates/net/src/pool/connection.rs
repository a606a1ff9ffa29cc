//! One socket: connecting, the proxy, the handshake, then messages both ways.

use super::{PoolEvent, Target, keep_alive::KeepAlive};
use crate::{
    frame::{RawMessage, Received},
    handshake::{Handshake, HandshakeOptions, Progress},
    message::Message,
    peer::{CloseReason, PeerId},
    sam::Sam,
    socks::{Socks, Step},
    transport::Transport,
};
use mio::net::TcpStream;
use std::{
    io::{self, Read, Write},
    net::SocketAddr,
    time::{Duration, Instant},
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for opening a connection through a proxy (Core `SOCKS5_RECV_TIMEOUT`).
const PROXY_TIMEOUT: Duration = Duration::from_secs(20);
/// Time for opening a connection through an I2P router, which may have to build tunnels first (Core waits as
/// long for each of its answers).
pub(super) const I2P_TIMEOUT: Duration = Duration::from_secs(180);
/// Bytes that may wait to be sent when a message comes that makes us send more: more than two requests for
/// 500 blocks with their coins, of up to 62 kB each. A peer that reads nothing and sends pings could make
/// them grow without end.
const MAX_OUTGOING: usize = 128 << 10;
/// Bytes that are read from one socket before the others have their turn.
pub(super) const READ_QUOTA: usize = 256 << 10;

/// A session with a proxy that connects us to a peer.
pub(super) enum Proxy {
    Socks(Socks),
    I2p(Sam),
}

impl Proxy {
    fn receive(&mut self, bytes: &mut &[u8]) -> Result<Step, CloseReason> {
        match self {
            Self::Socks(socks) => socks.receive(bytes).map_err(CloseReason::Proxy),
            Self::I2p(sam) => sam.receive(bytes).map_err(CloseReason::I2p),
        }
    }

    const fn name(&self) -> &'static str {
        match self {
            Self::Socks(_) => "the proxy",
            Self::I2p(_) => "the I2P router",
        }
    }

    fn timeout(&self) -> Duration {
        match self {
            Self::Socks(_) => PROXY_TIMEOUT,
            Self::I2p(_) => I2P_TIMEOUT,
        }
    }
}

/// A request to the proxy, and the bytes that open it.
pub(super) type ProxyRequest = (Proxy, Vec<u8>);

pub(super) enum Stage {
    /// The socket connects. Then the proxy is asked, if there is one.
    Connecting(Option<ProxyRequest>),
    Proxy(Proxy),
    Handshake(Box<Handshake>),
    /// Messages are exchanged.
    Ready,
}

pub(super) struct Connection {
    pub(super) id: PeerId,
    pub(super) socket: TcpStream,
    pub(super) target: Target,
    pub(super) stage: Stage,
    pub(super) transport: Transport,
    /// What the handshake will say, until it starts.
    introduction: Option<HandshakeOptions>,
    pub(super) nonce: u64,
    proxy_out: Vec<u8>,
    pub(super) is_readable: bool,
    pub(super) is_writable: bool,
    deadline: Instant,
    /// The address of the proxy or I2P router, if the socket leads there.
    through: Option<SocketAddr>,
    keep_alive: KeepAlive,
    /// When the message began that is incomplete now.
    pub(super) incomplete_since: Option<Instant>,
}

impl Connection {
    pub(super) fn new(
        id: PeerId,
        socket: TcpStream,
        target: Target,
        (through, proxy): (Option<SocketAddr>, Option<ProxyRequest>),
        transport: Transport,
        introduction: HandshakeOptions,
        now: Instant,
    ) -> Self {
        Self {
            id,
            socket,
            target,
            stage: Stage::Connecting(proxy),
            transport,
            nonce: introduction.nonce,
            introduction: Some(introduction),
            proxy_out: Vec::new(),
            is_readable: false,
            is_writable: false,
            deadline: now + CONNECT_TIMEOUT,
            through,
            keep_alive: KeepAlive::new(now),
            incomplete_since: None,
        }
    }

    /// Returns whether the handshake is not done.
    pub(super) const fn is_opening(&self) -> bool {
        !matches!(self.stage, Stage::Ready)
    }

    /// Returns whether there is something that can be done at once.
    pub(super) fn has_work(&self, may_read: bool) -> bool {
        self.is_readable && may_read || self.is_writable && self.has_outgoing()
    }

    fn has_outgoing(&self) -> bool {
        match self.stage {
            Stage::Connecting(_) => true,
            Stage::Proxy(_) => !self.proxy_out.is_empty(),
            _ => !self.transport.outgoing().is_empty(),
        }
    }

    /// Writes what is possible without waiting, and reads at most `quota` bytes.
    pub(super) fn drive(
        &mut self,
        buffer: &mut [u8],
        found: &mut Vec<PoolEvent>,
        quota: usize,
        now: Instant,
    ) -> Result<(), CloseReason> {
        if self.is_writable && matches!(self.stage, Stage::Connecting(_)) {
            self.finish_connecting(now)?;
        }
        if self.is_readable && quota > 0 && !matches!(self.stage, Stage::Connecting(_)) {
            self.read(buffer, found, quota, now)?;
        }
        self.write()
    }

    fn finish_connecting(&mut self, now: Instant) -> Result<(), CloseReason> {
        if let Ok(Some(error)) | Err(error) = self.socket.take_error() {
            return Err(self.cannot_connect(error.kind()));
        }
        match self.socket.peer_addr() {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                self.is_writable = false;
                return Ok(());
            }
            Err(error) => return Err(self.cannot_connect(error.kind())),
        }
        // Requests are small and must not wait for each other.
        self.socket.set_nodelay(true).map_err(|error| CloseReason::Io(error.kind()))?;
        let Stage::Connecting(proxy) = &mut self.stage else { return Ok(()) };
        if let Some((proxy, greeting)) = proxy.take() {
            self.proxy_out = greeting;
            self.deadline = now + proxy.timeout();
            self.stage = Stage::Proxy(proxy);
        } else {
            self.start_handshake(now);
        }
        Ok(())
    }

    /// The reason if the socket does not connect to the peer, or to what is to connect us.
    fn cannot_connect(&self, error: io::ErrorKind) -> CloseReason {
        match (&self.stage, self.through) {
            (Stage::Connecting(Some((proxy, _))), Some(address)) => {
                CloseReason::NoProxy { what: proxy.name(), address, error }
            }
            (Stage::Connecting(_), _) if error == io::ErrorKind::TimedOut => CloseReason::ConnectTimedOut,
            _ => CloseReason::Connect(error),
        }
    }

    /// The stream that an I2P router opens for this connection, as long as it is not open.
    pub(super) fn i2p_stream(&mut self) -> Option<&mut Sam> {
        match &mut self.stage {
            Stage::Connecting(Some((Proxy::I2p(sam), _))) | Stage::Proxy(Proxy::I2p(sam)) => Some(sam),
            _ => None,
        }
    }

    pub(super) fn i2p_session_ready(&mut self) {
        if let Some(request) = self.i2p_stream().and_then(Sam::session_ready) {
            self.proxy_out.extend_from_slice(&request);
        }
    }

    fn start_handshake(&mut self, now: Instant) {
        if let Some(introduction) = self.introduction.take() {
            let (handshake, message) = Handshake::start(introduction, now);
            self.stage = Stage::Handshake(Box::new(handshake));
            self.transport.send(message.encode());
        }
    }

    fn read(
        &mut self,
        buffer: &mut [u8],
        found: &mut Vec<PoolEvent>,
        quota: usize,
        now: Instant,
    ) -> Result<(), CloseReason> {
        let mut total = 0;
        while total < quota {
            let most = buffer.len().min(quota - total);
            let len = match self.socket.read(buffer.get_mut(..most).unwrap_or_default()) {
                Ok(0) => return Err(CloseReason::ClosedByPeer),
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.is_readable = false;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(closed_or(error.kind())),
            };
            total += len;
            self.keep_alive.received(len, now);
            found.push(PoolEvent::Bytes { peer: self.id, bytes: len as u64 });
            self.receive(buffer.get(..len).unwrap_or_default(), found, now)?;
            if self.keep_alive.must_wake() && matches!(self.stage, Stage::Ready) {
                self.send(&KeepAlive::ping())?;
            }
        }
        Ok(())
    }

    fn receive(
        &mut self,
        mut bytes: &[u8],
        found: &mut Vec<PoolEvent>,
        now: Instant,
    ) -> Result<(), CloseReason> {
        while let Stage::Proxy(proxy) = &mut self.stage {
            match proxy.receive(&mut bytes)? {
                Step::Wait => return Ok(()),
                Step::Send(reply) => self.proxy_out.extend_from_slice(&reply),
                Step::Connected => self.start_handshake(now),
            }
        }
        while let Some(received) = self.transport.receive(&mut bytes).map_err(CloseReason::Transport)? {
            self.incomplete_since = None;
            if let Received::Message(raw) = received {
                self.handle(raw, found, now)?;
            }
        }
        if self.transport.incoming().is_some() {
            self.incomplete_since.get_or_insert(now);
        }
        Ok(())
    }

    fn handle(
        &mut self,
        raw: RawMessage,
        found: &mut Vec<PoolEvent>,
        now: Instant,
    ) -> Result<(), CloseReason> {
        let peer = self.id;
        let message = Message::decode(raw).map_err(CloseReason::Message)?;
        if let Stage::Handshake(handshake) = &mut self.stage {
            match handshake.receive(&message, now).map_err(CloseReason::Handshake)? {
                Progress::Continue(replies) => {
                    replies.into_iter().for_each(|reply| self.transport.send(reply.encode()));
                }
                Progress::Done(info) => {
                    self.stage = Stage::Ready;
                    found.push(PoolEvent::Ready { peer, info, transport: self.transport.version() });
                }
            }
            return Ok(());
        }
        // A peer that sends blocks may read the next requests later.
        let is_answered = matches!(message, Message::Ping(_) | Message::Inv(_) | Message::Headers(_));
        match message {
            // Answered here and at once, however busy the caller is.
            Message::Ping(number) => self.transport.send(Message::Pong(number).encode()),
            Message::Pong(number) if KeepAlive::is_own(number) => {}
            Message::Ignored(_) => {}
            message => found.push(PoolEvent::Message { peer, message }),
        }
        let is_full = self.transport.outgoing().len() > MAX_OUTGOING;
        if is_full && is_answered { Err(CloseReason::DoesNotRead) } else { Ok(()) }
    }

    /// Sends a message as far as the socket takes it; the rest follows.
    pub(super) fn send(&mut self, message: &Message) -> Result<(), CloseReason> {
        self.keep_alive.sent();
        self.transport.send(message.encode());
        if matches!(self.stage, Stage::Ready) { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<(), CloseReason> {
        while self.is_writable && self.has_outgoing() {
            let bytes = match self.stage {
                Stage::Connecting(_) => return Ok(()),
                Stage::Proxy(_) => self.proxy_out.as_slice(),
                _ => self.transport.outgoing(),
            };
            match self.socket.write(bytes) {
                Ok(len) if matches!(self.stage, Stage::Proxy(_)) => drop(self.proxy_out.drain(..len)),
                Ok(len) => self.transport.mark_sent(len),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.is_writable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // What the peer sent before it closed is read first; reading then finds the end.
                Err(_) if self.is_readable => self.is_writable = false,
                Err(error) => return Err(closed_or(error.kind())),
            }
        }
        Ok(())
    }

    /// Closes the connection if it took too long, and sends a ping if nothing has come for a while.
    pub(super) fn check_time(&mut self, now: Instant) -> Result<(), CloseReason> {
        let is_late = now >= self.deadline;
        if self.is_readable {
            // What has come is only not read yet.
            self.keep_alive.received(0, now);
        }
        match &self.stage {
            Stage::Connecting(_) if is_late => return Err(self.cannot_connect(io::ErrorKind::TimedOut)),
            Stage::Proxy(_) if is_late => return Err(CloseReason::ConnectTimedOut),
            Stage::Handshake(handshake) => handshake.check_time(now).map_err(CloseReason::Handshake)?,
            Stage::Ready => {
                let ping = self.keep_alive.check_time(now)?;
                return ping.map_or(Ok(()), |ping| self.send(&ping));
            }
            _ => {}
        }
        Ok(())
    }
}

fn closed_or(kind: io::ErrorKind) -> CloseReason {
    match kind {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => CloseReason::ClosedByPeer,
        kind => CloseReason::Io(kind),
    }
}
