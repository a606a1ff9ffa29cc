//! Other commands of the product, and the controls.

use super::{super::steps, Measure, Proposal, SWIFTSYNC, Unit, command, core, rebuild, said, step};
use bench::baseline::{
    hashers::Jumbo,
    tables::{CoinTable, InTable},
};
use coins::OwnedCoin;

/// The controls: one variant twice.
pub const CONTROLS: [&str; 2] = ["control", "control-run"];

const MAKE_HINTS: &[&str] = &["hints", "make", "--output", "{output}"];
const MAKE_SNAPSHOT: &[&str] = &["snapshot", "make", "--output", "{output}"];

pub const PROPOSALS: &[Proposal] = &[
    Proposal {
        name: "hints-make",
        title: "Making hints",
        measure: Measure::Wall,
        unit: Unit::Bytes,
        statements: &[],
        differs: "The thread asks for faster generation and has no number.",
        variants: &[
            command("from the blocks", MAKE_HINTS, &[], "hints"),
            command("from the chainstate", MAKE_HINTS, &["--chainstate"], "hints"),
        ],
    },
    Proposal {
        name: "verify",
        title: "All checks of a rebuild, with and without writing",
        measure: Measure::Wall,
        unit: Unit::Bytes,
        statements: &[],
        differs: "The documents have no such command.",
        variants: &[
            command("reindex", &["reindex", "--output", "{output}"], &[], "coins"),
            command("verify", &["verify"], &[], "coins"),
        ],
    },
    Proposal {
        name: "utxo-stats",
        title: "Reading all coins of a chainstate, as gettxoutsetinfo does",
        measure: Measure::Wall,
        unit: Unit::Bytes,
        statements: &[],
        differs: "The documents name this as a benchmark and have no number.",
        variants: &[
            command("hash_serialized_3", &["utxo", "stats"], &[], "hash_serialized_3"),
            command("with MuHash", &["utxo", "stats"], &["--muhash"], "hash_serialized_3"),
            core("bitcoind: gettxoutsetinfo", &["gettxoutsetinfo", "hash_serialized_3"], "hash_serialized_3"),
        ],
    },
    Proposal {
        name: "snapshot-make",
        title: "Making a snapshot, as dumptxoutset does",
        measure: Measure::Wall,
        unit: Unit::Bytes,
        statements: &[],
        differs: "The documents name this as a benchmark and have no number.",
        variants: &[
            command("from the blocks", MAKE_SNAPSHOT, &[], "hash_serialized_3"),
            command("from the chainstate", MAKE_SNAPSHOT, &["--chainstate"], "hash_serialized_3"),
            core("bitcoind: dumptxoutset", &["dumptxoutset", "{output}", "latest"], "txoutset_hash"),
        ],
    },
    Proposal {
        name: "last-flush",
        title: "The last flush: many coins written and synced",
        measure: Measure::Wall,
        unit: Unit::Many("coins"),
        statements: &[said("173,676,464 coins", (757.0, 757.0), "s", "slow VPS", SWIFTSYNC)],
        differs: "Bitcoin Core writes through LevelDB's log and compactions, in the order of a hash table; \
                  here coins come in the order of their keys and become tables at once.",
        variants: &[
            step("written and synced", steps::flush_last::<false>),
            step("read back and hashed too", steps::flush_last::<true>),
        ],
    },
    Proposal {
        name: CONTROLS[0],
        title: "Control: the same step twice",
        measure: Measure::Processor,
        unit: Unit::Each("coin"),
        statements: &[],
        differs: "Both variants are the same, so that the interval is the noise of steps.",
        variants: &[
            step("first", steps::connect_all::<CoinTable<Jumbo, InTable<OwnedCoin>>>),
            step("second", steps::connect_all::<CoinTable<Jumbo, InTable<OwnedCoin>>>),
        ],
    },
    Proposal {
        name: CONTROLS[1],
        title: "Control: the same rebuild twice",
        measure: Measure::Wall,
        unit: Unit::Bytes,
        statements: &[],
        differs: "Both variants are the same, so that the interval is the noise of runs.",
        variants: &[rebuild("first", &[]), rebuild("second", &[])],
    },
];
