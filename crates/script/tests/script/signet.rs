//! BIP-0325: the real blocks of the default signet are signed, and changed blocks are not.

use crate::prelude::*;
use disk::{
    datadir::{Datadir, Location},
    scan::scan_files,
    xor::read_block_obfuscation,
};
use rules::{signet::SIGNET_FLAGS, signet_solution};
use testkit::{block::ids, data::unpack_core_datadir, datadir::read_block};
use vfs::RealDisk;

/// Returns whether the block is signed; `None` if its form is so wrong that no script is run.
fn is_signed(block: &[u8], challenge: &[u8]) -> Option<bool> {
    let mut arena = BlockArena::default();
    let block = arena.parse(block).unwrap();
    let bytes = signet_solution(&block, &ids(&block).0, challenge)?;
    let mut arena = BlockArena::default();
    let to_sign = arena.parse_tx(&bytes).unwrap();
    let scripts = TxScripts::new(&to_sign, [(Sats(0), challenge)].into_iter()).unwrap();
    match scripts.verify(0..1, SIGNET_FLAGS) {
        Ok(()) => Some(true),
        Err(ScriptError::Failed(_)) => Some(false),
        Err(other) => panic!("{other}"),
    }
}

/// Returns all blocks of the datadir except the genesis block.
fn signet_blocks() -> Option<Vec<Vec<u8>>> {
    let root = unpack_core_datadir("signet")?;
    let datadir = Datadir::open(&RealDisk, &Location::new(root.path(), Network::Signet)).unwrap();
    let obfuscation = read_block_obfuscation(&RealDisk, &datadir.blocks_dir()).unwrap();
    let scan = scan_files(&RealDisk, &datadir, obfuscation, |_| true, &[]).unwrap();
    let genesis = ChainParams::of(Network::Signet).genesis_hash;
    let found = scan.blocks.iter().filter(|block| block.hash != genesis);
    Some(found.map(|block| read_block(&datadir, block.file, block.data_pos)).collect())
}

#[test]
fn real_blocks_are_signed() {
    let Some(blocks) = signet_blocks() else { return };
    let challenge = ChainParams::of(Network::Signet).signet_challenge.unwrap();
    let signed = blocks.iter().filter(|block| is_signed(block, challenge) == Some(true)).count();
    assert_eq!((signed, blocks.len()), (120, 120));
}

#[test]
fn changed_blocks_are_not_signed() {
    let Some(blocks) = signet_blocks() else { return };
    let challenge = ChainParams::of(Network::Signet).signet_challenge.unwrap();
    let mut other_challenge = challenge.to_vec();
    other_challenge[10] ^= 1;
    let (mut malformed, mut unsigned) = (0, 0);
    for block in &blocks {
        assert_eq!(is_signed(block, &other_challenge), Some(false));
        // Version, previous hash, merkle root, time, bits, nonce: the header's last two are mined after
        // signing, and its merkle root covers the solution.
        let signed = |at: usize| {
            let mut changed = block.clone();
            changed[at] ^= 1;
            is_signed(&changed, challenge)
        };
        assert_eq!([0, 4, 35, 68].map(signed), [Some(false); 4]);
        assert_eq!([36, 67, 72, 79].map(signed), [Some(true); 4]);
        // The coinbase contains the solution, the height and the amount that it pays.
        let header = rules::signet::SIGNET_HEADER;
        let at = block.windows(4).position(|window| window == header).unwrap();
        assert_eq!(signed(at + 20), Some(false), "a byte of the signature");
        assert_eq!(signed(at), Some(false), "without a solution");
        match signed(at + 4) {
            None => malformed += 1,
            Some(false) => unsigned += 1,
            Some(true) => panic!("the solution's length is changed"),
        }
    }
    assert_eq!((blocks.len(), malformed + unsigned), (120, 120));
}
