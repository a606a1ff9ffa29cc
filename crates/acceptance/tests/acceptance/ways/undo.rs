//! Undo data that is missing or damaged is made in every way that may make it: the same bytes as the node's,
//! at the same places; undo data that is sound stays where it is.

use acceptance::{prelude::*, undo::assert_mends};

/// Mends each damage in place or elsewhere in half of the ways, of which others have the other half.
fn mends(undo: UndoPolicy, half: usize) {
    let (mut resumed, mut spilled) = (0, 0);
    for (number, &damage) in UndoDamage::ALL.iter().enumerate() {
        let seed = number as u64;
        let chain = Chain::generate(&ChainSpec { signed: false, ..ChainSpec::new(40 + seed, 250_000) });
        let (expected, shuffle) = (Expected::of(&chain), if number % 2 == 0 { 16 } else { 1 });
        let template =
            Template::laid_out(&chain, &Layout { file_size: 32 << 10, shuffle, ..Layout::new(seed) });
        let mut first = BTreeMap::new();
        // Where records are found damaged when they are read, what is made before an interrupt is placed
        // otherwise than at once.
        let is_known_early = [UndoDamage::None, UndoDamage::HalfGone].contains(&damage);
        let (skip, step) = if is_known_early { (0, 1) } else { ((number + half) % 2, 2) };
        let ways = WAYS.into_iter().filter(Way::makes_undo).skip(skip).step_by(step);
        for (turn, way) in ways.enumerate() {
            let case = template.case();
            damage.apply(case.root(), Network::Regtest);
            let output = (turn % 3 == 2).then(scratch);
            let source = Source::new(with_undo(&case.options(), undo), chain.tip().height);
            let options = changed(way.options(&source), |it| {
                it.output = output.as_ref().map(|dir| dir.path().to_owned());
            });
            let what = format!("{damage:?}, {undo:?}, elsewhere {}, {way:?}", output.is_some());
            let (report, files) = assert_mends(&options, |options| way.run(options), &expected, &what);
            assert_eq!(report.matching, way.matching(), "{what}");
            if way.means == Means::Join && report.resumed == 0 {
                assert_eq!(report.ages.counts(), chain.totals.ages.by_powers_of_two(), "{what}");
            }
            resumed += report.resumed;
            spilled += u32::from(report.spilled.runs > 20);
            if way.is_interrupted && !is_known_early {
                continue;
            }
            // A scan finds records that the index does not know, and places them.
            let same = (report.counts, report.txouts, report.total_amount, report.undo);
            let first = first.entry(way.scan).or_insert_with(|| (same.clone(), files.clone()));
            assert!(first.1 == files, "{what}: the block index or the rev files differ");
            assert_eq!(first.0, same, "{what}");
        }
    }
    let counts = format!("{resumed} blocks were not repeated, {spilled} joins were spilled");
    assert!(resumed > 100 && spilled > 10, "{counts}");
}

#[test]
fn every_way_makes_the_undo_data_that_is_missing_or_damaged() {
    mends(UndoPolicy::Auto, 0);
}

#[test]
fn every_way_makes_the_undo_data_that_is_missing_or_damaged_if_all_is_compared() {
    mends(UndoPolicy::Make, 1);
}

fn mends_core_datadir(name: &str, network: Network, cases: &[(UndoDamage, UndoPolicy, Way)]) {
    let Some(known) = known_tip(name) else { return };
    let tip: BlockHash = known["hash"].as_str().unwrap().parse().unwrap();
    // It is printed like a block hash.
    let hash = known["hash_serialized_3"].as_str().unwrap().parse::<BlockHash>().unwrap().0;
    for &(damage, undo, way) in cases {
        let Some(dir) = unpack_core_datadir(name) else { return };
        let expected = Expected::of_datadir(dir.path(), network, tip, hash);
        damage.apply(dir.path(), network);
        let options = with_undo(&ReindexOptions::new(dir.path(), network, ScriptChecks::LeftOut), undo);
        let options = way.options(&Source::new(options, expected.blocks.len() as u32));
        let what = format!("{name}: {damage:?}, {undo:?}, {way:?}");
        assert_mends(&options, |options| way.run(options), &expected, &what);
    }
}

#[test]
fn undo_data_of_cores_datadirs_is_mended() {
    let scan = WAYS.into_iter().find(|way| way.scan).unwrap();
    let cases = [
        (UndoDamage::AllGone, UndoPolicy::Auto, WAYS[1]),
        (UndoDamage::Truncated, UndoPolicy::Auto, scan),
        (UndoDamage::Flipped, UndoPolicy::Make, WAYS[1]),
        (UndoDamage::SizesInRecords, UndoPolicy::Auto, WAYS[1]),
    ];
    mends_core_datadir("testnet3", Network::Test, &cases);
    mends_core_datadir("regtest-siblings", Network::Regtest, &cases[3..]);
}
