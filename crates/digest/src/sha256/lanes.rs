//! Who shares a vector with whom: lanes that run side by side cost the time of the longest, so neighbours
//! in length are put together, and a message that would make the others wait is hashed alone.

use super::portable::{K, schedule};
use super::{Block, Message};

/// The 64 words of the block that follows a message of 64 bytes (the one bit, zeros, and 512), each plus
/// its round constant: a pair of nodes needs no schedule for its second block.
pub(super) const PADDING_SUMS: [u32; 64] = {
    let mut block = [0; 16];
    block[0] = 0x8000_0000;
    block[15] = 512;
    let mut sums = schedule(block);
    let mut t = 0;
    while t < 64 {
        sums[t] = sums[t].wrapping_add(K[t]);
        t += 1;
    }
    sums
};

/// Messages of this many blocks and more are few; they are sorted by comparison, all others by counting.
const LONG: usize = 256;

/// Returns how many blocks the padded message fills.
fn block_count(message: &Message<'_>) -> usize {
    (message.len() + 9).div_ceil(64)
}

/// What to hash next; the numbers are indices of messages.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step<'a> {
    /// One message, by the stream form.
    Alone(u32),
    /// As many messages as there are lanes or fewer, longest first.
    Together(&'a [u32]),
}

/// Shares messages out, each in exactly one step.
pub(super) struct Plan<const LANES: usize> {
    /// The block count of each message.
    counts: Vec<u32>,
    /// The indices of the messages, longest first, of which `next` had their turn.
    order: Vec<u32>,
    next: usize,
    /// The time of one compression of all lanes, in compressions of the stream form.
    vector_cost: f32,
}

impl<const LANES: usize> Plan<LANES> {
    /// Sorts the messages. `vector_cost` is the time of one compression in all lanes over that of one in
    /// the stream form.
    ///
    /// # Panics
    /// If there are 2^32 messages or more.
    pub(super) fn new(messages: &[Message<'_>], vector_cost: f32) -> Self {
        let counts = block_counts(messages);
        Self { order: longest_first(&counts), counts, next: 0, vector_cost }
    }

    /// Returns the next step, or none when every message had its turn.
    pub(super) fn next_step(&mut self) -> Option<Step<'_>> {
        let rest = &self.order[self.next..];
        let group = &rest[..rest.len().min(LANES)];
        let (&first, _) = group.split_first()?;
        // Each message is hashed twice, and the second hash is one block.
        let blocks = |index: u32| self.counts[index as usize] as f32 + 1.0;
        let alone: f32 = group.iter().map(|&index| blocks(index)).sum();
        if alone < blocks(first) * self.vector_cost {
            self.next += 1;
            return Some(Step::Alone(first));
        }
        self.next += group.len();
        Some(Step::Together(group))
    }
}

/// Returns the indices of the messages, longest first.
///
/// # Panics
/// If there are 2^32 messages or more.
pub(super) fn by_length(messages: &[Message<'_>]) -> Vec<u32> {
    longest_first(&block_counts(messages))
}

fn block_counts(messages: &[Message<'_>]) -> Vec<u32> {
    assert!(u32::try_from(messages.len()).is_ok(), "more than 2^32 messages in one batch");
    messages.iter().map(|message| block_count(message).min(u32::MAX as usize) as u32).collect()
}

/// Returns the indices of `counts`, greatest count first.
fn longest_first(counts: &[u32]) -> Vec<u32> {
    let bucket = |count: u32| LONG - (count as usize).min(LONG);
    let mut starts = [0_u32; LONG + 1];
    for count in counts {
        starts[bucket(*count)] += 1;
    }
    let long = starts[0] as usize;
    let mut sum = 0;
    for start in &mut starts {
        sum += std::mem::replace(start, sum);
    }
    let mut order = vec![0; counts.len()];
    for (index, count) in counts.iter().enumerate() {
        let place = &mut starts[bucket(*count)];
        order[*place as usize] = index as u32;
        *place += 1;
    }
    order[..long].sort_unstable_by_key(|&index| std::cmp::Reverse(counts[index as usize]));
    order
}

/// A message on its way through a lane, cut to blocks.
#[derive(Clone, Copy)]
pub(super) struct Lane<'a> {
    pub(super) message: Message<'a>,
    /// The message's length in bytes.
    pub(super) length: usize,
    /// How many blocks the padded message fills.
    pub(super) blocks: usize,
    /// The blocks that lie within the longest part, and the number of the first of them.
    whole: &'a [Block],
    first_whole: usize,
}

/// Returns the lanes of a group's messages; those left over hold an empty message.
pub(super) fn lanes_of<'a, const LANES: usize>(messages: &[Message<'a>], group: &[u32]) -> [Lane<'a>; LANES] {
    let mut lanes = [Lane::new(Message([&[]; 3])); LANES];
    for (lane, &index) in lanes.iter_mut().zip(group) {
        *lane = Lane::new(messages[index as usize]);
    }
    lanes
}

impl<'a> Lane<'a> {
    #[inline]
    fn new(message: Message<'a>) -> Self {
        let mut start: usize = 0;
        let (mut whole, mut first_whole): (&[Block], usize) = (&[], 0);
        for part in message.0 {
            let first = start.div_ceil(64);
            if let Some(aligned) = part.get(first * 64 - start..)
                && aligned.len() / 64 > whole.len()
            {
                (whole, first_whole) = (aligned.as_chunks::<64>().0, first);
            }
            start += part.len();
        }
        Self { message, length: start, blocks: block_count(&message), whole, first_whole }
    }

    /// Returns block `number` where it lies, if it lies within one part.
    #[inline]
    pub(super) fn whole_block(&self, number: usize) -> Option<&'a Block> {
        self.whole.get(number.wrapping_sub(self.first_whole))
    }

    /// Returns block `number` of the padded message, put together in `scratch` if it must be.
    #[inline]
    pub(super) fn block<'s>(&self, number: usize, scratch: &'s mut Block) -> &'s Block
    where
        'a: 's,
    {
        match self.whole_block(number) {
            Some(block) => block,
            None => {
                self.piece_block(number, scratch);
                scratch
            }
        }
    }

    /// Puts a block together from the parts that reach into it and the padding.
    fn piece_block(&self, number: usize, block: &mut Block) {
        *block = [0; 64];
        let begin = number * 64;
        let mut start = 0;
        for part in self.message.0 {
            let end = start + part.len();
            let (from, to) = (start.max(begin), end.min(begin + 64));
            if from < to {
                block[from - begin..to - begin].copy_from_slice(&part[from - start..to - start]);
            }
            start = end;
        }
        if (begin..begin + 64).contains(&self.length) {
            block[self.length - begin] = 0x80;
        }
        if number + 1 == self.blocks {
            block[56..].copy_from_slice(&((self.length as u64) << 3).to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(lengths: &[usize], vector_cost: f32) -> (usize, usize) {
        let bytes = vec![0; lengths.iter().copied().max().unwrap_or(0)];
        let messages: Vec<_> = lengths.iter().map(|&length| Message::from(&bytes[..length])).collect();
        let (mut alone, mut groups, mut seen) = (0, 0, vec![0; lengths.len()]);
        let mut plan = Plan::<16>::new(&messages, vector_cost);
        let mut last = usize::MAX;
        while let Some(step) = plan.next_step() {
            let indices = match step {
                Step::Alone(index) => {
                    alone += 1;
                    vec![index as usize]
                }
                Step::Together(group) => {
                    groups += 1;
                    group.iter().map(|&index| index as usize).collect()
                }
            };
            for index in indices {
                seen[index] += 1;
                let blocks = block_count(&messages[index]);
                assert!(blocks <= last, "message {index} of {blocks} blocks comes after one of {last}");
                last = blocks;
            }
        }
        assert!(seen.iter().all(|&times| times == 1), "each message must have one turn: {seen:?}");
        (alone, groups)
    }

    #[test]
    fn each_message_has_one_turn_and_neighbours_share() {
        assert_eq!(check(&[], 6.0), (0, 0));
        assert_eq!(check(&[100; 5], 6.0), (5, 0), "five lanes cost more than five streams");
        assert_eq!(check(&[100; 6], 6.0), (0, 1));
        assert_eq!(check(&[100; 38], 6.0), (0, 3));
        let mut mixed = vec![250; 32];
        mixed.extend([400_000, 20_000, 16_384, 17_000]);
        assert_eq!(check(&mixed, 6.0), (4, 2), "the long ones go alone");
        assert_eq!(check(&[20_000; 16], 6.0), (0, 1), "long ones of one length share");
        assert_eq!(check(&(0..400).map(|i| i * 97 % 40_000).collect::<Vec<_>>(), 6.0).1, 25);
    }
}
