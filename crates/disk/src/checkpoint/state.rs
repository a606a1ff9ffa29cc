//! What the completed blocks of a job amount to, and its part of the manifest.

use super::check_list_lengths;
use crate::pack::{Malformed, Pack, pack_fields};
use digest::siphash::SipKey;
use std::fmt;
use wire::Reader;
use zeroize::Zeroizing;

/// The state of the completed blocks of a job, besides their unmatched creations and spends.
#[derive(Clone, PartialEq, Eq)]
pub struct SavedState {
    /// Number of blocks that have a bit in `completed`.
    pub blocks: u32,
    /// Bit h % 64 (the lowest is 0) of number h / 64: whether the block at height h is completed.
    pub completed: Vec<u64>,
    /// Numbers of blocks, transactions, inputs, outputs, bytes of blocks, and inputs whose scripts were run.
    pub counts: [u64; 6],
    /// Key of the hashes in `coinbases`, a secret.
    pub coinbase_key: SipKey,
    /// Keyed hashes of the completed blocks' coinbase txids, in any order.
    pub coinbases: Vec<u64>,
    /// The part that belongs to one method of matching.
    pub matching: SavedMatching,
    /// Length of the undo data that was made for each block, by height; 0 for blocks for which none was made.
    /// Empty if none was made at all.
    pub made: Vec<u32>,
}

/// The state that a method of matching keeps besides the unmatched creations and spends.
#[derive(Clone, PartialEq, Eq)]
pub enum SavedMatching {
    /// The join keeps nothing else.
    Join,
    Hints {
        /// Key of the sum, a secret.
        key: Zeroizing<[u8; 32]>,
        /// Amount of unspendable outputs, in satoshi, in blocks without undo data.
        burned: u64,
        /// The sum of all coins created less all coins spent.
        sum: Vec<u8>,
    },
}

impl fmt::Debug for SavedState {
    /// Omits fields that are secret or long.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let completed: u32 = self.completed.iter().map(|bits| bits.count_ones()).sum();
        f.debug_struct("SavedState")
            .field("blocks", &self.blocks)
            .field("completed", &completed)
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}

impl SavedState {
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let unused =
            self.completed.len() as u64 * 64 - u64::from(self.blocks).min(self.completed.len() as u64 * 64);
        let tail = self.completed.last().map_or(0, |bits| bits.leading_zeros());
        if self.completed.len() != self.blocks.div_ceil(64) as usize || u64::from(tail) < unused {
            return Err("its bits of completed blocks do not match its number of blocks");
        }
        let sum_len = match &self.matching {
            SavedMatching::Join => 0,
            SavedMatching::Hints { sum, .. } => sum.len(),
        };
        if !self.made.is_empty() && self.made.len() != self.blocks as usize {
            return Err("its lengths of undo data do not match its number of blocks");
        }
        check_list_lengths(&[self.coinbases.len(), sum_len])
    }
}

pack_fields!(SavedState { blocks, completed, counts, coinbase_key, coinbases, matching, made });

impl Pack for SavedMatching {
    fn put(&self, bytes: &mut Vec<u8>) {
        match self {
            Self::Join => bytes.push(0),
            Self::Hints { key, burned, sum } => {
                bytes.push(1);
                bytes.extend(&**key);
                burned.put(bytes);
                sum.put(bytes);
            }
        }
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        match reader.u8()? {
            0 => Ok(Self::Join),
            1 => Ok(Self::Hints {
                key: Zeroizing::new(reader.array()?),
                burned: Pack::take(reader)?,
                sum: Pack::take(reader)?,
            }),
            _ => Err(Malformed::Value("its method of matching is unknown")),
        }
    }
}
