//! The command line: one definition per flag, which gives parser and help.

use crate::{
    limits::{MOST_THREADS, default_memory},
    progress::Style,
};
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use engine::{
    AggregateKind, AssumeValid, Height, HintFormat, HintOptions, Network, ReindexOptions, ScriptVerifier,
    StatsOptions,
};
use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

/// Rebuilds a Bitcoin Core chainstate from its block files.
#[derive(Parser, Debug)]
#[command(name = "peregrine", version, about, after_help = EXIT_CODES)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 our own fault; 2 usage; 3 the chain breaks a consensus rule; 4 damaged or missing files;
5 the environment (locked, no space, no permission); 6 wrong hints; 130 interrupted.";

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Rebuild the chainstate from blocks and undo data, and put it in place of the old one
    Reindex(ReindexArgs),
    /// Make the same checks and write nothing: is what is on disk valid?
    Verify(VerifyArgs),
    /// Make, show, convert or check SwiftSync hints
    Hints {
        #[command(subcommand)]
        command: HintsCommand,
    },
    /// Make or verify UTXO snapshots, as Bitcoin Core's dumptxoutset writes them
    Snapshot {
        #[command(subcommand)]
        command: SnapshotCommand,
    },
    /// Look at a UTXO set
    Utxo {
        #[command(subcommand)]
        command: UtxoCommand,
    },
}

#[derive(Subcommand, Debug)]
pub enum UtxoCommand {
    /// Say of the chainstate on disk what Bitcoin Core's gettxoutsetinfo says
    Stats(StatsArgs),
}

#[derive(Subcommand, Debug)]
pub enum HintsCommand {
    /// Write which outputs are unspent after a block
    Make(MakeHintsArgs),
    /// Say what a hint file says of itself; its format is found by what it holds
    Info(HintsFileArgs),
    /// Write hints in another format
    Convert(ConvertHintsArgs),
    /// Compare each hint with the chain
    Check(CheckHintsArgs),
}

#[derive(Subcommand, Debug)]
pub enum SnapshotCommand {
    /// Write the UTXO set of a height
    Make(MakeSnapshotArgs),
    /// Say what a snapshot says of itself in its first bytes; its coins are not read
    Info(SnapshotFileArgs),
    /// Hash a snapshot, and prove it against the blocks of a datadir
    Verify(VerifySnapshotArgs),
}

#[derive(ClapArgs, Debug)]
pub struct MakeHintsArgs {
    #[command(flatten)]
    pub check: CheckArgs,

    #[command(flatten)]
    pub resume: ResumeArgs,

    /// The last block: a height, or tip
    #[arg(long, value_name = "N|tip", default_value = "tip", value_parser = height_or_tip)]
    pub height: HeightOrTip,

    /// The file to write
    #[arg(long, short, value_name = "FILE")]
    pub output: PathBuf,

    /// peregrine, bip456, bip456-lsb, thestack, swiftsync2140, btcd or bitmap
    #[arg(long, default_value_t = HintFormat::Peregrine)]
    pub format: HintFormat,
}

/// A hint file that exists.
#[derive(ClapArgs, Debug)]
pub struct HintsFileArgs {
    /// The hint file
    pub file: PathBuf,

    /// Its format, if the file could be of several
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

    /// The file to write
    pub output: PathBuf,

    /// Its format
    #[arg(long)]
    pub format: HintFormat,

    /// Where the blocks are, for formats that count outputs differently
    #[arg(long, value_name = "DIR")]
    pub datadir: Option<PathBuf>,

    /// Network of the blocks, by Core's names
    #[arg(long, default_value_t = Network::Main)]
    pub chain: Network,
}

#[derive(ClapArgs, Debug)]
pub struct CheckHintsArgs {
    /// The hint file
    pub file: PathBuf,

    /// Its format, if the file could be of several
    #[arg(long, value_name = "FORMAT")]
    pub from: Option<HintFormat>,

    #[command(flatten)]
    pub check: CheckArgs,
}

#[derive(ClapArgs, Debug)]
pub struct MakeSnapshotArgs {
    #[command(flatten)]
    pub check: CheckArgs,

    #[command(flatten)]
    pub resume: ResumeArgs,

    /// The last block: a height, or tip
    #[arg(long, value_name = "N|tip", default_value = "tip", value_parser = height_or_tip)]
    pub height: HeightOrTip,

    /// The file to write
    #[arg(long, short, value_name = "FILE")]
    pub output: PathBuf,
}

/// A snapshot that exists.
#[derive(ClapArgs, Debug)]
pub struct SnapshotFileArgs {
    /// The snapshot
    pub file: PathBuf,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(ClapArgs, Debug)]
pub struct VerifySnapshotArgs {
    #[command(flatten)]
    pub file: SnapshotFileArgs,

    /// Prove the coins against the blocks in this Bitcoin Core data directory
    #[arg(long, value_name = "DIR")]
    pub datadir: Option<PathBuf>,

    /// What the sum is made of: sha256, siphash128 or muhash
    #[arg(long, default_value_t = AggregateKind::Sha256)]
    pub aggregate: AggregateKind,

    /// Worker threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<NonZeroUsize>,

    /// How to show progress
    #[arg(long, value_enum, default_value_t = Style::Auto)]
    pub progress: Style,
}

/// The last block that is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeightOrTip(pub Option<Height>);

fn height_or_tip(text: &str) -> Result<HeightOrTip, String> {
    match text {
        "tip" => Ok(HeightOrTip(None)),
        number => number
            .parse()
            .map(|height| HeightOrTip(Some(Height(height))))
            .map_err(|error| format!("{error}; or tip")),
    }
}

#[derive(ClapArgs, Debug)]
pub struct DatadirArgs {
    /// Bitcoin Core's data directory (the one that has `blocks`, or the networks' folders)
    #[arg(long, value_name = "DIR")]
    pub datadir: PathBuf,

    /// Network, by Core's names: main, test, testnet4, signet, regtest
    #[arg(long, default_value_t = Network::Main)]
    pub chain: Network,

    /// Worker threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<NonZeroUsize>,

    /// Print the report as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// What rebuilding and verifying have in common.
#[derive(ClapArgs, Debug)]
pub struct CheckArgs {
    #[command(flatten)]
    pub datadir: DatadirArgs,

    /// Do not trust the block index: find blocks and undo data in their files
    #[arg(long)]
    pub scan: bool,

    /// Take scripts of this block and those before it for valid; 0: check all [default: as this version's
    /// Core]
    #[arg(long, value_name = "HASH|0|default", default_value = "default", hide_default_value = true)]
    #[arg(value_parser = assume_valid)]
    pub assumevalid: AssumeValid,

    /// Most memory for the whole process: 128M, 1G, ... [default: a quarter of the machine's]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub memory: Option<u64>,

    /// Where temporary files go [default: beside the new chainstate; for verify, the system's place]
    #[arg(long, value_name = "DIR")]
    pub work_dir: Option<PathBuf>,

    /// How to show progress
    #[arg(long, value_enum, default_value_t = Style::Auto)]
    pub progress: Style,
}

/// How an interrupted run is gone on with.
#[derive(ClapArgs, Debug)]
pub struct ResumeArgs {
    /// Begin anew, even if an interrupted run has left a checkpoint to go on from
    #[arg(long)]
    pub restart: bool,

    /// Save a checkpoint at most this often
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub checkpoint_every: u32,
}

#[derive(ClapArgs, Debug)]
pub struct ReindexArgs {
    #[command(flatten)]
    pub check: CheckArgs,

    /// Rebuild the UTXO set as it was after this block
    #[arg(long, value_name = "N")]
    pub stop_at_height: Option<u32>,

    #[command(flatten)]
    pub resume: ResumeArgs,

    /// Replace a chainstate or block index that knows more blocks than the new one will
    #[arg(long)]
    pub accept_lower_tip: bool,

    /// Keep what is replaced, as chainstate.old (and with --scan blocks/index.old)
    #[arg(long, conflicts_with = "output")]
    pub keep_old: bool,

    /// Go by SwiftSync hints: less memory, and less work with --without-undo
    #[arg(long, value_name = "FILE")]
    pub hints: Option<PathBuf>,

    /// With --hints: what the sum is made of: sha256, siphash128 or muhash
    #[arg(long, default_value_t = AggregateKind::Sha256, requires = "hints")]
    pub aggregate: AggregateKind,

    /// With --hints: use no undo data below their last block; rules of spends there rest on --assumevalid
    #[arg(long, requires = "hints")]
    pub without_undo: bool,

    /// With --hints, if they turn out to be wrong: stop, or name the first wrong one and rebuild without them
    #[arg(long, value_enum, default_value_t = OnHintFailure::Stop, requires = "hints")]
    pub on_hint_failure: OnHintFailure,

    /// Leave the datadir as it is and write into this one (with --scan a new block index too)
    #[arg(long, value_name = "DIR2")]
    pub output: Option<PathBuf>,

    /// Write the run's log to this new file, as JSON lines: for peregrine-bench plot
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum OnHintFailure {
    /// Say so and stop
    Stop,
    /// Join: match each spend with its coin
    Join,
}

#[derive(ClapArgs, Debug)]
pub struct VerifyArgs {
    #[command(flatten)]
    pub check: CheckArgs,

    /// Check the blocks up to the chainstate's best block, and compare their coins with the chainstate's
    #[arg(long)]
    pub against_chainstate: bool,
}

#[derive(ClapArgs, Debug)]
pub struct StatsArgs {
    #[command(flatten)]
    pub datadir: DatadirArgs,

    /// Compute MuHash3072 too (about 3 microseconds a coin)
    #[arg(long)]
    pub muhash: bool,
}

/// A size in bytes, with K, M, G or T for the powers of 1024.
fn size(text: &str) -> Result<u64, String> {
    let text = text.trim_end_matches('B').trim_end_matches('i');
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        unit => return Err(format!("unknown unit {unit}, want K, M, G or T")),
    };
    let number: u64 = digits.parse().map_err(|error| format!("{error}"))?;
    let bytes = number.checked_mul(1 << shift).ok_or("more than there is")?;
    if bytes < engine::MIN_MEMORY {
        return Err(format!("at least {} MiB are needed", engine::MIN_MEMORY >> 20));
    }
    Ok(bytes)
}

/// A number of threads that some machine could have cores for.
fn threads(text: &str) -> Result<NonZeroUsize, String> {
    let threads: NonZeroUsize = text.parse().map_err(|error| format!("{error}"))?;
    if threads.get() > MOST_THREADS {
        return Err(format!("at most {MOST_THREADS}: more than cores is of no use"));
    }
    Ok(threads)
}

/// Core's `-assumevalid`: a block hash, or 0.
fn assume_valid(text: &str) -> Result<AssumeValid, String> {
    match text {
        "default" => Ok(AssumeValid::Default),
        "0" => Ok(AssumeValid::Nothing),
        hash => hash.parse().map(AssumeValid::Block).map_err(|error| format!("{error}, or 0, or default")),
    }
}

/// Who runs scripts: Bitcoin Core's own code, if it was built in.
fn script_verifier() -> Option<&'static dyn ScriptVerifier> {
    #[cfg(feature = "scripts")]
    return Some(&script::Core);
    #[cfg(not(feature = "scripts"))]
    None
}

impl DatadirArgs {
    fn threads(&self) -> NonZeroUsize {
        self.threads.or_else(|| thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN)
    }
}

impl CheckArgs {
    /// The folders in which a datadir can have the blocks of a network: below it, or the network's own if
    /// that was given.
    pub fn network_folders(datadir: &Path, network: Network) -> Vec<PathBuf> {
        match network.folder() {
            None => vec![datadir.to_owned()],
            Some(folder) => {
                let own = datadir.file_name().is_some_and(|name| name == folder);
                let own = own.then(|| datadir.to_owned());
                [datadir.join(folder)].into_iter().chain(own).collect()
            }
        }
    }

    /// What the engine is asked to check.
    pub fn options(&self) -> ReindexOptions {
        let options = ReindexOptions::new(&self.datadir.datadir, self.datadir.chain);
        ReindexOptions {
            memory: self
                .memory
                .unwrap_or_else(|| default_memory(options.memory, self.datadir.threads().get())),
            work_dir: self.work_dir.clone(),
            scan: self.scan,
            scripts: script_verifier(),
            assume_valid: self.assumevalid,
            threads: self.datadir.threads(),
            ..options
        }
    }

    /// The same of a run that can be gone on with.
    pub fn resumable(&self, resume: &ResumeArgs) -> ReindexOptions {
        ReindexOptions {
            restart: resume.restart,
            checkpoint_interval: Duration::from_secs(resume.checkpoint_every.into()),
            ..self.options()
        }
    }
}

impl ReindexArgs {
    /// What the engine is asked to do.
    pub fn options(&self) -> ReindexOptions {
        ReindexOptions {
            stop_at_height: self.stop_at_height.map(Height),
            output: self.output.clone(),
            accept_lower_tip: self.accept_lower_tip,
            keep_old: self.keep_old,
            hints: self.hints.clone().map(|file| HintOptions {
                file,
                format: None,
                aggregate: self.aggregate,
                without_undo: self.without_undo,
                on_failure_join: self.on_hint_failure == OnHintFailure::Join,
            }),
            ..self.check.resumable(&self.resume)
        }
    }
}

impl StatsArgs {
    /// What the engine is asked to tell.
    pub fn options(&self) -> StatsOptions {
        StatsOptions {
            datadir: self.datadir.datadir.clone(),
            network: self.datadir.chain,
            threads: self.datadir.threads(),
            muhash: self.muhash,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn flags_mean_what_the_engine_does() {
        let line = "peregrine reindex --datadir d --chain test --threads 3 --stop-at-height 7 --output o \
                    --scan --json";
        let args = Args::try_parse_from(line.split(' ')).unwrap();
        let Command::Reindex(args) = args.command else { panic!("reindex") };
        let options = args.options();
        assert_eq!((options.network, options.threads.get()), (Network::Test, 3));
        assert_eq!((options.stop_at_height, options.scan), (Some(Height(7)), true));
        assert!(args.check.datadir.json);
        assert_eq!(options.output.as_deref(), Some("o".as_ref()));
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("134217728"), Ok(128 << 20));
        assert_eq!((size("128M"), size("1g"), size("2GiB")), (Ok(128 << 20), Ok(1 << 30), Ok(2 << 30)));
        for text in ["", "M", "64M", "1X", "-1G", "99999999T"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "peregrine",
            "peregrine reindex",
            "peregrine reindex --datadir d --chain mainnet",
            "peregrine reindex --datadir d --threads 0",
            "peregrine reindex --datadir d --threads 1025",
            "peregrine snapshot verify f --threads 99999999",
            "peregrine reindex --datadir d --stop-at-height -1",
            "peregrine reindex --datadir d --assumevalid 1",
            "peregrine utxo stats",
        ] {
            assert!(Args::try_parse_from(line.split(' ')).is_err(), "{line}");
        }
    }
}
