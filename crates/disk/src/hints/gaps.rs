//! The model behind our own format: a block's hints as gaps, each gap's size foretold by those before it.
//!
//! A block is its number of outputs and then the gaps from one hint to the next, the first counted from
//! before the block, the last leading to the end. A gap is coded as its number of binary digits and then the
//! digits. How probable each size is depends on the sizes of late (old blocks have few hints, young ones
//! many) and on the gap before it (hints come in runs). All probabilities start anew with each group of
//! blocks, so that groups can be read alone.

use super::MAX_OUTPUTS;
use super::range_coder::{Bit, Coder, Decoder, Encoder};

/// Digits of a number: gaps and numbers of outputs are below 2^17.
const DIGITS: usize = 17;
/// Classes of the sizes of late.
const MEANS: usize = 20;
/// Classes of the gap before.
const BEFORE: usize = 6;

/// The probabilities of how many digits a number has.
type Sizes = [Bit; DIGITS];

/// What one group has taught so far.
pub(super) struct Model {
    outputs: [Sizes; DIGITS + 1],
    gaps: [[Sizes; BEFORE]; MEANS],
    /// The two digits after the first, by size and class of the gap before.
    digits: [[[Bit; 4]; DIGITS]; BEFORE],
    /// Digits that the last block's number of outputs had.
    last_outputs: usize,
    /// A running mean of gap sizes, in 1/32 of a digit.
    mean: u32,
    /// Classes of the last blocks' first gaps.
    firsts: usize,
}

impl Model {
    pub(super) fn new() -> Box<Self> {
        Box::new(Self {
            outputs: [[Bit::NEW; DIGITS]; DIGITS + 1],
            gaps: [[[Bit::NEW; DIGITS]; BEFORE]; MEANS],
            digits: [[[Bit::NEW; 4]; DIGITS]; BEFORE],
            last_outputs: 0,
            mean: 3 * 32,
            firsts: 0,
        })
    }

    /// Writes a block of ascending hints below `outputs`, at most [`MAX_OUTPUTS`].
    pub(super) fn encode(&mut self, encoder: &mut Encoder, outputs: u32, unspent: &[u32]) {
        self.outputs(encoder, outputs);
        let mut next = 0;
        let mut before = 0;
        for &index in unspent.iter().chain([&outputs]) {
            before = self.gap(encoder, before, outputs - next + 1, index - next + 1);
            next = index + 1;
        }
    }

    /// Appends the hints of the next block and returns its outputs; `None` if no block is coded like that.
    pub(super) fn decode(&mut self, decoder: &mut Decoder<'_>, unspent: &mut Vec<u32>) -> Option<u32> {
        let outputs = self.outputs(decoder, 0);
        if outputs > MAX_OUTPUTS {
            return None;
        }
        let mut next = 0;
        let mut before = 0;
        loop {
            before = self.gap(decoder, before, outputs - next + 1, 0);
            let index = next + before - 1;
            if index >= outputs {
                return (index == outputs).then_some(outputs);
            }
            unspent.push(index);
            next = index + 1;
        }
    }

    fn outputs(&mut self, coder: &mut impl Coder, outputs: u32) -> u32 {
        let Self { outputs: sizes, digits, last_outputs, .. } = self;
        let (Some(sizes), [digits, ..]) = (sizes.get_mut(*last_outputs), digits) else { return 0 };
        let number = number(coder, sizes, digits, u32::MAX, outputs + 1);
        *last_outputs = number.ilog2() as usize;
        number - 1
    }

    /// Codes a gap of 1 to `most` outputs after one of `before`, 0 at the start of a block.
    #[inline]
    fn gap(&mut self, coder: &mut impl Coder, before: u32, most: u32, gap: u32) -> u32 {
        if most == 1 {
            return 1;
        }
        let class = match before {
            0 => 0,
            1..=3 => before as usize,
            4..=15 => 4,
            _ => 5,
        };
        let mean = if before == 0 { self.firsts } else { (self.mean / 16) as usize };
        let sizes = self.gaps.get_mut(mean.min(MEANS - 1)).and_then(|of_mean| of_mean.get_mut(class));
        let (Some(sizes), Some(digits)) = (sizes, self.digits.get_mut(class)) else { return most };
        let gap = number(coder, sizes, digits, most, gap);
        let size = gap.ilog2();
        if before == 0 {
            self.firsts = (self.firsts << 2 | size.min(3) as usize) & 15;
        } else {
            self.mean = self.mean + 4 * size - self.mean / 8;
        }
        gap
    }
}

/// Codes a number of 1 to `most`; a decoder may get one above it.
#[inline]
fn number(
    coder: &mut impl Coder,
    sizes: &mut Sizes,
    digits: &mut [[Bit; 4]; DIGITS],
    most: u32,
    number: u32,
) -> u32 {
    // An encoder's number is at least 1; a decoder has none.
    let (want, limit) = (number.checked_ilog2().unwrap_or(0), most.ilog2());
    let mut size = 0;
    for place in sizes.iter_mut().take(limit as usize) {
        if !coder.bit(place, size < want) {
            break;
        }
        size += 1;
    }
    let mut value = 1;
    let learnt = size.min(2);
    if let Some(places) = (size as usize).checked_sub(1).and_then(|at| digits.get_mut(at)) {
        for digit in 1..=learnt {
            let place = if digit == 1 { 0 } else { value as usize & 1 | 2 };
            if let Some(place) = places.get_mut(place) {
                value = value << 1 | u32::from(coder.bit(place, number >> (size - digit) & 1 == 1));
            }
        }
    }
    let rest = size - learnt;
    value << rest | coder.plain(number & ((1 << rest) - 1), rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    fn round_trip(blocks: &[(u32, Vec<u32>)]) {
        let (mut model, mut encoder) = (Model::new(), Encoder::new());
        blocks.iter().for_each(|(outputs, hints)| model.encode(&mut encoder, *outputs, hints));
        let bytes = encoder.finish();
        let (mut model, mut decoder) = (Model::new(), Decoder::new(&bytes));
        for (outputs, hints) in blocks {
            let mut decoded = Vec::new();
            assert_eq!(model.decode(&mut decoder, &mut decoded), Some(*outputs));
            assert_eq!(&decoded, hints);
        }
        assert!(decoder.is_at_end());
    }

    proptest! {
        #[test]
        fn blocks_come_back(blocks in vec(vec(any::<bool>(), 0..300), 0..20)) {
            let hints = |block: &Vec<bool>| {
                let hints = block.iter().zip(0..).filter(|(is, _)| **is).map(|(_, index)| index).collect();
                (block.len() as u32, hints)
            };
            round_trip(&blocks.iter().map(hints).collect::<Vec<_>>());
        }

        #[test]
        fn any_bytes_are_hints_or_refused(bytes in vec(any::<u8>(), 0..300)) {
            let (mut model, mut decoder, mut hints) = (Model::new(), Decoder::new(&bytes), Vec::new());
            while let Some(outputs) = model.decode(&mut decoder, &mut hints) {
                prop_assert!(outputs <= MAX_OUTPUTS && hints.len() <= outputs as usize);
                prop_assert!(hints.is_sorted_by(|a, b| a < b));
                prop_assert!(hints.last().is_none_or(|last| *last < outputs));
                hints.clear();
                if decoder.is_at_end() {
                    break;
                }
            }
        }
    }

    #[test]
    fn blocks_at_the_limits_come_back() {
        let last = MAX_OUTPUTS - 1;
        round_trip(&[
            (0, vec![]),
            (MAX_OUTPUTS, vec![]),
            (MAX_OUTPUTS, vec![last]),
            (MAX_OUTPUTS, vec![0, last]),
            (MAX_OUTPUTS, (0..MAX_OUTPUTS).collect()),
            (1, vec![0]),
            (1, vec![]),
        ]);
    }
}
