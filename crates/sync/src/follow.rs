//! Stays at the tip of the chain: blocks that peers announce are stored and connected, each with its undo
//! data, and blocks of a branch with less work are disconnected.
//!
//! The datadir is locked only from the moment that a block has come until it is connected and synced. In
//! between, bitcoind can be started. Each time before anything is written, the lock is taken, and the
//! databases are compared with what they were when it was released: a process that opens a database for
//! writing leaves other files. If another process holds the lock for changes, or a database has changed, the
//! run ends; while others only read, blocks wait in memory.
//!
//! What a block costs depends little on the length of the chain: its rows are added to the block index, and
//! the plan, made once and after each error, is changed at its end; of the databases, all files are listed.

use crate::{
    fetch::{Fetched, Follower, fetch},
    options::{DownloadReport, SyncOptions, SyncReport, SyncWarnings},
    status::add_senders,
};
use api::{
    error::{Error, ErrorKind},
    event::{Event, EventSink, Watch},
    follow::{ConnectedAtTip, FollowEnd, FollowReport},
    note::{Note, Warning},
    report::UpdateReport,
};
use chain::{
    blocks::{
        chain::BlockPosition,
        files::{Files, info_mut},
    },
    header_chain::HeaderChain,
    invalid_blocks::{InvalidBlock, mark_invalid},
    plan::{
        best_block::{BestBlock, KnownBlock},
        planner::Plan,
    },
    session::Session,
    stored_blocks::StoredBlocks,
};
use disk::{
    DiskError,
    index::{FileInfo, IndexRows},
    lock::{DatadirLock, LockMode},
    replace::fingerprint,
};
use engine::update::{self, Update, empty_report, open_chainstate};
use pipeline::job::clock::Clock;
use std::{
    mem,
    ops::Range,
    sync::atomic::AtomicBool,
    time::{Duration, Instant},
};
use vfs::Disk;
use wire::{BlockHash, FileNo, Height};

/// Time between two checks whether another process uses the datadir.
const HOLDER_INTERVAL: Duration = Duration::from_secs(1);

/// Stays at the tip until `interrupt` is set, or another process uses the datadir, and adds to the report of
/// the download what happened. `invalid` are the blocks that were found invalid by then.
///
/// # Errors
/// Those of a download and of an update, except an interrupt and an invalid block.
pub fn follow(
    disk: &dyn Disk,
    options: &SyncOptions,
    invalid: Vec<BlockHash>,
    report: &mut SyncReport,
    sink: &SyncWarnings<'_>,
    interrupt: &AtomicBool,
) -> Result<(), Error> {
    let start = Instant::now();
    let (mut session, _) = Session::open_for_change(disk, &options.rebuild(), sink)?;
    let lock = session.take_change_lock();
    let files = &session.files()?;
    let mut tip = AtTip {
        files,
        options,
        watch: Watch { sink, interrupt },
        lock,
        arrived: Some(start),
        left: Default::default(),
        last_look: start,
        plan: None,
        invalid,
        report: FollowReport::default(),
    };
    let Fetched { report: download, height, hash, peers, chain, shortfall, .. } =
        fetch(files, options, None, &mut tip, sink, interrupt)?;
    // The time at the tip is not one of downloading.
    report.download += DownloadReport { elapsed: Duration::ZERO, ..download };
    // Blocks that were first missing while this run stayed at the tip make it no failure.
    report.shortfall = shortfall.filter(|_| report.shortfall.is_some());
    // These were measured last.
    let before = mem::replace(&mut report.peers, peers);
    add_senders(&mut report.peers, before);
    (report.height, report.hash, report.header_height) = (height, hash, chain.tip_height());
    if let Some(plan) = &tip.plan {
        report.chainstate_height = Some(plan.chain.tip_height());
    }
    tip.report.elapsed = start.elapsed();
    report.follow = Some(tip.report);
    Ok(())
}

/// Returns the invalid block that an error is about, after a warning; returns any other error, also one about
/// a block that is `known` to be invalid.
pub fn invalid_block(error: Error, known: &[BlockHash], sink: &dyn EventSink) -> Result<InvalidBlock, Error> {
    match (error.kind, error.height, error.block_hash) {
        (ErrorKind::Consensus, Some(height), Some(hash)) if !known.contains(&hash) => {
            sink.event(Event::Warning(Warning::InvalidBlock { hash, error }));
            Ok(InvalidBlock { height, hash })
        }
        _ => Err(error),
    }
}

struct AtTip<'a> {
    files: &'a Files<'a>,
    options: &'a SyncOptions,
    watch: Watch<'a>,
    /// Locks the datadir for changes.
    lock: Option<DatadirLock>,
    /// When the lock was first asked for, since it was released: a block had come.
    arrived: Option<Instant>,
    /// Digests of the databases when the lock was released.
    left: [[u8; 32]; 2],
    /// When a process was last looked for that uses the datadir.
    last_look: Instant,
    /// The chain of the chainstate; `None` if it must be read from the block index.
    plan: Option<Plan>,
    /// Stored blocks that were found invalid.
    invalid: Vec<BlockHash>,
    report: FollowReport,
}

impl Follower for AtTip<'_> {
    fn known_invalid(&self) -> &[BlockHash] {
        &self.invalid
    }

    fn stays(&self) -> bool {
        true
    }

    fn has_lock(&self) -> bool {
        self.lock.is_some()
    }

    fn take_lock(&mut self) -> Result<bool, Error> {
        if self.lock.is_some() {
            return Ok(true);
        }
        let has_just_come = self.arrived.is_none();
        self.arrived.get_or_insert_with(Instant::now);
        let lock = match DatadirLock::take(self.files.disk, self.files.datadir, LockMode::Change) {
            Ok(lock) => lock,
            Err(DiskError::Locked { .. }) if self.is_only_read()? => {
                if has_just_come {
                    self.watch.sink.event(Event::Note(Note::WaitingForReaders));
                }
                return Ok(true);
            }
            Err(DiskError::Locked { .. }) => {
                self.report.end = FollowEnd::DatadirInUse;
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        };
        if self.databases()? != self.left {
            self.report.end = FollowEnd::DatadirChanged;
            return Ok(false);
        }
        self.lock = Some(lock);
        Ok(true)
    }

    fn connect(
        &mut self,
        chain: &HeaderChain,
        stored: &StoredBlocks,
        changed: &[(FileNo, FileInfo)],
        announced: Instant,
    ) -> Result<Option<InvalidBlock>, Error> {
        let mut done = empty_report(&self.options.chain, self.files.datadir);
        let connected = match self.plan.take() {
            Some(plan) => self.connect_new(plan, (chain, stored), changed, &mut done),
            None => self.connect_stored(0..0, &mut done),
        };
        let plan = match connected {
            Ok(plan) => plan,
            Err(error) if error.kind == ErrorKind::Interrupted => return Ok(None),
            Err(error) => {
                let block = invalid_block(error, &[], self.watch.sink)?;
                self.invalid.extend(mark_invalid(self.files, block)?);
                return Ok(Some(block));
            }
        };
        let (now, arrived) = (Instant::now(), self.arrived);
        // A sink can block, as a terminal that is stopped does.
        self.release()?;
        if done.commits > 0 {
            let (tip, arrived) = (plan.chain.tip(), arrived.unwrap_or(now));
            let step = ConnectedAtTip {
                height: plan.chain.tip_height(),
                hash: tip.hash,
                blocks: done.counts.blocks as u32,
                disconnected: done.disconnected,
                transactions: done.counts.transactions,
                elapsed: now - announced.min(arrived),
                since_arrival: now - arrived,
            };
            self.report.connected += u64::from(step.blocks);
            self.report.disconnected += u64::from(step.disconnected);
            if self.report.last.len() == FollowReport::MAX_LAST {
                self.report.last.pop_front();
            }
            self.report.last.push_back(step);
            self.watch.sink.event(Event::Note(Note::ConnectedAtTip(step)));
        }
        self.plan = Some(plan);
        Ok(None)
    }

    fn release(&mut self) -> Result<(), Error> {
        if self.lock.is_some() {
            self.left = self.databases()?;
            (self.lock, self.arrived) = (None, None);
            self.last_look = Instant::now();
        }
        Ok(())
    }

    fn is_over(&mut self) -> Result<bool, Error> {
        if self.lock.is_some() || self.last_look.elapsed() < HOLDER_INTERVAL {
            return Ok(false);
        }
        self.last_look = Instant::now();
        let holder = DatadirLock::holder(self.files.disk, self.files.datadir)?;
        let is_used = holder.is_some() && !self.is_only_read()?;
        if is_used {
            self.report.end = FollowEnd::DatadirInUse;
        }
        Ok(is_used)
    }
}

impl AtTip<'_> {
    /// Whether no other process uses the datadir, or only some that read it.
    fn is_only_read(&self) -> Result<bool, Error> {
        match DatadirLock::take(self.files.disk, self.files.datadir, LockMode::Read) {
            Ok(_) => Ok(true),
            Err(DiskError::Locked { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Digests of what another process changes when it opens a database for writing.
    fn databases(&self) -> Result<[[u8; 32]; 2], Error> {
        let Files { disk, datadir, .. } = *self.files;
        Ok([fingerprint(disk, &datadir.index_dir())?, fingerprint(disk, &datadir.chainstate_dir())?])
    }

    /// Connects what the block index has above the chainstate, the blocks at the heights of `exactly` one by
    /// one.
    fn connect_stored(&self, exactly: Range<u32>, done: &mut UpdateReport) -> Result<Plan, Error> {
        let (options, watch) = (&self.options.chain, self.watch.without_events());
        let clock = &mut Clock::start();
        update::connect_stored(self.files, options, &self.invalid, exactly, done, clock, watch)
    }

    /// Connects the blocks of the header chain, if it has more work than that of the plan.
    fn connect_new(
        &self,
        mut plan: Plan,
        (chain, stored): (&HeaderChain, &StoredBlocks),
        changed: &[(FileNo, FileInfo)],
        done: &mut UpdateReport,
    ) -> Result<Plan, Error> {
        for &(file, info) in changed {
            *info_mut(&mut plan.index_files, file) = info;
        }
        if chain.work() <= plan.choice.work {
            return Ok(plan);
        }
        let (height, hash, tip) = (plan.chain.tip_height(), plan.chain.tip().hash, chain.tip_height());
        let is_shared =
            |height: &Height| chain.hash(*height).is_some_and(|hash| plan.chain.has(*height, &hash));
        let fork = (0..=height.min(tip).0).rev().map(Height).find(is_shared).unwrap_or(Height(0));
        let (rows, mut new) =
            (IndexRows::open(self.files.disk, &self.files.datadir.index_dir())?, Vec::new());
        for height in (fork.0 + 1..=tip.0).map(Height) {
            let found = chain.hash(height).zip(stored.place(height));
            let (hash, place) = found.ok_or_else(Error::inconsistent_data)?;
            // The block may be of a branch that was left before: its undo data is stored.
            let entry = rows.entry(&hash)?.filter(|entry| entry.place() == Some(place));
            let position = BlockPosition::new(place.0, place.1, entry.and_then(|entry| entry.undo_pos));
            new.push((hash, position, chain.median_time_before(Height(height.0 + 1))));
        }
        let known = KnownBlock { hash, height, work: plan.choice.work };
        let before = BestBlock { known, fork, can_be_left: true, gap: None };
        plan.chain.replace_above(fork, &new);
        plan.choice.work = chain.work();
        // Scripts of another branch are run.
        for trusted in [&mut plan.choice.assumed_valid_to, &mut plan.choice.checked_to] {
            *trusted = trusted.map(|height| height.min(fork));
        }
        let coins = open_chainstate(self.files)?;
        if coins.best_block() != hash {
            return Err(Error::inconsistent_data());
        }
        let (options, watch) = (&self.options.chain, self.watch.without_events());
        let update = Update { files: self.files, before, options, exactly: 0..0, watch };
        match update.run(&mut plan, coins, done)? {
            Some(suspect) => self.connect_stored(suspect, done),
            None => Ok(plan),
        }
    }
}
