//! Finds all damaged blocks and undo data at once: reads all blocks of a chain, and checks them as far as
//! that is possible without coins.

use crate::{
    job::{memory::affordable_threads, now, two_chainstates::has_second},
    stages::{
        read::BlockReader,
        undo_survey::{UndoState, UndoSurvey},
        walk::BlockWalk,
    },
};
use api::{
    error::{Error, ErrorKind},
    event::{Event, Watch},
    options::ChainOptions,
    stage::Stage,
    subject::Subject,
};
use chain::{
    blocks::{chain::Chain, damage::KnownDamage, files::Files},
    blocks_elsewhere::count_elsewhere,
    plan::planner::{StaleBlock, all_stored},
};
use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};
use wire::{BlockHash, ByteOffset, Height};

/// Maximum number of damaged blocks that are described; all are counted.
pub const MAX_NAMED_BLOCKS: usize = 5;

/// What is wrong with the blocks of a chain, by height, and the state of their undo data.
pub struct BlockSurvey {
    /// The blocks that are damaged. One that breaks a rule is for a rebuild to report.
    pub damaged: Vec<(Height, Error)>,
    pub undo: UndoSurvey,
}

impl BlockSurvey {
    /// Reads all blocks of a chain that are stored, and their undo data.
    ///
    /// # Errors
    /// Any I/O error that is not about one block; [`ErrorKind::Interrupted`].
    pub fn read(walk: &BlockWalk<'_>) -> Result<Self, Error> {
        let (reader, chain) = (&walk.reader, walk.reader.chain);
        let undo = UndoSurvey::of_records(walk, Height(0))?;
        let damaged = Mutex::new(Vec::new());
        walk.each(0..chain.block_count() as u32, |buffers, (), height| {
            if chain.block(height).data_pos == ByteOffset(0) {
                return Ok(());
            }
            let checked = undo.check_block(reader, buffers, height, |view, hashes| {
                let broken =
                    |violation| Error::violation(&violation).at_block(height, chain.block(height).hash);
                reader.located(height).check_view(view, &[], hashes)?.map(drop).map_err(broken)
            });
            match checked {
                Err(error) if error.kind == ErrorKind::Consensus => Ok(()),
                Err(error) if is_about_block(&error) => {
                    damaged.lock().unwrap_or_else(PoisonError::into_inner).push((height, error));
                    Ok(())
                }
                checked => checked,
            }
        })?;
        Error::check_interrupt(walk.watch.interrupt)?;
        let mut damaged = damaged.into_inner().unwrap_or_else(PoisonError::into_inner);
        damaged.sort_by_key(|(height, _)| *height);
        Ok(Self { damaged, undo })
    }
}

/// Whether an error is about the bytes of one block, and not about the machine.
fn is_about_block(error: &Error) -> bool {
    [ErrorKind::Damaged, ErrorKind::Consensus].contains(&error.kind) || error.is_of_medium()
}

/// Finds what is damaged: in the chain with the most work, and among the stored blocks outside it.
///
/// # Errors
/// Damaged or missing index; any I/O error that is not about one block; [`ErrorKind::Interrupted`].
pub fn find_damage(
    files: &Files<'_>,
    options: &ChainOptions,
    watch: Watch<'_>,
) -> Result<KnownDamage, Error> {
    watch.sink.event(Event::Started(Stage::Plan));
    let scan = options.scan;
    let (chain, stale) = &all_stored(files, scan, options.reconsider, now(), watch.interrupt)?;
    let threads = affordable_threads(options);
    watch.sink.event(Event::Started(Stage::Check));
    let (reader, bytes_total) = (BlockReader::new(chain, files), chain.file_bytes());
    let walk = &BlockWalk { reader, threads, bytes_total, watch };
    let BlockSurvey { damaged: read, undo } = BlockSurvey::read(walk)?;
    let hash = |height: Height| chain.block(height).hash;
    let mut stale_damaged = 0;
    let with_hash = |(height, error)| (height, hash(height), error);
    let mut damaged: Vec<_> = read.into_iter().map(with_hash).collect();
    for block in stale {
        let StaleBlock { hash, height, file, data_pos } = *block;
        match files.check_stored(&hash, height, file, data_pos) {
            Err(error) if is_about_block(&error) => {
                stale_damaged += 1;
                damaged.push((height, hash, error));
            }
            checked => checked?,
        }
    }
    let mut hashes: Vec<_> = damaged.iter().map(|(height, hash, _)| (*hash, *height)).collect();
    hashes.sort_unstable();
    // A scan takes sound copies.
    let elsewhere = if scan { 0 } else { count_elsewhere(files, &hashes, watch.interrupt)? };
    let may_lack_blocks = has_second(files.disk, files.datadir)?;
    Ok(KnownDamage { elsewhere, ..summary(chain, &undo, damaged, stale_damaged, may_lack_blocks) })
}

/// Returns the first errors about damaged blocks, in which a file that does not exist is named once, the
/// number of the others, and that of such files.
pub fn first_damaged(errors: impl Iterator<Item = Error>) -> (Vec<Error>, u32, u32) {
    let mut lost_files = BTreeSet::new();
    let mut first: Vec<Error> = errors
        .filter(|error| !error.is_about(Subject::MissingFile) || lost_files.insert(error.file.clone()))
        .collect();
    let others = first.len().saturating_sub(MAX_NAMED_BLOCKS) as u32;
    first.truncate(MAX_NAMED_BLOCKS);
    (first, others, lost_files.len() as u32)
}

/// What is damaged or missing, all in all. `may_lack_blocks`: connected blocks may be above missing ones, as
/// those of a second chainstate.
fn summary(
    chain: &Chain,
    undo: &UndoSurvey,
    mut damaged: Vec<(Height, BlockHash, Error)>,
    stale_damaged: u32,
    may_lack_blocks: bool,
) -> KnownDamage {
    let blocks_total = chain.block_count() as u32;
    let hash = |height: Height| chain.block(height).hash;
    damaged.sort_by_key(|(height, ..)| *height);
    let has_damaged_undo = |&height: &Height| undo.state(height) == UndoState::Damaged;
    let all = || (0..blocks_total).map(Height);
    let is_stored = |height: &Height| chain.block(*height).data_pos > ByteOffset(0);
    let last_stored = all().rfind(is_stored).unwrap_or_default();
    let lacks_undo = |height: &Height| is_stored(height) && chain.block(*height).undo_pos.is_none();
    let lost = damaged.iter().filter(|(.., error)| error.is_about(Subject::MissingFile)).count() as u32;
    let blocks = damaged.iter().map(|(_, hash, _)| *hash).collect();
    let missing: Vec<_> = (0..last_stored.0).map(Height).filter(|height| !is_stored(height)).collect();
    let gap = missing.first().filter(|_| !may_lack_blocks);
    let lowest = damaged.first().map(|(height, ..)| height).into_iter().chain(gap).min().copied();
    let (first, others, lost_files) = first_damaged(damaged.into_iter().map(|(.., error)| error));
    let mut damage = KnownDamage {
        lost,
        lost_files,
        missing: missing.len() as u32,
        last_stored,
        without_undo: all().skip(1).find(lacks_undo),
        lowest,
        stale: stale_damaged,
        blocks,
        undo: all().filter(has_damaged_undo).map(hash).collect(),
        first,
        others,
        elsewhere: 0,
    };
    damage.blocks.sort_unstable();
    damage.undo.sort_unstable();
    damage
}
