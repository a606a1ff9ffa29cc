//! What a block changes in the statistics of the UTXO set. Their sums are the values of Core's index of
//! statistics, so that those of any height are known without a walk over the set.
//!
//! Source: Core `index/coinstatsindex.cpp` `CustomAppend`.

use digest::muhash::MuHash3072;
use disk::utxo_stats::{CoinCounter, UtxoCounts};
use rules::{ChainParams, subsidy};
use std::collections::HashSet;
use wire::{BlockHash, BlockView, Coin, Height, OutPoint, Sats, Txid, UtxoElement};

api::reported! {
/// Amounts that a block moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BlockAmounts {
    /// Sum of the coins that it spends.
    pub prevout_spent as "prevout_spent_sat": Sats,
    /// Sum of the coins that its coinbase creates.
    pub coinbase as "coinbase_sat": Sats,
    /// Sum of the coins that its other transactions create.
    pub new_outputs_ex_coinbase as "new_outputs_ex_coinbase_sat": Sats,
    /// What can never be spent of it.
    pub unspendable with "Unspendables" [flatten]: UnspendableAmounts,
}
}

api::json::fields! {
    /// What can never be spent, with its sum.
    Unspendables(amounts: UnspendableAmounts) {
        unspendable_sat: Sats = amounts.total(),
        unspendables: UnspendableAmounts = *amounts,
    }
}

api::reported! {
/// Amounts that can never be spent, by the reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UnspendableAmounts {
    /// The subsidy of the genesis block, which creates no coin.
    pub genesis_block as "genesis_block_sat": Sats,
    /// The subsidy of a block whose coinbase a later one repeats (BIP-0030).
    pub bip30 as "bip30_sat": Sats,
    /// Outputs whose scripts are unspendable.
    pub scripts as "scripts_sat": Sats,
    /// The part of subsidy and fees that the coinbase leaves.
    pub unclaimed_rewards as "unclaimed_rewards_sat": Sats,
}
}

impl UnspendableAmounts {
    /// The sum of all.
    pub const fn total(&self) -> Sats {
        Sats(self.genesis_block.0 + self.bip30.0 + self.scripts.0 + self.unclaimed_rewards.0)
    }
}

/// Coins, with the heights of the blocks that create them, which need not be hashed: they are spent again
/// before a hash is wanted.
pub type Cancelled = HashSet<(OutPoint, Height)>;

/// What a block changes.
#[derive(Clone, Debug)]
pub struct StatsChange {
    /// The coins that it creates, divided by those that it spends, both without those that cancel out.
    pub muhash: MuHash3072,
    /// The coins that it creates. A coinbase that a later one repeats creates none.
    pub created: UtxoCounts,
    pub spent: UtxoCounts,
    pub amounts: BlockAmounts,
}

impl StatsChange {
    /// Adds up a valid block, which spends the coins `spent`, in the order of its inputs.
    pub fn of(
        params: &ChainParams,
        height: Height,
        hash: &BlockHash,
        block: &BlockView<'_>,
        txids: &[Txid],
        spent: &[Coin<'_>],
        cancelled: &Cancelled,
    ) -> Self {
        let (mut muhash, mut element) = (MuHash3072::new(), Vec::new());
        let (mut amounts, subsidy) = (BlockAmounts::default(), subsidy(params, height));
        let (mut created, mut removed) = (CoinCounter::default(), CoinCounter::default());
        let is_overwritten = params.is_overwritten_coinbase(height, hash);
        for ((tx, &txid), index) in block.txs().zip(txids).zip(0u32..) {
            let is_coinbase = index == 0;
            if is_coinbase && height.0 == 0 {
                amounts.unspendable.genesis_block = subsidy;
                continue;
            }
            if is_coinbase && is_overwritten {
                amounts.unspendable.bip30 = subsidy;
                continue;
            }
            for (output, vout) in tx.outputs().zip(0..) {
                let (amount, script) = (output.value(), output.script_pubkey());
                if wire::script::is_unspendable(script) {
                    amounts.unspendable.scripts.0 += amount.0;
                    continue;
                }
                let sum = match is_coinbase {
                    true => &mut amounts.coinbase,
                    false => &mut amounts.new_outputs_ex_coinbase,
                };
                sum.0 += amount.0;
                let (outpoint, code) = (OutPoint { txid, vout }, Coin::code_of(height, is_coinbase));
                if !cancelled.contains(&(outpoint, height)) {
                    element.clear();
                    UtxoElement { outpoint, code, amount, script }.write(&mut element);
                    muhash.insert(&element);
                }
                created.add_parsed(&outpoint, &Coin { code, out: &[] }, amount, script.len());
            }
        }
        for (outpoint, coin) in block.prevouts().zip(spent) {
            // A coin that a valid block spends is not malformed.
            let Ok((amount, script)) = coin.output() else { continue };
            amounts.prevout_spent.0 += amount.0;
            removed.add_parsed(&outpoint, coin, amount, script.script_len());
            element.clear();
            if !cancelled.contains(&(outpoint, coin.height()))
                && coin.write_utxo_element(&outpoint, &mut element).is_ok()
            {
                muhash.remove(&element);
            }
        }
        let BlockAmounts { prevout_spent, coinbase, new_outputs_ex_coinbase, unspendable } = amounts;
        let claimed = coinbase.0 + new_outputs_ex_coinbase.0 + unspendable.total().0;
        amounts.unspendable.unclaimed_rewards = Sats(prevout_spent.0 + subsidy.0 - claimed);
        Self { muhash, created: created.counts(), spent: removed.counts(), amounts }
    }
}
