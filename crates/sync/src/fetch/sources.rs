//! What the peers of a download claim to have, why it has not come, and when no peer can help any more.

use super::{Fetch, Phase, locator};
use crate::options::{PeerOptions, Shortfall};
use api::{error::Error, remedy::Remedy};
use net::{
    handshake::PeerInfo,
    message::Services,
    peer::{CloseReason, KEPT_BLOCKS, PeerId},
    pool::Target,
};
use pipeline::job;
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};
use wire::{BlockTime, Height};

/// Time without progress after which a download from named peers ends, unless it is to wait.
const PATIENCE: Duration = Duration::from_secs(60);
/// The same if there may be others: many addresses lead nowhere.
const SEARCH_PATIENCE: Duration = Duration::from_secs(300);
/// The same if another attempt would end in the same way.
const FINAL_PATIENCE: Duration = Duration::from_secs(3);
/// Bytes that count as progress: more than peers that are of no use send.
const PROGRESS_BYTES: u64 = 16_384;
/// Time between two looks after which this process was stopped, or busy with other things.
const PAUSE: Duration = Duration::from_secs(5);
/// Time without progress after which peers are asked for headers again, and between two such questions.
const ASK_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum number of peers that are named.
const MAX_NAMED: usize = 8;

/// A peer, as far as it matters for what a download lacks.
#[derive(Default)]
struct Source {
    peer: Option<PeerId>,
    /// Whether it has deleted old blocks.
    is_limited: bool,
    /// Whether the user gave it.
    is_named: bool,
    /// Height of its best block, as it said in the handshake.
    claims: u32,
    /// Height of the last header of its chain that was accepted.
    headers: u32,
    /// Time of a block that is too early for the clock of this machine, and its height.
    early: Option<(u32, BlockTime)>,
    /// Whether it has broken a rule: what it claims is worth nothing.
    is_false: bool,
    /// Why the last connection to each of its addresses ended, and whether another one would end so.
    failures: BTreeMap<String, (String, bool)>,
}

/// What is known of the peers that matter: those that the user gave, and those that are connected.
#[derive(Default)]
pub(super) struct Sources {
    all: BTreeMap<String, Source>,
    progress: Option<Instant>,
    /// Bytes that had come then.
    bytes: u64,
    last_look: Option<Instant>,
    last_question: Option<Instant>,
    /// The highest chain that has a block that no peer has, and this block.
    pub(super) withheld: Option<(Height, Height)>,
}

impl Sources {
    pub(super) fn note_progress(&mut self, now: Instant) {
        self.progress = Some(now);
    }

    /// Whether there was no progress for this time.
    pub(super) fn is_silent(&self, now: Instant, time: Duration) -> bool {
        self.progress.is_some_and(|progress| now.saturating_duration_since(progress) >= time)
    }

    /// Notes up to where the chain of a peer was accepted, and which of its blocks comes too early.
    pub(super) fn note_headers(&mut self, peer: PeerId, Height(height): Height, early: Option<BlockTime>) {
        if let Some(source) = self.all.values_mut().find(|source| source.peer == Some(peer)) {
            source.headers = source.headers.max(height);
            source.early = early.map(|time| (height + 1, time)).or(source.early);
        }
    }

    /// Notes why a peer that the user gave is not connected.
    pub(super) fn note_failure(&mut self, name: &str, address: String, why: String, is_final: bool) {
        let source = self.all.entry(name.to_owned()).or_default();
        (source.peer, source.is_named) = (None, true);
        // An earlier failure to resolve the name no longer matters.
        source.failures.remove(name);
        source.failures.insert(address, (why, is_final));
    }

    /// Why each peer does not help.
    fn reasons(&self, tip: Height, is_missing: bool) -> impl Iterator<Item = (&Source, String)> {
        let all = self.all.iter();
        all.map(move |(name, source)| (source, format!("{name}: {}", source.reason(tip.0, is_missing))))
    }
}

impl Source {
    /// Height of the last block that it claims to have.
    fn offers(&self) -> u32 {
        let claims = if self.is_false { 0 } else { self.claims };
        self.early.map_or(claims, |(height, _)| claims.max(height))
    }

    /// Why the blocks above `tip` are not there, or those below, if some are missing.
    fn reason(&self, tip: u32, is_missing: bool) -> String {
        let claims = self.offers();
        let first = claims.saturating_sub(KEPT_BLOCKS - 1);
        match (self.peer, self.early) {
            (None, _) if self.failures.len() == 1 => {
                self.failures.values().map(|(why, _)| why.clone()).collect()
            }
            (None, _) => {
                let all = self.failures.iter().map(|(address, (why, _))| format!("{address}: {why}"));
                all.collect::<Vec<_>>().join(", ")
            }
            (_, Some((height, time))) => {
                let ahead = time.0.saturating_sub(job::now().0) / 3_600;
                format!("block {height} of {claims} has a time {ahead} hours ahead of this machine's clock")
            }
            _ if self.is_limited && is_missing => {
                format!("is pruned, and has blocks {first} to {claims} only")
            }
            _ if claims > tip => format!(
                "claims {claims} blocks and sends headers up to {tip} only: it is probably syncing itself"
            ),
            _ => format!("has blocks up to {claims}, and does not send what is missing"),
        }
    }
}

impl Fetch<'_> {
    /// The name under which a peer is reported: as the user gave it, if the user did.
    fn source_name(&self, target: &Target) -> (String, bool) {
        let PeerOptions { connect, add, .. } = &self.options.peers;
        let named =
            self.client.dialer.named(target).filter(|name| connect.contains(name) || add.contains(name));
        (named.unwrap_or(target).to_string(), named.is_some())
    }

    pub(super) fn note_source(&mut self, peer: PeerId, target: &Target, info: &PeerInfo) {
        let (name, is_named) = self.source_name(target);
        let source = self.seen.sources.all.entry(name).or_default();
        (source.peer, source.is_named, source.early) = (Some(peer), is_named, None);
        source.is_limited = !info.services.has(Services::NETWORK);
        source.claims = info.height.max(0) as u32;
    }

    /// Notes that a connection ended. Returns whether the user gave the peer.
    pub(super) fn note_closed(&mut self, target: &Target, reason: &CloseReason, was_connected: bool) -> bool {
        let (name, is_named) = self.source_name(target);
        if !is_named {
            self.seen.sources.all.remove(&name);
            return false;
        }
        let mut why = reason.to_string();
        if *reason == CloseReason::ClosedByPeer && !was_connected {
            why += " in the handshake, as one of another network does, or one that takes no more connections";
        }
        self.seen.sources.note_failure(&name, target.to_string(), why, reason.is_final());
        let source = self.seen.sources.all.entry(name).or_default();
        source.is_false |= reason.is_misbehaviour();
        true
    }

    /// Returns what the peers claim to have above the last block.
    pub(super) fn shortfall(&self) -> Option<Shortfall> {
        let (tip, sources) = (self.target(), &self.seen.sources);
        let stop = self.options.chain.stop_at_height.map_or(u32::MAX, |stop| stop.0);
        if self.keeps_chain || tip.0 >= stop {
            return None;
        }
        let has_finished = |peer| self.client.headers.has_finished(peer);
        let confirms = |it: &Source| it.peer.is_some_and(has_finished) && it.offers() <= tip.0;
        let is_confirmed = sources.all.values().any(confirms);
        // With a lower height, another branch can have more work. Anyone can claim anything: strangers are
        // believed only if nobody contradicts them.
        let is_believed = |it: &Source| it.is_named || !is_confirmed;
        let is_open = |it: &Source| is_believed(it) && it.offers().min(stop) > tip.0.max(it.headers);
        let open: Vec<_> = sources.reasons(tip, false).filter(|(source, _)| is_open(source)).collect();
        // At the tip, blocks that were announced may still come.
        let is_late =
            self.follower.stays() && self.index.announced_at.is_some_and(|at| at.elapsed() >= PATIENCE);
        let missing = Some((tip, self.first_missing())).filter(|(tip, first)| is_late && first <= tip);
        let counts = !is_confirmed || !self.options.peers.connect.is_empty();
        let withheld = sources.withheld.filter(|(end, _)| *end > tip && counts).or(missing);
        let claimed = open.iter().map(|(source, _)| source.offers()).chain(withheld.map(|(end, _)| end.0));
        let claimed = Height(claimed.max()?);
        let is_clock_behind = open.iter().any(|(source, _)| source.early.is_some());
        let withheld = withheld.map(|(_, height)| format!("no peer sends block {height}, whose header came"));
        let reasons = open.into_iter().take(MAX_NAMED).map(|(_, reason)| reason).chain(withheld).collect();
        Some(Shortfall { claimed, is_clock_behind, reasons })
    }

    /// Whether peers are to be asked again for headers that they claim to have, and not yet.
    pub(super) fn waits_for_claims(&mut self) -> bool {
        if !self.options.peers.wait || self.shortfall().is_none() {
            return false;
        }
        self.ask_again();
        true
    }

    /// Asks peers for headers again, from time to time.
    fn ask_again(&mut self) {
        let now = self.client.pool.now();
        if self.seen.sources.last_question.is_none_or(|last| now - last >= ASK_INTERVAL) {
            self.seen.sources.last_question = Some(now);
            if self.phase == Phase::Headers {
                // A peer is not at fault if the clock of this machine is behind, and its chain is the best.
                let (all, tip) = (&self.seen.sources.all, self.chain.tip_height().0);
                let is_early = |it: &Source| it.early.is_some() && it.headers >= tip;
                let is_kept = |peer: PeerId| all.values().any(|it| it.peer == Some(peer) && is_early(it));
                self.client.replace_finished(is_kept);
            }
            self.client.headers.restart(locator(&self.chain));
        }
    }

    /// Looks for peers that have gone over to the chain if its blocks do not come, and ends a download that
    /// makes no progress any more.
    pub(super) fn check_progress(&mut self, seeds_may_help: bool) -> Result<(), Error> {
        let (now, sources) = (self.client.pool.now(), &mut self.seen.sources);
        let PeerOptions { connect, wait, bytes_per_second, .. } = &self.options.peers;
        let since_look = now - sources.last_look.replace(now).unwrap_or(now);
        let bytes = self.client.download.received_bytes_total();
        let enough = PROGRESS_BYTES.min(bytes_per_second.unwrap_or(u64::MAX).saturating_mul(15));
        let waits = self.phase != Phase::Blocks || self.client.download.waits_for_peers();
        if !waits || self.writing.in_hand > 0 || bytes - sources.bytes >= enough {
            (sources.progress, sources.bytes) = (Some(now), bytes);
        }
        let progress = sources.progress.get_or_insert(now);
        *progress += if since_look >= PAUSE { since_look } else { Duration::ZERO };
        let elapsed = now.saturating_duration_since(*progress);
        // Peers whose chains end below the minimum work may be downloading themselves.
        let waits_for_headers =
            self.phase == Phase::Headers && !self.keeps_chain && !self.chain.has_minimum_work();
        if elapsed >= ASK_INTERVAL && (waits_for_headers || self.client.download.waits_for_peers()) {
            self.ask_again();
        }
        // Without those who offer an invalid block, the headers end by themselves.
        let has_invalid = !self.seen.offer_invalid.is_empty() && self.chain.has_minimum_work();
        let is_ending = self.phase == Phase::Headers && has_invalid || matches!(self.phase, Phase::Ending(_));
        let may_find = connect.is_empty() && (seeds_may_help || !self.client.dialer.table.is_empty());
        let patience = match may_find {
            true => SEARCH_PATIENCE,
            false if self.is_final() => FINAL_PATIENCE,
            false => PATIENCE,
        };
        let goes_on = *wait || self.follower.stays() || is_ending || elapsed < patience;
        if goes_on { Ok(()) } else { Err(self.nobody_helps()) }
    }

    /// Whether no named peer will ever have what is missing.
    fn is_final(&self) -> bool {
        let PeerOptions { connect, add, .. } = &self.options.peers;
        let download = &self.client.download;
        let is_idle = download.peers().all(|(_, peer)| peer.requests().len() == 0);
        let is_stuck = self.phase == Phase::Blocks && is_idle && download.unavailable().is_some();
        let is_hopeless = |source: &Source| match source.peer {
            Some(_) => is_stuck && source.is_limited,
            None => source.failures.values().all(|(_, is_final)| *is_final),
        };
        let mut named = connect.iter().chain(add).map(|name| self.seen.sources.all.get(&name.to_string()));
        self.client.pool.opening() == 0 && named.all(|source| source.is_some_and(is_hopeless))
    }

    fn nobody_helps(&self) -> Error {
        let missing = self.first_missing();
        let is_missing = self.phase != Phase::Headers && missing <= self.target();
        let what = match is_missing {
            true => format!("block {missing} and others above it"),
            false if !self.chain.has_minimum_work() => "a chain with the network's minimum work".to_owned(),
            false => "headers".to_owned(),
        };
        let detail = format!("no peer sends {what}: {}", self.source_reasons(is_missing));
        let mut error = Error::environment(detail).with_remedies([Remedy::NamePeer, Remedy::WaitForPeers]);
        error.height = is_missing.then_some(missing);
        error
    }

    /// Why each peer does not help.
    pub(super) fn source_reasons(&self, is_missing: bool) -> String {
        let reasons = self.seen.sources.reasons(self.chain.tip_height(), is_missing);
        let reasons: Vec<String> = reasons.take(MAX_NAMED).map(|(_, reason)| reason).collect();
        match (reasons.is_empty(), &self.notices.last_closed) {
            (false, _) => reasons.join("; "),
            (true, Some(last)) => format!("none is connected; the last attempt: {last}"),
            (true, None) => "no address of a peer is known".to_owned(),
        }
    }
}
