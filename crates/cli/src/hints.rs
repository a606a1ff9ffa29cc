//! The commands `peregrine hints make`, `info`, `convert` and `check`.

use crate::{args::common::MakeArgs, core_args::CoreArgs, prelude::*};
use engine::{
    hex,
    hints::{CoinSource, HintCheck, HintFileInfo, HintFormat, HintInfo, PackedFile, Packing, WrongHint},
};

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

#[derive(Args, Debug)]
pub struct MakeHintsArgs {
    #[command(flatten)]
    pub make: MakeArgs,

    /// Format to write: peregrine, bip456, bip456-lsb, thestack, swiftsync2140, btcd or bitmap
    #[arg(long, default_value_t = HintFormat::Peregrine)]
    pub format: HintFormat,

    /// Take the coins from this snapshot, and make hints for its block; spends are not matched
    #[arg(long, value_name = "FILE")]
    #[arg(conflicts_with_all = ["chainstate", "undo", "restart", "checkpoint_every"])]
    pub snapshot: Option<PathBuf>,

    /// Take the coins from the datadir's chainstate, and make hints for its best block; spends are not
    /// matched
    #[arg(long, conflicts_with_all = ["undo", "restart", "checkpoint_every"])]
    pub chainstate: bool,
}

/// An existing hint file.
#[derive(Args, Debug)]
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

#[derive(Args, Debug)]
pub struct ConvertHintsArgs {
    #[command(flatten)]
    pub file: HintsFileArgs,

    /// File to write
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,

    /// Format to write: peregrine, bip456, bip456-lsb, thestack, swiftsync2140, btcd or bitmap
    #[arg(long)]
    pub format: HintFormat,

    // The datadir is used only if it is given.
    #[command(flatten)]
    pub core: CoreArgs,
}

#[derive(Args, Debug)]
pub struct CheckHintsArgs {
    /// Hint file
    pub file: PathBuf,

    /// Format of the hint file, if it could be one of several
    #[arg(long, value_name = "FORMAT")]
    pub from: Option<HintFormat>,

    #[command(flatten)]
    pub check: CheckArgs,
}

json_of! {
pub struct InfoJson(path: &Path, info: &HintFileInfo) {
    file: String = path.display().to_string(),
    format: &'static str = info.hints.format.name(),
    chain: Option<Network> = info.hints.network,
    height: Height = info.hints.height,
    block_hash: Option<BlockHash> = info.hints.block_hash,
    hints: u64 = info.hints.hints,
    outputs: Option<u64> = info.hints.outputs,
    bytes: u64 = info.hints.bytes,
    bits_per_output: Option<f64> =
        info.hints.outputs.map(|outputs| info.hints.bytes as f64 * 8.0 / outputs.max(1) as f64),
    sha256: String = hex(&info.sha256),
    packed: Option<PackedJson> = info.packed.as_ref().map(PackedJson::of),
    first_record_is_genesis: Option<bool> = info.hints.first_record_is_genesis,
}

/// A packed file as it is; the rest of [`InfoJson`] is about the unpacked one.
struct PackedJson(file: &PackedFile) {
    packing: &'static str = file.packing.map_or("", Packing::name),
    bytes: u64 = file.bytes,
    sha256: String = hex(&file.sha256),
}
}

#[derive(Serialize, JsonSchema)]
pub struct CheckJson {
    #[serde(flatten)]
    info: InfoJson,
    wrong_blocks: u64,
    first_wrong: Option<WrongHint>,
}

pub fn make(args: &MakeHintsArgs) -> Done {
    let MakeHintsArgs { make: args, format, snapshot, chainstate } = args;
    let snapshot = snapshot.clone().map(CoinSource::Snapshot);
    let source = snapshot.or_else(|| chainstate.then_some(CoinSource::Chainstate));
    let located = args.check.datadir.core.locate()?;
    let options = args.options(&located);
    paths::check(&located, args.check.run.work_dir.as_deref(), &[("--output", Some(&args.output))])?;
    let stages = if source.is_some() { stages::MAKE_OF_COINS } else { stages::MAKE };
    let made = args.check.datadir.run(Some(&options), stages, |watch| match &source {
        None => engine::hints::make(&RealDisk, &options, &args.output, *format, watch),
        Some(from) => engine::hints::make_from_coins(&RealDisk, &options, from, &args.output, *format, watch),
    })?;
    described(&args.output, made)
}

/// Replies with what is in a file that was written.
fn described(path: &Path, hints: HintInfo) -> Done {
    let info = engine::hints::describe(&RealDisk, path, hints)?;
    Ok(reply(&InfoJson::of(path, &info), Exit::Done, info_rows))
}

pub fn info(args: &HintsFileArgs) -> Done {
    let info = engine::hints::info(&RealDisk, &args.file, args.from)?;
    Ok(reply(&InfoJson::of(&args.file, &info), Exit::Done, info_rows))
}

pub fn convert(args: &ConvertHintsArgs) -> Done {
    let located = args.core.if_named()?.map(CoreArgs::locate).transpose()?;
    let options = located.map(|located| located.chain_options());
    let (from, from_format) = (&args.file.file, args.file.from);
    let (to, to_format, datadir) = (&args.output, args.format, options.as_ref());
    let done = run::run(None, Style::Auto, stages::UNKNOWN, |watch| {
        engine::hints::convert(&RealDisk, from, from_format, to, to_format, datadir, watch)
    })?;
    described(&args.output, done)
}

pub fn check(args: &CheckHintsArgs) -> Done {
    let located = args.check.datadir.core.locate()?;
    let options = args.check.options(&located);
    let check = args.check.datadir.run(Some(&options), stages::MAKE, |watch| {
        engine::hints::check(&RealDisk, &options, &args.file, args.from, watch)
    })?;
    let HintCheck { info, wrong_blocks, first: first_wrong } = check;
    let info = InfoJson::of(&args.file, &engine::hints::describe(&RealDisk, &args.file, info)?);
    let exit = if wrong_blocks > 0 { Exit::Hints } else { Exit::Done };
    Ok(reply(&CheckJson { info, wrong_blocks, first_wrong }, exit, |check| {
        let verdict = match &check.first_wrong {
            None => "all hints are correct".to_owned(),
            Some(first) => {
                format!("hints of {} are wrong; the first: {first}", counted(check.wrong_blocks, "block"))
            }
        };
        info_rows(&check.info).row("checked", verdict)
    }))
}

fn info_rows(info: &InfoJson) -> Rows {
    let unknown = || "unknown".to_owned();
    let outputs = match (info.outputs, info.bits_per_output) {
        (Some(outputs), Some(bits)) => format!("of {} outputs, {bits:.3} bits per output", count(outputs)),
        _ => "of an unknown number of outputs".to_owned(),
    };
    let packed = info.packed.as_ref().map(|PackedJson { packing, bytes, sha256 }| {
        format!("{packing}, {} bytes, sha256 {sha256}", count(*bytes))
    });
    let hash = info.block_hash.map_or_else(unknown, |hash| hash.to_string());
    Rows::default()
        .row("hints", &info.file)
        .row("format", info.format)
        .row("chain", info.chain.map_or_else(unknown, |chain| chain.to_string()))
        .row("block", format!("{} ({hash})", info.height))
        .row("unspent", format!("{} {outputs}", count(info.hints)))
        .row("size", format!("{} bytes", count(info.bytes)))
        .row("sha256", &info.sha256)
        .each("packed", packed)
}
