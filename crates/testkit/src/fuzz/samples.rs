//! Seeds of the fuzz targets: parts of a small generated chain, and of databases and files made from it.

use super::{reseal, runs::NETWORK};
use crate::{
    corrupt::snapshot,
    datadir::{Layout, write_chainstate},
    prelude::*,
};
use digest::siphash::SipKey;
use disk::{
    checkpoint::{Checkpoint, FileStamp, SavedMatching, SavedState, SortedRunRef},
    delta::{CheckedRange, Delta, DeltaShard},
    range_plan::{PlannedBlock, RangePlan},
    sorted_run::SortedRunWriter,
};
use std::{fmt::Debug, sync::LazyLock};
use wire::{Entry, coin::write_chainstate_key};

/// Long enough for spends: coinbases mature after 100 blocks.
static CHAIN: LazyLock<Chain> =
    LazyLock::new(|| Chain::generate(&ChainSpec { blocks: Some(130), ..ChainSpec::new(1, 400_000) }));

/// Median times of the blocks of the chain, by height.
pub static MEDIAN_TIMES: LazyLock<Vec<BlockTime>> =
    LazyLock::new(|| rules::median_times(CHAIN.main().map(|block| block.header.time).collect()));

/// A coin of the chain, whose output is compressed.
#[derive(Clone)]
pub struct SampleCoin {
    pub outpoint: OutPoint,
    pub code: u32,
    pub out: Vec<u8>,
}

impl SampleCoin {
    pub fn coin(&self) -> Coin<'_> {
        Coin { code: self.code, out: &self.out }
    }
}

/// Returns so many of the chain's coins in the order of a chainstate, with scripts of all forms.
pub fn coins(count: usize) -> Vec<SampleCoin> {
    let first = CHAIN.model.coins.iter().take(count);
    first.map(|(&outpoint, coin)| SampleCoin { outpoint, code: coin.code, out: coin.compressed() }).collect()
}

/// Returns the first two blocks and a few small ones with spends.
fn some_blocks() -> impl Iterator<Item = &'static GeneratedBlock> {
    let spending = CHAIN.main().filter(|block| block.txs > 1 && block.bytes.len() < 32 << 10);
    CHAIN.main().take(2).chain(spending.take(8))
}

pub fn blocks() -> Vec<Vec<u8>> {
    some_blocks().map(|block| block.bytes.clone()).collect()
}

pub fn transactions() -> Vec<Vec<u8>> {
    let mut arena = BlockArena::default();
    let mut txs = Vec::new();
    for block in some_blocks() {
        let block = arena.parse(&block.bytes).expect("generated blocks are well-formed");
        txs.extend(block.txs().take(4).map(|tx| tx.bytes().to_vec()));
    }
    txs
}

pub fn numbers() -> Vec<Vec<u8>> {
    let numbers = [0, 1, 0x7f, 0x80, 0xfc, 0xfd, 0x407f, 0x4080, 0xffff, 0x1_0000, 5_000_000_000, u64::MAX];
    let mut all = Vec::new();
    numbers.iter().for_each(|&number| write_var_int(&mut all, number));
    let plain: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    vec![all, plain]
}

pub fn undo() -> Vec<Vec<u8>> {
    some_blocks().filter_map(|block| block.undo.clone()).collect()
}

pub fn chainstate_rows() -> Vec<Vec<u8>> {
    let genesis = bitcoin::constants::genesis_block(bitcoin::Network::Bitcoin);
    let script = genesis.txdata[0].output[0].script_pubkey.as_bytes();
    let out = compressed_output(Sats(5_000_000_000), script);
    let uncompressed_key = SampleCoin { code: 1, out, ..coins(1).swap_remove(0) };
    let row = |(coin, vout): (&SampleCoin, &u32)| {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        write_chainstate_key(&mut key, &OutPoint { vout: *vout, ..coin.outpoint });
        coin.coin().write_chainstate_value(&mut value);
        [&[key.len() as u8][..], &key, &value].concat()
    };
    // The numbers of outputs take one to three bytes.
    let vouts = [0, 1, 128, 16_512].iter().cycle();
    coins(40).iter().chain([&uncompressed_key]).zip(vouts).map(row).collect()
}

/// An input of three parts: a head, and two strings.
pub struct Parts<'a, const N: usize> {
    pub head: [u8; N],
    pub first: &'a [u8],
    pub second: &'a [u8],
}

impl<'a, const N: usize> Parts<'a, N> {
    /// head N | length of the first string 4 | first string | second string
    pub fn split(bytes: &'a [u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        let (first, second) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        Some(Self { head: *head, first, second })
    }

    fn join(&self) -> Vec<u8> {
        [&self.head[..], &(self.first.len() as u32).to_le_bytes(), self.first, self.second].concat()
    }
}

/// Inputs of [`super::rules`]: height, block and undo data.
pub fn blocks_and_undo() -> Vec<Vec<u8>> {
    let join = |block: &GeneratedBlock| {
        // The target adds 1, because it never checks the genesis block.
        let head = block.height.checked_sub(1)?.to_le_bytes();
        Some(Parts { head, first: &block.bytes, second: block.undo.as_ref()? }.join())
    };
    some_blocks().filter_map(join).collect()
}

/// Name and bytes of a file.
pub type File = (String, Vec<u8>);

/// Returns the files that `write` leaves in a folder.
pub fn files<E: Debug>(write: impl FnOnce(&Path) -> Result<(), E>) -> Vec<File> {
    let dir = TempDir::new().expect("temporary folders can be made");
    write(dir.path()).expect("files can be written");
    let named = |(path, bytes): (std::path::PathBuf, _)| {
        (path.file_name().unwrap_or_default().to_string_lossy().into_owned(), bytes)
    };
    snapshot(dir.path()).expect("what was written can be read").into_iter().map(named).collect()
}

/// Returns the bytes of the files whose name contains this.
fn named(files: &[File], part: &str) -> Vec<Vec<u8>> {
    files.iter().filter(|(name, _)| name.contains(part)).map(|(_, bytes)| bytes.clone()).collect()
}

/// The layout of a datadir of several block files.
fn layout(xor_key: Option<[u8; 8]>) -> Layout {
    Layout { file_size: 20_000, xor_key, preallocate: false, ..Layout::new(1) }
}

/// Inputs of [`super::disk::scan`]: an obfuscation key, a block file and its undo file.
pub fn block_files() -> Vec<Vec<u8>> {
    let of = |xor_key: Option<[u8; 8]>| {
        let files = files(|dir| CHAIN.write_datadir(dir, &layout(xor_key)));
        let join = |(first, second): (&Vec<u8>, &Vec<u8>)| {
            Parts { head: xor_key.unwrap_or_default(), first, second }.join()
        };
        let (blk, rev) = (named(&files, "blk"), named(&files, "rev"));
        blk.iter().zip(&rev).take(3).map(join).collect::<Vec<_>>()
    };
    [of(None), of(Some([1, 2, 3, 4, 5, 6, 7, 8]))].concat()
}

pub fn index_rows() -> Vec<Vec<u8>> {
    let dir = TempDir::new().expect("temporary folders can be made");
    CHAIN.write_datadir(dir.path(), &layout(None)).expect("files can be written");
    let index = read_block_index(&RealDisk, &Datadir::at(dir.path(), NETWORK).index_dir());
    let index = index.expect("what was written can be read");
    let mut rows = vec![Vec::new(); 4];
    index.files[0].encode(&mut rows[0]);
    index.entries[0].encode(&mut rows[1]);
    index.entries[99].encode(&mut rows[2]);
    let IndexEntry { hash, header, height, .. } = index.entries[5];
    IndexEntry::of_header(hash, header, height).encode(&mut rows[3]);
    rows
}

/// A chainstate as Peregrine writes it.
static DATABASE: LazyLock<Vec<File>> = LazyLock::new(|| {
    files(|dir| {
        let (coins, best_block) = (coins(400), CHAIN.tip().hash);
        let coins = coins.iter().map(|coin| (coin.outpoint, coin.coin()));
        write_chainstate(&RealDisk, dir, [3; 8], best_block, coins)
    })
});

pub fn chainstate_tables() -> impl Iterator<Item = &'static File> {
    DATABASE.iter().filter(|(name, _)| name.ends_with(".ldb"))
}

pub fn leveldb_manifests() -> Vec<Vec<u8>> {
    named(&DATABASE, "MANIFEST")
}

pub fn leveldb_tables() -> Vec<Vec<u8>> {
    // Those of the block index.
    let datadir = files(|dir| CHAIN.write_datadir(dir, &layout(None)));
    [named(&datadir, ".ldb"), named(&DATABASE, ".ldb")].concat()
}

/// Returns logs with two batches: puts and a deletion.
pub fn leveldb_logs() -> Vec<Vec<u8>> {
    let batch = |sequence: u64, operations: &[&[u8]]| {
        let head = [&sequence.to_le_bytes()[..], &(operations.len() as u32).to_le_bytes()].concat();
        reseal::log_record(&[head, operations.concat()].concat())
    };
    let puts = batch(1, &[b"\x01\x03key\x05value", b"\x01\x01B\x04hash"]);
    let deletion = batch(3, &[b"\x00\x03key", b"\x01\x03kez\x00"]);
    vec![[puts.clone(), deletion].concat(), puts]
}

/// Returns sorted runs of the chain's coins: none, few and many, some of them spent.
pub fn runs() -> Vec<Vec<u8>> {
    let run = |count: usize| {
        files(|dir| {
            let mut run = SortedRunWriter::create(&RealDisk, &dir.join("a.run"), NETWORK, 0)?;
            for (number, coin) in coins(count).iter().enumerate() {
                let entry = Entry { is_spend: number % 3 == 0, outpoint: coin.outpoint, coin: coin.coin() };
                run.add(&entry)?;
                if number % 7 == 0 {
                    run.add(&Entry { is_spend: true, ..entry })?;
                }
            }
            run.finish().map(drop)
        })
    };
    [0, 3, 400].into_iter().flat_map(run).map(|(_, bytes)| bytes).collect()
}

pub fn checkpoints() -> Vec<Vec<u8>> {
    let of = |blocks: u32| {
        let checkpoint = Checkpoint {
            network: NETWORK,
            version: "1.2.3".to_owned(),
            chain: [1; 32],
            settings: [2; 32],
            files: vec![FileStamp::default(); blocks as usize / 60],
            runs: (0..u64::from(blocks / 50))
                .map(|number| SortedRunRef { number, ..SortedRunRef::default() })
                .collect(),
            next_run: 100,
            state: SavedState {
                blocks,
                completed: vec![0; blocks.div_ceil(64) as usize],
                counts: [5, 6, 7, 8, 9, 10],
                coinbase_key: SipKey(3, 4),
                coinbases: (0..u64::from(blocks)).collect(),
                matching: match blocks {
                    0 => SavedMatching::Join,
                    _ => SavedMatching::Hints { key: [1; 32].into(), burned: 2, sum: vec![3; 32] },
                },
                made: vec![5; blocks as usize / 2 * 2],
            },
        };
        files(|dir| checkpoint.write(&RealDisk, dir))
    };
    [0, 1, 130].into_iter().flat_map(of).map(|(_, bytes)| bytes).collect()
}

pub fn range_plans() -> Vec<Vec<u8>> {
    let of = |blocks: u32| {
        let block = |number: u32| PlannedBlock {
            hash: BlockHash([number as u8; 32]),
            median_time: BlockTime(number),
            file: FileNo(number / 9),
            data_pos: 8,
            undo_pos: number,
        };
        RangePlan {
            network: NETWORK,
            magic: NETWORK.magic(),
            rules: "31.99".to_owned(),
            activation_heights: "csv@1".to_owned(),
            scripts: blocks > 1,
            assumed_valid_to: (blocks > 2).then_some(Height(1)),
            checked_to: None,
            coinbase_key: SipKey(1, 2),
            shards: blocks.clamp(1, 256),
            ends: (1..=blocks).filter(|end| end % 3 == 0 || *end == blocks).collect(),
            blocks: (0..blocks).map(block).collect(),
        }
    };
    [1, 2, 100].map(|blocks| of(blocks).to_bytes()).into()
}

pub fn deltas() -> Vec<Vec<u8>> {
    let of = |count: u32| {
        let range = |number: u32| CheckedRange {
            number,
            content: [number as u8; 32],
            is_compared: number > 0,
            seconds: 3,
            checker: "a".repeat(number as usize),
            program: String::new(),
        };
        let shard = |number: u32| DeltaShard { number, entries: 2, spends: 1, bytes: 9, sha256: [4; 32] };
        Delta {
            plan: [5; 32],
            ranges: (0..count).map(range).collect(),
            shards: (0..count).map(shard).collect(),
            counts: [1, 2, 3, 4, 5, 6],
            coinbases: (0..u64::from(count) * 10).collect(),
        }
    };
    [1, 3, 20].map(|count| of(count).to_bytes()).into()
}
