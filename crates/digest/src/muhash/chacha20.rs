//! The key stream of ChaCha20 with nonce 0 (RFC 8439, 2.3), all blocks for an element at once.

use super::LIMBS;

/// Number of blocks of the key stream for an element.
const BLOCKS: usize = LIMBS / 8;

/// Returns the first blocks of the key stream with this key, as little-endian words.
pub(super) fn blocks(key: &[u8; 32]) -> [[u32; 16]; BLOCKS] {
    let mut start = [0; 16];
    start[..4].copy_from_slice(&[0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574]); // "expand 32-byte k"
    for (word, bytes) in start[4..12].iter_mut().zip(key.as_chunks::<4>().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") {
        // SAFETY: the processor has the instructions.
        return unsafe { with_avx512(&start) };
    }
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has the instructions.
        return unsafe { with_avx2(&start) };
    }
    one_by_one(start)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl")]
fn with_avx512(start: &[u32; 16]) -> [[u32; 16]; BLOCKS] {
    side_by_side(start)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_avx2(start: &[u32; 16]) -> [[u32; 16]; BLOCKS] {
    side_by_side(start)
}

/// Makes all blocks side by side, each in a lane of vectors of 256 bits, which have eight. The compiler makes
/// the vectors if the caller allows such instructions.
#[cfg(any(target_arch = "x86_64", test))]
#[inline(always)]
fn side_by_side(start: &[u32; 16]) -> [[u32; 16]; BLOCKS] {
    let mut first: [[u32; 8]; 16] = start.map(|word| [word; 8]);
    first[12] = std::array::from_fn(|counter| counter as u32);
    let x = rounds(first, |a, b, d, left| {
        for ((a, b), d) in a.iter_mut().zip(b).zip(d) {
            *a = a.wrapping_add(*b);
            *d = (*d ^ *a).rotate_left(left);
        }
    });
    std::array::from_fn(|block| std::array::from_fn(|word| x[word][block].wrapping_add(first[word][block])))
}

/// Makes one block after the other: without vectors of 256 bits, that is faster.
fn one_by_one(mut start: [u32; 16]) -> [[u32; 16]; BLOCKS] {
    std::array::from_fn(|counter| {
        start[12] = counter as u32;
        let x = rounds(start, |a, b, d, left| {
            *a = a.wrapping_add(*b);
            *d = (*d ^ *a).rotate_left(left);
        });
        std::array::from_fn(|word| x[word].wrapping_add(start[word]))
    })
}

/// The twenty rounds. `mix` adds its second argument to the first, and then adds the first to the third
/// without carries, which it rotates to the left.
#[inline(always)]
fn rounds<T: Copy>(mut x: [T; 16], mix: impl Fn(&mut T, &T, &mut T, u32)) -> [T; 16] {
    for _ in 0..10 {
        for diagonal in [0, 1] {
            for column in 0..4 {
                let row = |number: usize| 4 * number + (column + diagonal * number) % 4;
                let (mut a, mut b, mut c, mut d) = (x[row(0)], x[row(1)], x[row(2)], x[row(3)]);
                mix(&mut a, &b, &mut d, 16);
                mix(&mut c, &d, &mut b, 12);
                mix(&mut a, &b, &mut d, 8);
                mix(&mut c, &d, &mut b, 7);
                (x[row(0)], x[row(1)], x[row(2)], x[row(3)]) = (a, b, c, d);
            }
        }
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8439, A.1, vectors 1 and 2: the zero key, blocks 0 and 1.
    #[test]
    fn key_streams_are_those_of_the_rfc_8439_vectors_with_and_without_vectors() {
        let found = blocks(&[0; 32]);
        assert_eq!(found[0][..4], [0xade0_b876, 0x903d_f1a0, 0xe56a_5d40, 0x28bd_8653]);
        assert_eq!(found[1][..4], [0xbee7_079f, 0x7a38_5155, 0x7c97_ba98, 0x0d08_2d73]);
        let mut start = [0x0707_0707; 16];
        start[..4].copy_from_slice(&[0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574]);
        start[12..].fill(0);
        assert_eq!(one_by_one(start), blocks(&[7; 32]));
        assert_eq!(side_by_side(&start), blocks(&[7; 32]));
    }
}
