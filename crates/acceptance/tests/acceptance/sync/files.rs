//! A download begins with the block files that it finds: with blocks that the index does not place, and
//! without blocks that the index places.

use acceptance::prelude::*;
use acceptance::sync::{run, tiny, tiny_blocks as blocks, tiny_peer as peer};
use disk::blk::write_record;

/// A datadir as a bitcoind leaves it that is killed soon after its first start: it has stored the genesis
/// block, and written nothing to its databases.
fn begun_by_bitcoind() -> Case {
    let (case, peer) = (Case::of(scratch()), peer());
    run(&SyncOptions { blocks_only: true, ..from_to(case.root(), &[&peer], 0) });
    truncate(&case.blocks("blk00000.dat"), 1 << 20).unwrap();
    case.edit_index(|index| *index = BlockIndex::default());
    case
}

#[test]
fn a_datadir_that_bitcoind_has_only_begun_is_completed() {
    let case = begun_by_bitcoind();
    let report = try_repair(&repairing(case.root(), &[&peer()])).unwrap();
    assert_eq!((report.damaged, report.height), (0, Height(0)));
    for case in [begun_by_bitcoind(), case] {
        let peer = peer();
        let (report, _) = run(&from(case.root(), &[&peer]));
        assert_eq!(report.download.blocks as usize, blocks());
        assert_synced(case.root(), tiny(), "begun by bitcoind");
    }
}

/// A datadir whose index has only the genesis block and headers, and whose file has these records beyond the
/// bytes in use, each with a number of zeros before it.
fn with_tail<'a>(records: impl Iterator<Item = (usize, &'a GeneratedBlock)>) -> Case {
    let (case, peer) = (Case::of(scratch()), peer());
    run(&from_to(case.root(), &[&peer], 0));
    let obfuscation = read_block_obfuscation(&RealDisk, &case.blocks("")).unwrap();
    let path = case.blocks("blk00000.dat");
    let mut bytes = std::fs::read(&path).unwrap();
    obfuscation.apply(&mut bytes, 0);
    assert_eq!(bytes.len(), RECORD_HEADER_LEN + tiny().blocks[0].bytes.len());
    for (zeros, block) in records {
        bytes.resize(bytes.len() + zeros, 0);
        write_record(&mut bytes, Network::Regtest.magic(), &block.bytes);
    }
    obfuscation.apply(&mut bytes, 0);
    std::fs::write(path, bytes).unwrap();
    case
}

/// The chain's blocks above genesis, the highest first: the order in files is any.
fn reversed() -> Vec<&'static GeneratedBlock> {
    tiny().main().rev().take(blocks()).collect()
}

/// Asserts that so many blocks are found, and that the others are downloaded.
fn assert_found(dir: &Path, found: usize, what: &str) {
    let peer = peer();
    let options = from(dir, &[&peer]);
    let (report, _) = run(&SyncOptions { blocks_only: true, ..options.clone() });
    assert_eq!((report.download.found as usize, peer.asked().len()), (found, blocks() - found), "{what}");
    let placed = assert_index_is_true(dir, what).len();
    assert_eq!(placed, blocks() + 1, "{what}");
    run(&options);
    assert_synced(dir, tiny(), what);
    assert_eq!(peer.asked().len(), blocks() - found, "{what}");
}

#[test]
fn blocks_beyond_the_bytes_in_use_are_found_except_damaged_ones() {
    let plain = || reversed().into_iter().map(|block| (0, block));
    let end = |count: usize| -> u64 {
        let before = tiny().blocks.iter().take(1).chain(reversed().into_iter().take(count));
        before.map(|block| (RECORD_HEADER_LEN + block.bytes.len()) as u64).sum()
    };
    let damage = |what: &str, found: usize, damage: &dyn Fn(&Path)| {
        let case = with_tail(plain());
        damage(&case.blocks("blk00000.dat"));
        assert_found(case.root(), found, what);
    };
    damage("all of them", blocks(), &|_| {});
    // Of a file that the block index knows, it knows the undo data, too.
    let case = with_tail(plain());
    std::fs::write(case.blocks("rev00000.dat"), [0; 100]).unwrap();
    run(&SyncOptions { blocks_only: true, ..from(case.root(), &[&peer()]) });
    assert_eq!(case.index().files[0].undo_size, 0);
    // In a transaction, in the length, in the magic. With another header, it is another block.
    for (at, bit) in [(120, 5), (4, 0), (0, 2), (70, 1)] {
        let what = format!("bit {bit} of byte {at}");
        damage(&what, blocks() - 1, &|path| flip_bit(path, end(40) + at, bit).unwrap());
    }
    for (cut, found) in [(0, 40), (7, 40), (100, 40), (end(41) - end(40) - 1, 40), (end(41) - end(40), 41)] {
        damage(&format!("cut {cut} bytes later"), found, &|path| truncate(path, end(40) + cut).unwrap());
    }
}

#[test]
fn what_lies_between_blocks_is_skipped() {
    let foreign = sibling(&tiny().blocks[50], 3, |_| {});
    let with = |at: usize, zeros: usize, block| {
        let mut records: Vec<_> = reversed().into_iter().map(|block| (0, block)).collect();
        records.insert(at, (zeros, block));
        with_tail(records.into_iter())
    };
    assert_found(with(30, 0, &foreign).root(), blocks(), "a block of another branch");
    assert_found(with(0, 0, &foreign).root(), blocks(), "a block of another branch, first");
    assert_found(with(blocks(), 0, &foreign).root(), blocks(), "a block of another branch, last");
    assert_found(with(30, 0, reversed()[3]).root(), blocks(), "a block twice");
    assert_found(with(30, 1, &foreign).root(), blocks(), "a gap");
}

/// A datadir in small files as Core leaves it, without chainstate.
fn in_small_files() -> Case {
    let case = Case::of(scratch());
    tiny().write_datadir(case.root(), &Layout { file_size: 8 << 10, ..layout() }).unwrap();
    assert!(case.index().files.len() >= 4);
    case
}

/// What the index says of a file that is not there: bitcoind has begun the next pair, and was killed.
#[test]
fn a_file_that_is_in_the_index_and_empty_is_begun() {
    let (case, peer) = (in_small_files(), peer());
    case.edit_index(|index| {
        let top = index.entries.iter_mut().max_by_key(|entry| entry.height).unwrap();
        *top = IndexEntry::of_header(top.hash, top.header, top.height);
        index.files.push(FileInfo::default());
    });
    run(&from(case.root(), &[&peer]));
    assert_eq!(peer.asked(), [tiny().tip().hash]);
    assert_synced(case.root(), tiny(), "an empty file");
}

#[test]
fn a_key_of_zeros_that_exists_is_kept() {
    let (dir, peer) = (scratch(), peer());
    let key = dir.path().join("regtest/blocks/xor.dat");
    write_file(&key, [0; 8]);
    run(&from(dir.path(), &[&peer]));
    assert_eq!(std::fs::read(&key).unwrap(), [0; 8]);
    assert_synced(dir.path(), tiny(), "a key of zeros");
}

#[test]
fn undo_files_without_block_files_are_refused() {
    let (dir, peer) = (scratch(), peer());
    let rev = dir.path().join("regtest/blocks/rev00003.dat");
    write_file(&rev, [7; 100]);
    let done = try_run(&from(dir.path(), &[&peer]));
    assert_says(done, &["there are no block files (blkNNNNN.dat)"]);
    assert_eq!(std::fs::read(&rev).unwrap(), [7; 100]);
    assert!(!dir.path().join("regtest/blocks/blk00000.dat").exists());
}

/// What happens to a block file: it ends early, or is gone, perhaps with a disk that is not mounted.
const LOSSES: [fn(&Path); 2] = [|blk| truncate(blk, 100).unwrap(), |blk| fs::remove_file(blk).unwrap()];

/// A datadir in small files, with a chainstate if its height is given, one of whose files is lost.
fn with_lost_file(height: Option<u32>, lose: fn(&Path)) -> Case {
    let case = in_small_files();
    if let Some(height) = height {
        acceptance::run(&up_to(case.options(), height)).unwrap();
    }
    lose(&blk(&case, case.index().entries.iter().find(|entry| entry.height == Height(50)).unwrap()));
    case
}

/// It lost its entries as soon as anything was written, and bitcoind did not start any more, even if the file
/// came back.
#[test]
fn a_lost_file_below_a_chainstate_stays_in_the_index_until_its_blocks_come() {
    for lose in LOSSES {
        let (case, peer) = (with_lost_file(Some(tiny().tip().height), lose), peer());
        let before = case.index().entries;
        try_run(&from(case.root(), &[])).unwrap_err();
        assert!(case.index().entries == before);
        try_repair(&repairing(case.root(), &[&peer])).unwrap();
        assert!(!peer.asked().is_empty());
        assert_synced(case.root(), tiny(), "a lost file");
    }
}

/// Until the rebuild ended, they stayed connected, which Core's check of its block index does not accept.
#[test]
fn blocks_above_a_lost_file_do_not_count_as_connected_and_keep_their_undo_data() {
    for lose in LOSSES {
        let (case, peer) = (with_lost_file(None, lose), peer());
        try_run(&impatient(from(case.root(), &[]))).unwrap_err();
        let entries = case.index().entries;
        let lost = entries.iter().filter(|entry| !entry.status.has_data());
        let lowest = lost.clone().map(|entry| entry.height).min().unwrap();
        for IndexEntry { height, status, .. } in entries.iter().filter(|entry| entry.height > Height(0)) {
            assert_eq!(status.was_connected(), *height < lowest, "height {height}");
            assert_eq!(status.has_undo(), status.has_data(), "height {height}");
        }
        let (report, _) = run(&from(case.root(), &[&peer]));
        assert_eq!(report.rebuild.unwrap().undo.unwrap().blocks as usize, lost.count(), "no other is made");
        assert_synced(case.root(), tiny(), "a lost file without a chainstate");
    }
}

/// It took the blocks as stored, because the index still placed them, and failed.
#[test]
fn a_rebuild_awaits_the_blocks_of_a_lost_file_below_the_old_chainstate() {
    for lose in LOSSES {
        let (case, peer) = (with_lost_file(Some(60), lose), peer());
        assert!(run(&from(case.root(), &[&peer])).0.rebuild.is_some());
        assert_synced(case.root(), tiny(), "rebuilt");
    }
}

/// The same with the last blocks of a branch that was left, and is the best one again; and if their file had
/// one of the other branch too: the rebuild began a new block index, while the download wrote to it.
#[test]
fn a_rebuild_awaits_lost_blocks_to_which_a_reorganisation_comes_back() {
    let main: Vec<_> = tiny().main().cloned().collect();
    let other = branch_of(main[..106].to_vec(), 90, |block| sibling(block, 7, |_| {}));
    for of_other in [0, 1] {
        let case = Case::of(scratch());
        for blocks in [&main[..101], &other[..]] {
            run(&from(case.root(), &[&peer_with(blocks)]));
        }
        case.edit_index(|index| {
            let lost = main[95..101].iter().chain(&other[99..99 + of_other]);
            let lost: BTreeSet<_> = lost.map(|block| block.hash).collect();
            let lost = index.entries.iter_mut().filter(|entry| lost.contains(&entry.hash));
            lost.for_each(|entry| entry.file = Some(FileNo(9_999)));
        });
        let (report, _) = run(&from(case.root(), &[&peer()]));
        assert_eq!(report.download.blocks as usize, main.len() - 95, "{of_other}");
        assert_synced(case.root(), tiny(), "the lost blocks came again");
    }
}

/// The repair went on with this chainstate, and failed: it advised a repair.
#[test]
fn a_repair_rebuilds_a_chainstate_on_a_branch_that_is_not_stored() {
    let (case, old, main) = (Case::of(scratch()), scratch(), tiny().main().cloned().collect::<Vec<_>>());
    let other = branch_of(main[..106].to_vec(), 90, |block| sibling(block, 7, |_| {}));
    let chainstate = case.net("chainstate");
    run(&from(case.root(), &[&peer_with(&other[..101])]));
    copy_dir(&chainstate, &old.path().join("chainstate")).unwrap();
    run(&from(case.root(), &[&peer()]));
    fs::remove_dir_all(&chainstate).unwrap();
    copy_dir(&old.path().join("chainstate"), &chainstate).unwrap();
    case.edit_index(|index| {
        let stored: BTreeSet<_> = main.iter().map(|block| block.hash).collect();
        let others = index.entries.iter_mut().filter(|entry| !stored.contains(&entry.hash));
        others.for_each(|entry| *entry = IndexEntry::of_header(entry.hash, entry.header, entry.height));
    });
    let report = try_repair(&repairing(case.root(), &[&peer()])).unwrap();
    assert_eq!(report.rebuild.unwrap().hash, tiny().tip().hash);
    assert_synced(case.root(), tiny(), "a branch without blocks");
}

/// The file of the block below the last one.
fn file_of_last(case: &Case, path: fn(&Case, &IndexEntry) -> PathBuf) -> PathBuf {
    let height = Height(tiny().tip().height - 1);
    path(case, case.index().entries.iter().find(|entry| entry.height == height).unwrap())
}

/// As the chainstate was at the last block already, or near it, nothing was made, and bitcoind did not start.
#[test]
fn undo_data_that_is_missing_below_a_chainstate_is_made() {
    let losses: [fn(&Case); 4] = [
        |case| fs::remove_dir_all(case.net("blocks")).unwrap(),
        |case| truncate(&file_of_last(case, blk), 100).unwrap(),
        |case| fs::remove_file(file_of_last(case, rev)).unwrap(),
        |case| situation::cause("rev: all missing", case.root(), case.root()),
    ];
    for (number, lose) in losses.into_iter().enumerate() {
        for above in [0, 1] {
            let (case, peer, what) = (in_small_files(), peer(), format!("loss {number}, {above} above"));
            let height = tiny().tip().height - above;
            acceptance::run(&up_to(case.options(), height)).unwrap();
            lose(&case);
            let (report, _) = run(&from(case.root(), &[&peer]));
            assert!(report.rebuild.is_none() && report.undo.unwrap().height == Height(height), "{what}");
            assert_synced(case.root(), tiny(), &what);
            assert!(diagnosed(case.root(), true).is_sound(), "{what}");
            assert!(run(&from(case.root(), &[&peer])).0.undo.is_none(), "{what}");
        }
    }
}

/// bitcoind does not start if the file of a block is missing, whatever the block's branch. A mark as invalid
/// was lost with the block's place: bitcoind downloaded and connected it.
#[test]
fn a_stale_block_whose_file_is_missing_is_no_longer_in_the_index() {
    let (case, peer) = (in_small_files(), peer());
    let stale = sibling(&tiny().blocks[50], 3, |_| {});
    case.edit_index(|index| {
        let mut entry = *index.entries.iter().find(|entry| entry.height == Height(50)).unwrap();
        (entry.hash, entry.header) = (stale.hash, stale.header);
        (entry.status, entry.undo_pos) = (BlockStatus::stored(true), None);
        index.entries.push(entry);
    });
    let find = || case.index().entries.into_iter().find(|entry| entry.hash == stale.hash).unwrap();
    std::fs::remove_file(blk(&case, &find())).unwrap();
    let header = IndexEntry::of_header(stale.hash, stale.header, Height(50));
    run(&from(case.root(), &[&peer]));
    assert_eq!(find(), header);
    assert_synced(case.root(), tiny(), "a stale block is lost");
    case.edit_index(|index| {
        let entry = index.entries.iter_mut().find(|entry| entry.hash == stale.hash).unwrap();
        let (file, data_pos) = (Some(FileNo(9_999)), Some(ByteOffset(8)));
        let status = BlockStatus(BlockStatus::stored(true).0 | BlockStatus::FAILED_VALID);
        *entry = IndexEntry { status, tx_count: 1, file, data_pos, ..header };
    });
    run(&from(case.root(), &[&peer]));
    let status = BlockStatus(header.status.0 | BlockStatus::FAILED_VALID);
    assert_eq!(find(), IndexEntry { status, ..header }, "a file that the index does not list");
}

/// It stayed valid as a whole, which Core's check of its block index (`-checkblockindex`) does not accept.
#[test]
fn a_stale_block_above_one_whose_file_is_missing_does_not_count_as_connected() {
    let main = tiny().main().take(52).cloned().collect();
    let branch = branch_of(main, 49, |block| sibling(block, 3, |_| {}));
    let (lost, above) = (&branch[50], &branch[51]);
    for downloads in [true, false] {
        let (case, peer) = (in_small_files(), peer());
        case.edit_index(|index| {
            for block in [lost, above] {
                let mut entry = *index.entries.iter().find(|it| it.height.0 == block.height).unwrap();
                (entry.hash, entry.header) = (block.hash, block.header);
                entry.file = if block.height == 50 { Some(FileNo(9_999)) } else { entry.file };
                index.entries.push(entry);
            }
        });
        match downloads {
            true => drop(run(&from(case.root(), &[&peer]))),
            false => drop(acceptance::run(&case.options()).unwrap()),
        }
        let entries = case.index().entries;
        let find = |block: &GeneratedBlock| *entries.iter().find(|entry| entry.hash == block.hash).unwrap();
        assert_eq!(find(lost), IndexEntry::of_header(lost.hash, lost.header, Height(50)), "{downloads}");
        let status = find(above).status;
        assert!(status.has_data() && !status.was_connected(), "{downloads}: {status:?}");
        assert!(tiny().main().skip(1).all(|block| find(block).status.was_connected()), "{downloads}");
    }
}
