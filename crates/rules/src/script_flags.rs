//! Determines the script rules that apply to a block. Bitcoin Core's own code runs the scripts, in another
//! crate.

use crate::params::ChainParams;
use wire::{BlockHash, Height, ScriptFlags};

/// Returns the script rules that apply to the block `hash` at `height` (Core `GetBlockScriptFlags`).
///
/// BIP-0016, BIP-0141 and BIP-0341 apply from the genesis block on, except to the blocks in
/// [`ChainParams::script_flag_exceptions`]; another rule rejects blocks with a witness before
/// [`ChainParams::segwit_height`]. The others apply from their heights on, also to the exceptions.
pub fn script_flags(params: &ChainParams, height: Height, hash: &BlockHash) -> ScriptFlags {
    let rows = [
        (ScriptFlags::DERSIG, params.bip66_height),
        (ScriptFlags::CHECKLOCKTIMEVERIFY, params.bip65_height),
        (ScriptFlags::CHECKSEQUENCEVERIFY, params.csv_height),
        (ScriptFlags::NULLDUMMY, params.segwit_height),
    ];
    let active = rows.into_iter().filter(|(_, from)| height >= *from);
    active.fold(flags_from_genesis(params, hash), |flags, (flag, _)| flags.union(flag))
}

/// Those of the script rules that apply to a block at any height, unless it is an exception.
pub(crate) fn flags_from_genesis(params: &ChainParams, hash: &BlockHash) -> ScriptFlags {
    let exception = params.script_flag_exceptions.iter().find(|(exempt, _)| exempt == hash);
    let unless_exempt = ScriptFlags::P2SH.union(ScriptFlags::WITNESS).union(ScriptFlags::TAPROOT);
    exception.map_or(unless_exempt, |(_, flags)| *flags)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Network;

    fn flags(network: Network, height: u32) -> String {
        script_flags(ChainParams::of(network), Height(height), &BlockHash([7; 32])).to_string()
    }

    #[test]
    fn forks_apply_from_their_heights_on() {
        let always = "P2SH,WITNESS,TAPROOT";
        let der = "P2SH,DERSIG,WITNESS,TAPROOT";
        let locks = "P2SH,DERSIG,CHECKLOCKTIMEVERIFY,WITNESS,TAPROOT";
        let sequences = "P2SH,DERSIG,CHECKLOCKTIMEVERIFY,CHECKSEQUENCEVERIFY,WITNESS,TAPROOT";
        let all = ScriptFlags::all().to_string();
        for (network, [bip66, bip65, csv, segwit]) in [
            (Network::Main, [363_725, 388_381, 419_328, 481_824]),
            (Network::Test, [330_776, 581_885, 770_112, 834_624]),
        ] {
            assert_eq!(flags(network, 0), always);
            for (height, before, from) in [
                (bip66, always, der),
                (bip65, der, locks),
                (csv, locks, sequences),
                (segwit, sequences, &*all),
            ] {
                assert_eq!(flags(network, height - 1), before, "{network} {height}");
                assert_eq!(flags(network, height), from, "{network} {height}");
            }
        }
        for network in [Network::Testnet4, Network::Signet, Network::Regtest] {
            assert_eq!(flags(network, 1), all, "{network}");
        }
        assert_eq!(flags(Network::Signet, 0), always);
        // Regtest has segwit, and with it BIP-0147, from the genesis block on.
        assert_eq!(flags(Network::Regtest, 0), "P2SH,NULLDUMMY,WITNESS,TAPROOT");
    }

    /// Covers blocks 170060 and 692261 of mainnet, and the testnet3 block that violates BIP-0016.
    #[test]
    fn exceptions_lack_exactly_their_rules() {
        let older = "P2SH,DERSIG,NULLDUMMY,CHECKLOCKTIMEVERIFY,CHECKSEQUENCEVERIFY,WITNESS";
        for (network, height, hash, expected) in [
            (
                Network::Main,
                170_060,
                "00000000000002dc756eebf4f49723ed8d30cc28a5f108eb94b1ba88ac4f9c22",
                "NONE",
            ),
            (
                Network::Main,
                692_261,
                "0000000000000000000f14c35b2d841e986ab5441de8c585d5ffe55ea1e395ad",
                older,
            ),
            (Network::Test, 514, "00000000dd30457c001f4095d208cc1296b0eed002427aa599874af7a432b105", "NONE"),
        ] {
            let params = ChainParams::of(network);
            let hash = hash.parse().unwrap();
            let found = script_flags(params, Height(height), &hash).to_string();
            assert_eq!(found, expected, "{network} {height}");
        }
        // An exception of one network is not one of another, and later forks apply to exceptions as well.
        let hash = "00000000000002dc756eebf4f49723ed8d30cc28a5f108eb94b1ba88ac4f9c22".parse().unwrap();
        let on = |network, height| script_flags(ChainParams::of(network), Height(height), &hash).to_string();
        assert_eq!(on(Network::Test, 170_060), "P2SH,WITNESS,TAPROOT");
        assert_eq!(on(Network::Main, 363_725), "DERSIG");
    }
}
