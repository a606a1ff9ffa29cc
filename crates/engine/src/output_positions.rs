//! Places of unspent outputs, sorted by block: from the order of txids to the order of the chain, within the
//! memory.

use crate::{
    error::Error,
    job::Job,
    memory::{MemoryConsumers, join_bytes_now},
    unspent::{ForEachError, Unspent},
    work_dir::WorkDir,
};
use coins::output_indices::index_of;
use disk::fs::{During as _, ReadAt};
use std::{cmp::Reverse, collections::BinaryHeap, path::PathBuf, sync::atomic::Ordering};

/// Bytes of a sorted file that are read or written at once.
const PIECE: usize = 64 << 10;
/// Bytes of a place: height 4, index 4, as one big number.
const POSITION_LEN: usize = 8;

/// Sorted places, to be taken block by block.
pub struct SortedPositions {
    sources: Vec<PositionSource>,
    heap: BinaryHeap<Reverse<(u64, usize)>>,
}

/// A sorted part.
enum PositionSource {
    Memory(std::vec::IntoIter<u64>),
    File { file: Box<dyn ReadAt>, path: PathBuf, len: u64, at: u64, piece: std::vec::IntoIter<u64> },
}

/// Sorts the places of what a join of places has left.
///
/// # Errors
/// What the file system says; [`crate::ErrorKind::Damaged`] if creations and spends do not fit each other.
pub fn sort_positions(job: &Job<'_>, unspent: Unspent) -> Result<SortedPositions, Error> {
    let alone = MemoryConsumers { threads: 1, scripts: false, ..job.memory_consumers() };
    let join_bytes = join_bytes_now(job.options.memory, alone);
    let room = job.options.join_bytes.unwrap_or(join_bytes / 2).max(PIECE) / POSITION_LEN;
    let mut places: Vec<u64> = Vec::new();
    let mut sources = Vec::new();
    let (ranges, runs) = unspent.into_ranges(0);
    for range in ranges {
        range
            .each(&runs, |_, coin| {
                let index = index_of(coin).ok_or_else(Error::panicked)?;
                places.push(u64::from(coin.height().0) << 32 | u64::from(index));
                if places.len() >= room {
                    sources.push(write(job.work, sources.len(), &mut places)?);
                    if job.interrupt.load(Ordering::Relaxed) {
                        return Err(Error::interrupted());
                    }
                }
                Ok(())
            })
            .map_err(|error| match error {
                ForEachError::Error(error) => error,
                ForEachError::Mismatch => Error::inconsistent_data(),
            })?;
    }
    places.sort_unstable();
    sources.push(PositionSource::Memory(places.into_iter()));
    let mut sorted = SortedPositions { sources, heap: BinaryHeap::new() };
    for source in 0..sorted.sources.len() {
        sorted.pull(source)?;
    }
    Ok(sorted)
}

fn write(work: &WorkDir<'_>, number: usize, places: &mut Vec<u64>) -> Result<PositionSource, Error> {
    places.sort_unstable();
    work.take()?;
    let disk = work.disk();
    let path = work.path().join(format!("places-{number:06}"));
    if disk.exists(&path).during("look for", &path)? {
        disk.remove_file(&path).during("remove", &path)?;
    }
    let mut file = disk.create(&path).during("create", &path)?;
    let len = (places.len() * POSITION_LEN) as u64;
    let mut bytes = Vec::with_capacity(PIECE);
    for piece in places.chunks(PIECE / POSITION_LEN) {
        bytes.clear();
        piece.iter().for_each(|place| bytes.extend(place.to_le_bytes()));
        file.write_all(&bytes).during("write", &path)?;
    }
    drop(file);
    places.clear();
    let file = disk.open(&path).during("open for reading", &path)?;
    Ok(PositionSource::File { file, path, len, at: 0, piece: Vec::new().into_iter() })
}

impl PositionSource {
    fn next(&mut self) -> Result<Option<u64>, Error> {
        match self {
            Self::Memory(places) => Ok(places.next()),
            Self::File { file, path, len, at, piece } => {
                if let Some(place) = piece.next() {
                    return Ok(Some(place));
                }
                let mut bytes = vec![0; (*len - *at).min(PIECE as u64) as usize];
                file.read_exact_at(&mut bytes, *at).during("read", path)?;
                *at += bytes.len() as u64;
                let places: Vec<u64> =
                    bytes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
                *piece = places.into_iter();
                Ok(piece.next())
            }
        }
    }
}

impl SortedPositions {
    fn pull(&mut self, source: usize) -> Result<(), Error> {
        if let Some(place) = self.sources[source].next()? {
            self.heap.push(Reverse((place, source)));
        }
        Ok(())
    }

    /// Appends the indices of the block at `height`, which no earlier call may have asked for; blocks come in
    /// order.
    ///
    /// # Errors
    /// What the file system says.
    pub fn take_block(&mut self, height: u32, indices: &mut Vec<u32>) -> Result<(), Error> {
        while let Some(&Reverse((place, source))) = self.heap.peek()
            && place >> 32 <= u64::from(height)
        {
            indices.push(place as u32);
            self.heap.pop();
            self.pull(source)?;
        }
        Ok(())
    }
}
