//! Steps on blocks in memory.

use super::{super::packed_len, Lab, Outcome, Stopwatch, disk_failed, outcome};
use bench::{
    Answers,
    baseline::{
        distinct,
        files::{visit_fields, weight_by_fields},
        hashers::{self, OutpointHasher, OutpointSet},
        tables::{Coins, Flush, FlushedTable, connect},
    },
};
use engine::Error;
use std::{collections::HashMap, hint::black_box, io};
use wire::{OutPoint, TxView, read::write_var_int, script::is_unspendable};

/// How often a cache is flushed while the chain is connected.
const FLUSHES: usize = 16;

/// Hashes the outpoint of each input.
pub fn hash<H: OutpointHasher>(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    black_box(watch.time(|| hashers::sum::<H>(&lab.prevouts)));
    let count = lab.prevouts.len();
    Ok(outcome(format!("{count} hashes"), count))
}

/// Makes a set of the outpoints of all inputs.
pub fn set_create<H: OutpointHasher>(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    let set = watch.time(|| OutpointSet::<H>::of(&lab.prevouts));
    let count = set.count(&lab.prevouts);
    Ok(outcome(format!("{count} outpoints"), count))
}

/// Looks up each outpoint in that set, or, without `HITS`, as many that it does not have.
pub fn set_find<H: OutpointHasher, const HITS: bool>(
    lab: &Lab<'_>,
    watch: &mut Stopwatch,
) -> Result<Outcome, Error> {
    let set = OutpointSet::<H>::of(&lab.prevouts);
    let wanted = |outpoint: &OutPoint| OutPoint { vout: outpoint.vout ^ u32::from(!HITS) << 31, ..*outpoint };
    let wanted: Vec<_> = lab.prevouts.iter().map(wanted).collect();
    let found = watch.time(|| set.count(&wanted));
    Ok(outcome(format!("{found} found"), wanted.len()))
}

fn connect_to(lab: &Lab<'_>, watch: &mut Stopwatch, mut table: impl Coins) -> Result<Outcome, Error> {
    watch.time(|| connect(lab.blocks, &mut table));
    let count = lab.prevouts.len() + lab.outputs;
    Ok(Outcome { answer: table.answer(), count, size: table.bytes().map(|bytes| bytes as u64) })
}

/// Connects all blocks to a table of coins.
pub fn connect_all<T: Coins + Default>(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    connect_to(lab, watch, T::default())
}

fn connect_flushed(lab: &Lab<'_>, watch: &mut Stopwatch, flush: Flush) -> Result<Outcome, Error> {
    connect_to(lab, watch, FlushedTable::new(lab.outputs / FLUSHES + 1, flush))
}

/// Connects all blocks to a table of which nothing stays after a flush.
pub fn flush_frees(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    connect_flushed(lab, watch, Flush::Frees)
}

/// Connects all blocks to a table that keeps its memory after a flush.
pub fn flush_empties(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    connect_flushed(lab, watch, Flush::Empties)
}

/// Connects all blocks to a table that keeps its coins after a flush.
pub fn flush_keeps(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    connect_flushed(lab, watch, Flush::Keeps)
}

/// Sums the weights of all blocks.
fn weigh(
    lab: &Lab<'_>,
    watch: &mut Stopwatch,
    weight: impl Fn(&bench::Block<'_>) -> io::Result<u64>,
) -> Result<Outcome, Error> {
    let weigh = || lab.blocks.iter().try_fold(0, |sum, block| Ok(sum + weight(black_box(block))?));
    let sum: io::Result<u64> = watch.time(weigh);
    let sum = sum.map_err(disk_failed)?;
    Ok(outcome(format!("weight {sum}"), lab.blocks.len()))
}

pub fn sizes_by_fields(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    weigh(lab, watch, |block| weight_by_fields(block.view.bytes()))
}

pub fn sizes_from_spans(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    weigh(lab, watch, |block| Ok(block.view.weight().0))
}

/// Serialises each block into memory.
fn serialise(
    lab: &Lab<'_>,
    watch: &mut Stopwatch,
    serialise: impl Fn(&[u8], &mut Vec<u8>) -> io::Result<()>,
) -> Result<Outcome, Error> {
    let (mut answers, mut bytes) = (Answers::default(), Vec::new());
    for block in lab.blocks {
        bytes.clear();
        watch.time(|| serialise(block.view.bytes(), &mut bytes)).map_err(disk_failed)?;
        answers.add("block", &bytes);
    }
    Ok(outcome(answers.hash(), lab.block_bytes()))
}

pub fn serialise_by_fields(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    serialise(lab, watch, |block, bytes| {
        visit_fields(block, |field, _| {
            bytes.extend_from_slice(field);
            Ok(())
        })
    })
}

pub fn serialise_whole(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    serialise(lab, watch, |block, bytes| {
        bytes.extend_from_slice(block);
        Ok(())
    })
}

/// Asks of each transaction but coinbases whether its inputs are distinct.
fn check_inputs(
    lab: &Lab<'_>,
    watch: &mut Stopwatch,
    mut are_distinct: impl FnMut(&TxView<'_>) -> bool,
) -> Result<Outcome, Error> {
    let txs = || lab.blocks.iter().flat_map(|block| block.view.txs().skip(1));
    let valid = watch.time(|| txs().filter(|tx| are_distinct(black_box(tx))).count());
    let single = txs().filter(|tx| tx.input_count() == 1).count();
    // How much a shortcut for one input gains depends on how many there are.
    Ok(outcome(format!("{valid} transactions, {single} of them with one input"), lab.prevouts.len()))
}

pub fn distinct_by_set(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    check_inputs(lab, watch, distinct::by_ordered_set)
}

pub fn distinct_by_hash_set(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    check_inputs(lab, watch, distinct::by_hash_set)
}

pub fn distinct_by_sorting<const SHORTCUTS: bool>(
    lab: &Lab<'_>,
    watch: &mut Stopwatch,
) -> Result<Outcome, Error> {
    check_inputs(lab, watch, distinct::by_sorting::<SHORTCUTS>)
}

pub fn distinct_with_each_null(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    check_inputs(lab, watch, distinct::by_sorting_and_each_null)
}

pub fn distinct_with_nulls_at_ends(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    check_inputs(lab, watch, distinct::by_sorting_and_ends)
}

pub fn distinct_by_keys(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    let mut keys = Vec::new();
    check_inputs(lab, watch, |tx| rules::inputs_are_distinct_and_not_null(tx, &mut keys))
}

/// For each spendable output of each block, in order, the height at which it is spent, or 0.
fn spends(lab: &Lab<'_>) -> Vec<Vec<u32>> {
    let mut spent_at = HashMap::with_capacity(lab.prevouts.len());
    for block in lab.blocks {
        let inputs = block.view.txs().skip(1).flat_map(|tx| tx.inputs());
        spent_at.extend(inputs.map(|input| (input.prevout(), block.height.0)));
    }
    let of_block = |block: &bench::Block<'_>| {
        let outputs = block.view.txs().zip(&block.txids).flat_map(|(tx, txid)| {
            let spendable = (0..).zip(tx.outputs()).filter(|(_, out)| !is_unspendable(out.script_pubkey()));
            spendable.map(|(vout, _)| OutPoint { txid: *txid, vout })
        });
        outputs.map(|outpoint| spent_at.get(&outpoint).copied().unwrap_or_default()).collect()
    };
    lab.blocks.iter().map(of_block).collect()
}

/// Packs what `write` writes of each block; the answer says how many blocks have only spent or only unspent
/// outputs, and the median of the gaps between unspent outputs.
fn packed_hints(
    lab: &Lab<'_>,
    watch: &mut Stopwatch,
    write: impl Fn(u32, &[u32], &mut Vec<u8>),
) -> Result<Outcome, Error> {
    let blocks = spends(lab);
    let all = |wanted: fn(&u32) -> bool| blocks.iter().filter(|spends| spends.iter().all(wanted)).count();
    let (spent, unspent) = (all(|height| *height > 0), all(|height| *height == 0));
    let (mut gaps, mut gap) = (Vec::new(), 0_u64);
    for is_unspent in blocks.iter().flatten().map(|height| *height == 0) {
        if is_unspent {
            gaps.push(std::mem::take(&mut gap));
        } else {
            gap += 1;
        }
    }
    gaps.sort_unstable();
    let mut bytes = Vec::new();
    (1..).zip(&blocks).for_each(|(height, spends)| write(height, spends, &mut bytes));
    let packed = watch.time(|| packed_len(&bytes[..])).map_err(disk_failed)?;
    let median = gaps.get(gaps.len() / 2).copied().unwrap_or_default();
    let answer = format!(
        "of {} blocks, {spent} have only spent outputs and {unspent} only unspent ones; median gap {median}",
        blocks.len()
    );
    Ok(Outcome { answer, count: blocks.iter().map(Vec::len).sum(), size: Some(packed) })
}

/// A bit for each output.
pub fn hints_alone(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    packed_hints(lab, watch, |_, spends, bytes| {
        let bit = |(at, height): (usize, &u32)| u8::from(*height == 0) << at;
        bytes.extend(spends.chunks(8).map(|eight| eight.iter().enumerate().map(bit).sum::<u8>()));
    })
}

/// For each output, the number of blocks after which it is spent, or 0.
pub fn heights_of_spends(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    packed_hints(lab, watch, |height, spends, bytes| {
        // An output may be spent in its own block.
        let after = |spent: &u32| spent.checked_sub(height).map_or(0, |blocks| u64::from(blocks) + 1);
        spends.iter().for_each(|spent| write_var_int(bytes, after(spent)));
    })
}

fn bytes_of(lab: &Lab<'_>, bytes: impl Fn(&bench::Block<'_>) -> usize) -> Outcome {
    let size = lab.blocks.iter().map(|block| bytes(block) as u64).sum();
    Outcome { answer: format!("{} inputs", lab.prevouts.len()), count: lab.block_bytes(), size: Some(size) }
}

pub fn bytes_of_blocks(lab: &Lab<'_>, _: &mut Stopwatch) -> Result<Outcome, Error> {
    Ok(bytes_of(lab, |block| block.view.bytes().len()))
}

pub fn bytes_of_undo(lab: &Lab<'_>, _: &mut Stopwatch) -> Result<Outcome, Error> {
    Ok(bytes_of(lab, |block| block.undo.len()))
}
