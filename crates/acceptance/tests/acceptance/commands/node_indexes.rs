//! No command makes an index of the node silently wrong: runs every cell of the table of indexes in
//! `docs/safety.md`, and compares the table with the results. `UPDATE_DOCS=1` rewrites it.
//!
//! The indexes have rows in the forms of Core's releases, one for each block. That bitcoind's own indexes
//! stay right too is tested beside one (`cli/tests/cli/node/indexes.rs`).

use acceptance::prelude::*;
use disk::node_indexes::{INDEXES_DIR, NodeIndex};
use leveldb::{Database, write_database};
use std::slice;

/// A row of the table: an index, and its best block.
struct Row {
    what: &'static str,
    name: &'static str,
    database: &'static str,
    /// The key and the value of the row for a block.
    row: fn(&IndexEntry) -> (Vec<u8>, Vec<u8>),
    best_key: &'static [u8],
    best: u32,
}

const OLD_TXINDEX: Row = Row {
    what: "`txindex` of releases up to 31",
    name: "txindex",
    database: "",
    row: |entry| ([&b"t"[..], &entry.hash.0].concat(), place(entry)),
    best_key: b"B",
    best: TIP,
};

const TXOSPENDERINDEX: Row = Row {
    what: "`txospenderindex`",
    name: "txospenderindex",
    database: "db",
    row: |entry| ([&b"s"[..], &entry.hash.0[..8], &place(entry)].concat(), Vec::new()),
    ..OLD_TXINDEX
};

const ROWS: [Row; 8] = [
    OLD_TXINDEX,
    Row { what: "the same, up to a block below the damage", best: 100, ..OLD_TXINDEX },
    Row { what: "the same, of a branch that the block index does not have", best: u32::MAX, ..OLD_TXINDEX },
    Row {
        what: "`txindex` of release 32",
        row: |entry| ([&b"h"[..], &entry.hash.0].concat(), entry.height.0.to_le_bytes().to_vec()),
        best_key: b"\x0dbest_block_v2",
        ..OLD_TXINDEX
    },
    TXOSPENDERINDEX,
    Row { what: "the same, up to a block below the damage", best: 100, ..TXOSPENDERINDEX },
    Row {
        what: "`blockfilterindex`",
        name: "blockfilter",
        database: "basic/db",
        row: |entry| ([&b"s"[..], &entry.hash.0].concat(), entry.hash.0.to_vec()),
        ..OLD_TXINDEX
    },
    Row {
        what: "`coinstatsindex`",
        name: "coinstatsindex",
        database: "db",
        row: |entry| ([&b"s"[..], &entry.hash.0].concat(), entry.hash.0.to_vec()),
        ..OLD_TXINDEX
    },
];

/// A block's place in the block files, as `CDiskTxPos` has it.
fn place(entry: &IndexEntry) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_var_int(&mut bytes, entry.file.unwrap().0.into());
    write_var_int(&mut bytes, entry.data_pos.unwrap().0);
    write_var_int(&mut bytes, 1);
    bytes
}

impl Row {
    fn dir(&self, root: &Path) -> PathBuf {
        root.join("regtest").join(INDEXES_DIR).join(self.name)
    }

    /// Writes the index, up to its best block.
    fn write(&self, case: &Case) {
        self.write_to(case, chain().main().nth(self.best as usize).map_or([9; 32], |block| block.hash.0));
    }

    /// Writes the index with this best block.
    fn write_to(&self, case: &Case, best: [u8; 32]) {
        let dir = self.dir(case.root()).join(self.database);
        fs::create_dir_all(&dir).unwrap();
        let entries = case.index().entries;
        let covered = entries.iter().filter(|entry| entry.data_pos.is_some() && entry.height.0 <= self.best);
        let mut rows: BTreeMap<Vec<u8>, Vec<u8>> = covered.map(self.row).collect();
        rows.insert(self.best_key.to_vec(), [&70016_i32.to_le_bytes()[..], &[1], &best].concat());
        write_database(&RealDisk, &dir, &rows).unwrap();
    }

    /// Asserts that each row of a block of the block index that has this block's place has its bytes there.
    fn assert_true(&self, case: &Case, what: &str) {
        let database = Database::open(&RealDisk, &self.dir(case.root()).join(self.database)).unwrap();
        let covered = |entry: &&IndexEntry| entry.data_pos.is_some() && entry.height.0 <= self.best;
        for entry in case.index().entries.iter().filter(covered) {
            let (key, value) = (self.row)(entry);
            assert_eq!(database.get(&key).unwrap(), Some(value), "{what}: height {}", entry.height);
        }
    }
}

/// A column of the table: commands, and what they mend.
struct Column {
    what: &'static str,
    commands: &'static [&'static str],
    damage: fn(&Case),
}

const fn column(what: &'static str, commands: &'static [&'static str]) -> Column {
    Column { what, commands, damage: |_| {} }
}

const REPAIR: Column = Column { damage: flip_block, ..column("`repair` of a block", &["repair"]) };

const COLUMNS: [Column; 11] = [
    column("reindex", &["reindex"]),
    column("reindex --scan", &["reindex --scan"]),
    column("reindex --to --accept-lower-tip", &["reindex --to 100 --accept-lower-tip"]),
    Column { damage: flip_block, ..column("reindex --until-damage", &["reindex --until-damage"]) },
    Column { damage: flip_block, ..column("reindex --block", &["reindex --block"]) },
    Column {
        damage: |case| fs::remove_file(rev(case, &entry(case, BUSY))).unwrap(),
        ..column("undo make", &["undo make"])
    },
    column("update", &["update"]),
    column("`repair` of nothing, `sync` of new blocks", &["repair", "sync"]),
    REPAIR,
    Column {
        damage: |case| fs::remove_file(blk(case, &entry(case, BUSY))).unwrap(),
        ..column("`repair` of a file", &["repair"])
    },
    Column {
        damage: |case| {
            fs::remove_dir_all(case.blocks("")).unwrap();
            fs::remove_dir_all(case.net("chainstate")).unwrap();
        },
        ..column("`sync` where blocks are gone", &["sync"])
    },
];

fn flip_block(case: &Case) {
    case.flip_block(BUSY, 100);
}

impl Column {
    /// Runs the commands. Returns where indexes were set aside.
    fn run(&self, case: &Case, may_set_aside: bool) -> Result<Vec<PathBuf>, Error> {
        let mut shell = Shell::of(case);
        shell.set_aside = if may_set_aside { SetAsideIndexes::Any } else { SetAsideIndexes::None };
        shell.given = vec![BUSY];
        let mut kept = Vec::new();
        for command in self.commands {
            kept.extend(shell.run(command)?.kept);
        }
        Ok(kept)
    }
}

/// A datadir at its tip with an index, in the state that a command mends.
fn case_of(row: &Row, column: &Column) -> Case {
    let case = Case::at_tip();
    row.write(&case);
    (column.damage)(&case);
    case
}

fn cell(row: &Row, column: &Column) -> &'static str {
    let (case, what) = (case_of(row, column), format!("{} and {}", row.what, column.what));
    let before = tree(case.root());
    let index = tree(&row.dir(case.root()));
    let error = match column.run(&case, false) {
        Ok(kept) => {
            assert_eq!(kept, Vec::<PathBuf>::new(), "{what}");
            assert_same_tree(&index, &row.dir(case.root()), &what);
            row.assert_true(&case, &what);
            // The option changes nothing where nothing is wrong.
            let other = case_of(row, column);
            assert_eq!(column.run(&other, true).unwrap(), Vec::<PathBuf>::new(), "{what}");
            return "right";
        }
        Err(error) => error,
    };
    assert_eq!(error.kind, ErrorKind::Usage, "{what}: {error}");
    assert_mentions(&error, &[&format!("{}: its ", row.name), "nothing was changed"]);
    assert_offers(&error, &[Remedy::SetIndexesAside]);
    assert_same_tree(&before, case.root(), &what);
    let kept = column.run(&case, true).unwrap_or_else(|error| panic!("{what}: {error}"));
    if column.what.contains("of nothing") {
        // No block has come.
        assert_eq!(kept, Vec::<PathBuf>::new(), "{what}");
        assert_same_tree(&index, &row.dir(case.root()), &what);
        return "**2**";
    }
    let aside = row.dir(case.root()).with_extension("old");
    assert_eq!(kept, slice::from_ref(&aside), "{what}");
    assert_eq!(fs::read_dir(row.dir(case.root())).unwrap().count(), 0, "{what}");
    assert_eq!(tree(&aside).len(), index.len(), "{what}");
    assert_eq!(NodeIndex::find(&RealDisk, &case.root().join("regtest")).unwrap().len(), 1, "{what}");
    "**2**"
}

#[test]
fn each_command_does_to_indexes_what_the_table_says() {
    let (rows, columns) = (ROWS.map(|row| row.what), COLUMNS.map(|column| column.what));
    let page = "docs/safety.md";
    assert_table(page, "table of indexes", "in `indexes/`", &rows, &columns, |row, column| {
        cell(&ROWS[row], &COLUMNS[column]).to_owned()
    });
}

/// A block index made by a scan has no header of a block that is not stored. bitcoind would not start with
/// an index that ends there.
#[test]
fn a_rebuild_is_refused_if_the_block_index_lacks_the_best_block_of_an_index() {
    for row in ROWS.iter().filter(|row| row.best == TIP) {
        let case = Case::new();
        let stale = Row { best: u32::MAX, ..*row };
        stale.write(&case);
        acceptance::refused(&case.scan(), ErrorKind::Usage, &[row.name, "is not in the block index"]);
        // Nor does it start if the old block index lacks the block already.
        assert_says(run(&case.options()), &[row.name, "is not in the block index"]);
        let options = ReindexOptions { set_aside_indexes: SetAsideIndexes::Any, ..case.scan() };
        assert!(run(&options).unwrap().notes.iter().any(|it| matches!(it, Warning::IndexSetAside { .. })));
    }
}

/// The disk of an index was found only after the rebuild, when other indexes had been set aside.
#[test]
fn an_index_on_a_disk_of_its_own_is_refused_before_the_work() {
    let case = Case::new();
    Row { best: u32::MAX, ..OLD_TXINDEX }.write(&case);
    let disk = FaultDisk::healthy().with_mount(&OLD_TXINDEX.dir(case.root()));
    let options = ReindexOptions { set_aside_indexes: SetAsideIndexes::Any, ..case.scan() };
    let words = ["txindex", "a file system is mounted here"];
    refused_by(case.root(), ErrorKind::Environment, &words, || run_on(&disk, &options));
}

/// A scan finds the blocks again, but rows of the index have the places that they had before.
#[test]
fn block_files_that_were_exchanged_make_an_index_wrong() {
    for row in ROWS.iter().filter(|row| row.best == TIP) {
        let case = Case::new();
        row.write(&case);
        let [one, other] = [0, 1].map(|number| case.blocks(&format!("blk{number:05}.dat")));
        fs::rename(&one, case.blocks("kept")).unwrap();
        fs::rename(&other, &one).unwrap();
        fs::rename(case.blocks("kept"), &other).unwrap();
        let has_places = (row.row)(&case.index().entries[1])
            != (row.row)(&IndexEntry { data_pos: Some(ByteOffset(7)), ..case.index().entries[1] });
        let done = run(&case.scan());
        assert_eq!(done.is_err(), has_places, "{}: {done:?}", row.what);
        if let Err(error) = done {
            assert_mentions(&error, &[row.name, "get other places in the block index"]);
            let options = ReindexOptions { set_aside_indexes: SetAsideIndexes::Any, ..case.scan() };
            assert_eq!(run(&options).unwrap().height, Height(TIP));
        }
    }
}

/// A scan finds a stale block by its header alone, but bitcoind reads all of it when it rewinds the index.
#[test]
fn an_index_whose_best_block_is_stale_needs_that_block_whole() {
    let stale = chain().blocks.iter().find(|block| chain().main().all(|it| it.hash != block.hash)).unwrap();
    for is_damaged in [false, true] {
        let case = Case::new();
        TXOSPENDERINDEX.write_to(&case, stale.hash.0);
        let entry = *case.index().entries.iter().find(|entry| entry.hash == stale.hash).unwrap();
        if is_damaged {
            flip_bit(&blk(&case, &entry), entry.data_pos.unwrap().0 + 100, 3).unwrap();
        }
        let done = run(&case.scan());
        assert_eq!(done.is_err(), is_damaged, "{done:?}");
        if let Err(error) = done {
            assert_mentions(&error, &["bitcoind would stop when it rewinds the index"]);
            assert_offers(&error, &[Remedy::SetIndexesAside]);
        }
    }
}

#[test]
fn an_index_that_does_not_open_counts_as_wrong_where_blocks_move() {
    let case = case_of(&OLD_TXINDEX, &REPAIR);
    let current = OLD_TXINDEX.dir(case.root()).join("CURRENT");
    fs::write(&current, "nothing").unwrap();
    assert_says(REPAIR.run(&case, false), &["txindex: it does not open"]);
    assert_eq!(REPAIR.run(&case, true).unwrap().len(), 1);
}
