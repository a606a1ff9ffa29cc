//! What each command does with each kind of damage: runs every cell of the table in `docs/repair.md`, and
//! compares the table with the results. `UPDATE_DOCS=1` rewrites it.

use acceptance::prelude::*;

const COMMANDS: [&str; 7] = [
    "doctor --deep",
    "reindex",
    "reindex --scan",
    "reindex --until-damage",
    "reindex --scan --until-damage",
    "reindex --block",
    "repair",
];

/// Rows of the table, and the situations that they are.
const ROWS: [(&str, &str); 10] = [
    ("nothing", "nothing"),
    ("a changed bit in a block", "blk: the block at the busy height flipped"),
    ("a changed bit in a block's header", "blk: its header flipped"),
    ("a changed bit in undo data", "rev: a record flipped"),
    ("a block that the index does not place", "index: without a block, and a chainstate that ends below it"),
    ("a block file that ends early", "blk: one cut"),
    ("a block file that is missing", "blk: one missing"),
    ("the first block file is missing", "blk: the first missing"),
    ("an undo file that ends early", "rev: cut within a record"),
    ("an undo file that is missing", "rev: one missing"),
];

/// Heights of the blocks that are not whole in their files, or that of the one that is damaged otherwise.
fn lost(case: &Case) -> Vec<u32> {
    let is_lost = |height: &u32| {
        let entry = entry(case, *height);
        let len = block_at(*height).bytes.len() as u64;
        let end = entry.data_pos.map_or(0, |pos| pos.0 + len);
        entry.file.is_some() && fs::metadata(blk(case, &entry)).map_or(0, |file| file.len()) < end
    };
    let heights: Vec<u32> = (0..=TIP).filter(is_lost).collect();
    if heights.is_empty() { vec![BUSY] } else { heights }
}

fn cell(situation: &str, command: &str) -> String {
    let case = Case::at_tip();
    let mut shell = Shell::of(&case);
    damage::cause(situation, &case, shell.outside.path());
    if command.contains("--block") {
        shell.given = lost(&case);
    }
    let done = match shell.run(command) {
        Ok(done) => done,
        Err(error) => return refuses(&error, command),
    };
    if let Some(diagnosis) = done.diagnosis {
        return format!("{:?}", diagnosis.advice);
    }
    if let Some(report) = done.repair {
        // With so few blocks above the chainstate, bitcoind connects them.
        return match report.download {
            Some(download) if download.blocks == 1 => "downloads the block",
            Some(_) => "downloads the blocks",
            None if report.undo.is_some() => "makes the undo data",
            None => "nothing to do",
        }
        .to_owned();
    }
    assert_index_is_true(case.root(), command);
    match stats(case.root(), Network::Regtest).unwrap().height.unwrap() {
        Height(TIP) => "rebuilds all".to_owned(),
        // `situations.txt` has the height.
        _ => "rebuilds below it".to_owned(),
    }
}

#[test]
fn each_command_does_what_the_table_of_damage_says() {
    let rows = ROWS.map(|row| row.0);
    assert_table("docs/repair.md", "table", "damage", &rows, &COMMANDS, |row, column| {
        cell(ROWS[row].1, COMMANDS[column])
    });
}
