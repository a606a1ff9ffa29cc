//! Data that belongs to blocks, divided by parts of the chain, or by anything else that the caller can count.
//!
//! A part is consecutive blocks, so few that what belongs to them fits into a worker's memory. Data arrives
//! in any order, on any thread, and is only divided by part. When it exceeds its memory it is appended to one
//! file, much of a part at a time. The parts are taken one by one, and sorted by the thread that takes them.
//! So everything is written at most once and read once, however much it is.
//!
//! A part of another kind can be larger than a worker's memory: it can be taken in several steps, and what is
//! made of each step can be kept in the same file.

use crate::stages::work_dir::WorkDir;
use api::error::Error;
use chain::{blocks::chain::Chain, threads::lock};
use disk::{
    checkpoint::parts_path,
    scratch_file::{Piece, ScratchFile, Stack},
};
use std::{
    ops::Range,
    sync::{
        Arc, Mutex, TryLockError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};
use vfs::During as _;
use wire::Height;

/// Bytes of blocks in a part. The coins that these blocks spend take about a quarter of it.
pub const PART_BLOCK_BYTES: u64 = 16 << 20;

/// Minimum size of a piece in the file, in bytes, unless the memory is exceeded without one of this size.
const MIN_PIECE_BYTES: usize = 16 << 10;

/// Maximum size of a piece in the file, in bytes: the least that can be taken at once.
const MAX_PIECE_BYTES: usize = 8 << 20;

/// Assumed size of a block that is not stored yet, in bytes: that of one of these years on the main network.
const AWAITED_BLOCK_BYTES: u32 = 1_700_000;

/// Bytes by part of the chain.
pub struct Parts<'a> {
    work: &'a WorkDir<'a>,
    /// The first block of each part, and the block after the last one; nothing for other parts.
    bounds: Vec<Height>,
    parts: Vec<Mutex<Part>>,
    memory_limit: usize,
    /// Bytes in memory.
    in_memory: AtomicUsize,
    /// All bytes that have not been taken.
    bytes: AtomicU64,
    /// Held while bytes are moved to the file.
    moving: Mutex<()>,
    file: Mutex<Option<Arc<ScratchFile>>>,
}

#[derive(Default)]
struct Part {
    in_memory: Vec<u8>,
    in_file: Stack,
}

impl<'a> Parts<'a> {
    /// Parts of about `part_block_bytes` of blocks, all empty. Beyond `memory_limit`, in bytes, their bytes
    /// go to a file in `work`; only one exists at a time.
    pub fn new(work: &'a WorkDir<'a>, chain: &Chain, part_block_bytes: u64, memory_limit: usize) -> Self {
        let heights = 0..chain.block_count() as u32;
        let bounds = part_bounds(&block_sizes(chain), heights, part_block_bytes, u32::MAX);
        Self::with_bounds(work, bounds, memory_limit)
    }

    /// The same, with parts that begin at these heights; the last height ends the last part.
    pub fn with_bounds(work: &'a WorkDir<'a>, bounds: Vec<Height>, memory_limit: usize) -> Self {
        let parts = Self::with_count(work, bounds.len().saturating_sub(1), memory_limit);
        Self { bounds, ..parts }
    }

    /// `count` parts that are not of a chain, all empty.
    pub fn with_count(work: &'a WorkDir<'a>, count: usize, memory_limit: usize) -> Self {
        let parts = (0..count).map(|_| Mutex::default()).collect();
        let (bounds, in_memory, bytes, moving, file) = Default::default();
        Self { work, bounds, parts, memory_limit, in_memory, bytes, moving, file }
    }

    /// The bytes that have not been taken.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub fn count(&self) -> usize {
        self.parts.len()
    }

    pub fn heights(&self, part: usize) -> Range<u32> {
        match self.bounds.get(part..part + 2) {
            Some(&[first, end]) => first.0..end.0,
            _ => 0..0,
        }
    }

    /// Returns the part that contains the block at `height`.
    pub fn part_of(&self, height: Height) -> usize {
        self.bounds.partition_point(|&first| first <= height).saturating_sub(1)
    }

    pub fn add(&self, part: usize, bytes: &[u8]) -> Result<(), Error> {
        if let Some(part) = self.parts.get(part) {
            let in_memory = &mut lock(part).in_memory;
            let before = in_memory.capacity();
            in_memory.extend_from_slice(bytes);
            self.in_memory.fetch_add(in_memory.capacity() - before, Ordering::Relaxed);
        }
        self.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.move_if_over_limit()
    }

    /// If the bytes in memory exceed their limit, moves them to the file.
    fn move_if_over_limit(&self) -> Result<(), Error> {
        if self.in_memory.load(Ordering::Relaxed) <= self.memory_limit {
            return Ok(());
        }
        let _moving = match self.moving.try_lock() {
            Ok(moving) => moving,
            // Another thread does it, and the memory may still grow a little.
            Err(TryLockError::WouldBlock)
                if self.in_memory.load(Ordering::Relaxed) <= self.memory_limit / 8 * 9 =>
            {
                return Ok(());
            }
            Err(_) => lock(&self.moving),
        };
        for min_piece in [MIN_PIECE_BYTES, 1] {
            for part in &self.parts {
                if self.in_memory.load(Ordering::Relaxed) <= self.memory_limit / 4 {
                    return Ok(());
                }
                let Part { in_memory, in_file } = &mut *lock(part);
                if in_memory.len() < min_piece {
                    continue;
                }
                let mut taken = std::mem::take(in_memory);
                self.in_memory.fetch_sub(taken.capacity(), Ordering::Relaxed);
                // The last piece is the first that is read back.
                while !taken.is_empty() {
                    let start = (taken.len() - 1) / MAX_PIECE_BYTES * MAX_PIECE_BYTES;
                    self.file()?.push(in_file, &mut taken, start)?;
                }
            }
        }
        Ok(())
    }

    fn file(&self) -> Result<Arc<ScratchFile>, Error> {
        let mut file = lock(&self.file);
        if let Some(file) = &*file {
            return Ok(Arc::clone(file));
        }
        self.work.take()?;
        let created = ScratchFile::create(self.work.disk(), &parts_path(self.work.path()))?;
        Ok(Arc::clone(file.insert(Arc::new(created))))
    }

    pub fn take(&self, part: usize) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        self.take_up_to(part, usize::MAX, &mut bytes)?;
        Ok(bytes)
    }

    /// Takes bytes of a part and appends them to `into`: up to `limit` bytes, but at least one piece of the
    /// file, or else all that is in memory. Bytes that were added together follow each other. Returns whether
    /// there are more.
    pub fn take_up_to(&self, part: usize, limit: usize, into: &mut Vec<u8>) -> Result<bool, Error> {
        let Some(part) = self.parts.get(part) else { return Ok(false) };
        let Part { in_memory, in_file } = &mut *lock(part);
        let (start, mut len) = (into.len(), 0);
        if !in_file.last.is_empty() {
            let most = limit.max(in_file.last.len());
            into.reserve_exact(most.min(in_file.bytes + in_memory.len()) + size_of::<Piece>());
        }
        while !in_file.last.is_empty() && (len == 0 || len + in_file.last.len() <= limit) {
            self.file()?.pop(in_file, into)?;
            len = into.len() - start;
        }
        let is_last = in_file.last.is_empty() && (len == 0 || len + in_memory.len() <= limit);
        if is_last {
            let in_memory = std::mem::take(in_memory);
            self.in_memory.fetch_sub(in_memory.capacity(), Ordering::Relaxed);
            if into.is_empty() { *into = in_memory } else { into.extend_from_slice(&in_memory) }
        }
        self.bytes.fetch_sub((into.len() - start) as u64, Ordering::Relaxed);
        Ok(!is_last)
    }

    /// Appends bytes that belong to no part, such as a piece of a sorted part, to the file.
    pub fn append(&self, bytes: &[u8]) -> Result<Piece, Error> {
        Ok(self.file()?.append(bytes)?)
    }

    /// Reads a piece of the file, and appends it to `into`.
    pub fn read(&self, piece: &Piece, into: &mut Vec<u8>) -> Result<(), Error> {
        Ok(self.file()?.read(piece, into)?)
    }

    /// Drops all bytes.
    pub fn clear(&self) -> Result<(), Error> {
        for part in &self.parts {
            let taken = std::mem::take(&mut *lock(part));
            self.in_memory.fetch_sub(taken.in_memory.capacity(), Ordering::Relaxed);
        }
        self.bytes.store(0, Ordering::Relaxed);
        self.remove_file()
    }

    /// Removes the file, after everything has been taken.
    pub fn remove_file(&self) -> Result<(), Error> {
        if let Some(file) = lock(&self.file).take() {
            self.work.disk().remove_file(file.path()).during("remove", file.path())?;
        }
        Ok(())
    }
}

/// Returns the size of each block of a chain, in bytes. It is what follows the block in its file.
pub fn block_sizes(chain: &Chain) -> Vec<u32> {
    let mut sizes = vec![0u32; chain.block_count()];
    for (_, heights) in chain.by_file() {
        for pair in heights.windows(2) {
            let &[height, next] = pair else { continue };
            let size = chain.block(next).data_pos.0 - chain.block(height).data_pos.0;
            sizes[height.0 as usize] = u32::try_from(size).unwrap_or(u32::MAX);
        }
    }
    for (height, size) in (0..).map(Height).zip(&mut sizes) {
        if !chain.was_stored(height) {
            *size = AWAITED_BLOCK_BYTES;
        }
    }
    sizes
}

/// Divides the blocks at some heights into parts of about `bytes` of blocks, which have these sizes. A part
/// also begins at each multiple of `step`.
///
/// # Panics
/// If a height has no size.
pub fn part_bounds(sizes: &[u32], heights: Range<u32>, bytes: u64, step: u32) -> Vec<Height> {
    let (mut bounds, mut sum) = (Vec::new(), 0);
    for height in heights.clone() {
        if bounds.is_empty() || sum >= bytes || height.is_multiple_of(step) {
            bounds.push(Height(height));
            sum = 0;
        }
        sum += u64::from(sizes[height as usize]);
    }
    bounds.push(Height(heights.end));
    bounds
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::RealDisk;

    /// Lists of the pieces in the file once took more memory than the limit, and kept it.
    #[test]
    fn many_small_pieces_take_no_memory() {
        const PARTS: usize = 50_000;
        const LIMIT: usize = 4 << 20;
        const RECORDS: u64 = 500_000;
        let dir = tempfile::tempdir().unwrap();
        let work = WorkDir::new(&RealDisk, dir.path().join("work"));
        let parts = Parts::with_count(&work, PARTS, LIMIT);
        let part_of = |number: u64| (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % PARTS;
        for number in 0..RECORDS {
            let mut record = [0; 20];
            record[..8].copy_from_slice(&number.to_le_bytes());
            parts.add(part_of(number), &record).unwrap();
        }
        // Everything else in a part is `Copy`, so it has no memory elsewhere.
        const fn is_flat<T: Copy>(_: &T) {}
        let held = parts.parts.iter().map(|part| {
            let Part { in_memory, in_file } = &*lock(part);
            is_flat(in_file);
            size_of::<Mutex<Part>>() + in_memory.capacity()
        });
        let held: usize = held.sum();
        assert!(held < 2 * LIMIT, "{held} bytes");
        let mut numbers = Vec::new();
        for part in 0..PARTS {
            let bytes = parts.take(part).unwrap();
            let (records, rest) = bytes.as_chunks::<20>();
            let found = records.iter().map(|it| u64::from_le_bytes(*it.first_chunk().unwrap()));
            let found: Vec<_> = found.collect();
            assert!(rest.is_empty() && found.iter().all(|number| part_of(*number) == part));
            numbers.extend(found);
        }
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..RECORDS) && parts.bytes() == 0);
        parts.remove_file().unwrap();
        work.remove().unwrap();
    }
}
