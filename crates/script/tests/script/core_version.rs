//! The version of Bitcoin Core, and the parameters that `rules` takes from its source, compared with the
//! sources that are compiled in.

use crate::prelude::*;
use hex_conservative::DisplayHex as _;
use net::seeds::{default_port, dns_seeds};
use rules::{U256, params::BIP34_IMPLIES_BIP30_LIMIT};
use wire::BlockHash;

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

/// What is compared by name.
const NAMES: &str = "\
    BIP34Hash BIP34Height BIP65Height BIP66Height CSVHeight SegwitHeight bin enforce_BIP94 \
    fPowAllowMinDifficultyBlocks fPowNoRetargeting nDefaultPort nMinimumChainWork nPowTargetSpacing \
    nPowTargetTimespan nSubsidyHalvingInterval pchMessageStart powLimit";

/// Returns the value of an assignment, without quotation marks and type, and the comment behind it. Products
/// are computed.
fn value_and_comment(assigned: &str) -> (String, &str) {
    let (text, rest) = assigned.split_once(';').unwrap_or((assigned.trim_end_matches(','), ""));
    let comment = rest.split_once("//").map_or("", |(_, comment)| comment);
    if let Ok(product) = text.split(" * ").map(str::parse::<u32>).product::<Result<u32, _>>() {
        return (product.to_string(), comment);
    }
    let quoted = text.split('"').nth(1).or(text.starts_with("uint256").then_some(""));
    let plain = || text.replace('\'', "").replace("opts.enforce_bip94", "false");
    (quoted.map_or_else(plain, str::to_owned), comment)
}

/// Returns what Core's source states about a network, sorted.
fn in_source(network: Network, source: &str) -> Vec<String> {
    let classes = source.split("Params : public CChainParams");
    let class = classes.skip(1).zip(Network::ALL).find(|(_, of)| *of == network).unwrap().0;
    // What a custom signet has instead.
    let (before, after) = class.split_once("} else {").unwrap_or((class, ""));
    let after = after.split_once("if (options.seeds)").map_or(after, |(_, after)| after);
    let (mut found, mut height) = (Vec::new(), String::new());
    for line in before.lines().chain(after.lines()).map(str::trim) {
        if let Some((name, assigned)) = line.trim_start_matches("consensus.").split_once(" = ") {
            let (value, comment) = value_and_comment(assigned);
            match name {
                ".height" => height = value,
                ".hash_serialized" | ".blockhash" => found.push(format!("{name}={value} {height}")),
                "defaultAssumeValid" => found.push(format!("{name}={value}{comment}")),
                _ if NAMES.split(' ').any(|known| name.split('[').next() == Some(known)) => {
                    found.push(format!("{name}={value}"));
                }
                _ => {}
            }
        } else if let Some((start, quoted)) = line.split_once('"')
            && ["vSeeds.emplace_back(", "uint256{", "assert("].iter().any(|name| start.starts_with(name))
        {
            let statement = quoted.split(" //").next().unwrap().replacen('"', "", 1);
            found.push(format!("{start}{statement}"));
        }
    }
    found.sort_unstable();
    found
}

/// Returns the same of the parameters of `rules` and `net`.
fn ours(network: Network) -> Vec<String> {
    let params = ChainParams::of(network);
    let number = |bytes: U256| BlockHash(bytes.to_le_bytes()).to_string();
    let work = Some(params.minimum_chain_work).filter(|work| *work != U256::ZERO).map(number);
    let assumed = params.assume_valid.map(|(height, hash)| format!("{hash} {height}"));
    let mut all = vec![
        format!("nSubsidyHalvingInterval={}", params.subsidy_halving_interval),
        format!("BIP34Height={}", params.bip34_height),
        format!("BIP34Hash={}", params.bip34_hash.map(|hash| hash.to_string()).unwrap_or_default()),
        format!("BIP65Height={}", params.bip65_height),
        format!("BIP66Height={}", params.bip66_height),
        format!("CSVHeight={}", params.csv_height),
        format!("SegwitHeight={}", params.segwit_height),
        format!("powLimit={}", number(params.pow_limit)),
        format!("nPowTargetTimespan={}", params.pow_target_timespan),
        format!("nPowTargetSpacing={}", params.pow_target_spacing),
        format!("fPowAllowMinDifficultyBlocks={}", params.allow_min_difficulty_blocks),
        format!("enforce_BIP94={}", params.enforce_bip94),
        format!("fPowNoRetargeting={}", params.no_retargeting),
        format!("nMinimumChainWork={}", work.unwrap_or_default()),
        format!("defaultAssumeValid={}", assumed.unwrap_or_default()),
        format!("nDefaultPort={}", default_port(network)),
        format!("assert(consensus.hashGenesisBlock == uint256{{{}}});", params.genesis_hash),
        format!("assert(genesis.hashMerkleRoot == uint256{{{}}});", BlockHash(params.genesis.merkle_root)),
    ];
    match params.signet_challenge {
        Some(challenge) => all.push(format!("bin={}", challenge.to_lower_hex_string())),
        None => all.extend((0..4).map(|at| format!("pchMessageStart[{at}]={:#04x}", params.magic[at]))),
    }
    for pinned in params.assume_utxo {
        let hash = BlockHash(pinned.hash_serialized_3);
        all.push(format!(".hash_serialized={hash} {}", pinned.height));
        all.push(format!(".blockhash={} {}", pinned.block_hash, pinned.height));
    }
    for (hash, flags) in params.script_flag_exceptions {
        let flags = flags.to_string().replace(',', " | SCRIPT_VERIFY_");
        all.push(format!("uint256{{{hash}}}, SCRIPT_VERIFY_{flags});"));
    }
    let dummy = (network == Network::Regtest).then_some(&"dummySeed.invalid.");
    all.extend(dns_seeds(network).iter().chain(dummy).map(|seed| format!("vSeeds.emplace_back({seed});")));
    all.sort_unstable();
    all
}

/// A wrong digit among them would be noticed only at the block to which it belongs, if at all.
#[test]
fn all_chain_parameters_are_those_of_the_sources() {
    let source = fs::read_to_string(core_sources().unwrap().join("src/kernel/chainparams.cpp")).unwrap();
    for network in Network::ALL {
        assert_eq!(ours(network), in_source(network, &source), "{network}");
    }
}

#[test]
fn the_repeated_coinbases_are_those_of_the_sources() {
    let source = fs::read_to_string(core_sources().unwrap().join("src/validation.cpp")).unwrap();
    let main = ChainParams::of(Network::Main);
    for (height, hash) in [main.bip30_exceptions, main.overwritten_coinbases].concat() {
        let [height, hash] = [format!("eight=={height} "), hash.to_string()];
        assert!(source.lines().any(|line| line.contains(&height) && line.contains(&hash)), "{height}");
    }
    assert!(source.contains(&format!("BIP34_IMPLIES_BIP30_LIMIT = {BIP34_IMPLIES_BIP30_LIMIT};")));
}
