//! The delta of blocks in a row: coins that they make and spend themselves never reach the join.
//!
//! Inside a block the order counts: an output can be spent by later transactions only. Here both positions
//! are at hand, so this is where that is judged; the join then needs heights only. It also saves the join
//! most of its work: of the coins that are ever spent, most are spent within some blocks, and here, where
//! transactions are found and not coins, all is small enough for the caches of one core.

use crate::finding::Finding;
use digest::siphash::SipHash13Uj;
use wire::{BlockView, Coin, Height, OutPoint, Txid, coin::compress_output, script::is_unspendable};

/// What has become of an output at the end of its block, or of those after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It is a coin.
    Open,
    /// It was a coin that the blocks themselves spend.
    SpentInside,
    /// It never was one ([`is_unspendable`]).
    Unspendable,
}

/// Where the effects of blocks go.
pub trait Sink {
    /// For the delta's own table.
    fn hasher(&self) -> &SipHash13Uj;

    /// An output; those of a block come in block order, after its spends. The coin of an unspendable one has
    /// no bytes.
    fn push_output(&mut self, outpoint: &OutPoint, coin: Coin<'_>, fate: Fate);

    /// A coin of an earlier block is spent at `height`, of which undo data claim `claim`.
    fn push_spend(&mut self, outpoint: &OutPoint, claim: Coin<'_>, height: Height);

    /// Something is wrong that shows without other blocks.
    fn push_finding(&mut self, finding: Finding);
}

/// Outputs above which there is no room for another block.
const OUTPUTS_MAX: usize = 32 << 10;
/// Bytes of compressed outputs, likewise: a hostile chain can fill blocks with long ones.
const BYTES_MAX: usize = 2 << 20;

/// What blocks of rising heights have made and not spent.
#[derive(Clone, Debug, Default)]
pub struct Delta {
    /// Open addressing over the transactions: number + 1, or 0. At most half full.
    table: Vec<u32>,
    /// Of each transaction.
    txids: Vec<Txid>,
    /// Of the coins of each transaction ([`Coin::code`]).
    codes: Vec<u32>,
    /// Where each transaction's outputs begin in `ends`, and one more for the end.
    first_output: Vec<u32>,
    /// Where each output's compressed bytes end in `bytes`; they begin where the ones before end.
    ends: Vec<u32>,
    bytes: Vec<u8>,
    /// Per output.
    fates: Vec<Fate>,
}

impl Delta {
    /// Takes in a block. Spends of what the blocks in hand have not made go to `sink` now; what they make
    /// goes there by [`Delta::flush`], which is done first if they are too many or not all below this one.
    ///
    /// `txids` are those of the block's transactions, `claims` its undo data: one coin for each input of
    /// each transaction but the first, in block order. All defects become findings of `sink`. Not for the
    /// genesis block, whose coinbase is no coin, nor for coinbases that a later one overwrites (BIP-0030's
    /// exceptions).
    ///
    /// # Panics
    /// If there are not as many txids as transactions.
    pub fn add(
        &mut self,
        block: &BlockView<'_>,
        txids: &[Txid],
        height: Height,
        claims: &[Coin<'_>],
        sink: &mut impl Sink,
    ) {
        assert_eq!(txids.len(), block.tx_count());
        let inputs = block.input_count() - block.tx(0).map_or(0, |tx| tx.input_count());
        if claims.len() != inputs {
            let (inputs, claims) = (inputs as u32, claims.len() as u32);
            sink.push_finding(Finding::ClaimCount { height, inputs, claims });
            return;
        }
        let is_above = self.codes.last().is_none_or(|&code| code < Coin::code_of(height, false));
        if !is_above || self.fates.len() >= OUTPUTS_MAX || self.bytes.len() >= BYTES_MAX {
            self.flush(sink);
        }
        let first = self.txids.len();
        self.load(block, txids, height);
        self.index(sink.hasher(), first);
        let hasher = *sink.hasher();
        let mut claims = claims.iter();
        for (spender, tx) in (first as u32..).zip(block.txs()).skip(1) {
            for (input, &claim) in tx.inputs().zip(&mut claims) {
                let outpoint = input.prevout();
                match self.find_tx(&hasher, &outpoint.txid) {
                    None => sink.push_spend(&outpoint, claim, height),
                    Some(creator) => {
                        if let Some(finding) = self.spend(outpoint, creator, claim, spender) {
                            sink.push_finding(finding);
                        }
                    }
                }
            }
        }
    }

    /// Sends to `sink` what the blocks have made, and what has become of it; then there are none.
    pub fn flush(&mut self, sink: &mut impl Sink) {
        let mut start = 0;
        let mut ends = self.ends.iter().zip(&self.fates);
        for ((&txid, &code), outputs) in self.txids.iter().zip(&self.codes).zip(self.first_output.windows(2))
        {
            for ((&end, &fate), vout) in ends.by_ref().take((outputs[1] - outputs[0]) as usize).zip(0..) {
                let coin = Coin { code, out: &self.bytes[start as usize..end as usize] };
                sink.push_output(&OutPoint { txid, vout }, coin, fate);
                start = end;
            }
        }
        self.table.fill(0);
        self.txids.clear();
        self.codes.clear();
        self.first_output.clear();
        self.ends.clear();
        self.bytes.clear();
        self.fates.clear();
    }

    fn load(&mut self, block: &BlockView<'_>, txids: &[Txid], height: Height) {
        let Self { codes, first_output, ends, bytes, fates, .. } = self;
        first_output.pop();
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
        self.txids.extend_from_slice(txids);
        codes.push(Coin::code_of(height, true));
        codes.resize(self.txids.len(), Coin::code_of(height, false));
    }

    /// Spends what the blocks have made.
    fn spend(&mut self, outpoint: OutPoint, creator: u32, claim: Coin<'_>, spender: u32) -> Option<Finding> {
        if creator >= spender {
            return Some(Finding::SpentBeforeCreated(outpoint));
        }
        let tx = creator as usize;
        let outputs = self.first_output[tx] as usize..self.first_output[tx + 1] as usize;
        let output = outputs.start.saturating_add(outpoint.vout as usize);
        if output >= outputs.end || self.fates[output] != Fate::Open {
            return Some(Finding::MissingCoin(outpoint));
        }
        self.fates[output] = Fate::SpentInside;
        let start = output.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        let created = Coin { code: self.codes[tx], out: &self.bytes[start..self.ends[output] as usize] };
        (created != claim).then_some(Finding::ClaimDiffers(outpoint))
    }

    /// Enters the transactions from `first` on into the table.
    fn index(&mut self, hasher: &SipHash13Uj, first: usize) {
        let mut first = first;
        let slots = (self.txids.len() * 2).next_power_of_two();
        if slots > self.table.len() {
            self.table.clear();
            self.table.resize(slots, 0);
            first = 0;
        }
        let mask = self.table.len() - 1;
        for (number, txid) in (first as u32 + 1..).zip(&self.txids[first..]) {
            let mut at = home(hasher, txid) & mask;
            while self.table[at] != 0 {
                at = (at + 1) & mask;
            }
            self.table[at] = number;
        }
    }

    #[inline]
    fn find_tx(&self, hasher: &SipHash13Uj, txid: &Txid) -> Option<u32> {
        let mask = self.table.len() - 1;
        let mut at = home(hasher, txid) & mask;
        loop {
            let tx = self.table[at].checked_sub(1)?;
            if self.txids[tx as usize] == *txid {
                return Some(tx);
            }
            at = (at + 1) & mask;
        }
    }
}

#[inline]
fn home(hasher: &SipHash13Uj, txid: &Txid) -> usize {
    hasher.with_jumbo(&txid.0).finish() as usize
}
