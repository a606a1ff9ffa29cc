//! Asks for the coins that blocks spend, and holds a block until they have come.
//!
//! Coins are requested from the peer that is asked for the block, right after it, so that they follow it; if
//! that peer offers none, they are requested from another. A pong that comes before the coins of a block that
//! the peer has sent is a definite "no". Whatever a peer does, its block is handed over, if need be without
//! coins; the peer is then not asked for coins again.

use crate::{peer::PeerId, pool::Target};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    mem,
    time::{Duration, Instant},
};
use wire::{BlockHash, SpentCoinsForm};

/// Longest time for which a block is held.
const PATIENCE: Duration = Duration::from_secs(10);
/// Blocks whose coins are asked of one peer although another one sends them, at most.
const MAX_ASKED_OF_OTHERS: usize = 16;

/// The coins that a block spends, as a peer has sent them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SentCoins {
    pub peer: PeerId,
    /// What was dialled to reach it.
    pub target: Target,
    pub form: SpentCoinsForm,
    /// The bytes, of which only the block's hash was looked at.
    pub bytes: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct HeldBlock {
    pub(super) peer: PeerId,
    pub(super) height: u32,
    pub(super) hash: BlockHash,
    pub(super) bytes: Vec<u8>,
}

/// A block, and the coins that it spends if they have come.
pub(super) type Handed = (HeldBlock, Option<SentCoins>);

/// What becomes of coins that have come.
#[derive(Debug)]
pub(super) enum Answer {
    /// Their block was held.
    Complete(HeldBlock, SentCoins),
    /// This number of bytes was not needed.
    Unused(usize),
    /// The same, and the peer was not asked for them.
    Unrequested(usize),
}

/// Where the block of a question is.
#[derive(Debug)]
enum BlockState {
    Awaited,
    /// It waits for the coins, since then.
    Held(HeldBlock, Instant),
    /// It was handed over without them.
    Gone,
}

#[derive(Debug)]
struct Question {
    peer: PeerId,
    /// Number of the ping that follows it.
    marker: u64,
    block: BlockState,
}

#[derive(Debug)]
struct Offer {
    target: Target,
    form: SpentCoinsForm,
}

/// Asks for coins, and holds the blocks that spend them.
#[derive(Debug)]
pub struct SpentCoins {
    /// Whether they are of use at present.
    is_wanted: bool,
    offers: BTreeMap<PeerId, Offer>,
    refused: HashSet<Target>,
    questions: HashMap<BlockHash, Question>,
    /// Bytes of the blocks that are held, and their maximum. One block can always be held.
    held_bytes: usize,
    held_bytes_max: usize,
}

impl SpentCoins {
    pub(super) fn new(held_bytes_max: usize) -> Self {
        let (offers, refused, questions) = Default::default();
        Self { is_wanted: false, offers, refused, questions, held_bytes: 0, held_bytes_max }
    }

    /// Sets whether the coins that blocks spend are asked for from now on.
    pub fn set_wanted(&mut self, is_wanted: bool) {
        self.is_wanted = is_wanted;
    }

    pub(super) fn is_asked(&self, peer: PeerId) -> bool {
        self.is_wanted && self.offers.contains_key(&peer)
    }

    pub(super) fn add_peer(&mut self, peer: PeerId, target: &Target, form: SpentCoinsForm) {
        if !self.refused.contains(target) {
            self.offers.insert(peer, Offer { target: target.clone(), form });
        }
    }

    /// Of the blocks that are requested from a peer, returns those whose coins are to be requested too, and
    /// in which form. The ping `marker` must follow.
    pub(super) fn ask(
        &mut self,
        peer: PeerId,
        hashes: &[BlockHash],
        marker: u64,
    ) -> Option<(SpentCoinsForm, Vec<BlockHash>)> {
        let form = self.offers.get(&peer).filter(|_| self.is_wanted)?.form;
        let new: Vec<BlockHash> =
            hashes.iter().copied().filter(|hash| !self.questions.contains_key(hash)).collect();
        for hash in &new {
            let block = BlockState::Awaited;
            self.questions.insert(*hash, Question { peer, marker, block });
        }
        Some((form, new))
    }

    /// Returns a peer that can be asked for the coins of a block that another one has sent.
    pub(super) fn other_peer(&self, hash: &BlockHash) -> Option<PeerId> {
        if !self.is_wanted || self.questions.contains_key(hash) {
            return None;
        }
        let asked = |peer: PeerId| self.questions.values().filter(|question| question.peer == peer).count();
        let least = self.offers.keys().map(|&peer| (asked(peer), peer)).min()?;
        (least.0 < MAX_ASKED_OF_OTHERS).then_some(least.1)
    }

    /// Takes a block that has come. Returns it, unless it waits for its coins.
    pub(super) fn block(&mut self, block: HeldBlock, now: Instant) -> Option<Handed> {
        let has_space = self.held_bytes == 0 || self.held_bytes + block.bytes.len() <= self.held_bytes_max;
        let Some(question) = self.questions.get_mut(&block.hash) else { return Some((block, None)) };
        if !has_space {
            question.block = BlockState::Gone;
            return Some((block, None));
        }
        self.held_bytes += block.bytes.len();
        question.block = BlockState::Held(block, now);
        None
    }

    /// Takes coins that a peer has sent. Those that come before their block are not kept: a peer that sends
    /// them instead of blocks could use up the memory.
    pub(super) fn coins(&mut self, peer: PeerId, form: SpentCoinsForm, bytes: Vec<u8>) -> Answer {
        let Some(offer) = self.offers.get(&peer) else { return Answer::Unused(bytes.len()) };
        let hash = BlockHash(bytes.first_chunk().copied().unwrap_or_default());
        let is_open = |question: &Question| question.peer == peer && form == offer.form;
        let is_asked = self.questions.get(&hash).is_some_and(is_open);
        let question = if is_asked { self.questions.remove(&hash) } else { None };
        match question.map(|question| question.block) {
            None => Answer::Unrequested(bytes.len()),
            Some(BlockState::Held(block, _)) => {
                self.held_bytes -= block.bytes.len();
                let target = offer.target.clone();
                Answer::Complete(block, SentCoins { peer, target, form, bytes })
            }
            Some(BlockState::Awaited | BlockState::Gone) => Answer::Unused(bytes.len()),
        }
    }

    /// Takes a pong: what was requested before its ping will no longer be answered. Returns the blocks that
    /// waited for that, and whether the peer has sent one of them itself.
    pub(super) fn pong(&mut self, peer: PeerId, number: u64) -> (Vec<Handed>, bool) {
        let blocks = self.end(|question| question.peer == peer && question.marker <= number);
        // Another peer's block may be one that this peer does not have.
        let is_faulty = blocks.iter().any(|(block, _)| block.peer == peer);
        (blocks, is_faulty)
    }

    /// Returns a peer that has been silent for too long.
    pub(super) fn late(&self, now: Instant) -> Option<PeerId> {
        let is_late = |question: &&Question| {
            matches!(question.block, BlockState::Held(_, since)
                if now.saturating_duration_since(since) >= PATIENCE)
        };
        self.questions.values().find(is_late).map(|question| question.peer)
    }

    /// Returns the blocks from `height` on that were held: the chain has others there.
    pub(super) fn truncate(&mut self, height: u32) -> Vec<Handed> {
        let mut blocks = Vec::new();
        for question in self.questions.values_mut() {
            if matches!(&question.block, BlockState::Held(block, _) if block.height >= height)
                && let BlockState::Held(block, _) = mem::replace(&mut question.block, BlockState::Gone)
            {
                self.held_bytes -= block.bytes.len();
                blocks.push((block, None));
            }
        }
        blocks
    }

    /// Does not ask again who is reached there. Returns the blocks that were held for it.
    pub(super) fn refuse_target(&mut self, target: &Target) -> Vec<Handed> {
        self.refused.insert(target.clone());
        let refused = self.offers.iter().filter(|(_, offer)| offer.target == *target);
        let peers: Vec<PeerId> = refused.map(|(&peer, _)| peer).collect();
        peers.into_iter().flat_map(|peer| self.forget(peer)).collect()
    }

    /// Does not ask a peer again. Returns what was dialled to reach it, if it offered coins.
    pub(super) fn refuse(&mut self, peer: PeerId) -> Option<Target> {
        let target = self.offers.remove(&peer)?.target;
        self.refused.insert(target.clone());
        Some(target)
    }

    /// Forgets what was requested from a peer. Returns the blocks that were held for it.
    pub(super) fn forget(&mut self, peer: PeerId) -> Vec<Handed> {
        self.offers.remove(&peer);
        self.end(|question| question.peer == peer)
    }

    /// Removes questions. Returns the blocks that were held for them.
    fn end(&mut self, is_over: impl Fn(&Question) -> bool) -> Vec<Handed> {
        let mut blocks = Vec::new();
        for (_, question) in self.questions.extract_if(|_, question| is_over(question)) {
            if let BlockState::Held(block, _) = question.block {
                self.held_bytes -= block.bytes.len();
                blocks.push((block, None));
            }
        }
        blocks
    }
}

#[cfg(test)]
mod tests;
