//! What a scripted peer answers to questions for spent coins (BIP 455).

use super::{Fault, ServedChain};
use crate::model::change_output;
use net::message::Message;
use wire::{BlockHash, Coin, SpentCoinsForm};

/// Answers that a late peer keeps back.
const LATE: usize = 3;

/// The answers of one connection.
pub(super) struct SpentCoinsServer {
    fault: Fault,
    /// Whether nothing is answered any more, neither pings.
    pub(super) is_mute: bool,
    kept_back: Vec<Message>,
}

impl SpentCoinsServer {
    pub(super) const fn new(fault: Fault) -> Self {
        Self { fault, is_mute: false, kept_back: Vec::new() }
    }

    /// Returns the messages that are sent for a question.
    pub(super) fn answer(
        &mut self,
        chain: &ServedChain,
        form: SpentCoinsForm,
        block: BlockHash,
    ) -> Vec<Message> {
        let Some(height) = chain.find(&block).filter(|&height| !chain.undo[height].is_empty()) else {
            return Vec::new();
        };
        let below = height.saturating_sub(1).max(1);
        let (hash, at) = match self.fault {
            Fault::ForeignCoins => (chain.hashes[below], below),
            Fault::SwappedCoins => (block, below),
            Fault::SilentCoins => return Vec::new(),
            Fault::MuteCoins => {
                self.is_mute = true;
                return Vec::new();
            }
            _ => (block, height),
        };
        let mut coins = chain.coins(at);
        match self.fault {
            Fault::ShortCoins => drop(coins.pop()),
            Fault::FalseCoins => {
                if let Some((_, out)) = coins.last_mut() {
                    change_output(out, |amount, _| *amount += 1);
                }
            }
            Fault::FalseScripts => {
                coins.iter_mut().for_each(|(_, out)| change_output(out, |_, script| script.push(0x51)));
            }
            _ => {}
        }
        let coins = coins.iter().map(|(code, out)| Coin { code: *code, out });
        let mut bytes = form.write(&hash, coins).expect("the coins are well-formed");
        if self.fault == Fault::MalformedCoins && bytes.len() > BlockHash::default().0.len() + 1 {
            bytes.pop();
        }
        self.kept_back.push(Message::SpentCoins { form, bytes });
        let keeps = if self.fault == Fault::LateCoins { LATE } else { 0 };
        let sent = self.kept_back.len().saturating_sub(keeps);
        self.kept_back.drain(..sent).collect()
    }
}
