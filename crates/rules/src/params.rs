//! Chain parameters of the five networks, and functions of them: subsidy, BIP-0030, script exceptions.
//!
//! Source: Bitcoin Core's `kernel/chainparams.cpp` and `validation.cpp` of August 2026. Soft forks are
//! buried: their heights are data. Historical exceptions are rows of data too, never conditions in code.

use digest::sha256::sha256d;
use ethnum::U256;
use wire::{BlockHash, BlockTime, Header, Height, Network, Sats, ScriptFlags, read::write_compact_size};

/// The version of Bitcoin Core whose rules and chain parameters these are.
pub const CORE_VERSION: &str = "31.99";

/// The parameters of a network that the rules use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChainParams {
    pub network: Network,
    /// The bytes that start each message and each record of a block file: [`Network::magic`], except on a
    /// custom signet.
    pub magic: [u8; 4],
    pub genesis: Header,
    pub genesis_hash: BlockHash,
    /// The highest valid target.
    pub pow_limit: U256,
    /// Intended time between blocks, in seconds.
    pub pow_target_spacing: u32,
    /// Intended time between retargets, in seconds.
    pub pow_target_timespan: u32,
    /// Whether a block more than twice the intended time after its parent may have the minimum difficulty
    /// (testnets).
    pub allow_min_difficulty_blocks: bool,
    /// Whether the difficulty never changes (regtest).
    pub no_retargeting: bool,
    /// Whether BIP-0094's retarget and timewarp rules apply.
    pub enforce_bip94: bool,
    /// Number of blocks between halvings of the subsidy.
    pub subsidy_halving_interval: u32,
    /// Height from which coinbases must push the height.
    pub bip34_height: Height,
    /// Hash of that block on the chain that is known to have no duplicate coinbases above it.
    pub bip34_hash: Option<BlockHash>,
    /// Height from which CHECKLOCKTIMEVERIFY, and with it version 4, applies.
    pub bip65_height: Height,
    /// Height from which strict DER signatures, and with them version 3, apply.
    pub bip66_height: Height,
    /// Height from which BIP-0068, BIP-0112 and BIP-0113 apply.
    pub csv_height: Height,
    /// Height from which blocks may have witnesses.
    pub segwit_height: Height,
    /// Blocks that are allowed to repeat an earlier coinbase (BIP-0030).
    pub bip30_exceptions: &'static [(Height, BlockHash)],
    /// Blocks whose coinbase was overwritten, each by the block in the same place of `bip30_exceptions`: its
    /// coins were never spent and never can be.
    pub overwritten_coinbases: &'static [(Height, BlockHash)],
    /// Blocks that break a script rule that applies to all others from the genesis block on, with those of
    /// these rules that apply to them.
    pub script_flag_exceptions: &'static [(BlockHash, ScriptFlags)],
    /// The script that blocks of a signed network must solve (BIP-0325).
    pub signet_challenge: Option<&'static [u8]>,
    /// The block up to which scripts are assumed valid by default (Core `defaultAssumeValid`). Core's source
    /// has its height in a comment only.
    pub assume_valid: Option<(Height, BlockHash)>,
    /// Minimum work of the network's best chain (Core `nMinimumChainWork`).
    pub minimum_chain_work: U256,
    /// UTXO sets whose hash Core's source pins (Core `m_assumeutxo_data`).
    pub assume_utxo: &'static [PinnedUtxoSet],
    /// The first block of a branch that nodes with other rules than Core's have taken for the best one.
    pub dead_branch: Option<(Height, BlockHash)>,
}

/// A UTXO set that Bitcoin Core loads from a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PinnedUtxoSet {
    /// Height of its best block.
    pub height: Height,
    /// Hash of its best block.
    pub block_hash: BlockHash,
    /// `hash_serialized_3`, in internal byte order.
    pub hash_serialized_3: [u8; 32],
}

wire::named! {
/// A soft fork whose activation height is a parameter of the chain (Core `Consensus::BuriedDeployment`), with
/// Core's name (`GetBuriedDeployment`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BuriedDeployment: "deployment" {
    /// Witnesses (BIP-0141, BIP-0143, BIP-0147).
    Segwit = "segwit",
    /// Coinbases push their height (BIP-0034).
    Bip34 = "bip34",
    /// Strict DER signatures (BIP-0066).
    Dersig = "dersig",
    /// CHECKLOCKTIMEVERIFY (BIP-0065).
    Cltv = "cltv",
    /// Relative lock times (BIP-0068, BIP-0112, BIP-0113).
    Csv = "csv",
}
}

/// From this height on, a coinbase can repeat one from before BIP-0034 that pushed a height of the future, so
/// BIP-0030 must be checked again (Core `BIP34_IMPLIES_BIP30_LIMIT`).
pub const BIP34_IMPLIES_BIP30_LIMIT: Height = Height(1_983_702);

const GENESIS_MERKLE_ROOT: [u8; 32] =
    hash("4a5e1e4baab89f3a32518a88c31bc87f618f76673e2cc77ab2127b7afdeda33b");
const TWO_WEEKS: u32 = 14 * 24 * 60 * 60;
const DIFFICULTY_1: U256 = U256::from_words(u128::MAX >> 32, u128::MAX);

static MAIN: ChainParams = ChainParams {
    network: Network::Main,
    magic: Network::Main.magic(),
    genesis: genesis(1_231_006_505, 0x1d00_ffff, 2_083_236_893, GENESIS_MERKLE_ROOT),
    genesis_hash: block_hash("000000000019d6689c085ae165831e934ff763ae46a2a6c172b3f1b60a8ce26f"),
    pow_limit: DIFFICULTY_1,
    pow_target_spacing: 600,
    pow_target_timespan: TWO_WEEKS,
    allow_min_difficulty_blocks: false,
    no_retargeting: false,
    enforce_bip94: false,
    subsidy_halving_interval: 210_000,
    bip34_height: Height(227_931),
    bip34_hash: Some(block_hash("000000000000024b89b42a942fe0d9fea3bb44ab7bd1b19115dd6a759c0808b8")),
    bip65_height: Height(388_381),
    bip66_height: Height(363_725),
    csv_height: Height(419_328),
    segwit_height: Height(481_824),
    bip30_exceptions: &[
        at(91_842, "00000000000a4d0a398161ffc163c503763b1f4360639393e0e4c8e300e0caec"),
        at(91_880, "00000000000743f190a18c5577a3c2d2a1f610ae9601ac046a38084ccb7cd721"),
    ],
    overwritten_coinbases: &[
        at(91_812, "00000000000af0aed4792b1acee3d966af36cf5def14935db8de83d6f9306f2f"),
        at(91_722, "00000000000271a2dc26e7667f8419f2e15416dc6955e5a6c6cdf3f2574dd08e"),
    ],
    script_flag_exceptions: &[
        (
            block_hash("00000000000002dc756eebf4f49723ed8d30cc28a5f108eb94b1ba88ac4f9c22"),
            ScriptFlags::empty(),
        ),
        (
            block_hash("0000000000000000000f14c35b2d841e986ab5441de8c585d5ffe55ea1e395ad"),
            ScriptFlags::P2SH.union(ScriptFlags::WITNESS),
        ),
    ],
    signet_challenge: None,
    assume_valid: Some(at(938_343, "00000000000000000000ccebd6d74d9194d8dcdc1d177c478e094bfad51ba5ac")),
    minimum_chain_work: chain_work("0000000000000000000000000000000000000001128750f82f4c366153a3a030"),
    assume_utxo: &[
        pinned(
            840_000,
            "0000000000000000000320283a032748cef8227873ff4872689bf23f1cda83a5",
            "a2a5521b1b5ab65f67818e5e8eccabb7171a517f9e2382208f77687310768f96",
        ),
        pinned(
            880_000,
            "000000000000000000010b17283c3c400507969a9c2afd1dcf2082ec5cca2880",
            "dbd190983eaf433ef7c15f78a278ae42c00ef52e0fd2a54953782175fbadcea9",
        ),
        pinned(
            910_000,
            "0000000000000000000108970acb9522ffd516eae17acddcb1bd16469194a821",
            "4daf8a17b4902498c5787966a2b51c613acdab5df5db73f196fa59a4da2f1568",
        ),
        pinned(
            935_000,
            "0000000000000000000147034958af1652b2b91bba607beacc5e72a56f0fb5ee",
            "e4b90ef9eae834f56c4b64d2d50143cee10ad87994c614d7d04125e2a6025050",
        ),
    ],
    // The branch of nodes that enforced BIP-0110 from 8 August 2026 on; its headers are in the data of
    // https://github.com/bitcoin-data/stale-blocks.
    dead_branch: Some(at(961_632, "0000000000000000000169eb6f811ddbd0daf343af7b62180cdb13e7c78dbc16")),
};

static TEST: ChainParams = ChainParams {
    network: Network::Test,
    magic: Network::Test.magic(),
    genesis: genesis(1_296_688_602, 0x1d00_ffff, 414_098_458, GENESIS_MERKLE_ROOT),
    genesis_hash: block_hash("000000000933ea01ad0ee984209779baaec3ced90fa3f408719526f8d77f4943"),
    allow_min_difficulty_blocks: true,
    bip34_height: Height(21_111),
    bip34_hash: Some(block_hash("0000000023b3a96d3484e5abb3755c413e7d41500f8e2a5c3f0dd01299cd8ef8")),
    bip65_height: Height(581_885),
    bip66_height: Height(330_776),
    csv_height: Height(770_112),
    segwit_height: Height(834_624),
    bip30_exceptions: &[],
    overwritten_coinbases: &[],
    script_flag_exceptions: &[(
        block_hash("00000000dd30457c001f4095d208cc1296b0eed002427aa599874af7a432b105"),
        ScriptFlags::empty(),
    )],
    assume_valid: Some(at(4_842_348, "000000007a61e4230b28ac5cb6b5e5a0130de37ac1faf2f8987d2fa6505b67f4")),
    minimum_chain_work: chain_work("0000000000000000000000000000000000000000000017dde1c649f3708d14b6"),
    assume_utxo: &[
        pinned(
            2_500_000,
            "0000000000000093bcb68c03a9a168ae252572d348a2eaeba2cdf9231d73206f",
            "f841584909f68e47897952345234e37fcd9128cd818f41ee6c3ca68db8071be7",
        ),
        pinned(
            4_840_000,
            "00000000000000f4971a7fb37fbdff89315b69a2e1920c467654a382f0d64786",
            "ce6bb677bb2ee9789c4a1c9d73e6683c53fc20e8fdbedbdaaf468982a0c8db2a",
        ),
    ],
    dead_branch: None,
    ..MAIN
};

/// The common parameters of networks on which all soft forks have been active from the start.
const ALL_FORKS_FROM_START: ChainParams = ChainParams {
    bip34_height: Height(1),
    bip34_hash: None,
    bip65_height: Height(1),
    bip66_height: Height(1),
    csv_height: Height(1),
    segwit_height: Height(1),
    script_flag_exceptions: &[],
    ..TEST
};

static TESTNET4: ChainParams = ChainParams {
    network: Network::Testnet4,
    magic: Network::Testnet4.magic(),
    genesis: genesis(
        1_714_777_860,
        0x1d00_ffff,
        393_743_547,
        hash("7aa0a7ae1e223414cb807e40cd57e667b718e42aaf9306db9102fe28912b7b4e"),
    ),
    genesis_hash: block_hash("00000000da84f2bafbbc53dee25a72ae507ff4914b867c565be350b0da8bf043"),
    enforce_bip94: true,
    assume_valid: Some(at(123_613, "0000000002368b1e4ee27e2e85676ae6f9f9e69579b29093e9a82c170bf7cf8a")),
    minimum_chain_work: chain_work("0000000000000000000000000000000000000000000009a0fe15d0177d086304"),
    assume_utxo: &[
        pinned(
            90_000,
            "0000000002ebe8bcda020e0dd6ccfbdfac531d2f6a81457191b99fc2df2dbe3b",
            "784fb5e98241de66fdd429f4392155c9e7db5c017148e66e8fdbc95746f8b9b5",
        ),
        pinned(
            120_000,
            "000000000bd2317e51b3c5794981c35ba894ce27d3e772d5c39ecd9cbce01dc8",
            "10b05d05ad468d0971162e1b222a4aa66caca89da2bb2a93f8f37fb29c4794b0",
        ),
    ],
    ..ALL_FORKS_FROM_START
};

static SIGNET: ChainParams = ChainParams {
    network: Network::Signet,
    magic: Network::Signet.magic(),
    genesis: genesis(1_598_918_400, 0x1e03_77ae, 52_613_770, GENESIS_MERKLE_ROOT),
    genesis_hash: block_hash("00000008819873e925422c1ff0f99f7cc9bbb232af63a077a480a3633bee1ef6"),
    pow_limit: U256::from_words(0x0377_ae00_0000 << 64, 0),
    allow_min_difficulty_blocks: false,
    signet_challenge: Some(&bytes::<71>(
        "512103ad5e0edad18cb1f0fc0d28a3d4f1f3e445640337489abb10404f2d1e086be430\
         210359ef5021964fe22d6f8e05b2463c9540ce96883fe3b278760f048f5189f2e6c452ae",
    )),
    assume_valid: Some(at(293_175, "00000008414aab61092ef93f1aacc54cf9e9f16af29ddad493b908a01ff5c329")),
    minimum_chain_work: chain_work("00000000000000000000000000000000000000000000000000000b463ea0a4b8"),
    assume_utxo: &[
        pinned(
            160_000,
            "0000003ca3c99aff040f2563c2ad8f8ec88bd0fd6b8f0895cfaf1ef90353a62c",
            "fe0a44309b74d6b5883d246cb419c6221bcccf0b308c9b59b7d70783dbdf928a",
        ),
        pinned(
            290_000,
            "0000000577f2741bb30cd9d39d6d71b023afbeb9764f6260786a97969d5c9ac0",
            "97267e000b4b876800167e71b9123f1529d13b14308abec2888bbd2160d14545",
        ),
    ],
    ..ALL_FORKS_FROM_START
};

static REGTEST: ChainParams = ChainParams {
    network: Network::Regtest,
    magic: Network::Regtest.magic(),
    genesis: genesis(1_296_688_602, 0x207f_ffff, 2, GENESIS_MERKLE_ROOT),
    genesis_hash: block_hash("0f9188f13cb7b2c71f2a335e3a4fc328bf5beb436012afca590b1a11466e2206"),
    pow_limit: U256::from_words(u128::MAX >> 1, u128::MAX),
    pow_target_timespan: 24 * 60 * 60,
    no_retargeting: true,
    subsidy_halving_interval: 150,
    segwit_height: Height(0),
    assume_valid: None,
    minimum_chain_work: U256::ZERO,
    assume_utxo: &[
        pinned(
            110,
            "135eec25a6fb277884e5824e7aa7d052c4868161c99a5122170b5266f86c273d",
            "86e9a1205b418b16dde3a18a78c730e30137e28466bda5dbf6b33ab8fc05447c",
        ),
        pinned(
            200,
            "385901ccbd69dff6bbd00065d01fb8a9e464dede7cfe0372443884f9b1dcf6b9",
            "17dcc016d188d16068907cdeb38b75691a118d43053b8cd6a25969419381d13a",
        ),
        pinned(
            299,
            "0c552ced4721c249a389eb9b08cb8da261cd46f0e7b5f9d064d48f3113406853",
            "106b2c56233e378a824cf0d5ff2be42ed32c72f1605c9be288d00942908a40ac",
        ),
    ],
    ..ALL_FORKS_FROM_START
};

impl ChainParams {
    pub const fn of(network: Network) -> &'static Self {
        match network {
            Network::Main => &MAIN,
            Network::Test => &TEST,
            Network::Testnet4 => &TESTNET4,
            Network::Signet => &SIGNET,
            Network::Regtest => &REGTEST,
        }
    }

    /// Returns the pinned UTXO set whose best block is `block`.
    pub fn pinned_utxo_set(&self, block: &BlockHash) -> Option<&'static PinnedUtxoSet> {
        self.assume_utxo.iter().find(|pinned| pinned.block_hash == *block)
    }

    /// Returns whether the UTXO set after `block` has the pinned hash; `None` if none is pinned for it.
    pub fn has_pinned_hash(&self, block: &BlockHash, hash_serialized_3: &[u8; 32]) -> Option<bool> {
        self.pinned_utxo_set(block).map(|pinned| pinned.hash_serialized_3 == *hash_serialized_3)
    }

    /// Returns the parameters of the signet whose blocks must solve `challenge` (Core `-signetchallenge`).
    /// They stay in memory until the process ends.
    ///
    /// Nothing about its chain is known in advance, not even its minimum work.
    pub fn custom_signet(challenge: Vec<u8>) -> &'static Self {
        let mut serialized = Vec::with_capacity(challenge.len() + 3);
        write_compact_size(&mut serialized, challenge.len() as u64);
        serialized.extend(&challenge);
        let [a, b, c, d, ..] = sha256d(&serialized);
        Box::leak(Box::new(Self {
            magic: [a, b, c, d],
            signet_challenge: Some(challenge.leak()),
            assume_valid: None,
            minimum_chain_work: U256::ZERO,
            ..SIGNET.clone()
        }))
    }

    /// Returns these parameters with other activation heights (Core `-testactivationheight`); of several for
    /// one deployment, the last counts. They stay in memory until the process ends.
    pub fn with_heights(&self, heights: &[(BuriedDeployment, Height)]) -> &'static Self {
        let mut params = self.clone();
        for &(deployment, height) in heights {
            *match deployment {
                BuriedDeployment::Bip34 => &mut params.bip34_height,
                BuriedDeployment::Dersig => &mut params.bip66_height,
                BuriedDeployment::Cltv => &mut params.bip65_height,
                BuriedDeployment::Csv => &mut params.csv_height,
                BuriedDeployment::Segwit => &mut params.segwit_height,
            } = height;
        }
        Box::leak(Box::new(params))
    }

    /// Returns the activation heights as [`ChainParams::with_heights`] takes them, in Core's words; and
    /// `bip94` if regtest has these rules (Core `-test=bip94`).
    pub fn activation_heights(&self) -> String {
        let Self { segwit_height, bip34_height, bip66_height, bip65_height, csv_height, .. } = self;
        let bip94 = if self.enforce_bip94 && self.network == Network::Regtest { " bip94" } else { "" };
        format!(
            "segwit@{segwit_height} bip34@{bip34_height} dersig@{bip66_height} cltv@{bip65_height} \
             csv@{csv_height}{bip94}"
        )
    }

    /// Returns the number of blocks from one retarget to the next.
    pub const fn difficulty_adjustment_interval(&self) -> u32 {
        self.pow_target_timespan / self.pow_target_spacing
    }

    /// Returns whether the coins of this block's coinbase were overwritten, so that they can never be spent
    /// (Core `IsBIP30Unspendable`).
    pub fn is_overwritten_coinbase(&self, height: Height, hash: &BlockHash) -> bool {
        self.overwritten_coinbases.contains(&(height, *hash))
    }
}

/// Returns the subsidy of a block at `height` (Core `GetBlockSubsidy`).
pub const fn subsidy(params: &ChainParams, height: Height) -> Sats {
    let halvings = height.0 / params.subsidy_halving_interval;
    Sats(if halvings < 64 { (50 * Sats::COIN.0) >> halvings } else { 0 })
}

/// Returns whether the block is allowed to overwrite coins (Core `IsBIP30Repeat`).
pub fn is_bip30_exempt(params: &ChainParams, height: Height, hash: &BlockHash) -> bool {
    params.bip30_exceptions.contains(&(height, *hash))
}

/// Returns whether BIP-0030 must be checked for the block (Core `ConnectBlock`).
///
/// `bip34_ancestor` is the hash of the block's *strict* ancestor at [`ChainParams::bip34_height`], or `None`
/// if it has none. On the known chain, coinbases above it push their height and so cannot repeat one another.
pub fn bip30_enforced(
    params: &ChainParams,
    height: Height,
    hash: &BlockHash,
    bip34_ancestor: Option<&BlockHash>,
) -> bool {
    let on_known_chain = params.bip34_hash.is_some() && bip34_ancestor == params.bip34_hash.as_ref();
    (!is_bip30_exempt(params, height, hash) && !on_known_chain) || height >= BIP34_IMPLIES_BIP30_LIMIT
}

const fn genesis(time: u32, bits: u32, nonce: u32, merkle_root: [u8; 32]) -> Header {
    Header { version: 1, prev: BlockHash([0; 32]), merkle_root, time: BlockTime(time), bits, nonce }
}

const fn pinned(height: u32, block: &str, utxo: &str) -> PinnedUtxoSet {
    PinnedUtxoSet { height: Height(height), block_hash: block_hash(block), hash_serialized_3: hash(utxo) }
}

/// Returns the height and the hash of a block.
const fn at(height: u32, hash: &str) -> (Height, BlockHash) {
    (Height(height), block_hash(hash))
}

const fn block_hash(text: &str) -> BlockHash {
    BlockHash(hash(text))
}

/// Decodes a hexadecimal number, the form of chain work in Core's source.
const fn chain_work(text: &str) -> U256 {
    let (high, low) = text.split_at(32);
    U256::from_words(u128::from_be_bytes(bytes(high)), u128::from_be_bytes(bytes(low)))
}

/// Decodes a hash in display order, that is, reversed.
const fn hash(text: &str) -> [u8; 32] {
    let displayed: [u8; 32] = bytes(text);
    let mut hash = [0; 32];
    let mut i = 0;
    while i < 32 {
        hash[i] = displayed[31 - i];
        i += 1;
    }
    hash
}

/// Decodes hexadecimal digits at compile time, so that an invalid literal does not compile.
pub(crate) const fn bytes<const N: usize>(text: &str) -> [u8; N] {
    const fn digit(byte: u8) -> u8 {
        match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => panic!("not a hexadecimal digit"),
        }
    }
    let text = text.as_bytes();
    assert!(text.len() == 2 * N, "wrong number of hexadecimal digits");
    let mut bytes = [0; N];
    let mut i = 0;
    while i < N {
        bytes[i] = digit(text[2 * i]) << 4 | digit(text[2 * i + 1]);
        i += 1;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn genesis_headers_match_their_hashes() {
        for network in Network::ALL {
            let params = ChainParams::of(network);
            assert_eq!(params.network, network);
            assert_eq!(params.genesis.hash(), params.genesis_hash, "{network}");
            assert!(crate::pow::has_proof_of_work(params, &params.genesis_hash, params.genesis.bits));
        }
    }

    /// BIP-0325 derives a signet's magic from its challenge.
    #[test]
    fn signet_challenge_hashes_to_the_magic() {
        let own = ChainParams::custom_signet(SIGNET.signet_challenge.unwrap().to_vec());
        assert_eq!(own.magic, Network::Signet.magic());
        assert_eq!((own.assume_valid, own.minimum_chain_work), (None, U256::ZERO));
        // As a bitcoind with this challenge writes it.
        let trivial = ChainParams::custom_signet(vec![0x51]);
        assert_eq!((trivial.magic, trivial.genesis_hash), ([0x54, 0xd2, 0x6f, 0xbd], SIGNET.genesis_hash));
    }

    #[test]
    fn deployments_are_set_by_name_and_the_last_height_counts() {
        let set = |name: &str, height| (name.parse().unwrap(), Height(height));
        let params = REGTEST.with_heights(&[set("csv", 5), set("bip34", 7), set("csv", 9)]);
        let expected = ChainParams { csv_height: Height(9), bip34_height: Height(7), ..REGTEST.clone() };
        assert_eq!(*params, expected);
        assert_eq!(params.activation_heights(), "segwit@0 bip34@7 dersig@1 cltv@1 csv@9");
        let bip94 = ChainParams { enforce_bip94: true, ..expected };
        assert_eq!(bip94.activation_heights(), "segwit@0 bip34@7 dersig@1 cltv@1 csv@9 bip94");
        let names = BuriedDeployment::ALL.map(|deployment| deployment.name().parse());
        assert_eq!(names, BuriedDeployment::ALL.map(Ok));
        let error = "taproot".parse::<BuriedDeployment>().unwrap_err().to_string();
        assert!(error.contains("use segwit, bip34, dersig, cltv or csv"), "{error}");
    }

    #[test]
    fn pinned_hashes_belong_to_their_blocks() {
        let [first, second, ..] = REGTEST.assume_utxo else { panic!("regtest has pinned UTXO sets") };
        let has = |block, hash| REGTEST.has_pinned_hash(block, hash);
        assert_eq!(has(&first.block_hash, &first.hash_serialized_3), Some(true));
        assert_eq!(has(&first.block_hash, &second.hash_serialized_3), Some(false));
        assert_eq!(has(&REGTEST.genesis_hash, &first.hash_serialized_3), None);
        assert_eq!(MAIN.pinned_utxo_set(&first.block_hash), None);
    }

    #[test]
    fn subsidy_halves_at_the_boundary_and_ends() {
        for (height, sats) in [
            (0, 5_000_000_000),
            (209_999, 5_000_000_000),
            (210_000, 2_500_000_000),
            (419_999, 2_500_000_000),
            (420_000, 1_250_000_000),
            (6_929_999, 1),
            (6_930_000, 0),
            (64 * 210_000, 0),
            (u32::MAX, 0),
        ] {
            assert_eq!(subsidy(&MAIN, Height(height)), Sats(sats), "{height}");
        }
        assert_eq!(subsidy(&REGTEST, Height(150)), Sats(2_500_000_000));
    }

    #[test]
    fn bip30_is_enforced_for_the_same_blocks_as_in_core() {
        let other = BlockHash([7; 32]);
        let known = MAIN.bip34_hash.as_ref();
        let (height, repeat) = &MAIN.bip30_exceptions[0];
        assert!(!bip30_enforced(&MAIN, *height, repeat, None));
        assert!(bip30_enforced(&MAIN, *height, &other, None));
        assert!(bip30_enforced(&MAIN, Height(height.0 + 1), repeat, None));
        assert!(bip30_enforced(&MAIN, Height(227_931), &other, None));
        assert!(!bip30_enforced(&MAIN, Height(227_932), &other, known));
        assert!(bip30_enforced(&MAIN, Height(227_932), &other, Some(&other)));
        assert!(!bip30_enforced(&MAIN, Height(1_983_701), &other, known));
        assert!(bip30_enforced(&MAIN, Height(1_983_702), &other, known));
        assert!(bip30_enforced(&REGTEST, Height(5), &other, Some(&other)));
        let (height, overwritten) = &MAIN.overwritten_coinbases[1];
        assert!(MAIN.is_overwritten_coinbase(*height, overwritten));
        assert!(!MAIN.is_overwritten_coinbase(*height, &other));
    }
}
