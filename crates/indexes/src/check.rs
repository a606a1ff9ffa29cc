//! Compares indexes with the blocks, row by row.
//!
//! Rows of blocks that are not on the chain are left alone: bitcoind keeps some of them after a
//! reorganisation, and writes rows of a block before it records that block as the best one.

use crate::{
    block_filter::FilterPlace,
    collect::{Collected, Filter, InOrderSink, Stats},
    filter_reader::FilterReader,
    findings::{Compared, Findings, Judge},
    job::{self, Access, Done, InOrderSinks, IndexJob},
    options::{CheckedIndex, CheckedIndexesReport, IndexFlaw, IndexOptions, TxForm},
    places::Places,
    records::CollectedRows,
    rows::{RowForm, RowSet},
    starts::{Start, Starts},
    stored::{BlockRows, Position, StoredIndex},
    tx::{ByBlock, sequence_key},
};
use api::{
    error::{Error, ErrorKind},
    event::{Event, EventSink, Watch},
    stage::Stage,
};
use chain::threads::for_all;
use disk::node_indexes::IndexKind;
use std::sync::atomic::AtomicBool;
use vfs::Disk;
use wire::{BlockHash, Height, Reader};

/// Compares every row of indexes, and every filter, with the blocks up to the best block of each. Nothing is
/// written but temporary files.
///
/// # Errors
/// [`ErrorKind::Usage`] if no index is named and none is there; [`ErrorKind::Damaged`] for blocks or undo
/// data that are damaged or missing; any I/O error; [`ErrorKind::Interrupted`]. That an index is damaged is
/// no error; the result reports it.
pub fn check_indexes(
    disk: &dyn Disk,
    options: &IndexOptions,
    sink: &dyn EventSink,
    interrupt: &AtomicBool,
) -> Result<CheckedIndexesReport, Error> {
    let done = job::run(disk, options, Access::Read, Watch { sink, interrupt }, |job, kinds| {
        Checking::begin(job, kinds).and_then(Checking::check)
    })?;
    let Done { result: indexes, height, hash, threads, elapsed, notes } = done;
    let network = options.chain.params.network;
    Ok(CheckedIndexesReport { network, height, hash, indexes, threads, elapsed, notes })
}

/// An index that is compared.
struct Checked<'a> {
    index: StoredIndex<'a>,
    start: Start,
    /// Height of its best block, or of the last one that this has in common with the chain.
    best: Height,
    /// Whether its best block is above that.
    is_beyond: bool,
}

/// The indexes that are compared, and the reports of those that cannot be.
struct Checking<'a> {
    job: &'a IndexJob<'a>,
    indexes: Vec<Checked<'a>>,
    reports: Vec<CheckedIndex>,
}

impl<'a> Checking<'a> {
    /// Opens the indexes.
    fn begin(job: &'a IndexJob<'a>, kinds: &[IndexKind]) -> Result<Self, Error> {
        let (mut indexes, mut reports) = (Vec::new(), Vec::new());
        for &kind in kinds {
            let mut findings = Findings::default();
            match open(job, kind, &mut findings) {
                Ok(Some(checked)) => indexes.push(checked),
                Ok(None) => reports.push(findings.of_index(kind, None)),
                Err(error) => {
                    findings.note_damage(Err(error))?;
                    reports.push(findings.of_index(kind, None));
                }
            }
        }
        let of_checked: Vec<IndexKind> = indexes.iter().map(|checked| checked.index.kind).collect();
        job::require_stored(job.plan, |_| !of_checked.is_empty())?;
        job::require_undo(job.plan, &of_checked, 1)?;
        Ok(Self { job, indexes, reports })
    }

    fn of(&self, kind: IndexKind) -> Option<&Checked<'a>> {
        self.indexes.iter().find(|checked| checked.index.kind == kind)
    }

    fn check(mut self) -> Result<Vec<CheckedIndex>, Error> {
        let mut starts = Starts::default();
        let mut sequences = Vec::new();
        let (mut filter_findings, mut stats_findings) = Default::default();
        for Checked { index, start, best, .. } in &self.indexes {
            starts.add(index.kind, start.clone());
            if index.kind == IndexKind::Tx && start.tx_form == TxForm::ByBlock {
                sequences = index.sequences(&self.job.plan.chain, *best)?;
            }
        }
        let filters = self.of(IndexKind::BlockFilter).map(|Checked { index, best, .. }| FilterCheck {
            rows: index.block_rows(*best),
            reader: FilterReader::new(self.job.files.disk, &index.dir),
            next: index.next_place(),
            findings: &mut filter_findings,
        });
        let stats = self.of(IndexKind::CoinStats).map(|Checked { index, best, is_beyond, .. }| {
            let state = index.totals(&self.job.plan.chain, *best);
            let state = state.and_then(|(_, hash)| index.muhash(hash).map(drop));
            // Above the chain there is another state.
            let last = (*best, if *is_beyond { Ok(()) } else { state });
            StatsCheck { rows: index.block_rows(*best), last, findings: &mut stats_findings }
        });
        let sinks = InOrderSinks {
            filters: filters.map(|sink| Box::new(sink) as _),
            stats: stats.map(|sink| Box::new(sink) as _),
        };
        let Collected { records, .. } = self.job.collect(&starts, sequences, sinks)?;
        let rows = records.into_rows(&self.job.plan.chain)?;
        self.job.watch.sink.event(Event::Started(Stage::Check));
        let mut reports = std::mem::take(&mut self.reports);
        for checked in &self.indexes {
            let findings = match checked.index.kind {
                IndexKind::BlockFilter => std::mem::take(&mut filter_findings),
                IndexKind::CoinStats => std::mem::take(&mut stats_findings),
                _ => self.compare(checked, &rows)?,
            };
            reports.push(findings.of_index(checked.index.kind, Some(checked.best)));
        }
        reports.sort_unstable_by_key(|report| report.name);
        Ok(reports)
    }

    /// Compares the rows of an index that come in any order.
    fn compare(&self, checked: &Checked<'_>, rows: &CollectedRows<'_>) -> Result<Findings, Error> {
        let mut findings = Findings::default();
        let places = &Places::new(self.job.files, &self.job.plan.chain, checked.best);
        if let (IndexKind::TxoSpender, Some(rows)) = (checked.index.kind, &rows.spends) {
            let judge = |key: &[u8], _: &[u8]| places.judge(key.get(9..).unwrap_or_default());
            findings.add(self.compare_set(checked, rows, &judge))?;
        }
        if let (IndexKind::Tx, Some(rows)) = (checked.index.kind, &rows.by_txid) {
            findings.add(self.compare_set(checked, rows, &|_, value| places.judge(value)))?;
        }
        if let (IndexKind::Tx, Some(rows)) = (checked.index.kind, &rows.by_block) {
            findings.add(self.compare_blocks(checked, rows.form()))?;
            let sequences = &rows.form().sequences;
            let judge = |key: &[u8], _: &[u8]| judge_sequence(&checked.index, sequences, key);
            findings.add(self.compare_set(checked, rows, &judge))?;
        }
        Ok(findings)
    }

    /// Compares the rows of the blocks themselves, of a `txindex` with rows by block.
    fn compare_blocks(&self, checked: &Checked<'_>, form: &ByBlock) -> Result<Findings, Error> {
        let by_txid = checked.start.rows_by_txid.as_ref();
        let lacking = (1..=checked.best.0).filter(|height| form.sequence(Height(*height)).is_none());
        let lacking = lacking.filter(|height| by_txid.is_none_or(|heights| !heights.contains(height)));
        // Rows of other blocks may be there.
        let judge = |_: &[u8], _: &[u8]| Ok(None);
        let mut compared = Compared::begin(checked.index.database.range(b"h", Some(b"t"))?, &judge)?;
        form.give_blocks(&self.job.plan.chain, &mut compared)?;
        let mut findings = compared.finish()?;
        for height in lacking {
            findings.add_flaw(Some(Height(height)), "the block has no sequence number");
        }
        let last = form.sequences.iter().flatten().max();
        match checked.index.next_sequence() {
            Ok(next) if last.is_none_or(|last| *last < next) => {}
            Ok(_) => findings.add_flaw(None, "bitcoind would use a sequence number twice"),
            Err(error) => findings.note_damage(Err(error))?,
        }
        Ok(findings)
    }

    /// Compares all ranges of a set of rows.
    fn compare_set<F: RowForm<N>, const N: usize>(
        &self,
        checked: &Checked<'_>,
        rows: &RowSet<F, N>,
        judge: &Judge<'_>,
    ) -> Result<Findings, Error> {
        let compare = |range: usize| {
            let [start, end] = rows.bounds(range);
            let cursor = checked.index.database.range(&start, Some(&end))?;
            let mut compared = Compared::begin(cursor, judge)?;
            rows.give(range, self.job.sort_bytes(), &mut compared)?;
            compared.finish()
        };
        let mut findings = Findings::default();
        for found in for_all(self.job.budget.threads, 0..rows.ranges(), compare)? {
            findings.merge(found?);
        }
        Ok(findings)
    }
}

/// What it means that a row by block is there which need not be.
fn judge_sequence(
    index: &StoredIndex<'_>,
    sequences: &[Option<u32>],
    key: &[u8],
) -> Result<Option<IndexFlaw>, Error> {
    let flaw = |height, detail: &str| Ok(Some(IndexFlaw { height, detail: detail.to_owned() }));
    let sequence = key.get(6..).map(Reader::new).and_then(|mut reader| {
        let sequence = reader.var_int().ok().and_then(|number| u32::try_from(number).ok());
        sequence.filter(|_| reader.remaining() == 3)
    });
    let Some(sequence) = sequence else { return flaw(None, "a row is malformed") };
    if let Some(height) = sequences.iter().position(|known| *known == Some(sequence)) {
        return flaw(Some(Height(height as u32)), "a row is not of a transaction of its block");
    }
    match index.database.get(&sequence_key(sequence))? {
        Some(_) => Ok(None),
        None => flaw(None, "a row has a sequence number that no block has"),
    }
}

/// Opens an index and finds where it ends. `None` if there is nothing to compare.
fn open<'a>(
    job: &IndexJob<'a>,
    kind: IndexKind,
    findings: &mut Findings,
) -> Result<Option<Checked<'a>>, Error> {
    let IndexJob { files, plan, options, .. } = *job;
    let Some(index) = StoredIndex::open(files.disk, files.datadir.net_dir(), kind)? else {
        let detail = format!("there is no {}", kind.option());
        let dir = files.datadir.net_dir().join(kind.database_dir());
        return Err(Error::new(ErrorKind::Usage, detail).in_file(dir, None));
    };
    let position = index.position(files, &plan.chain)?;
    let best = match position {
        Position::At(best) | Position::Beyond(best) => best,
        Position::Empty => return Ok(None),
        Position::Elsewhere(hash) => {
            let detail = format!("its best block {hash} is not in the block index");
            findings.add_flaw(None, detail);
            return Ok(None);
        }
    };
    let tx_form = if index.is_by_block() { TxForm::ByBlock } else { TxForm::ByTxid };
    let mut start = Start::of_new(options, tx_form, best)?;
    match kind {
        IndexKind::Tx if index.is_by_block() => {
            start.key = index.txid_salt()?;
            if let Some(height) = index.position_by_txid(files, &plan.chain)?.height() {
                start.rows_by_txid = Some(0..=height.0.min(best.0));
            }
        }
        IndexKind::TxoSpender => start.key = index.spender_key()?,
        _ => {}
    }
    let is_beyond = matches!(position, Position::Beyond(_));
    Ok(Some(Checked { index, start, best, is_beyond }))
}

/// Compares filters and their rows.
struct FilterCheck<'a> {
    rows: BlockRows<'a>,
    reader: FilterReader<'a>,
    /// Where bitcoind will write the next filter.
    next: Result<FilterPlace, Error>,
    findings: &'a mut Findings,
}

impl InOrderSink<Filter> for FilterCheck<'_> {
    fn take(&mut self, height: Height, hash: &BlockHash, filter: Filter) -> Result<(), Error> {
        let compared = self.compare(height, hash, &filter);
        self.findings.note_damage(compared)
    }
}

impl FilterCheck<'_> {
    fn compare(&mut self, height: Height, hash: &BlockHash, filter: &Filter) -> Result<(), Error> {
        let mut value = Vec::new();
        let mut flaw = |detail: &str| self.findings.add_flaw(Some(height), detail);
        if !self.rows.get(height, hash, &mut value)? {
            flaw("a row is missing");
            return Ok(());
        }
        let Some((block, hashes, place)) = FilterPlace::of_row(&value) else {
            flaw("a row is malformed");
            return Ok(());
        };
        if block != *hash || hashes != filter.hashes {
            flaw("a row has another block, or other hashes, than the filter of its block");
            return Ok(());
        }
        let end = place.after(filter.encoded.len());
        match (self.reader.read(hash, place)?, &self.next) {
            (Some(stored), _) if stored != filter.encoded => {
                flaw("the filter is another one than that of its block");
            }
            (None, _) => flaw("the filter is not where its row says"),
            (_, Ok(next)) if *next >= end => self.findings.add_sound(),
            (_, Ok(_)) => flaw("bitcoind would write the next filter over this one"),
            (_, Err(error)) => flaw(&error.fact_text()),
        }
        Ok(())
    }
}

/// Compares the rows of statistics.
struct StatsCheck<'a> {
    rows: BlockRows<'a>,
    /// The best block, and whether the index has there from what bitcoind continues.
    last: (Height, Result<(), Error>),
    findings: &'a mut Findings,
}

impl InOrderSink<Stats> for StatsCheck<'_> {
    fn take(&mut self, height: Height, hash: &BlockHash, stats: Stats) -> Result<(), Error> {
        let compared = self.compare(height, hash, stats);
        self.findings.note_damage(compared)
    }
}

impl StatsCheck<'_> {
    fn compare(&mut self, height: Height, hash: &BlockHash, stats: Stats) -> Result<(), Error> {
        let mut value = Vec::new();
        if !self.rows.get(height, hash, &mut value)? {
            self.findings.add_flaw(Some(height), "a row is missing");
            return Ok(());
        }
        match stats.totals.row_value(hash, &stats.muhash.finalize()) == value {
            true => self.findings.add_sound(),
            false => self.findings.add_flaw(Some(height), "a row has other statistics than the blocks give"),
        }
        if let (best, Err(error)) = &self.last
            && *best == height
        {
            self.findings.add_flaw(Some(height), error.fact_text());
        }
        Ok(())
    }
}
