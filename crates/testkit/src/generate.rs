//! Generates a chain: plans it on one thread, makes transactions on all threads, and assembles blocks in
//! height order on another one.

use crate::{
    block::{HeaderPlan, assemble, coinbase},
    coin_pool::PlannedCoin,
    make::Maker,
    model::{ModelCoin, ModelStats},
    mutation::anyone,
    plan::{BlockPlan, Planner},
    prelude::*,
    scripts::Kind,
};
use rayon::slice::ParallelSliceMut;
use std::sync::mpsc::sync_channel;

/// Number of blocks that are planned ahead of making, and made ahead of assembling: enough to keep all
/// threads busy.
const AHEAD: usize = 2;
/// Maximum size in bytes of the output that pads the coinbase of a full block.
const MAX_PADDING: u64 = 9_000;

#[derive(Clone, Debug)]
pub struct ChainSpec {
    /// Seed of all random numbers.
    pub seed: u64,
    /// Number of bytes of block data to aim for.
    pub bytes: u64,
    /// Height of the last block before the empty tail; `None` for as many blocks as the bytes need.
    pub blocks: Option<u32>,
    /// Number of coinbase-only blocks after that.
    pub empty_tail: u32,
    /// Whether signatures are valid. If not, they are placeholders of the same length.
    pub signed: bool,
    /// Number of threads that make transactions; 0 for one per core.
    pub threads: usize,
    /// Number of outputs to aim for, instead of bytes.
    pub outputs: Option<u64>,
    /// One in this many outputs stays unspent; on mainnet, one in about 20.
    pub outputs_per_coin: u64,
    /// Approximate maximum number of unspent coins.
    pub max_coins: u64,
    /// Number of coins that count as recent: a little over half of the spends take one of them, half of the
    /// others one of the next oldest coins, of which there are four times as many, and so on.
    pub recent: usize,
    /// Percentage of coins that anyone can spend: they take few bytes, for many coins in a small chain.
    pub bare: u64,
    /// The coinbases up to this height pay to `TRUE` and are never spent, so that tests can spend them in
    /// blocks that they add to the chain.
    pub reserved: u32,
    pub stale: bool,
    /// Height of a block that starts with a transaction of 17,000 outputs (about 600 kB); 0 for none.
    pub wide_tx: u32,
}

impl ChainSpec {
    /// A chain of about `bytes` bytes with valid signatures.
    pub const fn new(seed: u64, bytes: u64) -> Self {
        Self {
            seed,
            bytes,
            blocks: None,
            empty_tail: 0,
            signed: true,
            threads: 0,
            outputs: None,
            outputs_per_coin: 9,
            max_coins: 4_000_000,
            recent: 512,
            bare: 0,
            reserved: 0,
            stale: true,
            wide_tx: 0,
        }
    }
}

/// Totals of a generated chain, over its active chain.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Height of the last block.
    pub height: u32,
    pub hash: BlockHash,
    /// Hash of the last block before the empty tail: the block to assume valid so that unsigned scripts are
    /// skipped.
    pub before_tail: BlockHash,
    /// Number of blocks, with the genesis block.
    pub blocks: u64,
    /// Number of transactions, with coinbases.
    pub txs: u64,
    /// Number of inputs, without those of coinbases.
    pub inputs: u64,
    /// Number of outputs, with unspendable ones.
    pub outputs: u64,
    pub witness_inputs: u64,
    /// Ages of the spent coins.
    pub ages: Ages,
    /// Number of bytes of blocks, without stale ones.
    pub bytes: u64,
    pub stale_blocks: u64,
    /// The unspent coins at the end, as the planner counts them.
    pub utxo: ModelStats,
}

/// Counts spends by the age of their coins, in blocks.
#[derive(Clone, Debug, Default)]
pub struct Ages(Vec<u64>);

impl Ages {
    fn add(&mut self, age: u32) {
        let age = age as usize;
        if age >= self.0.len() {
            self.0.resize(age + 1, 0);
        }
        self.0[age] += 1;
    }

    /// Returns numbers of spends: the first of coins of the same block, number n of ages from 2^(n-1) to
    /// 2^n - 1 blocks.
    pub fn by_powers_of_two(&self) -> Vec<u64> {
        let mut counts = Vec::new();
        for (age, count) in (0_u32..).zip(&self.0) {
            counts.resize((u32::BITS - age.leading_zeros()) as usize + 1, 0);
            *counts.last_mut().expect("it is not empty") += count;
        }
        counts
    }

    /// Returns the age that `percent` percent of the spent coins do not exceed.
    pub fn percentile(&self, percent: u64) -> u32 {
        let wanted = self.0.iter().sum::<u64>() * percent / 100;
        let mut counted = 0;
        let reaches = |count: &u64| {
            counted += count;
            counted >= wanted
        };
        self.0.iter().position(reaches).unwrap_or(0) as u32
    }
}

struct MadeBlock {
    plan: BlockPlan,
    txs: Vec<MadeTx>,
    coinbase: MadeTx,
    stale_coinbase: Option<MadeTx>,
}

/// Generates a chain and passes its blocks to `sink` in height order, the genesis block first, each stale
/// branch right after the block it competes with.
///
/// # Errors
/// The first error of `sink`.
pub fn generate<E: Send>(
    spec: &ChainSpec,
    mut sink: impl FnMut(GeneratedBlock) -> Result<(), E> + Send,
) -> Result<Totals, E> {
    let pool = &ScriptPool::new(spec.seed, spec.signed);
    let threads = rayon::ThreadPoolBuilder::new()
        .num_threads(spec.threads)
        .build()
        .expect("the machine can start threads");
    let mut planner = Planner::new(spec, pool);
    let mut maker = Maker::new(pool);
    std::thread::scope(|scope| {
        let (plans, planned) = sync_channel(AHEAD);
        let (made, finished) = sync_channel::<MadeBlock>(AHEAD);
        let planner = scope.spawn(|| {
            let plans = plans;
            while let Some(plan) = planner.next_block() {
                if plans.send(plan).is_err() {
                    break;
                }
            }
            planner
        });
        let writer = scope.spawn(move || -> Result<Totals, E> {
            let genesis = GeneratedBlock::genesis();
            let mut totals =
                Totals { blocks: 1, txs: 1, outputs: 1, hash: genesis.hash, ..Totals::default() };
            totals.bytes = genesis.bytes.len() as u64;
            sink(genesis)?;
            for block in finished {
                emit_block(&block, pool, &mut totals, &mut sink)?;
                if !block.plan.is_tail {
                    totals.before_tail = totals.hash;
                }
            }
            Ok(totals)
        });
        for plan in planned {
            let block = threads.install(|| make_block(&mut maker, plan));
            if made.send(block).is_err() {
                break;
            }
        }
        drop(made);
        let planner = planner.join().expect("planning does not panic");
        let mut totals = writer.join().expect("assembling does not panic")?;
        totals.utxo = threads.install(|| stats(planner, &maker, pool));
        Ok(totals)
    })
}

/// Counts and hashes the unspent coins. Sorts them by the first bytes of the txid, which are beside the coin,
/// before the rest of it, which is in another table.
fn stats(planner: Planner<'_>, maker: &Maker<'_>, pool: &ScriptPool) -> ModelStats {
    let outpoint = |coin: &PlannedCoin| OutPoint { txid: Txid(maker.txid(coin.slot)), vout: coin.vout };
    let keyed = |coin: &PlannedCoin| {
        let txid = maker.txid(coin.slot);
        let first = txid.first_chunk().expect("32 bytes have 8 first ones");
        (u64::from_be_bytes(*first), *coin)
    };
    let mut coins: Vec<(u64, PlannedCoin)> = planner.coins().map(keyed).collect();
    drop(planner);
    coins.par_sort_unstable_by(|(a, coin), (b, other)| {
        a.cmp(b).then_with(|| outpoint(coin).cmp(&outpoint(other)))
    });
    ModelStats::of_sorted(coins.iter().map(|(_, coin)| {
        let script = pool.script(coin.script).into_bytes();
        (outpoint(coin), ModelCoin { code: coin.code, amount: coin.amount as i64, script })
    }))
}

fn make_block(maker: &mut Maker<'_>, plan: BlockPlan) -> MadeBlock {
    let txs = maker.make(&plan);
    let outputs: Vec<TxOut> = plan.coinbase.iter().map(|output| maker.output(output)).collect();
    let mut tx = coinbase(plan.height, plan.extra_nonce, outputs);
    if plan.commits || txs.iter().any(MadeTx::has_witness) {
        commit_to_witnesses(&mut tx, txs.iter().map(|tx| tx.wtxid));
    }
    let mut made = MadeTx::new(&tx, Vec::new());
    if plan.fill {
        let counts = if txs.len() < 0xfc { 1 } else { 3 };
        let weight = 4 * (80 + counts) + made.weight() + txs.iter().map(MadeTx::weight).sum::<u64>();
        let spare = 4_000_000u64.saturating_sub(weight) / 4;
        // Value 8, script length 3, opcode and push length 4: only if there is enough data for lengths of two
        // bytes.
        if (300..MAX_PADDING).contains(&spare) {
            let data = vec![0x42; spare as usize - 15];
            let data = bitcoin::script::PushBytesBuf::try_from(data).expect("9,000 bytes can be pushed");
            let script = Builder::new().push_opcode(bitcoin::opcodes::all::OP_RETURN).push_slice(data);
            let at = plan.coinbase.len();
            tx.output.insert(at, TxOut { value: Amount::ZERO, script_pubkey: script.into_script() });
            made = MadeTx::new(&tx, Vec::new());
        }
    }
    maker.publish(&plan.coinbase, made.txid);
    let stale_coinbase = (plan.stale > 0).then(|| {
        // The first half of the block's transactions: it includes all transactions of the block that they
        // spend from.
        let half = &txs[..txs.len() / 2];
        stale_coinbase(maker, plan.height, plan.extra_nonce, half)
    });
    MadeBlock { plan, txs, coinbase: made, stale_coinbase }
}

fn stale_coinbase(maker: &Maker<'_>, height: u32, extra_nonce: u64, txs: &[MadeTx]) -> MadeTx {
    let script = ScriptRef::new(Kind::P2wpkh, height as u16);
    let output = maker.output(&crate::plan::OutputPlan { amount: subsidy(height), script, slot: None });
    let mut tx = coinbase(height, !extra_nonce, vec![output]);
    if txs.iter().any(MadeTx::has_witness) {
        commit_to_witnesses(&mut tx, txs.iter().map(|tx| tx.wtxid));
    }
    MadeTx::new(&tx, Vec::new())
}

fn emit_block<E>(
    made: &MadeBlock,
    pool: &ScriptPool,
    totals: &mut Totals,
    sink: &mut impl FnMut(GeneratedBlock) -> Result<(), E>,
) -> Result<(), E> {
    let plan = &made.plan;
    let header =
        HeaderPlan { height: plan.height, prev: totals.hash, version: plan.version, time: plan.time };
    let block = assemble(header, &made.coinbase, &made.txs, false);
    let with_witness = plan.inputs.iter().filter(|input| pool.has_witness(input.coin.script));
    totals.witness_inputs += with_witness.count() as u64;
    for input in &plan.inputs {
        totals.ages.add(plan.height - input.coin.height());
    }
    totals.height = plan.height;
    totals.hash = block.hash;
    totals.blocks += 1;
    totals.txs += u64::from(block.txs);
    totals.inputs += plan.inputs.len() as u64;
    // The coinbase may have unplanned outputs: commitment and padding.
    totals.outputs += plan.outputs.len() as u64 + output_count(&made.coinbase);
    totals.bytes += block.bytes.len() as u64;
    sink(block)?;
    if let Some(coinbase) = &made.stale_coinbase {
        let half = &made.txs[..made.txs.len() / 2];
        let mut stale = assemble(header, coinbase, half, true);
        for step in 1..plan.stale {
            let (height, time) = (plan.height + step, plan.time + step * 600);
            let next = HeaderPlan { height, prev: stale.hash, time, ..header };
            sink(stale)?;
            let empty = crate::block::coinbase(height, 0, vec![anyone(subsidy(height) as i64)]);
            stale = assemble(next, &MadeTx::new(&empty, Vec::new()), &[], true);
        }
        sink(stale)?;
        totals.stale_blocks += u64::from(plan.stale);
    }
    Ok(())
}

fn output_count(tx: &MadeTx) -> u64 {
    let mut arena = wire::BlockArena::default();
    arena.parse_tx(&tx.bytes).expect("we made it").output_count() as u64
}
