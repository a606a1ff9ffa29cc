//! bitcoind starts with the branch of the chainstate, also if another one that is stored has more work: it
//! reads the undo data of that branch, and only then connects the other one.

use crate::commands::update_branches::branch;
use acceptance::indexes::{make, of_datadir};
use acceptance::prelude::*;
use engine::doctor::ChainstatePosition;

/// Height of the chainstate.
const BEST: u32 = 135;
/// Height above which its branch leaves the chain with the most work, which ends at 140.
const FORK: u32 = 110;

/// A datadir whose chainstate is on a branch, and the blocks of the chain with more work.
fn forked() -> (TempDir, Vec<GeneratedBlock>) {
    let dir = behind(chain().main().filter(|block| block.height <= BEST), BEST, &layout());
    let blocks = branch(FORK);
    store(dir.path(), blocks.iter());
    (dir, blocks)
}

fn remove_undo(root: &Path) {
    let blocks = root.join("regtest/blocks");
    files_of(&blocks, "rev").into_keys().for_each(|name| fs::remove_file(blocks.join(name)).unwrap());
}

fn assert_has_undo(root: &Path, what: &str) {
    let check = checked(root);
    assert_eq!(check.hash, block_at(BEST).hash, "{what}");
    assert!(check.is_sound(), "{what}: {:?}", check.files);
    assert!(diagnosed(root, true).is_sound(), "{what}");
    // As bitcoind does when it starts.
    let updated = update(&update_options(root, AT_ONCE, None)).unwrap();
    assert_eq!((updated.disconnected, updated.height), (BEST - FORK, Height(140)), "{what}");
}

#[test]
fn undo_data_of_the_chainstates_branch_is_missed_and_made() {
    let (dir, _) = forked();
    let position = ChainstatePosition::OnBranch { fork: Height(FORK), stored: Height(140) };
    assert_eq!(diagnosed(dir.path(), true).found.unwrap().chainstate.position, Some(position));
    remove_undo(dir.path());
    let found = diagnosed(dir.path(), true);
    assert_eq!(found.advice, Advice::MakeUndo);
    let state = found.found.unwrap();
    assert_eq!(state.undo.lacking(), BEST);
    let missing: u32 = state.deep.unwrap().undo.iter().map(|file| file.missing).sum();
    assert_eq!(missing, BEST);
    assert!(!checked(dir.path()).is_sound());
    let made = engine::undo::make(&FaultDisk::healthy(), &options(dir.path()).chain, unwatched()).unwrap();
    assert_eq!(made.height, Height(BEST));
    assert_has_undo(dir.path(), "undo make");
}

/// The index stayed, and bitcoind stopped when it took it back.
#[test]
fn statistics_on_a_branch_that_is_left_need_its_undo_data_whole() {
    for is_damaged in [false, true] {
        let (dir, _) = forked();
        let all = of_datadir(dir.path(), Network::Regtest, TxForm::ByTxid);
        let statistics = IndexOptions { kinds: vec![IndexKind::CoinStats], ..all };
        make(&FaultDisk::healthy(), &statistics).unwrap();
        if is_damaged {
            let hash = block_at(FORK + 9).hash;
            let entry = index(dir.path()).entries.into_iter().find(|entry| entry.hash == hash).unwrap();
            let path = dir.path().join(format!("regtest/blocks/rev{:05}.dat", entry.file.unwrap().0));
            flip_bit(&path, entry.undo_pos.unwrap().0 + 5, 1).unwrap();
        }
        let done = run(&options(dir.path()));
        assert_eq!(done.is_err(), is_damaged, "{done:?}");
        if let Err(error) = done {
            assert_mentions(&error, &["bitcoind would stop when it rewinds the index"]);
        }
    }
}

/// A comparison was refused, without a way on.
#[test]
fn a_chainstate_on_a_branch_is_compared_with_that_branch() {
    let (dir, _) = forked();
    for scan in [false, true] {
        let chain = changed(options(dir.path()).chain, |it| it.scan = scan);
        let report = engine::verify(&FaultDisk::healthy(), &chain, true, unwatched()).unwrap();
        assert_eq!((report.hash, report.against_chainstate.unwrap().differences), (block_at(BEST).hash, 0));
    }
}

#[test]
fn a_repair_makes_the_undo_data_of_the_chainstates_branch() {
    let (dir, other) = forked();
    remove_undo(dir.path());
    let blocks: Vec<_> = chain().main().filter(|block| block.height <= FORK).chain(&other).collect();
    let peer = peer_with(blocks);
    let report = try_repair(&repairing(dir.path(), &[&peer])).unwrap();
    assert_eq!(report.undo.unwrap().height, Height(BEST));
    assert_has_undo(dir.path(), "repair");
}

/// A rebuild makes the undo data that an update needs: no download is necessary.
#[test]
fn an_update_without_undo_data_advises_a_rebuild() {
    let (dir, _) = forked();
    remove_undo(dir.path());
    let error = update(&update_options(dir.path(), AT_ONCE, None)).map(drop).unwrap_err();
    assert_offers(&error, &[Remedy::RebuildChainstate]);
    assert!(!error.to_string().contains("bitcoind -reindex"), "{error}");
}
