//! Headers that peers send, and when there are no more of them.

use super::{END_PATIENCE, Fetch, HEADER_PATIENCE, Phase, locator};
use crate::options::MarkedBranch;
use api::{
    error::Error,
    event::Event,
    note::{Note, Warning},
};
use chain::header_chain::{AddedHeaders, RefusedHeaders};
use net::{headers::HeaderBatch, peer::PeerId};
use pipeline::job;
use std::time::Instant;
use wire::{BlockHash, Height};

impl Fetch<'_> {
    /// Adds headers, up to the first block that is known to be invalid.
    pub(super) fn headers(&mut self, batch: &HeaderBatch) {
        if self.keeps_chain {
            return self.compare_headers(batch);
        }
        let refused = self.chain.first_refused(batch.parent, &batch.hashes);
        let (len, refused) = refused.map_or((batch.hashes.len(), None), |(len, why)| (len, Some(why)));
        let added = match (len, refused) {
            (0, Some(refused)) => Err(refused),
            (len, refused) => {
                let (headers, hashes) = (&batch.headers[..len], &batch.hashes[..len]);
                let added = self.chain.add(batch.peer.0, batch.parent, headers, hashes, job::now());
                added.and_then(|added| {
                    let is_more = self.offers_more(batch.peer, added.height);
                    self.added(&added, is_more);
                    self.seen.sources.note_headers(batch.peer, added.height, added.from_future);
                    let shares_to = (added.shared < added.height).then_some(added.shared.0);
                    self.client.download.set_shared(batch.peer, shares_to);
                    refused.map_or(Ok(added), Err)
                })
            }
        };
        match added {
            Ok(AddedHeaders { height, from_future: Some(_), .. }) => {
                if !std::mem::replace(&mut self.notices.has_noted_future, true) {
                    self.sink.event(Event::Note(Note::HeaderFromFuture));
                }
                self.client.end_headers(batch, height.0, locator(&self.chain));
            }
            Ok(added) => {
                self.client.accept_headers(batch, added.height.0, added.new, locator(&self.chain));
            }
            // The peer has answered a locator from before the chain changed.
            Err(RefusedHeaders::Unconnected) => {
                self.client.headers.ask_again(batch.peer, locator(&self.chain));
            }
            Err(RefusedHeaders::Withheld) => self.withheld_again(batch),
            // It has done nothing wrong: the user may have marked the block.
            Err(RefusedHeaders::Marked(hash, height)) => {
                let peer = self.client.download.peer(batch.peer);
                let tip = Height(peer.map_or(height.0, |peer| peer.height.max(height.0)));
                self.sink.event(Event::Warning(Warning::MarkedInvalid { height, hash, tip }));
                self.seen.offer_marked.insert(batch.peer);
                self.seen.sources.note_headers(batch.peer, tip, None);
                if self.seen.marked.is_none_or(|marked| marked.tip < tip) {
                    self.seen.marked = Some(MarkedBranch { height, hash, tip });
                }
                let below = Height(height.0.saturating_sub(1));
                self.client.end_headers(batch, below.0, locator(&self.chain));
            }
            Err(RefusedHeaders::KnownInvalid) => {
                let target = self.client.pool.target(batch.peer);
                let named = target.and_then(|target| self.client.dialer.named(target)).or(target);
                self.seen.offer_invalid.extend(named.cloned());
                self.client.reject_headers(batch);
            }
            Err(RefusedHeaders::Invalid | RefusedHeaders::TooMany) => self.client.reject_headers(batch),
        }
    }

    /// Returns the highest branch that the block index marks as invalid, if all peers follow one that is
    /// higher than the chain.
    pub(super) fn left_out(&self) -> Option<MarkedBranch> {
        let ends_here =
            |peer: &PeerId| self.client.headers.has_finished(*peer) && !self.seen.offer_marked.contains(peer);
        let is_confirmed = self.client.download.peers().any(|(peer, _)| ends_here(&peer));
        self.seen.marked.filter(|marked| !is_confirmed && marked.tip > self.chain.tip_height())
    }

    /// Finds out up to where a peer's chain is the one in the block index, and ignores the rest.
    fn compare_headers(&mut self, batch: &HeaderBatch) {
        let Some(parent) = self.chain.height_of(&batch.parent) else {
            return self.client.headers.ask_again(batch.peer, locator(&self.chain));
        };
        let is_same = |(hash, height): &(&BlockHash, u32)| self.chain.hash(Height(*height)) == Some(**hash);
        let same = batch.hashes.iter().zip(parent.0 + 1..).take_while(is_same).count();
        let shared = parent.0 + same as u32;
        let leaves = same < batch.hashes.len() && shared < self.chain.tip_height().0;
        self.client.download.set_shared(batch.peer, leaves.then_some(shared));
        match same < batch.hashes.len() {
            true => self.client.end_headers(batch, shared, locator(&self.chain)),
            false => self.client.accept_headers(batch, shared, 0, locator(&self.chain)),
        }
    }

    /// `is_more`: whether their peer had offered fewer before.
    fn added(&mut self, added: &AddedHeaders, is_more: bool) {
        let is_in_chain = added.shared == added.height;
        // A branch that gets longer may become the chain. If a peer sends two in turns, their headers are new
        // every time.
        let is_progress = if is_in_chain { added.new > 0 } else { is_more };
        if is_progress {
            self.seen.sources.note_progress(self.client.pool.now());
        }
        // A branch with less work is not written, and no block of it will come.
        if added.new > 0 && is_in_chain {
            // A peer that has no more is no reason to leave one that sends new ones.
            self.seen.first_finished = None;
            self.index.is_behind = true;
            self.index.announced_at.get_or_insert_with(Instant::now);
            let from = added.fork.unwrap_or(Height(added.height.0 - added.new as u32));
            self.index.true_to = self.index.true_to.map(|height| height.min(from));
            // The chain may come back to blocks of a branch that it had left.
            if self.stored.may_have_above(from) {
                let other = self.index.not_looked_up.get_or_insert(from);
                *other = from.min(*other);
            }
        }
        let target = self.target();
        self.end_feed_if_left(target);
        if let Some(fork) = added.fork {
            self.leave_branch(fork);
        }
    }

    /// Whether the peers have no more headers, as far as they answer in time. Connections that are being
    /// opened may lead to peers that have more, unless blocks were downloaded meanwhile.
    pub(super) fn peers_have_no_more(&mut self) -> bool {
        let headers = &self.client.headers;
        if headers.finished_peers() == 0 && self.seen.offer_invalid.is_empty() {
            self.seen.first_finished = None;
            return false;
        }
        let connect = &self.options.peers.connect;
        if !connect.is_empty() && connect.iter().all(|target| self.seen.offer_invalid.contains(target)) {
            return true;
        }
        let now = self.client.pool.now();
        let waited = now - *self.seen.first_finished.get_or_insert(now);
        let is_settled = self.client.pool.opening() == 0 || matches!(self.phase, Phase::Ending(_));
        // Honest peers may be slow to connect. A branch that grows may become the chain, but anyone can make
        // one that never does.
        let is_over = headers.finished_peers() > 0
            && waited >= HEADER_PATIENCE
            && self.seen.sources.is_silent(now, HEADER_PATIENCE);
        headers.is_complete_after(HEADER_PATIENCE, now) && is_settled || is_over || waited >= END_PATIENCE
    }

    /// Finds blocks in the block files whose headers have come, before any other is appended.
    pub(super) fn find_unknown(&mut self) -> Result<(), Error> {
        let unknown = std::mem::take(&mut self.given.unknown);
        let Self { stored, chain, files, .. } = self;
        let find = |infos: &mut _| stored.find_beyond(files, chain, infos, &unknown);
        let (found, _) = self.writing.writer.change_infos(find)?;
        if found > 0 {
            self.report.found += found;
            (self.index.is_behind, self.index.true_to) = (true, None);
            self.sink.event(Event::Note(Note::FoundBlocks { blocks: found }));
        }
        Ok(())
    }
}
