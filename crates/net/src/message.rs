//! The messages that a downloading client sends and receives, with Core's limits.
//!
//! Counts are compared with their limits before anything is allocated (`net_processing.cpp`). Blocks stay
//! bytes. Bytes after the end of a message are ignored, as Core does. A message that this client has no use
//! for is [`Message::Ignored`].

mod version;

pub use version::{Services, Version, sanitise_user_agent};

use crate::{
    address::{AddressError, PeerAddress},
    frame::{Command, RawMessage},
};
use wire::{BlockHash, Header, Reader, SpentCoinsForm, WireError, read::write_compact_size};

/// Maximum number of entries of `inv`, `getdata` and `notfound` (Core `MAX_INV_SZ`).
pub const MAX_INVENTORY: usize = 50_000;
/// Maximum number of headers in a `headers` (Core `MAX_HEADERS_RESULTS`).
pub const MAX_HEADERS: usize = 2_000;
/// Maximum number of addresses in an `addr` or `addrv2` (Core `MAX_ADDR_TO_SEND`).
pub const MAX_ADDRESSES: usize = 1_000;
/// Maximum number of hashes in a locator (Core `MAX_LOCATOR_SZ`).
pub const MAX_LOCATOR: usize = 101;
/// The protocol version that this client announces unless it wants a feature: the last one without `feature`
/// messages (BIP 434).
pub const PROTOCOL_VERSION: i32 = 70016;
/// The first protocol version with `feature` messages.
pub const FEATURE_VERSION: i32 = 70017;
/// Lengths of the name of a feature, in bytes (BIP 434).
pub const FEATURE_ID_LEN: std::ops::RangeInclusive<usize> = 4..=80;
/// Maximum length of the data of a feature, in bytes (BIP 434).
pub const MAX_FEATURE_DATA_LEN: usize = 512;
/// The feature of peers that send and ask for spent coins (BIP 455, a draft).
pub const SPENT_COINS_FEATURE: &[u8] = b"blockspentcoinsv1";
/// The version of the answer that a `getbspent` asks for (BIP 455, a draft).
const SPENT_COINS_VERSION: u8 = 1;

/// The commands that this crate knows.
pub mod command {
    use crate::frame::Command;

    pub const ADDR: Command = Command::new("addr");
    pub const ADDRV2: Command = Command::new("addrv2");
    pub const BLOCK: Command = Command::new("block");
    pub const BSPENT: Command = Command::new("bspent");
    pub const BUNDO: Command = Command::new("bundo");
    pub const FEATURE: Command = Command::new("feature");
    pub const GETADDR: Command = Command::new("getaddr");
    pub const GETBSPENT: Command = Command::new("getbspent");
    pub const GETBUNDO: Command = Command::new("getbundo");
    pub const GETDATA: Command = Command::new("getdata");
    pub const GETHEADERS: Command = Command::new("getheaders");
    pub const HEADERS: Command = Command::new("headers");
    pub const INV: Command = Command::new("inv");
    pub const NOTFOUND: Command = Command::new("notfound");
    pub const PING: Command = Command::new("ping");
    pub const PONG: Command = Command::new("pong");
    pub const SENDADDRV2: Command = Command::new("sendaddrv2");
    pub const SENDHEADERS: Command = Command::new("sendheaders");
    pub const VERACK: Command = Command::new("verack");
    pub const VERSION: Command = Command::new("version");
}

/// Names something that a peer has: a block or a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inventory {
    /// Kind of thing, for example [`Inventory::WITNESS_BLOCK`].
    pub kind: u32,
    pub hash: [u8; 32],
}

impl Inventory {
    /// A block without witnesses (Core `MSG_BLOCK`).
    pub const BLOCK: u32 = 2;
    /// A block with witnesses (Core `MSG_WITNESS_BLOCK`).
    pub const WITNESS_BLOCK: u32 = 0x4000_0002;

    /// Names a block with its witnesses.
    pub const fn witness_block(hash: BlockHash) -> Self {
        Self { kind: Self::WITNESS_BLOCK, hash: hash.0 }
    }

    /// Returns the hash if this names a block of either kind.
    pub fn block_hash(&self) -> Option<BlockHash> {
        matches!(self.kind, Self::BLOCK | Self::WITNESS_BLOCK).then_some(BlockHash(self.hash))
    }
}

/// An address of a peer, as other peers tell it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressRecord {
    /// When the address was last heard of, in seconds since 1970.
    pub time: u32,
    /// Services that the peer is said to offer.
    pub services: Services,
    pub address: PeerAddress,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// Opens the handshake.
    Version(Version),
    /// Ends the handshake.
    Verack,
    /// The sender wants `addrv2` instead of `addr` (BIP 155).
    SendAddrV2,
    /// Asks for a `pong` with the same number.
    Ping(u64),
    /// Answers a `ping`.
    Pong(u64),
    /// Asks for headers after the first hash of the locator that the receiver has, up to `stop`, or for as
    /// many as possible if that is zeros. The locator has hashes of the sender's chain, highest first.
    GetHeaders { locator: Vec<BlockHash>, stop: BlockHash },
    /// Answers `getheaders`.
    Headers(Vec<Header>),
    /// Asks for blocks.
    GetData(Vec<Inventory>),
    /// A serialised block, not parsed.
    Block(Vec<u8>),
    /// Names what the sender does not have.
    NotFound(Vec<Inventory>),
    /// Announces blocks or transactions.
    Inv(Vec<Inventory>),
    /// Offers a feature (BIP 434), with what belongs to it.
    Feature { id: Vec<u8>, data: Vec<u8> },
    /// Asks for all coins that a block spends. The answer has the same form.
    GetSpentCoins { form: SpentCoinsForm, block: BlockHash },
    /// The hash of a block and the coins that it spends, not parsed.
    SpentCoins { form: SpentCoinsForm, bytes: Vec<u8> },
    /// Asks for addresses of peers.
    GetAddr,
    /// Addresses of peers, from `addr` or `addrv2`. Networks that are unknown are left out.
    Addresses(Vec<AddressRecord>),
    /// The sender wants new blocks to be announced by `headers` (BIP 130).
    SendHeaders,
    /// A message that this client has no use for.
    Ignored(Command),
}

/// The error for a payload that is not what its command announces. The peer is broken or hostile.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MessageError {
    #[error("{command}: {source}")]
    Malformed { command: Command, source: WireError },
    #[error("{command}: {source}")]
    Address { command: Command, source: AddressError },
    /// The message states that a list is longer than the protocol allows.
    #[error("{command} with {count} entries, above the limit of {limit}")]
    TooMany { command: Command, count: usize, limit: usize },
    /// The message states that a text is longer than the protocol allows.
    #[error("{command} with a text of {len} bytes, above the limit of {limit}")]
    TooLong { command: Command, len: usize, limit: usize },
}

impl Message {
    /// Decodes a message.
    ///
    /// # Errors
    /// [`MessageError`] if a message of a known kind is malformed or above a limit.
    pub fn decode(raw: RawMessage) -> Result<Self, MessageError> {
        match raw.command {
            command::BLOCK => return Ok(Self::Block(raw.payload)),
            command::BSPENT => {
                return Ok(Self::SpentCoins { form: SpentCoinsForm::Draft, bytes: raw.payload });
            }
            command::BUNDO => {
                return Ok(Self::SpentCoins { form: SpentCoinsForm::Reference, bytes: raw.payload });
            }
            _ => {}
        }
        let mut payload = Payload { command: raw.command, reader: Reader::new(&raw.payload) };
        Ok(match raw.command {
            command::VERSION => Self::Version(Version::read(&mut payload)?),
            command::VERACK => Self::Verack,
            command::SENDADDRV2 => Self::SendAddrV2,
            command::PING => Self::Ping(payload.read(Reader::u64)?),
            command::PONG => Self::Pong(payload.read(Reader::u64)?),
            command::GETHEADERS => payload.get_headers()?,
            command::HEADERS => Self::Headers(payload.list(MAX_HEADERS, |payload| {
                let header = payload.read(Header::read)?;
                // Core writes an empty list of transactions after each header and ignores its count.
                payload.read(Reader::compact_u64)?;
                Ok(header)
            })?),
            command::GETDATA => Self::GetData(payload.inventory()?),
            command::NOTFOUND => Self::NotFound(payload.inventory()?),
            command::INV => Self::Inv(payload.inventory()?),
            command::FEATURE => payload.feature(),
            command::GETBSPENT => {
                payload.read(Reader::u8)?;
                payload.get_spent_coins(SpentCoinsForm::Draft)?
            }
            command::GETBUNDO => payload.get_spent_coins(SpentCoinsForm::Reference)?,
            command::GETADDR => Self::GetAddr,
            command::ADDR => Self::Addresses(payload.list(MAX_ADDRESSES, Payload::address_v1)?),
            command::ADDRV2 => {
                let records = payload.list(MAX_ADDRESSES, Payload::address_v2)?;
                Self::Addresses(records.into_iter().flatten().collect())
            }
            command::SENDHEADERS => Self::SendHeaders,
            other => Self::Ignored(other),
        })
    }

    /// Encodes the message. Addresses become `addrv2`. What [`Message::Ignored`] held is not known: its
    /// payload is empty.
    pub fn encode(&self) -> RawMessage {
        let mut payload = Vec::new();
        let out = &mut payload;
        let command = match self {
            Self::Version(version) => {
                version.write(out);
                command::VERSION
            }
            Self::Verack => command::VERACK,
            Self::SendAddrV2 => command::SENDADDRV2,
            Self::Ping(number) | Self::Pong(number) => {
                out.extend_from_slice(&number.to_le_bytes());
                if matches!(self, Self::Ping(_)) { command::PING } else { command::PONG }
            }
            Self::GetHeaders { locator, stop } => {
                out.extend_from_slice(&PROTOCOL_VERSION.to_le_bytes());
                write_list(out, locator, |out, hash| out.extend_from_slice(&hash.0));
                out.extend_from_slice(&stop.0);
                command::GETHEADERS
            }
            Self::Headers(headers) => {
                write_list(out, headers, |out, header| {
                    out.extend_from_slice(&header.to_bytes());
                    out.push(0);
                });
                command::HEADERS
            }
            Self::GetData(list) => write_inventory(out, list, command::GETDATA),
            Self::NotFound(list) => write_inventory(out, list, command::NOTFOUND),
            Self::Inv(list) => write_inventory(out, list, command::INV),
            Self::Block(bytes) => {
                out.extend_from_slice(bytes);
                command::BLOCK
            }
            Self::Feature { id, data } => write_feature(out, id, data),
            Self::GetSpentCoins { form, block } => write_get_spent_coins(out, *form, block),
            Self::SpentCoins { form, bytes } => {
                out.extend_from_slice(bytes);
                if *form == SpentCoinsForm::Draft { command::BSPENT } else { command::BUNDO }
            }
            Self::GetAddr => command::GETADDR,
            Self::Addresses(records) => {
                write_list(out, records, |out, record| {
                    out.extend_from_slice(&record.time.to_le_bytes());
                    write_compact_size(out, record.services.0);
                    record.address.write_v2(out);
                });
                command::ADDRV2
            }
            Self::SendHeaders => command::SENDHEADERS,
            Self::Ignored(command) => *command,
        };
        RawMessage { command, payload }
    }
}

fn write_feature(out: &mut Vec<u8>, id: &[u8], data: &[u8]) -> Command {
    for bytes in [id, data] {
        write_compact_size(out, bytes.len() as u64);
        out.extend_from_slice(bytes);
    }
    command::FEATURE
}

fn write_get_spent_coins(out: &mut Vec<u8>, form: SpentCoinsForm, block: &BlockHash) -> Command {
    let command = match form {
        SpentCoinsForm::Draft => {
            out.push(SPENT_COINS_VERSION);
            command::GETBSPENT
        }
        SpentCoinsForm::Reference => command::GETBUNDO,
    };
    out.extend_from_slice(&block.0);
    // All coins, whatever block created them.
    out.extend_from_slice(&0_u32.to_le_bytes());
    command
}

fn write_list<T>(out: &mut Vec<u8>, list: &[T], write: impl Fn(&mut Vec<u8>, &T)) {
    write_compact_size(out, list.len() as u64);
    list.iter().for_each(|entry| write(out, entry));
}

fn write_inventory(out: &mut Vec<u8>, list: &[Inventory], command: Command) -> Command {
    write_list(out, list, |out, entry| {
        out.extend_from_slice(&entry.kind.to_le_bytes());
        out.extend_from_slice(&entry.hash);
    });
    command
}

struct Payload<'a> {
    command: Command,
    reader: Reader<'a>,
}

impl<'a> Payload<'a> {
    fn read<T>(
        &mut self,
        read: impl FnOnce(&mut Reader<'a>) -> Result<T, WireError>,
    ) -> Result<T, MessageError> {
        read(&mut self.reader).map_err(|source| MessageError::Malformed { command: self.command, source })
    }

    /// Reads a list of at most `limit` entries.
    fn list<T>(
        &mut self,
        limit: usize,
        mut entry: impl FnMut(&mut Self) -> Result<T, MessageError>,
    ) -> Result<Vec<T>, MessageError> {
        let count = self.read(Reader::compact_size)?;
        if count > limit {
            return Err(MessageError::TooMany { command: self.command, count, limit });
        }
        // Each entry has at least one byte, so that a short message cannot ask for a long list.
        let mut list = Vec::with_capacity(count.min(self.reader.remaining()));
        for _ in 0..count {
            list.push(entry(self)?);
        }
        Ok(list)
    }

    fn inventory(&mut self) -> Result<Vec<Inventory>, MessageError> {
        self.list(MAX_INVENTORY, |payload| {
            payload.read(|reader| Ok(Inventory { kind: reader.u32()?, hash: reader.array()? }))
        })
    }

    /// Reads a feature. One that is malformed is ignored: BIP 434 leaves that to the receiver.
    fn feature(&mut self) -> Message {
        let reader = &mut self.reader;
        let (Ok(id), Ok(data), 0) = (reader.byte_string(), reader.byte_string(), reader.remaining()) else {
            return Message::Ignored(self.command);
        };
        if !FEATURE_ID_LEN.contains(&id.len()) || data.len() > MAX_FEATURE_DATA_LEN {
            return Message::Ignored(self.command);
        }
        Message::Feature { id: id.to_vec(), data: data.to_vec() }
    }

    fn get_spent_coins(&mut self, form: SpentCoinsForm) -> Result<Message, MessageError> {
        let block = BlockHash(self.read(Reader::array)?);
        self.read(Reader::u32)?;
        Ok(Message::GetSpentCoins { form, block })
    }

    fn get_headers(&mut self) -> Result<Message, MessageError> {
        self.read(Reader::u32)?;
        let locator =
            self.list(MAX_LOCATOR, |payload| payload.read(|reader| reader.array().map(BlockHash)))?;
        let stop = self.read(|reader| reader.array().map(BlockHash))?;
        Ok(Message::GetHeaders { locator, stop })
    }

    fn address_v1(&mut self) -> Result<AddressRecord, MessageError> {
        self.read(|reader| {
            let (time, services) = (reader.u32()?, Services(reader.u64()?));
            Ok(AddressRecord { time, services, address: PeerAddress::read_v1(reader)? })
        })
    }

    fn address_v2(&mut self) -> Result<Option<AddressRecord>, MessageError> {
        let time = self.read(Reader::u32)?;
        let services = Services(self.read(Reader::compact_u64)?);
        let address = PeerAddress::read_v2(&mut self.reader)
            .map_err(|source| MessageError::Address { command: self.command, source })?;
        Ok(address.map(|address| AddressRecord { time, services, address }))
    }
}

#[cfg(test)]
mod tests;
