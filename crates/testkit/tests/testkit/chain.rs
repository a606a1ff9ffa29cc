//! Generated chains are as specified: the model agrees with the planner's totals, transactions have realistic
//! shapes, and the files contain the blocks.

use digest::{obfuscation::Obfuscation, sha256::Message};
use disk::{
    block_files::{BlockFiles, RecordBuffer},
    datadir::{Datadir, FileKind},
    index::read_block_index,
    undo::{UndoArena, UndoView, checksum},
};
use std::collections::{BTreeMap, HashSet};
use testkit::{Chain, ChainSpec, datadir::Layout};
use vfs::RealDisk;
use wire::{BlockArena, BlockHash, Coin, Network, OutPoint, Txid, coin::compressed_output};

#[test]
fn model_agrees_with_totals_and_chains_repeat_per_seed() {
    let mut spec = ChainSpec::new(1, 3_000_000);
    let chain = Chain::generate(&spec);
    assert_eq!(chain.model.stats(), chain.totals.utxo);
    assert!((2_000_000..4_500_000).contains(&chain.totals.bytes), "{}", chain.totals.bytes);
    assert!(chain.totals.stale_blocks > 0);
    spec.threads = 1;
    let again = Chain::generate(&spec);
    assert!(again.blocks == chain.blocks, "threads must not change a byte");
    spec.seed = 2;
    assert_ne!(Chain::generate(&spec).totals.hash, chain.totals.hash);
    spec.signed = false;
    assert_eq!(Chain::generate(&spec).totals.inputs, {
        spec.signed = true;
        Chain::generate(&spec).totals.inputs
    });
}

/// Recorded benchmark runs identify a chain by seed and size, so the generator's output must never change.
#[test]
fn chains_of_fixed_seeds_never_change() {
    let tips = [
        (true, "526d87b34e5ede3a1ef803d5bb5dba5775d5aa0ef49c528b87c001ac3b2b8692"),
        (false, "38adc0e4c41cfc1204490388c40b671fae6f12cd0c048d73dc6df67fb1a0ba8a"),
    ];
    for (signed, tip) in tips {
        let chain = Chain::generate(&ChainSpec { signed, ..ChainSpec::new(11, 1_000_000) });
        assert_eq!(chain.totals.hash.to_string(), tip, "signed: {signed}");
    }
}

#[test]
fn outputs_ages_and_unspent_share_are_as_specified() {
    let spec =
        ChainSpec { outputs: Some(150_000), outputs_per_coin: 20, signed: false, ..ChainSpec::new(8, 0) };
    let [young, old] = [64, 8_192].map(|recent| {
        let chain = Chain::generate(&ChainSpec { recent, ..spec.clone() });
        assert_eq!(chain.model.stats(), chain.totals.utxo);
        let (outputs, coins) = (chain.totals.outputs, chain.totals.utxo.txouts);
        assert!((150_000..170_000).contains(&outputs), "{outputs} outputs");
        assert!((outputs / 25..outputs / 15).contains(&coins), "{coins} coins of {outputs} outputs");
        chain.totals.ages
    });
    let (median, most) = (old.percentile(50), old.percentile(100));
    assert!(median > young.percentile(50), "median age {median}");
    assert!((1..10).contains(&median) && most > 10 * median, "ages {median} and {most}");
    assert_eq!(young.percentile(0), 0);
    let bare = Chain::generate(&ChainSpec { bare: 50, ..spec.clone() });
    assert_eq!(bare.model.stats(), bare.totals.utxo);
    let bytes_per_output = bare.totals.bytes / bare.totals.outputs;
    assert!((90..135).contains(&bytes_per_output), "{bytes_per_output} bytes for each output");
}

#[test]
fn undo_data_is_what_the_model_spends() {
    let chain = Chain::generate(&ChainSpec::new(5, 1_000_000));
    let mut made: BTreeMap<OutPoint, (u32, Vec<u8>)> = BTreeMap::new();
    let (mut arena, mut coins) = (BlockArena::default(), UndoArena::default());
    let mut spends_in_block = 0;
    for block in chain.main().skip(1) {
        let view = arena.parse(&block.bytes).unwrap();
        let undo = UndoView::parse(block.undo.as_deref().unwrap(), &mut coins).unwrap();
        let mut claims = undo.coins();
        for (index, tx) in view.txs().enumerate() {
            let Message([a, b, c]) = tx.txid_message();
            let txid = Txid(digest::sha256::sha256d(&[a, b, c].concat()));
            for input in tx.inputs().filter(|_| index > 0) {
                let (code, out) = made.remove(&input.prevout()).unwrap();
                assert_eq!(claims.next(), Some(Coin { code, out: &out }));
                spends_in_block += u32::from(code >> 1 == block.height);
            }
            for (vout, output) in tx.outputs().enumerate() {
                let out = compressed_output(output.value(), output.script_pubkey());
                let code = block.height << 1 | u32::from(index == 0);
                made.insert(OutPoint { txid, vout: vout as u32 }, (code, out));
            }
        }
        assert_eq!(claims.next(), None);
    }
    assert!(spends_in_block > 50);
}

#[test]
fn transactions_have_shapes_as_on_mainnet() {
    let chain = Chain::generate(&ChainSpec::new(9, 12_000_000));
    let totals = &chain.totals;
    let share = totals.witness_inputs as f64 / totals.inputs as f64;
    assert!((0.78..0.92).contains(&share), "{share} of inputs have a witness");
    let mut arena = BlockArena::default();
    let (mut large, mut locked, mut versions) = (0, 0, HashSet::new());
    for block in chain.main() {
        let view = arena.parse(&block.bytes).unwrap();
        assert!(view.weight().0 <= 4_000_000);
        for tx in view.txs() {
            large += u32::from(tx.total_size() > 16_384);
            locked += u32::from(tx.lock_time() > 0);
            versions.insert(tx.version());
        }
    }
    assert!(large > 0 && locked > 100, "{large} large, {locked} locked");
    assert_eq!(versions, HashSet::from([1, 2, 3]));
}

#[test]
fn wide_transaction_is_made_if_specified() {
    let spec = ChainSpec { wide_tx: 140, ..ChainSpec::new(6, 1_500_000) };
    let chain = Chain::generate(&spec);
    assert_eq!(chain.model.stats(), chain.totals.utxo);
    assert!(chain.model.coins.keys().any(|outpoint| outpoint.vout >= 16_512));
}

#[test]
fn full_blocks_are_full() {
    let spec = ChainSpec { stale: false, ..ChainSpec::new(4, 30_000_000) };
    let spec = ChainSpec { blocks: Some(134), signed: false, ..spec };
    let chain = Chain::generate(&spec);
    let mut arena = BlockArena::default();
    let weights: Vec<u64> = chain.main().map(|block| arena.parse(&block.bytes).unwrap().weight().0).collect();
    let heaviest = weights.iter().max().copied().unwrap();
    assert!((3_999_996..=4_000_000).contains(&heaviest), "{heaviest}");
}

#[test]
fn files_contain_the_blocks_in_disorder() {
    let chain = Chain::generate(&ChainSpec { empty_tail: 20, ..ChainSpec::new(3, 2_000_000) });
    let blocks: BTreeMap<BlockHash, _> = chain.blocks.iter().map(|block| (block.hash, block)).collect();
    for xor_key in [Layout::new(3).xor_key, None] {
        let dir = tempfile::tempdir().unwrap();
        chain.write_datadir(dir.path(), &Layout { file_size: 400_000, xor_key, ..Layout::new(3) }).unwrap();
        let paths = Datadir::at(dir.path(), Network::Regtest);
        assert_eq!(std::fs::read(paths.blocks_dir().join("xor.dat")).ok(), xor_key.map(Vec::from));
        let files = BlockFiles::new(&RealDisk, &paths, Obfuscation::from_key(xor_key.unwrap_or_default()));
        let mut buffer = RecordBuffer::default();
        let mut read = |kind, file, pos| {
            files.open(kind, file).unwrap().read(pos, &mut buffer).unwrap();
            buffer.bytes().to_vec()
        };
        let mut index = read_block_index(&RealDisk, &paths.index_dir()).unwrap();
        assert_eq!((index.entries.len(), index.files.len() > 3), (blocks.len(), true));
        index.entries.sort_by_key(|entry| (entry.file, entry.data_pos));
        assert!(!index.entries.is_sorted_by_key(|entry| entry.height));
        for entry in index.entries {
            let (block, file) = (blocks[&entry.hash], entry.file.unwrap());
            assert!(read(FileKind::Blk, file, entry.data_pos.unwrap()) == block.bytes);
            assert_eq!(entry.undo_pos.is_some(), block.undo.is_some());
            assert!(entry.status.has_data() && entry.status.has_undo() == block.undo.is_some());
            if let Some((pos, undo)) = entry.undo_pos.zip(block.undo.as_ref()) {
                let expected = [&undo[..], &checksum(&block.header.prev, undo)].concat();
                assert!(read(FileKind::Rev, file, pos) == expected);
            }
        }
    }
}
