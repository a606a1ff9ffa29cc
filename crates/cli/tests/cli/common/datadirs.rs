//! Named datadirs of generated chains: each is made once, and written wherever a test wants it.

use super::run_on_regtest;
use crate::prelude::*;
use disk::index::BlockIndex;
use testkit::{
    corrupt::interrupt_replacement,
    datadir::DatadirWriter,
    mutation::{CheckLevel, Mutation, base_chain, mutations},
    snapshot_chain::blocks,
};

/// The files of each datadir that was written before, by its name.
static MADE: Mutex<BTreeMap<String, Arc<OnceLock<Files>>>> = Mutex::new(BTreeMap::new());

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

/// Writes the datadir of this name: one of those below, or that of a mutation of `testkit`.
pub fn write(name: &str, dir: &Path) {
    let files = Arc::clone(MADE.lock().unwrap().entry(name.to_owned()).or_default());
    write_files(files.get_or_init(|| make(name)), dir).unwrap();
}

fn make(name: &str) -> Files {
    match name {
        // 131 blocks in several files, without a chainstate.
        "small" => written(small()),
        // The same with its chainstate.
        "rebuilt" => rebuilt(small(), &layout()),
        // The same in one file.
        "one-file" => rebuilt(small(), &Layout { preallocate: false, ..Layout::new(17) }),
        // A chain whose blocks, except the last ones, are buried deep enough to be assumed valid.
        "deep" => {
            let spec = ChainSpec { blocks: Some(130), empty_tail: 2020, ..ChainSpec::new(27, 200_000) };
            written(&Chain::generate(&spec))
        }
        // The last block pays itself too much.
        "invalid" => of_mutation(name, |it| it.core == Some("bad-cb-amount")),
        // Core's own code rejects a script of the last block, which the index marks as valid.
        "bad-script" => of_mutation(name, |it| it.level == CheckLevel::Script && it.core.is_some()),
        // The chain up to the block for which Core's source has the hash of a snapshot.
        "snapshot" => files(|dir| {
            let mut writer = DatadirWriter::create(dir, layout()).unwrap();
            blocks(SNAPSHOT_HEIGHT).into_iter().for_each(|block| writer.push(block).unwrap());
            writer.finish().unwrap();
        }),
        // 1,121 blocks, which become two files of a table, with their chainstate.
        "long" => {
            let spec = ChainSpec { blocks: Some(1_120), stale: false, ..ChainSpec::new(31, 300_000) };
            rebuilt(&Chain::generate(&spec), &layout())
        }
        "busy" => written(busy()),
        "signet" => signet(),
        // The blocks of `small`, in a file each that is named after the height.
        "small-blocks" => {
            small().main().map(|block| (block.height.to_string().into(), block.bytes.clone())).collect()
        }
        _ => of_mutation(name, |it| it.name == name),
    }
}

/// The datadir of the first such mutation.
fn of_mutation(name: &str, is_it: impl Fn(&Mutation) -> bool) -> Files {
    let mutation = mutations().find(|it| is_it(it)).unwrap_or_else(|| panic!("there is no datadir {name}"));
    written(&mutation.apply(&base_chain(9)).chain)
}

/// The blocks 0 to 2 of a signet whose challenge is `OP_TRUE`, as Bitcoin Core 31.99 generated them. The
/// genesis block is every signet's.
fn signet() -> Files {
    let mut file = Vec::new();
    for line in include_str!("../transcripts/signet.hex").lines() {
        let block = decode_to_vec(line).unwrap();
        file.extend([&[0x54, 0xd2, 0x6f, 0xbd], &(block.len() as u32).to_le_bytes()[..], &block].concat());
    }
    Files::from([("signet/blocks/blk00000.dat".into(), file)])
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
