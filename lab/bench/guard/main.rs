//! The regression guard's work: one step of a rebuild on a small generated chain, whose instructions
//! `lab/bench/guard/run` counts.
//!
//! `guard STEP` prepares the inputs of the step and calls [`measured`] once; callgrind counts only the
//! instructions in that call. `guard` alone lists the steps. Each prints its result to stdout, so that the
//! compiler cannot remove any work.
#![forbid(unsafe_code)]

use bench::{Block, Inputs, work};
use coins::aggregate::{Aggregate, AggregateKey, AggregateKind};
use digest::{
    muhash::MuHash3072,
    obfuscation::Obfuscation,
    sha256::{Message, sha256d_many},
    siphash::SipHash13Uj,
};
use disk::undo::{UndoArena, UndoView};
use rules::{BlockContext, BlockSpendContext, ChainParams, check_block, check_block_spends};
use std::process::ExitCode;
use tempfile::TempDir;
use wire::{BlockArena, Network};

/// Size of the chain in bytes; small, since callgrind is fifty times slower.
const CHAIN_BYTES: u64 = 6_000_000;
/// Number of sorted runs that are merged.
const PARTS: usize = 4;

/// The inputs of the steps.
struct Subject<'a> {
    inputs: &'a Inputs,
    blocks: &'a [Block<'a>],
    dir: TempDir,
}

/// A step, which returns a number that depends on all of its work.
type Step = fn(&Subject<'_>) -> u64;

const STEPS: &[(&str, Step)] = &[
    ("parse", parse),
    ("hash", hash),
    ("check", check),
    ("join", join),
    ("sort", sort),
    ("write-run", write_run),
    ("merge", merge),
    ("write-chainstate", write_chainstate),
    ("read-chainstate", read_chainstate),
    ("aggregate", aggregate),
    ("muhash", muhash),
    ("siphash", siphash),
];

fn main() -> ExitCode {
    let Some(name) = std::env::args().nth(1) else {
        STEPS.iter().for_each(|(name, _)| println!("{name}"));
        return ExitCode::SUCCESS;
    };
    let Some((_, step)) = STEPS.iter().find(|(step, _)| *step == name) else {
        eprintln!("there is no step {name}; run without arguments to list the steps");
        return ExitCode::FAILURE;
    };
    let inputs = Inputs::generate(CHAIN_BYTES);
    let mut arenas = inputs.arenas();
    let blocks = inputs.blocks(&mut arenas);
    let subject =
        Subject { inputs: &inputs, blocks: &blocks, dir: TempDir::new().expect("folders can be made") };
    println!("{name}: {:016x}", step(&subject));
    ExitCode::SUCCESS
}

/// Runs the work that callgrind counts: `--toggle-collect` names this function.
#[inline(never)]
fn measured<T>(work: impl FnOnce() -> T) -> T {
    std::hint::black_box(work())
}

/// Removes the obfuscation, and parses blocks and undo data.
fn parse(subject: &Subject<'_>) -> u64 {
    let key = Obfuscation::from_key([1, 2, 3, 4, 5, 6, 7, 8]);
    let hidden = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        key.apply(&mut bytes, 3);
        bytes
    };
    let mut files: Vec<_> =
        subject.blocks.iter().map(|block| (hidden(block.view.bytes()), hidden(block.undo))).collect();
    measured(|| {
        let (mut arena, mut undo_arena, mut sum) = (BlockArena::default(), UndoArena::default(), 0);
        for (block, undo) in &mut files {
            key.apply(block, 3);
            key.apply(undo, 3);
            let view = arena.parse(block).expect("blocks are well-formed");
            let coins = UndoView::parse(undo, &mut undo_arena).expect("undo data is well-formed");
            sum += view.weight().0 + coins.coin_count() as u64;
        }
        sum
    })
}

/// Hashes all transactions, with and without witness.
fn hash(subject: &Subject<'_>) -> u64 {
    measured(|| {
        let (mut messages, mut digests, mut sum) = (Vec::<Message<'_>>::new(), Vec::new(), 0u64);
        for block in subject.blocks {
            messages.clear();
            messages.extend(block.view.txs().map(|tx| tx.txid_message()));
            messages.extend(block.view.txs().map(|tx| tx.wtxid_message()));
            digests.clear();
            sha256d_many(&messages, &mut digests);
            sum = digests.iter().fold(sum, |sum, digest| sum.wrapping_mul(31).wrapping_add(digest[0].into()));
        }
        sum
    })
}

/// Checks the rules of blocks, which include the merkle trees, and of spends.
fn check(subject: &Subject<'_>) -> u64 {
    let (params, median_times) = (ChainParams::of(Network::Regtest), &subject.inputs.median_times);
    measured(|| {
        let mut sum = 0;
        for block in subject.blocks {
            let legacy_sigops = check_block(&BlockContext {
                params,
                height: block.height,
                block: &block.view,
                txids: &block.txids,
                wtxids: &block.wtxids,
                median_time_past_prev: median_times[block.height.0 as usize - 1],
            });
            let totals = check_block_spends(&BlockSpendContext {
                params,
                height: block.height,
                hash: &block.hash,
                block: &block.view,
                coins: &block.spent,
                mtp_by_height: median_times,
                legacy_sigops: legacy_sigops.expect("blocks are valid"),
            });
            sum += totals.expect("blocks are valid").sigop_cost;
        }
        sum
    })
}

fn join(subject: &Subject<'_>) -> u64 {
    let (survivors, operations) = measured(|| work::join(subject.blocks));
    operations << 32 | survivors.size().coins as u64
}

fn sort(subject: &Subject<'_>) -> u64 {
    let (survivors, _) = work::join(subject.blocks);
    measured(|| work::sort_and_walk(survivors)) as u64
}

fn write_run(subject: &Subject<'_>) -> u64 {
    let parts = work::join_parts(subject.blocks, PARTS);
    let path = |part| subject.dir.path().join(format!("{part}.run"));
    measured(|| (0..).zip(parts).map(|(part, shards)| work::write_run(&path(part), shards)).sum())
}

fn merge(subject: &Subject<'_>) -> u64 {
    write_run(subject);
    measured(|| {
        let runs: Vec<_> =
            (0..PARTS).map(|part| work::open_run(&subject.dir.path().join(format!("{part}.run")))).collect();
        work::merge_runs(&runs).0
    })
}

fn write_chainstate(subject: &Subject<'_>) -> u64 {
    let coins = work::spent_coins(subject.blocks);
    measured(|| work::write_chainstate(subject.dir.path(), &coins));
    coins.len() as u64
}

fn read_chainstate(subject: &Subject<'_>) -> u64 {
    work::write_chainstate(subject.dir.path(), &work::spent_coins(subject.blocks));
    let reader = work::open_chainstate(subject.dir.path());
    // The hash itself is SHA-256 of one stream, which AVX2 cannot accelerate: it would dominate the count.
    let text = work::utxo_hash(measured(|| work::read_chainstate(&reader)));
    text.bytes().fold(0, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(byte.into()))
}

fn aggregate(subject: &Subject<'_>) -> u64 {
    let coins = work::spent_coins(subject.blocks);
    let bytes = measured(|| {
        let mut sum = Aggregate::new(AggregateKind::Sha256, AggregateKey::new([1; 32])).sum();
        coins.iter().for_each(|(outpoint, coin)| sum.add(outpoint, Some(*coin)));
        sum.to_bytes()
    });
    bytes.first_chunk().copied().map_or(0, u64::from_le_bytes)
}

fn muhash(_: &Subject<'_>) -> u64 {
    let hash = measured(|| {
        let mut hash = MuHash3072::new();
        (0..1_000u32).for_each(|number| hash.insert(&number.to_le_bytes()));
        hash.finalize()
    });
    hash.first_chunk().copied().map_or(0, u64::from_le_bytes)
}

fn siphash(subject: &Subject<'_>) -> u64 {
    let keyed = SipHash13Uj::new(1, 2);
    let inputs = subject.blocks.iter().flat_map(|block| block.view.txs()).flat_map(|tx| tx.inputs());
    let outpoints: Vec<_> = inputs.map(|input| input.prevout()).collect();
    measured(|| {
        outpoints.iter().fold(0u64, |sum, it| sum.wrapping_add(keyed.hash_outpoint(&it.txid.0, it.vout)))
    })
}
