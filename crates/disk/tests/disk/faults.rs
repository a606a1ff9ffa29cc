//! Each writer on a disk that fails at the n-th operation, for every n, once or from then on: what is left is
//! not a database, or the complete one, and a second attempt in a clean directory succeeds. A sorted run is
//! refused or complete, a manifest the old one or the new one.

use digest::obfuscation::Obfuscation;
use peregrine_disk::DiskError;
use peregrine_disk::chainstate::{ChainstateReader, ChainstateWriter};
use peregrine_disk::checkpoint::{
    Checkpoint, FileStamp, SavedMatching, SavedState, SortedRunRef, sorted_run_path,
};
use peregrine_disk::index::{
    BlockIndex, BlockStatus, FileInfo, IndexEntry, read_block_index, rewrite_block_index, write_block_index,
};
use peregrine_disk::sorted_run::{SortedRunMeta, SortedRunReader, SortedRunWriter};
use std::io;
use std::path::Path;
use testkit::fault::{FaultDisk, InjectedFault, Operations};
use vfs::{Disk, RealDisk};
use wire::{BlockHash, ByteOffset, Coin, Entry, FileNo, Header, Height, Network, OutPoint, Txid};

/// A disk on which the change with this number fails, and all later ones if it is `sticky`.
fn failing(at: u64, sticky: bool) -> FaultDisk {
    let fault = if sticky { InjectedFault::Sticky } else { InjectedFault::Once };
    FaultDisk::fail_at(at, fault, Operations::Changes, io::ErrorKind::StorageFull)
}

/// Fails `write` at each operation in turn. If `CURRENT` exists after that, the database must be complete.
fn check(write: impl Fn(&dyn Disk, &Path) -> Result<(), DiskError>, is_complete: impl Fn(&Path) -> bool) {
    for sticky in [false, true] {
        for first in 0.. {
            let root = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
            let dir = root.path().join("database");
            let faults = failing(first, sticky);
            let result = write(&faults, &dir);
            if faults.count() <= first {
                assert!(result.is_ok() && first > 8, "all operations have failed once");
                break;
            }
            let error = result.err().map(|error| error.to_string());
            assert!(
                error.as_ref().is_some_and(|text| text.contains("cannot")),
                "operation {first}: {error:?}"
            );
            assert!(!dir.join("CURRENT").exists() || is_complete(&dir), "operation {first} failed");
            let _ = std::fs::remove_dir_all(&dir);
            assert!(write(&RealDisk, &dir).is_ok() && is_complete(&dir));
        }
    }
}

#[test]
fn a_failed_write_leaves_a_complete_chainstate_or_none() {
    let outpoint = |byte: u8| OutPoint { txid: Txid([byte; 32]), vout: 1 };
    let coin = Coin { code: 9, out: &[1, 7, 0x51] };
    check(
        |disk, dir| {
            let writer = ChainstateWriter::create(disk, dir, Obfuscation::from_key([7; 8]), 2)?;
            let mut tables = Vec::new();
            for index in 0..2 {
                let mut range = writer.range(index);
                for byte in 0..100 {
                    range.add(&outpoint(byte + 100 * index as u8), &coin)?;
                }
                tables.push(range.finish()?);
            }
            writer.finish(BlockHash([3; 32]), tables)
        },
        |dir| {
            let Ok(reader) = ChainstateReader::open(&RealDisk, dir) else { return false };
            let Ok(mut coins) = reader.coins() else { return false };
            (0..200).all(|byte| coins.advance().ok().flatten() == Some((outpoint(byte), coin)))
                && coins.advance().ok() == Some(None)
        },
    );
}

#[test]
fn a_failed_write_leaves_a_complete_block_index_or_none() {
    let entry = |nonce: u32| {
        let header = Header { nonce, ..Header::default() };
        IndexEntry {
            hash: header.hash(),
            header,
            height: Height(nonce),
            status: BlockStatus(BlockStatus::VALID_SCRIPTS | BlockStatus::HAVE_DATA),
            tx_count: 1,
            file: Some(FileNo(0)),
            data_pos: Some(ByteOffset(8)),
            undo_pos: None,
        }
    };
    let mut entries: Vec<_> = (0..100).map(entry).collect();
    entries.sort_by_key(|entry| entry.hash);
    let index = BlockIndex { entries, files: vec![FileInfo::default()], ..BlockIndex::default() };
    check(
        |disk, dir| write_block_index(disk, dir, &index),
        |dir| read_block_index(&RealDisk, dir).ok().as_ref() == Some(&index),
    );
    let old = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    assert!(write_block_index(&RealDisk, old.path(), &index).is_ok());
    check(
        |disk, dir| rewrite_block_index(disk, old.path(), dir, |_| (), |_| ()),
        |dir| read_block_index(&RealDisk, dir).ok().as_ref() == Some(&index),
    );
}

/// Writes a sorted run with entries that fill several blocks.
fn write_run(disk: &dyn Disk, path: &Path) -> Result<SortedRunMeta, DiskError> {
    let mut run = SortedRunWriter::create(disk, path, Network::Main, 0)?;
    let out = [&[0, 0x80, 0x6e][..], &[1; 232]].concat();
    for number in 0..2000u32 {
        let mut txid = Txid([0; 32]);
        txid.0[..4].copy_from_slice(&(number << 19).to_be_bytes());
        let outpoint = OutPoint { txid, vout: number };
        run.add(&Entry { is_spend: number % 3 == 0, outpoint, coin: Coin { code: number, out: &out } })?;
    }
    run.finish()
}

#[test]
fn a_sorted_run_after_a_failed_write_is_complete_or_refused() {
    let mut operations = 0;
    for first in 0.. {
        let root = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let path = sorted_run_path(root.path(), first);
        let faults = failing(first, false);
        let result = write_run(&faults, &path);
        let opened = SortedRunReader::open(&RealDisk, &path, Network::Main);
        if faults.count() <= first {
            assert_eq!(opened.ok().map(|run| run.meta().clone()), result.ok());
            operations = first;
            break;
        }
        assert!(result.is_err_and(|error| error.to_string().contains("cannot")), "operation {first}");
        // After a failed sync, the file can be complete; after any other failure, it is not.
        assert!(opened.is_err() || faults.count() == first + 1, "operation {first}");
    }
    assert!(operations > 8, "blocks are written one by one: {operations} operations");
}

#[test]
fn a_failed_write_leaves_the_old_or_the_new_manifest() {
    let checkpoint = |count: u64| Checkpoint {
        network: Network::Regtest,
        chain: [1; 32],
        settings: [2; 32],
        files: vec![FileStamp::default(); 3],
        runs: vec![SortedRunRef { number: count, ..SortedRunRef::default() }],
        next_run: count + 1,
        state: SavedState {
            blocks: 64,
            completed: vec![u64::MAX],
            counts: [count; 6],
            coinbase_key: digest::siphash::SipKey(1, 2),
            coinbases: vec![count; 20_000],
            matching: SavedMatching::Join,
            made: Vec::new(),
        },
    };
    for (sticky, has_old) in [(false, false), (false, true), (true, false), (true, true)] {
        for first in 0.. {
            let root = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
            let dir = root.path();
            let old = has_old.then(|| checkpoint(1));
            assert!(old.iter().all(|old| old.write(&RealDisk, dir).is_ok()));
            let faults = failing(first, sticky);
            let result = checkpoint(2).write(&faults, dir);
            let read = || Checkpoint::read(&RealDisk, dir).unwrap_or_else(|error| panic!("{first}: {error}"));
            if faults.count() <= first {
                assert!(result.is_ok() && first >= 6, "all operations have failed once");
                assert_eq!(read(), Some(checkpoint(2)));
                break;
            }
            assert!(result.is_err_and(|error| error.to_string().contains("cannot")), "operation {first}");
            let found = read();
            assert!(found == old || found == Some(checkpoint(2)), "operation {first} failed");
            // What is left of the attempt does not hinder the next one.
            assert!(checkpoint(3).write(&RealDisk, dir).is_ok());
            assert_eq!(read(), Some(checkpoint(3)));
            assert_eq!(RealDisk.list(dir).map(|names| names.len()).ok(), Some(1));
        }
    }
}
