//! `export blocks`, `transactions`, `inputs` and `outputs` as users meet them: what they write is what the
//! blocks have, and what Bitcoin Core says of them.

#![cfg(feature = "export")]

use crate::common;

use bitcoin::{Block, consensus::deserialize};
use common::{command, json, rebuilt, run_on_regtest as run};
use parquet::file::reader::{FileReader, SerializedFileReader};
use rustix::fs::{FlockOperation, fcntl_lock};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::symlink,
    path::Path,
};
use tempfile::TempDir;
use testkit::{Chain, ChainSpec, datadir::Layout};

/// Exports a table as CSV. Returns its rows, by the names of columns.
fn rows(datadir: &Path, table: &str, words: &[&str]) -> Vec<BTreeMap<String, String>> {
    let out = tempfile::tempdir().unwrap();
    let out = out.path().join("out");
    let all = ["export", table, "--json", "--format", "csv", "-o", out.to_str().unwrap()];
    let output = run(datadir, &[&all[..], words].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report = json(&output);
    assert_eq!((&report["command"], &report["files"]), (&format!("export {table}").into(), &1.into()));
    let text = fs::read_to_string(out.join(format!("{table}-0000000.csv"))).unwrap();
    assert_eq!(report["bytes"].as_u64().unwrap(), text.len() as u64);
    let mut lines = text.lines().map(|line| line.split(',').map(seconds));
    let names: Vec<String> = lines.next().unwrap().collect();
    lines.map(|values| names.iter().cloned().zip(values).collect()).collect()
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
fn line(row: &BTreeMap<String, String>, columns: &str) -> String {
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
    let chosen = |rows: &[BTreeMap<String, String>]| -> Vec<String> {
        rows.iter().map(|row| line(row, "height,value,address")).collect()
    };
    assert_eq!(some[0].len(), 3);
    assert_eq!(chosen(&some), chosen(&addresses));
}

#[test]
fn outputs_have_the_inputs_that_spend_them() {
    let (dir, chain) = rebuilt();
    let blocks = parsed(&chain);
    let mut spent = BTreeMap::new();
    for (height, block) in blocks.iter().enumerate() {
        let mut last: Vec<u32> =
            blocks[height.saturating_sub(10)..=height].iter().map(|it| it.header.time).collect();
        last.sort_unstable();
        for (tx_index, tx) in block.txdata.iter().enumerate().skip(1) {
            for (index, input) in tx.input.iter().enumerate() {
                let by = (height, tx_index, tx.compute_txid(), index, last[last.len() / 2]);
                spent.insert(input.previous_output, by);
            }
        }
    }
    let expected = |from: usize, to: usize, spent_to: usize| -> Vec<String> {
        let txs = (from..)
            .zip(&blocks[from..=to])
            .flat_map(|(height, it)| it.txdata.iter().map(move |tx| (height, tx)));
        let outputs = txs.flat_map(|(height, tx)| {
            let txid = tx.compute_txid();
            (0..tx.output.len() as u32).map(move |vout| (height, bitcoin::OutPoint { txid, vout }))
        });
        outputs
            .map(|(created, out)| match spent.get(&out).filter(|by| by.0 <= spent_to) {
                None => format!("{created},{},{},,,,,", out.txid, out.vout),
                Some((height, tx_index, txid, index, mediantime)) => {
                    let place = format!("{created},{},{}", out.txid, out.vout);
                    format!("{place},{height},{tx_index},{txid},{index},{mediantime}")
                }
            })
            .collect()
    };
    let columns = "height,txid,vout,spent_height,spent_tx_index,spent_txid,spent_index,spent_mediantime";
    let lines = |words: &[&str]| -> Vec<String> {
        rows(dir.path(), "outputs", words).iter().map(|row| line(row, columns)).collect()
    };
    let all = expected(0, 130, 130);
    assert!(all.iter().filter(|line| !line.ends_with(",,,,,")).count() > 100);
    assert_eq!(lines(&["--spent"]), all);
    assert_eq!(lines(&["--columns", columns, "--threads", "1", "--memory", "128M"]), all);
    assert_eq!(lines(&["--columns", columns, "--threads", "8", "--scan"]), all);
    assert_eq!(lines(&["--spent", "--live"]), expected(0, 124, 124));
    assert_eq!(lines(&["--spent", "--from", "20", "--to", "90"]), expected(20, 90, 130));
    assert_eq!(lines(&["--spent", "--addresses", "--to", "90", "--spent-to", "100"]), expected(0, 90, 100));
}

/// What no input spends is the chainstate, and files state up to which block that is known.
#[test]
fn unspent_outputs_are_the_utxo_set() {
    let (dir, chain) = rebuilt();
    let out = dir.path().join("out").display().to_string();
    let export = |words: &[&str]| {
        let all = [&["export", "outputs", "--json", "-o", &out], words].concat();
        let output = run(dir.path(), &all);
        assert!(output.status.success(), "{output:?}");
        json(&output)["spent_to"].clone()
    };
    let stats = json(&run(dir.path(), &["utxo", "stats", "--muhash", "--json"]));
    let tip = (130.into(), chain.tip().hash.to_string().into());
    let spent_to = export(&["--spent"]);
    assert_eq!((&spent_to["height"], &spent_to["block_hash"]), (&tip.0, &tip.1));
    for name in ["coins", "total_amount_sat", "muhash"] {
        assert_eq!(spent_to["unspent"][name], stats[name], "{name}");
    }
    let dataset = || -> serde_json::Value {
        serde_json::from_slice(&fs::read(format!("{out}.dataset.json")).unwrap()).unwrap()
    };
    assert_eq!((&dataset()["spent_to"], &dataset()["spent_to_hash"]), (&tip.0, &tip.1));
    let file = fs::read(format!("{out}/outputs-0000000.parquet")).unwrap();
    for text in ["spent_to_height".to_owned(), "spent_to_hash".to_owned(), chain.tip().hash.to_string()] {
        assert!(file.windows(text.len()).any(|bytes| bytes == text.as_bytes()), "{text}");
    }
    // An interrupted run is completed, also if it has left temporary files.
    unfinish(Path::new(&out));
    let left = dir.path().join("peregrine-work-0-0");
    fs::create_dir(&left).unwrap();
    fs::write(left.join("peregrine.lock"), "").unwrap();
    assert_eq!(export(&["--spent"])["unspent"], serde_json::Value::Null, "the file was complete");
    assert!(!left.exists() && fs::read(format!("{out}/outputs-0000000.parquet")).unwrap() == file);
    fs::remove_dir_all(&out).unwrap();
    assert_eq!(export(&["--spent", "--from", "1"])["unspent"], serde_json::Value::Null);
    fs::remove_dir_all(&out).unwrap();
    assert_eq!(export(&["--columns", "value"]), serde_json::Value::Null);
    assert!(dataset().get("spent_to").is_none());
    let text =
        String::from_utf8(run(dir.path(), &["export", "outputs", "--spent", "-o", &at(&dir, "text")]).stdout);
    let text = text.unwrap();
    assert!(text.contains(&format!("spent up to        130, {}", chain.tip().hash)), "{text}");
    assert!(text.contains(&format!("muhash             {}", stats["muhash"].as_str().unwrap())), "{text}");
}

fn at(dir: &TempDir, name: &str) -> String {
    dir.path().join(name).display().to_string()
}

#[test]
fn a_range_and_any_number_of_threads_give_the_same_rows() {
    let (dir, _) = rebuilt();
    let at = |name: &str| dir.path().join(name);
    let export = |name: &str, words: &[&str]| {
        let all = ["export", "inputs", "-o", at(name).to_str().unwrap()].map(str::to_owned);
        let all: Vec<&str> = all.iter().map(String::as_str).chain(words.iter().copied()).collect();
        let output = run(dir.path(), &all);
        assert!(output.status.success(), "{output:?}");
        fs::read(at(name).join("inputs-0000000.parquet")).unwrap()
    };
    let all = export("one", &["--threads", "1", "--memory", "128M"]);
    assert!(all == export("four", &["--threads", "4"]));
    assert!(all != export("some", &["--from", "5", "--to", "110"]));
    assert_eq!(fs::read_dir(at("one")).unwrap().count(), 1, "the directory is a table");
    let text = fs::read_to_string(at("some.dataset.json")).unwrap();
    let dataset: serde_json::Value = serde_json::from_str(&text).unwrap();
    let what = [&dataset["table"], &dataset["from"], &dataset["to"]].map(ToString::to_string);
    assert_eq!(what, ["\"inputs\"", "5", "110"]);
    assert_eq!(dataset["columns"][0], serde_json::json!({"name": "height", "type": "Int32"}));
    let range = rows(dir.path(), "blocks", &["--from", "5", "--to", "7"]);
    assert_eq!(range.iter().map(|row| row["height"].as_str()).collect::<Vec<_>>(), ["5", "6", "7"]);
}

#[test]
fn what_cannot_be_exported_is_refused_and_nothing_is_left() {
    let (dir, _) = rebuilt();
    let at = |name: &str| dir.path().join(name).display().to_string();
    fs::create_dir(at("mine")).unwrap();
    fs::create_dir(at("other.peregrine-part")).unwrap();
    fs::write(at("other.peregrine-part/dataset.json"), "{}").unwrap();
    for (words, exit, text) in [
        (vec!["blocks", "-o", &at("mine")], 2, "it exists already"),
        (vec!["blocks", "-o", &at("other")], 2, "with other options has left this directory"),
        (vec!["blocks", "-o", &at("out"), "--format", "sqlite"], 2, "must be parquet, arrow or csv"),
        (vec!["inputs", "-o", &at("out"), "--from", "9", "--to", "8"], 2, "no blocks from 9 to 8"),
        (vec!["outputs", "-o", &at("out"), "--to", "131"], 2, "the chain on disk ends at height 130"),
        (vec!["blocks", "-o", &at("regtest/blocks/out")], 2, "holds other data"),
        (vec!["inputs", "-o", &at("out"), "--columns", "fee"], 2, "inputs has no column fee; it has height,"),
        (vec!["inputs", "-o", &at("out"), "--columns", "value", "--addresses"], 2, "cannot be used with"),
        (vec!["outputs", "-o", &at("out"), "--spent", "--append"], 2, "cannot be used with"),
        (vec!["outputs", "-o", &at("out"), "--columns", "spent_index", "--append"], 2, "spends outputs that"),
        (vec!["outputs", "-o", &at("out"), "--spent-to", "5"], 2, "are for --spent, or for columns"),
        (vec!["outputs", "-o", &at("out"), "--spent", "--spent-to", "131"], 2, "to the last one, 130"),
        (vec!["inputs", "-o", &at("out"), "--format", "csv", "--zstd", "3"], 2, "are for Parquet files, not"),
        (vec!["inputs", "-o", &at("out"), "--row-group", "0"], 2, "0 is not in 1..=16777216"),
        (vec!["inputs", "-o", &at("out"), "--spent"], 2, "unexpected argument '--spent'"),
    ] {
        let words: Vec<&str> = ["export"].into_iter().chain(words.iter().map(|word| &**word)).collect();
        let output = run(dir.path(), &words);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(exit), "{words:?}: {stderr}");
        assert!(stderr.contains(text), "{words:?}: {stderr}");
    }
    assert!(!dir.path().join("out").exists() && !dir.path().join("out.peregrine-part").exists());
}

#[test]
fn completed_files_are_kept_when_a_run_is_repeated() {
    let (dir, chain) = rebuilt();
    let out = dir.path().join("out").display().to_string();
    let words = ["export", "outputs", "--chain", "regtest", "--json", "--format", "csv", "-o", &out];
    let report = json(&command(&words, dir.path()).output().unwrap());
    assert_eq!((&report["files"], &report["files_kept"]), (&1.into(), &0.into()));
    assert_eq!(report["block_hash"], chain.tip().hash.to_string());
    // As a run leaves it that ends before the directory gets its name.
    let (done, part) = (dir.path().join("out"), dir.path().join("out.peregrine-part"));
    let before = fs::read(done.join("outputs-0000000.csv")).unwrap();
    unfinish(&done);
    let report = json(&command(&words, dir.path()).output().unwrap());
    assert_eq!((&report["files"], &report["files_kept"]), (&1.into(), &1.into()));
    assert!(!part.exists() && fs::read(done.join("outputs-0000000.csv")).unwrap() == before);
}

/// Once, all was done first, and then there was nothing that could be renamed.
#[test]
fn outputs_that_are_links_to_nothing_are_written_where_they_lead() {
    let (dir, _) = rebuilt();
    for (number, words) in [
        "export blocks",
        "export blocks --append",
        "export history",
        "export utxo",
        "export utxo --format sqlite",
        "utxo ages",
        "snapshot make",
        "snapshot share --height 100",
        "undo export",
    ]
    .into_iter()
    .enumerate()
    {
        let [link, led] = ["link", "led"].map(|name| dir.path().join(format!("{name}-{number}.csv")));
        symlink(&led, &link).unwrap();
        let words: Vec<&str> = words.split(' ').chain(["-o", link.to_str().unwrap()]).collect();
        let output = run(dir.path(), &words);
        assert!(output.status.success() && led.exists() && link.is_symlink(), "{words:?}: {output:?}");
    }
}

#[test]
fn beside_a_process_that_uses_the_datadir_old_blocks_can_be_read() {
    let (dir, chain) = rebuilt();
    let snapshot = dir.path().join("utxo.dat").display().to_string();
    assert!(run(dir.path(), &["snapshot", "make", "--output", &snapshot]).status.success());
    let all = rows(dir.path(), "inputs", &[]);
    let lock = File::options().read(true).write(true).open(dir.path().join("regtest/.lock")).unwrap();
    fcntl_lock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
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
    let output = run(dir.path(), &["snapshot", "verify", &snapshot, "--json"]);
    assert_eq!(
        (output.status.code(), &json(&output)["matches_blocks"]),
        (Some(0), &true.into()),
        "{output:?}"
    );
    drop(lock);
}

/// A directory grows with the chain, also after a reorganisation and from an interrupted run.
/// Leaves a directory as a run does that ends before it gets its name.
fn unfinish(out: &Path) {
    let [part, stated] = [".peregrine-part", ".dataset.json"].map(|end| format!("{}{end}", out.display()));
    fs::rename(out, &part).unwrap();
    let text = fs::read_to_string(stated).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| !line.contains("\"bytes\"")).collect();
    fs::write(format!("{part}/dataset.json"), lines.join("\n") + "\n").unwrap();
}

#[test]
fn a_directory_is_continued_when_the_chain_has_grown_or_changed() {
    let chain =
        Chain::generate(&ChainSpec { blocks: Some(1_120), stale: false, ..ChainSpec::new(31, 300_000) });
    let (dir, out) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    chain.write_datadir(dir.path(), &Layout::new(31)).unwrap();
    assert!(run(dir.path(), &["reindex"]).status.success());
    let at = |name: &str| out.path().join(name).display().to_string();
    let export = |name: &str, words: &[&str]| {
        let all = ["export", "outputs", "--json", "--format", "csv", "-o", &at(name)];
        let output = run(dir.path(), &[&all[..], words].concat());
        assert!(output.status.success(), "{output:?}");
        json(&output)
    };
    let files = |name: &str| {
        let file = |part: &str| fs::read_to_string(out.path().join(format!("{name}{part}"))).unwrap();
        ["/outputs-0000000.csv", "/outputs-0001000.csv", ".dataset.json"].map(file)
    };
    export("whole", &[]);
    let whole = files("whole");
    // The same without --append cannot be continued, and a directory with other columns neither.
    export("grown", &["--to", "1050"]);
    fs::write(out.path().join("grown/mine.txt"), "mine").unwrap();
    for words in [&["--columns", "height", "--append"][..], &[]] {
        let output =
            run(dir.path(), &[&["export", "outputs", "--format", "csv", "-o", &at("grown")], words].concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
    let report = export("grown", &["--append"]);
    assert_eq!((&report["files"], &report["files_kept"]), (&2.into(), &1.into()));
    assert!(files("grown") == whole);
    assert_eq!(fs::read_to_string(out.path().join("grown/mine.txt")).unwrap(), "mine");
    assert_eq!(export("grown", &["--append"])["files_kept"], 2, "nothing is new");
    // Where a file was written for another branch, its last block is another.
    let text = whole[2].replace(&chain.main().nth(999).unwrap().hash.to_string(), &"ab".repeat(32));
    // As releases before have left it.
    fs::remove_file(out.path().join("grown.dataset.json")).unwrap();
    fs::write(out.path().join("grown/dataset.json"), text).unwrap();
    fs::write(out.path().join("grown/outputs-0000000.csv"), "of another branch").unwrap();
    assert_eq!(export("grown", &["--append"])["files_kept"], 1);
    assert!(files("grown") == whole);
    // One that was cut.
    fs::write(out.path().join("grown/outputs-0000000.csv"), "height").unwrap();
    assert_eq!(export("grown", &["--append"])["files_kept"], 1);
    assert!(files("grown") == whole);
    // What would lose rows, or take a foreign file for its own.
    export("low", &["--to", "900"]);
    fs::write(out.path().join("low/outputs-0001000.csv"), "foreign").unwrap();
    let forged = whole[2].replace("1120", "1121");
    fs::create_dir(out.path().join("high")).unwrap();
    fs::write(out.path().join("high.dataset.json"), forged).unwrap();
    for (name, words, text) in [
        ("low", &["--append"][..], "no export has written this one"),
        (
            "grown",
            &["--append", "--to", "900"],
            "it has the blocks up to height 1120, and this run ends at 900",
        ),
        ("high", &["--append"], "it has the blocks up to height 1121"),
    ] {
        let all = ["export", "outputs", "--format", "csv", "-o", &at(name)];
        let output = run(dir.path(), &[&all[..], words].concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(text), "{output:?}");
    }
    assert!(files("grown") == whole);
    // An interrupted run leaves its temporary name; a new directory is begun.
    fs::rename(out.path().join("grown"), out.path().join("grown.peregrine-part")).unwrap();
    fs::remove_file(out.path().join("grown.peregrine-part/outputs-0001000.csv")).unwrap();
    assert_eq!(export("grown", &["--append"])["files_kept"], 1);
    assert!(files("grown") == whole);
    assert_eq!(export("new", &["--append"])["files_kept"], 0);
    assert!(files("new") == whole);
    // In folders.
    export("folders", &["--partitioned", "--to", "1050"]);
    let report = export("folders", &["--partitioned", "--append"]);
    assert_eq!((&report["files"], &report["files_kept"]), (&2.into(), &1.into()));
    for (height, text) in [("0000000", &whole[0]), ("0001000", &whole[1])] {
        let file = out.path().join(format!("folders/from_height={height}/outputs.csv"));
        assert!(fs::read_to_string(file).unwrap() == *text, "{height}");
    }
}

#[test]
fn parquet_files_are_written_as_is_wanted() {
    let (dir, _) = rebuilt();
    let read = |name: &str, words: &[&str]| {
        let out = dir.path().join(name);
        let output = run(dir.path(), &[&["export", "inputs", "-o", out.to_str().unwrap()], words].concat());
        assert!(output.status.success(), "{output:?}");
        let file = File::open(out.join("inputs-0000000.parquet")).unwrap();
        let len = file.metadata().unwrap().len();
        let reader = SerializedFileReader::new(file).unwrap();
        let groups: Vec<i64> = reader.metadata().row_groups().iter().map(|group| group.num_rows()).collect();
        let rows: Vec<String> =
            reader.get_row_iter(None).unwrap().map(|row| row.unwrap().to_string()).collect();
        (rows, groups, len)
    };
    let (rows, groups, len) = read("usual", &[]);
    let count = rows.len() as i64;
    assert_eq!(groups, [count]);
    let (of_groups, groups, _) = read("groups", &["--row-group", "100", "--memory", "128M"]);
    assert!(of_groups == rows && groups.len() as i64 == (count + 99) / 100 && groups[0] == 100);
    let (of_level, groups, len_of_level) = read("level", &["--zstd", "19", "--row-group", "16777216"]);
    assert!(of_level == rows && groups == [count] && len_of_level < len, "{len_of_level} of {len}");
    let dataset = fs::read_to_string(dir.path().join("level.dataset.json")).unwrap();
    let dataset: serde_json::Value = serde_json::from_str(&dataset).unwrap();
    assert_eq!([&dataset["zstd_level"], &dataset["row_group"]], [19, 16_777_216]);
    assert_eq!(dataset["units"]["amounts"], "satoshis");
}

mod node {
    use super::*;
    use serde_json::json;
    use testkit::node::Node;

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
