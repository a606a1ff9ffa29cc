//! Which peer is asked for which missing block.

use super::{Download, MAX_REQUESTED_AT_ONCE};
use crate::peer::{Peer, PeerId};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};
use wire::BlockHash;

/// Bytes of neighbours that are asked for together: small blocks come in lots.
const LOT_BYTES: u64 = 64_000;
/// Time beyond the round trip for which bytes are in flight, so that a late request of ours does not stop a
/// peer.
const SLACK: Duration = Duration::from_millis(200);
/// Number of blocks that are in flight at least.
const MIN_IN_FLIGHT: usize = 2;
/// Maximum bytes that are requested from one peer at once, as for peers on the internet.
const MAX_IN_FLIGHT_BYTES: u64 = 8_000_000;
/// Number of blocks that one of several peers may be asked for at first. After tiny blocks, nobody knows
/// whether the next ones are large, and a peer that has to send many of them binds the download to itself:
/// it is closed for that ([`Download::asked_for_too_much`]), but only when the others are nearly done.
const FIRST_IN_FLIGHT: u64 = 4;
/// Later, all peers together may be asked for a fourth of the blocks that have come.
const IN_FLIGHT_PART: u64 = 4;

/// Bytes per second that each peer has at least of those that may be received.
const SHARE: u64 = 64_000;

pub(super) type Asked = BTreeMap<PeerId, Vec<BlockHash>>;

/// When a peer would have one more block, after all that was asked of it.
#[derive(Clone, Copy)]
struct Rank {
    finish: Duration,
    id: PeerId,
}

impl Download {
    /// Asks peers with room for missing blocks, until none has room or nothing is missing.
    pub(super) fn assign(&mut self, now: Instant, asked: &mut Asked) {
        while let Some((id, height)) = self.next_assignment(asked) {
            let mut lot_bytes = 0;
            for height in height.. {
                let bytes = self.sizes.bytes(height);
                let is_missing = self.window.missing_from(height).next() == Some(height);
                let may_have = self.peers.get(&id).is_some_and(|peer| peer.may_have(height));
                let is_first = lot_bytes == 0;
                let fits = is_first || lot_bytes + bytes <= LOT_BYTES && self.has_room(id, bytes, asked);
                if !(is_missing && may_have && fits) {
                    break;
                }
                self.request(id, height, now, asked);
                lot_bytes += bytes.max(1);
            }
        }
    }

    /// Returns the next peer to ask, and the height of the first block to ask for.
    fn next_assignment(&self, asked: &Asked) -> Option<(PeerId, u32)> {
        let bytes = self.sizes.bytes(self.window.missing().next()?);
        let mut ranks: Vec<Rank> =
            self.peers.iter().map(|(&id, peer)| Rank { finish: peer.forecast(bytes), id }).collect();
        ranks.sort_by_key(|rank| (rank.finish, rank.id));
        let with_room = ranks.iter().filter(|rank| self.has_room(rank.id, bytes, asked));
        with_room.into_iter().find_map(|rank| self.pick(*rank, &ranks).map(|height| (rank.id, height)))
    }

    /// Chooses a block for a peer. What the fastest peers do until this one has finished is left to them, so
    /// that nobody has to wait for it.
    fn pick(&self, rank: Rank, ranks: &[Rank]) -> Option<u32> {
        let peer = self.peers.get(&rank.id)?;
        let lowest = self.window.missing().next()?;
        let first = ranks.first()?.finish;
        let lead = rank.finish.saturating_sub(first).as_secs_f64();
        let bytes = self.sizes.bytes(lowest).max(1);
        let skipped = (lead * self.speed_total() / bytes as f64).min(f64::from(u32::MAX)) as u32;
        let start = lowest.saturating_add(skipped);
        let above = self.window.missing_from(start).find(|height| peer.may_have(*height));
        above.or_else(|| {
            let below = self.window.missing().rev().find(|height| peer.may_have(*height))?;
            (!self.others_finish_first(rank, below, ranks)).then_some(below)
        })
    }

    /// Returns whether another peer, after all other missing blocks, would have the block earlier.
    fn others_finish_first(&self, rank: Rank, height: u32, ranks: &[Rank]) -> bool {
        let rest_bytes = self.window.missing_len() as u64 * self.sizes.bytes(height);
        let rest = Duration::from_secs_f64(rest_bytes as f64 / self.speed_total());
        let others = ranks.iter().filter(|other| other.id != rank.id && other.finish + rest < rank.finish);
        others.into_iter().any(|other| {
            self.peers.get(&other.id).is_some_and(|peer| peer.may_have(height) && !self.is_group_full(peer))
        })
    }

    /// Returns the sum of all peers' speeds in bytes per second, at least 1.
    pub(super) fn speed_total(&self) -> f64 {
        self.peers.values().map(|peer| peer.speed.bytes_per_second()).sum::<f64>().max(1.0)
    }

    /// Returns whether a peer can be asked for a block of that size.
    fn has_room(&self, id: PeerId, bytes: u64, asked: &Asked) -> bool {
        let Some(peer) = self.peers.get(&id) else { return false };
        let asked_now = asked.get(&id).map_or(0, Vec::len);
        let is_active = peer.requests().len() > 0;
        if asked_now >= MAX_REQUESTED_AT_ONCE
            || self.is_group_full(peer)
            || !(is_active || self.may_add_active())
        {
            return false;
        }
        let each = self.totals.blocks / IN_FLIGHT_PART / self.peers.len() as u64;
        if self.peers.len() > 1 && peer.requests().len() as u64 >= each.max(FIRST_IN_FLIGHT) {
            return false;
        }
        if !peer.speed.is_measured() {
            // A slow peer would hold for minutes what was asked of it before that is known.
            return !is_active || asked_now > 0 && peer.in_flight_bytes() + bytes <= LOT_BYTES;
        }
        if peer.requests().len() < MIN_IN_FLIGHT {
            return true;
        }
        let target = self.in_flight_target(peer, bytes);
        let room = target.saturating_sub(peer.in_flight_bytes());
        // The first lot opens a getdata; others are added to it as long as there is any room.
        let lot = if asked_now > 0 { bytes } else { bytes.max(LOT_BYTES.min(target / 2)) };
        room >= lot
    }

    /// Returns the bytes that should be in flight: speed times round trip, and a bit more.
    fn in_flight_target(&self, peer: &Peer, bytes: u64) -> u64 {
        let seconds = (peer.round_trip + SLACK).as_secs_f64();
        let target = (peer.speed.peak() * seconds) as u64;
        let min = bytes.saturating_mul(MIN_IN_FLIGHT as u64);
        target.clamp(min, MAX_IN_FLIGHT_BYTES.max(min))
    }

    /// Returns whether the group of the peer was asked for a quarter of the window.
    pub(super) fn is_group_full(&self, peer: &Peer) -> bool {
        let held = self.held_by_group.get(&peer.group).copied().unwrap_or_default();
        held >= (self.options.window_blocks / 4).max(1)
    }

    /// Returns whether there is memory for incomplete blocks of one more peer: half of it is for blocks that
    /// are not stored yet.
    pub(super) fn may_add_active(&self) -> bool {
        let bytes = self.window.missing().next().map_or(0, |height| self.sizes.bytes(height));
        let limit = self.options.memory_bytes / 2 / bytes.max(LOT_BYTES);
        let most = self.options.bytes_per_second.map_or(u64::MAX, |rate| (rate / SHARE).max(2));
        (self.active() as u64) < limit.max(1).min(most)
    }

    /// Returns the number of peers that are asked for blocks.
    pub(super) fn active(&self) -> usize {
        self.peers.values().filter(|peer| peer.requests().len() > 0).count()
    }
}
