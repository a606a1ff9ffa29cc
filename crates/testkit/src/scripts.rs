//! The output scripts of generated coins, and how each is satisfied.
//!
//! A pool of 14 kinds of scripts with 64 keys each is computed once per seed; a planned coin then names its
//! script in two bytes. How an input satisfies a script is data: the items of its signature script and of its
//! witness, each either fixed bytes or a signature.

use crate::{
    keys::{Key, Signer, random_key},
    prelude::*,
};
use bitcoin::{
    hashes::Hash,
    key::{Keypair, TapTweak},
    opcodes::all::{OP_CHECKSIG, OP_DROP, OP_PUSHNUM_1, OP_RETURN},
    script::Script,
    sighash::{EcdsaSighashType, Prevouts, SighashCache, TapSighashType},
    taproot::{LeafVersion, TapLeafHash, TaprootBuilder},
};

/// Number of keys in a pool.
pub const KEYS: u16 = 64;

/// The usual length of an ECDSA signature with its hash type, in bytes.
const ECDSA_LEN: usize = 71;
/// Length of a BIP-0340 signature, in bytes.
const SCHNORR_LEN: usize = 64;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The kind of a coin's script.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Kind { $($(#[$doc])* $name,)* }
        impl Kind {
            /// All kinds, in pool order.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
        }
    };
}

kinds! {
    /// `<key> CHECKSIG`
    P2pk,
    /// Like `P2pk`, with a 65-byte key.
    P2pkUncompressed,
    /// Pay to public key hash.
    P2pkh,
    /// Like `P2pkh`, with a 65-byte key.
    P2pkhUncompressed,
    /// 2 of 3 multisig within P2SH.
    P2shMultisig,
    /// P2WPKH within P2SH.
    P2shP2wpkh,
    /// P2WSH (2 of 3 multisig) within P2SH.
    P2shP2wsh,
    /// Bare multisig, 1 of 2 or 2 of 3.
    Multisig,
    /// Witness version 0, key hash.
    P2wpkh,
    /// Witness version 0, script hash: 2 of 3 multisig.
    P2wsh,
    /// Taproot, spent through the key path.
    P2trKey,
    /// Taproot, spent through one of two leaves.
    P2trScript,
    /// `TRUE`: anyone can spend it.
    Anyone,
    /// Pay to anchor: `1 <4e73>`.
    Anchor,
}

/// Identifies a script in a few bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScriptRef {
    /// The pool's script number `kind * KEYS + key`.
    Pool(u16),
    /// A non-standard spendable script of about `len` bytes: pushes that are dropped, then `TRUE`.
    Bulky {
        /// Length in bytes, 40 to 10,000.
        len: u16,
        /// Determines the pushed bytes.
        salt: u16,
    },
    /// `RETURN` and a push of `len` bytes: not spendable.
    Data {
        /// Number of bytes pushed; if 0, there is no push.
        len: u16,
        /// Determines the pushed bytes.
        salt: u16,
    },
}

impl ScriptRef {
    /// The pool's script of a kind, with a key.
    pub const fn new(kind: Kind, key: u16) -> Self {
        Self::Pool(kind as u16 * KEYS + key % KEYS)
    }
}

/// An item of what satisfies a script.
#[derive(Clone, Debug)]
pub enum Item {
    /// The same bytes in each input.
    Bytes(Vec<u8>),
    Signature(Key),
}

/// How the digest that an input signs is computed.
#[derive(Clone, Debug)]
enum Scheme {
    Nothing,
    Legacy(ScriptBuf),
    SegwitV0(ScriptBuf),
    TaprootKey,
    TaprootLeaf(TapLeafHash),
}

#[derive(Clone, Debug)]
pub struct PoolScript {
    pub script: ScriptBuf,
    /// The script in the compressed form of coins.
    pub compressed: Vec<u8>,
    scheme: Scheme,
    /// Length of a signature, at most.
    signature_len: usize,
    script_sig: Vec<Item>,
    witness: Vec<Item>,
    /// Upper bound of the weight of an input that spends it, without marker and flag.
    pub input_weight: u64,
    /// Signature operation cost of an input that spends it.
    pub input_sigops: u64,
    /// Signature operation cost of the output itself.
    pub output_sigops: u64,
}

impl PoolScript {
    fn new(script: ScriptBuf, scheme: Scheme, script_sig: Vec<Item>, witness: Vec<Item>) -> Self {
        let signature_len = match scheme {
            Scheme::TaprootKey | Scheme::TaprootLeaf(_) => SCHNORR_LEN,
            _ => ECDSA_LEN,
        };
        let len = |item: &Item| match item {
            Item::Bytes(bytes) => bytes.len() as u64,
            Item::Signature(_) => signature_len as u64,
        };
        // The push opcode is as long as a CompactSize, except for lengths from 76 on.
        let push = |item: &Item| len(item) + 1 + u64::from(len(item) > 75) + u64::from(len(item) > 255);
        let sig_bytes: u64 = script_sig.iter().map(push).sum();
        let sig_len = if sig_bytes < 0xfd { 1 } else { 3 };
        let witness_bytes: u64 = witness.iter().map(|item| len(item) + 1).sum();
        Self {
            compressed: compressed(&script),
            input_weight: (40 + sig_len + sig_bytes) * 4 + witness_bytes + 1,
            input_sigops: 0,
            output_sigops: 4 * script.count_sigops_legacy() as u64,
            script,
            scheme,
            signature_len,
            script_sig,
            witness,
        }
    }

    /// A script that is its own signed code, and whose signature script satisfies it.
    fn legacy(script: ScriptBuf, script_sig: Vec<Item>) -> Self {
        Self::new(script.clone(), Scheme::Legacy(script), script_sig, vec![])
    }

    /// A script that nothing has to satisfy.
    fn free(script: ScriptBuf) -> Self {
        Self::new(script, Scheme::Nothing, vec![], vec![])
    }

    fn with_input_sigops(self, input_sigops: u64) -> Self {
        Self { input_sigops, ..self }
    }
}

fn compressed(script: &Script) -> Vec<u8> {
    let mut out = compressed_output(Sats(0), script.as_bytes());
    out.remove(0);
    out
}

/// All scripts of a seed, with what it takes to spend them.
#[derive(Debug)]
pub struct ScriptPool {
    scripts: Vec<PoolScript>,
    by_script: HashMap<ScriptBuf, u16>,
    signer: Option<Signer>,
}

/// A coin that an input spends.
#[derive(Clone, Copy, Debug)]
pub struct Prevout {
    pub amount: u64,
    pub script: ScriptRef,
}

impl Prevout {
    /// Returns the salt of an input's placeholders.
    const fn salt(&self, input: usize) -> u16 {
        self.amount as u16 ^ input as u16
    }
}

impl ScriptPool {
    /// Computes the pool. If not `signed`, inputs get placeholders instead of signatures: different bytes of
    /// the same length, for chains whose scripts are never run.
    pub fn new(seed: u64, signed: bool) -> Self {
        let mut rng = Rng::new(seed, "keys");
        let keys: Vec<Key> = (0..KEYS).map(|_| random_key(&mut rng)).collect();
        let kinds = Kind::ALL.iter().flat_map(|kind| (0..KEYS as usize).map(|at| (*kind, at)));
        let scripts: Vec<PoolScript> = kinds.map(|(kind, at)| pool_script(kind, &keys, at)).collect();
        let by_script =
            scripts.iter().enumerate().map(|(at, entry)| (entry.script.clone(), at as u16)).collect();
        Self { scripts, by_script, signer: signed.then(|| Signer::new(seed)) }
    }

    pub fn entry(&self, number: u16) -> &PoolScript {
        &self.scripts[number as usize]
    }

    /// Returns whether an input that spends the script has a witness.
    pub fn has_witness(&self, script: ScriptRef) -> bool {
        matches!(script, ScriptRef::Pool(number) if !self.entry(number).witness.is_empty())
    }

    /// Returns the reference to a script of the pool. `None` for all other scripts.
    pub fn find(&self, script: &Script) -> Option<ScriptRef> {
        self.by_script.get(script).map(|number| ScriptRef::Pool(*number))
    }

    pub fn script(&self, script: ScriptRef) -> ScriptBuf {
        match script {
            ScriptRef::Pool(number) => self.entry(number).script.clone(),
            ScriptRef::Bulky { len, salt } => bulky(len.into(), salt),
            ScriptRef::Data { len, salt } => {
                let data = PushBytesBuf::try_from(noise(salt, len.into())).expect("64 KiB can be pushed");
                let builder = Builder::new().push_opcode(OP_RETURN);
                if len == 0 { builder } else { builder.push_slice(data) }.into_script()
            }
        }
    }

    /// Appends the script in the compressed form of coins.
    pub fn write_compressed(&self, script: ScriptRef, out: &mut Vec<u8>) {
        match script {
            ScriptRef::Pool(number) => out.extend_from_slice(&self.entry(number).compressed),
            other => out.extend(compressed(&self.script(other))),
        }
    }

    /// Signs all inputs of `tx`, which spend `prevouts` in the same order, or gives them placeholders.
    ///
    /// # Panics
    /// If there are fewer prevouts than inputs.
    pub fn satisfy(&self, tx: &mut Transaction, prevouts: &[Prevout]) {
        let mut satisfied: Vec<(ScriptBuf, Witness)> = Vec::with_capacity(prevouts.len());
        {
            let mut digests = Digests::new(self, tx, prevouts);
            for (input, prevout) in prevouts.iter().enumerate() {
                let ScriptRef::Pool(number) = prevout.script else {
                    satisfied.push(Default::default());
                    continue;
                };
                let entry = self.entry(number);
                let mut item = |item: &Item| match item {
                    Item::Bytes(bytes) => bytes.clone(),
                    Item::Signature(_) if self.signer.is_none() => {
                        let mut bytes = noise(prevout.salt(input), entry.signature_len);
                        // As in DER.
                        bytes[0] = 0x30;
                        bytes
                    }
                    Item::Signature(key) => digests.signature(input, prevout.amount, &entry.scheme, key),
                };
                let mut script_sig = Builder::new();
                for push in &entry.script_sig {
                    let bytes = PushBytesBuf::try_from(item(push)).expect("items are short");
                    script_sig = script_sig.push_slice(bytes);
                }
                let mut witness = Witness::new();
                for push in &entry.witness {
                    witness.push(item(push));
                }
                satisfied.push((script_sig.into_script(), witness));
            }
        }
        for (input, (script_sig, witness)) in tx.input.iter_mut().zip(satisfied) {
            input.script_sig = script_sig;
            input.witness = witness;
        }
    }
}

/// Signs the inputs of one transaction, caching the parts of the digests that they share.
struct Digests<'a> {
    pool: &'a ScriptPool,
    prevouts: &'a [Prevout],
    cache: SighashCache<&'a Transaction>,
    /// The spent outputs; filled for the first taproot input.
    outputs: Vec<TxOut>,
}

impl<'a> Digests<'a> {
    fn new(pool: &'a ScriptPool, tx: &'a Transaction, prevouts: &'a [Prevout]) -> Self {
        Self { pool, prevouts, cache: SighashCache::new(tx), outputs: Vec::new() }
    }

    fn signature(&mut self, input: usize, amount: u64, scheme: &Scheme, key: &Key) -> Vec<u8> {
        let taproot = matches!(scheme, Scheme::TaprootKey | Scheme::TaprootLeaf(_));
        let signer = self.pool.signer.as_ref().expect("only pools that sign are asked to");
        if taproot && self.outputs.is_empty() {
            self.outputs = self
                .prevouts
                .iter()
                .map(|prevout| TxOut {
                    value: Amount::from_sat(prevout.amount),
                    script_pubkey: self.pool.script(prevout.script),
                })
                .collect();
        }
        let all = Prevouts::All(&self.outputs);
        // Rare hash types, whose digests are computed differently.
        let ty = match amount % 64 {
            1 => EcdsaSighashType::AllPlusAnyoneCanPay,
            2 => EcdsaSighashType::None,
            _ => EcdsaSighashType::All,
        };
        let cache = &mut self.cache;
        let digest = match scheme {
            Scheme::Nothing => unreachable!("nothing to sign"),
            Scheme::Legacy(code) => cache
                .legacy_signature_hash(input, code, ty.to_u32())
                .expect("the input exists")
                .to_byte_array(),
            Scheme::SegwitV0(code) => cache
                .p2wsh_signature_hash(input, code, Amount::from_sat(amount), ty)
                .expect("the input exists")
                .to_byte_array(),
            Scheme::TaprootKey => cache
                .taproot_key_spend_signature_hash(input, &all, TapSighashType::Default)
                .expect("the input exists")
                .to_byte_array(),
            Scheme::TaprootLeaf(leaf) => cache
                .taproot_script_spend_signature_hash(input, &all, *leaf, TapSighashType::Default)
                .expect("the input exists")
                .to_byte_array(),
        };
        if taproot {
            return signer.schnorr(key, &digest);
        }
        let mut signature = signer.ecdsa(key, &digest);
        signature.push(ty.to_u32() as u8);
        signature
    }
}

fn multisig(required: i64, keys: &[Key]) -> ScriptBuf {
    let keys: Vec<_> = keys.iter().map(|key| bitcoin::PublicKey::new(key.public)).collect();
    let builder = keys.iter().fold(Builder::new().push_int(required), |b, key| b.push_key(key));
    builder.push_int(keys.len() as i64).push_opcode(bitcoin::opcodes::all::OP_CHECKMULTISIG).into_script()
}

fn pool_script(kind: Kind, keys: &[Key], at: usize) -> PoolScript {
    let key = keys[at];
    let three: Vec<Key> = (0..3).map(|step| keys[(at + step) % keys.len()]).collect();
    let compressed = bitcoin::PublicKey::new(key.public);
    let public = match kind {
        Kind::P2pkUncompressed | Kind::P2pkhUncompressed => bitcoin::PublicKey::new_uncompressed(key.public),
        _ => compressed,
    };
    let sig = Item::Signature;
    let bytes = |script: &Script| Item::Bytes(script.to_bytes());
    // The dummy item before the signatures of a CHECKMULTISIG.
    let dummy = || Item::Bytes(Vec::new());
    let redeem = multisig(2, &three);
    let p2wpkh = ScriptBuf::new_p2wpkh(&compressed.wpubkey_hash().expect("the key is compressed"));
    let p2wpkh_code = ScriptBuf::new_p2pkh(&compressed.pubkey_hash());
    let two_sigs = |last: Item| vec![dummy(), sig(three[0]), sig(three[2]), last];
    match kind {
        Kind::P2pk | Kind::P2pkUncompressed => {
            PoolScript::legacy(ScriptBuf::new_p2pk(&public), vec![sig(key)])
        }
        Kind::P2pkh | Kind::P2pkhUncompressed => {
            let items = vec![sig(key), Item::Bytes(public.to_bytes())];
            PoolScript::legacy(ScriptBuf::new_p2pkh(&public.pubkey_hash()), items)
        }
        Kind::P2shMultisig => {
            let script = ScriptBuf::new_p2sh(&redeem.script_hash());
            let items = two_sigs(bytes(&redeem));
            PoolScript::new(script, Scheme::Legacy(redeem), items, vec![]).with_input_sigops(12)
        }
        Kind::P2shP2wpkh => {
            let script = ScriptBuf::new_p2sh(&p2wpkh.script_hash());
            let witness = vec![sig(key), Item::Bytes(compressed.to_bytes())];
            PoolScript::new(script, Scheme::SegwitV0(p2wpkh_code), vec![bytes(&p2wpkh)], witness)
                .with_input_sigops(1)
        }
        Kind::P2shP2wsh => {
            let inner = ScriptBuf::new_p2wsh(&redeem.wscript_hash());
            let script = ScriptBuf::new_p2sh(&inner.script_hash());
            let witness = two_sigs(bytes(&redeem));
            PoolScript::new(script, Scheme::SegwitV0(redeem), vec![bytes(&inner)], witness)
                .with_input_sigops(3)
        }
        Kind::Multisig if at.is_multiple_of(2) => {
            PoolScript::legacy(multisig(1, &three[..2]), vec![dummy(), sig(three[1])])
        }
        Kind::Multisig => PoolScript::legacy(redeem, vec![dummy(), sig(three[1]), sig(three[2])]),
        Kind::P2wpkh => {
            let witness = vec![sig(key), Item::Bytes(compressed.to_bytes())];
            PoolScript::new(p2wpkh, Scheme::SegwitV0(p2wpkh_code), vec![], witness).with_input_sigops(1)
        }
        Kind::P2wsh => {
            let script = ScriptBuf::new_p2wsh(&redeem.wscript_hash());
            let witness = two_sigs(bytes(&redeem));
            PoolScript::new(script, Scheme::SegwitV0(redeem), vec![], witness).with_input_sigops(3)
        }
        Kind::P2trKey => p2tr_key(&key),
        Kind::P2trScript => p2tr_script(&three),
        Kind::Anyone => PoolScript::free(Builder::new().push_opcode(OP_TRUE).into_script()),
        Kind::Anchor => {
            let builder = Builder::new().push_opcode(OP_PUSHNUM_1).push_slice([0x4e, 0x73]);
            PoolScript::free(builder.into_script())
        }
    }
}

fn p2tr_key(key: &Key) -> PoolScript {
    let secp = Secp256k1::new();
    let pair = Keypair::from_secret_key(&secp, &key.secret).tap_tweak(&secp, None);
    let tweaked = Key::new(pair.to_keypair().secret_key());
    let script = ScriptBuf::new_p2tr(&secp, key.x_only, None);
    PoolScript::new(script, Scheme::TaprootKey, vec![], vec![Item::Signature(tweaked)])
}

fn p2tr_script(keys: &[Key]) -> PoolScript {
    let secp = Secp256k1::new();
    let leaf = |key: &Key| Builder::new().push_x_only_key(&key.x_only).push_opcode(OP_CHECKSIG).into_script();
    let (spent, other) = (leaf(&keys[1]), leaf(&keys[2]));
    let tree = TaprootBuilder::new()
        .add_leaf(1, spent.clone())
        .and_then(|tree| tree.add_leaf(1, other))
        .expect("two leaves at depth 1 are a tree")
        .finalize(&secp, keys[0].x_only)
        .expect("the tree is complete");
    let version = LeafVersion::TapScript;
    let control = tree.control_block(&(spent.clone(), version)).expect("the leaf is in the tree");
    let hash = TapLeafHash::from_script(&spent, version);
    let script = ScriptBuf::new_p2tr_tweaked(tree.output_key());
    let witness =
        vec![Item::Signature(keys[1]), Item::Bytes(spent.to_bytes()), Item::Bytes(control.serialize())];
    PoolScript::new(script, Scheme::TaprootLeaf(hash), vec![], witness)
}

/// Returns cheap pseudo-random bytes that depend on `salt`, from a linear congruential generator.
fn noise(salt: u16, len: usize) -> Vec<u8> {
    let mut state = u32::from(salt) | 0x1_0000;
    let mut next = || {
        state = state.wrapping_mul(0x9e37_79b1).wrapping_add(0x7f4a_7c15);
        (state >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn bulky(len: usize, salt: u16) -> ScriptBuf {
    let mut builder = Builder::new();
    let mut left = len.saturating_sub(1);
    while left > 4 {
        let push = (left - 4).min(520);
        let bytes = PushBytesBuf::try_from(noise(salt, push)).expect("520 bytes can be pushed");
        builder = builder.push_slice(bytes).push_opcode(OP_DROP);
        left = len.saturating_sub(builder.as_bytes().len() + 1);
    }
    builder.push_opcode(OP_TRUE).into_script()
}
