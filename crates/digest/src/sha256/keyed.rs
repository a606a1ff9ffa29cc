//! Sums of SHA-256 digests under a secret key: what turns a bag of messages into one number.
//!
//! The key fills a first block of its own, so that it is hashed once, and each message begins at the state
//! after it (the midstate): SHA-256 of key block and message, one compression for each message of up to
//! [`MAX_ONE_BLOCK`] bytes. Digests are taken as little-endian numbers and added modulo 2^256; they never
//! leave the vector registers but as a sum. What such sums prove is said where they are used.

use super::{block_count, count, portable};
use crate::kernel::Kernel;

/// The longest message that is one block when padded, in bytes.
pub const MAX_ONE_BLOCK: usize = 55;

/// For each of the eight words of digests, read as little-endian numbers, the sum of that word.
pub(super) type WordSums = [u64; 8];

/// Returns the state after a first block that holds the key. It is as secret as the key.
pub fn midstate(key: &[u8; 64]) -> [u32; 8] {
    let mut state = portable::INITIAL;
    Kernel::active().hasher().compress(&mut state, &[*key]);
    state
}

/// Returns the only block of a message that follows the key's block.
#[inline]
pub fn one_block<const LENGTH: usize>(message: &[u8; LENGTH]) -> [u8; 64] {
    const { assert!(LENGTH <= MAX_ONE_BLOCK) };
    let mut block = [0; 64];
    block[..LENGTH].copy_from_slice(message);
    block[LENGTH] = 0x80;
    block[62..].copy_from_slice(&(8 * (64 + LENGTH as u16)).to_be_bytes());
    block
}

/// Appends the [`block_count`] blocks of a message that follows the key's block and comes in two parts.
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
/// `blocks` are the padded messages ([`one_block`], [`push_blocks`]), all of `per_message` blocks. The more
/// messages in one call the better: below 16 the lanes do not fill.
///
/// # Panics
/// If `per_message` is 0 or does not divide the number of blocks.
pub fn sum(midstate: &[u32; 8], blocks: &[[u8; 64]], per_message: usize) -> [u64; 4] {
    sum_with(Kernel::active(), midstate, blocks, per_message)
}

/// [`sum`] by a chosen kernel.
///
/// # Panics
/// If `per_message` is 0 or does not divide the number of blocks.
pub fn sum_with(kernel: Kernel, midstate: &[u32; 8], blocks: &[[u8; 64]], per_message: usize) -> [u64; 4] {
    assert!(
        per_message > 0 && blocks.len().is_multiple_of(per_message),
        "keyed sum: {} blocks are not messages of {per_message}",
        blocks.len()
    );
    count(blocks.len());
    let mut sums = [0; 8];
    kernel.hasher().keyed_sums(midstate, blocks, per_message, &mut sums);
    carry(&sums)
}

/// Adds one digest.
#[inline]
pub(super) fn add_digest(sums: &mut WordSums, digest: &[u8; 32]) {
    for (sum, word) in sums.iter_mut().zip(digest.as_chunks::<4>().0) {
        *sum += u64::from(u32::from_le_bytes(*word));
    }
}

/// Makes one number of the sums of its words. No sum overflows: that takes 2^32 messages, 256 GiB.
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
