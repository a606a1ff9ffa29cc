//! The chainstate of a datadir, open for commands that only read coins.

use crate::job::two_chainstates::has_second;
use api::{error::Error, machine, options::ChainOptions, subject::Subject};
use chain::session::lock_for_reading;
use disk::{
    chainstate::ChainstateReader, datadir::Datadir, index::find_height, lock::DatadirLock,
    replace::is_interrupted,
};
use std::path::PathBuf;
use vfs::{Disk, During as _};
use wire::{Coin, CoinError, Height, OutPoint, Sats};

/// A chainstate that is open and locked for reading.
pub struct StoredChainstate<'d> {
    pub reader: ChainstateReader<'d>,
    /// The directory of the block index, which can be missing.
    pub index_dir: PathBuf,
    /// Height of the best block; `None` if the block index does not have it.
    pub height: Option<Height>,
    _lock: DatadirLock,
}

impl<'d> StoredChainstate<'d> {
    /// Opens the chainstate of a datadir; nothing is written. If there are two, opens the one from a
    /// snapshot, as bitcoind's own commands do (Core `ChainstateManager::ActiveChainstate`).
    ///
    /// # Errors
    /// [`api::error::ErrorKind::Environment`] if another process uses it, [`api::error::ErrorKind::Damaged`]
    /// if it is missing or damaged.
    pub fn open(disk: &'d dyn Disk, options: &ChainOptions) -> Result<Self, Error> {
        machine::sha256_kernel()?;
        let location = options.location();
        let mut datadir = Datadir::of(disk, &location)?;
        let active = |datadir: &Datadir| match has_second(disk, datadir)? {
            true => Ok::<_, Error>(datadir.snapshot_dir()),
            false => Ok(datadir.chainstate_dir()),
        };
        let chainstate = active(&datadir)?;
        // A chainstate is enough: a rebuild into another place leaves no blocks there. Without one, report
        // what is wrong with the directory, unless an interrupted commit is what is wrong.
        let exists = disk.exists(&chainstate).during("look for", &chainstate)?;
        if !exists && !is_interrupted(disk, datadir.net_dir())? {
            datadir = Datadir::open(disk, &location)?;
        }
        let lock = lock_for_reading(disk, &datadir)?;
        let dir = active(&datadir)?;
        if !disk.exists(&dir).during("look for", &dir)? {
            let error =
                Error::damaged("there is no chainstate").about(Subject::MissingFile).in_file(&dir, None);
            return Err(error.about(Subject::Chainstate));
        }
        let reader = ChainstateReader::open(disk, &dir)?;
        let index_dir = datadir.index_dir();
        // The coins are what was asked for: if the index is missing or damaged, only the height is unknown.
        let height = find_height(disk, &index_dir, &reader.best_block()).ok().flatten();
        Ok(Self { reader, index_dir, height, _lock: lock })
    }

    /// Returns the error for amounts whose sum does not fit into 64 bits.
    pub fn too_large_amounts(&self) -> Error {
        Error::damaged("the amounts exceed 64 bits; the chainstate is damaged")
            .in_file(self.reader.dir(), None)
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredCoin {
    pub outpoint: OutPoint,
    pub amount: Sats,
    pub script: Vec<u8>,
    /// Height of the block that created it.
    pub height: Height,
    pub is_coinbase: bool,
    /// Number of blocks from the one that created it to the best block, both included; `None` if the height
    /// of the best block is unknown.
    pub confirmations: Option<u32>,
}

impl StoredCoin {
    /// Decodes a coin of the chainstate that `reader` reads; `best` is the height of the best block.
    ///
    /// # Errors
    /// [`api::error::ErrorKind::Damaged`] if its output is not one that Core writes.
    pub fn new(
        reader: &ChainstateReader<'_>,
        best: Option<Height>,
        outpoint: OutPoint,
        coin: Coin<'_>,
    ) -> Result<Self, Error> {
        Self::decode(best, outpoint, coin).map_err(|flaw| {
            let error = Error::damaged(format!("coin {outpoint}: {flaw}")).in_file(reader.dir(), None);
            error.about(Subject::Chainstate)
        })
    }

    fn decode(best: Option<Height>, outpoint: OutPoint, coin: Coin<'_>) -> Result<Self, CoinError> {
        let (amount, compressed) = coin.output()?;
        let mut script = Vec::with_capacity(compressed.script_len());
        compressed.decompress(&mut script)?;
        let (height, is_coinbase) = (coin.height(), coin.is_coinbase());
        let confirmations = best.and_then(|best| Some(best.0.checked_sub(height.0)? + 1));
        Ok(Self { outpoint, amount, script, height, is_coinbase, confirmations })
    }
}
