//! Deltas and undo data that are false or damaged: each is refused, or found out when a range is checked
//! again.

use acceptance::prelude::*;
use acceptance::{
    lies::falsify_claim,
    ranges::{Ranges, cut},
};
use disk::{
    delta::{Delta, DeltaShard, shard_path},
    sorted_run::{SortedRunReader, SortedRunWriter},
};
use ranges::RangePlan;
use testkit::corrupt::{flip_bit, truncate};
use wire::{Coin, Entry, OutPoint, coin::chainstate_key_order};

/// What undo data says of a coin that the block itself creates is refuted by the block.
#[test]
fn a_false_claim_about_a_coin_of_the_same_block_is_damage_at_its_transaction() {
    let mut chain = chain().clone();
    let is_own = |height: u32, claim: &(u32, Vec<u8>)| claim.0 / 2 == height;
    let mut found = None;
    for (at, block) in
        chain.blocks.iter_mut().enumerate().filter(|(_, block)| !block.stale && block.height > 0)
    {
        let (height, before) = (block.height, block.undo.clone());
        let mut place = None;
        let pick = |txs: &[Vec<(u32, Vec<u8>)>]| {
            let in_tx = |claims: &Vec<_>| claims.iter().position(|claim| is_own(height, claim));
            place = txs.iter().enumerate().find_map(|(tx, claims)| Some((tx, in_tx(claims)?)));
            place.unwrap_or((0, 0))
        };
        if block.txs > 1 {
            falsify_claim(block, pick, |_, amount, _| *amount = 0);
        }
        if let Some((tx, _)) = place {
            found = Some((at, tx));
            break;
        }
        block.undo = before;
    }
    let (at, tx) = found.expect("a transaction spends a coin of its own block");
    let dir = acceptance::scratch();
    chain.write_datadir(dir.path(), &layout()).unwrap();
    let error = Ranges::plan(options(dir.path()).chain, 3, None).unwrap().run().map(|_| ()).unwrap_err();
    assert_eq!(
        (error.kind, error.height.unwrap().0),
        (ErrorKind::Damaged, chain.blocks[at].height),
        "{error}"
    );
    let mut arena = wire::BlockArena::default();
    let block = arena.parse(&chain.blocks[at].bytes).unwrap();
    let digest::sha256::Message(parts) = block.tx(tx + 1).unwrap().txid_message();
    assert_eq!(error.txid, Some(wire::Txid(digest::sha256::sha256d(&parts.concat()))), "{error}");
}

/// Whether it is a spend, outpoint, code and output of an entry.
type Row = (bool, OutPoint, u32, Vec<u8>);

/// Rewrites a shard of a delta and its list, as a lying machine would.
fn lie(dir: &Path, number: u32, change: impl Fn(Entry<'_>) -> Option<Row>) {
    let disk = FaultDisk::healthy();
    let path = shard_path(dir, number);
    let mut rows = Vec::new();
    let run = SortedRunReader::open(&disk, &path, Network::Regtest).unwrap();
    let mut cursor = run.cursor(0..256, 1 << 16);
    while let Some(entry) = cursor.advance().unwrap() {
        rows.extend(change(entry));
    }
    rows.sort_by(|a, b| chainstate_key_order(&a.1, &b.1));
    fs::remove_file(&path).unwrap();
    let mut writer = SortedRunWriter::create(&disk, &path, Network::Regtest, 1 << 16).unwrap();
    for (is_spend, outpoint, code, out) in &rows {
        let coin = Coin { code: *code, out };
        writer.add(&Entry { is_spend: *is_spend, outpoint: *outpoint, coin }).unwrap();
    }
    let meta = writer.finish().unwrap();
    let mut delta = Delta::read(&disk, dir).unwrap();
    let shard = DeltaShard::of_file(&disk, dir, number, meta.entries, meta.spends).unwrap();
    *delta.shards.iter_mut().find(|shard| shard.number == number).unwrap() = shard;
    let content = delta.content();
    delta.ranges[0].content = content;
    delta.write(&disk, dir).unwrap();
}

fn keep(entry: Entry<'_>) -> Option<Row> {
    Some((entry.is_spend, entry.outpoint, entry.coin.code, entry.coin.out.to_vec()))
}

/// A coin of range 1 that range 2 or a later one spends, and one that is never spent.
fn coins_of_range(cut: &Ranges, merged: &Path) -> (OutPoint, OutPoint) {
    let outpoints = |dir: &Path, spends: bool| {
        let run =
            SortedRunReader::open(&FaultDisk::healthy(), &shard_path(dir, 0), Network::Regtest).unwrap();
        let (mut cursor, mut found) = (run.cursor(0..256, 1 << 16), Vec::new());
        while let Some(entry) = cursor.advance().unwrap() {
            found.extend((entry.is_spend == spends).then_some(entry.outpoint));
        }
        found
    };
    let (made, left) = (outpoints(&cut.path("r1"), false), outpoints(merged, false));
    let spent = made.iter().find(|outpoint| !left.contains(outpoint)).unwrap();
    (*spent, *made.iter().find(|outpoint| left.contains(outpoint)).unwrap())
}

#[test]
fn a_machine_that_lies_is_found_out() {
    let (_case, honest) = cut(4, Some(1));
    let deltas = honest.check_all().unwrap();
    let merged = honest.merge_all(&deltas).unwrap();
    let (spent, unspent) = coins_of_range(&honest, &merged);
    let r1 = honest.path("r1");
    let restore = || {
        fs::remove_dir_all(&r1).unwrap();
        honest.check(1).unwrap();
    };
    type Lie<'a> = (&'a str, Box<dyn Fn(Entry<'_>) -> Option<Row>>);
    let is = move |entry: &Entry<'_>, outpoint| entry.outpoint == outpoint && !entry.is_spend;
    // Lies about coins that other ranges spend, or about spends of other ranges' coins.
    let refuted: Vec<Lie<'_>> = vec![
        (
            "a coin that is spent elsewhere is left out",
            Box::new(move |entry| keep(entry).filter(|_| !is(&entry, spent))),
        ),
        (
            "another amount",
            Box::new(move |entry| {
                let mut row = keep(entry)?;
                if is(&entry, spent) {
                    row.3[0] ^= 1;
                }
                Some(row)
            }),
        ),
        (
            "another height",
            Box::new(move |entry| {
                let mut row = keep(entry)?;
                row.2 += if is(&entry, spent) { 2 } else { 0 };
                Some(row)
            }),
        ),
        (
            "a spend of a coin that is not there",
            Box::new(move |entry| {
                let mut row = keep(entry)?;
                if is(&entry, unspent) {
                    row.0 = true;
                }
                Some(row)
            }),
        ),
    ];
    for (what, change) in refuted {
        lie(&r1, 0, change);
        let error = honest.merge(&deltas, (None, false), "lie").unwrap_err();
        assert_eq!(error.kind, ErrorKind::Damaged, "{what}: {error}");
        assert_mentions(&error, &["coin ", "/r1"]);
        assert_offers(&error, &[Remedy::CheckRangeAgain]);
        assert!(
            !honest.path("lie").exists() && acceptance::leftovers(honest.dir.path()).is_empty(),
            "{what}"
        );
        restore();
    }
    // Lies that no other range can refute: only checking the range again does.
    let unrefuted: Vec<Lie<'_>> = vec![
        (
            "a coin that nobody spends is left out",
            Box::new(move |entry| keep(entry).filter(|_| !is(&entry, unspent))),
        ),
        (
            "a coin that no block creates",
            Box::new(move |entry| {
                let mut row = keep(entry)?;
                if is(&entry, unspent) {
                    row.1.vout += 100_000;
                }
                Some(row)
            }),
        ),
        (
            "another amount of a coin that nobody spends",
            Box::new(move |entry| {
                let mut row = keep(entry)?;
                if is(&entry, unspent) {
                    row.3[0] ^= 1;
                }
                Some(row)
            }),
        ),
    ];
    for (what, change) in unrefuted {
        lie(&r1, 0, change);
        let merged = honest.merge(&deltas, (None, false), "lie").unwrap();
        let output = acceptance::scratch();
        let error = honest.finish(std::slice::from_ref(&merged), Some(100.0), output.path()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Damaged, "{what}: {error}");
        assert_mentions(&error, &["range 1", "machine-1"]);
        assert_eq!(tree(output.path()).len(), 0, "{what}");
        fs::remove_dir_all(&merged).unwrap();
        restore();
    }
    // A false delta that repeats what was said of the true one.
    let content = Delta::read(&FaultDisk::healthy(), &r1).unwrap().ranges[0].content;
    lie(&r1, 0, |entry| keep(entry).filter(|_| entry.outpoint != unspent));
    let mut delta = Delta::read(&FaultDisk::healthy(), &r1).unwrap();
    delta.ranges[0].content = content;
    delta.write(&FaultDisk::healthy(), &r1).unwrap();
    let error = honest.merge(&deltas, (None, false), "lie").unwrap_err();
    assert_eq!((error.kind, error.file.as_deref()), (ErrorKind::Damaged, Some(&*r1)), "{error}");
    restore();
    // Honest deltas pass the same check.
    let output = acceptance::scratch();
    let report = honest.finish(&[merged], Some(50.0), output.path()).unwrap();
    assert_eq!(report.ranges.iter().filter(|range| range.is_rechecked).count(), 2);
    assert_eq!(report.hash_serialized_3, chain().model.stats().hash_serialized_3);
    assert_eq!(acceptance::leftovers(honest.dir.path()), [] as [PathBuf; 0]);
}

#[test]
fn shards_that_were_merged_from_different_deltas_are_refused() {
    let (_case, cut) = cut(2, Some(2));
    let deltas = cut.check_all().unwrap();
    let s0 = cut.merge(&deltas, (Some(0), false), "s0").unwrap();
    // Another delta of range 1, with other coins in shard 1.
    lie(&cut.path("r1"), 1, |entry| {
        let mut row = keep(entry)?;
        row.3[0] ^= u8::from(!entry.is_spend && entry.coin.height().0 == chain().tip().height);
        Some(row)
    });
    let s1 = cut.merge(&deltas, (Some(1), false), "s1").unwrap();
    let output = acceptance::scratch();
    let error = cut.finish(&[s0, s1], None, output.path()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Damaged, "{error}");
    assert_mentions(&error, &["range 1", "s0", "s1"]);
}

#[test]
fn damaged_files_are_refused_by_name() {
    let (case, cut) = cut(2, Some(2));
    let deltas = cut.check_all().unwrap();
    type Damage = dyn Fn(&Path);
    let damages: [(&str, &Damage); 4] = [
        ("a bit", &|path| flip_bit(path, fs::metadata(path).unwrap().len() / 2, 3).unwrap()),
        ("the last byte", &|path| truncate(path, fs::metadata(path).unwrap().len() - 1).unwrap()),
        ("all", &|path| truncate(path, 0).unwrap()),
        ("the file", &|path| fs::remove_file(path).unwrap()),
    ];
    for name in ["delta", "shard-001.run"] {
        for (what, damage) in damages {
            let path = cut.path("r1").join(name);
            let whole = fs::read(&path).unwrap();
            damage(&path);
            let error = cut.merge_all(&deltas).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Damaged, "{name}, {what}: {error}");
            assert_eq!(error.file.as_deref(), Some(&*path), "{name}, {what}: {error}");
            fs::write(&path, whole).unwrap();
        }
    }
    for (what, damage) in damages {
        let path = cut.path("plan.blocks");
        let whole = fs::read(&path).unwrap();
        damage(&path);
        let error = RangePlan::read(&FaultDisk::healthy(), &path).map(|plan| plan.tip()).unwrap_err();
        assert_eq!(
            (error.kind, error.file.as_deref()),
            (ErrorKind::Damaged, Some(&*path)),
            "{what}: {error}"
        );
        fs::write(&path, whole).unwrap();
    }
    // A block of the range.
    let hit = acceptance::entry(&case, acceptance::BUSY);
    flip_bit(&acceptance::blk(&case, &hit), hit.data_pos.unwrap().0 + 100, 1).unwrap();
    let range = (0..2).find(|range| cut.plan.heights(*range).unwrap().contains(&acceptance::BUSY)).unwrap();
    let error = cut.check_as(&cut.check_options(range), "again").unwrap_err();
    acceptance::assert_names(&error, &acceptance::blk(&case, &hit), acceptance::BUSY);
    cut.check_as(&cut.check_options(1 - range), "other").unwrap();
}
