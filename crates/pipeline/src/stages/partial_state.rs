//! What a set of blocks amounts to, besides its creations and spends, which are in the join or in sorted
//! runs.
//!
//! Each worker has a partial state, the checkpoint has one, and the job is done when the merged state
//! contains all blocks. Merging is associative and commutative, so it does not matter which blocks were
//! processed together, in which order, or before which interrupt.

use crate::stages::{completed_blocks::CompletedBlocks, method::Method};
use api::{
    counts::Counts,
    error::{Error, ErrorKind},
};
use coins::{CoinbaseTxids, SipKey, aggregate::Sum};
use disk::{
    block_files::RecordBuffer,
    checkpoint::{SavedMatching, SavedState},
};
use wire::Height;

/// The state of some blocks of a job.
pub struct PartialState {
    pub completed: CompletedBlocks,
    pub counts: Counts,
    pub coinbases: CoinbaseTxids,
    pub matching: MatchState,
    /// Blocks whose undo data has yet to be made or taken, in any order.
    pub routed: Vec<RoutedBlock>,
    /// Length of the undo data that was made for each block, in any order.
    pub made: Vec<(Height, u32)>,
}

/// What a method of matching keeps besides the join.
pub enum MatchState {
    /// The join keeps everything.
    Join,
    /// The sum is that of all coins created less all coins spent; it has the aggregate's key. `burned` is the
    /// amount of unspendable outputs, in satoshi, in blocks without undo data.
    Hints { sum: Sum, burned: u64 },
}

/// A block whose undo data is made or taken from a peer's claims, and what is needed to check its spends
/// without hashing it again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RoutedBlock {
    pub height: Height,
    /// CRC-32C of its bytes: other bytes were not checked.
    pub checksum: u32,
    /// Number of signature operations of its own scripts.
    pub legacy_sigops: u32,
    /// Whether its spends were checked with claims that a peer has sent.
    pub is_claimed: bool,
}

impl RoutedBlock {
    /// A block; `is_claimed`: its spends were checked with a peer's claims.
    pub fn new(height: Height, block: &RecordBuffer, legacy_sigops: u32, is_claimed: bool) -> Self {
        // A block with claims is not read again.
        let checksum = if is_claimed { 0 } else { block.crc32c() };
        Self { height, checksum, legacy_sigops, is_claimed }
    }
}

/// The error for parts of one job that cannot be merged, which is a bug.
fn conflict(why: &str) -> Error {
    let detail = format!("two parts of the job cannot be merged: {why}; please report this bug");
    Error::new(ErrorKind::Internal, detail)
}

impl PartialState {
    /// The state of no blocks, of a chain of `blocks`. See [`CoinbaseTxids::new`] for `coinbase_key`.
    pub fn empty(blocks: usize, coinbase_key: SipKey, method: &Method) -> Self {
        Self {
            completed: CompletedBlocks::none(blocks),
            counts: Counts::default(),
            coinbases: CoinbaseTxids::new(coinbase_key),
            matching: MatchState::empty(method),
            routed: Vec::new(),
            made: Vec::new(),
        }
    }

    /// Returns the state of the blocks of both.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`] if a block is in both, or they are not of the same job.
    pub fn merge(mut self, other: Self) -> Result<Self, Error> {
        if self.coinbases.key() != other.coinbases.key() {
            return Err(conflict("their coinbase txids are hashed with different keys"));
        }
        let completed = self.completed.disjoint_union(&other.completed);
        let completed = completed.ok_or_else(|| conflict("a block is in both"))?;
        let matching = self.matching.merge(other.matching)?;
        self.counts += other.counts;
        self.coinbases.merge(other.coinbases);
        self.routed.extend(other.routed);
        self.made.extend(other.made);
        Ok(Self { completed, matching, ..self })
    }

    /// Returns the form in which a checkpoint of a chain of `blocks` contains this state. Its coinbases are
    /// moved there, until [`PartialState::take_back`].
    pub fn save(&mut self, blocks: usize) -> SavedState {
        debug_assert!(self.routed.is_empty(), "undo data is made before a checkpoint");
        SavedState {
            blocks: blocks as u32,
            completed: self.completed.words().to_vec(),
            counts: self.counts.to_words(),
            coinbase_key: self.coinbases.key(),
            coinbases: self.coinbases.take_hashes(),
            matching: self.matching.save(),
            made: if self.made.is_empty() { Vec::new() } else { by_height(&self.made, blocks) },
        }
    }

    /// Takes the coinbases back that [`PartialState::save`] has moved: a copy would take much memory.
    pub fn take_back(&mut self, saved: SavedState) {
        self.coinbases = CoinbaseTxids::from_parts(saved.coinbase_key, saved.coinbases);
    }

    /// Restores what [`PartialState::save`] returned, for a chain that now has `blocks`. Returns `None` if
    /// it was saved with another method, or with another key or kind of sum.
    pub fn restore(saved: SavedState, blocks: usize, method: &Method) -> Option<Self> {
        let completed = CompletedBlocks::from_words(saved.completed, blocks);
        Some(Self {
            matching: MatchState::restore(saved.matching, method)?,
            completed,
            counts: Counts::of_words(saved.counts),
            coinbases: CoinbaseTxids::from_parts(saved.coinbase_key, saved.coinbases),
            routed: Vec::new(),
            made: (0..).map(Height).zip(saved.made).filter(|&(_, len)| len > 0).collect(),
        })
    }
}

impl MatchState {
    /// The state before the first block.
    pub fn empty(method: &Method) -> Self {
        match method {
            Method::Join | Method::Routed { .. } => Self::Join,
            Method::Hints(matching) => Self::Hints { sum: matching.aggregate.sum(), burned: 0 },
        }
    }

    fn merge(self, other: Self) -> Result<Self, Error> {
        match (self, other) {
            (Self::Join, Self::Join) => Ok(Self::Join),
            (Self::Hints { mut sum, burned }, Self::Hints { sum: other, burned: more }) => {
                if !sum.can_merge(&other) {
                    return Err(conflict("their sums have different keys or are of different kinds"));
                }
                sum.merge(other);
                Ok(Self::Hints { sum, burned: burned.saturating_add(more) })
            }
            _ => Err(conflict("their methods of matching differ")),
        }
    }

    fn save(&mut self) -> SavedMatching {
        match self {
            Self::Join => SavedMatching::Join,
            Self::Hints { sum, burned } => {
                let key = (*sum.key().as_bytes()).into();
                SavedMatching::Hints { key, burned: *burned, sum: sum.to_bytes() }
            }
        }
    }

    fn restore(saved: SavedMatching, method: &Method) -> Option<Self> {
        match (method, saved) {
            (Method::Join | Method::Routed { .. }, SavedMatching::Join) => Some(Self::Join),
            (Method::Hints(matching), SavedMatching::Hints { key, burned, sum })
                if *key == *matching.aggregate.key().as_bytes() =>
            {
                Some(Self::Hints { sum: matching.aggregate.sum_from_bytes(&sum)?, burned })
            }
            _ => None,
        }
    }
}

/// Returns numbers of the blocks of a chain of `blocks` in order of height; 0 for blocks that are not in
/// `numbers`.
fn by_height(numbers: &[(Height, u32)], blocks: usize) -> Vec<u32> {
    let mut by_height = vec![0; blocks];
    for &(height, number) in numbers {
        if let Some(of_block) = by_height.get_mut(height.0 as usize) {
            *of_block = number;
        }
    }
    by_height
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stages::method::{HintMatching, UndoUse};
    use coins::aggregate::{Aggregate, AggregateKey, AggregateKind};
    use proptest::prelude::*;
    use wire::{OutPoint, Txid};

    const BLOCKS: usize = 130;
    const COINBASE_KEY: SipKey = SipKey(1, 2);

    fn hints(kind: AggregateKind, key: u8) -> Method {
        let aggregate = Aggregate::new(kind, AggregateKey::new([key; 32]));
        let matching = HintMatching::all_spent(aggregate, Height(BLOCKS as u32));
        Method::Hints(HintMatching { with_undo: false, above: UndoUse::IfSound, ..matching })
    }

    fn methods() -> Vec<Method> {
        let [sha256, siphash, muhash] = AggregateKind::ALL.map(|kind| hints(kind, 7));
        let routed = Method::Routed { uses_undo: true };
        vec![routed, sha256, siphash, muhash]
    }

    /// A block: which of three states it belongs to, if any; its coinbase, of which there are few, so that
    /// some occur twice; and a number from which all else follows.
    type Block = (Option<usize>, u8, u32);

    fn empty(method: &Method) -> PartialState {
        PartialState::empty(BLOCKS, COINBASE_KEY, method)
    }

    /// The state of the blocks that `is_in` selects.
    fn state(method: &Method, blocks: &[Block], is_in: impl Fn(usize) -> bool) -> PartialState {
        let mut state = empty(method);
        for (height, &(part, coinbase, number)) in (0..).map(Height).zip(blocks) {
            if !part.is_some_and(&is_in) {
                continue;
            }
            state.completed.add(height);
            let many = u64::from(number);
            let [inputs, outputs] = [many % 7, many % 11];
            let (transactions, block_bytes, scripts) = (many % 5, many << 8, many % 3);
            state.counts += Counts { blocks: 1, transactions, inputs, outputs, block_bytes, scripts };
            state.coinbases.push(&Txid([coinbase; 32]));
            match &mut state.matching {
                MatchState::Join => {}
                MatchState::Hints { sum, burned } => {
                    let outpoint = OutPoint { txid: Txid([number as u8; 32]), vout: number };
                    if number % 2 == 0 {
                        sum.add(&outpoint, None)
                    } else {
                        sum.subtract(&outpoint, None)
                    }
                    *burned = burned.saturating_add(if number % 13 == 0 { u64::MAX / 2 } else { many });
                }
            }
            if method.makes_undo() {
                state.made.push((height, number.max(1)));
            }
        }
        state
    }

    /// All that a state consists of, independent of the order in which it was merged.
    fn content(mut state: PartialState) -> (SavedState, u32, bool) {
        let has_duplicate = state.coinbases.has_duplicate();
        (state.save(BLOCKS), state.completed.count(), has_duplicate)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// The laws of a commutative monoid; and the state of several sets of blocks is the merged state.
        #[test]
        fn merging_partial_states_is_associative_and_commutative(
            blocks in prop::collection::vec((prop::option::of(0usize..3), 0u8..200, any::<u32>()), 0..BLOCKS),
        ) {
            for method in &methods() {
                let part = |wanted| state(method, &blocks, move |part| part == wanted);
                let all = content(state(method, &blocks, |_| true));
                let left = part(0).merge(part(1)).unwrap().merge(part(2)).unwrap();
                let right = part(0).merge(part(1).merge(part(2)).unwrap()).unwrap();
                prop_assert_eq!(content(left), all.clone());
                prop_assert_eq!(content(right), all.clone());
                let swapped = part(2).merge(part(1)).unwrap().merge(part(0)).unwrap();
                prop_assert_eq!(content(swapped), all);
                let one = content(part(1));
                prop_assert_eq!(content(part(1).merge(empty(method)).unwrap()), one.clone());
                prop_assert_eq!(content(empty(method).merge(part(1)).unwrap()), one);
            }
        }

        /// A saved state continues where it was, also if the chain has more blocks by then.
        #[test]
        fn saved_states_are_restored(
            blocks in prop::collection::vec((prop::option::of(0usize..2), 0u8..200, any::<u32>()), 0..BLOCKS),
        ) {
            for method in &methods() {
                let saved = state(method, &blocks, |part| part == 0).save(blocks.len().next_multiple_of(64));
                let restored = PartialState::restore(saved, BLOCKS, method).unwrap();
                let rest = state(method, &blocks, |part| part == 1);
                let all = state(method, &blocks, |_| true);
                prop_assert_eq!(content(restored.merge(rest).unwrap()), content(all));
            }
        }
    }

    #[test]
    fn conflicting_states_are_not_merged() {
        let blocks: [Block; 2] = [(Some(0), 1, 1), (Some(1), 2, 2)];
        let methods = methods();
        for (number, method) in methods.iter().enumerate() {
            let part = |wanted| state(method, &blocks, move |part| part == wanted);
            let conflict = |other| part(0).merge(other).map(drop).unwrap_err().detail.clone();
            assert!(conflict(part(0)).contains("a block is in both"));
            let other_key = PartialState::empty(BLOCKS, SipKey(1, 3), method);
            assert!(conflict(other_key).contains("coinbase txids"));
            for (other_number, other) in methods.iter().enumerate().filter(|(other, _)| *other != number) {
                let are_hints = number >= 1 && other_number >= 1;
                let expected = if are_hints { "their sums" } else { "their methods" };
                assert!(conflict(empty(other)).contains(expected));
                assert!(PartialState::restore(part(0).save(BLOCKS), BLOCKS, other).is_none());
            }
        }
        let sha256 = |key| hints(AggregateKind::Sha256, key);
        let conflict = empty(&sha256(7)).merge(empty(&sha256(8))).map(drop).unwrap_err();
        assert!(conflict.detail.contains("their sums"));
        assert!(PartialState::restore(empty(&sha256(7)).save(0), 0, &sha256(8)).is_none());
        // Two machines that were given the same key.
        assert!(empty(&sha256(7)).merge(empty(&sha256(7))).is_ok());
    }
}
