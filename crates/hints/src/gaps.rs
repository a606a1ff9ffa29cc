//! The statistical model of Peregrine's own format: a block's hints as gaps, whose sizes are predicted from
//! the gaps before them.
//!
//! A block is encoded as its number of outputs and then the gaps from one hint to the next; the first gap
//! begins before the first output, the last one leads to the end of the block. A gap is coded as its number
//! of binary digits and then the digits. The probability of each size depends on recent sizes (old blocks
//! have few hints, recent ones many) and on the previous gap (hints are clustered). All probabilities are
//! reset with each group of blocks, so that groups can be read independently.

use super::MAX_OUTPUTS;
use super::range_coder::{BitModel, Coder, Decoder, Encoder};

/// Maximum number of binary digits: gaps and numbers of outputs are below 2^17.
const DIGITS: usize = 17;
/// Number of classes of the mean of recent sizes.
const MEAN_CLASSES: usize = 20;
/// Number of classes of the previous gap.
const PREVIOUS_CLASSES: usize = 6;

/// The probabilities of the number of digits of a number.
type Sizes = [BitModel; DIGITS];

/// The probabilities adapted to one group so far.
pub(super) struct Model {
    outputs: [Sizes; DIGITS + 1],
    gaps: [[Sizes; PREVIOUS_CLASSES]; MEAN_CLASSES],
    /// The two digits after the first, by size and class of the previous gap.
    digits: [[[BitModel; 4]; DIGITS]; PREVIOUS_CLASSES],
    /// `ilog2` of the last block's number of outputs + 1.
    last_outputs: usize,
    /// A running mean of gap sizes, in 1/32 of a digit.
    mean: u32,
    /// Classes of the last two blocks' first gaps.
    first_gaps: usize,
}

impl Model {
    pub(super) fn new() -> Box<Self> {
        Box::new(Self {
            outputs: [[BitModel::NEW; DIGITS]; DIGITS + 1],
            gaps: [[[BitModel::NEW; DIGITS]; PREVIOUS_CLASSES]; MEAN_CLASSES],
            digits: [[[BitModel::NEW; 4]; DIGITS]; PREVIOUS_CLASSES],
            last_outputs: 0,
            mean: 3 * 32,
            first_gaps: 0,
        })
    }

    /// Encodes a block: its number of outputs, at most [`MAX_OUTPUTS`], and ascending hints below it.
    pub(super) fn encode(&mut self, encoder: &mut Encoder, outputs: u32, unspent: &[u32]) {
        self.outputs(encoder, outputs);
        let mut next = 0;
        let mut before = 0;
        for &index in unspent.iter().chain([&outputs]) {
            before = self.gap(encoder, before, outputs - next + 1, index - next + 1);
            next = index + 1;
        }
    }

    /// Appends the hints of the next block and returns its number of outputs; `None` if the code is invalid.
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

    /// Codes a gap of 1 to `max` outputs. `before` is the previous gap, 0 at the start of a block.
    #[inline]
    fn gap(&mut self, coder: &mut impl Coder, before: u32, max: u32, gap: u32) -> u32 {
        if max == 1 {
            return 1;
        }
        let class = match before {
            0 => 0,
            1..=3 => before as usize,
            4..=15 => 4,
            _ => 5,
        };
        let mean = if before == 0 { self.first_gaps } else { (self.mean / 16) as usize };
        let sizes = self.gaps.get_mut(mean.min(MEAN_CLASSES - 1)).and_then(|of_mean| of_mean.get_mut(class));
        let (Some(sizes), Some(digits)) = (sizes, self.digits.get_mut(class)) else { return max };
        let gap = number(coder, sizes, digits, max, gap);
        let size = gap.ilog2();
        if before == 0 {
            self.first_gaps = (self.first_gaps << 2 | size.min(3) as usize) & 15;
        } else {
            self.mean = self.mean + 4 * size - self.mean / 8;
        }
        gap
    }
}

/// Codes a number of 1 to `max`; a decoder may return a greater one.
#[inline]
fn number(
    coder: &mut impl Coder,
    sizes: &mut Sizes,
    digits: &mut [[BitModel; 4]; DIGITS],
    max: u32,
    number: u32,
) -> u32 {
    // An encoder's number is at least 1; a decoder passes 0.
    let (want, limit) = (number.checked_ilog2().unwrap_or(0), max.ilog2());
    let mut size = 0;
    for model in sizes.iter_mut().take(limit as usize) {
        if !coder.bit(model, size < want) {
            break;
        }
        size += 1;
    }
    let mut value = 1;
    let modelled = size.min(2);
    if let Some(models) = (size as usize).checked_sub(1).and_then(|at| digits.get_mut(at)) {
        for digit in 1..=modelled {
            let index = if digit == 1 { 0 } else { value as usize & 1 | 2 };
            if let Some(model) = models.get_mut(index) {
                value = value << 1 | u32::from(coder.bit(model, number >> (size - digit) & 1 == 1));
            }
        }
    }
    let rest = size - modelled;
    value << rest | coder.raw_bits(number & ((1 << rest) - 1), rest)
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
        fn blocks_round_trip(blocks in vec(vec(any::<bool>(), 0..300), 0..20)) {
            let hints = |block: &Vec<bool>| {
                let hints = block.iter().zip(0..).filter(|(is, _)| **is).map(|(_, index)| index).collect();
                (block.len() as u32, hints)
            };
            round_trip(&blocks.iter().map(hints).collect::<Vec<_>>());
        }

        #[test]
        fn arbitrary_bytes_decode_to_valid_hints_or_are_refused(bytes in vec(any::<u8>(), 0..300)) {
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
}
