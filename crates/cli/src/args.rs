//! The command line. Each flag is defined once; parser and help are derived from the definition.

#[cfg(feature = "export")]
use crate::export::ExportCommand;
use crate::{
    core_args::{CoreArgs, Located},
    doctor::DoctorArgs,
    hint_location::HintLocation,
    limits::{MAX_THREADS, default_memory},
    packaging::{CompletionsArgs, ManArgs},
    peers::PeersArgs,
    progress::Style,
    range::RangeCommand,
    repair::RepairArgs,
    sync::SyncArgs,
    undo::UndoCommand,
    update::UpdateArgs,
    utxo::UtxoCommand,
};
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use engine::{
    AggregateKind, AssumeValid, ChainOptions, ChainstateOptions, CoinSource, Engine, Height, HintFormat,
    HintOptions, HumanMemory, MakeOptions, ReindexOptions, ResumeOptions, ScriptVerifier, UndoPolicy,
    VerifyOptions,
};
use peregrine::version;
use std::{net::SocketAddr, num::NonZeroUsize, path::PathBuf, sync::Arc, thread, time::Duration};

/// Rebuilds a Bitcoin Core chainstate from its block files.
#[derive(Parser, Debug)]
#[command(name = "peregrine", version, long_version = version::long_version())]
#[command(about, after_help = EXIT_CODES)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 success; 1 internal error (a bug: please report it); 2 usage; 3 the chain breaks a consensus
rule; 4 damaged or missing files; 5 environment (files in use, no space, no permission, I/O error); 6 wrong
hints; 7 not unspent; 130 interrupted.";

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Examine a datadir without changing it: what is damaged or missing, and which command helps
    Doctor(DoctorArgs),
    /// Rebuild the chainstate from block and undo files, and replace the old one
    Reindex(ReindexArgs),
    /// Connect the stored blocks above the chainstate, and switch to a heavier stored branch
    Update(UpdateArgs),
    /// Download headers and blocks from peers, and build the chainstate
    Sync(SyncArgs),
    /// Download the blocks that are damaged or missing, and rebuild what needs it
    Repair(RepairArgs),
    /// Show what sync knows of the addresses of peers
    Peers(PeersArgs),
    /// Check block and undo files as reindex does, without changing the datadir
    Verify(VerifyArgs),
    /// Make, inspect, convert or check SwiftSync hints
    Hints {
        #[command(subcommand)]
        command: HintsCommand,
    },
    /// Make, inspect, verify or load UTXO snapshots in the format of Bitcoin Core's dumptxoutset
    Snapshot {
        #[command(subcommand)]
        command: SnapshotCommand,
    },
    /// Check undo data (rev files), or make what is missing or damaged
    Undo {
        #[command(subcommand)]
        command: UndoCommand,
    },
    /// Inspect the UTXO set on disk
    Utxo {
        #[command(subcommand)]
        command: UtxoCommand,
    },
    /// Write coins in formats of programs that work with data
    #[cfg(feature = "export")]
    Export {
        #[command(subcommand)]
        command: ExportCommand,
    },
    /// Check a chain on several machines: each takes ranges of it
    #[command(subcommand)]
    Range(RangeCommand),
    /// Print a script that completes commands and options in a shell
    Completions(CompletionsArgs),
    /// Write the man pages to a folder
    Man(ManArgs),
}

/// What commands that store blocks may do to indexes.
#[derive(ClapArgs, Clone, Copy, Debug)]
pub struct IndexArgs {
    /// Rename those folders in indexes/ of which rows would become wrong, such as an old txindex whose blocks
    /// get other places, so that bitcoind builds just these again. Without this, such a run is refused
    #[arg(long)]
    pub set_aside_indexes: bool,
}

#[derive(Subcommand, Debug)]
pub enum HintsCommand {
    /// Write hints: which outputs are unspent after a given block
    Make(MakeHintsArgs),
    /// Describe a hint file; its format is detected from its contents
    Info(HintsFileArgs),
    /// Convert a hint file to another format; if the two count outputs differently, --datadir is needed
    Convert(ConvertHintsArgs),
    /// Compare every hint in a file with the chain
    Check(CheckHintsArgs),
}

#[derive(Subcommand, Debug)]
pub enum SnapshotCommand {
    /// Write the UTXO set at a height
    Make(MakeArgs),
    /// Show the metadata of a snapshot; its coins are not read
    Info(SnapshotFileArgs),
    /// Hash a snapshot and, with --datadir, prove it against the blocks
    Verify(VerifySnapshotArgs),
    /// Make the chainstate of a snapshot, from whose block bitcoind then continues, as Bitcoin Core's
    /// loadtxoutset
    Load(LoadSnapshotArgs),
}

/// Options of all commands that make a file from the blocks up to a height.
#[derive(ClapArgs, Debug)]
pub struct MakeArgs {
    #[command(flatten)]
    pub check: CheckArgs,

    #[command(flatten)]
    pub resume: ResumeArgs,

    /// Last block: a height, or tip
    #[arg(long, value_name = "N|tip", default_value = "tip", value_parser = height_or_tip)]
    pub height: HeightOrTip,

    /// File to write
    #[arg(long, short, value_name = "FILE")]
    pub output: PathBuf,
}

#[derive(ClapArgs, Debug)]
pub struct MakeHintsArgs {
    #[command(flatten)]
    pub make: MakeArgs,

    /// Format to write: peregrine, bip456, bip456-lsb, thestack, swiftsync2140, btcd or bitmap
    #[arg(long, default_value_t = HintFormat::Peregrine)]
    pub format: HintFormat,

    /// Take the coins from this snapshot, and make hints for its block; spends are not matched
    #[arg(long, value_name = "FILE", conflicts_with = "chainstate")]
    pub snapshot: Option<PathBuf>,

    /// Take the coins from the datadir's chainstate, and make hints for its best block; spends are not
    /// matched
    #[arg(long)]
    pub chainstate: bool,
}

/// An existing hint file.
#[derive(ClapArgs, Debug)]
pub struct HintsFileArgs {
    /// Hint file
    pub file: PathBuf,

    /// Format of the hint file, if it could be one of several
    #[arg(long, value_name = "FORMAT")]
    pub from: Option<HintFormat>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(ClapArgs, Debug)]
pub struct ConvertHintsArgs {
    #[command(flatten)]
    pub file: HintsFileArgs,

    /// File to write
    pub output: PathBuf,

    /// Format to write: peregrine, bip456, bip456-lsb, thestack, swiftsync2140, btcd or bitmap
    #[arg(long)]
    pub format: HintFormat,

    // The datadir is used only if it is given.
    #[command(flatten)]
    pub core: CoreArgs,
}

#[derive(ClapArgs, Debug)]
pub struct CheckHintsArgs {
    /// Hint file
    pub file: PathBuf,

    /// Format of the hint file, if it could be one of several
    #[arg(long, value_name = "FORMAT")]
    pub from: Option<HintFormat>,

    #[command(flatten)]
    pub check: CheckArgs,
}

/// An existing snapshot.
#[derive(ClapArgs, Debug)]
pub struct SnapshotFileArgs {
    /// Snapshot file
    pub file: PathBuf,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(ClapArgs, Debug)]
pub struct VerifySnapshotArgs {
    #[command(flatten)]
    pub file: SnapshotFileArgs,

    // The datadir is used only if it is given.
    #[command(flatten)]
    pub core: CoreArgs,

    /// Hash that the sum over created and spent outputs is built from: sha256, siphash128 or muhash
    #[arg(long, default_value_t = AggregateKind::Sha256)]
    pub aggregate: AggregateKind,

    /// Worker threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<NonZeroUsize>,

    /// How to show progress
    #[arg(long, value_enum, default_value_t = Style::Auto)]
    pub progress: Style,
}

#[derive(ClapArgs, Debug)]
pub struct LoadSnapshotArgs {
    /// Snapshot file, of a block whose UTXO set has its hash in Bitcoin Core's source
    pub file: PathBuf,

    #[command(flatten)]
    pub datadir: DatadirArgs,

    /// How to show progress
    #[arg(long, value_enum, default_value_t = Style::Auto)]
    pub progress: Style,
}

/// The last block to process; `None` for the tip.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeightOrTip(pub Option<Height>);

fn height_or_tip(text: &str) -> Result<HeightOrTip, String> {
    match text {
        "tip" => Ok(HeightOrTip(None)),
        number => number
            .parse()
            .map(|height| HeightOrTip(Some(Height(height))))
            .map_err(|_| "must be a height, or tip".to_owned()),
    }
}

#[derive(ClapArgs, Clone, Debug)]
pub struct DatadirArgs {
    #[command(flatten)]
    pub core: CoreArgs,

    /// Worker threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<NonZeroUsize>,

    /// Print the report as one JSON object
    #[arg(long)]
    pub json: bool,
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
    #[arg(long, value_name = "auto|trust|make", default_value = "auto", value_parser = undo_policy)]
    pub undo: UndoPolicy,

    #[command(flatten)]
    pub run: RunArgs,
}

/// Options of a command that goes through all blocks.
#[derive(ClapArgs, Debug)]
pub struct RunArgs {
    /// Do not run the scripts of this block and its ancestors, as bitcoind -assumevalid; 0: run all scripts
    /// [default: as the Bitcoin Core release that this version follows]
    #[arg(long, value_name = "HASH|0|default", value_parser = assume_valid)]
    pub assumevalid: Option<AssumeValid>,

    /// Memory limit of the whole process: 128M, 1G, ... [default: a quarter of the machine's memory]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub memory: Option<u64>,

    /// Directory for temporary files [default: beside the result, or the system's if there is none]
    #[arg(long, value_name = "DIR")]
    pub work_dir: Option<PathBuf>,

    /// How to show progress
    #[arg(long, value_enum, default_value_t = Style::Auto)]
    pub progress: Style,
}

/// Options for resuming an interrupted run.
#[derive(ClapArgs, Debug)]
pub struct ResumeArgs {
    /// Start over, even if an interrupted run left a checkpoint to resume from
    #[arg(long)]
    pub restart: bool,

    /// Minimum time between two checkpoints
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub checkpoint_every: u32,
}

#[derive(ClapArgs, Debug)]
pub struct ReindexArgs {
    #[command(flatten)]
    pub check: CheckArgs,

    /// Stop at this height: rebuild the UTXO set as it was after that block
    #[arg(long, value_name = "N")]
    pub stop_at_height: Option<u32>,

    /// How coins that are spent are found: join reads blocks in any order, on all cores; cache connects them
    /// in order over a coins cache, as Bitcoin Core does, with the same result, and without --hints
    #[arg(long, value_name = "join|cache", default_value = "join", value_parser = engine)]
    pub engine: Engine,

    #[command(flatten)]
    pub resume: ResumeArgs,

    /// Proceed even if the new chainstate or block index covers fewer blocks than the one it replaces
    #[arg(long)]
    pub accept_lower_tip: bool,

    /// Read all blocks first, and rebuild up to the block below the lowest one that is damaged or missing.
    /// The block index keeps only the headers of such blocks, so that bitcoind downloads these and no others
    #[arg(long)]
    pub until_damage: bool,

    /// Use the block in this file in place of one that is damaged or missing; can be given repeatedly. The
    /// file has it as bytes or as hex digits, as bitcoin-cli getblock HASH 0 prints it; the header in the
    /// block index proves that it is the right one
    #[arg(long = "block", value_name = "FILE", conflicts_with_all = ["scan", "output"])]
    pub blocks: Vec<PathBuf>,

    /// Keep the replaced databases as chainstate.old and, with --scan, blocks/index.old
    #[arg(long, conflicts_with = "output")]
    pub keep_old: bool,

    #[command(flatten)]
    pub indexes: IndexArgs,

    /// Use SwiftSync hints: less memory, and less work with --without-undo. A file may be packed with xz or
    /// gzip; a URL is downloaded by https
    #[arg(long, value_name = "FILE|URL")]
    pub hints: Option<HintLocation>,

    /// With --hints: download them through this SOCKS5 proxy, which resolves their name
    #[arg(long, value_name = "ADDRESS:PORT", requires = "hints")]
    pub proxy: Option<SocketAddr>,

    /// With --hints: hash that the sum over created and spent outputs is built from: sha256, siphash128 or
    /// muhash
    #[arg(long, default_value_t = AggregateKind::Sha256, requires = "hints")]
    pub aggregate: AggregateKind,

    /// With --hints: use no undo data up to the last hinted block; spend rules there rest on
    /// --assumevalid. Undo data above it, and that of the last 288 blocks, is made where it is missing
    #[arg(long, requires = "hints")]
    pub without_undo: bool,

    /// With --hints: what to do if the hints turn out to be wrong
    #[arg(long, value_enum, default_value_t = OnHintFailure::Stop, requires = "hints")]
    pub on_hint_failure: OnHintFailure,

    /// Write the new chainstate (with --scan also a new block index) to this datadir; leave --datadir
    /// unchanged
    #[arg(long, value_name = "DIR2")]
    pub output: Option<PathBuf>,

    /// Write the run's log to this new file, as JSON lines: for peregrine-bench plot
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,

    /// Write a report to this new file that can be sent to the developers: machine, times and result, without
    /// names and paths
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum OnHintFailure {
    /// Stop with exit code 6
    Stop,
    /// Report the first wrong hint and rebuild without hints
    Join,
}

#[derive(ClapArgs, Debug)]
pub struct VerifyArgs {
    #[command(flatten)]
    pub check: CheckArgs,

    /// Stop at the chainstate's best block, and compare the resulting coins with the chainstate's
    #[arg(long)]
    pub against_chainstate: bool,

    /// Write a report to this new file that can be sent to the developers: machine, times and result, without
    /// names and paths
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// Parses a size in bytes, with K, M, G or T for the powers of 1024.
pub fn size(text: &str) -> Result<u64, String> {
    let bytes = parse_size::Config::new().with_binary().parse_size(text);
    let bytes = bytes.map_err(|_| "not a size; examples: 512M, 1.5G".to_owned())?;
    if bytes < engine::MIN_MEMORY {
        return Err(format!("must be at least {}", HumanMemory(engine::MIN_MEMORY)));
    }
    Ok(bytes)
}

/// Parses a number of threads; refuses numbers that no machine has cores for.
fn threads(text: &str) -> Result<NonZeroUsize, String> {
    match text.parse::<NonZeroUsize>() {
        Ok(threads) if threads.get() <= MAX_THREADS => Ok(threads),
        _ => {
            Err(format!("must be at least 1 and at most {MAX_THREADS}; more threads than cores do not help"))
        }
    }
}

/// Parses the name of a policy for undo data.
pub fn undo_policy(name: &str) -> Result<UndoPolicy, String> {
    let named = UndoPolicy::ALL.into_iter().find(|policy| policy.name() == name);
    named.ok_or_else(|| "must be auto, trust or make".to_owned())
}

/// Parses the name of an engine.
fn engine(name: &str) -> Result<Engine, String> {
    let named = Engine::ALL.into_iter().find(|engine| engine.name() == name);
    named.ok_or_else(|| "must be join or cache".to_owned())
}

/// Parses the value of Core's `-assumevalid`: a block hash, or 0.
pub fn assume_valid(text: &str) -> Result<AssumeValid, String> {
    match text {
        "default" => Ok(AssumeValid::Default),
        "0" => Ok(AssumeValid::Off),
        hash => hash
            .parse()
            .map(AssumeValid::Block)
            .map_err(|error| format!("{error}; pass a block hash, 0 or default")),
    }
}

/// Returns what runs scripts: Bitcoin Core's own code. `None` in a build without it.
fn script_verifier() -> Option<Arc<dyn ScriptVerifier>> {
    #[cfg(feature = "scripts")]
    return Some(Arc::new(script::Core));
    #[cfg(not(feature = "scripts"))]
    None
}

impl DatadirArgs {
    pub fn threads(&self) -> NonZeroUsize {
        self.threads.or_else(|| thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN)
    }

    /// Returns the engine's options for a command that has no [`RunArgs`].
    pub fn default_options(&self, located: &Located) -> ChainOptions {
        let (threads, options) = (self.threads(), located.chain_options());
        let memory_bytes = default_memory(options.memory_bytes, threads.get());
        ChainOptions { memory_bytes, threads, ..options }
    }

    /// Returns the engine's options for reading the chainstate.
    pub fn chainstate_options(&self, located: &Located) -> ChainstateOptions {
        ChainstateOptions { threads: self.threads(), ..located.chainstate_options() }
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
        let options = self.default_options(located);
        ChainOptions {
            memory_bytes: memory.unwrap_or(options.memory_bytes),
            scripts: script_verifier(),
            assume_valid: assumevalid.or(located.assume_valid).unwrap_or(AssumeValid::Default),
            ..options
        }
    }
}

impl CheckArgs {
    /// Returns the engine's options for checking the blocks.
    pub fn options(&self, located: &Located) -> ChainOptions {
        let options = self.datadir.chain_options(located, &self.run);
        ChainOptions { undo: self.undo, ..options }
    }
}

impl ResumeArgs {
    /// Returns the engine's options for resuming.
    pub fn options(&self) -> ResumeOptions {
        let checkpoint_interval = Duration::from_secs(self.checkpoint_every.into());
        ResumeOptions { restart: self.restart, checkpoint_interval, ..ResumeOptions::default() }
    }
}

impl MakeArgs {
    /// Returns the engine's options for making the file.
    pub fn options(&self, located: &Located) -> MakeOptions {
        MakeOptions {
            chain: self.check.options(located),
            resume: self.resume.options(),
            stop_at_height: self.height.0,
            scan: self.check.scan,
        }
    }
}

impl MakeHintsArgs {
    /// Returns where the coins are, if they are on disk.
    pub fn source(&self) -> Option<CoinSource> {
        let snapshot = self.snapshot.clone().map(CoinSource::Snapshot);
        snapshot.or_else(|| self.chainstate.then_some(CoinSource::Chainstate))
    }
}

impl VerifyArgs {
    /// Returns the engine's options for verifying blocks.
    pub fn options(&self, located: &Located) -> VerifyOptions {
        let Self { check, against_chainstate, report: _ } = self;
        VerifyOptions {
            chain: check.options(located),
            scan: check.scan,
            against_chainstate: *against_chainstate,
        }
    }
}

impl ReindexArgs {
    /// Returns the engine's options for a rebuild.
    pub fn options(&self, located: &Located) -> ReindexOptions {
        ReindexOptions {
            chain: self.check.options(located),
            resume: self.resume.options(),
            scan: self.check.scan,
            stop_at_height: self.stop_at_height.map(Height),
            output: self.output.clone(),
            accept_lower_tip: self.accept_lower_tip,
            until_damage: self.until_damage,
            blocks: self.blocks.clone(),
            keep_old: self.keep_old,
            set_aside_indexes: self.indexes.set_aside_indexes,
            engine: self.engine,
            hints: self.hints.as_ref().map(|hints| HintOptions {
                file: hints.file(),
                remote: hints.remote(self.proxy),
                format: None,
                aggregate: self.aggregate,
                without_undo: self.without_undo,
                on_failure_join: self.on_hint_failure == OnHintFailure::Join,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use engine::Network;

    #[test]
    fn command_line_definition_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn flags_become_engine_options() {
        let line = "peregrine reindex --datadir d --chain test --threads 3 --stop-at-height 7 --output o \
                    --scan --engine cache --json";
        let args = Args::try_parse_from(line.split(' ')).unwrap();
        let Command::Reindex(args) = args.command else { panic!("reindex") };
        let options = args.options(&args.check.datadir.core.locate().unwrap());
        assert_eq!((options.chain.params.network, options.chain.threads.get()), (Network::Test, 3));
        assert_eq!((options.stop_at_height, options.scan), (Some(Height(7)), true));
        assert!(args.check.datadir.json && options.engine == Engine::Cache);
        assert_eq!(options.output.as_deref(), Some("o".as_ref()));
    }

    #[test]
    fn sizes_are_parsed_with_units() {
        assert_eq!(size("134217728"), Ok(128 << 20));
        assert_eq!((size("128M"), size("1g"), size("2GiB")), (Ok(128 << 20), Ok(1 << 30), Ok(2 << 30)));
        assert_eq!(size("1.5G"), Ok(3 << 29));
        assert_eq!((size("256MB"), size("524288k")), (Ok(256 << 20), Ok(512 << 20)));
        for text in ["", "M", "64M", "1X", "-1G", "99999999T"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn invalid_command_lines_are_refused() {
        for line in [
            "peregrine",
            "peregrine reindex --datadir d --chain bitcoin",
            "peregrine reindex --conf c --noconf",
            "peregrine reindex --datadir d --threads 0",
            "peregrine reindex --datadir d --engine ordered",
            "peregrine reindex --datadir d --threads 1025",
            "peregrine snapshot verify f --threads 99999999",
            "peregrine reindex --datadir d --stop-at-height -1",
            "peregrine reindex --datadir d --assumevalid 1",
            "peregrine utxo stats --stop-at-height 1",
            "peregrine utxo stats --at 2-1",
            "peregrine utxo stats --at 1, --muhash",
            "peregrine utxo stats --scan",
            "peregrine utxo get",
            "peregrine utxo get 00:1",
            "peregrine utxo scan",
            "peregrine utxo scan 51 --range 2-1",
            "peregrine utxo scan 51 --range 0-1000000",
            "peregrine utxo scan 51 --range 2147483648",
        ] {
            assert!(Args::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
    }
}
