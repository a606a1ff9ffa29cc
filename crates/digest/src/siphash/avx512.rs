//! Sums of SipHash-2-4-128 with AVX-512: lane `i` of every vector belongs to message `i` of eight.

use std::arch::x86_64::*;

use super::State;

/// Number of messages that are hashed side by side.
pub(super) const LANES: usize = 8;

/// Returns the sum modulo 2^128 of the messages' hashes, computed from the initial state `start`. The number
/// of messages, of `per_message` words each, must be a multiple of `LANES`.
#[target_feature(enable = "avx512f")]
pub(super) fn sum(start: &State, words: &[u64], per_message: usize) -> u128 {
    let low_half = _mm512_set1_epi64(0xffff_ffff);
    let stride = _mm512_mullo_epi32(
        _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7),
        _mm512_set1_epi64(i64::from(per_message as u32)),
    );
    let mut totals = [_mm512_setzero_si512(); 3];
    for group in words.chunks_exact(LANES * per_message) {
        let mut v = start.0.map(|word| _mm512_set1_epi64(word as i64));
        for first in &group[..per_message] {
            // SAFETY: lane `i` reads the word `i * per_message` words after `first`, which is in the group's
            // first message; all eight messages are in `group`.
            let word = unsafe { _mm512_i64gather_epi64::<8>(stride, std::ptr::from_ref(first).cast()) };
            v[3] = _mm512_xor_si512(v[3], word);
            rounds(&mut v, 2);
            v[0] = _mm512_xor_si512(v[0], word);
        }
        v[2] = _mm512_xor_si512(v[2], _mm512_set1_epi64(0xee));
        rounds(&mut v, 4);
        let low = folded(&v);
        v[1] = _mm512_xor_si512(v[1], _mm512_set1_epi64(0xdd));
        rounds(&mut v, 4);
        let parts = [_mm512_and_si512(low, low_half), _mm512_srli_epi64::<32>(low), folded(&v)];
        for (total, part) in totals.iter_mut().zip(parts) {
            *total = _mm512_add_epi64(*total, part);
        }
    }
    let [low, middle, high] = totals.map(|total| u128::from(_mm512_reduce_add_epi64(total) as u64));
    low.wrapping_add(middle << 32).wrapping_add(high << 64)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn rounds(v: &mut [__m512i; 4], count: u32) {
    let [mut v0, mut v1, mut v2, mut v3] = *v;
    for _ in 0..count {
        v0 = _mm512_add_epi64(v0, v1);
        v2 = _mm512_add_epi64(v2, v3);
        v1 = _mm512_xor_si512(_mm512_rol_epi64::<13>(v1), v0);
        v3 = _mm512_xor_si512(_mm512_rol_epi64::<16>(v3), v2);
        v0 = _mm512_add_epi64(_mm512_rol_epi64::<32>(v0), v3);
        v2 = _mm512_add_epi64(v2, v1);
        v3 = _mm512_xor_si512(_mm512_rol_epi64::<21>(v3), v0);
        v1 = _mm512_xor_si512(_mm512_rol_epi64::<17>(v1), v2);
        v2 = _mm512_rol_epi64::<32>(v2);
    }
    *v = [v0, v1, v2, v3];
}

#[inline]
#[target_feature(enable = "avx512f")]
fn folded(v: &[__m512i; 4]) -> __m512i {
    _mm512_xor_si512(_mm512_xor_si512(v[0], v[1]), _mm512_xor_si512(v[2], v[3]))
}
