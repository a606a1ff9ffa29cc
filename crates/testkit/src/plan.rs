//! Plans a chain: which transactions each block has, what they spend, when, and with which scripts.
//!
//! Planning runs on one thread and needs no hashes: coins are identified by slots, so that the transactions
//! can be made (signed, hashed) in parallel behind it without changing a byte of the result.

use crate::{
    block::median_time_past,
    coin_pool::{CoinPool, PlannedCoin},
    prelude::*,
    scripts::{KEYS, Kind},
};
use std::{collections::VecDeque, ops::Range};

/// Number of blocks until a coinbase can be spent (Core `COINBASE_MATURITY`).
pub const COINBASE_MATURITY: u32 = 100;
/// Blocks below this height have only a coinbase, so that coins mature.
pub const FIRST_SPENDING_HEIGHT: u32 = 121;
/// Time of the regtest genesis block.
pub const GENESIS_TIME: u32 = 1_296_688_602;
/// Latest time of a block: 2026-10-01.
const LAST_TIME: u32 = 1_790_812_800;
/// Seconds between blocks.
const SPACING: u32 = 600;
/// Weight reserved for the header, the counts and the largest coinbase that is made.
const RESERVED_WEIGHT: u64 = 3_400;
/// Planned weight of a full block: the limit less what estimates may miss.
const MAX_TARGET: u64 = 3_998_000;
/// Weight of a transaction without inputs and outputs: version, lock time, two counts of one byte, marker and
/// flag.
const TX_WEIGHT: u64 = 4 * 10 + 2;
/// Maximum signature operation cost of a planned block; the consensus limit is 80,000.
const SIGOP_BUDGET: u64 = 76_000;
/// Maximum length of a chain of spends within a block.
const MAX_DEPTH: u16 = 25;
/// Number of ordinary blocks after the size is reached, so that no stale branch is as long as the active
/// chain.
const LAST_BLOCKS: u32 = 6;
/// Approximate number of bytes of block data per output.
const OUTPUT_BYTES: u64 = 170;
/// Maximum numbers of inputs and outputs of a transaction.
const MAX_INPUTS: u64 = 700;
const MAX_OUTPUTS: u64 = 3_000;

/// Number of outputs of the wide transaction: indices from 16,512 on take three bytes in a chainstate key,
/// where the key order is no longer numeric.
const WIDE_OUTPUTS: u64 = 17_000;

/// Kinds of outputs, with their shares of 1000: 85 % of inputs end up with a witness, as on mainnet.
const SHARES: [(Kind, u64); 14] = [
    (Kind::P2wpkh, 440),
    (Kind::P2trKey, 210),
    (Kind::P2trScript, 60),
    (Kind::P2wsh, 70),
    (Kind::P2shP2wpkh, 65),
    (Kind::P2shP2wsh, 15),
    (Kind::P2pkh, 90),
    (Kind::P2pkhUncompressed, 6),
    (Kind::P2shMultisig, 25),
    (Kind::Multisig, 6),
    (Kind::P2pk, 4),
    (Kind::P2pkUncompressed, 2),
    (Kind::Anyone, 3),
    (Kind::Anchor, 4),
];

#[derive(Clone, Copy, Debug)]
pub struct InputPlan {
    pub coin: PlannedCoin,
    pub sequence: u32,
}

#[derive(Clone, Copy, Debug)]
pub struct OutputPlan {
    /// Amount in satoshis.
    pub amount: u64,
    pub script: ScriptRef,
    /// The slot of its coin's txid; `None` if it creates no coin.
    pub slot: Option<u32>,
}

#[derive(Clone, Debug, Default)]
pub struct TxPlan {
    pub version: i32,
    pub lock_time: u32,
    /// Its inputs among those of the block.
    pub inputs: Range<usize>,
    /// Its outputs among those of the block.
    pub outputs: Range<usize>,
    /// Length of the longest chain of transactions in the same block that must be made before it.
    pub depth: u16,
}

#[derive(Clone, Debug, Default)]
pub struct BlockPlan {
    pub height: u32,
    /// Header time.
    pub time: u32,
    /// Header version.
    pub version: i32,
    pub coinbase: Vec<OutputPlan>,
    /// Content of the coinbase script after the height.
    pub extra_nonce: u64,
    /// Whether the coinbase commits to witnesses even if no transaction has one.
    pub commits: bool,
    /// Whether to pad the coinbase until the block has the maximum weight.
    pub fill: bool,
    /// All transactions except the coinbase, in block order.
    pub txs: Vec<TxPlan>,
    /// The inputs of all these transactions.
    pub inputs: Vec<InputPlan>,
    /// The outputs of all these transactions.
    pub outputs: Vec<OutputPlan>,
    /// Whether it belongs to the empty tail.
    pub is_tail: bool,
    /// Length of a stale branch that starts at this height; 0 for none.
    pub stale: u32,
}

/// Plans one block after the other.
#[derive(Debug)]
pub struct Planner<'a> {
    spec: &'a ChainSpec,
    pool: &'a ScriptPool,
    rng: Rng,
    coin_pool: CoinPool,
    /// Coinbase coins that are not yet mature, with the height at which they can be spent.
    immature: VecDeque<(u32, PlannedCoin)>,
    /// Coins that no planned transaction spends.
    kept: Vec<PlannedCoin>,
    free_slots: Vec<u32>,
    slots: u32,
    /// Header times by height.
    times: Vec<u32>,
    outputs: u64,
    bytes: u64,
    /// Height of the last ordinary block; `None` until it is known.
    end: Option<u32>,
}

/// What a block under construction has used so far.
#[derive(Default)]
struct Usage {
    weight: u64,
    sigops: u64,
    fees: u64,
    /// Coins that this block creates, each with its transaction's depth.
    fresh: Vec<(PlannedCoin, u16)>,
    /// Slots of coins that this block spends: reused from the next block on.
    freed: Vec<u32>,
}

/// What an input, an output or a transaction uses of a block's limits.
#[derive(Clone, Copy)]
struct Cost {
    weight: u64,
    sigops: u64,
}

impl Cost {
    const fn add(&mut self, other: Self) {
        self.weight += other.weight;
        self.sigops += other.sigops;
    }
}

impl<'a> Planner<'a> {
    /// Creates a planner whose next block is the one after the genesis block.
    pub fn new(spec: &'a ChainSpec, pool: &'a ScriptPool) -> Self {
        Self {
            spec,
            pool,
            rng: Rng::new(spec.seed, "plan"),
            coin_pool: CoinPool::new(spec.recent),
            immature: VecDeque::new(),
            kept: Vec::new(),
            free_slots: Vec::new(),
            slots: 0,
            times: vec![GENESIS_TIME],
            outputs: 0,
            bytes: 0,
            end: spec.blocks,
        }
    }

    /// Returns all coins that are unspent after the last planned block.
    pub fn coins(&self) -> impl Iterator<Item = &PlannedCoin> {
        self.coin_pool.iter().chain(self.immature.iter().map(|(_, coin)| coin)).chain(&self.kept)
    }

    /// Plans the next block. Returns `None` once the chain is as long or as large as its spec asks.
    pub fn next_block(&mut self) -> Option<BlockPlan> {
        let height = self.times.len() as u32;
        let is_tail = self.end.is_some_and(|end| height > end);
        if self.end.is_some_and(|end| height > end + self.spec.empty_tail) {
            return None;
        }
        self.mature(height);
        let mut usage = Usage { weight: RESERVED_WEIGHT, ..Usage::default() };
        let mut plan = BlockPlan { height, time: self.next_time(height), is_tail, ..BlockPlan::default() };
        plan.version =
            if self.rng.chance(1, 10) { 0x2000_0000 | self.rng.below(1 << 16) as i32 } else { 0x2000_0000 };
        if !is_tail
            && height >= FIRST_SPENDING_HEIGHT
            && (height == self.spec.wide_tx || !self.rng.chance(1, 80))
        {
            let target = self.target_weight(height);
            plan.fill = target >= MAX_TARGET;
            self.plan_txs(&mut plan, &mut usage, target);
        }
        self.plan_coinbase(&mut plan, &mut usage);
        for (coin, _) in usage.fresh {
            self.coin_pool.add(coin, &mut self.rng);
        }
        self.free_slots.append(&mut usage.freed);
        self.times.push(plan.time);
        // The weight of such blocks is about 2.5 times their size in bytes.
        self.bytes += usage.weight * 2 / 5;
        let enough = match self.spec.outputs {
            Some(outputs) => self.outputs >= outputs,
            None => self.bytes >= self.spec.bytes,
        };
        if self.end.is_none() && enough {
            self.end = Some(height + LAST_BLOCKS);
        }
        let is_before_end = self.end.is_none_or(|end| height + LAST_BLOCKS <= end);
        if self.spec.stale && is_before_end && height > 2 && self.rng.chance(1, 25) {
            plan.stale = self.rng.heavy(30, 3) as u32;
        }
        Some(plan)
    }

    fn mature(&mut self, height: u32) {
        while self.immature.front().is_some_and(|(mature, _)| *mature <= height) {
            if let Some((_, coin)) = self.immature.pop_front() {
                self.coin_pool.add(coin, &mut self.rng);
            }
        }
    }

    /// Sometimes earlier than the block before, but always after the median of the eleven blocks before.
    fn next_time(&mut self, height: u32) -> u32 {
        let spacing = SPACING.min((LAST_TIME - GENESIS_TIME) / (self.spec.blocks.unwrap_or(0) + 1));
        let jitter = if height > 12 { self.rng.below(u64::from(spacing) * 4) as u32 } else { spacing * 2 };
        GENESIS_TIME + height * spacing + jitter
    }

    fn target_weight(&mut self, height: u32) -> u64 {
        if height == self.spec.wide_tx {
            return MAX_TARGET;
        }
        let all = self.spec.outputs.map_or(self.spec.bytes, |outputs| outputs * OUTPUT_BYTES);
        let bytes = match self.spec.blocks {
            Some(blocks) => all / u64::from(blocks.saturating_sub(FIRST_SPENDING_HEIGHT).max(1)),
            None => all / 60,
        };
        let mean = (bytes * 5 / 2).max(20_000);
        if mean >= MAX_TARGET {
            // Most blocks are full, as on mainnet.
            let full = self.rng.chance(85, 100);
            return if full { MAX_TARGET } else { 400_000 + self.rng.below(MAX_TARGET - 400_000) };
        }
        (mean / 2 + self.rng.below(mean)).min(MAX_TARGET)
    }

    fn plan_txs(&mut self, plan: &mut BlockPlan, usage: &mut Usage, target: u64) {
        let mtp = median_time_past(&self.times[..plan.height as usize]);
        // The block ends when hardly any transaction fits. A large one that does not fit is discarded.
        let mut misses = 0;
        while usage.weight + 800 < target && misses < 4 {
            if self.coin_pool.len() + usage.fresh.len() < 2 {
                break;
            }
            if !self.plan_tx(plan, usage, target, mtp) {
                misses += 1;
            }
        }
    }

    /// Plans one transaction. Returns false if it does not fit.
    fn plan_tx(&mut self, plan: &mut BlockPlan, usage: &mut Usage, target: u64, mtp: u32) -> bool {
        let grow = (self.coin_pool.len() as u64) < self.wanted_coins();
        let is_wide = plan.height == self.spec.wide_tx && plan.txs.is_empty();
        let (inputs, outputs) = if is_wide { (20, WIDE_OUTPUTS) } else { self.shape(grow) };
        let (first_input, first_output) = (plan.inputs.len(), plan.outputs.len());
        let mut tx = TxPlan { version: self.version(), ..TxPlan::default() };
        let mut cost = Cost { weight: TX_WEIGHT, sigops: 0 };
        let mut total = 0;
        for count in 0..inputs {
            let Some((coin, depth)) = self.take_coin(usage, plan.height) else { break };
            cost.add(self.input_cost(coin.script));
            cost.weight += if count == 0xfc { 8 } else { 0 };
            tx.depth = tx.depth.max(depth);
            total += coin.amount;
            plan.inputs.push(InputPlan { coin, sequence: 0 });
        }
        let outputs = if is_wide { outputs } else { outputs.min(total / self.least_share()).max(1) };
        self.plan_outputs(&mut plan.outputs, outputs);
        cost.weight += if outputs > 0xfc { 8 } else { 0 };
        for output in &plan.outputs[first_output..] {
            cost.add(self.output_cost(output.script));
        }
        let no_inputs = plan.inputs.len() == first_input;
        if usage.weight + cost.weight > target || usage.sigops + cost.sigops > SIGOP_BUDGET || no_inputs {
            for input in plan.inputs.drain(first_input..) {
                self.return_coin(usage, input.coin, plan.height);
            }
            plan.outputs.truncate(first_output);
            return false;
        }
        let rate = self.rng.heavy(60, 60);
        let fee = (cost.weight * rate / 4).min(total / 100);
        let (inputs, outputs) = (&mut plan.inputs[first_input..], &mut plan.outputs[first_output..]);
        self.split(outputs, total - fee);
        tx.lock_time = self.plan_locks(inputs, plan.height, mtp);
        self.keep_outputs(outputs, tx.depth, plan.height, usage);
        usage.freed.extend(inputs.iter().map(|input| input.coin.slot));
        usage.weight += cost.weight;
        usage.sigops += cost.sigops;
        usage.fees += fee;
        tx.inputs = first_input..plan.inputs.len();
        tx.outputs = first_output..plan.outputs.len();
        plan.txs.push(tx);
        true
    }

    /// Returns the number of coins to aim for at this point.
    fn wanted_coins(&self) -> u64 {
        (self.outputs / self.spec.outputs_per_coin).clamp(400, self.spec.max_coins)
    }

    /// Returns the number of satoshis that a transaction must have for each output. Amounts stay above a few
    /// hundred satoshis, as less is not worth its fee; for many millions of coins, regtest does not issue
    /// enough bitcoins for that.
    const fn least_share(&self) -> u64 {
        if self.spec.max_coins <= 4_000_000 { 1_500 } else { 1 }
    }

    /// Chooses the numbers of inputs and outputs of the next transaction.
    fn shape(&mut self, grow: bool) -> (u64, u64) {
        let rng = &mut self.rng;
        if grow {
            let doubling = if rng.chance(1, 8) { 75 } else { 30 };
            return (rng.heavy(25, MAX_INPUTS), 1 + rng.heavy(doubling, MAX_OUTPUTS));
        }
        let outputs = match rng.below(100) {
            0..25 => 1,
            25..85 => 2,
            _ => 1 + rng.heavy(42, MAX_OUTPUTS),
        };
        let doubling = if rng.chance(1, 80) { 80 } else { 36 };
        (rng.heavy(doubling, MAX_INPUTS), outputs)
    }

    fn version(&mut self) -> i32 {
        match self.rng.below(100) {
            0..18 => 1,
            18..99 => 2,
            _ => 3,
        }
    }

    fn take_coin(&mut self, usage: &mut Usage, height: u32) -> Option<(PlannedCoin, u16)> {
        let from_block = self.coin_pool.is_empty() || self.rng.chance(10, 100);
        if from_block && !usage.fresh.is_empty() {
            let at = self.rng.below(usage.fresh.len() as u64) as usize;
            if usage.fresh[at].1 < MAX_DEPTH {
                let (coin, depth) = usage.fresh.swap_remove(at);
                debug_assert_eq!(coin.height(), height);
                return Some((coin, depth + 1));
            }
        }
        self.coin_pool.take(&mut self.rng).map(|coin| (coin, 0))
    }

    /// Returns a coin to the pool because the transaction that took it did not fit.
    fn return_coin(&mut self, usage: &mut Usage, coin: PlannedCoin, height: u32) {
        if coin.height() == height {
            // Its depth is no longer known; the maximum depth keeps it for later blocks.
            usage.fresh.push((coin, MAX_DEPTH));
        } else {
            self.coin_pool.add(coin, &mut self.rng);
        }
    }

    fn input_cost(&self, script: ScriptRef) -> Cost {
        match script {
            ScriptRef::Pool(number) => {
                let entry = self.pool.entry(number);
                Cost { weight: entry.input_weight, sigops: entry.input_sigops }
            }
            _ => Cost { weight: 41 * 4 + 1, sigops: 0 },
        }
    }

    fn output_cost(&self, script: ScriptRef) -> Cost {
        let (weight, sigops) = match script {
            ScriptRef::Pool(number) => {
                let entry = self.pool.entry(number);
                (4 * (9 + entry.script.len() as u64), entry.output_sigops)
            }
            ScriptRef::Bulky { len, .. } => (4 * (12 + u64::from(len)), 0),
            ScriptRef::Data { len, .. } => (4 * (14 + u64::from(len)), 0),
        };
        Cost { weight, sigops }
    }

    fn output_script(&mut self) -> ScriptRef {
        let salt = self.rng.below(1 << 16) as u16;
        match self.rng.below(100_000) {
            0..4_000 => ScriptRef::Data { len: 2 + self.rng.below(75) as u16, salt },
            4_000..4_010 => ScriptRef::Data { len: 0, salt },
            // Longer than the maximum size of a script.
            4_010..4_012 => ScriptRef::Data { len: 10_000 + self.rng.below(2_000) as u16, salt },
            4_012..4_100 => ScriptRef::Bulky { len: 40 + self.rng.below(600) as u16, salt },
            4_100..4_104 => ScriptRef::Bulky { len: 9_000 + self.rng.below(1_000) as u16, salt },
            _ => self.pool_script(),
        }
    }

    fn pool_script(&mut self) -> ScriptRef {
        // Chains without this share must not draw a random number for it: their bytes are fixed by tests.
        if self.spec.bare > 0 && self.rng.chance(self.spec.bare, 100) {
            return ScriptRef::new(Kind::Anyone, 0);
        }
        let mut pick = self.rng.below(SHARES.iter().map(|(_, share)| share).sum());
        let key = self.rng.below(KEYS.into()) as u16;
        for (kind, share) in SHARES {
            if pick < share {
                return ScriptRef::new(kind, key);
            }
            pick -= share;
        }
        ScriptRef::new(Kind::P2wpkh, key)
    }

    fn plan_outputs(&mut self, outputs: &mut Vec<OutputPlan>, count: u64) {
        for left in (0..count).rev() {
            // The last one gets the change, which must be spendable.
            let script = if left == 0 { self.pool_script() } else { self.output_script() };
            outputs.push(OutputPlan { amount: 0, script, slot: None });
        }
    }

    /// Divides `total` among the outputs, unevenly, some amounts round.
    fn split(&mut self, outputs: &mut [OutputPlan], total: u64) {
        let mut left = total;
        let mut count = outputs.len() as u64;
        for output in outputs {
            let is_data = matches!(output.script, ScriptRef::Data { .. });
            let mut amount = match count {
                1 => left,
                _ if is_data => 0,
                _ => self.rng.below(left * 3 / 2 / count + 1),
            };
            if count > 1 && self.rng.chance(1, 3) {
                let unit = 10u64.pow(self.rng.below(6) as u32 + 2);
                amount -= if amount > unit { amount % unit } else { 0 };
            }
            output.amount = amount;
            left -= amount;
            count -= 1;
        }
    }

    /// Chooses lock time and sequences. All are satisfied in this block, many of them not one block earlier.
    fn plan_locks(&mut self, inputs: &mut [InputPlan], height: u32, mtp: u32) -> u32 {
        let lock_time = match self.rng.below(100) {
            0..5 => height - 1,
            5..15 => height - 1 - self.rng.below(u64::from(height).min(10)) as u32,
            15..17 => mtp - 1,
            17..19 => mtp - 1 - self.rng.below(100_000) as u32,
            _ => 0,
        };
        let common =
            [0xffff_fffd, 0xffff_fffd, 0xffff_fffd, 0xffff_ffff, 0xffff_fffe][self.rng.below(5) as usize];
        for input in inputs {
            input.sequence = match self.rng.below(200) {
                0..6 => self.relative_lock(height - input.coin.height()),
                6..8 => self.relative_time(input.coin.height(), mtp),
                // Bit 31 disables the relative lock, whatever the other bits are.
                8 => 1 << 31 | self.rng.below(1 << 31) as u32,
                _ => common,
            };
        }
        lock_time
    }

    /// A relative lock of at most so many units: often just that many.
    fn relative_lock(&mut self, most: u32) -> u32 {
        let most = most.min(0xffff);
        if self.rng.chance(1, 2) { most } else { self.rng.below(u64::from(most) + 1) as u32 }
    }

    fn relative_time(&mut self, coin_height: u32, mtp: u32) -> u32 {
        let coin_time = median_time_past(&self.times[..coin_height.max(1) as usize]);
        1 << 22 | self.relative_lock(mtp.saturating_sub(coin_time) >> 9)
    }

    fn keep_outputs(&mut self, outputs: &mut [OutputPlan], depth: u16, height: u32, usage: &mut Usage) {
        self.outputs += outputs.len() as u64;
        for (vout, output) in outputs.iter_mut().enumerate() {
            if let Some(coin) = self.new_coin(output, vout, height << 1) {
                usage.fresh.push((coin, depth));
            }
        }
    }

    fn new_coin(&mut self, output: &mut OutputPlan, vout: usize, code: u32) -> Option<PlannedCoin> {
        if matches!(output.script, ScriptRef::Data { .. }) {
            return None;
        }
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        });
        output.slot = Some(slot);
        Some(PlannedCoin { slot, vout: vout as u32, amount: output.amount, code, script: output.script })
    }

    fn plan_coinbase(&mut self, plan: &mut BlockPlan, usage: &mut Usage) {
        let height = plan.height;
        let reserved = height <= self.spec.reserved;
        plan.extra_nonce = self.rng.next_u64();
        plan.commits = self.rng.chance(1, 2);
        let reward = subsidy(height) + usage.fees;
        // Some miners claimed less than they could.
        let claimed = if self.rng.chance(1, 50) { reward - self.rng.below(reward / 2 + 1) } else { reward };
        let count = if reserved { 1 } else { 1 + self.rng.heavy(20, 8) / 2 };
        let mut left = claimed;
        for output in 0..count {
            let script = match height {
                _ if reserved => ScriptRef::new(Kind::Anyone, 0),
                0..60 => ScriptRef::new(
                    if height.is_multiple_of(3) { Kind::P2pk } else { Kind::P2pkUncompressed },
                    height as u16,
                ),
                _ => self.pool_script(),
            };
            let amount = if output + 1 == count { left } else { self.rng.below(left + 1) };
            left -= amount;
            let mut output_plan = OutputPlan { amount, script, slot: None };
            if let Some(coin) = self.new_coin(&mut output_plan, output as usize, height << 1 | 1) {
                if reserved {
                    self.kept.push(coin);
                } else {
                    self.immature.push_back((height + COINBASE_MATURITY, coin));
                }
            }
            plan.coinbase.push(output_plan);
        }
    }
}

/// Returns the subsidy of a regtest block in satoshis (halved every 150 blocks).
pub const fn subsidy(height: u32) -> u64 {
    let halvings = height / 150;
    if halvings >= 64 { 0 } else { 5_000_000_000 >> halvings }
}
