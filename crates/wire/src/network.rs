//! The networks to which a chain can belong: Core's `-chain` names, message magics and subdirectories.
//!
//! They are in this crate rather than in `disk` because the rules, too, depend on the network. The numbers
//! are from Core `kernel/chainparams.cpp`, the names from `util/chaintype.cpp`, the directories from
//! `chainparamsbase.cpp`.

crate::named! {
/// One of Bitcoin Core's networks. A custom signet is `Signet` too, but its magic and challenge are its own
/// (`ChainParams` of crate `rules` has them).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, schemars::JsonSchema),
    serde(rename_all = "lowercase")
)]
pub enum Network: "chain" {
    /// The Bitcoin network.
    #[default]
    Main = "main",
    /// Test network 3.
    Test = "test",
    /// Test network 4 (BIP-0094).
    Testnet4 = "testnet4",
    /// The default signed test network (BIP-0325).
    Signet = "signet",
    /// A private network whose blocks need almost no work.
    Regtest = "regtest",
}
}

impl Network {
    /// Returns the bytes that start each message and each record of a `blk` or `rev` file.
    pub const fn magic(self) -> [u8; 4] {
        match self {
            Self::Main => [0xf9, 0xbe, 0xb4, 0xd9],
            Self::Test => [0x0b, 0x11, 0x09, 0x07],
            Self::Testnet4 => [0x1c, 0x16, 0x3f, 0x28],
            Self::Signet => [0x0a, 0x03, 0xcf, 0x40],
            Self::Regtest => [0xfa, 0xbf, 0xb5, 0xda],
        }
    }

    /// Returns the network with these bytes; `None` if no network has them, as for a custom signet.
    pub fn of_magic(magic: [u8; 4]) -> Option<Self> {
        Self::ALL.into_iter().find(|network| network.magic() == magic)
    }

    /// Returns the network's subdirectory in a datadir, or `None` for `main`, which uses the datadir itself.
    pub const fn subdirectory(self) -> Option<&'static str> {
        match self {
            Self::Main => None,
            Self::Test => Some("testnet3"),
            Self::Testnet4 => Some("testnet4"),
            Self::Signet => Some("signet"),
            Self::Regtest => Some("regtest"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_magics_differ() {
        for network in Network::ALL {
            assert_eq!(network.to_string().parse(), Ok(network));
            assert_eq!(Network::of_magic(network.magic()), Some(network));
        }
        let unknown = "mainnet".parse::<Network>().unwrap_err();
        let text = "unknown chain `mainnet`; use main, test, testnet4, signet or regtest";
        assert_eq!(unknown.to_string(), text);
    }
}
