//! Hashes of outpoints.

use super::{super::steps, JUMBO, Measure, Proposal, TRACKING, Unit, said, step};
use bench::baseline::{
    engine::{ALL, JUMBO as JUMBO_WAY},
    hashers::{Crate24, Jumbo, Salted24, Sip, Std, Unsalted24},
    tables::{CoinTable, InTable, Pooled, Wide},
};
use coins::OwnedCoin;

type Cache<H> = CoinTable<H, InTable<OwnedCoin>>;
type Index<H> = CoinTable<H, Pooled<Wide>>;

pub const PROPOSALS: &[Proposal] = &[
    Proposal {
        name: "hash",
        title: "Hash of an outpoint",
        measure: Measure::Processor,
        unit: Unit::Each("outpoint"),
        statements: &[
            said("hash", (33.92, 16.61), "ns", "Raspberry Pi 5, GCC 14.2", JUMBO),
            said("hash", (33.21, 17.02), "ns", "Raspberry Pi 5, Clang 22", JUMBO),
        ],
        differs: "A large core overlaps hashes that do not depend on each other, which the processor of the \
                  document does less.",
        variants: &[
            step("SipHash-2-4, key mixed in once", steps::hash::<Salted24>),
            step("SipHash-2-4, crate siphasher", steps::hash::<Crate24>),
            step("standard library's", steps::hash::<Std>),
            step("SipHash-1-3, jumbo blocks", steps::hash::<Jumbo>),
        ],
    },
    Proposal {
        name: "hash-rounds",
        title: "Hash of an outpoint: the eight forms by their rounds",
        measure: Measure::Processor,
        unit: Unit::Each("outpoint"),
        statements: &[said("rounds of the first and the last form", (16.0, 5.0), "rounds", "none", JUMBO)],
        differs: "The document counts rounds only; a hash also loads the outpoint and begins and ends its \
                  state.",
        variants: &[
            step("2-4, padded: 16 rounds", steps::hash::<Sip<2, 4, false, true, true>>),
            step("2-4: 14 rounds", steps::hash::<Salted24>),
            step("2-4, jumbo blocks, padded: 10 rounds", steps::hash::<Sip<2, 4, true, true, true>>),
            step("2-4, jumbo blocks: 8 rounds", steps::hash::<Sip<2, 4, true, false, true>>),
            step("1-3, padded: 9 rounds", steps::hash::<Sip<1, 3, false, true, true>>),
            step("1-3: 8 rounds", steps::hash::<Sip<1, 3, false, false, true>>),
            step("1-3, jumbo blocks, padded: 6 rounds", steps::hash::<Sip<1, 3, true, true, true>>),
            step("1-3, jumbo blocks: 5 rounds", steps::hash::<Sip<1, 3, true, false, true>>),
        ],
    },
    Proposal {
        name: "hash-whole-small",
        title: "Hash of outpoints, in the whole work of a run in order with a small cache",
        measure: Measure::Processor,
        unit: Unit::Whole,
        statements: &[
            said("reindex to 946,649", (19_247.0, 18_358.0), "s", "i9-9900K, SSD, dbcache 1000", JUMBO),
            said("reindex to 946,649", (37_976.0, 37_077.0), "s", "Raspberry Pi 5, SSD", JUMBO),
            said("reindex to 946,649", (27_195.0, 26_559.0), "s", "N150, SSD", JUMBO),
        ],
        differs: "The chain is a generated one and short, its cache has room for one in 16 outputs, and no \
                  scripts are run.",
        variants: &[
            step("SipHash-2-4, key mixed in once", steps::in_order::<{ ALL & !JUMBO_WAY }, 16>),
            step("SipHash-1-3, jumbo blocks", steps::in_order::<ALL, 16>),
        ],
    },
    Proposal {
        name: "hash-whole-large",
        title: "Hash of outpoints, in the whole work of a run in order with a large cache",
        measure: Measure::Processor,
        unit: Unit::Whole,
        statements: &[said(
            "reindex to 946,649",
            (17_665.0, 16_835.0),
            "s",
            "i9-9900K, SSD, dbcache 30000",
            JUMBO,
        )],
        differs: "The chain is a generated one and short, its cache is flushed at the end only, and no \
                  scripts are run.",
        variants: &[
            step("SipHash-2-4, key mixed in once", steps::in_order::<{ ALL & !JUMBO_WAY }, 1>),
            step("SipHash-1-3, jumbo blocks", steps::in_order::<ALL, 1>),
        ],
    },
    Proposal {
        name: "cache-hash",
        title: "Hash of a table of coins, by itself",
        measure: Measure::Processor,
        unit: Unit::Each("coin"),
        statements: &[],
        differs: "The document has only whole runs; the table here is never flushed, and a longer hash also \
                  keeps the processor from overlapping misses of its caches, so that it may cost more than \
                  its own time.",
        variants: &[
            step("SipHash-2-4, key mixed in once", steps::connect_all::<Cache<Salted24>>),
            step("standard library's", steps::connect_all::<Cache<Std>>),
            step("SipHash-1-3, jumbo blocks", steps::connect_all::<Cache<Jumbo>>),
        ],
    },
    Proposal {
        name: "index-hash",
        title: "Hash of an index of pooled coins, as the join has",
        measure: Measure::Processor,
        unit: Unit::Each("coin"),
        statements: &[],
        differs: "The documents have no such table; unlike the join's own index, which keeps a part of each \
                  hash, it hashes its outpoints again when it grows.",
        variants: &[
            step("SipHash-2-4, key mixed in once", steps::connect_all::<Index<Salted24>>),
            step("standard library's", steps::connect_all::<Index<Std>>),
            step("SipHash-1-3, jumbo blocks", steps::connect_all::<Index<Jumbo>>),
        ],
    },
    Proposal {
        name: "presalted",
        title: "Key mixed into SipHash-2-4 once, not for each hash",
        measure: Measure::Processor,
        unit: Unit::Each("outpoint"),
        statements: &[
            said("hash", (11.97, 11.24), "ns", "Clang, machine not named", TRACKING),
            said("download to 886,000", (26_326.9, 26_084.4), "s", super::I9, TRACKING),
        ],
        differs: "In the document's whole run, hashes are one of many parts.",
        variants: &[step("for each hash", steps::hash::<Unsalted24>), step("once", steps::hash::<Salted24>)],
    },
    Proposal {
        name: "set-create",
        title: "A set of outpoints: making it",
        measure: Measure::Processor,
        unit: Unit::Each("outpoint"),
        statements: &[said("create", (136.8, 135.4), "ns", "GCC, machine not named", TRACKING)],
        differs: "The document's set is a std::unordered_set of few outpoints; this one is a hashbrown \
                  table of all that the chain spends.",
        variants: &[
            step("2-4, key mixed in for each hash", steps::set_create::<Unsalted24>),
            step("2-4, key mixed in once", steps::set_create::<Salted24>),
            step("1-3, jumbo blocks", steps::set_create::<Jumbo>),
        ],
    },
    Proposal {
        name: "set-hit",
        title: "A set of outpoints: finding one that it has",
        measure: Measure::Processor,
        unit: Unit::Each("outpoint"),
        statements: &[
            said("hit", (60.42, 58.95), "ns", "GCC, machine not named", TRACKING),
            said("hit", (14.50, 13.91), "ns", "Clang, machine not named", TRACKING),
        ],
        differs: "The document's set is small enough for the processor's caches.",
        variants: &[
            step("2-4, key mixed in for each hash", steps::set_find::<Unsalted24, true>),
            step("2-4, key mixed in once", steps::set_find::<Salted24, true>),
            step("1-3, jumbo blocks", steps::set_find::<Jumbo, true>),
        ],
    },
    Proposal {
        name: "set-miss",
        title: "A set of outpoints: looking for one that it does not have",
        measure: Measure::Processor,
        unit: Unit::Each("outpoint"),
        statements: &[
            said("miss", (78.66, 76.98), "ns", "GCC, machine not named", TRACKING),
            said("miss", (13.90, 13.29), "ns", "Clang, machine not named", TRACKING),
        ],
        differs: "The document's set is small enough for the processor's caches.",
        variants: &[
            step("2-4, key mixed in for each hash", steps::set_find::<Unsalted24, false>),
            step("2-4, key mixed in once", steps::set_find::<Salted24, false>),
            step("1-3, jumbo blocks", steps::set_find::<Jumbo, false>),
        ],
    },
];
