//! `export blocks`, `transactions`, `inputs` and `outputs` as users meet them: what they write is what the
//! blocks have, and what Bitcoin Core says of them.

#![cfg(feature = "export")]

use crate::export_history::{Row, export, rows as read};
use crate::prelude::*;
use parquet::file::reader::{FileReader, SerializedFileReader};

/// Exports a table as CSV. Returns its rows, by the names of columns.
pub fn rows(datadir: &Path, table: &str, words: &[&str]) -> Vec<Row> {
    let (_folder, out) = testkit::fresh_path("out");
    export(datadir, table, &out, &[&["--format", "csv"], words].concat());
    let mut rows = read(&out, table);
    rows.iter_mut().flat_map(BTreeMap::values_mut).for_each(|value| *value = seconds(value));
    rows
}

/// A value, of which a time becomes seconds since 1970.
fn seconds(value: &str) -> String {
    let [year, month, day, hour, minute, second] = match value.strip_suffix('Z') {
        Some(time) if time.len() == 19 => {
            let parts: Vec<i64> = time.split(['-', 'T', ':']).map(|part| part.parse().unwrap()).collect();
            parts.try_into().unwrap()
        }
        _ => return value.to_owned(),
    };
    // Days since 1970 by the Gregorian calendar; a year begins in March.
    let year = if month <= 2 { year - 1 } else { year };
    let days =
        365 * year + year / 4 - year / 100 + year / 400 + (153 * ((month + 9) % 12) + 2) / 5 + day - 719_469;
    (((days * 24 + hour) * 60 + minute) * 60 + second).to_string()
}

/// The columns of a row, separated by commas.
fn line(row: &Row, columns: &str) -> String {
    columns.split(',').map(|name| row[name].as_str()).collect::<Vec<_>>().join(",")
}

/// The blocks, as another library reads them.
fn parsed(chain: &Chain) -> Vec<Block> {
    chain.main().map(|block| deserialize(&block.bytes).unwrap()).collect()
}

#[test]
fn rows_are_what_the_blocks_have() {
    let (dir, chain) = rebuilt();
    let (mut created, mut inputs, mut outputs, mut transactions) =
        (BTreeMap::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut medians, mut spent_ages) = (Vec::new(), Vec::new());
    let blocks = parsed(&chain);
    for (height, block) in blocks.iter().enumerate() {
        let mut last: Vec<u32> =
            blocks[height.saturating_sub(10)..=height].iter().map(|it| it.header.time).collect();
        last.sort_unstable();
        medians.push(last[last.len() / 2]);
        let time = block.header.time;
        for (tx_index, tx) in block.txdata.iter().enumerate() {
            let (txid, coinbase) = (tx.compute_txid(), u8::from(tx_index == 0));
            let has_witness = tx.input.iter().any(|input| !input.witness.is_empty());
            let mut value_in = 0;
            if tx_index == 0 {
                spent_ages.push(Vec::new());
            }
            for (input_index, input) in tx.input.iter().enumerate().filter(|_| tx_index > 0) {
                let previous = input.previous_output;
                let (value, at, of_coinbase, script): &(u64, usize, u8, String) = &created[&previous];
                value_in += value;
                spent_ages.last_mut().unwrap().push((medians[height] - medians[*at], *value));
                inputs.push(format!(
                    "{height},{tx_index},{input_index},{time},{},{txid},{},{},{},{},{},{at},{},{of_coinbase},\
                     {value},{script}",
                    medians[height],
                    input.sequence.0,
                    input.script_sig.len(),
                    if has_witness { input.witness.size() } else { 0 },
                    previous.txid,
                    previous.vout,
                    medians[*at],
                ));
            }
            for (output, vout) in tx.output.iter().zip(0..) {
                let (value, script) = (output.value.to_sat(), output.script_pubkey.to_hex_string());
                outputs.push(format!("{height},{tx_index},{vout},{time},{txid},{coinbase},{value},{script}"));
                created.insert(bitcoin::OutPoint { txid, vout }, (value, height, coinbase, script));
            }
            let value_out: u64 = tx.output.iter().map(|output| output.value.to_sat()).sum();
            let (value_in, fee) = match tx_index {
                0 => (String::new(), String::new()),
                _ => (value_in.to_string(), (value_in - value_out).to_string()),
            };
            transactions.push(format!(
                "{height},{tx_index},{time},{txid},{},{coinbase},{},{},{},{},{},{},{},{value_in},\
                 {value_out},{fee}",
                tx.compute_wtxid(),
                tx.version.0,
                tx.lock_time.to_consensus_u32(),
                tx.input.len(),
                tx.output.len(),
                tx.total_size(),
                tx.weight().to_wu(),
                tx.vsize()
            ));
        }
    }
    let of = |table: &str, columns: &str| -> Vec<String> {
        rows(dir.path(), table, &[]).iter().map(|row| line(row, columns)).collect()
    };
    let columns = "height,tx_index,input_index,block_time,mediantime,txid,sequence,script_sig_bytes,\
                   witness_bytes,prev_txid,prev_vout,prev_height,prev_mediantime,prev_coinbase,value,script";
    assert!(of("inputs", columns) == inputs && inputs.len() > 100);
    assert!(of("outputs", "height,tx_index,vout,block_time,txid,coinbase,value,script") == outputs);
    let columns = "height,tx_index,block_time,txid,wtxid,coinbase,version,lock_time,inputs,outputs,\
                   size,weight,vsize,value_in,value_out,fee";
    assert_eq!(of("transactions", columns), transactions);
    let spent_ages = spent_ages.into_iter().map(|mut spent: Vec<(u32, u64)>| {
        spent.sort_unstable();
        let seconds: u64 = spent.iter().map(|(age, value)| u64::from(*age) * value).sum();
        let age = |at: Option<usize>| at.map_or(String::new(), |at| spent[at].0.to_string());
        let last = spent.len().checked_sub(1);
        format!("{},{},{}", seconds / 86_400, age(last.map(|last| last / 2)), age(last))
    });
    assert!(of("blocks", "coin_days_destroyed,median_spent_age,max_spent_age").into_iter().eq(spent_ages));
    // Which they are, tests of the crate `tables` show.
    let types = |words: &[&str]| -> Vec<String> {
        rows(dir.path(), "inputs", words).iter().map(|row| row["sighash"].clone()).collect()
    };
    let all = types(&[]);
    for wanted in ["ALL", "ALL ALL", "ALL|ANYONECANPAY", "DEFAULT", "NONE", ""] {
        assert!(all.iter().any(|types| types == wanted), "{wanted}");
    }
    assert_eq!(types(&["--columns", "sighash"]), all);
    let addresses = rows(dir.path(), "inputs", &["--addresses"]);
    assert!(addresses.iter().any(|row| row["address"].starts_with("bcrt1")));
    let some = rows(dir.path(), "inputs", &["--columns", "value,height,address"]);
    let chosen =
        |rows: &[Row]| -> Vec<String> { rows.iter().map(|row| line(row, "height,value,address")).collect() };
    assert_eq!(some[0].len(), 3);
    assert_eq!(chosen(&some), chosen(&addresses));
}

#[test]
fn beside_a_process_that_uses_the_datadir_old_blocks_can_be_read() {
    let (dir, chain) = rebuilt();
    let snapshot = dir.path().join("utxo.dat").display().to_string();
    assert!(run(dir.path(), &["snapshot", "make", "--output", &snapshot]).status.success());
    let all = rows(dir.path(), "inputs", &[]);
    let lock = lock(&dir.path().join("regtest/.lock"));
    let out = dir.path().join("out").display().to_string();
    let export = |words: &[&str]| run(dir.path(), &[&["export", "inputs", "-o", &out], words].concat());
    assert_eq!(export(&[]).status.code(), Some(5), "in use");
    let last = chain.tip().height - 6;
    let output = export(&["--live", "--to", &(last + 1).to_string()]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains(&format!("blocks are read up to height {last}")), "{stderr}");
    let live = rows(dir.path(), "inputs", &["--live"]);
    let old = all.into_iter().filter(|row| row["height"].parse::<u32>().unwrap() <= last);
    assert_eq!(live, old.collect::<Vec<_>>());
    // A snapshot is proven against old blocks, too.
    let verified = report(dir.path(), &["snapshot", "verify", &snapshot]);
    assert_eq!(verified["matches_blocks"], true, "{verified}");
    // It has stored twenty blocks, and not connected them yet.
    edit_index(&dir.path().join("regtest/blocks/index"), |index| {
        let stored = index.entries.iter_mut().filter(|entry| entry.height.0 > chain.tip().height - 20);
        for entry in stored {
            (entry.status.0, entry.undo_pos) = (entry.status.0 & !BlockStatus::HAVE_UNDO, None);
        }
    })
    .unwrap();
    let live = rows(dir.path(), "outputs", &["--live"]);
    assert_eq!(live.last().unwrap()["height"], (last - 20).to_string());
    drop(lock);
}

/// Once, a directory that was complete lost its name and its last file before the new blocks were read.
#[test]
fn a_directory_that_cannot_be_continued_stays_as_it_was() {
    let (dir, chain) = rebuilt();
    let out = dir.path().join("out");
    let tip = chain.tip().height;
    done(run(dir.path(), &["export", "inputs", "-o", text(&out), "--to", &(tip - 1).to_string()]));
    let before = snapshot(&out).unwrap();
    edit_index(&dir.path().join("regtest/blocks/index"), |index| {
        for entry in index.entries.iter_mut().filter(|entry| entry.height.0 == tip) {
            (entry.status.0, entry.undo_pos) = (entry.status.0 & !BlockStatus::HAVE_UNDO, None);
        }
    })
    .unwrap();
    let output = run(dir.path(), &["export", "inputs", "-o", text(&out), "--append"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("the undo data of the block is not on disk"), "{stderr}");
    assert!(snapshot(&out).unwrap() == before && dir.path().join("out.dataset.json").exists());
    assert!(!dir.path().join("out.peregrine-part").exists());
}

/// A look-up finds its row group and its pages by their statistics.
#[test]
fn parquet_files_have_the_groups_that_are_wanted_and_statistics() {
    let (dir, _) = rebuilt();
    let export = |name: &str, words: &[&str]| {
        let out = dir.path().join(name);
        done(run(dir.path(), &[&["export"], words, &["-o", text(&out)]].concat()));
        out
    };
    let read = |file: &Path| SerializedFileReader::new(File::open(file).unwrap()).unwrap();
    let groups = |name: &str, words: &[&str]| -> Vec<i64> {
        let reader = read(&export(name, words).join("inputs-0000000.parquet"));
        reader.metadata().row_groups().iter().map(|group| group.num_rows()).collect()
    };
    let usual = groups("usual", &["inputs"]);
    let [count] = usual[..] else { panic!("{usual:?}") };
    assert_eq!(groups("level", &["inputs", "--zstd", "19", "--row-group", "16777216"]), [count]);
    let hundreds = groups("groups", &["inputs", "--row-group", "100", "--memory", "128M"]);
    assert_eq!((hundreds.len() as i64, hundreds.iter().sum()), ((count + 99) / 100, count));
    let scripts = export("history", &["history", "--file-blocks", "50"]).join("scripts/prefix=0");
    let reader = read(&scripts.join("scripts.parquet"));
    let group = reader.metadata().row_group(0);
    assert!(group.column(0).statistics().is_some() && group.column(0).column_index_offset().is_some());
    assert_eq!(group.sorting_columns().unwrap()[0].column_idx, 0);
}

mod node {
    use super::*;

    #[test]
    fn block_rows_are_what_getblockstats_returns() {
        let (dir, chain) = rebuilt();
        let rows = rows(dir.path(), "blocks", &[]);
        assert_eq!(rows.len() as u32, chain.tip().height + 1);
        let Some(node) = Node::start(dir.path(), &[]) else { return };
        for (row, height) in rows.iter().zip(0..) {
            let stats = node.call("getblockstats", json!([height])).unwrap();
            for (name, value) in stats.as_object().unwrap() {
                let found = match name.as_str() {
                    "feerate_percentiles" => {
                        let names = [10, 25, 50, 75, 90].map(|part| format!("feerate_percentile_{part}"));
                        format!("[{}]", names.map(|name| row[&name].clone()).join(","))
                    }
                    name => row[name].clone(),
                };
                let expected = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                assert_eq!(found, expected, "{name} of block {height}");
            }
        }
    }
}
