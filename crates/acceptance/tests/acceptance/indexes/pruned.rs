//! Filters and statistics of a node whose blocks are deleted: they are made while it downloads, and continued
//! as long as the blocks are there.

use super::in_pass::{healthy, observe_for};
use crate::sync::prune::{END, interrupted_at, long, peer, pruned};
use acceptance::indexes::{Rows, all_indexes, database, edit_rows, make, update, with_indexes};
use acceptance::prelude::*;
use acceptance::sync::run_on as download;
use indexes::IndexObserver;

const KINDS: [IndexKind; 2] = [IndexKind::BlockFilter, IndexKind::CoinStats];

fn both(chain: &ChainOptions) -> IndexOptions {
    let chain = ChainOptions { observer: None, ..chain.clone() };
    IndexOptions { kinds: KINDS.to_vec(), ..all_indexes(chain, TxForm::ByTxid) }
}

fn contents(root: &Path) -> (Vec<Rows>, Vec<u8>) {
    acceptance::indexes::contents(root, &KINDS)
}

/// What `make` gives up to a height, of a node that has all blocks.
fn of_all_blocks(height: u32) -> (Vec<Rows>, Vec<u8>) {
    static TEMPLATE: LazyLock<Template> = LazyLock::new(|| Template::of(long()));
    let case = TEMPLATE.case();
    let to_height = up_to(case.options(), height);
    run_on(healthy(), &to_height).unwrap();
    make(healthy(), &both(&to_height.chain)).unwrap();
    contents(case.root())
}

/// Options of a pruned download whose blocks an observer is given.
fn observed(root: &Path, peer: &ScriptedPeer) -> (SyncOptions, Arc<IndexObserver>) {
    let mut options = pruned(root, &[peer]);
    let observer = observe_for(both(&options.chain), &mut options.chain, healthy());
    (options, observer)
}

/// Downloads, and makes the indexes.
fn run(root: &Path, peer: &ScriptedPeer) -> Result<MadeIndexesReport, Error> {
    let (options, observer) = observed(root, peer);
    download(healthy(), &options)?;
    bring_indexes(healthy(), &both(&options.chain), Some(&observer), unwatched())
}

#[test]
fn a_pruned_download_makes_them_of_the_blocks_that_it_deletes() {
    let (dir, peer) = (scratch(), peer());
    let made = run(dir.path(), &peer).unwrap();
    assert_eq!((made.height, made.result.blocks_read), (Height(END), 0));
    assert!(contents(dir.path()) == of_all_blocks(END));
    assert_eq!(leftovers(dir.path()), [] as [&Path; 0]);

    // What needs the deleted blocks is refused, and says why.
    let both = both(&options(dir.path()).chain);
    for done in [
        make(healthy(), &both).map(drop),
        make(healthy(), &IndexOptions { kinds: vec![IndexKind::Tx], ..both.clone() }).map(drop),
        check_indexes(healthy(), &both, unwatched()).map(drop),
    ] {
        assert_fails(done, ErrorKind::Usage, &["this node was pruned", "are deleted"]);
    }
    assert!(contents(dir.path()) == of_all_blocks(END));

    // The blocks above are stored.
    engine::update(healthy(), &update_options(dir.path(), AT_ONCE, None), unwatched()).unwrap();
    let copy = Template::copy_of(dir.path()).case();
    let updated = update(healthy(), &both).unwrap();
    assert_eq!((updated.height, updated.result.blocks_read), (Height(long().tip().height), 2));
    assert!(contents(dir.path()) == of_all_blocks(long().tip().height));

    // An index that cannot be continued was to be made anew, or its undo data made, which is refused.
    let only = IndexOptions { chain: copy.options().chain, kinds: vec![KINDS[1]], ..both };
    let assert_refused = |kind| {
        let error = refused_by(copy.root(), kind, &[], || update(healthy(), &only));
        assert_eq!(error.remedies, [Remedy::Unprune]);
    };
    copy.forget_undo(|entry| entry.hash == long().tip().hash);
    assert_refused(ErrorKind::Damaged);
    edit_rows(&database(&copy, KINDS[1]), |rows| drop(rows.remove(&b"B"[..])));
    assert_refused(ErrorKind::Usage);
}

/// A node with few blocks whose indexes end with its chainstate, and one that has only genesis in its
/// indexes.
#[test]
fn blocks_that_an_index_is_continued_from_are_not_deleted_behind_a_download() {
    for height in [150, 0] {
        let (dir, peer) = (scratch(), peer());
        let lower = from_to(dir.path(), &[&peer], height);
        download(healthy(), &lower).unwrap();
        make(healthy(), &both(&lower.chain)).unwrap();
        let wanted = contents(dir.path());
        let options = pruned(dir.path(), &[&peer]);
        let done = download(healthy(), &options);
        let words = [&format!("it ends at block {height}"), "nothing was changed"];
        let error = assert_fails(done, ErrorKind::Usage, &words);
        let kinds = [Some(KINDS[0]), Some(KINDS[1]), None, None];
        assert_offers(&error, &[Remedy::BringIndexes(kinds), Remedy::SetIndexesAside]);
        make(healthy(), &both(&lower.chain)).unwrap();
        assert!(contents(dir.path()) == wanted, "all blocks are there");

        assert_eq!(run(dir.path(), &peer).unwrap().result.blocks_read, 0);
        assert!(contents(dir.path()) == of_all_blocks(END));
    }
}

/// A folder that has only coin statistics.
fn with_statistics_alone() -> TempDir {
    let ((case, _), dir) = (with_indexes(TxForm::ByTxid), scratch());
    let statistics = Path::new("regtest/indexes/coinstatsindex");
    fs::create_dir_all(dir.path().join("regtest/indexes")).unwrap();
    copy_dir(&case.root().join(statistics), &dir.path().join(statistics)).unwrap();
    dir
}

/// They stayed beside the datadir that was begun, with which bitcoind did not start.
#[test]
fn statistics_whose_blocks_are_gone_are_set_aside_even_if_the_run_is_interrupted() {
    let (dir, peer) = (with_statistics_alone(), peer());
    let set_aside_indexes = SetAsideIndexes::Any;
    interrupt_when(&SyncOptions { set_aside_indexes, ..pruned(dir.path(), &[&peer]) }, || true);
    let net_dir = dir.path().join("regtest");
    assert!(net_dir.join("blocks/index/CURRENT").exists());
    assert!(!IndexKind::CoinStats.is_in(healthy(), &net_dir).unwrap());
    assert!(net_dir.join("indexes/coinstatsindex.old").exists());
}

/// A datadir was begun, with all headers, before the error said that nothing was changed.
#[test]
fn statistics_whose_blocks_are_gone_are_refused_before_a_datadir_is_begun() {
    let (dir, peer) = (with_statistics_alone(), peer());
    let words = ["coinstatsindex: ", "nothing was changed"];
    let downloaded = || download(healthy(), &pruned(dir.path(), &[&peer]));
    let error = refused_by(dir.path(), ErrorKind::Usage, &words, downloaded);
    let kinds = [Some(IndexKind::CoinStats), None, None, None];
    assert_offers(&error, &[Remedy::BringIndexes(kinds), Remedy::SetIndexesAside]);
}

#[test]
fn an_interrupted_download_continues_with_what_was_made() {
    let (dir, peer) = (scratch(), peer());
    for blocks in [150, 250, 330] {
        let (options, _observer) = observed(dir.path(), &peer);
        interrupted_at(&options, &peer, blocks);
    }
    let made = run(dir.path(), &peer).unwrap();
    assert_eq!((made.height, made.result.blocks_read), (Height(END), 0));
    assert!(contents(dir.path()) == of_all_blocks(END));
    assert_eq!(leftovers(dir.path()), [] as [&Path; 0]);
}

#[test]
fn a_download_that_has_deleted_blocks_without_them_is_refused() {
    let (dir, peer) = (scratch(), peer());
    interrupted_at(&pruned(dir.path(), &[&peer]), &peer, 300);
    let error = assert_fails(run(dir.path(), &peer), ErrorKind::Usage, &[]);
    assert_offers(&error, &[Remedy::StartOver]);
    let (mut options, observer) = observed(dir.path(), &peer);
    options.chain.resume.restart = true;
    download(healthy(), &options).unwrap();
    bring_indexes(healthy(), &both(&options.chain), Some(&observer), unwatched()).unwrap();
    assert!(contents(dir.path()) == of_all_blocks(END));
}

/// Wherever the power fails, the next run has what the checkpoint needs.
#[test]
fn a_power_cut_loses_nothing_of_deleted_blocks() {
    let cut = |seed: u64, operations: Option<u64>| {
        let (dir, aside, peer) = (scratch(), scratch(), peer());
        let at = operations.map(|all| Rng::new(seed, "pruned indexes").below(all));
        let disk = FaultDisk::killed_at(at.unwrap_or(u64::MAX)).with_names_at_risk(aside.path());
        let disk: &'static FaultDisk = Box::leak(Box::new(disk));
        let mut options = pruned(dir.path(), &[&peer]);
        let observer = observe_for(both(&options.chain), &mut options.chain, disk);
        let done = download(disk, &options);
        if at.is_none() {
            done.unwrap();
            return disk.count();
        }
        drop((observer, options));
        disk.cut_power(seed).unwrap();
        if done.is_err() {
            match run(dir.path(), &peer) {
                Ok(made) => {
                    assert_eq!(made.result.blocks_read, 0, "seed {seed}");
                    assert!(contents(dir.path()) == of_all_blocks(END), "seed {seed}");
                }
                // The gap that docs/indexes.md describes: the chainstate was in place already.
                Err(error) => {
                    assert_mentions(&error, &["are deleted"]);
                    let found = stats(dir.path(), Network::Regtest).unwrap();
                    let end = long().main().nth(END as usize).unwrap().hash;
                    assert_eq!(found.best_block, end, "seed {seed}: {error}");
                }
            }
        }
        0
    };
    let operations = cut(0, None);
    thread::scope(|scope| {
        for first in 0..4 {
            scope.spawn(move || {
                for seed in (first..8).step_by(4) {
                    cut(seed, Some(operations));
                }
            });
        }
    });
}
