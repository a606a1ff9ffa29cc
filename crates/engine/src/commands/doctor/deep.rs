//! Reads everything: each block of the chain with its undo data, all tables of the indexes, and all coins.

use super::diagnosis::{ChainstateState, DatadirState, DeepState};
use super::indexes::{FoundIndex, IndexStanding, show_tables};
use api::{
    error::{Error, ErrorKind},
    event::{Event, Watch},
    options::{ChainOptions, Reconsider, ScriptChecks},
    remedy::Remedy,
    stage::Stage,
    subject::Subject,
};
use chain::{
    blocks::{damage::KnownDamage, files::Files},
    blocks_elsewhere::count_elsewhere,
};
use disk::{chainstate::ChainstateReader, node_indexes::check_tables};
use pipeline::{
    job::{
        self, ChainRequest,
        damage_survey::{BlockSurvey, first_damaged},
        memory::affordable_threads,
    },
    stages::{
        finish,
        read::BlockReader,
        undo_survey::{UndoFileCheck, by_file},
        walk::BlockWalk,
    },
};
use std::path::Path;
use wire::Height;

/// Reads blocks, undo data and coins of a datadir, of which the rest is in `found`, where it notes which
/// indexes, or whether the second chainstate, are damaged.
///
/// # Errors
/// [`ErrorKind::Interrupted`]. What else is damaged or cannot be read is in the result.
pub fn read_all(
    files: &Files<'_>,
    options: &ChainOptions,
    found: &mut DatadirState,
    watch: Watch<'_>,
) -> Result<DeepState, Error> {
    if found.lock.is_held() {
        let detail = "another process uses the datadir, and changes what would be read";
        let error = Error::environment(detail).with_remedies([Remedy::EndOtherProgram]);
        return Ok(DeepState::refused(error));
    }
    // Nothing is rebuilt, so no note should say which scripts a rebuild would run.
    let options = &ChainOptions { scripts: ScriptChecks::LeftOut, ..options.clone() };
    let scan = !found.index.state.is_sound();
    // The blocks of a pruned node do not begin with the first: they are not read.
    let read = match !scan && found.index.is_pruned {
        true => Ok(DeepState::default()),
        false => read_blocks(files, options, &found.chainstate, scan, watch),
    };
    Error::check_interrupt(watch.interrupt)?;
    let mut state = read.unwrap_or_else(DeepState::refused);
    watch.sink.event(Event::Started(Stage::Prove));
    read_tables(files, found, watch)?;
    // After an interrupted flush, bitcoind has yet to write the rest of them.
    let is_whole = found.chainstate.state.is_sound() && !found.chainstate.flush_interrupted;
    state.coins = is_whole.then(|| count_coins(files, options, watch));
    Error::check_interrupt(watch.interrupt)?;
    Ok(state)
}

/// Reads all tables of the databases that bitcoind goes on with besides the chainstate and the block index.
fn read_tables(files: &Files<'_>, found: &mut DatadirState, watch: Watch<'_>) -> Result<(), Error> {
    let flaw_of = |dir: &Path| -> Result<Option<Error>, Error> {
        let read = check_tables(files.disk, dir, u64::MAX, show_tables(watch, 1));
        Error::check_interrupt(watch.interrupt)?;
        Ok(read.err().map(Error::from))
    };
    for FoundIndex { kind, standing, .. } in found.indexes.iter_mut().filter(|index| !index.is_broken()) {
        let dir = files.datadir.net_dir().join(kind.database_dir());
        // The one that took its place has a row of its own.
        if !matches!(standing, IndexStanding::Superseded)
            && let Some(error) = flaw_of(&dir)?
        {
            *standing = IndexStanding::of_error(error);
        }
    }
    if found.snapshot.exists && found.snapshot.error.is_none() {
        found.snapshot.error = flaw_of(&files.datadir.snapshot_dir())?;
    }
    Ok(())
}

fn count_coins(
    files: &Files<'_>,
    options: &ChainOptions,
    watch: Watch<'_>,
) -> Result<(u64, [u8; 32]), Error> {
    let reader = ChainstateReader::open(files.disk, &files.datadir.chainstate_dir())?;
    let stats = finish::read_back(&reader, None, affordable_threads(options), watch)?;
    Ok((stats.counts.txouts, stats.hash_serialized_3))
}

/// Reads the blocks of the most-work chain on disk, and those of the chainstate's branch, if that is another,
/// with the undo data of the latter up to the best block.
fn read_blocks(
    files: &Files<'_>,
    options: &ChainOptions,
    chainstate: &ChainstateState,
    scan: bool,
    watch: Watch<'_>,
) -> Result<DeepState, Error> {
    let (best, best_height) = (chainstate.best_block, chainstate.height);
    let read = |end| {
        watch.sink.event(Event::Started(Stage::Plan));
        let request = ChainRequest {
            scan,
            preferred: best,
            end,
            makes_undo: true,
            may_lack_files: true,
            ..ChainRequest::default()
        };
        // bitcoind starts there, whatever is marked as invalid.
        let options = &ChainOptions { reconsider: end.map(|_| Reconsider::All), ..options.clone() };
        let plan = |request| job::plan(files, options, request, watch);
        let (plan, refusal) = match plan(&request) {
            // What is there is read nevertheless.
            Err(error) if error.kind == ErrorKind::Damaged && end.is_none() => {
                let damage = Some(&KnownDamage::default());
                let plan = plan(&ChainRequest { damage, ..request }).map_err(|_| error.clone())?;
                // bitcoind has yet to download blocks below a snapshot.
                (plan, Some(error).filter(|error| !error.is_about(Subject::UnvalidatedSnapshot)))
            }
            planned => (planned?, None),
        };
        let threads = affordable_threads(options);
        let (reader, bytes_total) = (BlockReader::new(&plan.chain, files), plan.block_bytes);
        let walk = &BlockWalk { reader, threads, bytes_total, watch };
        watch.sink.event(Event::Started(Stage::Check));
        let survey = BlockSurvey::read(walk)?;
        Ok::<_, Error>((plan.chain, survey, refusal))
    };
    let (mut chain, BlockSurvey { mut damaged, mut undo }, refusal) = read(None)?;
    let mut hashes: Vec<_> = damaged.iter().map(|(height, _)| (chain.block(*height).hash, *height)).collect();
    let mut blocks = chain.block_count() as u32;
    if let Some((best, height)) = best.zip(best_height)
        && !scan
        && !chain.has(height, &best)
    {
        let (own, survey, _) = read(Some(best))?;
        let is_other = |height: &Height| !chain.has(*height, &own.block(*height).hash);
        blocks += (0..=height.0).map(Height).filter(is_other).count() as u32;
        damaged.extend(survey.damaged.into_iter().filter(|(height, _)| is_other(height)));
        (chain, undo) = (own, survey.undo);
    }
    let last = best_height.unwrap_or(chain.tip_height());
    // A file in which nothing is missing needs no line.
    let has_flaw = |file: &UndoFileCheck| file.missing + file.damaged > 0;
    hashes.sort_unstable();
    Ok(DeepState {
        blocks,
        damaged: damaged.len() as u32,
        elsewhere: if scan { 0 } else { count_elsewhere(files, &hashes, watch.interrupt)? },
        first: first_damaged(damaged.into_iter().map(|(_, error)| error)).0,
        refusal,
        undo: by_file(&chain, &undo, last).into_iter().filter(has_flaw).collect(),
        ..DeepState::default()
    })
}
