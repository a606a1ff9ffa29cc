//! What a datadir of the tests can be like: the situations of `testkit`, and damage at a place that only the
//! tests' own chain has.

use crate::prelude::*;
use testkit::{
    corrupt::{Files, snapshot, write_files},
    situation::OLDER,
};

type Cause = fn(&Case);

/// Damage that is no situation of `testkit`.
const OWN: [(&str, Cause); 51] = [
    ("blk: the block at the busy height flipped", |case| case.flip_block(BUSY, 100)),
    ("blk: its header flipped", |case| case.flip_block(BUSY, 40)),
    ("blk: cut within a block", |case| cut_blk(case, 100)),
    ("blk: cut after the first byte of a block", |case| cut_blk(case, 1)),
    ("blk: cut before a block", |case| cut_blk(case, 0)),
    ("blk: cut within the frame of a block", |case| cut_blk(case, -4)),
    ("blk: empty", |case| truncate(&blk(case, &entry(case, BUSY)), 0).unwrap()),
    ("blk: the last block cut", |case| {
        let last = case.index().entries.into_iter().max_by_key(|entry| (entry.file, entry.data_pos));
        let last = last.unwrap();
        truncate(&blk(case, &last), last.data_pos.unwrap().0 + 85).unwrap();
    }),
    ("blocks: an empty folder", |case| {
        fs::remove_dir_all(case.blocks("")).unwrap();
        fs::create_dir(case.blocks("")).unwrap();
    }),
    ("rev: a record flipped", |case| case.flip_undo(BUSY)),
    ("rev: cut within a record", |case| cut_rev(case, 33)),
    ("rev: cut after the first byte of a record", |case| cut_rev(case, 1)),
    ("rev: cut before a record", |case| cut_rev(case, 0)),
    ("rev: cut within the frame of a record", |case| cut_rev(case, -4)),
    ("rev: empty", |case| truncate(&rev(case, &entry(case, BUSY)), 0).unwrap()),
    ("index: without a block", |case| {
        case.edit_entry(BUSY, |it| *it = IndexEntry::of_header(it.hash, it.header, it.height));
    }),
    ("index: without a block, and a chainstate that ends below it", |case| {
        case.flip_block(BUSY, 100);
        run(&ReindexOptions { until_damage: true, ..case.options() }).unwrap();
    }),
    ("index: a block beyond all files", |case| place_block(case, 1 << 30)),
    ("index: a block before the first", |case| place_block(case, 7)),
    ("index: undo data beyond all files", |case| place_undo(case, 1 << 30)),
    ("index: undo data before the first", |case| place_undo(case, 7)),
    ("index: a block at the place of another", |case| {
        let other = entry(case, BUSY + 1);
        case.edit_entry(BUSY, |entry| (entry.file, entry.data_pos) = (other.file, other.data_pos));
    }),
    ("index: a block in a file that was never there", |case| {
        case.edit_entry(BUSY, |entry| entry.file = Some(FileNo(99_999)));
    }),
    ("index: absent, and the first block file", |case| {
        fs::remove_dir_all(case.blocks("index")).unwrap();
        fs::remove_file(case.blocks("blk00000.dat")).unwrap();
    }),
    ("index: empty, and the files of the last block are missing", |case| {
        remove_last_files(case);
        case.edit_index(|index| *index = BlockIndex::default());
    }),
    ("index: a -reindex was interrupted, and the files of the last block are missing", |case| {
        remove_last_files(case);
        case.edit_index(|index| index.reindexing = true);
    }),
    ("index: too few bytes in use, and the header of a block that is not stored is marked invalid", |case| {
        let marked = sibling(block_at(50), 1, |_| {});
        case.edit_index(|index| {
            index.files.iter_mut().for_each(|info| info.size /= 2);
            let mut entry = IndexEntry::of_header(marked.hash, marked.header, Height(50));
            entry.status.0 |= BlockStatus::FAILED_VALID;
            index.entries.push(entry);
        });
    }),
    ("index: older, and the files of the last block are missing", |case| {
        remove_last_files(case);
        case.edit_index(|index| index.entries.retain(|entry| entry.height <= Height(OLDER)));
    }),
    ("index: the last block is marked invalid", |case| mark_last(case, BlockStatus::FAILED_VALID)),
    ("index: the last block is marked as a child of one", |case| {
        mark_last(case, BlockStatus::FAILED_CHILD);
    }),
    ("index: a log is a folder", |case| fs::create_dir(case.blocks("index/000006.log")).unwrap()),
    ("index: of an old backup", |case| forget_above(case, 120)),
    ("index: of an old backup, and no chainstate", |case| {
        forget_above(case, 120);
        remove_chainstate(case);
    }),
    ("index: too few bytes of blocks in use", |case| case.edit_index(|index| index.files[0].size = 100)),
    ("index: too few bytes of undo data in use", |case| {
        case.edit_index(|index| index.files[0].undo_size /= 2);
    }),
    ("index: a block has a wrong height", |case| case.edit_entry(90, |entry| entry.height = Height(91))),
    ("index: a block has a wrong height, and no undo data or chainstate", |case| {
        case.edit_entry(90, |entry| entry.height = Height(91));
        files(case, "rev").iter().for_each(|path| fs::remove_file(path).unwrap());
        remove_chainstate(case);
    }),
    ("index: a block is marked invalid, and no chainstate", |case| {
        case.edit_entry(90, |entry| entry.status.0 |= BlockStatus::FAILED_VALID);
        remove_chainstate(case);
    }),
    ("no undo data, and a broken chainstate", |case| {
        files(case, "rev").iter().for_each(|path| fs::remove_file(path).unwrap());
        fs::write(case.net("chainstate/CURRENT"), "MANIFEST-999999\n").unwrap();
    }),
    ("rev: all but two cut", |case| {
        files(case, "rev").iter().skip(2).for_each(|path| truncate(path, 900).unwrap());
    }),
    ("blk: all but two cut", |case| {
        files(case, "blk").iter().skip(2).for_each(|path| truncate(path, 900).unwrap());
    }),
    ("blk: one missing, and a block of another flipped", |case| {
        case.flip_block(139, 100);
        fs::remove_file(blk(case, &entry(case, 60))).unwrap();
    }),
    ("blk: four blocks flipped", |case| {
        [30, 31, 90, 139].into_iter().for_each(|height| case.flip_block(height, 100));
    }),
    ("blk: a stale block flipped", |case| {
        let stale = chain().blocks.iter().find(|block| block.stale).unwrap();
        let found = case.index().entries.into_iter().find(|entry| entry.hash == stale.hash).unwrap();
        flip_bit(&blk(case, &found), found.data_pos.unwrap().0 + 100, 1).unwrap();
    }),
    ("blk and rev: a block and three records flipped", |case| {
        case.flip_block(110, 99);
        [70, 110, 130].into_iter().for_each(|height| case.flip_undo(height));
    }),
    ("everything", |case| {
        [20, 110].into_iter().for_each(|height| case.flip_block(height, 200));
        case.flip_undo(70);
        fs::remove_file(case.blocks("blk00003.dat")).unwrap();
        remove_chainstate(case);
    }),
    ("xor.dat: a bit flipped", |case| flip_bit(&case.blocks("xor.dat"), 0, 0).unwrap()),
    ("xor.dat: the last bit flipped", |case| flip_bit(&case.blocks("xor.dat"), 7, 7).unwrap()),
    ("xor.dat: cut", |case| truncate(&case.blocks("xor.dat"), 7).unwrap()),
    ("xor.dat: empty", |case| truncate(&case.blocks("xor.dat"), 0).unwrap()),
    ("chainstate: a table short by a byte", |case| {
        let dir = case.net("chainstate");
        let tables = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        let table = tables.filter(|path| path.extension().is_some_and(|it| it == "ldb"));
        let table = table.max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap();
        truncate(&table, fs::metadata(&table).unwrap().len() - 1).unwrap();
    }),
];

/// The `blk` or `rev` files, in order.
fn files(case: &Case, kind: &str) -> Vec<PathBuf> {
    let files = tree(&case.blocks("")).into_keys();
    files.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(kind)).collect()
}

fn remove_last_files(case: &Case) {
    for number in entry(case, TIP).file.unwrap().0..case.index().files.len() as u32 {
        for kind in ["blk", "rev"] {
            fs::remove_file(case.blocks(&format!("{kind}{number:05}.dat"))).unwrap();
        }
    }
}

fn remove_chainstate(case: &Case) {
    fs::remove_dir_all(case.net("chainstate")).unwrap();
}

/// Reduces the index to what an old backup would contain.
fn forget_above(case: &Case, height: u32) {
    case.edit_index(|index| {
        index.entries.retain(|entry| entry.height.0 <= height);
        for (info, number) in index.files.iter_mut().zip(0..) {
            let in_file = index.entries.iter().filter(|entry| entry.file == Some(FileNo(number)));
            let len = |hash| chain().blocks.iter().find(|block| block.hash == hash).unwrap().bytes.len();
            let ends = in_file.filter_map(|entry| Some(entry.data_pos?.0 as u32 + len(entry.hash) as u32));
            info.size = ends.max().unwrap_or(0);
        }
    });
}

fn cut_blk(case: &Case, by: i64) {
    let hit = entry(case, BUSY);
    truncate(&blk(case, &hit), hit.data_pos.unwrap().0.checked_add_signed(by).unwrap()).unwrap();
}

fn cut_rev(case: &Case, by: i64) {
    let hit = entry(case, BUSY);
    truncate(&rev(case, &hit), hit.undo_pos.unwrap().0.checked_add_signed(by).unwrap()).unwrap();
}

fn place_block(case: &Case, pos: u64) {
    case.edit_entry(BUSY, |entry| entry.data_pos = Some(ByteOffset(pos)));
}

fn place_undo(case: &Case, pos: u64) {
    case.edit_entry(BUSY, |entry| entry.undo_pos = Some(ByteOffset(pos)));
}

fn mark_last(case: &Case, flag: u32) {
    case.edit_entry(TIP, |entry| entry.status.0 |= flag);
}

/// Names of all damage. Settings of bitcoind, which only a diagnosis reads, are left out.
pub fn all() -> impl Iterator<Item = &'static str> {
    situation::of_files().map(|situation| situation.name).chain(OWN.map(|(name, _)| name))
}

/// Damages a datadir whose chainstate is at the last block; `store` is a folder outside of it.
pub fn cause(name: &str, case: &Case, store: &Path) {
    if let Some((_, cause)) = OWN.iter().find(|(own, _)| *own == name) {
        return cause(case);
    }
    write_files(&STORE, store).unwrap();
    if name == "blocks: in a directory that only the user knows" {
        fs::write(case.net("debug.log"), "").unwrap();
    }
    situation::cause(name, case.root(), store);
}

/// An older chainstate, and one of another chain.
static STORE: LazyLock<Files> = LazyLock::new(|| {
    let (store, case, foreign) = (scratch(), Case::new(), scratch());
    tiny().write_datadir(foreign.path(), &super::layout()).unwrap();
    run(&options(foreign.path())).unwrap();
    run(&lowered(case.options(), OLDER)).unwrap();
    for (root, name) in [(case.root(), "older"), (foreign.path(), "foreign")] {
        copy_dir(&root.join("regtest/chainstate"), &store.path().join(name)).unwrap();
    }
    snapshot(store.path()).unwrap()
});
