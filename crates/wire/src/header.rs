//! The 80-byte block header.
//!
//! Bytes (little-endian): version 4 | previous block hash 32 | merkle root 32 | time 4 | bits 4 | nonce 4.

use crate::{
    hash::BlockHash,
    read::{Reader, WireError},
    units::BlockTime,
};

/// A decoded block header (Core `CBlockHeader`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Header {
    /// Version; signed as in Core, since soft forks compare it as a signed number.
    pub version: i32,
    pub prev: BlockHash,
    /// Root of the merkle tree of txids.
    pub merkle_root: [u8; 32],
    pub time: BlockTime,
    /// Target in compact form (Core `nBits`).
    pub bits: u32,
    pub nonce: u32,
}

impl Header {
    /// Length of a serialised header, in bytes.
    pub const LEN: usize = 80;

    /// Decodes the next 80 bytes.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if there are fewer.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self {
            version: reader.array().map(i32::from_le_bytes)?,
            prev: BlockHash(reader.array()?),
            merkle_root: reader.array()?,
            time: BlockTime(reader.u32()?),
            bits: reader.u32()?,
            nonce: reader.u32()?,
        })
    }

    /// Returns the serialised header.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let fields: [&[u8]; 6] = [
            &self.version.to_le_bytes(),
            &self.prev.0,
            &self.merkle_root,
            &self.time.0.to_le_bytes(),
            &self.bits.to_le_bytes(),
            &self.nonce.to_le_bytes(),
        ];
        for (to, from) in bytes.iter_mut().zip(fields.into_iter().flatten()) {
            *to = *from;
        }
        bytes
    }

    /// Returns the block's hash: the SHA-256d of the 80 bytes.
    pub fn hash(&self) -> BlockHash {
        BlockHash(digest::sha256::sha256d(&self.to_bytes()))
    }

    /// Whether `hash`, which is that of this header, is within the target that the header states. What target
    /// the network requires is not known here; a target below 2^16, which no hash meets, counts as none.
    pub fn meets_own_target(&self, hash: &BlockHash) -> bool {
        let [low, middle, high, exponent] = self.bits.to_le_bytes();
        let mut target = [0; 32];
        for (byte, place) in [low, middle, high].into_iter().zip(usize::from(exponent)..) {
            match place.checked_sub(3).map(|place| target.get_mut(place)) {
                Some(Some(digit)) => *digit = byte,
                _ if byte > 0 => return false,
                _ => {}
            }
        }
        high & 0x80 == 0 && target != [0; 32] && hash.0.iter().rev().le(target.iter().rev())
    }
}

/// Returns the heights of a locator for a chain with this tip, highest first: the last ten, then ever larger
/// steps, then 0 (Core `LocatorEntries`). There are never more than 42.
pub fn locator_heights(tip: u32) -> Vec<u32> {
    let (mut heights, mut height, mut step) = (Vec::new(), tip, 1u32);
    loop {
        heights.push(height);
        if height == 0 {
            return heights;
        }
        height = height.saturating_sub(step);
        if heights.len() > 10 {
            step = step.saturating_mul(2);
        }
    }
}
