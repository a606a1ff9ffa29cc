//! Undo data that a rebuild makes: what of the block index changes, and what is not replaced. That the bytes
//! are the node's, whatever way a rebuild goes, is tested in `ways/undo.rs`.

use acceptance::{prelude::*, undo::assert_mends};

/// bitcoind writes no undo data for a block whose row has a position. Rows of blocks above the last one once
/// kept theirs, at which the new file has other records: the node could not disconnect these blocks.
#[test]
fn rows_of_other_blocks_lose_positions_in_lost_files() {
    let (case, stop) = (Case::new(), TIP - 10);
    UndoDamage::AllGone.apply(case.root(), Network::Regtest);
    assert_eq!(run(&lowered(case.options(), stop)).unwrap().undo.unwrap().blocks, stop);
    let made: Vec<_> = chain().main().skip(1).take(stop as usize).map(|block| block.hash).collect();
    for entry in case.index().entries {
        assert_eq!(entry.status.has_undo(), made.contains(&entry.hash), "{}", entry.height);
    }
    assert_mends(&case.options(), run, &Expected::of(chain()), "the rest");
}

/// An output elsewhere gets a block index and `rev` files too. What is there already is not replaced, and the
/// run is refused before it has done any work.
#[test]
fn an_output_with_an_index_or_undo_files_is_refused_early() {
    for (name, damage) in [
        ("blocks/index/CURRENT", UndoDamage::AllGone),
        ("blocks/index/CURRENT", UndoDamage::Flipped),
        ("blocks/rev00009.dat", UndoDamage::AllGone),
        ("blocks/rev00009.dat", UndoDamage::Flipped),
    ] {
        for scan in [false, true] {
            let (case, output) = (Case::new(), scratch());
            damage.apply(case.root(), Network::Regtest);
            let path = output.path().join("regtest").join(name);
            write_file(&path, "of another node");
            let options = elsewhere(case.options(), output.path());
            let options = changed(options, |it| it.chain.scan = scan);
            let (done, events) = run_seen(&options);
            let what = format!("{name}, {damage:?}, scan {scan}");
            assert_eq!(std::fs::read(&path).unwrap(), b"of another node", "{what}: {done:?}");
            let error = done.map(|report| report.height).unwrap_err();
            let early = !stages(&events).contains(&"check");
            // Damage is found when records are read, and the lack of records in the index before.
            assert!(early || damage == UndoDamage::Flipped || scan, "{what}: {error}");
            let is_named = error.file.as_deref().is_some_and(|file| path.starts_with(file));
            assert!(is_named, "{what}: {error}");
            if early {
                assert_offers(&error, &[Remedy::EmptyOutput]);
                assert_eq!(leftovers(output.path()), [] as [&Path; 0], "{what}");
            }
        }
    }
}
