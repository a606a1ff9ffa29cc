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
};
use chain::session::Session;
use derive_more::Display;
use disk::chainstate::{ChainstateReader, CoinCursor};
use pipeline::{
    job::{self, ChainRequest, MatchStats, read_only_job::on_files},
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
    let stop_at_height = options.stop_at_height.filter(|_| best.is_none());
    let files = &session.files()?;
    let request = ChainRequest { stop_at_height, end: best, preferred: best, ..ChainRequest::of(options) };
    on_files(files, options, &request, None, Watch { sink, ..watch }, |job, clock| {
        let (height, hash) = (job.plan.chain.tip_height(), job.plan.chain.tip().hash);
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
