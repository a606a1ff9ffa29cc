//! Sorts the positions of unspent outputs from txid order to chain order, within the memory budget.

use crate::{
    api::error::Error,
    job::{Job, memory::MemoryBudget},
    stages::{
        coin_sink::{CoinSink, Coins},
        unspent::ForEachError,
        work_dir::WorkDir,
    },
};
use coins::OutputIndex;
use std::{cmp::Reverse, collections::BinaryHeap, path::PathBuf, sync::atomic::Ordering};
use vfs::{During as _, ReadAt};

/// Bytes of a sorted file that are read or written at once.
const CHUNK_BYTES: usize = 64 << 10;
/// Bytes of a position: height (4) and output index (4) as one big-endian number.
const POSITION_LEN: usize = 8;

/// Sorted positions, to be taken block by block.
pub struct SortedPositions {
    sources: Vec<PositionSource>,
    heap: BinaryHeap<Reverse<(u64, usize)>>,
}

/// Sorted positions in memory or in a file.
enum PositionSource {
    Memory(std::vec::IntoIter<u64>),
    File { file: Box<dyn ReadAt>, path: PathBuf, len: u64, at: u64, chunk: std::vec::IntoIter<u64> },
}

/// Sorts the positions that the join of this job has left.
pub struct PositionSorter<'a>(pub &'a Job<'a>);

impl CoinSink<OutputIndex> for PositionSorter<'_> {
    type Output = SortedPositions;

    fn consume(&mut self, coins: Coins<'_, OutputIndex>) -> Result<SortedPositions, ForEachError> {
        let job = self.0;
        let budget = MemoryBudget::after_matching(job.options, job.plan.chain.block_count());
        let capacity = (budget.join_bytes / 2).max(CHUNK_BYTES) / POSITION_LEN;
        let mut positions: Vec<u64> = Vec::new();
        let mut sources = Vec::new();
        coins.in_sequence(|_, coin| {
            let index = OutputIndex::of(coin).ok_or_else(Error::panicked)?;
            positions.push(u64::from(coin.height().0) << 32 | u64::from(index));
            if positions.len() >= capacity {
                sources.push(write(job.work, sources.len(), &mut positions)?);
                if job.interrupt.load(Ordering::Relaxed) {
                    return Err(Error::interrupted());
                }
            }
            Ok(())
        })?;
        positions.sort_unstable();
        sources.push(PositionSource::Memory(positions.into_iter()));
        let mut sorted = SortedPositions { sources, heap: BinaryHeap::new() };
        for source in 0..sorted.sources.len() {
            sorted.refill(source)?;
        }
        Ok(sorted)
    }
}

fn write(work: &WorkDir<'_>, number: usize, positions: &mut Vec<u64>) -> Result<PositionSource, Error> {
    positions.sort_unstable();
    work.take()?;
    let disk = work.disk();
    let path = work.path().join(format!("places-{number:06}"));
    if disk.exists(&path).during("look for", &path)? {
        disk.remove_file(&path).during("remove", &path)?;
    }
    let mut file = disk.create(&path).during_creation(&path)?;
    let len = (positions.len() * POSITION_LEN) as u64;
    let mut bytes = Vec::with_capacity(CHUNK_BYTES);
    for chunk in positions.chunks(CHUNK_BYTES / POSITION_LEN) {
        bytes.clear();
        chunk.iter().for_each(|position| bytes.extend(position.to_le_bytes()));
        file.write_all(&bytes).during("write", &path)?;
    }
    drop(file);
    positions.clear();
    let file = disk.open(&path).during("open for reading", &path)?;
    Ok(PositionSource::File { file, path, len, at: 0, chunk: Vec::new().into_iter() })
}

impl PositionSource {
    fn next(&mut self) -> Result<Option<u64>, Error> {
        match self {
            Self::Memory(positions) => Ok(positions.next()),
            Self::File { file, path, len, at, chunk } => {
                if let Some(position) = chunk.next() {
                    return Ok(Some(position));
                }
                let mut bytes = vec![0; (*len - *at).min(CHUNK_BYTES as u64) as usize];
                file.read_exact_at(&mut bytes, *at).during("read", path)?;
                *at += bytes.len() as u64;
                let positions: Vec<u64> =
                    bytes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
                *chunk = positions.into_iter();
                Ok(chunk.next())
            }
        }
    }
}

impl SortedPositions {
    fn refill(&mut self, source: usize) -> Result<(), Error> {
        if let Some(position) = self.sources[source].next()? {
            self.heap.push(Reverse((position, source)));
        }
        Ok(())
    }

    /// Appends the indices of the block at `height`. Calls must have increasing heights.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn take_block(&mut self, height: u32, indices: &mut Vec<u32>) -> Result<(), Error> {
        while let Some(&Reverse((position, source))) = self.heap.peek()
            && position >> 32 <= u64::from(height)
        {
            debug_assert_eq!(position >> 32, u64::from(height), "each block is taken");
            indices.push(position as u32);
            self.heap.pop();
            self.refill(source)?;
        }
        Ok(())
    }
}
