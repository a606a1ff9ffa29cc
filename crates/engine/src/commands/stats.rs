//! Computes what Core's `gettxoutsetinfo` returns, from a chainstate on disk.

use api::{
    error::Error,
    event::{Event, Watch},
    options::ChainstateOptions,
    stage::Stage,
    utxo_stats::UtxoStatsReport,
};
use pipeline::{job::stored_chainstate::StoredChainstate, stages::finish::read_elements};
use vfs::Disk;

/// Options of [`utxo_stats`].
#[derive(Clone, Debug)]
pub struct StatsOptions {
    /// The chainstate.
    pub chainstate: ChainstateOptions,
    /// Compute MuHash3072 too.
    pub muhash: bool,
}

/// Reads the chainstate of a datadir; writes nothing.
///
/// # Errors
/// [`api::error::ErrorKind::Environment`] if another process uses it, [`api::error::ErrorKind::Damaged`] if
/// it is missing or damaged; [`api::error::ErrorKind::Interrupted`].
pub fn utxo_stats(
    disk: &dyn Disk,
    options: &StatsOptions,
    watch: Watch<'_>,
) -> Result<UtxoStatsReport, Error> {
    watch.sink.event(Event::Started(Stage::Read));
    let chainstate = StoredChainstate::open(disk, &options.chainstate)?;
    let threads = options.chainstate.threads.get();
    let stats = read_elements(&chainstate.reader, None, options.muhash, threads, &mut |_| Ok(()), watch)?;
    let best_block = chainstate.reader.best_block();
    UtxoStatsReport::new(&stats, options.chainstate.network, chainstate.height, best_block)
        .ok_or_else(|| chainstate.too_large_amounts())
}
