//! Keyed sums of SHA-256 equal the sums of an independent crate's digests, on every kernel, for all lengths
//! and numbers of messages.

use bitcoin_hashes::sha256 as reference;
use peregrine_sha256d::block_count;
use peregrine_sha256d::kernel::Kernel;
use peregrine_sha256d::keyed::{MAX_ONE_BLOCK_BYTES, midstate, one_block, push_blocks, sum_with};

const KEY: [u8; 64] = {
    let mut key = [0; 64];
    let mut at = 0;
    while at < 64 {
        key[at] = (at * 37 + 11) as u8;
        at += 1;
    }
    key
};

/// Adds little-endian numbers of 32 bytes, byte by byte.
fn add(sum: &mut [u8; 32], number: &[u8; 32]) {
    let mut carry = 0;
    for (sum, byte) in sum.iter_mut().zip(number) {
        carry += u16::from(*sum) + u16::from(*byte);
        *sum = carry as u8;
        carry >>= 8;
    }
}

fn expected(messages: &[Vec<u8>]) -> [u8; 32] {
    let mut sum = [0; 32];
    for message in messages {
        let digest = reference::Hash::hash(&[&KEY[..], message].concat()).to_byte_array();
        add(&mut sum, &digest);
    }
    sum
}

fn bytes(limbs: [u64; 4]) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (bytes, limb) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(limbs) {
        *bytes = limb.to_le_bytes();
    }
    bytes
}

/// Returns distinct messages of one length.
fn messages(length: usize, count: usize) -> Vec<Vec<u8>> {
    let byte = |message: usize, at: usize| (message * 193 + at * 31 + message * at) as u8;
    (0..count).map(|message| (0..length).map(|at| byte(message, at)).collect()).collect()
}

#[test]
fn every_kernel_equals_the_reference_sum() {
    let midstate = midstate(&KEY);
    for kernel in Kernel::available() {
        for length in (0..140).chain([255, 10_040]) {
            for count in [0, 1, 2, 3, 6, 7, 8, 15, 16, 17, 23, 40] {
                let messages = messages(length, count);
                let mut blocks = Vec::new();
                for message in &messages {
                    let (head, tail) = message.split_at(length / 3);
                    push_blocks(&mut blocks, head, tail);
                }
                let got = bytes(sum_with(kernel, &midstate, &blocks, block_count(length)));
                let name = kernel.name();
                assert_eq!(got, expected(&messages), "{name}: {count} messages of {length} bytes");
            }
        }
    }
}

#[test]
fn carries_propagate_through_all_words() {
    let midstate = midstate(&KEY);
    let messages = messages(36, 5_000);
    let blocks: Vec<_> =
        messages.iter().map(|message| one_block::<36>(message[..].try_into().unwrap())).collect();
    assert_eq!(bytes(sum_with(Kernel::active(), &midstate, &blocks, 1)), expected(&messages));
}

#[test]
fn one_block_equals_the_padded_message() {
    fn check<const LENGTH: usize>() {
        let message: [u8; LENGTH] = std::array::from_fn(|at| at as u8);
        let mut blocks = Vec::new();
        push_blocks(&mut blocks, &message, &[]);
        assert_eq!(blocks, [one_block(&message)], "{LENGTH} bytes");
    }
    check::<0>();
    check::<36>();
    check::<MAX_ONE_BLOCK_BYTES>();
    assert_eq!((block_count(MAX_ONE_BLOCK_BYTES), block_count(MAX_ONE_BLOCK_BYTES + 1)), (1, 2));
}

#[test]
#[should_panic(expected = "3 blocks cannot be divided into messages of 2")]
fn rejects_incomplete_messages() {
    sum_with(Kernel::active(), &[0; 8], &[[0; 64]; 3], 2);
}
