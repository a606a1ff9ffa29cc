//! Options of the commands: each contains only what its command uses.

use crate::{
    block_observer::BlockObserver,
    json::{JsonSchema, Serialize},
    machine,
};
use ::hints::HintFormat;
use coins::aggregate::AggregateKind;
use disk::{
    block_files::MAX_BLOCK_FILE_LEN, datadir::Location, node_indexes::IndexKind, utxo_tree::CHUNK_LEN,
};
use rules::ChainParams;
use std::{
    borrow::Cow,
    fmt::Debug,
    io::{self, Read},
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicU64},
    time::{Duration, Instant},
};
use wire::{BlockHash, Height, Network, ScriptVerifier};

/// Approximate bytes of rows in one range: Core's tables have at most 32 MiB, and index and filter take some
/// of it.
pub const RANGE_BYTES: u64 = 28 << 20;

/// Maximum memory in bytes of downloaded blocks that wait in it for the rebuild.
pub const KEPT_BYTES_MAX: u64 = 128 << 20;

wire::named! {
/// How spends are matched with coins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Matching {
    /// In any order, on all cores; what this cannot prove is left to [`Matching::Sequential`].
    Parallel = "parallel",
    /// In order, on one thread, with real coins.
    Sequential = "sequential",
    /// In order, with a cache of coins over a database ([`Engine::Cache`]).
    Cache = "cache",
    /// As in [`Matching::Parallel`] above the blocks for which hints are used; in those, by a sum.
    Swiftsync = "swiftsync",
}
}

wire::named! {
/// How a rebuild finds the coins that are spent. The result is the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Engine: "engine" {
    /// Blocks in any order, on all cores: creations and spends are joined ([`Matching::Parallel`]).
    #[default]
    Join = "join",
    /// Blocks in order, as Bitcoin Core connects them: a cache of coins over a database.
    Cache = "cache",
}
}

/// The block up to which scripts are assumed to be valid (Core `-assumevalid`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AssumeValid {
    /// The block that Core's release names for the network.
    Default,
    /// No block: all scripts are run.
    Off,
    /// This block, under Core's conditions.
    Block(BlockHash),
    /// As by default, and above that the blocks whose scripts the datadir's block index marks as checked,
    /// from the lowest block on without a gap. The writer of the index is trusted. Not with a scan.
    Checked,
}

impl AssumeValid {
    /// Returns the hash of the assumed-valid block; `None` if all scripts are run.
    pub fn hash(self, params: &ChainParams) -> Option<BlockHash> {
        match self {
            Self::Default | Self::Checked => params.assume_valid.map(|(_, hash)| hash),
            Self::Off => None,
            Self::Block(hash) => Some(hash),
        }
    }
}

/// Which marks of invalid blocks in the block index are not believed: such blocks are checked like all
/// others, and lose the mark if they are valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reconsider {
    /// All marks.
    All,
    /// Those of this block, its ancestors and its descendants (Core `reconsiderblock`).
    Block(BlockHash),
}

/// Whether scripts are checked, and by what. There is no default: a caller who leaves them out says so.
#[derive(Clone, Debug)]
pub enum ScriptChecks {
    /// This runs them, above the assumed-valid block; crate `script` has Bitcoin Core's own code.
    By(Arc<dyn ScriptVerifier>),
    /// No script is run: a block whose signatures are false is accepted.
    LeftOut,
}

impl ScriptChecks {
    /// What runs scripts; `None` if they are left out.
    pub fn verifier(&self) -> Option<&dyn ScriptVerifier> {
        match self {
            Self::By(verifier) => Some(&**verifier),
            Self::LeftOut => None,
        }
    }

    /// Whether scripts are checked.
    pub const fn are_run(&self) -> bool {
        matches!(self, Self::By(_))
    }
}

/// Default interval between checkpoints.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(60);

/// Number of last blocks that have undo data after a rebuild with hints that makes undo data: as many as Core
/// keeps when it prunes (`MIN_BLOCKS_TO_KEEP`).
const MIN_UNDO_BLOCKS: u32 = 288;

/// A file or a folder on another machine. The engine opens no connections but those to peers: the caller
/// does.
pub trait Remote: Debug + Send + Sync {
    /// Its name in messages: a URL.
    fn name(&self) -> &str;

    /// Asks for the file with this name in the folder, or for the file itself (an empty name), from a byte
    /// on. After an interrupt, nobody waits for the thread that calls this.
    ///
    /// # Errors
    /// Any error, worded to follow "cannot download:".
    fn open(&self, file: &str, from: u64) -> io::Result<RemoteBody>;
}

/// The bytes of a file of a [`Remote`].
pub struct RemoteBody {
    /// Where they begin: at the byte that was asked for, or at 0 if the other machine gives only whole files.
    pub from: u64,
    /// Length of the whole file in bytes, if it is known.
    pub len: Option<u64>,
    pub bytes: Box<dyn Read + Send>,
}

/// Where hints, or the chunks of a snapshot, are.
#[derive(Clone, Debug)]
pub enum FileSource {
    /// A file or a folder on this machine.
    Path(PathBuf),
    /// One on another machine.
    Remote(Arc<dyn Remote>),
}

impl FileSource {
    /// What it is called in messages: a path or a URL.
    pub fn name(&self) -> Cow<'_, Path> {
        match self {
            Self::Path(path) => Cow::Borrowed(path),
            Self::Remote(remote) => Cow::Owned(PathBuf::from(remote.name())),
        }
    }
}

/// A rebuild with hints (SwiftSync).
#[derive(Clone, Debug)]
pub struct HintOptions {
    /// The hint file. It may be packed as a whole, with xz or gzip.
    pub file: FileSource,
    /// Its format, for files that could be read as several formats.
    pub format: Option<HintFormat>,
    pub aggregate: AggregateKind,
    /// Do not use undo data up to the hints' last block. Rules of spends are then not checked there: the
    /// chain is trusted to be valid (assumevalid), and the aggregate proves which coins it leaves.
    ///
    /// Unless [`UndoPolicy::Trust`] is given, undo data that is missing above the hints' last block is made,
    /// and in any case that of the last 288 blocks of the chain, so that bitcoind can disconnect them: hints
    /// are used only for blocks below them.
    pub without_undo: bool,
    /// If the hints turn out to be wrong, name the first wrong one and rebuild without hints.
    pub on_failure_join: bool,
    /// The indexes that bitcoind's settings turn on: it does not start with one that needs undo data which
    /// stays missing.
    pub wanted_indexes: Vec<IndexKind>,
}

wire::named! {
/// Which undo data is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum UndoPolicy: "policy" {
    /// What is sound. The rest is made.
    #[default]
    Auto = "auto",
    /// What the undo files have. Undo data that is missing or damaged is an error.
    Trust = "trust",
    /// None: all of it is made.
    Make = "make",
}
}

/// Where a datadir is, which of its blocks a command goes through, and how it checks them. Commands that have
/// no use for an option ignore it.
#[derive(Clone, Debug)]
pub struct ChainOptions {
    /// Core's data directory.
    pub datadir: PathBuf,
    /// What contains the directory of the block files, if the datadir does not (Core `-blocksdir`).
    pub blocksdir: Option<PathBuf>,
    /// The parameters of the chain.
    pub params: &'static ChainParams,
    /// Number of worker threads; each reads its own blocks.
    pub threads: NonZeroUsize,
    /// Whether scripts are checked. Commands that do not connect blocks check none.
    pub scripts: ScriptChecks,
    /// Which scripts need not be run.
    pub assume_valid: AssumeValid,
    /// Which marks of invalid blocks are not believed. For commands that change the datadir.
    pub reconsider: Option<Reconsider>,
    /// Which undo data is used. With hints, undo data is made only with [`HintOptions::without_undo`].
    pub undo: UndoPolicy,
    /// Find blocks and undo data by reading their files, without the block index. A rebuild in place then
    /// writes a new block index.
    pub scan: bool,
    /// Height of the last block; `None` for the last block on disk.
    pub stop_at_height: Option<Height>,
    /// What to do about an interrupted run.
    pub resume: ResumeOptions,
    /// Keep what is replaced, with `.old` added to its name: the chainstate, the block index, indexes.
    pub keep_old: bool,
    /// Read the datadir although a bitcoind uses it, which meanwhile appends to block files and changes the
    /// block index. Only for commands that read nothing but blocks; all others still refuse a datadir in use.
    pub live: bool,
    /// Memory budget for the whole process, in bytes; what exceeds it goes to the work directory. Values
    /// below [`crate::machine::MIN_MEMORY`] have no further effect.
    pub memory_bytes: u64,
    /// Parent of the work directory; `None` for a work directory beside the result or, if there is none, in
    /// the system's folder for temporary files.
    pub work_dir: Option<PathBuf>,
    /// Receives the blocks of a rebuild while they are checked. Other commands give it none.
    pub observer: Option<Arc<dyn BlockObserver>>,
    #[doc(hidden)]
    pub hooks: TestHooks,
}

impl ChainOptions {
    /// Where the datadir is.
    pub fn location(&self) -> Location {
        let Self { datadir, blocksdir, params, .. } = self;
        let (root, blocksdir) = (datadir.clone(), blocksdir.clone());
        Location { root, blocksdir, network: params.network, magic: params.magic }
    }

    /// The default options for commands that check no scripts, with one thread.
    pub fn reading(datadir: &Path, network: Network) -> Self {
        Self::new(datadir, network, ScriptChecks::LeftOut)
    }

    /// The default options, with one thread.
    pub fn new(datadir: &Path, network: Network, scripts: ScriptChecks) -> Self {
        Self {
            datadir: datadir.to_owned(),
            blocksdir: None,
            params: ChainParams::of(network),
            threads: NonZeroUsize::MIN,
            scripts,
            assume_valid: AssumeValid::Default,
            reconsider: None,
            undo: UndoPolicy::default(),
            scan: false,
            stop_at_height: None,
            resume: ResumeOptions::default(),
            keep_old: false,
            live: false,
            memory_bytes: machine::default_memory(),
            work_dir: None,
            observer: None,
            hooks: TestHooks::default(),
        }
    }
}

/// For tests and comparisons only: what a user need not choose. Commands that have no use for a hook ignore
/// it.
#[derive(Clone, Debug)]
pub struct TestHooks {
    /// How spends are matched in the first pass.
    pub matching: Matching,
    /// Size in bytes above which the join is spilled, instead of the size that the budget allows; also for
    /// what other commands collect.
    pub join_bytes: Option<usize>,
    /// Approximate maximum of row bytes in one range of the new chainstate's tables.
    pub range_bytes: u64,
    /// Number of last blocks for which hints are not used if undo data is made: 288, unless a test has fewer.
    pub undo_blocks: u32,
    /// Length in bytes below which a download keeps a `blk` file.
    pub block_file_len: u32,
    /// Maximum memory in bytes of downloaded blocks that wait for the rebuild; the budget may allow less.
    pub kept_bytes_max: u64,
    /// Length in bytes of a chunk of a snapshot that is shared.
    pub chunk_len: u64,
    /// The new chainstate's obfuscation key; `None` to draw one from the system's random numbers.
    pub obfuscation_key: Option<[u8; 8]>,
    /// Counts the blocks that are checked by workers or connected in order, each as often as that is done.
    pub blocks_checked: Arc<AtomicU64>,
    /// The clock that decides whether peers are too slow.
    pub now: fn() -> Instant,
    /// The version of the program. The rules of the next one may be different.
    pub version: &'static str,
}

impl Default for TestHooks {
    fn default() -> Self {
        Self {
            matching: Matching::Parallel,
            join_bytes: None,
            range_bytes: RANGE_BYTES,
            undo_blocks: MIN_UNDO_BLOCKS,
            block_file_len: MAX_BLOCK_FILE_LEN,
            kept_bytes_max: KEPT_BYTES_MAX,
            chunk_len: CHUNK_LEN,
            obfuscation_key: None,
            blocks_checked: Arc::default(),
            now: Instant::now,
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}

/// How a command that can be resumed deals with checkpoints.
#[derive(Clone, Copy, Debug)]
pub struct ResumeOptions {
    /// Discard the checkpoint of an interrupted run.
    pub restart: bool,
    /// Discard it if it belongs to another chain or other options, instead of reporting that as an error.
    pub discard_other: bool,
    /// Minimum time between checkpoints. Each checkpoint also waits in proportion to how long the last one
    /// took, so that checkpoints take little of the time. Zero: a checkpoint after each few blocks, whatever
    /// it costs.
    pub checkpoint_interval: Duration,
}

impl Default for ResumeOptions {
    fn default() -> Self {
        Self { restart: false, discard_other: false, checkpoint_interval: CHECKPOINT_INTERVAL }
    }
}

/// What to rebuild, from where, and how.
#[derive(Clone, Debug)]
pub struct ReindexOptions {
    /// The blocks, and how to check them.
    pub chain: ChainOptions,
    /// Where the chainstate goes; `None` for the datadir itself.
    pub output: Option<PathBuf>,
    /// How the coins that are spent are found.
    pub engine: Engine,
    /// Hints to use; only with [`Engine::Join`].
    pub hints: Option<HintOptions>,
    /// Allow replacing a chainstate or a block index that has more blocks than the new one will have.
    pub accept_lower_tip: bool,
    /// Look for damage first, and end below the lowest block that is damaged or missing. The new block index
    /// has only the headers of such blocks, so that bitcoind downloads them again.
    pub until_damage: bool,
    /// Files with blocks that are damaged or missing, as bytes or as hex digits. They are stored first, and
    /// the block index places them. Only in place and without a scan.
    pub blocks: Vec<PathBuf>,
    /// Which indexes of the node are set aside if they would become wrong.
    pub set_aside_indexes: SetAsideIndexes,
}

/// Which of the indexes that a run would make wrong are set aside. A run that would make any other index
/// wrong is refused.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum SetAsideIndexes {
    #[default]
    None,
    Any,
    /// Any of these, which will be made anew.
    These(Vec<IndexKind>),
}

impl SetAsideIndexes {
    /// Whether an index of this kind may be set aside.
    pub fn allow(&self, kind: IndexKind) -> bool {
        match self {
            Self::None => false,
            Self::Any => true,
            Self::These(kinds) => kinds.contains(&kind),
        }
    }
}

impl ReindexOptions {
    /// The default options, with one thread.
    pub fn new(datadir: &Path, network: Network, scripts: ScriptChecks) -> Self {
        Self::of(ChainOptions::new(datadir, network, scripts))
    }

    /// The default options for these blocks.
    pub fn of(chain: ChainOptions) -> Self {
        Self {
            chain,
            output: None,
            engine: Engine::default(),
            hints: None,
            accept_lower_tip: false,
            until_damage: false,
            blocks: Vec::new(),
            set_aside_indexes: SetAsideIndexes::None,
        }
    }

    /// Whether undo data is made where it is missing.
    pub fn makes_undo(&self) -> bool {
        self.chain.undo != UndoPolicy::Trust && self.hints.as_ref().is_none_or(|hints| hints.without_undo)
    }
}
