//! Stage read: blocks and their undo data, in file order, in large sequential reads.
//!
//! Neither the block index nor a scan holds record lengths that could be trusted, so each record's length is
//! taken from its own frame (`magic 4 | length 4`, before the position the index gives) and checked against
//! the window that was read, the file's end and the largest block. Bytes stay obfuscated: taking the XOR off
//! is left to the workers, who then have them in cache. Buffers come from a pool, so that the kernel does not
//! hand out fresh zeroed pages for each.

use crate::{
    chain::{Chain, Files, Window},
    error::Error,
};
use disk::{fs::ReadAt, undo::CHECKSUM_LEN};
use rules::Violation;
use std::{
    ops::Range,
    path::PathBuf,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};
use wire::{BlockArena, BlockHash, BlockView, FileNo, Height};

/// No block's serialisation is longer (BIP-0141, Core `MAX_BLOCK_SERIALIZED_SIZE`).
pub const MAX_BLOCK_BYTES: usize = 4_000_000;

/// Undo records farther apart than this, in bytes, are read separately.
const UNDO_GAP_MAX: u64 = 256 << 10;

/// What is read beyond the start of a run's last undo record before its length is known, in bytes.
const UNDO_TAIL_GUESS: u64 = 64 << 10;

/// Length of a record's frame, before its data: magic and length.
const FRAME_LEN: usize = 8;

/// Blocks that lie together in one file, with their undo data.
#[derive(Debug)]
pub struct Batch<'p> {
    /// What it takes of the memory.
    room: Room<'p>,
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

/// The memory for what is between reader and workers: how much may be in flight, and buffers that come back.
#[derive(Debug)]
pub struct Pool {
    limit: usize,
    window: usize,
    state: Mutex<PoolState>,
    returned: Condvar,
}

#[derive(Debug, Default)]
struct PoolState {
    in_flight: usize,
    free: Vec<Vec<u8>>,
    free_bytes: usize,
}

/// A batch's part of the memory, given back when dropped.
#[derive(Debug)]
struct Room<'p> {
    pool: &'p Pool,
    bytes: usize,
}

impl Pool {
    /// A pool for at most `limit` bytes (one batch can always be read, however large), and reads of about
    /// `window` bytes: large enough for sequential speed on a spinning disk, small enough for several in
    /// flight.
    #[must_use]
    pub fn new(limit: usize, window: usize) -> Self {
        Self { limit, window, state: Mutex::default(), returned: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is room for a usual batch: a window of blocks and half as much of undo data.
    fn room(&self) -> Room<'_> {
        let bytes = self.window / 2 * 3;
        let wait = |state: &mut PoolState| state.in_flight > 0 && state.in_flight + bytes > self.limit;
        let mut state = self.returned.wait_while(self.state(), wait).unwrap_or_else(PoisonError::into_inner);
        state.in_flight += bytes;
        Room { pool: self, bytes }
    }

    /// The smallest free buffer that will do, or a new one.
    fn buffer(&self, len: usize) -> Vec<u8> {
        let mut state = self.state();
        let fitting = state.free.iter().enumerate().filter(|(_, buffer)| buffer.capacity() >= len);
        let best = fitting.min_by_key(|(_, buffer)| buffer.capacity()).map(|(index, _)| index);
        let mut buffer = match best {
            Some(index) => state.free.swap_remove(index),
            None => {
                // Free ones that are too small make way.
                while state.in_flight + state.free_bytes > self.limit
                    && let Some(small) = state.free.pop()
                {
                    state.free_bytes -= small.capacity();
                }
                drop(state);
                return vec![0; len];
            }
        };
        state.free_bytes -= buffer.capacity();
        drop(state);
        // Growing zeroes only what was never used; shrinking costs nothing.
        buffer.resize(len, 0);
        buffer
    }

    /// Takes a batch's buffers back; when the pool is full they are freed.
    pub fn recycle(&self, batch: Batch<'_>) {
        let mut state = self.state();
        for window in std::iter::once(batch.blocks).chain(batch.undos) {
            let bytes = window.bytes.capacity();
            if state.free_bytes + bytes <= self.limit {
                state.free_bytes += bytes;
                state.free.push(window.bytes);
            }
        }
        drop(state);
        drop(batch.room);
    }
}

impl Room<'_> {
    /// The batch has turned out to be larger or smaller.
    fn resize(&mut self, bytes: usize) {
        let mut state = self.pool.state();
        state.in_flight = state.in_flight - self.bytes + bytes;
        self.bytes = bytes;
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.resize(0);
        self.pool.returned.notify_all();
    }
}

/// Reads the blocks of one file pair, batch by batch.
pub struct FileReader<'a, 'p> {
    chain: &'a Chain,
    files: &'a Files<'a>,
    pool: &'p Pool,
    file: FileNo,
    blk: Box<dyn ReadAt>,
    blk_len: u64,
    rev: Option<(Box<dyn ReadAt>, u64)>,
    undo_from: Height,
    /// Heights still to read, by position in the file.
    pending: &'a [Height],
}

impl<'a, 'p> FileReader<'a, 'p> {
    /// Opens `file`; `heights` are its blocks of the chain, by position. Undo data is read of those from
    /// `undo_from` on.
    ///
    /// # Errors
    /// Missing or unreadable files.
    pub fn open(
        chain: &'a Chain,
        files: &'a Files<'a>,
        pool: &'p Pool,
        file: FileNo,
        heights: &'a [Height],
        undo_from: Height,
    ) -> Result<Self, Error> {
        let (blk, blk_len) = files.open_blk(file)?;
        let needs_undo =
            heights.iter().any(|&height| height >= undo_from && chain.block(height).undo_pos.is_some());
        let rev = if needs_undo { Some(files.open_rev(file)?) } else { None };
        Ok(Self { chain, files, pool, file, blk, blk_len, rev, undo_from, pending: heights })
    }

    /// Reads the next batch; nothing when all blocks of the file have been read.
    ///
    /// # Errors
    /// I/O errors, and records whose frame does not fit the file.
    pub fn next_batch(&mut self) -> Result<Option<Batch<'p>>, Error> {
        let Some(&first) = self.pending.first() else { return Ok(None) };
        let start = self.chain.block(first).data_pos.0 - FRAME_LEN as u64;
        // The file's end, or a little beyond the start of its last block: files are allocated in 16 MiB steps
        // of zeros.
        let last = self.pending.last().map_or(start, |&last| self.chain.block(last).data_pos.0);
        let end = self.blk_len.min(last + MAX_BLOCK_BYTES as u64).min(start + self.pool.window as u64);
        let room = self.pool.room();
        let mut bytes = self.pool.buffer(end.saturating_sub(start) as usize);
        let path = || self.files.blk_path(self.file);
        self.blk.read_exact_at(&mut bytes, start).map_err(|source| Files::io(path(), start, &source))?;
        let (undos, jobs) = Default::default();
        let mut batch = Batch { room, file: self.file, blocks: Window { start, bytes }, undos, jobs };
        while let Some((&height, rest)) = self.pending.split_first() {
            let pos = self.chain.block(height).data_pos.0;
            let place = |detail: String| self.place(height, path(), pos - FRAME_LEN as u64, detail);
            let Some(len) = self.files.frame_len(&batch.blocks, pos).map_err(place)? else { break };
            if len > MAX_BLOCK_BYTES {
                return Err(place(format!(
                    "the record claims {len} bytes, no block has more than {MAX_BLOCK_BYTES}; the file is \
                     damaged, or xor.dat is not its own: restore it, or let bitcoind -reindex fetch the \
                     blocks again"
                )));
            }
            if pos + len as u64 > self.blk_len {
                return Err(place(format!(
                    "the block of {len} bytes runs beyond the end of the file ({} bytes); the file is \
                     truncated or damaged, restore it, or let bitcoind -reindex fetch the blocks again",
                    self.blk_len
                )));
            }
            let from = (pos - start) as usize;
            let have = batch.blocks.bytes.len();
            if from + len > have {
                if !batch.jobs.is_empty() {
                    break;
                }
                // A block larger than the window.
                batch.blocks.bytes.resize(from + len, 0);
                let at = start + have as u64;
                let rest = batch.blocks.bytes.get_mut(have..).unwrap_or_default();
                self.blk.read_exact_at(rest, at).map_err(|source| Files::io(path(), at, &source))?;
            }
            batch.jobs.push(Job { height, block: from..from + len, undo: None });
            self.pending = rest;
        }
        if batch.jobs.is_empty() {
            let detail = "the block lies beyond the end of the file: the file is truncated, or the block \
                          index is of other files (rerun with --scan to do without the index; if that \
                          fails too, let bitcoind -reindex fetch the blocks again)";
            return Err(self.place(first, path(), start, detail.to_owned()));
        }
        self.read_undo(&mut batch)?;
        let windows = std::iter::once(&batch.blocks).chain(&batch.undos);
        let bytes = windows.map(|window| window.bytes.capacity()).sum();
        batch.room.resize(bytes);
        Ok(Some(batch))
    }

    /// Reads the undo records of a batch: those that lie together in one read.
    fn read_undo(&self, batch: &mut Batch<'_>) -> Result<(), Error> {
        let Some((rev, rev_len)) = &self.rev else { return Ok(()) };
        let mut wanted: Vec<(u64, usize)> = batch
            .jobs
            .iter()
            .enumerate()
            .filter(|(_, job)| job.height >= self.undo_from)
            .filter_map(|(index, job)| Some((self.chain.block(job.height).undo_pos?.0, index)))
            .collect();
        wanted.sort_unstable();
        let apart = |a: &(u64, usize), b: &(u64, usize)| b.0 - a.0 <= UNDO_GAP_MAX;
        for run in wanted.chunk_by(apart) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
            let start = first.0 - FRAME_LEN as u64;
            let end = (last.0 + UNDO_TAIL_GUESS).min(*rev_len);
            let mut window = Window { start, bytes: self.pool.buffer(end.saturating_sub(start) as usize) };
            self.fill_undo(rev.as_ref(), &mut window, 0)?;
            let number = batch.undos.len();
            for &(pos, index) in run {
                let Some(job) = batch.jobs.get_mut(index) else { continue };
                let range = self.undo_range(rev.as_ref(), *rev_len, &mut window, pos, job.height)?;
                job.undo = Some((number, range));
            }
            batch.undos.push(window);
        }
        Ok(())
    }

    fn undo_range(
        &self,
        rev: &dyn ReadAt,
        rev_len: u64,
        window: &mut Window,
        pos: u64,
        height: Height,
    ) -> Result<Range<usize>, Error> {
        let path = self.files.rev_path(self.file);
        let place = |detail: String| self.place(height, path, pos - FRAME_LEN as u64, detail);
        let end = match self.files.frame_len(window, pos) {
            Ok(Some(len)) => pos + (len + CHECKSUM_LEN) as u64,
            Ok(None) => rev_len + 1,
            Err(detail) => return Err(place(detail)),
        };
        if end > rev_len {
            return Err(place(format!(
                "the undo record runs beyond the end of the file ({rev_len} bytes); the file is damaged, \
                 run bitcoind -reindex or restore the file"
            )));
        }
        let have = window.bytes.len();
        let (from, to) = ((pos - window.start) as usize, (end - window.start) as usize);
        if to > have {
            window.bytes.resize(to, 0);
            self.fill_undo(rev, window, have)?;
        }
        Ok(from..to)
    }

    fn fill_undo(&self, rev: &dyn ReadAt, window: &mut Window, from: usize) -> Result<(), Error> {
        let at = window.start + from as u64;
        let bytes = window.bytes.get_mut(from..).unwrap_or_default();
        rev.read_exact_at(bytes, at).map_err(|source| Files::io(self.files.rev_path(self.file), at, &source))
    }

    fn place(&self, height: Height, file: PathBuf, offset: u64, detail: String) -> Error {
        Error::damaged(detail).at_block(height, self.chain.block(height).hash).in_file(file, Some(offset))
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
    let name = |error: Error| error.at_block(height, place.hash);
    let blk = (files.blk_path(place.file), place.data_pos.0);
    let rev = (files.rev_path(place.file), place.undo_pos.map_or(0, |pos| pos.0));
    let block = read_record(files, files.open_blk(place.file)?, &blk, 0).map_err(name)?;
    let undo = match place.undo_pos {
        Some(_) => read_record(files, files.open_rev(place.file)?, &rev, CHECKSUM_LEN).map_err(name)?,
        None => Vec::new(),
    };
    Ok(RawBlock { height, hash: place.hash, blk, rev, block, undo })
}

/// Reads one record's data, and `tail` bytes after it, without obfuscation.
fn read_record(
    files: &Files<'_>,
    (file, file_len): (Box<dyn ReadAt>, u64),
    (path, pos): &(PathBuf, u64),
    tail: usize,
) -> Result<Vec<u8>, Error> {
    let start = pos - FRAME_LEN as u64;
    let io = |source: std::io::Error| Files::io(path.clone(), start, &source);
    let mut frame = Window { start, bytes: vec![0; FRAME_LEN] };
    file.read_exact_at(&mut frame.bytes, start).map_err(io)?;
    let damaged = |detail: String| Error::damaged(detail).in_file(path, Some(start));
    let len = files.frame_len(&frame, *pos).map_err(damaged)?.unwrap_or(0) + tail;
    if pos + len as u64 > file_len {
        return Err(damaged(format!(
            "the record of {len} bytes runs beyond the end of the file ({file_len} bytes); restore the file, \
             or run bitcoind -reindex"
        )));
    }
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, *pos).map_err(io)?;
    files.obfuscation.apply(&mut bytes, *pos);
    Ok(bytes)
}
