//! The session with an I2P router: a connection that stays open while streams use it.

use super::connection::I2P_TIMEOUT;
use crate::{
    peer::CloseReason,
    sam::{self, Sam, SamError},
    socks::Step,
};
use mio::{Interest, Registry, Token, event::Event, net::TcpStream};
use std::{
    io::{self, Read, Write},
    net::SocketAddr,
    time::Instant,
};

pub(super) struct I2pSession {
    name: String,
    socket: TcpStream,
    requests: Sam,
    out: Vec<u8>,
    is_readable: bool,
    is_writable: bool,
    is_ready: bool,
    deadline: Instant,
}

impl I2pSession {
    pub(super) fn start(
        router: SocketAddr,
        registry: &Registry,
        token: Token,
        now: Instant,
    ) -> io::Result<Self> {
        let mut socket = TcpStream::connect(router)?;
        registry.register(&mut socket, token, Interest::READABLE | Interest::WRITABLE)?;
        let name = sam::session_name();
        let (requests, out) = Sam::session(&name);
        let (is_readable, is_writable, is_ready) = (false, false, false);
        let deadline = now + I2P_TIMEOUT;
        Ok(Self { name, socket, requests, out, is_readable, is_writable, is_ready, deadline })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) const fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Notes what the poll says of the socket.
    pub(super) fn mark(&mut self, event: &Event) {
        self.is_readable |= event.is_readable() || event.is_read_closed() || event.is_error();
        self.is_writable |= event.is_writable() || event.is_error();
    }

    /// Writes and reads what is possible without waiting. Returns whether the session has become ready.
    pub(super) fn drive(&mut self, now: Instant) -> Result<bool, CloseReason> {
        let was_ready = self.is_ready;
        self.write()?;
        self.read()?;
        self.write()?;
        if !self.is_ready && now >= self.deadline {
            return Err(CloseReason::ConnectTimedOut);
        }
        Ok(self.is_ready && !was_ready)
    }

    fn write(&mut self) -> Result<(), CloseReason> {
        while self.is_writable && !self.out.is_empty() {
            match self.socket.write(&self.out) {
                Ok(len) => drop(self.out.drain(..len)),
                Err(error) => self.is_writable = may_go_on(&error)?,
            }
        }
        Ok(())
    }

    fn read(&mut self) -> Result<(), CloseReason> {
        let mut buffer = [0; 4096];
        while self.is_readable {
            match self.socket.read(&mut buffer) {
                Ok(0) => return Err(CloseReason::I2p(SamError::NoSession)),
                Ok(len) => {
                    let mut bytes = buffer.get(..len).unwrap_or_default();
                    // When the session is ready, the router has nothing more to say.
                    while !bytes.is_empty() && !self.is_ready {
                        match self.requests.receive(&mut bytes).map_err(CloseReason::I2p)? {
                            Step::Wait => {}
                            Step::Send(request) => self.out.extend_from_slice(&request),
                            Step::Connected => self.is_ready = true,
                        }
                    }
                }
                Err(error) => self.is_readable = may_go_on(&error)?,
            }
        }
        Ok(())
    }
}

/// Whether to try again at once after an error of the socket; otherwise when the poll says so.
fn may_go_on(error: &io::Error) -> Result<bool, CloseReason> {
    match error.kind() {
        io::ErrorKind::Interrupted => Ok(true),
        io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected => Ok(false),
        kind => Err(CloseReason::Connect(kind)),
    }
}
