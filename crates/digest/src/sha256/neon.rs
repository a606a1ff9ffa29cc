//! SHA-256 of 4 messages at once by NEON: lane `i` of every vector belongs to message `i`.
//!
//! For processors without the SHA-2 instructions (Raspberry Pi 4); where they exist they are faster.

use std::arch::aarch64::*;
use std::arch::is_aarch64_feature_detected;

use super::keyed::{WordSums, add_digest};
use super::lanes::{Costs, Lane, Machine, PADDING_SUMS, Shares, States, sha256d_ordered, sixteen_rounds};
use super::portable::{INITIAL, K, Portable};
use super::{Block, Hasher, Message, sha256d_one};
use crate::kernel::Kernel;

const LANES: usize = 4;
/// Of 4 compressions here, and of those of the portable form. Counted from instructions, of which this has 45
/// a round for 4 messages and that one 26 for one: not measured on such a machine yet.
const COSTS: Costs = Costs { vector: 45.0, single: 26.0, paired: 26.0 };

/// The proof that the processor has NEON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Neon(());

impl Neon {
    pub(crate) fn detect() -> Option<Self> {
        is_aarch64_feature_detected!("neon").then_some(Self(()))
    }
}

impl Hasher for Neon {
    fn compress(&self, state: &mut super::State, blocks: &[Block]) {
        // One stream has no use for lanes.
        Portable.compress(state, blocks);
    }

    fn sha256d_many(&self, messages: &[Message<'_>], digests: &mut [[u8; 32]]) {
        let shares = Shares::new::<LANES>(messages, COSTS);
        sha256d_ordered(self, messages, shares.lanes(), digests);
        for &index in shares.streams() {
            let index = index as usize;
            digests[index] = sha256d_one(Kernel::PORTABLE, &messages[index]);
        }
    }

    fn sha256d_pairs(&self, pairs: &[Block], digests: &mut [[u8; 32]]) {
        for (pairs, digests) in pairs.chunks(LANES).zip(digests.chunks_mut(LANES)) {
            // SAFETY: `self` proves the features.
            unsafe { sha256d_pairs(pairs, digests) };
        }
    }

    fn keyed_sums(&self, midstate: &super::State, blocks: &[Block], per_message: usize, sums: &mut WordSums) {
        // SAFETY: `self` proves the features.
        unsafe { keyed_sums(midstate, blocks, per_message, sums) };
    }
}

type State = [uint32x4_t; 8];
type Words = [uint32x4_t; 16];

impl Machine<LANES> for Neon {
    fn add(&self, states: &mut States<LANES>, lanes: &[Lane<'_>; LANES], steps: usize) {
        // SAFETY: `self` proves the features.
        unsafe { add_blocks(states, lanes, steps) }
    }

    fn hash_digests(&self, states: &States<LANES>, _: usize) -> [[u8; 32]; LANES] {
        // SAFETY: `self` proves the features.
        unsafe { second_hash(&states.0.map(|words| load(&words))) }
    }
}

/// Adds the next blocks of all lanes.
#[target_feature(enable = "neon")]
fn add_blocks(states: &mut States<LANES>, lanes: &[Lane<'_>; LANES], steps: usize) {
    let mut state: State = states.0.each_ref().map(|words| load(words));
    let mut scratch = [[0; 64]; LANES];
    for step in 0..steps {
        let mut blocks = [const { &[0; 64] }; LANES];
        for ((block, lane), scratch) in blocks.iter_mut().zip(lanes).zip(&mut scratch) {
            *block = lane.block(lane.number + step, scratch);
        }
        compress(&mut state, &transpose(&blocks));
    }
    for (words, vector) in states.0.iter_mut().zip(state) {
        // SAFETY: `words` is 16 writable bytes; the store needs no alignment.
        unsafe { vst1q_u32(words.as_mut_ptr(), vector) }
    }
}

/// Hashes up to 4 pairs of nodes.
#[target_feature(enable = "neon")]
fn sha256d_pairs(pairs: &[Block], digests: &mut [[u8; 32]]) {
    let mut blocks = [const { &[0; 64] }; LANES];
    for (block, pair) in blocks.iter_mut().zip(pairs) {
        *block = pair;
    }
    let mut state = same(&INITIAL);
    compress(&mut state, &transpose(&blocks));
    compress_known(&mut state, &PADDING_SUMS);
    for (row, digest) in second_hash(&state).iter().zip(digests) {
        *digest = *row;
    }
}

/// Hashes the digests that are the states, and returns the results lane by lane.
#[target_feature(enable = "neon")]
fn second_hash(state: &State) -> [[u8; 32]; LANES] {
    let mut words = [vdupq_n_u32(0); 16];
    words[..8].copy_from_slice(state);
    words[8] = vdupq_n_u32(1 << 31); // the one bit
    words[15] = vdupq_n_u32(256);
    let mut state = same(&INITIAL);
    compress(&mut state, &words);
    digests(&state)
}

/// Adds up the digests of keyed messages, 4 at a time.
#[target_feature(enable = "neon")]
fn keyed_sums(midstate: &super::State, blocks: &[Block], per_message: usize, sums: &mut WordSums) {
    for group in blocks.chunks(LANES * per_message) {
        let mut state = same(midstate);
        for number in 0..per_message {
            let mut lanes = [const { &[0; 64] }; LANES];
            for (lane, block) in lanes.iter_mut().zip(group[number..].iter().step_by(per_message)) {
                *lane = block;
            }
            compress(&mut state, &transpose(&lanes));
        }
        digests(&state)[..group.len() / per_message].iter().for_each(|digest| add_digest(sums, digest));
    }
}

/// Puts one state into all lanes.
#[inline]
#[target_feature(enable = "neon")]
fn same(state: &super::State) -> State {
    state.map(|word| vdupq_n_u32(word))
}

#[inline]
#[target_feature(enable = "neon")]
fn load(words: &[u32; LANES]) -> uint32x4_t {
    // SAFETY: `words` is 16 readable bytes; the load needs no alignment.
    unsafe { vld1q_u32(words.as_ptr()) }
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

/// One round of all lanes; the names of the state turn with each call, so nothing moves. `$wk` is word plus
/// constant.
macro_rules! round {
    ($a:ident $b:ident $c:ident $d:ident $e:ident $f:ident $g:ident $h:ident, $wk:expr) => {
        let s1 = xor3(rotate::<6, 26>($e), rotate::<11, 21>($e), rotate::<25, 7>($e));
        let choice = vbslq_u32($e, $f, $g);
        let t1 = vaddq_u32(vaddq_u32($h, $wk), vaddq_u32(s1, choice));
        let s0 = xor3(rotate::<2, 30>($a), rotate::<13, 19>($a), rotate::<22, 10>($a));
        // Where a and b differ c decides, else b.
        let majority = vbslq_u32(veorq_u32($a, $b), $c, $b);
        $d = vaddq_u32($d, t1);
        $h = vaddq_u32(t1, vaddq_u32(s0, majority));
    };
}

/// Adds one block to the states of all lanes.
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

/// Adds one block that is the same in all lanes; `sums` are the 64 words of its schedule plus the round
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

/// Turns 4 rows of 4 words into 4 columns.
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

/// Turns 4 blocks into their words: word `t` of all lanes side by side.
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

/// Turns states into the bytes of their digests, lane by lane.
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

/// Reads four big-endian words.
#[inline]
#[target_feature(enable = "neon")]
fn swap_bytes(bytes: uint8x16_t) -> uint32x4_t {
    vreinterpretq_u32_u8(vrev32q_u8(bytes))
}
