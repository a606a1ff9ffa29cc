//! Bitcoin's consensus rules, except script execution, as one table.
//!
//! [`table`] lists every rule in the order in which Bitcoin Core checks them; docs, errors and tests read
//! the same rows. A rule is a pure function of a narrow context: no file, no lock, no clock ("now" is an
//! argument). [`check_header`] checks headers, [`check_block`] a block's own bytes, and
//! [`check_block_spends`] what depends on the spent coins.
//!
//! The last two start with one fused pass that only returns whether *all* rules pass. If they do not, the
//! table is evaluated row by row and names the first broken rule, as Core would. The fast pass therefore
//! cannot change which violation is reported, and tests prove that it does not change a verdict.
//!
//! ```
//! use peregrine_rules::{ChainParams, pow};
//! use wire::Network;
//!
//! // The genesis block of mainnet has proof of work; its hash does not satisfy a target 2^16 times as hard.
//! let params = ChainParams::of(Network::Main);
//! assert!(pow::has_proof_of_work(params, &params.genesis_hash, 0x1d00_ffff));
//! assert!(!pow::has_proof_of_work(params, &params.genesis_hash, 0x1b00_ffff));
//! ```
#![forbid(unsafe_code)]

pub mod assume;
pub mod block;
mod genesis;
pub mod header;
pub mod params;
pub mod pow;
pub mod script_flags;
pub mod signet;
pub mod sigops;
pub mod spend;
pub mod table;
pub mod tx;
pub mod violation;

pub use block::{BlockContext, check_block};
pub use digest::merkle;
pub use ethnum::U256;
pub use header::{Ancestors, HeaderContext, MEDIAN_TIME_SPAN, check_header, median_time_past, median_times};
pub use params::{
    BuriedDeployment, CORE_VERSION, ChainParams, PinnedUtxoSet, bip30_enforced, is_bip30_exempt, subsidy,
};
pub use pow::{expected_bits, work};
pub use script_flags::script_flags;
pub use signet::{check_signet_solution, signet_solution};
pub use spend::{
    BlockSpendContext, BlockTotals, RewardContext, SpendContext, SpentCoin, check_block_spends,
    check_coinbase_amount, check_tx_spends,
};
pub use table::{BIP30, MISSING_OR_SPENT, PROOF_OF_WORK, SCRIPT, SIGNET_SOLUTION};
pub use tx::{TxContext, check_tx, inputs_are_distinct_and_not_null};
pub use violation::{Rule, RuleInfo, RuleSource, Tests, Violation, ViolationClass, ViolationDetails};
