//! What `utxo scan` looks for: the scripts that addresses and output descriptors stand for.
//!
//! The crate `miniscript` parses descriptors. What it does not know is done here: `addr`, `raw`, `combo`, and
//! the description of a script that Core gives in its results (`InferDescriptor`).

use bitcoin::{
    Address, PublicKey, Script, ScriptBuf, XOnlyPublicKey,
    hex::{DisplayHex as _, FromHex as _},
    key::Secp256k1,
    secp256k1::VerifyOnly,
};
use engine::{Error, Network};
use miniscript::{
    Descriptor, Translator,
    bitcoin::hashes::{Hash as _, hash160},
    descriptor::{
        DefiniteDescriptorKey, DescriptorPublicKey, SinglePub, SinglePubKey, XKeyNetwork, checksum,
    },
    translate_hash_clone,
};
use std::ops::RangeInclusive;
use tables::script_type::{self, ScriptType};

/// A script to look for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    pub script: ScriptBuf,
    /// Its descriptor, as Core describes it.
    pub descriptor: String,
}

/// Returns the scripts that `text` stands for: an address, a script in hex or a descriptor, whose keys with
/// `/*` are derived at the indices of `range`.
///
/// # Errors
/// [`engine::ErrorKind::Usage`] if it is none of these, for another network, or not supported.
pub fn parse(text: &str, chain: Network, range: &RangeInclusive<u32>) -> Result<Vec<Wanted>, Error> {
    let parser = Parser { text, chain, range, secp: Secp256k1::verification_only() };
    if !text.contains('(') {
        let script = match Vec::from_hex(text) {
            Ok(script) => ScriptBuf::from_bytes(script),
            Err(_) => parser.address(text)?,
        };
        return Ok(vec![parser.plain(script)]);
    }
    let body = checksum::verify_checksum(text).map_err(|error| parser.flaw(error))?;
    let argument = |name: &str| body.strip_prefix(name)?.strip_prefix('(')?.strip_suffix(')');
    if let Some(address) = argument("addr") {
        Ok(vec![parser.plain(parser.address(address)?)])
    } else if let Some(hex) = argument("raw") {
        let script = Vec::from_hex(hex).map_err(|error| parser.flaw(error))?;
        Ok(vec![parser.plain(ScriptBuf::from_bytes(script))])
    } else if let Some(key) = argument("combo") {
        parser.combo(key)
    } else {
        parser.descriptor(body)
    }
}

struct Parser<'a> {
    text: &'a str,
    chain: Network,
    range: &'a RangeInclusive<u32>,
    secp: Secp256k1<VerifyOnly>,
}

impl Parser<'_> {
    fn flaw(&self, flaw: impl std::fmt::Display) -> Error {
        Error::usage(format!("{}: {flaw}", self.text))
    }

    fn address(&self, text: &str) -> Result<ScriptBuf, Error> {
        let address = text.parse::<Address<_>>().map_err(|error| {
            self.flaw(format!("not an address, a script in hex or a descriptor ({error})"))
        })?;
        let address = address.require_network(script_type::network(self.chain));
        address
            .map(|address| address.script_pubkey())
            .map_err(|_| self.flaw(format!("an address of another network; the chain is {}", self.chain)))
    }

    /// Describes a script about which nothing else is known.
    fn plain(&self, script: ScriptBuf) -> Wanted {
        let descriptor = with_checksum(&describe(&script, self.chain));
        Wanted { script, descriptor }
    }

    /// Returns the scripts of `combo(KEY)`: P2PK, P2PKH and, for compressed keys, P2WPKH and P2SH-P2WPKH.
    fn combo(&self, key: &str) -> Result<Vec<Wanted>, Error> {
        let mut all = self.descriptor(&format!("pk({key})"))?;
        // The length and CHECKSIG frame the key.
        let is_compressed = all.first().is_some_and(|first| first.script.len() == 35);
        all.extend(self.descriptor(&format!("pkh({key})"))?);
        if is_compressed {
            all.extend(self.descriptor(&format!("wpkh({key})"))?);
            all.extend(self.descriptor(&format!("sh(wpkh({key}))"))?);
        }
        Ok(all)
    }

    fn descriptor(&self, body: &str) -> Result<Vec<Wanted>, Error> {
        let unsupported = ["rawtr(", "musig(", "sortedmulti_a("].into_iter().find(|name| body.contains(name));
        if let Some(name) = unsupported {
            let name = name.trim_end_matches('(');
            return Err(self.flaw(format!(
                "{name}() is not supported; bitcoind's deriveaddresses lists its addresses, and these can be \
                 scanned for"
            )));
        }
        let signing = Secp256k1::signing_only();
        let (descriptor, private) =
            Descriptor::parse_descriptor(&signing, body).map_err(|error| self.flaw(error))?;
        if !private.is_empty() {
            // The error must not repeat the key.
            let detail = "a descriptor with a private key, which others could see in the list of processes; \
                          give the public key";
            return Err(Error::usage(detail));
        }
        descriptor.sanity_check().map_err(|error| self.flaw(error))?;
        let is_main = self.chain == Network::Main;
        match descriptor.xkey_network() {
            XKeyNetwork::NoXKeys => {}
            XKeyNetwork::Single(network) if network.is_mainnet() == is_main => {}
            _ => return Err(self.flaw(format!("a key of another network; the chain is {}", self.chain))),
        }
        let mut all = Vec::new();
        for descriptor in descriptor.into_single_descriptors().map_err(|error| self.flaw(error))? {
            let range = if descriptor.has_wildcard() { self.range.clone() } else { 0..=0 };
            for index in range {
                let definite = descriptor.at_derivation_index(index).map_err(|error| self.flaw(error))?;
                all.push(self.derived(&definite)?);
            }
        }
        Ok(all)
    }

    /// Returns the script of a descriptor without wildcards, and describes it as Core does: with plain keys
    /// and where they come from.
    fn derived(&self, descriptor: &Descriptor<DefiniteDescriptorKey>) -> Result<Wanted, Error> {
        let script = descriptor.derived_descriptor(&self.secp).script_pubkey();
        let is_taproot = matches!(descriptor, Descriptor::Tr(_));
        let mut plain_keys = PlainKeys { secp: &self.secp, is_taproot };
        let plain = descriptor.translate_pk(&mut plain_keys);
        let plain = plain.map_err(|error| self.flaw(error.into_outer_err()))?;
        // Core writes hardened steps with an h.
        let descriptor = with_checksum(&format!("{plain:#}").replace('\'', "h"));
        Ok(Wanted { script, descriptor })
    }
}

/// Replaces derived keys by plain ones, with their origin.
struct PlainKeys<'a> {
    secp: &'a Secp256k1<VerifyOnly>,
    is_taproot: bool,
}

impl Translator<DefiniteDescriptorKey> for PlainKeys<'_> {
    type TargetPk = DescriptorPublicKey;
    type Error = std::convert::Infallible;

    fn pk(&mut self, key: &DefiniteDescriptorKey) -> Result<DescriptorPublicKey, Self::Error> {
        let public = key.derive_public_key(self.secp);
        let fingerprint = match key.as_descriptor_public_key() {
            DescriptorPublicKey::Single(SinglePub { origin: None, .. }) => {
                let [a, b, c, d, ..] = hash160::Hash::hash(&public.to_bytes()).to_byte_array();
                [a, b, c, d].into()
            }
            other => other.master_fingerprint(),
        };
        let origin = Some((fingerprint, key.full_derivation_path().unwrap_or_default()));
        let key = match self.is_taproot {
            true => SinglePubKey::XOnly(public.into()),
            false => SinglePubKey::FullKey(public),
        };
        Ok(DescriptorPublicKey::Single(SinglePub { origin, key }))
    }

    translate_hash_clone!(DefiniteDescriptorKey);
}

fn with_checksum(descriptor: &str) -> String {
    let mut engine = checksum::Engine::new();
    match engine.input(descriptor) {
        Ok(()) => format!("{descriptor}#{}", engine.checksum()),
        Err(_) => descriptor.to_owned(),
    }
}

/// Returns the descriptor of a script about which nothing else is known (Core `InferDescriptor` without
/// keys).
fn describe(script: &Script, chain: Network) -> String {
    let bytes = script.as_bytes();
    let key = |key: &[u8]| PublicKey::from_slice(key).ok().map(|_| key.to_lower_hex_string());
    let of_keys = match ScriptType::of(script) {
        ScriptType::P2pk => bytes.get(1..bytes.len() - 1).and_then(key).map(|key| format!("pk({key})")),
        ScriptType::P2tr => bytes
            .get(2..)
            .filter(|key| XOnlyPublicKey::from_slice(key).is_ok())
            .map(|key| format!("rawtr({})", key.to_lower_hex_string())),
        ScriptType::Multisig => script_type::multisig(script).and_then(|(signatures, keys)| {
            let keys: Option<Vec<String>> = keys.into_iter().map(key).collect();
            Some(format!("multi({signatures},{})", keys?.join(",")))
        }),
        _ => None,
    };
    let address = || script_type::address(script, chain).map(|address| format!("addr({address})"));
    of_keys.or_else(address).unwrap_or_else(|| format!("raw({})", bytes.to_lower_hex_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "0279be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798";
    const XPUB: &str = "xpub6BgBgsespWvERF3LHQu6CnqdvfEvtMcQjYrcRzx53QJjSxarj2afYWcLteoGVky7D3UKDP9Qyr\
                        LprQ3VCECoY49yfdDEHGCtMMj92pReUsQ";

    fn of(text: &str) -> Vec<Wanted> {
        parse(text, Network::Main, &(0..=2)).unwrap_or_else(|error| panic!("{error}"))
    }

    fn addresses(text: &str) -> Vec<String> {
        let address = |wanted: Wanted| script_type::address(&wanted.script, Network::Main);
        of(text).into_iter().map(|wanted| address(wanted).unwrap_or_default()).collect()
    }

    #[test]
    fn a_combo_is_what_a_key_can_be_paid_by() {
        let expected = [
            "",
            "1BgGZ9tcN4rm9KBzDn7KprQz87SZ26SAMH",
            "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4",
            "3JvL6Ymt8MVWiCNHC7oWU6nLeHNJKLZGLN",
        ];
        assert_eq!(addresses(&format!("combo({KEY})")), expected);
        let uncompressed = "0479be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798\
                            483ada7726a3c4655da4fbfc0e1108a8fd17b448a68554199c47d08ffb10d4b8";
        assert_eq!(of(&format!("combo({uncompressed})")).len(), 2, "witnesses have compressed keys only");
    }

    #[test]
    fn wildcards_are_derived_at_each_index() {
        // The first addresses of BIP-0086, and Core's description of the first.
        let all = of(&format!("tr({XPUB}/0/*)"));
        assert_eq!(all.len(), 3);
        let first = "bc1p5cyxnuxmeuwuvkwfem96lqzszd02n6xdcjrs20cac6yqjjwudpxqkedrcr";
        assert_eq!(addresses(&format!("tr({XPUB}/0/*)"))[0], first);
        let key = "/0/0]cc8a4bc64d897bddc5fbc2f670f7a8ba0b386779106cf1223c6fc5d7cd6fc115)#";
        assert!(all[0].descriptor.contains(key), "{}", all[0].descriptor);
        let origin = of(&format!("wpkh([d34db33f/84'/0h/0']{XPUB}/<0;1>/*)"));
        assert_eq!(origin.len(), 6, "two paths at three indices");
        let text = &origin[4].descriptor;
        assert!(text.starts_with("wpkh([d34db33f/84h/0h/0h/1/1]"), "{text}");
    }

    #[test]
    fn scripts_and_addresses_are_described_as_core_does() {
        let x = &KEY[2..];
        for (text, descriptor) in [
            ("raw(deadbeef)#89f8spxm", "raw(deadbeef)#89f8spxm".to_owned()),
            ("deadbeef", "raw(deadbeef)#89f8spxm".to_owned()),
            (&format!("21{KEY}ac"), with_checksum(&format!("pk({KEY})"))),
            (&format!("5120{x}"), with_checksum(&format!("rawtr({x})"))),
            (&format!("5121{KEY}51ae"), with_checksum(&format!("multi(1,{KEY})"))),
            (
                "addr(1BgGZ9tcN4rm9KBzDn7KprQz87SZ26SAMH)",
                with_checksum("addr(1BgGZ9tcN4rm9KBzDn7KprQz87SZ26SAMH)"),
            ),
        ] {
            assert_eq!(of(text)[0].descriptor, descriptor);
        }
    }

    #[test]
    fn hardened_steps_of_public_keys_are_refused() {
        let text = format!("wpkh({XPUB}/*h)");
        let flaw = parse(&text, Network::Main, &(0..=2)).unwrap_err().to_string();
        assert!(flaw.starts_with(&text) && flaw.contains("ardened"), "{flaw}");
    }
}
