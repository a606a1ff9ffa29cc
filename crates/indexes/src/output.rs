//! The output of a block: what is made of it, without the blocks below, for its filter and its statistics.

use crate::{block_filter::FilterBuilder, coin_stats::Totals, row_files::work_file};
use api::{
    block_observer::{ObservedBlock, ObservedChain},
    error::Error,
};
use chain::threads::lock;
use digest::muhash::MuHash3072;
use disk::scratch_file::{Piece, ScratchFile};
use pipeline::stages::stats_change::{Cancelled, StatsChange};
use rules::subsidy;
use std::{
    collections::HashSet,
    ops::RangeInclusive,
    path::PathBuf,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};
use vfs::{Disk, During as _};
use wire::{BlockHash, Height, Reader, Txid};

/// What is made of a block for the indexes whose rows depend on the blocks below.
#[derive(Default)]
pub struct BlockOutput {
    pub filter: Option<Vec<u8>>,
    /// What the block adds to the statistics, and the MuHash of the coins that it creates and spends.
    pub stats: Option<(Totals, MuHash3072)>,
}

impl BlockOutput {
    /// Makes the output of a block.
    ///
    /// # Errors
    /// [`api::error::ErrorKind::Damaged`] if a coin is malformed.
    pub fn of(block: &ObservedBlock<'_>, with_filter: bool, with_stats: bool) -> Result<Self, Error> {
        let filter = with_filter.then(|| encode_filter(block)).transpose()?;
        let stats = with_stats.then(|| {
            let ObservedBlock { params, height, ref hash, block: view, txids, claims } = *block;
            let change = StatsChange::of(params, height, hash, view, txids, claims, &cancelled(block));
            (Totals::of_block(&change, subsidy(params, height)), change.muhash)
        });
        Ok(Self { filter, stats })
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Some((numbers, muhash)) = &self.stats {
            bytes.extend_from_slice(&numbers.to_bytes());
            bytes.extend_from_slice(&muhash.to_bytes());
        }
        bytes.extend(self.filter.iter().flatten());
        bytes
    }

    /// Reads what `to_bytes` wrote. Returns `None` if it is malformed.
    fn of_bytes(bytes: &[u8], with_filter: bool, with_stats: bool) -> Option<Self> {
        let (stats, filter) = match with_stats {
            true => {
                let (numbers, rest) = bytes.split_first_chunk()?;
                let (muhash, rest) = rest.split_first_chunk()?;
                (Some((Totals::of_bytes(numbers), MuHash3072::from_bytes(muhash)?)), rest)
            }
            false => (None, bytes),
        };
        Some(Self { filter: with_filter.then(|| filter.to_vec()), stats })
    }
}

fn encode_filter(block: &ObservedBlock<'_>) -> Result<Vec<u8>, Error> {
    let malformed = |error| Error::malformed_coin(error, block.height, block.hash);
    let (mut spent, mut ends) = (Vec::new(), Vec::with_capacity(block.claims.len()));
    for claim in block.claims {
        let (_, script) = claim.output().map_err(malformed)?;
        script.decompress(&mut spent).map_err(malformed)?;
        ends.push(spent.len());
    }
    let mut filter = FilterBuilder::default();
    for tx in block.block.txs() {
        tx.outputs().for_each(|output| filter.add_output(output.script_pubkey()));
    }
    let mut start = 0;
    for end in ends {
        filter.add_spent(spent.get(start..end).unwrap_or_default());
        start = end;
    }
    Ok(filter.encode(&block.hash))
}

/// Returns the coins that a block both creates and spends.
fn cancelled(block: &ObservedBlock<'_>) -> Cancelled {
    let created: HashSet<&Txid> = block.txids.iter().skip(1).collect();
    let own = block.block.prevouts().filter(|prevout| created.contains(&prevout.txid));
    own.map(|prevout| (prevout, block.height)).collect()
}

/// Keeps the outputs of blocks, which come in any order, in temporary files: one that this process writes,
/// and those that interrupted runs have left.
///
/// ```text
/// file     magic | frame | frame | ..
/// frame    length of the rest 4 | CRC-32C of what follows 4 | block hash 32 | height 4 | output
/// ```
pub struct StoredOutputs {
    files: Vec<ScratchFile>,
    with_filter: bool,
    with_stats: bool,
    /// Where the output of each block is: the number of the file, and the piece.
    pieces: Mutex<Vec<Option<(u16, Piece)>>>,
}

impl StoredOutputs {
    /// Memory in bytes for each block.
    pub const BLOCK_BYTES: u64 = size_of::<Option<(u16, Piece)>>() as u64;

    /// Creates the next file in `dir`, and finds the outputs of the chain's blocks in those that are there.
    pub fn open(
        disk: &dyn Disk,
        chain: &ObservedChain<'_>,
        with_filter: bool,
        with_stats: bool,
    ) -> Result<Self, Error> {
        // The name says which indexes the outputs are for, and in which form they are: others are of no use.
        let name = format!("outputs2-{}{}", u8::from(with_filter), u8::from(with_stats));
        let path = |number: usize| work_file(chain.work_dir, &format!("{name}-{number}"));
        let (mut files, mut pieces) = (Vec::new(), vec![None; chain.blocks]);
        let is_fresh = !(0..chain.blocks as u32).any(|height| (chain.is_completed)(Height(height)));
        if is_fresh {
            // What an earlier attempt has made of these blocks may come from false undo data.
            let is_there = |path: &PathBuf| disk.exists(path).unwrap_or_default();
            for path in (0..).map(path).take_while(is_there) {
                disk.remove_file(&path).during("remove", &path)?;
            }
        }
        while let Some(file) = ScratchFile::open_left(disk, &path(files.len()))? {
            find_frames(&file, |piece, hash, height| {
                let of_block = pieces.get_mut(height as usize);
                if let Some(of_block) = of_block.filter(|_| (chain.hash_of)(Height(height)) == hash) {
                    *of_block = Some((files.len() as u16, piece));
                }
            })?;
            files.push(file);
        }
        files.push(ScratchFile::create(disk, &path(files.len()))?);
        Ok(Self { files, with_filter, with_stats, pieces: Mutex::new(pieces) })
    }

    /// Whether the output of a block is there.
    pub fn has(&self, height: Height) -> bool {
        lock(&self.pieces).get(height.0 as usize).is_some_and(Option::is_some)
    }

    /// Adds the output of a block.
    ///
    /// # Errors
    /// [`api::error::ErrorKind::Damaged`] if a coin is malformed; any I/O error.
    pub fn add(&self, block: &ObservedBlock<'_>) -> Result<(), Error> {
        let output = BlockOutput::of(block, self.with_filter, self.with_stats)?;
        let content = [&block.hash.0[..], &block.height.0.to_le_bytes(), &output.to_bytes()].concat();
        let (len, checksum) = (content.len() as u32 + 4, crc32c::crc32c(&content));
        let frame = [&len.to_le_bytes()[..], &checksum.to_le_bytes(), &content].concat();
        let Some((file, number)) = self.files.last().zip(self.files.len().checked_sub(1)) else {
            return Ok(());
        };
        let piece = file.append(&frame)?;
        if let Some(of_block) = lock(&self.pieces).get_mut(block.height.0 as usize) {
            *of_block = Some((number as u16, piece));
        }
        Ok(())
    }

    /// Syncs the outputs to the medium.
    pub fn sync(&self) -> Result<(), Error> {
        Ok(self.files.last().map_or(Ok(()), ScratchFile::sync)?)
    }

    /// Returns the outputs of the blocks at these heights, if all are there.
    ///
    /// # Errors
    /// Any I/O error; an error if a file is damaged.
    pub fn read(&self, heights: RangeInclusive<u32>) -> Result<Option<Vec<BlockOutput>>, Error> {
        let (first, last) = (*heights.start() as usize, *heights.end() as usize);
        let pieces: Option<Vec<_>> =
            lock(&self.pieces).get(first..=last).and_then(|pieces| pieces.iter().copied().collect());
        let Some(pieces) = pieces else { return Ok(None) };
        let (mut outputs, mut bytes) = (Vec::with_capacity(pieces.len()), Vec::new());
        for (file, piece) in pieces {
            let Some(file) = self.files.get(usize::from(file)) else { return Ok(None) };
            bytes.clear();
            file.read(&piece, &mut bytes)?;
            let output = bytes.get(FRAME_HEADER_LEN + CONTENT_HEADER_LEN..).unwrap_or_default();
            let output = BlockOutput::of_bytes(output, self.with_filter, self.with_stats);
            outputs.push(output.ok_or_else(|| {
                Error::damaged("what was written of a block is malformed").in_file(file.path(), None)
            })?);
        }
        Ok(Some(outputs))
    }
}

/// The blocks that an observer was given.
pub struct ObservedBlocks {
    /// The outputs that filters and statistics are made from, if those are wanted.
    pub outputs: Option<StoredOutputs>,
    /// Whether each block was given, by height.
    pub taken: Vec<AtomicBool>,
}

impl ObservedBlocks {
    /// Whether no block at these heights has to be read again.
    pub fn has_all(&self, heights: RangeInclusive<u32>) -> bool {
        let heights = *heights.start() as usize..=*heights.end() as usize;
        self.taken.get(heights).is_some_and(|taken| taken.iter().all(|taken| taken.load(Ordering::Relaxed)))
    }
}

/// Length of the bytes before the content of a frame.
const FRAME_HEADER_LEN: usize = 8;
/// Length of the bytes before the output in the content of a frame.
const CONTENT_HEADER_LEN: usize = 36;
/// Maximum length of a frame in bytes, which is more than the output of any block takes. A length above it is
/// damaged, and no memory is allocated for it.
const MAX_FRAME_LEN: u32 = 64 << 20;

/// Calls `each` with the frames of a file that another process has left, up to the first frame that is not
/// whole.
fn find_frames(file: &ScratchFile, mut each: impl FnMut(Piece, BlockHash, u32)) -> Result<(), Error> {
    let (mut offset, mut bytes) = (ScratchFile::START, Vec::new());
    loop {
        bytes.clear();
        if file.piece_at(offset, 4, &mut bytes)?.is_none() {
            return Ok(());
        }
        let len = bytes.first_chunk().map_or(0, |len| u32::from_le_bytes(*len)).saturating_add(4);
        bytes.clear();
        if len > MAX_FRAME_LEN {
            return Ok(());
        }
        let Some(piece) = file.piece_at(offset, len, &mut bytes)? else { return Ok(()) };
        let mut reader = Reader::new(&bytes);
        let header =
            reader.u32().and_then(|_| Ok((reader.u32()?, BlockHash(reader.array()?), reader.u32()?)));
        let Ok((checksum, hash, height)) = header else { return Ok(()) };
        if crc32c::crc32c(bytes.get(FRAME_HEADER_LEN..).unwrap_or_default()) != checksum {
            return Ok(());
        }
        each(piece, hash, height);
        offset += u64::from(len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::RealDisk;

    /// A length is believed only up to a limit: the bytes would be in memory before their checksum is known.
    #[test]
    fn frames_are_found_up_to_the_first_that_is_not_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("frames");
        let frame = |len: u32| {
            let content = [&[7; 32][..], &len.to_le_bytes(), &vec![1; len as usize]].concat();
            let (len, checksum) = (content.len() as u32 + 4, crc32c::crc32c(&content));
            [&len.to_le_bytes()[..], &checksum.to_le_bytes(), &content].concat()
        };
        let cut = frame(9)[..50].to_vec();
        for last in [frame(MAX_FRAME_LEN), vec![1; 30], cut, Vec::new()] {
            let file = ScratchFile::create(&RealDisk, &path).unwrap();
            for frame in [frame(3), frame(5), last] {
                file.append(&frame).unwrap();
            }
            let left = ScratchFile::open_left(&RealDisk, &path).unwrap().unwrap();
            let mut found = Vec::new();
            find_frames(&left, |_, _, height| found.push(height)).unwrap();
            assert_eq!(found, [3, 5]);
        }
    }
}
