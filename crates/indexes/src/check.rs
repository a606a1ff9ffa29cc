//! Compares indexes with the blocks, row by row.
//!
//! Rows of blocks that are not on the chain are no flaws: bitcoind keeps some of them after a reorganisation,
//! and writes the rows of a block before it records that block as the best one.

use crate::{
    base::Base,
    block_filter::FilterPlace,
    collect::{Filter, InOrderSink, Stats},
    filter_reader::FilterReader,
    findings::{Compared, Findings, Judge},
    job::{self, IndexJob},
    options::{CheckedIndexes, CheckedIndexesReport, IndexFlaw, IndexOptions},
    places::Places,
    rows::TxRows,
    stored::{BlockRows, Position, StoredIndex},
    tx::{give_block_rows, sequence_key},
};
use api::{
    error::Error,
    event::{Event, Watch},
    stage::Stage,
};
use chain::threads::for_all;
use disk::{lock::LockMode, node_indexes::IndexKind};
use std::collections::BTreeMap;
use vfs::Disk;
use wire::{BlockHash, Height, Reader};

/// Compares every row and every filter of indexes with the blocks, up to the best block of each index. Only
/// temporary files are written.
///
/// # Errors
/// Errors of these [kinds](api::error::ErrorKind): `Usage` if no index is named and none is there; `Damaged`
/// for blocks or undo data that are damaged or missing; `Interrupted`. Any I/O error. A damaged index is no
/// error; the result reports it.
pub fn check_indexes(
    disk: &dyn Disk,
    options: &IndexOptions,
    watch: Watch<'_>,
) -> Result<CheckedIndexesReport, Error> {
    job::run(disk, options, LockMode::Read, watch, check)
}

/// An index that is compared with the blocks.
struct Checked<'a> {
    index: StoredIndex<'a>,
    /// Height of its best block, or of the last block that it has in common with the chain.
    best: Height,
    /// Whether its best block is above that, on another branch.
    is_beyond: bool,
}

fn check(job: &IndexJob<'_>, kinds: &[IndexKind]) -> Result<CheckedIndexes, Error> {
    let (mut opened, mut bases, mut indexes) = (Vec::new(), Vec::new(), Vec::new());
    for &kind in kinds {
        let mut findings = Findings::default();
        match open(job, kind, &mut findings) {
            Ok(Some((checked, base))) => {
                opened.push(checked);
                bases.push(base);
            }
            Ok(None) => indexes.push(findings.of_index(kind, None)),
            Err(error) => {
                findings.note_damage(Err(error))?;
                indexes.push(findings.of_index(kind, None));
            }
        }
    }
    let kinds: Vec<IndexKind> = bases.iter().map(|base| base.kind).collect();
    job::require_stored(job.plan, |_| !kinds.is_empty())?;
    job::require_undo(job.plan, &kinds, 1)?;
    let spaces: Vec<_> = bases.iter().map(|base| (base.kind, [0, job.space(base)[1]])).collect();
    job.check_space(&spaces)?;
    let of_kind = |kind| opened.iter().find(|checked| checked.index.kind == kind);
    let mut in_order = InOrderCheck {
        filters: of_kind(IndexKind::BlockFilter).map(|checked| FilterCheck::of(job, checked)),
        stats: of_kind(IndexKind::CoinStats).map(|checked| StatsCheck::of(job, checked)),
    };
    let rows = job.collect(&bases, &mut in_order)?.rows;
    job.watch.sink.event(Event::Started(Stage::Check));
    let (mut filters, mut stats) = (in_order.filters, in_order.stats);
    for (checked, base) in opened.iter().zip(&bases) {
        let in_order = match base.kind {
            IndexKind::BlockFilter => filters.take().map(|check| check.findings),
            IndexKind::CoinStats => stats.take().map(|check| check.findings),
            _ => None,
        };
        let findings = in_order.map_or_else(|| compare(job, checked, base, &rows), Ok)?;
        indexes.push(findings.of_index(base.kind, Some(checked.best)));
    }
    indexes.sort_unstable_by_key(|report| report.name);
    Ok(CheckedIndexes { indexes })
}

/// Compares the rows of transactions of an index.
fn compare(
    job: &IndexJob<'_>,
    checked: &Checked<'_>,
    base: &Base,
    rows: &[Box<dyn TxRows>],
) -> Result<Findings, Error> {
    let mut findings = Findings::default();
    let end = checked.index.best_block().filter(|_| base.kind == IndexKind::Tx);
    let places = &Places::new(job.files, &job.plan.chain, checked.best, end);
    let heights = (0..).map(Height).zip(&*base.sequences);
    let heights = heights.filter_map(|(height, sequence)| Some(((*sequence)?, height))).collect();
    let judge = |key: &[u8], value: &[u8]| match key.first() {
        Some(b'x') => judge_sequence(&checked.index, &heights, key),
        Some(b's') => places.judge(key.get(9..).unwrap_or_default()),
        _ => places.judge(value),
    };
    if base.is_by_block() {
        findings.add(compare_block_rows(job, checked, base))?;
    }
    for rows in rows.iter().filter(|rows| rows.kind() == base.kind) {
        findings.add(compare_ranges(job, checked, &**rows, &judge))?;
    }
    Ok(findings)
}

/// Compares the rows of the blocks themselves, in a `txindex` with rows by block.
fn compare_block_rows(job: &IndexJob<'_>, checked: &Checked<'_>, base: &Base) -> Result<Findings, Error> {
    // Rows of other blocks are no flaws.
    let judge = |_: &[u8], _: &[u8]| Ok(None);
    let mut compared = Compared::begin(checked.index.database.range(b"h", Some(b"t"))?, &judge)?;
    give_block_rows(&base.sequences, &job.plan.chain, &mut |key, value, height| {
        compared.row(key, value, height)
    })?;
    let mut findings = compared.finish()?;
    for (height, sequence) in (0..).zip(&*base.sequences).skip(1) {
        let is_by_txid = base.rows_by_txid.as_ref().is_some_and(|heights| heights.contains(&height));
        if sequence.is_none() && !is_by_txid {
            findings.add_flaw(Some(Height(height)), "the block has no sequence number");
        }
    }
    let last = base.sequences.iter().flatten().max();
    match checked.index.next_sequence() {
        Ok(next) if last.is_none_or(|last| *last < next) => {}
        Ok(_) => findings.add_flaw(None, "bitcoind would use a sequence number twice"),
        Err(error) => findings.note_damage(Err(error))?,
    }
    Ok(findings)
}

/// Compares all ranges of the rows of one form.
fn compare_ranges(
    job: &IndexJob<'_>,
    checked: &Checked<'_>,
    rows: &dyn TxRows,
    judge: &Judge<'_>,
) -> Result<Findings, Error> {
    let compare = |range: usize| {
        let [start, end] = rows.bounds(range);
        let cursor = checked.index.database.range(&start, Some(&end))?;
        let mut compared = Compared::begin(cursor, judge)?;
        let sink = &mut |key: &[u8], value: &[u8], height| compared.row(key, value, height);
        rows.give(&job.plan.chain, range, job.sort_bytes(), sink)?;
        compared.finish()
    };
    let mut findings = Findings::default();
    for found in for_all(job.budget.threads, 0..rows.ranges(), compare)? {
        findings.merge(found?);
    }
    Ok(findings)
}

/// Returns what is wrong with a row by block that no block gives, if anything is. `heights` are those of the
/// blocks by their sequence numbers.
fn judge_sequence(
    index: &StoredIndex<'_>,
    heights: &BTreeMap<u32, Height>,
    key: &[u8],
) -> Result<Option<IndexFlaw>, Error> {
    let flaw = |height, detail: &str| Ok(Some(IndexFlaw { height, detail: detail.to_owned() }));
    let sequence = key.get(6..).map(Reader::new).and_then(|mut reader| {
        let sequence = reader.var_int().ok().and_then(|number| u32::try_from(number).ok());
        sequence.filter(|_| reader.remaining() == 3)
    });
    let Some(sequence) = sequence else { return flaw(None, "a row is malformed") };
    if let Some(height) = heights.get(&sequence) {
        return flaw(Some(*height), "a row is not of a transaction of its block");
    }
    match index.database.get(&sequence_key(sequence))? {
        Some(_) => Ok(None),
        None => flaw(None, "a row has a sequence number that no block has"),
    }
}

/// Opens an index and finds where it ends. Returns `None` if there is nothing to compare.
fn open<'a>(
    job: &IndexJob<'a>,
    kind: IndexKind,
    findings: &mut Findings,
) -> Result<Option<(Checked<'a>, Base)>, Error> {
    let IndexJob { files, plan, .. } = *job;
    let Some(index) = StoredIndex::open(files.disk, files.datadir.net_dir(), kind)? else {
        let detail = format!("there is no {}", kind.option());
        let dir = files.datadir.net_dir().join(kind.database_dir());
        return Err(Error::usage(detail).in_file(dir, None));
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
    let mut base = Base::with_keys_of(&index, 0..=best.0)?;
    if base.is_by_block() {
        let by_txid = index.position_by_txid(files, &plan.chain)?.height();
        base.rows_by_txid = by_txid.map(|height| 0..=height.0.min(best.0));
        base.sequences = index.sequences(&plan.chain, best)?.into();
    }
    let is_beyond = matches!(position, Position::Beyond(_));
    Ok(Some((Checked { index, best, is_beyond }, base)))
}

/// Compares filters and statistics, in the order of the blocks.
struct InOrderCheck<'a> {
    filters: Option<FilterCheck<'a>>,
    stats: Option<StatsCheck<'a>>,
}

impl InOrderSink for InOrderCheck<'_> {
    fn filter(&mut self, height: Height, hash: &BlockHash, filter: Filter) -> Result<(), Error> {
        let Some(check) = &mut self.filters else { return Ok(()) };
        let compared = check.compare(height, hash, &filter);
        check.findings.note_damage(compared)
    }

    fn stats(&mut self, height: Height, hash: &BlockHash, stats: Stats) -> Result<(), Error> {
        let Some(check) = &mut self.stats else { return Ok(()) };
        let compared = check.compare(height, hash, stats);
        check.findings.note_damage(compared)
    }
}

/// Compares filters and their rows.
struct FilterCheck<'a> {
    rows: BlockRows<'a>,
    reader: FilterReader<'a>,
    /// Where bitcoind will write the next filter.
    next: Result<FilterPlace, Error>,
    findings: Findings,
}

impl<'a> FilterCheck<'a> {
    fn of(job: &IndexJob<'a>, Checked { index, best, .. }: &'a Checked<'_>) -> Self {
        Self {
            rows: index.block_rows(*best),
            reader: FilterReader::new(job.files.disk, &index.dir),
            next: index.next_place(),
            findings: Findings::default(),
        }
    }

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
        if block != *hash {
            flaw(&format!("its row is that of block {block}; a crash after a reorganisation can leave that"));
            return Ok(());
        }
        if hashes != filter.hashes {
            flaw("a row has other hashes than the filter of its block");
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
    /// The best block, and whether the index has the state from which bitcoind continues there.
    last: (Height, Result<(), Error>),
    findings: Findings,
}

impl<'a> StatsCheck<'a> {
    fn of(job: &IndexJob<'_>, Checked { index, best, is_beyond }: &'a Checked<'_>) -> Self {
        let state = index.totals(&job.plan.chain, *best).and_then(|(_, hash)| index.muhash(hash).map(drop));
        // The state is that of a best block on another branch.
        let state = if *is_beyond { Ok(()) } else { state };
        Self { rows: index.block_rows(*best), last: (*best, state), findings: Findings::default() }
    }

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
