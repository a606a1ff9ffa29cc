//! Products of 3072-bit numbers with AVX-512. The multiplier of IFMA has 52 bits.
//!
//! Both factors are repacked to limbs of 52 bits. The limb `i` of the first is multiplied by eight limbs of
//! the second at a time, low and high halves apart. Products whose `i` has the same remainder modulo 8 are
//! added up apart from the others, so that nothing has to be shifted before all of them are done.

use super::LIMBS;
use std::arch::x86_64::*;

/// Number of bits of a limb here.
const BITS: usize = 52;
const MASK: u64 = (1 << BITS) - 1;
/// Number of vectors of eight limbs in a factor.
const VECTORS: usize = 8;
/// Number of vectors in the sums of one remainder.
const SUM_VECTORS: usize = 2 * VECTORS - 1;
const PRODUCT_LIMBS: usize = 8 * 2 * VECTORS;
/// Zeros before the sums: a sum is read up to so many limbs before its first one.
const BEFORE: usize = 8;

/// Sums of halves, after zeros.
type Sums = [u64; BEFORE + PRODUCT_LIMBS];

/// Whether this processor has the instructions.
pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512ifma")
}

/// Returns all words of a product.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn wide_product(a: &[u64; LIMBS], b: &[u64; LIMBS]) -> [u64; 2 * LIMBS] {
    let (a, b) = (repack(a), repack(b));
    // One for each remainder. A high half belongs to the remainder that is one higher.
    let mut sums: [Sums; 8] = [[0; BEFORE + PRODUCT_LIMBS]; 8];
    let mut above = _mm512_setzero_si512();
    for out in 0..SUM_VECTORS {
        let (mut low, mut high) = ([_mm512_setzero_si512(); 8], [_mm512_setzero_si512(); 8]);
        for row in out.saturating_sub(VECTORS - 1)..=out.min(VECTORS - 1) {
            let factor = load(&b, 8 * (out - row));
            for remainder in 0..8 {
                let limb = _mm512_set1_epi64(a[8 * row + remainder] as i64);
                low[remainder] = _mm512_madd52lo_epu64(low[remainder], limb, factor);
                high[remainder] = _mm512_madd52hi_epu64(high[remainder], limb, factor);
            }
        }
        for remainder in 0..8 {
            let sum = _mm512_add_epi64(low[remainder], above);
            store(&mut sums[remainder], BEFORE + 8 * out, sum);
            above = high[remainder];
        }
    }
    store(&mut sums[0], BEFORE + 8 * SUM_VECTORS, above);
    // Each limb adds up at most 128 halves of 52 bits.
    let mut limbs = [0; PRODUCT_LIMBS];
    for at in (0..PRODUCT_LIMBS).step_by(8) {
        let mut sum = _mm512_setzero_si512();
        for (remainder, sums) in sums.iter().enumerate() {
            sum = _mm512_add_epi64(sum, load(sums, BEFORE + at - remainder));
        }
        store(&mut limbs, at, sum);
    }
    unpack(&mut limbs)
}

/// Loads the eight numbers from `at` on.
#[inline]
#[target_feature(enable = "avx512f")]
fn load(numbers: &[u64], at: usize) -> __m512i {
    let eight = &numbers[at..at + 8];
    // SAFETY: these are eight numbers.
    unsafe { _mm512_loadu_si512(eight.as_ptr().cast()) }
}

/// Stores eight numbers from `at` on.
#[inline]
#[target_feature(enable = "avx512f")]
fn store(numbers: &mut [u64], at: usize, vector: __m512i) {
    let eight = &mut numbers[at..at + 8];
    // SAFETY: these are eight numbers.
    unsafe { _mm512_storeu_si512(eight.as_mut_ptr().cast(), vector) }
}

/// Divides a number into limbs of 52 bits.
#[inline(always)]
fn repack(words: &[u64; LIMBS]) -> [u64; 8 * VECTORS] {
    let mut padded = [0; LIMBS + 6];
    padded[..LIMBS].copy_from_slice(words);
    let mut limbs = [0; 8 * VECTORS];
    for (at, limb) in limbs.iter_mut().enumerate() {
        let (number, shift) = (at * BITS / 64, (at * BITS % 64) as u32);
        // Shifted twice, since a shift by 64 is none.
        *limb = (padded[number] >> shift | padded[number + 1] << 1 << (63 - shift)) & MASK;
    }
    limbs
}

/// Carries what exceeds 52 bits, and joins the limbs to words.
#[inline(always)]
fn unpack(limbs: &mut [u64; PRODUCT_LIMBS]) -> [u64; 2 * LIMBS] {
    let mut carry = 0;
    for limb in limbs.iter_mut() {
        let sum = *limb + carry;
        (*limb, carry) = (sum & MASK, sum >> BITS);
    }
    let mut words = [0; 2 * LIMBS];
    for (at, word) in words.iter_mut().enumerate() {
        let (first, skipped) = (64 * at / BITS, (64 * at % BITS) as u32);
        // What the third limb has, if anything, is above bit 64 otherwise.
        let third = limbs[first + 2].unbounded_shl(2 * BITS as u32 - skipped);
        *word = limbs[first] >> skipped | limbs[first + 1] << (BITS as u32 - skipped) | third;
    }
    words
}
