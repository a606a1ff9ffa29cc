//! Chooses the one thing to do next.

use super::advice::Advice;
use super::diagnosis::{ChainstatePosition, DatabaseState, DatadirState, DeepState, LockState};
use super::indexes::IndexStanding;
use api::{error::ErrorKind, remedy::Remedy};
use chain::plan::existing_state::DOWNLOAD_WINDOW;
use disk::{DiskError, datadir::CHAINSTATE, node_indexes::INDEXES_DIR};
use std::path::{Path, PathBuf};
use wire::Height;

/// What the block files are good for when there is no usable block index.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ScanPrecondition {
    /// There are none.
    NoFiles,
    /// Some between the first and the last are missing.
    HasGaps,
    /// The first is missing, or does not have the genesis block, without which a scan ends.
    LacksGenesis,
    /// They are numbered from 0 on.
    Complete,
}

/// What else the advice depends on.
pub struct Circumstances {
    /// The block files.
    pub files: ScanPrecondition,
    /// Whether the genesis block was overwritten, which a scan restores.
    pub has_lost_genesis: bool,
    /// What is in the way of all commands.
    pub obstacle: Option<Advice>,
    /// Whether bitcoind may have block files elsewhere; the directory for them, if that is known.
    pub blocksdir: Option<Option<PathBuf>>,
}

/// Whether this is advised only if nothing else is wrong.
fn is_for_later(advice: &Advice) -> bool {
    match advice {
        Advice::MoveAway { path } => path.ends_with(CHAINSTATE),
        Advice::LookDeeper
        | Advice::MakeUndo
        | Advice::StartWithoutUndo
        | Advice::StartBitcoind
        | Advice::Update
        | Advice::Reindex => true,
        _ => false,
    }
}

/// Advises on a datadir.
pub fn advise(found: &DatadirState, circumstances: &Circumstances) -> Advice {
    match &found.lock {
        LockState::Held(holder) => match &holder.program {
            Some(program) if !program.starts_with("bitcoin") => Advice::Wait,
            _ if found.is_sound() => Advice::LetItRun,
            _ => Advice::StopBitcoind,
        },
        LockState::BlocksHeld(_) => Advice::Wait,
        LockState::Free | LockState::Unsupported(_) | LockState::Unknown => circumstances
            .obstacle
            .clone()
            .or_else(|| of_access(found))
            .or_else(|| of_key(found))
            .or_else(|| of_start(found).filter(|it| !is_for_later(it)))
            .unwrap_or_else(|| of_indexes(found, of_other_files(found, of_content(found, circumstances)))),
    }
}

/// Advises on what to do instead of a command that is refused with this remedy, if a command does that.
pub fn instead_of(refused: &Advice, remedy: Remedy, found: &DatadirState) -> Option<Advice> {
    let advice = match (remedy, refused) {
        (Remedy::MoveSnapshotAway, _) => Advice::MoveSnapshotAway,
        (Remedy::LetBitcoindFinish, _) => Advice::StartBitcoind,
        (Remedy::RebuildIndex, _) => Advice::ReindexByScan,
        (Remedy::Reconsider, _) => {
            let (_, block, _) = found.index.marked_invalid?;
            let rebuilds = matches!(refused, Advice::Reindex | Advice::Reconsider { rebuilds: true, .. });
            Advice::Reconsider { block: Some(block), rebuilds }
        }
        // A repair looks for no blocks above one that is marked.
        (Remedy::Repair, Advice::Reconsider { .. }) => Advice::Reconsider { block: None, rebuilds: false },
        (Remedy::Repair, _) => Advice::Repair,
        _ => return None,
    };
    Some(of_indexes(found, of_other_files(found, advice)))
}

/// What is left to do about indexes if there is nothing else.
fn of_indexes(found: &DatadirState, advice: Advice) -> Advice {
    let broken: Vec<_> = found.indexes.iter().filter(|index| index.is_broken()).collect();
    // A chainstate has the blocks that make them anew.
    let lacks_blocks = found.chainstate.best_block.is_none()
        && found.indexes.iter().any(|index| matches!(index.standing, IndexStanding::LacksBlocks));
    match (advice, &broken[..]) {
        // A rebuild of the blocks that are stored would be refused.
        (Advice::StartBitcoind | Advice::Reindex, _) if lacks_blocks && !found.index.is_pruned => {
            Advice::Sync
        }
        // Its blocks were deleted. No setting wants it.
        (Advice::StartBitcoind, [index, ..]) if found.lacks_blocks_of_indexes() => {
            Advice::MoveAway { path: found.dir.join(INDEXES_DIR).join(&index.name) }
        }
        (Advice::StartBitcoind, [_, ..]) => match found.chainstate.state {
            // There is nothing yet to make them from.
            DatabaseState::Absent => Advice::Sync,
            _ => Advice::MakeIndexes { names: broken.iter().map(|index| index.kind.option()).collect() },
        },
        (Advice::StartBitcoind, []) => of_start(found).unwrap_or(Advice::StartBitcoind),
        (other, _) => other,
    }
}

/// The advice about what keeps bitcoind from starting, other than damaged databases.
fn of_start(found: &DatadirState) -> Option<Advice> {
    found.start.faults.first().map(|fault| fault.advice.clone())
}

/// What keeps this process, or bitcoind, from reading files.
fn of_access(found: &DatadirState) -> Option<Advice> {
    if found.leftovers.has_journal {
        return Some(Advice::FinishReplacement);
    }
    let states = [&found.index.state, &found.chainstate.state];
    let databases = states.into_iter().filter_map(|state| match state {
        DatabaseState::Unreadable(error) => Some(error),
        _ => None,
    });
    let indexes = found.indexes.iter().filter_map(|index| match &index.standing {
        IndexStanding::Unreadable(error) => Some(error),
        _ => None,
    });
    let deep = found.deep.iter().flat_map(|deep| deep.refusal.iter().chain(deep.coins_error()));
    let others = found.key.iter().chain(deep).filter(|error| error.kind == ErrorKind::Environment);
    let foreign = &found.owner.foreign;
    if let Some(error) = databases.chain(indexes).chain(others).next() {
        let is_other = ![0, found.owner.uid].contains(&found.owner.user);
        let is_denied = error.remedies.contains(&Remedy::GrantPermission);
        return Some(match error.file.as_deref().and_then(Path::parent).filter(|_| is_denied) {
            Some(_) if is_other => Advice::RunAs { user: found.owner.uid },
            Some(dir) if foreign.is_empty() => Advice::ChangeOwner { directories: vec![dir.to_owned()] },
            Some(_) => Advice::ChangeOwner { directories: foreign.clone() },
            None if error.needs_bitcoind() => Advice::StartBitcoind,
            None => Advice::CheckDisk,
        });
    }
    (!foreign.is_empty()).then(|| Advice::ChangeOwner { directories: foreign.clone() })
}

fn of_key(found: &DatadirState) -> Option<Advice> {
    let error = found.key.as_ref()?;
    let cause = error.cause.as_ref().and_then(|cause| cause.downcast_ref::<DiskError>());
    Some(match cause {
        Some(DiskError::OtherNetwork { found, .. }) => Advice::ChooseNetwork { network: *found },
        Some(DiskError::OtherSignet { .. }) => Advice::NameChallenge,
        // Beside a second chainstate, no block is taken.
        Some(DiskError::MixedKeys { .. }) if found.snapshot.exists => Advice::MoveSnapshotAway,
        // There, a repair is refused.
        Some(DiskError::MixedKeys { .. }) if found.index.is_pruned => Advice::BitcoindReindex,
        Some(DiskError::MixedKeys { .. }) => Advice::TakeFromFiles { directory: found.blocks_dir.clone() },
        Some(DiskError::WrongKey { key, .. }) => Advice::RestoreKey { key: *key },
        _ => Advice::BitcoindReindex,
    })
}

/// Blocks are taken from files with other names before they are downloaded.
fn of_other_files(found: &DatadirState, advice: Advice) -> Advice {
    let is_usable = found.index.state.is_sound() || matches!(found.index.state, DatabaseState::Absent);
    match advice {
        Advice::Sync | Advice::Repair | Advice::BitcoindReindex | Advice::NameBlocksdir { .. }
            if is_usable && !found.index.is_pruned && !found.blocks.other_names.is_empty() =>
        {
            Advice::TakeFromFiles { directory: found.blocks_dir.clone() }
        }
        other => other,
    }
}

fn of_content(found: &DatadirState, circumstances: &Circumstances) -> Advice {
    let files = circumstances.files;
    let DatadirState { index, blocks, chainstate, .. } = found;
    let has_damaged = found.deep.as_ref().is_some_and(|deep| deep.damaged > 0);
    let is_damaged = !index.state.is_sound() || has_damaged || blocks.lacking() + blocks.beyond_use > 0;
    // Otherwise, a rebuild by a scan would be refused.
    let lacks_blocks = chainstate.position == Some(ChainstatePosition::NotStored)
        || !index.state.is_sound() && found.deep.as_ref().is_some_and(DeepState::lacks_blocks);
    if found.snapshot.exists && (is_damaged || lacks_blocks) || found.snapshot.error.is_some() {
        return Advice::MoveSnapshotAway;
    }
    if index.has_only_genesis {
        return Advice::StartBitcoind;
    }
    // Reading all coins has shown no damage, if it was asked for.
    let is_usable = chainstate.state.is_sound() && found.deep.iter().all(|deep| deep.coins_error().is_none());
    let is_there = !matches!(chainstate.state, DatabaseState::Absent) && !chainstate.flush_interrupted;
    if found.snapshot.exists && !is_usable && is_there {
        return Advice::MoveAway { path: found.dir.join(CHAINSTATE) }; // bitcoind makes it anew.
    }
    if let (Some(dir), ScanPrecondition::NoFiles) = (&circumstances.blocksdir, files)
        && (index.blocks > 0 || !matches!(chainstate.state, DatabaseState::Absent))
    {
        return Advice::NameBlocksdir { directory: dir.clone() };
    }
    match files {
        ScanPrecondition::Complete | ScanPrecondition::HasGaps if lacks_blocks && !index.is_pruned => {
            return Advice::Repair;
        }
        // A repair would begin with a scan, too.
        ScanPrecondition::LacksGenesis if lacks_blocks || chainstate.is_unknown() && blocks.lacking() > 0 => {
            return Advice::BitcoindReindex;
        }
        _ => {}
    }
    if !index.state.is_sound() {
        return match (files, &index.state, &chainstate.state) {
            (ScanPrecondition::Complete, ..) => Advice::ReindexByScan,
            // It begins with a scan, and keeps the chainstate.
            (ScanPrecondition::HasGaps, ..) => Advice::Repair,
            // Unlike bitcoind -reindex, it keeps the chainstate.
            (ScanPrecondition::NoFiles, DatabaseState::Absent, _) => Advice::Sync,
            _ => Advice::BitcoindReindex,
        };
    }
    of_blocks(found, circumstances, is_usable)
}

/// The advice if the block index is sound.
fn of_blocks(found: &DatadirState, circumstances: &Circumstances, is_usable: bool) -> Advice {
    let files = circumstances.files;
    let DatadirState { index, blocks, chainstate, .. } = found;
    if blocks.lacking() > 0 && files == ScanPrecondition::NoFiles {
        return Advice::BitcoindReindex; // `sync` cannot begin without a block file.
    }
    if index.is_pruned {
        let is_whole = blocks.lacking() + blocks.beyond_use == 0;
        let advice = match is_usable && is_whole && !chainstate.is_unknown() {
            true if found.has_start_fault(&Advice::StartWithoutUndo) => Advice::StartWithoutUndo,
            true => Advice::StartBitcoind,
            false => Advice::SyncPruned,
        };
        return of_other_chain(found, is_usable, advice);
    }
    // A scan finds them all.
    let has_damaged = found.deep.as_ref().is_some_and(|deep| deep.damaged > 0);
    let are_elsewhere = found.deep.as_ref().is_some_and(|deep| deep.elsewhere == deep.damaged);
    let are_found = has_damaged && are_elsewhere && blocks.lacking() == 0;
    if (circumstances.has_lost_genesis || are_found) && files == ScanPrecondition::Complete {
        return Advice::ReindexByScan;
    }
    // Stale blocks need no download: an index without them is sufficient.
    if has_damaged || blocks.lacking() > blocks.lost_stale {
        return Advice::Repair;
    }
    if blocks.lacking() > 0 || blocks.beyond_use > 0 {
        return Advice::ReindexByScan;
    }
    of_other_chain(found, is_usable, of_chainstate(found, is_usable))
}

/// What is left to do if the node has left Bitcoin's chain.
fn of_other_chain(found: &DatadirState, is_usable: bool, advice: Advice) -> Advice {
    let (index, has_departed) = (&found.index, found.index.departed > 0);
    match advice {
        // There, bitcoind would connect no six blocks, and can disconnect none.
        Advice::StartWithoutUndo if has_departed || index.left_at.is_some() => {
            return Advice::MoveAway { path: found.dir.join(CHAINSTATE) };
        }
        Advice::StartBitcoind | Advice::Reindex | Advice::ReindexByScan | Advice::SyncPruned => {}
        other => return other,
    }
    let has_left = has_departed && found.chainstate.is_unknown();
    match index.left_at {
        // A download does not replace it: no peer has its best block.
        _ if has_left && index.is_pruned => Advice::MoveAway { path: found.dir.join(CHAINSTATE) },
        _ if has_left => Advice::Reconsider { block: None, rebuilds: true },
        // The blocks for a rebuild were deleted.
        _ if has_departed && index.is_pruned => Advice::Reconsider { block: None, rebuilds: false },
        Some((_, block)) => {
            let block = block.filter(|_| advice != Advice::SyncPruned);
            let rebuilds = block.is_some() && (has_departed || !is_usable);
            Advice::Reconsider { block, rebuilds }
        }
        None if has_departed => Advice::Reindex,
        None => match found.chainstate.marked_invalid.filter(|_| advice == Advice::StartBitcoind) {
            block @ Some(_) => Advice::Reconsider { block, rebuilds: false },
            None => advice,
        },
    }
}

/// The advice for a datadir whose blocks and block index are sound.
fn of_chainstate(found: &DatadirState, is_usable: bool) -> Advice {
    let DatadirState { index, undo, chainstate, .. } = found;
    let is_new = index.stored_height == Height(0);
    let needs_rebuild = match chainstate.position {
        Some(ChainstatePosition::NotInIndex | ChainstatePosition::NotStored) => return Advice::ReindexByScan,
        Some(ChainstatePosition::Behind(blocks)) => blocks > DOWNLOAD_WINDOW && !found.snapshot.exists,
        Some(ChainstatePosition::OnBranch { fork, stored }) => {
            stored.0.saturating_sub(fork.0) > DOWNLOAD_WINDOW && !found.snapshot.exists
        }
        _ => false,
    };
    let is_absent = matches!(chainstate.state, DatabaseState::Absent);
    let lacks_undo = undo.lacking() > 0
        || found.has_start_fault(&Advice::MakeUndo)
        || found.deep.as_ref().is_some_and(DeepState::lacks_undo);
    if found.snapshot.exists && is_absent {
        // bitcoind makes it anew, and checks its last undo data too.
        if lacks_undo { Advice::MakeUndo } else { Advice::StartBitcoind }
    } else if !is_usable && !is_new || needs_rebuild {
        // An interrupted download: the rest of it comes with the rebuild.
        let is_partial = index.header_height.0.saturating_sub(index.stored_height.0) > DOWNLOAD_WINDOW;
        if is_partial && is_absent { Advice::Sync } else { Advice::Reindex }
    } else if lacks_undo {
        Advice::MakeUndo
    } else {
        // A refusal means that the blocks could not be read at all.
        match found.deep.as_ref().filter(|deep| deep.refusal.is_some()) {
            Some(deep) if deep.lacks_blocks() => Advice::Repair,
            Some(_) => Advice::ReindexByScan,
            None => Advice::StartBitcoind,
        }
    }
}
