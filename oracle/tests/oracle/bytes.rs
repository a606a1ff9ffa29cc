//! Core and `wire` accept the same bytes as blocks.

use crate::prelude::*;
use bitcoinkernel::{Block, prelude::*};
use wire::BlockArena;

/// Number of damaged copies of each block.
const COPIES: usize = 300;

/// Returns the block that Core reads from the bytes. `None` if Core would serialise it to other bytes,
/// because it ignores bytes after a block.
fn core_reads(bytes: &[u8]) -> Option<Block> {
    let block = Block::new(bytes).ok()?;
    (block.consensus_encode().ok()? == bytes).then_some(block)
}

/// Damages the bytes in one place: changes a bit, a byte or a count, removes or inserts some bytes, or
/// truncates them.
fn damage(bytes: &mut Vec<u8>, rng: &mut Rng) {
    let at = rng.below(bytes.len() as u64) as usize;
    let len = (rng.below(12) as usize).min(bytes.len() - at);
    match rng.below(7) {
        0 => bytes[at] ^= 1 << rng.below(8),
        1 => bytes[at] = [0, 1, 2, 0xfc, 0xfd, 0xfe, 0xff][rng.below(7) as usize],
        2 => drop(bytes.drain(at..at + len)),
        3 => drop(bytes.splice(at..at, vec![rng.below(3) as u8; len])),
        // Near the start are the numbers of transactions, inputs and outputs, marker and flag.
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
            let own = arena.parse(&bytes);
            let place = format!("copy {copy} of block {}", block.height);
            assert_eq!(core.is_some(), own.is_ok(), "{place}: {:?}", own.err());
            *outcomes.entry(core.is_some()).or_default() += 1;
            if let (Some(core), Ok(own)) = (core, own) {
                assert_eq!(core.hash().to_bytes(), own.header().hash().0, "{place}");
                assert_eq!(core.transaction_count(), own.tx_count(), "{place}");
            }
        }
    }
    assert!(outcomes.values().all(|&count| count > 1000), "too few of one outcome: {outcomes:?}");
    Ok(())
}
