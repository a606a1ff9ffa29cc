//! SHA-256 of 8 messages at once with AVX2, for processors without the SHA extensions (Intel before 2021).

use std::arch::x86_64::*;

use super::Block;
use super::lanes::{Costs, sixteen_rounds, with_features};
use super::portable::K;
use super::wide::{Simd, Wide, simd};

const LANES: usize = 8;

/// The proof that the processor has AVX2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Avx2(());

impl Avx2 {
    pub(crate) fn detect() -> Option<Wide<Self, LANES>> {
        is_x86_feature_detected!("avx2").then_some(Wide(Self(())))
    }
}

// The costs were measured, in ns.
simd!(Avx2, LANES, __m256i, "avx2", Costs { vector: 310.0, single: 180.0, paired: 180.0 });

type State = [__m256i; 8];
type Words = [__m256i; 16];

#[inline]
#[target_feature(enable = "avx2")]
fn splat(word: u32) -> __m256i {
    _mm256_set1_epi32(word as i32)
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(words: &[u32; LANES]) -> __m256i {
    // SAFETY: `words` is 32 readable bytes; the load needs no alignment.
    unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(vector: __m256i) -> [u32; LANES] {
    let mut words = [0; LANES];
    // SAFETY: `words` is 32 writable bytes; the store needs no alignment.
    unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), vector) };
    words
}

/// Returns the digest of each lane's state.
#[inline]
#[target_feature(enable = "avx2")]
fn digests(state: &State) -> [[u8; 32]; LANES] {
    let mut state = *state;
    transpose8(&mut state);
    let mut digests = [[0; 32]; LANES];
    for (digest, words) in digests.iter_mut().zip(state) {
        // SAFETY: `digest` is 32 writable bytes; the store needs no alignment.
        unsafe { _mm256_storeu_si256(digest.as_mut_ptr().cast(), swap_bytes(words)) }
    }
    digests
}

#[inline]
#[target_feature(enable = "avx2")]
fn rotate<const RIGHT: i32, const LEFT: i32>(words: __m256i) -> __m256i {
    const { assert!(RIGHT + LEFT == 32) };
    _mm256_or_si256(_mm256_srli_epi32::<RIGHT>(words), _mm256_slli_epi32::<LEFT>(words))
}

#[inline]
#[target_feature(enable = "avx2")]
fn xor3(a: __m256i, b: __m256i, c: __m256i) -> __m256i {
    _mm256_xor_si256(_mm256_xor_si256(a, b), c)
}

/// One round of all lanes. Each call permutes the names of the state words, so that no data moves. `$wk` is
/// word plus constant.
macro_rules! round {
    ($a:ident $b:ident $c:ident $d:ident $e:ident $f:ident $g:ident $h:ident, $wk:expr) => {
        let s1 = xor3(rotate::<6, 26>($e), rotate::<11, 21>($e), rotate::<25, 7>($e));
        let choice = _mm256_xor_si256($g, _mm256_and_si256($e, _mm256_xor_si256($f, $g)));
        let t1 = _mm256_add_epi32(_mm256_add_epi32($h, $wk), _mm256_add_epi32(s1, choice));
        let s0 = xor3(rotate::<2, 30>($a), rotate::<13, 19>($a), rotate::<22, 10>($a));
        let either = _mm256_and_si256($c, _mm256_or_si256($a, $b));
        let majority = _mm256_or_si256(_mm256_and_si256($a, $b), either);
        $d = _mm256_add_epi32($d, t1);
        $h = _mm256_add_epi32(t1, _mm256_add_epi32(s0, majority));
    };
}

/// Compresses one block per lane into the states.
#[inline(never)]
#[target_feature(enable = "avx2")]
fn compress(state: &mut State, words: &Words) {
    let k = K.as_chunks::<16>().0;
    let mut w = *words;
    let mut v = *state;
    sixteen_rounds!(v, |t: usize| _mm256_add_epi32(w[t], _mm256_set1_epi32(k[0][t] as i32)));
    for k in &k[1..] {
        sixteen_rounds!(v, |t: usize| {
            let (early, late) = (w[(t + 1) % 16], w[(t + 14) % 16]);
            let s0 = xor3(rotate::<7, 25>(early), rotate::<18, 14>(early), _mm256_srli_epi32::<3>(early));
            let s1 = xor3(rotate::<17, 15>(late), rotate::<19, 13>(late), _mm256_srli_epi32::<10>(late));
            w[t] = _mm256_add_epi32(_mm256_add_epi32(w[t], s0), _mm256_add_epi32(w[(t + 9) % 16], s1));
            _mm256_add_epi32(w[t], _mm256_set1_epi32(k[t] as i32))
        });
    }
    for (s, v) in state.iter_mut().zip(v) {
        *s = _mm256_add_epi32(*s, v);
    }
}

/// Compresses one block that is the same in all lanes; `sums` are the 64 words of its schedule plus the round
/// constants.
#[inline(never)]
#[target_feature(enable = "avx2")]
fn compress_known(state: &mut State, sums: &[u32; 64]) {
    let mut v = *state;
    for sums in sums.as_chunks::<16>().0 {
        sixteen_rounds!(v, |t: usize| _mm256_set1_epi32(sums[t] as i32));
    }
    for (s, v) in state.iter_mut().zip(v) {
        *s = _mm256_add_epi32(*s, v);
    }
}

/// Swaps the bytes of each word.
#[inline]
#[target_feature(enable = "avx2")]
fn swap_bytes(words: __m256i) -> __m256i {
    let order = _mm_set_epi32(0x0c0d_0e0f, 0x0809_0a0b, 0x0405_0607, 0x0001_0203);
    _mm256_shuffle_epi8(words, _mm256_broadcastsi128_si256(order))
}

/// Transposes 8 rows of 8 words.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose8(rows: &mut [__m256i; 8]) {
    let mut fours = [[_mm256_setzero_si256(); 4]; 2];
    for (four, [a, b, c, d]) in fours.iter_mut().zip(rows.as_chunks::<4>().0) {
        let (ab01, ab23) = (_mm256_unpacklo_epi32(*a, *b), _mm256_unpackhi_epi32(*a, *b));
        let (cd01, cd23) = (_mm256_unpacklo_epi32(*c, *d), _mm256_unpackhi_epi32(*c, *d));
        *four = [
            _mm256_unpacklo_epi64(ab01, cd01),
            _mm256_unpackhi_epi64(ab01, cd01),
            _mm256_unpacklo_epi64(ab23, cd23),
            _mm256_unpackhi_epi64(ab23, cd23),
        ];
    }
    for r in 0..4 {
        rows[r] = _mm256_permute2x128_si256::<0x20>(fours[0][r], fours[1][r]);
        rows[4 + r] = _mm256_permute2x128_si256::<0x31>(fours[0][r], fours[1][r]);
    }
}

/// Transposes 8 blocks into 16 vectors: vector `t` holds word `t` of every lane.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose(blocks: &[&Block; LANES]) -> Words {
    let mut words = [_mm256_setzero_si256(); 16];
    for (half, words) in words.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        for (row, block) in words.iter_mut().zip(blocks) {
            // SAFETY: half a block is 32 readable bytes; the load needs no alignment.
            let bytes = unsafe { _mm256_loadu_si256(block.as_chunks::<32>().0[half].as_ptr().cast()) };
            *row = swap_bytes(bytes);
        }
        transpose8(words);
    }
    words
}
