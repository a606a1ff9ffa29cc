//! A real block, compared with the same work by other crates: `bitcoin`, `bitcoin_slices`, `sha2`.
//!
//! Without the shared test data, the largest generated block is used instead. Results are compared with those
//! of the other crates, and not added to the answers, which must be the same everywhere.

use crate::Subject;
use bench::{
    Answers,
    real::{HEIGHT, raw_block},
};
use bitcoin::{Block, consensus::deserialize, hashes::Hash as _, merkle_tree::calculate_root};
use bitcoin_slices::{Visit as _, Visitor, bsl};
use criterion::{Criterion, Throughput};
use digest::{
    kernel::Kernel,
    sha256::{Message, sha256d_many_with},
};
use disk::undo::{UndoArena, UndoView};
use rules::{
    BlockContext, BlockTotals, ChainParams, SpendContext, SpentCoin, TxContext, check_block, check_tx,
    check_tx_spends, merkle::merkle_root,
};
use std::{hint::black_box, ops::ControlFlow};
use wire::{BlockArena, BlockTime, BlockView, Height, Network, TxIndex};

/// A visitor that ignores everything.
struct Nothing;
impl Visitor for Nothing {}

/// A visitor that hashes each transaction with `sha2`.
struct Txids(Vec<[u8; 32]>);
impl Visitor for Txids {
    fn visit_transaction(&mut self, tx: &bsl::Transaction<'_>) -> ControlFlow<()> {
        self.0.push(tx.txid_sha2().into());
        ControlFlow::Continue(())
    }
}

pub fn benches(criterion: &mut Criterion, subject: &Subject<'_>, _: &mut Answers) {
    let real = raw_block();
    let generated = (subject.block.view.bytes(), subject.block.undo);
    let (bytes, undo) = real.as_ref().map_or(generated, |real| (&real.bytes, &real.undo));
    println!(
        "compared with other crates: {}",
        real.as_ref().map_or("the generated block", |real| &real.name)
    );
    let mut arena = BlockArena::default();
    let view = arena.parse(bytes).expect("the block is well-formed");
    let bitcoin_block: Block = deserialize(bytes).expect("`bitcoin` parses the block too");

    parse(criterion, bytes);
    txids(criterion, &view, &bitcoin_block);
    sizes(criterion, bytes, &bitcoin_block);
    merkle(criterion, &view, &bitcoin_block);
    match &real {
        Some(_) => rules(criterion, &view, undo, (Network::Main, Height(HEIGHT))),
        None => rules(criterion, &view, undo, (Network::Regtest, subject.block.height)),
    }
}

fn parse(criterion: &mut Criterion, bytes: &[u8]) {
    let mut arena = BlockArena::default();
    let mut group = criterion.benchmark_group("real block, parse");
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function("peregrine", |b| {
        b.iter(|| arena.parse(black_box(bytes)).map(|block| block.tx_count()));
    });
    group.bench_function("bitcoin_slices", |b| {
        b.iter(|| bsl::Block::visit(black_box(bytes), &mut Nothing).map(|block| block.consumed()));
    });
    group.bench_function("bitcoin", |b| b.iter(|| deserialize::<Block>(black_box(bytes))));
}

fn txids(criterion: &mut Criterion, view: &BlockView<'_>, bitcoin_block: &Block) {
    let bytes = view.bytes();
    let of_slices = || {
        let mut txids = Txids(Vec::new());
        bsl::Block::visit(black_box(bytes), &mut txids).map(|_| txids.0)
    };
    let mut arena = BlockArena::default();
    let mut peregrine = |kernel| {
        let view = arena.parse(black_box(bytes)).expect("the block is well-formed");
        let messages: Vec<Message<'_>> = view.txs().map(|tx| tx.txid_message()).collect();
        let mut digests = Vec::with_capacity(messages.len());
        sha256d_many_with(kernel, &messages, &mut digests);
        digests
    };
    let expected: Vec<_> = bitcoin_block.txdata.iter().map(|tx| tx.compute_txid().to_byte_array()).collect();
    assert_eq!(of_slices().expect("`bitcoin_slices` parses the block too"), expected);

    let mut group = criterion.benchmark_group("real block, parse and txids");
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    for kernel in Kernel::available() {
        assert_eq!(peregrine(kernel), expected);
        group.bench_function(kernel.name(), |b| b.iter(|| peregrine(kernel)));
    }
    group.bench_function("bitcoin_slices and sha2", |b| b.iter(of_slices));
    group.bench_function("bitcoin", |b| {
        b.iter(|| {
            let block: Block = deserialize(black_box(bytes)).expect("the block is well-formed");
            block.txdata.iter().map(|tx| tx.compute_txid()).collect::<Vec<_>>()
        });
    });
}

fn sizes(criterion: &mut Criterion, bytes: &[u8], bitcoin_block: &Block) {
    let mut arena = BlockArena::default();
    let view = arena.parse(bytes).expect("the block is well-formed");
    assert_eq!(view.weight().0, bitcoin_block.weight().to_wu());
    let mut group = criterion.benchmark_group("real block, weight once parsed");
    group.throughput(Throughput::Elements(view.tx_count() as u64));
    group.bench_function("peregrine", |b| b.iter(|| black_box(&view).weight()));
    group.bench_function("bitcoin", |b| b.iter(|| black_box(bitcoin_block).weight()));
}

fn merkle(criterion: &mut Criterion, view: &BlockView<'_>, bitcoin_block: &Block) {
    let hashes = || bitcoin_block.txdata.iter().map(|tx| tx.compute_txid().to_raw_hash());
    let (leaves, raw): (Vec<_>, Vec<_>) = hashes().map(|hash| (hash.to_byte_array(), hash)).unzip();
    let root = merkle_root(leaves.clone()).root;
    assert_eq!(root, view.header().merkle_root);
    assert_eq!(calculate_root(raw.iter().copied()).map(|root| root.to_byte_array()), Some(root));
    let mut group = criterion.benchmark_group("real block, merkle root of its txids");
    group.throughput(Throughput::Elements(leaves.len() as u64));
    group.bench_function("peregrine", |b| b.iter(|| merkle_root(black_box(&leaves).clone())));
    group.bench_function("bitcoin", |b| b.iter(|| calculate_root(black_box(&raw).iter().copied())));
}

/// Seconds between blocks, for the times of earlier blocks.
const SPACING: u32 = 600;

/// Checks the rules of the block's own bytes, transaction hashes given; and those of each transaction as if
/// it were accepted by itself: its own bytes, and its spends, except scripts.
fn rules(criterion: &mut Criterion, view: &BlockView<'_>, undo: &[u8], (network, height): (Network, Height)) {
    let (params, header) = (ChainParams::of(network), view.header());
    let time = |below: u32| BlockTime(header.time.0.saturating_sub(below * SPACING));
    let (txids, wtxids) = testkit::block::ids(view);
    let median_time_past_prev = time(6);
    let context =
        BlockContext { params, height, block: view, txids: &txids, wtxids: &wtxids, median_time_past_prev };
    check_block(&context).expect("the block is valid");

    let mut arena = UndoArena::default();
    let undo = UndoView::parse(undo, &mut arena).expect("undo data is well-formed");
    let spent = undo.txs().map(|coins| coins.map(|coin| SpentCoin::from_coin(&coin)).collect());
    let spent: Vec<Vec<_>> = spent.collect::<Result<_, _>>().expect("coins are well-formed");
    let times: Vec<_> = (0..height.0).map(|at| time(height.0 - at + 6)).collect();
    let (hash, before) = (header.hash(), BlockTotals::default());
    let accept_all = || {
        (1..).zip(view.txs().skip(1)).zip(&spent).all(|((index, tx), coins)| {
            let (tx, tx_index, mtp_by_height) = (&tx, TxIndex(index), &times[..]);
            let hash = &hash;
            check_tx(&TxContext { params, height, tx, tx_index }).is_ok()
                && check_tx_spends(&SpendContext {
                    params,
                    height,
                    hash,
                    tx,
                    tx_index,
                    coins,
                    mtp_by_height,
                    before,
                })
                .is_ok()
        })
    };
    assert!(accept_all(), "its transactions are valid");
    let mut group = criterion.benchmark_group("real block, rules");
    group.throughput(Throughput::Bytes(view.bytes().len() as u64));
    group.bench_function("check_block", |b| b.iter(|| check_block(black_box(&context)).is_ok()));
    group.throughput(Throughput::Elements(spent.len() as u64));
    group.bench_function("each transaction by itself", |b| b.iter(accept_all));
}
