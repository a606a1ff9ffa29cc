//! All rules, in the order in which Bitcoin Core asks for them; the first broken one names the verdict.
//!
//! A block's way: [`HEADER_RULES`], then [`STRUCTURE_RULES`], [`TX_RULES`] for each transaction and
//! [`BODY_RULES`] (Core `CheckBlock`, `ContextualCheckBlock`), then [`SPEND_RULES`] for each transaction and
//! [`REWARD_RULES`] (Core `ConnectBlock`). `docs/rules.md` is written from these rows.
//!
//! Two rows are also judged elsewhere, where all coins are known: [`MISSING_OR_SPENT`] and [`BIP30`].

use crate::{
    block::{self, BlockContext},
    header::{self, HeaderContext},
    params::ChainParams,
    spend::{self, RewardContext, SpendContext},
    tx::{self, TxContext},
    violation::{
        Class::{Consensus, InvalidHeader, Mutated, TimeFuture},
        Rule, RuleInfo,
        RuleSource::{Bip, Core, Cve},
        Tests::{Functions, Mutations},
        ViolationDetails,
    },
};
use wire::Height;

/// Where boundaries are tested that no block of the table of mutations can stand on.
const BOUNDARIES: &str = "rules/tests/boundaries.rs";

/// A rule of headers.
pub type HeaderRule = Rule<for<'a> fn(&HeaderContext<'a>) -> Result<(), ViolationDetails>>;
/// A rule of a block's own bytes.
pub type BlockRule = Rule<for<'a> fn(&BlockContext<'a>) -> Result<(), ViolationDetails>>;
/// A rule of a transaction's own bytes.
pub type TxRule = Rule<for<'a> fn(&TxContext<'a>) -> Result<(), ViolationDetails>>;
/// A rule of a transaction and the coins it spends.
pub type SpendRule = Rule<for<'a> fn(&SpendContext<'a>) -> Result<(), ViolationDetails>>;
/// A rule of a coinbase's amount.
pub type RewardRule = Rule<for<'a> fn(&RewardContext<'a>) -> Result<(), ViolationDetails>>;

/// The coin that an input spends. Judged here for claims that no chain could meet, and by the join for all
/// others.
pub const MISSING_OR_SPENT: RuleInfo = RuleInfo {
    id: "missing-or-spent",
    must: "Each input MUST spend a coin that an earlier transaction made and none has spent.",
    source: Core("CheckTxInputs"),
    core: "bad-txns-inputs-missingorspent",
    class: Consensus,
    tests: Mutations("made-earlier-in-the-block", "made-later-in-the-block"),
};

/// Coins of one transaction made twice. Judged where all coins are known; [`crate::bip30_enforced`] tells for
/// which blocks.
pub const BIP30: RuleInfo = RuleInfo {
    id: "bip30",
    must: "A transaction MUST NOT make a coin that already exists unspent.",
    source: Bip(30),
    core: "bad-txns-BIP30",
    class: Consensus,
    tests: Functions(
        "engine/src/stages/sequential.rs",
        "a_coinbase_can_be_repeated_once_its_coin_is_spent",
        "a_coinbase_cannot_be_repeated_while_its_coin_is_unspent",
    ),
};

/// A signed network's block without a valid solution. Asked where scripts can be run.
pub const SIGNET_SOLUTION: RuleInfo = RuleInfo {
    id: "signet-solution",
    must: "A block of a signed network MUST hold a solution of the network's challenge.",
    source: Bip(325),
    core: crate::signet::BAD_SIGNET_BLKSIG,
    class: Consensus,
    tests: Functions("script/tests/signet.rs", "real_blocks_are_signed", "changed_blocks_are_not_signed"),
};

/// A script that fails. Asked where scripts can be run; [`crate::script_flags()`] tells which of its rules
/// bind.
pub const SCRIPT: RuleInfo = RuleInfo {
    id: "script",
    must: "The scripts of each input MUST pass.",
    source: Core("VerifyScript"),
    core: "block-script-verify-flag-failed",
    class: Consensus,
    tests: Mutations("spends-of-each-kind", "one-bad-input-of-many"),
};

const fn always(_: &ChainParams, _: Height) -> bool {
    true
}

/// Whether the network is a signed one. The genesis block is never asked.
const fn signed(params: &ChainParams, height: Height) -> bool {
    params.signet_challenge.is_some() && height.0 > 0
}

/// Whether a header has a parent.
const fn after_genesis(_: &ChainParams, height: Height) -> bool {
    height.0 > 0
}

const fn bip94(params: &ChainParams, height: Height) -> bool {
    params.enforce_bip94 && height.0 > 0
}

const fn version_2(params: &ChainParams, height: Height) -> bool {
    height.0 > 0 && height.0 >= params.bip34_height.0
}

const fn version_3(params: &ChainParams, height: Height) -> bool {
    height.0 > 0 && height.0 >= params.bip66_height.0
}

const fn version_4(params: &ChainParams, height: Height) -> bool {
    height.0 > 0 && height.0 >= params.bip65_height.0
}

/// Id of the rule that a header has proof of work.
pub const PROOF_OF_WORK: &str = "proof-of-work";

/// Rules of headers (Core `CheckBlockHeader`, `ContextualCheckBlockHeader`).
pub static HEADER_RULES: &[HeaderRule] = &[
    Rule {
        info: RuleInfo {
            id: PROOF_OF_WORK,
            must: "The hash of a header MUST NOT be above its target, nor that above the network's limit.",
            source: Core("CheckProofOfWork"),
            core: "high-hash",
            class: InvalidHeader,
            tests: Functions(BOUNDARIES, "hash_at_the_target", "hash_above_the_target"),
        },
        active: always,
        check: header::proof_of_work,
    },
    Rule {
        info: RuleInfo {
            id: "difficulty",
            must: "The target of a header MUST be the one that the headers before it prescribe.",
            source: Core("GetNextWorkRequired"),
            core: "bad-diffbits",
            class: InvalidHeader,
            tests: Mutations("plain", "bits-of-another-target"),
        },
        active: after_genesis,
        check: header::difficulty,
    },
    Rule {
        info: RuleInfo {
            id: "time-after-median",
            must: "The time of a header MUST be above the median of the eleven headers before it.",
            source: Core("ContextualCheckBlockHeader"),
            core: "time-too-old",
            class: InvalidHeader,
            tests: Mutations("time-after-the-median", "time-at-the-median"),
        },
        active: after_genesis,
        check: header::time_after_median,
    },
    Rule {
        info: RuleInfo {
            id: "timewarp",
            must: "The first header of an interval MUST NOT be over 600 seconds earlier than the one before.",
            source: Bip(94),
            core: "time-timewarp-attack",
            class: InvalidHeader,
            tests: Functions(BOUNDARIES, "interval_600_seconds_back", "interval_601_seconds_back"),
        },
        active: bip94,
        check: header::timewarp,
    },
    Rule {
        info: RuleInfo {
            id: "time-not-in-future",
            must: "The time of a header MUST NOT be more than two hours in the future.",
            source: Core("ContextualCheckBlockHeader"),
            core: "time-too-new",
            class: TimeFuture,
            tests: Functions(BOUNDARIES, "time_2_hours_ahead", "time_2_hours_and_1_second_ahead"),
        },
        active: after_genesis,
        check: header::time_not_in_future,
    },
    Rule {
        info: RuleInfo {
            id: "version-2",
            must: "The version of a header MUST be at least 2.",
            source: Bip(34),
            core: "bad-version",
            class: InvalidHeader,
            tests: Functions(BOUNDARIES, "version_2_from_bip34_on", "version_1_from_bip34_on"),
        },
        active: version_2,
        check: header::version_2,
    },
    Rule {
        info: RuleInfo {
            id: "version-3",
            must: "The version of a header MUST be at least 3.",
            source: Bip(66),
            core: "bad-version",
            class: InvalidHeader,
            tests: Functions(BOUNDARIES, "version_3_from_bip66_on", "version_2_from_bip66_on"),
        },
        active: version_3,
        check: header::version_3,
    },
    Rule {
        info: RuleInfo {
            id: "version-4",
            must: "The version of a header MUST be at least 4.",
            source: Bip(65),
            core: "bad-version",
            class: InvalidHeader,
            tests: Mutations("version-4", "version-3"),
        },
        active: version_4,
        check: header::version_4,
    },
];

/// Rules of a block before its transactions are looked at one by one (Core `CheckBlock`).
pub static STRUCTURE_RULES: &[BlockRule] = &[
    Rule {
        info: RuleInfo {
            id: "merkle-root",
            must: "The merkle root of the txids MUST be the one in the header.",
            source: Core("CheckMerkleRoot"),
            core: "bad-txnmrklroot",
            class: Mutated,
            tests: Mutations("plain", "another-merkle-root"),
        },
        active: always,
        check: block::tx_merkle_root_matches,
    },
    Rule {
        info: RuleInfo {
            id: "merkle-twin",
            must: "No two neighbours in the merkle tree MUST be equal.",
            source: Cve("2012-2459"),
            core: "bad-txns-duplicate",
            class: Mutated,
            tests: Functions(BOUNDARIES, "odd_last_transaction", "odd_last_transaction_repeated"),
        },
        active: always,
        check: block::no_duplicate_merkle_nodes,
    },
    Rule {
        info: RuleInfo {
            id: "block-length",
            must: "A block MUST have at least one transaction and at most 1,000,000 bytes without witnesses.",
            source: Core("CheckBlock"),
            core: "bad-blk-length",
            class: Consensus,
            tests: Mutations("stripped-size-1000000", "stripped-size-1000001"),
        },
        active: always,
        check: block::length,
    },
    Rule {
        info: RuleInfo {
            id: "first-is-coinbase",
            must: "The first transaction of a block MUST be a coinbase.",
            source: Core("CheckBlock"),
            core: "bad-cb-missing",
            class: Consensus,
            tests: Mutations("plain", "coinbase-second"),
        },
        active: always,
        check: block::first_is_coinbase,
    },
    Rule {
        info: RuleInfo {
            id: "one-coinbase",
            must: "No transaction but the first MUST be a coinbase.",
            source: Core("CheckBlock"),
            core: "bad-cb-multiple",
            class: Consensus,
            tests: Mutations("plain", "two-coinbases"),
        },
        active: always,
        check: block::others_are_not_coinbases,
    },
];

/// Rules of a transaction's own bytes (Core `CheckTransaction`).
pub static TX_RULES: &[TxRule] = &[
    Rule {
        info: RuleInfo {
            id: "has-inputs",
            must: "A transaction MUST have an input.",
            source: Core("CheckTransaction"),
            core: "bad-txns-vin-empty",
            class: Consensus,
            tests: Mutations("plain", "no-inputs"),
        },
        active: always,
        check: tx::has_inputs,
    },
    Rule {
        info: RuleInfo {
            id: "has-outputs",
            must: "A transaction MUST have an output.",
            source: Core("CheckTransaction"),
            core: "bad-txns-vout-empty",
            class: Consensus,
            tests: Mutations("plain", "no-outputs"),
        },
        active: always,
        check: tx::has_outputs,
    },
    Rule {
        info: RuleInfo {
            id: "tx-size",
            must: "A transaction MUST have at most 1,000,000 bytes without its witness.",
            source: Core("CheckTransaction"),
            core: "bad-txns-oversize",
            class: Consensus,
            tests: Functions(BOUNDARIES, "tx_of_1000000_bytes", "tx_of_1000001_bytes"),
        },
        active: always,
        check: tx::size,
    },
    Rule {
        info: RuleInfo {
            id: "output-not-negative",
            must: "The amount of an output MUST NOT be negative.",
            source: Cve("2010-5139"),
            core: "bad-txns-vout-negative",
            class: Consensus,
            tests: Mutations("amount-0", "amount-minus-1"),
        },
        active: always,
        check: tx::output_not_negative,
    },
    Rule {
        info: RuleInfo {
            id: "output-not-too-large",
            must: "The amount of an output MUST be at most 21,000,000 bitcoin.",
            source: Cve("2010-5139"),
            core: "bad-txns-vout-toolarge",
            class: Consensus,
            tests: Functions(BOUNDARIES, "output_of_all_money", "output_above_all_money"),
        },
        active: always,
        check: tx::output_not_too_large,
    },
    Rule {
        info: RuleInfo {
            id: "output-total",
            must: "The outputs of a transaction MUST be at most 21,000,000 bitcoin together.",
            source: Cve("2010-5139"),
            core: "bad-txns-txouttotal-toolarge",
            class: Consensus,
            tests: Functions(BOUNDARIES, "outputs_of_all_money", "outputs_above_all_money"),
        },
        active: always,
        check: tx::output_total,
    },
    Rule {
        info: RuleInfo {
            id: "distinct-inputs",
            must: "The inputs of a transaction MUST spend different coins.",
            source: Cve("2018-17144"),
            core: "bad-txns-inputs-duplicate",
            class: Consensus,
            tests: Functions(BOUNDARIES, "inputs_of_one_transaction", "inputs_of_one_coin"),
        },
        active: always,
        check: tx::no_duplicate_inputs,
    },
    Rule {
        info: RuleInfo {
            id: "coinbase-script-size",
            must: "The script of a coinbase's input MUST have 2 to 100 bytes.",
            source: Core("CheckTransaction"),
            core: "bad-cb-length",
            class: Consensus,
            tests: Mutations("coinbase-script-100-bytes", "coinbase-script-101-bytes"),
        },
        active: always,
        check: tx::coinbase_script_size,
    },
    Rule {
        info: RuleInfo {
            id: "no-null-prevout",
            must: "An input of a transaction that is no coinbase MUST point at a transaction.",
            source: Core("CheckTransaction"),
            core: "bad-txns-prevout-null",
            class: Consensus,
            tests: Functions(BOUNDARIES, "prevout_half_null", "prevout_null"),
        },
        active: always,
        check: tx::no_null_prevout,
    },
];

/// Rules of a block after its transactions (the rest of Core `CheckBlock`, then `ContextualCheckBlock`).
pub static BODY_RULES: &[BlockRule] = &[
    Rule {
        info: RuleInfo {
            id: "legacy-sigops",
            must: "The legacy signature operations of a block MUST be at most 20,000.",
            source: Core("CheckBlock"),
            core: "bad-blk-sigops",
            class: Consensus,
            tests: Mutations("output-sigops-20000", "output-sigops-20001"),
        },
        active: always,
        check: block::legacy_sigops_within_limit,
    },
    Rule {
        info: RuleInfo {
            id: "lock-time",
            must: "A transaction MUST NOT come before its lock time, unless all its inputs waive that.",
            source: Bip(113),
            core: "bad-txns-nonfinal",
            class: Consensus,
            tests: Mutations("lock-at-the-height-before", "lock-at-this-height"),
        },
        active: always,
        check: block::lock_times,
    },
    Rule {
        info: RuleInfo {
            id: "coinbase-height",
            must: "The script of a coinbase's input MUST begin by pushing the height of the block.",
            source: Bip(34),
            core: "bad-cb-height",
            class: Consensus,
            tests: Mutations("coinbase-script-height-only", "height-of-the-block-before"),
        },
        active: block::from_bip34,
        check: block::coinbase_height,
    },
    Rule {
        info: RuleInfo {
            id: "witness-reserved-value",
            must: "The witness of a coinbase with a commitment MUST be one item of 32 bytes.",
            source: Bip(141),
            core: "bad-witness-nonce-size",
            class: Mutated,
            tests: Mutations("commitment-without-witness", "reserved-value-31-bytes"),
        },
        active: block::from_segwit,
        check: block::witness_reserved_value,
    },
    Rule {
        info: RuleInfo {
            id: "witness-commitment",
            must: "The last commitment of a coinbase MUST be to the witnesses of the block.",
            source: Bip(141),
            core: "bad-witness-merkle-match",
            class: Mutated,
            tests: Mutations("last-commitment-counts", "another-commitment"),
        },
        active: block::from_segwit,
        check: block::witness_commitment,
    },
    Rule {
        info: RuleInfo {
            id: "unexpected-witness",
            must: "A block without a commitment MUST NOT have witnesses.",
            source: Bip(141),
            core: "unexpected-witness",
            class: Mutated,
            tests: Mutations("neither-commitment-nor-witness", "witness-without-commitment"),
        },
        active: always,
        check: block::no_unexpected_witness,
    },
    Rule {
        info: RuleInfo {
            id: "block-weight",
            must: "The weight of a block MUST be at most 4,000,000.",
            source: Bip(141),
            core: "bad-blk-weight",
            class: Consensus,
            tests: Mutations("weight-4000000", "weight-4000001"),
        },
        active: always,
        check: block::weight,
    },
];

/// Rules of a transaction and the coins it spends (Core `ConnectBlock`).
pub static SPEND_RULES: &[SpendRule] = &[
    Rule { info: MISSING_OR_SPENT, active: always, check: spend::coins_exist },
    Rule {
        info: RuleInfo {
            id: "coinbase-maturity",
            must: "An output of a coinbase MUST NOT be spent before 100 blocks have passed.",
            source: Core("CheckTxInputs"),
            core: "bad-txns-premature-spend-of-coinbase",
            class: Consensus,
            tests: Mutations("coinbase-aged-100", "coinbase-aged-99"),
        },
        active: always,
        check: spend::coinbase_is_mature,
    },
    Rule {
        info: RuleInfo {
            id: "input-values",
            must: "The inputs of a transaction MUST be at most 21,000,000 bitcoin each and together.",
            source: Core("CheckTxInputs"),
            core: "bad-txns-inputvalues-outofrange",
            class: Consensus,
            tests: Functions(BOUNDARIES, "inputs_of_all_money", "inputs_above_all_money"),
        },
        active: always,
        check: spend::input_values_in_range,
    },
    Rule {
        info: RuleInfo {
            id: "inputs-pay-outputs",
            must: "The inputs of a transaction MUST be worth at least its outputs.",
            source: Core("CheckTxInputs"),
            core: "bad-txns-in-belowout",
            class: Consensus,
            tests: Mutations("pays-all-it-spends", "pays-1-more-than-it-spends"),
        },
        active: always,
        check: spend::inputs_pay_outputs,
    },
    Rule {
        info: RuleInfo {
            id: "fees",
            must: "The fees of a block MUST be at most 21,000,000 bitcoin.",
            source: Core("ConnectBlock"),
            core: "bad-txns-accumulated-fee-outofrange",
            class: Consensus,
            tests: Functions(BOUNDARIES, "fees_of_all_money", "fees_above_all_money"),
        },
        active: always,
        check: spend::fees_in_range,
    },
    Rule {
        info: RuleInfo {
            id: "relative-lock-time",
            must: "An input MUST NOT spend a coin before its relative lock time, from version 2 on.",
            source: Bip(68),
            core: "bad-txns-nonfinal",
            class: Consensus,
            tests: Mutations("relative-lock-of-3-blocks", "relative-lock-of-4-blocks"),
        },
        active: spend::from_csv,
        check: spend::relative_locks,
    },
    Rule {
        info: RuleInfo {
            id: "sigop-cost",
            must: "The signature operations of a block MUST cost at most 80,000.",
            source: Bip(141),
            core: "bad-blk-sigops",
            class: Consensus,
            tests: Mutations("witness-sigops-80000", "witness-sigops-80001"),
        },
        active: always,
        check: spend::sigop_cost_within_limit,
    },
];

/// The rule of a coinbase's amount (Core `ConnectBlock`).
pub static REWARD_RULES: &[RewardRule] = &[Rule {
    info: RuleInfo {
        id: "coinbase-amount",
        must: "A coinbase MUST NOT pay more than the subsidy and the fees of its block.",
        source: Core("ConnectBlock"),
        core: "bad-cb-amount",
        class: Consensus,
        tests: Mutations("reward-exact", "reward-1-too-much"),
    },
    active: always,
    check: spend::coinbase_amount,
}];

/// Whether a row binds a block at a height.
pub type Active = fn(&ChainParams, Height) -> bool;

/// A section of `docs/rules.md`: a table's title and rows, with when each is active.
pub struct Section {
    /// What the rules are about.
    pub title: &'static str,
    /// The rows in validation order.
    pub rows: Vec<(&'static RuleInfo, Active)>,
}

/// All rules in validation order, for docs and tests.
#[must_use]
pub fn sections() -> Vec<Section> {
    fn section<F>(title: &'static str, rules: &'static [Rule<F>]) -> Section {
        Section { title, rows: rules.iter().map(|rule| (&rule.info, rule.active)).collect() }
    }
    let mut spends = section("Transactions and the coins they spend", SPEND_RULES);
    // Core asks for BIP-0030 of the whole block before the first spend.
    spends.rows.insert(0, (&BIP30, always));
    let mut structure = section("Blocks, before their transactions", STRUCTURE_RULES);
    structure.rows.insert(0, (&SIGNET_SOLUTION, signed));
    vec![
        section("Headers", HEADER_RULES),
        structure,
        section("Transactions", TX_RULES),
        section("Blocks, after their transactions", BODY_RULES),
        spends,
        section("Rewards", REWARD_RULES),
        Section { title: "Scripts", rows: vec![(&SCRIPT, always)] },
    ]
}
