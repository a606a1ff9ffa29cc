//! The version of Bitcoin Core, and the parameters that `rules` takes from its source, compared with the
//! sources that are compiled in.

use rules::ChainParams;
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};
use wire::Network;

fn run(program: &str, words: &[&str]) -> String {
    let output: Output = Command::new(program).args(words).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the folder of Bitcoin Core's sources in `libbitcoinkernel-sys`.
fn sources() -> PathBuf {
    let host = run("rustc", &["-vV"]);
    let host = host.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let words = ["metadata", "--format-version", "1", "--offline", "--locked", "--filter-platform", host];
    let metadata = run(env!("CARGO"), &[&words[..], &["--manifest-path", manifest]].concat());
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let kernel = packages.iter().find(|package| package["name"] == "libbitcoinkernel-sys").unwrap();
    Path::new(kernel["manifest_path"].as_str().unwrap()).with_file_name("bitcoin")
}

#[test]
fn the_version_of_core_is_that_of_the_sources() {
    let cmake = fs::read_to_string(sources().join("CMakeLists.txt")).unwrap();
    let number = |name: &str| {
        let line = cmake.lines().find_map(|line| line.strip_prefix(&format!("set(CLIENT_VERSION_{name} ")));
        line.unwrap().trim_end_matches(')').to_owned()
    };
    assert_eq!(peregrine_script::CORE_VERSION, format!("{}.{}", number("MAJOR"), number("MINOR")));
    assert_eq!(rules::CORE_VERSION, peregrine_script::CORE_VERSION, "the rules follow the same version");
}

#[test]
fn the_assumed_valid_blocks_and_their_heights_are_those_of_the_sources() {
    let source = fs::read_to_string(sources().join("src/kernel/chainparams.cpp")).unwrap();
    for network in Network::ALL {
        let Some((height, hash)) = ChainParams::of(network).assume_valid else { continue };
        let line = format!("consensus.defaultAssumeValid = uint256{{\"{hash}\"}}; // {height}");
        assert!(source.lines().any(|found| found.trim() == line), "{network}: {line}");
    }
}
