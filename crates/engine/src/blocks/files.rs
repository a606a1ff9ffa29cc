//! The files that hold the blocks of the chain, and errors about their records.

use crate::{
    api::{
        error::{Error, ErrorKind, io_text},
        remedy::Remedy,
    },
    blocks::{block_hashes::BlockHashes, chain::Chain, damage::Damage},
};
use digest::obfuscation::Obfuscation;
use disk::{
    block_files::{BlockFiles, RecordBuffer, RecordError, RecordFile, RecordFlaw},
    datadir::{Datadir, FileKind},
    xor::{check_block_obfuscation, read_block_obfuscation},
};
use rules::{BlockContext, BlockSums, ChainParams, Violation, ViolationClass, check_block};
use std::{io, path::PathBuf};
use vfs::{Disk, During as _, Limit, NotRegular, ReadAt};
use wire::{BlockArena, BlockHash, BlockView, ByteOffset, FileNo, Height, Txid};

/// Access to the block files of a datadir.
pub struct Files<'a> {
    /// The file system.
    pub disk: &'a dyn Disk,
    /// The datadir.
    pub datadir: &'a Datadir,
    /// The key with which the files are obfuscated.
    pub obfuscation: Obfuscation,
    /// The parameters of the chain.
    pub params: &'static ChainParams,
}

/// Reads the key that obfuscates the block files of a datadir.
///
/// # Errors
/// [`ErrorKind::Damaged`] if it is not the key of these files; any I/O error.
pub fn obfuscation(disk: &dyn Disk, datadir: &Datadir, params: &ChainParams) -> Result<Obfuscation, Error> {
    let obfuscation = read_block_obfuscation(disk, &datadir.blocks_dir())?;
    check_block_obfuscation(disk, datadir, obfuscation, &params.genesis_hash)?;
    Ok(obfuscation)
}

impl Files<'_> {
    /// Path of a file.
    #[must_use]
    pub fn path(&self, kind: FileKind, file: FileNo) -> PathBuf {
        self.datadir.block_file_path(kind, file)
    }

    /// Returns the length of a file in bytes; 0 if it is missing.
    ///
    /// # Errors
    /// Any I/O error.
    pub fn len(&self, kind: FileKind, file: FileNo) -> Result<u64, Error> {
        let path = self.path(kind, file);
        let found = self.disk.metadata(&path).during("look at", &path)?;
        Ok(found.filter(|found| !found.is_dir).map_or(0, |found| found.len))
    }

    /// Opens a file and returns its length.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] if it is missing, [`ErrorKind::Environment`] if it cannot be read.
    pub fn open(&self, kind: FileKind, file: FileNo) -> Result<(Box<dyn ReadAt>, u64), Error> {
        let path = self.path(kind, file);
        let opened = self.disk.open(&path).and_then(|file| file.len().map(|len| (file, len)));
        opened.map_err(|source| Self::not_opened(kind, path, source))
    }

    /// Opens a file for reading records.
    ///
    /// # Errors
    /// The same errors as [`Files::open`].
    pub fn open_records(&self, kind: FileKind, file: FileNo) -> Result<RecordFile, Error> {
        let files = BlockFiles::new(self.disk, self.datadir, self.obfuscation);
        files.open(kind, file).map_err(|error| Self::not_opened(kind, error.path, error.source))
    }

    fn not_opened(kind: FileKind, path: PathBuf, source: io::Error) -> Error {
        match source.kind() {
            io::ErrorKind::NotFound => Error::damaged("the file is missing")
                .missing()
                .in_file(path, None)
                .with_remedies(Remedy::of_file(kind).iter().copied()),
            _ => Self::io(path, 0, source),
        }
    }

    /// Reads a block by itself, and checks that its bytes are those to which its header commits.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] if they are not; any I/O error.
    pub fn check_stored(
        &self,
        hash: &BlockHash,
        height: Height,
        (file, data_pos): (FileNo, ByteOffset),
    ) -> Result<(), Error> {
        let (mut record, mut arena, mut hashes) = <(RecordBuffer, BlockArena, BlockHashes)>::default();
        let damaged = |flaw: &str| {
            Error::damaged(format!("the block is damaged: {flaw}"))
                .in_file(self.path(FileKind::Blk, file), Some(data_pos.0))
                .with_remedies(Remedy::of_file(FileKind::Blk).iter().copied())
        };
        let mut check = || {
            self.open_records(FileKind::Blk, file)?.read(data_pos, &mut record)?;
            let view = arena.parse_first(record.bytes()).map_err(|error| damaged(&error.to_string()))?;
            hashes.of_block(&view, &[]);
            let checked = check_block(&BlockContext {
                params: self.params,
                height,
                block: &view,
                txids: &hashes.txids,
                wtxids: &hashes.wtxids,
                // It matters only for rules that do not matter here.
                median_time_past_prev: view.header().time,
            });
            let is_mutated = checked.is_err_and(|broken| broken.rule.class == ViolationClass::Mutated);
            match is_mutated || hashes.block != *hash {
                true => Err(damaged("it does not match its header")),
                false => Ok(()),
            }
        };
        check().map_err(|error: Error| error.at_block(height, *hash))
    }

    /// Converts an I/O error while reading: a file that ends early, or that is not a regular file, is
    /// damaged; anything else is an error of the environment.
    #[must_use]
    pub fn io(path: PathBuf, offset: u64, source: io::Error) -> Error {
        let kind = match source.kind() {
            io::ErrorKind::UnexpectedEof => ErrorKind::Damaged,
            _ if NotRegular::is_cause_of(&source) => ErrorKind::Damaged,
            _ => ErrorKind::Environment,
        };
        Error::new(kind, format!("cannot read: {}", io_text(&source)))
            .in_file(path, Some(offset))
            .with_remedies(Limit::of(&source).map(Remedy::RaiseLimit))
            .caused_by(source)
    }
}

impl From<RecordError> for Error {
    fn from(error: RecordError) -> Self {
        let (cause, rebuild_index) = match error.flaw {
            RecordFlaw::Io(source) => {
                let kind = error.kind;
                let error = Files::io(error.path, error.offset, source);
                let helps = if error.is_of_medium() { Remedy::of_file(kind) } else { &[] };
                return error.with_remedies(helps.iter().copied());
            }
            RecordFlaw::StartsBeyondEnd { .. } | RecordFlaw::EndsBeyondEnd { .. } => {
                (": the file is truncated, or the block index belongs to other files", true)
            }
            RecordFlaw::Magic { .. } => {
                ("; the file or the block index is damaged, or blocks/xor.dat is missing or wrong", true)
            }
            _ => ("; the file is damaged, or xor.dat belongs to other files", false),
        };
        Self::damaged(format!("{}{cause}", error.flaw))
            .in_file(error.path, Some(error.offset))
            .with_remedies(Remedy::of_file(error.kind).iter().copied())
            .with_remedies(rebuild_index.then_some(Remedy::RebuildIndex))
    }
}

/// A block of the chain and its files, for messages about it.
#[derive(Clone, Copy)]
pub struct LocatedBlock<'a> {
    /// The chain.
    pub chain: &'a Chain,
    /// Its files.
    pub files: &'a Files<'a>,
    /// The block's height.
    pub height: Height,
}

impl LocatedBlock<'_> {
    /// Parses the block, hashes it, and checks that it is this block of the chain. Returns it with the result
    /// of [`check_block`], which is not an error if a rule is broken.
    ///
    /// # Errors
    /// [`ErrorKind::Damaged`] if the bytes are not those of this block.
    pub fn check<'b>(
        &self,
        bytes: &'b [u8],
        arena: &'b mut BlockArena,
        hashes: &mut BlockHashes,
    ) -> Result<(BlockView<'b>, Result<BlockSums, Violation>), Error> {
        let block = arena.parse_first(bytes).map_err(|error| self.damaged(&Damage::Block(error)))?;
        let checked = self.check_view(&block, &[], hashes)?;
        Ok((block, checked))
    }

    /// Like [`LocatedBlock::check`], for a block that is already parsed. Its undo data is hashed with it, if
    /// there is any.
    ///
    /// # Errors
    /// The same errors as [`LocatedBlock::check`].
    pub fn check_view(
        &self,
        block: &BlockView<'_>,
        undo_data: &[u8],
        hashes: &mut BlockHashes,
    ) -> Result<Result<BlockSums, Violation>, Error> {
        hashes.of_block(block, undo_data);
        if hashes.block != self.chain.block(self.height).hash {
            return Err(self.damaged(&Damage::OtherBlock(hashes.block)));
        }
        let checked = check_block(&BlockContext {
            params: self.files.params,
            height: self.height,
            block,
            txids: &hashes.txids,
            wtxids: &hashes.wtxids,
            median_time_past_prev: self.chain.median_time_before(self.height),
        });
        match checked {
            Err(violation) if violation.rule.class == ViolationClass::Mutated => {
                Err(self.damaged(&Damage::Mutated(violation)))
            }
            checked => Ok(checked),
        }
    }

    /// Returns the file of the block or its undo data, and the position there.
    #[must_use]
    pub fn position(&self, kind: FileKind) -> (PathBuf, Option<u64>) {
        let block = self.chain.block(self.height);
        let pos = match kind {
            FileKind::Blk => Some(block.data_pos),
            FileKind::Rev => block.undo_pos,
        };
        (self.files.path(kind, block.file), pos.map(|pos| pos.0))
    }

    /// The error for a rule that the block breaks; `txids` are those of its transactions.
    #[must_use]
    pub fn verdict(&self, violation: &Violation, txids: &[Txid]) -> Error {
        let txid = violation.tx.and_then(|tx| txids.get(tx.0 as usize)).copied();
        let (path, offset) = self.position(FileKind::Blk);
        let hash = self.chain.block(self.height).hash;
        Error::violation(violation).at_block(self.height, hash).in_tx(txid).in_file(path, offset)
    }

    /// The error for damage to the block or its undo data.
    #[must_use]
    pub fn damaged(&self, damage: &Damage) -> Error {
        let (kind, flaw) = match damage {
            Damage::Block(error) => (FileKind::Blk, error.to_string()),
            Damage::OtherBlock(found) => {
                let flaw = format!(
                    "the file contains another block here, {found}: the index may belong to other files"
                );
                (FileKind::Blk, flaw)
            }
            Damage::Mutated(violation) => {
                let flaw = format!("it does not match its header ({}: {})", violation.core, violation.detail);
                (FileKind::Blk, flaw)
            }
            Damage::Changed => {
                (FileKind::Blk, "it is not what this run has read before; check disk and memory".to_owned())
            }
            Damage::Undo(defect) => (FileKind::Rev, defect.to_string()),
        };
        let what = match kind {
            FileKind::Blk => "the block is damaged",
            FileKind::Rev => "the undo data is damaged",
        };
        let (path, offset) = self.position(kind);
        let error = Error::damaged(format!("{what}: {flaw}"))
            .at_block(self.height, self.chain.block(self.height).hash)
            .in_file(path, offset)
            .with_remedies(Remedy::of_file(kind).iter().copied());
        match damage {
            Damage::Block(malformed) => error.caused_by(*malformed),
            Damage::Mutated(violation) => error.caused_by(violation.clone()),
            Damage::OtherBlock(_) | Damage::Changed | Damage::Undo(_) => error,
        }
    }
}
