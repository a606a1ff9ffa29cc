//! Addresses of peers: the networks of BIP 155, how `addr` and `addrv2` messages hold them, their text, and
//! the groups that one operator can have many addresses of.

use data_encoding::BASE32_NOPAD_NOCASE;
use sha3::{Digest, Sha3_256};
use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
};
use wire::{Reader, WireError, read::write_compact_size};

/// Maximum length of an address in an `addrv2` message, in bytes (Core `MAX_ADDRV2_SIZE`).
pub const MAX_ADDRV2_LEN: usize = 512;

/// Where a host is, in the network that reaches it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Host {
    /// An IPv4 address.
    V4(Ipv4Addr),
    /// An IPv6 address, not of CJDNS and not an IPv4 address in disguise.
    V6(Ipv6Addr),
    /// The public key of a Tor onion service, version 3.
    Onion([u8; 32]),
    /// The SHA-256 of an I2P destination.
    I2p([u8; 32]),
    /// A CJDNS address, in fc00::/8.
    Cjdns(Ipv6Addr),
}

wire::named! {
/// A network over which peers are reached.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NetworkKind {
    Ipv4 = "ipv4",
    Ipv6 = "ipv6",
    Onion = "onion",
    I2p = "i2p",
    Cjdns = "cjdns",
}
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PeerAddress {
    pub host: Host,
    /// Its TCP port; 0 for I2P.
    pub port: u16,
}

/// Addresses that one operator easily has many of: /16 of IPv4, /32 of IPv6, the first 4 bits of onion and
/// I2P addresses, 12 bits of CJDNS (Core `NetGroupManager::GetGroup`, without its map of autonomous systems).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NetGroup(NetworkKind, [u8; 4]);

impl NetGroup {
    pub const fn network(&self) -> NetworkKind {
        self.0
    }
}

impl Host {
    /// Creates a host from an IP address. IPv4 addresses mapped into IPv6 become IPv4 addresses.
    pub fn from_ip(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            IpAddr::V4(ip) => Self::V4(ip),
            IpAddr::V6(ip) => Self::V6(ip),
        }
    }

    /// Returns the network that reaches the host.
    pub const fn network(&self) -> NetworkKind {
        match self {
            Self::V4(_) => NetworkKind::Ipv4,
            Self::V6(_) => NetworkKind::Ipv6,
            Self::Onion(_) => NetworkKind::Onion,
            Self::I2p(_) => NetworkKind::I2p,
            Self::Cjdns(_) => NetworkKind::Cjdns,
        }
    }

    /// Returns the group of the host. An IPv6 address that tunnels to an IPv4 address has the group of the
    /// latter (Core `GetLinkedIPv4`).
    pub fn group(&self) -> NetGroup {
        match self {
            Self::V4(ip) => ipv4_group(*ip),
            Self::V6(ip) => linked_ipv4(*ip).map_or_else(
                || NetGroup(NetworkKind::Ipv6, ip.octets().first_chunk().copied().unwrap_or_default()),
                ipv4_group,
            ),
            Self::Onion([first, ..]) => NetGroup(NetworkKind::Onion, [first >> 4, 0, 0, 0]),
            Self::I2p([first, ..]) => NetGroup(NetworkKind::I2p, [first >> 4, 0, 0, 0]),
            Self::Cjdns(ip) => {
                let [first, second, ..] = ip.octets();
                NetGroup(NetworkKind::Cjdns, [first, second >> 4, 0, 0])
            }
        }
    }

    /// Returns whether the address can be that of a peer on the public network (Core
    /// `CNetAddr::IsRoutable`).
    pub fn is_routable(&self) -> bool {
        match self {
            Self::V4(ip) => is_routable_v4(*ip),
            Self::V6(ip) => is_routable_v6(*ip) && linked_ipv4(*ip).is_none_or(is_routable_v4),
            Self::Onion(_) | Self::I2p(_) => true,
            Self::Cjdns(ip) => ip.octets()[0] == 0xfc,
        }
    }
}

fn ipv4_group(ip: Ipv4Addr) -> NetGroup {
    let [first, second, ..] = ip.octets();
    NetGroup(NetworkKind::Ipv4, [first, second, 0, 0])
}

/// Returns the IPv4 address behind a 6to4, Teredo or translated (RFC 6052, RFC 6145) address.
fn linked_ipv4(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let bytes = ip.octets();
    let last: [u8; 4] = bytes.last_chunk().copied().unwrap_or_default();
    match bytes {
        [0x20, 0x02, a, b, c, d, ..] => Some([a, b, c, d].into()),
        [0x20, 0x01, 0, 0, ..] => Some(last.map(|byte| !byte).into()),
        [0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, ..]
        | [0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, ..] => Some(last.into()),
        _ => None,
    }
}

fn is_routable_v4(ip: Ipv4Addr) -> bool {
    let [a, b, ..] = ip.octets();
    let is_shared = a == 100 && (64..128).contains(&b);
    let is_benchmark = a == 198 && (b == 18 || b == 19);
    !(ip.is_private() || ip.is_loopback() || ip.is_link_local() || ip.is_documentation())
        && !(a == 0 || a >= 224 || is_shared || is_benchmark)
}

fn is_routable_v6(ip: Ipv6Addr) -> bool {
    let [a, b, ..] = ip.segments();
    let is_local = ip.is_unspecified() || ip.is_loopback() || a & 0xfe00 == 0xfc00 || a & 0xffc0 == 0xfe80;
    let is_documentation = a == 0x2001 && b == 0xdb8;
    let is_orchid = a == 0x2001 && (b & 0xfff0 == 0x10 || b & 0xfff0 == 0x20);
    !(is_local || is_documentation || is_orchid || ip.is_multicast())
}

impl PeerAddress {
    pub fn from_socket(address: SocketAddr) -> Self {
        Self { host: Host::from_ip(address.ip()), port: address.port() }
    }

    /// Returns the socket address, or `None` if the host is reached only through a proxy.
    pub fn to_socket(&self) -> Option<SocketAddr> {
        match self.host {
            Host::V4(ip) => Some((ip, self.port).into()),
            Host::V6(ip) | Host::Cjdns(ip) => Some((ip, self.port).into()),
            Host::Onion(_) | Host::I2p(_) => None,
        }
    }

    /// Reads the 16 bytes and the port of an `addr` message.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if there are fewer.
    pub fn read_v1(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let ip = Ipv6Addr::from(reader.array::<16>()?);
        let port = reader.array().map(u16::from_be_bytes)?;
        Ok(Self { host: Host::from_ip(ip.into()), port })
    }

    /// Appends network, length, address and port of an `addrv2` message.
    pub fn write_v2(&self, out: &mut Vec<u8>) {
        let (kind, bytes): (u8, &[u8]) = match &self.host {
            Host::V4(ip) => (1, &ip.octets()),
            Host::V6(ip) => (2, &ip.octets()),
            Host::Onion(key) => (4, key),
            Host::I2p(hash) => (5, hash),
            Host::Cjdns(ip) => (6, &ip.octets()),
        };
        out.push(kind);
        write_compact_size(out, bytes.len() as u64);
        out.extend_from_slice(bytes);
        out.extend_from_slice(&self.port.to_be_bytes());
    }

    /// Reads network, length, address and port of an `addrv2` message. Returns `None` for a network that is
    /// unknown or an address that its network does not have, such as an IPv4 address mapped into IPv6.
    ///
    /// # Errors
    /// [`AddressError`] if the bytes end early, the length is above [`MAX_ADDRV2_LEN`], or is not that of a
    /// known network (BIP 155).
    pub fn read_v2(reader: &mut Reader<'_>) -> Result<Option<Self>, AddressError> {
        let kind = reader.u8()?;
        let len = reader.compact_size()?;
        if len > MAX_ADDRV2_LEN {
            return Err(AddressError::Length { kind, len });
        }
        let bytes = reader.bytes(len)?;
        let port = reader.array().map(u16::from_be_bytes)?;
        let wrong = AddressError::Length { kind, len };
        let long = || bytes.try_into().map_err(|_| wrong);
        let v6 = || <[u8; 16]>::try_from(bytes).map(Ipv6Addr::from).map_err(|_| wrong);
        let host = match kind {
            1 => Some(Host::V4(<[u8; 4]>::try_from(bytes).map_err(|_| wrong)?.into())),
            2 => Some(v6()?).filter(|ip| ip.to_ipv4_mapped().is_none() && !is_old_onion(*ip)).map(Host::V6),
            4 => Some(Host::Onion(long()?)),
            5 => Some(Host::I2p(long()?)),
            6 => Some(v6()?).filter(|ip| ip.octets()[0] == 0xfc).map(Host::Cjdns),
            _ => None,
        };
        Ok(host.map(|host| Self { host, port }))
    }
}

/// Returns whether the address is an onion service of version 2 as `addr` messages held it (OnionCat).
fn is_old_onion(ip: Ipv6Addr) -> bool {
    matches!(ip.octets(), [0xfd, 0x87, 0xd8, 0x7e, 0xeb, 0x43, ..])
}

/// The error for an address that an `addrv2` message cannot hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AddressError {
    /// The bytes end early.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// `kind` is the number of the network in BIP 155.
    #[error("an address of network {kind} has {len} bytes")]
    Length { kind: u8, len: usize },
}

/// Returns lower-case base 32 without padding (RFC 4648).
fn base32(bytes: &[u8]) -> String {
    BASE32_NOPAD_NOCASE.encode(bytes).to_ascii_lowercase()
}

/// Reads base 32 of either case. Bits after the last whole byte must be zero.
fn from_base32(text: &str) -> Result<Vec<u8>, ParseHostError> {
    BASE32_NOPAD_NOCASE.decode(text.as_bytes()).map_err(|_| ParseHostError)
}

/// Returns the checksum in the name of an onion service (Tor's `rend-spec-v3`).
fn onion_checksum(key: &[u8]) -> [u8; 2] {
    let hash =
        Sha3_256::new().chain_update(b".onion checksum").chain_update(key).chain_update([3]).finalize();
    hash.first_chunk().copied().unwrap_or_default()
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(ip) => write!(f, "{ip}"),
            Self::V6(ip) | Self::Cjdns(ip) => write!(f, "{ip}"),
            Self::Onion(key) => {
                write!(f, "{}.onion", base32(&[&key[..], &onion_checksum(key), &[3]].concat()))
            }
            Self::I2p(hash) => write!(f, "{}.b32.i2p", base32(hash)),
        }
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host {
            Host::V6(ip) | Host::Cjdns(ip) => write!(f, "[{ip}]:{}", self.port),
            host => write!(f, "{host}:{}", self.port),
        }
    }
}

/// The error for a text that is no address of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not an IP address, onion service (version 3) or I2P address")]
pub struct ParseHostError;

impl FromStr for Host {
    type Err = ParseHostError;

    /// Reads an IP address, with or without brackets, an onion service or an I2P address. An address in
    /// fc00::/8 is one of CJDNS.
    fn from_str(text: &str) -> Result<Self, ParseHostError> {
        if let Some(name) = text.strip_suffix(".onion") {
            let bytes = from_base32(name)?;
            let key: [u8; 32] = bytes.first_chunk().copied().ok_or(ParseHostError)?;
            let [first, second] = onion_checksum(&key);
            return if bytes.get(32..) == Some(&[first, second, 3]) {
                Ok(Self::Onion(key))
            } else {
                Err(ParseHostError)
            };
        }
        if let Some(name) = text.strip_suffix(".b32.i2p") {
            let bytes = from_base32(name)?;
            return bytes.try_into().map(Self::I2p).map_err(|_| ParseHostError);
        }
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        match bare.parse().map(Self::from_ip).map_err(|_| ParseHostError)? {
            Self::V6(ip) if ip.octets()[0] == 0xfc => Ok(Self::Cjdns(ip)),
            host => Ok(host),
        }
    }
}

impl FromStr for PeerAddress {
    type Err = ParseHostError;

    /// Reads a host and a port, as [`fmt::Display`] writes them.
    fn from_str(text: &str) -> Result<Self, ParseHostError> {
        let (host, port) = text.rsplit_once(':').ok_or(ParseHostError)?;
        Ok(Self { host: host.parse()?, port: port.parse().map_err(|_| ParseHostError)? })
    }
}

#[cfg(test)]
mod tests;
