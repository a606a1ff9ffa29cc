//! SHA-256 of 16 messages at once with AVX-512: lane `i` of every vector belongs to message `i`.
//!
//! All words stay in registers from the first block of the first hash to the second hash's digest. A block
//! that spans parts or has padding is assembled with masked loads, so that nothing is copied through memory.

use std::arch::x86_64::*;

use super::keyed::WordSums;
use super::lanes::{
    BatchSplit, Costs, Lane, LaneHasher, PADDING_SUMS, States, sha256d_ordered, sixteen_rounds,
};
use super::portable::{INITIAL, K, Portable};
use super::shani::ShaNi;
use super::{Block, Hasher, Message, sha256d_one};
use crate::kernel::Kernel;

const LANES: usize = 16;
/// Measured costs in ns: of 16 compressions in lanes, and of one by [`ShaNi`].
const COSTS: Costs = Costs { vector: 250.0, single: 32.0, paired: 27.0 };
/// The same for a processor without SHA extensions.
const COSTS_PORTABLE: Costs = Costs { vector: 250.0, single: 180.0, paired: 180.0 };
/// From this number of pairs or keyed messages on, 16 lanes are faster than [`ShaNi`] (605 ns / 85 ns).
const MIN_MESSAGES_FOR_LANES: usize = 7;

/// The proof that the processor has AVX-512 F and BW.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Avx512 {
    /// Hashes single streams; `None` if the processor has no SHA extensions.
    stream: Option<ShaNi>,
}

impl Avx512 {
    pub(crate) fn detect() -> Option<Self> {
        let found = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
        found.then(|| Self { stream: ShaNi::detect() })
    }
}

impl Hasher for Avx512 {
    fn compress(&self, state: &mut super::State, blocks: &[Block]) {
        // A single stream cannot use lanes.
        match self.stream {
            Some(shani) => shani.compress(state, blocks),
            None => Portable.compress(state, blocks),
        }
    }

    fn sha256d_many(&self, messages: &[Message<'_>], digests: &mut [[u8; 32]]) {
        let costs = if self.stream.is_some() { COSTS } else { COSTS_PORTABLE };
        let split = BatchSplit::new::<LANES>(messages, costs);
        sha256d_ordered(self, messages, split.lanes(), digests);
        if let Some(shani) = self.stream {
            sha256d_ordered(&shani, messages, split.streams(), digests);
        } else {
            for &index in split.streams() {
                let index = index as usize;
                digests[index] = sha256d_one(Kernel::PORTABLE, &messages[index]);
            }
        }
    }

    fn sha256d_pairs(&self, pairs: &[Block], digests: &mut [[u8; 32]]) {
        for (pairs, digests) in pairs.chunks(LANES).zip(digests.chunks_mut(LANES)) {
            if let (Some(stream), true) = (self.stream, pairs.len() < MIN_MESSAGES_FOR_LANES) {
                stream.sha256d_pairs(pairs, digests);
            } else {
                // SAFETY: `self` proves the features.
                unsafe { sha256d_pairs(pairs, digests) };
            }
        }
    }

    fn keyed_sums(&self, midstate: &super::State, blocks: &[Block], per_message: usize, sums: &mut WordSums) {
        let rest = blocks.len() % (LANES * per_message);
        let lone = if rest < MIN_MESSAGES_FOR_LANES * per_message { rest } else { 0 };
        let (full, lone) = blocks.split_at(blocks.len() - lone);
        // SAFETY: `self` proves the features.
        unsafe { keyed_sums(midstate, full, per_message, sums) };
        match self.stream {
            Some(shani) => shani.keyed_sums(midstate, lone, per_message, sums),
            None => Portable.keyed_sums(midstate, lone, per_message, sums),
        }
    }
}

type State = [__m512i; 8];
type Words = [__m512i; 16];

/// Returns block `number` of a lane's padded message.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn block(lane: &Lane<'_>, number: usize) -> __m512i {
    match lane.whole_block(number) {
        Some(block) => load(block),
        None => assembled_block(lane, number),
    }
}

/// Assembles a block from the parts that overlap it and the padding.
#[target_feature(enable = "avx512f,avx512bw")]
fn assembled_block(lane: &Lane<'_>, number: usize) -> __m512i {
    let begin = number * 64;
    let mut block = _mm512_setzero_si512();
    let mut start = 0;
    for part in lane.message.0 {
        let end = start + part.len();
        let (from, to) = (start.max(begin), end.min(begin + 64));
        if from < to {
            let mask = (u64::MAX >> (64 - (to - from))) << (from - begin);
            let origin = part.as_ptr().wrapping_add(begin).wrapping_sub(start);
            // SAFETY: byte `i` of the block is byte `begin + i - start` of the part; the mask holds only
            // those from `from` to `to`, which lie within it. Bytes outside the mask are not read, wherever
            // `origin` points.
            let bytes = unsafe { _mm512_maskz_loadu_epi8(mask, origin.cast()) };
            block = _mm512_or_si512(block, bytes);
        }
        start = end;
    }
    if (begin..begin + 64).contains(&lane.length) {
        block = _mm512_mask_mov_epi8(block, 1 << (lane.length - begin), _mm512_set1_epi8(0x80_u8 as i8));
    }
    if number + 1 == lane.blocks {
        let bits = (lane.length as u64) << 3;
        block = _mm512_mask_set1_epi64(block, 0x80, bits.swap_bytes() as i64);
    }
    block
}

impl LaneHasher<LANES> for Avx512 {
    fn add(&self, states: &mut States<LANES>, lanes: &[Lane<'_>; LANES], steps: usize) {
        // SAFETY: `self` proves the features.
        unsafe { add_blocks(states, lanes, steps) }
    }

    fn hash_digests(&self, states: &States<LANES>, _: usize) -> [[u8; 32]; LANES] {
        // SAFETY: `self` proves the features.
        unsafe { second_hash(&states.0.map(|words| load_words(&words))) }
    }
}

/// Compresses the next `steps` blocks of all lanes.
#[target_feature(enable = "avx512f,avx512bw")]
fn add_blocks(states: &mut States<LANES>, lanes: &[Lane<'_>; LANES], steps: usize) {
    let mut state: State = states.0.each_ref().map(|words| load_words(words));
    for step in 0..steps {
        let mut rows = [_mm512_setzero_si512(); 16];
        for (row, lane) in rows.iter_mut().zip(lanes) {
            *row = block(lane, lane.number + step);
        }
        compress(&mut state, &transpose(&rows));
    }
    for (words, vector) in states.0.iter_mut().zip(state) {
        // SAFETY: `words` is 64 writable bytes; the store needs no alignment.
        unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), vector) }
    }
}

/// Hashes up to 16 pairs of nodes.
#[target_feature(enable = "avx512f,avx512bw")]
fn sha256d_pairs(pairs: &[Block], digests: &mut [[u8; 32]]) {
    let mut rows = [_mm512_setzero_si512(); 16];
    for (row, pair) in rows.iter_mut().zip(pairs) {
        *row = load(pair);
    }
    let mut state = initial();
    compress(&mut state, &transpose(&rows));
    compress_known(&mut state, &PADDING_SUMS);
    for (row, digest) in second_hash(&state).iter().zip(digests) {
        *digest = *row;
    }
}

/// Hashes the digest of each lane's state and returns the results in lane order.
#[target_feature(enable = "avx512f,avx512bw")]
fn second_hash(state: &State) -> [[u8; 32]; LANES] {
    let mut words = [_mm512_setzero_si512(); 16];
    words[..8].copy_from_slice(state);
    words[8] = _mm512_set1_epi32(i32::MIN); // the one bit
    words[15] = _mm512_set1_epi32(256);
    let mut state = initial();
    compress(&mut state, &words);
    digests(&state)
}

/// Adds the digests of keyed messages to `sums`, 16 at a time.
#[target_feature(enable = "avx512f,avx512bw")]
fn keyed_sums(midstate: &super::State, blocks: &[Block], per_message: usize, sums: &mut WordSums) {
    let low = _mm512_set1_epi64(0xffff_ffff);
    let mut totals = [_mm512_setzero_si512(); 8];
    for group in blocks.chunks(LANES * per_message) {
        let mut state: State = midstate.map(|word| _mm512_set1_epi32(word as i32));
        for number in 0..per_message {
            let mut rows = [_mm512_setzero_si512(); 16];
            for (row, block) in rows.iter_mut().zip(group[number..].iter().step_by(per_message)) {
                *row = load(block);
            }
            compress(&mut state, &transpose(&rows));
        }
        let live = u16::MAX >> (LANES - group.len() / per_message);
        for (total, words) in totals.iter_mut().zip(state) {
            let words = _mm512_maskz_mov_epi32(live, swap_bytes(words));
            let pairs = _mm512_add_epi64(_mm512_and_si512(words, low), _mm512_srli_epi64::<32>(words));
            *total = _mm512_add_epi64(*total, pairs);
        }
    }
    for (sum, total) in sums.iter_mut().zip(totals) {
        *sum += _mm512_reduce_add_epi64(total) as u64;
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn initial() -> State {
    std::array::from_fn(|i| _mm512_set1_epi32(INITIAL[i] as i32))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(block: &Block) -> __m512i {
    // SAFETY: `block` is 64 readable bytes; the load needs no alignment.
    unsafe { _mm512_loadu_si512(block.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_words(words: &[u32; LANES]) -> __m512i {
    // SAFETY: `words` is 64 readable bytes; the load needs no alignment.
    unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
}

/// One round of all lanes. Each call permutes the names of the state words, so that no data moves. `$wk` is
/// word plus constant.
macro_rules! round {
    ($a:ident $b:ident $c:ident $d:ident $e:ident $f:ident $g:ident $h:ident, $wk:expr) => {
        let s1 = xor3(_mm512_ror_epi32::<6>($e), _mm512_ror_epi32::<11>($e), _mm512_ror_epi32::<25>($e));
        let choice = _mm512_ternarylogic_epi32::<0xca>($e, $f, $g);
        let t1 = _mm512_add_epi32(_mm512_add_epi32($h, $wk), _mm512_add_epi32(s1, choice));
        let s0 = xor3(_mm512_ror_epi32::<2>($a), _mm512_ror_epi32::<13>($a), _mm512_ror_epi32::<22>($a));
        let majority = _mm512_ternarylogic_epi32::<0xe8>($a, $b, $c);
        $d = _mm512_add_epi32($d, t1);
        $h = _mm512_add_epi32(t1, _mm512_add_epi32(s0, majority));
    };
}

/// Compresses one block per lane into the states.
#[inline(never)]
#[target_feature(enable = "avx512f")]
fn compress(state: &mut State, words: &Words) {
    let k = K.as_chunks::<16>().0;
    let mut w = *words;
    let mut v = *state;
    sixteen_rounds!(v, |t: usize| _mm512_add_epi32(w[t], _mm512_set1_epi32(k[0][t] as i32)));
    for k in &k[1..] {
        sixteen_rounds!(v, |t: usize| {
            let (early, late) = (w[(t + 1) % 16], w[(t + 14) % 16]);
            let s0 = xor3(
                _mm512_ror_epi32::<7>(early),
                _mm512_ror_epi32::<18>(early),
                _mm512_srli_epi32::<3>(early),
            );
            let s1 = xor3(
                _mm512_ror_epi32::<17>(late),
                _mm512_ror_epi32::<19>(late),
                _mm512_srli_epi32::<10>(late),
            );
            w[t] = _mm512_add_epi32(_mm512_add_epi32(w[t], s0), _mm512_add_epi32(w[(t + 9) % 16], s1));
            _mm512_add_epi32(w[t], _mm512_set1_epi32(k[t] as i32))
        });
    }
    for (s, v) in state.iter_mut().zip(v) {
        *s = _mm512_add_epi32(*s, v);
    }
}

/// Compresses one block that is the same in all lanes; `sums` are the 64 words of its schedule plus the round
/// constants.
#[inline(never)]
#[target_feature(enable = "avx512f")]
fn compress_known(state: &mut State, sums: &[u32; 64]) {
    let mut v = *state;
    for sums in sums.as_chunks::<16>().0 {
        sixteen_rounds!(v, |t: usize| _mm512_set1_epi32(sums[t] as i32));
    }
    for (s, v) in state.iter_mut().zip(v) {
        *s = _mm512_add_epi32(*s, v);
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn xor3(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    _mm512_ternarylogic_epi32::<0x96>(a, b, c)
}

/// Swaps the bytes of each word.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn swap_bytes(words: __m512i) -> __m512i {
    let order = _mm512_set4_epi32(0x0c0d_0e0f, 0x0809_0a0b, 0x0405_0607, 0x0001_0203);
    _mm512_shuffle_epi8(words, order)
}

/// Transposes 4 vectors a, b, c, d within each group of 128 bits: vector `t` of the result holds word `t` of
/// a, b, c and d side by side.
#[inline]
#[target_feature(enable = "avx512f")]
fn transpose4(a: __m512i, b: __m512i, c: __m512i, d: __m512i) -> [__m512i; 4] {
    let (ab01, ab23) = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let (cd01, cd23) = (_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
    [
        _mm512_unpacklo_epi64(ab01, cd01),
        _mm512_unpackhi_epi64(ab01, cd01),
        _mm512_unpacklo_epi64(ab23, cd23),
        _mm512_unpackhi_epi64(ab23, cd23),
    ]
}

/// Transposes 16 blocks into 16 vectors: vector `t` holds word `t` of every lane.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn transpose(rows: &[__m512i; 16]) -> Words {
    let mut fours = [[_mm512_setzero_si512(); 4]; 4];
    for (four, rows) in fours.iter_mut().zip(rows.as_chunks::<4>().0) {
        let [a, b, c, d] = rows.map(|row| swap_bytes(row));
        *four = transpose4(a, b, c, d);
    }
    // Word `4 q + r` of lanes `4 p ..` is now in 128-bit part q of `fours[p][r]`.
    let mut words = [_mm512_setzero_si512(); 16];
    for r in 0..4 {
        let [p0, p1, p2, p3] = [fours[0][r], fours[1][r], fours[2][r], fours[3][r]];
        let (low01, high01) = (_mm512_shuffle_i32x4::<0x44>(p0, p1), _mm512_shuffle_i32x4::<0xee>(p0, p1));
        let (low23, high23) = (_mm512_shuffle_i32x4::<0x44>(p2, p3), _mm512_shuffle_i32x4::<0xee>(p2, p3));
        words[r] = _mm512_shuffle_i32x4::<0x88>(low01, low23);
        words[4 + r] = _mm512_shuffle_i32x4::<0xdd>(low01, low23);
        words[8 + r] = _mm512_shuffle_i32x4::<0x88>(high01, high23);
        words[12 + r] = _mm512_shuffle_i32x4::<0xdd>(high01, high23);
    }
    words
}

/// Returns the digest of each lane's state.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn digests(state: &State) -> [[u8; 32]; LANES] {
    let [a, b, c, d, e, f, g, h] = state.map(|words| swap_bytes(words));
    let (low, high) = (transpose4(a, b, c, d), transpose4(e, f, g, h));
    let mut digests = [[0; 32]; LANES];
    for r in 0..4 {
        // Lane `4 p + r` is in 128-bit part p: its words 0 to 3 in `low[r]`, 4 to 7 in `high[r]`.
        let (mut low_parts, mut high_parts) = ([0; 64], [0; 64]);
        // SAFETY: both arrays are 64 writable bytes; the stores need no alignment.
        unsafe {
            _mm512_storeu_si512(low_parts.as_mut_ptr().cast(), low[r]);
            _mm512_storeu_si512(high_parts.as_mut_ptr().cast(), high[r]);
        }
        let parts = low_parts.as_chunks::<16>().0.iter().zip(high_parts.as_chunks::<16>().0);
        for (p, (low, high)) in parts.enumerate() {
            digests[4 * p + r][..16].copy_from_slice(low);
            digests[4 * p + r][16..].copy_from_slice(high);
        }
    }
    digests
}
