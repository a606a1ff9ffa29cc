//! Adaptive binary arithmetic coding: bits, each with a probability that is learnt from those before it.
//!
//! The coder keeps an interval of the numbers below 2^32, cuts it in two in proportion to the probabilities,
//! and takes the part of the bit. When the interval is shorter than 2^24, a byte is completed, but for a
//! carry. Encoder and decoder are one trait, so that a model is written once and cannot differ between them.

/// An interval below this is widened by a byte.
const LEAST_RANGE: u32 = 1 << 24;
/// A probability never comes nearer to 0 or 1 than this, in 2^-16.
const LEAST_PROBABILITY: u16 = 32;
/// By how much of the error a probability is corrected, in 2^-16: 1/(n + 1.5) after n bits, at least 1/80.
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

/// The probability of a bit in one place of a model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bit {
    /// Of a one, in 2^-16.
    one: u16,
    /// Bits seen, up to the last of the rates.
    seen: u16,
}

impl Bit {
    pub(super) const NEW: Self = Self { one: 1 << 15, seen: 0 };

    #[inline]
    fn learn(&mut self, bit: bool) {
        let rate = RATES.get(usize::from(self.seen)).copied().unwrap_or_default() as i32;
        self.seen = (self.seen + 1).min(RATES.len() as u16 - 1);
        let target = if bit { i32::from(u16::MAX - LEAST_PROBABILITY) } else { i32::from(LEAST_PROBABILITY) };
        // Halves, because 16 bits times 16 bits and a sign are more than an i32 has.
        let step = ((target - i32::from(self.one)) / 2 * (rate / 2)) >> 14;
        self.one = (i32::from(self.one) + step) as u16;
    }
}

/// Codes bits one way or the other: an encoder takes those it is given, a decoder ignores them; both return
/// what was coded.
pub(super) trait Coder {
    fn bit(&mut self, place: &mut Bit, bit: bool) -> bool;
    /// The low `count` bits of `bits`, each as probable as not.
    fn plain(&mut self, bits: u32, count: u32) -> u32;
}

/// Writes.
pub(super) struct Encoder {
    /// Start of the interval; bit 32 is a carry.
    low: u64,
    range: u32,
    /// Bytes that a carry may still change: one and then as many of 0xff.
    held: u8,
    full: u64,
    bytes: Vec<u8>,
}

impl Encoder {
    pub(super) fn new() -> Self {
        Self { low: 0, range: u32::MAX, held: 0, full: 0, bytes: Vec::new() }
    }

    /// The bytes; zeros that a decoder finds by itself are left out.
    pub(super) fn finish(mut self) -> Vec<u8> {
        // The number with the most zeros at its end within the interval.
        self.low = (self.low + u64::from(LEAST_RANGE - 1)) & !u64::from(LEAST_RANGE - 1);
        for _ in 0..5 {
            self.settle();
        }
        while self.bytes.last() == Some(&0) {
            self.bytes.pop();
        }
        // The first byte held was none of ours: no carry reaches it.
        self.bytes.drain(..self.bytes.len().min(1));
        self.bytes
    }

    fn settle(&mut self) {
        if self.low < 0xff00_0000 || self.low > u64::from(u32::MAX) {
            let carry = (self.low >> 32) as u8;
            self.bytes.push(self.held.wrapping_add(carry));
            for _ in 0..self.full {
                self.bytes.push(0xff_u8.wrapping_add(carry));
            }
            self.full = 0;
            self.held = (self.low >> 24) as u8;
        } else {
            self.full += 1;
        }
        self.low = (self.low & 0x00ff_ffff) << 8;
    }

    fn widen(&mut self) {
        while self.range < LEAST_RANGE {
            self.range <<= 8;
            self.settle();
        }
    }
}

impl Coder for Encoder {
    #[inline]
    fn bit(&mut self, place: &mut Bit, bit: bool) -> bool {
        let bound = (self.range >> 16) * u32::from(place.one);
        if bit {
            self.range = bound;
        } else {
            self.low += u64::from(bound);
            self.range -= bound;
        }
        place.learn(bit);
        self.widen();
        bit
    }

    fn plain(&mut self, bits: u32, count: u32) -> u32 {
        for shift in (0..count).rev() {
            self.range >>= 1;
            if bits >> shift & 1 == 1 {
                self.low += u64::from(self.range);
            }
            self.widen();
        }
        bits
    }
}

/// Reads. Behind the last byte come zeros without end.
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

    /// Whether all bytes were looked at.
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
    fn widen(&mut self) {
        while self.range < LEAST_RANGE {
            self.range <<= 8;
            self.next_byte();
        }
    }
}

impl Coder for Decoder<'_> {
    #[inline]
    fn bit(&mut self, place: &mut Bit, _: bool) -> bool {
        let bound = (self.range >> 16) * u32::from(place.one);
        let bit = self.code < bound;
        if bit {
            self.range = bound;
        } else {
            self.code -= bound;
            self.range -= bound;
        }
        place.learn(bit);
        self.widen();
        bit
    }

    #[inline]
    fn plain(&mut self, _: u32, count: u32) -> u32 {
        let mut bits = 0;
        for _ in 0..count {
            self.range >>= 1;
            let bit = self.code >= self.range;
            if bit {
                self.code -= self.range;
            }
            bits = bits << 1 | u32::from(bit);
            self.widen();
        }
        bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    fn encode(bits: &[(u8, bool)]) -> Vec<u8> {
        let (mut encoder, mut places) = (Encoder::new(), [Bit::NEW; 3]);
        for &(place, bit) in bits {
            match places.get_mut(usize::from(place)) {
                Some(place) => drop(encoder.bit(place, bit)),
                None => drop(encoder.plain(bit.into(), 1)),
            }
        }
        encoder.finish()
    }

    fn decode(bytes: &[u8], places_of: &[(u8, bool)]) -> (Vec<(u8, bool)>, bool) {
        let (mut decoder, mut places) = (Decoder::new(bytes), [Bit::NEW; 3]);
        let bit = |&(place, _): &(u8, bool)| match places.get_mut(usize::from(place)) {
            Some(at) => (place, decoder.bit(at, false)),
            None => (place, decoder.plain(0, 1) == 1),
        };
        (places_of.iter().map(bit).collect(), decoder.is_at_end())
    }

    proptest! {
        #[test]
        fn bits_come_back(bits in vec((0u8..4, any::<bool>()), 0..2000)) {
            let bytes = encode(&bits);
            prop_assert_eq!(decode(&bytes, &bits), (bits, true));
        }

        #[test]
        fn any_bytes_decode_to_something(bytes in vec(any::<u8>(), 0..50)) {
            let places = vec![(0, false); 1000];
            prop_assert_eq!(decode(&bytes, &places).0.len(), 1000);
        }
    }

    #[test]
    fn carries_run_through_full_bytes() {
        // Long runs of one bit drive the interval to its ends; a bit of the other kind then moves the carry.
        for run in 0..400 {
            for (often, rarely) in [(false, true), (true, false)] {
                let mut bits = vec![(0, often); run];
                bits.extend([(0, rarely), (3, true), (3, true), (0, often)]);
                bits.extend(vec![(3, often); 60]);
                assert_eq!(decode(&encode(&bits), &bits), (bits, true), "run of {run}");
            }
        }
    }

    #[test]
    fn what_is_foreseen_costs_little() {
        assert!(encode(&vec![(0, true); 80_000]).len() < 40);
        assert!(encode(&vec![(0, false); 80_000]).len() < 40);
        assert!(encode(&[]).is_empty());
    }

    #[test]
    fn probabilities_stay_between_their_limits() {
        let mut bit = Bit::NEW;
        for round in 0..100_000 {
            bit.learn(round % 3000 < 1500);
            assert!((LEAST_PROBABILITY..=u16::MAX - LEAST_PROBABILITY).contains(&bit.one));
        }
    }
}
