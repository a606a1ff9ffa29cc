//! SHA-256 and SHA-256d (Bitcoin's double SHA-256) of one message, of a stream, and of many messages at once.
//!
//! The batch functions are the reason for this crate. One SHA-256 is a chain of dependent steps that no
//! processor can run in parallel; many of them side by side fill vector registers: 16 lanes with AVX-512, 8
//! with AVX2, 4 with NEON, or two interleaved messages with the SHA instructions of x86 and ARM. Callers
//! therefore collect the messages of a whole block, or of many blocks, and make one call.
//!
//! ```
//! use peregrine_sha256d::{Message, sha256d, sha256d_many};
//!
//! // Each message may consist of three parts, which are hashed as their concatenation.
//! let messages = [Message([b"version", b"inputs and outputs", b"lock time"]), Message([b"abc", b"", b""])];
//! let mut digests = Vec::new();
//! sha256d_many(&messages, &mut digests);
//! assert_eq!(digests[1], sha256d(b"abc"));
//! ```
//!
//! Digests are in the byte order of the hash function (internal order), not reversed as Bitcoin displays
//! them. `portable.rs` is the specification; the files beside it are faster versions of the same functions,
//! one per instruction set, and [`kernel`] selects one of them once. Each contains `unsafe` only for its
//! instructions: a [`kernel::Kernel`] proves that the processor has them, and safe code cannot forge one.

#[cfg(target_arch = "aarch64")]
pub(crate) mod armsha;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
pub mod kernel;
pub mod keyed;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod lanes;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod paired;
pub(crate) mod portable;
#[cfg(target_arch = "x86_64")]
pub(crate) mod shani;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod wide;

use crate::kernel::Kernel;
use keyed::WordSums;
use std::sync::atomic::{AtomicU64, Ordering};

/// The eight words of the hash state between two blocks.
type State = [u32; 8];
/// The input of one compression.
type Block = [u8; 64];

/// The operations that every kernel implements, each kernel in its own file.
pub(crate) trait Hasher {
    /// Compresses whole blocks into the state, in order.
    fn compress(&self, state: &mut State, blocks: &[Block]);

    /// Writes the SHA-256d of each message to the digest of the same index.
    fn sha256d_many(&self, messages: &[Message<'_>], digests: &mut [[u8; 32]]);

    /// Writes the SHA-256d of each pair of nodes to the digest of the same index.
    fn sha256d_pairs(&self, pairs: &[Block], digests: &mut [[u8; 32]]);

    /// Adds the digests of keyed messages to `sums`; each message has `per_message` blocks.
    fn keyed_sums(&self, midstate: &State, blocks: &[Block], per_message: usize, sums: &mut WordSums);
}

/// A message in up to three parts, hashed as their concatenation; any part may be empty.
///
/// There are three because a txid is the hash of a transaction without its witness: version | inputs and
/// outputs | lock time.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a>(pub [&'a [u8]; 3]);

impl Message<'_> {
    /// Returns the length of the whole message in bytes.
    pub fn len(&self) -> usize {
        self.0.iter().map(|part| part.len()).sum()
    }

    /// Returns whether the message has no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|part| part.is_empty())
    }
}

impl<'a> From<&'a [u8]> for Message<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Message([bytes, &[], &[]])
    }
}

/// Number of blocks that batch functions have compressed in this process.
static BATCHED_BLOCKS: AtomicU64 = AtomicU64::new(0);

fn count_batched(blocks: usize) {
    BATCHED_BLOCKS.fetch_add(blocks as u64, Ordering::Relaxed);
}

/// Returns the number of bytes that this process has compressed so far in batches and keyed sums, including
/// padding and second hashes, but not single messages and streams. Reports compare it with a kernel's peak
/// throughput.
pub fn batched_bytes() -> u64 {
    BATCHED_BLOCKS.load(Ordering::Relaxed) * size_of::<Block>() as u64
}

/// Returns the number of blocks in a padded message of `length` bytes.
#[inline]
pub const fn block_count(length: usize) -> usize {
    (length + 9).div_ceil(64)
}

/// Returns the SHA-256 of `data`.
pub fn sha256(data: &[u8]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    hasher.update(data);
    hasher.finalize()
}

/// Returns the SHA-256 of the SHA-256 of `data`.
pub fn sha256d(data: &[u8]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    hasher.update(data);
    hasher.finalize_double()
}

/// Appends the SHA-256d of each message to `out`, in order.
///
/// Larger batches are faster; below about 100 messages many lanes stay idle.
pub fn sha256d_many(messages: &[Message<'_>], out: &mut Vec<[u8; 32]>) {
    sha256d_many_with(Kernel::active(), messages, out);
}

/// [`sha256d_many`] with the given kernel.
pub fn sha256d_many_with(kernel: Kernel, messages: &[Message<'_>], out: &mut Vec<[u8; 32]>) {
    let digests = grow(out, messages.len());
    count_batched(messages.iter().map(|message| block_count(message.len()) + 1).sum());
    kernel.hasher().sha256d_many(messages, digests);
}

/// Appends the SHA-256d of each pair of adjacent nodes (`nodes[2i] || nodes[2i + 1]`), in order: one level of
/// a merkle tree.
///
/// # Panics
/// If the number of nodes is odd: the caller decides how an unpaired last node is handled.
pub fn sha256d_pairs(nodes: &[[u8; 32]], out: &mut Vec<[u8; 32]>) {
    sha256d_pairs_with(Kernel::active(), nodes, out);
}

/// [`sha256d_pairs`] with the given kernel.
///
/// # Panics
/// If the number of nodes is odd.
pub fn sha256d_pairs_with(kernel: Kernel, nodes: &[[u8; 32]], out: &mut Vec<[u8; 32]>) {
    let (pairs, lone) = nodes.as_flattened().as_chunks::<64>();
    assert!(lone.is_empty(), "sha256d_pairs: {} nodes cannot be paired", nodes.len());
    let digests = grow(out, pairs.len());
    count_batched(3 * pairs.len());
    kernel.hasher().sha256d_pairs(pairs, digests);
}

/// Appends `count` zeroed digests to `out` and returns them.
fn grow(out: &mut Vec<[u8; 32]>, count: usize) -> &mut [[u8; 32]] {
    let start = out.len();
    out.resize(start + count, [0; 32]);
    &mut out[start..]
}

/// Returns the SHA-256d of one message, computed as a stream.
fn sha256d_one(kernel: Kernel, message: &Message<'_>) -> [u8; 32] {
    let mut hasher = Sha256::with_kernel(kernel);
    for part in message.0 {
        hasher.update(part);
    }
    hasher.finalize_double()
}

/// SHA-256 of data that arrives in pieces. A clone continues from the same point (a midstate).
#[derive(Clone, Debug)]
pub struct Sha256 {
    kernel: Kernel,
    state: State,
    /// The first `length % 64` bytes are an incomplete block.
    buffer: Block,
    length: u64,
}

impl Default for Sha256 {
    fn default() -> Self {
        Self::new()
    }
}

impl Sha256 {
    /// Starts an empty message.
    pub fn new() -> Self {
        Self::with_kernel(Kernel::active())
    }

    /// Starts an empty message with the given kernel.
    pub fn with_kernel(kernel: Kernel) -> Self {
        Self { kernel, state: portable::INITIAL, buffer: [0; 64], length: 0 }
    }

    /// Appends `data` to the message.
    pub fn update(&mut self, mut data: &[u8]) {
        let filled = self.filled();
        self.length += data.len() as u64;
        if filled > 0 {
            let taken = data.len().min(64 - filled);
            let (head, rest) = data.split_at(taken);
            self.buffer[filled..filled + taken].copy_from_slice(head);
            if filled + taken < 64 {
                return;
            }
            self.kernel.hasher().compress(&mut self.state, &[self.buffer]);
            data = rest;
        }
        let (blocks, tail) = data.as_chunks::<64>();
        if !blocks.is_empty() {
            self.kernel.hasher().compress(&mut self.state, blocks);
        }
        self.buffer[..tail.len()].copy_from_slice(tail);
    }

    /// Returns the SHA-256 of the message.
    pub fn finalize(mut self) -> [u8; 32] {
        self.pad();
        to_bytes(&self.state)
    }

    /// Returns the SHA-256 of the SHA-256 of the message.
    pub fn finalize_double(mut self) -> [u8; 32] {
        self.pad();
        let mut state = portable::INITIAL;
        self.kernel.hasher().compress(&mut state, &[digest_block(&to_bytes(&self.state))]);
        to_bytes(&state)
    }

    /// Returns the number of bytes in the buffer.
    fn filled(&self) -> usize {
        (self.length % 64) as usize
    }

    /// Appends the padding: a one bit, zeros, and the length in bits (FIPS 180-4, 5.1.1).
    fn pad(&mut self) {
        let filled = self.filled();
        self.buffer[filled] = 0x80;
        self.buffer[filled + 1..].fill(0);
        if filled >= 56 {
            self.kernel.hasher().compress(&mut self.state, &[self.buffer]);
            self.buffer.fill(0);
        }
        self.buffer[56..].copy_from_slice(&(self.length << 3).to_be_bytes());
        self.kernel.hasher().compress(&mut self.state, &[self.buffer]);
    }
}

/// Returns the single padded block of a message that is itself a digest.
fn digest_block(digest: &[u8; 32]) -> Block {
    let mut block = [0; 64];
    block[..32].copy_from_slice(digest);
    block[32] = 0x80;
    block[62] = 1; // 256 bits
    block
}

/// Returns the digest that the final state represents.
fn to_bytes(state: &State) -> [u8; 32] {
    let mut bytes = [0; 32];
    for (bytes, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(state) {
        *bytes = word.to_be_bytes();
    }
    bytes
}
