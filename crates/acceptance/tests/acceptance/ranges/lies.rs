//! Deltas that are false or damaged: each is refused, or found out when a range is checked again.

use acceptance::{prelude::*, ranges::cut};
use disk::{
    delta::{Delta, DeltaShard, shard_path},
    sorted_run::{SortedRunReader, SortedRunWriter},
};
use ranges::RangePlan;
use wire::Entry;

/// An entry of a delta.
struct Row {
    is_spend: bool,
    outpoint: OutPoint,
    code: u32,
    out: Vec<u8>,
}

fn rows(dir: &Path, shard: u32) -> Vec<Row> {
    let path = shard_path(dir, shard);
    let run = SortedRunReader::open(&FaultDisk::healthy(), &path, Network::Regtest).unwrap();
    let (mut cursor, mut rows) = (run.cursor(0..256, 1 << 16), Vec::new());
    while let Some(Entry { is_spend, outpoint, coin }) = cursor.advance().unwrap() {
        rows.push(Row { is_spend, outpoint, code: coin.code, out: coin.out.to_vec() });
    }
    rows
}

/// What a lie does to an entry; without a change, it is left out.
type Change = Option<fn(&mut Row)>;

/// Rewrites a shard of a delta and its list, as a machine would that lies about a coin which it has created
/// or spent.
fn lie(dir: &Path, number: u32, coin: OutPoint, change: Change) {
    lie_about(dir, number, |row| row.outpoint == coin, change);
}

/// The same about all entries that are `meant`.
fn lie_about(dir: &Path, number: u32, meant: impl Fn(&Row) -> bool, change: Change) {
    let (disk, path, mut rows) = (FaultDisk::healthy(), shard_path(dir, number), rows(dir, number));
    match change {
        Some(change) => rows.iter_mut().filter(|row| meant(row)).for_each(change),
        None => rows.retain(|row| !meant(row)),
    }
    rows.sort_by(|a, b| chainstate_key_order(&a.outpoint, &b.outpoint));
    fs::remove_file(&path).unwrap();
    let mut writer = SortedRunWriter::create(&disk, &path, Network::Regtest, 1 << 16).unwrap();
    for Row { is_spend, outpoint, code, out } in &rows {
        let (is_spend, outpoint, coin) = (*is_spend, *outpoint, Coin { code: *code, out });
        writer.add(&Entry { is_spend, outpoint, coin }).unwrap();
    }
    let meta = writer.finish().unwrap();
    let mut delta = Delta::read(&disk, dir).unwrap();
    let shard = DeltaShard::of_file(&disk, dir, number, meta.entries, meta.spends).unwrap();
    *delta.shards.iter_mut().find(|shard| shard.number == number).unwrap() = shard;
    let content = delta.content();
    delta.ranges[0].content = content;
    delta.write(&disk, dir).unwrap();
}

const LEAVE_OUT: Change = None;
const CHANGE_AMOUNT: Change = Some(|row| row.out[0] ^= 1);

/// The coin of a lie.
enum About {
    /// The range creates it, and another one spends it.
    Spent,
    /// The range creates it, and nobody spends it.
    Unspent,
    /// The range spends it, and another one creates it.
    Spend,
}

struct Lie {
    what: &'static str,
    change: Change,
    about: About,
    /// Whether what other ranges say refutes it. If not, only checking the range again does.
    is_refuted: bool,
}

/// What other ranges say refutes it.
const REFUTED: Lie =
    Lie { what: "a coin is left out", change: LEAVE_OUT, about: About::Spent, is_refuted: true };
/// Only checking the range again finds it.
const HIDDEN: Lie = Lie { about: About::Unspent, is_refuted: false, ..REFUTED };

const LIES: [Lie; 8] = [
    REFUTED,
    Lie { what: "another amount", change: CHANGE_AMOUNT, ..REFUTED },
    Lie { what: "another height", change: Some(|row| row.code += 2), ..REFUTED },
    Lie {
        what: "a spend of a coin that is not there",
        change: Some(|row| row.is_spend = true),
        about: About::Unspent,
        ..REFUTED
    },
    Lie { what: "a coin that nobody spends is left out", ..HIDDEN },
    Lie { what: "a spend is left out", about: About::Spend, ..HIDDEN },
    Lie { what: "a coin that no block creates", change: Some(|row| row.outpoint.vout += 100_000), ..HIDDEN },
    Lie { what: "another amount of a coin that nobody spends", change: CHANGE_AMOUNT, ..HIDDEN },
];

#[test]
fn a_machine_that_lies_is_found_out() {
    let (_case, honest) = cut(4, Some(1));
    let deltas = honest.check_all().unwrap();
    let merged = honest.merge_all(&deltas).unwrap();
    let (r1, left) = (honest.path("r1"), rows(&merged, 0));
    let is_left = |row: &Row| left.iter().any(|left| left.outpoint == row.outpoint);
    let first = |is_meant: &dyn Fn(&Row) -> bool| rows(&r1, 0).into_iter().find(is_meant).unwrap().outpoint;
    let (spent, unspent) =
        (first(&|row| !row.is_spend && !is_left(row)), first(&|row| !row.is_spend && is_left(row)));
    let spend = first(&|row| row.is_spend);
    let restore = || {
        fs::remove_dir_all(&r1).unwrap();
        honest.check(1).unwrap();
    };
    for Lie { what, change, about, is_refuted } in LIES {
        let coin = match about {
            About::Spent => spent,
            About::Unspent => unspent,
            About::Spend => spend,
        };
        lie(&r1, 0, coin, change);
        let merged = honest.merge(&deltas, (None, false), "lie");
        if is_refuted {
            let error = merged.unwrap_err();
            assert_eq!(error.kind, ErrorKind::Damaged, "{what}: {error}");
            assert_mentions(&error, &["coin ", "/r1"]);
            assert_offers(&error, &[Remedy::CheckRangeAgain]);
            assert!(!honest.path("lie").exists() && leftovers(honest.dir.path()).is_empty(), "{what}");
        } else {
            let (merged, output) = (merged.unwrap(), scratch());
            let error = honest.finish(std::slice::from_ref(&merged), Some(100.0), output.path()).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Damaged, "{what}: {error}");
            assert_mentions(&error, &["range 1", "machine-1"]);
            assert_eq!(tree(output.path()).len(), 0, "{what}");
            fs::remove_dir_all(&merged).unwrap();
        }
        restore();
    }
    // A false delta that repeats what was said of the true one.
    let content = Delta::read(&FaultDisk::healthy(), &r1).unwrap().ranges[0].content;
    lie(&r1, 0, unspent, LEAVE_OUT);
    let mut delta = Delta::read(&FaultDisk::healthy(), &r1).unwrap();
    delta.ranges[0].content = content;
    delta.write(&FaultDisk::healthy(), &r1).unwrap();
    let error = honest.merge(&deltas, (None, false), "lie").unwrap_err();
    assert_eq!((error.kind, error.file.as_deref()), (ErrorKind::Damaged, Some(&*r1)), "{error}");
    restore();
    // Spends without claims would match each coin.
    lie_about(&r1, 0, |row| row.is_spend, Some(|row| row.code = 0));
    let error = honest.merge(&deltas, (None, false), "lie").unwrap_err();
    assert_eq!((error.kind, error.file.as_deref()), (ErrorKind::Damaged, Some(&*r1)), "{error}");
    restore();
    // Honest deltas pass the same check.
    let output = scratch();
    let report = honest.finish(&[merged], Some(50.0), output.path()).unwrap();
    assert_eq!(report.ranges.iter().filter(|range| range.is_rechecked).count(), 2);
    assert_eq!(report.hash_serialized_3, chain().model.stats().hash_serialized_3);
    assert_eq!(leftovers(honest.dir.path()), [] as [PathBuf; 0]);
}

/// The error was that no range does not create the coin.
#[test]
fn a_spend_of_a_coin_of_no_range_is_worded() {
    let (_case, cut) = cut(2, Some(1));
    let deltas = cut.check_all().unwrap();
    let left = rows(&cut.merge_all(&deltas).unwrap(), 0);
    let is_left = |row: &Row| left.iter().any(|left| left.outpoint == row.outpoint);
    let coin = rows(&deltas[1], 0).into_iter().find(is_left).unwrap().outpoint;
    lie(&deltas[1], 0, coin, Some(|row| (row.is_spend, row.code) = (true, row.code + 2_000_000)));
    let words = ["/r1 spends it as one of block 1000", ", which no range has; "];
    assert_fails(cut.merge(&deltas, (None, false), "lie"), ErrorKind::Damaged, &words);
}

/// Regression: what it says of its ranges is true, and only that was compared when these were checked again.
#[test]
fn a_delta_of_two_ranges_that_lies_does_not_pass_a_second_check_of_both() {
    let (_case, cut) = cut(4, Some(1));
    let deltas = cut.check_all().unwrap();
    let left = rows(&cut.merge_all(&deltas).unwrap(), 0);
    let both = cut.merge(&deltas[1..3], (None, true), "both").unwrap();
    let is_left = |row: &Row| !row.is_spend && left.iter().any(|left| left.outpoint == row.outpoint);
    let coin = rows(&both, 0).into_iter().find(is_left).unwrap().outpoint;
    let said = Delta::read(&RealDisk, &both).unwrap().ranges;
    lie(&both, 0, coin, CHANGE_AMOUNT);
    let lying = Delta { ranges: said, ..Delta::read(&RealDisk, &both).unwrap() };
    lying.write(&RealDisk, &both).unwrap();
    let inputs = [deltas[0].clone(), both, deltas[3].clone()];
    let (merged, output) = (cut.merge(&inputs, (None, false), "lie").unwrap(), scratch());
    let done = cut.finish(&[merged], Some(100.0), output.path());
    assert_fails(done, ErrorKind::Usage, &["range 1 ", "/lie", "merge the deltas of single ranges"]);
    assert_eq!(tree(output.path()).len(), 0);
}

#[test]
fn shards_that_were_merged_from_different_deltas_are_refused() {
    let (_case, cut) = cut(2, Some(2));
    let deltas = cut.check_all().unwrap();
    let s0 = cut.merge(&deltas, (Some(0), false), "s0").unwrap();
    // Another delta of range 1, with another coin in shard 1.
    let is_of_tip = |row: &Row| !row.is_spend && row.code >> 1 == TIP;
    let coin = rows(&cut.path("r1"), 1).into_iter().find(is_of_tip).unwrap().outpoint;
    lie(&cut.path("r1"), 1, coin, CHANGE_AMOUNT);
    let s1 = cut.merge(&deltas, (Some(1), false), "s1").unwrap();
    let output = scratch();
    assert_fails(cut.finish(&[s0, s1], None, output.path()), ErrorKind::Damaged, &["range 1", "s0", "s1"]);
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
    let merge = || cut.merge_all(&deltas).map(drop).unwrap_err();
    let read = || RangePlan::read(&FaultDisk::healthy(), &cut.path("plan.blocks")).map(drop).unwrap_err();
    let uses: [(&str, &dyn Fn() -> Error); 3] =
        [("r1/delta", &merge), ("r1/shard-001.run", &merge), ("plan.blocks", &read)];
    for (name, refused) in uses {
        for (what, damage) in damages {
            let path = cut.path(name);
            let whole = fs::read(&path).unwrap();
            damage(&path);
            let error = refused();
            let found = (error.kind, error.file.as_deref());
            assert_eq!(found, (ErrorKind::Damaged, Some(&*path)), "{name}, {what}: {error}");
            fs::write(&path, whole).unwrap();
        }
    }
    // A block of the range.
    let hit = entry(&case, acceptance::BUSY);
    flip_bit(&blk(&case, &hit), hit.data_pos.unwrap().0 + 100, 1).unwrap();
    let range = (0..2).find(|range| cut.plan.heights(*range).unwrap().contains(&acceptance::BUSY)).unwrap();
    let error = cut.check_as(&cut.check_options(range), "again").unwrap_err();
    assert_eq!((error.kind, error.height), (ErrorKind::Damaged, Some(Height(acceptance::BUSY))), "{error}");
    assert_eq!(error.file.as_deref(), Some(&*blk(&case, &hit)));
    assert_eq!(error.remedies, [Remedy::RestorePlannedFiles], "the node of the plan has other files");
    cut.check_as(&cut.check_options(1 - range), "other").unwrap();
}
