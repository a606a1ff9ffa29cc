//! The steps of a rebuild, each in the product's way and in others, on the blocks of a chain.

use crate::{
    Answers, Block,
    baseline::{
        distinct,
        engine::{self, WAYS},
        files::{Xor, read_whole, visit_fields, weight_by_fields},
        hashers::{Crate24, Jumbo, OutpointHasher, OutpointSet, Salted24, Sip, Std, Unsalted24, sum},
        tables::{CoinTable, Wide, connect},
    },
    work,
};
use digest::obfuscation::Obfuscation;
use disk::{
    DiskError,
    block_files::{BlockFiles, RecordBuffer, RecordError, RecordFile},
    datadir::{Datadir, FileKind},
    xor::read_block_obfuscation,
};
use liblzma::read::XzEncoder;
use rustix::time::{ClockId, clock_gettime};
use std::{
    collections::{HashMap, hash_map::Entry},
    fs::{self, File},
    hint::black_box,
    io,
    path::PathBuf,
    time::{Duration, Instant},
};
use vfs::{FileError, RealDisk};
use wire::{BlockHash, ByteOffset, Coin, FileNo, OutPoint, TxView, Txid};

/// Why a step failed.
type Cause = Box<dyn std::error::Error + Send + Sync>;

/// The compressed output of each coin of the last flush: one bitcoin for the hash of a public key.
const FLUSHED_OUT: [u8; 22] = {
    let mut out = [7; 22];
    [out[0], out[1]] = [9, 0];
    out
};

/// Block and undo files, each opened once.
pub struct Records {
    files: BlockFiles<'static>,
    open: HashMap<(bool, FileNo), RecordFile>,
    buffer: RecordBuffer,
}

impl Records {
    /// Opens no file yet.
    pub fn new(datadir: &Datadir, obfuscation: Obfuscation) -> Self {
        let files = BlockFiles::new(&RealDisk, datadir, obfuscation);
        Self { files, open: HashMap::new(), buffer: RecordBuffer::default() }
    }

    /// Reads the record at a position: a block, or undo data and its checksum.
    pub fn read<E: From<FileError> + From<RecordError>>(
        &mut self,
        kind: FileKind,
        file: FileNo,
        position: ByteOffset,
    ) -> Result<&[u8], E> {
        let key = (kind == FileKind::Rev, file);
        if !self.open.contains_key(&key) {
            self.open.insert(key, self.files.open(kind, file)?);
        }
        self.open[&key].read(position, &mut self.buffer)?;
        Ok(self.buffer.bytes())
    }
}

/// Where a block is stored.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub file: FileNo,
    /// The first byte of the block in it.
    pub block: ByteOffset,
    /// The block's parent.
    pub prev: BlockHash,
}

/// The result of a step or a run.
#[derive(Debug)]
pub struct Outcome {
    /// The same for all variants of a proposal.
    pub answer: String,
    /// Number of units that were processed.
    pub count: usize,
    /// Bytes of the result, if they matter.
    pub size: Option<u64>,
}

/// Sums the time of the parts of a step that are measured.
#[derive(Default, Debug)]
pub struct Stopwatch {
    /// The time of the clock.
    pub wall: Duration,
    /// The processor time of all threads of this process.
    pub processor: Duration,
}

impl Stopwatch {
    pub fn time<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let (wall, processor) = (Instant::now(), processor_time());
        let done = work();
        self.processor += processor_time().saturating_sub(processor);
        self.wall += wall.elapsed();
        done
    }
}

fn processor_time() -> Duration {
    // It is never negative.
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

/// What steps work on.
pub struct Lab<'a> {
    /// The blocks by height, without the genesis block.
    blocks: &'a [Block<'a>],
    places: &'a [Place],
    datadir: Datadir,
    obfuscation: Obfuscation,
    prevouts: Vec<OutPoint>,
    outputs: usize,
    block_bytes: usize,
    /// Where steps write.
    scratch: PathBuf,
    /// Number of coins of the last flush.
    coins: u64,
}

impl<'a> Lab<'a> {
    /// Prepares the steps on blocks, which `places` has with the genesis block. They write into `scratch`
    /// only.
    ///
    /// # Errors
    /// If the key of the block files cannot be read.
    pub fn new(
        datadir: Datadir,
        blocks: &'a [Block<'a>],
        places: &'a [Place],
        scratch: PathBuf,
        coins: u64,
    ) -> Result<Self, DiskError> {
        let obfuscation = read_block_obfuscation(&RealDisk, &datadir.blocks_dir())?;
        Ok(Self {
            blocks,
            places: places.get(1..).unwrap_or_default(),
            datadir,
            obfuscation,
            prevouts: blocks.iter().flat_map(|block| block.view.prevouts()).collect(),
            outputs: blocks.iter().map(|block| block.view.output_count()).sum(),
            block_bytes: blocks.iter().map(|block| block.view.bytes().len()).sum(),
            scratch,
            coins,
        })
    }

    /// Does a step. Its first word is the work, and others are the way of doing it.
    ///
    /// # Errors
    /// If there is no such step, or the disk fails.
    pub fn step(&self, words: &str, watch: &mut Stopwatch) -> io::Result<Outcome> {
        let (work, way) = words.split_once(' ').unwrap_or((words, ""));
        match work {
            "in_order" => self.in_order(way, watch),
            "read_words" => self.read_words(watch),
            "read_bytes" => self.read_bytes(watch),
            "sizes_by_fields" => self.weigh(watch, |block| weight_by_fields(block.view.bytes())),
            "sizes_from_spans" => self.weigh(watch, |block| Ok(block.view.weight().0)),
            "serialise_by_fields" => self.serialise(watch, |block, bytes| {
                visit_fields(block, |field, _| {
                    bytes.extend_from_slice(field);
                    Ok(())
                })
            }),
            "serialise_whole" => self.serialise(watch, |block, bytes| {
                bytes.extend_from_slice(block);
                Ok(())
            }),
            "distinct" => self.check_inputs(way, watch),
            "bytes_of_blocks" => Ok(self.bytes_of(|block| block.view.bytes().len())),
            "bytes_of_undo" => Ok(self.bytes_of(|block| block.undo.len())),
            "last_flush" => self.flush_last(way == "read", watch),
            work => self.hashed(work, way, watch),
        }
    }

    /// Hashes outpoints in a form of SipHash.
    fn hashed(&self, work: &str, form: &str, watch: &mut Stopwatch) -> io::Result<Outcome> {
        match form {
            "unsalted" => self.with_hash::<Unsalted24>(work, watch),
            "salted" => self.with_hash::<Salted24>(work, watch),
            "crate" => self.with_hash::<Crate24>(work, watch),
            "std" => self.with_hash::<Std>(work, watch),
            "jumbo" => self.with_hash::<Jumbo>(work, watch),
            "2-4 padded" => self.with_hash::<Sip<2, 4, false, true, true>>(work, watch),
            "2-4 jumbo padded" => self.with_hash::<Sip<2, 4, true, true, true>>(work, watch),
            "2-4 jumbo" => self.with_hash::<Sip<2, 4, true, false, true>>(work, watch),
            "1-3 padded" => self.with_hash::<Sip<1, 3, false, true, true>>(work, watch),
            "1-3" => self.with_hash::<Sip<1, 3, false, false, true>>(work, watch),
            "1-3 jumbo padded" => self.with_hash::<Sip<1, 3, true, true, true>>(work, watch),
            "1-3 jumbo" => self.with_hash::<Sip<1, 3, true, false, true>>(work, watch),
            _ => Err(io::Error::other(format!("there is no step {work} {form}"))),
        }
    }

    /// Hashes the outpoint of each input (`hash`), makes a set of them (`set`), looks up each in that set
    /// (`hit`) or as many that it does not have (`miss`), or connects all blocks to a table of coins
    /// (`table`).
    fn with_hash<H: OutpointHasher>(&self, work: &str, watch: &mut Stopwatch) -> io::Result<Outcome> {
        let count = self.prevouts.len();
        match work {
            "hash" => {
                black_box(watch.time(|| sum::<H>(&self.prevouts)));
                Ok(outcome(format!("{count} hashes"), count))
            }
            "set" => {
                let set = watch.time(|| OutpointSet::<H>::of(&self.prevouts));
                Ok(outcome(format!("{} outpoints", set.count(&self.prevouts)), count))
            }
            "table" => {
                let mut table = CoinTable::<H, Wide>::default();
                watch.time(|| connect(self.blocks, &mut table));
                Ok(outcome(table.answer(), count + self.outputs))
            }
            _ => {
                let set = OutpointSet::<H>::of(&self.prevouts);
                let other = u32::from(work == "miss") << 31;
                let wanted = |outpoint: &OutPoint| OutPoint { vout: outpoint.vout ^ other, ..*outpoint };
                let wanted: Vec<_> = self.prevouts.iter().map(wanted).collect();
                let found = watch.time(|| set.count(&wanted));
                Ok(outcome(format!("{found} found"), count))
            }
        }
    }

    /// Connects all blocks in order over a database. The cache has room for one in so many outputs as the
    /// first word says; the others are the new ways, or `all` of them.
    fn in_order(&self, words: &str, watch: &mut Stopwatch) -> io::Result<Outcome> {
        let (share, names) = words.split_once(' ').unwrap_or((words, ""));
        let share: usize = share.parse().map_err(io::Error::other)?;
        let is_new = |way: &str| names == "all" || names.split(' ').any(|name| name == way);
        let ways = (0..).zip(WAYS).map(|(bit, way)| u32::from(is_new(way)) << bit).sum();
        let dir = self.scratch.join("in-order");
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        let path = |place: &Place| (place.file, self.datadir.block_file_path(FileKind::Blk, place.file));
        let chain = engine::Chain {
            files: self.places.iter().map(path).collect(),
            places: self.places.iter().map(|place| (place.file, place.block.0, place.prev)).collect(),
            obfuscation: self.obfuscation,
            magic: self.datadir.magic(),
            dir: &dir,
            cache_coins: self.outputs / share + 1,
        };
        let connected = watch.time(|| engine::connect(&chain, ways))?;
        Ok(outcome(connected.answer()?, self.block_bytes))
    }

    /// Reads all blocks as the product does, and XORs their bytes as 64-bit words.
    fn read_words(&self, watch: &mut Stopwatch) -> io::Result<Outcome> {
        let mut records = Records::new(&self.datadir, self.obfuscation);
        let mut answers = Answers::default();
        for place in self.places {
            let read = watch.time(|| records.read::<Cause>(FileKind::Blk, place.file, place.block));
            answers.add("block", read.map_err(io::Error::other)?);
        }
        Ok(outcome(answers.hash(), self.block_bytes))
    }

    /// Reads all blocks, and XORs them byte by byte.
    fn read_bytes(&self, watch: &mut Stopwatch) -> io::Result<Outcome> {
        let (xor, mut record) = (Xor { key: self.obfuscation, is_bytewise: true }, Vec::new());
        let (mut files, mut answers) = (HashMap::new(), Answers::default());
        for place in self.places {
            let file = match files.entry(place.file) {
                Entry::Occupied(open) => open.into_mut(),
                Entry::Vacant(new) => {
                    let path = self.datadir.block_file_path(FileKind::Blk, place.file);
                    new.insert(File::open(path)?)
                }
            };
            watch.time(|| read_whole(file, xor, place.block.0, &mut record))?;
            answers.add("block", &record);
        }
        Ok(outcome(answers.hash(), self.block_bytes))
    }

    fn weigh(
        &self,
        watch: &mut Stopwatch,
        weight: impl Fn(&Block<'_>) -> io::Result<u64>,
    ) -> io::Result<Outcome> {
        let weigh = || self.blocks.iter().try_fold(0, |sum, block| Ok(sum + weight(black_box(block))?));
        let sum: io::Result<u64> = watch.time(weigh);
        Ok(outcome(format!("weight {}", sum?), self.block_bytes))
    }

    /// Serialises each block into memory.
    fn serialise(
        &self,
        watch: &mut Stopwatch,
        serialise: impl Fn(&[u8], &mut Vec<u8>) -> io::Result<()>,
    ) -> io::Result<Outcome> {
        let (mut answers, mut bytes) = (Answers::default(), Vec::new());
        for block in self.blocks {
            bytes.clear();
            watch.time(|| serialise(block.view.bytes(), &mut bytes))?;
            answers.add("block", &bytes);
        }
        Ok(outcome(answers.hash(), self.block_bytes))
    }

    /// Asks of each transaction but coinbases whether its inputs are distinct.
    fn check_inputs(&self, way: &str, watch: &mut Stopwatch) -> io::Result<Outcome> {
        let mut keys = Vec::new();
        let mut by_keys = |tx: &TxView<'_>| rules::inputs_are_distinct_and_not_null(tx, &mut keys);
        let are_distinct: &mut dyn FnMut(&TxView<'_>) -> bool = match way {
            "set" => &mut distinct::by_ordered_set,
            "hash_set" => &mut distinct::by_hash_set,
            "sorted" => &mut distinct::by_sorting::<false>,
            "shortcuts" => &mut distinct::by_sorting::<true>,
            "each_null" => &mut distinct::by_sorting_and_each_null,
            "ends" => &mut distinct::by_sorting_and_ends,
            _ => &mut by_keys,
        };
        let txs = || self.blocks.iter().flat_map(|block| block.view.txs().skip(1));
        let valid = watch.time(|| txs().filter(|tx| are_distinct(black_box(tx))).count());
        let single = txs().filter(|tx| tx.input_count() == 1).count();
        // How much a shortcut for one input gains depends on how many there are.
        let answer = format!("{valid} transactions, {single} of them with one input");
        Ok(outcome(answer, self.prevouts.len()))
    }

    fn bytes_of(&self, bytes: impl Fn(&Block<'_>) -> usize) -> Outcome {
        let size = self.blocks.iter().map(|block| bytes(block) as u64).sum();
        let answer = format!("{} inputs", self.prevouts.len());
        Outcome { answer, count: self.block_bytes, size: Some(size) }
    }

    /// Writes as many coins as the last flush has to a new chainstate and syncs it; with `reads_back` it is
    /// also read and hashed, as a rebuild does to prove it.
    fn flush_last(&self, reads_back: bool, watch: &mut Stopwatch) -> io::Result<Outcome> {
        let dir = self.scratch.join("last");
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        // Outpoints in the order of their keys, so that none must be held: the first bytes count.
        let outpoint = |at: u64| {
            let mut txid = [0x5a; 32];
            txid[..8].copy_from_slice(&(at * (u64::MAX / self.coins.max(1))).to_be_bytes());
            OutPoint { txid: Txid(txid), vout: at as u32 & 1 }
        };
        let hash = || work::utxo_hash(work::read_chainstate(&work::open_chainstate(&dir)));
        let hashed = watch.time(|| {
            let coins = (0..self.coins).map(|at| (outpoint(at), Coin { code: 1 << 20, out: &FLUSHED_OUT }));
            let (key, best_block) = (self.obfuscation.key(), BlockHash::default());
            testkit::datadir::write_chainstate(&RealDisk, &dir, key, best_block, coins)?;
            Ok::<_, DiskError>(reads_back.then(hash))
        });
        let hashed = hashed.map_err(io::Error::other)?;
        Ok(outcome(hashed.unwrap_or_else(hash), self.coins as usize))
    }
}

const fn outcome(answer: String, count: usize) -> Outcome {
    Outcome { answer, count, size: None }
}

/// Returns the number of bytes after `xz -9`.
pub fn packed_len(bytes: impl io::Read) -> io::Result<u64> {
    io::copy(&mut XzEncoder::new(bytes, 9), &mut io::sink())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_stopwatch_sums_what_it_times() {
        let mut watch = Stopwatch::default();
        let pause = Duration::from_millis(20);
        let work = || {
            let begun = processor_time();
            while processor_time() - begun < pause {}
        };
        watch.time(|| thread::sleep(pause));
        watch.time(work);
        watch.time(work);
        assert!(watch.wall >= pause, "{:?}", watch.wall);
        // Other tests of this process may take more.
        assert!(watch.processor >= 2 * pause, "{:?}", watch.processor);
    }
}
