//! The ages of coins: after chosen blocks, the numbers and amounts of coins by age and script type, from one
//! pass over the blocks and their undo data.

use crate::script_type::ScriptType;
use bitcoin::Script;
use engine::{
    BlockHash, BlockTime, CompressedScript, Error, Height, Subject,
    blocks::{BlockConsumer, BlockData, PartConsumer},
    is_unspendable,
};
use std::{
    array,
    collections::{BTreeMap, BTreeSet, HashMap},
    iter::Sum,
    mem,
    ops::{AddAssign, Range, RangeInclusive},
    sync::{Mutex, PoisonError},
};

pub(crate) const SECONDS_PER_DAY: u64 = 86_400;

/// Bands of ages in days. Each begins where the one before ends; the first begins at 0, the last has no end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgeBands(Vec<u32>);

impl AgeBands {
    /// Bands that end at these numbers of days, and one more.
    ///
    /// # Errors
    /// If the numbers do not ascend from 1.
    pub fn new(days: Vec<u32>) -> Result<Self, &'static str> {
        match days.first() != Some(&0) && days.is_sorted_by(|before, after| before < after) {
            true => Ok(Self(days)),
            false => Err("the days at which bands of ages end must ascend from 1"),
        }
    }

    /// Returns the first day of each band, and the day at which it ends.
    pub fn days(&self) -> impl Iterator<Item = (u32, Option<u32>)> {
        let starts = [0].into_iter().chain(self.0.iter().copied());
        starts.zip(self.0.iter().copied().map(Some).chain([None]))
    }

    /// Returns, for each band, the heights of the blocks whose coins are of its age after the block at
    /// `height`. Ages are differences of median times, which always grow.
    fn heights(&self, height: Height, median_times: &[BlockTime]) -> Vec<Range<usize>> {
        let mut end = height.0 as usize + 1;
        let times = median_times.get(..end).unwrap_or_default();
        let now = times.last().map_or(0, |time| u64::from(time.0));
        let start = |days: u32| {
            let age = u64::from(days) * SECONDS_PER_DAY;
            times.partition_point(|time| u64::from(time.0) + age <= now)
        };
        let starts = self.0.iter().map(|&days| start(days)).chain([0]);
        starts.map(|start| start..mem::replace(&mut end, start)).collect()
    }
}

/// How many coins, and their amount in satoshis; or a change of both.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Held {
    pub coins: i64,
    pub amount: i64,
}

impl AddAssign for Held {
    fn add_assign(&mut self, other: Self) {
        self.coins += other.coins;
        // By false undo data, amounts can be of any size: see `State::add`.
        self.amount = self.amount.saturating_add(other.amount);
    }
}

impl<'a> Sum<&'a Self> for Held {
    fn sum<I: Iterator<Item = &'a Self>>(all: I) -> Self {
        let mut sum = Self::default();
        all.for_each(|held| sum += *held);
        sum
    }
}

/// The coins of one age, by script type in the order of [`ScriptType::ALL`].
pub type ByType = [Held; ScriptType::ALL.len()];

/// The ages of coins after a block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgesAt {
    pub height: Height,
    pub hash: BlockHash,
    pub time: BlockTime,
    /// The median of its time and those of the ten blocks below, from which ages are counted.
    pub median_time: BlockTime,
    /// The coins of each band, the youngest first.
    pub bands: Vec<ByType>,
}

/// Takes all blocks from the first on, with their coins, and gives the ages after some of them in order.
///
/// Coins that the UTXO set never has are left out, and the coins of the two coinbases that later ones have
/// overwritten. It holds 16 bytes for each block and script type.
pub struct Ages<E> {
    bands: AgeBands,
    heights: BTreeSet<Height>,
    state: Mutex<State<E>>,
}

struct State<E> {
    /// First height of the next part.
    next: u32,
    /// Parts that are read, but not those before them, by their first height: what they change, and the
    /// height after their last.
    waiting: BTreeMap<u32, (Vec<Span>, u32)>,
    /// The coins of each block that are unspent, by type.
    held: [Vec<Held>; ScriptType::ALL.len()],
    each: E,
}

/// What consecutive blocks change.
#[derive(Default)]
struct Span {
    /// By height of creation and type.
    changes: HashMap<(u32, ScriptType), Held>,
    /// The last block, if ages after it are wanted: what is known of it, and the heights of each band.
    wanted: Option<(AgesAt, Vec<Range<usize>>)>,
}

impl Span {
    fn add(&mut self, height: Height, script_type: ScriptType, coins: i64, amount: i64) {
        *self.changes.entry((height.0, script_type)).or_default() += Held { coins, amount };
    }
}

impl<E: FnMut(&AgesAt) -> Result<(), Error>> Ages<E> {
    /// Gives the ages after the blocks at `heights`, the last of which is the last one, to `each` in order.
    pub fn new(bands: AgeBands, heights: BTreeSet<Height>, each: E) -> Self {
        let blocks = heights.last().map_or(0, |last| last.0 as usize + 1);
        let held = array::from_fn(|_| vec![Held::default(); blocks]);
        let (next, waiting) = Default::default();
        Self { bands, heights, state: Mutex::new(State { next, waiting, held, each }) }
    }
}

impl<E: FnMut(&AgesAt) -> Result<(), Error>> State<E> {
    fn add(&mut self, span: Span) -> Result<(), Error> {
        for ((height, script_type), change) in span.changes {
            let held = self.held.get_mut(script_type as usize).and_then(|of| of.get_mut(height as usize));
            let Some(held) = held else { continue };
            *held += change;
            if held.coins < 0 || held.amount < 0 {
                let detail = format!(
                    "the undo data is false: by it, more coins of the block at height {height} were spent \
                     than it created"
                );
                return Err(Error::damaged(detail).about(Subject::UndoData));
            }
        }
        let Some((mut ages, bands)) = span.wanted else { return Ok(()) };
        let of_band = |Range { start, end }| {
            self.held.each_ref().map(|of| of.iter().take(end).skip(start).sum::<Held>())
        };
        ages.bands = bands.into_iter().map(of_band).collect();
        (self.each)(&ages)
    }
}

impl<E: FnMut(&AgesAt) -> Result<(), Error> + Send> BlockConsumer for Ages<E> {
    fn begin_part(&self, heights: RangeInclusive<u32>) -> Result<Option<Box<dyn PartConsumer + '_>>, Error> {
        Ok(Some(Box::new(Part { ages: self, heights, spans: vec![Span::default()] })))
    }
}

struct Part<'a, E> {
    ages: &'a Ages<E>,
    heights: RangeInclusive<u32>,
    spans: Vec<Span>,
}

impl<E: FnMut(&AgesAt) -> Result<(), Error> + Send> PartConsumer for Part<'_, E> {
    fn block(&mut self, block: &BlockData<'_>) -> Result<(), Error> {
        let &BlockData { params, height, hash, .. } = block;
        let Some(span) = self.spans.last_mut() else { return Ok(()) };
        let is_overwritten = params.is_overwritten_coinbase(height, &hash);
        let txs = block.block.txs().skip(usize::from(is_overwritten));
        // The coins of the genesis block do not exist.
        for output in txs.filter(|_| height.0 > 0).flat_map(|tx| tx.outputs()) {
            let script = output.script_pubkey();
            if !is_unspendable(script) {
                span.add(height, ScriptType::of(Script::from_bytes(script)), 1, output.value().0);
            }
        }
        for coin in block.coins {
            if coin.height > height {
                let error = Error::damaged("the undo data is false: it has a coin of a higher block");
                return Err(error.at_block(height, hash).about(Subject::UndoData));
            }
            let script_type = match coin.script {
                CompressedScript::P2pkh(_) => ScriptType::P2pkh,
                CompressedScript::P2sh(_) => ScriptType::P2sh,
                CompressedScript::P2pk { .. } => ScriptType::P2pk,
                CompressedScript::Raw(script) => ScriptType::of(Script::from_bytes(script)),
            };
            span.add(coin.height, script_type, -1, -coin.amount.0);
        }
        if self.ages.heights.contains(&height) {
            let (time, median_time) = (block.block.header().time, block.median_time);
            let ages = AgesAt { height, hash, time, median_time, bands: Vec::new() };
            span.wanted = Some((ages, self.ages.bands.heights(height, block.median_times)));
            self.spans.push(Span::default());
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), Error> {
        let state = &mut *self.ages.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.waiting.insert(*self.heights.start(), (self.spans, self.heights.end() + 1));
        while let Some((spans, next)) = state.waiting.remove(&state.next) {
            state.next = next;
            spans.into_iter().try_for_each(|span| state.add(span))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Once, the sum of what false undo data claims was another amount.
    #[test]
    fn amounts_do_not_wrap_around() {
        let spent = Held { coins: -1, amount: -i64::MAX };
        assert_eq!([spent; 2].iter().sum::<Held>(), Held { coins: -2, amount: i64::MIN });
    }

    /// Once, it grew by doubling, beyond the memory that callers leave to it.
    #[test]
    fn the_coins_of_each_block_take_no_more_memory_than_is_said() {
        let heights = [Height(4), Height(99_999)].into();
        let ages = Ages::new(AgeBands(Vec::new()), heights, |_: &AgesAt| Ok(()));
        let held = ages.state.into_inner().unwrap().held;
        let bytes: usize = held.iter().map(|of| of.capacity() * size_of::<Held>()).sum();
        assert_eq!(bytes, 100_000 * 16 * ScriptType::ALL.len());
        assert_eq!(held.map(|of| of.len()), [100_000; ScriptType::ALL.len()]);
    }

    #[test]
    fn bands_are_the_heights_of_their_ages() {
        let days = |days: &[u32]| AgeBands::new(days.to_vec());
        assert!(days(&[0, 1]).is_err() && days(&[7, 7]).is_err() && days(&[7, 1]).is_err());
        let bands = days(&[1, 7]).unwrap();
        assert_eq!(bands.days().collect::<Vec<_>>(), [(0, Some(1)), (1, Some(7)), (7, None)]);
        // Median times in days.
        let times = [100, 105, 106, 106, 107].map(|day| BlockTime(day * 86_400));
        let heights = |height| bands.heights(Height(height), &times);
        assert_eq!(heights(0), [0..1, 0..0, 0..0]);
        assert_eq!(heights(1), [1..2, 0..1, 0..0]);
        assert_eq!(heights(3), [2..4, 0..2, 0..0], "a day is not under a day");
        assert_eq!(heights(4), [4..5, 1..4, 0..1]);
        let all = days(&[]).unwrap().heights(Height(4), &times);
        assert_eq!((all.len(), &all[0]), (1, &(0..5)));
    }
}
