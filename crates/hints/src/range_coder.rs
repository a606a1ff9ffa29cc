//! Adaptive binary arithmetic coding: each bit has a probability that is estimated from earlier bits.
//!
//! The coder keeps an interval of the numbers below 2^32, divides it in proportion to the probabilities of
//! the two bits, and continues with the part of the coded bit. When the interval is shorter than 2^24, its
//! upper byte is known except for a carry, and the interval is scaled by 2^8. Encoder and decoder implement
//! one trait, so that a model is written once and cannot differ between them.

/// Minimum length of the interval before it is scaled by a byte.
const MIN_RANGE: u32 = 1 << 24;
/// Minimum distance of a probability from 0 and 1, in 2^-16.
const MIN_PROBABILITY: u16 = 32;
/// Fraction of its error by which a probability is corrected, in 2^-16: 1/(n + 1.5) after n bits, at least
/// 1/80.
#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
const RATES: [u32; 80] = {
    let mut rates = [0; 80];
    let mut n = 0;
    while n < rates.len() {
        rates[n] = (1 << 17) / (2 * n as u32 + 3);
        n += 1;
    }
    rates
};

/// The adaptive probability of a bit in one context.
#[derive(Clone, Copy, Debug)]
pub(super) struct BitModel {
    /// Probability of a one, in 2^-16.
    one: u16,
    /// Number of bits seen, up to the last index of [`RATES`].
    seen: u16,
}

impl BitModel {
    pub(super) const NEW: Self = Self { one: 1 << 15, seen: 0 };

    #[inline]
    fn update(&mut self, bit: bool) {
        let rate = RATES.get(usize::from(self.seen)).copied().unwrap_or_default() as i32;
        self.seen = (self.seen + 1).min(RATES.len() as u16 - 1);
        let target = if bit { i32::from(u16::MAX - MIN_PROBABILITY) } else { i32::from(MIN_PROBABILITY) };
        // Both factors are halved, because the product of 16 bits, 16 bits and a sign exceeds an i32.
        let step = ((target - i32::from(self.one)) / 2 * (rate / 2)) >> 14;
        self.one = (i32::from(self.one) + step) as u16;
    }
}

/// Encodes or decodes bits: an encoder writes its arguments, a decoder ignores them. Both return what was
/// coded.
pub(super) trait Coder {
    /// Codes one bit, and updates the probability of `model`.
    fn bit(&mut self, model: &mut BitModel, bit: bool) -> bool;
    /// Codes the low `count` bits of `bits`, each with probability 1/2.
    fn raw_bits(&mut self, bits: u32, count: u32) -> u32;
}

pub(super) struct Encoder {
    /// Start of the interval; bit 32 is a carry.
    low: u64,
    range: u32,
    /// The last byte that is not 0xff: a carry may still change it.
    pending_byte: u8,
    /// Number of bytes 0xff after it.
    pending_ff_count: u64,
    bytes: Vec<u8>,
}

impl Encoder {
    pub(super) fn new() -> Self {
        Self { low: 0, range: u32::MAX, pending_byte: 0, pending_ff_count: 0, bytes: Vec::new() }
    }

    /// Returns the code. Trailing zeros are omitted: the decoder reads zeros after the last byte.
    pub(super) fn finish(mut self) -> Vec<u8> {
        // Choose the number within the interval that has the most trailing zeros.
        self.low = (self.low + u64::from(MIN_RANGE - 1)) & !u64::from(MIN_RANGE - 1);
        for _ in 0..5 {
            self.shift_low();
        }
        while self.bytes.last() == Some(&0) {
            self.bytes.pop();
        }
        // The initial pending byte is not part of the code: no carry reaches it.
        self.bytes.drain(..self.bytes.len().min(1));
        self.bytes
    }

    /// Moves the upper byte of `low` to the pending bytes, and writes those that no carry can still change.
    fn shift_low(&mut self) {
        if self.low < 0xff00_0000 || self.low > u64::from(u32::MAX) {
            let carry = (self.low >> 32) as u8;
            self.bytes.push(self.pending_byte.wrapping_add(carry));
            for _ in 0..self.pending_ff_count {
                self.bytes.push(0xff_u8.wrapping_add(carry));
            }
            self.pending_ff_count = 0;
            self.pending_byte = (self.low >> 24) as u8;
        } else {
            self.pending_ff_count += 1;
        }
        self.low = (self.low & 0x00ff_ffff) << 8;
    }

    fn normalize(&mut self) {
        while self.range < MIN_RANGE {
            self.range <<= 8;
            self.shift_low();
        }
    }
}

impl Coder for Encoder {
    #[inline]
    fn bit(&mut self, model: &mut BitModel, bit: bool) -> bool {
        let bound = (self.range >> 16) * u32::from(model.one);
        if bit {
            self.range = bound;
        } else {
            self.low += u64::from(bound);
            self.range -= bound;
        }
        model.update(bit);
        self.normalize();
        bit
    }

    fn raw_bits(&mut self, bits: u32, count: u32) -> u32 {
        for shift in (0..count).rev() {
            self.range >>= 1;
            if bits >> shift & 1 == 1 {
                self.low += u64::from(self.range);
            }
            self.normalize();
        }
        bits
    }
}

/// The decoder. After the last byte, it reads zeros.
pub(super) struct Decoder<'a> {
    code: u32,
    range: u32,
    bytes: &'a [u8],
}

impl<'a> Decoder<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let mut decoder = Self { code: 0, range: u32::MAX, bytes };
        for _ in 0..4 {
            decoder.next_byte();
        }
        decoder
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.bytes.is_empty()
    }

    #[inline]
    fn next_byte(&mut self) {
        let byte = match self.bytes.split_first() {
            Some((first, rest)) => {
                self.bytes = rest;
                *first
            }
            None => 0,
        };
        self.code = self.code << 8 | u32::from(byte);
    }

    #[inline]
    fn normalize(&mut self) {
        while self.range < MIN_RANGE {
            self.range <<= 8;
            self.next_byte();
        }
    }
}

impl Coder for Decoder<'_> {
    #[inline]
    fn bit(&mut self, model: &mut BitModel, _: bool) -> bool {
        let bound = (self.range >> 16) * u32::from(model.one);
        let bit = self.code < bound;
        if bit {
            self.range = bound;
        } else {
            self.code -= bound;
            self.range -= bound;
        }
        model.update(bit);
        self.normalize();
        bit
    }

    #[inline]
    fn raw_bits(&mut self, _: u32, count: u32) -> u32 {
        let mut bits = 0;
        for _ in 0..count {
            self.range >>= 1;
            let bit = self.code >= self.range;
            if bit {
                self.code -= self.range;
            }
            bits = bits << 1 | u32::from(bit);
            self.normalize();
        }
        bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    fn encode(bits: &[(u8, bool)]) -> Vec<u8> {
        let (mut encoder, mut models) = (Encoder::new(), [BitModel::NEW; 3]);
        for &(context, bit) in bits {
            match models.get_mut(usize::from(context)) {
                Some(model) => drop(encoder.bit(model, bit)),
                None => drop(encoder.raw_bits(bit.into(), 1)),
            }
        }
        encoder.finish()
    }

    /// Decodes a bit in each context of `contexts`, and returns whether that was all.
    fn decode(bytes: &[u8], contexts: &[(u8, bool)]) -> (Vec<(u8, bool)>, bool) {
        let (mut decoder, mut models) = (Decoder::new(bytes), [BitModel::NEW; 3]);
        let bit = |&(context, _): &(u8, bool)| match models.get_mut(usize::from(context)) {
            Some(model) => (context, decoder.bit(model, false)),
            None => (context, decoder.raw_bits(0, 1) == 1),
        };
        (contexts.iter().map(bit).collect(), decoder.is_at_end())
    }

    proptest! {
        #[test]
        fn bits_round_trip(bits in vec((0u8..4, any::<bool>()), 0..2000)) {
            let bytes = encode(&bits);
            prop_assert_eq!(decode(&bytes, &bits), (bits, true));
        }
    }

    #[test]
    fn carries_propagate_through_bytes_of_ff() {
        // Many equal bits move the interval to an end of its range; a different bit then causes a carry.
        for count in 0..400 {
            for (often, rarely) in [(false, true), (true, false)] {
                let mut bits = vec![(0, often); count];
                bits.extend([(0, rarely), (3, true), (3, true), (0, often)]);
                bits.extend(vec![(3, often); 60]);
                assert_eq!(decode(&encode(&bits), &bits), (bits, true), "{count} equal bits");
            }
        }
    }

    #[test]
    fn predictable_bits_take_few_bytes() {
        assert!(encode(&vec![(0, true); 80_000]).len() < 40);
        assert!(encode(&vec![(0, false); 80_000]).len() < 40);
        assert!(encode(&[]).is_empty());
    }

    #[test]
    fn probabilities_stay_between_their_limits() {
        let mut bit = BitModel::NEW;
        for round in 0..100_000 {
            bit.update(round % 3000 < 1500);
            assert!((MIN_PROBABILITY..=u16::MAX - MIN_PROBABILITY).contains(&bit.one));
        }
    }
}
