//! Blocks that no peer has.

use super::{Fetch, locator};
use api::{error::Error, event::Event, note::Note, remedy::Remedy};
use net::{client::Client, headers::HeaderBatch, peer::PeerId};
use wire::Height;

/// Maximum number of headers above a block that no peer has for its branch to be abandoned. A chain with more
/// of them has too much work to be left because of the peers that happen to be connected.
const MAX_WITHHELD: u32 = 1_000;

impl Fetch<'_> {
    /// Goes on without a block at the end of the chain that all peers lack.
    pub(super) fn leave_withheld_branch(&mut self) -> Result<(), Error> {
        let withheld = self.client.download.withheld(self.client.pool.now());
        let Some(height) = withheld.map(Height) else { return Ok(()) };
        if self.keeps_chain {
            return Err(self.nobody_has(height));
        }
        if self.chain.tip_height().0 - height.0 < MAX_WITHHELD
            && let Some(hash) = self.chain.hash(height)
        {
            self.sink.event(Event::Note(Note::Withheld { hash, height }));
            let branch = Some((self.chain.tip_height(), height));
            if self.seen.sources.withheld < branch {
                self.seen.sources.withheld = branch;
                // A peer that is not connected may have the block, and is believed once more when it comes
                // back.
                let Client { download, pool, .. } = &self.client;
                let is_of = |target: &_| download.peers().any(|(peer, _)| pool.target(peer) == Some(target));
                self.seen.offered.retain(|target, _| is_of(target));
            }
            // The blocks above it that have come are found in the block index if the branch comes back.
            self.save()?;
            self.chain.set_aside(height);
            self.leave_branch(self.chain.tip_height());
        }
        Ok(())
    }

    /// A peer offers headers of a branch that was left because nobody had a block. If they are more than it
    /// has offered before, or it was not connected then, somebody has probably got the block. Otherwise, the
    /// peer may be honest too, and will offer the same chain again and again.
    pub(super) fn withheld_again(&mut self, batch: &HeaderBatch) {
        let Some(parent) = self.chain.height_of(&batch.parent) else {
            // It is the block that nobody had.
            return self.client.headers.ask_again(batch.peer, locator(&self.chain));
        };
        if self.offers_more(batch.peer, Height(parent.0 + batch.hashes.len() as u32)) {
            self.chain.forget_withheld();
            return self.headers(batch);
        }
        self.client.accept_headers(batch, 0, 0, locator(&self.chain));
    }

    /// Notes up to which height a peer offers headers. Returns whether it had offered fewer before.
    pub(super) fn offers_more(&mut self, peer: PeerId, height: Height) -> bool {
        let Some(target) = self.client.pool.target(peer) else { return false };
        let offered = self.seen.offered.entry(target.clone()).or_default();
        let is_more = height > *offered;
        *offered = height.max(*offered);
        is_more
    }

    pub(super) fn nobody_has(&self, height: Height) -> Error {
        let shared = self.client.download.peers().filter_map(|(_, peer)| peer.shares_to).max();
        let chains = match shared {
            Some(shared) => format!("their chains leave the one of this datadir above height {shared}"),
            None => self.source_reasons(true),
        };
        let detail = format!("no peer that is connected has this block: {chains}; name a peer that has it");
        Error::environment(detail)
            .at_block(height, self.chain.hash(height).unwrap_or_default())
            .with_remedies(shared.map(|_| Remedy::Sync))
            .with_remedies([Remedy::GiveBlock, Remedy::EndBelowDamage])
    }
}
