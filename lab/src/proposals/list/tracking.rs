//! The proposals of the tracking document, and those that it names.

use super::{super::steps, I9, Measure, OBFUSCATION, Proposal, TRACKING, Unit, rebuild, said, step};
use bench::baseline::{
    engine::{ALL, BATCHES, INLINE, JUMBO, SALTED, SIZES, SORTED, WHOLE, WORDS},
    hashers::Jumbo as JumboHash,
    leveldb::{LARGE_BATCH, LARGE_FILE, SMALL_BATCH, SMALL_FILE},
    tables::{Allocated, CoinTable, InTable, LookedUpTwice, Narrow, Pooled, Wide},
};

/// The ways that are new after each step of the document.
const AFTER_31551: u32 = WHOLE;
const AFTER_31144: u32 = AFTER_31551 | WORDS;
const AFTER_31645: u32 = AFTER_31144 | BATCHES;
const AFTER_31868: u32 = AFTER_31645 | SIZES;
const AFTER_31682: u32 = AFTER_31868 | SORTED;
const AFTER_30442: u32 = AFTER_31682 | SALTED;
const AFTER_JUMBO: u32 = AFTER_30442 | JUMBO;
const AFTER_32279: u32 = AFTER_JUMBO | INLINE;

type Inline<C> = CoinTable<JumboHash, Pooled<C>>;
type Twice = LookedUpTwice<CoinTable<JumboHash, Pooled<Wide>>>;

const fn after(what: &'static str, seconds: f64) -> super::Statement {
    said(what, (30_932.6, seconds), "s", I9, TRACKING)
}

pub const PROPOSALS: &[Proposal] = &[
    Proposal {
        name: "cumulative",
        title: "The steps of the tracking document, one added to the other",
        measure: Measure::Processor,
        unit: Unit::Whole,
        statements: &[
            after("download to 886,000, after #31551, 7.9 % off", 28_501.6),
            after("and after #31144, 3.9 % off", 27_394.2),
            after("and after #31645, 1.4 % off", 27_019.1),
            after("and after #31868, 1.1 % off", 26_711.5),
            after("and after #31682, 1.4 % off", 26_326.9),
            after("and after #30442, 0.9 % off, the whole", 26_084.4),
        ],
        differs: "The document downloads mainnet and runs scripts; here an engine of the benchmarks reads, \
                  checks and writes a generated chain on one thread, so that these steps are a larger part, \
                  except for the batches, each of which is larger than a whole flush.",
        variants: &[
            step("all in the old way", steps::in_order::<0, 16>),
            step("blocks and undo data in one piece, #31551", steps::in_order::<AFTER_31551, 16>),
            step("and obfuscation by words, #31144", steps::in_order::<AFTER_31144, 16>),
            step("and batches of 64 MiB, #31645", steps::in_order::<AFTER_31645, 16>),
            step("and sizes without serialising, #31868", steps::in_order::<AFTER_31868, 16>),
            step("and inputs sorted, #31682", steps::in_order::<AFTER_31682, 16>),
            step("and the key mixed in once, #30442", steps::in_order::<AFTER_30442, 16>),
            step("and jumbo blocks", steps::in_order::<AFTER_JUMBO, 16>),
            step("and scripts of 36 bytes inline, #32279", steps::in_order::<AFTER_32279, 16>),
        ],
    },
    Proposal {
        name: "block-read",
        title: "Blocks: read field by field, or in one piece",
        measure: Measure::Processor,
        unit: Unit::Bytes,
        statements: &[said("download to 886,000, with writing", (8.59, 7.91), "h", I9, TRACKING)],
        differs: "Bitcoin Core makes vectors of transactions from the fields in both ways; here the block \
                  in one piece is parsed in place.",
        variants: &[step("field by field", steps::parse_fields), step("in one piece", steps::parse_whole)],
    },
    Proposal {
        name: "block-write",
        title: "Blocks: written field by field, or in one piece",
        measure: Measure::Processor,
        unit: Unit::Bytes,
        statements: &[said("download to 886,000, with reading", (8.59, 7.91), "h", I9, TRACKING)],
        differs: "Bitcoin Core serialises the block in both ways; here its bytes are at hand, as Peregrine \
                  never serialises a block.",
        variants: &[
            step("field by field", steps::write_blocks_by_fields),
            step("in one piece", steps::write_blocks_whole),
        ],
    },
    Proposal {
        name: "undo-write",
        title: "Undo data: written field by field, or in one piece",
        measure: Measure::Processor,
        unit: Unit::Bytes,
        statements: &[said("download to 886,000, with blocks", (8.59, 7.91), "h", I9, TRACKING)],
        differs: "The document times whole runs, which read and write blocks in the new way too; here only \
                  the encoding, hashing and writing of undo data is timed.",
        variants: &[
            step("field by field", steps::write_undo_by_fields),
            step("in one piece", steps::write_undo_whole),
        ],
    },
    Proposal {
        name: "obfuscation",
        title: "Obfuscation of blocks that are read",
        measure: Measure::Processor,
        unit: Unit::Bytes,
        statements: &[
            said("XOR", (1_079.0, 28_760.0), "MiB/s", "GCC, machine not named", OBFUSCATION),
            said("XOR", (1_136.0, 26_823.0), "MiB/s", "Clang, machine not named", OBFUSCATION),
            said("XOR", (1_063.0, 19_536.0), "MiB/s", "GCC, machine not named", TRACKING),
            said("block read and parsed", (2_203.0, 1_912.0), "µs", "not named", TRACKING),
            said("block read", (734.0, 49.0), "µs", "not named", TRACKING),
        ],
        differs: "The documents' first benchmarks XOR memory only; here each block is also copied from the \
                  page cache, in both ways.",
        variants: &[step("byte by byte", steps::read_bytes), step("words of 64 bits", steps::read_words)],
    },
    Proposal {
        name: "xor-whole-small",
        title: "Obfuscation, in the whole work of a run in order with a small cache",
        measure: Measure::Processor,
        unit: Unit::Whole,
        statements: &[
            said("download to 888,888", (25_033.0, 24_111.0), "s", "SSD, dbcache 1000", OBFUSCATION),
            said("download to 886,000", (28_501.6, 27_394.2), "s", I9, TRACKING),
        ],
        differs: "The chain is a generated one and short, its cache has room for one in 16 outputs, and no \
                  scripts are run.",
        variants: &[
            step("byte by byte", steps::in_order::<{ ALL & !WORDS }, 16>),
            step("words of 64 bits", steps::in_order::<ALL, 16>),
        ],
    },
    Proposal {
        name: "xor-whole-large",
        title: "Obfuscation, in the whole work of a run in order with a large cache",
        measure: Measure::Processor,
        unit: Unit::Whole,
        statements: &[said(
            "download to 888,888",
            (37_676.0, 36_181.0),
            "s",
            "HDD, dbcache 4500",
            OBFUSCATION,
        )],
        differs: "The chain is a generated one and short, its cache is flushed at the end only, and no \
                  scripts are run.",
        variants: &[
            step("byte by byte", steps::in_order::<{ ALL & !WORDS }, 1>),
            step("words of 64 bits", steps::in_order::<ALL, 1>),
        ],
    },
    Proposal {
        name: "batch",
        title: "Size of the batches in which one flush writes its coins",
        measure: Measure::Wall,
        unit: Unit::Each("coin"),
        statements: &[
            said("download to 886,000", (27_394.2, 27_019.1), "s", I9, TRACKING),
            said(
                "download to 910,000",
                (241.0, 233.0),
                "min",
                "NVMe, dbcache 45000",
                "#31645, review of 2025-08-25",
            ),
        ],
        differs: "LevelDB is another implementation here, the crate rusty-leveldb, which compacts on the \
                  thread that writes.",
        variants: &[
            step("16 MiB", steps::write_batches::<SMALL_BATCH, LARGE_FILE>),
            step("64 MiB", steps::write_batches::<LARGE_BATCH, LARGE_FILE>),
        ],
    },
    Proposal {
        name: "sizes",
        title: "Weight of a block: by serialising it into a counter, or from parsing",
        measure: Measure::Processor,
        unit: Unit::Each("block"),
        statements: &[
            said("size of a block", (30.9, 25.7), "µs", "GCC, machine not named", TRACKING),
            said("size of a block", (12.1, 10.2), "µs", "Clang, machine not named", TRACKING),
            said("download to 886,000", (27_019.1, 26_711.5), "s", I9, TRACKING),
        ],
        differs: "The document makes the counter faster; here sizes are known when a block is parsed, and \
                  only added.",
        variants: &[
            step("all fields, twice", steps::sizes_by_fields),
            step("from parsing", steps::sizes_from_spans),
        ],
    },
    Proposal {
        name: "serialise",
        title: "Serialising a block into memory",
        measure: Measure::Processor,
        unit: Unit::Bytes,
        statements: &[said("a block", (868.0, 615.0), "µs", "GCC, machine not named", TRACKING)],
        differs: "The document makes writing a field faster; Peregrine keeps the bytes of a block, so that \
                  at most they are copied.",
        variants: &[
            step("field by field", steps::serialise_by_fields),
            step("in one piece", steps::serialise_whole),
        ],
    },
    Proposal {
        name: "duplicates",
        title: "Whether the inputs of a transaction are distinct",
        measure: Measure::Processor,
        unit: Unit::Each("input"),
        statements: &[
            said("check of a block", (1_096.0, 835.0), "µs", "GCC, machine not named", TRACKING),
            said("check of a block", (373.0, 180.0), "µs", "Clang, machine not named", TRACKING),
            said("a block full of inputs", (8.37, 4.26), "ms", "GCC, machine not named", TRACKING),
            said("a block full of inputs", (3.30, 0.96), "ms", "Clang, machine not named", TRACKING),
            said("download to 886,000", (26_711.5, 26_326.9), "s", I9, TRACKING),
        ],
        differs: "The documents time all checks of a block, or a block with the worst transaction; here \
                  only this check is timed, and the last three variants also look for null outpoints.",
        variants: &[
            step("ordered set", steps::distinct_by_set),
            step("hash set", steps::distinct_by_hash_set),
            step("sorted outpoints", steps::distinct_by_sorting::<false>),
            step("the same, one and two inputs unsorted", steps::distinct_by_sorting::<true>),
            step("sorted, each compared with null", steps::distinct_with_each_null),
            step("sorted, null looked for at the end", steps::distinct_with_nulls_at_ends),
            step("sorted keys, each compared with null", steps::distinct_by_keys),
        ],
    },
    Proposal {
        name: "inline",
        title: "Scripts of a table's coins: 28 bytes inline, or 36",
        measure: Measure::Processor,
        unit: Unit::Each("coin"),
        statements: &[
            said("snapshot loaded", (99.0, 100.0), "% of the time", "dbcache 450", TRACKING),
            said("snapshot loaded", (106.5, 100.0), "% of the time", "dbcache 4500", TRACKING),
            said("download", (103.0, 100.0), "% of the time", "not named", TRACKING),
        ],
        differs: "The document times whole runs, whose cache has room for fewer coins if each takes more; \
                  here the table has room for all, and the bytes that its coins take are beside the time.",
        variants: &[
            step("28 bytes", steps::connect_all::<Inline<Narrow>>),
            step("36 bytes", steps::connect_all::<Inline<Wide>>),
        ],
    },
    Proposal {
        name: "pool",
        title: "Nodes of a table: from the allocator, from a pool, or in the table",
        measure: Measure::Processor,
        unit: Unit::Each("coin"),
        statements: &[said(
            "reindex-chainstate to 690,000",
            (121.0, 100.0),
            "% of the time",
            "i7-8700, Clang 13, dbcache 5000",
            "#25325",
        )],
        differs: "With its pool, Bitcoin Core's cache also had room for more coins, and so was flushed less \
                  often; here all tables have room for all, and the last is what #32128 tried.",
        variants: &[
            step("allocator", steps::connect_all::<CoinTable<JumboHash, Allocated<Wide>>>),
            step("pool", steps::connect_all::<CoinTable<JumboHash, Pooled<Wide>>>),
            step("in the table", steps::connect_all::<CoinTable<JumboHash, InTable<Wide>>>),
        ],
    },
    Proposal {
        name: "preallocate",
        title: "Table of a cache after a flush: grows again, or keeps its size",
        measure: Measure::Processor,
        unit: Unit::Each("coin"),
        statements: &[said(
            "download, small cache",
            (106.0, 100.0),
            "% of the time",
            "not named",
            "#28945, as told in #32043",
        )],
        differs: "The document times whole runs on mainnet, whose cache is far greater; here coins are \
                  flushed into a table in memory.",
        variants: &[step("grows again", steps::flush_frees), step("keeps its size", steps::flush_empties)],
    },
    Proposal {
        name: "prune-flush",
        title: "Coins of a cache after a flush that only pruning asks for: removed, or kept",
        measure: Measure::Processor,
        unit: Unit::Each("coin"),
        statements: &[said(
            "download to 500,000 with -prune=550",
            (9_216.0, 7_087.0),
            "s",
            "dbcache 16384",
            "#28280, review of 2024-08-07",
        )],
        differs: "The document's coins must be read again from a database on a disk; here from a table in \
                  memory, so that less is gained.",
        variants: &[step("removed", steps::flush_empties), step("kept", steps::flush_keeps)],
    },
    Proposal {
        name: "find-once",
        title: "Coins of a cache: looked up twice, or once",
        measure: Measure::Processor,
        unit: Unit::Each("coin"),
        statements: &[said(
            "reindex-chainstate to 400,000",
            (1_012.3, 994.4),
            "s",
            "not named",
            "#30326, review of 2024-07-07",
        )],
        differs: "The document times whole runs; here coins are only created and spent, and the second \
                  look-up finds the coin in the processor's caches.",
        variants: &[
            step("twice", steps::connect_all::<Twice>),
            step("once", steps::connect_all::<CoinTable<JumboHash, Pooled<Wide>>>),
        ],
    },
    Proposal {
        name: "file-size",
        title: "Size of the database's files",
        measure: Measure::Wall,
        unit: Unit::Each("coin"),
        statements: &[said(
            "download to 800,000, pruned",
            (170_234.0, 115_274.0),
            "s",
            "Raspberry Pi 5, microSD card",
            "#30039, review of 2024-10-04",
        )],
        differs: "The document's gain comes from a card that syncs each new file slowly.",
        variants: &[
            step("2 MiB", steps::write_files::<SMALL_FILE>),
            step("32 MiB", steps::write_files::<LARGE_FILE>),
        ],
    },
    Proposal {
        name: "flushes",
        title: "Number of flushes in which coins are written",
        measure: Measure::Wall,
        unit: Unit::Each("coin"),
        statements: &[],
        differs: "#30611 flushes each hour and states no time; here each flush makes tables of \
                  its own, which are merged.",
        variants: &[
            step("16 flushes", steps::write_coins::<16>),
            step("4 flushes", steps::write_coins::<4>),
            step("1 flush", steps::write_coins::<1>),
        ],
    },
    Proposal {
        name: "memory",
        title: "Memory of a rebuild in order",
        measure: Measure::Wall,
        unit: Unit::Bytes,
        statements: &[],
        differs: "#28358 allows a cache of more than 16 GiB and states no time that the \
                  tracking document quotes; with a short chain, nothing is flushed once all coins fit.",
        variants: &[
            rebuild("128 MiB", &["--engine", "cache", "--memory", "128M"]),
            rebuild("450 MiB", &["--engine", "cache", "--memory", "450M"]),
            rebuild("5000 MiB", &["--engine", "cache", "--memory", "5000M"]),
        ],
    },
    Proposal {
        name: "threads",
        title: "Threads of a rebuild in order",
        measure: Measure::Wall,
        unit: Unit::Bytes,
        statements: &[said(
            "reindex-chainstate to 915,961, inputs looked up on several threads",
            (127.0, 100.0),
            "% of the time",
            "Raspberry Pi 5, dbcache 450",
            "#31132, review of 2025-09-29",
        )],
        differs: "Bitcoin Core's threads only look up inputs; here they read and check blocks too.",
        variants: &[
            rebuild("1 thread", &["--engine", "cache", "--memory", "450M", "--threads", "1"]),
            rebuild("2 threads", &["--engine", "cache", "--memory", "450M", "--threads", "2"]),
            rebuild("4 threads", &["--engine", "cache", "--memory", "450M", "--threads", "4"]),
            rebuild("8 threads", &["--engine", "cache", "--memory", "450M", "--threads", "8"]),
            rebuild("16 threads", &["--engine", "cache", "--memory", "450M", "--threads", "16"]),
        ],
    },
    Proposal {
        name: "look-up",
        title: "Threads that look up the inputs of coming blocks",
        measure: Measure::Wall,
        unit: Unit::Each("input"),
        statements: &[said(
            "reindex-chainstate, small cache",
            (110.0, 100.0),
            "% of the time",
            "not named",
            "#31132, as told in #32043",
        )],
        differs: "The document times whole runs whose database is on a disk; here only the look-ups are \
                  timed, in tables that were just written.",
        variants: &[
            step("1 thread", steps::look_up::<1>),
            step("2 threads", steps::look_up::<2>),
            step("4 threads", steps::look_up::<4>),
        ],
    },
];
