//! Proof of work: compact targets, the difficulty that a header must have, and the work by which chains are
//! compared.
//!
//! The functions equal those of Core's `pow.cpp` and `arith_uint256.cpp`, with their quirks: a retarget
//! covers 2015 intervals, not 2016, and compact targets have a sign.

use crate::{header::Ancestors, params::ChainParams};
use ethnum::U256;
use wire::{BlockHash, BlockTime, Height};

/// Decodes a compact target (Core `SetCompact`). Returns the number, and whether it is usable, that is,
/// neither negative nor above 256 bits. A usable number may still be 0.
pub fn decode_compact(bits: u32) -> (U256, bool) {
    let size = bits >> 24;
    let word = bits & 0x007f_ffff;
    let (word, target) = if size <= 3 {
        let word = word >> (8 * (3 - size));
        (word, U256::new(word.into()))
    } else {
        (word, U256::new(word.into()).checked_shl(8 * (size - 3)).unwrap_or_default())
    };
    let negative = word != 0 && bits & 0x0080_0000 != 0;
    let overflow = word != 0 && (size > 34 || (word > 0xff && size > 33) || (word > 0xffff && size > 32));
    (target, !negative && !overflow)
}

/// Encodes a target in compact form, rounding down (Core `GetCompact`).
pub fn encode_compact(target: U256) -> u32 {
    let mut size = (U256::BITS - target.leading_zeros()).div_ceil(8);
    let mut word =
        if size <= 3 { target.as_u32() << (8 * (3 - size)) } else { (target >> (8 * (size - 3))).as_u32() };
    // The top bit of the word is the sign, so a word that would set it is shifted by a byte.
    if word & 0x0080_0000 != 0 {
        word >>= 8;
        size += 1;
    }
    word | size << 24
}

/// Returns the target that `bits` encodes, or `None` if it is not valid on this network (Core
/// `DeriveTarget`).
pub fn target(params: &ChainParams, bits: u32) -> Option<U256> {
    let (target, usable) = decode_compact(bits);
    (usable && target != U256::ZERO && target <= params.pow_limit).then_some(target)
}

/// Returns whether a hash meets the target of its header (Core `CheckProofOfWork`).
pub fn has_proof_of_work(params: &ChainParams, hash: &BlockHash, bits: u32) -> bool {
    target(params, bits).is_some_and(|target| U256::from_le_bytes(hash.0) <= target)
}

/// Returns whether a block of this network can have this hash: it meets the easiest target.
pub fn can_have_proof_of_work(params: &ChainParams, hash: &BlockHash) -> bool {
    U256::from_le_bytes(hash.0) <= params.pow_limit
}

/// Returns the expected number of hashes for a block of this target, or 0 if `bits` does not encode a target
/// (Core `GetBitsProof`). Chains are compared by its sum.
pub fn work(bits: u32) -> U256 {
    let (target, usable) = decode_compact(bits);
    if !usable || target == U256::ZERO {
        return U256::ZERO;
    }
    // 2^256 / (target + 1), computed without the number 2^256.
    let one = U256::new(1);
    (!target / target.wrapping_add(one)).wrapping_add(one)
}

/// Returns the compact target that the header at `height` with time `time` must have (Core
/// `GetNextWorkRequired`).
///
/// # Panics
/// If `height` is 0: the genesis block has no ancestors.
pub fn expected_bits(
    params: &ChainParams,
    height: Height,
    time: BlockTime,
    ancestors: &(impl Ancestors + ?Sized),
) -> u32 {
    assert!(height.0 > 0, "the genesis block has no ancestors that determine its difficulty");
    let prev = Height(height.0 - 1);
    let interval = params.difficulty_adjustment_interval();
    if height.0.is_multiple_of(interval) {
        return retarget(params, height, ancestors);
    }
    if !params.allow_min_difficulty_blocks {
        return ancestors.bits(prev);
    }
    let limit = encode_compact(params.pow_limit);
    if u64::from(time.0) > u64::from(ancestors.time(prev).0) + 2 * u64::from(params.pow_target_spacing) {
        return limit;
    }
    // The last block that did not use the exception above.
    let mut at = prev;
    while at.0 > 0 && !at.0.is_multiple_of(interval) && ancestors.bits(at) == limit {
        at.0 -= 1;
    }
    ancestors.bits(at)
}

/// Returns the compact target of the first block of an interval (Core `CalculateNextWorkRequired`).
fn retarget(params: &ChainParams, height: Height, ancestors: &(impl Ancestors + ?Sized)) -> u32 {
    let prev = Height(height.0 - 1);
    if params.no_retargeting {
        return ancestors.bits(prev);
    }
    let first = Height(height.0 - params.difficulty_adjustment_interval());
    let expected_timespan = params.pow_target_timespan;
    let timespan = i64::from(ancestors.time(prev).0) - i64::from(ancestors.time(first).0);
    let timespan = timespan.clamp(i64::from(expected_timespan / 4), i64::from(expected_timespan) * 4) as u32;
    // BIP-0094: the first block cannot have used the minimum-difficulty exception, so it has the real
    // difficulty.
    let base = ancestors.bits(if params.enforce_bip94 { first } else { prev });
    let target = decode_compact(base).0.wrapping_mul(timespan.into()) / U256::from(expected_timespan);
    encode_compact(target.min(params.pow_limit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bitcoin::{CompactTarget, Target, consensus::Params};
    use proptest::prelude::*;
    use wire::{Header, Network};

    /// Values from Core's arith_uint256 tests.
    #[test]
    fn compact_form_equals_cores() {
        for (bits, number, back, usable) in [
            (0x0000_0000, 0, 0, true),
            (0x0012_3456, 0, 0, true),
            (0x0100_3456, 0, 0, true),
            (0x0112_3456, 0x12, 0x0112_0000, true),
            (0x0212_3456, 0x1234, 0x0212_3400, true),
            (0x0312_3456, 0x12_3456, 0x0312_3456, true),
            (0x0412_3456, 0x1234_5600, 0x0412_3456, true),
            (0x0492_3456, 0x1234_5600, 0x0412_3456, false),
            (0x01fe_dcba, 0x7e, 0x017e_0000, false),
            (0x0500_9234, 0x9234_0000, 0x0500_9234, true),
        ] {
            let (target, ok) = decode_compact(bits);
            assert_eq!((target, ok), (U256::new(number), usable), "{bits:08x}");
            assert_eq!(encode_compact(target), back, "{bits:08x}");
        }
        assert_eq!(encode_compact(U256::new(0x80)), 0x0200_8000);
        assert_eq!(decode_compact(0x2012_3456).0, U256::new(0x12_3456) << 232);
        for (bits, usable) in [
            (0x2012_3456, true),
            (0x2112_3456, false),
            (0x2100_ffff, true),
            (0x2201_0000, false),
            (0x2200_00ff, true),
            (0x2200_0100, false),
            (0x2300_0001, false),
            (0xff12_3456, false),
        ] {
            assert_eq!(decode_compact(bits).1, usable, "{bits:08x}");
        }
    }

    #[test]
    fn work_of_known_targets() {
        assert_eq!(work(0x1d00_ffff), U256::new(0x1_0001_0001));
        assert_eq!(work(0x207f_ffff), U256::new(2));
        assert_eq!(work(0), U256::ZERO);
        assert_eq!(work(0x0480_0001), U256::ZERO);
    }

    #[test]
    fn targets_must_be_within_the_limit() {
        let main = ChainParams::of(Network::Main);
        assert_eq!(target(main, 0x1d00_ffff), Some(U256::new(0xffff) << 208));
        assert_eq!(target(main, 0x1d01_0000), None);
        assert_eq!(target(main, 0x1d80_ffff), None);
        assert_eq!(target(main, 0), None);
    }

    #[test]
    fn a_header_meets_its_own_target_if_it_has_proof_of_work() {
        let params = &ChainParams { pow_limit: !U256::ZERO, ..*ChainParams::of(Network::Main) };
        let all = [0x1d00_ffff, 0x207f_ffff, 0x1900_8000, 0x0312_3456, 0x2100_ffff, 0x2200_00ff, 0x1b80_0001];
        for bits in all.into_iter().chain([0, 0x2112_3456, 0x2201_0000, 0xff12_3456]) {
            let (target, header) = (decode_compact(bits).0, Header { bits, ..Header::default() });
            for hash in [target, target.wrapping_add(U256::new(1)), U256::new(1), !U256::ZERO] {
                let hash = &BlockHash(hash.to_le_bytes());
                let expected = has_proof_of_work(params, hash, bits);
                assert_eq!(header.meets_own_target(hash), expected, "{bits:08x} {hash}");
            }
        }
    }

    fn chain(len: u32, bits: u32, spacing: u32) -> Vec<Header> {
        (0..len)
            .map(|i| Header { time: BlockTime(1_000_000_000 + i * spacing), bits, ..Header::default() })
            .collect()
    }

    #[test]
    fn retarget_is_clamped_and_rounded() {
        let main = ChainParams::of(Network::Main);
        let expect = |spacing, bits| {
            let chain = chain(2016, bits, spacing);
            expected_bits(main, Height(2016), BlockTime(0), &chain.as_slice())
        };
        // 2015 intervals of exactly the target spacing lower the target by 1/2016.
        let lowered = decode_compact(0x1b04_04cb).0.wrapping_mul(U256::new(2015)) / U256::new(2016);
        assert_eq!(expect(600, 0x1b04_04cb), encode_compact(lowered));
        assert_eq!(expect(0, 0x1c40_0000), 0x1c10_0000);
        assert_eq!(expect(100_000, 0x1b04_0000), 0x1b10_0000);
        assert_eq!(expect(100_000, 0x1d00_ffff), 0x1d00_ffff);
    }

    #[test]
    fn testnet_minimum_difficulty_is_skipped_when_searching_back() {
        let test = ChainParams::of(Network::Test);
        let mut chain = chain(2020, 0x1b04_04cb, 600);
        for header in &mut chain[2017..] {
            header.bits = 0x1d00_ffff;
        }
        let last = chain[2019].time.0;
        let bits = |time, chain: &[Header]| expected_bits(test, Height(2020), BlockTime(time), &chain);
        assert_eq!(bits(last + 1201, &chain), 0x1d00_ffff);
        assert_eq!(bits(last + 1200, &chain), 0x1b04_04cb);
        // The search stops at the first block of the interval, even if it has the minimum difficulty.
        chain[2016].bits = 0x1d00_ffff;
        assert_eq!(bits(last, &chain), 0x1d00_ffff);
    }

    #[test]
    fn bip94_retargets_from_the_first_block() {
        let mut chain = chain(2016, 0x1d00_ffff, 600);
        chain[0].bits = 0x1b04_04cb;
        let bits =
            |network| expected_bits(ChainParams::of(network), Height(2016), BlockTime(0), &chain.as_slice());
        assert!(bits(Network::Testnet4) < 0x1b04_04cb);
        assert_eq!(bits(Network::Test) >> 24, 0x1d);
        assert_eq!(bits(Network::Regtest), 0x1d00_ffff);
    }

    /// Numbers of all lengths.
    fn numbers() -> impl Strategy<Value = U256> {
        (any::<[u128; 2]>(), 0..256u32).prop_map(|([high, low], shift)| U256::from_words(high, low) >> shift)
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
        fn quotients_of_any_length_equal_those_of_the_bitcoin_crate(target in numbers()) {
            let one = U256::new(1);
            // The crate has other values at the ends.
            prop_assume!(one < target && target < U256::MAX);
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
            if target > U256::new(1) {
                prop_assert_eq!(theirs.to_work().to_le_bytes(), work(bits).to_le_bytes());
            }
        }

        #[test]
        fn retargets_equal_those_of_the_bitcoin_crate(target in numbers(), timespan in any::<u32>()) {
            let params = ChainParams::of(Network::Main);
            let bits = encode_compact(target.min(params.pow_limit));
            let expected = params.pow_target_timespan;
            let clamped = timespan.clamp(expected / 4, expected * 4);
            let next = decode_compact(bits).0.wrapping_mul(clamped.into()) / U256::from(expected);
            let last = CompactTarget::from_consensus(bits);
            let theirs = CompactTarget::from_next_work_required(last, timespan.into(), Params::MAINNET);
            prop_assert_eq!(theirs.to_consensus(), encode_compact(next.min(params.pow_limit)));
        }
    }
}
