//! Answers "Are my blocks valid?": performs all checks of a rebuild without writing a chainstate, and
//! compares the existing chainstate coin by coin.

use api::{
    counts::Counts,
    error::Error,
    event::{Event, EventSink as _, Warnings, Watch},
    note::Warning,
    options::ChainOptions,
    report::ScriptsReport,
    stage::Stage,
    subject::Subject,
};
use chain::session::Session;
use derive_more::Display;
use disk::{
    chainstate::{ChainstateReader, CoinCursor},
    datadir::Datadir,
    index::find_height,
};
use pipeline::{
    job::{self, ChainRequest, Job, MatchStats, read_only_job::on_files},
    stages::{coin_sink::Coins, unspent::ForEachError},
};
use std::{
    cmp::Ordering,
    sync::atomic::{self, AtomicBool},
    time::Duration,
};
use vfs::Disk;
use wire::{BlockHash, Coin, Height, Network, OutPoint, coin::chainstate_key_order};

/// Maximum number of differences that are listed; all are counted.
const MAX_NAMED_DIFFERENCES: usize = 20;

api::reported! {
/// Result of [`verify`].
#[derive(Clone, Debug)]
pub struct VerifyReport {
    /// The network.
    pub network as "chain": Network,
    /// Height of the last block.
    pub height: Height,
    /// Its hash.
    pub hash as "block_hash": BlockHash,
    /// Number of blocks, transactions, inputs and outputs that were checked.
    pub counts [flatten]: Counts,
    /// Which scripts were run; `None` if scripts were not checked.
    pub scripts with "api::report::ScriptsFields": Option<ScriptsReport>,
    /// Number of coins after the last block.
    pub txouts as "coins": u64,
    /// Number of worker threads.
    pub threads: usize,
    /// Time from the call to the end.
    pub elapsed as "seconds" with "api::json::Seconds": Duration,
    /// How the chainstate differs; `None` if no comparison was asked for.
    pub against_chainstate with "Differences" [flatten]: Option<Comparison>,
    /// Warnings for the operator.
    pub notes with "api::note::Notes": Vec<Warning>,
}
}

impl VerifyReport {
    /// Whether the chainstate was compared and differs.
    pub fn differs(&self) -> bool {
        self.against_chainstate.as_ref().is_some_and(|comparison| comparison.differences > 0)
    }
}

/// How a chainstate differs from the coins after the last block.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// Number of coins that differ.
    pub differences: u64,
    /// The first differences, in key order.
    pub first: Vec<Difference>,
}

#[cfg(feature = "serde")]
api::json::fields! {
    /// A comparison as reports have it.
    Differences(comparison: Option<Comparison>) {
        /// `null` if the chainstate was not compared.
        chainstate_differences: Option<u64> = comparison.as_ref().map(|comparison| comparison.differences),
        first_differences: Vec<String> = api::json::texts(comparison.iter().flat_map(|it| &it.first)),
    }
}

/// A coin that differs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Display)]
#[non_exhaustive]
pub enum Difference {
    /// The coin is missing from the chainstate.
    #[display("{_0} is missing from the chainstate")]
    Missing(OutPoint),
    /// The coin is in the chainstate, but was spent or never created.
    #[display("{_0} is in the chainstate, but spent or never created")]
    Extra(OutPoint),
    /// Height, coinbase flag, amount or script differ.
    #[display("{_0} has another height, amount or script")]
    Differs(OutPoint),
}

/// Checks the blocks of a datadir as [`crate::reindex()`] does, without writing a chainstate.
///
/// # Errors
/// The same errors as [`crate::reindex()`]. Coins that differ are no error; the report lists them.
pub fn verify(
    disk: &dyn Disk,
    options: &ChainOptions,
    against_chainstate: bool,
    watch: Watch<'_>,
) -> Result<VerifyReport, Error> {
    let sink = &Warnings::new(watch.sink);
    sink.event(Event::Started(Stage::Plan));
    let session = Session::open_for_reading(disk, options)?;
    let datadir = session.datadir();
    let open = || ChainstateReader::open(disk, &datadir.chainstate_dir());
    let chainstate = against_chainstate.then(open).transpose()?;
    let best = chainstate.as_ref().map(ChainstateReader::best_block);
    // A scan does not use the block index.
    let indexed = best.filter(|_| !options.scan).map(|best| height_of(disk, datadir, best));
    let stop_at_height = indexed.transpose()?.or(options.stop_at_height);
    let files = &session.files()?;
    let request = ChainRequest { stop_at_height, preferred: best, ..ChainRequest::of(options) };
    on_files(files, options, &request, None, Watch { sink, ..watch }, |job, clock| {
        let chain = &job.plan.chain;
        let height_of = |best| chain.heights().map(Height).find(|height| chain.block(*height).hash == best);
        let plan = best.filter(|_| options.scan).and_then(height_of).map(|height| job.plan.up_to(height));
        let job = &Job { plan: plan.as_ref().unwrap_or(job.plan), ..*job };
        let (height, hash) = (job.plan.chain.tip_height(), job.plan.chain.tip().hash);
        if let Some(best) = best.filter(|best| *best != hash) {
            let detail = format!("the chainstate's best block {best} is not in the most-work chain on disk");
            return Err(Error::damaged(detail).in_file(files.datadir.chainstate_dir(), None));
        }
        job.check_temporary_need()?;
        let matched = job.match_spends(clock)?;
        sink.event(Event::Started(Stage::Match));
        let compare = |coins: Coins<'_>| compare(coins, chainstate.as_ref(), watch.interrupt);
        let ((txouts, comparison), MatchStats { counts, .. }) = job.for_each_coin(matched, clock, compare)?;
        Ok(VerifyReport {
            network: options.params.network,
            height,
            hash,
            scripts: job::scripts_report(options, job.plan, &counts),
            counts,
            txouts,
            threads: job.threads(),
            elapsed: clock.started.elapsed(),
            against_chainstate: chainstate.as_ref().map(|_| comparison),
            notes: sink.take(),
        })
    })
}

/// Returns the height of the chainstate's best block according to the block index.
fn height_of(disk: &dyn Disk, datadir: &Datadir, best: BlockHash) -> Result<Height, Error> {
    let dir = datadir.index_dir();
    find_height(disk, &dir, &best)?.ok_or_else(|| {
        let detail = format!("the chainstate's best block {best} is not in the block index");
        Error::damaged(detail).in_file(dir, None).about(Subject::BlockIndex)
    })
}

/// Compares the coins with a chainstate, in key order; only walks them if there is no chainstate. Returns the
/// number of coins too.
fn compare(
    coins: Coins<'_>,
    chainstate: Option<&ChainstateReader<'_>>,
    interrupt: &AtomicBool,
) -> Result<(u64, Comparison), ForEachError> {
    let (count, mut comparison) = (coins.count(), Comparison::default());
    let mut cursor = chainstate.map(ChainstateReader::coins).transpose()?;
    let mut next = || match &mut cursor {
        _ if interrupt.load(atomic::Ordering::Relaxed) => Err(Error::interrupted()),
        Some(cursor) => next_coin(cursor),
        None => Ok(None),
    };
    let mut stored = next()?;
    coins.in_sequence(|outpoint, coin| {
        if chainstate.is_none() {
            return next().map(drop);
        }
        while let Some((extra, _, _)) = &stored
            && chainstate_key_order(extra, outpoint) == Ordering::Less
        {
            comparison.add(Difference::Extra(*extra));
            stored = next()?;
        }
        match &stored {
            Some((same, code, out)) if same == outpoint => {
                if (Coin { code: *code, out }) != *coin {
                    comparison.add(Difference::Differs(*outpoint));
                }
                stored = next()?;
            }
            _ => comparison.add(Difference::Missing(*outpoint)),
        }
        Ok(())
    })?;
    while let Some((extra, _, _)) = stored {
        comparison.add(Difference::Extra(extra));
        stored = next()?;
    }
    Ok((count, comparison))
}

impl Comparison {
    fn add(&mut self, difference: Difference) {
        self.differences += 1;
        if self.first.len() < MAX_NAMED_DIFFERENCES {
            self.first.push(difference);
        }
    }
}

/// Returns the next coin of the chainstate, with an owned script.
fn next_coin(cursor: &mut CoinCursor<'_>) -> Result<Option<(OutPoint, u32, Vec<u8>)>, Error> {
    let row = cursor.advance()?;
    Ok(row.map(|(outpoint, coin)| (outpoint, coin.code, coin.out.to_vec())))
}
