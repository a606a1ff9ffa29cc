//! Each writer on a disk that fails at the n-th operation, for every n, and in each state in which a crash
//! can leave its output: that is absent or complete, and a second attempt succeeds. A sorted run is
//! refused or complete, a manifest the old one or the new one.

use crate::{prelude::*, written_bytes::entries};
use peregrine_disk::checkpoint::{Checkpoint, FileStamp, SavedMatching, SavedState, SortedRunRef};
use peregrine_disk::sorted_run::{SortedRunMeta, SortedRunReader, SortedRunWriter};
use std::io;
use testkit::fault::{Crash, Crashes, InjectedFault, Operations, explore};
use wire::Entry;

/// Calls `assert_left` with the path of what is left of an output after each failing operation and each
/// crash, and after success. It tries once more where nothing is left.
pub fn check(
    write: impl Fn(&dyn Disk, &Path) -> Result<(), DiskError>,
    assert_left: impl Fn(&Path, &str) + Sync,
) {
    for fault in [InjectedFault::Once, InjectedFault::Sticky] {
        for at in 0.. {
            let (_dir, path) = testkit::fresh_path("output");
            let disk = FaultDisk::fail_at(at, fault, Operations::All, io::ErrorKind::StorageFull);
            let result = write(&disk, &path);
            let what = format!("operation {at} failed, {fault:?}");
            assert_left(&path, &what);
            if !disk.has_failed() {
                assert!(result.is_ok() && at >= 6, "all operations have failed once");
                break;
            }
            assert!(result.is_err_and(|error| error.to_string().contains("cannot")), "{what}");
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let run = |disk: &FaultDisk| write(disk, &dir.path().join("output")).unwrap();
    let states = explore(dir.path(), Crashes::default(), run, |Crash { dir, what, .. }| {
        assert_left(&dir.path().join("output"), &what);
    });
    assert!(states >= 6, "{states}");
}

/// The same of a database, which is there if it has a `CURRENT`.
fn check_database(
    write: impl Fn(&dyn Disk, &Path) -> Result<(), DiskError> + Sync,
    is_complete: impl Fn(&Path) -> bool + Sync,
) {
    check(&write, |dir, what| {
        assert!(!dir.join("CURRENT").exists() || is_complete(dir), "{what}");
        let _ = std::fs::remove_dir_all(dir);
        assert!(write(&RealDisk, dir).is_ok() && is_complete(dir), "{what}");
    });
}

#[test]
fn a_failed_write_leaves_a_complete_chainstate_or_none() {
    let outpoint = |byte: u8| OutPoint { txid: Txid([byte; 32]), vout: 1 };
    let coin = Coin { code: 9, out: &[1, 7, 0x51] };
    check_database(
        |disk, dir| {
            let mut new = ChainstateReader::create(disk, dir, Obfuscation::from_key([7; 8]))?;
            let update = new.update(BlockHash([3; 32]))?;
            let mut tables = Vec::new();
            for index in 0..2 {
                let mut range = update.numbered_range(index, 2);
                for byte in 0..100 {
                    range.set(&outpoint(byte + 100 * index as u8), Some(&coin))?;
                }
                tables.push(range.finish()?);
            }
            update.commit(tables)
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
    let entries = entries(0..100);
    let index = BlockIndex { entries, files: vec![FileInfo::default()], ..BlockIndex::default() };
    let is_complete = |dir: &Path| read_block_index(&RealDisk, dir).ok().as_ref() == Some(&index);
    check_database(|disk, dir| write_block_index(disk, dir, &index), is_complete);
    let old = tempfile::tempdir().unwrap();
    write_block_index(&RealDisk, old.path(), &index).unwrap();
    let rewrite = |disk: &dyn Disk, dir: &Path| {
        rewrite_block_index(disk, old.path(), dir, [], PrunedFlag::Keep, |_| (), |_| ())
    };
    check_database(rewrite, is_complete);
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
    let expected =
        write_run(&FaultDisk::healthy(), &tempfile::tempdir().unwrap().path().join("run")).unwrap();
    let write = |disk: &dyn Disk, path: &Path| write_run(disk, path).map(drop);
    check(write, |path, what| {
        let opened = SortedRunReader::open(&RealDisk, path, Network::Main).ok();
        assert!(opened.is_none_or(|run| *run.meta() == expected), "{what}");
    });
}

#[test]
fn a_failed_write_leaves_the_old_or_the_new_manifest() {
    let checkpoint = |count: u64| Checkpoint {
        network: Network::Regtest,
        version: "1.2.3".to_owned(),
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
    for has_old in [false, true] {
        let old = has_old.then(|| checkpoint(1));
        let write = |disk: &dyn Disk, dir: &Path| {
            // The folder is there before.
            std::fs::create_dir(dir).unwrap();
            old.iter().for_each(|old| old.write(&RealDisk, dir).unwrap());
            checkpoint(2).write(disk, dir)?;
            // A rebuild replaces its own, too.
            checkpoint(2).write(disk, dir)
        };
        check(write, |dir, what| {
            let found = Checkpoint::read(&RealDisk, dir).unwrap();
            assert!(found == old || found == Some(checkpoint(2)), "{what}");
            // What is left of the attempt does not hinder the next one.
            checkpoint(3).write(&RealDisk, dir).unwrap();
            assert_eq!(Checkpoint::read(&RealDisk, dir).unwrap(), Some(checkpoint(3)), "{what}");
            assert_eq!(RealDisk.list(dir).unwrap().len(), 1, "{what}");
        });
    }
}
