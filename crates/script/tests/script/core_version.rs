//! The version of Bitcoin Core, and the parameters that `rules` takes from its source, compared with the
//! sources that are compiled in.

use rules::ChainParams;
use std::fs;
use testkit::data::core_sources;
use wire::Network;

#[test]
fn the_version_of_core_is_that_of_the_sources() {
    let cmake = fs::read_to_string(core_sources().unwrap().join("CMakeLists.txt")).unwrap();
    let number = |name: &str| {
        let line = cmake.lines().find_map(|line| line.strip_prefix(&format!("set(CLIENT_VERSION_{name} ")));
        line.unwrap().trim_end_matches(')').to_owned()
    };
    assert_eq!(peregrine_script::CORE_VERSION, format!("{}.{}", number("MAJOR"), number("MINOR")));
    assert_eq!(rules::CORE_VERSION, peregrine_script::CORE_VERSION, "the rules follow the same version");
}

#[test]
fn the_assumed_valid_blocks_and_their_heights_are_those_of_the_sources() {
    let source = fs::read_to_string(core_sources().unwrap().join("src/kernel/chainparams.cpp")).unwrap();
    for network in Network::ALL {
        let Some((height, hash)) = ChainParams::of(network).assume_valid else { continue };
        let line = format!("consensus.defaultAssumeValid = uint256{{\"{hash}\"}}; // {height}");
        assert!(source.lines().any(|found| found.trim() == line), "{network}: {line}");
    }
}
