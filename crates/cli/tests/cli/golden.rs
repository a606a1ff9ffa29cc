//! Messages and help, word for word, so that a change of them is seen. `SNAPSHOTS=overwrite` accepts it.

use snapbox::{assert_data_eq, file};
use std::{fs, path::Path, process::Command};
use tempfile::TempDir;
use testkit::{
    Chain, ChainSpec,
    corrupt::{flip_bit, interrupt_replacement},
    datadir::Layout,
    mutation::{base_chain, mutations},
};

/// Runs a command in `dir`, and returns its command line and what it writes to stderr.
fn run(words: &str, dir: &Path) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peregrine"));
    let output = command.args(words.split(' ')).current_dir(dir).output().unwrap();
    let code = output.status.code().unwrap();
    let (stderr, dir) = (String::from_utf8(output.stderr).unwrap(), dir.display().to_string());
    format!("$ peregrine {words}\n{}exit code {code}\n\n", stderr.replace(&dir, "DIR"))
}

fn write(chain: &Chain, datadir: &Path) {
    chain.write_datadir(datadir, &Layout { preallocate: false, ..Layout::new(17) }).unwrap();
}

#[test]
fn messages_are_those_that_were_agreed_on() {
    let dir = TempDir::new().unwrap();
    let at = |name: &str| dir.path().join(name);
    let chain = Chain::generate(&ChainSpec { blocks: Some(130), ..ChainSpec::new(17, 200_000) });
    let mutation = mutations().find(|mutation| mutation.core == Some("bad-cb-amount")).unwrap();
    for name in ["good", "damaged", "empty", "interrupted", "no-current"] {
        write(&chain, &at(name));
    }
    write(&mutation.apply(&base_chain(9)).chain, &at("invalid"));
    flip_bit(&at("damaged/regtest/blocks/blk00000.dat"), 60_000, 3).unwrap();
    fs::create_dir(at("no-current/regtest/chainstate")).unwrap();
    fs::write(at("no-current/regtest/chainstate/CURRENT"), "").unwrap();
    fs::create_dir(at("interrupted/regtest/chainstate")).unwrap();
    interrupt_replacement(&at("interrupted/regtest")).unwrap();
    fs::write(at("words"), "root:x:0:0:root:/root:/bin/bash\n".repeat(9)).unwrap();
    let commands = [
        "reindex --progress none --chain regtest --datadir none",
        "reindex --progress none --chain regtest --datadir good --stop-at-height 9999",
        "reindex --progress none --chain regtest --datadir good --output good/regtest/blocks/new",
        "reindex --progress none --chain regtest --datadir good --memory lots",
        "reindex --progress none --chain regtest --datadir good --threads 0",
        "reindex --progress none --chain regtest --datadir damaged",
        "reindex --progress none --chain regtest --datadir invalid",
        "utxo stats --progress none --chain regtest --datadir empty",
        "utxo stats --progress none --chain regtest --datadir no-current",
        "utxo stats --progress none --chain regtest --datadir interrupted",
        "hints info words",
        "snapshot info words",
    ];
    let messages: String = commands.iter().map(|words| run(words, dir.path())).collect();
    assert_data_eq!(messages, file!["golden/messages.txt"].raw());
}

#[test]
fn help_is_that_which_was_agreed_on() {
    let help = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_peregrine"));
        String::from_utf8(command.args(words).output().unwrap().stdout).unwrap()
    };
    assert_data_eq!(help(&["--help"]), file!["golden/help.txt"].raw());
    assert_data_eq!(help(&["reindex", "-h"]), file!["golden/reindex-help.txt"].raw());
}
