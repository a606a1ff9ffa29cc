//! What an operator need not write: the datadir and the settings that bitcoind has already. And the chains of
//! tests, whose parameters both programs are told.

use crate::common;

use common::{command, json};
use std::{
    fs,
    path::Path,
    process::{Command, Output},
};
use tempfile::TempDir;
use testkit::{
    Chain, ChainSpec,
    datadir::Layout,
    mutation::{base_chain, mutations},
};

/// The blocks 0 to 2 of a signet whose challenge is `OP_TRUE`, as Bitcoin Core 31.99 generated them. The
/// genesis block is every signet's.
const SIGNET_BLOCKS: [&str; 3] = [
    "0100000000000000000000000000000000000000000000000000000000000000000000003ba3edfd7a7b12b27ac72c3e67768f6\
     17fc81bc3888a51323a9fb8aa4b1e5e4a008f4d5fae77031e8ad222030101000000010000000000000000000000000000000000\
     000000000000000000000000000000ffffffff4d04ffff001d0104455468652054696d65732030332f4a616e2f3230303920436\
     8616e63656c6c6f72206f6e206272696e6b206f66207365636f6e64206261696c6f757420666f722062616e6b73ffffffff0100\
     f2052a01000000434104678afdb0fe5548271967f1a67130b7105cd6a828e03909a67962e0ea1f61deb649f6bc3f4cef38c4f35\
     504e51ec112de5c384df7ba0b8d578a4c702b6bf11d5fac00000000",
    "00000020f61eee3b63a380a477a063af32b2bbc97c9ff9f01f2c4225e973988108000000f90344ddd9a16af4f07ed7af45a2e9a\
     ec7b443ae92f7bf6560bbaea78cb122b9d970036bae77031e17c92f000102000000000101000000000000000000000000000000\
     0000000000000000000000000000000000ffffffff025100feffffff0200f2052a0100000001510000000000000000266a24aa2\
     1a9ede2f61c3f71d1defd3fa999dfa36953755c690689799962b48bebd836974e8cf90120000000000000000000000000000000\
     000000000000000000000000000000000000000000",
    "00000020639a6971688b126a054d2d189c3453669b5e26e699eed8b2d6b3655ee402000022ea6542f9b592e9cc0b8d6e02eeac9\
     212efd6eda177ed157d9321680975d678dd70036bae77031edf574c000102000000000101000000000000000000000000000000\
     0000000000000000000000000000000000ffffffff025200feffffff0200f2052a0100000001510000000000000000266a24aa2\
     1a9ede2f61c3f71d1defd3fa999dfa36953755c690689799962b48bebd836974e8cf90120000000000000000000000000000000\
     000000000000000000000000000000000001000000",
];
/// What that bitcoind's `gettxoutsetinfo` reported at height 2.
const SIGNET_COINS: &str = "9ec11b5b6976652453ee1a9b7a37de56086fdd96ddc6293db386adda54f822cd";

/// A command of an operator whose home directory is `home`.
fn at_home(home: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peregrine"));
    command.args(args).env("HOME", home).env_remove("PEREGRINE_SHA256").output().unwrap()
}

fn write_datadir(root: &Path) -> Chain {
    let chain = Chain::generate(&ChainSpec { blocks: Some(112), ..ChainSpec::new(23, 60_000) });
    chain.write_datadir(root, &Layout { preallocate: false, ..Layout::new(23) }).unwrap();
    chain
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn without_options_the_datadir_and_the_settings_of_bitcoind_are_used() {
    let home = TempDir::new().unwrap();
    let datadir = home.path().join(".bitcoin");
    let missing = at_home(home.path(), &["reindex"]);
    assert_eq!(missing.status.code(), Some(4));
    let file = format!("file   {}\n", datadir.display());
    assert!(
        stderr(&missing).contains("no such directory") && stderr(&missing).contains(&file),
        "{missing:?}"
    );
    let hash = write_datadir(&datadir).model.stats().hash_hex();
    fs::write(datadir.join("bitcoin.conf"), "# A comment\nregtest=1\nserver=1\n").unwrap();
    let done = at_home(home.path(), &["reindex", "--json", "--progress", "none"]);
    assert_eq!(json(&done)["hash_serialized_3"], hash, "{done:?}");
    let said = format!("using {} (bitcoin.conf), chain regtest\n", datadir.display());
    assert_eq!(stderr(&done), said);
    for (args, words) in [
        (&["utxo", "stats"][..], hash.as_str()),
        (&["verify", "--progress", "none"], "all blocks"),
        (&["undo", "check", "--progress", "none"], "undo data"),
        (&["doctor", "--progress", "none"], "-datadir="),
        (&["reindex", "-regtest", "--json", "--progress=none"], hash.as_str()),
    ] {
        let output = at_home(home.path(), args);
        assert!(stderr(&output).starts_with("using "), "{args:?}: {output:?}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && (text.contains(words) || args[0] == "verify"), "{args:?}: {text}");
    }
    // The command line counts before the file, and a line that bitcoind refuses is refused.
    let other = at_home(home.path(), &["utxo", "stats", "--chain", "signet"]);
    assert!(
        stderr(&other).contains("of the chain signet; name the chain that it has blocks of: regtest"),
        "{other:?}"
    );
    fs::write(datadir.join("bitcoin.conf"), "testnet\n").unwrap();
    let wrong = at_home(home.path(), &["doctor"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(stderr(&wrong).contains("line 1, `testnet`: this is not NAME=VALUE"), "{wrong:?}");
}

/// Core puts block and undo files, `xor.dat` and a lock file there; the index stays in the datadir.
#[test]
fn block_files_elsewhere_are_found_and_the_index_stays_in_the_datadir() {
    let home = TempDir::new().unwrap();
    let (datadir, disk) = (home.path().join(".bitcoin"), home.path().join("disk"));
    let hash = write_datadir(&datadir).model.stats().hash_hex();
    let (own, elsewhere) = (datadir.join("regtest/blocks"), disk.join("regtest/blocks"));
    fs::create_dir_all(&elsewhere).unwrap();
    for entry in fs::read_dir(&own).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_file() {
            fs::rename(entry.path(), elsewhere.join(entry.file_name())).unwrap();
        }
    }
    let blocksdir = format!("--blocksdir={}", disk.display());
    let lost = at_home(home.path(), &["reindex", "-regtest"]);
    assert!(stderr(&lost).contains("-blocksdir=DIR, give that directory here too"), "{lost:?}");
    fs::remove_file(elsewhere.join("rev00000.dat")).unwrap();
    let done = at_home(home.path(), &["reindex", "-regtest", &blocksdir, "--json"]);
    assert_eq!(json(&done)["hash_serialized_3"], hash, "{done:?}");
    assert!(elsewhere.join("rev00000.dat").exists(), "undo data is made where the blocks are");
    assert!(!own.join("rev00000.dat").exists() && own.join("index/CURRENT").exists());
    let scanned = at_home(home.path(), &["reindex", "--scan", "-regtest", &blocksdir, "--json"]);
    assert_eq!(json(&scanned)["hash_serialized_3"], hash, "{scanned:?}");
    let checked = at_home(home.path(), &["verify", "--against-chainstate", "-regtest", &blocksdir]);
    assert!(checked.status.success(), "{checked:?}");
    let doctor = at_home(home.path(), &["doctor", "-regtest", &blocksdir]);
    let text = String::from_utf8_lossy(&doctor.stdout);
    assert!(text.ends_with(&format!("-chain=regtest -blocksdir={}\n", disk.display())), "{text}");
    fs::rename(own.join("index"), elsewhere.join("index")).unwrap();
    let doctor = at_home(home.path(), &["doctor", "-regtest", &blocksdir]);
    let moved = format!("other index        {}/index: bitcoind uses only", elsewhere.display());
    assert!(String::from_utf8_lossy(&doctor.stdout).contains(&moved), "{doctor:?}");
}

#[test]
fn a_custom_signet_is_rebuilt_by_its_challenge() {
    let dir = TempDir::new().unwrap();
    let blocks = dir.path().join("signet/blocks");
    fs::create_dir_all(&blocks).unwrap();
    let mut file = Vec::new();
    for block in SIGNET_BLOCKS {
        let digits = block.as_bytes().chunks(2);
        let bytes = digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap());
        let bytes: Vec<u8> = bytes.collect();
        file.extend([0x54, 0xd2, 0x6f, 0xbd]);
        file.extend((bytes.len() as u32).to_le_bytes());
        file.extend(bytes);
    }
    fs::write(blocks.join("blk00000.dat"), file).unwrap();
    let run = |args: &[&str]| command(args, dir.path()).output().unwrap();
    let error = run(&["reindex", "--scan", "-signet"]);
    assert!(stderr(&error).contains("the blocks are of a signet with another challenge"), "{error:?}");
    assert!(stderr(&error).ends_with("\nhelp: pass this signet's --signetchallenge\n"), "{error:?}");
    let doctor = run(&["doctor", "-signet", "--json"]);
    assert_eq!(json(&doctor)["advice"]["code"], "name-challenge", "{doctor:?}");
    fs::write(dir.path().join("bitcoin.conf"), "[signet]\nsignetchallenge=51\n").unwrap();
    let done = run(&["reindex", "--scan", "-signet", "--json"]);
    assert_eq!(json(&done)["hash_serialized_3"], SIGNET_COINS, "{done:?}");
    // The name that later releases give the folder, which is the datadir then, with the file above it.
    let folder = dir.path().join("signet_54d26fbd");
    fs::rename(dir.path().join("signet"), &folder).unwrap();
    for datadir in [dir.path(), &folder] {
        for words in [&["verify", "--json"][..], &["doctor", "--json"]] {
            let output = command(words, datadir).output().unwrap();
            assert_eq!(
                (output.status.code(), &json(&output)["chain"]),
                (Some(0), &"signet".into()),
                "{words:?}"
            );
        }
    }
    fs::rename(&folder, dir.path().join("signet")).unwrap();
    let other = run(&["verify", "-signet", "-signetchallenge=5151"]);
    assert!(stderr(&other).contains("they begin with 54d26fbd, not with"), "{other:?}");
    let snapshot = dir.path().join("utxo.dat");
    let snapshot = snapshot.to_str().unwrap();
    assert!(run(&["snapshot", "make", "-signet", "-o", snapshot]).status.success());
    assert_eq!(fs::read(snapshot).unwrap()[7..11], [0x54, 0xd2, 0x6f, 0xbd]);
    let proven = run(&["snapshot", "verify", snapshot, "--json"]);
    assert_eq!(json(&proven)["matches_blocks"], true, "{proven:?}");
}

/// Each rule applies from its height on only, as Core's functional tests use it.
#[test]
fn rules_of_regtest_apply_from_the_heights_that_are_given() {
    for (mutation, deployment, reject) in [
        ("height-of-the-block-before", "bip34", "bad-cb-height"),
        ("relative-lock-of-4-blocks", "csv", "bad-txns-nonfinal"),
        ("version-3", "cltv", "bad-version(0x00000003)"),
    ] {
        let dir = TempDir::new().unwrap();
        let mutated = mutations().find(|found| found.name == mutation).unwrap().apply(&base_chain(9));
        mutated.chain.write_datadir(dir.path(), &Layout { preallocate: false, ..Layout::new(3) }).unwrap();
        let verify = |more: &[&str]| {
            let args = [&["verify", "-regtest", "--json"], more].concat();
            json(&command(&args, dir.path()).output().unwrap())
        };
        assert_eq!(verify(&[])["error"]["core"], reject, "{mutation}");
        let height = mutated.block.height;
        let at = |height: u32| format!("--testactivationheight={deployment}@{height}");
        assert_eq!(verify(&[&at(height)])["error"]["core"], reject, "{mutation}");
        assert_eq!(verify(&[&at(height + 1)])["height"], height, "{mutation}");
    }
}
