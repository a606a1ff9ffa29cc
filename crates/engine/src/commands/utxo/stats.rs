//! Computes what Core's `gettxoutsetinfo` returns, from a chainstate on disk.

use api::{
    error::Error,
    event::{Event, Watch},
    options::ChainOptions,
    stage::Stage,
    utxo_stats::UtxoStatsReport,
};
use pipeline::{job, stages::finish::read_elements};
use vfs::Disk;

/// Reads the chainstate of a datadir; writes nothing. MuHash3072 is computed only if it is asked for.
///
/// # Errors
/// [`api::error::ErrorKind::Environment`] if another process uses it, [`api::error::ErrorKind::Damaged`] if
/// it is missing or damaged; [`api::error::ErrorKind::Interrupted`].
pub fn stats(
    disk: &dyn Disk,
    options: &ChainOptions,
    muhash: bool,
    watch: Watch<'_>,
) -> Result<UtxoStatsReport, Error> {
    watch.sink.event(Event::Started(Stage::Read));
    let chainstate = job::stored_chainstate::StoredChainstate::open(disk, options)?;
    let threads = job::memory::affordable_threads(options);
    let stats = read_elements(&chainstate.reader, None, muhash, threads, &mut |_| Ok(()), watch)?;
    let best_block = chainstate.reader.best_block();
    UtxoStatsReport::new(&stats, options.params.network, chainstate.height, best_block)
        .ok_or_else(|| chainstate.too_large_amounts())
}
