//! What each command does with each kind of damage: runs every cell of the table in `docs/repair.md`, and
//! compares the table with the results. `UPDATE_DOCS=1` rewrites it.

use acceptance::prelude::*;
use acceptance::{
    assert_table_of,
    sync::{assert_index_is_true, from, honest},
};
use engine::diagnose;
use sync::{RepairOptions, repair};
use testkit::corrupt::{flip_bit, truncate};

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
    ("a changed bit in a block", |case| flip_block(case, 100)),
    ("a changed bit in a block's header", |case| flip_block(case, 40)),
    ("a changed bit in undo data", |case| {
        let hit = entry(case, HIT);
        flip_bit(&rev(case, &hit), hit.undo_pos.unwrap().0 + 1, 1).unwrap();
    }),
    ("a block that the index does not place", |case| {
        flip_block(case, 100);
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

fn flip_block(case: &Case, at: u64) {
    let hit = entry(case, HIT);
    flip_bit(&blk(case, &hit), hit.data_pos.unwrap().0 + at, 1).unwrap();
}

fn bytes(height: u32) -> &'static [u8] {
    &chain().main().nth(height as usize).unwrap().bytes
}

/// Runs a command. Returns what it did, if not only the height counts.
fn execute(command: &str, case: &Case, dir: &Path) -> Result<Option<String>, Error> {
    let (disk, never, options) = (FaultDisk::healthy(), AtomicBool::new(false), case.options());
    match command {
        "doctor --deep" => {
            let options = DoctorOptions { deep: true, ..DoctorOptions::new(case.root(), Network::Regtest) };
            let diagnosis = diagnose(&disk, &options, &|_| {}, &never)?;
            return Ok(Some(format!("advises {:?}", diagnosis.advice)));
        }
        "repair" => {
            let peer = honest();
            let peers = from(case.root(), &[&peer]).peers;
            let options = RepairOptions {
                peers,
                ..RepairOptions::new(case.root(), Network::Regtest, ScriptChecks::LeftOut)
            };
            let report = repair(&disk, &options, &|_| {}, &never)?;
            // With so few blocks above the chainstate, bitcoind connects them.
            return Ok(Some(match report.download {
                Some(download) if download.blocks == 1 => "downloads the block".to_owned(),
                Some(_) => "downloads the blocks".to_owned(),
                None if report.undo.is_some() => "makes the undo data".to_owned(),
                None => "leaves all as it is".to_owned(),
            }));
        }
        "reindex --block" => {
            // Those that are not whole in their files, or the block itself.
            let is_lost = |height: &u32| {
                let entry = entry(case, *height);
                let end = entry.data_pos.map_or(0, |pos| pos.0 + bytes(*height).len() as u64);
                entry.file.is_some() && fs::metadata(blk(case, &entry)).map_or(0, |file| file.len()) < end
            };
            let mut heights: Vec<u32> = (0..=TIP).filter(is_lost).collect();
            if heights.is_empty() {
                heights.push(HIT);
            }
            let write = |height: u32| {
                let path = dir.join(height.to_string());
                fs::write(&path, bytes(height)).unwrap();
                path
            };
            run(&ReindexOptions { blocks: heights.into_iter().map(write).collect(), ..options })?;
        }
        _ => {
            let (scan, until_damage) = (command.contains("--scan"), command.contains("--until-damage"));
            run(&ReindexOptions { scan, until_damage, ..options })?;
        }
    }
    Ok(None)
}

fn cell(damage: Damage, command: &str) -> String {
    let (case, dir) = (Case::new(), scratch());
    run(&case.options()).unwrap();
    damage(&case);
    match execute(command, &case, dir.path()) {
        Ok(Some(done)) => done,
        Ok(None) => {
            assert_index_is_true(case.root(), command);
            match stats(case.root(), Network::Regtest).unwrap().height.unwrap() {
                Height(TIP) => "rebuilds all".to_owned(),
                height if height < Height(HIT) => "rebuilds up to below the damage".to_owned(),
                height => panic!("{command}: height {height}"),
            }
        }
        Err(error) => {
            format!("refuses ({})", if error.kind == engine::ErrorKind::Usage { 2 } else { 4 })
        }
    }
}

#[test]
fn each_command_does_what_the_table_of_damage_says() {
    let mut table = format!("| damage | {} |\n", COMMANDS.map(|command| format!("`{command}`")).join(" | "));
    table += &format!("| --- |{}\n", " --- |".repeat(COMMANDS.len()));
    for (what, damage) in ROWS {
        let cells = COMMANDS.map(|command| cell(damage, command));
        table += &format!("| {what} | {} |\n", cells.join(" | "));
    }
    assert_table_of("docs/repair.md", &table);
}
