//! A chain of blocks with one transaction each, whose size is as wanted.

use super::*;
use digest::sha256::sha256d;
use wire::{BlockTime, Header, read::write_compact_size};

/// Makes `count` blocks of about `size` bytes each; block 0 is the genesis block of this chain.
pub fn tiny(count: usize, size: usize) -> Arc<ServedChain> {
    of_sizes(std::iter::repeat_n(size, count))
}

/// Makes blocks of about these sizes in bytes; block 0 is the genesis block of this chain.
pub fn of_sizes(sizes: impl Iterator<Item = usize>) -> Arc<ServedChain> {
    let mut prev = BlockHash::default();
    let block = |(height, size): (usize, usize)| {
        let transaction = coinbase(height as u32, size.saturating_sub(200));
        let (merkle_root, time) = (sha256d(&transaction), BlockTime(1_700_000_000 + height as u32));
        let header = Header { version: 4, prev, merkle_root, time, bits: 0x207f_ffff, nonce: 0 };
        prev = header.hash();
        [&header.to_bytes()[..], &[1], &transaction].concat()
    };
    Arc::new(ServedChain::new(sizes.enumerate().map(block).collect()))
}

/// A coinbase whose output script has `len` bytes that differ from block to block.
fn coinbase(height: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![1, 0, 0, 0, 1];
    bytes.extend_from_slice(&[0; 32]);
    bytes.extend_from_slice(&[0xff; 4]);
    bytes.push(4);
    bytes.extend_from_slice(&height.to_le_bytes());
    bytes.extend_from_slice(&[0xff; 4]);
    bytes.push(1);
    bytes.extend_from_slice(&[0; 8]);
    write_compact_size(&mut bytes, len as u64);
    bytes.extend((0..len).map(|at| (at as u32).wrapping_mul(height + 1) as u8));
    bytes.extend_from_slice(&[0; 4]);
    bytes
}

/// Returns whether the bytes are those that the header stands for.
pub fn is_intact(block: &[u8]) -> bool {
    let mut arena = wire::BlockArena::default();
    let Ok(view) = arena.parse(block) else { return false };
    view.tx_count() == 1 && sha256d(&block[81..]) == view.header().merkle_root
}
