//! What a peer does wrong: the list for peers on sockets, and for those of a simulated network.

use crate::prelude::*;
use net::message::MAX_HEADERS;

/// Depth of the deepest block of a peer that offers only the last ones (Core `ProcessGetBlockData`).
const MAX_DEPTH: usize = 290;

/// What a peer does wrong, or how it differs from others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Nothing: it is honest.
    None,
    /// Knows only version 1 of the transport, and closes at other bytes.
    OnlyV1,
    /// Sends nothing after this number of blocks.
    Stall(usize),
    /// Closes in the middle of a block, after this number of them.
    Dies(usize),
    /// Sends a byte a second when a block is asked for.
    Drip,
    /// Sends a `headers` with a wrong checksum before each right one.
    WrongChecksum,
    /// Sends the head of a frame of 4,000,001 bytes after the handshake.
    Oversized,
    /// Sends other messages, among them a block, before `verack`.
    EarlyMessages,
    /// Sends a hundred messages before `verack`.
    ManyEarlyMessages,
    /// Accepts and says nothing.
    Mute,
    /// Sends two `version` messages.
    SecondVersion,
    /// Offers only the last blocks, and closes when it is asked for others.
    Limited,
    /// Offers blocks without witnesses only.
    NoWitnesses,
    /// Answers `getheaders` with no headers, as a node that is itself syncing.
    IsSyncing,
    /// Says that its best block is the genesis block.
    SaysHeightZero,
    /// Has only each block whose height is a multiple of this, or none if it is 1.
    Lacks(usize),
    /// Lacks the block at one height.
    LacksOne(usize),
    /// Answers `getdata` with `notfound`.
    NotFound,
    /// Answers no `getheaders`.
    NoHeaders,
    /// Answers `version` and each `getheaders` after 0.3 seconds, as a peer that is far away.
    LateHeaders,
    /// Changes a byte of each block behind the header.
    Mutates,
    /// Sends blocks without their witnesses.
    Strips,
    /// Sends the genesis block for each block.
    Unrequested,
    /// Answers the ping behind a `getdata` before it sends the blocks.
    LyingPong,
    /// Sends headers of which one is missing.
    HeaderGap,
    /// Sends 2,001 headers.
    TooManyHeaders,
    /// Sends headers, the last of which has no proof of work.
    HeaderWithoutWork,
    /// Sends 50,001 inventory entries.
    TooMuchInventory,
    /// Sends address after address.
    AddressFlood,
    /// Sends pings and reads no pongs.
    PingFlood,
    /// Sends unknown messages, `feature`, `inv`, `alert` and the like between all others.
    Chatter,
    /// Writes three bytes at a time.
    SplitBytes,
    /// Sends a megabyte of blocks, which fills its send buffer, and the next ones only when another message
    /// comes. Core looks after 100 ms.
    WaitsWhenFull,
    /// Offers no spent coins, although it has them.
    OffersNoCoins,
    /// Offers spent coins as the reference code of BIP 455 does, by a service.
    ReferenceCoins,
    /// Changes the amount of the last spent coin of each block.
    FalseCoins,
    /// Sends spent coins whose script no signature of the block satisfies.
    FalseScripts,
    /// Leaves out the last spent coin of each block.
    ShortCoins,
    /// Sends the spent coins of the block below.
    ForeignCoins,
    /// Sends spent coins with the block's hash and those of the block below.
    SwappedCoins,
    /// Sends the spent coins of each block behind those of three more, and behind the pongs.
    LateCoins,
    /// Offers spent coins and sends none.
    SilentCoins,
    /// Answers neither questions for spent coins nor, after the first one, pings.
    MuteCoins,
    /// Sends spent coins that end early.
    MalformedCoins,
    /// Announces new blocks by `inv`, although it was asked for headers.
    AnnouncesByInv,
}

/// What becomes of the connection to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It is closed as soon as the peer shows its fault, for a reason with these words.
    Closed(&'static str),
    /// The same, after some seconds.
    ClosedLate(&'static str),
    /// It stays open.
    Kept,
}

/// What a peer does when a block is asked of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockAnswer {
    /// Sends it.
    Block,
    /// Sends it with another byte behind the header.
    Changed,
    /// Sends it without witnesses.
    Stripped,
    /// Sends another block.
    Another,
    /// Goes on to the next message, as Core does.
    Nothing,
    /// Says that it does not have it.
    NotFound,
    /// Sends nothing any more.
    Silence,
    /// Sends a byte a second.
    Drip,
    Closes,
    /// Sends half of it and closes the connection.
    Half,
}

/// The state of a peer of which a block is asked.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub height: usize,
    /// Height of the last block of the peer.
    pub tip: usize,
    /// Blocks that were asked of the peer before, and that it has.
    pub before: usize,
}

impl Fault {
    /// Faults in the answers to `getheaders` and `getdata`. The state machines alone show what comes of them.
    pub const IN_ANSWERS: [Self; 16] = [
        Self::Stall(0),
        Self::Stall(3),
        Self::Dies(2),
        Self::Drip,
        Self::Limited,
        Self::IsSyncing,
        Self::SaysHeightZero,
        Self::Lacks(1),
        Self::Lacks(2),
        Self::NotFound,
        Self::NoHeaders,
        Self::Mutates,
        Self::Strips,
        Self::Unrequested,
        Self::LyingPong,
        Self::HeaderGap,
    ];

    /// Faults in the handshake, in frames and in messages, which need a connection.
    pub const IN_BYTES: [Self; 14] = [
        Self::OnlyV1,
        Self::WrongChecksum,
        Self::Oversized,
        Self::EarlyMessages,
        Self::ManyEarlyMessages,
        Self::Mute,
        Self::SecondVersion,
        Self::NoWitnesses,
        Self::TooManyHeaders,
        Self::TooMuchInventory,
        Self::AddressFlood,
        Self::PingFlood,
        Self::Chatter,
        Self::SplitBytes,
    ];

    /// Returns whether bytes of version 1 of the transport are wrong: with version 2, there is no such fault.
    pub const fn is_of_v1(self) -> bool {
        matches!(self, Self::WrongChecksum | Self::Oversized | Self::PingFlood)
    }

    /// Returns what becomes of the connection to a peer with this fault.
    pub const fn end(self) -> End {
        match self {
            Self::Stall(_) => End::ClosedLate("sent nothing although blocks were asked for"),
            Self::Drip => End::ClosedLate("too slow to be of use"),
            Self::Mute => End::ClosedLate("handshake: the handshake took more than 10 seconds"),
            Self::Dies(_) => End::Closed("closed by the peer"),
            Self::Oversized => End::Closed("4000001"),
            Self::ManyEarlyMessages => End::Closed("handshake: 33 other messages"),
            Self::SecondVersion => End::Closed("handshake: a second version message"),
            Self::NoWitnesses => End::Closed("handshake: the peer offers blocks without witnesses only"),
            Self::Lacks(1) | Self::NotFound => End::Closed("has none of the blocks"),
            Self::Mutates | Self::Strips => End::Closed("changed contents"),
            Self::Unrequested | Self::LyingPong => End::Closed("not asked for"),
            Self::HeaderGap => End::Closed("headers: header 3 of the batch does not follow"),
            Self::TooManyHeaders => End::Closed("2001"),
            Self::HeaderWithoutWork => End::Closed("headers: the headers break a consensus rule"),
            Self::TooMuchInventory => End::Closed("50001"),
            Self::PingFlood => End::Closed("does not read our messages"),
            _ => End::Kept,
        }
    }

    /// Returns what a peer with this fault does when a block is asked of it that its chain has.
    pub const fn block(self, asked: Asked) -> BlockAnswer {
        match self {
            Self::Stall(after) if asked.before >= after => BlockAnswer::Silence,
            Self::Dies(after) if asked.before >= after => BlockAnswer::Half,
            Self::Drip => BlockAnswer::Drip,
            Self::Limited if asked.height + MAX_DEPTH < asked.tip => BlockAnswer::Closes,
            Self::Lacks(part) if part == 1 || !asked.height.is_multiple_of(part) => BlockAnswer::Nothing,
            Self::LacksOne(height) if asked.height == height => BlockAnswer::Nothing,
            Self::NotFound => BlockAnswer::NotFound,
            Self::Mutates => BlockAnswer::Changed,
            Self::Strips => BlockAnswer::Stripped,
            Self::Unrequested => BlockAnswer::Another,
            _ => BlockAnswer::Block,
        }
    }

    /// Returns the headers that a peer with this fault and with this chain sends for a locator; `None` if it
    /// does not answer.
    pub fn headers(self, chain: &ServedChain, locator: &[BlockHash]) -> Option<Vec<Header>> {
        let start = locator.iter().find_map(|hash| chain.find(hash)).unwrap_or(0) + 1;
        let mut headers: Vec<Header> = chain.headers.iter().skip(start).take(MAX_HEADERS).copied().collect();
        match self {
            Self::NoHeaders => return None,
            Self::IsSyncing => headers.clear(),
            Self::HeaderGap if headers.len() > 5 => drop(headers.remove(3)),
            Self::TooManyHeaders => headers.resize(MAX_HEADERS + 1, chain.headers[1]),
            Self::HeaderWithoutWork => {
                if let Some(last) = headers.last_mut() {
                    crate::block::mine(last, |hash| !crate::block::has_work(hash));
                }
            }
            _ => {}
        }
        Some(headers)
    }
}
