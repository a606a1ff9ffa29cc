//! The steps of a rebuild, each in the product's way and in others, on the blocks of a chain.

mod disk;
mod memory;

pub use disk::{
    flush_last, in_order, look_up, parse_fields, parse_whole, read_bytes, read_words, write_batches,
    write_blocks_by_fields, write_blocks_whole, write_coins, write_files, write_undo_by_fields,
    write_undo_whole,
};
pub use memory::{
    bytes_of_blocks, bytes_of_undo, connect_all, distinct_by_hash_set, distinct_by_keys, distinct_by_set,
    distinct_by_sorting, distinct_with_each_null, distinct_with_nulls_at_ends, flush_empties, flush_frees,
    flush_keeps, hash, heights_of_spends, hints_alone, serialise_by_fields, serialise_whole, set_create,
    set_find, sizes_by_fields, sizes_from_spans,
};

use super::{
    chain::{Chain, Place, failed},
    proposal::{Outcome, Stopwatch},
};
use crate::place::environment;
use ::disk::{datadir::Datadir, xor::read_block_obfuscation};
use bench::{Block, baseline::files::Xor, work};
use digest::obfuscation::Obfuscation;
use engine::{Error, RealDisk};
use std::{
    fs, io,
    path::{Path, PathBuf},
};
use wire::{Coin, OutPoint};

/// What steps work on.
pub struct Lab<'a> {
    /// The blocks by height, without the genesis block.
    pub blocks: &'a [Block<'a>],
    places: &'a [Place],
    datadir: Datadir,
    obfuscation: Obfuscation,
    prevouts: Vec<OutPoint>,
    /// The coins that the chain spends, in the order of a chainstate.
    spent: Vec<(OutPoint, Coin<'a>)>,
    outputs: usize,
    scratch: PathBuf,
    /// Number of coins of the last flush.
    coins: u64,
}

impl<'a> Lab<'a> {
    /// Prepares the steps, which write into `scratch` only.
    pub fn new(
        chain: &Chain,
        blocks: &'a [Block<'a>],
        places: &'a [Place],
        scratch: &Path,
        coins: u64,
    ) -> Result<Self, Error> {
        let datadir = chain.datadir();
        let obfuscation = read_block_obfuscation(&RealDisk, &datadir.blocks_dir())?;
        let prevouts = blocks.iter().flat_map(|block| block.view.txs().skip(1)).flat_map(|tx| tx.inputs());
        Ok(Self {
            blocks,
            places: places.get(1..).unwrap_or_default(),
            datadir,
            obfuscation,
            prevouts: prevouts.map(|input| input.prevout()).collect(),
            spent: work::spent_coins(blocks),
            outputs: blocks.iter().map(|block| block.view.output_count()).sum(),
            scratch: scratch.to_owned(),
            coins,
        })
    }

    /// Number of bytes of all blocks.
    fn block_bytes(&self) -> usize {
        self.blocks.iter().map(|block| block.view.bytes().len()).sum()
    }

    /// Returns the path of a folder that is missing.
    fn missing(&self, name: &str) -> Result<PathBuf, Error> {
        let dir = self.scratch.join(name);
        if dir.exists() {
            fs::remove_dir_all(&dir).map_err(|error| environment("empty", &dir, error))?;
        }
        Ok(dir)
    }

    /// The obfuscation of the block files, in words or byte by byte.
    const fn xor(&self, is_bytewise: bool) -> Xor {
        Xor { key: self.obfuscation, is_bytewise }
    }
}

fn outcome(answer: String, count: usize) -> Outcome {
    Outcome { answer, count, size: None }
}

fn disk_failed(error: io::Error) -> Error {
    failed(format!("cannot read or write a file: {error}"))
}
