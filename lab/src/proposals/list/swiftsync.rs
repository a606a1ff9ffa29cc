//! Rebuilds by other engines: the join, and SwiftSync's hints.

use super::{
    super::steps, I9, Measure, Proposal, Run, SWIFTSYNC, TRACKING, Unit, Variant, Work, command, hinted,
    rebuild, said, step,
};

/// Bytes of hints in a format.
const fn format(name: &'static str, args: &'static [&'static str], is_packed: bool) -> Variant {
    let command = &["hints", "convert", "{hints}", "--output", "{output}"];
    Variant { name, work: Work::Run(Run { command, args, answer: "hints", is_packed, runs_scripts: false }) }
}

const fn all_scripts(name: &'static str, args: &'static [&'static str]) -> Variant {
    let command = &["reindex", "--output", "{output}", "--assumevalid", "0"];
    let run = Run { command, args, answer: "hash_serialized_3", is_packed: false, runs_scripts: true };
    Variant { name, work: Work::Run(run) }
}

pub const PROPOSALS: &[Proposal] = &[
    Proposal {
        name: "engines",
        title: "The whole rebuild: Core's way, the join, hints",
        measure: Measure::Wall,
        unit: Unit::Bytes,
        statements: &[
            said("download to 886,000, all steps", (30_932.6, 26_084.4), "s", I9, TRACKING),
            said("reindex-chainstate to 850,900", (147_277.0, 27_877.0), "s", "slow VPS, SHA-256", SWIFTSYNC),
            said(
                "reindex-chainstate to 888,888",
                (15_653.0, 10_040.0),
                "s",
                "i9, dbcache 45000, SHA-256",
                SWIFTSYNC,
            ),
        ],
        differs: "The documents compare changes within Bitcoin Core, whose order of blocks and database \
                  stay; here only the first engine keeps both, and none downloads.",
        variants: &[
            rebuild("cache: in order, over a database", &["--engine", "cache", "--memory", "5000M"]),
            rebuild("join", &["--engine", "join", "--memory", "5000M"]),
            hinted("hints and undo data", &["--memory", "5000M"]),
            hinted("hints without undo data", &["--without-undo", "--memory", "5000M"]),
        ],
    },
    Proposal {
        name: "swiftsync-small",
        title: "Sum of a SwiftSync run, beside a run in order with little memory",
        measure: Measure::Wall,
        unit: Unit::Bytes,
        statements: &[
            said("MuHash, to 850,900", (147_277.0, 65_671.0), "s", "slow VPS", SWIFTSYNC),
            said("SHA-256, to 850,900", (147_277.0, 27_877.0), "s", "slow VPS", SWIFTSYNC),
        ],
        differs: "The document's machine waits for a slow disk in a run in order, which hints do not need, \
                  so that even the slow sum gains there.",
        variants: &[
            rebuild("in order", &["--engine", "cache", "--memory", "128M"]),
            hinted("muhash", &["--without-undo", "--memory", "128M", "--aggregate", "muhash"]),
            hinted("sha256", &["--without-undo", "--memory", "128M", "--aggregate", "sha256"]),
            hinted("siphash128", &["--without-undo", "--memory", "128M", "--aggregate", "siphash128"]),
        ],
    },
    Proposal {
        name: "swiftsync-large",
        title: "Sum of a SwiftSync run, beside a run in order with much memory",
        measure: Measure::Wall,
        unit: Unit::Bytes,
        statements: &[
            said("MuHash, to 850,901", (15_758.0, 30_699.0), "s", "i9, NVMe, dbcache 4500", SWIFTSYNC),
            said("SHA-256, to 888,888", (15_653.0, 10_040.0), "s", "i9, dbcache 45000", SWIFTSYNC),
        ],
        differs: "In order nothing waits for the disk once all coins fit into memory, so that what a sum \
                  costs the processor decides, and MuHash costs more than the look-ups that it saves.",
        variants: &[
            rebuild("in order", &["--engine", "cache", "--memory", "4500M"]),
            hinted("muhash", &["--without-undo", "--memory", "4500M", "--aggregate", "muhash"]),
            hinted("sha256", &["--without-undo", "--memory", "4500M", "--aggregate", "sha256"]),
            hinted("siphash128", &["--without-undo", "--memory", "4500M", "--aggregate", "siphash128"]),
        ],
    },
    Proposal {
        name: "scripts",
        title: "All scripts run: the join, and hints with undo data",
        measure: Measure::Wall,
        unit: Unit::Bytes,
        statements: &[],
        differs: "The thread proposes it and has no number; the program must be one that runs scripts.",
        variants: &[
            all_scripts("join", &["--engine", "join"]),
            all_scripts("hints and undo data", &["--hints", "{hints}"]),
        ],
    },
    Proposal {
        name: "threads-join",
        title: "Threads of the join",
        measure: Measure::Wall,
        unit: Unit::Bytes,
        statements: &[],
        differs: "The documents have no such engine.",
        variants: &[
            rebuild("1 thread", &["--threads", "1"]),
            rebuild("2 threads", &["--threads", "2"]),
            rebuild("4 threads", &["--threads", "4"]),
            rebuild("8 threads", &["--threads", "8"]),
            rebuild("16 threads", &["--threads", "16"]),
        ],
    },
    Proposal {
        name: "threads-hints",
        title: "Threads of a run with hints",
        measure: Measure::Wall,
        unit: Unit::Bytes,
        statements: &[],
        differs: "The thread expects that validation with hints scales with the cores, and has no number.",
        variants: &[
            hinted("1 thread", &["--without-undo", "--threads", "1"]),
            hinted("2 threads", &["--without-undo", "--threads", "2"]),
            hinted("4 threads", &["--without-undo", "--threads", "4"]),
            hinted("8 threads", &["--without-undo", "--threads", "8"]),
            hinted("16 threads", &["--without-undo", "--threads", "16"]),
        ],
    },
    Proposal {
        name: "assumeutxo",
        title: "Until a snapshot's coins are validated: the blocks alone, the join, hints",
        measure: Measure::Wall,
        unit: Unit::Bytes,
        statements: &[],
        differs: "The thread asks what hints add to assumeutxo and has no number: a loaded snapshot is \
                  usable at once and trusts its hash, and all of these ways end that trust, the last one \
                  with the trust that the assumed-valid block has.",
        variants: &[
            command("snapshot verify", &["snapshot", "verify", "{snapshot}"], &[], "hash_serialized_3"),
            rebuild("join", &[]),
            hinted("hints and undo data", &[]),
            hinted("hints without undo data", &["--without-undo"]),
        ],
    },
    Proposal {
        name: "hint-sizes",
        title: "Bytes of the same hints in each format, and after xz -9",
        measure: Measure::Size,
        unit: Unit::Bytes,
        statements: &[
            said("first format, xz, to 850,900", (364_964_716.0, 87_882_052.0), "bytes", "none", SWIFTSYNC),
            said("second format, xz, to 850,900", (188_209_875.0, 81_697_540.0), "bytes", "none", SWIFTSYNC),
            said("third format, xz, to 850,900", (190_098_381.0, 81_321_492.0), "bytes", "none", SWIFTSYNC),
        ],
        differs: "The document's hints are mainnet's, whose outputs stay unspent in other patterns than \
                  those of a generated chain.",
        variants: &[
            format("bitmap", &["--format", "bitmap"], false),
            format("bitmap, xz", &["--format", "bitmap"], true),
            format("thestack", &["--format", "thestack"], false),
            format("thestack, xz", &["--format", "thestack"], true),
            format("swiftsync2140", &["--format", "swiftsync2140"], false),
            format("swiftsync2140, xz", &["--format", "swiftsync2140"], true),
            format("btcd, gzip", &["--format", "btcd"], false),
            format("btcd, gzip, xz", &["--format", "btcd"], true),
            format("bip456", &["--format", "bip456"], false),
            format("bip456, xz", &["--format", "bip456"], true),
            format("bip456-lsb", &["--format", "bip456-lsb"], false),
            format("bip456-lsb, xz", &["--format", "bip456-lsb"], true),
            format("peregrine", &["--format", "peregrine"], false),
            format("peregrine, xz", &["--format", "peregrine"], true),
        ],
    },
    Proposal {
        name: "hint-heights",
        title: "Bytes after xz -9: hints alone, and with the heights at which outputs are spent",
        measure: Measure::Size,
        unit: Unit::Each("output"),
        statements: &[],
        differs: "The thread asks for heights in the hints, for the share of blocks whose outputs are all \
                  spent or all unspent, and for the gaps between unspent outputs, and has no numbers of them \
                  but that most gaps are below 253.",
        variants: &[
            step("a bit for each output", steps::hints_alone),
            step("a number of blocks for each output", steps::heights_of_spends),
        ],
    },
    Proposal {
        name: "spent-coins",
        title: "Bytes that a block and the coins that it spends take",
        measure: Measure::Size,
        unit: Unit::Bytes,
        statements: &[said(
            "blocks, and undo data beside them",
            (100.0, 10.0),
            "% of the blocks",
            "none",
            SWIFTSYNC,
        )],
        differs: "The document estimates; the share depends on how many inputs a block has and on the \
                  scripts that they spend.",
        variants: &[step("blocks", steps::bytes_of_blocks), step("undo data", steps::bytes_of_undo)],
    },
];
