//! Sums of SHA-256 digests under a secret key: they map a multiset of messages to one number.
//!
//! The key fills the first block, which is hashed once; each message starts from the state after it (the
//! midstate): SHA-256 of key block and message, one compression for each message of up to
//! [`MAX_ONE_BLOCK_BYTES`] bytes. Digests are read as little-endian numbers and added modulo 2^256; only
//! their sum leaves the vector registers. The users of such sums document what they prove.

use super::{block_count, count_batched, portable};
use crate::kernel::Kernel;

/// Length of the longest message that fits into one padded block, in bytes.
pub const MAX_ONE_BLOCK_BYTES: usize = 55;

/// The sums of each of the eight words of the digests, read as little-endian numbers.
pub(super) type WordSums = [u64; 8];

/// Returns the state after a first block that holds the key. It must be kept as secret as the key.
pub fn midstate(key: &[u8; 64]) -> [u32; 8] {
    let mut state = portable::INITIAL;
    Kernel::active().hasher().compress(&mut state, &[*key]);
    state
}

/// Returns the single padded block of a message that follows the key's block.
#[inline]
pub fn one_block<const LENGTH: usize>(message: &[u8; LENGTH]) -> [u8; 64] {
    const { assert!(LENGTH <= MAX_ONE_BLOCK_BYTES) };
    let mut block = [0; 64];
    block[..LENGTH].copy_from_slice(message);
    block[LENGTH] = 0x80;
    block[62..].copy_from_slice(&(8 * (64 + LENGTH as u16)).to_be_bytes());
    block
}

/// Appends the [`block_count`] padded blocks of a message, given in two parts, that follows the key's block.
#[inline]
pub fn push_blocks(blocks: &mut Vec<[u8; 64]>, head: &[u8], tail: &[u8]) {
    let (start, length) = (blocks.len(), head.len() + tail.len());
    blocks.resize(start + block_count(length), [0; 64]);
    let bytes = blocks[start..].as_flattened_mut();
    bytes[..head.len()].copy_from_slice(head);
    bytes[head.len()..length].copy_from_slice(tail);
    bytes[length] = 0x80;
    let end = bytes.len() - 8;
    bytes[end..].copy_from_slice(&(8 * (64 + length as u64)).to_be_bytes());
}

/// Returns the sum modulo 2^256 of the messages' digests, each a little-endian number; least significant
/// word first.
///
/// `blocks` are the padded messages ([`one_block`], [`push_blocks`]), each of `per_message` blocks. Larger
/// batches are faster; below 16 messages some lanes stay idle.
///
/// # Panics
/// If `per_message` is 0 or does not divide the number of blocks.
pub fn sum_with(kernel: Kernel, midstate: &[u32; 8], blocks: &[[u8; 64]], per_message: usize) -> [u64; 4] {
    assert!(
        per_message > 0 && blocks.len().is_multiple_of(per_message),
        "keyed sum: {} blocks cannot be divided into messages of {per_message}",
        blocks.len()
    );
    count_batched(blocks.len());
    let mut sums = [0; 8];
    kernel.hasher().keyed_sums(midstate, blocks, per_message, &mut sums);
    carry(&sums)
}

#[inline]
pub(super) fn add_digest(sums: &mut WordSums, digest: &[u8; 32]) {
    for (sum, word) in sums.iter_mut().zip(digest.as_chunks::<4>().0) {
        *sum += u64::from(u32::from_le_bytes(*word));
    }
}

/// Combines the sums of the words to one number. No sum overflows: that would take 2^32 messages, 256 GiB.
fn carry(sums: &WordSums) -> [u64; 4] {
    let mut carry = 0;
    let mut word = |sum: u64| {
        let total: u128 = u128::from(sum) + carry;
        carry = total >> 32;
        total as u64 & 0xffff_ffff
    };
    let mut number = [0; 4];
    for (limb, [low, high]) in number.iter_mut().zip(sums.as_chunks::<2>().0) {
        *limb = word(*low) | word(*high) << 32;
    }
    number
}
