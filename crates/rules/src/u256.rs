//! 256-bit unsigned integers with the arithmetic that targets and chain work need.
//!
//! It is implemented here because it is small, and because Core's `arith_uint256` wraps, divides and shifts
//! in ways that a general crate need not preserve.

use std::cmp::Ordering;

/// A 256-bit unsigned integer; limbs of 64 bits, least significant first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct U256(pub [u64; 4]);

impl U256 {
    pub const ZERO: Self = Self([0; 4]);

    /// Converts a u64.
    pub const fn from_u64(value: u64) -> Self {
        Self([value, 0, 0, 0])
    }

    /// Reads a little-endian number, the form in which hashes are compared with targets.
    pub fn from_le_bytes(bytes: &[u8; 32]) -> Self {
        let mut limbs = [0; 4];
        for (limb, bytes) in limbs.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *limb = u64::from_le_bytes(*bytes);
        }
        Self(limbs)
    }

    /// Returns the little-endian bytes.
    pub fn to_le_bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for (bytes, limb) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(self.0) {
            *bytes = limb.to_le_bytes();
        }
        bytes
    }

    /// Returns the number of bits that the number needs; 0 for 0.
    pub fn bits(&self) -> u32 {
        self.0
            .iter()
            .rposition(|&limb| limb != 0)
            .map_or(0, |top| 64 * top as u32 + 64 - self.0[top].leading_zeros())
    }

    /// Returns the lowest 64 bits.
    pub const fn low_u64(&self) -> u64 {
        self.0[0]
    }

    /// Returns the sum modulo 2^256.
    #[must_use]
    pub fn wrapping_add(self, other: Self) -> Self {
        let mut carry = 0;
        Self(std::array::from_fn(|i| {
            let sum = u128::from(self.0[i]) + u128::from(other.0[i]) + carry;
            carry = sum >> 64;
            sum as u64
        }))
    }

    /// Returns the difference modulo 2^256.
    #[must_use]
    pub fn wrapping_sub(self, other: Self) -> Self {
        self.wrapping_add(!other).wrapping_add(Self::from_u64(1))
    }

    /// Returns the product with a u32 modulo 2^256.
    #[must_use]
    pub fn wrapping_mul_u32(self, factor: u32) -> Self {
        let mut carry = 0;
        Self(self.0.map(|limb| {
            let product = u128::from(limb) * u128::from(factor) + carry;
            carry = product >> 64;
            product as u64
        }))
    }

    /// Returns the quotient by a u32.
    ///
    /// # Panics
    /// If the divisor is 0.
    #[must_use]
    pub fn div_u32(self, divisor: u32) -> Self {
        let mut limbs = self.0;
        let mut rest = 0;
        for limb in limbs.iter_mut().rev() {
            let part = rest << 64 | u128::from(*limb);
            *limb = (part / u128::from(divisor)) as u64;
            rest = part % u128::from(divisor);
        }
        Self(limbs)
    }
}

impl Ord for U256 {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.iter().rev().cmp(other.0.iter().rev())
    }
}

impl PartialOrd for U256 {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl std::ops::Not for U256 {
    type Output = Self;

    fn not(self) -> Self {
        Self(self.0.map(|limb| !limb))
    }
}

impl std::ops::Shl<u32> for U256 {
    type Output = Self;

    fn shl(self, bits: u32) -> Self {
        let (limbs, bits) = ((bits / 64) as usize, bits % 64);
        let limb = |i: usize| self.0.get(i).copied().unwrap_or(0);
        Self(std::array::from_fn(|i| {
            let Some(from) = i.checked_sub(limbs) else { return 0 };
            let carried = if bits > 0 && from > 0 { limb(from - 1) >> (64 - bits) } else { 0 };
            limb(from) << bits | carried
        }))
    }
}

impl std::ops::Shr<u32> for U256 {
    type Output = Self;

    fn shr(self, bits: u32) -> Self {
        let (limbs, bits) = ((bits / 64) as usize, bits % 64);
        let limb = |i: usize| self.0.get(i).copied().unwrap_or(0);
        Self(std::array::from_fn(|i| {
            let carried = if bits > 0 { limb(i + limbs + 1) << (64 - bits) } else { 0 };
            limb(i + limbs) >> bits | carried
        }))
    }
}

impl std::ops::Div for U256 {
    type Output = Self;

    /// Long division, one quotient bit per step: a block's work has few bits, so common divisions are short.
    ///
    /// # Panics
    /// If the divisor is 0.
    fn div(self, divisor: Self) -> Self {
        assert!(divisor != Self::ZERO, "division of a 256-bit number by zero");
        let mut quotient = Self::ZERO;
        let mut rest = self;
        let Some(steps) = self.bits().checked_sub(divisor.bits()) else { return quotient };
        for shift in (0..=steps).rev() {
            let part = divisor << shift;
            if part <= rest {
                rest = rest.wrapping_sub(part);
                quotient.0[(shift / 64) as usize] |= 1 << (shift % 64);
            }
        }
        quotient
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ChainParams,
        pow::{decode_compact, encode_compact, work},
    };
    use bitcoin::{CompactTarget, Target, Work, consensus::Params};
    use proptest::prelude::*;

    const MAX: U256 = U256([u64::MAX; 4]);

    #[test]
    fn carries_and_shifts_across_limbs() {
        let one = U256::from_u64(1);
        assert_eq!(MAX.wrapping_add(one), U256::ZERO);
        assert_eq!(U256::ZERO.wrapping_sub(one), MAX);
        assert_eq!((one << 64).wrapping_sub(one), U256::from_u64(u64::MAX));
        assert_eq!(U256::from_u64(u64::MAX).wrapping_mul_u32(3), (U256([u64::MAX - 2, 2, 0, 0])));
        assert_eq!(MAX.wrapping_mul_u32(2), MAX.wrapping_sub(one));
        for shift in [0, 1, 63, 64, 65, 128, 255] {
            assert_eq!((one << shift).bits(), shift + 1);
            assert_eq!((one << shift) >> shift, one);
            assert_eq!((MAX >> shift).bits(), 256 - shift);
            assert_eq!(MAX / (one << shift), MAX >> shift);
        }
        assert_eq!(one << 256, U256::ZERO);
        assert_eq!(MAX >> 256, U256::ZERO);
        assert!((one << 64) > U256::from_u64(u64::MAX));
    }

    #[test]
    fn division_undoes_multiplication() {
        let number = U256([0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210, 0x1111_2222_3333_4444, 0x5555]);
        for divisor in [1, 2, 3, 1_209_600, u32::MAX] {
            assert_eq!(number.wrapping_mul_u32(divisor).div_u32(divisor), number);
            assert_eq!(number / U256::from_u64(divisor.into()), number.div_u32(divisor));
            assert_eq!(number.wrapping_mul_u32(divisor) / number, U256::from_u64(divisor.into()));
        }
        assert_eq!(U256::from_u64(5) / number, U256::ZERO);
        assert_eq!(U256::from_le_bytes(&number.to_le_bytes()), number);
    }

    /// Numbers of all lengths.
    fn numbers() -> impl Strategy<Value = U256> {
        (any::<[u64; 4]>(), 0..256u32).prop_map(|(limbs, shift)| U256(limbs) >> shift)
    }

    /// Compact targets without a sign.
    fn compact_targets() -> impl Strategy<Value = u32> {
        (0..35u32, 0..0x0080_0000u32, 0..24u32).prop_map(|(size, word, shift)| size << 24 | word >> shift)
    }

    fn target_of(number: U256) -> Target {
        Target::from_le_bytes(number.to_le_bytes())
    }

    // The crate `bitcoin` has its own 256-bit numbers, inside of work and targets.
    proptest! {
        #[test]
        fn sums_differences_and_order_equal_those_of_the_bitcoin_crate(a in numbers(), b in numbers()) {
            let (a, b) = (a >> 1, b >> 1);
            let [theirs_a, theirs_b] = [a, b].map(|number| Work::from_le_bytes(number.to_le_bytes()));
            prop_assert_eq!((theirs_a + theirs_b).to_le_bytes(), a.wrapping_add(b).to_le_bytes());
            prop_assert_eq!(theirs_a.cmp(&theirs_b), a.cmp(&b));
            if a >= b {
                prop_assert_eq!((theirs_a - theirs_b).to_le_bytes(), a.wrapping_sub(b).to_le_bytes());
            }
        }

        #[test]
        fn quotients_of_any_length_equal_those_of_the_bitcoin_crate(target in numbers()) {
            let one = U256::from_u64(1);
            // The crate has other values at the ends.
            prop_assume!(one < target && target < MAX);
            let work = (!target / target.wrapping_add(one)).wrapping_add(one);
            prop_assert_eq!(target_of(target).to_work().to_le_bytes(), work.to_le_bytes());
            prop_assert_eq!(target_of(target).to_compact_lossy().to_consensus(), encode_compact(target));
        }

        #[test]
        fn compact_targets_and_their_work_equal_those_of_the_bitcoin_crate(bits in compact_targets()) {
            let (target, usable) = decode_compact(bits);
            prop_assume!(usable);
            let theirs = Target::from_compact(CompactTarget::from_consensus(bits));
            prop_assert_eq!(theirs.to_le_bytes(), target.to_le_bytes());
            if target > U256::from_u64(1) {
                prop_assert_eq!(theirs.to_work().to_le_bytes(), work(bits).to_le_bytes());
            }
        }

        #[test]
        fn retargets_equal_those_of_the_bitcoin_crate(target in numbers(), timespan in any::<u32>()) {
            let params = ChainParams::of(wire::Network::Main);
            let bits = encode_compact(target.min(params.pow_limit));
            let expected = params.pow_target_timespan;
            let clamped = timespan.clamp(expected / 4, expected * 4);
            let next = decode_compact(bits).0.wrapping_mul_u32(clamped).div_u32(expected);
            let last = CompactTarget::from_consensus(bits);
            let theirs = CompactTarget::from_next_work_required(last, timespan.into(), Params::MAINNET);
            prop_assert_eq!(theirs.to_consensus(), encode_compact(next.min(params.pow_limit)));
        }
    }
}
