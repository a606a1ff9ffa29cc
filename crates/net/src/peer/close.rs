//! Why a connection ended.

use crate::{
    handshake::HandshakeError, headers::HeaderFault, message::MessageError, sam::SamError, socks::SocksError,
    transport::TransportError,
};
use std::{io, net::SocketAddr};
use wire::SpentCoinsError;

/// Why a connection was closed or could not be opened.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// The connection could not be opened.
    #[error("could not connect: {0}")]
    Connect(io::ErrorKind),
    /// The connection was not open in time.
    #[error("could not connect in time")]
    ConnectTimedOut,
    /// What is to connect us, at this address, cannot be reached.
    #[error("{what} at {address} cannot be reached: {error}")]
    NoProxy {
        /// The proxy or the I2P router.
        what: &'static str,
        /// Its address.
        address: SocketAddr,
        /// Why.
        error: io::ErrorKind,
    },
    /// The proxy did not connect us.
    #[error("the proxy: {0}")]
    Proxy(SocksError),
    /// The I2P router did not connect us.
    #[error("the I2P router: {0}")]
    I2p(SamError),
    /// The bytes are not those of the protocol.
    #[error(transparent)]
    Transport(TransportError),
    /// A message is malformed or too long.
    #[error(transparent)]
    Message(MessageError),
    /// The handshake failed.
    #[error("handshake: {0}")]
    Handshake(HandshakeError),
    /// The headers are wrong.
    #[error("headers: {0}")]
    Headers(HeaderFault),
    /// The peer closed the connection.
    #[error("closed by the peer")]
    ClosedByPeer,
    /// Reading or writing failed.
    #[error("the connection failed: {0}")]
    Io(io::ErrorKind),
    /// No byte came although blocks were asked for.
    #[error("sent nothing although blocks were asked for")]
    Stalled,
    /// Bytes came, but no block that was asked for, for too long.
    #[error("sent bytes, but no block that was asked for")]
    NoBlocks,
    /// Bytes came too slowly to be of use.
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
    /// Several blocks came that were not asked for.
    #[error("sent blocks that were not asked for")]
    Unrequested,
    /// The peer has none of the blocks that were asked for.
    #[error("has none of the blocks that were asked for")]
    HasNoBlocks,
    /// A ping was not answered.
    #[error("did not answer a ping")]
    NoPong,
    /// Our messages were not read.
    #[error("does not read our messages")]
    DoesNotRead,
    /// The memory for incomplete messages was used up, and this connection was the slowest.
    #[error("held memory for an incomplete message for too long")]
    OutOfMemory,
    /// We have no more use for the connection.
    #[error("no longer needed")]
    NotNeeded,
}

/// Why a peer is not asked for spent coins any more.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpentCoinsFault {
    /// It answered what was asked after them.
    #[error("offers spent coins, but does not send those of its blocks")]
    NotSent,
    /// Nothing came for that long.
    #[error("offers spent coins, but did not send them within 10 seconds")]
    Late,
    /// Coins of a block came for which it was not asked.
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
