//! The files that hold the blocks of the chain, and errors about their records.

use crate::blocks::{
    awaited::AwaitedBlocks,
    block_check::{BlockFlaw, ExpectedBlock, may_be_merkle_nodes},
    block_hashes::BlockHashes,
    chain::{Chain, ChainBlock},
    damage::Damage,
};
use api::{error::Error, subject::Subject};
use digest::obfuscation::Obfuscation;
use disk::{
    DiskError,
    blk::BlockRecord,
    block_files::{BlockAppender, BlockFiles, RecordBuffer, RecordFile, used_bytes},
    datadir::{Datadir, FileKind},
    index::{FileInfo, IndexEntry, IndexRows},
    scan::for_each_block,
    xor::{check_block_obfuscation, read_block_obfuscation},
};
use rules::{ChainParams, Violation};
use std::{collections::BTreeMap, io, path::PathBuf};
use vfs::{Disk, During as _, NotRegular, ReadAt};
use wire::{BlockArena, BlockHash, BlockTime, BlockView, ByteOffset, FileNo, Height, ScriptVerifier, Txid};

pub struct Files<'a> {
    pub disk: &'a dyn Disk,
    pub datadir: &'a Datadir,
    pub obfuscation: Obfuscation,
    pub params: &'static ChainParams,
    /// What runs the solutions of blocks, on a signed network.
    pub verifier: Option<&'a dyn ScriptVerifier>,
    /// The blocks that a download stores while a job runs behind it.
    pub awaited: Option<&'a AwaitedBlocks>,
}

/// The buffers in which a thread checks one stored block after another.
pub type CheckBuffers = (RecordBuffer, BlockArena, BlockHashes);

/// Returns the block index's entry for a pair of files, which is added if it is missing.
pub fn info_mut(infos: &mut Vec<FileInfo>, number: FileNo) -> &mut FileInfo {
    let at = number.0 as usize;
    if infos.len() <= at {
        infos.resize(at + 1, FileInfo::default());
    }
    &mut infos[at]
}

/// Reads the key that obfuscates the block files of a datadir, and checks it with about `files_max` of them
/// at most.
///
/// # Errors
/// [`ErrorKind::Damaged`](api::error::ErrorKind::Damaged) if it is not the key of all files that the block
/// index needs; any I/O error.
pub fn obfuscation(
    disk: &dyn Disk,
    datadir: &Datadir,
    params: &ChainParams,
    files_max: usize,
) -> Result<Obfuscation, Error> {
    let (obfuscation, others) = obfuscation_of_some(disk, datadir, params, files_max)?;
    let Some(others) = others else { return Ok(obfuscation) };
    let DiskError::MixedKeys { files, .. } = &others else { return Err(others.into()) };
    let mut are_needed = false;
    let is_needed = |entry: IndexEntry| {
        are_needed |= entry.status.has_data() && entry.file.is_some_and(|file| files.contains(&file));
    };
    let index = IndexRows::open(disk, &datadir.index_dir()).and_then(|rows| rows.stream(is_needed));
    match index {
        // Their blocks were stored again.
        Ok(_) if !are_needed => Ok(obfuscation),
        _ => Err(others.into()),
    }
}

/// Like [`obfuscation`], but returns the error if only some files have other keys, for a caller that looks
/// for the key of each.
pub fn obfuscation_of_some(
    disk: &dyn Disk,
    datadir: &Datadir,
    params: &ChainParams,
    files_max: usize,
) -> Result<(Obfuscation, Option<DiskError>), Error> {
    let read = read_block_obfuscation(disk, &datadir.blocks_dir());
    let key = match &read {
        Ok(key) => Some(*key),
        // The file is too short.
        Err(DiskError::Damaged { .. }) => None,
        Err(_) => return Ok((read?, None)),
    };
    match check_block_obfuscation(disk, datadir, key, &params.genesis_hash, files_max) {
        Err(mixed @ DiskError::MixedKeys { .. }) if read.is_ok() => Ok((read?, Some(mixed))),
        checked => {
            checked?;
            Ok((read?, None))
        }
    }
}

impl Files<'_> {
    pub fn path(&self, kind: FileKind, file: FileNo) -> PathBuf {
        self.datadir.block_file_path(kind, file)
    }

    /// Returns the block of a chain at `height`, and where it is now: it may have been stored since the chain
    /// was chosen.
    ///
    /// # Panics
    /// If `height` is above the tip.
    pub fn block(&self, chain: &Chain, height: Height) -> ChainBlock {
        let block = chain.block(height);
        let awaited = self.awaited.filter(|_| !chain.was_stored(height));
        match awaited.and_then(|awaited| awaited.position(height)) {
            Some((file, data_pos)) => {
                let data_pos = ByteOffset(data_pos.into());
                ChainBlock { file, data_pos, undo_pos: None, ..block }
            }
            None => block,
        }
    }

    /// Syncs the files to which a download has appended blocks since the last call.
    pub fn sync_awaited(&self) -> Result<(), Error> {
        let Some(awaited) = self.awaited else { return Ok(()) };
        self.sync(awaited.take_unsynced().into_iter().map(|file| (FileKind::Blk, file)))
    }

    /// Makes all pairs of files be read from the medium, before a new block index is made from their records:
    /// a killed process may just have written these, and after a sync that failed, only memory has them.
    pub fn sync_pairs(&self) -> Result<(), Error> {
        let pairs = self.datadir.blk_files(self.disk)?.into_iter();
        let pairs = pairs.flat_map(|file| [(FileKind::Blk, file), (FileKind::Rev, file)]);
        self.sync(pairs.clone())?;
        pairs.for_each(|(kind, file)| self.disk.forget_cached(&self.path(kind, file)));
        Ok(())
    }

    /// Syncs those of these files that exist, and their names.
    fn sync(&self, files: impl Iterator<Item = (FileKind, FileNo)>) -> Result<(), Error> {
        for (kind, file) in files {
            let path = self.path(kind, file);
            match self.disk.sync_file(&path) {
                // A download behind which a rebuild runs deletes files whose blocks are settled.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // It is reported when it is read.
                Err(error) if NotRegular::is_cause_of(&error) => {}
                synced => synced.during("sync", &path)?,
            }
        }
        let dir = self.datadir.blocks_dir();
        Ok(self.disk.sync_dir(&dir).during("sync", &dir)?)
    }

    /// Returns the length of a file in bytes; 0 if it is missing.
    pub fn len(&self, kind: FileKind, file: FileNo) -> Result<u64, Error> {
        let path = self.path(kind, file);
        let found = self.disk.metadata(&path).during("look at", &path)?;
        Ok(found.filter(|found| !found.is_dir).map_or(0, |found| found.len))
    }

    /// Opens a file and returns its length.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`](api::error::ErrorKind::Damaged) if it is missing,
    /// [`ErrorKind::Environment`](api::error::ErrorKind::Environment) if it cannot be read.
    pub fn open(&self, kind: FileKind, file: FileNo) -> Result<(Box<dyn ReadAt>, u64), Error> {
        let path = self.path(kind, file);
        let opened = self.disk.open(&path).and_then(|file| file.len().map(|len| (file, len)));
        opened.map_err(|source| Self::not_opened(kind, path, source))
    }

    /// Reads bytes of a file from a position on, without obfuscation.
    ///
    /// # Errors
    /// The same errors as [`Files::open`]; [`ErrorKind::Damaged`](api::error::ErrorKind::Damaged) if the file
    /// ends before them.
    pub fn read(&self, kind: FileKind, file: FileNo, pos: u64, bytes: &mut [u8]) -> Result<(), Error> {
        let (open, _) = self.open(kind, file)?;
        let failed = |source| Error::reading(self.path(kind, file), pos, source);
        open.read_exact_at(bytes, pos).map_err(failed)?;
        self.obfuscation.apply(bytes, pos);
        Ok(())
    }

    /// Returns the length in bytes that the frame before the position `pos` of a record states. Nothing is
    /// checked.
    pub fn record_len(&self, kind: FileKind, file: FileNo, pos: u64) -> Result<u32, Error> {
        let mut len = [0; 4];
        self.read(kind, file, pos.saturating_sub(len.len() as u64), &mut len)?;
        Ok(u32::from_le_bytes(len))
    }

    /// Whether the record at `pos` ends within the first `len` bytes of its file.
    pub fn has_record(&self, kind: FileKind, file: FileNo, pos: u64, len: u64) -> Result<bool, Error> {
        Ok(pos < len && pos + u64::from(self.record_len(kind, file, pos)?) <= len)
    }

    /// Returns which block files have bytes beyond those that the block index's entries for them count as
    /// used, and from which byte on.
    pub fn beyond_use(&self, infos: &[FileInfo]) -> Result<BTreeMap<FileNo, u64>, Error> {
        let mut beyond = BTreeMap::new();
        for number in self.datadir.blk_files(self.disk)? {
            let used = u64::from(used_bytes(infos, FileKind::Blk, number));
            if self.len(FileKind::Blk, number)? > used {
                beyond.insert(number, used);
            }
        }
        Ok(beyond)
    }

    /// Calls `each` for the blocks of a file from a byte on. Returns the number of those of another chain
    /// ([`disk::departed`]), which are left out.
    pub fn each_block(
        &self,
        file: FileNo,
        from: u64,
        each: impl FnMut(&BlockRecord),
    ) -> Result<u32, DiskError> {
        for_each_block(self.disk, self.datadir, self.obfuscation, file, ByteOffset(from), false, each)
    }

    /// Returns what the block index has of a block.
    pub fn index_entry(&self, hash: &BlockHash) -> Result<Option<IndexEntry>, Error> {
        Ok(IndexRows::open(self.disk, &self.datadir.index_dir())?.entry(hash)?)
    }

    /// Returns an appender to the block files. `infos` is what the block index records about them.
    pub fn appender(&self, infos: Vec<FileInfo>, max_file_len: u32) -> BlockAppender<'_> {
        BlockFiles::new(self.disk, self.datadir, self.obfuscation).append_after(infos, max_file_len)
    }

    pub fn open_records(&self, kind: FileKind, file: FileNo) -> Result<RecordFile, Error> {
        let files = BlockFiles::new(self.disk, self.datadir, self.obfuscation);
        files.open(kind, file).map_err(|error| Self::not_opened(kind, error.path, error.source))
    }

    fn not_opened(kind: FileKind, path: PathBuf, source: io::Error) -> Error {
        match source.kind() {
            io::ErrorKind::NotFound => Error::damaged("the file is missing")
                .about(Subject::MissingFile)
                .in_file(path, None)
                .about_file(kind),
            _ => Error::reading(path, 0, source),
        }
    }

    /// Reads a block by itself, and checks that its bytes are those to which its header commits.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`](api::error::ErrorKind::Damaged) if they are not; any I/O error.
    pub fn check_stored(
        &self,
        hash: &BlockHash,
        height: Height,
        file: FileNo,
        data_pos: ByteOffset,
    ) -> Result<(), Error> {
        // All time locks are over then: a broken one would hide damage to witnesses, which is found later.
        let (params, hash, median_time_past_prev) = (self.params, *hash, BlockTime(u32::MAX));
        let expected = &ExpectedBlock { params, height, hash, median_time_past_prev };
        self.violation_in(expected, file, data_pos, &mut CheckBuffers::default()).map(drop)
    }

    /// Like [`Files::check_stored`]. Returns the first rule that the block breaks, of those that need no
    /// other block than the headers below it.
    pub fn violation_in(
        &self,
        expected: &ExpectedBlock,
        file: FileNo,
        data_pos: ByteOffset,
        (record, arena, hashes): &mut CheckBuffers,
    ) -> Result<Option<Violation>, Error> {
        let damaged = |flaw: &str| {
            Error::damaged(format!("the block is damaged: {flaw}"))
                .in_file(self.path(FileKind::Blk, file), Some(data_pos.0))
                .about_file(FileKind::Blk)
        };
        let mut check = || {
            self.open_records(FileKind::Blk, file)?.read(data_pos, record)?;
            let view = arena.parse_first(record.bytes()).map_err(|error| damaged(&error.to_string()))?;
            match expected.check(self.verifier, &view, &[], hashes) {
                Err(BlockFlaw::Invalid(violation)) if !may_be_merkle_nodes(&view) => Ok(Some(violation)),
                Err(_) => Err(damaged("it does not match its header")),
                Ok(_) => Ok(None),
            }
        };
        check().map_err(|error: Error| error.at_block(expected.height, expected.hash))
    }
}

/// A block of the chain and its files, for messages about it.
#[derive(Clone, Copy)]
pub struct LocatedBlock<'a> {
    pub chain: &'a Chain,
    pub files: &'a Files<'a>,
    pub height: Height,
}

impl LocatedBlock<'_> {
    /// Parses the block; ignores what follows it in its record.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`](api::error::ErrorKind::Damaged) if it is malformed.
    pub fn parse<'b>(&self, bytes: &'b [u8], arena: &'b mut BlockArena) -> Result<BlockView<'b>, Error> {
        arena.parse_first(bytes).map_err(|error| self.damaged(&Damage::Block(error)))
    }

    fn expected(&self) -> ExpectedBlock {
        ExpectedBlock::at(self.chain, self.files.params, self.height)
    }

    /// Checks that a computed hash is that of this block of the chain.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`](api::error::ErrorKind::Damaged) if it is not.
    pub fn check_hash(&self, found: BlockHash) -> Result<(), Error> {
        self.expected().check_hash(found).map_err(|damage| self.damaged(&damage))
    }

    /// Parses the block, hashes it, and checks that it is this block of the chain. Returns it with the result
    /// of its rules ([`rules::check_block`]): a broken one is not an error.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`](api::error::ErrorKind::Damaged) if the bytes are not those of this block.
    pub fn check<'b>(
        &self,
        bytes: &'b [u8],
        arena: &'b mut BlockArena,
        hashes: &mut BlockHashes,
    ) -> Result<(BlockView<'b>, Result<u32, Violation>), Error> {
        let block = self.parse(bytes, arena)?;
        let checked = self.check_view(&block, &[], hashes)?;
        Ok((block, checked))
    }

    /// Like [`LocatedBlock::check`], for a block that is already parsed. Its undo data is hashed with it, if
    /// there is any.
    pub fn check_view(
        &self,
        block: &BlockView<'_>,
        undo_data: &[u8],
        hashes: &mut BlockHashes,
    ) -> Result<Result<u32, Violation>, Error> {
        match self.expected().check(self.files.verifier, block, undo_data, hashes) {
            Ok(legacy_sigops) => Ok(Ok(legacy_sigops)),
            Err(BlockFlaw::Damaged(damage)) => Err(self.damaged(&damage)),
            Err(BlockFlaw::Invalid(violation)) => Ok(Err(violation)),
        }
    }

    /// Whether a block that was parsed is this one, as far as that is known without its witnesses.
    pub fn has_txids_of(&self, block: &BlockView<'_>, undo_data: &[u8], hashes: &mut BlockHashes) -> bool {
        self.expected().has_txids_of(block, undo_data, hashes)
    }

    /// Returns the file of the block or its undo data, and the position there.
    pub fn position(&self, kind: FileKind) -> (PathBuf, Option<u64>) {
        let block = self.files.block(self.chain, self.height);
        let pos = match kind {
            FileKind::Blk => Some(block.data_pos),
            FileKind::Rev => block.undo_pos,
        };
        (self.files.path(kind, block.file), pos.map(|pos| pos.0))
    }

    /// The error for a rule that the block breaks; `txids` are those of its transactions.
    pub fn verdict(&self, violation: &Violation, txids: &[Txid]) -> Error {
        let txid = violation.tx.and_then(|tx| txids.get(tx.0 as usize)).copied();
        let (path, offset) = self.position(FileKind::Blk);
        let hash = self.chain.block(self.height).hash;
        Error::violation(violation).at_block(self.height, hash).in_tx(txid).in_file(path, offset)
    }

    pub fn damaged(&self, damage: &Damage) -> Error {
        let (kind, what) = match damage {
            Damage::Undo(_) => (FileKind::Rev, "the undo data is damaged"),
            _ => (FileKind::Blk, "the block is damaged"),
        };
        let (path, offset) = self.position(kind);
        let error = Error::damaged(format!("{what}: {damage}"))
            .at_block(self.height, self.chain.block(self.height).hash)
            .in_file(path, offset)
            .about_file(kind);
        match damage {
            Damage::Block(malformed) => error.caused_by(*malformed),
            Damage::Mutated(violation) => {
                let mut error = error.caused_by(violation.clone());
                error.core = Some(violation.core.clone());
                error
            }
            Damage::OtherBlock(_) | Damage::Changed | Damage::Undo(_) => error,
        }
    }
}
