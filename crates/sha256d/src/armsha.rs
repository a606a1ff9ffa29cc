//! SHA-256 with the SHA-2 instructions of ARMv8 (Raspberry Pi 5, Apple and server processors; not Raspberry
//! Pi 4), which do four rounds at once: the fastest kernel for a single stream.

use std::arch::aarch64::*;
use std::arch::is_aarch64_feature_detected;

use super::lanes::with_features;
use super::paired::{Paired, all_rounds, paired};
use super::portable::K;
use super::{Block, State};

/// The proof that the processor has the SHA-2 instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArmSha(());

impl ArmSha {
    pub(crate) fn detect() -> Option<Self> {
        is_aarch64_feature_detected!("sha2").then_some(Self(()))
    }
}

paired!(ArmSha, "neon,sha2");

/// The two halves of a state.
#[derive(Clone, Copy)]
pub(crate) struct Vectors {
    abcd: uint32x4_t,
    efgh: uint32x4_t,
}

impl Vectors {
    #[inline]
    #[target_feature(enable = "neon")]
    fn new(state: &State) -> Self {
        let [abcd, efgh] = [0, 1].map(|half| load(&state.as_chunks::<4>().0[half]));
        Self { abcd, efgh }
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn words(self) -> State {
        let mut state = [0; 8];
        for (half, vector) in state.as_chunks_mut::<4>().0.iter_mut().zip([self.abcd, self.efgh]) {
            // SAFETY: `half` is 16 writable bytes; the store needs no alignment.
            unsafe { vst1q_u32(half.as_mut_ptr(), vector) }
        }
        state
    }
}

/// Compresses one block into each state. Interleaving `N` states hides the latency of the instructions.
#[inline]
#[target_feature(enable = "neon,sha2")]
fn add_blocks<const N: usize>(states: &mut [Vectors; N], blocks: [&Block; N]) {
    let mut v = *states;
    let mut w = [[vdupq_n_u32(0); N]; 4];
    for (w, n) in w.iter_mut().zip(0..) {
        for (w, block) in w.iter_mut().zip(blocks) {
            // SAFETY: a quarter of a block is 16 readable bytes; the load needs no alignment.
            let words = unsafe { vld1q_u8(block.as_chunks::<16>().0[n].as_ptr()) };
            *w = vreinterpretq_u32_u8(vrev32q_u8(words));
        }
    }
    // Four rounds with the words of `$w`.
    macro_rules! rounds {
        ($w:ident, $k:expr) => {
            for n in 0..N {
                let wk = vaddq_u32($w[n], load($k));
                let abcd = v[n].abcd;
                v[n].abcd = vsha256hq_u32(abcd, v[n].efgh, wk);
                v[n].efgh = vsha256h2q_u32(v[n].efgh, abcd, wk);
            }
        };
    }
    // Replaces the four words from 16 words back with the next four words of the schedule.
    macro_rules! schedule {
        ($w0:ident, $w1:ident, $w2:ident, $w3:ident) => {
            for n in 0..N {
                $w0[n] = vsha256su1q_u32(vsha256su0q_u32($w0[n], $w1[n]), $w2[n], $w3[n]);
            }
        };
    }
    all_rounds!(w);
    for (state, v) in states.iter_mut().zip(v) {
        state.abcd = vaddq_u32(state.abcd, v.abcd);
        state.efgh = vaddq_u32(state.efgh, v.efgh);
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn load(words: &[u32; 4]) -> uint32x4_t {
    // SAFETY: `words` is 16 readable bytes; the load needs no alignment.
    unsafe { vld1q_u32(words.as_ptr()) }
}
