//! The delta of consecutive blocks: cancels coins that they create and spend themselves, so that these never
//! reach the join.
//!
//! Within a block the order matters: an output can be spent only by later transactions. The delta knows both
//! positions, so it checks this; the join then needs only heights. It also saves the join most of its work:
//! of all coins that are ever spent, most are spent within a few blocks, and the delta's table, which has one
//! entry per transaction instead of one per coin, is small enough for the caches of one core.

use crate::{
    delivery::{Delivery, Spender},
    join::Effects,
    mismatch::Mismatch,
};
use digest::{cache::prefetch, siphash::SipHash13Uj};
use wire::{BlockView, Coin, Height, OutPoint, Txid, coin::compress_output, script::is_unspendable};

/// The state of an output after the blocks of the delta.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OutputStatus {
    /// It is a coin.
    Unspent,
    /// It was a coin, but these blocks spend it.
    SpentInBatch,
    /// It never was a coin ([`is_unspendable`]).
    Unspendable,
}

/// Receives the effects of blocks.
pub trait EffectSink<'j> {
    /// The worker's effects. Spends without a claim, deliveries and mismatches go there immediately.
    fn effects(&mut self) -> &mut Effects<'j>;

    /// Receives an output; those of a block come in block order, after its spends. The coin of an unspendable
    /// output has no bytes.
    fn push_output(&mut self, outpoint: &OutPoint, coin: Coin<'_>, status: OutputStatus);

    /// Receives the spend of an earlier block's coin at `height`, with the claim of the undo data.
    fn push_spend(&mut self, outpoint: &OutPoint, claim: Coin<'_>, height: Height);
}

impl<'j> EffectSink<'j> for Effects<'j> {
    #[inline]
    fn effects(&mut self) -> &mut Self {
        self
    }

    #[inline]
    fn push_output(&mut self, outpoint: &OutPoint, coin: Coin<'_>, status: OutputStatus) {
        if status == OutputStatus::Unspent {
            self.push_creation(outpoint, coin);
        }
    }

    #[inline]
    fn push_spend(&mut self, outpoint: &OutPoint, claim: Coin<'_>, height: Height) {
        Self::push_spend(self, outpoint, claim, height);
    }
}

/// What is known of the coin that an input spends.
#[derive(Clone, Copy)]
enum Spent<'c> {
    /// The claim of the undo data.
    Claim(Coin<'c>),
    /// Only the input to which the coin is delivered.
    Routed(Spender),
}

/// Number of outputs above which the delta is flushed before another block.
const OUTPUTS_MAX: usize = 32 << 10;
/// Size of compressed outputs from which on another block flushes the delta first, in bytes: a hostile chain
/// can fill blocks with long outputs.
const BYTES_MAX: usize = 2 << 20;

/// Number of spends that are looked up together: more than the number of L1 misses that a core has in flight.
const WINDOW: usize = 64;

/// A spend that is being looked up.
struct Spend<'c> {
    /// Index of the transaction that spends.
    tx: u32,
    outpoint: OutPoint,
    spent: Spent<'c>,
    /// Home slot of the transaction that created the coin.
    home: usize,
    /// Index of that transaction, and of the output, if it is in the blocks of the delta.
    output: Option<(u32, u32)>,
}

/// The outputs of blocks of ascending heights, and their states.
#[derive(Clone, Debug, Default)]
pub struct Delta {
    /// Hash table of the transactions with open addressing: index + 1, or 0. At most half full.
    table: Vec<u32>,
    txids: Vec<Txid>,
    /// The [`Coin::code`] of each transaction's coins.
    codes: Vec<u32>,
    /// The index of each transaction's first output, followed by the number of outputs.
    first_output: Vec<u32>,
    /// The end of each output's compressed form in `bytes`; it begins at the end of the previous one.
    ends: Vec<u32>,
    bytes: Vec<u8>,
    statuses: Vec<OutputStatus>,
}

impl Delta {
    /// Adds a block. Spends of coins that the delta's blocks have not created go to `sink` immediately;
    /// created outputs go there with [`Delta::flush`], which runs first if the delta is full or not all of
    /// its blocks are below this one.
    ///
    /// `txids` are those of the block's transactions, `claims` its undo data: one coin for each input of each
    /// transaction except the first, in block order. Without undo data, each input gets its coin by a
    /// delivery, which [`HintedEffects`](crate::hinted::HintedEffects) do not have: their sum is then not
    /// zero. All defects become mismatches. The genesis block, whose coinbase is not a coin, and blocks whose
    /// coinbase is overwritten by a later one (BIP-0030's exceptions) must not be added.
    ///
    /// # Panics
    /// If the number of txids is not the number of transactions.
    pub fn add<'j>(
        &mut self,
        block: &BlockView<'_>,
        txids: &[Txid],
        height: Height,
        claims: Option<&[Coin<'_>]>,
        sink: &mut impl EffectSink<'j>,
    ) {
        assert_eq!(txids.len(), block.tx_count());
        let inputs = block.input_count() - block.tx(0).map_or(0, |tx| tx.input_count());
        if let Some(claims) = claims.filter(|claims| claims.len() != inputs) {
            let (inputs, claims) = (inputs as u32, claims.len() as u32);
            sink.effects().push_mismatch(Mismatch::ClaimCount { height, inputs, claims });
            return;
        }
        let is_above = self.codes.last().is_none_or(|&code| code < Coin::code_of(height, false));
        if !is_above || self.statuses.len() >= OUTPUTS_MAX || self.bytes.len() >= BYTES_MAX {
            self.flush(sink);
        }
        let (first, hasher) = (self.txids.len(), *sink.effects().hasher());
        self.load(block, txids, height);
        self.index(&hasher, first);
        // A valid block has fewer inputs than there are spenders. The spends of the others are missing, so it
        // does not go unnoticed.
        let spent = (0..).map_while(|input| match claims {
            Some(claims) => claims.get(input as usize).copied().map(Spent::Claim),
            None => Spender::new(height, input).map(Spent::Routed),
        });
        let mut spends = (first as u32..)
            .zip(block.txs())
            .skip(1)
            .flat_map(|(tx, view)| view.inputs().map(move |input| (tx, input.prevout())))
            .zip(spent);
        let mut window = Vec::with_capacity(WINDOW);
        loop {
            window.clear();
            let next = spends.by_ref().take(WINDOW);
            window.extend(next.map(|((tx, outpoint), spent)| {
                let home = self.home(&hasher, &outpoint.txid);
                Spend { tx, outpoint, spent, home, output: None }
            }));
            if window.is_empty() {
                return;
            }
            self.spend(&mut window, height, sink);
        }
    }

    /// Applies spends of coins of the delta's blocks or of earlier ones. Each step prefetches for all spends
    /// what the next step reads.
    fn spend<'j>(&mut self, window: &mut [Spend<'_>], height: Height, sink: &mut impl EffectSink<'j>) {
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
            let outpoint = &spend.outpoint;
            let Some((creator, output)) = spend.output else {
                match spend.spent {
                    Spent::Claim(claim) => sink.push_spend(outpoint, claim, height),
                    Spent::Routed(spender) => sink.effects().push_routed_spend(outpoint, spender),
                }
                continue;
            };
            match (self.take(spend, creator, output), spend.spent) {
                (Err(mismatch), _) => sink.effects().push_mismatch(mismatch),
                (Ok(created), Spent::Claim(claim)) if created == claim => {}
                (Ok(_), Spent::Claim(_)) => {
                    sink.effects().push_mismatch(Mismatch::ClaimDiffers(*outpoint));
                }
                // Coin and spend are both in this delta, so the join sees neither.
                (Ok(created), Spent::Routed(spender)) => {
                    Delivery::encode(spender, outpoint, created, sink.effects().deliveries());
                }
            }
        }
    }

    /// Pushes all outputs with their states to `sink` and clears the delta.
    pub fn flush<'j>(&mut self, sink: &mut impl EffectSink<'j>) {
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

    /// Marks an output of the delta's blocks as spent, and returns its coin.
    fn take(&mut self, spend: &Spend<'_>, creator: u32, output: u32) -> Result<Coin<'_>, Mismatch> {
        if creator >= spend.tx {
            return Err(Mismatch::SpentBeforeCreated(spend.outpoint));
        }
        let (tx, output) = (creator as usize, output as usize);
        if output >= self.first_output[tx + 1] as usize || self.statuses[output] != OutputStatus::Unspent {
            return Err(Mismatch::MissingCoin(spend.outpoint));
        }
        self.statuses[output] = OutputStatus::SpentInBatch;
        let start = output.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        Ok(Coin { code: self.codes[tx], out: &self.bytes[start..self.ends[output] as usize] })
    }

    /// Inserts the transactions from `first` on into the table.
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

    /// Finds a transaction, starting at its home slot.
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

    /// Returns the slot at which the probe sequence of a txid starts.
    #[inline]
    fn home(&self, hasher: &SipHash13Uj, txid: &Txid) -> usize {
        hasher.with_jumbo(&txid.0).finish() as usize & (self.table.len() - 1)
    }

    #[inline]
    fn after(&self, slot: usize) -> usize {
        (slot + 1) & (self.table.len() - 1)
    }
}
