//! SHA-256 by the x86 SHA extensions, which do two rounds in one instruction: the fastest for a single stream.

use std::arch::x86_64::*;

use super::portable::{self, K};
use super::{Block, Message, State, sha256d_one};
use crate::kernel::{Isa, Kernel};

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

    /// Adds whole blocks to the state, in order.
    pub(super) fn compress(self, state: &mut State, blocks: &[Block]) {
        // SAFETY: `self` proves the features.
        unsafe { compress(state, blocks) }
    }

    /// Writes the SHA-256d of each message to the digest of the same index.
    pub(super) fn sha256d_many(self, messages: &[Message<'_>], digests: &mut [[u8; 32]]) {
        for (message, digest) in messages.iter().zip(digests) {
            *digest = sha256d_one(Kernel(Isa::ShaNi(self)), message);
        }
    }

    /// Writes the SHA-256d of each pair of nodes to the digest of the same index.
    pub(super) fn sha256d_pairs(self, pairs: &[Block], digests: &mut [[u8; 32]]) {
        const PADDING: Block = {
            let mut block = [0; 64];
            block[0] = 0x80;
            block[62] = 2; // 512 bits
            block
        };
        let mut second = [0; 64];
        second[32] = 0x80;
        second[62] = 1; // 256 bits
        for (pair, digest) in pairs.iter().zip(digests) {
            let mut state = portable::INITIAL;
            self.compress(&mut state, std::slice::from_ref(pair));
            self.compress(&mut state, &[PADDING]);
            second[..32].copy_from_slice(&super::to_bytes(&state));
            let mut state = portable::INITIAL;
            self.compress(&mut state, &[second]);
            *digest = super::to_bytes(&state);
        }
    }
}

#[target_feature(enable = "sha,sse4.1,ssse3")]
fn compress(state: &mut State, blocks: &[Block]) {
    // The instructions want the words in two vectors, high to low: a b e f and c d g h.
    let dcba = load(&state.as_chunks::<4>().0[0]);
    let hgfe = load(&state.as_chunks::<4>().0[1]);
    let cdab = _mm_shuffle_epi32::<0xb1>(dcba);
    let efgh = _mm_shuffle_epi32::<0x1b>(hgfe);
    let mut abef = _mm_alignr_epi8::<8>(cdab, efgh);
    let mut cdgh = _mm_blend_epi16::<0xf0>(efgh, cdab);

    let big_endian = _mm_set_epi64x(0x0c0d_0e0f_0809_0a0b, 0x0405_0607_0001_0203);
    for block in blocks {
        let (abef_before, cdgh_before) = (abef, cdgh);
        let quarters = block.as_chunks::<16>().0;
        let mut w: [__m128i; 4] = [_mm_setzero_si128(); 4];
        for (w, quarter) in w.iter_mut().zip(quarters) {
            // SAFETY: `quarter` is 16 readable bytes; the load needs no alignment.
            let words = unsafe { _mm_loadu_si128(quarter.as_ptr().cast()) };
            *w = _mm_shuffle_epi8(words, big_endian);
        }
        let [mut w0, mut w1, mut w2, mut w3] = w;
        let k = K.as_chunks::<4>().0;
        // Four rounds with the words of `w`.
        macro_rules! rounds {
            ($w:ident, $k:expr) => {
                let wk = _mm_add_epi32($w, load(&k[$k]));
                cdgh = _mm_sha256rnds2_epu32(cdgh, abef, wk);
                abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32::<0x0e>(wk));
            };
        }
        // The next four words of the schedule, in place of those 16 words back.
        macro_rules! schedule {
            ($w0:ident, $w1:ident, $w2:ident, $w3:ident) => {
                let sum = _mm_add_epi32(_mm_sha256msg1_epu32($w0, $w1), _mm_alignr_epi8::<4>($w3, $w2));
                $w0 = _mm_sha256msg2_epu32(sum, $w3);
            };
        }
        rounds!(w0, 0);
        rounds!(w1, 1);
        rounds!(w2, 2);
        rounds!(w3, 3);
        macro_rules! sixteen {
            ($k:expr) => {
                schedule!(w0, w1, w2, w3);
                rounds!(w0, $k);
                schedule!(w1, w2, w3, w0);
                rounds!(w1, $k + 1);
                schedule!(w2, w3, w0, w1);
                rounds!(w2, $k + 2);
                schedule!(w3, w0, w1, w2);
                rounds!(w3, $k + 3);
            };
        }
        sixteen!(4);
        sixteen!(8);
        sixteen!(12);
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }

    let feba = _mm_shuffle_epi32::<0x1b>(abef);
    let dchg = _mm_shuffle_epi32::<0xb1>(cdgh);
    let halves = state.as_chunks_mut::<4>().0;
    store(&mut halves[0], _mm_blend_epi16::<0xf0>(feba, dchg));
    store(&mut halves[1], _mm_alignr_epi8::<8>(dchg, feba));
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
