//! Datadirs written by Bitcoin Core: the rebuilt chainstate has the hashes that Core's `gettxoutsetinfo`
//! printed, at every recorded height, by index and by scan, with any number of threads.

use acceptance::prelude::*;
use engine::{Matching, hex_reversed};

fn rebuild_all(name: &str, network: Network) {
    let (Some(dir), Some(known)) = (unpack_core_datadir(name), known_answers(name)) else { return };
    let before = tree(dir.path());
    let tip = known.iter().filter_map(|line| line["height"].as_u64()).max().unwrap();
    for line in &known {
        let height = Height(line["height"].as_u64().unwrap() as u32);
        // All variants at the tip; below it, one with and one without a scan.
        let ways: Vec<(usize, bool)> = if u64::from(height.0) == tip {
            THREADS.iter().flat_map(|&threads| [(threads, false), (threads, true)]).collect()
        } else {
            vec![(2, false), (1, true)]
        };
        for (threads, scan) in ways {
            let output = tempfile::tempdir().unwrap();
            let options = ReindexOptions {
                stop_at_height: Some(height),
                output: Some(output.path().to_owned()),
                scan,
                ..ReindexOptions::new(dir.path(), network, ScriptChecks::LeftOut)
            };
            let what = format!("{name} at {height}, {threads} threads, scan: {scan}");
            let report =
                run(&with_threads(&options, threads)).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(hex_reversed(&report.hash_serialized_3), line["hash_serialized_3"], "{what}");
            assert_eq!(report.hash.to_string(), line["hash"], "{what}");
            assert_eq!(
                (report.matching, report.txouts),
                (Matching::Parallel, line["txouts"].as_u64().unwrap()),
                "{what}"
            );
            let stats = stats(output.path(), network).unwrap();
            assert_eq!(hex_reversed(&stats.hash_serialized_3), line["hash_serialized_3"], "{what}");
            assert_eq!(stats.muhash.as_ref().map(hex_reversed).unwrap(), line["muhash"], "{what}");
            assert_eq!(stats.bogosize, line["bogosize"].as_u64().unwrap(), "{what}");
            // A scan writes an index too, from which the height is known.
            assert_eq!(stats.height, scan.then_some(height), "{what}");
        }
    }
    assert_same_tree(&before, dir.path(), name);
    // Reading Core's own chainstate gives the same values.
    let stats = stats(dir.path(), network).unwrap();
    let line = known.iter().find(|line| line["height"] == tip).unwrap();
    assert_eq!(hex_reversed(&stats.hash_serialized_3), line["hash_serialized_3"], "{name}");
    assert_eq!(stats.height.map(|height| u64::from(height.0)), Some(tip));
}

#[test]
fn main_is_rebuilt_to_cores_hashes() {
    rebuild_all("main", Network::Main);
}

#[test]
fn testnet3_is_rebuilt_to_cores_hashes() {
    rebuild_all("testnet3", Network::Test);
}

#[test]
fn signet_is_rebuilt_to_cores_hashes() {
    rebuild_all("signet", Network::Signet);
}

#[test]
fn regtest_is_rebuilt_to_cores_hashes() {
    rebuild_all("regtest", Network::Regtest);
}

/// Core's `feature_taproot.py` leaves siblings at many heights that are invalid and were never connected, and
/// that spend the same coins as the blocks of the chain.
#[test]
fn regtest_siblings_is_rebuilt_to_cores_hashes() {
    rebuild_all("regtest-siblings", Network::Regtest);
}
