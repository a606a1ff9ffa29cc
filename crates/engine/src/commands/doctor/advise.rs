//! Chooses the one thing to do next.

use super::diagnosis::{Advice, ChainstatePosition, DatabaseState, DatadirState, DeepState, LockState};
use crate::{
    api::{error::Error, remedy::Remedy},
    plan::existing_state::DOWNLOAD_WINDOW,
};
use std::io;
use vfs::FileError;
use wire::Height;

/// What the block files are good for when there is no usable block index.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ScanPrecondition {
    /// There are none.
    NoFiles,
    /// Some between the first and the last are missing.
    HasGaps,
    /// They are numbered from 0 on.
    Complete,
}

/// Advises on a datadir. `key` is the key of the block files, if they reveal that `xor.dat` is wrong.
pub fn advise(found: &DatadirState, files: ScanPrecondition, key: Option<[u8; 8]>) -> Advice {
    match &found.lock {
        LockState::Held(holder) => match &holder.program {
            Some(program) if !program.starts_with("bitcoin") => Advice::Wait,
            _ if found.is_sound() => Advice::LetItRun,
            _ => Advice::StopBitcoind,
        },
        LockState::Free | LockState::Unknown => {
            of_access(found).or_else(|| of_key(found, key)).unwrap_or_else(|| of_content(found, files))
        }
    }
}

/// What keeps this process, or bitcoind, from reading files.
fn of_access(found: &DatadirState) -> Option<Advice> {
    if found.leftovers.has_journal {
        return Some(Advice::FinishReplacement);
    }
    let states = [&found.index.state, &found.chainstate.state];
    let unreadable = states.into_iter().find_map(|state| match state {
        DatabaseState::Unreadable(error) => Some(error),
        _ => None,
    });
    if let Some(error) = unreadable {
        let is_other = ![0, found.owner.uid].contains(&found.owner.user);
        return Some(match is_denied(error) && is_other {
            true => Advice::RunAs(found.owner.uid),
            false => Advice::CheckDisk,
        });
    }
    let foreign = &found.owner.foreign;
    (!foreign.is_empty()).then(|| Advice::ChangeOwner(foreign.clone()))
}

/// Whether an error is a missing permission.
fn is_denied(error: &Error) -> bool {
    let cause = error.cause.as_ref().and_then(|cause| cause.downcast_ref::<FileError>());
    cause.is_some_and(|cause| cause.source.kind() == io::ErrorKind::PermissionDenied)
}

fn of_key(found: &DatadirState, key: Option<[u8; 8]>) -> Option<Advice> {
    let error = found.key.as_ref()?;
    let other = error.remedies.iter().find_map(|remedy| match remedy {
        Remedy::ChooseNetwork(network) => Some(Advice::ChooseNetwork(*network)),
        Remedy::NameChallenge => Some(Advice::NameChallenge),
        _ => None,
    });
    Some(other.or(key.map(Advice::RestoreKey)).unwrap_or(Advice::BitcoindReindex))
}

fn of_content(found: &DatadirState, files: ScanPrecondition) -> Advice {
    let DatadirState { index, blocks, undo, chainstate, .. } = found;
    if !index.state.is_sound() {
        return match (files, &index.state, &chainstate.state) {
            (ScanPrecondition::Complete, ..) => Advice::ReindexByScan,
            (ScanPrecondition::NoFiles, DatabaseState::Absent, DatabaseState::Absent) => Advice::Sync,
            _ => Advice::BitcoindReindex,
        };
    }
    let has_damaged = found.deep.as_ref().is_some_and(|deep| deep.damaged > 0);
    let is_usable = chainstate.state.is_sound() && has_sound_coins(found.deep.as_ref());
    if index.is_pruned {
        return match is_usable && !has_damaged && blocks.lacking() == 0 {
            true => Advice::StartBitcoind,
            false => Advice::BitcoindReindex,
        };
    }
    if blocks.lacking() > 0 && files == ScanPrecondition::NoFiles {
        return Advice::BitcoindReindex;
    }
    // Stale blocks need no download: an index without them is sufficient.
    if has_damaged || blocks.lacking() > blocks.lost_stale {
        return Advice::Repair;
    }
    if blocks.lacking() > 0 {
        return Advice::ReindexByScan;
    }
    if blocks.beyond_use > 0 {
        return Advice::ReindexByScan;
    }
    let is_new = index.stored_height == Height(0);
    let needs_rebuild = match chainstate.position {
        Some(ChainstatePosition::NotInIndex) => return Advice::ReindexByScan,
        Some(ChainstatePosition::Behind(blocks)) => blocks > DOWNLOAD_WINDOW && !found.has_snapshot,
        _ => false,
    };
    let lacks_undo = undo.lacking() > 0 || found.deep.as_ref().is_some_and(DeepState::lacks_undo);
    if found.is_refused_for(Remedy::RebuildIndex) {
        Advice::ReindexByScan
    } else if found.is_refused_for(Remedy::LetBitcoindFinish) {
        Advice::StartBitcoind
    } else if !is_usable && !is_new || needs_rebuild {
        Advice::Reindex
    } else if lacks_undo {
        Advice::MakeUndo
    } else {
        Advice::StartBitcoind
    }
}

/// Whether reading all coins has shown no damage, if it was asked for.
fn has_sound_coins(deep: Option<&DeepState>) -> bool {
    deep.is_none_or(|deep| deep.coins.is_ok())
}
