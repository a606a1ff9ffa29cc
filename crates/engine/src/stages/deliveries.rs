//! Coins on the way to the inputs that spend them, sorted by block.
//!
//! The chain is divided into parts of consecutive blocks, so small that the deliveries of one part fit into a
//! worker's memory. Deliveries arrive in any order, on any thread, and are only divided by part. When they
//! exceed their memory they are appended to one file, many of a part at a time. A part is sorted when it is
//! taken. So each delivery is written at most once and read once, whatever their number.

use crate::{api::error::Error, blocks::chain::Chain, stages::work_dir::WorkDir};
use coins::{Delivery, Spender};
use disk::{
    checkpoint::deliveries_path,
    scratch_file::{Piece, ScratchFile},
};
use std::{
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};
use vfs::During as _;
use wire::Height;

/// Bytes of blocks in a part. The coins that these blocks spend take about a quarter of it.
pub const PART_BLOCK_BYTES: u64 = 16 << 20;

/// Minimum size of a piece in the file, in bytes, unless the memory is exceeded without one of this size.
const MIN_PIECE_BYTES: usize = 16 << 10;

/// Deliveries to the blocks of a chain.
pub struct Deliveries<'a> {
    work: &'a WorkDir<'a>,
    /// The first block of each part, and the block after the last one.
    bounds: Vec<Height>,
    parts: Vec<Mutex<Part>>,
    memory_limit: usize,
    /// Bytes in memory.
    in_memory: AtomicUsize,
    /// Bytes of all deliveries that have not been taken.
    bytes: AtomicU64,
    /// Held while deliveries are moved to the file.
    moving: Mutex<()>,
    file: Mutex<Option<Arc<ScratchFile>>>,
}

/// The deliveries of one part, encoded ([`Delivery::split_first`]).
#[derive(Default)]
struct Part {
    in_memory: Vec<u8>,
    in_file: Vec<Piece>,
}

/// The deliveries of one part, in order of their spenders.
pub struct SortedDeliveries {
    bytes: Vec<u8>,
    /// Spender and offset of each delivery.
    order: Vec<(Spender, u32)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> Deliveries<'a> {
    /// No deliveries yet. Beyond `memory_limit`, in bytes, they go to a file in `work`.
    #[must_use]
    pub fn new(work: &'a WorkDir<'a>, chain: &Chain, part_block_bytes: u64, memory_limit: usize) -> Self {
        let bounds = part_bounds(chain, part_block_bytes);
        let parts = (1..bounds.len()).map(|_| Mutex::default()).collect();
        let (in_memory, bytes, moving, file) = Default::default();
        Self { work, bounds, parts, memory_limit, in_memory, bytes, moving, file }
    }

    /// Bytes of the deliveries that have not been taken.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Number of parts.
    #[must_use]
    pub fn part_count(&self) -> usize {
        self.parts.len()
    }

    /// Returns the heights of the blocks of a part.
    #[must_use]
    pub fn heights(&self, part: usize) -> Range<u32> {
        match self.bounds.get(part..part + 2) {
            Some(&[first, end]) => first.0..end.0,
            _ => 0..0,
        }
    }

    fn part_of(&self, height: Height) -> usize {
        self.bounds.partition_point(|&first| first <= height).saturating_sub(1)
    }

    /// Adds all deliveries in `encoded`, and clears it.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn add(&self, encoded: &mut Vec<u8>) -> Result<(), Error> {
        let mut rest = encoded.as_slice();
        while let Some((first, after)) = Delivery::split_first(rest) {
            // Most deliveries of a worker are for one block, so for one part.
            let part = self.part_of(first.spender.height());
            let heights = self.heights(part);
            let mut end = after;
            while let Some((next, after)) = Delivery::split_first(end)
                && heights.contains(&next.spender.height().0)
            {
                end = after;
            }
            let (of_part, others) = rest.split_at(rest.len() - end.len());
            if let Some(part) = self.parts.get(part) {
                let bytes = &mut lock(part).in_memory;
                let before = bytes.capacity();
                bytes.extend_from_slice(of_part);
                self.in_memory.fetch_add(bytes.capacity() - before, Ordering::Relaxed);
            }
            self.bytes.fetch_add(of_part.len() as u64, Ordering::Relaxed);
            rest = others;
        }
        encoded.clear();
        self.move_if_over_limit()
    }

    /// If the deliveries in memory exceed their limit, moves them to the file.
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
                let taken = {
                    let mut part = lock(part);
                    if part.in_memory.len() < min_piece {
                        continue;
                    }
                    std::mem::take(&mut part.in_memory)
                };
                self.in_memory.fetch_sub(taken.capacity(), Ordering::Relaxed);
                let piece = self.file()?.append(&taken)?;
                lock(part).in_file.push(piece);
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
        let created = ScratchFile::create(self.work.disk(), &deliveries_path(self.work.path()))?;
        Ok(Arc::clone(file.insert(Arc::new(created))))
    }

    /// Takes all deliveries of a part.
    ///
    /// # Errors
    /// Any I/O error; damage to the file.
    pub fn take(&self, part: usize) -> Result<SortedDeliveries, Error> {
        let taken = self.parts.get(part).map(|part| std::mem::take(&mut *lock(part))).unwrap_or_default();
        let Part { in_memory: mut bytes, in_file } = taken;
        self.in_memory.fetch_sub(bytes.capacity(), Ordering::Relaxed);
        bytes.reserve_exact(in_file.iter().map(Piece::len).sum());
        for piece in &in_file {
            self.file()?.read(piece, &mut bytes)?;
        }
        self.bytes.fetch_sub(bytes.len() as u64, Ordering::Relaxed);
        Ok(SortedDeliveries::new(bytes))
    }

    /// Removes the file, after all deliveries have been taken.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn remove_file(&self) -> Result<(), Error> {
        if let Some(file) = lock(&self.file).take() {
            self.work.disk().remove_file(file.path()).during("remove", file.path())?;
        }
        Ok(())
    }
}

/// Divides a chain into parts of about `bytes` of blocks. The size of a block is what follows it in its file.
fn part_bounds(chain: &Chain, bytes: u64) -> Vec<Height> {
    let mut sizes = vec![0u32; chain.block_count()];
    for (_, heights) in chain.by_file() {
        for pair in heights.windows(2) {
            let &[height, next] = pair else { continue };
            let size = chain.block(next).data_pos.0 - chain.block(height).data_pos.0;
            sizes[height.0 as usize] = u32::try_from(size).unwrap_or(u32::MAX);
        }
    }
    let (mut bounds, mut sum) = (vec![Height(0)], 0);
    for (height, size) in (0..).zip(sizes) {
        if sum >= bytes {
            bounds.push(Height(height));
            sum = 0;
        }
        sum += u64::from(size);
    }
    bounds.push(Height(chain.block_count() as u32));
    bounds
}

impl SortedDeliveries {
    fn new(bytes: Vec<u8>) -> Self {
        let mut order = Vec::new();
        let mut rest = bytes.as_slice();
        while let Some((delivery, after)) = Delivery::split_first(rest) {
            order.push((delivery.spender, (bytes.len() - rest.len()) as u32));
            rest = after;
        }
        order.sort_unstable();
        Self { bytes, order }
    }

    /// Returns the deliveries to the block at `height`, in the order of its inputs.
    pub fn of_block(&self, height: Height) -> impl ExactSizeIterator<Item = Delivery<'_>> {
        let first = self.order.partition_point(|(spender, _)| spender.height() < height);
        let of_block = self.order[first..].partition_point(|(spender, _)| spender.height() == height);
        self.order[first..first + of_block].iter().map(|&(_, at)| {
            let delivery = Delivery::split_first(&self.bytes[at as usize..]);
            delivery.map_or(Delivery::NONE, |(delivery, _)| delivery)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::chain::ChainBlock;
    use coins::{Join, RouteSink as _, RoutedCoin};
    use std::thread;
    use testkit::fault::FaultDisk;
    use wire::{BlockHash, BlockTime, ByteOffset, Coin, FileNo, OutPoint, Txid};

    /// A chain of 100 blocks of 1,000 bytes in one file.
    fn chain() -> Chain {
        let block = |height: u32| ChainBlock {
            hash: BlockHash([height as u8; 32]),
            file: FileNo(0),
            data_pos: ByteOffset(u64::from(height) * 1_000 + 8),
            undo_pos: None,
        };
        Chain::new((0..100).map(block).collect(), vec![BlockTime(0); 100])
    }

    /// Encoded deliveries of `numbers`, to heights in a scattered order.
    fn encoded(numbers: Range<u32>) -> Vec<u8> {
        let join = Join::<RoutedCoin>::with_key((1, 2));
        let mut effects = join.effects();
        for number in numbers {
            let spender = Spender::new(Height(number * 37 % 100), number / 100).unwrap();
            let outpoint = OutPoint { txid: Txid([number as u8; 32]), vout: number };
            let out = vec![6 + 20; 1 + 1 + 20];
            effects.push_delivery(spender, &outpoint, Coin { code: 2, out: &out });
        }
        std::mem::take(effects.payload().deliveries())
    }

    #[test]
    fn each_block_gets_its_deliveries_in_order_of_inputs() {
        for memory_limit in [0, 10_000, 1 << 30] {
            let (dir, disk) = (tempfile::tempdir().unwrap(), FaultDisk::healthy());
            let work = WorkDir::new(&disk, dir.path().join("work"));
            let deliveries = Deliveries::new(&work, &chain(), 16_000, memory_limit);
            thread::scope(|scope| {
                for start in [0, 1_000, 2_000, 3_000] {
                    let deliveries = &deliveries;
                    scope.spawn(move || {
                        for at in (start..start + 1_000).step_by(100) {
                            deliveries.add(&mut encoded(at..at + 100)).unwrap();
                        }
                    });
                }
            });
            assert!(deliveries.part_count() > 5);
            assert_eq!(work.exists().unwrap(), memory_limit < 1 << 30, "{memory_limit}");
            let mut heights = 0;
            for part in 0..deliveries.part_count() {
                let sorted = deliveries.take(part).unwrap();
                for height in deliveries.heights(part) {
                    let inputs: Vec<_> =
                        sorted.of_block(Height(height)).map(|delivery| delivery.spender.input()).collect();
                    assert_eq!(inputs, (0..40).collect::<Vec<_>>(), "{height}");
                    heights += 1;
                }
            }
            assert_eq!((heights, deliveries.bytes()), (100, 0));
            deliveries.remove_file().unwrap();
            work.remove().unwrap();
            assert!(!work.exists().unwrap());
        }
    }
}
