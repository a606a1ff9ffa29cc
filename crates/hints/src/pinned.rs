//! Digests of hint files that were made by a run over the whole chain and are published with a version of
//! Peregrine.
//!
//! A pin is no proof, and none is needed: wrong hints make a run fail. It saves the hours of a run with a
//! file that is not the published one.

use wire::{BlockHash, Height, Network};

/// A published hint file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PinnedHints {
    /// The network of its chain.
    pub network: Network,
    /// Height of its last block.
    pub height: Height,
    /// The hash of that block.
    pub block_hash: BlockHash,
    /// The SHA-256 of the file when it is not packed.
    pub sha256: [u8; 32],
}

/// The published files. None exists before a run over mainnet has made one.
const PINNED: &[PinnedHints] = &[];

/// Whether a hint file is a published one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pinned {
    /// It is.
    Yes,
    /// It is not.
    No,
    /// None is published for its network.
    NoneForNetwork,
}

impl Pinned {
    /// Returns the name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::NoneForNetwork => "none",
        }
    }

    /// Looks for a file among those that are published; `network` is `None` if the file does not name it.
    pub fn find(network: Option<Network>, sha256: &[u8; 32]) -> Self {
        find(PINNED, network, sha256)
    }
}

fn find(table: &[PinnedHints], network: Option<Network>, sha256: &[u8; 32]) -> Pinned {
    let of_network = || table.iter().filter(|pin| network.is_none_or(|network| network == pin.network));
    match of_network().next() {
        None => Pinned::NoneForNetwork,
        Some(_) if of_network().any(|pin| pin.sha256 == *sha256) => Pinned::Yes,
        Some(_) => Pinned::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_looked_for_among_those_of_its_network() {
        let pin = |network, byte| PinnedHints {
            network,
            height: Height(7),
            block_hash: BlockHash([byte; 32]),
            sha256: [byte; 32],
        };
        let table = [pin(Network::Main, 1), pin(Network::Main, 2), pin(Network::Signet, 3)];
        for (network, byte, expected) in [
            (Some(Network::Main), 2, Pinned::Yes),
            (Some(Network::Main), 3, Pinned::No),
            (Some(Network::Signet), 3, Pinned::Yes),
            (Some(Network::Regtest), 3, Pinned::NoneForNetwork),
            (None, 3, Pinned::Yes),
            (None, 4, Pinned::No),
        ] {
            assert_eq!(find(&table, network, &[byte; 32]), expected, "{network:?} {byte}");
        }
        assert_eq!(find(&[], None, &[1; 32]), Pinned::NoneForNetwork);
    }
}
