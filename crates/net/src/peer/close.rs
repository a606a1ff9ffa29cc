//! Why a connection ended.

use crate::{
    handshake::HandshakeError, headers::HeaderFault, message::MessageError, sam::SamError, socks::SocksError,
    transport::TransportError,
};
use std::{io, net::SocketAddr};
use wire::SpentCoinsError;

/// Why a connection was closed or could not be opened.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CloseReason {
    #[error("could not connect: {0}")]
    Connect(io::ErrorKind),
    #[error("could not connect in time")]
    ConnectTimedOut,
    #[error("{what} at {address} cannot be reached: {error}")]
    NoProxy { what: &'static str, address: SocketAddr, error: io::ErrorKind },
    #[error("the proxy: {0}")]
    Proxy(SocksError),
    #[error("the I2P router: {0}")]
    I2p(SamError),
    /// The bytes are not those of the protocol.
    #[error(transparent)]
    Transport(TransportError),
    /// A message is malformed or too long.
    #[error(transparent)]
    Message(MessageError),
    #[error("handshake: {0}")]
    Handshake(HandshakeError),
    #[error("headers: {0}")]
    Headers(HeaderFault),
    #[error("closed by the peer")]
    ClosedByPeer,
    #[error("the connection failed: {0}")]
    Io(io::ErrorKind),
    #[error("sent nothing although blocks were asked for")]
    Stalled,
    /// Bytes came, but no block that was asked for, for too long.
    #[error("sent bytes, but no block that was asked for")]
    NoBlocks,
    #[error("too slow to be of use")]
    TooSlow,
    /// The slowest of all, far below the others, while another address waits.
    #[error("by far the slowest of all peers")]
    Slowest,
    /// Blocks turned out much larger than they were expected to be when the peer was asked for them, and
    /// others can send them sooner.
    #[error("was asked for more than its share, since blocks have become larger")]
    AskedForTooMuch,
    /// A block's bytes were not those that its hash stands for.
    #[error("sent a block with changed contents")]
    Mutated,
    /// Spent coins came that were not asked for, or are malformed.
    #[error(transparent)]
    SpentCoins(SpentCoinsFault),
    #[error("sent blocks that were not asked for")]
    Unrequested,
    #[error("has none of the blocks that were asked for")]
    HasNoBlocks,
    #[error("did not answer a ping")]
    NoPong,
    #[error("does not read our messages")]
    DoesNotRead,
    /// The memory for incomplete messages was used up, and this connection was the slowest.
    #[error("held memory for an incomplete message for too long")]
    OutOfMemory,
    #[error("no longer needed")]
    NotNeeded,
}

/// Why a peer is not asked for spent coins any more.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SpentCoinsFault {
    /// It answered what was asked after them.
    #[error("offers spent coins, but does not send those of its blocks")]
    NotSent,
    /// Nothing came for that long.
    #[error("offers spent coins, but did not send them within 10 seconds")]
    Late,
    #[error("sent spent coins that were not asked for")]
    Unrequested,
    /// The coins are not those of the block.
    #[error("sent malformed spent coins: {0}")]
    Malformed(SpentCoinsError),
}

impl SpentCoinsFault {
    /// Returns whether it is a reason to close the connection.
    pub const fn closes(&self) -> bool {
        matches!(self, Self::Unrequested | Self::Malformed(_))
    }
}

impl CloseReason {
    /// Returns whether another attempt would end in the same way.
    pub const fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Connect(io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput)
                | Self::Handshake(
                    HandshakeError::Ourselves
                        | HandshakeError::OldVersion { .. }
                        | HandshakeError::Services(_)
                )
        )
    }

    /// Returns whether the peer broke the protocol, so that its address should not be dialled again for a
    /// day, unless the user gave it.
    pub const fn is_misbehaviour(&self) -> bool {
        matches!(
            self,
            Self::Transport(_) | Self::Message(_) | Self::Headers(_) | Self::Mutated | Self::Unrequested
        )
    }
}
