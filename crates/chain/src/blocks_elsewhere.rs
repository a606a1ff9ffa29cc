//! Takes blocks that a datadir lacks from block files elsewhere: those of another datadir, or of any folder.
//!
//! Nothing vouches for such a file, and nothing needs to: the block index has the header, and the header
//! commits to the rest of the block. Blocks are appended to the last block file, as a download does it, and
//! then the block index is exchanged. After a crash in between, the appended bytes are beyond those in use,
//! where the next run finds them.

use crate::{
    block_writer::{ArrivedBlock, check_arrived},
    blocks::{block_hashes::BlockHashes, damage::KnownDamage, files::Files},
    header_chain::HeaderChain,
    plan::indexes,
    stored_blocks::{DatadirContents, PrunedBlocks, StoredBlocks, write_index},
};
use api::{
    error::{Error, ErrorKind},
    event::{Event, Progress, Watch},
    note::Warning,
    options::{ChainOptions, SetAsideIndexes},
};
use digest::obfuscation::Obfuscation;
use disk::{
    blk::{BlockRecord, BlockScanner},
    block_files::{AppendOptions, BlockAppender, BlockFiles},
    datadir::{BLOCKS, FileKind, file_no},
    xor::{read_block_obfuscation, revealed_key},
};
use std::{
    path::{Path, PathBuf},
    sync::atomic::Ordering,
};
use vfs::During as _;
use wire::{BlockArena, BlockHash, Height};

/// Bytes after which the block index is written.
const SAVE_BYTES: u64 = 2 << 30;

/// What was taken from files elsewhere.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TakenBlocks {
    /// Hashes of the blocks, sorted.
    pub hashes: Vec<BlockHash>,
    /// Their bytes.
    pub bytes: u64,
    /// Height of the last block of the chain below which none is missing.
    pub height: Height,
    /// Number of blocks up to the last one that is stored that are still missing or damaged.
    pub still_missing: u32,
}

/// Stores the blocks of the chain in the block index that are missing or `damage`d, as far as the block files
/// in the folders `sources` have them. A folder is that of the files, or a datadir. What is damaged or
/// foreign there is passed over, and a file that cannot be read is a warning.
///
/// # Errors
/// [`ErrorKind::Usage`] for a folder without block files, or if an index of the node would become wrong; any
/// I/O error of the datadir; [`ErrorKind::Interrupted`], after which the block index has what was stored.
pub fn take(
    files: &Files<'_>,
    options: &ChainOptions,
    sources: &[PathBuf],
    damage: &KnownDamage,
    may_set_aside: &SetAsideIndexes,
    watch: Watch<'_>,
) -> Result<TakenBlocks, Error> {
    let found: Vec<Source> = sources.iter().map(|dir| Source::find(files, dir)).collect::<Result<_, _>>()?;
    let DatadirContents { chain, mut stored, infos, .. } =
        DatadirContents::read(files, PrunedBlocks::Refuse)?;
    stored.forget_damaged(&chain, &damage.blocks);
    let all = || (0..=chain.tip_height().0).map(Height);
    let wanted: Vec<Height> = all().filter(|&height| !stored.has(height)).collect();
    indexes::before_moves(files, |height| chain.hash(height), &wanted, may_set_aside)?
        .apply(files, watch.sink)?;
    let block_files = BlockFiles::new(files.disk, files.datadir, files.obfuscation);
    let max_file_len = options.hooks.block_file_len;
    let append_options = AppendOptions { max_file_len, ..AppendOptions::default() };
    let mut taking = Taking {
        files,
        by_hash: chain.heights_by_hash(),
        chain: &chain,
        stored: &mut stored,
        appender: block_files.append_after(infos, append_options),
        wanted: wanted.len() as u32,
        unsaved: 0,
        taken: TakenBlocks::default(),
        watch,
    };
    let done = found.iter().try_for_each(|source| taking.take_from(source));
    done.and(taking.save())?;
    let mut taken = taking.taken;
    taken.hashes.sort_unstable();
    taken.height = Height(
        all().find(|&height| !stored.has(height)).map_or(chain.tip_height().0, |it| it.0.saturating_sub(1)),
    );
    taken.still_missing = stored.missing().count() as u32;
    Ok(taken)
}

/// A folder with block files.
struct Source {
    /// The files, by number.
    files: Vec<PathBuf>,
    obfuscation: Obfuscation,
}

impl Source {
    /// Finds the files in a folder, in its folder `blocks`, or in that of the network.
    fn find(files: &Files<'_>, dir: &Path) -> Result<Self, Error> {
        let disk = files.disk;
        let name = files.params.network.subdirectory();
        let net_dir = name.map_or_else(|| dir.to_owned(), |name| dir.join(name));
        for folder in [dir.to_owned(), dir.join(BLOCKS), net_dir.join(BLOCKS)] {
            if !disk.exists(&folder).during("look for", &folder)? {
                continue;
            }
            let names = disk.list(&folder).during("list", &folder)?;
            let mut numbered: Vec<_> = names
                .iter()
                .filter_map(|name| Some((file_no(FileKind::Blk, name)?, folder.join(name))))
                .collect();
            numbered.sort_unstable();
            let Some((_, first)) = numbered.first() else { continue };
            let mut obfuscation = read_block_obfuscation(disk, &folder)?;
            if obfuscation.is_zero()
                && let Some(key) = revealed_key(disk, first, files.params.magic, &files.params.genesis_hash)?
            {
                obfuscation = Obfuscation::from_key(key);
            }
            return Ok(Self { files: numbered.into_iter().map(|(_, path)| path).collect(), obfuscation });
        }
        let detail =
            "there are no block files (blk00000.dat and so on) in this folder, nor in its folder blocks";
        Err(Error::new(ErrorKind::Usage, detail).in_file(dir, None))
    }
}

/// The state while blocks are taken.
struct Taking<'a> {
    files: &'a Files<'a>,
    chain: &'a HeaderChain,
    /// The heights of the chain, in the order of the hashes of their blocks.
    by_hash: Vec<Height>,
    stored: &'a mut StoredBlocks,
    appender: BlockAppender<'a>,
    /// Number of blocks that were wanted at first.
    wanted: u32,
    /// Bytes that were stored since the block index was written.
    unsaved: u64,
    taken: TakenBlocks,
    watch: Watch<'a>,
}

impl Taking<'_> {
    fn take_from(&mut self, source: &Source) -> Result<(), Error> {
        for path in &source.files {
            if self.taken.hashes.len() as u32 == self.wanted {
                return Ok(());
            }
            if let Err(error) = self.take_from_file(path, source.obfuscation) {
                if error.file.as_ref() != Some(path) {
                    return Err(error);
                }
                self.watch.sink.event(Event::Warning(Warning::SourceUnreadable { error }));
            }
        }
        Ok(())
    }

    fn take_from_file(&mut self, path: &Path, obfuscation: Obfuscation) -> Result<(), Error> {
        let file = self.files.disk.open(path).during("open for reading", path)?;
        let mut scanner = BlockScanner::new(&*file, path, self.files.params.magic, obfuscation)?;
        let (mut arena, mut hashes) = (BlockArena::default(), BlockHashes::default());
        while let Some(BlockRecord { data_pos, size, header, .. }) = scanner.next_record()? {
            if self.watch.interrupt.load(Ordering::Relaxed) {
                let detail = "interrupted; the blocks that were stored are kept";
                return Err(Error::new(ErrorKind::Interrupted, detail));
            }
            let Some((height, hash)) = self.wanted_block(header.hash()) else { continue };
            let mut bytes = vec![0; size as usize];
            file.read_exact_at(&mut bytes, data_pos.0).during("read", path)?;
            obfuscation.apply(&mut bytes, data_pos.0);
            let median_time_past_prev = self.chain.median_time_before(height);
            let block = ArrivedBlock { height, hash, median_time_past_prev, bytes, coins: None };
            // A damaged copy: the block may be elsewhere too.
            let Ok((time, _)) = check_arrived(self.files.params, &block, &mut arena, &mut hashes) else {
                continue;
            };
            let (file, pos) = self.appender.append_block(height, time, &block.bytes)?;
            self.stored.set(height, file, pos, hashes.txids.len() as u32);
            self.count(hash, block.bytes.len() as u64)?;
        }
        Ok(())
    }

    /// Returns the height of a block that is wanted.
    fn wanted_block(&self, hash: BlockHash) -> Option<(Height, BlockHash)> {
        let at = self.by_hash.binary_search_by_key(&Some(hash), |&height| self.chain.hash(height)).ok()?;
        let height = *self.by_hash.get(at)?;
        (!self.stored.has(height)).then_some((height, hash))
    }

    fn count(&mut self, hash: BlockHash, len: u64) -> Result<(), Error> {
        self.taken.hashes.push(hash);
        self.taken.bytes += len;
        self.unsaved += len;
        self.watch.sink.event(Event::Progress(Progress {
            blocks: self.taken.hashes.len() as u32,
            blocks_total: self.wanted,
            bytes: self.taken.bytes,
            bytes_total: self.taken.bytes,
        }));
        if self.unsaved >= SAVE_BYTES { self.save() } else { Ok(()) }
    }

    /// Writes what is stored to the medium, and then to the block index.
    fn save(&mut self) -> Result<(), Error> {
        if self.unsaved > 0 {
            self.appender.flush()?;
            write_index(self.files, self.chain, self.stored, self.appender.infos(), &[], self.watch.sink)?;
            self.unsaved = 0;
        }
        Ok(())
    }
}
