//! All rules, in the order in which Bitcoin Core checks them; the first broken rule is reported.
//!
//! A block passes through [`HEADER_RULES`], then [`STRUCTURE_RULES`], [`TX_RULES`] for each transaction and
//! [`BODY_RULES`] (Core `CheckBlock`, `ContextualCheckBlock`), then [`SPEND_RULES`] for each transaction and
//! [`REWARD_RULES`] (Core `ConnectBlock`). `docs/rules.md` is generated from these rows.
//!
//! Two rules, [`MISSING_OR_SPENT`] and [`BIP30`], are checked where all coins are known, outside this crate.

use crate::{
    block::{self, BlockContext},
    header::{self, HeaderContext},
    params::ChainParams,
    spend::{self, RewardContext, SpendContext},
    tx::{self, TxContext},
    violation::{
        Rule, RuleInfo,
        RuleSource::{Bip, Core, Cve},
        Tests::{Functions, Mutations},
        ViolationClass::{Consensus, InvalidHeader, Mutated, TimeFuture},
        ViolationDetails,
    },
};
use wire::Height;

/// The file that tests the boundaries that no block of the table of mutations can reach.
const BOUNDARIES: &str = "rules/tests/rules/boundaries.rs";

pub type HeaderRule = Rule<for<'a> fn(&HeaderContext<'a>) -> Result<(), ViolationDetails>>;
/// A rule for a block's own bytes.
pub type BlockRule = Rule<for<'a> fn(&BlockContext<'a>) -> Result<(), ViolationDetails>>;
/// A rule for a transaction's own bytes.
pub type TxRule = Rule<for<'a> fn(&TxContext<'a>) -> Result<(), ViolationDetails>>;
/// A rule for a transaction and the coins that it spends.
pub type SpendRule = Rule<for<'a> fn(&SpendContext<'a>) -> Result<(), ViolationDetails>>;
/// A rule for a coinbase's amount.
pub type RewardRule = Rule<for<'a> fn(&RewardContext<'a>) -> Result<(), ViolationDetails>>;

/// The rule that an input spends an existing coin. This crate checks it for claims that no chain can match,
/// the join for all others.
pub const MISSING_OR_SPENT: RuleInfo = RuleInfo {
    id: "missing-or-spent",
    must: "Each input MUST spend a coin that an earlier transaction created and no transaction has spent.",
    source: Core("CheckTxInputs"),
    core: "bad-txns-inputs-missingorspent",
    class: Consensus,
    tests: Mutations("made-earlier-in-the-block", "made-later-in-the-block"),
};

/// The rule against transactions that overwrite coins. It is checked where all coins are known;
/// [`crate::bip30_enforced`] returns for which blocks.
pub const BIP30: RuleInfo = RuleInfo {
    id: "bip30",
    must: "A transaction MUST NOT create a coin that already exists and is unspent.",
    source: Bip(30),
    core: "bad-txns-BIP30",
    class: Consensus,
    tests: Functions(
        "pipeline/src/stages/connect/tests.rs",
        "a_coinbase_can_be_repeated_once_its_coin_is_spent",
        "a_coinbase_cannot_be_repeated_while_its_coin_is_unspent",
    ),
};

/// The rule that a block of a signed network has a valid solution. It is checked where scripts can be run.
pub const SIGNET_SOLUTION: RuleInfo = RuleInfo {
    id: "signet-solution",
    must: "A block of a signed network MUST contain a valid solution of the network's challenge.",
    source: Bip(325),
    core: crate::signet::BAD_SIGNET_BLKSIG,
    class: Consensus,
    tests: Functions(
        "script/tests/script/signet.rs",
        "real_blocks_are_signed",
        "changed_blocks_are_not_signed",
    ),
};

/// The rule that scripts succeed. It is checked where scripts can be run; [`crate::script_flags()`] returns
/// the script rules that apply.
pub const SCRIPT: RuleInfo = RuleInfo {
    id: "script",
    must: "The scripts of each input MUST succeed.",
    source: Core("VerifyScript"),
    core: "block-script-verify-flag-failed",
    class: Consensus,
    tests: Mutations("spends-of-each-kind", "one-bad-input-of-many"),
};

const fn always(_: &ChainParams, _: Height) -> bool {
    true
}

/// Returns whether a block needs a solution: all blocks of a signed network, except the genesis block.
const fn needs_signet_solution(params: &ChainParams, height: Height) -> bool {
    params.signet_challenge.is_some() && height.0 > 0
}

/// Returns whether a header has a parent.
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

/// Id of the proof-of-work rule.
pub const PROOF_OF_WORK: &str = "proof-of-work";

/// Rules for headers (Core `CheckBlockHeader`, `ContextualCheckBlockHeader`).
pub static HEADER_RULES: &[HeaderRule] = &[
    RuleInfo {
        id: PROOF_OF_WORK,
        must: "The hash of a header MUST NOT be above its target, nor its target above the limit.",
        source: Core("CheckProofOfWork"),
        core: "high-hash",
        class: InvalidHeader,
        tests: Functions(BOUNDARIES, "accepts_hash_at_the_target", "rejects_hash_above_the_target"),
    }
    .checked(always, header::proof_of_work),
    RuleInfo {
        id: "difficulty",
        must: "The target of a header MUST be the one that the preceding headers determine.",
        source: Core("GetNextWorkRequired"),
        core: "bad-diffbits",
        class: InvalidHeader,
        tests: Mutations("plain", "bits-of-another-target"),
    }
    .checked(after_genesis, header::difficulty),
    RuleInfo {
        id: "time-after-median",
        must: "The time of a header MUST be above the median time of the eleven headers before it.",
        source: Core("ContextualCheckBlockHeader"),
        core: "time-too-old",
        class: InvalidHeader,
        tests: Mutations("time-after-the-median", "time-at-the-median"),
    }
    .checked(after_genesis, header::time_after_median),
    RuleInfo {
        id: "timewarp",
        must: "The first header of an interval MUST NOT be over 600 seconds earlier than its parent.",
        source: Bip(94),
        core: "time-timewarp-attack",
        class: InvalidHeader,
        tests: Functions(
            BOUNDARIES,
            "accepts_interval_600_seconds_back",
            "rejects_interval_601_seconds_back",
        ),
    }
    .checked(bip94, header::timewarp),
    RuleInfo {
        id: "time-not-in-future",
        must: "The time of a header MUST NOT be more than two hours in the future.",
        source: Core("ContextualCheckBlockHeader"),
        core: "time-too-new",
        class: TimeFuture,
        tests: Functions(BOUNDARIES, "accepts_time_2_hours_ahead", "rejects_time_2_hours_and_1_second_ahead"),
    }
    .checked(after_genesis, header::time_not_in_future),
    RuleInfo {
        id: "version-2",
        must: "The version of a header MUST be at least 2.",
        source: Bip(34),
        core: "bad-version",
        class: InvalidHeader,
        tests: Mutations("version-2", "version-1"),
    }
    .checked(version_2, header::version_2),
    RuleInfo {
        id: "version-3",
        must: "The version of a header MUST be at least 3.",
        source: Bip(66),
        core: "bad-version",
        class: InvalidHeader,
        tests: Mutations("version-3", "version-2"),
    }
    .checked(version_3, header::version_3),
    RuleInfo {
        id: "version-4",
        must: "The version of a header MUST be at least 4.",
        source: Bip(65),
        core: "bad-version",
        class: InvalidHeader,
        tests: Mutations("version-4", "version-3"),
    }
    .checked(version_4, header::version_4),
];

/// Rules for a block that are checked before its individual transactions (Core `CheckBlock`).
pub static STRUCTURE_RULES: &[BlockRule] = &[
    RuleInfo {
        id: "merkle-root",
        must: "The merkle root of the txids MUST equal the one in the header.",
        source: Core("CheckMerkleRoot"),
        core: "bad-txnmrklroot",
        class: Mutated,
        tests: Mutations("plain", "another-merkle-root"),
    }
    .checked(always, block::tx_merkle_root_matches),
    RuleInfo {
        id: "merkle-twin",
        must: "Adjacent nodes of the merkle tree MUST NOT be equal.",
        source: Cve("2012-2459"),
        core: "bad-txns-duplicate",
        class: Mutated,
        tests: Mutations("three-transactions", "repeated-last-transaction"),
    }
    .checked(always, block::no_duplicate_merkle_nodes),
    RuleInfo {
        id: "block-length",
        must: "A block MUST have at least one transaction and at most 1,000,000 bytes without witnesses.",
        source: Core("CheckBlock"),
        core: "bad-blk-length",
        class: Consensus,
        tests: Mutations("stripped-size-1000000", "stripped-size-1000001"),
    }
    .checked(always, block::length),
    RuleInfo {
        id: "first-is-coinbase",
        must: "The first transaction of a block MUST be a coinbase.",
        source: Core("CheckBlock"),
        core: "bad-cb-missing",
        class: Consensus,
        tests: Mutations("plain", "coinbase-second"),
    }
    .checked(always, block::first_is_coinbase),
    RuleInfo {
        id: "one-coinbase",
        must: "Transactions after the first MUST NOT be coinbases.",
        source: Core("CheckBlock"),
        core: "bad-cb-multiple",
        class: Consensus,
        tests: Mutations("plain", "two-coinbases"),
    }
    .checked(always, block::others_are_not_coinbases),
];

/// Rules for a transaction's own bytes (Core `CheckTransaction`).
pub static TX_RULES: &[TxRule] = &[
    RuleInfo {
        id: "has-inputs",
        must: "A transaction MUST have at least one input.",
        source: Core("CheckTransaction"),
        core: "bad-txns-vin-empty",
        class: Consensus,
        tests: Mutations("plain", "no-inputs"),
    }
    .checked(always, tx::has_inputs),
    RuleInfo {
        id: "has-outputs",
        must: "A transaction MUST have at least one output.",
        source: Core("CheckTransaction"),
        core: "bad-txns-vout-empty",
        class: Consensus,
        tests: Mutations("plain", "no-outputs"),
    }
    .checked(always, tx::has_outputs),
    RuleInfo {
        id: "tx-size",
        must: "A transaction MUST have at most 1,000,000 bytes without its witness.",
        source: Core("CheckTransaction"),
        core: "bad-txns-oversize",
        class: Consensus,
        tests: Functions(BOUNDARIES, "accepts_tx_of_1000000_bytes", "rejects_tx_of_1000001_bytes"),
    }
    .checked(always, tx::size),
    RuleInfo {
        id: "output-not-negative",
        must: "The amount of an output MUST NOT be negative.",
        source: Cve("2010-5139"),
        core: "bad-txns-vout-negative",
        class: Consensus,
        tests: Mutations("amount-0", "amount-minus-1"),
    }
    .checked(always, tx::output_not_negative),
    RuleInfo {
        id: "output-not-too-large",
        must: "The amount of an output MUST be at most 21,000,000 bitcoin.",
        source: Cve("2010-5139"),
        core: "bad-txns-vout-toolarge",
        class: Consensus,
        tests: Mutations("amount-of-all-money", "amount-above-max"),
    }
    .checked(always, tx::output_not_too_large),
    RuleInfo {
        id: "output-total",
        must: "The outputs of a transaction MUST total at most 21,000,000 bitcoin.",
        source: Cve("2010-5139"),
        core: "bad-txns-txouttotal-toolarge",
        class: Consensus,
        tests: Mutations("amounts-of-all-money", "amounts-above-max"),
    }
    .checked(always, tx::output_total),
    RuleInfo {
        id: "distinct-inputs",
        must: "The inputs of a transaction MUST spend different coins.",
        source: Cve("2018-17144"),
        core: "bad-txns-inputs-duplicate",
        class: Consensus,
        tests: Mutations("outputs-of-one-transaction-spent", "same-input-twice-of-many"),
    }
    .checked(always, tx::no_duplicate_inputs),
    RuleInfo {
        id: "coinbase-script-size",
        must: "The script of a coinbase's input MUST be 2 to 100 bytes long.",
        source: Core("CheckTransaction"),
        core: "bad-cb-length",
        class: Consensus,
        tests: Mutations("coinbase-script-100-bytes", "coinbase-script-101-bytes"),
    }
    .checked(always, tx::coinbase_script_size),
    RuleInfo {
        id: "no-null-prevout",
        must: "An input of a transaction other than the coinbase MUST NOT have a null outpoint.",
        source: Core("CheckTransaction"),
        core: "bad-txns-prevout-null",
        class: Consensus,
        tests: Mutations("input-of-a-null-txid", "null-input"),
    }
    .checked(always, tx::no_null_prevout),
];

/// Rules for a block that are checked after its transactions (the rest of Core `CheckBlock`, then
/// `ContextualCheckBlock`).
pub static BODY_RULES: &[BlockRule] = &[
    RuleInfo {
        id: "legacy-sigops",
        must: "A block MUST have at most 20,000 legacy signature operations.",
        source: Core("CheckBlock"),
        core: "bad-blk-sigops",
        class: Consensus,
        tests: Mutations("output-sigops-20000", "output-sigops-20001"),
    }
    .checked(always, block::legacy_sigops_within_limit),
    RuleInfo {
        id: "lock-time",
        must: "A transaction MUST NOT occur before its lock time, unless all its inputs are final.",
        source: Bip(113),
        core: "bad-txns-nonfinal",
        class: Consensus,
        tests: Mutations("lock-at-the-height-before", "lock-at-this-height"),
    }
    .checked(always, block::lock_times),
    RuleInfo {
        id: "coinbase-height",
        must: "The script of a coinbase's input MUST begin with a push of the block's height.",
        source: Bip(34),
        core: "bad-cb-height",
        class: Consensus,
        tests: Mutations("coinbase-script-height-only", "height-of-the-block-before"),
    }
    .checked(block::bip34_active, block::coinbase_height),
    RuleInfo {
        id: "witness-reserved-value",
        must: "The witness of a coinbase with a commitment MUST be a single item of 32 bytes.",
        source: Bip(141),
        core: "bad-witness-nonce-size",
        class: Mutated,
        tests: Mutations("commitment-without-witness", "reserved-value-31-bytes"),
    }
    .checked(block::segwit_active, block::witness_reserved_value),
    RuleInfo {
        id: "witness-commitment",
        must: "The last commitment of a coinbase MUST commit to the witnesses of the block.",
        source: Bip(141),
        core: "bad-witness-merkle-match",
        class: Mutated,
        tests: Mutations("last-commitment-counts", "another-commitment"),
    }
    .checked(block::segwit_active, block::witness_commitment),
    RuleInfo {
        id: "unexpected-witness",
        must: "A block without a commitment MUST NOT have witnesses.",
        source: Bip(141),
        core: "unexpected-witness",
        class: Mutated,
        tests: Mutations("neither-commitment-nor-witness", "witness-without-commitment"),
    }
    .checked(always, block::no_unexpected_witness),
    RuleInfo {
        id: "block-weight",
        must: "The weight of a block MUST be at most 4,000,000.",
        source: Bip(141),
        core: "bad-blk-weight",
        class: Consensus,
        tests: Mutations("weight-4000000", "weight-4000001"),
    }
    .checked(always, block::weight),
];

/// Rules for a transaction and the coins that it spends (Core `ConnectBlock`).
pub static SPEND_RULES: &[SpendRule] = &[
    Rule { info: MISSING_OR_SPENT, active: always, check: spend::coins_exist },
    RuleInfo {
        id: "coinbase-maturity",
        must: "An output of a coinbase MUST NOT be spent by a block less than 100 blocks above it.",
        source: Core("CheckTxInputs"),
        core: "bad-txns-premature-spend-of-coinbase",
        class: Consensus,
        tests: Mutations("coinbase-aged-100", "coinbase-aged-99"),
    }
    .checked(always, spend::coinbase_is_mature),
    RuleInfo {
        id: "input-values",
        must: "The inputs of a transaction MUST be at most 21,000,000 bitcoin each and in total.",
        source: Core("CheckTxInputs"),
        core: "bad-txns-inputvalues-outofrange",
        class: Consensus,
        tests: Functions(BOUNDARIES, "accepts_inputs_of_all_money", "rejects_inputs_above_all_money"),
    }
    .checked(always, spend::input_values_in_range),
    RuleInfo {
        id: "inputs-pay-outputs",
        must: "The inputs of a transaction MUST be worth at least its outputs.",
        source: Core("CheckTxInputs"),
        core: "bad-txns-in-belowout",
        class: Consensus,
        tests: Mutations("pays-all-it-spends", "pays-1-more-than-it-spends"),
    }
    .checked(always, spend::inputs_pay_outputs),
    RuleInfo {
        id: "fees",
        must: "The fees of a block MUST total at most 21,000,000 bitcoin.",
        source: Core("ConnectBlock"),
        core: "bad-txns-accumulated-fee-outofrange",
        class: Consensus,
        tests: Functions(BOUNDARIES, "accepts_fees_of_all_money", "rejects_fees_above_all_money"),
    }
    .checked(always, spend::fees_in_range),
    RuleInfo {
        id: "relative-lock-time",
        must: "From version 2 on, a transaction MUST NOT spend a coin before its relative lock time.",
        source: Bip(68),
        core: "bad-txns-nonfinal",
        class: Consensus,
        tests: Mutations("relative-lock-of-3-blocks", "relative-lock-of-4-blocks"),
    }
    .checked(spend::csv_active, spend::relative_locks),
    RuleInfo {
        id: "sigop-cost",
        must: "The total cost of the signature operations of a block MUST be at most 80,000.",
        source: Bip(141),
        core: "bad-blk-sigops",
        class: Consensus,
        tests: Mutations("witness-sigops-80000", "witness-sigops-80001"),
    }
    .checked(always, spend::sigop_cost_within_limit),
];

/// The rule for a coinbase's amount (Core `ConnectBlock`).
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

/// Returns whether a rule applies to a block at a height.
pub type Active = fn(&ChainParams, Height) -> bool;

/// A section of `docs/rules.md`: a title, and the rules with the conditions under which they apply.
pub struct Section {
    /// The heading.
    pub title: &'static str,
    /// The rules in validation order.
    pub rows: Vec<(&'static RuleInfo, Active)>,
}

/// Returns all rules in validation order, for docs and tests.
pub fn sections() -> Vec<Section> {
    fn section<F>(title: &'static str, rules: &'static [Rule<F>]) -> Section {
        Section { title, rows: rules.iter().map(|rule| (&rule.info, rule.active)).collect() }
    }
    let mut spends = section("Transactions and the coins they spend", SPEND_RULES);
    // Core checks BIP-0030 for the whole block before the first spend.
    spends.rows.insert(0, (&BIP30, always));
    let mut structure = section("Blocks, before their transactions", STRUCTURE_RULES);
    structure.rows.insert(0, (&SIGNET_SOLUTION, needs_signet_solution));
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
