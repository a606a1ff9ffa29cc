//! The genesis blocks, which no peer sends (Core `CreateGenesisBlock`).

use crate::params::{ChainParams, bytes};
use wire::{Header, Network};

/// The coinbase script pushes the target of mainnet's genesis block, the number 4, and a text.
const SCRIPT_START: [u8; 7] = bytes("04ffff001d0104");
const TEXT: &str = "The Times 03/Jan/2009 Chancellor on brink of second bailout for banks";
const TEXT_OF_TESTNET4: &str = "03/May/2024 000000000000000000001ebd58c244970b3aa9d783bb001011fbe8ea8e98e00e";
const PUBLIC_KEY: [u8; 65] = bytes(
    "04678afdb0fe5548271967f1a67130b7105cd6a828e03909a67962e0ea1f61deb6\
     49f6bc3f4cef38c4f35504e51ec112de5c384df7ba0b8d578a4c702b6bf11d5f",
);
const PUBLIC_KEY_OF_TESTNET4: [u8; 33] = [0; 33];
/// 50 bitcoins, in satoshi.
const SUBSIDY: u64 = 5_000_000_000;
const OP_PUSHDATA1: u8 = 0x4c;
const OP_CHECKSIG: u8 = 0xac;

impl ChainParams {
    pub fn genesis_block(&self) -> Vec<u8> {
        let (text, key) = match self.network {
            Network::Testnet4 => (TEXT_OF_TESTNET4, &PUBLIC_KEY_OF_TESTNET4[..]),
            _ => (TEXT, &PUBLIC_KEY[..]),
        };
        let mut script_sig = SCRIPT_START.to_vec();
        if text.len() >= usize::from(OP_PUSHDATA1) {
            script_sig.push(OP_PUSHDATA1);
        }
        script_sig.push(text.len() as u8);
        script_sig.extend_from_slice(text.as_bytes());
        let script_pubkey = [&[key.len() as u8], key, &[OP_CHECKSIG]].concat();

        let mut block = Vec::with_capacity(Header::LEN + 210);
        block.extend_from_slice(&self.genesis.to_bytes());
        // One transaction, of version 1, with one input, which spends nothing.
        block.extend_from_slice(&[1, 1, 0, 0, 0, 1]);
        block.extend_from_slice(&[0; 32]);
        block.extend_from_slice(&[0xff; 4]);
        block.push(script_sig.len() as u8);
        block.extend_from_slice(&script_sig);
        block.extend_from_slice(&[0xff; 4]);
        block.push(1);
        block.extend_from_slice(&SUBSIDY.to_le_bytes());
        block.push(script_pubkey.len() as u8);
        block.extend_from_slice(&script_pubkey);
        block.extend_from_slice(&[0; 4]);
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use digest::sha256::sha256d;
    use wire::BlockArena;

    /// The merkle root of a block with one transaction is its id.
    #[test]
    fn the_coinbase_of_each_network_is_what_its_header_commits_to() {
        for network in Network::ALL {
            let params = ChainParams::of(network);
            let (bytes, mut arena) = (params.genesis_block(), BlockArena::default());
            let block = arena.parse(&bytes).unwrap();
            assert_eq!(block.header(), &params.genesis, "{network}");
            assert_eq!(block.tx_count(), 1);
            let txid = sha256d(block.tx(0).unwrap().bytes());
            assert_eq!(txid, params.genesis.merkle_root, "{network}");
        }
    }
}
