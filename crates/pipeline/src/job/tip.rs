//! The end of the chain in a datadir: coins, undo data and block index, which are changed together as blocks
//! are connected and disconnected.
//!
//! A commit writes them in this order, each on the medium before the next: undo data, to which nothing refers
//! yet; the rows of the block index that refer to it; the coins with the best block. Each of the databases
//! changes all at once, so after a crash the coins are those of one commit, and the index has what belongs
//! to them, and perhaps the undo data of later blocks, like after a crash of Core between its own flushes.

use crate::stages::{
    connect::{ConnectContext, DisconnectError, DisconnectResult, disconnect_block},
    read::{BlockBuffers, BlockReader, split_checksum},
    stored_coins::{StoredCoins, TipCoins, flush},
    window::{ConnectedBlock, cache_error},
};
use api::{
    error::{Error, ErrorKind},
    machine::random_key,
    remedy::Remedy,
    subject::Subject,
};
use chain::blocks::{
    chain::{BlockPosition, Chain},
    damage::{Damage, UndoDefect},
    files::Files,
};
use coins::CoinsCache;
use disk::{
    block_files::{BlockAppender, MAX_BLOCK_FILE_LEN},
    chainstate::ChainstateReader,
    datadir::FileKind,
    index::{FileInfo, IndexEntry, IndexRows},
    undo::UndoView,
};
use std::{collections::BTreeSet, mem, sync::atomic::AtomicBool};
use wire::{BlockHash, FileNo, Height};

/// Coins, undo data and block index, with changes that are not committed yet.
pub struct Tip<'a> {
    files: &'a Files<'a>,
    pub coins: TipCoins<'a>,
    index: IndexRows<'a>,
    appender: BlockAppender<'a>,
    /// The entries of blocks that were connected since the last commit.
    connected: Vec<IndexEntry>,
    /// The pairs of files to which undo data was appended since the last commit.
    appended: BTreeSet<FileNo>,
    /// Number of blocks whose undo data was appended since the last commit.
    undo_written: u32,
}

impl<'a> Tip<'a> {
    /// The end of the chain of a datadir that is locked for changes; `infos` are the block index's entries
    /// for the files.
    pub fn open(
        files: &'a Files<'a>,
        coins: ChainstateReader<'a>,
        infos: &[FileInfo],
    ) -> Result<Self, Error> {
        let best_block = coins.best_block();
        Ok(Self {
            files,
            coins: CoinsCache::new(StoredCoins(coins), best_block, random_key()?),
            index: IndexRows::open(files.disk, &files.datadir.index_dir())?,
            appender: files.appender(infos.to_vec(), MAX_BLOCK_FILE_LEN),
            connected: Vec::new(),
            appended: BTreeSet::new(),
            undo_written: 0,
        })
    }

    /// Returns the chain up to `fork`, and above it the branch of `best`, which is at `height`.
    ///
    /// # Errors
    /// A damaged block index; [`ErrorKind::Damaged`] if a block of the branch, or its undo data, is not on
    /// disk.
    pub fn branch(
        &self,
        chain: &Chain,
        fork: Height,
        mut best: BlockHash,
        mut height: Height,
    ) -> Result<Chain, Error> {
        let mut branch = Vec::new();
        while height > fork {
            let entry = self.index.entry(&best)?;
            let place = entry.and_then(|entry| {
                let position = BlockPosition::new(entry.file?, entry.data_pos?, Some(entry.undo_pos?));
                Some((position, entry.header.prev))
            });
            let Some((position, prev)) = place else {
                let detail = "another branch has more work, but this block cannot be disconnected, because \
                              it or its undo data is not on disk";
                return Err(Error::damaged(detail)
                    .at_block(height, best)
                    .with_remedies([Remedy::RestoreFiles, Remedy::RebuildChainstate]));
            };
            branch.push((best, position));
            (best, height) = (prev, Height(height.0 - 1));
        }
        branch.reverse();
        Ok(chain.with_branch(fork, &branch))
    }

    /// Disconnects the block at `height` of a chain, which is the best block of the coins.
    ///
    /// # Errors
    /// Damage to the block or its undo data; coins that are not those after the block; any I/O error.
    pub fn disconnect(&mut self, chain: &Chain, height: Height) -> Result<(), Error> {
        let mut buffers = BlockBuffers::default();
        let located = BlockReader::new(chain, self.files).read(height, true, &mut buffers)?;
        let BlockBuffers { block, undo, arena, undo_arena, hashes } = &mut buffers;
        let block = located.parse(block.bytes(), arena)?;
        let (undo, checksum) = split_checksum(undo.bytes());
        hashes.of_block(&block, undo);
        let hash = chain.block(height).hash;
        located.check_hash(hashes.block)?;
        let damaged = |defect| located.damaged(&Damage::Undo(defect));
        if checksum != hashes.undo_checksum {
            return Err(damaged(UndoDefect::Checksum));
        }
        let undo =
            UndoView::parse(undo, undo_arena).map_err(|error| damaged(UndoDefect::Malformed(error)))?;
        let context = ConnectContext {
            params: self.files.params,
            height,
            hash: &hash,
            block: &block,
            txids: &hashes.txids,
            mtp_by_height: chain.median_times(),
            bip34_ancestor: None,
        };
        match disconnect_block(&mut self.coins, &context, &undo) {
            Ok(DisconnectResult::Ok) => Ok(()),
            Ok(DisconnectResult::Unclean) => {
                let detail = "the block cannot be disconnected: the chainstate does not have the coins that \
                              it must have after this block";
                Err(Error::damaged(detail)
                    .at_block(height, hash)
                    .in_file(self.files.datadir.chainstate_dir(), None)
                    .about(Subject::Chainstate))
            }
            Err(DisconnectError::Failed(flaw)) => {
                let mut error = damaged(UndoDefect::Shape);
                error.detail = format!("the undo data is damaged: {flaw}");
                Err(error)
            }
            Err(DisconnectError::Coins(error)) => Err(cache_error(error)),
        }
    }

    /// Records a block that was connected to the coins, and appends its undo data unless it is stored.
    pub fn record(&mut self, block: &ConnectedBlock) -> Result<(), Error> {
        let &ConnectedBlock { height, ref hash, ref prev, ref undo, is_undo_stored, .. } = block;
        let entry = self.index.entry(hash)?;
        let Some((mut entry, file)) = entry.and_then(|entry| Some((entry, entry.file?))) else {
            let detail = "the block index has lost this block while it was read";
            return Err(Error::damaged(detail).at_block(height, *hash).about(Subject::BlockIndex));
        };
        if !is_undo_stored {
            let appended = self.appender.append_undo(file, height, prev, undo).map_err(Error::from);
            entry.undo_pos = Some(appended.map_err(|error| match error.kind {
                // The file has too few bytes: undo data of lower blocks is missing, too.
                ErrorKind::Damaged => error.about_file(FileKind::Rev),
                _ => error,
            })?);
            self.appended.insert(file);
            self.undo_written += 1;
        }
        entry.status = entry.status.connected();
        self.connected.push(entry);
        Ok(())
    }

    /// What the block index must record about each pair of files when all changes are written.
    pub fn infos(&self) -> &[FileInfo] {
        self.appender.infos()
    }

    /// Writes all changes, on up to `threads` threads. When it returns, they are on the medium. Coins of
    /// `staying` bytes stay in memory. Returns the number of blocks whose undo data was written.
    ///
    /// # Errors
    /// Those of [`flush`]. The chainstate is then that of the last commit, or, if only the last sync failed,
    /// of this one.
    pub fn commit(&mut self, threads: usize, staying: usize, interrupt: &AtomicBool) -> Result<u32, Error> {
        self.appender.flush()?;
        let infos = self.appender.infos();
        let info = |&file: &FileNo| Some((file, *infos.get(file.0 as usize)?));
        let changed: Vec<_> = self.appended.iter().filter_map(info).collect();
        self.index.update(&self.connected, &changed)?;
        self.connected.clear();
        self.appended.clear();
        flush(&mut self.coins, threads, staying, interrupt)?;
        Ok(mem::take(&mut self.undo_written))
    }
}
