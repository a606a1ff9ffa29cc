//! What an error is about.

use crate::remedy::Remedy;

/// What an error may be about, for code that reacts to it: an error can be about several. What a user can do
/// follows from it, by [`Subject::remedies`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// The block index is damaged, or does not belong to the other files.
    BlockIndex,
    /// A block file is damaged, or missing.
    BlockFile,
    /// Blocks, or the files with them, are missing.
    MissingBlocks,
    /// Undo data is damaged or missing.
    UndoData,
    /// The chainstate is damaged or missing, or does not belong to the blocks.
    Chainstate,
    /// The chainstate of a snapshot, beside that of the validated chain.
    SecondChainstate,
    /// bitcoind has not yet validated the blocks below a snapshot, and can.
    UnvalidatedSnapshot,
    /// A disk is full, or would be.
    DiskSpace,
    /// Another process uses the datadir.
    DatadirInUse,
    /// The file system has no locks.
    NoLocks,
    /// The file is missing, and not damaged.
    MissingFile,
    /// The block may be one that was stored and never connected: neither it nor a block above it has undo
    /// data, or a scan took it for the last block of the chain, and the undo data found for it matches a
    /// sibling too.
    ContestedBlock,
}

impl Subject {
    /// What a user can do about it.
    pub const fn remedies(self) -> &'static [Remedy] {
        match self {
            Self::BlockIndex => &[Remedy::RebuildIndex],
            Self::BlockFile => {
                &[Remedy::Repair, Remedy::GiveBlock, Remedy::EndBelowDamage, Remedy::RestoreFile]
            }
            Self::MissingBlocks => &[Remedy::Repair, Remedy::EndBelowDamage, Remedy::RestoreFiles],
            Self::UndoData => &[Remedy::MakeUndo],
            Self::Chainstate => &[Remedy::RebuildChainstate],
            Self::SecondChainstate => &[Remedy::MoveSnapshotAway],
            Self::UnvalidatedSnapshot => &[Remedy::LetBitcoindFinish],
            Self::DiskSpace => &[Remedy::FreeDiskSpace],
            Self::DatadirInUse => &[Remedy::EndOtherProgram],
            Self::NoLocks => &[Remedy::MountWithLocks],
            Self::MissingFile | Self::ContestedBlock => &[],
        }
    }
}
