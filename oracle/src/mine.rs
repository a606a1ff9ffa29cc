//! Mines empty regtest blocks on any branch, to extend a chain and to reorganise it.

use bitcoinkernel::{Block, Transaction, prelude::*};
use wire::{BlockHash, BlockTime, Height};

/// Regtest's target in compact form; every second nonce meets it.
const REGTEST_BITS: u32 = 0x207f_ffff;
/// Number of blocks between halvings of the subsidy on regtest (Core `CRegTestParams`).
const REGTEST_HALVING: u32 = 150;

/// Makes a block with only a coinbase, which claims the whole subsidy. Returns its hash and the block. `salt`
/// distinguishes blocks of the same height.
///
/// # Panics
/// If Core cannot read the block: a bug in this function.
#[must_use]
pub fn empty_block(prev: BlockHash, height: Height, time: BlockTime, salt: u8) -> (BlockHash, Vec<u8>) {
    let coinbase = coinbase(height, salt);
    let txid = Transaction::new(&coinbase).expect("Core reads the coinbase").txid().to_bytes();
    let header = |nonce: u32| {
        let mut block = 0x2000_0000u32.to_le_bytes().to_vec();
        block.extend_from_slice(&prev.0);
        block.extend_from_slice(&txid);
        block.extend([time.0, REGTEST_BITS, nonce].into_iter().flat_map(u32::to_le_bytes));
        block.push(1);
        block.extend_from_slice(&coinbase);
        let hash = Block::new(&block).expect("Core reads the block").hash().to_bytes();
        (BlockHash(hash), block)
    };
    // The most significant byte of the hash, which is stored last, is less than the target's.
    (0..).map(header).find(|(hash, _)| hash.0[31] < 0x7f).expect("every second nonce meets the target")
}

fn coinbase(height: Height, salt: u8) -> Vec<u8> {
    let mut script = push_height(height);
    script.extend_from_slice(&[2, salt, 0x6f]);
    let subsidy = (50 * 100_000_000u64).checked_shr(height.0 / REGTEST_HALVING).unwrap_or(0);
    let mut tx = 1u32.to_le_bytes().to_vec();
    tx.push(1);
    tx.extend_from_slice(&[0; 32]);
    tx.extend_from_slice(&u32::MAX.to_le_bytes());
    tx.push(script.len() as u8);
    tx.extend_from_slice(&script);
    tx.extend_from_slice(&u32::MAX.to_le_bytes());
    tx.push(1);
    tx.extend_from_slice(&subsidy.to_le_bytes());
    // OP_TRUE
    tx.extend_from_slice(&[1, 0x51]);
    tx.extend_from_slice(&0u32.to_le_bytes());
    tx
}

/// Returns the push of the height that starts a coinbase script (BIP-0034): the shortest form, including the
/// sign bit.
fn push_height(height: Height) -> Vec<u8> {
    if (1..=16).contains(&height.0) {
        return vec![0x50 + height.0 as u8];
    }
    let mut number = height.0.to_le_bytes().to_vec();
    number.push(0);
    while number.len() > 1 && number[number.len() - 1] == 0 && number[number.len() - 2] < 0x80 {
        number.pop();
    }
    [vec![number.len() as u8], number].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heights_are_pushed_in_their_shortest_form() {
        for (height, push) in [
            (1, vec![0x51]),
            (16, vec![0x60]),
            (17, vec![1, 17]),
            (127, vec![1, 127]),
            (128, vec![2, 128, 0]),
            (255, vec![2, 255, 0]),
            (256, vec![2, 0, 1]),
            (32768, vec![3, 0, 128, 0]),
        ] {
            assert_eq!(push_height(Height(height)), push, "{height}");
        }
    }
}
