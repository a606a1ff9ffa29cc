//! What output scripts are called, and the addresses that stand for them.

use bitcoin::{
    Address, Script,
    opcodes::all::{OP_CHECKMULTISIG, OP_PUSHNUM_1, OP_PUSHNUM_16},
    script::Instruction,
};
use engine::Network;
use schemars::JsonSchema;
use serde::Serialize;

/// Maximum number of keys of a multisig (Core `MAX_PUBKEYS_PER_MULTISIG`).
const MAX_KEYS: usize = 20;

engine::named! {
/// The type of an output script. Coins with `OP_RETURN` do not exist.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ScriptType {
    P2pk = "p2pk",
    P2pkh = "p2pkh",
    P2sh = "p2sh",
    P2wpkh = "p2wpkh",
    P2wsh = "p2wsh",
    P2tr = "p2tr",
    /// Pay to anchor.
    P2a = "p2a",
    Multisig = "multisig",
    /// Any other, also witness programs of later versions.
    Other = "other",
}
}

impl ScriptType {
    /// Returns the type of a script, by the rules of Core's `Solver`.
    pub fn of(script: &Script) -> Self {
        match script.as_bytes() {
            _ if script.is_p2pkh() => Self::P2pkh,
            _ if script.is_p2sh() => Self::P2sh,
            _ if script.is_p2wpkh() => Self::P2wpkh,
            _ if script.is_p2wsh() => Self::P2wsh,
            _ if script.is_p2tr() => Self::P2tr,
            [0x51, 2, 0x4e, 0x73] => Self::P2a,
            [length @ (33 | 65), key @ .., 0xac]
                if key.len() == usize::from(*length) && has_key_form(key) =>
            {
                Self::P2pk
            }
            _ if multisig(script).is_some() => Self::Multisig,
            _ => Self::Other,
        }
    }
}

/// Returns whether a public key has the length that its first byte announces (Core `CPubKey::ValidSize`).
fn has_key_form(key: &[u8]) -> bool {
    matches!((key.first(), key.len()), (Some(2 | 3), 33) | (Some(4 | 6 | 7), 65))
}

/// Returns the number of signatures and the keys of a bare multisig (Core `MatchMultisig`).
pub fn multisig(script: &Script) -> Option<(usize, Vec<&[u8]>)> {
    let mut instructions = script.instruction_indices().map_while(Result::ok);
    // Keys may be pushed by any instruction, numbers only by the shortest.
    let number = |(at, instruction)| number(*script.as_bytes().get(at)?, &instruction);
    let signatures = number(instructions.next()?)?;
    let mut keys = Vec::new();
    let count = loop {
        match instructions.next()? {
            (_, Instruction::PushBytes(key)) if has_key_form(key.as_bytes()) => keys.push(key.as_bytes()),
            other => break number(other)?,
        }
    };
    let is_end = instructions.next()?.1 == Instruction::Op(OP_CHECKMULTISIG)
        && script.as_bytes().last() == Some(&OP_CHECKMULTISIG.to_u8())
        && instructions.next().is_none();
    let is_possible = (1..=count).contains(&signatures) && count <= MAX_KEYS && keys.len() == count;
    (is_end && is_possible).then_some((signatures, keys))
}

/// Returns the number that an instruction with this first byte pushes, as far as it can be one of a multisig.
fn number(opcode: u8, instruction: &Instruction<'_>) -> Option<usize> {
    match instruction {
        Instruction::Op(op) if (OP_PUSHNUM_1.to_u8()..=OP_PUSHNUM_16.to_u8()).contains(&op.to_u8()) => {
            Some(usize::from(op.to_u8() - OP_PUSHNUM_1.to_u8()) + 1)
        }
        // Smaller numbers have an instruction of their own.
        Instruction::PushBytes(push) => match push.as_bytes() {
            [number @ 17..=20] if opcode == 1 => Some((*number).into()),
            _ => None,
        },
        Instruction::Op(_) => None,
    }
}

/// Returns the network as the crate `bitcoin` names it.
pub const fn network(network: Network) -> bitcoin::Network {
    match network {
        Network::Main => bitcoin::Network::Bitcoin,
        Network::Test => bitcoin::Network::Testnet,
        Network::Testnet4 => bitcoin::Network::Testnet4,
        Network::Signet => bitcoin::Network::Signet,
        Network::Regtest => bitcoin::Network::Regtest,
    }
}

pub fn address(script: &Script, chain: Network) -> Option<String> {
    Address::from_script(script, network(chain)).ok().map(|address| address.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use hex_conservative::decode_to_vec;

    const KEY: &str = "0279be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798";

    #[test]
    fn scripts_have_the_types_and_addresses_that_core_gives_them() {
        let key = KEY;
        let hash = "751e76e8199196d454941c45d1b3a323f1433bd6";
        let uncompressed = format!("04{}{}", &KEY[2..], "11".repeat(32));
        for (hex, name, address) in [
            (format!("21{key}ac"), "p2pk", None),
            (format!("41{uncompressed}ac"), "p2pk", None),
            (format!("2104{}ac", &key[2..]), "other", None),
            (format!("76a914{hash}88ac"), "p2pkh", Some("1BgGZ9tcN4rm9KBzDn7KprQz87SZ26SAMH")),
            (format!("a914{hash}87"), "p2sh", Some("3CNHUhP3uyB9EUtRLsmvFUmvGdjGdkTxJw")),
            (format!("0014{hash}"), "p2wpkh", Some("bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4")),
            (
                "00201863143c14c5166804bd19203356da136c985678cd4d27a1b8c6329604903262".to_owned(),
                "p2wsh",
                Some("bc1qrp33g0q5c5txsp9arysrx4k6zdkfs4nce4xj0gdcccefvpysxf3qccfmv3"),
            ),
            (
                format!("5120{}", &key[2..]),
                "p2tr",
                Some("bc1p0xlxvlhemja6c4dqv22uapctqupfhlxm9h8z3k2e72q4k9hcz7vqzk5jj0"),
            ),
            ("51024e73".to_owned(), "p2a", Some("bc1pfeessrawgf")),
            (format!("5120{}00", &key[2..]), "other", None),
            ("6002751e".to_owned(), "other", Some("bc1sw50qgdz25j")),
            (format!("5121{key}51ae"), "multisig", None),
            (format!("51{}0114ae", format!("21{key}").repeat(20)), "multisig", None),
            (format!("51{}4c0114ae", format!("21{key}").repeat(20)), "other", None),
            (format!("514c21{key}51ae"), "multisig", None),
            (format!("514d2100{key}51ae"), "multisig", None),
            (format!("514e21000000{key}51ae"), "multisig", None),
            (format!("5121{key}4c21{key}52ae"), "multisig", None),
            (format!("4c010121{key}51ae"), "other", None),
            (format!("51{}0115ae", format!("21{key}").repeat(21)), "other", None),
            (format!("5221{key}51ae"), "other", None),
            (format!("5121{key}52ae"), "other", None),
            (format!("5121{key}51ae51"), "other", None),
            (format!("5120{key}51ae"), "other", None),
            ("51".to_owned(), "other", None),
            (String::new(), "other", None),
        ] {
            let bytes = decode_to_vec(&hex).unwrap();
            let script = Script::from_bytes(&bytes);
            let found = (ScriptType::of(script).name(), self::address(script, Network::Main));
            assert_eq!(found, (name, address.map(str::to_owned)), "{hex}");
        }
    }

    #[test]
    fn addresses_name_their_network() {
        let script = decode_to_vec("0014751e76e8199196d454941c45d1b3a323f1433bd6").unwrap();
        let of = |chain| address(Script::from_bytes(&script), chain).unwrap();
        assert!(of(Network::Regtest).starts_with("bcrt1q") && of(Network::Signet).starts_with("tb1q"));
        assert_eq!((of(Network::Test), of(Network::Testnet4)), (of(Network::Signet), of(Network::Signet)));
    }
}
