//! The pings that keep a connection alive: they find out whether a quiet peer is there, and wake one that
//! waits.

use crate::{message::Message, peer::CloseReason};
use std::time::{Duration, Instant};

/// Time without a byte after which a ping is sent, and then again until the connection is closed.
const QUIET: Duration = Duration::from_secs(60);
/// Bytes after which a ping is sent if nothing else was: the size of a node's send buffer (Core
/// `DEFAULT_MAXSENDBUFFER`). A node that has filled it looks only every 100 ms whether it has emptied, unless
/// a message comes (Core `CConnman::ThreadMessageHandler`).
const WAKE_BYTES: usize = 1_000_000;
/// The number of these pings, which no marker of a request has.
const KEEP_ALIVE: u64 = 1 << 63;

pub(super) struct KeepAlive {
    last_received: Instant,
    /// When a ping was sent because the peer was quiet, if nothing has come since.
    pinged: Option<Instant>,
    /// Bytes that were received since a message was sent.
    received_since_sent: usize,
}

impl KeepAlive {
    pub(super) const fn new(now: Instant) -> Self {
        Self { last_received: now, pinged: None, received_since_sent: 0 }
    }

    pub(super) const fn received(&mut self, bytes: usize, now: Instant) {
        self.last_received = now;
        self.pinged = None;
        self.received_since_sent += bytes;
    }

    pub(super) const fn sent(&mut self) {
        self.received_since_sent = 0;
    }

    /// Whether the peer may wait until a message comes.
    pub(super) const fn must_wake(&self) -> bool {
        self.received_since_sent >= WAKE_BYTES
    }

    pub(super) const fn ping() -> Message {
        Message::Ping(KEEP_ALIVE)
    }

    /// Returns a ping if nothing has come for a while. Fails if nothing has come since the last one either.
    pub(super) fn check_time(&mut self, now: Instant) -> Result<Option<Message>, CloseReason> {
        if now.saturating_duration_since(self.pinged.unwrap_or(self.last_received)) < QUIET {
            return Ok(None);
        }
        if self.pinged.is_some() {
            return Err(CloseReason::NoPong);
        }
        self.pinged = Some(now);
        Ok(Some(Self::ping()))
    }

    /// Whether a pong with this number answers such a ping.
    pub(super) const fn is_own(number: u64) -> bool {
        number == KEEP_ALIVE
    }
}
