//! The engine with the coins cache: repeated coinbases, faults, interrupts and checkpoints. That it comes to
//! the same result as the join is tested in `ways`.

use acceptance::prelude::*;

/// Number of threads, and memory for the cache in bytes: a commit after each block, after a few, and one.
const WAYS: [(usize, Option<usize>); 3] = [(1, Some(1)), (2, Some(30_000)), (3, None)];

fn with_cache(options: &ReindexOptions, (threads, bytes): (usize, Option<usize>)) -> ReindexOptions {
    changed(with_threads(options, threads), |it| {
        it.engine = Engine::Cache;
        it.chain.hooks.join_bytes = bytes;
    })
}

/// The coins of a block can be written, and leave the memory, after the next block was looked up.
#[test]
fn a_coinbase_that_is_made_again_is_invalid_however_often_changes_are_written() {
    const TIP: u32 = 50;
    let params = ChainParams::of(Network::Regtest).with_heights(&[(BuriedDeployment::Bip34, Height(10_000))]);
    for original in [TIP, TIP - 1, 3] {
        let mut again = chain().clone();
        again.blocks.retain(|block| !block.stale && block.height <= TIP);
        let block = |height: u32| &again.blocks[height as usize];
        let made: bitcoin::Block = bitcoin::consensus::deserialize(&block(original).bytes).unwrap();
        let repeat = with_coinbase(block(TIP), &made.txdata[0]);
        again.blocks.push(repeat);
        let dir = datadir_of(&again);
        let join = changed(options(dir.path()), |it| it.chain.params = params);
        for options in [join.clone()].into_iter().chain(WAYS.map(|way| with_cache(&join, way))) {
            let error = run(&options).map(|report| report.height).unwrap_err();
            assert_eq!(error.core.as_deref(), Some("bad-txns-BIP30"), "{original}: {error}");
            assert_eq!(error.height, Some(Height(TIP + 1)), "{original}: {error}");
        }
    }
}

#[test]
fn an_interrupted_run_leaves_the_datadir_as_it_was() {
    let mut interrupted = 0;
    for at in (1..).step_by(40) {
        let case = tiny_case();
        UndoDamage::AllGone.apply(case.root(), Network::Regtest);
        let before = tree(case.root());
        let options = with_cache(&case.options(), (1, Some(3000)));
        match run_until(&options, at).0 {
            Ok(report) => {
                assert_eq!(report.hash_serialized_3, tiny().model.stats().hash_serialized_3);
                break;
            }
            Err(error) => assert_eq!(error.kind, ErrorKind::Interrupted, "{error}"),
        }
        interrupted += 1;
        assert_same_tree(&before, case.root(), &format!("operation {at}"));
        assert_eq!(leftovers(case.root()), [] as [&std::path::Path; 0]);
    }
    assert!(interrupted > 5, "{interrupted}");
}

#[test]
fn the_checkpoint_of_another_engine_is_kept_unless_the_caller_gives_it_up() {
    let case = Case::new();
    let (_, operations) = run_until(&bounded(&Case::new().options()), u64::MAX);
    let error =
        run_until(&bounded(&case.options()), operations / 2).0.map(|report| report.height).unwrap_err();
    assert!(matches!(error.remedies[..], [Remedy::Resume { .. }]), "{error}");
    let cache = with_cache(&case.options(), WAYS[1]);
    assert_offers(&assert_fails(run(&cache), ErrorKind::Usage, &[]), &[Remedy::StartOver]);
    let report = run(&changed(cache, |it| it.chain.resume.restart = true)).unwrap();
    assert_eq!((report.resumed, report.matching), (0, Matching::Cache));
    assert_eq!(leftovers(case.root()), [] as [&std::path::Path; 0]);
}

#[test]
fn hints_are_refused_before_anything_is_opened() {
    let cache = with_cache(&options(Path::new("no such datadir")), WAYS[0]);
    let hinted = with_hints(&cache, Path::new("no such file"), AGGREGATES[0]);
    assert_offers(&assert_fails(run(&hinted), ErrorKind::Usage, &[]), &[Remedy::WithoutHints]);
}

#[test]
fn events_name_the_stages_and_tables_are_merged() {
    let case = Case::new();
    let (done, events) = run_seen(&with_cache(&case.options(), WAYS[0]));
    assert_eq!(stages(&events), ["plan", "connect", "prove", "commit"]);
    let report = done.unwrap();
    let tables = files(&report.chainstate).into_keys();
    let tables = tables.filter(|name| name.extension().is_some_and(|ending| ending == "ldb")).count();
    assert!(tables < 8, "{tables} tables after a commit for each block");
}
