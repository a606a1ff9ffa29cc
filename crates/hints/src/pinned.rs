//! Digests of hint files that were made by a run over the whole chain and are published with a version of
//! Peregrine.
//!
//! A pin is no proof, and none is needed: wrong hints make a run fail. It saves the hours of a run with a
//! file that is not the published one.

use wire::Network;

/// The network of each published file, and its SHA-256 when it is not packed. None exists before a run over
/// mainnet has made one.
const PINNED: &[(Network, [u8; 32])] = &[];

wire::named! {
/// Whether a hint file is a published one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pinned {
    /// It is.
    Yes = "yes",
    /// It is not.
    No = "no",
    /// None is published for its network.
    NoneForNetwork = "none",
}
}

impl Pinned {
    /// Looks for a file among those that are published; `network` is `None` if the file does not name it.
    pub fn find(network: Option<Network>, sha256: &[u8; 32]) -> Self {
        find(PINNED, network, sha256)
    }
}

fn find(table: &[(Network, [u8; 32])], network: Option<Network>, sha256: &[u8; 32]) -> Pinned {
    let of_network = table.iter().filter(|(pinned, _)| network.is_none_or(|network| network == *pinned));
    match of_network.clone().next() {
        None => Pinned::NoneForNetwork,
        Some(_) if of_network.map(|(_, sha256)| sha256).any(|pinned| pinned == sha256) => Pinned::Yes,
        Some(_) => Pinned::No,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_looked_for_among_those_of_its_network() {
        let pin = |network, byte| (network, [byte; 32]);
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
