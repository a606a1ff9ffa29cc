//! What the completed blocks of a job amount to, and its part of the manifest.

use super::{PieceWriter, check_list_lengths, read_numbers, read_numbers32};
use crate::error::DiskError;
use digest::siphash::SipKey;
use std::fmt;
use wire::{Reader, WireError};
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
    /// Matching with hints.
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

    /// Length of what [`SavedState::encode`] writes, in bytes.
    pub(super) fn encoded_len(&self) -> usize {
        let numbers = self.completed.len() + self.counts.len() + 2 + self.coinbases.len();
        let matching = match &self.matching {
            SavedMatching::Join => 0,
            SavedMatching::Hints { key, sum, .. } => key.len() + 8 + 4 + sum.len(),
        };
        4 + 4 + 1 + numbers * 8 + matching + 4 + self.made.len() * 4
    }

    pub(super) fn encode(&self, file: &mut PieceWriter<'_>) -> Result<(), DiskError> {
        file.put(&self.blocks.to_le_bytes())?;
        file.numbers(&self.completed)?;
        file.numbers(&self.counts)?;
        file.numbers(&[self.coinbase_key.0, self.coinbase_key.1])?;
        file.count(self.coinbases.len())?;
        file.numbers(&self.coinbases)?;
        match &self.matching {
            SavedMatching::Join => file.put(&[0])?,
            SavedMatching::Hints { key, burned, sum } => {
                file.put(&[1])?;
                file.put(&**key)?;
                file.numbers(&[*burned])?;
                file.count(sum.len())?;
                file.put(sum)?;
            }
        }
        file.count(self.made.len())?;
        file.numbers32(&self.made)
    }

    /// Decodes what [`SavedState::encode`] wrote. Returns `None` if no method of matching has this number.
    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Option<Self>, WireError> {
        let blocks = reader.u32()?;
        let completed = read_numbers(reader, blocks.div_ceil(64) as usize)?;
        let mut counts = [0; 6];
        for count in &mut counts {
            *count = reader.u64()?;
        }
        let (coinbase_key, coinbases) = (SipKey(reader.u64()?, reader.u64()?), reader.u32()?);
        let coinbases = read_numbers(reader, coinbases as usize)?;
        let matching = match reader.u8()? {
            0 => SavedMatching::Join,
            1 => {
                let (key, burned, len) = (Zeroizing::new(reader.array()?), reader.u64()?, reader.u32()?);
                SavedMatching::Hints { key, burned, sum: reader.bytes(len as usize)?.to_vec() }
            }
            _ => return Ok(None),
        };
        let made = reader.u32()?;
        let made = read_numbers32(reader, made as usize)?;
        Ok(Some(Self { blocks, completed, counts, coinbase_key, coinbases, matching, made }))
    }
}
