//! A block's own delta: coins that a block makes and spends itself never reach the join.
//!
//! Inside a block the order counts: an output can be spent by later transactions only. Here both positions
//! are at hand, so this is where that is judged; the join then needs heights only. It also saves the join
//! work, as many spends are of coins a few transactions old.

use crate::finding::Finding;
use digest::siphash::SipHash13Uj;
use wire::{BlockView, Coin, Height, OutPoint, Txid, coin::compress_output, script::is_unspendable};

/// What a block did to the UTXO set, and to how much of it only in passing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BlockTally {
    /// Outputs that can be spent.
    pub created: u32,
    /// Outputs that cannot ([`is_unspendable`]): never coins.
    pub unspendable: u32,
    /// Inputs but the coinbase's.
    pub spent: u32,
    /// Of `spent`, those of coins that the block itself made.
    pub spent_inside: u32,
}

/// What has become of an output at the end of its block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It is a coin.
    Open,
    /// It was a coin that the block itself spends.
    SpentInside,
    /// It never was one ([`is_unspendable`]).
    Unspendable,
}

/// Where the effects of blocks go.
pub trait Sink {
    /// For the block's own table.
    fn hasher(&self) -> &SipHash13Uj;

    /// An output; those of a block come in block order, after its spends. The coin of an unspendable one has
    /// no bytes.
    fn push_output(&mut self, outpoint: &OutPoint, coin: Coin<'_>, fate: Fate);

    /// A coin of an earlier block is spent at `height`, of which undo data claim `claim`.
    fn push_spend(&mut self, outpoint: &OutPoint, claim: Coin<'_>, height: Height);

    /// Something is wrong that shows without other blocks.
    fn push_finding(&mut self, finding: Finding);
}

/// Reusable room for the delta of one block at a time.
#[derive(Clone, Debug, Default)]
pub struct BlockDelta {
    /// Open addressing over the block's txids: transaction index + 1, or 0. At most half full.
    table: Vec<u32>,
    /// Where each transaction's outputs begin in `ends`, and one more for the end.
    first_output: Vec<u32>,
    /// Where each output's compressed bytes end in `bytes`; they begin where the ones before end.
    ends: Vec<u32>,
    bytes: Vec<u8>,
    /// Per output.
    fates: Vec<Fate>,
}

impl BlockDelta {
    /// Sends to `effects` what a block makes and spends, but what it makes and spends itself.
    ///
    /// `txids` are those of the block's transactions, `claims` its undo data: one coin for each input of
    /// each transaction but the first, in block order. All defects become findings of `effects`. Not for the
    /// genesis block, whose coinbase is no coin, nor for coinbases that a later one overwrites (BIP-0030's
    /// exceptions).
    ///
    /// # Panics
    /// If there are not as many txids as transactions.
    pub fn apply(
        &mut self,
        block: &BlockView<'_>,
        txids: &[Txid],
        height: Height,
        claims: &[Coin<'_>],
        effects: &mut impl Sink,
    ) -> BlockTally {
        assert_eq!(txids.len(), block.tx_count());
        let coinbase_inputs = block.tx(0).map_or(0, |tx| tx.input_count());
        let inputs = block.input_count() - coinbase_inputs;
        if claims.len() != inputs {
            let (inputs, claims) = (inputs as u32, claims.len() as u32);
            effects.push_finding(Finding::ClaimCount { height, inputs, claims });
            return BlockTally::default();
        }
        let mut tally = self.load_outputs(block);
        tally.spent = inputs as u32;
        tally.spent_inside = self.spend(block, txids, height, claims, effects);
        self.create(txids, height, effects);
        tally
    }

    fn load_outputs(&mut self, block: &BlockView<'_>) -> BlockTally {
        let Self { first_output, ends, bytes, fates, .. } = self;
        first_output.clear();
        ends.clear();
        bytes.clear();
        fates.clear();
        for tx in block.txs() {
            first_output.push(ends.len() as u32);
            for output in tx.outputs() {
                let script = output.script_pubkey();
                let is_coin = !is_unspendable(script);
                if is_coin {
                    compress_output(bytes, output.value(), script);
                }
                ends.push(bytes.len() as u32);
                fates.push(if is_coin { Fate::Open } else { Fate::Unspendable });
            }
        }
        first_output.push(ends.len() as u32);
        let created = fates.iter().filter(|&&fate| fate == Fate::Open).count() as u32;
        BlockTally { created, unspendable: fates.len() as u32 - created, ..BlockTally::default() }
    }

    /// Returns how many inputs spent coins of the block itself.
    fn spend(
        &mut self,
        block: &BlockView<'_>,
        txids: &[Txid],
        height: Height,
        claims: &[Coin<'_>],
        effects: &mut impl Sink,
    ) -> u32 {
        if claims.is_empty() {
            return 0;
        }
        let hasher = *effects.hasher();
        self.load_txids(&hasher, txids);
        let mut claims = claims.iter();
        let mut inside = 0;
        for (tx_index, tx) in (0..).zip(block.txs()).skip(1) {
            for (input, &claim) in tx.inputs().zip(&mut claims) {
                let outpoint = input.prevout();
                match self.find_tx(&hasher, txids, &outpoint.txid) {
                    None => effects.push_spend(&outpoint, claim, height),
                    Some(creator) => {
                        inside += 1;
                        let spender = (height, tx_index);
                        if let Some(finding) = self.spend_inside(outpoint, creator, claim, spender) {
                            effects.push_finding(finding);
                        }
                    }
                }
            }
        }
        inside
    }

    fn spend_inside(
        &mut self,
        outpoint: OutPoint,
        creator: u32,
        claim: Coin<'_>,
        (height, tx_index): (Height, u32),
    ) -> Option<Finding> {
        if creator >= tx_index {
            return Some(Finding::SpentBeforeCreated(outpoint));
        }
        let outputs = self.outputs_of(creator);
        let output = outputs.start.saturating_add(outpoint.vout as usize);
        if output >= outputs.end || self.fates[output] != Fate::Open {
            return Some(Finding::MissingCoin(outpoint));
        }
        self.fates[output] = Fate::SpentInside;
        let created = self.coin(creator, output, height);
        (created != claim).then_some(Finding::ClaimDiffers(outpoint))
    }

    fn create(&self, txids: &[Txid], height: Height, effects: &mut impl Sink) {
        for (tx_index, &txid) in (0..).zip(txids) {
            for (vout, output) in (0..).zip(self.outputs_of(tx_index)) {
                let coin = self.coin(tx_index, output, height);
                effects.push_output(&OutPoint { txid, vout }, coin, self.fates[output]);
            }
        }
    }

    fn outputs_of(&self, tx_index: u32) -> std::ops::Range<usize> {
        let tx = tx_index as usize;
        self.first_output[tx] as usize..self.first_output[tx + 1] as usize
    }

    fn coin(&self, tx_index: u32, output: usize, height: Height) -> Coin<'_> {
        let start = output.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        let out = &self.bytes[start..self.ends[output] as usize];
        Coin { code: Coin::code_of(height, tx_index == 0), out }
    }

    fn load_txids(&mut self, hasher: &SipHash13Uj, txids: &[Txid]) {
        let slots = (txids.len() * 2).next_power_of_two();
        self.table.clear();
        self.table.resize(slots, 0);
        for (number, txid) in (1..).zip(txids) {
            let mut at = home(hasher, txid, slots);
            while self.table[at] != 0 {
                at = (at + 1) & (slots - 1);
            }
            self.table[at] = number;
        }
    }

    #[inline]
    fn find_tx(&self, hasher: &SipHash13Uj, txids: &[Txid], txid: &Txid) -> Option<u32> {
        let slots = self.table.len();
        let mut at = home(hasher, txid, slots);
        loop {
            let tx_index = self.table[at].checked_sub(1)?;
            if txids[tx_index as usize] == *txid {
                return Some(tx_index);
            }
            at = (at + 1) & (slots - 1);
        }
    }
}

#[inline]
fn home(hasher: &SipHash13Uj, txid: &Txid, slots: usize) -> usize {
    hasher.with_jumbo(&txid.0).finish() as usize & (slots - 1)
}
