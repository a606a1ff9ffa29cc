//! The `version` message.
//!
//! Bytes (little-endian, except ports): version 4 | services 8 | time 8 | the receiver's services 8, address
//! 16 and port 2 | the sender's, 26 | nonce 8 | user agent, a byte string | height 4 | relay 1 (Core
//! `net_processing.cpp`, `PushNodeVersion`). All from the sender's address on may be missing.

use super::{MessageError, Payload};
use wire::{Reader, read::write_compact_size};

/// Maximum length of a user agent, in bytes (Core `MAX_SUBVERSION_LENGTH`).
pub const MAX_USER_AGENT_LEN: usize = 256;

/// The services of a peer, as bits (Core `ServiceFlags`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Services(pub u64);

impl Services {
    /// All blocks.
    pub const NETWORK: Self = Self(1);
    /// Witnesses.
    pub const WITNESS: Self = Self(1 << 3);
    /// The last 288 blocks (BIP 159).
    pub const NETWORK_LIMITED: Self = Self(1 << 10);
    /// The version 2 transport (BIP 324).
    pub const P2P_V2: Self = Self(1 << 11);
    /// The coins that blocks spend: what the reference code of BIP 455, a draft, offers instead of a feature.
    pub const BLOCK_UNDO: Self = Self(1 << 21);
    /// The services that a peer must have, so that all blocks can be downloaded from it.
    pub const FULL: Self = Self(Self::NETWORK.0 | Self::WITNESS.0);

    /// Returns whether all of `needed` are offered.
    pub const fn has(self, needed: Self) -> bool {
        self.0 & needed.0 == needed.0
    }

    /// Returns these services and `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The contents of a `version` message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Version {
    /// The highest protocol version that the sender speaks.
    pub version: i32,
    pub services: Services,
    /// The sender's clock, in seconds since 1970.
    pub time: i64,
    /// A random number by which the sender recognises a connection to itself; 0 if it has none.
    pub nonce: u64,
    /// Name and version of the sender's program, only printable ASCII characters.
    pub user_agent: String,
    /// Height of the sender's best block.
    pub height: i32,
    /// Whether the sender wants transactions.
    pub relay: bool,
}

impl Version {
    /// Decodes the payload. Missing fields at the end have Core's defaults.
    ///
    /// # Errors
    /// [`MessageError`] if a field is incomplete, or the user agent is longer than [`MAX_USER_AGENT_LEN`].
    pub(super) fn read(payload: &mut Payload<'_>) -> Result<Self, MessageError> {
        let mut found = payload.read(|reader| {
            let version = reader.array().map(i32::from_le_bytes)?;
            let services = Services(reader.u64()?);
            let time = reader.array().map(i64::from_le_bytes)?;
            reader.bytes(8 + 16 + 2)?;
            Ok(Self { version, services, time, nonce: 0, user_agent: String::new(), height: -1, relay: true })
        })?;
        if payload.reader.remaining() > 0 {
            payload.read(|reader| reader.bytes(8 + 16 + 2))?;
            found.nonce = payload.read(Reader::u64)?;
        }
        if payload.reader.remaining() > 0 {
            let len = payload.read(Reader::compact_size)?;
            if len > MAX_USER_AGENT_LEN {
                let limit = MAX_USER_AGENT_LEN;
                return Err(MessageError::TooLong { command: payload.command, len, limit });
            }
            found.user_agent = sanitise_user_agent(payload.read(|reader| reader.bytes(len))?);
        }
        if payload.reader.remaining() > 0 {
            found.height = payload.read(|reader| reader.array().map(i32::from_le_bytes))?;
        }
        if payload.reader.remaining() > 0 {
            found.relay = payload.read(Reader::u8)? != 0;
        }
        Ok(found)
    }

    /// Appends the payload. Both addresses are zeros: peers learn them from the connection.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&self.services.0.to_le_bytes());
        out.extend_from_slice(&self.time.to_le_bytes());
        out.extend_from_slice(&[0; 2 * (8 + 16 + 2)]);
        out.extend_from_slice(&self.nonce.to_le_bytes());
        write_compact_size(out, self.user_agent.len() as u64);
        out.extend_from_slice(self.user_agent.as_bytes());
        out.extend_from_slice(&self.height.to_le_bytes());
        out.push(self.relay.into());
    }
}

/// Returns the text without characters that could do harm in a terminal or log: only letters, digits, spaces
/// and ` .,;-_/:?@()` stay (Core `SanitizeString`), at most 256 of them.
pub fn sanitise_user_agent(bytes: &[u8]) -> String {
    let is_safe = |byte: &u8| byte.is_ascii_alphanumeric() || b" .,;-_/:?@()".contains(byte);
    bytes.iter().copied().filter(is_safe).take(MAX_USER_AGENT_LEN).map(char::from).collect()
}
