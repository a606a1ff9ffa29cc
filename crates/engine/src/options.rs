//! What a caller asks for.

use crate::{memory, stages::finish::RANGE_BYTES};
use coins::aggregate::AggregateKind;
use disk::hints::HintFormat;
use rules::ChainParams;
use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
    time::Duration,
};
use wire::{BlockHash, Height, Network, ScriptVerifier};

/// How spends are matched with coins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Matching {
    /// In any order, on all cores; what cannot be proven so is left to the other.
    Parallel,
    /// In order, on one thread, with real coins.
    Sequential,
}

impl Matching {
    /// Its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Parallel => "parallel",
            Self::Sequential => "sequential",
        }
    }
}

/// Below which block scripts are taken for valid (Core `-assumevalid`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AssumeValid {
    /// The block that Core's release names for the network.
    Default,
    /// None: all scripts are run.
    Nothing,
    /// This one, under Core's conditions.
    Block(BlockHash),
}

impl AssumeValid {
    pub(crate) fn hash(self, params: &ChainParams) -> Option<BlockHash> {
        match self {
            Self::Default => params.assume_valid,
            Self::Nothing => None,
            Self::Block(hash) => Some(hash),
        }
    }
}

/// How often the state is saved if nobody says otherwise.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(60);

/// A run by hints (SwiftSync).
#[derive(Clone, Debug)]
pub struct HintOptions {
    /// The hint file.
    pub file: PathBuf,
    /// Its format, if the file itself could be read as several.
    pub format: Option<HintFormat>,
    /// What the sum is made of.
    pub aggregate: AggregateKind,
    /// Do without undo data below the hints' last block. Rules of spends are then not checked there: the
    /// chain is trusted to be valid (assumevalid), and the sum proves which coins it leaves.
    pub without_undo: bool,
    /// If the hints turn out to be wrong, name the first wrong one and rebuild without them.
    pub on_failure_join: bool,
}

/// What to rebuild, from what, into what.
#[derive(Clone, Debug)]
pub struct ReindexOptions {
    /// Core's data directory.
    pub datadir: PathBuf,
    /// The network.
    pub network: Network,
    /// Worker threads, besides the one that reads.
    pub threads: NonZeroUsize,
    /// Last block; nothing for the last one on disk.
    pub stop_at_height: Option<Height>,
    /// Where the chainstate goes, if not into the datadir itself.
    pub output: Option<PathBuf>,
    /// Find blocks by scanning their files, and write a new block index.
    pub scan: bool,
    /// What to begin with: anything but [`Matching::Parallel`] is for tests and comparisons.
    pub matching: Matching,
    /// Who runs scripts: room `script` has Bitcoin Core's own code. Nobody: scripts are not checked.
    pub scripts: Option<&'static dyn ScriptVerifier>,
    /// Which scripts need not be run.
    pub assume_valid: AssumeValid,
    /// Hints to go by.
    pub hints: Option<HintOptions>,
    /// Most bytes of memory for the whole process; what does not fit goes to the work directory. Without
    /// effect below [`crate::MIN_MEMORY`].
    pub memory: u64,
    /// Bytes of open coins and spends that are held in memory, if not by the budget: for tests.
    pub join_bytes: Option<usize>,
    /// Where temporary files go, if not beside the new chainstate. A folder of our own is made in it.
    pub work_dir: Option<PathBuf>,
    /// Forget what an interrupted run has left.
    pub restart: bool,
    /// Replace a chainstate, or a block index, that knows more blocks than the new one will.
    pub accept_lower_tip: bool,
    /// Keep what is replaced, as `chainstate.old` and, with a scan, `blocks/index.old`.
    pub keep_old: bool,
    /// How often at most the state is saved, so that an interrupted run can go on from there; seldom enough
    /// that it takes little of the time, unless this is zero: then after each few blocks.
    pub checkpoint_interval: Duration,
    /// At most about so many bytes of rows go into one range of the new chainstate's tables.
    pub range_bytes: u64,
    /// The new chainstate's obfuscation key; nothing to draw one from the system.
    pub obfuscation_key: Option<[u8; 8]>,
}

impl ReindexOptions {
    /// The options of a plain run on one thread.
    #[must_use]
    pub fn new(datadir: &Path, network: Network) -> Self {
        Self {
            datadir: datadir.to_owned(),
            network,
            threads: NonZeroUsize::MIN,
            stop_at_height: None,
            output: None,
            scan: false,
            scripts: None,
            assume_valid: AssumeValid::Default,
            matching: Matching::Parallel,
            hints: None,
            memory: memory::default_memory(),
            join_bytes: None,
            work_dir: None,
            restart: false,
            accept_lower_tip: false,
            keep_old: false,
            checkpoint_interval: CHECKPOINT_INTERVAL,
            range_bytes: RANGE_BYTES,
            obfuscation_key: None,
        }
    }
}
