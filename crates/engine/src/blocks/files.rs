//! The files that hold the blocks of the chain, and errors about their records.

use crate::{
    api::{
        error::{Error, ErrorKind},
        remedy::Remedy,
    },
    blocks::{block_hashes::BlockHashes, chain::Chain, damage::Damage},
};
use digest::obfuscation::Obfuscation;
use disk::{
    block_files::{BlockFiles, RecordError, RecordFile, RecordFlaw},
    datadir::{Datadir, FileKind},
    xor::{check_block_obfuscation, read_block_obfuscation},
};
use rules::{BlockContext, BlockSums, ChainParams, Violation, ViolationClass, check_block};
use std::{io, path::PathBuf};
use vfs::{Disk, During as _, Limit, NotRegular, ReadAt};
use wire::{BlockArena, BlockView, FileNo, Height, Network};

/// What to do if a file of this kind is missing or damaged.
#[must_use]
pub const fn remedies(kind: FileKind) -> [Remedy; 2] {
    [Remedy::RestoreFile, Remedy::BitcoindReindex(Some(kind))]
}

/// Access to the block files of a datadir.
pub struct Files<'a> {
    /// The file system.
    pub disk: &'a dyn Disk,
    /// The datadir.
    pub datadir: &'a Datadir,
    /// The key with which the files are obfuscated.
    pub obfuscation: Obfuscation,
    /// The network, whose magic starts each record.
    pub network: Network,
}

/// Reads the key that obfuscates the block files of a datadir.
///
/// # Errors
/// [`ErrorKind::Damaged`] if it is not the key of these files; any I/O error.
pub fn obfuscation(disk: &dyn Disk, datadir: &Datadir) -> Result<Obfuscation, Error> {
    let obfuscation = read_block_obfuscation(disk, &datadir.blocks_dir())?;
    let genesis = &ChainParams::of(datadir.network()).genesis_hash;
    check_block_obfuscation(disk, datadir, obfuscation, genesis)?;
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
            io::ErrorKind::NotFound => {
                Error::damaged("the file is missing").in_file(path, None).with_remedies(remedies(kind))
            }
            _ => Self::io(path, 0, source),
        }
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
        Error::new(kind, format!("cannot read: {source}"))
            .in_file(path, Some(offset))
            .with_remedies(Limit::of(&source).map(Remedy::RaiseLimit))
            .caused_by(source)
    }
}

impl From<RecordError> for Error {
    fn from(error: RecordError) -> Self {
        let (cause, rebuild_index) = match error.flaw {
            RecordFlaw::Io(source) => return Files::io(error.path, error.offset, source),
            RecordFlaw::StartsBeyondEnd { .. } | RecordFlaw::EndsBeyondEnd { .. } => {
                (": the file is truncated, or the block index belongs to other files", true)
            }
            RecordFlaw::Magic { .. } => ("; the file, xor.dat or the block index is damaged", true),
            _ => ("; the file is damaged, or xor.dat belongs to other files", false),
        };
        Self::damaged(format!("{}{cause}", error.flaw))
            .in_file(error.path, Some(error.offset))
            .with_remedies(remedies(error.kind))
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
        let checked = self.check_view(&block, hashes)?;
        Ok((block, checked))
    }

    /// Like [`LocatedBlock::check`], for a block that is already parsed.
    ///
    /// # Errors
    /// The same errors as [`LocatedBlock::check`].
    pub fn check_view(
        &self,
        block: &BlockView<'_>,
        hashes: &mut BlockHashes,
    ) -> Result<Result<BlockSums, Violation>, Error> {
        hashes.of_block(block, &[]);
        if hashes.block != self.chain.block(self.height).hash {
            return Err(self.damaged(&Damage::OtherBlock(hashes.block)));
        }
        let checked = check_block(&BlockContext {
            params: ChainParams::of(self.files.network),
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
            .with_remedies(remedies(kind));
        match damage {
            Damage::Block(malformed) => error.caused_by(*malformed),
            Damage::Mutated(violation) => error.caused_by(violation.clone()),
            Damage::OtherBlock(_) | Damage::Changed | Damage::Undo(_) => error,
        }
    }
}
