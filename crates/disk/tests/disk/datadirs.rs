//! All formats with datadirs that Bitcoin Core wrote: what is read equals Core's results, and what is written
//! reads the same. Each datadir is unpacked once.

use crate::prelude::*;
use peregrine_disk::blk::{RECORD_HEADER_LEN, parse_record_header};
use peregrine_disk::lock::{DatadirLock, LockMode};
use peregrine_disk::scan::scan_files;
use peregrine_disk::undo::{CHECKSUM_LEN, UndoArena, UndoView, checksum, write_undo};
use peregrine_disk::utxo_stats::stats_unless_stopped;
use peregrine_disk::xor::read_block_obfuscation;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use testkit::{corrupt, data::CoreDatadir};
use wire::BlockArena;

fn check_stats(dir: &Path, threads: usize, known: &Value) {
    let reader = ChainstateReader::open(&RealDisk, dir).unwrap();
    let stats = stats_unless_stopped(&reader, true, threads, &mut |_, _| false).unwrap().unwrap();
    assert_eq!(Some(stats.counts.txouts), known["txouts"].as_u64());
    assert_eq!(Some(stats.counts.bogosize), known["bogosize"].as_u64());
    assert_eq!(BlockHash(stats.hash_serialized_3).to_string(), known["hash_serialized_3"]);
    assert_eq!(BlockHash(stats.muhash.unwrap()).to_string(), known["muhash"]);
    if let Some(transactions) = known["transactions"].as_u64() {
        assert_eq!(stats.counts.transactions, transactions);
    }
    let amount = stats.counts.total_amount.unwrap().0;
    match known["total_amount_sat"].as_i64() {
        Some(sats) => assert_eq!(amount, sats),
        None => assert_eq!(amount as f64 / 1e8, known["total_amount"].as_f64().unwrap()),
    }
}

fn write_chainstate(from: &Path, to: &Path, ranges: u32) {
    let reader = ChainstateReader::open(&RealDisk, from).unwrap();
    let key = Obfuscation::from_key([1, 2, 3, 4, 5, 6, 7, 8]);
    let mut new = ChainstateReader::create(&RealDisk, to, key).unwrap();
    let update = new.update(reader.best_block()).unwrap();
    let bound = |range: u32| [(range * 256 / ranges) as u8];
    let tables: Vec<_> = std::thread::scope(|scope| {
        let (reader, update) = (&reader, &update);
        let write = |range| {
            move || {
                let end = (range + 1 < ranges).then(|| bound(range + 1));
                let mut coins =
                    reader.coins_between(&bound(range), end.as_ref().map(|end| &end[..])).unwrap();
                let mut out = update.numbered_range(range, ranges);
                while let Some((outpoint, coin)) = coins.advance().unwrap() {
                    out.set(&outpoint, Some(&coin)).unwrap();
                }
                out.finish().unwrap()
            }
        };
        let threads: Vec<_> = (0..ranges).map(|range| scope.spawn(write(range))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    update.commit(tables).unwrap();
}

/// The chainstate and its copy have the hashes that Core reports.
fn check_chainstate(sample: &CoreDatadir) {
    let old = sample.datadir.chainstate_dir();
    let before = snapshot(&old).unwrap();
    let best: BlockHash = sample.known["hash"].as_str().unwrap().parse().unwrap();
    for threads in [1, 3] {
        check_stats(&old, threads, &sample.known);
    }
    for ranges in [1, 4, 64] {
        let copies = tempfile::tempdir().unwrap();
        let [new, again] = ["new", "again"].map(|name| copies.path().join(name));
        write_chainstate(&old, &new, ranges);
        write_chainstate(&old, &again, ranges);
        let are_equal = snapshot(&new).unwrap() == snapshot(&again).unwrap();
        assert!(are_equal, "the tables do not depend on the threads");
        check_stats(&new, 2, &sample.known);
        let reader = ChainstateReader::open(&RealDisk, &new).unwrap();
        assert_eq!(reader.best_block(), best);
        assert_eq!(reader.obfuscation().key(), [1, 2, 3, 4, 5, 6, 7, 8]);
    }
    assert!(snapshot(&old).unwrap() == before, "reading changes no file");
}

/// The block index is rewritten with the same rows.
fn check_block_index(sample: &CoreDatadir) {
    let dir = sample.datadir.index_dir();
    let before = snapshot(&dir).unwrap();
    let index = read_block_index(&RealDisk, &dir).unwrap();
    let tip = index.entries.iter().max_by_key(|entry| entry.height).unwrap();
    assert_eq!(tip.hash.to_string(), sample.known["hash"]);
    assert_eq!(Some(u64::from(tip.height.0)), sample.known["height"].as_u64());
    assert!(!index.pruned && !index.reindexing);
    let by_hash: HashMap<_, _> = index.entries.iter().map(|entry| (entry.hash, entry)).collect();
    assert_eq!(by_hash.len(), index.entries.len());
    for entry in &index.entries {
        let parent = by_hash.get(&entry.header.prev).map(|parent| parent.height.0 + 1);
        assert_eq!(entry.height.0, parent.unwrap_or(0), "{}", entry.hash);
    }

    let (copies, new) = testkit::fresh_path("index");
    write_block_index(&RealDisk, &new, &index).unwrap();
    assert_eq!(read_block_index(&RealDisk, &new).unwrap(), index);
    assert_eq!(rows(&new), rows(&dir));
    let copy = copies.path().join("copy");
    rewrite_block_index(&RealDisk, &dir, &copy, [], PrunedFlag::Keep, |_| (), |_| ()).unwrap();
    assert_eq!(read_block_index(&RealDisk, &copy).unwrap(), index);
    assert_eq!(corrupt::rows(&copy), corrupt::rows(&dir));
    assert!(snapshot(&dir).unwrap() == before, "reading changes no file");
}

/// Returns the rows without flags of features that are off. The index has no obfuscation key.
fn rows(dir: &Path) -> corrupt::Rows {
    let mut rows = corrupt::rows(dir);
    rows.retain(|key, value| !(key.first() == Some(&b'F') && *value == b"0"));
    rows
}

/// A scan finds blocks and undo data at the positions in the index.
fn check_scan(sample: &CoreDatadir) {
    let datadir = &sample.datadir;
    let index = read_block_index(&RealDisk, &datadir.index_dir()).unwrap();
    let obfuscation = read_block_obfuscation(&RealDisk, &datadir.blocks_dir()).unwrap();
    let mut seen = Vec::new();
    let all = |file| {
        seen.push(file);
        true
    };
    let scan = scan_files(&RealDisk, datadir, obfuscation, all, &[]).unwrap();
    seen.dedup();
    assert_eq!(seen, datadir.blk_files(&RealDisk).unwrap());

    let found: HashMap<_, _> = scan.blocks.iter().map(|block| (block.hash, block)).collect();
    let expected: HashSet<_> =
        index.entries.iter().filter(|entry| entry.status.has_data()).map(|entry| entry.hash).collect();
    assert_eq!(found.keys().copied().collect::<HashSet<_>>(), expected);
    for entry in &index.entries {
        let block = found[&entry.hash];
        assert_eq!((Some(block.file), Some(block.data_pos)), (entry.file, entry.data_pos), "{}", entry.hash);
        assert_eq!((block.header, block.tx_count), (entry.header, entry.tx_count), "{}", entry.hash);
        // A stale block that was never connected has no record, but if it has only a coinbase, its
        // sibling's record matches too.
        if entry.undo_pos.is_some() || block.tx_count > 1 {
            assert_eq!(block.undo_pos, entry.undo_pos, "{} at height {}", entry.hash, entry.height);
        }
    }
    for file in &scan.files {
        let FileInfo { blocks, size, undo_size, .. } = index.files[file.file.0 as usize];
        let count = scan.blocks.iter().filter(|block| block.file == file.file).count();
        assert_eq!((count as u32, file.size, file.undo_size), (blocks, size.into(), undo_size.into()));
    }
    check_records(datadir, &index, obfuscation);
}

/// Reads each block and its undo data, and compares the coins with the inputs.
fn check_records(datadir: &Datadir, index: &BlockIndex, obfuscation: Obfuscation) {
    let read = |path: &Path| {
        let mut bytes = std::fs::read(path).unwrap();
        obfuscation.apply(&mut bytes, 0);
        bytes
    };
    let (mut block_arena, mut undo_arena) = (BlockArena::default(), UndoArena::default());
    for file in datadir.blk_files(&RealDisk).unwrap() {
        let (blk, rev) = (read(&datadir.blk_path(file)), read(&datadir.rev_path(file)));
        let record = |bytes: &[u8], pos: u64| {
            let frame = &bytes[pos as usize - RECORD_HEADER_LEN..];
            let size = parse_record_header(*frame.first_chunk().unwrap(), datadir.network().magic()).unwrap();
            pos as usize..pos as usize + size as usize
        };
        for entry in index.entries.iter().filter(|entry| entry.file == Some(file)) {
            let block = block_arena.parse(&blk[record(&blk, entry.data_pos.unwrap().0)]).unwrap();
            assert_eq!(block.header().hash(), entry.hash);
            assert_eq!(block.tx_count() as u32, entry.tx_count);
            let Some(pos) = entry.undo_pos else { continue };
            let range = record(&rev, pos.0);
            let (undo, sum) = (&rev[range.clone()], &rev[range.end..range.end + CHECKSUM_LEN]);
            assert_eq!(checksum(&entry.header.prev, undo), sum);
            let view = UndoView::parse(undo, &mut undo_arena).unwrap();
            assert!(block.txs().skip(1).map(|tx| tx.input_count()).eq(view.txs().map(|coins| coins.len())));
            assert_eq!(write_undo(view.txs().collect::<Vec<_>>().into_iter()), undo);
        }
    }
}

/// The datadir can be locked in both modes.
fn check_locks(sample: &CoreDatadir) {
    for mode in [LockMode::Read, LockMode::Change] {
        let before = RealDisk.list(sample.datadir.net_dir()).unwrap();
        drop(DatadirLock::take(&RealDisk, &sample.datadir, mode).unwrap());
        let files = RealDisk.list(sample.datadir.net_dir()).unwrap();
        assert_eq!(files, before, "Core has created all lock files");
    }
}

fn check(name: &str, network: Network) {
    println!("{name}");
    let Some(sample) = CoreDatadir::unpack(name, network) else { return };
    check_chainstate(&sample);
    check_block_index(&sample);
    check_scan(&sample);
    check_locks(&sample);
}

#[test]
fn all_formats_are_read_and_written_as_by_core() {
    check("main", Network::Main);
    check("testnet3", Network::Test);
    check("signet", Network::Signet);
    check("regtest", Network::Regtest);
}
