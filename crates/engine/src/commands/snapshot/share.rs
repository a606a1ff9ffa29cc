//! Snapshots in chunks, from which nodes are to give them to their peers (draft of BIP 452): cut while the
//! coins come, so that several heights take one pass over the blocks and no second copy.

use super::source::Source;
use api::{
    error::Error,
    event::{Event, Watch},
    hex_reversed,
    options::{ChainOptions, FileSource, UndoPolicy},
    remedy::Remedy,
    stage::Stage,
};
use disk::{
    DiskError,
    chainstate::ChainstateReader,
    snapshot::{SnapshotMetadata, SnapshotOutput, SnapshotReader, SnapshotWriter},
    utxo_tree::{ChunkWriter, UtxoTree},
};
use pipeline::{
    job::{
        self, Job,
        coins_after::{AfterBlock, with_coins_after},
        read_only_job::with_read_only_job,
    },
    stages::{coin_hash::CoinHash, coin_reader::each_coin, finish::read_back, work_dir::WorkDir},
};
use rules::ChainParams;
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};
use vfs::{Disk, During as _, unfinished};
use wire::{BlockHash, Height, Network};

/// Number of blocks by which a scheduled height is below the tip.
const BURIAL: u32 = 2016;
/// Number of blocks between two scheduled heights.
const INTERVAL: u32 = 7 * 2016;

api::reported! {
/// A snapshot that was cut into chunks.
#[derive(Clone, Debug, Default)]
pub struct SharedSnapshotReport {
    /// The network.
    pub network as "chain": Network,
    /// Height of the block; `None` if only its hash is known.
    pub height: Option<Height>,
    /// Its hash.
    pub hash as "block_hash": BlockHash,
    /// Number of transactions up to it; `None` if no blocks were read.
    pub chain_transactions: Option<u64>,
    /// Number of coins.
    pub coins: u64,
    /// Length of the snapshot, in bytes.
    pub bytes: u64,
    /// Number of chunks.
    pub chunks: u64,
    /// Merkle root of the chunks, in internal byte order.
    pub merkle_root with "api::json::HashText": [u8; 32],
    /// `hash_serialized_3` of the set, in internal byte order.
    pub hash_serialized_3 with "api::json::HashText": [u8; 32],
    /// Whether Core's source pins this hash for this block. False if it pins none; if it pins another one,
    /// there is no folder.
    pub is_pinned as "matches_core_assumeutxo_hash" with "api::json::TrueOrNull": bool,
    /// The folder.
    pub folder with "api::json::PathText": PathBuf,
}
}

impl SharedSnapshotReport {
    /// Returns the entry of Core's `m_assumeutxo_data`, with the root; what is not known is left out.
    pub fn chain_params(&self) -> String {
        let hash = |bytes: &[u8; 32]| format!("uint256{{\"{}\"}}", hex_reversed(bytes));
        let height = self.height.map_or(String::new(), |height| format!(".height = {height}, "));
        let count = self.chain_transactions;
        let count = count.map_or(String::new(), |count| format!(".m_chain_tx_count = {count}, "));
        format!(
            "{{{height}.hash_serialized = AssumeutxoHash{{{}}}, {count}.blockhash = {}, .merkle_root = {}}},",
            hash(&self.hash_serialized_3),
            hash(&self.hash.0),
            hash(&self.merkle_root)
        )
    }

    /// The same with what is known from the leaves.
    fn with_tree(self, tree: &UtxoTree) -> Self {
        let (chunks, merkle_root) = (tree.leaves.len() as u64, tree.root());
        Self { bytes: tree.len, chunks, merkle_root, ..self }
    }

    /// Returns what the folder says of itself.
    fn description(&self) -> String {
        let Self { network, hash, coins, bytes, chunks, .. } = self;
        let [height, transactions] = [self.height.map(|height| height.0.into()), self.chain_transactions]
            .map(|number: Option<u64>| number.map_or("null".to_owned(), |number| number.to_string()));
        let [root, utxo] = [&self.merkle_root, &self.hash_serialized_3].map(hex_reversed);
        format!(
            "{{\n  \"chain\": \"{network}\",\n  \"height\": {height},\n  \"block_hash\": \"{hash}\",\n  \
             \"chain_transactions\": {transactions},\n  \"coins\": {coins},\n  \"bytes\": {bytes},\n  \
             \"chunks\": {chunks},\n  \"merkle_root\": \"{root}\",\n  \"hash_serialized_3\": \"{utxo}\"\n}}\n"
        )
    }
}

/// Returns the heights whose UTXO sets a node with this tip is to serve, in ascending order: none, one or two
/// (draft of BIP 452, "Scheduled UTXO Set Heights"). The genesis block, which has no coins, is none.
pub fn scheduled_heights(tip: Height) -> Vec<Height> {
    let last = tip.0.saturating_sub(BURIAL) / INTERVAL * INTERVAL;
    let heights = [last.saturating_sub(INTERVAL), last].map(Height).into_iter();
    heights.filter(|height| height.0 > 0).collect()
}

/// Writes the snapshots after the blocks at some heights as chunks, each to a folder `HEIGHT-HASH` in
/// `output`, in one pass over the blocks. Without heights, the ones that are scheduled for the last stored
/// block are used. A folder is complete or absent; those of lower heights stay if a later one fails, and the
/// next run keeps them.
///
/// # Errors
/// The same errors as [`crate::utxo::read_after()`]; [`api::error::ErrorKind::Usage`] if there are no heights
/// and the chain is too short to have any scheduled, or each height has a folder.
pub fn share(
    disk: &dyn Disk,
    options: &ChainOptions,
    heights: &BTreeSet<Height>,
    output: &Path,
    watch: Watch<'_>,
) -> Result<Vec<SharedSnapshotReport>, Error> {
    let mut heights = heights.clone();
    if heights.is_empty() {
        heights.extend(scheduled(disk, options, watch)?);
    }
    let output = &unfinished::target(disk, output)?;
    refuse_complete(disk, options, &heights, output, watch.interrupt)?;
    let mut sets = Vec::new();
    let each = &mut |job: &Job<'_>, dir: &Path, after| {
        sets.push(share_chainstate(job, dir, after, output)?);
        Ok(())
    };
    in_folder(disk, output, || with_coins_after(disk, options, &heights, each, watch))?;
    Ok(sets)
}

/// Calls `write`, which writes to a folder. A new one that is empty after a failure is removed.
fn in_folder<T>(
    disk: &dyn Disk,
    folder: &Path,
    write: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    let is_new = !disk.exists(folder).during("look for", folder)?;
    disk.create_dir_all(folder).during_creation(folder)?;
    write().inspect_err(|_| {
        if is_new {
            // Only if it is empty: the folders in it are complete.
            let _ = disk.remove_dir(folder);
        }
    })
}

/// Returns the heights that are scheduled for the last stored block.
fn scheduled(disk: &dyn Disk, options: &ChainOptions, watch: Watch<'_>) -> Result<Vec<Height>, Error> {
    let options = &ChainOptions { undo: UndoPolicy::Make, ..options.clone() };
    // The plan for these heights reports what there is to report.
    let tip = with_read_only_job(disk, options, None, watch.without_events(), |job, _| {
        Ok(job.plan.chain.tip_height())
    })?;
    let heights = scheduled_heights(tip);
    if heights.is_empty() {
        let detail = format!(
            "the stored chain ends at height {tip}, and the first height that is scheduled for sharing is \
             {INTERVAL}, from a chain of {} blocks on; name the heights",
            INTERVAL + BURIAL
        );
        return Err(Error::usage(detail));
    }
    Ok(heights)
}

/// Refuses heights that all have a folder already, and folders without the tree of their block, before the
/// work begins.
fn refuse_complete(
    disk: &dyn Disk,
    options: &ChainOptions,
    heights: &BTreeSet<Height>,
    output: &Path,
    interrupt: &AtomicBool,
) -> Result<(), Error> {
    if !disk.exists(output).during("look for", output)? {
        return Ok(());
    }
    let names = disk.list(output).during("list", output)?;
    let is_of = |name: &str, height: &Height| {
        name.starts_with(&format!("{height}-")) && !name.ends_with(unfinished::SUFFIX)
    };
    let folder_of = |height| names.iter().filter_map(|name| name.to_str()).find(|name| is_of(name, height));
    let found = heights.iter().filter_map(|height| Some((height, folder_of(height)?)));
    let found: Vec<_> = found.collect();
    for (height, name) in &found {
        let folder = output.join(name);
        let tree = Comparison::begin(disk, &folder, options.hooks.chunk_len, interrupt)?.tree;
        if format!("{height}-{}", tree.block) != *name {
            let error = Error::damaged(format!("its utxotree is that of block {}", tree.block));
            return Err(error.in_file(folder, None).with_remedies([Remedy::MoveAway, Remedy::OtherOutput]));
        }
    }
    let Some((_, name)) = found.first().filter(|_| found.len() == heights.len()) else { return Ok(()) };
    // A run that was killed at its end has left its chainstate: what chooses a directory removes it.
    let _ = WorkDir::for_file(disk, options, None);
    Err(there_already(&output.join(name)))
}

/// Cuts the coins of a temporary chainstate, which are read twice: their number precedes them. A folder that
/// an earlier run has completed stays.
fn share_chainstate(
    job: &Job<'_>,
    dir: &Path,
    AfterBlock { height, hash, transactions }: AfterBlock,
    output: &Path,
) -> Result<SharedSnapshotReport, Error> {
    let (params, disk) = (job.files.params, job.work.disk());
    job.watch.sink.event(Event::Started(Stage::Prove));
    let reader = ChainstateReader::open(disk, dir)?;
    let stats = read_back(&reader, None, job.threads(), job.watch)?;
    let hash_serialized_3 = stats.hash_serialized_3;
    let is_pinned = job::check_pinned_hash(params, height, &hash, &hash_serialized_3)?;
    let (magic, coins) = (params.magic, stats.counts.txouts);
    let metadata = SnapshotMetadata { magic, base_block: hash, base_height: None, coins };
    let report = SharedSnapshotReport {
        network: params.network,
        chain_transactions: Some(transactions),
        hash_serialized_3,
        is_pinned,
        ..beginning(&metadata, (output, Some(height)))
    };
    let (folder, chunk_len) = (&report.folder, job.options.hooks.chunk_len);
    let (mut coins, total) = (reader.coins()?, metadata.coins);
    if disk.exists(folder).during("look for", folder)? {
        let comparison = Comparison::begin(disk, folder, chunk_len, job.watch.interrupt)?;
        let mut writer = SnapshotWriter::begin(comparison, folder, metadata);
        each_coin(&mut coins, total, job.watch, |outpoint, coin| Ok(writer.add(outpoint, coin)?))?;
        let tree = writer.end()?.0.end(folder)?;
        return Ok(report.with_tree(&tree));
    }
    job.watch.sink.event(Event::Started(Stage::Export));
    let mut writer = begin(disk, folder, metadata, chunk_len)?;
    each_coin(&mut coins, total, job.watch, |outpoint, coin| Ok(writer.add(outpoint, coin)?))?;
    finish(writer, report)
}

/// Cuts a snapshot file into chunks, in a folder in `output`. The name of the folder has the height of the
/// block only if Core's source, or the file, has it.
///
/// # Errors
/// [`api::error::ErrorKind::Usage`] if there is a folder of that name; [`api::error::ErrorKind::Damaged`] if
/// the file is not a whole snapshot, or Core's source has another hash for its block;
/// [`api::error::ErrorKind::Interrupted`]; any I/O error. There is no new folder then.
pub fn share_file(
    disk: &dyn Disk,
    file: &Path,
    output: &Path,
    chunk_len: u64,
    watch: Watch<'_>,
) -> Result<SharedSnapshotReport, Error> {
    let mut reader = SnapshotReader::open(disk, file)?;
    let metadata = *reader.metadata();
    let params = ChainParams::of(metadata.network());
    let pinned = params.pinned_utxo_set(&metadata.base_block).map(|pinned| pinned.height);
    pinned.map_or(Ok(()), |height| metadata.check_height(file, height))?;
    watch.sink.event(Event::Started(Stage::Export));
    let output = &*unfinished::target(disk, output)?;
    let report = beginning(&metadata, (output, pinned.or(metadata.base_height)));
    in_folder(disk, output, || {
        let mut writer = begin(disk, &report.folder, metadata, chunk_len)?;
        let mut hash = CoinHash::new();
        each_coin(&mut reader, metadata.coins, watch, |outpoint, coin| {
            hash.add(outpoint, coin)?;
            Ok(writer.add(outpoint, coin)?)
        })?;
        let hash_serialized_3 = hash.finish();
        if params.has_pinned_hash(&metadata.base_block, &hash_serialized_3) == Some(false) {
            let detail = "Bitcoin Core's source has another hash for the coins of this block; the snapshot \
                          is damaged or forged, get it from elsewhere";
            return Err(Error::damaged(detail).in_file(file, None));
        }
        finish(writer, SharedSnapshotReport { hash_serialized_3, is_pinned: pinned.is_some(), ..report })
    })
}

/// Returns what is known of a snapshot, and of its folder in `output`, before it is read.
fn beginning(metadata: &SnapshotMetadata, (output, height): (&Path, Option<Height>)) -> SharedSnapshotReport {
    let hash = metadata.base_block;
    let name = height.map_or(hash.to_string(), |height| format!("{height}-{hash}"));
    SharedSnapshotReport {
        network: metadata.network(),
        height,
        hash,
        coins: metadata.coins,
        folder: output.join(name),
        ..SharedSnapshotReport::default()
    }
}

fn there_already(folder: &Path) -> Error {
    let error = Error::usage("this snapshot is there already").in_file(folder, None);
    error.with_remedies([Remedy::MoveAway, Remedy::OtherOutput])
}

/// Takes a snapshot, and compares it with a folder that is there.
struct Comparison<'a> {
    source: Source<'a>,
    tree: UtxoTree,
    interrupt: &'a AtomicBool,
    /// What has come of the next chunk, and its index.
    chunk: Vec<u8>,
    index: u64,
    /// Whether all before it are those of the snapshot.
    is_same: Result<bool, Error>,
}

impl<'a> Comparison<'a> {
    fn begin(
        disk: &'a dyn Disk,
        folder: &Path,
        chunk_len: u64,
        interrupt: &'a AtomicBool,
    ) -> Result<Self, Error> {
        let source = Source::new(disk, &FileSource::Path(folder.to_owned()))?;
        let tree = source.tree(chunk_len, interrupt);
        let tree = tree.map_err(|error| error.with_remedies([Remedy::MoveAway, Remedy::OtherOutput]))?;
        Ok(Self { source, tree, interrupt, chunk: Vec::new(), index: 0, is_same: Ok(true) })
    }

    fn compare(&mut self) {
        if let Ok(true) = self.is_same {
            let found = self.source.chunk(&self.tree, self.index, self.interrupt);
            let is_it = |found: Vec<u8>| found == self.chunk && self.tree.check(self.index, &found).is_ok();
            self.is_same = found.map(is_it);
        }
        self.index += 1;
        self.chunk.clear();
    }

    /// Returns the tree, if it and the chunks are those of the snapshot.
    fn end(mut self, folder: &Path) -> Result<UtxoTree, Error> {
        if !self.chunk.is_empty() {
            self.compare();
        }
        if self.is_same? && self.index == self.tree.leaves.len() as u64 {
            return Ok(self.tree);
        }
        let error = Error::damaged("what is there already is not the snapshot of these coins");
        Err(error.in_file(folder, None).with_remedies([Remedy::MoveAway, Remedy::OtherOutput]))
    }
}

impl SnapshotOutput for Comparison<'_> {
    fn append(&mut self, bytes: &[u8]) -> Result<(), DiskError> {
        self.chunk.extend_from_slice(bytes);
        let len = usize::try_from(self.tree.chunk_len).unwrap_or(usize::MAX);
        while self.chunk.len() >= len {
            let rest = self.chunk.split_off(len);
            self.compare();
            self.chunk = rest;
        }
        Ok(())
    }
}

fn begin<'a>(
    disk: &'a dyn Disk,
    folder: &Path,
    metadata: SnapshotMetadata,
    chunk_len: u64,
) -> Result<SnapshotWriter<ChunkWriter<'a>>, Error> {
    if disk.exists(folder).during("look for", folder)? {
        return Err(there_already(folder));
    }
    let writer = ChunkWriter::create(disk, folder, chunk_len)?;
    Ok(SnapshotWriter::begin(writer, folder, metadata))
}

fn finish(
    writer: SnapshotWriter<ChunkWriter<'_>>,
    report: SharedSnapshotReport,
) -> Result<SharedSnapshotReport, Error> {
    let (chunks, _) = writer.end()?;
    let tree = chunks.finish(report.hash, |tree| report.clone().with_tree(tree).description())?;
    Ok(report.with_tree(&tree))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heights_are_scheduled_as_the_draft_has_them() {
        let heights = |tip| scheduled_heights(Height(tip)).iter().map(|height| height.0).collect::<Vec<_>>();
        for (tip, expected) in [
            (0, &[][..]),
            (2016 + 14_111, &[]),
            (2016 + 14_112, &[14_112]),
            (2016 + 2 * 14_112 - 1, &[14_112]),
            (2016 + 2 * 14_112, &[14_112, 28_224]),
            (950_000, &[931_392, 945_504]),
        ] {
            assert_eq!(heights(tip), expected, "{tip}");
        }
    }
}
