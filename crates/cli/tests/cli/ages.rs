//! `utxo ages` counts the outputs that are not spent after a block, by the times of their blocks: as the
//! tables of outputs and blocks have them.

#![cfg(feature = "export")]

use crate::prelude::*;
use crate::{
    export_blocks::rows,
    export_history::{Row, rows as read},
};

/// Height, first day of the band, and type of script.
type Key = (u32, u32, String);

/// Number and amount of coins.
type Counts = BTreeMap<Key, (i64, i64)>;

const BANDS: [u32; 4] = [0, 1, 3, 10];

fn counted(outputs: &[Row], median_times: &[u32], heights: &[u32]) -> Counts {
    let mut counts = Counts::new();
    for &height in heights {
        for row in outputs {
            let created: u32 = row["height"].parse().unwrap();
            let is_spent = row["spent_height"].parse().is_ok_and(|spent: u32| spent <= height);
            // The genesis block has no coins, and some outputs never become coins.
            let is_coin = created > 0 && !row["script"].starts_with("6a") && row["script"].len() <= 20_000;
            if created > height || is_spent || !is_coin {
                continue;
            }
            let age = median_times[height as usize] - median_times[created as usize];
            let band = BANDS.into_iter().rfind(|days| days * 86_400 <= age).unwrap();
            let count = counts.entry((height, band, row["script_type"].clone())).or_default();
            *count = (count.0 + 1, count.1 + row["value"].parse::<i64>().unwrap());
        }
    }
    counts
}

/// What a CSV file has, in its order.
fn written(dir: &Path) -> Vec<(Key, (i64, i64))> {
    let number = |row: &Row, name: &str| row[name].parse::<i64>().unwrap();
    let rows = read(dir, "ages").into_iter().map(|row| {
        let key = (number(&row, "height") as u32, number(&row, "from_days") as u32);
        ((key.0, key.1, row["script_type"].clone()), (number(&row, "coins"), number(&row, "value")))
    });
    rows.collect()
}

#[test]
fn ages_are_those_of_unspent_outputs() {
    let chain = Chain::generate(&ChainSpec { blocks: Some(2_300), ..ChainSpec::new(23, 600_000) });
    let dir = TempDir::new().unwrap();
    chain.write_datadir(dir.path(), &Layout::new(23)).unwrap();
    assert!(run(dir.path(), &["reindex"]).status.success());
    let tip = chain.tip().height;
    let outputs = rows(dir.path(), "outputs", &["--columns", "height,value,script_type,script,spent_height"]);
    let blocks = rows(dir.path(), "blocks", &["--columns", "mediantime"]);
    let median_times: Vec<u32> = blocks.iter().map(|row| row["mediantime"].parse().unwrap()).collect();
    let expected = counted(&outputs, &median_times, &[0, 1, 150, 999, 1000, 1001, tip]);
    let bands = expected.keys().map(|key| key.1).collect::<std::collections::BTreeSet<_>>();
    assert!(bands.len() == BANDS.len() && expected.len() > 40, "{bands:?}");
    for (name, words) in [
        ("one", &["--threads", "1", "--memory", "128M"][..]),
        ("eight", &["--threads", "8"]),
        ("live", &["--live", "--scan"]),
    ] {
        let out = dir.path().join(name);
        fs::create_dir(&out).unwrap();
        let file = out.join("ages.csv");
        let is_live = name == "live";
        let at = if is_live { "0-1,150,999-1001".to_owned() } else { format!("0-1,150,999-1001,{tip}") };
        let all = ["utxo", "ages", "--bands", "1,3,10", "--at", &at, "-o", text(&file)];
        let report = report(dir.path(), &[&all[..], words].concat());
        let expected = expected.iter().filter(|(key, _)| !is_live || key.0 < tip);
        let rows = written(&out);
        assert!(rows.is_sorted_by_key(|(key, _)| (key.0, key.1)));
        let rows: BTreeMap<_, _> = rows.into_iter().collect();
        assert!(rows.iter().eq(expected), "{name}");
        if !is_live {
            let last = report["heights"].as_array().unwrap().last().unwrap();
            let model = &chain.model;
            assert_eq!(last["coins"], model.coins.len(), "{last}");
            assert_eq!(last["total_amount_sat"], model.coins.values().map(|coin| coin.amount).sum::<i64>());
        }
    }
}
