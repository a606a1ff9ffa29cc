//! The blocks between the lowest that is not stored and the highest that may be asked for.

use crate::peer::PeerId;
use std::collections::{BTreeSet, VecDeque};
use wire::BlockHash;

/// The state of a block in the window.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum SlotState {
    /// It has to be asked for.
    Missing,
    /// It was requested from these peers, in this order.
    Requested(Vec<PeerId>),
    /// It has come from `sender`, and the caller has it. The others were asked for it and have not answered.
    Delivered { sender: PeerId, others: Vec<PeerId> },
    /// The caller has stored it, or had it before.
    Stored,
}

#[derive(Clone, Debug)]
struct Slot {
    hash: BlockHash,
    /// Size in bytes, 0 until the block has come.
    bytes: u64,
    state: SlotState,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    start: u32,
    slots: VecDeque<Slot>,
    bytes: u64,
    missing: BTreeSet<u32>,
    requested: BTreeSet<u32>,
}

impl Window {
    pub(super) fn new(start: u32) -> Self {
        Self { start, ..Self::default() }
    }

    /// Lowest height that is not stored.
    pub(super) const fn start(&self) -> u32 {
        self.start
    }

    /// First height above the window.
    pub(super) fn end(&self) -> u32 {
        self.start + self.slots.len() as u32
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Bytes of the blocks in the window that have come.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn missing(&self) -> impl DoubleEndedIterator<Item = u32> {
        self.missing.iter().copied()
    }

    pub(super) fn missing_from(&self, height: u32) -> impl DoubleEndedIterator<Item = u32> {
        self.missing.range(height..).copied()
    }

    pub(super) fn missing_len(&self) -> usize {
        self.missing.len()
    }

    pub(super) fn requested(&self) -> impl Iterator<Item = u32> {
        self.requested.iter().copied()
    }

    pub(super) fn requested_len(&self) -> usize {
        self.requested.len()
    }

    /// Peers that were asked for the block at that height.
    pub(super) fn holders(&self, height: u32) -> &[PeerId] {
        match self.slot(height).map(|slot| &slot.state) {
            Some(SlotState::Requested(holders)) => holders,
            _ => &[],
        }
    }

    fn slot(&self, height: u32) -> Option<&Slot> {
        self.slots.get(height.checked_sub(self.start)? as usize)
    }

    fn slot_mut(&mut self, height: u32) -> Option<&mut Slot> {
        self.slots.get_mut(height.checked_sub(self.start)? as usize)
    }

    /// Returns the slot of a block; `None` if it is not, or no longer, the chain's block at this height.
    fn slot_of(&mut self, height: u32, hash: BlockHash) -> Option<&mut Slot> {
        self.slot_mut(height).filter(|slot| slot.hash == hash)
    }

    pub(super) fn contains(&self, height: u32, hash: BlockHash) -> bool {
        self.slot(height).is_some_and(|slot| slot.hash == hash)
    }

    /// Removes the blocks from `height` on. The window starts there if it started above.
    pub(super) fn truncate(&mut self, height: u32) {
        let kept = (height.saturating_sub(self.start) as usize).min(self.slots.len());
        let removed: u64 = self.slots.drain(kept..).map(|slot| slot.bytes).sum();
        self.bytes = self.bytes.saturating_sub(removed);
        self.missing.split_off(&height);
        self.requested.split_off(&height);
        self.start = self.start.min(height);
    }

    pub(super) fn push(&mut self, hash: BlockHash) {
        let height = self.end();
        self.slots.push_back(Slot { hash, bytes: 0, state: SlotState::Missing });
        self.missing.insert(height);
    }

    /// Adds a block that the caller has stored before.
    pub(super) fn push_stored(&mut self, hash: BlockHash) {
        self.slots.push_back(Slot { hash, bytes: 0, state: SlotState::Stored });
        self.advance();
    }

    /// Notes that a block is requested from a peer. Returns its hash, or `None` if it has come already or was
    /// requested from this peer.
    pub(super) fn request(&mut self, height: u32, peer: PeerId) -> Option<BlockHash> {
        let slot = self.slot_mut(height)?;
        let hash = slot.hash;
        match &mut slot.state {
            SlotState::Missing => {
                slot.state = SlotState::Requested(vec![peer]);
                self.missing.remove(&height);
                self.requested.insert(height);
            }
            SlotState::Requested(holders) if !holders.contains(&peer) => holders.push(peer),
            _ => return None,
        }
        Some(hash)
    }

    /// Notes that a peer will not send a block, or not again. It is missing again if no other was asked for
    /// it.
    pub(super) fn release(&mut self, height: u32, hash: BlockHash, peer: PeerId) {
        let Some(slot) = self.slot_of(height, hash) else { return };
        match &mut slot.state {
            SlotState::Requested(holders) => {
                holders.retain(|holder| *holder != peer);
                if holders.is_empty() {
                    self.make_missing(height);
                }
            }
            SlotState::Delivered { others, .. } => others.retain(|holder| *holder != peer),
            SlotState::Missing | SlotState::Stored => {}
        }
    }

    /// Notes that a block has come that was requested from this peer. Returns false if it had come before, or
    /// is no longer the block of the chain at this height.
    pub(super) fn deliver(&mut self, height: u32, hash: BlockHash, sender: PeerId, bytes: u64) -> bool {
        let Some(slot) = self.slot_of(height, hash) else { return false };
        let mut others = match &mut slot.state {
            SlotState::Requested(holders) => std::mem::take(holders),
            // It was given up, and is asked of nobody now.
            SlotState::Missing => Vec::new(),
            SlotState::Delivered { others, .. } => {
                others.retain(|holder| *holder != sender);
                return false;
            }
            SlotState::Stored => return false,
        };
        others.retain(|holder| *holder != sender);
        slot.state = SlotState::Delivered { sender, others };
        slot.bytes = bytes;
        self.bytes += bytes;
        self.requested.remove(&height);
        self.missing.remove(&height);
        true
    }

    /// Notes that a delivered block is stored, and moves the window's start above stored blocks.
    pub(super) fn accept(&mut self, height: u32, hash: BlockHash) {
        if let Some(slot) =
            self.slot_of(height, hash).filter(|slot| matches!(slot.state, SlotState::Delivered { .. }))
        {
            slot.state = SlotState::Stored;
        }
        self.advance();
    }

    /// Moves the window's start above stored blocks.
    fn advance(&mut self) {
        while self.slots.front().is_some_and(|slot| slot.state == SlotState::Stored) {
            let bytes = self.slots.pop_front().map_or(0, |slot| slot.bytes);
            self.bytes = self.bytes.saturating_sub(bytes);
            self.start += 1;
        }
    }

    /// Makes a delivered block one that has to come again. Returns its sender and bytes, or `None` if it was
    /// not delivered.
    pub(super) fn reject(&mut self, height: u32, hash: BlockHash) -> Option<(PeerId, u64)> {
        let slot = self.slot_of(height, hash)?;
        let SlotState::Delivered { sender, others } = &mut slot.state else { return None };
        let (sender, others) = (*sender, std::mem::take(others));
        let bytes = std::mem::take(&mut slot.bytes);
        if others.is_empty() {
            self.make_missing(height);
        } else {
            slot.state = SlotState::Requested(others);
            self.requested.insert(height);
        }
        self.bytes = self.bytes.saturating_sub(bytes);
        Some((sender, bytes))
    }

    fn make_missing(&mut self, height: u32) {
        if let Some(slot) = self.slot_mut(height) {
            slot.state = SlotState::Missing;
        }
        self.requested.remove(&height);
        self.missing.insert(height);
    }
}
