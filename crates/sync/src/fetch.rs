//! The loop of a download: hands what peers send to the header chain and the block writer, and asks for more.

use crate::options::{DownloadReport, MarkedBranch, PeerEvent, PeerStatus, Shortfall, SyncOptions, SyncSink};
use crate::{pruning::Pruning, status::Peers};
use api::{
    error::{Error, ErrorKind},
    event::{Event, EventSink},
    note::{Note, Warning},
    options::ChainOptions,
    stage::Stage,
};
use chain::{
    block_writer::{ArrivedBlock, BlockOutcome, BlockWriter, HandledBlock},
    blocks::{claims::PeerClaims, damage::KnownDamage, files::Files},
    header_chain::HeaderChain,
    invalid_blocks::{InvalidBlock, mark_invalid, unmark},
    plan::indexes::SetAside,
    stored_blocks::{DatadirContents, StoredBlocks, UnknownBlocks, write_index},
};
pub use contents::check_indexes;
use contents::read_contents;
use crossbeam::channel::{Receiver, Sender, unbounded};
use disk::index::FileInfo;
use names::Names;
use net::{
    addresses::KnownPeer,
    client::{Client, ClientEvent, ClientOptions},
    download::SizeEstimate,
    headers::locator_heights,
    peer::PeerId,
    pool::{PoolOptions, Target},
};
use notices::Notices;
use seeds::Seeds;
pub use seeds::has_peers;
use sources::Sources;
use std::{
    collections::{HashMap, HashSet},
    mem,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};
use wire::{BlockHash, FileNo, Height};

mod at_tip;
mod coins;
mod contents;
mod follower;
mod headers;
mod names;
mod notices;
mod prune;
mod seeds;
mod sources;
mod withheld;

pub use follower::{Feed, Follower};

/// Longest time for which the loop waits for peers.
const POLL_TIME: Duration = Duration::from_millis(200);
/// Bytes of blocks after which the block index is written.
const SAVE_BYTES: u64 = 16_000_000_000;
/// Time for which further peers are asked for headers when one has no more.
const HEADER_PATIENCE: Duration = Duration::from_secs(5);
/// Time after which a complete download ends although no peer has said whether there are new headers, and
/// after which headers of other branches are not waited for.
const END_PATIENCE: Duration = Duration::from_secs(60);
/// The part of the memory that blocks in hand get: one in this many.
const POOL_SHARE: u64 = 4;
/// Bounds of that memory, in bytes.
const POOL_BYTES: std::ops::RangeInclusive<u64> = 12 << 20..=96 << 20;
/// Maximum number of threads that check and store blocks.
const MAX_WRITERS: usize = 8;
/// Memory of each of them in bytes, for views and hashes of a block.
const WRITER_BYTES: u64 = 4 << 20;

pub struct Fetched {
    pub report: DownloadReport,
    /// Height of the last block that is stored with all blocks below it.
    pub height: Height,
    pub hash: BlockHash,
    /// The peers that have sent blocks.
    pub peers: Vec<PeerStatus>,
    pub chain: HeaderChain,
    pub known: Vec<KnownPeer>,
    /// The branch that all peers follow, if the block index marks it as invalid.
    pub left_out: Option<MarkedBranch>,
    /// The blocks above it that peers claim to have.
    pub shortfall: Option<Shortfall>,
    /// The feed of the rebuild, which must be told that all blocks have come.
    pub feed: Option<Feed>,
}

/// What the loop does at present.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Headers,
    Blocks,
    /// All blocks are stored. At this time, it has asked whether there are new headers.
    Ending(Instant),
    /// It stays at the tip. At this time, it has last asked whether there are new headers.
    AtTip(Instant),
}

/// Downloads the headers of the best chain and its missing blocks, and leaves a block index that has them.
///
/// `damage`: blocks that are downloaded although they are stored; their entries stay until then.
///
/// # Errors
/// Any I/O error; [`ErrorKind::Interrupted`], after which the block index has all blocks that were stored.
pub fn fetch(
    files: &Files<'_>,
    options: &SyncOptions,
    damage: Option<&KnownDamage>,
    follower: &mut dyn Follower,
    sink: &dyn SyncSink,
    interrupt: &AtomicBool,
) -> Result<Fetched, Error> {
    let stays = follower.stays();
    sink.event(Event::Started(if stays { Stage::Follow } else { Stage::Headers }));
    let (mut contents, aside) = read_contents(files, options, damage, follower, sink)?;
    let appender = files.appender(mem::take(&mut contents.infos), options.chain.hooks.block_file_len);
    let writer = &BlockWriter::new(files.params, files.verifier, appender);
    let (arrived_in, arrived) = unbounded();
    let (outcomes_in, outcomes) = unbounded();
    // Without a last height, the chain goes on above what the block index knows.
    let keeps_chain = damage.is_some() && options.chain.stop_at_height.is_some();
    let (coins_from, waiting) = Default::default();
    let writing = Writing { writer, outcomes: &outcomes, in_hand: 0, coins_from, waiting, aside };
    let mut fetch = Fetch::new(files, options, contents, keeps_chain, follower, sink, writing)?;
    if !fetch.stored.has(Height(0)) {
        fetch.append_genesis()?;
    }
    let waker = fetch.client.pool.waker();
    let wake = move || {
        // If this fails, the loop looks a little later.
        let _ = waker.wake();
    };
    thread::scope(|scope| {
        let threads = options.chain.threads.get().min(MAX_WRITERS);
        writer.start(scope, threads, &arrived, &outcomes_in, &wake)?;
        drop((arrived, outcomes_in));
        let start = Instant::now();
        let seeds = Seeds::ask(options, &mut fetch.client);
        let mut done = fetch.run(&arrived_in, seeds, interrupt);
        drop(arrived_in);
        let known: Vec<KnownPeer> = fetch.client.dialer.table.known().collect();
        sink.peer(PeerEvent::Known(known.clone()));
        // Of the blocks in hand, some may be stored: the index must have those.
        for block in &outcomes {
            done = done.and(fetch.handled(block));
        }
        done.and(fetch.save())?;
        Ok(fetch.finish(start, known))
    })
}

/// Memory budget, in bytes, for blocks in hand.
fn pool_bytes(options: &ChainOptions) -> u64 {
    (options.memory_bytes / POOL_SHARE).clamp(*POOL_BYTES.start(), *POOL_BYTES.end())
}

/// Memory in bytes that a download takes besides its headers.
pub fn memory_bytes(options: &ChainOptions) -> u64 {
    pool_bytes(options) + options.threads.get().min(MAX_WRITERS) as u64 * WRITER_BYTES
}

/// Creates the client, with the peers that the user named.
fn client(options: &SyncOptions, chain: &HeaderChain, hears_announcements: bool) -> Result<Client, Error> {
    let options = ClientOptions {
        pool: PoolOptions {
            network: options.chain.params.network,
            magic: options.chain.params.magic,
            user_agent: concat!("/peregrine:", env!("CARGO_PKG_VERSION"), "/").to_owned(),
            height: chain.tip_height().0 as i32,
            wants_spent_coins: options.spent_coins,
            peers: options.peers.clone(),
            memory_bytes: pool_bytes(&options.chain) as usize,
            now: options.chain.hooks.now,
        },
        only_user_targets: !options.peers.connect.is_empty(),
        hears_announcements,
    };
    Client::new(options, locator(chain)).map_err(poll_failed)
}

fn poll_failed(error: std::io::Error) -> Error {
    let detail = format!("the system cannot wait for connections: {error}");
    Error::environment(detail).caused_by(error)
}

fn locator(chain: &HeaderChain) -> Vec<BlockHash> {
    let heights = locator_heights(chain.tip_height().0);
    heights.into_iter().filter_map(|height| chain.hash(Height(height))).collect()
}

struct Fetch<'a> {
    files: &'a Files<'a>,
    options: &'a SyncOptions,
    /// Whether only blocks of the chain in the block index are wanted.
    keeps_chain: bool,
    follower: &'a mut dyn Follower,
    sink: &'a dyn SyncSink,
    writing: Writing<'a>,
    client: Client,
    chain: HeaderChain,
    stored: StoredBlocks,
    report: DownloadReport,
    phase: Phase,
    given: Given,
    index: IndexLag,
    seen: SeenPeers,
    notices: Notices,
}

/// What checks and stores blocks.
struct Writing<'a> {
    writer: &'a BlockWriter<'a>,
    /// What became of the blocks that the writer had.
    outcomes: &'a Receiver<HandledBlock>,
    /// Number of blocks that the writer has.
    in_hand: u32,
    /// The peers that have sent the coins of these blocks.
    coins_from: HashMap<BlockHash, (PeerId, Target)>,
    /// Blocks that have come while others read the datadir.
    waiting: Vec<ClientEvent>,
    /// The indexes that are set aside before the first block is stored.
    aside: SetAside,
}

/// The blocks that the client gets.
#[derive(Default)]
struct Given {
    next: Height,
    /// Number and estimated bytes of the blocks that were missing when the download of blocks began.
    missing: (u32, u64),
    pruning: Option<Pruning>,
    /// With pruning, what the feed was last told of the blocks that come.
    announced: Option<(Height, bool)>,
    /// Where blocks lie in the block files that need no download once their headers have come.
    unknown: UnknownBlocks,
    feed: Option<Feed>,
}

/// What the block index and the chainstate lack.
#[derive(Default)]
struct IndexLag {
    /// Bytes that were stored since the block index was written.
    unsaved: u64,
    /// Whether the block index lacks headers of the chain, places blocks that are lost, or does not know that
    /// a block is invalid.
    is_behind: bool,
    /// The last block up to which the block index has all that is known; `None`: it must be written anew.
    true_to: Option<Height>,
    /// The block index's entries for the files that have changed since blocks were last connected.
    changed_files: Vec<(FileNo, FileInfo)>,
    /// The block above which those of the chain must be looked up in the block index: a reorganisation has
    /// made them part of the chain.
    not_looked_up: Option<Height>,
    /// When the first header was announced that is not connected.
    announced_at: Option<Instant>,
    /// The blocks that lose their marks of invalid blocks when blocks are downloaded.
    reconsidered: Vec<BlockHash>,
}

/// The peers of this run.
#[derive(Default)]
struct SeenPeers {
    /// Those with which the handshake was done.
    peers: Peers,
    /// The height up to which each has offered headers, also most of those whose connections have ended.
    offered: HashMap<Target, Height>,
    /// When the first of them had no more headers.
    first_finished: Option<Instant>,
    /// Those that were closed because they offer a block that this run has found invalid.
    offer_invalid: HashSet<Target>,
    /// Those whose chains have a block that the block index marks as invalid.
    offer_marked: HashSet<PeerId>,
    /// The highest chain of those, and that block.
    marked: Option<MarkedBranch>,
    /// Those that the user gave, and those that are connected.
    sources: Sources,
}

impl<'a> Fetch<'a> {
    /// Begins with the blocks that are stored.
    fn new(
        files: &'a Files<'a>,
        options: &'a SyncOptions,
        contents: DatadirContents,
        keeps_chain: bool,
        follower: &'a mut dyn Follower,
        sink: &'a dyn SyncSink,
        writing: Writing<'a>,
    ) -> Result<Self, Error> {
        let DatadirContents { chain, stored, found, is_index_wrong, unknown, reconsidered, .. } = contents;
        let client = client(options, &chain, follower.stays())?;
        let true_to = (!is_index_wrong).then_some(chain.tip_height());
        Ok(Self {
            files,
            options,
            keeps_chain,
            follower,
            sink,
            writing,
            client,
            chain,
            stored,
            report: DownloadReport { found, ..DownloadReport::default() },
            phase: Phase::Headers,
            given: Given { next: Height(1), unknown, ..Given::default() },
            index: IndexLag { is_behind: is_index_wrong, true_to, reconsidered, ..IndexLag::default() },
            seen: SeenPeers::default(),
            notices: Notices::new(Instant::now()),
        })
    }

    /// Returns what the download has reached. It began at `start`.
    fn finish(mut self, start: Instant, known: Vec<KnownPeer>) -> Fetched {
        self.report.elapsed = start.elapsed();
        self.report.duplicate_bytes = self.client.download.totals().duplicate_bytes;
        let height = Height(self.first_missing().0.saturating_sub(1));
        let hash = self.chain.hash(height).unwrap_or_default();
        let (left_out, shortfall) = (self.left_out(), self.shortfall());
        let peers = self.seen.peers.into_senders();
        let Self { report, chain, given: Given { feed, .. }, .. } = self;
        Fetched { report, height, hash, peers, chain, known, left_out, shortfall, feed }
    }
}

impl Fetch<'_> {
    fn run(
        &mut self,
        arrived: &Sender<ArrivedBlock>,
        mut seeds: Seeds,
        interrupt: &AtomicBool,
    ) -> Result<(), Error> {
        let mut names = Names::new();
        loop {
            if interrupt.load(Ordering::Relaxed) {
                if self.follower.stays() {
                    return Ok(());
                }
                let detail = "interrupted; the blocks that were downloaded are kept";
                return Err(Error::new(ErrorKind::Interrupted, detail));
            }
            seeds.add(self.options, &mut self.client, self.sink);
            for (peer, reason) in names.update(&self.options.peers, &mut self.client) {
                self.notices.last_closed = Some(format!("{peer}: {reason}"));
                self.seen.sources.note_failure(&peer, peer.clone(), reason.clone(), false);
                self.sink.peer(PeerEvent::Closed { peer, reason });
            }
            self.client.spent.set_wanted(self.claims().is_some_and(PeerClaims::are_wanted));
            let new = self.client.poll(POLL_TIME).map_err(poll_failed)?;
            for event in &new {
                // Before the block waits: a peer that closes without a block is forgotten.
                if let ClientEvent::Block { peer, bytes, .. } = event {
                    self.seen.peers.count_block(*peer, bytes.len());
                }
            }
            let mut events = mem::take(&mut self.writing.waiting);
            events.extend(new);
            let is_block = |event: &ClientEvent| matches!(event, ClientEvent::Block { .. });
            if events.iter().any(is_block) {
                if !self.follower.take_lock()? {
                    return Ok(());
                }
                if self.follower.has_lock() {
                    mem::take(&mut self.writing.aside).apply(self.files, self.sink)?;
                } else {
                    (self.writing.waiting, events) = events.into_iter().partition(is_block);
                }
            }
            for event in events {
                self.event(event, arrived);
            }
            // Before the first blocks, more headers may come.
            if (self.phase != Phase::Headers || self.follower.stays()) && !self.look_up_new_branch()? {
                return Ok(());
            }
            let must_write = !self.writing.waiting.is_empty() || self.index.not_looked_up.is_some();
            if must_write && !self.follower.has_lock() {
                continue;
            }
            for block in self.writing.outcomes.try_iter() {
                self.handled(block)?;
            }
            self.leave_withheld_branch()?;
            self.prune()?;
            if self.is_at_end()? || self.ends_below() || self.is_over()? {
                return Ok(());
            }
            if self.index.unsaved >= SAVE_BYTES {
                self.save()?;
            }
            self.check_progress(seeds.may_help())?;
            self.show_progress();
            self.note_what_is_missing();
        }
    }

    fn event(&mut self, event: ClientEvent, arrived: &Sender<ArrivedBlock>) {
        match event {
            ClientEvent::Ready { peer, target, info, transport } => {
                self.seen.peers.add(peer, target.to_string(), info.user_agent.clone(), transport);
                self.seen.peers.measure(&self.client);
                self.report.peers += 1;
                self.note_source(peer, &target, &info);
                self.sink.peer(PeerEvent::Connected {
                    peer: target.to_string(),
                    user_agent: info.user_agent,
                    transport,
                    height: info.height,
                });
            }
            ClientEvent::Closed { peer, target, reason } => {
                self.notices.last_closed = Some(format!("{target}: {reason}"));
                let was_connected = peer.is_some_and(|peer| self.seen.peers.close(peer));
                peer.iter().for_each(|peer| self.chain.forget_branch(peer.0));
                // Many of the addresses that are found lead nowhere.
                if self.note_closed(&target, &reason, was_connected) || was_connected {
                    let (peer, reason) = (target.to_string(), reason.to_string());
                    self.sink.peer(PeerEvent::Closed { peer, reason });
                }
            }
            ClientEvent::Headers(batch) => self.headers(&batch),
            ClientEvent::CoinsRefused { target, fault } => self.note_refused(&target, &fault),
            ClientEvent::Block { height, hash, bytes, coins, .. } => {
                let height = Height(height);
                self.seen.sources.note_progress(self.client.pool.now());
                if self.chain.hash(height) != Some(hash) {
                    // Headers that came before it lead to another branch, whose times are not this block's.
                    let held = bytes.len() + coins.map_or(0, |coins| coins.bytes.len());
                    return self.client.accept_block(height.0, hash, held);
                }
                let expected = self.chain.expected(height, hash);
                self.writing.in_hand += 1;
                let coins = coins.map(|coins| self.note_coins(hash, coins));
                let block = ArrivedBlock { expected, bytes, coins };
                // The writers run until this end is dropped.
                let _ = arrived.send(block);
            }
        }
    }

    /// Goes on with the blocks of another branch above `fork`, and asks for headers again: peers that had no
    /// more of them may have gone over to it too.
    fn leave_branch(&mut self, fork: Height) {
        self.stored.truncate(fork);
        self.index.true_to = self.index.true_to.map(|height| height.min(fork));
        self.end_feed_if_left(fork);
        self.client.leave_branch(fork.0);
        let first = Height(fork.0 + 1);
        if self.given.next > first {
            self.given.next = first;
            self.client.truncate_download(first.0);
            self.count_blocks_to_come();
        }
        self.client.headers.restart(locator(&self.chain));
    }

    /// Ends the feed if the chain, which has other blocks above `fork` now, is not that of the rebuild.
    fn end_feed_if_left(&mut self, fork: Height) {
        let target = self.target();
        self.given.feed.take_if(|feed| self.follower.stops_rebuild(feed.end, fork, target));
    }

    /// Stores the genesis block, for which no peer is asked. The block index must be written anew then.
    fn append_genesis(&mut self) -> Result<(), Error> {
        let (file, data_pos) = self.writing.writer.append_genesis()?;
        self.stored.set(Height(0), file, data_pos, 1);
        (self.index.is_behind, self.index.true_to) = (true, None);
        Ok(())
    }

    fn handled(&mut self, block: HandledBlock) -> Result<(), Error> {
        let HandledBlock { height, hash, len, coins_len, outcome } = block;
        self.writing.in_hand -= 1;
        let held = len + coins_len;
        let coins_from = self.writing.coins_from.remove(&hash);
        match outcome {
            BlockOutcome::Stored { file, data_pos, block, undo } => {
                self.client.accept_block(height.0, hash, held);
                if let Some((undo, from)) = undo.zip(coins_from) {
                    self.claimed((height, hash), *undo, &from, coins_len)?;
                }
                if self.chain.hash(height) == Some(hash) {
                    self.stored.set(height, file, data_pos, block.facts.txids.len() as u32);
                    let below = Height(height.0.saturating_sub(1));
                    self.index.true_to = self.index.true_to.map(|height| height.min(below));
                    if let Some(feed) = &self.given.feed {
                        feed.blocks.place(height, file, data_pos, block);
                    }
                }
                self.given.pruning.iter_mut().for_each(|pruning| pruning.stored(height, len));
                self.report.blocks += 1;
                self.report.bytes += len as u64;
                self.index.unsaved += len as u64;
            }
            BlockOutcome::Mutated => self.client.reject_block(height.0, hash, held),
            BlockOutcome::Invalid(violation) => {
                self.client.accept_block(height.0, hash, held);
                if self.chain.hash(height) == Some(hash) {
                    let error = Error::violation(&violation).at_block(height, hash);
                    self.sink.event(Event::Warning(Warning::InvalidBlock { hash, error }));
                    if self.follower.stays() {
                        // What is not in the chain is not written to the block index any more.
                        mark_invalid(self.files, InvalidBlock { height, hash })?;
                    }
                    self.chain.invalidate(height);
                    self.index.is_behind = true;
                    self.leave_branch(self.chain.tip_height());
                }
            }
            BlockOutcome::Failed(error) => return Err(error),
        }
        Ok(())
    }

    /// Moves to the next phase if the present one is complete. Returns whether the download is.
    fn is_at_end(&mut self) -> Result<bool, Error> {
        if self.phase == Phase::Headers {
            // The blocks of the datadir's own chain are known by their hashes.
            let is_sound = self.keeps_chain || self.chain.has_minimum_work();
            if !(self.peers_have_no_more() && is_sound) {
                return Ok(false);
            }
            let missing = self.first_missing();
            let has = |height| self.client.download.peers().any(|(_, peer)| peer.may_have(height));
            let lacks = |height: &u32| !self.stored.has(Height(*height));
            let may_come = (missing.0..=self.target().0).filter(lacks).any(has);
            if self.keeps_chain && missing <= self.target() && !may_come {
                return Err(self.nobody_has(missing));
            }
            self.phase = Phase::Blocks;
            // Not before peers have answered: most refusals come earlier. What is invalid is marked again.
            unmark(self.files, &mem::take(&mut self.index.reconsidered))?;
            self.look_up_new_branch()?;
            self.find_unknown()?;
            let is_stored = self.stored.is_stored(Height(0));
            if !is_stored && self.follower.rebuilds(&self.chain, self.target())? {
                // A pruned node has deleted it.
                self.append_genesis()?;
            }
            self.save()?;
            self.given.missing = self.missing_blocks();
            let (target, lost) = (self.target(), self.stored.missing());
            let lost = lost.filter_map(|height| self.chain.hash(height)).collect();
            self.given.feed = self.follower.headers_known(&self.chain, target, self.given.missing, lost)?;
            match self.given.feed.as_ref().zip(self.options.prune_bytes) {
                Some((&Feed { end, indexed, .. }, bytes)) => {
                    let (network, file_len) =
                        (self.options.chain.params.network, self.options.chain.hooks.block_file_len);
                    let infos = self.writing.writer.infos();
                    self.given.pruning = Some(Pruning::new(network, bytes, file_len, end, indexed, &infos));
                }
                None => self.check_space()?,
            }
            if !self.follower.stays() {
                self.sink.event(Event::Started(Stage::Download));
            }
        }
        self.give_hashes();
        let is_complete =
            self.given.next > self.target() && self.client.download.is_done() && self.writing.in_hand == 0;
        if self.follower.stays() {
            if is_complete {
                self.at_tip()?;
            }
            return Ok(false);
        }
        if !is_complete {
            self.phase = Phase::Blocks;
            return Ok(false);
        }
        if self.target() < self.chain.tip_height() {
            return Ok(true);
        }
        if let Phase::Ending(since) = self.phase {
            let have_no_more = self.peers_have_no_more() || self.client.pool.now() - since >= END_PATIENCE;
            return Ok(have_no_more && !self.waits_for_claims());
        }
        self.phase = Phase::Ending(self.client.pool.now());
        self.seen.first_finished = None;
        self.client.headers.restart(locator(&self.chain));
        Ok(false)
    }

    /// The last block to download.
    fn target(&self) -> Height {
        let tip = self.chain.tip_height();
        self.options.chain.stop_at_height.map_or(tip, |stop| stop.min(tip))
    }

    fn first_missing(&self) -> Height {
        let missing = (0..=self.target().0).map(Height).find(|&height| !self.stored.has(height));
        missing.unwrap_or(Height(self.target().0 + 1))
    }

    /// Whether all blocks that the follower can use are stored.
    fn ends_below(&self) -> bool {
        let end = self.follower.ends_below();
        end.is_some_and(|end| self.phase != Phase::Headers && self.first_missing() >= end)
    }

    /// Gives the client as many blocks as it can take.
    fn give_hashes(&mut self) {
        let target = self.target();
        let mut is_held = false;
        while self.given.next <= target && self.client.download.wanted_hashes() > 0 {
            is_held =
                self.given.pruning.as_ref().is_some_and(|pruning| !pruning.has_space_for(self.given.next));
            if is_held {
                break;
            }
            let Some(hash) = self.chain.hash(self.given.next) else { return };
            let is_last = self.given.next == target;
            if self.stored.has(self.given.next) {
                self.client.extend_stored(hash, is_last);
            } else {
                self.client.extend([hash], is_last);
                self.given.pruning.iter_mut().for_each(Pruning::given);
            }
            self.given.next.0 += 1;
        }
        if self.given.pruning.is_some() && self.given.announced != Some((self.given.next, is_held)) {
            self.given.announced = Some((self.given.next, is_held));
            if let Some(feed) = &self.given.feed {
                feed.blocks.give(self.given.next, is_held);
            }
        }
    }

    /// Returns when all that was appended is on the medium and in `stored`, with what the block index must
    /// record about each pair of files.
    fn flush(&mut self) -> Result<Vec<FileInfo>, Error> {
        let (writer, outcomes) = (self.writing.writer, self.writing.outcomes);
        writer.flush(|| outcomes.try_iter().try_for_each(|block| self.handled(block)))
    }

    /// Writes what is stored to the medium, and then to the block index.
    fn save(&mut self) -> Result<(), Error> {
        if self.follower.stays() {
            return self.save_new();
        }
        // Core stores no headers of a chain with less work: anybody can make them.
        let is_worthless = self.phase == Phase::Headers && !self.chain.has_minimum_work();
        if (self.index.unsaved > 0 || self.index.is_behind) && !is_worthless {
            // Otherwise the block index would forget blocks of the branch to which the chain has come back.
            self.look_up_new_branch()?;
            let infos = self.flush()?;
            write_index(self.files, &self.chain, &self.stored, &infos, self.sink)?;
            (self.index.unsaved, self.index.is_behind) = (0, false);
        }
        Ok(())
    }

    /// Number and estimated bytes of the blocks to download.
    fn missing_blocks(&self) -> (u32, u64) {
        let sizes = SizeEstimate::new(self.options.chain.params.network);
        let missing = (0..=self.target().0).filter(|&height| !self.stored.has(Height(height)));
        missing.fold((0, 0), |(count, bytes), height| (count + 1, bytes + sizes.bytes(height)))
    }
}
