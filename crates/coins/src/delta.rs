//! The delta of blocks in a row: coins that they make and spend themselves never reach the join.
//!
//! Inside a block the order counts: an output can be spent by later transactions only. Here both positions
//! are at hand, so this is where that is judged; the join then needs heights only. It also saves the join
//! most of its work: of the coins that are ever spent, most are spent within some blocks, and here, where
//! transactions are found and not coins, all is small enough for the caches of one core.

use crate::mismatch::Mismatch;
use digest::{cache::prefetch, siphash::SipHash13Uj};
use wire::{BlockView, Coin, Height, OutPoint, Txid, coin::compress_output, script::is_unspendable};

/// What has become of an output at the end of its block, or of those after it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OutputStatus {
    /// It is a coin.
    Unspent,
    /// It was a coin that the blocks themselves spend.
    SpentInBatch,
    /// It never was one ([`is_unspendable`]).
    Unspendable,
}

/// Where the effects of blocks go.
pub trait EffectSink {
    /// For the delta's own table.
    fn hasher(&self) -> &SipHash13Uj;

    /// An output; those of a block come in block order, after its spends. The coin of an unspendable one has
    /// no bytes.
    fn push_output(&mut self, outpoint: &OutPoint, coin: Coin<'_>, status: OutputStatus);

    /// A coin of an earlier block is spent at `height`, of which undo data claim `claim`.
    fn push_spend(&mut self, outpoint: &OutPoint, claim: Coin<'_>, height: Height);

    /// Something is wrong that shows without other blocks.
    fn push_mismatch(&mut self, mismatch: Mismatch);
}

/// Outputs above which there is no room for another block.
const OUTPUTS_MAX: usize = 32 << 10;
/// Bytes of compressed outputs, likewise: a hostile chain can fill blocks with long ones.
const BYTES_MAX: usize = 2 << 20;

/// Spends that are looked up at once: as many misses of the nearest cache as a core has in flight, and more.
const WINDOW: usize = 64;

/// A spend that is looked up.
struct Spend<'a> {
    /// Number of the transaction that spends.
    spender: u32,
    outpoint: OutPoint,
    claim: Coin<'a>,
    /// Home slot of its creator.
    home: usize,
    /// Its creator, and the number of the output, if the blocks in hand have made it.
    output: Option<(u32, u32)>,
}

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
    statuses: Vec<OutputStatus>,
}

impl Delta {
    /// Takes in a block. Spends of what the blocks in hand have not made go to `sink` now; what they make
    /// goes there by [`Delta::flush`], which is done first if they are too many or not all below this one.
    ///
    /// `txids` are those of the block's transactions, `claims` its undo data: one coin for each input of
    /// each transaction but the first, in block order. All defects become mismatches of `sink`. Not for the
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
        sink: &mut impl EffectSink,
    ) {
        assert_eq!(txids.len(), block.tx_count());
        let inputs = block.input_count() - block.tx(0).map_or(0, |tx| tx.input_count());
        if claims.len() != inputs {
            let (inputs, claims) = (inputs as u32, claims.len() as u32);
            sink.push_mismatch(Mismatch::ClaimCount { height, inputs, claims });
            return;
        }
        let is_above = self.codes.last().is_none_or(|&code| code < Coin::code_of(height, false));
        if !is_above || self.statuses.len() >= OUTPUTS_MAX || self.bytes.len() >= BYTES_MAX {
            self.flush(sink);
        }
        let first = self.txids.len();
        self.load(block, txids, height);
        self.index(sink.hasher(), first);
        let mut spends = (first as u32..)
            .zip(block.txs())
            .skip(1)
            .flat_map(|(spender, tx)| tx.inputs().map(move |input| (spender, input.prevout())))
            .zip(claims);
        let mut window = Vec::with_capacity(WINDOW);
        loop {
            window.clear();
            let next = spends.by_ref().take(WINDOW);
            window.extend(next.map(|((spender, outpoint), &claim)| {
                let home = self.home(sink.hasher(), &outpoint.txid);
                Spend { spender, outpoint, claim, home, output: None }
            }));
            if window.is_empty() {
                return;
            }
            self.spend(&mut window, height, sink);
        }
    }

    /// Spends coins, of the blocks in hand or of earlier ones. Each step brings into the cache what the next
    /// one needs for all of them.
    fn spend(&mut self, window: &mut [Spend<'_>], height: Height, sink: &mut impl EffectSink) {
        for spend in &*window {
            prefetch(&self.table[spend.home]);
        }
        for spend in &*window {
            if let Some(tx) = self.table[spend.home].checked_sub(1) {
                prefetch(&self.txids[tx as usize]);
                prefetch(&self.first_output[tx as usize]);
            }
        }
        for spend in &mut *window {
            if let Some(tx) = self.find_tx(spend.home, &spend.outpoint.txid) {
                let output = self.first_output[tx as usize].saturating_add(spend.outpoint.vout);
                spend.output = Some((tx, output));
                if let Some(end) = self.ends.get(output as usize) {
                    prefetch(end);
                }
            }
        }
        for spend in &*window {
            if let Some((_, output)) = spend.output
                && let Some(&end) = self.ends.get(output as usize)
                && let Some(last) = self.bytes.get(end.saturating_sub(1) as usize)
            {
                prefetch(last);
            }
        }
        for spend in &*window {
            match spend.output {
                None => sink.push_spend(&spend.outpoint, spend.claim, height),
                Some((tx, output)) => {
                    if let Some(mismatch) = self.spend_inside(spend, tx, output) {
                        sink.push_mismatch(mismatch);
                    }
                }
            }
        }
    }

    /// Sends to `sink` what the blocks have made, and what has become of it; then there are none.
    pub fn flush(&mut self, sink: &mut impl EffectSink) {
        let mut start = 0;
        let mut ends = self.ends.iter().zip(&self.statuses);
        for ((&txid, &code), outputs) in self.txids.iter().zip(&self.codes).zip(self.first_output.windows(2))
        {
            for ((&end, &status), vout) in ends.by_ref().take((outputs[1] - outputs[0]) as usize).zip(0..) {
                let coin = Coin { code, out: &self.bytes[start as usize..end as usize] };
                sink.push_output(&OutPoint { txid, vout }, coin, status);
                start = end;
            }
        }
        self.table.fill(0);
        self.txids.clear();
        self.codes.clear();
        self.first_output.clear();
        self.ends.clear();
        self.bytes.clear();
        self.statuses.clear();
    }

    fn load(&mut self, block: &BlockView<'_>, txids: &[Txid], height: Height) {
        let Self { codes, first_output, ends, bytes, statuses, .. } = self;
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
                statuses.push(if is_coin { OutputStatus::Unspent } else { OutputStatus::Unspendable });
            }
        }
        first_output.push(ends.len() as u32);
        self.txids.extend_from_slice(txids);
        codes.push(Coin::code_of(height, true));
        codes.resize(self.txids.len(), Coin::code_of(height, false));
    }

    /// Spends what the blocks have made.
    fn spend_inside(&mut self, spend: &Spend<'_>, creator: u32, output: u32) -> Option<Mismatch> {
        if creator >= spend.spender {
            return Some(Mismatch::SpentBeforeCreated(spend.outpoint));
        }
        let (tx, output) = (creator as usize, output as usize);
        if output >= self.first_output[tx + 1] as usize || self.statuses[output] != OutputStatus::Unspent {
            return Some(Mismatch::MissingCoin(spend.outpoint));
        }
        self.statuses[output] = OutputStatus::SpentInBatch;
        let start = output.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        let created = Coin { code: self.codes[tx], out: &self.bytes[start..self.ends[output] as usize] };
        (created != spend.claim).then_some(Mismatch::ClaimDiffers(spend.outpoint))
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
        for tx in first..self.txids.len() {
            let mut slot = self.home(hasher, &self.txids[tx]);
            while self.table[slot] != 0 {
                slot = self.after(slot);
            }
            self.table[slot] = tx as u32 + 1;
        }
    }

    /// Finds a transaction, from its home slot on.
    #[inline]
    fn find_tx(&self, home: usize, txid: &Txid) -> Option<u32> {
        let mut slot = home;
        loop {
            let tx = self.table[slot].checked_sub(1)?;
            if self.txids[tx as usize] == *txid {
                return Some(tx);
            }
            slot = self.after(slot);
        }
    }

    /// The slot in which a transaction is, or the first one after it that was free.
    #[inline]
    fn home(&self, hasher: &SipHash13Uj, txid: &Txid) -> usize {
        hasher.with_jumbo(&txid.0).finish() as usize & (self.table.len() - 1)
    }

    #[inline]
    fn after(&self, slot: usize) -> usize {
        (slot + 1) & (self.table.len() - 1)
    }
}
