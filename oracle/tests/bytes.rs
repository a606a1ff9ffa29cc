//! What Core can read as a block, and what `wire` can, is the same, byte for byte.

use bitcoinkernel::{Block, prelude::*};
use std::{collections::BTreeMap, error::Error};
use testkit::{Chain, ChainSpec, rng::Rng};
use wire::BlockArena;

/// Damaged copies of each block.
const COPIES: usize = 300;

/// Core reads a block from the front of the bytes it is given: they are a block if it would write the same
/// bytes.
fn core_reads(bytes: &[u8]) -> Option<Block> {
    let block = Block::new(bytes).ok()?;
    (block.consensus_encode().ok()? == bytes).then_some(block)
}

/// One small damage: a bit, a byte, a size field, a piece cut out or put in, the end.
fn damage(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let at = rng.below(bytes.len() as u64) as usize;
    let len = (rng.below(12) as usize).min(bytes.len() - at);
    match rng.below(7) {
        0 => bytes[at] ^= 1 << rng.below(8),
        1 => bytes[at] = [0, 1, 2, 0xfc, 0xfd, 0xfe, 0xff][rng.below(7) as usize],
        2 => drop(bytes.drain(at..at + len)),
        3 => drop(bytes.splice(at..at, vec![rng.below(3) as u8; len])),
        // The numbers of transactions, inputs and outputs, markers and flags are near the start.
        4 => bytes[(80 + rng.below(8) as usize).min(at)] = rng.below(256) as u8,
        5 => bytes.truncate(at),
        _ => drop(bytes.splice(at..(at + 1).min(bytes.len()), [0xfd, rng.below(256) as u8, 0])),
    }
}

#[test]
fn core_and_wire_read_the_same_blocks() -> Result<(), Box<dyn Error>> {
    let chain = Chain::generate(&ChainSpec { blocks: Some(150), ..ChainSpec::new(31, 200_000) });
    let (mut arena, mut rng) = (BlockArena::default(), Rng::new(31, "damage"));
    let mut outcomes = BTreeMap::<bool, usize>::new();
    for block in chain.main().skip(100) {
        for copy in 0..COPIES {
            let mut bytes = block.bytes.clone();
            for _ in 0..1 + rng.below(2) {
                damage(&mut bytes, &mut rng);
            }
            let core = core_reads(&bytes);
            let ours = arena.parse(&bytes);
            let place = format!("copy {copy} of block {}", block.height);
            assert_eq!(core.is_some(), ours.is_ok(), "{place}: {:?}", ours.err());
            *outcomes.entry(core.is_some()).or_default() += 1;
            if let (Some(core), Ok(ours)) = (core, ours) {
                assert_eq!(core.hash().to_bytes(), ours.header().hash().0, "{place}");
                assert_eq!(core.transaction_count(), ours.tx_count(), "{place}");
            }
        }
    }
    assert!(outcomes.values().all(|&count| count > 1000), "too one-sided: {outcomes:?}");
    Ok(())
}
