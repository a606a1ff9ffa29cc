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
        ViolationDetails, rule,
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
pub const MISSING_OR_SPENT: RuleInfo =
    rule("missing-or-spent", Core("CheckTxInputs"), "bad-txns-inputs-missingorspent", Consensus)
        .must(
            "Each input MUST spend a coin that an earlier transaction created and no transaction has spent.",
        )
        .tests(Mutations("made-earlier-in-the-block", "made-later-in-the-block"));

/// The rule against transactions that overwrite coins. It is checked where all coins are known;
/// [`crate::bip30_enforced`] returns for which blocks.
pub const BIP30: RuleInfo = rule("bip30", Bip(30), "bad-txns-BIP30", Consensus)
    .must("A transaction MUST NOT create a coin that already exists and is unspent.")
    .tests(Functions(
        "pipeline/src/stages/connect/tests.rs",
        "a_coinbase_can_be_repeated_once_its_coin_is_spent",
        "a_coinbase_cannot_be_repeated_while_its_coin_is_unspent",
    ));

/// The rule that a block of a signed network has a valid solution. It is checked where scripts can be run.
pub const SIGNET_SOLUTION: RuleInfo = rule("signet-solution", Bip(325), "bad-signet-blksig", Consensus)
    .must("A block of a signed network MUST contain a valid solution of the network's challenge.")
    .tests(Functions(
        "script/tests/script/signet.rs",
        "real_blocks_are_signed",
        "changed_blocks_are_not_signed",
    ));

/// The rule that scripts succeed. It is checked where scripts can be run; [`crate::script_flags()`] returns
/// the script rules that apply.
pub const SCRIPT: RuleInfo =
    rule("script", Core("VerifyScript"), "block-script-verify-flag-failed", Consensus)
        .must("The scripts of each input MUST succeed.")
        .tests(Mutations("spends-of-each-kind", "one-bad-input-of-many"));

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
    rule(PROOF_OF_WORK, Core("CheckProofOfWork"), "high-hash", InvalidHeader)
        .must("The hash of a header MUST NOT be above its target, nor its target above the limit.")
        .tests(Functions(BOUNDARIES, "accepts_hash_at_the_target", "rejects_hash_above_the_target"))
        .checked(always, header::proof_of_work),
    rule("difficulty", Core("GetNextWorkRequired"), "bad-diffbits", InvalidHeader)
        .must("The target of a header MUST be the one that the preceding headers determine.")
        .tests(Mutations("plain", "bits-of-another-target"))
        .checked(after_genesis, header::difficulty),
    rule("time-after-median", Core("ContextualCheckBlockHeader"), "time-too-old", InvalidHeader)
        .must("The time of a header MUST be above the median time of the eleven headers before it.")
        .tests(Mutations("time-after-the-median", "time-at-the-median"))
        .checked(after_genesis, header::time_after_median),
    rule("timewarp", Bip(94), "time-timewarp-attack", InvalidHeader)
        .must("The first header of an interval MUST NOT be over 600 seconds earlier than its parent.")
        .tests(Functions(
            BOUNDARIES,
            "accepts_interval_600_seconds_back",
            "rejects_interval_601_seconds_back",
        ))
        .checked(bip94, header::timewarp),
    rule("time-not-in-future", Core("ContextualCheckBlockHeader"), "time-too-new", TimeFuture)
        .must("The time of a header MUST NOT be more than two hours in the future.")
        .tests(Functions(BOUNDARIES, "accepts_time_2_hours_ahead", "rejects_time_2_hours_and_1_second_ahead"))
        .checked(after_genesis, header::time_not_in_future),
    rule("version-2", Bip(34), "bad-version", InvalidHeader)
        .must("The version of a header MUST be at least 2.")
        .tests(Mutations("version-2", "version-1"))
        .checked(block::bip34_active, |c| header::version_at_least(c, 2)),
    rule("version-3", Bip(66), "bad-version", InvalidHeader)
        .must("The version of a header MUST be at least 3.")
        .tests(Mutations("version-3", "version-2"))
        .checked(version_3, |c| header::version_at_least(c, 3)),
    rule("version-4", Bip(65), "bad-version", InvalidHeader)
        .must("The version of a header MUST be at least 4.")
        .tests(Mutations("version-4", "version-3"))
        .checked(version_4, |c| header::version_at_least(c, 4)),
];

/// Rules for a block that are checked before its individual transactions (Core `CheckBlock`).
pub static STRUCTURE_RULES: &[BlockRule] = &[
    rule("merkle-root", Core("CheckMerkleRoot"), "bad-txnmrklroot", Mutated)
        .must("The merkle root of the txids MUST equal the one in the header.")
        .tests(Mutations("plain", "another-merkle-root"))
        .checked(always, block::tx_merkle_root_matches),
    rule("merkle-twin", Cve("2012-2459"), "bad-txns-duplicate", Mutated)
        .must("Adjacent nodes of the merkle tree MUST NOT be equal.")
        .tests(Mutations("three-transactions", "repeated-last-transaction"))
        .checked(always, block::no_duplicate_merkle_nodes),
    rule("block-length", Core("CheckBlock"), "bad-blk-length", Consensus)
        .must("A block MUST have at least one transaction and at most 1,000,000 bytes without witnesses.")
        .tests(Mutations("stripped-size-1000000", "stripped-size-1000001"))
        .checked(always, block::length),
    rule("first-is-coinbase", Core("CheckBlock"), "bad-cb-missing", Consensus)
        .must("The first transaction of a block MUST be a coinbase.")
        .tests(Mutations("plain", "coinbase-second"))
        .checked(always, block::first_is_coinbase),
    rule("one-coinbase", Core("CheckBlock"), "bad-cb-multiple", Consensus)
        .must("Transactions after the first MUST NOT be coinbases.")
        .tests(Mutations("plain", "two-coinbases"))
        .checked(always, block::others_are_not_coinbases),
];

/// Rules for a transaction's own bytes (Core `CheckTransaction`).
pub static TX_RULES: &[TxRule] = &[
    rule("has-inputs", Core("CheckTransaction"), "bad-txns-vin-empty", Consensus)
        .must("A transaction MUST have at least one input.")
        .tests(Mutations("plain", "no-inputs"))
        .checked(always, tx::has_inputs),
    rule("has-outputs", Core("CheckTransaction"), "bad-txns-vout-empty", Consensus)
        .must("A transaction MUST have at least one output.")
        .tests(Mutations("plain", "no-outputs"))
        .checked(always, tx::has_outputs),
    rule("tx-size", Core("CheckTransaction"), "bad-txns-oversize", Consensus)
        .must("A transaction MUST have at most 1,000,000 bytes without its witness.")
        .tests(Functions(BOUNDARIES, "accepts_tx_of_1000000_bytes", "rejects_tx_of_1000001_bytes"))
        .checked(always, tx::size),
    rule("output-not-negative", Cve("2010-5139"), "bad-txns-vout-negative", Consensus)
        .must("The amount of an output MUST NOT be negative.")
        .tests(Mutations("amount-0", "amount-minus-1"))
        .checked(always, tx::output_not_negative),
    rule("output-not-too-large", Cve("2010-5139"), "bad-txns-vout-toolarge", Consensus)
        .must("The amount of an output MUST be at most 21,000,000 bitcoin.")
        .tests(Mutations("amount-of-all-money", "amount-above-max"))
        .checked(always, tx::output_not_too_large),
    rule("output-total", Cve("2010-5139"), "bad-txns-txouttotal-toolarge", Consensus)
        .must("The outputs of a transaction MUST total at most 21,000,000 bitcoin.")
        .tests(Mutations("amounts-of-all-money", "amounts-above-max"))
        .checked(always, tx::output_total),
    rule("distinct-inputs", Cve("2018-17144"), "bad-txns-inputs-duplicate", Consensus)
        .must("The inputs of a transaction MUST spend different coins.")
        .tests(Mutations("outputs-of-one-transaction-spent", "same-input-twice-of-many"))
        .checked(always, tx::no_duplicate_inputs),
    rule("coinbase-script-size", Core("CheckTransaction"), "bad-cb-length", Consensus)
        .must("The script of a coinbase's input MUST be 2 to 100 bytes long.")
        .tests(Mutations("coinbase-script-100-bytes", "coinbase-script-101-bytes"))
        .checked(always, tx::coinbase_script_size),
    rule("no-null-prevout", Core("CheckTransaction"), "bad-txns-prevout-null", Consensus)
        .must("An input of a transaction other than the coinbase MUST NOT have a null outpoint.")
        .tests(Mutations("input-of-a-null-txid", "null-input"))
        .checked(always, tx::no_null_prevout),
];

/// Rules for a block that are checked after its transactions (the rest of Core `CheckBlock`, then
/// `ContextualCheckBlock`).
pub static BODY_RULES: &[BlockRule] = &[
    rule("legacy-sigops", Core("CheckBlock"), "bad-blk-sigops", Consensus)
        .must("A block MUST have at most 20,000 legacy signature operations.")
        .tests(Mutations("output-sigops-20000", "output-sigops-20001"))
        .checked(always, block::legacy_sigops_within_limit),
    rule("lock-time", Bip(113), "bad-txns-nonfinal", Consensus)
        .must("A transaction MUST NOT occur before its lock time, unless all its inputs are final.")
        .tests(Mutations("lock-at-the-height-before", "lock-at-this-height"))
        .checked(always, block::lock_times),
    rule("coinbase-height", Bip(34), "bad-cb-height", Consensus)
        .must("The script of a coinbase's input MUST begin with a push of the block's height.")
        .tests(Mutations("coinbase-script-height-only", "height-of-the-block-before"))
        .checked(block::bip34_active, block::coinbase_height),
    rule("witness-reserved-value", Bip(141), "bad-witness-nonce-size", Mutated)
        .must("The witness of a coinbase with a commitment MUST be a single item of 32 bytes.")
        .tests(Mutations("commitment-without-witness", "reserved-value-31-bytes"))
        .checked(block::segwit_active, block::witness_reserved_value),
    rule("witness-commitment", Bip(141), "bad-witness-merkle-match", Mutated)
        .must("The last commitment of a coinbase MUST commit to the witnesses of the block.")
        .tests(Mutations("last-commitment-counts", "another-commitment"))
        .checked(block::segwit_active, block::witness_commitment),
    rule("unexpected-witness", Bip(141), "unexpected-witness", Mutated)
        .must("A block without a commitment MUST NOT have witnesses.")
        .tests(Mutations("neither-commitment-nor-witness", "witness-without-commitment"))
        .checked(always, block::no_unexpected_witness),
    rule("block-weight", Bip(141), "bad-blk-weight", Consensus)
        .must("The weight of a block MUST be at most 4,000,000.")
        .tests(Mutations("weight-4000000", "weight-4000001"))
        .checked(always, block::weight),
];

/// Rules for a transaction and the coins that it spends (Core `ConnectBlock`).
pub static SPEND_RULES: &[SpendRule] = &[
    MISSING_OR_SPENT.checked(always, spend::coins_exist),
    rule("coinbase-maturity", Core("CheckTxInputs"), "bad-txns-premature-spend-of-coinbase", Consensus)
        .must("An output of a coinbase MUST NOT be spent by a block less than 100 blocks above it.")
        .tests(Mutations("coinbase-aged-100", "coinbase-aged-99"))
        .checked(always, spend::coinbase_is_mature),
    rule("input-values", Core("CheckTxInputs"), "bad-txns-inputvalues-outofrange", Consensus)
        .must("The inputs of a transaction MUST be at most 21,000,000 bitcoin each and in total.")
        .tests(Functions(BOUNDARIES, "accepts_inputs_of_all_money", "rejects_inputs_above_all_money"))
        .checked(always, spend::input_values_in_range),
    rule("inputs-pay-outputs", Core("CheckTxInputs"), "bad-txns-in-belowout", Consensus)
        .must("The inputs of a transaction MUST be worth at least its outputs.")
        .tests(Mutations("pays-all-it-spends", "pays-1-more-than-it-spends"))
        .checked(always, spend::inputs_pay_outputs),
    rule("fees", Core("ConnectBlock"), "bad-txns-accumulated-fee-outofrange", Consensus)
        .must("The fees of a block MUST total at most 21,000,000 bitcoin.")
        .tests(Functions(BOUNDARIES, "accepts_fees_of_all_money", "rejects_fees_above_all_money"))
        .checked(always, spend::fees_in_range),
    rule("relative-lock-time", Bip(68), "bad-txns-nonfinal", Consensus)
        .must("From version 2 on, a transaction MUST NOT spend a coin before its relative lock time.")
        .tests(Mutations("relative-lock-of-3-blocks", "relative-lock-of-4-blocks"))
        .checked(spend::csv_active, spend::relative_locks),
    rule("sigop-cost", Bip(141), "bad-blk-sigops", Consensus)
        .must("The total cost of the signature operations of a block MUST be at most 80,000.")
        .tests(Mutations("witness-sigops-80000", "witness-sigops-80001"))
        .checked(always, spend::sigop_cost_within_limit),
];

/// The rule for a coinbase's amount (Core `ConnectBlock`).
pub static REWARD_RULES: &[RewardRule] =
    &[rule("coinbase-amount", Core("ConnectBlock"), "bad-cb-amount", Consensus)
        .must("A coinbase MUST NOT pay more than the subsidy and the fees of its block.")
        .tests(Mutations("reward-exact", "reward-1-too-much"))
        .checked(always, spend::coinbase_amount)];

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
