//! Stage match, beyond the memory budget: spills the join to sorted runs, and merges them.
//!
//! The oldest coins are spilled first, with the spends of coins of that age, since most spends are of young
//! coins. A new sorted run has level 0; [`FAN_IN`] runs of one level are merged into one of the next, so
//! there are never many. Each file is written once and read once, from start to end.

use crate::stages::{deliveries::Deliveries, work_dir::WorkDir};
use api::{error::Error, report::SpillVolume};
use chain::threads::{for_all, lock};
use coins::{
    Entry, Join, Merge, SHARDS,
    merge::{EntrySource, MergeError, ShardSource},
};
use disk::{
    DiskError,
    checkpoint::{SortedRunRef, sorted_run_path},
    sorted_run::{SortedRunCursor, SortedRunMeta, SortedRunReader, SortedRunWriter},
};
use std::{
    collections::HashSet,
    ops::Range,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, Ordering},
    },
};
use vfs::During as _;
use wire::{Network, OutPoint};

/// Buffer size for each sorted run that is read or written.
pub const RUN_BUFFER_BYTES: usize = 128 << 10;

/// Number of sorted runs that are merged at once. Their buffers take 4 MiB.
pub const FAN_IN: usize = 32;

/// Level of the runs of [`Spill::match_all`], each of which has other shards: only the next call, or the last
/// merge, reads them again.
const ALL_MERGED: u8 = u8::MAX;

/// Fraction of the join that is spilled at once. A smaller one would keep more young coins, but walk the
/// shards more often.
const SPILL_FRACTION: f64 = 0.5;

/// Maximum number of level-0 runs before workers wait for the merge thread.
const MAX_WAITING_RUNS: usize = 2 * FAN_IN;

/// Maximum number of runs that are left for the last merge.
const MAX_REMAINING_RUNS: usize = 2 * FAN_IN;

/// Maximum number of outpoints of mismatches that are kept: each pass with some of them brings the search for
/// the first invalid block much closer.
const MAX_MISMATCHES: usize = 4096;

/// Number of entries between two checks for an interrupt.
const INTERRUPT_CHECK_INTERVAL: u64 = 1 << 14;

/// A finished sorted run.
#[derive(Clone, Debug)]
pub struct SpillFile {
    /// Its number, which names its file.
    pub number: u64,
    /// Number of merges that its oldest entries have passed through.
    pub level: u8,
    pub meta: SortedRunMeta,
}

impl SpillFile {
    /// Returns the reference that a checkpoint contains.
    pub fn to_ref(&self) -> SortedRunRef {
        let Self { number, level, meta: SortedRunMeta { entries, bytes, checksum, .. } } = *self;
        SortedRunRef { number, level, bytes, entries, checksum }
    }
}

#[derive(Default)]
struct Runs {
    list: Vec<SpillFile>,
    next: u64,
    /// No more runs will be added.
    closed: bool,
    volume: SpillVolume,
    /// Numbers of the runs that the checkpoint on disk, or the one being written, names: their files must
    /// stay until the next checkpoint.
    named: Vec<u64>,
    /// Numbers of the runs that are synced. Most are merged before a checkpoint needs that.
    synced: Vec<u64>,
}

/// Spills the join of a job to sorted runs, and merges these.
pub struct Spill<'a> {
    work: &'a WorkDir<'a>,
    network: Network,
    join_bytes: usize,
    /// Where merges deliver coins, if undo data is made.
    deliveries: Option<&'a Deliveries<'a>>,
    /// Held while a worker spills the join.
    spilling: Mutex<()>,
    /// Held while runs are merged.
    merging: Mutex<()>,
    runs: Mutex<Runs>,
    changed: Condvar,
    mismatch: AtomicBool,
    /// Outpoints of mismatches, as many as help to find the cause.
    outpoints: Mutex<HashSet<OutPoint>>,
    failure: Mutex<Option<Error>>,
}

impl<'a> Spill<'a> {
    /// Spills a join of `join_bytes`. `runs` are those that a checkpoint names; the next one gets the number
    /// `next`.
    pub fn new(
        work: &'a WorkDir<'a>,
        network: Network,
        join_bytes: usize,
        deliveries: Option<&'a Deliveries<'a>>,
        runs: Vec<SpillFile>,
        next: u64,
    ) -> Self {
        let named: Vec<u64> = runs.iter().map(|run| run.number).collect();
        let bytes = runs.iter().map(|run| run.meta.bytes).sum();
        let volume = SpillVolume { bytes, peak_bytes: bytes, ..SpillVolume::default() };
        let runs = Runs { list: runs, next, volume, synced: named.clone(), named, ..Runs::default() };
        Self {
            work,
            network,
            join_bytes,
            deliveries,
            spilling: Mutex::default(),
            merging: Mutex::default(),
            runs: Mutex::new(runs),
            changed: Condvar::new(),
            mismatch: AtomicBool::new(false),
            outpoints: Mutex::default(),
            failure: Mutex::default(),
        }
    }

    fn runs(&self) -> MutexGuard<'_, Runs> {
        lock(&self.runs)
    }

    pub fn set_mismatch(&self) {
        self.mismatch.store(true, Ordering::Relaxed);
    }

    /// Records that creations and spends of an outpoint do not match.
    pub fn record_mismatch(&self, outpoint: OutPoint) {
        self.set_mismatch();
        self.add_mismatches(std::iter::once(outpoint));
    }

    /// Adds outpoints of mismatches that no merge found.
    pub fn add_mismatches(&self, outpoints: impl Iterator<Item = OutPoint>) {
        let mut known = lock(&self.outpoints);
        let space = MAX_MISMATCHES.saturating_sub(known.len());
        known.extend(outpoints.take(space));
    }

    /// Returns the outpoints of mismatches; not all of them, if there are many.
    pub fn take_mismatches(&self) -> HashSet<OutPoint> {
        std::mem::take(&mut *lock(&self.outpoints))
    }

    /// Reports whether a merge has found a mismatch, or one was recorded.
    pub fn has_mismatch(&self) -> bool {
        self.mismatch.load(Ordering::Relaxed)
    }

    pub fn volume(&self) -> SpillVolume {
        self.runs().volume
    }

    /// Reports whether nothing has been spilled so far.
    pub fn is_empty(&self) -> bool {
        self.runs().list.is_empty()
    }

    /// If the join exceeds its part of the memory budget, spills its oldest coins. Workers call this after
    /// each block.
    ///
    /// # Errors
    /// Any I/O error, including one of the merge thread.
    pub fn spill_if_over_budget(&self, join: &Join) -> Result<(), Error> {
        if join.memory_bytes() < self.join_bytes {
            return Ok(());
        }
        let _spilling = match self.spilling.try_lock() {
            Ok(spilling) => spilling,
            // Another worker is spilling, and the join may still grow a little.
            Err(TryLockError::WouldBlock) if join.memory_bytes() < self.join_bytes / 16 * 17 => return Ok(()),
            Err(_) => lock(&self.spilling),
        };
        if join.memory_bytes() < self.join_bytes {
            return Ok(());
        }
        self.wait_for_merge_thread()?;
        let run = self.write_run(0, |writer| {
            for shard in 0..SHARDS {
                let taken = join.take_oldest(shard, SPILL_FRACTION).sort();
                taken.iter().try_for_each(|entry| writer.add(&entry))?;
            }
            Ok(())
        })?;
        self.runs().list.push(run);
        self.changed.notify_all();
        Ok(())
    }

    /// Waits while too many runs wait to be merged.
    fn wait_for_merge_thread(&self) -> Result<(), Error> {
        let must_wait = |runs: &mut Runs| {
            !runs.closed
                && !self.has_mismatch()
                && self.failure().is_none()
                && runs.list.iter().filter(|run| run.level == 0).count() >= MAX_WAITING_RUNS
        };
        let runs = self.changed.wait_while(self.runs(), must_wait);
        drop(runs.unwrap_or_else(PoisonError::into_inner));
        self.failure().map_or(Ok(()), Err)
    }

    fn failure(&self) -> Option<Error> {
        lock(&self.failure).clone()
    }

    /// Writes the open entries of the join to sorted runs for a checkpoint, with `threads` threads, and keeps
    /// them in the join. No worker may be running.
    pub fn copy(&self, join: &Join, threads: usize) -> Result<Vec<SpillFile>, Error> {
        let part = SHARDS.div_ceil(threads);
        let copied = for_all(threads, (0..SHARDS).step_by(part), |start| {
            let mut shards = start..SHARDS.min(start + part);
            self.write_run(0, |writer| {
                Ok(shards.try_for_each(|shard| join.each_open(shard, |entry| writer.add(&entry)))?)
            })
        })?;
        copied.into_iter().collect()
    }

    /// Returns all runs, for a checkpoint, and the number of the next one. Their files stay until
    /// [`Spill::checkpointed`], even if the merge thread, which keeps running, replaces them.
    pub fn list(&self) -> (Vec<SpillFile>, u64) {
        let mut runs = self.runs();
        let numbers: Vec<u64> = runs.list.iter().map(|run| run.number).collect();
        runs.named.extend(numbers);
        (runs.list.clone(), runs.next)
    }

    /// Syncs the files of runs that a checkpoint is to name.
    pub fn sync(&self, runs: &[SpillFile]) -> Result<(), Error> {
        let synced = std::mem::take(&mut self.runs().synced);
        for SpillFile { number, .. } in runs.iter().filter(|run| !synced.contains(&run.number)) {
            let path = sorted_run_path(self.work.path(), *number);
            let mut file = self.work.disk().open_for_writing(&path).during("open for writing", &path)?;
            file.sync().during("sync", &path)?;
        }
        self.runs().synced = runs.iter().map(|run| run.number).collect();
        Ok(())
    }

    /// Removes files that are neither in use nor named by the new checkpoint, which is on disk and names the
    /// runs in `named`.
    pub fn checkpointed(&self, named: Vec<u64>) -> Result<(), Error> {
        let mut runs = self.runs();
        let before = std::mem::replace(&mut runs.named, named);
        let mut unused: Vec<u64> = before
            .into_iter()
            .filter(|number| !runs.named.contains(number))
            .filter(|number| runs.list.iter().all(|run| run.number != *number))
            .collect();
        drop(runs);
        // A number can be there twice: from the previous checkpoint and from the new one's list.
        unused.sort_unstable();
        unused.dedup();
        unused.into_iter().try_for_each(|number| self.remove(number))
    }

    fn remove(&self, number: u64) -> Result<(), Error> {
        let (disk, path) = (self.work.disk(), sorted_run_path(self.work.path(), number));
        let bytes = disk.metadata(&path).during("measure", &path)?.map_or(0, |found| found.len);
        disk.remove_file(&path).during("remove", &path)?;
        let volume = &mut self.runs().volume;
        volume.bytes = volume.bytes.saturating_sub(bytes);
        Ok(())
    }

    fn write_run(
        &self,
        level: u8,
        fill: impl FnOnce(&mut SortedRunWriter) -> Result<(), Error>,
    ) -> Result<SpillFile, Error> {
        self.work.take()?;
        let number = {
            let mut runs = self.runs();
            runs.next += 1;
            runs.next - 1
        };
        let path = sorted_run_path(self.work.path(), number);
        let mut writer = SortedRunWriter::create(self.work.disk(), &path, self.network, RUN_BUFFER_BYTES)?;
        fill(&mut writer)?;
        let run = SpillFile { number, level, meta: writer.finish_unsynced()? };
        let volume = &mut self.runs().volume;
        volume.runs += 1;
        volume.bytes_written += run.meta.bytes;
        volume.bytes += run.meta.bytes;
        volume.peak_bytes = volume.peak_bytes.max(volume.bytes);
        Ok(run)
    }

    /// Merges runs whenever a level is full, until a result of [`Spill::close_at_end`] is dropped. Runs in
    /// its own thread.
    pub fn run_merge_thread(&self, interrupt: &AtomicBool) {
        // Workers must not wait for a merge thread that has ended.
        let _closes_at_end = self.close_at_end();
        loop {
            let runs = self.runs();
            let runs = self
                .changed
                .wait_while(runs, |runs| !runs.closed && full_level(&runs.list).is_none())
                .unwrap_or_else(PoisonError::into_inner);
            if runs.closed {
                return;
            }
            drop(runs);
            let merging = lock(&self.merging);
            let Some(inputs) = full_level(&self.runs().list) else { continue };
            if let Err(error) = self.merge(&inputs, interrupt) {
                *lock(&self.failure) = Some(error);
            }
            drop(merging);
            self.changed.notify_all();
            if self.failure().is_some() || self.has_mismatch() || interrupt.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    /// Replaces several runs by one; on a mismatch or an interrupt, keeps them.
    fn merge(&self, inputs: &[SpillFile], interrupt: &AtomicBool) -> Result<(), Error> {
        let level = inputs.iter().map(|run| run.level).max().unwrap_or(0).saturating_add(1);
        let readers = self.open(inputs)?;
        let sources = readers.iter().map(|reader| MergeInput::of_run(reader, 0..SHARDS));
        let (merged, is_complete) = self.write_merged(level, sources.collect(), true, interrupt)?;
        drop(readers);
        match is_complete {
            true => self.replace(inputs, vec![merged]),
            false => self.remove(merged.number),
        }
    }

    /// Merges sources into a new run. Returns false too if the run is not complete, because of a mismatch or
    /// an interrupt. If not `with_spends`, a spend that is left is a mismatch.
    fn write_merged(
        &self,
        level: u8,
        sources: Vec<MergeInput<'_>>,
        with_spends: bool,
        interrupt: &AtomicBool,
    ) -> Result<(SpillFile, bool), Error> {
        let mut is_complete = false;
        let run = self.write_run(level, |writer| {
            let mut merge = Merge::new(sources)?;
            let mut count = 0u64;
            while !merge.is_at_end() {
                if count.is_multiple_of(INTERRUPT_CHECK_INTERVAL) {
                    self.deliver(&mut merge)?;
                    if interrupt.load(Ordering::Relaxed) {
                        return Ok(());
                    }
                }
                count += 1;
                match merge.advance() {
                    Ok(Some(entry)) if !entry.is_spend || with_spends => writer.add(&entry)?,
                    // The run is of no use any more, but further spends without a coin help to find the
                    // first.
                    Ok(Some(Entry { outpoint, .. })) => self.record_mismatch(outpoint),
                    Ok(None) => count = 0,
                    Err(MergeError::Mismatch(outpoint)) => {
                        self.record_mismatch(outpoint);
                        return Ok(());
                    }
                    Err(MergeError::EntrySource(error)) => return Err(error.into()),
                }
            }
            self.deliver(&mut merge)?;
            is_complete = with_spends || !self.has_mismatch();
            Ok(())
        })?;
        Ok((run, is_complete))
    }

    /// Hands over the coins that the matches of a merge have delivered since the last call.
    fn deliver(&self, merge: &mut Merge<MergeInput<'_>>) -> Result<(), Error> {
        self.deliveries.map_or(Ok(()), |to| to.add(merge.deliveries()))
    }

    /// Lists other runs instead of `inputs`, whose files are removed unless a checkpoint names them.
    fn replace(&self, inputs: &[SpillFile], by: Vec<SpillFile>) -> Result<(), Error> {
        let mut runs = self.runs();
        let is_input = |number: u64| inputs.iter().any(|input| input.number == number);
        runs.list.retain(|run| !is_input(run.number));
        runs.list.extend(by);
        let mut unused: Vec<u64> = inputs.iter().map(|run| run.number).collect();
        unused.retain(|number| !runs.named.contains(number));
        drop(runs);
        unused.into_iter().try_for_each(|number| self.remove(number))
    }

    /// Merges all runs and all open entries of the join, with `threads` threads, so that each spend is
    /// matched. Afterwards the join is empty, and the runs have only coins. No worker may be running. Records
    /// a mismatch if a spend has no coin.
    ///
    /// # Errors
    /// Any I/O error, including one of the merge thread; [`api::error::ErrorKind::Interrupted`].
    pub fn match_all(&self, join: &Join, threads: usize, interrupt: &AtomicBool) -> Result<(), Error> {
        // The merge thread may have begun a merge. Its result is one of the inputs here.
        let _merging = lock(&self.merging);
        let Some(readers) = self.finish(interrupt)? else { return Ok(()) };
        let inputs = self.runs().list.clone();
        let part = SHARDS.div_ceil(threads);
        let merged = for_all(threads, (0..SHARDS).step_by(part), |start| {
            let shards = start..SHARDS.min(start + part);
            let taken = shards.clone().map(|shard| join.take_oldest(shard, 1.0)).collect();
            let mut sources = vec![MergeInput::Memory(ShardSource::new(taken))];
            sources.extend(readers.iter().map(|reader| MergeInput::of_run(reader, shards.clone())));
            self.write_merged(ALL_MERGED, sources, false, interrupt)
        })?;
        let mut runs = Vec::new();
        for part in merged {
            let (run, is_complete) = part?;
            if !is_complete {
                return if self.has_mismatch() { Ok(()) } else { Err(Error::interrupted()) };
            }
            runs.push(run);
        }
        drop(readers);
        self.replace(&inputs, runs)
    }

    fn open(&self, runs: &[SpillFile]) -> Result<Vec<SortedRunReader>, Error> {
        let open = |run: &SpillFile| {
            let path = sorted_run_path(self.work.path(), run.number);
            Ok(SortedRunReader::open(self.work.disk(), &path, self.network)?)
        };
        runs.iter().map(open).collect()
    }

    /// Tells the merge thread to exit when the result is dropped: also if a panic drops it, so that the panic
    /// does not wait for the merge thread.
    pub const fn close_at_end(&self) -> CloseAtEnd<'_, 'a> {
        CloseAtEnd(self)
    }

    /// Returns the remaining runs, few enough to be read together; `None` on a mismatch.
    ///
    /// # Errors
    /// Any I/O error, including one of the merge thread; [`api::error::ErrorKind::Interrupted`].
    pub fn finish(&self, interrupt: &AtomicBool) -> Result<Option<Vec<SortedRunReader>>, Error> {
        if let Some(error) = self.failure() {
            return Err(error);
        }
        while !self.has_mismatch() {
            let mut list = self.runs().list.clone();
            if list.len() <= MAX_REMAINING_RUNS {
                return self.open(&list).map(Some);
            }
            list.sort_by_key(|run| (run.level, run.number));
            list.truncate(FAN_IN);
            self.merge(&list, interrupt)?;
            Error::check_interrupt(interrupt)?;
        }
        Ok(None)
    }
}

/// The result of [`Spill::close_at_end`].
pub struct CloseAtEnd<'s, 'w>(&'s Spill<'w>);

impl Drop for CloseAtEnd<'_, '_> {
    fn drop(&mut self) {
        self.0.runs().closed = true;
        self.0.changed.notify_all();
    }
}

/// Returns the oldest runs of the lowest level that has enough of them: workers wait for level 0 first. A
/// higher level with twice as many takes precedence, or it would grow as long as workers are faster than
/// merges.
fn full_level(runs: &[SpillFile]) -> Option<Vec<SpillFile>> {
    let highest = runs.iter().map(|run| run.level).filter(|level| *level < ALL_MERGED).max()?;
    let count = |level: u8| runs.iter().filter(|run| run.level == level).count();
    let overfull = (1..=highest).rev().find(|&level| count(level) >= 2 * FAN_IN);
    let level = overfull.or_else(|| (0..=highest).find(|&level| count(level) >= FAN_IN))?;
    Some(runs.iter().filter(|run| run.level == level).take(FAN_IN).cloned().collect())
}

/// A source of a merge: shards in memory, or a sorted run.
pub enum MergeInput<'r> {
    /// Shards of the join.
    Memory(ShardSource),
    /// A range of a sorted run.
    Run(SortedRunCursor<'r>),
}

impl<'r> MergeInput<'r> {
    /// Reads the shards in `range` of a sorted run.
    pub fn of_run(reader: &'r SortedRunReader, range: Range<usize>) -> Self {
        Self::Run(reader.cursor(range, RUN_BUFFER_BYTES))
    }
}

impl EntrySource for MergeInput<'_> {
    type Error = DiskError;

    #[inline]
    fn advance(&mut self) -> Result<Option<Entry<'_>>, DiskError> {
        match self {
            Self::Memory(shards) => shards.advance().map_err(|never| match never {}),
            Self::Run(cursor) => cursor.advance(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::fault::FaultDisk;
    use wire::{Coin, Txid};

    /// The merge thread does not wait for a checkpoint that is being written: it was once faster, and removed
    /// runs that the new checkpoint then named.
    #[test]
    fn runs_named_by_a_checkpoint_in_progress_are_kept() {
        let (dir, disk) = (tempfile::tempdir().unwrap(), FaultDisk::healthy());
        let work = WorkDir::new(&disk, dir.path().join("work"));
        let spill = Spill::new(&work, Network::Regtest, 1, None, Vec::new(), 0);
        let exists = |number| sorted_run_path(work.path(), number).exists();
        let run_of = |byte| {
            let outpoint = OutPoint { txid: Txid([byte; 32]), vout: 0 };
            let coin = Coin { code: 2, out: &[0, 6] };
            let entry = Entry { is_spend: false, outpoint, coin };
            let run = spill.write_run(0, |writer| Ok(writer.add(&entry)?)).unwrap();
            spill.runs().list.push(run);
        };
        (1..=2).for_each(run_of);
        let (named, next) = spill.list();
        assert_eq!((named.len(), next), (2, 2));
        spill.merge(&named, &AtomicBool::new(false)).unwrap();
        assert!(exists(0) && exists(1) && exists(2), "the checkpoint may already be written");
        spill.checkpointed(vec![0, 1]).unwrap();
        assert!(exists(0) && exists(1), "the checkpoint names them");
        let (named, _) = spill.list();
        spill.checkpointed(named.iter().map(|run| run.number).collect()).unwrap();
        assert!(!exists(0) && !exists(1) && exists(2), "the next checkpoint does not");
        // Runs that no checkpoint has listed are removed at once.
        run_of(3);
        let after: Vec<SpillFile> = spill.runs().list.clone();
        spill.merge(&after, &AtomicBool::new(false)).unwrap();
        assert!(exists(2) && !exists(3) && exists(4));
    }

    #[test]
    fn a_higher_level_goes_first_when_it_has_twice_as_many_runs() {
        let runs = |levels: &[(u8, usize)]| -> Vec<SpillFile> {
            let all = levels.iter().flat_map(|&(level, count)| std::iter::repeat_n(level, count));
            let meta = SortedRunMeta { entries: 1, spends: 0, bytes: 1, checksum: 0, net: Vec::new() };
            let run = |(level, number)| SpillFile { level, number, meta: meta.clone() };
            all.zip(0..).map(run).collect()
        };
        let chosen = |levels: &[(u8, usize)]| {
            let full = full_level(&runs(levels))?;
            assert_eq!(full.len(), FAN_IN);
            Some((full[0].level, full[0].number))
        };
        assert_eq!(chosen(&[]), None);
        assert_eq!(chosen(&[(0, FAN_IN - 1), (1, FAN_IN - 1)]), None);
        assert_eq!(chosen(&[(0, FAN_IN), (1, 2 * FAN_IN - 1)]), Some((0, 0)));
        assert_eq!(chosen(&[(0, FAN_IN), (1, 2 * FAN_IN)]), Some((1, FAN_IN as u64)));
        assert_eq!(chosen(&[(0, 1), (2, FAN_IN)]), Some((2, 1)));
        assert_eq!(chosen(&[(0, 1), (ALL_MERGED, 2 * FAN_IN)]), None);
    }
}
