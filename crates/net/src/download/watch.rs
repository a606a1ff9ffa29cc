//! Late blocks are requested from a second peer; connections to useless peers are closed.

use super::{Download, MAX_REQUESTED_AT_ONCE, assign::Asked};
use crate::peer::{CloseReason, Peer, PeerId};
use std::time::{Duration, Instant};

/// Blocks that a peer may say not to have, one after the other, before it is closed.
pub(super) const MAX_DENIALS_IN_A_ROW: u32 = 64;
/// Maximum number of peers that are asked for one block at the same time.
const MAX_HOLDERS: usize = 3;
/// Number of blocks before the end from which on any late block is asked of a second peer.
const END_BLOCKS: usize = 200;
/// Delay that is never called late.
const GRACE: Duration = Duration::from_millis(250);
/// Time without a byte after which a peer's forecast counts for nothing.
const SILENCE: Duration = Duration::from_secs(1);
/// Bytes that may be asked for twice are one 64th of those received: 1.6 %.
const HEDGED_PART: u64 = 64;
/// Time that a block may need, for which all others wait, before it is asked for again beyond that.
const HOPELESS: Duration = Duration::from_secs(3);
/// Time of a block from which on a line is slow.
const LONG: Duration = Duration::from_secs(10);
/// Number of blocks that may be asked for twice, however short the download is.
const MIN_HEDGED: u64 = 2;

/// Time that a peer may need for its blocks beyond its share.
const SPARE_TIME: Duration = Duration::from_secs(5);
/// Time without a byte after which a peer is closed.
const STALL: Duration = Duration::from_secs(10);
/// Bytes that each of several peers that the user gave may send meanwhile, and the longest time.
const STALL_BYTES: f64 = 256_000.0;
const STALL_MAX: Duration = Duration::from_secs(40);
/// Time without a block, beyond four times the forecast, after which a peer is closed.
const BLOCKLESS: Duration = Duration::from_secs(60);
/// Longest time without a block, however slow the peer is.
const BLOCKLESS_MAX: Duration = Duration::from_secs(600);
/// Lowest speed of use, in bytes per second, and the time for which it is watched.
const MIN_SPEED: f64 = 2_000.0;
const MIN_SPEED_TIME: Duration = Duration::from_secs(20);
/// The part of its share of the best speed so far that a peer must be below which the user gave.
const SLOWEST_SHARE: f64 = 8.0;
/// Number of peers from which on the slowest may be closed, the part of the median that it must be below, and
/// the time for which it is watched, and between two of them.
const SLOWEST_MIN_PEERS: usize = 4;
const SLOWEST_PART: f64 = 4.0;
const SLOWEST_TIME: Duration = Duration::from_secs(10);

impl Download {
    /// Asks a second peer for the lowest block if it is late, and for others at the end.
    pub(super) fn hedge(&mut self, now: Instant, asked: &mut Asked) {
        let is_end =
            self.is_whole && self.window.missing_len() == 0 && self.window.requested_len() < END_BLOCKS;
        let lowest = self.window.requested().next();
        let heights: Vec<u32> = if is_end { self.latest_first(now) } else { lowest.into_iter().collect() };
        for height in heights {
            let is_lowest = Some(height) == lowest;
            if let Some(second) = self.second_for(height, is_lowest, is_end, now)
                && asked.get(&second).map_or(0, Vec::len) < MAX_REQUESTED_AT_ONCE
            {
                self.hedged_bytes += self.sizes.bytes(height);
                self.request(second, height, now, asked);
            }
        }
    }

    /// Returns the requested heights, the block that will be complete last first.
    fn latest_first(&self, now: Instant) -> Vec<u32> {
        let left = |height: u32| {
            let holders = self.window.holders(height).iter().filter_map(|id| self.peers.get(id));
            holders.map(|peer| time_left(peer, height, now)).min()
        };
        let mut heights: Vec<(Option<Duration>, u32)> =
            self.window.requested().map(|height| (left(height), height)).collect();
        heights.sort_by(|a, b| b.cmp(a));
        heights.into_iter().map(|(_, height)| height).collect()
    }

    /// Returns the peer that should be asked, too, for a requested block.
    fn second_for(&self, height: u32, is_lowest: bool, is_end: bool, now: Instant) -> Option<PeerId> {
        let bytes = self.sizes.bytes(height);
        let holders = self.window.holders(height);
        let held_by: Vec<&Peer> = holders.iter().filter_map(|id| self.peers.get(id)).collect();
        let all_silent = held_by.iter().all(|peer| is_silent(peer, now));
        let left = held_by.iter().map(|peer| time_left(peer, height, now)).min()?;
        let is_within =
            self.hedged_bytes + bytes <= (self.totals.bytes / HEDGED_PART).max(bytes * MIN_HEDGED);
        // If all share what may be received, another one is no faster.
        let is_of_use = all_silent || self.options.bytes_per_second.is_none();
        let is_hopeless = all_silent || left >= HOPELESS;
        let is_affordable = is_of_use && (is_hopeless && is_lowest || is_within);
        if holders.len() >= MAX_HOLDERS || !is_affordable || !is_end && !self.is_late(&held_by, height, now) {
            return None;
        }
        let candidates = self.peers.iter().filter(|(id, peer)| {
            let is_free = peer.requests().len() > 0 || self.may_add_active();
            !holders.contains(id) && peer.may_have(height) && is_free && !self.is_group_full(peer)
        });
        let others = candidates.filter(|(_, peer)| !is_silent(peer, now));
        let (finish, id) = others.map(|(id, peer)| (peer.forecast(bytes), *id)).min()?;
        // All that a slow line carries is on its way.
        let is_line_full = !all_silent && finish >= LONG && self.link.is_full();
        (!is_line_full && left > if is_within { finish * 2 } else { finish * 8 }).then_some(id)
    }

    /// Returns whether a block is later than twice its forecast, or needed because the window is nearly full.
    fn is_late(&self, holders: &[&Peer], height: u32, now: Instant) -> bool {
        let is_full =
            self.window.len() * 4 >= self.options.window_blocks * 3 && self.window.missing_len() == 0;
        let requests =
            holders.iter().flat_map(|peer| peer.requests()).filter(|request| request.height == height);
        let late_at = requests.map(|request| {
            let forecast = request.expected.saturating_duration_since(request.asked);
            request.expected + if is_full { GRACE } else { forecast + GRACE }
        });
        late_at.max().is_none_or(|at| now >= at)
    }

    /// Closes connections to peers that send nothing, or too little to be useful.
    pub(super) fn close_useless_peers(&mut self, now: Instant, candidate_waits: bool) {
        let useless: Vec<(PeerId, CloseReason)> = self
            .peers
            .iter()
            .filter_map(|(id, peer)| Some((*id, self.reason_to_close(peer, now)?)))
            .collect();
        for (id, reason) in useless {
            self.close(id, reason);
        }
        if let Some(id) = self.asked_for_too_much() {
            self.close(id, CloseReason::AskedForTooMuch);
        }
        if candidate_waits
            && self.options.bytes_per_second.is_none()
            && !self.link.is_full()
            && self.link.last_slowest.is_none_or(|last| now.saturating_duration_since(last) >= SLOWEST_TIME)
            && let Some(id) = self.far_slowest(now)
        {
            self.link.last_slowest = Some(now);
            self.close(id, CloseReason::Slowest);
        }
    }

    /// Returns the peer that needs the most time for what it was asked for, if that is more than all together
    /// need for all blocks of the window. A request cannot be taken back without closing the connection.
    fn asked_for_too_much(&self) -> Option<PeerId> {
        let blocks = (self.window.missing_len() + self.window.requested_len()) as u64;
        let bytes = blocks.saturating_mul(self.sizes.bytes(self.window.start()));
        let is_throttled = self.options.bytes_per_second.is_some();
        // The last block of a peer is better asked of a second one.
        let peers = self.peers.iter();
        let underestimated =
            peers.filter(|(_, it)| it.requests.were_underestimated() && it.requests().len() > 1);
        let (needed, id) = underestimated.map(|(id, peer)| (peer.forecast(0), *id)).max()?;
        // What has come of a block would have to come again.
        let lost = self.peers.get(&id).and_then(|peer| peer.requests.first()).map_or(0, |(come, _)| come);
        let together = Duration::from_secs_f64((bytes + lost) as f64 / self.speed_total());
        let is_worth_it = needed > together.mul_f64(1.25) + SPARE_TIME;
        (self.peers.len() > 1 && !is_throttled && is_worth_it).then_some(id)
    }

    fn reason_to_close(&self, peer: &Peer, now: Instant) -> Option<CloseReason> {
        let (_, size) = peer.requests.first()?;
        let speed = peer.speed.bytes_per_second();
        // A peer that the user gave, or that shares what may be received, is only slow if others are not.
        let is_kept = peer.is_named || self.options.bytes_per_second.is_some();
        let fair = self.link.best / (SLOWEST_SHARE * self.active().max(1) as f64);
        let lowest = if is_kept { MIN_SPEED.min(fair) } else { MIN_SPEED };
        let blockless_max = if is_kept { Duration::MAX } else { BLOCKLESS_MAX };
        let patience = BLOCKLESS + peer.speed.time_for(size) * 4;
        // Many connections through a slow line wait for each other.
        let turns = STALL_BYTES * self.active() as f64 / self.link.best.max(1.0);
        let stall_max = if peer.is_named { STALL_MAX } else { STALL };
        let stall = Duration::from_secs_f64(turns).clamp(STALL, stall_max);
        if peer.silent_for(now) >= stall {
            Some(CloseReason::Stalled)
        } else if peer.busy_for(now) >= MIN_SPEED_TIME && speed < lowest {
            Some(CloseReason::TooSlow)
        } else if peer.blockless_for(now) >= patience.min(blockless_max) {
            Some(CloseReason::NoBlocks)
        } else {
            None
        }
    }

    fn far_slowest(&self, now: Instant) -> Option<PeerId> {
        let busy = self.peers.iter().filter(|(_, peer)| peer.busy_for(now) >= SLOWEST_TIME);
        let mut speeds: Vec<(f64, PeerId)> =
            busy.map(|(id, peer)| (peer.speed.bytes_per_second(), *id)).collect();
        if speeds.len() < SLOWEST_MIN_PEERS {
            return None;
        }
        speeds.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let (slowest, median) = (speeds.first()?, speeds.get(speeds.len() / 2)?);
        (slowest.0 < median.0 / SLOWEST_PART).then_some(slowest.1)
    }

    /// Returns the bytes per second of all peers together, as an average over some seconds.
    pub const fn bytes_per_second(&self) -> f64 {
        self.link.average
    }
}

fn is_silent(peer: &Peer, now: Instant) -> bool {
    peer.silent_for(now) > SILENCE.max(peer.round_trip * 4)
}

fn time_left(peer: &Peer, height: u32, now: Instant) -> Duration {
    if is_silent(peer, now) { Duration::MAX } else { peer.forecast_of(height).unwrap_or(Duration::MAX) }
}

/// The speed of all connections together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Link {
    bytes: u64,
    sample_start: Option<Instant>,
    average: f64,
    /// Highest average so far; it decays gradually.
    best: f64,
    last_slowest: Option<Instant>,
}

/// Length of a sample of the link's speed.
const LINK_SAMPLE: Duration = Duration::from_secs(1);
/// Part of the old average that stays after a sample: about ten samples count.
const LINK_KEPT: f64 = 0.9;
/// Part of the best average that stays after a sample.
const BEST_KEPT: f64 = 0.999;

impl Link {
    pub(super) const fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    pub(super) fn update(&mut self, now: Instant) {
        let start = *self.sample_start.get_or_insert(now);
        let elapsed = now.saturating_duration_since(start);
        if elapsed >= LINK_SAMPLE {
            let sample = std::mem::take(&mut self.bytes) as f64 / elapsed.as_secs_f64();
            self.average = self.average * LINK_KEPT + sample * (1.0 - LINK_KEPT);
            self.best = (self.best * BEST_KEPT).max(self.average);
            self.sample_start = Some(now);
        }
    }

    /// Returns whether the link carries about as much as it ever has: then other peers would not be faster.
    fn is_full(&self) -> bool {
        self.average >= 0.9 * self.best
    }
}
