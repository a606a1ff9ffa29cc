//! Numbers of the documents that no row reproduces, and why.

/// A number of a document, and why it has no counterpart here.
pub struct Unmeasured {
    pub said: &'static str,
    pub source: &'static str,
    pub why: &'static str,
}

const fn number(said: &'static str, source: &'static str, why: &'static str) -> Unmeasured {
    Unmeasured { said, source, why }
}

pub const UNMEASURED: &[Unmeasured] = &[
    number(
        "Download of mainnet to 886,000 in 8.59 h, and in 7.25 h with all steps",
        super::TRACKING,
        "No run here had mainnet's blocks. [mainnet.md](mainnet.md) is the command for one.",
    ),
    number(
        "Runs on an i9-9900K, a Raspberry Pi 5, an N150, with a disk whose head moves",
        super::JUMBO,
        "These machines were not at hand. [mainnet.md](mainnet.md#measuring-without-a-node) is the \
         command for one.",
    ),
    number(
        "171 to 80 instructions and 81 to 40 cycles for a hash",
        super::JUMBO,
        "`make guard` counts the instructions of SipHash-1-3 with jumbo blocks only, and a virtual machine \
         counts no cycles.",
    ),
    number(
        "56.2 to 55.8 µs for a transaction accepted into the pool",
        super::TRACKING,
        "Peregrine has no pool of transactions.",
    ),
    number(
        "70 to 90 % of transactions have one input",
        super::TRACKING,
        "The answer of the row `duplicates` in `raw.csv` has the share of the measured chain.",
    ),
    number(
        "25,442.8 MiB for 173,676,464 coins, 153.6 bytes each",
        super::SWIFTSYNC,
        "The cells of the coins cache take 95 to 110 bytes for each coin, which a test asserts \
         (`crates/coins/tests/memory.rs`).",
    ),
    number(
        "Half of the gaps between unspent outputs are below 253",
        super::SWIFTSYNC,
        "The answer of the row `hint-heights` in `raw.csv` has the median of the measured chain.",
    ),
    number(
        "Part of the coins kept at a flush, #31102",
        super::TRACKING,
        "[ADR 17](adr/0017-a-second-engine-connects-blocks-in-order.md) measured how many should stay: \
         between none and 75 % of them, the time differed by no more than the noise.",
    ),
    number(
        "A snapshot loaded 1 % slower with dbcache 450 and 6 to 7 % faster with 4500",
        super::TRACKING,
        "`snapshot load` accepts only snapshots whose hash Bitcoin Core's source has; a generated chain has \
         none.",
    ),
];
