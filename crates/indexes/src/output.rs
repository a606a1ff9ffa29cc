//! What is made of a block for the indexes whose rows depend on the blocks below.

use crate::{block_filter::FilterBuilder, coin_stats::Changes};
use api::{block_observer::ObservedBlock, error::Error, subject::Subject};
use chain::threads::lock;
use digest::muhash::MuHash3072;
use disk::scratch_file::{Piece, ScratchFile};
use pipeline::stages::stats_change::{Cancelled, StatsChange};
use rules::subsidy;
use std::{collections::HashSet, ops::RangeInclusive, path::Path, sync::Mutex};
use vfs::Disk;
use wire::{Height, Txid};

/// What is made of a block.
#[derive(Default)]
pub struct BlockOutput {
    /// Its filter, encoded.
    pub filter: Option<Vec<u8>>,
    /// What it adds to the statistics, and the MuHash of that.
    pub stats: Option<(Changes, MuHash3072)>,
}

impl BlockOutput {
    /// Makes what is wanted of a block.
    ///
    /// # Errors
    /// [`api::error::ErrorKind::Damaged`] if a coin is malformed.
    pub fn of(block: &ObservedBlock<'_>, with_filter: bool, with_stats: bool) -> Result<Self, Error> {
        let filter = with_filter.then(|| encode_filter(block)).transpose()?;
        let stats = with_stats.then(|| {
            let ObservedBlock { params, height, ref hash, block: view, txids, claims } = *block;
            let change = StatsChange::of(params, height, hash, view, txids, claims, &cancelled(block));
            (Changes::of(&change, subsidy(params, height)), change.muhash)
        });
        Ok(Self { filter, stats })
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Some((changes, muhash)) = &self.stats {
            bytes.extend_from_slice(&changes.to_bytes());
            bytes.extend_from_slice(&muhash.to_bytes());
        }
        bytes.extend(self.filter.iter().flatten());
        bytes
    }

    /// Reads what was written of an output with or without a filter and statistics. `None` if it is
    /// malformed.
    fn of_bytes(bytes: &[u8], with_filter: bool, with_stats: bool) -> Option<Self> {
        let (stats, filter) = match with_stats {
            true => {
                let (changes, rest) = bytes.split_first_chunk()?;
                let (muhash, rest) = rest.split_first_chunk()?;
                (Some((Changes::of_bytes(changes), MuHash3072::from_bytes(muhash)?)), rest)
            }
            false => (None, bytes),
        };
        Some(Self { filter: with_filter.then(|| filter.to_vec()), stats })
    }
}

/// Returns the encoded filter of a block.
fn encode_filter(block: &ObservedBlock<'_>) -> Result<Vec<u8>, Error> {
    let malformed = |error| {
        Error::damaged(format!("the undo data has a malformed coin: {error}"))
            .at_block(block.height, block.hash)
            .about(Subject::UndoData)
    };
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

/// The coins that a block both creates and spends.
fn cancelled(block: &ObservedBlock<'_>) -> Cancelled {
    let created: HashSet<&Txid> = block.txids.iter().skip(1).collect();
    let prevouts = block.block.txs().skip(1).flat_map(|tx| tx.inputs()).map(|input| input.prevout());
    let own = prevouts.filter(|prevout| created.contains(&prevout.txid));
    own.map(|prevout| (prevout, block.height)).collect()
}

/// Outputs of blocks that came in any order, in a temporary file.
pub struct StoredOutputs {
    file: ScratchFile,
    with_filter: bool,
    with_stats: bool,
    /// Where the output of each block is.
    pieces: Mutex<Vec<Option<Piece>>>,
}

impl StoredOutputs {
    /// Memory in bytes that it takes for each block.
    pub const BLOCK_BYTES: u64 = size_of::<Option<Piece>>() as u64;

    /// Creates the file.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn create(
        disk: &dyn Disk,
        path: &Path,
        with_filter: bool,
        with_stats: bool,
        blocks: usize,
    ) -> Result<Self, Error> {
        let file = ScratchFile::create(disk, path)?;
        Ok(Self { file, with_filter, with_stats, pieces: Mutex::new(vec![None; blocks]) })
    }

    /// Adds the output of a block.
    ///
    /// # Errors
    /// [`api::error::ErrorKind::Damaged`] if a coin is malformed; any I/O error.
    pub fn add(&self, block: &ObservedBlock<'_>) -> Result<(), Error> {
        let output = BlockOutput::of(block, self.with_filter, self.with_stats)?;
        let piece = self.file.append(&output.to_bytes())?;
        if let Some(of_block) = lock(&self.pieces).get_mut(block.height.0 as usize) {
            *of_block = Some(piece);
        }
        Ok(())
    }

    /// Returns the outputs of the blocks at these heights, if all were added.
    ///
    /// # Errors
    /// Any I/O error; an error if the file is damaged.
    pub fn read(&self, heights: RangeInclusive<u32>) -> Result<Option<Vec<BlockOutput>>, Error> {
        let (first, last) = (*heights.start() as usize, *heights.end() as usize);
        let pieces: Option<Vec<Piece>> =
            lock(&self.pieces).get(first..=last).and_then(|pieces| pieces.iter().copied().collect());
        let Some(pieces) = pieces else { return Ok(None) };
        let (mut outputs, mut bytes) = (Vec::with_capacity(pieces.len()), Vec::new());
        for (piece, height) in pieces.iter().zip(heights) {
            bytes.clear();
            self.file.read(piece, &mut bytes)?;
            let output = BlockOutput::of_bytes(&bytes, self.with_filter, self.with_stats);
            outputs.push(output.ok_or_else(|| {
                let detail = format!("what was written of block {} is malformed", Height(height));
                Error::damaged(detail).in_file(self.file.path(), None)
            })?);
        }
        Ok(Some(outputs))
    }
}
