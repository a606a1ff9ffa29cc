//! Both transports behind one type: bytes in, messages out, and the other way round.

mod v2;

pub use crate::cipher::Role;

use crate::{
    cipher::KeyPair,
    frame::{FrameDecoder, FrameError, RawMessage, Received, write_frame},
};
use v2::V2;

/// Memory that is kept for messages when all are sent, in bytes: our longest one has 18 kB.
const KEPT_OUT: usize = 32 << 10;

wire::named! {
/// Which transport a connection uses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TransportVersion {
    /// Frames in the clear.
    V1 = "v1",
    /// Enciphered packets (BIP 324).
    V2 = "v2",
}
}

/// The error for bytes that the transport does not allow. The connection must be closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TransportError {
    /// A frame of version 1 is wrong.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The peer opened with a `version` of the version 1 transport although it did not open the connection.
    #[error("the peer spoke version 1 of the transport without having been asked")]
    UnaskedV1,
    /// No terminator came after 4,095 bytes of garbage.
    #[error("the garbage of the version 2 transport has no end")]
    GarbageTooLong,
    #[error("a packet of {len} bytes is above the limit of the version 2 transport")]
    PacketTooLong { len: usize },
    /// A packet is not authentic: another key or damaged bytes.
    #[error("a packet of the version 2 transport has a wrong tag")]
    Tag,
}

enum Protocol {
    V1 { magic: [u8; 4], decoder: FrameDecoder },
    V2(Box<V2>),
}

/// The transport of one connection. It does no I/O: the caller moves bytes between it and a socket.
pub struct Transport {
    protocol: Protocol,
    out: Vec<u8>,
    /// Number of bytes at the start of `out` that were sent.
    out_sent: usize,
    sent_total: u64,
    received_total: u64,
}

impl Transport {
    /// Creates a version 1 transport for the network with this magic.
    pub fn v1(magic: [u8; 4]) -> Self {
        Self::new(Protocol::V1 { magic, decoder: FrameDecoder::new(magic) }, Vec::new())
    }

    /// Creates a version 2 transport for the network with this magic, with random keys and garbage. A
    /// responder sends nothing before bytes arrive.
    pub fn v2(magic: [u8; 4], role: Role) -> Self {
        let mut garbage = vec![0; crate::random::below(v2::MAX_GARBAGE_LEN + 1)];
        crate::random::fill(&mut garbage);
        Self::v2_with(magic, role, KeyPair::random(), garbage)
    }

    fn v2_with(magic: [u8; 4], role: Role, keys: KeyPair, garbage: Vec<u8>) -> Self {
        let mut out = Vec::new();
        let v2 = V2::new(magic, role, keys, garbage, &mut out);
        Self::new(Protocol::V2(Box::new(v2)), out)
    }

    fn new(protocol: Protocol, out: Vec<u8>) -> Self {
        Self { protocol, out, out_sent: 0, sent_total: 0, received_total: 0 }
    }

    pub const fn version(&self) -> TransportVersion {
        match self.protocol {
            Protocol::V1 { .. } => TransportVersion::V1,
            Protocol::V2(_) => TransportVersion::V2,
        }
    }

    /// Appends a message to the bytes that are to be sent. Before version 2's keys are known it waits.
    pub fn send(&mut self, message: RawMessage) {
        match &mut self.protocol {
            Protocol::V1 { magic, .. } => {
                write_frame(&mut self.out, *magic, message.command, &message.payload)
            }
            Protocol::V2(v2) => v2.send(message, &mut self.out),
        }
    }

    /// Returns the bytes that are to be sent.
    pub fn outgoing(&self) -> &[u8] {
        self.out.get(self.out_sent..).unwrap_or_default()
    }

    /// Removes the first `len` bytes from [`Transport::outgoing`]: they were sent.
    pub fn mark_sent(&mut self, len: usize) {
        self.out_sent = (self.out_sent + len).min(self.out.len());
        self.sent_total += len as u64;
        if self.out_sent == self.out.len() {
            self.out.clear();
            self.out.shrink_to(KEPT_OUT);
            self.out_sent = 0;
        } else if self.out_sent > self.out.len() / 2 {
            self.out.drain(..self.out_sent);
            self.out_sent = 0;
        }
    }

    /// Takes received bytes from the front of `bytes` until a message is complete. Returns `None` when all
    /// bytes were taken.
    ///
    /// # Errors
    /// [`TransportError`]; the connection must then be closed.
    pub fn receive(&mut self, bytes: &mut &[u8]) -> Result<Option<Received>, TransportError> {
        let before = bytes.len();
        let result = match &mut self.protocol {
            Protocol::V1 { decoder, .. } => decoder.receive(bytes).map_err(TransportError::from),
            Protocol::V2(v2) => v2.receive(bytes, &mut self.out),
        };
        self.received_total += (before - bytes.len()) as u64;
        result
    }

    /// Returns how many bytes of an incomplete message have come, and how many it has.
    pub fn incoming(&self) -> Option<(usize, usize)> {
        match &self.protocol {
            Protocol::V1 { decoder, .. } => decoder.incoming(),
            Protocol::V2(v2) => v2.incoming(),
        }
    }

    /// Returns the memory that an incomplete message and unsent bytes take, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let incomplete = match &self.protocol {
            Protocol::V1 { decoder, .. } => decoder.memory_bytes(),
            Protocol::V2(v2) => v2.memory_bytes(),
        };
        incomplete + self.out.capacity()
    }

    /// Returns whether the same address should be dialled again with version 1, after the peer has closed the
    /// connection, or the handshake has timed out: version 2 was tried, at least a frame's head was sent, and
    /// nothing at all was received (Core `V2Transport::ShouldReconnectV1`). A peer that sent anything, even a
    /// `version`, is not dialled again: an attacker between the peers could force version 1 that way.
    pub fn should_retry_with_v1(&self) -> bool {
        matches!(&self.protocol, Protocol::V2(v2) if v2.is_initiator())
            && self.sent_total >= crate::frame::HEAD_LEN as u64
            && self.received_total == 0
    }
}

#[cfg(test)]
mod tests;
