//! What each command does with each kind of damage: runs every cell of the table in `docs/repair.md`, and
//! compares the table with the results. `UPDATE_DOCS=1` rewrites it.

use acceptance::prelude::*;
use acceptance::{matrix::Matrix, shell::Shell, sync::assert_index_is_true};
use testkit::corrupt::truncate;

/// The damaged block, which is not in the first file.
const HIT: u32 = 132;
const TIP: u32 = 140;

const COMMANDS: [&str; 7] = [
    "doctor --deep",
    "reindex",
    "reindex --scan",
    "reindex --until-damage",
    "reindex --scan --until-damage",
    "reindex --block",
    "repair",
];

/// Damages a datadir.
type Damage = fn(&Case);

const ROWS: [(&str, Damage); 10] = [
    ("nothing", |_| {}),
    ("a changed bit in a block", |case| case.flip_block(HIT, 100)),
    ("a changed bit in a block's header", |case| case.flip_block(HIT, 40)),
    ("a changed bit in undo data", |case| case.flip_undo(HIT)),
    ("a block that the index does not place", |case| {
        case.flip_block(HIT, 100);
        run(&ReindexOptions { until_damage: true, ..case.options() }).unwrap();
    }),
    ("a block file that ends early", |case| {
        let hit = entry(case, HIT);
        truncate(&blk(case, &hit), hit.data_pos.unwrap().0 + 20).unwrap();
    }),
    ("a block file that is missing", |case| fs::remove_file(blk(case, &entry(case, HIT))).unwrap()),
    ("the first block file is missing", |case| fs::remove_file(case.blocks("blk00000.dat")).unwrap()),
    ("an undo file that ends early", |case| {
        let hit = entry(case, HIT);
        truncate(&rev(case, &hit), hit.undo_pos.unwrap().0 + 2).unwrap();
    }),
    ("an undo file that is missing", |case| fs::remove_file(rev(case, &entry(case, HIT))).unwrap()),
];

/// Heights of the blocks that are not whole in their files, or that of the damaged block.
fn lost(case: &Case) -> Vec<u32> {
    let is_lost = |height: &u32| {
        let entry = entry(case, *height);
        let len = chain().main().nth(*height as usize).unwrap().bytes.len() as u64;
        let end = entry.data_pos.map_or(0, |pos| pos.0 + len);
        entry.file.is_some() && fs::metadata(blk(case, &entry)).map_or(0, |file| file.len()) < end
    };
    let heights: Vec<u32> = (0..=TIP).filter(is_lost).collect();
    if heights.is_empty() { vec![HIT] } else { heights }
}

fn cell(damage: Damage, command: &str) -> String {
    let case = Case::at_tip();
    damage(&case);
    let mut shell = Shell::of(&case);
    if command.contains("--block") {
        shell.given = lost(&case);
    }
    let done = match shell.run(command) {
        Ok(done) => done,
        Err(error) => return format!("refuses ({})", if error.kind == ErrorKind::Usage { 2 } else { 4 }),
    };
    if let Some(diagnosis) = done.diagnosis {
        return format!("advises {:?}", diagnosis.advice);
    }
    if let Some(report) = done.repair {
        // With so few blocks above the chainstate, bitcoind connects them.
        return match report.download {
            Some(download) if download.blocks == 1 => "downloads the block",
            Some(_) => "downloads the blocks",
            None if report.undo.is_some() => "makes the undo data",
            None => "leaves all as it is",
        }
        .to_owned();
    }
    assert_index_is_true(case.root(), command);
    match stats(case.root(), Network::Regtest).unwrap().height.unwrap() {
        Height(TIP) => "rebuilds all".to_owned(),
        height if height < Height(HIT) => "rebuilds up to below the damage".to_owned(),
        height => panic!("{command}: height {height}"),
    }
}

#[test]
fn each_command_does_what_the_table_of_damage_says() {
    Matrix {
        page: "docs/repair.md",
        name: "table",
        corner: "damage",
        rows: &ROWS,
        columns: &COMMANDS,
        of_row: |row| row.0,
        of_column: |command| command,
        cell: &|(_, damage), command| cell(*damage, command),
    }
    .assert_is_documented();
}
