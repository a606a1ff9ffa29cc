//! Bitcoin Core's transaction vectors, `tx_valid.json` and `tx_invalid.json`, without running scripts.

use crate::{common, prelude::*};

/// Returns the transactions of a file with their flags, or `None` if there are no sources.
fn vectors(file: &str) -> Option<Vec<(Vec<u8>, String)>> {
    let path = testdata::core_sources()?.join("src/test/data").join(file);
    let json: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let rows = json.as_array().unwrap().iter().filter(|row| row[0].is_array());
    Some(
        rows.map(|row| (common::unhex(row[1].as_str().unwrap()), row[2].as_str().unwrap().to_owned()))
            .collect(),
    )
}

fn check(bytes: &[u8]) -> Result<(), Violation> {
    let mut arena = BlockArena::default();
    let tx = arena.parse_tx(bytes).unwrap();
    let params = ChainParams::of(Network::Main);
    check_tx(&TxContext { params, height: Height(900_000), tx: &tx, tx_index: TxIndex(0) })
}

#[test]
fn valid_transactions_pass() {
    let Some(vectors) = vectors("tx_valid.json") else { return };
    assert!(vectors.len() > 100);
    for (bytes, _) in &vectors {
        assert_eq!(check(bytes), Ok(()));
    }
}

/// `BADTX` marks transactions that are invalid by themselves; all others fail in a script.
#[test]
fn exactly_the_transactions_marked_badtx_fail() {
    let Some(vectors) = vectors("tx_invalid.json") else { return };
    assert!(vectors.len() > 80);
    let mut broken = Vec::new();
    for (bytes, flags) in &vectors {
        let checked = check(bytes);
        assert_eq!(checked.is_err(), flags.contains("BADTX"), "{flags}: {checked:?}");
        broken.extend(checked.err().map(|violation| violation.core.into_owned()));
    }
    assert_eq!(broken.len(), 9);
    broken.sort_unstable();
    broken.dedup();
    let expected = [
        "bad-cb-length",
        "bad-txns-inputs-duplicate",
        "bad-txns-prevout-null",
        "bad-txns-txouttotal-toolarge",
        "bad-txns-vout-empty",
        "bad-txns-vout-negative",
        "bad-txns-vout-toolarge",
    ];
    assert_eq!(broken, expected);
}
