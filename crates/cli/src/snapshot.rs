//! The commands `peregrine snapshot make`, `info`, `verify` and `load`. `shared_snapshot.rs` has the others.

use crate::{
    args::common::MakeArgs,
    prelude::*,
    report::{WithFile, chainstate_rows, pinned_text, set_hash_text},
    shared_snapshot::{FetchSnapshotArgs, ShareSnapshotArgs},
};
use engine::{
    hints::AggregateKind,
    snapshot::{LoadedSnapshotReport, SnapshotMetadata, SnapshotReport, SnapshotVerdict},
};

#[derive(Subcommand, Debug)]
pub enum SnapshotCommand {
    /// Write the UTXO set at a height
    Make(MakeSnapshotArgs),
    /// Show the metadata of a snapshot; its coins are not read
    Info(SnapshotFileArgs),
    /// Hash a snapshot and, with --datadir, prove it against the blocks, also beside a running bitcoind;
    /// scripts are not run
    Verify(VerifySnapshotArgs),
    /// Make the chainstate of a snapshot, from whose block bitcoind then continues, as Bitcoin Core's
    /// loadtxoutset
    Load(LoadSnapshotArgs),
    /// Cut the UTXO sets at some heights, or a snapshot, into chunks that nodes can give to peers (draft of
    /// BIP 452)
    Share(ShareSnapshotArgs),
    /// Join a snapshot from the chunks of several sources, each chunk proven
    Fetch(FetchSnapshotArgs),
}

#[derive(Args, Debug)]
pub struct MakeSnapshotArgs {
    #[command(flatten)]
    pub make: MakeArgs,

    /// Take the coins from the datadir's chainstate, which is of its best block; no block is read
    #[arg(long, conflicts_with_all = ["to", "scan", "undo", "assumevalid", "restart", "checkpoint_every"])]
    pub chainstate: bool,
}

/// An existing snapshot.
#[derive(Args, Debug)]
pub struct SnapshotFileArgs {
    /// Snapshot file
    pub file: PathBuf,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct VerifySnapshotArgs {
    /// Snapshot file
    pub file: PathBuf,

    // The datadir is used only if it is given.
    #[command(flatten)]
    pub datadir: DatadirArgs,

    /// Hash that the sum over created and spent outputs is built from: sha256, siphash128 or muhash
    #[arg(long, default_value_t = AggregateKind::Sha256, hide_short_help = true)]
    pub aggregate: AggregateKind,
}

#[derive(Args, Debug)]
pub struct LoadSnapshotArgs {
    /// Snapshot file, of a block whose UTXO set has its hash in Bitcoin Core's source
    pub file: PathBuf,

    #[command(flatten)]
    pub datadir: DatadirArgs,
}

json_of! {
// `verdict`: what was found of the coins, if they were read.
pub struct SnapshotJson(path: &Path, metadata: &SnapshotMetadata, verdict: Option<&SnapshotVerdict>) {
    file: String = path.display().to_string(),
    chain: Network = metadata.network(),
    /// The snapshot's base block.
    block_hash: BlockHash = metadata.base_block,
    /// Its height as the file states it, in the form of the draft of BIP 452; Bitcoin Core's has none.
    stated_height: Option<Height> = metadata.base_height,
    coins: u64 = metadata.coins,
    /// Whether the coins were read. If not, all other fields come from the metadata at the start of the file.
    coins_read: bool = verdict.is_some(),
    hash_serialized_3: Option<String> = verdict.map(|verdict| hex_reversed(&verdict.hash_serialized_3)),
    matches_core_assumeutxo_hash: Option<bool> = verdict.and_then(|verdict| verdict.pinned),
    matches_blocks: Option<bool> = verdict.and_then(|verdict| verdict.proven),
}
}

pub fn make(MakeSnapshotArgs { make: args, chainstate }: &MakeSnapshotArgs) -> Done {
    let located = args.check.datadir.core.locate()?;
    let options = args.options(&located);
    paths::check(&located, args.check.run.work_dir.as_deref(), &[("--output", Some(&args.output))])?;
    let stages = if *chainstate { stages::MAKE_OF_CHAINSTATE } else { stages::MAKE };
    let made = args.check.datadir.run(Some(&options), stages, |watch| match *chainstate {
        true => engine::snapshot::make_of_chainstate(&RealDisk, &options, &args.output, watch),
        false => engine::snapshot::make(&RealDisk, &options, &args.output, watch),
    })?;
    Ok(reply(&WithFile::new(&args.output, made), Exit::Done, made_rows))
}

fn made_rows(WithFile { file, report }: &WithFile<SnapshotReport>) -> Rows {
    let pinned = report.is_pinned.then_some(true);
    Rows::default()
        .row("snapshot", file)
        .row("block", format!("{} ({})", report.hash, report.height))
        .row("coins", count(report.coins))
        .row("size", format!("{} bytes", count(report.bytes)))
        .row("hash_serialized_3", set_hash_text(&report.hash_serialized_3, pinned))
}

pub fn info(args: &SnapshotFileArgs) -> Done {
    let metadata = engine::snapshot::info(&RealDisk, &args.file)?;
    Ok(reply(&SnapshotJson::of(&args.file, &metadata, None), Exit::Done, rows))
}

pub fn verify(args: &VerifySnapshotArgs) -> Done {
    let VerifySnapshotArgs { file, datadir, .. } = args;
    let (core, threads) = (datadir.core.if_named()?, datadir.threads);
    let network = engine::snapshot::info(&RealDisk, file)?.network();
    let located = core.map(|core| core.locate_on(network)).transpose()?;
    // Blocks up to the snapshot's do not change, so a bitcoind may go on meanwhile.
    let options = located.map(|located| ChainOptions { threads, live: true, ..located.chain_options() });
    let verdict = datadir.run(None, stages::UNKNOWN, |watch| {
        engine::snapshot::verify(&RealDisk, file, options.as_ref(), args.aggregate, watch)
    })?;
    let wrong = verdict.pinned == Some(false) || verdict.proven == Some(false);
    let checked = SnapshotJson::of(file, &verdict.metadata, Some(&verdict));
    Ok(reply(&checked, if wrong { Exit::Damaged } else { Exit::Done }, rows))
}

pub fn load(args: &LoadSnapshotArgs) -> Done {
    let located = args.datadir.core.locate()?;
    let options = args.datadir.default_options(&located, None);
    let report = args
        .datadir
        .run(None, stages::LOAD, |watch| engine::snapshot::load(&RealDisk, &args.file, &options, watch))?;
    Ok(reply(&WithFile::new(&args.file, report), Exit::Done, loaded_rows))
}

fn loaded_rows(WithFile { report, .. }: &WithFile<LoadedSnapshotReport>) -> Rows {
    let next = "start bitcoind: it continues from this block, and validates the blocks below it";
    chainstate_rows(report.network, report.height, report.hash, &report.chainstate)
        .row("coins", count(report.coins))
        .row("hash_serialized_3", set_hash_text(&report.hash_serialized_3, Some(true)))
        .each("note", report.notes.iter().map(warning_text))
        .row("next", next)
}

fn rows(snapshot: &SnapshotJson) -> Rows {
    let height = snapshot
        .stated_height
        .map(|height| format!("{height}, by the header, which is that of the draft of BIP 452"));
    let unread = "only the metadata and the file length; `snapshot verify` checks the coins";
    let pinned = match snapshot.matches_core_assumeutxo_hash {
        None => " (Bitcoin Core's source has no hash for this block)",
        known => pinned_text(known),
    };
    let proof = snapshot.matches_blocks.map(|matches| match matches {
        true => "the coins match the blocks",
        false => "WRONG: the coins do not match the blocks",
    });
    Rows::default()
        .row("snapshot", &snapshot.file)
        .row("chain", snapshot.chain)
        .row("block", snapshot.block_hash)
        .row("coins", count(snapshot.coins))
        .each("height", height)
        .each("checked", (!snapshot.coins_read).then_some(unread))
        .each("hash_serialized_3", snapshot.hash_serialized_3.iter().map(|hash| format!("{hash}{pinned}")))
        .each("proof", proof)
}
