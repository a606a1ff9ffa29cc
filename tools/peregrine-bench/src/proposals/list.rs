//! The proposals, with what their documents said.

use super::{
    proposal::{Clock, Proposal, Run, Statement, Unit, Variant, Work},
    steps,
};
use bench::baseline::{
    hashers::{Jumbo, SipHash13, SipHash24, Std, UnsaltedJumbo},
    tables::{Allocated, CoinTable, InTable, InlineCoin, Pooled},
};
use coins::OwnedCoin;

const TRACKING: &str = "Bitcoin Core #32043, speeding up initial block download";
const JUMBO: &str = "Bitcoin Core, SipHash-1-3 with jumbo blocks for outpoints";
const OBFUSCATION: &str = "Bitcoin Core #31144, obfuscation of several bytes at once";
const SWIFTSYNC: &str = "the thread on SwiftSync";
/// The machine of most measurements in the tracking document.
const I9: &str = "i9-9900K, 64 GB, NVMe RAID, dbcache 5000";

const fn said(
    what: &'static str,
    (before, after): (f64, f64),
    unit: &'static str,
    machine: &'static str,
    source: &'static str,
) -> Statement {
    Statement { what, before, after, unit, machine, source }
}

const fn step(name: &'static str, step: super::Step) -> Variant {
    Variant { name, work: Work::Step(step) }
}

const fn run(name: &'static str, args: &'static [&'static str]) -> Variant {
    Variant { name, work: Work::Run(Run { args, has_hints: false, is_plain: false }) }
}

const fn plain(name: &'static str, args: &'static [&'static str]) -> Variant {
    Variant { name, work: Work::Run(Run { args, has_hints: false, is_plain: true }) }
}

const fn hinted(name: &'static str, args: &'static [&'static str]) -> Variant {
    Variant { name, work: Work::Run(Run { args, has_hints: true, is_plain: false }) }
}

type Cache<H> = CoinTable<H, InTable<OwnedCoin>>;
type Index<H> = CoinTable<H, Pooled<InlineCoin>>;
type Inline = CoinTable<Jumbo, InTable<InlineCoin>>;
type OnHeap = CoinTable<Jumbo, Allocated<InlineCoin>>;

/// All proposals, in the order in which they are measured.
pub const PROPOSALS: &[Proposal] = &[
    Proposal {
        name: "engines",
        title: "The whole rebuild: Core's way, the join, hints",
        clock: Clock::Wall,
        unit: Unit::Bytes,
        statements: &[
            said("initial block download to 886,000, all steps", (30_932.6, 26_084.4), "s", I9, TRACKING),
            said("reindex-chainstate to 850,900", (147_277.0, 27_877.0), "s", "slow VPS, SHA-256", SWIFTSYNC),
            said("sync to 888,888", (15_653.0, 10_040.0), "s", "i9, dbcache 45000, SHA-256", SWIFTSYNC),
        ],
        differs: "The documents compare changes within Bitcoin Core, whose order of blocks and database \
                  stay; here only the first engine keeps both, and none downloads.",
        variants: &[
            run("cache: in order, over a database", &["--engine", "cache"]),
            run("join", &["--engine", "join"]),
            hinted("hints and undo data", &[]),
            hinted("hints without undo data", &["--without-undo"]),
        ],
    },
    Proposal {
        name: "aggregate",
        title: "Sum of a SwiftSync run",
        clock: Clock::Processor,
        unit: Unit::Bytes,
        statements: &[
            said("MuHash, to 850,900", (147_277.0, 65_671.0), "s", "slow VPS", SWIFTSYNC),
            said("SHA-256, to 850,900", (147_277.0, 27_877.0), "s", "slow VPS", SWIFTSYNC),
            said("MuHash, to 850,901", (15_758.0, 30_699.0), "s", "i9, NVMe, dbcache 4500", SWIFTSYNC),
        ],
        differs: "The documents compare each sum with a run of Bitcoin Core without hints; here all runs \
                  have hints, and are compared with each other.",
        variants: &[
            hinted("muhash", &["--without-undo", "--aggregate", "muhash"]),
            hinted("sha256", &["--without-undo", "--aggregate", "sha256"]),
            hinted("siphash128", &["--without-undo", "--aggregate", "siphash128"]),
        ],
    },
    Proposal {
        name: "threads",
        title: "Threads of a rebuild in order",
        clock: Clock::Wall,
        unit: Unit::Bytes,
        statements: &[said(
            "reindex-chainstate to 915,961, inputs looked up on several threads",
            (127.0, 100.0),
            "% of the time",
            "Raspberry Pi 5, dbcache 450",
            "Bitcoin Core #31132, review of 2025-09-29",
        )],
        differs: "Bitcoin Core's threads only look up inputs; here they read and check blocks too.",
        variants: &[
            run("1 thread", &["--engine", "cache", "--threads", "1"]),
            run("2 threads", &["--engine", "cache", "--threads", "2"]),
            run("4 threads", &["--engine", "cache", "--threads", "4"]),
        ],
    },
    Proposal {
        name: "look-up",
        title: "Threads that look up the inputs of coming blocks",
        clock: Clock::Wall,
        unit: Unit::Each("input"),
        statements: &[said(
            "reindex-chainstate, small cache",
            (110.0, 100.0),
            "% of the time",
            "not named",
            "Bitcoin Core #31132, as told in #32043",
        )],
        differs: "The document times whole runs whose database is on a disk; here only the look-ups are \
                  timed, in tables that were just written.",
        variants: &[
            step("1 thread", steps::look_up::<1>),
            step("2 threads", steps::look_up::<2>),
            step("4 threads", steps::look_up::<4>),
        ],
    },
    Proposal {
        name: "hash",
        title: "Hash of an outpoint",
        clock: Clock::Processor,
        unit: Unit::Each("outpoint"),
        statements: &[
            said("hash", (33.92, 16.61), "ns", "Raspberry Pi 5, GCC 14.2", JUMBO),
            said("hash", (33.21, 17.02), "ns", "Raspberry Pi 5, Clang 22", JUMBO),
            said("hash", (11.97, 11.24), "ns", "Clang, machine not named", TRACKING),
        ],
        differs: "The document's hash of before has its key mixed in and takes whole words, that of here \
                  takes bytes; and a large core overlaps hashes that do not depend on each other.",
        variants: &[
            step("SipHash-2-4", steps::hash::<SipHash24>),
            step("standard library's", steps::hash::<Std>),
            step("SipHash-1-3", steps::hash::<SipHash13>),
            step("SipHash-1-3, jumbo blocks", steps::hash::<Jumbo>),
        ],
    },
    Proposal {
        name: "cache-hash",
        title: "Hash of the coins cache",
        clock: Clock::Processor,
        unit: Unit::Each("coin"),
        statements: &[
            said("reindex to 946,649", (19_247.0, 18_358.0), "s", "i9-9900K, SSD, dbcache 1000", JUMBO),
            said("reindex to 946,649", (17_665.0, 16_835.0), "s", "i9-9900K, SSD, dbcache 30000", JUMBO),
            said("reindex to 946,649", (37_976.0, 37_077.0), "s", "Raspberry Pi 5, SSD", JUMBO),
            said("reindex to 946,649", (27_195.0, 26_559.0), "s", "N150, SSD", JUMBO),
        ],
        differs: "The document times whole runs, in which the table is one part of many; here only coins \
                  are created and spent, in a table that is never flushed.",
        variants: &[
            step("SipHash-2-4", steps::connect_all::<Cache<SipHash24>>),
            step("standard library's", steps::connect_all::<Cache<Std>>),
            step("SipHash-1-3", steps::connect_all::<Cache<SipHash13>>),
            step("SipHash-1-3, jumbo blocks", steps::connect_all::<Cache<Jumbo>>),
        ],
    },
    Proposal {
        name: "index-hash",
        title: "Hash of an index of pooled coins, as the join has",
        clock: Clock::Processor,
        unit: Unit::Each("coin"),
        statements: &[],
        differs: "The documents have no such table; unlike the join's own index, which keeps a part of each \
                  hash, it hashes its outpoints again when it grows.",
        variants: &[
            step("SipHash-2-4", steps::connect_all::<Index<SipHash24>>),
            step("standard library's", steps::connect_all::<Index<Std>>),
            step("SipHash-1-3", steps::connect_all::<Index<SipHash13>>),
            step("SipHash-1-3, jumbo blocks", steps::connect_all::<Index<Jumbo>>),
        ],
    },
    Proposal {
        name: "presalted",
        title: "Key mixed into the hash once, not for each hash",
        clock: Clock::Processor,
        unit: Unit::Each("outpoint"),
        statements: &[said("download to 886,000", (26_326.9, 26_084.4), "s", I9, TRACKING)],
        differs: "The document times a whole run with the older hash, where it is one of many steps; here \
                  only the newer hash is timed.",
        variants: &[step("for each hash", steps::hash::<UnsaltedJumbo>), step("once", steps::hash::<Jumbo>)],
    },
    Proposal {
        name: "inline",
        title: "Scripts of a table's coins: on the heap, or inline",
        clock: Clock::Processor,
        unit: Unit::Each("coin"),
        statements: &[],
        differs: "The document gives no number for this step alone, and makes room for 36 bytes instead of \
                  28; here all scripts are on the heap first, and then all but long ones inline.",
        variants: &[
            step("on the heap", steps::connect_all::<Cache<Jumbo>>),
            step("inline", steps::connect_all::<Inline>),
        ],
    },
    Proposal {
        name: "pool",
        title: "Nodes of a table: from the allocator, or from a pool",
        clock: Clock::Processor,
        unit: Unit::Each("coin"),
        statements: &[said(
            "reindex-chainstate to 690,000",
            (121.0, 100.0),
            "% of the time",
            "i7-8700, Clang 13, dbcache 5000",
            "Bitcoin Core #25325",
        )],
        differs: "With its pool, Bitcoin Core's cache also had room for more coins, and so was flushed less \
                  often; here both tables have room for all.",
        variants: &[
            step("allocator", steps::connect_all::<OnHeap>),
            step("pool", steps::connect_all::<Index<Jumbo>>),
        ],
    },
    Proposal {
        name: "preallocate",
        title: "Table of a cache after a flush: grows again, or keeps its size",
        clock: Clock::Processor,
        unit: Unit::Each("coin"),
        statements: &[said(
            "download, small cache",
            (106.0, 100.0),
            "% of the time",
            "not named",
            "Bitcoin Core #28945, as told in #32043",
        )],
        differs: "The document times whole runs on mainnet, whose cache is far greater; here coins are \
                  flushed into a table in memory.",
        variants: &[
            step("grows again", steps::connect_flushed::<false>),
            step("keeps its size", steps::connect_flushed::<true>),
        ],
    },
    Proposal {
        name: "batch",
        title: "Size of the batches in which coins are written",
        clock: Clock::Wall,
        unit: Unit::Each("coin"),
        statements: &[said(
            "download to 910,000",
            (241.0, 233.0),
            "min",
            "NVMe, dbcache 45000, batches of 16 MiB and more",
            "Bitcoin Core #31645, review of 2025-08-25",
        )],
        differs: "Each batch of Bitcoin Core goes through LevelDB's log and table in memory; each of \
                  Peregrine's becomes tables of its own, which are merged, so that many batches cost more.",
        variants: &[
            step("16 batches", steps::write_coins::<16>),
            step("4 batches", steps::write_coins::<4>),
            step("1 batch", steps::write_coins::<1>),
        ],
    },
    Proposal {
        name: "obfuscation",
        title: "Obfuscation of blocks that are read",
        clock: Clock::Processor,
        unit: Unit::Bytes,
        statements: &[
            said("XOR", (1_079.0, 28_760.0), "MiB/s", "GCC, machine not named", OBFUSCATION),
            said("XOR", (1_136.0, 26_823.0), "MiB/s", "Clang, machine not named", OBFUSCATION),
            said("XOR", (1_063.0, 19_536.0), "MiB/s", "GCC, machine not named", TRACKING),
            said("download to 888,888", (25_033.0, 24_111.0), "s", "SSD, dbcache 1000", OBFUSCATION),
            said("download to 888,888", (37_676.0, 36_181.0), "s", "HDD, dbcache 4500", OBFUSCATION),
        ],
        differs: "The documents' micro benchmarks XOR memory only; here each block is also copied from the \
                  page cache, in all ways.",
        variants: &[
            step("byte by byte", steps::read_bytes),
            step("words of 64 bits", steps::read_words),
            step("none", steps::read_plain),
        ],
    },
    Proposal {
        name: "xor",
        title: "Obfuscation of the block files, in whole rebuilds",
        clock: Clock::Processor,
        unit: Unit::Bytes,
        statements: &[
            said("download to 888,888", (25_033.0, 24_111.0), "s", "SSD, dbcache 1000", OBFUSCATION),
            said("download to 888,888", (37_676.0, 36_181.0), "s", "HDD, dbcache 4500", OBFUSCATION),
        ],
        differs: "The document compares bytes with words; here words are compared with no obfuscation at \
                  all, which is the most that any better way could still gain.",
        variants: &[run("words of 64 bits", &[]), plain("none", &[])],
    },
    Proposal {
        name: "block-read",
        title: "Blocks: read field by field, or in one piece",
        clock: Clock::Processor,
        unit: Unit::Bytes,
        statements: &[
            said("download to 886,000, with undo data", (8.59, 7.91), "h", I9, TRACKING),
            said("block read and parsed", (2_203.0, 1_912.0), "µs", "not named", TRACKING),
            said("block read", (734.0, 49.0), "µs", "not named", TRACKING),
        ],
        differs: "Bitcoin Core makes vectors of transactions from the fields in both ways; here the block \
                  in one piece is parsed in place.",
        variants: &[step("field by field", steps::parse_fields), step("in one piece", steps::parse_whole)],
    },
    Proposal {
        name: "undo-write",
        title: "Undo data: written field by field, or in one piece",
        clock: Clock::Processor,
        unit: Unit::Bytes,
        statements: &[said("download to 886,000, with blocks", (8.59, 7.91), "h", I9, TRACKING)],
        differs: "The document times whole runs, which read and write blocks in the new way too; here only \
                  the encoding, hashing and writing of undo data is timed.",
        variants: &[step("field by field", steps::write_fields), step("in one piece", steps::write_whole)],
    },
    Proposal {
        name: "duplicates",
        title: "Whether the inputs of a transaction are distinct",
        clock: Clock::Processor,
        unit: Unit::Each("input"),
        statements: &[
            said("check of a block, GCC", (1_096.0, 835.0), "µs", "not named", TRACKING),
            said("check of a block, Clang", (373.0, 180.0), "µs", "not named", TRACKING),
            said("a block full of inputs, GCC", (8.37, 4.26), "ms", "not named", TRACKING),
            said("a block full of inputs, Clang", (3.30, 0.96), "ms", "not named", TRACKING),
        ],
        differs: "The documents time all checks of a block, or a block with the worst transaction; here \
                  only this check is timed, on transactions of a usual chain.",
        variants: &[
            step("ordered set", steps::distinct_by_set),
            step("hash set", steps::distinct_by_hash_set),
            step("sorted outpoints", steps::distinct_by_sorting),
            step("sorted keys", steps::distinct_by_keys),
        ],
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_proposal_has_a_name_of_its_own_something_to_compare_and_one_sentence() {
        let names: BTreeSet<_> = PROPOSALS.iter().map(|proposal| proposal.name).collect();
        assert_eq!(names.len(), PROPOSALS.len());
        for Proposal { name, differs, variants, .. } in PROPOSALS {
            let variant_names: BTreeSet<_> = variants.iter().map(|variant| variant.name).collect();
            assert!(variants.len() > 1 && variant_names.len() == variants.len(), "{name}");
            assert!(differs.ends_with('.') && differs.matches(". ").count() == 0, "{name}: {differs}");
        }
    }

    #[test]
    fn what_documents_said_has_an_origin_and_a_ratio() {
        for statement in PROPOSALS.iter().flat_map(|proposal| proposal.statements) {
            assert!(!statement.source.is_empty() && !statement.machine.is_empty(), "{statement:?}");
            assert!((0.4..30.0).contains(&statement.ratio()), "{statement:?}");
        }
    }
}
