//! Takes blocks that a datadir lacks from block files elsewhere: those of another datadir, or of any folder,
//! or its own that have another key or name. The key of each block is found in its file.
//!
//! Nothing vouches for such a file, and nothing needs to: the block index has the header, and the header
//! commits to the rest of the block. Blocks of other files are appended to the last block file, as a download
//! does it; those of the datadir's own files stay where they are. Then the block index is exchanged. After a
//! crash in between, the appended bytes are beyond those in use, where the next run finds them.

use crate::{
    block_writer::{BlockOutcome, check_arrived},
    blocks::{block_hashes::BlockHashes, damage::KnownDamage, files::Files},
    header_chain::HeaderChain,
    plan::indexes::{self, SetAside},
    stored_blocks::{DatadirContents, PrunedBlocks, StoredBlocks, write_index},
};
use api::{
    error::{Error, ErrorKind},
    event::{Event, Progress, Watch},
    note::{Note, Warning},
    options::{ChainOptions, SetAsideIndexes},
    source_report::SourceReport,
};
use disk::{
    block_files::BlockAppender,
    datadir::{BLOCKS, FileKind, file_no},
    keyed_search::{KeyedSearch, begins_with_block},
};
use rules::{ChainParams, pow::has_proof_of_work};
use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};
use vfs::{Disk, During as _};
use wire::{BlockArena, BlockHash, BlockTime, Header, Height};

/// Bytes after which the block index is written.
const SAVE_BYTES: u64 = 2 << 30;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TakenBlocks {
    /// Hashes of the blocks, sorted.
    pub hashes: Vec<BlockHash>,
    pub bytes: u64,
    /// Height of the last block of the chain below which none is missing.
    pub height: Height,
    /// Height of the last block that is stored.
    pub last_stored: Height,
    /// Number of blocks up to the last one that is stored that are still missing or damaged.
    pub still_missing: u32,
    pub sources: Vec<SourceReport>,
}

pub struct TakeOptions<'a> {
    pub sources: &'a [Source],
    /// Whether blocks above the known headers are taken, too.
    pub extends: bool,
    /// Whether each byte is searched if a block is still missing in the end: nobody else can be asked for it.
    pub is_thorough: bool,
    /// The time of this machine.
    pub now: BlockTime,
}

/// Stores the blocks of the chain in the block index that are missing or `damage`d, as far as the `sources`
/// have them. What is damaged or foreign there is passed over. A file that cannot be read is a warning; so is
/// a block that breaks a rule: the best chain without it is taken.
///
/// # Errors
/// [`ErrorKind::Usage`] if an index of the node would become wrong; any I/O error of the datadir;
/// [`ErrorKind::Interrupted`], after which the block index has what was stored.
pub fn take(
    files: &Files<'_>,
    options: &ChainOptions,
    how: &TakeOptions<'_>,
    damage: &KnownDamage,
    may_set_aside: &SetAsideIndexes,
    watch: Watch<'_>,
) -> Result<TakenBlocks, Error> {
    let DatadirContents { chain, mut stored, infos, .. } =
        DatadirContents::read(files, PrunedBlocks::Refuse, options.reconsider)?;
    stored.forget_damaged(&chain, &damage.blocks);
    let wanted = lacking(&chain, &stored);
    let above = how.extends.then_some(Height(chain.tip_height().0 + 1));
    let moved: Vec<Height> = wanted.iter().copied().chain(above).collect();
    let aside = indexes::before_moves(files, |height| chain.hash(height), &moved, may_set_aside)?;
    let mut taking = Taking {
        files,
        chain,
        stored,
        appender: files.appender(infos, options.hooks.block_file_len),
        wanted: wanted.len() as u32,
        unknown: how.extends.then(BTreeMap::new),
        left_out: Vec::new(),
        aside,
        unsaved: 0,
        taken: TakenBlocks::default(),
        watch,
    };
    taking.taken.sources = how.sources.iter().map(Source::report).collect();
    let done = taking.correct_places(damage).and_then(|()| taking.take_all(how));
    done.and(taking.save())?;
    let Taking { chain, stored, mut taken, .. } = taking;
    for source in &taken.sources {
        watch.sink.event(Event::Note(Note::ReadSource(source.clone())));
    }
    taken.hashes.sort_unstable();
    let all = || (0..=chain.tip_height().0).map(Height);
    let first_missing = all().find(|&height| !stored.has(height));
    taken.height = first_missing.map_or(chain.tip_height(), |it| Height(it.0.saturating_sub(1)));
    taken.last_stored = all().rfind(|&height| stored.has(height)).unwrap_or_default();
    taken.still_missing = stored.missing().count() as u32;
    Ok(taken)
}

/// The heights of the blocks of the chain that are missing.
fn lacking(chain: &HeaderChain, stored: &StoredBlocks) -> Vec<Height> {
    (0..=chain.tip_height().0).map(Height).filter(|&height| !stored.has(height)).collect()
}

/// Block files, or what may be some.
#[derive(Clone)]
pub struct Source {
    path: PathBuf,
    /// The files, by name.
    files: Vec<PathBuf>,
}

impl Source {
    /// Finds the block files that a path names: a file; or those in a folder, and in its folder `blocks` or
    /// that of the network. Files with other names than bitcoind's are among them if they begin with a block.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] if there are none.
    pub fn find(disk: &dyn Disk, params: &ChainParams, path: &Path) -> Result<Self, Error> {
        let found = disk.metadata(path).during("look for", path)?;
        if found.is_some_and(|found| !found.is_dir) {
            return Ok(Self { path: path.to_owned(), files: vec![path.to_owned()] });
        }
        let mut files = block_files_in(disk, params, path)?;
        let net_dir = params.network.subdirectory().map_or(path.to_owned(), |name| path.join(name));
        for folder in [net_dir.join(BLOCKS), path.join(BLOCKS)] {
            let more = block_files_in(disk, params, &folder)?;
            if !more.is_empty() {
                files.extend(more);
                break;
            }
        }
        if !files.is_empty() {
            return Ok(Self { path: path.to_owned(), files });
        }
        let detail = match found {
            None => "there is no such file or folder".to_owned(),
            Some(_) => format!(
                "there are no block files of {} (blk00000.dat and so on, or others that begin with a block) \
                 in this folder, nor in its folder blocks",
                params.network
            ),
        };
        Err(Error::usage(detail).in_file(path, None))
    }

    fn report(&self) -> SourceReport {
        let (path, files) = (self.path.clone(), self.files.len() as u32);
        SourceReport { path, files, ..SourceReport::default() }
    }
}

/// Returns the files in a folder that have the names of block files, or begin with a block.
fn block_files_in(disk: &dyn Disk, params: &ChainParams, folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let is_dir = |path: &Path| disk.metadata(path).is_ok_and(|found| found.is_some_and(|found| found.is_dir));
    if !is_dir(folder) {
        return Ok(Vec::new());
    }
    let mut names = disk.list(folder).during("list", folder)?;
    names.sort_unstable();
    names.retain(|name| {
        let path = folder.join(name);
        let is_named = file_no(FileKind::Blk, name).is_some();
        // Closing a lock file would end the lock.
        let may_begin = name != ".lock" && !is_dir(&path);
        is_named || may_begin && begins_with_block(disk, &path, params.magic).unwrap_or_default()
    });
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}

struct Taking<'a> {
    files: &'a Files<'a>,
    chain: HeaderChain,
    stored: StoredBlocks,
    appender: BlockAppender<'a>,
    /// Number of blocks that were wanted at first.
    wanted: u32,
    /// Headers of blocks that the chain does not have, if it is to be extended.
    unknown: Option<BTreeMap<BlockHash, Header>>,
    /// Headers that were offered to the chain, or that it had, and that are not in it.
    left_out: Vec<(Header, BlockHash)>,
    /// The indexes that are set aside before the first block is stored.
    aside: SetAside,
    /// Bytes that were stored since the block index was written.
    unsaved: u64,
    taken: TakenBlocks,
    watch: Watch<'a>,
}

impl Taking<'_> {
    fn take_all(&mut self, how: &TakeOptions<'_>) -> Result<(), Error> {
        let sources = how.sources;
        if !self.stored.has(Height(0)) {
            // No source needs to have this block: everybody knows it.
            let genesis = self.files.params.genesis_block();
            self.store(Height(0), self.files.params.genesis.time, &genesis, 1)?;
        }
        self.read_all(sources, false)?;
        // Again if a block is found to be invalid: the best chain without it is another one.
        while self.extend_chain(how.now)? {
            self.read_all(sources, false)?;
        }
        let is_missing = self.stored.missing().next().is_some();
        if how.is_thorough && is_missing { self.read_all(sources, true) } else { Ok(()) }
    }

    fn read_all(&mut self, sources: &[Source], is_thorough: bool) -> Result<(), Error> {
        for (number, source) in sources.iter().enumerate() {
            let used = self.taken.sources.get(number).map_or(0, |before| before.used);
            let mut report = SourceReport { used, ..source.report() };
            for path in &source.files {
                if self.unknown.is_none() && self.taken.hashes.len() as u32 == self.wanted {
                    break;
                }
                let blocks_before = report.blocks;
                if let Err(error) = self.take_from_file(path, is_thorough, &mut report) {
                    if error.file.as_ref() != Some(path) {
                        return Err(error);
                    }
                    self.watch.sink.event(Event::Warning(Warning::SourceUnreadable { error }));
                }
                report.files_read += 1;
                report.files_without_blocks += u32::from(report.blocks == blocks_before);
            }
            if let Some(place) = self.taken.sources.get_mut(number).filter(|_| report.files_read > 0) {
                *place = report;
            }
        }
        Ok(())
    }

    fn take_from_file(
        &mut self,
        path: &Path,
        is_thorough: bool,
        report: &mut SourceReport,
    ) -> Result<(), Error> {
        let file = self.files.disk.open(path).during("open for reading", path)?;
        let mut search = KeyedSearch::new(&*file, path, self.files.params.magic)?;
        search.is_thorough = is_thorough;
        let (mut arena, mut hashes) = (BlockArena::default(), BlockHashes::default());
        while let Some(record) = search.next_record()? {
            if self.watch.interrupt.load(Ordering::Relaxed) {
                let detail = "interrupted; the blocks that were stored are kept";
                return Err(Error::new(ErrorKind::Interrupted, detail));
            }
            if search.is_departed(&record)? {
                report.departed += 1;
                continue;
            }
            report.blocks += 1;
            let hash = record.header.hash();
            let Some(height) = self.chain.height_of(&hash) else {
                if has_proof_of_work(self.files.params, &hash, record.header.bits) {
                    self.unknown.iter_mut().for_each(|unknown| unknown.extend([(hash, record.header)]));
                }
                continue;
            };
            if self.stored.has(height) {
                continue;
            }
            let Some(bytes) = search.read_block(&record, &mut arena)? else { continue };
            let expected = self.chain.expected(height, hash);
            match check_arrived(&expected, self.files.verifier, &bytes, &mut arena, &mut hashes) {
                Ok((time, _)) => {
                    self.store(height, time, &bytes, hashes.txids.len() as u32)?;
                    report.used += 1;
                }
                Err(BlockOutcome::Invalid(violation)) => {
                    let error = Error::violation(&violation).at_block(height, hash);
                    self.watch.sink.event(Event::Warning(Warning::InvalidBlock { hash, error }));
                    self.chain.invalidate(height);
                    self.stored.truncate(self.chain.tip_height());
                    // The block index may have it, and gets the mark.
                    self.unsaved += 1;
                }
                // A damaged copy: the block may be elsewhere too.
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Adds the headers of blocks that were found above the chain. Blocks of the datadir that they reach stay
    /// where they are. Returns whether there are any.
    fn extend_chain(&mut self, now: BlockTime) -> Result<bool, Error> {
        let (before, unknown) = (self.chain.work(), self.unknown.take().unwrap_or_default());
        self.left_out.extend(unknown.into_iter().map(|(hash, header)| (header, hash)));
        self.stored.truncate(self.chain.add_found(&mut self.left_out, now));
        self.left_out.retain(|(_, hash)| self.chain.height_of(hash).is_none());
        if self.chain.work() == before {
            return Ok(false);
        }
        self.find_in_place()?;
        self.wanted = (self.taken.hashes.len() + lacking(&self.chain, &self.stored).len()) as u32;
        Ok(true)
    }

    /// Takes damaged blocks that lie sound elsewhere in the datadir's own files from there, without storing
    /// them again: with the block index of another node, that is the whole chain.
    fn correct_places(&mut self, damage: &KnownDamage) -> Result<(), Error> {
        if damage.elsewhere == 0 {
            return Ok(());
        }
        for height in self.find_in_place()? {
            self.taken.hashes.extend(self.chain.hash(height));
            if let Some((file, pos)) = self.stored.place(height) {
                self.taken.bytes += u64::from(self.files.record_len(FileKind::Blk, file, pos.0)?);
            }
        }
        Ok(())
    }

    /// Finds blocks of the chain that are missing in the datadir's own files, where they stay. Returns their
    /// heights.
    fn find_in_place(&mut self) -> Result<Vec<Height>, Error> {
        let (mut found, infos) = (lacking(&self.chain, &self.stored), self.appender.infos_mut());
        if found.is_empty() {
            return Ok(found);
        }
        for (number, from) in self.files.beyond_use(&[])? {
            Error::check_interrupt(self.watch.interrupt)?;
            let (path, part) = (self.files.path(FileKind::Blk, number), BTreeMap::from([(number, from)]));
            match self.stored.find_beyond(self.files, &self.chain, infos, &part) {
                // What cannot be read is damaged, too.
                Err(error) if error.file.as_ref() != Some(&path) => return Err(error),
                _ => {}
            }
        }
        found.retain(|&height| self.stored.has(height));
        if !found.is_empty() {
            mem::take(&mut self.aside).apply(self.files, self.watch.sink)?;
            // The block index does not place them there.
            self.unsaved += 1;
        }
        Ok(found)
    }

    fn store(&mut self, height: Height, time: BlockTime, bytes: &[u8], tx_count: u32) -> Result<(), Error> {
        mem::take(&mut self.aside).apply(self.files, self.watch.sink)?;
        let (file, pos) = self.appender.append_block(height, time, bytes)?;
        self.stored.set(height, file, pos, tx_count);
        self.taken.hashes.extend(self.chain.hash(height));
        self.taken.bytes += bytes.len() as u64;
        self.unsaved += bytes.len() as u64;
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
            write_index(self.files, &self.chain, &self.stored, self.appender.infos(), self.watch.sink)?;
            self.unsaved = 0;
        }
        Ok(())
    }
}

/// Counts the damaged blocks that lie sound at other places in the block files: bytes were inserted or lost
/// in front of them, or a false frame. `damaged` are sorted by hash.
pub fn count_elsewhere(
    files: &Files<'_>,
    damaged: &[(BlockHash, Height)],
    interrupt: &AtomicBool,
) -> Result<u32, Error> {
    let mut found = BTreeSet::new();
    for number in if damaged.is_empty() { Vec::new() } else { files.datadir.blk_files(files.disk)? } {
        Error::check_interrupt(interrupt)?;
        let mut candidates = Vec::new();
        // A file that cannot be read is passed over.
        let _ = files.each_block(number, 0, |record| {
            let at = damaged.binary_search_by_key(&record.hash, |(hash, _)| *hash);
            candidates.extend(at.ok().filter(|_| record.is_readable).map(|at| (at, record.data_pos)));
        });
        for (at, data_pos) in candidates {
            let Some((hash, height)) = damaged.get(at) else { continue };
            if !found.contains(&at) && files.check_stored(hash, *height, number, data_pos).is_ok() {
                found.insert(at);
            }
        }
    }
    Ok(found.len() as u32)
}
