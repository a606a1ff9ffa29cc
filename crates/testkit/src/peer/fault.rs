//! What a scripted peer does wrong.

/// What a peer does wrong, or how it differs from others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Nothing: it is honest.
    None,
    /// Knows only version 1 of the transport, and closes at other bytes.
    OnlyV1,
    /// Sends nothing after this number of blocks.
    Stall(usize),
    /// Sends a byte a second when a block is asked for.
    Drip,
    /// Closes in the middle of a block.
    ClosesInBlock,
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
    /// Answers a ping but no `getdata`.
    NoBlocks,
    /// Answers `getdata` with `notfound`.
    NotFound,
    /// Answers no `getheaders`.
    NoHeaders,
    /// Changes a byte of each block behind the header.
    Mutates,
    /// Sends blocks without their witnesses.
    Strips,
    /// Sends blocks that were not asked for.
    Unrequested,
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
