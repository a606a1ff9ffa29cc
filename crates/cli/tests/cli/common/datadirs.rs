//! Named datadirs of generated chains: each is made once, and written wherever a test wants it.

use super::run_on_regtest;
use disk::index::{BlockIndex, BlockStatus};
use engine::Height;
use hex_conservative::decode_to_vec;
use std::{path::Path, sync::LazyLock};
use tempfile::TempDir;
use testkit::{
    Chain, ChainSpec,
    corrupt::{Files, edit_index, interrupt_replacement, snapshot, write_files},
    datadir::{DatadirWriter, Layout},
    mutation::{CheckLevel, base_chain, mutations},
    situation,
    snapshot_chain::{SNAPSHOT_HEIGHT, blocks},
};

/// 131 blocks in several files, without a chainstate.
static SMALL: LazyLock<Files> = LazyLock::new(|| written(small()));
/// The same with its chainstate.
static REBUILT: LazyLock<Files> = LazyLock::new(|| rebuilt(small(), &layout()));
/// The same in one file.
static ONE_FILE: LazyLock<Files> =
    LazyLock::new(|| rebuilt(small(), &Layout { preallocate: false, ..Layout::new(17) }));
/// A chain whose blocks, except the last ones, are buried deep enough to be assumed valid.
static DEEP: LazyLock<Files> = LazyLock::new(|| {
    written(&Chain::generate(&ChainSpec {
        blocks: Some(130),
        empty_tail: 2020,
        ..ChainSpec::new(27, 200_000)
    }))
});
/// The last block pays itself too much.
static INVALID: LazyLock<Files> = LazyLock::new(|| {
    let mutation = mutations().find(|mutation| mutation.core == Some("bad-cb-amount")).unwrap();
    written(&mutation.apply(&base_chain(9)).chain)
});
/// Core's own code rejects a script of the last block, which the index marks as valid.
static BAD_SCRIPT: LazyLock<Files> = LazyLock::new(|| {
    let bad = mutations().find(|it| it.level == CheckLevel::Script && it.core.is_some()).unwrap();
    written(&bad.apply(&base_chain(9)).chain)
});
/// The chain up to the block for which Core's source has the hash of a snapshot.
static SNAPSHOT: LazyLock<Files> = LazyLock::new(|| {
    files(|dir| {
        let mut writer = DatadirWriter::create(dir, layout()).unwrap();
        blocks(SNAPSHOT_HEIGHT).into_iter().for_each(|block| writer.push(block).unwrap());
        writer.finish().unwrap();
    })
});

/// 1,121 blocks, which become two files of a table, with their chainstate.
static LONG: LazyLock<Files> = LazyLock::new(|| {
    let spec = ChainSpec { blocks: Some(1_120), stale: false, ..ChainSpec::new(31, 300_000) };
    rebuilt(&Chain::generate(&spec), &layout())
});
/// That of [`busy`].
static BUSY: LazyLock<Files> = LazyLock::new(|| written(busy()));
/// The blocks 0 to 2 of a signet whose challenge is `OP_TRUE`, as Bitcoin Core 31.99 generated them. The
/// genesis block is every signet's.
static SIGNET: LazyLock<Files> = LazyLock::new(|| {
    let mut file = Vec::new();
    for line in include_str!("../transcripts/signet.hex").lines() {
        let block = decode_to_vec(line).unwrap();
        file.extend([&[0x54, 0xd2, 0x6f, 0xbd], &(block.len() as u32).to_le_bytes()[..], &block].concat());
    }
    Files::from([("signet/blocks/blk00000.dat".into(), file)])
});
/// The blocks of `small`, in a file each that is named after the height.
static SMALL_BLOCKS: LazyLock<Files> = LazyLock::new(|| {
    small().main().map(|block| (block.height.to_string().into(), block.bytes.clone())).collect()
});

/// The chain of `small` and `rebuilt`.
pub fn small() -> &'static Chain {
    static CHAIN: LazyLock<Chain> =
        LazyLock::new(|| Chain::generate(&ChainSpec { blocks: Some(130), ..ChainSpec::new(17, 200_000) }));
    &CHAIN
}

fn layout() -> Layout {
    Layout { file_size: 64 << 10, preallocate: false, ..Layout::new(17) }
}

/// A chain that keeps a process busy for some tenths of a second. Its scripts are unsigned, and a tail lets
/// them be assumed valid.
pub fn busy() -> &'static Chain {
    static CHAIN: LazyLock<Chain> = LazyLock::new(|| {
        let spec = ChainSpec { signed: false, empty_tail: 2100, ..ChainSpec::new(18, 12_000_000) };
        Chain::generate(&spec)
    });
    &CHAIN
}

/// Writes a chain as a node has it, in files of 64 KiB.
pub fn write_chain(chain: &Chain, dir: &Path) {
    chain.write_datadir(dir, &layout()).unwrap();
}

/// Writes the datadir of this name: one of those above, or that of a mutation of `testkit`.
pub fn write(name: &str, dir: &Path) {
    if let Some(mutation) = mutations().find(|mutation| mutation.name == name) {
        return write_chain(&mutation.apply(&base_chain(9)).chain, dir);
    }
    let files = match name {
        "small" => &SMALL,
        "rebuilt" => &REBUILT,
        "one-file" => &ONE_FILE,
        "deep" => &DEEP,
        "invalid" => &INVALID,
        "bad-script" => &BAD_SCRIPT,
        "snapshot" => &SNAPSHOT,
        "long" => &LONG,
        "busy" => &BUSY,
        "signet" => &SIGNET,
        "small-blocks" => &SMALL_BLOCKS,
        other => panic!("there is no datadir {other}"),
    };
    write_files(files, dir).unwrap();
}

fn written(chain: &Chain) -> Files {
    files(|dir| write_chain(chain, dir))
}

/// The datadir of a chain with its chainstate.
fn rebuilt(chain: &Chain, layout: &Layout) -> Files {
    files(|dir| {
        chain.write_datadir(dir, layout).unwrap();
        assert!(run_on_regtest(dir, &["reindex"]).status.success());
    })
}

/// The files that `make` leaves in a folder.
fn files(make: impl FnOnce(&Path)) -> Files {
    let dir = TempDir::new().unwrap();
    make(dir.path());
    snapshot(dir.path()).unwrap()
}

/// Damages a datadir of regtest in a way that has a name: one of [`situation`], or one of those here.
pub fn damage(dir: &Path, name: &str) {
    let net = dir.join("regtest");
    match name.split_once(" above ") {
        Some(("no marks", height)) => unmark(&net, height.parse().unwrap()),
        _ if name == "interrupted replacement" => interrupt_replacement(&net).unwrap(),
        _ => situation::cause(name, dir, &dir.with_extension("store")),
    }
}

/// Lowers the marks of all blocks above a height: bitcoind has not checked their scripts.
fn unmark(net: &Path, height: u32) {
    let lower = |index: &mut BlockIndex| {
        let high = index.entries.iter_mut().filter(|entry| entry.height > Height(height));
        high.filter(|it| it.status.validity() == BlockStatus::VALID_SCRIPTS).for_each(|it| it.status.0 -= 1);
    };
    edit_index(&net.join("blocks/index"), lower).unwrap();
}
