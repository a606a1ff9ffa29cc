//! Steps that read or write files.

use super::{Lab, Outcome, Place, Stopwatch, disk_failed, failed, outcome};
use crate::{place::environment, proposals::chain::Records};
use bench::{
    Answers,
    baseline::{
        engine as baseline,
        files::{FieldReader, FieldWriter, Xor, read_whole},
        leveldb::{Database, LARGE_BATCH},
    },
    work,
};
use disk::{
    DiskError, blk,
    chainstate::{ChainstateReader, ChainstateWriter},
    datadir::FileKind,
    undo::{UndoArena, UndoView, write_record, write_undo},
};
use engine::{Error, FileNo, RealDisk};
use std::{
    collections::HashMap,
    fs::{self, File},
    io::{self, Write as _},
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};
use wire::{BlockArena, BlockHash, Coin, OutPoint, Txid};

/// Number of blocks whose inputs are looked up together, and of look-ups that a thread takes at once.
const WINDOW_BLOCKS: usize = 32;
const LOOKUPS: usize = 256;
/// Memory for open tables, in bytes.
const OPEN_TABLES: u64 = 256 << 20;
/// The compressed output of each coin of the last flush: one bitcoin for the hash of a public key.
const FLUSHED_OUT: [u8; 22] = {
    let mut out = [7; 22];
    [out[0], out[1]] = [9, 0];
    out
};

/// Connects all blocks in order over a database, in the ways of `WAYS`. The cache has room for one in
/// `SHARE` of all outputs.
pub fn in_order<const WAYS: u32, const SHARE: usize>(
    lab: &Lab<'_>,
    watch: &mut Stopwatch,
) -> Result<Outcome, Error> {
    let path = |place: &Place| (place.file, lab.datadir.block_file_path(FileKind::Blk, place.file));
    let chain = baseline::Chain {
        files: lab.places.iter().map(path).collect(),
        places: lab.places.iter().map(|place| (place.file, place.block.0, place.prev)).collect(),
        obfuscation: lab.obfuscation,
        magic: lab.datadir.magic(),
        dir: &lab.missing("in-order")?,
        cache_coins: lab.outputs / SHARE + 1,
    };
    let connected = watch.time(|| baseline::connect(&chain, WAYS)).map_err(disk_failed)?;
    Ok(outcome(connected.answer().map_err(disk_failed)?, lab.block_bytes()))
}

impl Lab<'_> {
    /// Opens the block files by their numbers.
    fn open_files(&self) -> Result<HashMap<FileNo, File>, Error> {
        let mut files = HashMap::new();
        for Place { file, .. } in self.places {
            if !files.contains_key(file) {
                let path = self.datadir.block_file_path(FileKind::Blk, *file);
                files.insert(*file, File::open(&path).map_err(|error| environment("read", &path, error))?);
            }
        }
        Ok(files)
    }

    /// Opens a new chainstate.
    fn new_chainstate(&self, dir: &Path) -> Result<ChainstateReader<'static>, Error> {
        let writer = ChainstateWriter::create(&RealDisk, dir, self.obfuscation, 0)?;
        writer.finish(BlockHash::default(), [])?;
        Ok(ChainstateReader::open(&RealDisk, dir)?)
    }
}

/// Calls `read` with each place; it adds what it has read to the answer, outside of the measured time.
fn read_all(
    lab: &Lab<'_>,
    mut read: impl FnMut(&Place, &mut Answers) -> Result<(), Error>,
) -> Result<Outcome, Error> {
    let mut answers = Answers::default();
    lab.places.iter().try_for_each(|place| read(place, &mut answers))?;
    Ok(outcome(answers.hash(), lab.block_bytes()))
}

/// Reads all blocks as the product does, and XORs their bytes as 64-bit words.
pub fn read_words(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    let mut records = Records::new(&lab.datadir, lab.obfuscation);
    read_all(lab, |place, answers| {
        answers.add("block", watch.time(|| records.read(FileKind::Blk, place.file, place.block))?);
        Ok(())
    })
}

/// Reads all blocks, and XORs them byte by byte.
pub fn read_bytes(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    let (files, xor, mut record) = (lab.open_files()?, lab.xor(true), Vec::new());
    read_all(lab, |place, answers| {
        let read = watch.time(|| read_whole(&files[&place.file], xor, place.block.0, &mut record));
        answers.add("block", read.map(|()| &record[..]).map_err(disk_failed)?);
        Ok(())
    })
}

/// Reads each block in one piece, and parses it.
pub fn parse_whole(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    let (mut records, mut arena) = (Records::new(&lab.datadir, lab.obfuscation), BlockArena::default());
    read_all(lab, |place, answers| {
        let block = watch.time(|| {
            let bytes = records.read(FileKind::Blk, place.file, place.block)?;
            arena.parse(bytes).map_err(|error| failed(error.to_string()))
        });
        answers.add("block", block?.bytes());
        Ok(())
    })
}

/// Reads each block field by field.
pub fn parse_fields(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    let readers = lab.open_files()?.into_iter();
    let mut readers: HashMap<_, _> =
        readers.map(|(number, file)| (number, FieldReader::new(file, lab.xor(false)))).collect();
    read_all(lab, |place, answers| {
        let reader = readers.get_mut(&place.file).ok_or_else(|| failed("a file is not open"))?;
        answers.add("block", watch.time(|| reader.read_block(place.block.0)).map_err(disk_failed)?);
        Ok(())
    })
}

/// Lets `write` write a new file.
fn write_all(
    lab: &Lab<'_>,
    watch: &mut Stopwatch,
    write: impl FnOnce(File) -> io::Result<()>,
) -> Result<Outcome, Error> {
    let path = lab.scratch.join("written");
    let written = File::create(&path).and_then(|file| watch.time(|| write(file)));
    let bytes = written.and_then(|()| fs::read(&path));
    let bytes = bytes.map_err(|error| environment("write", &path, error))?;
    let mut answers = Answers::default();
    answers.add("file", &bytes);
    Ok(outcome(answers.hash(), bytes.len()))
}

/// Writes records in one piece each; `append` makes them.
fn write_records<T>(
    mut file: File,
    xor: Xor,
    items: impl Iterator<Item = T>,
    mut append: impl FnMut(&mut Vec<u8>, T) -> io::Result<()>,
) -> io::Result<()> {
    let (mut record, mut offset) = (Vec::new(), 0);
    for item in items {
        record.clear();
        append(&mut record, item)?;
        xor.apply(&mut record, offset);
        offset += record.len() as u64;
        file.write_all(&record)?;
    }
    Ok(())
}

/// Writes each block in one piece.
pub fn write_blocks_whole(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    let magic = lab.datadir.magic();
    write_all(lab, watch, |file| {
        write_records(file, lab.xor(false), lab.blocks.iter(), |record, block| {
            blk::write_record(record, magic, block.view.bytes());
            Ok(())
        })
    })
}

/// Writes blocks field by field.
pub fn write_blocks_by_fields(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    let magic = lab.datadir.magic();
    write_all(lab, watch, |file| {
        let mut writer = FieldWriter::new(file, lab.xor(false));
        lab.blocks.iter().try_for_each(|block| writer.write_block(magic, block.view.bytes()))?;
        writer.finish()
    })
}

/// Writes each record of undo data in one piece.
pub fn write_undo_whole(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    let (mut arena, magic) = (UndoArena::default(), lab.datadir.magic());
    write_all(lab, watch, |file| {
        let items = lab.blocks.iter().zip(lab.places);
        write_records(file, lab.xor(false), items, |record, (block, place)| {
            let undo = UndoView::parse(block.undo, &mut arena).map_err(io::Error::other)?;
            let coins: Vec<_> = undo.txs().collect();
            write_record(record, magic, &place.prev, &write_undo(coins.into_iter()));
            Ok(())
        })
    })
}

/// Writes undo data field by field.
pub fn write_undo_by_fields(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    let (mut arena, magic) = (UndoArena::default(), lab.datadir.magic());
    write_all(lab, watch, |file| {
        let mut writer = FieldWriter::new(file, lab.xor(false));
        for (block, place) in lab.blocks.iter().zip(lab.places) {
            let undo = UndoView::parse(block.undo, &mut arena).map_err(io::Error::other)?;
            let coins = undo.txs().collect::<Vec<_>>().into_iter();
            writer.write_undo(magic, &place.prev, coins, block.undo.len() as u32)?;
        }
        writer.finish()
    })
}

/// Writes the coins that the chain spends to a database in one flush, in batches of `BATCH` bytes and files
/// of `FILE` bytes.
pub fn write_batches<const BATCH: usize, const FILE: usize>(
    lab: &Lab<'_>,
    watch: &mut Stopwatch,
) -> Result<Outcome, Error> {
    write_database(lab, watch, BATCH, FILE, 1)
}

/// Writes the same coins in 16 flushes to files of `FILE` bytes.
pub fn write_files<const FILE: usize>(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    write_database(lab, watch, LARGE_BATCH, FILE, 16)
}

fn write_database(
    lab: &Lab<'_>,
    watch: &mut Stopwatch,
    batch_bytes: usize,
    file_bytes: usize,
    flushes: usize,
) -> Result<Outcome, Error> {
    let fault = |error: rusty_leveldb::Status| disk_failed(io::Error::other(error));
    let mut database = Database::create(&lab.missing("database")?, batch_bytes, file_bytes).map_err(fault)?;
    for flush in lab.flushes(flushes) {
        let rows = flush.into_iter().map(|(outpoint, coin)| (*outpoint, Some(*coin)));
        watch.time(|| database.write(rows)).map_err(fault)?;
    }
    Ok(outcome(database.answer().map_err(fault)?, lab.spent.len()))
}

impl<'a> Lab<'a> {
    /// Distributes the coins that the chain spends over flushes, each of which has coins of all ranges of
    /// keys.
    fn flushes(&self, count: usize) -> Vec<Vec<&(OutPoint, Coin<'a>)>> {
        let mut flushes = vec![Vec::new(); count];
        self.spent.iter().enumerate().for_each(|(at, coin)| flushes[at % count].push(coin));
        flushes
    }
}

/// Writes the coins that the chain spends to a chainstate, in `FLUSHES` flushes.
pub fn write_coins<const FLUSHES: usize>(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    let mut chainstate = lab.new_chainstate(&lab.missing("flushed")?)?;
    let flushes = lab.flushes(FLUSHES);
    watch.time(|| {
        flushes.iter().try_for_each(|flush| {
            write_changes(&mut chainstate, flush.iter().copied())?;
            let Some(merge) = chainstate.begin_merge()? else { return Ok(()) };
            let merged = merge.merge_range(None, None, || false)?;
            merge.commit(merged)
        })
    })?;
    Ok(outcome(work::utxo_hash(work::read_chainstate(&chainstate)), lab.spent.len()))
}

fn write_changes<'c>(
    chainstate: &mut ChainstateReader<'_>,
    coins: impl Iterator<Item = &'c (OutPoint, Coin<'c>)>,
) -> Result<(), DiskError> {
    let update = chainstate.update(BlockHash::default())?;
    let written = update.write_range(None, None, coins.map(|(outpoint, coin)| (*outpoint, Some(*coin))))?;
    update.commit([written])
}

/// Writes as many coins as the last flush has to a new chainstate and syncs it; with `READ_BACK` it is also
/// read and hashed, as a rebuild does to prove it.
pub fn flush_last<const READ_BACK: bool>(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    let dir = lab.missing("last")?;
    // Outpoints in the order of their keys, so that none must be held: the first bytes count.
    let outpoint = |at: u64| {
        let mut txid = [0x5a; 32];
        txid[..8].copy_from_slice(&(at * (u64::MAX / lab.coins.max(1))).to_be_bytes());
        OutPoint { txid: Txid(txid), vout: at as u32 & 1 }
    };
    let hashed = watch.time(|| {
        let writer = ChainstateWriter::create(&RealDisk, &dir, lab.obfuscation, 1)?;
        let mut rows = writer.range(0);
        (0..lab.coins)
            .try_for_each(|at| rows.add(&outpoint(at), &Coin { code: 1 << 20, out: &FLUSHED_OUT }))?;
        let rows = rows.finish()?;
        writer.finish(BlockHash::default(), [rows])?;
        Ok::<_, Error>(
            READ_BACK.then(|| work::utxo_hash(work::read_chainstate(&work::open_chainstate(&dir)))),
        )
    })?;
    let hash = hashed.unwrap_or_else(|| work::utxo_hash(work::read_chainstate(&work::open_chainstate(&dir))));
    Ok(outcome(hash, lab.coins as usize))
}

/// Looks up the coins of the inputs of coming blocks, window by window, on `THREADS` threads.
pub fn look_up<const THREADS: usize>(lab: &Lab<'_>, watch: &mut Stopwatch) -> Result<Outcome, Error> {
    let stored = lab.scratch.join("stored");
    if !stored.exists() {
        write_changes(&mut lab.new_chainstate(&stored)?, lab.spent.iter())?;
    }
    let mut chainstate = ChainstateReader::open(&RealDisk, &stored)?;
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
    Ok(outcome(answer, lab.prevouts.len()))
}
