//! Empty regtest blocks on any branch, to extend a chain and to reorganise it.

use bitcoinkernel::{Block, Transaction, prelude::*};
use wire::{BlockHash, BlockTime, Height};

/// Target of regtest in its compact form: every second nonce meets it.
const REGTEST_BITS: u32 = 0x207f_ffff;
/// Blocks between halvings of the subsidy on regtest (Core `CRegTestParams`).
const REGTEST_HALVING: u32 = 150;

/// A block with nothing but a coinbase, which claims the whole subsidy, and its hash; `salt` tells blocks of
/// one height apart.
///
/// # Panics
/// If Core cannot read what is made here: a bug of this function.
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
    // The highest byte of the hash, which is stored last, is at most that of the target.
    (0..).map(header).find(|(hash, _)| hash.0[31] < 0x7f).expect("every second nonce will do")
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

/// The push of the height that starts a coinbase script (BIP-0034): the shortest form, with room for the
/// sign.
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
    fn heights_are_pushed_in_the_shortest_form() {
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
