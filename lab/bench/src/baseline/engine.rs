//! An engine that connects blocks in order over a database, as Bitcoin Core does when it reindexes and writes
//! what a download would write. Each step has an old way and a new one, so that whole runs can be compared
//! that differ in one step only.

use super::{
    distinct,
    files::{FieldReader, FieldWriter, Xor, read_whole, weight_by_fields},
    hashers::{Jumbo, OutpointHasher, Salted24, Unsalted24},
    leveldb::{Database, LARGE_BATCH, SMALL_BATCH},
    tables::{CoinTable, KeptCoin, Narrow, Wide},
};
use crate::Answers;
use digest::{obfuscation::Obfuscation, sha256::sha256d_many};
use disk::{blk, undo};
use rusty_leveldb::Status;
use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};
use wire::{
    BlockArena, BlockHash, BlockView, Coin, FileNo, Height, OutPoint, Txid, coin::compress_output,
    script::is_unspendable,
};

/// The names of the new ways, in the order of their bits.
pub const WAYS: [&str; 8] = ["whole", "words", "batches", "sizes", "sorted", "salted", "jumbo", "inline"];

/// Blocks and undo data are read and written in one piece, not field by field (#31551).
const WHOLE: u32 = 1;
/// Obfuscation goes by words, not by bytes (#31144).
const WORDS: u32 = 1 << 1;
/// Coins are written in batches of 64 MiB, not of 16 MiB (#31645).
const BATCHES: u32 = 1 << 2;
/// Sizes of blocks are known from parsing, not from serialising again (#31868).
const SIZES: u32 = 1 << 3;
/// Distinct inputs are proven by sorting, not by an ordered set (#31682).
const SORTED: u32 = 1 << 4;
/// The key of SipHash-2-4 is mixed in once, not for each hash (#30442).
const SALTED: u32 = 1 << 5;
/// Outpoints are hashed by SipHash-1-3 with jumbo blocks, not by SipHash-2-4.
const JUMBO: u32 = 1 << 6;
/// Scripts of 36 bytes are inline, not of 28 (#32279).
const INLINE: u32 = 1 << 7;
/// The blocks to connect, and where the results go.
pub struct Chain<'a> {
    pub files: HashMap<FileNo, PathBuf>,
    /// File, position and parent of each block, from height 1.
    pub places: Vec<(FileNo, u64, BlockHash)>,
    /// The obfuscation of the files, and of those that are written.
    pub obfuscation: Obfuscation,
    /// What each record begins with.
    pub magic: [u8; 4],
    /// An empty or missing folder.
    pub dir: &'a Path,
    /// Number of coins at which the cache is flushed.
    pub cache_coins: usize,
}

/// What a run made.
pub struct Connected {
    database: Database,
    dir: PathBuf,
}

impl Connected {
    /// Returns a hash of all coins and of the files of blocks and undo data.
    pub fn answer(mut self) -> io::Result<String> {
        let mut answers = Answers::default();
        answers.add("coins", self.database.answer().map_err(io::Error::other)?.as_bytes());
        for name in [BLOCKS, UNDO] {
            answers.add(name, &fs::read(self.dir.join(name))?);
        }
        Ok(answers.hash())
    }
}

const BLOCKS: &str = "blocks";
const UNDO: &str = "undo";

/// Connects all blocks in these ways: the sum of the bits of [`WAYS`] that are new.
///
/// # Panics
/// If a block is not valid.
pub fn connect(chain: &Chain<'_>, ways: u32) -> io::Result<Connected> {
    let has = |way| ways & way != 0;
    match (has(JUMBO), has(SALTED), has(INLINE)) {
        (true, _, true) => Engine::<Jumbo, Wide>::new(chain, ways)?.run(),
        (true, _, false) => Engine::<Jumbo, Narrow>::new(chain, ways)?.run(),
        (false, true, true) => Engine::<Salted24, Wide>::new(chain, ways)?.run(),
        (false, true, false) => Engine::<Salted24, Narrow>::new(chain, ways)?.run(),
        (false, false, true) => Engine::<Unsalted24, Wide>::new(chain, ways)?.run(),
        (false, false, false) => Engine::<Unsalted24, Narrow>::new(chain, ways)?.run(),
    }
}

enum Reader {
    Whole(File, Xor, Vec<u8>),
    Fields(FieldReader),
}

impl Reader {
    fn read(&mut self, pos: u64) -> io::Result<&[u8]> {
        match self {
            Self::Whole(file, xor, record) => read_whole(file, *xor, pos, record).map(|()| &record[..]),
            Self::Fields(fields) => fields.read_block(pos),
        }
    }
}

enum Writer {
    Whole { file: File, xor: Xor, offset: u64, record: Vec<u8> },
    Fields(FieldWriter),
}

impl Writer {
    fn create(path: &Path, xor: Xor, is_whole: bool) -> io::Result<Self> {
        let file = File::create_new(path)?;
        Ok(match is_whole {
            true => Self::Whole { file, xor, offset: 0, record: Vec::new() },
            false => Self::Fields(FieldWriter::new(file, xor)),
        })
    }

    fn write(
        &mut self,
        in_one_piece: impl FnOnce(&mut Vec<u8>),
        by_fields: impl FnOnce(&mut FieldWriter) -> io::Result<()>,
    ) -> io::Result<()> {
        match self {
            Self::Fields(writer) => by_fields(writer),
            Self::Whole { file, xor, offset, record } => {
                record.clear();
                in_one_piece(record);
                xor.apply(record, *offset);
                *offset += record.len() as u64;
                file.write_all(record)
            }
        }
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Self::Fields(writer) => writer.finish(),
            Self::Whole { .. } => Ok(()),
        }
    }
}

struct Engine<'a, H, C> {
    chain: &'a Chain<'a>,
    ways: u32,
    readers: HashMap<FileNo, Reader>,
    blocks: Writer,
    undo: Writer,
    cache: CoinTable<H, C>,
    /// Coins of the database that were spent after the last flush.
    removed: Vec<OutPoint>,
    database: Database,
}

impl<'a, H: OutpointHasher, C: KeptCoin> Engine<'a, H, C> {
    fn new(chain: &'a Chain<'a>, ways: u32) -> io::Result<Self> {
        let (is_whole, xor) =
            (ways & WHOLE != 0, Xor { key: chain.obfuscation, is_bytewise: ways & WORDS == 0 });
        let reader = |(number, path): (&FileNo, &PathBuf)| {
            let file = File::open(path)?;
            let reader = match is_whole {
                true => Reader::Whole(file, xor, Vec::new()),
                false => Reader::Fields(FieldReader::new(file, xor)),
            };
            Ok::<_, io::Error>((*number, reader))
        };
        fs::create_dir_all(chain.dir)?;
        let batch = if ways & BATCHES == 0 { SMALL_BATCH } else { LARGE_BATCH };
        let database = Database::create(&chain.dir.join("coins"), batch);
        Ok(Self {
            chain,
            ways,
            readers: chain.files.iter().map(reader).collect::<Result<_, _>>()?,
            blocks: Writer::create(&chain.dir.join(BLOCKS), xor, is_whole)?,
            undo: Writer::create(&chain.dir.join(UNDO), xor, is_whole)?,
            cache: CoinTable::default(),
            removed: Vec::new(),
            database: database.map_err(io::Error::other)?,
        })
    }

    fn run(mut self) -> io::Result<Connected> {
        let mut arena = BlockArena::default();
        for (height, (file, pos, prev)) in (1..).map(Height).zip(&self.chain.places) {
            // Taken out, because the block borrows from it.
            let mut reader = self.readers.remove(file).ok_or(io::ErrorKind::NotFound)?;
            let block = arena.parse(reader.read(*pos)?).map_err(io::Error::other)?;
            self.connect_block(&block, height, prev)?;
            self.readers.insert(*file, reader);
            if self.cache.count() >= self.chain.cache_coins {
                self.flush().map_err(io::Error::other)?;
            }
        }
        self.flush().map_err(io::Error::other)?;
        self.blocks.finish()?;
        self.undo.finish()?;
        Ok(Connected { database: self.database, dir: self.chain.dir.to_owned() })
    }

    fn connect_block(&mut self, block: &BlockView<'_>, height: Height, prev: &BlockHash) -> io::Result<()> {
        let (magic, bytes) = (self.chain.magic, block.bytes());
        let weight = block.weight().0;
        if self.ways & SIZES == 0 {
            assert_eq!(weight_by_fields(bytes)?, weight, "both ways have the same sizes");
        }
        let are_distinct =
            if self.ways & SORTED == 0 { distinct::by_ordered_set } else { distinct::by_sorting::<true> };
        assert!(block.txs().skip(1).all(|tx| are_distinct(&tx)), "inputs are distinct");
        let in_one_piece = |record: &mut Vec<u8>| blk::write_record(record, magic, bytes);
        self.blocks.write(in_one_piece, |fields| fields.write_block(magic, bytes))?;
        let mut txids = Vec::new();
        sha256d_many(&block.txs().map(|tx| tx.txid_message()).collect::<Vec<_>>(), &mut txids);
        let (mut spent, mut out) = (Vec::with_capacity(block.tx_count()), Vec::new());
        for (index, (tx, txid)) in block.txs().zip(txids.into_iter().map(Txid)).enumerate() {
            if index > 0 {
                let coins = tx.inputs().map(|input| self.spend(&input.prevout()));
                spent.push(coins.collect::<io::Result<Vec<C>>>()?);
            }
            let code = Coin::code_of(height, index == 0);
            for (vout, output) in (0..).zip(tx.outputs()) {
                if !is_unspendable(output.script_pubkey()) {
                    out.clear();
                    compress_output(&mut out, output.value(), output.script_pubkey());
                    self.cache.create(OutPoint { txid, vout }, Coin { code, out: &out });
                }
            }
        }
        let coins = spent.iter().map(|coins| coins.iter().map(KeptCoin::coin));
        // Both ways know the length before they write: Bitcoin Core serialises the undo data into a counter.
        let undo = undo::write_undo(coins.clone());
        self.undo.write(
            |record| undo::write_record(record, magic, prev, &undo),
            |fields| fields.write_undo(magic, prev, coins, undo.len() as u32),
        )
    }

    fn spend(&mut self, outpoint: &OutPoint) -> io::Result<C> {
        if let Some(coin) = self.cache.take(outpoint) {
            return Ok(coin);
        }
        let value = self.database.get(outpoint).ok_or(io::ErrorKind::NotFound)?;
        self.removed.push(*outpoint);
        Coin::read_chainstate_value(&value).map(C::keep).map_err(io::Error::other)
    }

    fn flush(&mut self) -> Result<(), Status> {
        let coins: Vec<_> = self.cache.drain().collect();
        let created = coins.iter().map(|(outpoint, coin)| (*outpoint, Some(coin.coin())));
        self.database.write(created.chain(self.removed.drain(..).map(|outpoint| (outpoint, None))))
    }
}
