//! What the user is told while a download runs: how much is done, and why nothing happens.

use super::{Fetch, MAX_WRITERS, Phase};
use crate::options::DownloadReport;
use api::{
    event::{Event, PROGRESS_INTERVAL, Progress},
    note::Note,
};
use net::headers::REPLY_TIMEOUT;
use std::{
    mem,
    time::{Duration, Instant},
};
use wire::Network;

/// Time between two notes that nothing happens, and why.
const NOTE_INTERVAL: Duration = Duration::from_secs(30);

pub(super) struct Notices {
    /// When a peer was last connected.
    last_peer: Instant,
    last_note: Instant,
    /// Whether a note has said that a header is too far in the future.
    pub(super) has_noted_future: bool,
    /// Whether a note has said that none of the named peers can be reached.
    has_noted_unreachable: bool,
    /// Why the last connection was closed.
    pub(super) last_closed: Option<String>,
    last_progress: Option<Instant>,
}

impl Notices {
    /// Nothing was said before `start`.
    pub(super) const fn new(start: Instant) -> Self {
        Self {
            last_peer: start,
            last_note: start,
            has_noted_future: false,
            has_noted_unreachable: false,
            last_closed: None,
            last_progress: None,
        }
    }
}

impl Fetch<'_> {
    /// Reports from time to time how much is done.
    pub(super) fn show_progress(&mut self) {
        if self.phase == Phase::Blocks {
            let writers = self.options.chain.threads.get().min(MAX_WRITERS) as u32;
            let status = self.seen.peers.report(&self.client, self.writing.in_hand, writers);
            status.into_iter().for_each(|status| self.sink.peer(status));
        }
        if matches!(self.phase, Phase::Headers | Phase::AtTip(_))
            || self.report.blocks == 0
            || self.notices.last_progress.is_some_and(|last| last.elapsed() < PROGRESS_INTERVAL)
        {
            return;
        }
        self.notices.last_progress = Some(Instant::now());
        let (blocks_total, estimate) = self.given.missing;
        let DownloadReport { blocks, bytes, .. } = self.report;
        // Where the sizes of blocks are unknown, they are like those that have come.
        let by_mean = bytes / u64::from(blocks.max(1)) * u64::from(blocks_total.saturating_sub(blocks));
        let is_known = self.options.chain.params.network == Network::Main;
        let asked = self.client.download.peers().map(|(_, peer)| peer.in_flight_bytes()).sum();
        let to_come = if is_known { estimate.saturating_sub(bytes) } else { by_mean.max(asked) };
        let bytes_total = bytes + to_come;
        let blocks_total = blocks_total.max(blocks);
        self.sink.event(Event::Progress(Progress { blocks, blocks_total, bytes, bytes_total }));
    }

    /// Explains from time to time why nothing happens.
    pub(super) fn note_what_is_missing(&mut self) {
        if self.client.download.peers().next().is_some() {
            self.notices.last_peer = Instant::now();
        }
        // The user who has named peers is told at once that none of them can be reached.
        let is_unreachable = !self.options.peers.connect.is_empty()
            && self.report.peers == 0
            && self.client.pool.opening() == 0
            && self.notices.last_closed.is_some();
        let is_first =
            is_unreachable && !mem::replace(&mut self.notices.has_noted_unreachable, is_unreachable);
        if self.notices.last_note.elapsed() < NOTE_INTERVAL && !is_first {
            return;
        }
        if self.notices.last_peer.elapsed() >= NOTE_INTERVAL || is_first {
            self.sink.event(Event::Note(Note::NoPeers { last: self.notices.last_closed.clone() }));
        } else if self.phase == Phase::Headers
            && self.client.headers.is_complete_after(REPLY_TIMEOUT, self.client.pool.now())
            && !self.chain.has_minimum_work()
        {
            self.sink.event(Event::Note(Note::LowWork { height: self.chain.tip_height() }));
        } else {
            return;
        }
        self.notices.last_note = Instant::now();
    }
}
