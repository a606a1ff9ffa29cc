//! The options that several commands have, and how their values are parsed.

use crate::{
    core_args::{ASSUME_VALID, CoreArgs, Located, assume_valid},
    limits::{MAX_THREADS, default_memory},
    progress::Style,
    run,
};
use clap::{Args as ClapArgs, ValueEnum};
use engine::{
    AssumeValid, BlockHash, ChainOptions, Error, Height, HumanMemory, IndexKind, Reconsider, ResumeOptions,
    ScriptChecks, Stage, UndoPolicy, Watch, reindex::SetAsideIndexes,
};
use std::{num::NonZeroUsize, path::PathBuf, thread, time::Duration};

/// How commands that change the chainstate treat marks of invalid blocks.
#[derive(ClapArgs, Clone, Copy, Debug)]
pub struct MarkArgs {
    /// Check blocks that the block index marks as invalid, like any other: this one with its ancestors and
    /// descendants, or all. Those that are valid lose the mark, as with bitcoin-cli reconsiderblock
    #[arg(long, value_name = "HASH")]
    reconsider: Option<Option<BlockHash>>,
}

impl MarkArgs {
    /// Returns the engine's options with this choice.
    pub fn of(self, chain: ChainOptions) -> ChainOptions {
        let reconsider = self.reconsider.map(|block| block.map_or(Reconsider::All, Reconsider::Block));
        ChainOptions { reconsider, ..chain }
    }
}

/// What commands that store blocks may do to indexes.
#[derive(ClapArgs, Clone, Debug)]
pub struct IndexArgs {
    /// Rename folders in indexes/ whose rows would become wrong, such as an old txindex whose blocks get
    /// other places, so that bitcoind builds just these again. Without this, such a run is refused
    #[arg(long)]
    pub set_aside_indexes: bool,

    #[command(flatten)]
    pub named: NamedIndexes,
}

/// The indexes that a command brings to the best block of the chainstate that it changes.
#[derive(ClapArgs, Clone, Debug)]
pub struct NamedIndexes {
    /// Bring this index to the chainstate's best block: a missing one is made while the blocks are checked;
    /// others are continued afterwards, or made anew. txindex, blockfilterindex, coinstatsindex or
    /// txospenderindex; can be given repeatedly
    #[arg(long = "index", value_name = "NAME", value_parser = index_kind)]
    pub kinds: Vec<IndexKind>,
}

/// Parses the name of an index: that of bitcoind's option.
pub fn index_kind(name: &str) -> Result<IndexKind, String> {
    let known = IndexKind::ALL.into_iter().find(|kind| kind.option() == name);
    known.ok_or_else(|| format!("must be one of {}", IndexKind::ALL.map(IndexKind::option).join(", ")))
}

impl IndexArgs {
    pub fn set_aside(&self) -> SetAsideIndexes {
        match self.set_aside_indexes {
            true => SetAsideIndexes::Any,
            false => SetAsideIndexes::These(self.named.kinds.clone()),
        }
    }
}

/// Options of all commands that make a file from the blocks up to a height.
#[derive(ClapArgs, Debug)]
pub struct MakeArgs {
    #[command(flatten)]
    pub check: CheckArgs,

    #[command(flatten)]
    pub resume: ResumeArgs,

    /// Last block: a height, or tip
    #[arg(long, value_name = "HEIGHT|tip", alias = "height", default_value = "tip")]
    #[arg(value_parser = height_or_tip)]
    pub to: HeightOrTip,

    /// File to write
    #[arg(long, short, value_name = "FILE")]
    pub output: PathBuf,
}

/// The last block to process; `None` for the tip.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeightOrTip(pub Option<Height>);

fn height_or_tip(text: &str) -> Result<HeightOrTip, String> {
    match (text, text.parse()) {
        ("tip", _) => Ok(HeightOrTip(None)),
        (_, Ok(height)) => Ok(HeightOrTip(Some(Height(height)))),
        _ => Err("must be a height, or tip".to_owned()),
    }
}

#[derive(ClapArgs, Clone, Debug)]
pub struct DatadirArgs {
    #[command(flatten)]
    pub core: CoreArgs,

    /// Worker threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = threads, default_value_t = one_per_core())]
    #[arg(hide_default_value = true)]
    pub threads: NonZeroUsize,

    /// Print the report as one JSON object
    #[arg(long)]
    pub json: bool,

    /// How to show progress
    #[arg(long, value_enum, default_value_t = Style::Auto)]
    pub progress: Style,
}

/// Options of all commands that check blocks.
#[derive(ClapArgs, Debug)]
pub struct CheckArgs {
    #[command(flatten)]
    pub datadir: DatadirArgs,

    /// Ignore the block index and find blocks and undo data by reading their files
    #[arg(long)]
    pub scan: bool,

    /// Undo data (rev files): auto uses what is sound and makes the rest; trust reports what is missing or
    /// damaged as an error; make uses none [not with --hints]
    #[arg(long, value_name = "auto|trust|make", default_value_t = UndoPolicy::Auto)]
    #[arg(hide_short_help = true)]
    pub undo: UndoPolicy,

    #[command(flatten)]
    pub run: RunArgs,
}

/// Options of a command that goes through all blocks.
#[derive(ClapArgs, Debug)]
pub struct RunArgs {
    #[arg(long, value_name = "HASH|0|checked|default", value_parser = assume_valid, help = ASSUME_VALID)]
    pub assumevalid: Option<AssumeValid>,

    /// Memory limit of the whole process: 128M, 1G, ... [default: a quarter of the machine's memory]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub memory: Option<u64>,

    /// Directory for temporary files [default: beside the result, or the system's if there is none]
    #[arg(long, value_name = "DIR")]
    pub work_dir: Option<PathBuf>,
}

/// Options of a command that reads blocks and undo data, and changes nothing of the datadir.
#[derive(ClapArgs, Debug)]
pub struct ReadingArgs {
    #[command(flatten)]
    pub datadir: DatadirArgs,

    /// Read beside a running bitcoind; the last six blocks are left out
    #[arg(long)]
    pub live: bool,

    /// Ignore the block index and find blocks and undo data by reading their files
    #[arg(long)]
    pub scan: bool,

    /// Memory limit of the whole process: 128M, 1G, ... [default: a quarter of the machine's memory]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub memory: Option<u64>,
}

impl ReadingArgs {
    /// Returns the datadir, and the options of a run that reads it.
    #[cfg(feature = "export")]
    pub fn locate(&self) -> Result<(Located, ChainOptions), Error> {
        let located = self.datadir.core.locate()?;
        let chain = self.datadir.default_options(&located, self.memory);
        Ok((located, ChainOptions { live: self.live, scan: self.scan, ..chain }))
    }
}

/// Options for resuming an interrupted run.
#[derive(ClapArgs, Debug)]
pub struct ResumeArgs {
    /// Start over, even if an interrupted run left a checkpoint to resume from
    #[arg(long)]
    pub restart: bool,

    /// Minimum time between two checkpoints, which never take more than a twentieth of the time
    #[arg(long, value_name = "SECONDS", default_value_t = 60, hide_short_help = true)]
    pub checkpoint_every: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum OnHintFailure {
    /// Stop with exit code 6
    Stop,
    /// Report the first wrong hint and rebuild without hints
    Join,
}

/// Parses a size in bytes, with K, M, G or T for the powers of 1024.
pub fn size(text: &str) -> Result<u64, String> {
    let bytes = parse_size::Config::new().with_binary().parse_size(text);
    let bytes = bytes.map_err(|_| "not a size; examples: 512M, 1.5G".to_owned())?;
    if bytes < engine::machine::MIN_MEMORY {
        return Err(format!("must be at least {}", HumanMemory(engine::machine::MIN_MEMORY)));
    }
    Ok(bytes)
}

/// Parses a number of threads; refuses numbers that no machine has cores for.
pub fn threads(text: &str) -> Result<NonZeroUsize, String> {
    match text.parse::<NonZeroUsize>() {
        Ok(threads) if threads.get() <= MAX_THREADS => Ok(threads),
        _ => {
            Err(format!("must be at least 1 and at most {MAX_THREADS}; more threads than cores do not help"))
        }
    }
}

/// The default number of threads: one for each core.
pub fn one_per_core() -> NonZeroUsize {
    thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// Scripts are run by Bitcoin Core's own code, and left out by a build without it.
fn script_checks() -> ScriptChecks {
    #[cfg(feature = "scripts")]
    return ScriptChecks::By(std::sync::Arc::new(script::Core));
    #[cfg(not(feature = "scripts"))]
    ScriptChecks::LeftOut
}

impl DatadirArgs {
    /// Calls the engine, as [`run::run`] does.
    pub fn run<T>(
        &self,
        chain: Option<&ChainOptions>,
        stages: &'static [Stage],
        call: impl FnOnce(Watch<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        run::run(chain, self.progress, stages, call)
    }

    /// Returns the engine's options for a command that has no [`RunArgs`].
    pub fn default_options(&self, located: &Located, memory: Option<u64>) -> ChainOptions {
        let (threads, options) = (self.threads, located.chain_options());
        let memory_bytes = memory.unwrap_or_else(|| default_memory(options.memory_bytes, threads.get()));
        ChainOptions { memory_bytes, threads, ..options }
    }

    /// Returns the engine's options for checking the blocks of the datadir.
    pub fn chain_options(&self, located: &Located, run: &RunArgs) -> ChainOptions {
        let options = self.checking_options(located, run.memory, run.assumevalid);
        ChainOptions { work_dir: run.work_dir.clone(), ..options }
    }

    /// Returns the engine's options for a command that runs scripts.
    pub fn checking_options(
        &self,
        located: &Located,
        memory: Option<u64>,
        assumevalid: Option<AssumeValid>,
    ) -> ChainOptions {
        let assume_valid = assumevalid.or(located.assume_valid).unwrap_or(AssumeValid::Default);
        ChainOptions { scripts: script_checks(), assume_valid, ..self.default_options(located, memory) }
    }
}

impl CheckArgs {
    pub fn options(&self, located: &Located) -> ChainOptions {
        let options = self.datadir.chain_options(located, &self.run);
        ChainOptions { undo: self.undo, scan: self.scan, ..options }
    }
}

impl ResumeArgs {
    pub fn options(&self) -> ResumeOptions {
        // The engine takes zero to mean: after every few blocks, whatever it costs.
        let checkpoint_interval =
            Duration::from_secs(self.checkpoint_every.into()).max(Duration::from_millis(1));
        ResumeOptions { restart: self.restart, checkpoint_interval, ..ResumeOptions::default() }
    }
}

impl MakeArgs {
    pub fn options(&self, located: &Located) -> ChainOptions {
        let (resume, stop_at_height) = (self.resume.options(), self.to.0);
        ChainOptions { resume, stop_at_height, ..self.check.options(located) }
    }
}
