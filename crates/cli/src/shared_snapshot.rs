//! The commands `peregrine snapshot share` and `fetch`: snapshots in chunks, for peers.

use crate::{
    args::common::{one_per_core, threads},
    hint_location::HintLocation,
    prelude::*,
    report::{WithFile, pinned_text, set_hash_text},
};
use engine::{
    UndoPolicy, dir_of,
    snapshot::{CHUNK_LEN, FetchOptions, FetchedSnapshotReport, SharedSnapshotReport},
};
use std::{collections::BTreeSet, net::SocketAddr, num::NonZeroUsize};

#[derive(Args, Debug)]
pub struct ShareSnapshotArgs {
    #[command(flatten)]
    pub datadir: DatadirArgs,

    /// Heights: all blocks up to the highest are checked, in one pass [default: the two heights that nodes
    /// are to serve by the draft of BIP 452]
    #[arg(long, value_name = "HEIGHT[,HEIGHT..]", alias = "height", value_delimiter = ',')]
    pub at: Vec<u32>,

    /// Ignore the block index and find blocks by reading their files
    #[arg(long)]
    pub scan: bool,

    /// Cut this snapshot file instead; no block is read
    #[arg(long, value_name = "FILE", conflicts_with_all = ["at", "scan", "memory", "work_dir"])]
    #[arg(conflicts_with_all = ["assumevalid", "datadir", "threads"])]
    pub from: Option<PathBuf>,

    /// Folder in which a folder is made for each height
    #[arg(long, short, value_name = "DIR")]
    pub output: PathBuf,

    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Args, Debug)]
pub struct FetchSnapshotArgs {
    /// Folders of chunks, their https URLs, or snapshot files with a file utxotree beside them. A chunk that
    /// is wrong in one source is taken from another
    #[arg(value_name = "SOURCE", required = true)]
    pub sources: Vec<HintLocation>,

    /// Snapshot file to write
    #[arg(long, short, value_name = "FILE")]
    pub output: PathBuf,

    /// Merkle root of the chunks. All coins rest on it: take it from someone whom you trust. Without it, the
    /// coins must have the hash that Bitcoin Core's source has for their block
    #[arg(long, value_name = "HEX", value_parser = root)]
    pub root: Option<[u8; 32]>,

    /// Accept any coins of a block for which Bitcoin Core's source has no hash: those who made the sources
    /// could have forged them
    #[arg(long, conflicts_with = "root")]
    pub trust_sources: bool,

    /// Download through this SOCKS5 proxy, which resolves the names
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = crate::peer_args::proxy_address)]
    pub proxy: Option<SocketAddr>,

    /// Maximum number of chunks that are fetched at once; at most four are [default: one per core]
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

/// Parses a Merkle root.
fn root(text: &str) -> Result<[u8; 32], String> {
    let hash = text.parse::<BlockHash>();
    hash.map(|hash| hash.0).map_err(|_| "must be 64 hexadecimal digits".to_owned())
}

/// A set, with the entry for chain parameters.
#[derive(Serialize, JsonSchema)]
pub struct SharedSet {
    #[serde(flatten)]
    report: SharedSnapshotReport,
    /// The entry of `m_assumeutxo_data` in Bitcoin Core's source, with the root.
    chain_params: String,
}

/// What was cut.
#[derive(Serialize, JsonSchema)]
pub struct SharedSets {
    /// In ascending order of heights.
    sets: Vec<SharedSet>,
}

pub fn share(args: &ShareSnapshotArgs) -> Done {
    let reports = match &args.from {
        Some(file) => vec![args.datadir.run(None, stages::EXPORT, |watch| {
            engine::snapshot::share_file(&RealDisk, file, &args.output, CHUNK_LEN, watch)
        })?],
        None => after_blocks(args)?,
    };
    let set = |report: SharedSnapshotReport| SharedSet { chain_params: report.chain_params(), report };
    let shared = SharedSets { sets: reports.into_iter().map(set).collect() };
    Ok(reply(&shared, Exit::Done, |shared| Rows::all(shared.sets.iter().map(shared_rows))))
}

/// Cuts the sets after some blocks.
fn after_blocks(args: &ShareSnapshotArgs) -> Result<Vec<SharedSnapshotReport>, Error> {
    let located = args.datadir.core.locate()?;
    paths::check(&located, args.run.work_dir.as_deref(), &[("--output", Some(&args.output))])?;
    let options = args.datadir.chain_options(&located, &args.run);
    let work_dir = options.work_dir.or_else(|| Some(dir_of(&args.output).to_owned()));
    let options = ChainOptions { work_dir, undo: UndoPolicy::Auto, scan: args.scan, ..options };
    let heights: BTreeSet<Height> = args.at.iter().copied().map(Height).collect();
    let stages = if heights.len() == 1 { stages::SHARE_HEIGHT } else { stages::SHARE_HEIGHTS };
    args.datadir.run(Some(&options), stages, |watch| {
        engine::snapshot::share(&RealDisk, &options, &heights, &args.output, watch)
    })
}

fn shared_rows(SharedSet { report, chain_params }: &SharedSet) -> Rows {
    let pinned = match report.is_pinned {
        true => pinned_text(Some(true)),
        false => " (Bitcoin Core's source has no hash for this block)",
    };
    Rows::default()
        .row("folder", report.folder.display())
        .row("block", block_text(report.hash, report.height))
        .row("coins", count(report.coins))
        .row("size", format!("{} bytes in {}", count(report.bytes), counted(report.chunks, "chunk")))
        .row("merkle root", hex_reversed(&report.merkle_root))
        .row("hash_serialized_3", hex_reversed(&report.hash_serialized_3) + pinned)
        .row("chain parameters", chain_params)
}

fn block_text(hash: BlockHash, height: Option<Height>) -> String {
    match height {
        Some(height) => format!("{hash} ({height})"),
        None => format!("{hash} (height unknown)"),
    }
}

pub fn fetch(args: &FetchSnapshotArgs) -> Done {
    args.sources.iter().try_for_each(|source| source.check(args.proxy))?;
    let options = FetchOptions {
        sources: args.sources.iter().map(|source| source.source(args.proxy)).collect(),
        output: args.output.clone(),
        root: args.root,
        trust_sources: args.trust_sources,
        threads: args.threads,
        chunk_len: CHUNK_LEN,
    };
    let report = run::run(None, args.progress, stages::FETCH, |watch| {
        engine::snapshot::fetch(&RealDisk, &options, watch)
    })?;
    Ok(reply(&WithFile::new(&args.output, report), Exit::Done, fetched_rows))
}

fn fetched_rows(WithFile { file, report }: &WithFile<FetchedSnapshotReport>) -> Rows {
    let trust = match (report.is_root_given, report.is_pinned) {
        (true, true) => "the root that --root names, and the hash in Bitcoin Core's source",
        (true, false) => "the root that --root names, and on who stated it: the coins could be forged",
        (false, true) => "the hash in Bitcoin Core's source",
        (false, false) => "NOTHING but those who made the sources: the coins could be forged",
    };
    let size = format!(
        "{} bytes in {}, {} of them from an earlier run",
        count(report.bytes),
        counted(report.chunks, "chunk"),
        count(report.chunks_kept)
    );
    let header = "without the height that the chunks have in it, so that bitcoind loads it";
    Rows::default()
        .row("snapshot", file)
        .row("block", block_text(report.hash, report.height))
        .row("coins", count(report.coins))
        .row("size", size)
        .row("merkle root", hex_reversed(&report.merkle_root))
        .row("hash_serialized_3", set_hash_text(&report.hash_serialized_3, report.is_pinned.then_some(true)))
        .row("trust rests on", trust)
        .each("header", report.height_removed.then_some(header))
        .each("wrong", report.faults.iter().map(|fault| fault.error.fact_text()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_are_parsed_in_the_order_in_which_they_are_printed() {
        let text = format!("{}01", "00".repeat(31));
        let parsed = root(&text).unwrap();
        assert_eq!((parsed[0], parsed[31], hex_reversed(&parsed)), (1, 0, text));
        for wrong in ["", "00", "zz"] {
            assert!(root(wrong).is_err(), "{wrong}");
        }
    }
}
