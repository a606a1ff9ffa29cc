//! Steps of a rebuild that are measured in this process, each in several ways: those that the product has,
//! and those of [`bench::baseline`].

use super::{
    chain::{Chain, Place, Records, failed},
    proposal::{Outcome, Stopwatch},
};
use crate::place::environment;
use bench::{
    Answers, Block,
    baseline::{
        distinct,
        files::{Contents, FieldReader, FieldWriter, read_bytewise},
        hashers::{self, OutpointHasher},
        tables::{Coins, FlushedTable, connect},
    },
    work,
};
use digest::obfuscation::Obfuscation;
use disk::{
    DiskError,
    chainstate::{ChainstateReader, ChainstateWriter},
    datadir::{Datadir, FileKind},
    undo::{UndoArena, UndoView, write_record, write_undo},
    xor::read_block_obfuscation,
};
use engine::{Error, FileNo, RealDisk};
use std::{
    collections::HashMap,
    fs::{self, File},
    hint::black_box,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};
use wire::{BlockArena, BlockHash, Coin, OutPoint, TxView};

/// Number of blocks whose inputs are looked up together, and of look-ups that a thread takes at once.
const WINDOW_BLOCKS: usize = 32;
const LOOKUPS: usize = 256;
/// Memory for open tables, in bytes.
const OPEN_TABLES: u64 = 256 << 20;
/// How often a cache is flushed while the chain is connected.
const FLUSHES: usize = 16;

/// What steps work on.
pub struct Lab<'a> {
    /// The blocks by height, without the genesis block.
    pub blocks: &'a [Block<'a>],
    places: &'a [Place],
    obfuscated: Datadir,
    plain: Datadir,
    obfuscation: Obfuscation,
    prevouts: Vec<OutPoint>,
    /// The coins that the chain spends, in the order of a chainstate.
    spent: Vec<(OutPoint, Coin<'a>)>,
    outputs: usize,
    scratch: PathBuf,
    /// A chainstate of the spent coins, once a step needs it.
    stored: PathBuf,
}

impl<'a> Lab<'a> {
    /// Prepares the steps, which write into `scratch` only.
    pub fn new(
        chain: &Chain,
        blocks: &'a [Block<'a>],
        places: &'a [Place],
        scratch: &Path,
    ) -> Result<Self, Error> {
        let obfuscated = chain.datadir();
        let obfuscation = read_block_obfuscation(&RealDisk, &obfuscated.blocks_dir())?;
        let prevouts = blocks.iter().flat_map(|block| block.view.txs().skip(1)).flat_map(|tx| tx.inputs());
        Ok(Self {
            blocks,
            places: places.get(1..).unwrap_or_default(),
            plain: Datadir::at(&chain.plain, chain.network),
            obfuscated,
            obfuscation,
            prevouts: prevouts.map(|input| input.prevout()).collect(),
            spent: work::spent_coins(blocks),
            outputs: blocks.iter().map(|block| block.view.output_count()).sum(),
            scratch: scratch.to_owned(),
            stored: scratch.join("stored"),
        })
    }

    /// Number of bytes of all blocks.
    fn block_bytes(&self) -> usize {
        self.blocks.iter().map(|block| block.view.bytes().len()).sum()
    }

    /// Opens a new chainstate in an empty folder.
    fn new_chainstate(&self, dir: &Path) -> Result<ChainstateReader<'static>, Error> {
        if dir.exists() {
            fs::remove_dir_all(dir).map_err(|error| environment("empty", dir, error))?;
        }
        let writer = ChainstateWriter::create(&RealDisk, dir, self.obfuscation, 0)?;
        writer.finish(BlockHash::default(), [])?;
        Ok(ChainstateReader::open(&RealDisk, dir)?)
    }

    /// Opens files by their numbers.
    fn open_files(&self) -> Result<HashMap<FileNo, File>, Error> {
        let mut files = HashMap::new();
        for Place { file, .. } in self.places {
            if !files.contains_key(file) {
                let path = self.obfuscated.block_file_path(FileKind::Blk, *file);
                let opened = File::open(&path).map_err(|error| environment("read", &path, error))?;
                files.insert(*file, opened);
            }
        }
        Ok(files)
    }
}

/// Hashes the outpoint of each input.
pub fn hash<H: OutpointHasher>(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    black_box(watch.time(|| hashers::sum::<H>(&lab.prevouts)));
    let count = lab.prevouts.len();
    Ok(Outcome { answer: format!("{count} hashes"), count })
}

fn connect_to(lab: &Lab<'_>, watch: &mut Stopwatch, mut table: impl Coins) -> Result<Outcome, Error> {
    watch.time(|| connect(lab.blocks, &mut table));
    Ok(Outcome { answer: table.answer(), count: lab.prevouts.len() + lab.outputs })
}

/// Connects all blocks to a table of coins.
pub fn connect_all<T: Coins + Default>(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    connect_to(lab, watch, T::default())
}

/// Connects all blocks to a table that is flushed from time to time.
pub fn connect_flushed<const PREALLOCATES: bool>(
    lab: &Lab<'_>,
    watch: &mut Stopwatch,
) -> Result<Outcome, Error> {
    // Most coins of a flush were spent before it: of those that were created, far fewer are in the cache.
    let most = (lab.outputs - lab.prevouts.len().min(lab.outputs)) / FLUSHES + 1;
    connect_to(lab, watch, FlushedTable::new(most, PREALLOCATES))
}

/// Adds each record to the answer, outside of the measured time.
fn read_all(
    lab: &Lab<'_>,
    watch: &mut Stopwatch,
    mut read: impl FnMut(&mut Stopwatch, &Place, &mut Answers) -> Result<(), Error>,
) -> Result<Outcome, Error> {
    let mut answers = Answers::default();
    lab.places.iter().try_for_each(|place| read(watch, place, &mut answers))?;
    Ok(Outcome { answer: answers.hash(), count: lab.block_bytes() })
}

/// Reads all blocks as the product does.
fn read_with(
    lab: &Lab<'_>,
    watch: &mut Stopwatch,
    datadir: &Datadir,
    obfuscation: Obfuscation,
) -> Result<Outcome, Error> {
    let mut records = Records::new(datadir, obfuscation);
    read_all(lab, watch, |watch, place, answers| {
        let bytes = watch.time(|| records.read(FileKind::Blk, place.file, place.block))?;
        answers.add("block", bytes);
        Ok(())
    })
}

/// Reads all blocks, and XORs their bytes as 64-bit words.
pub fn read_words(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    read_with(lab, watch, &lab.obfuscated, lab.obfuscation)
}

/// Reads all blocks from files that are not obfuscated.
pub fn read_plain(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    read_with(lab, watch, &lab.plain, Obfuscation::default())
}

/// Reads all blocks, and XORs them byte by byte.
pub fn read_bytes(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    let (files, mut record) = (lab.open_files()?, Vec::new());
    let key = lab.obfuscation.key();
    read_all(lab, watch, |watch, place, answers| {
        let read = watch.time(|| read_bytewise(&files[&place.file], key, place.block.0, &mut record));
        read.map_err(read_failed)?;
        answers.add("block", &record);
        Ok(())
    })
}

fn read_failed(error: io::Error) -> Error {
    failed(format!("cannot read a block: {error}"))
}

fn contents(lab: &Lab<'_>, contents: Contents) -> Outcome {
    Outcome { answer: format!("{contents:?}"), count: lab.block_bytes() }
}

/// Reads each block in one piece, and parses it.
pub fn parse_whole(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    let mut records = Records::new(&lab.obfuscated, lab.obfuscation);
    let (mut arena, mut sum) = (BlockArena::default(), Contents::default());
    watch.time(|| {
        lab.places.iter().try_for_each(|place| {
            let bytes = records.read(FileKind::Blk, place.file, place.block)?;
            let block = arena.parse(bytes).map_err(|error| failed(error.to_string()))?;
            sum += Contents {
                txs: block.tx_count() as u64,
                inputs: block.input_count() as u64,
                outputs: block.output_count() as u64,
                bytes: block.bytes().len() as u64,
            };
            Ok::<_, Error>(())
        })
    })?;
    Ok(contents(lab, sum))
}

/// Reads each block field by field.
pub fn parse_fields(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    let files = lab.open_files()?.into_iter();
    let mut readers: HashMap<_, _> =
        files.map(|(number, file)| (number, FieldReader::new(file, lab.obfuscation))).collect();
    let mut sum = Contents::default();
    watch.time(|| {
        lab.places.iter().try_for_each(|place| {
            let reader = readers.get_mut(&place.file).ok_or_else(|| failed("a file is not open"))?;
            sum += reader.read_block(place.block.0).map_err(read_failed)?;
            Ok::<_, Error>(())
        })
    })?;
    Ok(contents(lab, sum))
}

/// Lets `write` write the undo data of all blocks to a new file.
fn write_all(
    lab: &Lab<'_>,
    watch: &mut Stopwatch,
    write: impl FnOnce(File) -> io::Result<()>,
) -> Result<Outcome, Error> {
    let path = lab.scratch.join("undo");
    let written = File::create(&path).and_then(|file| watch.time(|| write(file)));
    let bytes = written.and_then(|()| fs::read(&path));
    let bytes = bytes.map_err(|error| environment("write", &path, error))?;
    let mut answers = Answers::default();
    answers.add("undo", &bytes);
    Ok(Outcome { answer: answers.hash(), count: bytes.len() })
}

/// Calls `write` with the magic, the hash of the parent, and the undo data of each block.
fn for_each_undo(
    lab: &Lab<'_>,
    mut write: impl FnMut([u8; 4], &BlockHash, &UndoView<'_>, u32) -> io::Result<()>,
) -> io::Result<()> {
    let (mut arena, magic) = (UndoArena::default(), lab.obfuscated.magic());
    lab.blocks.iter().zip(lab.places).try_for_each(|(block, place)| {
        let undo = UndoView::parse(block.undo, &mut arena).map_err(io::Error::other)?;
        write(magic, &place.prev, &undo, block.undo.len() as u32)
    })
}

/// Writes each record of undo data in one piece.
pub fn write_whole(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    write_all(lab, watch, |mut file| {
        let (mut record, mut offset) = (Vec::new(), 0);
        for_each_undo(lab, |magic, prev, undo, _| {
            let coins: Vec<_> = undo.txs().collect();
            record.clear();
            write_record(&mut record, magic, prev, &write_undo(coins.into_iter()));
            lab.obfuscation.apply(&mut record, offset);
            offset += record.len() as u64;
            file.write_all(&record)
        })
    })
}

/// Writes undo data field by field.
pub fn write_fields(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    write_all(lab, watch, |file| {
        let mut writer = FieldWriter::new(file, lab.obfuscation);
        for_each_undo(lab, |magic, prev, undo, length| writer.write_record(magic, prev, undo, length))?;
        writer.finish()
    })
}

/// Writes the coins that the chain spends to a chainstate, in `BATCHES` batches.
pub fn write_coins<const BATCHES: usize>(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    let dir = lab.scratch.join("written");
    let mut chainstate = lab.new_chainstate(&dir)?;
    // Batches of a flush are not ranges of keys: each has coins of all of them.
    let mut batches = vec![Vec::new(); BATCHES];
    for (at, coin) in lab.spent.iter().enumerate() {
        batches[at % BATCHES].push(coin);
    }
    watch.time(|| {
        batches.iter().try_for_each(|batch| {
            write_changes(&mut chainstate, batch.iter().copied())?;
            let Some(merge) = chainstate.begin_merge()? else { return Ok(()) };
            let merged = merge.merge_range(None, None, || false)?;
            merge.commit(merged)
        })
    })?;
    let answer = work::utxo_hash(work::read_chainstate(&chainstate));
    Ok(Outcome { answer, count: lab.spent.len() })
}

fn write_changes<'c>(
    chainstate: &mut ChainstateReader<'_>,
    coins: impl Iterator<Item = &'c (OutPoint, Coin<'c>)>,
) -> Result<(), DiskError> {
    let update = chainstate.update(BlockHash::default())?;
    let written = update.write_range(None, None, coins.map(|(outpoint, coin)| (*outpoint, Some(*coin))))?;
    update.commit([written])
}

/// Looks up the coins of the inputs of coming blocks, window by window, on `THREADS` threads.
pub fn look_up<const THREADS: usize>(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    if !lab.stored.exists() {
        write_changes(&mut lab.new_chainstate(&lab.stored)?, lab.spent.iter())?;
    }
    let mut chainstate = ChainstateReader::open(&RealDisk, &lab.stored)?;
    chainstate.keep_open(OPEN_TABLES);
    let bytes = AtomicUsize::new(0);
    watch.time(|| {
        lab.blocks.chunks(WINDOW_BLOCKS).try_for_each(|window| {
            let inputs = window.iter().flat_map(|block| block.view.txs().skip(1)).flat_map(|tx| tx.inputs());
            let mut wanted: Vec<_> = inputs.map(|input| input.prevout()).collect();
            wanted.sort_unstable_by(wire::coin::chainstate_key_order);
            let (next, chunks) = (AtomicUsize::new(0), wanted.chunks(LOOKUPS).collect::<Vec<_>>());
            let look = || {
                let mut lookup = chainstate.lookup();
                while let Some(outpoints) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) {
                    for outpoint in *outpoints {
                        let found = lookup.coin(outpoint)?;
                        bytes.fetch_add(found.map_or(0, |coin| coin.out.len()), Ordering::Relaxed);
                    }
                }
                Ok::<_, Error>(())
            };
            thread::scope(|scope| {
                let others: Vec<_> = (1..THREADS).map(|_| scope.spawn(look)).collect();
                look()?;
                let panicked = |_| failed("a thread has panicked");
                others.into_iter().try_for_each(|other| other.join().map_err(panicked)?)
            })
        })
    })?;
    let answer = format!("{} bytes of coins", bytes.into_inner());
    Ok(Outcome { answer, count: lab.prevouts.len() })
}

/// Asks of each transaction but coinbases whether its inputs are distinct.
fn check_inputs(
    lab: &Lab<'_>,
    watch: &mut Stopwatch,
    mut are_distinct: impl FnMut(&TxView<'_>) -> bool,
) -> Result<Outcome, Error> {
    let txs = || lab.blocks.iter().flat_map(|block| block.view.txs().skip(1));
    let valid = watch.time(|| txs().filter(|tx| are_distinct(black_box(tx))).count());
    Ok(Outcome { answer: format!("{valid} transactions"), count: lab.prevouts.len() })
}

pub fn distinct_by_set(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    check_inputs(lab, watch, distinct::by_ordered_set)
}

pub fn distinct_by_hash_set(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    check_inputs(lab, watch, distinct::by_hash_set)
}

pub fn distinct_by_sorting(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    check_inputs(lab, watch, distinct::by_sorting)
}

pub fn distinct_by_keys(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    let mut keys = Vec::new();
    check_inputs(lab, watch, |tx| rules::inputs_are_distinct_and_not_null(tx, &mut keys))
}
