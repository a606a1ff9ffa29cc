//! SHA-256 (FIPS 180-4) in plain Rust: the specification of every other file in this directory.

use super::keyed::{WordSums, add_digest};
use super::{Block, Hasher, Message, State, sha256d_one, to_bytes};
use crate::kernel::Kernel;

/// The kernel that needs no special instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Portable;

/// The round constants: the first 32 bits of the fractions of the cube roots of the first 64 primes (FIPS
/// 180-4, 4.2.2).
#[rustfmt::skip]
pub(super) const K: [u32; 64] = [
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
];

/// The state before the first block: the fractions of the square roots of the first 8 primes (FIPS 180-4,
/// 5.3.3).
pub(super) const INITIAL: State =
    [0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19];

/// Expands a block of 16 words to the 64 words of the message schedule (FIPS 180-4, 6.2.2 step 1).
pub(super) const fn schedule(block: [u32; 16]) -> [u32; 64] {
    let mut w = [0; 64];
    let mut t = 0;
    while t < 64 {
        w[t] = if t < 16 {
            block[t]
        } else {
            let (early, late) = (w[t - 15], w[t - 2]);
            let s0 = early.rotate_right(7) ^ early.rotate_right(18) ^ (early >> 3);
            let s1 = late.rotate_right(17) ^ late.rotate_right(19) ^ (late >> 10);
            w[t - 16].wrapping_add(s0).wrapping_add(w[t - 7]).wrapping_add(s1)
        };
        t += 1;
    }
    w
}

/// One round. Each call permutes the names of the state words, so that no data moves.
macro_rules! round {
    ($a:ident $b:ident $c:ident $d:ident $e:ident $f:ident $g:ident $h:ident, $wk:expr) => {
        let s1 = $e.rotate_right(6) ^ $e.rotate_right(11) ^ $e.rotate_right(25);
        let t1 = $h.wrapping_add($wk).wrapping_add(s1).wrapping_add($g ^ ($e & ($f ^ $g)));
        let s0 = $a.rotate_right(2) ^ $a.rotate_right(13) ^ $a.rotate_right(22);
        $d = $d.wrapping_add(t1);
        $h = t1.wrapping_add(s0).wrapping_add(($a & $b) | ($c & ($a | $b)));
    };
}

/// Compresses whole blocks into the state, in order.
pub(super) fn compress(state: &mut State, blocks: &[Block]) {
    for block in blocks {
        let mut words = [0; 16];
        for (word, bytes) in words.iter_mut().zip(block.as_chunks::<4>().0) {
            *word = u32::from_be_bytes(*bytes);
        }
        let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
        for (w, k) in schedule(words).as_chunks::<8>().0.iter().zip(K.as_chunks::<8>().0) {
            round!(a b c d e f g h, w[0].wrapping_add(k[0]));
            round!(h a b c d e f g, w[1].wrapping_add(k[1]));
            round!(g h a b c d e f, w[2].wrapping_add(k[2]));
            round!(f g h a b c d e, w[3].wrapping_add(k[3]));
            round!(e f g h a b c d, w[4].wrapping_add(k[4]));
            round!(d e f g h a b c, w[5].wrapping_add(k[5]));
            round!(c d e f g h a b, w[6].wrapping_add(k[6]));
            round!(b c d e f g h a, w[7].wrapping_add(k[7]));
        }
        for (s, v) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
            *s = s.wrapping_add(v);
        }
    }
}

impl Hasher for Portable {
    fn compress(&self, state: &mut State, blocks: &[Block]) {
        compress(state, blocks);
    }

    fn sha256d_many(&self, messages: &[Message<'_>], digests: &mut [[u8; 32]]) {
        for (message, digest) in messages.iter().zip(digests) {
            *digest = sha256d_one(Kernel::PORTABLE, message);
        }
    }

    fn sha256d_pairs(&self, pairs: &[Block], digests: &mut [[u8; 32]]) {
        for (pair, digest) in pairs.iter().zip(digests) {
            *digest = sha256d_one(Kernel::PORTABLE, &Message::from(&pair[..]));
        }
    }

    fn keyed_sums(&self, midstate: &State, blocks: &[Block], per_message: usize, sums: &mut WordSums) {
        for message in blocks.chunks_exact(per_message) {
            let mut state = *midstate;
            compress(&mut state, message);
            add_digest(sums, &to_bytes(&state));
        }
    }
}
