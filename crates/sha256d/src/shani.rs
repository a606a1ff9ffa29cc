//! SHA-256 with the x86 SHA extensions, which do two rounds in one instruction: the fastest kernel for a
//! single stream.

use std::arch::x86_64::*;

use super::lanes::with_features;
use super::paired::{Paired, all_rounds, paired};
use super::portable::K;
use super::{Block, State};

/// The proof that the processor has SHA, SSE4.1 and SSSE3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShaNi(());

impl ShaNi {
    pub(crate) fn detect() -> Option<Self> {
        let found = is_x86_feature_detected!("sha")
            && is_x86_feature_detected!("sse4.1")
            && is_x86_feature_detected!("ssse3");
        found.then_some(Self(()))
    }
}

paired!(ShaNi, "sha,sse4.1,ssse3");

/// The state in the layout of the instructions, words from high to low: a b e f and c d g h.
#[derive(Clone, Copy)]
pub(crate) struct Vectors {
    abef: __m128i,
    cdgh: __m128i,
}

impl Vectors {
    #[inline]
    #[target_feature(enable = "sha,sse4.1,ssse3")]
    fn new(state: &State) -> Self {
        let halves = state.as_chunks::<4>().0;
        let cdab = _mm_shuffle_epi32::<0xb1>(load(&halves[0]));
        let efgh = _mm_shuffle_epi32::<0x1b>(load(&halves[1]));
        Self { abef: _mm_alignr_epi8::<8>(cdab, efgh), cdgh: _mm_blend_epi16::<0xf0>(efgh, cdab) }
    }

    #[inline]
    #[target_feature(enable = "sha,sse4.1,ssse3")]
    fn words(self) -> State {
        let feba = _mm_shuffle_epi32::<0x1b>(self.abef);
        let dchg = _mm_shuffle_epi32::<0xb1>(self.cdgh);
        let mut state = [0; 8];
        let halves = state.as_chunks_mut::<4>().0;
        store(&mut halves[0], _mm_blend_epi16::<0xf0>(feba, dchg));
        store(&mut halves[1], _mm_alignr_epi8::<8>(dchg, feba));
        state
    }
}

/// Compresses one block into each state. Interleaving `N` states hides the latency of the instructions.
#[inline]
#[target_feature(enable = "sha,sse4.1,ssse3")]
fn add_blocks<const N: usize>(states: &mut [Vectors; N], blocks: [&Block; N]) {
    let big_endian = _mm_set_epi64x(0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203);
    let mut v = *states;
    let mut w = [[_mm_setzero_si128(); N]; 4];
    for (w, n) in w.iter_mut().zip(0..) {
        for (w, block) in w.iter_mut().zip(blocks) {
            // SAFETY: a quarter of a block is 16 readable bytes; the load needs no alignment.
            let words = unsafe { _mm_loadu_si128(block.as_chunks::<16>().0[n].as_ptr().cast()) };
            *w = _mm_shuffle_epi8(words, big_endian);
        }
    }
    // Four rounds with the words of `$w`.
    macro_rules! rounds {
        ($w:ident, $k:expr) => {
            for n in 0..N {
                let wk = _mm_add_epi32($w[n], load($k));
                v[n].cdgh = _mm_sha256rnds2_epu32(v[n].cdgh, v[n].abef, wk);
                v[n].abef = _mm_sha256rnds2_epu32(v[n].abef, v[n].cdgh, _mm_shuffle_epi32::<0x0e>(wk));
            }
        };
    }
    // Replaces the four words from 16 words back with the next four words of the schedule.
    macro_rules! schedule {
        ($w0:ident, $w1:ident, $w2:ident, $w3:ident) => {
            for n in 0..N {
                let between = _mm_alignr_epi8::<4>($w3[n], $w2[n]);
                let sum = _mm_add_epi32(_mm_sha256msg1_epu32($w0[n], $w1[n]), between);
                $w0[n] = _mm_sha256msg2_epu32(sum, $w3[n]);
            }
        };
    }
    all_rounds!(w);
    for (state, v) in states.iter_mut().zip(v) {
        state.abef = _mm_add_epi32(state.abef, v.abef);
        state.cdgh = _mm_add_epi32(state.cdgh, v.cdgh);
    }
}

#[inline]
#[target_feature(enable = "sse2")]
fn load(words: &[u32; 4]) -> __m128i {
    // SAFETY: `words` is 16 readable bytes; the load needs no alignment.
    unsafe { _mm_loadu_si128(words.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "sse2")]
fn store(words: &mut [u32; 4], vector: __m128i) {
    // SAFETY: `words` is 16 writable bytes; the store needs no alignment.
    unsafe { _mm_storeu_si128(words.as_mut_ptr().cast(), vector) }
}
