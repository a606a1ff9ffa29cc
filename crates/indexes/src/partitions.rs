//! Sorts compact rows, which come in any order, in bounded memory.
//!
//! They begin with hashes, so their leading bits divide them evenly into partitions. Each worker keeps a
//! buffer for each partition, and appends full buffers to a temporary file, each with the place of the one
//! before: a list of all would exceed the memory. When all rows have been added, the partitions are read back
//! and sorted one at a time.

use api::error::Error;
use chain::threads::lock;
use disk::scratch_file::{ScratchFile, Stack};
use std::{path::Path, sync::Mutex};
use vfs::Disk;

/// Bytes of compact rows that a partition should have. Its rows fill about one table.
const PARTITION_BYTES: u64 = 16 << 20;
/// Maximum number of partitions, as a power of two.
const MAX_BITS: u32 = 9;
/// Minimum and maximum bytes of a buffer. With smaller ones, the temporary file would be slow to read.
const PIECE_BYTES: [usize; 2] = [4 << 10, 256 << 10];

/// Compact rows of `N` bytes, divided by their leading bits.
pub struct Partitions<const N: usize> {
    file: ScratchFile,
    bits: u32,
    piece_bytes: usize,
    stored: Vec<Mutex<Stack>>,
    /// The collectors that no worker uses now.
    idle: Mutex<Vec<Collector<N>>>,
}

/// The compact rows of one worker that are not in the file yet, by partition.
pub struct Collector<const N: usize>(Vec<Vec<u8>>);

impl<const N: usize> Partitions<N> {
    /// Creates the temporary file at `path`, for about `bytes` of compact rows. All workers together keep at
    /// most `memory` bytes of them.
    pub fn create(
        disk: &dyn Disk,
        path: &Path,
        bytes: u64,
        memory: usize,
        workers: usize,
    ) -> Result<Self, Error> {
        let bits = bytes.div_ceil(PARTITION_BYTES).next_power_of_two().ilog2().min(MAX_BITS);
        let [least, most] = PIECE_BYTES;
        let piece_bytes = (memory / (workers << bits)).clamp(least, most) / N * N;
        let stored = (0..1 << bits).map(|_| Mutex::default()).collect();
        let file = ScratchFile::create(disk, path)?;
        Ok(Self { file, bits, piece_bytes, stored, idle: Mutex::default() })
    }

    /// Number of partitions.
    pub const fn count(&self) -> usize {
        self.stored.len()
    }

    /// Returns the number of the partition that has the rows which begin with `leading`.
    pub fn partition_of(&self, leading: &[u8]) -> usize {
        (first_word(leading) >> (64 - self.bits - 1) >> 1) as usize
    }

    /// Returns the first bytes of the lowest possible row of a partition.
    pub fn leading(&self, number: usize) -> [u8; 2] {
        ((number << (u16::BITS - 1 - self.bits) << 1) as u16).to_be_bytes()
    }

    /// Calls `work` with a collector that no other thread uses meanwhile.
    pub fn with_collector<T>(&self, work: impl FnOnce(&mut Collector<N>) -> T) -> T {
        let idle = lock(&self.idle).pop();
        let mut collector = idle.unwrap_or_else(|| Collector(vec![Vec::new(); self.count()]));
        let result = work(&mut collector);
        lock(&self.idle).push(collector);
        result
    }

    /// Adds a compact row.
    pub fn add(&self, collector: &mut Collector<N>, record: &[u8; N]) -> Result<(), Error> {
        let number = self.partition_of(record);
        let buffer = &mut collector.0[number];
        buffer.extend_from_slice(record);
        if buffer.len() >= self.piece_bytes {
            self.append(number, buffer)?;
        }
        Ok(())
    }

    fn append(&self, number: usize, buffer: &mut Vec<u8>) -> Result<(), Error> {
        Ok(self.file.push(&mut lock(&self.stored[number]), buffer, 0)?)
    }

    /// Writes what collectors still have. No worker may have one any more.
    pub fn finish(&self) -> Result<(), Error> {
        for mut collector in std::mem::take(&mut *lock(&self.idle)) {
            let mut filled = collector.0.iter_mut().enumerate().filter(|(_, buffer)| !buffer.is_empty());
            filled.try_for_each(|(number, buffer)| self.append(number, buffer))?;
        }
        Ok(())
    }

    /// Gives all compact rows of a partition to `each` in ascending order, in one or more lists. A list takes
    /// about `memory` bytes at most: a larger partition is read in several passes.
    ///
    /// # Errors
    /// What is damaged or cannot be read; errors of `each`.
    pub fn sorted(
        &self,
        number: usize,
        memory: usize,
        mut each: impl FnMut(&[[u8; N]]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let stored = *lock(&self.stored[number]);
        let passes = stored.bytes.div_ceil(memory.max(1)).next_power_of_two();
        let (mut records, mut buffer) = (Vec::<[u8; N]>::new(), Vec::new());
        for pass in 0..passes as u64 {
            records.clear();
            let mut left = stored;
            while !left.last.is_empty() {
                buffer.clear();
                self.file.pop(&mut left, &mut buffer)?;
                let all = buffer.as_chunks::<N>().0.iter();
                // The bits that follow those of the partition choose the pass.
                let of_pass = |record: &&[u8; N]| {
                    let below = first_word(&record[..]).checked_shl(self.bits).unwrap_or_default();
                    passes == 1 || below >> (64 - passes.ilog2()) == pass
                };
                records.extend(all.filter(of_pass));
            }
            if N > 16 {
                // The comparison of the first words is fast, and few rows begin alike.
                records.sort_unstable_by(|a, b| first_word(a).cmp(&first_word(b)).then_with(|| a.cmp(b)));
            } else {
                records.sort_unstable();
            }
            each(&records)?;
        }
        Ok(())
    }
}

/// Returns the first eight bytes as a number. Zeros take the place of missing bytes.
fn first_word(bytes: &[u8]) -> u64 {
    let padded = || {
        let mut word = [0; 8];
        word.iter_mut().zip(bytes).for_each(|(word, byte)| *word = *byte);
        word
    };
    u64::from_be_bytes(bytes.first_chunk().copied().unwrap_or_else(padded))
}
