//! What a rebuild changes in a datadir, and what it reports meanwhile. That its coins are always the model's
//! is tested in `ways/coins.rs`.

use acceptance::prelude::*;

#[test]
fn a_rebuild_in_place_replaces_the_old_chainstate() {
    for scan in [false, true] {
        let case = Case::new();
        let before = tree(case.root());
        let old = stats(case.root(), Network::Regtest).unwrap();
        let report = run(&changed(case.options(), |it| it.chain.scan = scan)).unwrap();
        let new = stats(case.root(), Network::Regtest).unwrap();
        assert_eq!((new.best_block, new.hash_serialized_3), (report.hash, report.hash_serialized_3));
        assert_ne!(new.best_block, old.best_block);
        // Everything else is unchanged, and nothing is left beside the databases.
        let is_database = |path: &Path| {
            path.starts_with(case.net("chainstate")) || scan && path.starts_with(case.blocks("index"))
        };
        let others =
            |tree: Tree| -> Vec<_> { tree.into_iter().filter(|(path, _)| !is_database(path)).collect() };
        assert!(others(before) == others(tree(case.root())), "scan {scan}");
        assert_eq!(case.index().entries.len(), chain().blocks.len(), "stale blocks are in the index too");
        // The next rebuild can use the index that the scan wrote.
        let again = run(&case.options()).unwrap();
        assert_eq!(again.hash_serialized_3, report.hash_serialized_3);
    }
}

#[test]
fn events_name_the_stages_and_the_plan() {
    let case = Case::new();
    let (done, events) = run_seen(&case.options());
    done.unwrap();
    assert_eq!(stages(&events), ["plan", "check", "finish", "prove", "commit"]);
    let planned = events.iter().find_map(|event| match event {
        Event::Planned { height, hash, unconnected, .. } => Some((height.0, *hash, *unconnected)),
        _ => None,
    });
    let tip = acceptance::chain().tip();
    assert_eq!(planned, Some((tip.height, tip.hash, 0)));
}
