//! A rebuild in place never replaces a state by a lower one, unless the user accepts it explicitly.

use acceptance::prelude::*;
use disk::index::BlockIndex;
use testkit::{corrupt::truncate, sibling::sibling};
use wire::{ByteOffset, FileNo};

/// Height of the chainstate in a [`Case`].
const OLD: u32 = 137;

/// The `blk` or `rev` files of a case, in order.
fn block_files(case: &Case, kind: &str) -> Vec<PathBuf> {
    let files = tree(&case.blocks("")).into_keys();
    files.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(kind)).collect()
}

fn accepting(options: &ReindexOptions) -> ReindexOptions {
    ReindexOptions { accept_lower_tip: true, ..options.clone() }
}

/// Rebuilds, accepting a lower tip: must end at `height`, and report what was lost.
fn ends_lower(case: &Case, options: &ReindexOptions, height: u32) -> ReindexReport {
    let report = run(&accepting(options)).unwrap();
    assert_eq!(report.height, Height(height));
    assert_eq!(report.hash_serialized_3, stats_by_height(chain())[height as usize].hash_serialized_3);
    let is_noted = |note: &Warning| matches!(note, Warning::LowerTip(lower) if lower.tip == report.height);
    assert!(report.notes.iter().any(is_noted), "{:?}", report.notes);
    assert_eq!(stats(case.root(), Network::Regtest).unwrap().hash_serialized_3, report.hash_serialized_3);
    report
}

/// Removes the chainstate, so that only the index shows what there was.
fn without_chainstate(case: &Case) {
    std::fs::remove_dir_all(case.root().join("regtest/chainstate")).unwrap();
}

/// Breaks a database's `CURRENT`, so that it does not open.
fn break_database(dir: &Path) {
    std::fs::write(dir.join("CURRENT"), "MANIFEST-999999\n").unwrap();
}

#[test]
fn a_scan_without_undo_files_does_not_empty_the_chainstate() {
    let case = Case::new();
    block_files(&case, "rev").iter().for_each(|path| std::fs::remove_file(path).unwrap());
    let error = refused(&trusting(&case.scan()), ErrorKind::Damaged);
    assert_mentions(
        &error,
        &[
            "the chainstate reaches height 137",
            "end at height 0",
            "the undo data of the block at height 1 is not in the undo files",
        ],
    );
    assert_mentions(&error, &["nothing was changed"]);
    assert_offers(&error, &[Remedy::AcceptLowerTip, Remedy::OtherOutput]);
    let report = ends_lower(&case, &trusting(&case.scan()), 0);
    assert_eq!((report.lost_blocks, report.unconnected), (OLD, 140));
}

#[test]
fn losing_the_last_undo_data_or_blocks_does_not_lower_the_chainstate() {
    for kind in ["rev", "blk"] {
        let case = Case::new();
        for path in block_files(&case, kind).iter().skip(2) {
            truncate(path, 900).unwrap();
        }
        let error = refused(&trusting(&case.scan()), ErrorKind::Damaged);
        assert_mentions(&error, &["height", "restore"]);
    }
}

#[test]
fn if_the_chainstate_is_broken_the_old_index_shows_what_there_was() {
    for is_missing in [false, true] {
        let case = Case::new();
        block_files(&case, "rev").iter().for_each(|path| std::fs::remove_file(path).unwrap());
        if is_missing {
            without_chainstate(&case);
        } else {
            break_database(&case.root().join("regtest/chainstate"));
        }
        let error = refused(&trusting(&case.scan()), ErrorKind::Damaged);
        assert_mentions(&error, &["the block index reaches height 140", "end at height 0"]);
        assert_eq!(ends_lower(&case, &trusting(&case.scan()), 0).lost_blocks, 140);
    }
}

#[test]
fn if_no_database_can_be_read_the_scan_decides_and_reports_unconnected_blocks() {
    let case = Case::new();
    block_files(&case, "rev").iter().for_each(|path| std::fs::remove_file(path).unwrap());
    without_chainstate(&case);
    break_database(&case.blocks("index"));
    let report = run(&trusting(&case.scan())).unwrap();
    assert_eq!((report.height, report.lost_blocks, report.unconnected), (Height(0), 0, 140));
    let note = "140 stored blocks above height 0 have no undo data: they were never connected, or their undo \
                data is lost";
    assert!(report.notes.iter().any(|found| found.to_string().contains(note)), "{:?}", report.notes);
}

/// Reduces the index to what an old backup would contain.
fn forget_above(index: &mut BlockIndex, height: u32) {
    index.entries.retain(|entry| entry.height.0 <= height);
    for (number, info) in index.files.iter_mut().enumerate() {
        let in_file =
            index.entries.iter().filter(|entry| entry.file.map(|file| file.0) == Some(number as u32));
        // The start of the last known block is close enough to its end.
        info.size =
            in_file.filter_map(|entry| entry.data_pos).map(|pos| pos.0 as u32 + 81).max().unwrap_or(0);
    }
}

#[test]
fn an_index_that_lacks_the_chainstates_best_block_is_refused() {
    let case = Case::new();
    case.edit_index(|index| forget_above(index, 120));
    let error = refused(&case.options(), ErrorKind::Damaged);
    assert_mentions(&error, &["the block index does not contain the chainstate's best block"]);
    assert_offers(&error, &[Remedy::RebuildIndex]);
    // Accepting a lower tip would not help: bitcoind would overwrite blocks.
    refused(&accepting(&case.options()), ErrorKind::Damaged);
    assert_eq!(run(&case.scan()).unwrap().height, Height(140));
}

#[test]
fn blocks_beyond_the_bytes_in_use_are_counted() {
    let case = Case::new();
    let mut positions: Vec<_> =
        case.index().entries.iter().map(|entry| (entry.file.unwrap(), entry.data_pos.unwrap())).collect();
    case.edit_index(|index| forget_above(index, 120));
    let files = case.index().files;
    positions.retain(|(file, pos)| pos.0 > files.get(file.0 as usize).map_or(0, |info| info.size.into()));
    without_chainstate(&case);
    let report = run(&case.options()).unwrap();
    assert_eq!(report.height, Height(120));
    let count = positions.len() as u32;
    let is_noted =
        |note: &Warning| matches!(note, Warning::BlocksBeyondIndex { blocks, .. } if *blocks == count);
    assert!(count >= 10 && report.notes.iter().any(is_noted), "{:?}", report.notes);
}

#[test]
fn an_index_whose_blocks_lie_beyond_the_bytes_in_use_is_refused() {
    let case = Case::new();
    case.edit_index(|index| index.files[0].size = 100);
    assert_mentions(
        &refused(&case.options(), ErrorKind::Damaged),
        &["bitcoind would overwrite it", "scanning the block files"],
    );
}

#[test]
fn an_index_whose_undo_data_lies_beyond_the_bytes_in_use_is_refused() {
    let case = Case::new();
    case.edit_index(|index| index.files[0].undo_size /= 2);
    let error = refused(&trusting(&case.options()), ErrorKind::Damaged);
    assert_mentions(
        &error,
        &["rev00000.dat", "places this undo data", "bitcoind would overwrite it", "scanning the block files"],
    );
}

#[test]
fn stopping_below_the_chainstate_must_be_accepted() {
    let case = Case::new();
    let low = ReindexOptions { stop_at_height: Some(Height(100)), ..case.options() };
    let error = refused(&low, ErrorKind::Damaged);
    assert_mentions(&error, &["would end at height 100, because it was asked to stop there"]);
    assert_offers(&error, &[Remedy::AcceptLowerTip]);
    // With an output elsewhere nothing is replaced.
    let output = acceptance::scratch();
    let elsewhere = ReindexOptions { output: Some(output.path().to_owned()), ..low.clone() };
    assert_eq!(run(&elsewhere).unwrap().height, Height(100));
    assert_eq!(ends_lower(&case, &low, 100).lost_blocks, OLD - 100);
    let same = ReindexOptions { stop_at_height: Some(Height(100)), ..case.options() };
    let report = run(&same).unwrap();
    assert_eq!((report.lost_blocks, report.notes.len()), (0, 0), "{:?}", report.notes);
}

#[test]
fn a_chainstate_of_another_chain_is_not_replaced_unless_accepted() {
    let case = Case::new();
    let dir = acceptance::scratch();
    let spec = testkit::ChainSpec { blocks: Some(110), ..testkit::ChainSpec::new(99, 30_000) };
    testkit::Chain::generate(&spec).write_datadir(dir.path(), &acceptance::layout()).unwrap();
    run(&acceptance::options(dir.path())).unwrap();
    without_chainstate(&case);
    let chainstate = case.root().join("regtest/chainstate");
    testkit::corrupt::copy_dir(&dir.path().join("regtest/chainstate"), &chainstate).unwrap();
    let lacks = "the block index does not contain the chainstate's best block";
    assert_mentions(&refused(&case.options(), ErrorKind::Damaged), &[lacks]);
    assert_mentions(&refused(&case.scan(), ErrorKind::Damaged), &["that block is not in any block file"]);
    assert_eq!(ends_lower(&case, &case.scan(), 140).lost_blocks, 1);
}

#[test]
fn a_scan_names_a_block_that_the_old_index_marks_invalid() {
    let case = Case::new();
    case.edit_index(|index| {
        let tip = index.entries.iter_mut().find(|entry| entry.height == Height(140)).unwrap();
        tip.status = BlockStatus(tip.status.0 | BlockStatus::FAILED_VALID);
    });
    let report = run(&case.options()).unwrap();
    let is_noted = |note: &Warning| matches!(note, Warning::MarkedInvalid { height: Height(140), .. });
    assert!(report.height == Height(139) && report.notes.len() == 1, "{:?}", report.notes);
    assert!(is_noted(&report.notes[0]), "{:?}", report.notes);
    let report = run(&case.scan()).unwrap();
    assert_eq!(report.height, Height(140));
    let is_noted = |note: &Warning| matches!(note, Warning::MarkDropped { height: Height(140), .. });
    assert!(report.notes.iter().any(is_noted), "{:?}", report.notes);
}

/// bitcoind does not start with such an index, so a chainstate for it would be useless.
#[test]
fn an_index_with_a_wrong_height_is_refused() {
    let case = Case::new();
    case.edit_index(|index| {
        let entry = index.entries.iter_mut().find(|entry| entry.height == Height(90)).unwrap();
        entry.height = Height(91);
    });
    let error = refused(&case.options(), ErrorKind::Damaged);
    assert_mentions(&error, &["at height 91, but it is at height 90"]);
    assert_offers(&error, &[Remedy::RebuildIndex]);
    // It still shows which blocks were connected.
    block_files(&case, "rev").iter().for_each(|path| std::fs::remove_file(path).unwrap());
    without_chainstate(&case);
    let error = refused(&trusting(&case.scan()), ErrorKind::Damaged);
    assert_mentions(&error, &["the block index reaches height 140", "end at height 0"]);
    assert_eq!(run(&case.scan()).unwrap().height, Height(140), "undo data is made");
}

/// As bitcoind, a rebuild leaves out what the block index marks as invalid; and it says so.
#[test]
fn a_block_that_the_index_marks_invalid_is_left_out_with_a_warning() {
    let case = Case::new();
    without_chainstate(&case);
    let mut marked = None;
    case.edit_index(|index| {
        let entry =
            index.entries.iter_mut().find(|entry| entry.height == Height(90) && entry.status.has_undo());
        let entry = entry.unwrap();
        entry.status.0 |= BlockStatus::FAILED_VALID;
        marked = Some(entry.hash);
    });
    let report = run(&case.options()).unwrap();
    assert_eq!(report.height, Height(89));
    let is_noted = |note: &Warning| match note {
        Warning::MarkedInvalid { height, hash, tip } => {
            (*height, Some(*hash), *tip) == (Height(90), marked, Height(140))
        }
        _ => false,
    };
    assert_eq!(report.notes.iter().filter(|note| is_noted(note)).count(), 1, "{:?}", report.notes);
}

/// bitcoind does not start if the index places any block in a file that does not exist.
#[test]
fn a_block_of_another_branch_in_a_file_that_does_not_exist_leaves_the_index() {
    let case = Case::new();
    let stale = sibling(chain().main().nth(90).unwrap(), 3, |_| {});
    let find = || case.index().entries.into_iter().find(|entry| entry.hash == stale.hash).unwrap();
    for file in [FileNo(70), FileNo(99)] {
        case.edit_index(|index| {
            index.entries.retain(|entry| entry.hash != stale.hash);
            index.entries.push(IndexEntry {
                status: BlockStatus::stored(true),
                tx_count: 1,
                file: Some(file),
                data_pos: Some(ByteOffset(8)),
                ..IndexEntry::of_header(stale.hash, stale.header, Height(90))
            });
            index.entries.sort_unstable_by_key(|entry| entry.hash);
        });
        let report = run(&case.options()).unwrap();
        assert_eq!(find(), IndexEntry::of_header(stale.hash, stale.header, Height(90)));
        let name = format!("blk000{}.dat, which do not exist", file.0);
        assert!(report.notes.iter().any(|note| note.to_string().contains(&name)), "{:?}", report.notes);
        assert_eq!(run(&case.options()).unwrap().notes.len(), 0, "only once");
    }
}
