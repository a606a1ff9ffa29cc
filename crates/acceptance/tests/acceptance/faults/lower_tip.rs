//! A rebuild in place never replaces a state by a lower one, unless the user accepts it explicitly. Which
//! damage would lower it is in `input/situations.txt`.

use acceptance::prelude::*;

/// Height of the chainstate in a [`Case`].
const OLD: u32 = 137;

#[test]
fn stopping_below_the_chainstate_must_be_accepted() {
    let case = Case::new();
    let low = up_to(case.options(), 100);
    let error =
        refused(&low, ErrorKind::Damaged, &["would end at height 100, because it was asked to stop there"]);
    assert_offers(&error, &[Remedy::AcceptLowerTipAt(Height(100))]);
    // With an output elsewhere nothing is replaced.
    let output = scratch();
    let elsewhere = elsewhere(low, output.path());
    assert_eq!(run(&elsewhere).unwrap().height, Height(100));
    let report = run(&lowered(case.options(), 100)).unwrap();
    assert_eq!((report.height, report.lost_blocks), (Height(100), OLD - 100));
    let is_noted = |note: &Warning| matches!(note, Warning::LowerTip(lower) if lower.tip == report.height);
    assert!(report.notes.iter().any(is_noted), "{:?}", report.notes);
    assert_eq!(report.hash_serialized_3, stats_by_height(chain())[100].hash_serialized_3);
    assert_eq!(stats(case.root(), Network::Regtest).unwrap().hash_serialized_3, report.hash_serialized_3);
    let report = run(&up_to(case.options(), 100)).unwrap();
    assert_eq!((report.lost_blocks, report.notes.len()), (0, 0), "{:?}", report.notes);
}

/// It counted as a damaged one, which any other may replace.
#[test]
fn a_chainstate_that_cannot_be_read_now_is_not_replaced_by_a_lower_one() {
    let case = Case::new();
    let before = tree(case.root());
    for (at, options) in (0..200).flat_map(|at| [(at, case.options()), (at, case.scan())]) {
        let disk = FaultDisk::fail_at(at, InjectedFault::Once, Operations::All, io::ErrorKind::TimedOut);
        run_on(&disk, &up_to(options, 100)).unwrap_err();
        assert_same_tree(&before, case.root(), &format!("operation {at}"));
    }
    // A bad sector is damage.
    for (dir, options) in [("chainstate", case.options()), ("blocks/index", case.scan())] {
        let mut files = tree(&case.net(dir)).into_keys();
        let table = files.find(|path| path.extension().is_some_and(|end| end == "ldb")).unwrap();
        let disk = FaultDisk::healthy().with_unreadable(&case.net(dir).join(table), 3);
        assert_eq!(run_on(&disk, &options).unwrap().height, Height(TIP), "{dir}");
    }
}

/// bitcoind does not start if the index places any block in a file that does not exist. A mark as invalid was
/// lost with the block's place: bitcoind downloaded and connected it.
#[test]
fn a_block_of_another_branch_in_a_file_that_does_not_exist_leaves_the_index() {
    let case = Case::new();
    let stale = sibling(block_at(90), 3, |_| {});
    let find = || case.index().entries.into_iter().find(|entry| entry.hash == stale.hash).unwrap();
    for (file, mark) in [(FileNo(70), 0), (FileNo(99), BlockStatus::FAILED_VALID)] {
        case.edit_index(|index| {
            index.entries.retain(|entry| entry.hash != stale.hash);
            index.entries.push(IndexEntry {
                status: BlockStatus(BlockStatus::stored(true).0 | mark),
                tx_count: 1,
                file: Some(file),
                data_pos: Some(ByteOffset(8)),
                ..IndexEntry::of_header(stale.hash, stale.header, Height(90))
            });
            index.entries.sort_unstable_by_key(|entry| entry.hash);
        });
        let report = run(&case.options()).unwrap();
        let mut header = IndexEntry::of_header(stale.hash, stale.header, Height(90));
        header.status.0 |= mark;
        assert_eq!(find(), header);
        let name = format!("blk000{}.dat, which do not exist", file.0);
        assert!(report.notes.iter().any(|note| note.to_string().contains(&name)), "{:?}", report.notes);
        assert_eq!(run(&case.options()).unwrap().notes.len(), 0, "only once");
    }
}

/// They stayed connected, also above those that the block index has lost.
#[test]
fn blocks_above_a_missing_file_above_the_end_do_not_count_as_connected() {
    let case = Case::new();
    let lost = entry(&case, 139);
    let in_file = case.index().entries.into_iter().filter(|entry| entry.file == lost.file);
    let lowest = in_file.map(|entry| entry.height.0).min().unwrap();
    fs::remove_file(blk(&case, &lost)).unwrap();
    assert!(lowest > 100 && run(&lowered(case.options(), 100)).unwrap().height == Height(100));
    for height in 1..=TIP {
        assert_eq!(entry(&case, height).status.was_connected(), height < lowest, "height {height}");
    }
}
