//! Stage read: blocks and their undo data, file by file, in large sequential reads.
//!
//! Each worker reads what it checks: where the next blocks lie is known, so it takes a piece of the files
//! under a lock and reads it outside of the lock, into buffers of its own. The bytes are then in the cache of
//! the core that works on them, and what is in memory is bounded by a piece for each worker. So that the disk
//! has work while all workers compute, the system is told to read ahead.
//!
//! Neither the block index nor a scan holds record lengths that could be trusted, so each record's length is
//! taken from its own frame (`magic 4 | length 4`, before the position the index gives) and checked against
//! the file's end and the largest block. Bytes stay obfuscated: the XOR is taken off block by block.

use crate::{
    chain::{Chain, Files, Window},
    checkpoint::Settled,
    error::{Error, ErrorKind},
    stages::faults::{Fault, Faults},
};
use disk::{fs::ReadAt, undo::CHECKSUM_LEN};
use rules::Violation;
use std::{
    ops::Range,
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};
use wire::{BlockArena, BlockHash, BlockView, FileNo, Height};

/// No block's serialisation is longer (BIP-0141, Core `MAX_BLOCK_SERIALIZED_SIZE`).
pub const MAX_BLOCK_BYTES: usize = 4_000_000;

/// Undo records farther apart than this, in bytes, are read separately.
const UNDO_GAP_MAX: u64 = 256 << 10;

/// What is read beyond the start of the last of several undo records before its length is known, in bytes.
const UNDO_TAIL_GUESS: u64 = 64 << 10;

/// Length of a record's frame, before its data: magic and length.
const FRAME_LEN: usize = 8;

/// How far the system is told to read ahead, in bytes.
const AHEAD: u64 = 16 << 20;

/// A buffer that a huge record has made larger than this, in bytes, is not kept.
const BUFFER_MAX: usize = 8 << 20;

/// Blocks that lie together in one file, with their undo data, in buffers that are used again.
#[derive(Debug, Default)]
pub struct Batch {
    /// The file pair.
    pub file: FileNo,
    /// The blocks' bytes.
    pub blocks: Window,
    /// Bytes of undo data, in one or more pieces.
    pub undos: Vec<Window>,
    /// What lies where.
    pub jobs: Vec<Job>,
}

/// One block to check: ranges are within the windows of its [`Batch`].
#[derive(Clone, Debug)]
pub struct Job {
    /// Height in the chain.
    pub height: Height,
    /// The serialised block in [`Batch::blocks`].
    pub block: Range<usize>,
    /// The undo data with its checksum, in the window of that number; none for the genesis block.
    pub undo: Option<(usize, Range<usize>)>,
}

/// A file of records.
struct RecordFile {
    path: PathBuf,
    file: Box<dyn ReadAt>,
    len: u64,
    /// What follows each record's data and is not counted in its length.
    tail_len: usize,
    /// No record's data is longer.
    data_max: usize,
    remedy: &'static str,
    /// How far the system was told to read ahead.
    ahead: AtomicU64,
}

impl RecordFile {
    fn open_blk(files: &Files<'_>, file: FileNo) -> Result<Self, Error> {
        let remedy = "restore the file, or let bitcoind -reindex fetch the blocks again";
        Self::open(files.blk_path(file), files.open_blk(file)?, 0, MAX_BLOCK_BYTES, remedy)
    }

    fn open_rev(files: &Files<'_>, file: FileNo) -> Result<Self, Error> {
        let remedy = "restore the file, or run bitcoind -reindex, which writes undo data anew";
        Self::open(files.rev_path(file), files.open_rev(file)?, CHECKSUM_LEN, u32::MAX as usize, remedy)
    }

    fn open(
        path: PathBuf,
        (file, len): (Box<dyn ReadAt>, u64),
        tail_len: usize,
        data_max: usize,
        remedy: &'static str,
    ) -> Result<Self, Error> {
        Ok(Self { path, file, len, tail_len, data_max, remedy, ahead: AtomicU64::new(0) })
    }

    /// Where the data of the record at `pos` (and its checksum) lies in a window that starts before it. Reads
    /// on as far as needed.
    fn record(&self, files: &Files<'_>, window: &mut Window, pos: u64) -> Result<Range<usize>, Error> {
        let frame_pos = pos - FRAME_LEN as u64;
        let damaged = |detail: String| {
            Error::damaged(format!("{detail}; {}", self.remedy)).in_file(&self.path, Some(frame_pos))
        };
        let beyond = |what: String| {
            format!(
                "{what} beyond the end of the file ({} bytes): the file is truncated or damaged, or the block \
                 index is of other files (rerun with --scan to do without the index)",
                self.len
            )
        };
        if pos > self.len {
            return Err(damaged(beyond("the record lies".to_owned())));
        }
        self.fill(window, pos)?;
        let len = files.frame_len(window, pos).map_err(damaged)?;
        if len > self.data_max {
            return Err(damaged(format!(
                "the record claims {len} bytes, none has more than {}; the file is damaged, or xor.dat is \
                 not its own",
                self.data_max
            )));
        }
        let end = pos + (len + self.tail_len) as u64;
        if end > self.len {
            return Err(damaged(beyond(format!("the record of {len} bytes runs"))));
        }
        self.fill(window, end)?;
        Ok((pos - window.start) as usize..(end - window.start) as usize)
    }

    /// Reads until the window reaches `end`.
    fn fill(&self, window: &mut Window, end: u64) -> Result<(), Error> {
        let (have, want) = (window.filled, end.saturating_sub(window.start) as usize);
        if want <= have {
            return Ok(());
        }
        if want > window.bytes.len() {
            window.bytes.resize(want, 0);
        }
        let at = window.start + have as u64;
        let rest = window.bytes.get_mut(have..want).unwrap_or_default();
        self.file
            .read_exact_at(rest, at)
            .map_err(|source| Files::io(self.path.clone(), at, &source))?;
        window.filled = want;
        Ok(())
    }

    /// Tells the system that what follows `pos` will be read.
    fn read_ahead(&self, pos: u64) {
        let told = self.ahead.load(Ordering::Relaxed).max(pos);
        let end = self.len.min(pos + AHEAD);
        // In large steps; who comes second may tell it again.
        if end > told && (end - told >= AHEAD / 4 || end == self.len) {
            self.ahead.store(end, Ordering::Relaxed);
            self.file.read_ahead(told, end - told);
        }
    }
}

/// Hands out the blocks of the chain, in the order of the files, to workers that read them.
pub struct Reader<'a> {
    chain: &'a Chain,
    files: &'a Files<'a>,
    faults: &'a Faults,
    settled: &'a Settled,
    undo_from: Height,
    window: usize,
    next: Mutex<Next<'a>>,
}

/// What comes next.
struct Next<'a> {
    files: Box<dyn Iterator<Item = (FileNo, &'a [Height])> + Send + 'a>,
    pair: Option<Arc<FilePair>>,
    /// How many blocks of the pair were handed out.
    taken: usize,
    /// Whether any was.
    begun: bool,
}

/// A `blk` file and its `rev` file.
struct FilePair {
    file: FileNo,
    blk: RecordFile,
    rev: Option<RecordFile>,
    /// The blocks that are wanted, by position.
    heights: Vec<Height>,
}

impl<'a> Reader<'a> {
    /// Of all blocks but the `settled` ones, about `window` bytes at a time. Undo data is read of those from
    /// `undo_from` on. Damage goes to `faults`.
    #[must_use]
    pub fn new(
        chain: &'a Chain,
        files: &'a Files<'a>,
        faults: &'a Faults,
        settled: &'a Settled,
        undo_from: Height,
        window: usize,
    ) -> Self {
        let next = Next { files: Box::new(chain.by_file()), pair: None, taken: 0, begun: false };
        Self { chain, files, faults, settled, undo_from, window, next: Mutex::new(next) }
    }

    /// Reads the next blocks into `batch`. False if there are none left, or `stop`, which is told whether
    /// there were any so far, says so.
    ///
    /// # Errors
    /// I/O errors, and missing files.
    pub fn read(&self, batch: &mut Batch, stop: impl Fn(bool) -> bool) -> Result<bool, Error> {
        let Some((pair, taken)) = self.take(stop)? else { return Ok(false) };
        let heights = pair.heights.get(taken.clone()).unwrap_or_default();
        batch.file = pair.file;
        batch.jobs.clear();
        self.read_blocks(&pair, heights, taken.end, batch)?;
        self.read_undo(&pair, batch)?;
        Ok(true)
    }

    /// Takes the next blocks, so that nobody else does.
    fn take(&self, stop: impl Fn(bool) -> bool) -> Result<Option<(Arc<FilePair>, Range<usize>)>, Error> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if stop(next.begun) {
            return Ok(None);
        }
        loop {
            if let Some(pair) = next.pair.clone()
                && next.taken < pair.heights.len()
            {
                let taken = next.taken..self.fitting(&pair, next.taken);
                (next.taken, next.begun) = (taken.end, true);
                return Ok(Some((pair, taken)));
            }
            let Some((file, heights)) = next.files.next() else { return Ok(None) };
            let heights: Vec<Height> =
                heights.iter().copied().filter(|&height| !self.settled.has(height)).collect();
            if heights.iter().any(|&height| self.faults.matters(height)) {
                (next.pair, next.taken) = (Some(Arc::new(self.open(file, heights)?)), 0);
            }
        }
    }

    fn open(&self, file: FileNo, heights: Vec<Height>) -> Result<FilePair, Error> {
        let has_undo =
            |&height: &Height| height >= self.undo_from && self.chain.block(height).undo_pos.is_some();
        let rev = heights.iter().any(has_undo).then(|| RecordFile::open_rev(self.files, file)).transpose()?;
        Ok(FilePair { file, blk: RecordFile::open_blk(self.files, file)?, rev, heights })
    }

    /// The number after the last of the blocks from `first` on that fit the window; one does in any case.
    fn fitting(&self, pair: &FilePair, first: usize) -> usize {
        let limit = self.start(pair, first) + self.window as u64;
        let more = (first + 1..pair.heights.len()).take_while(|&index| self.end(pair, index) <= limit);
        first + 1 + more.count()
    }

    /// Where the record of a block starts; at the end of the file after the last one.
    fn start(&self, pair: &FilePair, index: usize) -> u64 {
        let height = pair.heights.get(index);
        height.map_or(pair.blk.len, |&height| self.chain.block(height).data_pos.0 - FRAME_LEN as u64)
    }

    /// Where the record of a block ends at the latest. The next one may be far: stale blocks may lie between,
    /// and files are allocated in 16 MiB steps of zeros.
    fn end(&self, pair: &FilePair, index: usize) -> u64 {
        self.start(pair, index + 1).min(self.start(pair, index) + (FRAME_LEN + MAX_BLOCK_BYTES) as u64)
    }

    fn read_blocks(
        &self,
        pair: &FilePair,
        heights: &[Height],
        taken_to: usize,
        batch: &mut Batch,
    ) -> Result<(), Error> {
        let Some(&first) = heights.first() else { return Ok(()) };
        let start = self.chain.block(first).data_pos.0 - FRAME_LEN as u64;
        batch.blocks.restart(start);
        let end = self.end(pair, taken_to - 1).min(start + self.window as u64).min(pair.blk.len);
        pair.blk.read_ahead(end);
        pair.blk.fill(&mut batch.blocks, end)?;
        for &height in heights {
            let pos = self.chain.block(height).data_pos.0;
            match pair.blk.record(self.files, &mut batch.blocks, pos) {
                Ok(block) => batch.jobs.push(Job { height, block, undo: None }),
                Err(error) => self.tell(height, error)?,
            }
        }
        Ok(())
    }

    /// Reads the undo records of a batch: those that lie together in one read.
    fn read_undo(&self, pair: &FilePair, batch: &mut Batch) -> Result<(), Error> {
        let Some(rev) = &pair.rev else { return Ok(()) };
        let undo_pos = |job: &Job| self.chain.block(job.height).undo_pos.map(|pos| pos.0);
        let wanted = |(index, job): (usize, &Job)| {
            (job.height >= self.undo_from).then(|| Some((undo_pos(job)?, index))).flatten()
        };
        let mut wanted: Vec<(u64, usize)> = batch.jobs.iter().enumerate().filter_map(wanted).collect();
        wanted.sort_unstable();
        let mut flawed = Vec::new();
        for (number, run) in wanted.chunk_by(|a, b| b.0 - a.0 <= UNDO_GAP_MAX).enumerate() {
            if number == batch.undos.len() {
                batch.undos.push(Window::default());
            }
            let (Some(first), Some(last), Some(window)) = (run.first(), run.last(), batch.undos.get_mut(number))
            else {
                continue;
            };
            window.restart(first.0 - FRAME_LEN as u64);
            let end = (last.0 + UNDO_TAIL_GUESS).min(rev.len);
            rev.read_ahead(end);
            rev.fill(window, end)?;
            for &(pos, index) in run {
                let Some(job) = batch.jobs.get_mut(index) else { continue };
                match rev.record(self.files, window, pos) {
                    Ok(range) => job.undo = Some((number, range)),
                    Err(error) => {
                        self.tell(job.height, error)?;
                        flawed.push(index);
                    }
                }
            }
        }
        flawed.sort_unstable();
        flawed.into_iter().rev().for_each(|index| drop(batch.jobs.remove(index)));
        Ok(())
    }

    /// Damage is a fault of its block: another one's, below it, comes first.
    fn tell(&self, height: Height, error: Error) -> Result<(), Error> {
        if error.kind != ErrorKind::Damaged {
            return Err(error);
        }
        let error = error.at_block(height, self.chain.block(height).hash);
        self.faults.record(height, Fault::Damaged(error));
        Ok(())
    }
}

impl Window {
    /// Empties it, to start elsewhere.
    fn restart(&mut self, start: u64) {
        (self.start, self.filled) = (start, 0);
        if self.bytes.len() > BUFFER_MAX {
            self.bytes = Vec::new();
        }
    }
}

/// One block by itself, without obfuscation: for the judge, who goes by height.
#[derive(Debug)]
pub struct RawBlock {
    height: Height,
    hash: BlockHash,
    blk: (PathBuf, u64),
    rev: (PathBuf, u64),
    /// The serialised block.
    pub block: Vec<u8>,
    /// Undo data and checksum; empty for the genesis block.
    pub undo: Vec<u8>,
}

impl RawBlock {
    /// Parses the block.
    ///
    /// # Errors
    /// [`RawBlock::block_error`] if it is malformed.
    pub fn parse<'a>(&'a self, arena: &'a mut BlockArena) -> Result<BlockView<'a>, Error> {
        arena.parse(&self.block).map_err(|error| self.block_error(format!("the block is malformed: {error}")))
    }

    /// Where the block lies.
    #[must_use]
    pub fn place(&self) -> (PathBuf, u64) {
        self.blk.clone()
    }

    /// Damage in the block file.
    #[must_use]
    pub fn block_error(&self, detail: String) -> Error {
        self.error(
            &self.blk,
            format!("{detail}; restore the file, or let bitcoind -reindex fetch the block again"),
        )
    }

    /// Damage in the undo file.
    #[must_use]
    pub fn undo_error(&self, detail: String) -> Error {
        self.error(
            &self.rev,
            format!("{detail}; restore the file, or let bitcoind -reindex write undo data anew"),
        )
    }

    /// A body that is not the one its header commits to.
    #[must_use]
    pub fn mutated(&self, violation: &Violation) -> Error {
        let detail =
            format!("the block does not match its header ({}: {})", violation.core, violation.detail);
        self.block_error(detail)
    }

    fn error(&self, (path, offset): &(PathBuf, u64), detail: String) -> Error {
        Error::damaged(detail).at_block(self.height, self.hash).in_file(path, Some(*offset))
    }
}

/// Reads the block at `height` and its undo data.
///
/// # Errors
/// I/O errors, and records that do not fit their files.
pub fn read_block(chain: &Chain, files: &Files<'_>, height: Height) -> Result<RawBlock, Error> {
    let place = chain.block(height);
    let read = |file: RecordFile, pos: u64| -> Result<Vec<u8>, Error> {
        let mut window = Window { start: pos - FRAME_LEN as u64, ..Window::default() };
        let range = file.record(files, &mut window, pos)?;
        window.bytes.truncate(range.end);
        window.bytes.drain(..range.start);
        files.obfuscation.apply(&mut window.bytes, pos);
        Ok(window.bytes)
    };
    let both = || {
        let block = read(RecordFile::open_blk(files, place.file)?, place.data_pos.0)?;
        let undo_pos = place.undo_pos.map(|pos| read(RecordFile::open_rev(files, place.file)?, pos.0));
        Ok((block, undo_pos.transpose()?.unwrap_or_default()))
    };
    let (block, undo) = both().map_err(|error: Error| error.at_block(height, place.hash))?;
    let blk = (files.blk_path(place.file), place.data_pos.0);
    let rev = (files.rev_path(place.file), place.undo_pos.map_or(0, |pos| pos.0));
    Ok(RawBlock { height, hash: place.hash, blk, rev, block, undo })
}
