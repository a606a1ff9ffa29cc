//! Every way gives the coins of the naive model: of chains of many shapes, and at every height.

use acceptance::{prelude::*, ways::Found};

fn assert_is(found: &Found, model: &ModelStats, what: &str) {
    assert_eq!(found.stats.hash_serialized_3, model.hash_serialized_3, "{what}");
    let (txouts, amount) = (found.stats.txouts, found.stats.total_amount.0 as u64);
    assert_eq!((txouts, amount), (model.txouts, model.total_amount), "{what}");
}

/// Takes every way from the blocks of a chain: the coins and the counts are the chain's, and the ways that
/// write sorted coins write the same files. Returns the number of blocks that resumed runs did not repeat.
fn take_every_way(chain: &Chain, source: &Source, what: &str) -> u32 {
    let (model, totals) = (chain.model.stats(), &chain.totals);
    let (mut files, mut counts, mut resumed) = (None, None, 0);
    source.take(source.ways(), |way, done| {
        let what = format!("{what}: {way:?}");
        let found = done.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_is(&found, &model, &what);
        assert_eq!(found.stats.best_block, totals.hash, "{what}");
        let it = &found.counts;
        let count = (it.blocks, it.transactions, it.inputs, it.outputs, it.block_bytes);
        let total = (totals.blocks, totals.txs, totals.inputs, totals.outputs, totals.bytes);
        assert_eq!(count, total, "{what}");
        assert_eq!(*counts.get_or_insert(found.counts), found.counts, "{what}");
        if way.means != Means::Cache {
            let files = files.get_or_insert_with(|| found.files.clone());
            assert!(*files == found.files, "{what}: the chainstate's files differ");
        }
        let Some(report) = found.report else { return };
        assert_eq!(report.matching, way.matching(), "{what}");
        resumed += report.resumed;
        if way.means == Means::Join && report.resumed == 0 {
            assert_eq!(report.ages.counts(), totals.ages.by_powers_of_two(), "{what}");
        }
        if let Means::Hints { aggregate, with_undo } = way.means {
            let hints = report.hints.unwrap();
            let said = (hints.height, hints.with_undo, hints.aggregate);
            assert_eq!(said, (Height(source.height), with_undo, aggregate), "{what}");
        }
    });
    resumed
}

/// The same key for all ways, and tables of this size.
fn with_tables_of(mut source: Source, range_bytes: u64) -> Source {
    source.options.chain.hooks.obfuscation_key = Some([9; 8]);
    source.options.chain.hooks.range_bytes = range_bytes;
    source
}

#[test]
fn every_way_gives_the_models_coins() {
    for (seed, signed) in [(11, true), (12, false), (13, false)] {
        let chain = Chain::generate(&ChainSpec { signed, ..ChainSpec::new(seed, 700_000) });
        for (xor, file_size, shuffle) in [(true, 128 << 10, 16), (false, 128 << 20, 1)] {
            let (dir, plain) = (scratch(), Layout::new(seed));
            let xor_key = plain.xor_key.filter(|_| xor);
            let source = Source::of(dir.path(), &chain, &Layout { xor_key, file_size, shuffle, ..plain });
            let source = with_tables_of(source, if xor { 20_000 } else { 28 << 20 });
            let resumed = take_every_way(&chain, &source, &format!("seed {seed}, xor {xor}"));
            assert!(resumed > 100, "{resumed} blocks were not repeated");
        }
    }
}

#[test]
fn many_small_tables_contain_the_same_coins_as_one() {
    let (case, model) = (Case::new(), chain().model.stats());
    let mut last = usize::MAX;
    for range_bytes in [1, 10_000, 28 << 20] {
        let source = with_tables_of(Source::new(case.options(), TIP), range_bytes);
        let (mut files, what) = (None, format!("tables of {range_bytes} bytes"));
        source.take([WAYS[1], WAYS[2]].into_iter(), |_, done| {
            let found = done.unwrap();
            assert_is(&found, &model, &what);
            let files = files.get_or_insert_with(|| found.files.clone());
            assert!(*files == found.files, "{what}: threads change files");
        });
        let is_table = |name: &&PathBuf| name.extension().is_some_and(|ending| ending == "ldb");
        let tables = files.unwrap().keys().filter(is_table).count();
        assert!(tables < last, "{what}: {tables}, {last} with smaller ones");
        last = tables;
    }
    assert_eq!(last, 2, "one table for the rows that are not coins, one for the coins");
}

fn small_chains(seeds: Range<u64>) {
    let mut rng = Rng::new(seeds.start, "chains");
    for seed in seeds {
        let blocks = 2 + rng.below(40) as u32;
        let spec = ChainSpec { blocks: Some(blocks), signed: false, ..ChainSpec::new(seed, 20_000) };
        let (chain, dir) = (Chain::generate(&spec), scratch());
        let source = with_tables_of(Source::of(dir.path(), &chain, &layout()), 28 << 20);
        take_every_way(&chain, &source, &format!("seed {seed}, {blocks} blocks"));
    }
}

#[test]
fn every_way_gives_the_coins_of_small_chains() {
    small_chains(0..8);
}

mod long {
    #[test]
    fn every_way_gives_the_coins_of_many_small_chains() {
        super::small_chains(8..50);
    }
}

/// Hints end at the same height, or below; above them, the join goes on.
#[test]
fn every_height_has_the_models_coins() {
    let (chain, dir, models) = (chain(), scratch(), stats_by_height(chain()));
    let mut source = Source::of(dir.path(), chain, &layout());
    let (truth, tip) = (Truth::of(chain), chain.tip().height);
    // Early blocks contain only a coinbase.
    let heights = (0..=tip).filter(|height| *height <= 5 || *height >= 95 || height % 10 == 0);
    for (number, height) in heights.enumerate() {
        let format = HintFormat::ALL[number % HintFormat::ALL.len()];
        if height > 0 {
            source.hint(&truth, format, height, Some(truth.hash(height.max(tip / 2))));
        } else {
            source.hints = None;
        }
        let expect = |source: &Source, ways: &mut dyn Iterator<Item = Way>| {
            let model = &models[source.height as usize];
            source.take(ways, |way, done| {
                let what = format!("height {}, {format} of {height}: {way:?}", source.height);
                let found = done.unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_is(&found, model, &what);
                assert_eq!(found.stats.best_block, truth.hash(source.height), "{what}");
                assert_eq!(found.counts.blocks, u64::from(source.height) + 1, "{what}");
            });
        };
        source.stop_at(height);
        expect(&source, &mut source.ways().skip(number % 8).step_by(8));
        if height > 0 && number % 5 < 2 {
            source.stop_at(tip);
            let hinted = Way::hinted(true).chain(Way::hinted(false));
            expect(&source, &mut hinted.skip(number % 4).step_by(4));
        }
    }
}
