//! Assigns messages to lanes. A lane costs the same whether it has work or not, so each lane takes the next
//! message as soon as it has finished one, the longest first; only messages so long that all others would
//! end before them are hashed as streams.

use super::portable::{INITIAL, K, schedule};
use super::{Block, Message, State, block_count};

/// The 64 schedule words of the padding block after a message of 64 bytes (the one bit, zeros, and 512), each
/// plus its round constant: the second block of a pair of nodes needs no schedule.
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

/// Sixteen rounds of all lanes with the calling module's `round!`; `$wk` maps the round's index within the
/// sixteen to word plus constant.
macro_rules! sixteen_rounds {
    ($v:ident, $wk:expr) => {
        let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = $v;
        round!(a b c d e f g h, $wk(0));
        round!(h a b c d e f g, $wk(1));
        round!(g h a b c d e f, $wk(2));
        round!(f g h a b c d e, $wk(3));
        round!(e f g h a b c d, $wk(4));
        round!(d e f g h a b c, $wk(5));
        round!(c d e f g h a b, $wk(6));
        round!(b c d e f g h a, $wk(7));
        round!(a b c d e f g h, $wk(8));
        round!(h a b c d e f g, $wk(9));
        round!(g h a b c d e f, $wk(10));
        round!(f g h a b c d e, $wk(11));
        round!(e f g h a b c d, $wk(12));
        round!(d e f g h a b c, $wk(13));
        round!(c d e f g h a b, $wk(14));
        round!(b c d e f g h a, $wk(15));
        $v = [a, b, c, d, e, f, g, h];
    };
}
pub(super) use sixteen_rounds;

/// Defines the method `with_features`, which runs work compiled for `$features`.
macro_rules! with_features {
    ($features:literal) => {
        #[inline(always)]
        fn with_features<R>(self, work: impl FnOnce() -> R) -> R {
            #[target_feature(enable = $features)]
            fn with_features<R>(work: impl FnOnce() -> R) -> R {
                work()
            }
            // SAFETY: `self` proves the features.
            unsafe { with_features(work) }
        }
    };
}
pub(super) use with_features;

/// Messages of at least this many blocks are few and sorted by comparison; all others are counting-sorted.
const LONG_BLOCKS: usize = 256;

/// The times of compressions, all in the same unit, from which the split of a batch is computed.
#[derive(Clone, Copy)]
pub(crate) struct Costs {
    /// One compression in all lanes.
    pub(super) vector: f32,
    /// One compression of a single stream.
    pub(super) single: f32,
    /// One compression of two interleaved streams: half the time of both.
    pub(super) paired: f32,
}

/// The split of a batch between streams and lanes: indices of messages, longest first.
pub(super) struct BatchSplit {
    order: Vec<u32>,
    streams: usize,
}

impl BatchSplit {
    /// Splits a batch so that it takes the least time.
    ///
    /// # Panics
    /// If there are 2^32 messages or more.
    pub(super) fn new<const LANES: usize>(messages: &[Message<'_>], costs: Costs) -> Self {
        let counts = block_counts(messages);
        let order = longest_first(&counts);
        let streams = stream_count::<LANES>(&counts, &order, costs);
        Self { order, streams }
    }

    /// Messages to hash as streams: those so long that other lanes would be idle at the end, or all messages
    /// of a batch so small that most lanes would have none.
    pub(super) fn streams(&self) -> &[u32] {
        &self.order[..self.streams]
    }

    /// Messages to hash in lanes.
    pub(super) fn lanes(&self) -> &[u32] {
        &self.order[self.streams..]
    }
}

/// Returns how many of the longest messages should be hashed as streams.
fn stream_count<const LANES: usize>(counts: &[u32], order: &[u32], costs: Costs) -> usize {
    /// More streams never pay off: that many long messages keep the lanes busy by themselves.
    const MAX_STREAMS: usize = 256;
    let blocks = |place: usize| order.get(place).map_or(0.0, |&index| counts[index as usize] as f32);
    let lanes = LANES as f32;
    let mut in_lanes: f32 = counts.iter().map(|&count| count as f32).sum();
    let mut in_streams = 0.0;
    let mut best = (0, f32::MAX);
    for taken in 0..=order.len().min(MAX_STREAMS) {
        let messages = (order.len() - taken) as f32;
        // Lower bounds of the steps in lanes: the longest message; all blocks spread evenly; two messages in
        // the same lane. The second hashes come on top.
        let even = (in_lanes / lanes).ceil();
        let steps = blocks(taken).max(even).max(2.0 * blocks(taken + LANES)) + (messages / lanes).ceil();
        let unpaired = (2.0 * blocks(0) - in_streams).clamp(0.0, in_streams);
        let streams = unpaired * costs.single + (in_streams - unpaired) * costs.paired;
        let time = steps * costs.vector + streams;
        if time < best.1 {
            best = (taken, time);
        }
        in_lanes -= blocks(taken);
        in_streams += blocks(taken) + 1.0; // and the second hash
    }
    best.0
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
    messages.iter().map(|message| block_count(message.len()).min(u32::MAX as usize) as u32).collect()
}

/// Returns the indices of `counts`, greatest count first.
fn longest_first(counts: &[u32]) -> Vec<u32> {
    let bucket = |count: u32| LONG_BLOCKS - (count as usize).min(LONG_BLOCKS);
    let mut starts = [0_u32; LONG_BLOCKS + 1];
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

/// The states of all lanes in vector order: word `w` of lane `i` is `[w][i]`.
#[repr(C, align(64))]
#[derive(Clone)]
pub(super) struct States<const LANES: usize>(pub(super) [[u32; LANES]; 8]);

impl<const LANES: usize> States<LANES> {
    #[inline]
    pub(super) fn set(&mut self, lane: usize, state: &State) {
        self.0.iter_mut().zip(state).for_each(|(words, word)| words[lane] = *word);
    }

    #[inline]
    pub(super) fn lane(&self, lane: usize) -> State {
        self.0.each_ref().map(|words| words[lane])
    }
}

/// Hashes `LANES` messages side by side.
pub(super) trait LaneHasher<const LANES: usize> {
    /// Compresses the next `steps` blocks of each lane's message. The states of idle lanes are unspecified.
    fn add(&self, states: &mut States<LANES>, lanes: &[Lane<'_>; LANES], steps: usize);

    /// Returns the SHA-256 of each lane's digest; only the first `live` results are used.
    fn hash_digests(&self, states: &States<LANES>, live: usize) -> [[u8; 32]; LANES];
}

/// Writes the SHA-256d of the messages that `order` lists to the digests of the same indices.
///
/// As soon as a lane has finished its message it begins the next. Second hashes are collected until there
/// is one for each lane.
pub(super) fn sha256d_ordered<const LANES: usize>(
    hasher: &impl LaneHasher<LANES>,
    messages: &[Message<'_>],
    order: &[u32],
    digests: &mut [[u8; 32]],
) {
    let mut states = States([[0; LANES]; 8]);
    let mut first_hashes = (states.clone(), [0; LANES], 0);
    let mut second_hash = |(states, indices, count): &mut (States<LANES>, [u32; LANES], usize)| {
        let hashes = hasher.hash_digests(states, *count);
        for (&index, hash) in indices[..*count].iter().zip(hashes) {
            digests[index as usize] = hash;
        }
        *count = 0;
    };
    let mut queue = order.iter();
    let mut lanes = [Lane::IDLE; LANES];
    let mut steps = 0;
    loop {
        for (number, lane) in lanes.iter_mut().enumerate() {
            lane.number += steps;
            if lane.blocks_left() > 0 {
                continue;
            }
            if lane.blocks > 0 {
                let (first_hash_states, indices, count) = &mut first_hashes;
                first_hash_states.set(*count, &states.lane(number));
                indices[*count] = lane.index;
                *count += 1;
                if *count == LANES {
                    second_hash(&mut first_hashes);
                }
            }
            *lane = match queue.next() {
                Some(&index) => Lane::new(messages, index),
                None => Lane::IDLE,
            };
            states.set(number, &INITIAL);
        }
        let running = lanes.iter().map(Lane::blocks_left).filter(|&blocks_left| blocks_left > 0);
        let Some(shortest) = running.min() else { break };
        hasher.add(&mut states, &lanes, shortest);
        steps = shortest;
    }
    if first_hashes.2 > 0 {
        second_hash(&mut first_hashes);
    }
}

/// The state of a lane: its message, cut into blocks, and how far it has been hashed.
#[derive(Clone, Copy)]
pub(super) struct Lane<'a> {
    pub(super) message: Message<'a>,
    /// The message's length in bytes.
    pub(super) length: usize,
    /// Number of blocks in the padded message; 0 if the lane is idle.
    pub(super) blocks: usize,
    /// Number of blocks that have been compressed.
    pub(super) number: usize,
    index: u32,
    /// The longest sequence of blocks that lie within one part.
    whole: &'a [Block],
    /// The number of the first block in `whole`.
    first_whole: usize,
}

impl<'a> Lane<'a> {
    const IDLE: Lane<'static> = Lane {
        message: Message([&[]; 3]),
        length: 0,
        blocks: 0,
        number: 0,
        index: 0,
        whole: &[],
        first_whole: 0,
    };

    #[inline]
    fn new(messages: &[Message<'a>], index: u32) -> Self {
        let message = messages[index as usize];
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
        let blocks = block_count(message.len());
        Self { message, length: start, blocks, number: 0, index, whole, first_whole }
    }

    /// Returns the number of blocks that remain.
    #[inline]
    pub(super) fn blocks_left(&self) -> usize {
        self.blocks.saturating_sub(self.number)
    }

    /// Returns block `number` without copying it, or `None` if it is not in `whole`.
    #[inline]
    pub(super) fn whole_block(&self, number: usize) -> Option<&'a Block> {
        self.whole.get(number.wrapping_sub(self.first_whole))
    }

    /// Returns block `number` of the padded message, assembled in `scratch` if it spans parts or has padding.
    #[inline]
    pub(super) fn block<'s>(&self, number: usize, scratch: &'s mut Block) -> &'s Block
    where
        'a: 's,
    {
        match self.whole_block(number) {
            Some(block) => block,
            None => {
                self.assemble_block(number, scratch);
                scratch
            }
        }
    }

    /// Assembles a block from the parts that overlap it and the padding.
    fn assemble_block(&self, number: usize, block: &mut Block) {
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

    const COSTS: Costs = Costs { vector: 250.0, single: 32.0, paired: 27.0 };

    /// Splits messages of these lengths and returns the numbers of streams and of messages in lanes.
    fn split_counts(lengths: &[usize]) -> (usize, usize) {
        let bytes = vec![0; lengths.iter().copied().max().unwrap_or(0)];
        let messages: Vec<_> = lengths.iter().map(|&length| Message::from(&bytes[..length])).collect();
        let split = BatchSplit::new::<16>(&messages, COSTS);
        let mut seen = vec![0; lengths.len()];
        let mut last = usize::MAX;
        for &index in split.streams().iter().chain(split.lanes()) {
            seen[index as usize] += 1;
            let blocks = block_count(messages[index as usize].len());
            assert!(blocks <= last, "message {index} of {blocks} blocks comes after one of {last}");
            last = blocks;
        }
        assert!(seen.iter().all(|&times| times == 1), "each message must occur once: {seen:?}");
        (split.streams().len(), split.lanes().len())
    }

    #[test]
    fn only_messages_that_would_leave_lanes_idle_become_streams() {
        assert_eq!(split_counts(&[]), (0, 0));
        assert_eq!(split_counts(&[100; 5]), (5, 0), "five lanes cost more than five streams");
        assert_eq!(split_counts(&[100; 12]), (0, 12));
        assert_eq!(split_counts(&[100; 17]), (1, 16), "the seventeenth would make all lanes run twice");
        assert_eq!(split_counts(&[100; 48]), (0, 48));
        let mut mixed = vec![250; 320];
        mixed.extend([400_000, 2_000, 4_000]);
        assert_eq!(split_counts(&mixed), (1, 322), "the long one is a stream, and the others fill the lanes");
        assert_eq!(split_counts(&[20_000; 16]), (0, 16), "long messages of equal length fill the lanes");
        assert_eq!(split_counts(&(0..400).map(|i| i * 97 % 40_000).collect::<Vec<_>>()), (0, 400));
    }
}
