//! SHA-256 of 4 messages at once with NEON, for processors without the SHA-2 instructions (Raspberry Pi 4).

use std::arch::aarch64::*;
use std::arch::is_aarch64_feature_detected;

use super::Block;
use super::lanes::{Costs, sixteen_rounds, with_features};
use super::portable::K;
use super::wide::{Simd, Wide, simd};

const LANES: usize = 4;

/// The proof that the processor has NEON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Neon(());

impl Neon {
    pub(crate) fn detect() -> Option<Wide<Self, LANES>> {
        is_aarch64_feature_detected!("neon").then_some(Wide(Self(())))
    }
}

// The costs are instruction counts: a round takes 45 instructions here for 4 messages, and 26 in portable
// code for one. They have not been measured on such a machine yet.
simd!(Neon, LANES, uint32x4_t, "neon", Costs { vector: 45.0, single: 26.0, paired: 26.0 });

type State = [uint32x4_t; 8];
type Words = [uint32x4_t; 16];

#[inline]
#[target_feature(enable = "neon")]
fn splat(word: u32) -> uint32x4_t {
    vdupq_n_u32(word)
}

#[inline]
#[target_feature(enable = "neon")]
fn load(words: &[u32; LANES]) -> uint32x4_t {
    // SAFETY: `words` is 16 readable bytes; the load needs no alignment.
    unsafe { vld1q_u32(words.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
fn store(vector: uint32x4_t) -> [u32; LANES] {
    let mut words = [0; LANES];
    // SAFETY: `words` is 16 writable bytes; the store needs no alignment.
    unsafe { vst1q_u32(words.as_mut_ptr(), vector) };
    words
}

#[inline]
#[target_feature(enable = "neon")]
fn rotate<const RIGHT: i32, const LEFT: i32>(words: uint32x4_t) -> uint32x4_t {
    const { assert!(RIGHT + LEFT == 32) };
    vsriq_n_u32::<RIGHT>(vshlq_n_u32::<LEFT>(words), words)
}

#[inline]
#[target_feature(enable = "neon")]
fn xor3(a: uint32x4_t, b: uint32x4_t, c: uint32x4_t) -> uint32x4_t {
    veorq_u32(veorq_u32(a, b), c)
}

/// One round of all lanes. Each call permutes the names of the state words, so that no data moves. `$wk` is
/// word plus constant.
macro_rules! round {
    ($a:ident $b:ident $c:ident $d:ident $e:ident $f:ident $g:ident $h:ident, $wk:expr) => {
        let s1 = xor3(rotate::<6, 26>($e), rotate::<11, 21>($e), rotate::<25, 7>($e));
        let choice = vbslq_u32($e, $f, $g);
        let t1 = vaddq_u32(vaddq_u32($h, $wk), vaddq_u32(s1, choice));
        let s0 = xor3(rotate::<2, 30>($a), rotate::<13, 19>($a), rotate::<22, 10>($a));
        // Where a and b differ, c decides; elsewhere b.
        let majority = vbslq_u32(veorq_u32($a, $b), $c, $b);
        $d = vaddq_u32($d, t1);
        $h = vaddq_u32(t1, vaddq_u32(s0, majority));
    };
}

/// Compresses one block per lane into the states.
#[inline(never)]
#[target_feature(enable = "neon")]
fn compress(state: &mut State, words: &Words) {
    let k = K.as_chunks::<16>().0;
    let mut w = *words;
    let mut v = *state;
    sixteen_rounds!(v, |t: usize| vaddq_u32(w[t], vdupq_n_u32(k[0][t])));
    for k in &k[1..] {
        sixteen_rounds!(v, |t: usize| {
            let (early, late) = (w[(t + 1) % 16], w[(t + 14) % 16]);
            let s0 = xor3(rotate::<7, 25>(early), rotate::<18, 14>(early), vshrq_n_u32::<3>(early));
            let s1 = xor3(rotate::<17, 15>(late), rotate::<19, 13>(late), vshrq_n_u32::<10>(late));
            w[t] = vaddq_u32(vaddq_u32(w[t], s0), vaddq_u32(w[(t + 9) % 16], s1));
            vaddq_u32(w[t], vdupq_n_u32(k[t]))
        });
    }
    for (s, v) in state.iter_mut().zip(v) {
        *s = vaddq_u32(*s, v);
    }
}

/// Compresses one block that is the same in all lanes; `sums` are the 64 words of its schedule plus the round
/// constants.
#[inline(never)]
#[target_feature(enable = "neon")]
fn compress_known(state: &mut State, sums: &[u32; 64]) {
    let mut v = *state;
    for sums in sums.as_chunks::<16>().0 {
        sixteen_rounds!(v, |t: usize| vdupq_n_u32(sums[t]));
    }
    for (s, v) in state.iter_mut().zip(v) {
        *s = vaddq_u32(*s, v);
    }
}

/// Transposes 4 rows of 4 words.
#[inline]
#[target_feature(enable = "neon")]
fn transpose4([a, b, c, d]: [uint32x4_t; 4]) -> [uint32x4_t; 4] {
    let halves = |even: uint32x4_t, odd: uint32x4_t| {
        let [even, odd] = [even, odd].map(|words| vreinterpretq_u64_u32(words));
        [vtrn1q_u64(even, odd), vtrn2q_u64(even, odd)].map(|words| vreinterpretq_u32_u64(words))
    };
    let [w0, w2] = halves(vtrn1q_u32(a, b), vtrn1q_u32(c, d));
    let [w1, w3] = halves(vtrn2q_u32(a, b), vtrn2q_u32(c, d));
    [w0, w1, w2, w3]
}

/// Transposes 4 blocks into 16 vectors: vector `t` holds word `t` of every lane.
#[inline]
#[target_feature(enable = "neon")]
fn transpose(blocks: &[&Block; LANES]) -> Words {
    let mut words = [vdupq_n_u32(0); 16];
    for (quarter, words) in words.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        *words = transpose4(blocks.map(|block| {
            // SAFETY: a quarter of a block is 16 readable bytes; the load needs no alignment.
            swap_bytes(unsafe { vld1q_u8(block.as_chunks::<16>().0[quarter].as_ptr()) })
        }));
    }
    words
}

/// Returns the digest of each lane's state.
#[inline]
#[target_feature(enable = "neon")]
fn digests(state: &State) -> [[u8; 32]; LANES] {
    let mut digests = [[0; 32]; LANES];
    for (half, words) in state.as_chunks::<4>().0.iter().enumerate() {
        for (digest, words) in digests.iter_mut().zip(transpose4(*words)) {
            let bytes = vreinterpretq_u8_u32(swap_bytes(vreinterpretq_u8_u32(words)));
            // SAFETY: half a digest is 16 writable bytes; the store needs no alignment.
            unsafe { vst1q_u8(digest.as_chunks_mut::<16>().0[half].as_mut_ptr(), bytes) }
        }
    }
    digests
}

/// Converts four big-endian words.
#[inline]
#[target_feature(enable = "neon")]
fn swap_bytes(bytes: uint8x16_t) -> uint32x4_t {
    vreinterpretq_u32_u8(vrev32q_u8(bytes))
}
