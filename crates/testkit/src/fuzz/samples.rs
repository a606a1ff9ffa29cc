//! Seeds of the fuzz targets: parts of a small generated chain, and of databases and files made from it.

use super::{reseal, runs::NETWORK};
use crate::{Chain, ChainSpec, GeneratedBlock};
use digest::obfuscation::Obfuscation;
use digest::siphash::SipKey;
use disk::{
    blk,
    chainstate::ChainstateWriter,
    checkpoint::{Checkpoint, FileStamp, SavedMatching, SavedState, SortedRunRef},
    delta::{CheckedRange, Delta, DeltaShard},
    index::{BlockIndex, BlockStatus, FileInfo, IndexEntry},
    range_plan::{PlannedBlock, RangePlan},
    sorted_run::SortedRunWriter,
    undo::{self, UndoArena, UndoView},
};
use rules::median_time_past;
use std::{path::Path, sync::LazyLock};
use vfs::RealDisk;
use wire::{
    BlockArena, BlockHash, BlockTime, ByteOffset, Coin, Entry, FileNo, Height, Network, OutPoint, Sats, Txid,
    coin::{compress_output, write_chainstate_key},
    read::write_var_int,
};

/// Long enough for spends: coinbases mature after 100 blocks.
static CHAIN: LazyLock<Chain> =
    LazyLock::new(|| Chain::generate(&ChainSpec { blocks: Some(130), ..ChainSpec::new(1, 400_000) }));

/// Median times of the blocks of the chain, by height.
pub static MEDIAN_TIMES: LazyLock<Vec<BlockTime>> = LazyLock::new(|| {
    let times: Vec<BlockTime> = CHAIN.main().map(|block| block.header.time).collect();
    (1..=times.len()).map(|end| median_time_past(&times[end.saturating_sub(11)..end])).collect()
});

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
    let mut rows = Vec::new();
    let mut push = |vout: u32, coin: &Coin<'_>| {
        let mut key = Vec::new();
        write_chainstate_key(&mut key, &OutPoint { txid: Txid([vout as u8; 32]), vout });
        let mut value = Vec::new();
        coin.write_chainstate_value(&mut value);
        rows.push([&[key.len() as u8][..], &key, &value].concat());
    };
    let mut arena = UndoArena::default();
    for undo in undo() {
        let view = UndoView::parse(&undo, &mut arena).expect("generated undo data is well-formed");
        view.coins().take(4).zip([0, 1, 128, 16512]).for_each(|(coin, vout)| push(vout, &coin));
    }
    let mut out = Vec::new();
    let generator = bitcoin::constants::genesis_block(bitcoin::Network::Bitcoin);
    compress_output(&mut out, Sats(5_000_000_000), generator.txdata[0].output[0].script_pubkey.as_bytes());
    push(0, &Coin { code: 1, out: &out });
    rows
}

/// An input of [`super::rules`]: height, block and undo data.
pub struct BlockAndUndo<'a> {
    pub height: u32,
    pub block: &'a [u8],
    pub undo: &'a [u8],
}

impl<'a> BlockAndUndo<'a> {
    /// height 4 | block length 4 | block | undo data
    pub fn split(bytes: &'a [u8]) -> Option<Self> {
        let (height, rest) = bytes.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        let (block, undo) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        Some(Self { height: u32::from_le_bytes(*height), block, undo })
    }
}

pub fn blocks_and_undo() -> Vec<Vec<u8>> {
    let join = |block: &GeneratedBlock| {
        // The target adds 1, because it never checks the genesis block.
        let head = [block.height.checked_sub(1)?.to_le_bytes(), (block.bytes.len() as u32).to_le_bytes()];
        Some([head.as_flattened(), &block.bytes, block.undo.as_ref()?].concat())
    };
    some_blocks().filter_map(join).collect()
}

/// An input of [`super::disk::scan`]: an obfuscation key and two files.
pub struct BlockFiles<'a> {
    pub key: [u8; 8],
    pub blk: &'a [u8],
    pub rev: &'a [u8],
}

impl<'a> BlockFiles<'a> {
    /// key 8 | length of the block file 4 | block file | undo file
    pub fn split(bytes: &'a [u8]) -> Option<Self> {
        let (key, rest) = bytes.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        let (blk, rev) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        Some(Self { key: *key, blk, rev })
    }
}

pub fn block_files() -> Vec<Vec<u8>> {
    let magic = Network::Regtest.magic();
    let files = |blocks: &mut dyn Iterator<Item = &GeneratedBlock>, key: [u8; 8]| {
        let (mut blk, mut rev) = (Vec::new(), Vec::new());
        for block in blocks {
            blk::write_record(&mut blk, magic, &block.bytes);
            if let Some(undo) = &block.undo {
                undo::write_record(&mut rev, magic, &block.header.prev, undo);
            }
        }
        rev.extend([0; 20]);
        let len = (blk.len() as u32).to_le_bytes();
        Obfuscation::from_key(key).apply(&mut blk, 0);
        Obfuscation::from_key(key).apply(&mut rev, 0);
        [&key[..], &len, &blk, &rev].concat()
    };
    vec![
        files(&mut CHAIN.main().take(40), [0; 8]),
        files(&mut CHAIN.main().take(5), [1, 2, 3, 4, 5, 6, 7, 8]),
        files(&mut some_blocks().take(4), [0; 8]),
    ]
}

fn index() -> BlockIndex {
    let mut index = BlockIndex { files: vec![FileInfo::default()], ..BlockIndex::default() };
    for block in CHAIN.main() {
        let mut status = BlockStatus::VALID_SCRIPTS | BlockStatus::HAVE_DATA;
        let undo_pos = block.undo.as_ref().map(|_| ByteOffset(8 + u64::from(block.height) * 50));
        if undo_pos.is_some() {
            status |= BlockStatus::HAVE_UNDO;
        }
        let height = Height(block.height);
        index.files[0].add_block(height, block.header.time.0.into());
        index.entries.push(IndexEntry {
            hash: block.hash,
            header: block.header,
            height,
            status: BlockStatus(status),
            tx_count: block.txs,
            file: Some(FileNo(0)),
            data_pos: Some(ByteOffset(8 + u64::from(block.height) * 300)),
            undo_pos,
        });
    }
    index
}

pub fn index_rows() -> Vec<Vec<u8>> {
    let index = index();
    let mut rows = vec![Vec::new(); 3];
    index.files[0].encode(&mut rows[0]);
    index.entries[0].encode(&mut rows[1]);
    index.entries[99].encode(&mut rows[2]);
    let header = index.entries[5].header;
    let only =
        IndexEntry { status: BlockStatus(2), file: None, data_pos: None, undo_pos: None, ..index.entries[5] };
    let mut row = Vec::new();
    IndexEntry { header, ..only }.encode(&mut row);
    rows.push(row);
    rows
}

/// Names and bytes of the files of a small database.
pub struct Files(Vec<(String, Vec<u8>)>);

/// A chainstate as Peregrine writes it.
pub static DATABASE: LazyLock<Files> = LazyLock::new(|| {
    Files::written(|dir| {
        let writer = ChainstateWriter::create(&RealDisk, dir, Obfuscation::from_key([3; 8]), 1)?;
        let mut rows = writer.range(0);
        let mut out = Vec::new();
        for (outpoint, coin) in CHAIN.model.coins.iter().take(400) {
            out.clear();
            compress_output(&mut out, Sats(coin.amount), &coin.script);
            rows.add(outpoint, &Coin { code: coin.code, out: &out })?;
        }
        writer.finish(CHAIN.tip().hash, [rows.finish()?])
    })
});

impl Files {
    fn written(write: impl FnOnce(&Path) -> Result<(), disk::DiskError>) -> Self {
        let dir = tempfile::tempdir().expect("temporary folders can be made");
        write(dir.path()).expect("a database can be written");
        let read = |entry: std::io::Result<std::fs::DirEntry>| {
            let entry = entry?;
            Ok((entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path())?))
        };
        let files: std::io::Result<_> = dir.path().read_dir().and_then(|entries| entries.map(read).collect());
        Self(files.expect("what was written can be read"))
    }

    fn of_kind(&self, matches: impl Fn(&str) -> bool) -> Vec<Vec<u8>> {
        self.0.iter().filter(|(name, _)| matches(name)).map(|(_, bytes)| bytes.clone()).collect()
    }

    /// Returns name and bytes of each table.
    pub fn tables(&self) -> impl Iterator<Item = (&str, Vec<u8>)> {
        self.0
            .iter()
            .filter(|(name, _)| name.ends_with(".ldb"))
            .map(|(name, bytes)| (&name[..], bytes.clone()))
    }
}

pub fn leveldb_manifests() -> Vec<Vec<u8>> {
    DATABASE.of_kind(|name| name.starts_with("MANIFEST"))
}

pub fn leveldb_tables() -> Vec<Vec<u8>> {
    let index = Files::written(|dir| disk::index::write_block_index(&RealDisk, dir, &index()));
    let mut tables = index.of_kind(|name| name.ends_with(".ldb"));
    tables.extend(DATABASE.tables().map(|(_, bytes)| bytes));
    tables
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
    let run = |coins: usize| {
        Files::written(|dir| {
            let mut run = SortedRunWriter::create(&RealDisk, &dir.join("a.run"), NETWORK, 0)?;
            let mut out = Vec::new();
            for (number, (outpoint, coin)) in CHAIN.model.coins.iter().take(coins).enumerate() {
                out.clear();
                compress_output(&mut out, Sats(coin.amount), &coin.script);
                let coin = Coin { code: coin.code, out: &out };
                let entry = Entry { is_spend: number % 3 == 0, outpoint: *outpoint, coin };
                run.add(&entry)?;
                if number % 7 == 0 {
                    run.add(&Entry { is_spend: true, ..entry })?;
                }
            }
            run.finish().map(drop)
        })
    };
    [0, 3, 400].into_iter().flat_map(|coins| run(coins).of_kind(|_| true)).collect()
}

pub fn checkpoints() -> Vec<Vec<u8>> {
    let of = |blocks: u32| {
        let checkpoint = Checkpoint {
            network: NETWORK,
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
        Files::written(|dir| checkpoint.write(&RealDisk, dir)).of_kind(|_| true)
    };
    [0, 1, 130].into_iter().flat_map(of).collect()
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
