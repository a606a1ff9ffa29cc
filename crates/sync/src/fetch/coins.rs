//! The coins that blocks spend, as peers send them, on their way to the rebuild behind the download.

use super::Fetch;
use api::{error::Error, event::Event, note::Note};
use chain::blocks::claims::PeerClaims;
use net::{
    client::SentCoins,
    peer::{PeerId, SpentCoinsFault},
    pool::Target,
};
use wire::{BlockHash, Height, SpentCoinsError, SpentCoinsForm};

impl Fetch<'_> {
    /// Where claims of what blocks spend go, if the rebuild takes them.
    pub(super) fn claims(&self) -> Option<&PeerClaims> {
        self.given.feed.as_ref().and_then(|feed| feed.blocks.claims())
    }

    /// Remembers who has sent the coins of a block, and returns them.
    pub(super) fn note_coins(&mut self, block: BlockHash, coins: SentCoins) -> (SpentCoinsForm, Vec<u8>) {
        let SentCoins { peer, target, form, bytes } = coins;
        self.writing.coins_from.insert(block, (peer, target));
        (form, bytes)
    }

    /// Tells the caller of a peer that is no longer asked for coins, but stays connected.
    pub(super) fn note_refused(&self, target: &Target, fault: &SpentCoinsFault) {
        let (peer, reason) = (target.to_string(), fault.to_string());
        self.sink.event(Event::Note(Note::SpentCoinsRefused { peer, reason }));
    }

    /// Takes the undo data that coins from a peer make, of a block that is stored.
    pub(super) fn claimed(
        &mut self,
        (height, hash): (Height, BlockHash),
        undo: Result<Vec<u8>, SpentCoinsError>,
        (peer, target): &(PeerId, Target),
        coins_len: usize,
    ) -> Result<(), Error> {
        match undo {
            Ok(undo) if self.chain.hash(height) == Some(hash) => {
                self.report.blocks_with_coins += 1;
                self.report.coins_bytes += coins_len as u64;
                let claims = self.claims();
                claims.map_or(Ok(()), |it| it.add(self.files.disk, height, &undo, &target.to_string()))
            }
            Ok(_) => Ok(()),
            Err(flaw) => {
                self.client.reject_coins(*peer, target, flaw);
                Ok(())
            }
        }
    }
}
