//! SipHash: 64-bit hashes under a 128-bit key, for tables and short ids whose collisions an attacker must not
//! be able to choose.
//!
//! [`siphash24`] is the standard function (Aumasson and Bernstein, 2012), [`siphash24_128`] its 128-bit
//! variant, for sums that must not be equal by chance or by design. [`SipHash13Uj`] is the hash of Bitcoin
//! Core's coins cache since 2026: one round per block and three at the end, no padding (inputs are whole
//! blocks), and jumbo blocks of 32 bytes that cost one round. It is weaker and much faster: for hash tables
//! only, never for sums or proofs.
//! Source: Core `crypto/siphash.h`.

#[cfg(target_arch = "x86_64")]
mod avx512;

use sha256d::kernel::Kernel;

/// The finalizer of the standard hash.
const FINALIZER: u64 = 0xff;
/// The finalizer of an unpadded hash: "unpadded" as a little-endian number, which separates it from the
/// standard hash.
const FINALIZER_UNPADDED: u64 = u64::from_le_bytes(*b"unpadded");

/// A key of 128 bits, as two words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SipKey(pub u64, pub u64);

/// The four state words of SipHash.
#[derive(Clone, Copy, Debug)]
struct State([u64; 4]);

impl State {
    fn new(k0: u64, k1: u64) -> Self {
        Self([
            u64::from_be_bytes(*b"somepseu") ^ k0,
            u64::from_be_bytes(*b"dorandom") ^ k1,
            u64::from_be_bytes(*b"lygenera") ^ k0,
            u64::from_be_bytes(*b"tedbytes") ^ k1,
        ])
    }

    #[inline(always)]
    fn rounds(&mut self, count: u32) {
        let [mut v0, mut v1, mut v2, mut v3] = self.0;
        for _ in 0..count {
            v0 = v0.wrapping_add(v1);
            v2 = v2.wrapping_add(v3);
            v1 = v1.rotate_left(13) ^ v0;
            v3 = v3.rotate_left(16) ^ v2;
            v0 = v0.rotate_left(32).wrapping_add(v3);
            v2 = v2.wrapping_add(v1);
            v3 = v3.rotate_left(21) ^ v0;
            v1 = v1.rotate_left(17) ^ v2;
            v2 = v2.rotate_left(32);
        }
        self.0 = [v0, v1, v2, v3];
    }

    #[inline(always)]
    fn compress(&mut self, word: u64, rounds: u32) {
        self.0[3] ^= word;
        self.rounds(rounds);
        self.0[0] ^= word;
    }

    /// Compresses four words for the cost of one.
    #[inline(always)]
    fn compress_jumbo(&mut self, block: &[u8; 32]) {
        let (words, _) = block.as_chunks::<8>();
        let [d0, d1, d2, d3] = std::array::from_fn(|i| u64::from_le_bytes(words[i]));
        for (v, d) in self.0.iter_mut().zip([d1, d2, d3, d0]) {
            *v ^= d;
        }
        self.rounds(1);
        for (v, d) in self.0.iter_mut().zip([d0, d1, d2, d3]) {
            *v ^= d;
        }
    }

    #[inline(always)]
    fn finish(mut self, finalizer: u64, rounds: u32) -> u64 {
        self.0[2] ^= finalizer;
        self.rounds(rounds);
        self.folded()
    }

    #[inline(always)]
    fn folded(&self) -> u64 {
        self.0[0] ^ self.0[1] ^ self.0[2] ^ self.0[3]
    }

    /// Compresses a whole message with its padding, for SipHash-2-4.
    #[inline(always)]
    fn compress_padded(&mut self, data: &[u8]) {
        let (words, tail) = data.as_chunks::<8>();
        for word in words {
            self.compress(u64::from_le_bytes(*word), 2);
        }
        self.compress(last_word(tail, data.len()), 2);
    }

    /// Returns the initial state of SipHash-2-4-128.
    #[inline(always)]
    fn new_128(k0: u64, k1: u64) -> Self {
        let mut state = Self::new(k0, k1);
        state.0[1] ^= 0xee;
        state
    }

    #[inline(always)]
    fn finish_128(mut self) -> u128 {
        self.0[2] ^= 0xee;
        self.rounds(4);
        let low = self.folded();
        self.0[1] ^= 0xdd;
        self.rounds(4);
        u128::from(low) | u128::from(self.folded()) << 64
    }
}

/// Returns the last word of a message of `length` bytes that ends with the incomplete word `tail`.
#[inline(always)]
fn last_word(tail: &[u8], length: usize) -> u64 {
    let mut last = [0; 8];
    last[..tail.len()].copy_from_slice(tail);
    last[7] = length as u8; // only the low byte of the length is hashed
    u64::from_le_bytes(last)
}

/// Returns the standard SipHash-2-4 of `data` under the key (k0, k1).
pub fn siphash24(k0: u64, k1: u64, data: &[u8]) -> u64 {
    let mut state = State::new(k0, k1);
    state.compress_padded(data);
    state.finish(FINALIZER, 4)
}

/// Returns the SipHash-2-4-128 of `data` under the key (k0, k1); the first eight bytes of the hash are the
/// low half.
#[inline]
pub fn siphash24_128(k0: u64, k1: u64, data: &[u8]) -> u128 {
    let mut state = State::new_128(k0, k1);
    state.compress_padded(data);
    state.finish_128()
}

/// Returns the number of words in a padded message of `length` bytes.
#[inline]
pub const fn word_count(length: usize) -> usize {
    length / 8 + 1
}

/// Appends the [`word_count`] padded words of a message given in two parts; `HEAD` is a multiple of 8.
#[inline]
pub fn push_words<const HEAD: usize>(words: &mut Vec<u64>, head: &[u8; HEAD], tail: &[u8]) {
    const { assert!(HEAD.is_multiple_of(8)) };
    let (whole, rest) = tail.as_chunks::<8>();
    words.extend(head.as_chunks::<8>().0.iter().chain(whole).map(|word| u64::from_le_bytes(*word)));
    words.push(last_word(rest, HEAD + tail.len()));
}

/// Returns the sum modulo 2^128 of the messages' SipHash-2-4-128 under the key (k0, k1).
///
/// `words` are the padded messages ([`push_words`]), each of `per_message` words. A kernel with eight lanes
/// needs at least eight messages in one call to fill them.
///
/// # Panics
/// If `per_message` is 0 or does not divide the number of words.
pub fn siphash24_128_sum_with(kernel: Kernel, k0: u64, k1: u64, words: &[u64], per_message: usize) -> u128 {
    assert!(
        per_message > 0 && words.len().is_multiple_of(per_message),
        "keyed sum: {} words cannot be divided into messages of {per_message}",
        words.len()
    );
    let start = State::new_128(k0, k1);
    let (sum, rest) = match kernel.has_avx512f() {
        #[cfg(target_arch = "x86_64")]
        true => {
            let lone = words.len() % (avx512::LANES * per_message);
            let (full, rest) = words.split_at(words.len() - lone);
            // SAFETY: the kernel proves the feature.
            (unsafe { avx512::sum(&start, full, per_message) }, rest)
        }
        _ => (0, words),
    };
    rest.chunks_exact(per_message).fold(sum, |sum, message| {
        let mut state = start;
        message.iter().for_each(|word| state.compress(*word, 2));
        sum.wrapping_add(state.finish_128())
    })
}

/// SipHash-1-3-UJ with the key already mixed in. It is cheap to copy, and hashing does not change it.
#[derive(Clone, Copy, Debug)]
pub struct SipHash13Uj(State);

impl SipHash13Uj {
    /// Creates the hasher from a key. Every table needs a fresh key from the system's random source.
    pub fn new(k0: u64, k1: u64) -> Self {
        Self(State::new(k0, k1))
    }

    /// Returns the hash of a txid (internal order) and an output index: a jumbo block, then the index as a
    /// normal block.
    /// Source: Core `SaltedCoinsCacheHasher` in coins.h.
    #[inline]
    pub fn hash_outpoint(&self, txid: &[u8; 32], vout: u32) -> u64 {
        self.with_jumbo(txid).with_word(u64::from(vout)).finish()
    }

    /// Returns this state with a normal block appended.
    #[inline]
    #[must_use]
    pub fn with_word(mut self, word: u64) -> Self {
        self.0.compress(word, 1);
        self
    }

    /// Returns this state with a jumbo block appended. All but a bounded number of jumbo blocks must be
    /// cryptographic hashes, or an attacker can steer the state.
    #[inline]
    #[must_use]
    pub fn with_jumbo(mut self, block: &[u8; 32]) -> Self {
        self.0.compress_jumbo(block);
        self
    }

    /// Returns the hash of the blocks appended so far.
    #[inline]
    pub fn finish(&self) -> u64 {
        self.0.finish(FINALIZER_UNPADDED, 3)
    }
}
