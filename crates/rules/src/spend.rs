//! The rules that depend on the spent coins: `CheckTxInputs`, BIP-0068, signature operations and the reward,
//! in the order of Core's `ConnectBlock`.
//!
//! The coins come from undo data and are claims; the join later proves that each is the coin that was
//! created. This module therefore does not trust them: it reports a claim of a coin from a higher block,
//! which the join could never match, as a missing coin.

use crate::{
    params::{ChainParams, subsidy},
    script_flags::flags_from_genesis,
    sigops::{self, MAX_BLOCK_SIGOPS_COST, SIGOP_COST},
    table::{REWARD_RULES, SPEND_RULES},
    violation::{Violation, ViolationDetails, first_violation, require},
};
use wire::{
    BlockHash, BlockTime, BlockView, Coin, CoinError, Height, Sats, TxIndex, TxView, coin::CompressedScript,
};

/// Number of blocks after which a coinbase's outputs may be spent (Core `COINBASE_MATURITY`).
pub const COINBASE_MATURITY: u32 = 100;

/// BIP-0068: the input has no relative lock.
const SEQUENCE_LOCKTIME_DISABLE_FLAG: u32 = 1 << 31;
/// BIP-0068: the lock is a time, not a number of blocks.
const SEQUENCE_LOCKTIME_TYPE_FLAG: u32 = 1 << 22;
/// BIP-0068: the bits of the lock's value.
const SEQUENCE_LOCKTIME_MASK: u32 = 0xffff;
/// BIP-0068: times are in units of 2^9 seconds.
const SEQUENCE_LOCKTIME_GRANULARITY: u32 = 9;

/// A coin that an input spends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpentCoin<'a> {
    pub amount: Sats,
    pub script: CompressedScript<'a>,
    /// Height of the block that created it.
    pub height: Height,
    pub is_coinbase: bool,
}

impl<'a> SpentCoin<'a> {
    /// Decodes a compressed coin.
    ///
    /// # Errors
    /// [`CoinError`] if its bytes are malformed.
    #[inline]
    pub fn from_coin(coin: &Coin<'a>) -> Result<Self, CoinError> {
        let (amount, script) = coin.output()?;
        Ok(Self { amount, script, height: coin.height(), is_coinbase: coin.is_coinbase() })
    }
}

/// Running sums over a block's transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BlockTotals {
    pub fees: Sats,
    /// Total cost of the signature operations.
    pub sigop_cost: u64,
}

/// A transaction with the coins that it spends.
#[derive(Clone, Copy, Debug)]
pub struct SpendContext<'a> {
    pub params: &'a ChainParams,
    pub height: Height,
    /// Hash of the block, by which exceptions from script rules are recognised.
    pub hash: &'a BlockHash,
    pub tx: &'a TxView<'a>,
    pub tx_index: TxIndex,
    /// The coins in the order of its inputs; empty for a coinbase.
    pub coins: &'a [SpentCoin<'a>],
    /// Median time past of each block of the chain, by height, at least up to the previous block.
    pub mtp_by_height: &'a [BlockTime],
    /// The sums over the transactions before it.
    pub before: BlockTotals,
}

/// A block with the coins that it spends.
#[derive(Clone, Copy, Debug)]
pub struct BlockSpendContext<'a> {
    pub params: &'a ChainParams,
    /// Height of the block; not 0, since the genesis block is never connected.
    pub height: Height,
    pub hash: &'a BlockHash,
    /// The block, which has passed [`crate::check_block`].
    pub block: &'a BlockView<'a>,
    /// The coins that all transactions except the coinbase spend, in block order. Any beyond the number of
    /// inputs are ignored.
    pub coins: &'a [SpentCoin<'a>],
    /// See [`SpendContext::mtp_by_height`].
    pub mtp_by_height: &'a [BlockTime],
    /// The number of legacy signature operations that [`crate::check_block`] returned.
    pub legacy_sigops: u32,
}

/// A coinbase and the fees that it may claim.
#[derive(Clone, Copy, Debug)]
pub struct RewardContext<'a> {
    pub params: &'a ChainParams,
    pub height: Height,
    pub coinbase: &'a TxView<'a>,
    /// Sum of the fees of all other transactions.
    pub fees: Sats,
}

/// Checks all spends of a block and its reward.
///
/// # Errors
/// The first broken rule, in the order of Core: [`SPEND_RULES`] for each transaction, then [`REWARD_RULES`].
///
/// # Panics
/// If `mtp_by_height` does not reach the previous block.
pub fn check_block_spends(context: &BlockSpendContext<'_>) -> Result<BlockTotals, Violation> {
    if let Some(totals) = passes_all(context) {
        return Ok(totals);
    }
    check_block_spends_with_table(context)
}

/// [`check_block_spends`] with the table alone: slower, and its specification.
///
/// # Panics
/// Panics like [`check_block_spends`].
pub fn check_block_spends_with_table(context: &BlockSpendContext<'_>) -> Result<BlockTotals, Violation> {
    let &BlockSpendContext { params, height, hash, block, mut coins, mtp_by_height, .. } = context;
    let mut before = BlockTotals::default();
    for (tx, index) in block.txs().zip(0..) {
        let input_count = if tx.is_coinbase() { 0 } else { tx.input_count() };
        let (own, rest) = coins.split_at(input_count.min(coins.len()));
        coins = rest;
        let tx_index = TxIndex(index);
        let spend =
            SpendContext { params, height, hash, tx: &tx, tx_index, coins: own, mtp_by_height, before };
        before = check_tx_spends(&spend)?;
    }
    if let Some(coinbase) = block.tx(0) {
        check_coinbase_amount(&RewardContext { params, height, coinbase: &coinbase, fees: before.fees })?;
    }
    Ok(before)
}

/// Checks the spends of one transaction and returns the sums after it. For a coinbase, only the signature
/// operations are added.
///
/// # Errors
/// The first broken rule of [`SPEND_RULES`].
///
/// # Panics
/// Panics like [`check_block_spends`].
pub fn check_tx_spends(context: &SpendContext<'_>) -> Result<BlockTotals, Violation> {
    first_violation(SPEND_RULES, context.params, context.height, |check| {
        check(context).map_err(|details| details.at_tx(context.tx_index))
    })?;
    Ok(BlockTotals {
        fees: Sats(context.before.fees.0 + fee(context)),
        sigop_cost: context.before.sigop_cost + sigop_cost_of_tx(context),
    })
}

/// Checks that the coinbase pays at most the subsidy and the fees.
///
/// # Errors
/// The first broken rule of [`REWARD_RULES`].
pub fn check_coinbase_amount(context: &RewardContext<'_>) -> Result<(), Violation> {
    first_violation(REWARD_RULES, context.params, context.height, |check| {
        check(context).map_err(|details| details.at_tx(TxIndex(0)))
    })
}

/// The fused pass. Returns the sums, or `None` if any rule is broken.
fn passes_all(c: &BlockSpendContext<'_>) -> Option<BlockTotals> {
    let flags = flags_from_genesis(c.params, c.hash);
    let bip68 = csv_active(c.params, c.height);
    let mut coins = c.coins;
    let mut fees = 0;
    let mut sigop_cost = u64::from(c.legacy_sigops) * SIGOP_COST;
    for tx in c.block.txs().skip(1) {
        let (own, rest) = coins.split_at_checked(tx.input_count())?;
        coins = rest;
        let has_relative_locks = bip68 && tx.version() >= 2;
        let mut value_in = 0i64;
        for (input, coin) in tx.inputs().zip(own) {
            let depth = c.height.0.checked_sub(coin.height.0)?;
            value_in = value_in.saturating_add(coin.amount.0);
            if coin.is_coinbase && depth < COINBASE_MATURITY
                || !coin.amount.in_money_range()
                || value_in > Sats::MAX_MONEY.0
                || has_relative_locks && !is_unlocked(input.sequence(), coin, c.height, c.mtp_by_height)
            {
                return None;
            }
            sigop_cost += sigops::spend_cost(&input, coin, flags);
        }
        let fee = value_in - value_out(&tx);
        fees += fee;
        if fee < 0 || fees > Sats::MAX_MONEY.0 {
            return None;
        }
    }
    let reward = value_out(&c.block.tx(0)?);
    let passes_all = sigop_cost <= MAX_BLOCK_SIGOPS_COST && reward <= fees + subsidy(c.params, c.height).0;
    passes_all.then_some(BlockTotals { fees: Sats(fees), sigop_cost })
}

pub(crate) fn csv_active(params: &ChainParams, height: Height) -> bool {
    height >= params.csv_height
}

/// Returns the sum of a transaction's outputs, which cannot overflow: [`crate::check_tx`] has limited it.
fn value_out(tx: &TxView<'_>) -> i64 {
    tx.outputs().map(|output| output.value().0).sum()
}

fn value_in(c: &SpendContext<'_>) -> i64 {
    c.coins.iter().map(|coin| coin.amount.0).sum()
}

fn fee(c: &SpendContext<'_>) -> i64 {
    if c.tx.is_coinbase() { 0 } else { value_in(c) - value_out(c.tx) }
}

pub(crate) fn coins_exist(c: &SpendContext<'_>) -> Result<(), ViolationDetails> {
    let inputs = if c.tx.is_coinbase() { 0 } else { c.tx.input_count() };
    if c.coins.len() != inputs {
        return Err(ViolationDetails::new(format!("{} coins for {inputs} inputs", c.coins.len())));
    }
    let mut coins = c.coins.iter().zip(0..);
    let Some((coin, input)) = coins.find(|(coin, _)| coin.height > c.height) else { return Ok(()) };
    let detail = format!("claims a coin of height {}, which is above the block", coin.height);
    Err(ViolationDetails::new(detail).at_input(input))
}

/// The first invalid coin: its input, its depth if it is immature, and the sum up to it. Core checks both
/// conditions coin by coin.
fn first_bad_coin(c: &SpendContext<'_>) -> Option<(u32, Option<u32>, i64)> {
    let mut total = 0i64;
    for (coin, input) in c.coins.iter().zip(0..) {
        let depth = c.height.0 - coin.height.0;
        let immature = (coin.is_coinbase && depth < COINBASE_MATURITY).then_some(depth);
        total = total.saturating_add(coin.amount.0);
        if immature.is_some() || !coin.amount.in_money_range() || total > Sats::MAX_MONEY.0 {
            return Some((input, immature, total));
        }
    }
    None
}

pub(crate) fn coinbase_is_mature(c: &SpendContext<'_>) -> Result<(), ViolationDetails> {
    let Some((input, Some(depth), _)) = first_bad_coin(c) else { return Ok(()) };
    let detail = format!("spends a coinbase {depth} blocks deep, expected at least {COINBASE_MATURITY}");
    Err(ViolationDetails::new(detail).at_input(input))
}

pub(crate) fn input_values_in_range(c: &SpendContext<'_>) -> Result<(), ViolationDetails> {
    let Some((input, None, total)) = first_bad_coin(c) else { return Ok(()) };
    let detail = format!("inputs up to this one are {total} sat, expected at most {}", Sats::MAX_MONEY);
    Err(ViolationDetails::new(detail).at_input(input))
}

pub(crate) fn inputs_pay_outputs(c: &SpendContext<'_>) -> Result<(), ViolationDetails> {
    require(fee(c) >= 0, || format!("inputs are {} sat, outputs {}", value_in(c), value_out(c.tx)))
}

pub(crate) fn fees_in_range(c: &SpendContext<'_>) -> Result<(), ViolationDetails> {
    let fees = Sats(c.before.fees.0 + fee(c));
    require(fees.in_money_range(), || {
        format!("fees so far are {fees} sat, expected at most {}", Sats::MAX_MONEY)
    })
}

/// Returns whether an input's relative lock allows it in the block.
///
/// The "- 1" is Core's: it computes the last height and time at which the transaction is still locked.
#[inline]
fn is_unlocked(sequence: u32, coin: &SpentCoin<'_>, height: Height, mtp_by_height: &[BlockTime]) -> bool {
    if sequence & SEQUENCE_LOCKTIME_DISABLE_FLAG != 0 {
        return true;
    }
    let lock = i64::from(sequence & SEQUENCE_LOCKTIME_MASK);
    let mtp_before = |height: Height| i64::from(mtp_by_height[height.0.saturating_sub(1) as usize].0);
    if sequence & SEQUENCE_LOCKTIME_TYPE_FLAG != 0 {
        mtp_before(coin.height) + (lock << SEQUENCE_LOCKTIME_GRANULARITY) - 1 < mtp_before(height)
    } else {
        i64::from(coin.height.0) + lock - 1 < i64::from(height.0)
    }
}

pub(crate) fn relative_locks(c: &SpendContext<'_>) -> Result<(), ViolationDetails> {
    if c.tx.version() < 2 {
        return Ok(());
    }
    let mut spends = c.tx.inputs().zip(c.coins).zip(0..);
    let locked =
        spends.find(|((input, coin), _)| !is_unlocked(input.sequence(), coin, c.height, c.mtp_by_height));
    let Some(((input, coin), index)) = locked else { return Ok(()) };
    let (sequence, height) = (input.sequence(), coin.height);
    let detail = format!("sequence 0x{sequence:08x} still locks a coin of height {height}");
    Err(ViolationDetails::new(detail).at_input(index))
}

fn sigop_cost_of_tx(c: &SpendContext<'_>) -> u64 {
    let flags = flags_from_genesis(c.params, c.hash);
    let spends = c.tx.inputs().zip(c.coins);
    let cost: u64 = spends.map(|(input, coin)| sigops::spend_cost(&input, coin, flags)).sum();
    cost + u64::from(sigops::count_legacy_of_tx(c.tx)) * SIGOP_COST
}

pub(crate) fn sigop_cost_within_limit(c: &SpendContext<'_>) -> Result<(), ViolationDetails> {
    let cost = c.before.sigop_cost + sigop_cost_of_tx(c);
    require(cost <= MAX_BLOCK_SIGOPS_COST, || {
        format!("signature operations cost {cost} so far, expected at most 80000")
    })
}

pub(crate) fn coinbase_amount(c: &RewardContext<'_>) -> Result<(), ViolationDetails> {
    let (pays, limit) = (value_out(c.coinbase), c.fees.0 + subsidy(c.params, c.height).0);
    require(pays <= limit, || format!("coinbase pays {pays} sat, expected at most {limit}"))
}
